"""Figure 3: what Python hands to the script, and that the script goes on as BlockTable does, for every reader."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from browser import pages, watch
from pagedkv.blocks import BlockPool
from pagedkv.book import figures
from pagedkv.book.figures.base import module_source
from pagedkv.book.figures.copy_on_write import (
    BLOCK_SIZE,
    CAPTION,
    EACH,
    NAMES,
    NUM_BLOCKS,
    PROMPTS,
    SAMPLES,
    WRITES,
    percent,
    play,
    read_out,
    selection,
)
from pagedkv.errors import BadValue
from pagedkv.tables import BlockTable

CHOICES = list(product(PROMPTS, SAMPLES))

# --- what Python computes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prompt", "samples"), CHOICES)
def test_one_token_into_each_copies_for_all_but_the_last_holder(prompt: int, samples: int) -> None:
    state = play(prompt, samples, [EACH])
    full, partial = divmod(prompt, BLOCK_SIZE)
    assert state.copies == (samples - 1 if partial else 0)
    assert state.pool.num_used == full + samples
    assert state.without_sharing == samples * (full + 1)
    assert state.saved == pytest.approx(100 - 100 * (full + samples) / (samples * (full + 1)))
    kinds = [write.what for write in state.actions[0]]
    assert kinds == (["copy"] * (samples - 1) + ["last"] if partial else ["first"] * samples)


@pytest.mark.parametrize(("prompt", "samples"), CHOICES)
def test_no_order_of_writes_runs_out_of_blocks_or_copies_more_than_once_each(
    prompt: int, samples: int
) -> None:
    rng = random.Random(prompt * 10 + samples)
    for _ in range(20):
        writes = list(NAMES[:samples]) * WRITES
        rng.shuffle(writes)
        state = play(prompt, samples, writes)
        assert state.copies == (samples - 1 if prompt % BLOCK_SIZE else 0)
        assert state.pool.num_free >= 1
        assert len({block for table in state.tables for block in table.blocks}) == state.pool.num_used


def test_the_first_state_is_the_managers_own() -> None:
    pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE)
    parent = BlockTable(pool)
    parent.extend(6)
    tables = [parent, parent.fork(), parent.fork(), parent.fork()]
    figure = figures.copy_on_write()
    assert figure.data["start"]["6"] == {"free": pool.free_list(), "blocks": tuple(parent.blocks)}
    assert figure.state == {
        "prompt": 6,
        "samples": 4,
        "writes": [],
        "tables": [table.blocks for table in tables],
        "references": [pool.reference_count(block) for block in range(NUM_BLOCKS)],
        "copies": 0,
        "live": 2,
        "without_sharing": 8,
        "saved": 75.0,
    }
    assert set(figure.data["start"]) == {str(prompt) for prompt in PROMPTS}
    assert {0, 1, 2, 3} == {prompt % BLOCK_SIZE for prompt in PROMPTS}


def test_every_kind_of_write_is_told() -> None:
    def told(prompt: int, samples: int, *writes: str) -> str:
        return read_out(play(prompt, samples, writes))

    assert told(6, 4) == (
        "4 samples share the prompt's 2 blocks. Block 1 has 2 slots left: "
        "whoever writes there while others hold it must copy it first."
    )
    assert told(8, 3) == (
        "3 samples share the prompt's 2 blocks, and all of them are full: no sample will ever write into one."
    )
    assert told(6, 4, "B") == (
        "Sample B writes: block 1 is shared by 4, so its 2 tokens are copied to block 2; 3 others keep block 1."
    )
    assert told(5, 2, "B") == (
        "Sample B writes: block 1 is shared by 2, so its 1 token is copied to block 2; "
        "1 other keeps block 1, now for itself."
    )
    assert told(6, 2, "B", "A") == (
        "Sample A writes token 6 in place: it is the last holder of block 1, so nothing is copied."
    )
    assert told(6, 2, "B", "A", "A") == "Sample A writes token 7 in place: block 1 is its own."
    assert (
        told(6, 2, "B", "B", "B") == "Sample B writes: its block 2 is full, so token 8 goes into new block 3."
    )
    assert told(8, 2, "A") == (
        "Sample A writes: the prompt ends on a block boundary, so nothing is copied; "
        "token 8 goes into new block 2."
    )
    assert told(6, 4, "A", EACH) == (
        "One into each: A writes in place, into block 2 of its own; B and C copy block 1 (2 tokens) to blocks 3 "
        "and 4; D, the last holder of block 1, writes in place."
    )
    assert told(8, 2, EACH) == (
        "One into each: the prompt ends on a block boundary, so nothing is copied; A and B take new blocks 2 and 3."
    )
    assert told(7, 2, EACH, EACH).startswith("One into each: A and B have filled their blocks and take new")


def test_the_fallback_tells_the_story_with_the_same_numbers() -> None:
    html = figures.copy_on_write().fallback
    for count in range(5):
        state = play(6, 4, list("ABCD")[:count])
        saved = percent(state.saved).replace(" ", "&nbsp;")
        assert f"<td>{read_out(state)}</td><td>{state.copies}</td><td>{state.pool.num_used}</td>" in html
        assert f"<td>{state.without_sharing}</td><td>{saved}</td>" in html
    assert "<td>3</td><td>5</td><td>8</td><td>37.5&nbsp;%</td>" in html
    assert "12 tokens, block boundary</th><td>0</td><td>7</td><td>16</td><td>56.3&nbsp;%</td>" in html
    assert "×4 A B C D" in html and "4 5 D6 –" in html
    assert "Sample B writes" in figures.copy_on_write(writes=["B"]).fallback
    assert "Sample A writes" not in figures.copy_on_write(writes=["B"]).fallback


def test_the_caption_has_two_sentences_and_opens_the_fallback() -> None:
    assert CAPTION.count(". ") == 1 and CAPTION.endswith(".")
    assert figures.copy_on_write().fallback.startswith(f"<p>{CAPTION}</p>")


def test_percent_rounds_half_a_step_up() -> None:
    assert [percent(value) for value in (0, 6.25, 37.5, 56.25, 100 / 3)] == [
        "0.0 %",
        "6.3 %",
        "37.5 %",
        "56.3 %",
        "33.3 %",
    ]


def test_the_figure_refuses_what_it_cannot_show() -> None:
    for wrong in (
        {"prompt": 4},
        {"prompt": 13},
        {"prompt": 6.0},
        {"samples": 1},
        {"samples": 7},
        {"samples": True},
        {"writes": ["E"]},
        {"writes": [""]},
        {"writes": ["AB"]},
        {"writes": "AAAAA"},
        {"writes": EACH * 5},
    ):
        with pytest.raises(BadValue):
            figures.copy_on_write(**wrong)
    assert figures.copy_on_write(writes="BA*").state["copies"] == 3


def test_code_and_data_stay_small_and_two_builds_agree() -> None:
    html = figures.copy_on_write().to_html()
    assert html == figures.copy_on_write().to_html()
    own = (figures.JS_DIR / figures.SCRIPTS["copy-on-write"][-1]).read_bytes() + html.encode()
    assert len(own) < 40_000
    assert len(gzip.compress(module_source("copy-on-write").encode() + html.encode())) < 20_000


# --- in a browser ---------------------------------------------------------------------------------------------------

READ = """() => {
  const root = document.querySelector(".pkv-copy-on-write"), text = css => root.querySelector(css).textContent;
  const tokens = node => [...node.querySelectorAll(":scope > .late, :scope > .cell:not(:first-child)")]
    .map(cell => [cell.textContent, cell.classList.contains("s")]);
  const words = node => [...node.firstChild.querySelectorAll("text")].map(t => [...t.childNodes]
    .filter(n => !(n.classList && n.classList.contains("gone"))).map(n => n.textContent).join(""));
  return {state: document.querySelector("pagedkv-figure").state, say: text(".say"),
    facts: ["copies", "live", "without", "saved"].map(name => text("dd." + name)),
    tally: [".s", ".p", ":not(.s,.p)"].map(css => root.querySelectorAll(".tally .cell" + css).length),
    lanes: [...root.querySelectorAll("[data-lane]")].map(n => 
      [n.dataset.lane, +n.dataset.logical, words(n), tokens(n)]),
    pool: [...root.querySelectorAll("[data-block]")].map(n => [+n.dataset.block, words(n), tokens(n)]),
    arrows: [...root.querySelectorAll(".wire:not(.back)")].map(n => n.dataset.copy),
    buttons: [...root.querySelectorAll("button")].filter(b => !b.disabled)
      .map(b => b.getAttribute("aria-label") || b.textContent),
    spoken: [...root.querySelectorAll(".lane .pkv-sr")].map(n => n.textContent), picture: text("p.pkv-sr")};
}"""


class Reader:
    """The same reader in Python: what was chosen, and the managers that follow from it."""

    def __init__(self, prompt: int = 6, samples: int = 4) -> None:
        self.prompt, self.samples = prompt, samples
        self.writes: list[str] = []
        self.undone = False

    def effective(self) -> list[bool]:
        """For each action, whether it writes anything here: its sample is shown and has room."""
        taken: list[bool] = []
        kept: list[str] = []
        for action in self.writes:
            lengths = [table.length for table in play(self.prompt, self.samples, kept).tables]
            room = [name for name, n in zip(NAMES, lengths, strict=False) if n < self.prompt + WRITES]
            taken.append(action in room or (action == EACH and bool(room)))
            if taken[-1]:
                kept.append(action)
        return taken

    def state(self) -> Any:
        return play(
            self.prompt,
            self.samples,
            [a for a, taken in zip(self.writes, self.effective(), strict=True) if taken],
        )

    def do(self, action: str) -> None:
        self.undone = action == "undo"
        if action == "undo":
            while self.writes and not self.effective()[-1]:
                self.writes.pop()
            self.writes.pop()
        elif action == "reset":
            self.writes.clear()
        elif action.startswith("prompt"):
            self.prompt = int(action[6:])
        elif action.startswith("samples"):
            self.samples = int(action[7:])
        else:
            self.writes.append(action)

    def possible(self) -> list[str]:
        state = self.state()
        room = [
            name
            for name, table in zip(NAMES, state.tables, strict=False)
            if table.length < self.prompt + WRITES
        ]
        return [
            *room,
            *([EACH] if room else []),
            *(["undo"] if state.actions else []),
            *(["reset"] if self.writes else []),
        ]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    with pages(browser, tmp_path, figures.copy_on_write, height=1200) as open_page:
        yield open_page


def button(action: str) -> str:
    return {"undo": "Undo", "reset": "Reset", EACH: "Write one into each"}.get(
        action, f"Write a token into sample {action}"
    )


def do(page: Any, action: str) -> None:
    if action.startswith("prompt"):
        page.locator(".pkv input[type=range]").fill(action[6:])
    elif action.startswith("samples"):
        page.get_by_label("Samples", exact=True).and_(page.locator("select")).select_option(action[7:])
    else:
        page.get_by_role("button", name=button(action), exact=True).click()


def check(page: Any, reader: Reader) -> None:
    """Everything that the figure says and draws, against BlockTable doing the same."""
    seen, state = page.evaluate(READ), reader.state()
    assert seen["state"] == selection(state, reader.writes)
    # Words and counters.
    assert seen["say"] == ("Undone, back to: " if reader.undone else "") + read_out(state)
    live, without = state.pool.num_used, state.without_sharing
    assert seen["facts"] == [str(state.copies), str(live), str(without), percent(state.saved)]
    references = [state.pool.reference_count(block) for block in range(NUM_BLOCKS)]
    shared = sum(count > 1 for count in references)
    assert seen["tally"] == [shared, live - shared, without - live]
    # The lanes: tokens by logical block, the entry's physical block, and the count where it is shared.
    named = list(zip(NAMES, state.tables, strict=False))
    moved = {}
    if not reader.undone and state.actions:
        moved = {write.block: write.before for write in state.actions[-1] if write.what == "copy"}
    assert seen["arrows"] == [f"{source}>{block}" for block, source in moved.items()]
    lanes, slots = [], {}
    for name, table in named:
        labels = [f"{name if at >= reader.prompt else ''}{at}" for at in range(table.length)]
        slots.update({table.slot(at): label for at, label in enumerate(labels)})
        for logical, block in enumerate(table.blocks):
            many = references[block] > 1
            entry = f"block  → {block}" if block in moved else f"block {block}"
            cells = labels[logical * BLOCK_SIZE : (logical + 1) * BLOCK_SIZE]
            count = [f"×{references[block]}"] if many else []
            lanes.append([name, logical, [entry, *count], [[label, many] for label in cells]])
    assert seen["lanes"] == lanes
    # The pool: every live block with its count, its holders and what its slots hold.
    pool = []
    for block, count in enumerate(references):
        if count:
            who = "".join(name for name, table in named if block in table.blocks)
            held = [slots.get(block * BLOCK_SIZE + offset) for offset in range(BLOCK_SIZE)]
            pool.append([block, [f"×{count}", who], [[label, count > 1] for label in held if label]])
            assert (
                f"block {block}: {count} reference{'s' if count > 1 else ''}, {' '.join(who)}"
                in seen["picture"]
            )
    assert [
        [block, [words[0], words[1].replace(" ", "")], cells] for block, words, cells in seen["pool"]
    ] == pool
    assert f"; {state.pool.num_free} free." in seen["picture"]
    for (_, table), spoken in zip(named, seen["spoken"], strict=True):
        entries = [f"{b} (shared by {references[b]})" if references[b] > 1 else str(b) for b in table.blocks]
        assert spoken == f"{table.length} tokens; block table: {', '.join(entries)}"
    assert sorted(seen["buttons"]) == sorted(map(button, reader.possible()))


SCRIPTS_OF_ACTIONS = {
    "all write in turn, then in place": ["B", "A", "D", "C", "C", "A", "A", "A"],
    "one into each until all are full": [EACH, EACH, EACH, EACH],
    "a boundary prompt": ["prompt8", EACH, "A", "undo", "prompt12", "B", "reset"],
    "a history meets another prompt": [EACH, "prompt7", "prompt8", "prompt9", "B", "prompt5", "undo", "undo"],
    "a history meets other numbers of samples": [
        "D",
        EACH,
        "samples2",
        "samples3",
        "undo",
        "samples6",
        EACH,
        "undo",
    ],
    "undo goes back past samples that are gone": ["A", "D", "D", "samples2", "undo", "samples4", "B"],
    "reset, and once more": ["C", "C", "reset", "C", "undo"],
}


@pytest.mark.browser
@pytest.mark.parametrize("name", SCRIPTS_OF_ACTIONS)
def test_a_script_of_actions_shows_what_the_block_tables_hold(show: Any, name: str) -> None:
    page, reader = show(), Reader()
    check(page, reader)
    for action in SCRIPTS_OF_ACTIONS[name]:
        do(page, action)
        reader.do(action)
        check(page, reader)


@pytest.mark.browser
def test_random_readers_agree_with_the_block_tables_after_every_action(show: Any) -> None:
    page, reader, rng = show(viewport={"width": 360, "height": 900}), Reader(), random.Random(3)
    kinds: set[str] = set()
    for _ in range(250):
        choices = [one for one in reader.possible() if one != "reset" or rng.random() < 0.2]
        if rng.random() < 0.25 or not choices:
            choices = [f"prompt{rng.choice(PROMPTS)}", f"samples{rng.choice(SAMPLES)}"]
        action = rng.choice(choices)
        page.evaluate(
            """([action, name]) => { const set = (css, event, value) => { const node = document.querySelector(css);
                node.value = value; node.dispatchEvent(new Event(event)); };
              if (action.startsWith("prompt")) set(".pkv input", "input", action.slice(6));
              else if (action.startsWith("samples")) set(".pkv select", "change", action.slice(7));
              else [...document.querySelectorAll(".pkv button")]
                .find(b => (b.getAttribute("aria-label") || b.textContent) === name).click(); }""",
            [action, button(action)],
        )
        reader.do(action)
        check(page, reader)
        kinds |= {write.what for group in reader.state().actions for write in group}
    assert kinds == {"copy", "last", "own", "first", "next"}


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 360])
def test_every_arrow_leads_from_the_block_copied_to_its_copy(show: Any, width: int) -> None:
    page = show(figure=figures.copy_on_write(9, 6, writes="AAAA"), viewport={"width": width, "height": 900})
    do(page, EACH)
    ends = page.evaluate(
        """() => [...document.querySelectorAll(".wire:not(.back)")].map(path => {
          const box = path.ownerSVGElement.getBoundingClientRect(), total = path.getTotalLength();
          const point = at => [path.getPointAtLength(at).x + box.x, path.getPointAtLength(at).y + box.y];
          return [path.dataset.copy, point(0), point(total)];
        })"""
    )
    assert [name for name, *_ in ends] == ["2>5", "2>6", "2>7", "2>8"]
    for name, start, end in ends:
        for block, (x, y) in zip(name.split(">"), (start, end), strict=True):
            box = page.locator(f"[data-block='{block}']").bounding_box()
            assert box["x"] < x < box["x"] + box["width"], (name, block)
            assert min(abs(y - box["y"]), abs(y - box["y"] - box["height"])) < 10, (name, block)
    crossed = page.evaluate(
        """() => { const blocks = [...document.querySelectorAll("[data-block]")].map(n => n.getBoundingClientRect());
          return [...document.querySelectorAll(".wire:not(.back)")].filter(path => {
            const box = path.ownerSVGElement.getBoundingClientRect(), step = path.getTotalLength() / 200;
            const points = Array.from({length: 201}, (_, i) => path.getPointAtLength(i * step));
            // Straight along the gaps, but for the round corners.
            const slanted = points.slice(1).filter((p, i) => Math.min(Math.abs(p.x - points[i].x),
              Math.abs(p.y - points[i].y)) > step / 20).length * step;
            return slanted > 40 || points.some(({x, y}) => blocks.some(b => x + box.x > b.left + 1
              && x + box.x < b.right - 1 && y + box.y > b.top + 1 && y + box.y < b.bottom - 1));
          }).map(path => path.dataset.copy); }"""
    )
    assert crossed == [], "an arrow runs over a block"


@pytest.mark.browser
def test_a_write_is_animated_and_a_reader_can_ask_for_no_motion(show: Any) -> None:
    moving = show()
    do(moving, "B")
    assert moving.evaluate("document.getAnimations().length") > 2
    do(moving, "prompt7")
    assert moving.evaluate("document.getAnimations().length") == 0, (
        "what was written earlier does not move again"
    )
    do(moving, "undo")
    assert moving.evaluate("document.getAnimations().length") == 0
    still = show(reduced_motion="reduce")
    do(still, "B")
    assert still.evaluate("document.getAnimations().length") == 0
    assert still.locator(".wire:not(.back)").evaluate("p => getComputedStyle(p).strokeDashoffset") in (
        "0",
        "0px",
    )
    assert still.locator(".pkv .late").first.evaluate("p => getComputedStyle(p).opacity") == "1"


@pytest.mark.browser
def test_everything_by_keyboard(show: Any) -> None:
    page, reader = show(), Reader()

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    press("Tab", "ArrowDown")
    reader.do("samples5")
    check(page, reader)
    press("Tab", "ArrowRight")
    reader.do("prompt7")
    check(page, reader)
    press("Tab", "Enter")
    reader.do(EACH)
    check(page, reader)
    press("Tab", "Space")
    reader.do("undo")
    check(page, reader)
    press("Tab", "Tab")  # nothing to undo or reset now: on to the samples
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label is not None and label.startswith("Write a token into sample")
    name = label[-1]
    press("Enter", "Enter")
    reader.do(name)
    reader.do(name)
    check(page, reader)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label
    # Its blocks are ringed in its lane and in the pool, except those that are marked already.
    assert page.locator(".rings rect").count() == 5


@pytest.mark.browser
def test_boundaries_are_marked_and_said(show: Any) -> None:
    page = show()
    marked = page.locator("[data-boundary]").evaluate_all("all => all.map(node => +node.dataset.boundary)")
    assert marked == [8, 12]
    slider = page.locator(".pkv input[type=range]")
    assert slider.get_attribute("aria-valuetext") == "6 tokens, last block holds 2 of 4"
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "8 tokens, ends on a block boundary"
    assert page.locator(".prompt").inner_text() == "8 tokens, ends on a block boundary"


@pytest.mark.browser
def test_a_screen_reader_hears_the_read_out_and_the_counters(show: Any) -> None:
    page = show()
    do(page, "B")
    page.wait_for_timeout(450)
    assert page.locator(".pkv [aria-live]").inner_text() == (
        f"{read_out(play(6, 4, 'B'))} 1 copy made, 3 blocks live, 8 without sharing, 62.5 % saved."
    )


@pytest.mark.browser
def test_the_kernel_can_move_the_figure(show: Any) -> None:
    page, reader = show(figure=figures.copy_on_write(8, 2, writes="*A")), Reader(8, 2)
    reader.writes = ["*", "A"]
    check(page, reader)
    page.evaluate("document.querySelector('pagedkv-figure').state = {prompt: 7, samples: 3, writes: ['C']}")
    reader.prompt, reader.samples, reader.writes = 7, 3, ["C"]
    check(page, reader)
    page.evaluate(
        "document.querySelector('pagedkv-figure').state = {prompt: 99, samples: 0, writes: ['Z', 'A']}"
    )
    reader.prompt, reader.samples, reader.writes = 12, 2, ["Z", "A"]
    check(page, reader)


@pytest.mark.browser
def test_in_a_notebook_the_kernel_sees_what_the_reader_wrote(browser: Any) -> None:
    page = browser.new_page()
    trouble = watch(page, "about:")
    figure = figures.copy_on_write()
    payload = figure._payload()
    seen = page.evaluate(
        """async ([source, payload, state]) => {
          const module = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
          const values = {kind: "copy-on-write", payload, state}, el = document.body, heard = [];
          const model = {get: name => values[name], set: (name, value) => { values[name] = value; },
            save_changes: () => {}, on: (_, fn) => heard.push(fn), off: () => {}};
          const close = module.default.render({model, el});
          [...el.querySelectorAll("button")].find(b => b.ariaLabel === "Write a token into sample C").click();
          await new Promise(done => setTimeout(done, 300));
          const written = {...values.state};
          values.state = {...values.state, writes: ["*"]};
          heard.forEach(fn => fn());
          const said = el.querySelector(".say").textContent;
          close();
          return [written, said, el.childElementCount]; }""",
        [module_source("copy-on-write"), payload, figure.state],
    )
    page.close()
    assert seen == [selection(play(6, 4, "C"), ["C"]), read_out(play(6, 4, EACH)), 0]
    assert trouble == []


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 360)])
def test_axe_finds_nothing(show: Any, theme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(theme=theme, viewport={"width": width, "height": 900}, reduced_motion="reduce")
    for action in ("prompt6", EACH):
        do(page, action)
        found = axe.Axe().run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["target"]) for v in found] == []


OUTSIDE = """() => { const bad = [], box = node => node.getBoundingClientRect();
  for (const text of document.querySelectorAll(":is([data-lane], [data-block]) text")) {
    const inner = box(text), outer = box(text.parentNode.querySelector("rect"));
    if (inner.left < outer.left - 1.5 || inner.right > outer.right + 1.5) bad.push(text.textContent);
    const next = text.nextElementSibling;
    if (next && next.tagName === "text" && inner.right > box(next).left) bad.push(text.textContent);
  }
  const figure = box(document.querySelector(".pkv"));
  for (const text of document.querySelectorAll(".pkv svg text"))
    if (box(text).right > figure.right || box(text).left < figure.left) bad.push(text.textContent);
  return bad; }"""


@pytest.mark.browser
def test_it_fits_every_width_with_its_labels_inside(show: Any) -> None:
    page = show(figure=figures.copy_on_write(11, 6))
    # A count that just fell, over the most holders; then the longest tokens and tables.
    for actions in ("F", "AAAA*"):
        for action in actions:
            do(page, action)
        for width in (1200, 700, 480, 360, 330, 320):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(120)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OUTSIDE) == [], (actions, width)
    page.set_viewport_size({"width": 360, "height": 900})
    small = page.evaluate(
        """() => [...document.querySelectorAll(".pkv :is(button, select, input)")]
          .filter(e => e.getBoundingClientRect().width < 24 || e.getBoundingClientRect().height < 24).length"""
    )
    assert small == 0


@pytest.mark.browser
def test_nothing_is_said_by_colour_alone(show: Any) -> None:
    page = show(forced_colors="active")
    do(page, "B")
    fills = page.locator("[data-block] .cell rect").evaluate_all(
        "all => all.map(n => getComputedStyle(n).fill)"
    )
    inks = page.locator("[data-block] .cell text").evaluate_all(
        "all => all.map(n => getComputedStyle(n).fill)"
    )
    assert len(set(fills)) == 1 and len(set(inks)) == 1 and fills[0] != inks[0]
    feet = page.locator("[data-block] > :first-child").all_text_contents()
    assert [re.findall(r"×\d", foot)[-1] for foot in feet] == ["×4", "×3", "×1"]


@pytest.mark.browser
def test_without_javascript_the_numbers_stand_there(show: Any) -> None:
    page = show(java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert CAPTION in text and read_out(play(6, 4, "AB")) in text
    assert re.search(r"8 tokens, block boundary\s+0\s+6\s+12\s+50\.0", text)
    assert page.locator("pagedkv-figure svg").is_visible()


def test_the_state_is_plain_json() -> None:
    state = figures.copy_on_write(writes="*B").state
    assert json.loads(json.dumps(state)) == state
