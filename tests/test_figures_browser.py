"""The figures in a real browser: what they show is what Python computed, for every reader and on every screen."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import page_with, pages
from pagedkv.blocks import BlockPool
from pagedkv.book import figures
from pagedkv.book.figures.allocators import ending_percentages
from pagedkv.book.figures.block_table import SIZES, read_out, scattered, selection
from pagedkv.contiguous import FirstFit, Fixed, Span
from pagedkv.replay import Moment, Paged, Replay, Reserved, replay
from pagedkv.tables import BlockTable
from pagedkv.waste import Breakdown
from pagedkv.workloads import teaching_stream

pytestmark = pytest.mark.browser


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    with pages(browser, tmp_path, figures.two_allocators, height=900) as open_page:
        yield open_page


# --- figure 1 -------------------------------------------------------------------------------------------------------

ROW = 560  # slots in a row of the picture: a reservation
PITCH = 19  # pixels from row to row
STATES = ("tokens", "reserved", "overprovisioned", "sliver", "external", "free")
PATHS = """side => {
  const pool = document.querySelector(`.side.${side} .cells`), read = {};
  for (const path of document.querySelectorAll(`.side.${side} [data-state]`))
    read[path.dataset.state] = path.getAttribute("d");
  return [pool.offsetLeft, pool.offsetTop, pool.offsetWidth, read];
}"""


def census(page: Any, side: str) -> list[str]:
    """The state that the picture shows for every slot of a pool, read off its rectangles."""
    left, top, width, paths = page.evaluate(PATHS, side)
    slots = ["nothing"] * 4800
    for state in STATES:
        for found in re.finditer(r"M([\d.]+) ([\d.]+)h([\d.]+)v", paths[state] or ""):
            x, y, wide = map(float, found.groups())
            if state == "free":  # an outline, a pixel inside its cell
                x, wide = x - 1, wide + 2
            first = round((y - top) // PITCH) * ROW + round((x - left) * ROW / width)
            count = round(wide * ROW / width)
            assert set(slots[first : first + count]) == {"nothing"}, (
                f"{state} drawn over another state at {first}"
            )
            slots[first : first + count] = [state] * count
    return slots


def expected_census(run: Replay, step: int) -> list[str]:
    """The same from the replay's stays, by the definitions in `pagedkv.waste`."""
    waits = any(stay.queued <= step < stay.admitted for stay in run.stays)
    contiguous = isinstance(run.stays[0].placement, Span)
    slots = ["external" if waits and contiguous else "free"] * 4800
    for stay in run.stays:
        if not stay.admitted <= step < stay.left:
            continue
        now, total = step + 1 - stay.admitted, stay.request.total
        if isinstance(stay.placement, Span):
            held, spare = list(range(stay.placement.start, stay.placement.start + ROW)), "overprovisioned"
        else:
            blocks = stay.placement[: -(-now // 16)]
            held, spare = [block * 16 + i for block in blocks for i in range(16)], "sliver"
        for i, slot in enumerate(held):
            slots[slot] = "tokens" if i < now else "reserved" if i < total else spare
    return slots


@pytest.fixture(scope="module")
def runs() -> dict[str, tuple[Replay, list[Moment]]]:
    sides: dict[str, tuple[Replay, list[Moment]]] = {}
    for name, memory in (
        ("contiguous", Reserved(FirstFit(4800), Fixed(560))),
        ("paged", Paged(BlockPool(300, 16))),
    ):
        moments: list[Moment] = []
        sides[name] = (replay(teaching_stream(), memory, watch=moments.append), moments)
    return sides


def percent(part: float, whole: float) -> str:
    """One decimal, and exactly half a step up, as JavaScript rounds (Python goes to the even digit)."""
    tenths = 1000 * part / whole
    return f"{math.floor(tenths + 0.5) / 10:.1f} %"


def numbers(page: Any, side: str) -> dict[str, str]:
    read: dict[str, str] = page.evaluate(
        """side => { const at = css => document.querySelector(`.side.${side} ${css}`);
          const lanes = [...document.querySelectorAll(`.side.${side} svg > text`)].map(t => t.textContent).join("|");
          const chips = css => document.querySelectorAll(`.side.${side} .chip${css}[opacity="1"]`).length;
          return {now: at(".now b").textContent, pool: at(".now .m").textContent, lanes, end: at(".end").textContent,
            average: at(".average").textContent, waiting: chips(":not(.run)"), running: chips(".run")}; }""",
        side,
    )
    return read


def test_read_outs_and_cells_are_pythons_at_every_kind_of_moment(show: Any, runs: Any) -> None:
    page = show(figures.two_allocators())
    last = max(run.iterations for run, _ in runs.values())
    events = {
        at for run, _ in runs.values() for stay in run.stays for at in (stay.queued, stay.admitted, stay.left)
    }
    for step in sorted({0, last - 1, last, *range(0, last, 37), *sorted(events)[::4]}):
        page.locator(".scrub input").fill(str(step))
        for side, (run, moments) in runs.items():
            over = step >= run.iterations
            moment = Moment(step, 0.0, 0, 0, Breakdown(free=4800)) if over else moments[step]
            parts, shown = moment.breakdown, numbers(page, side)
            taken = 4800 - parts.free
            done = sum(stay.left <= step for stay in run.stays)
            assert shown["now"] == ("-" if not taken else percent(parts.tokens, taken)), (side, step)
            pool = re.findall(r"[\d.]+ %", shown["pool"])
            assert pool == [percent(parts.tokens, 4800), percent(taken, 4800)], (side, step)
            assert f"waiting: {moment.waiting}|running: {moment.resident}|finished: {done}" in shown["lanes"]
            assert (shown["waiting"], shown["running"]) == (moment.waiting, moment.resident)
            so_far = [one.breakdown for one in moments[: step + 1]]
            average = Breakdown(*(sum(getattr(b, f) for b in so_far) for f in Breakdown.__dataclass_fields__))
            of_taken, of_pool = ending_percentages(average)
            assert shown["average"] == percent(of_taken, 100)
            assert shown["end"].endswith(f"of the whole pool, {percent(of_pool, 100)}")

            drawn = census(page, side)
            assert drawn == expected_census(run, step), (side, step)
            assert [drawn.count(state) for state in STATES] == [getattr(parts, state) for state in STATES]


def test_the_ending_percentages_are_the_ones_of_the_package(show: Any, runs: Any) -> None:
    page = show(figures.two_allocators())
    page.locator(".scrub input").press("End")
    for side, (run, _) in runs.items():
        text = page.locator(f".side.{side} .end").inner_text()
        of_taken, of_pool = ending_percentages(run.breakdown)
        assert (
            f"Ending percentage: {of_taken:.1f} %" in text and f"of the whole pool, {of_pool:.1f} %" in text
        )


def test_play_pause_speed_and_reset(show: Any) -> None:
    page = show(figures.two_allocators())

    def step() -> int:
        return int(page.locator(".scrub input").input_value())

    poster = step()
    assert poster > 0
    page.get_by_label("Speed").select_option(label="4×")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('.scrub input').value > 20")
    assert step() < poster, "an untouched figure plays from the start"
    page.get_by_role("button", name="Pause").click()
    stopped = step()
    page.wait_for_timeout(150)
    assert step() == stopped
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"document.querySelector('.scrub input').value > {stopped}")
    page.get_by_role("button", name="Reset").click()
    page.wait_for_timeout(100)
    assert step() == 0
    page.locator(".scrub input").fill("780")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('.scrub input').value == 783")
    page.get_by_role("button", name="Play").wait_for()


def test_steps_go_from_event_to_event(show: Any, runs: Any) -> None:
    page = show(figures.two_allocators(step=0))
    stays = [stay for run, _ in runs.values() for stay in run.stays]
    stops = sorted({0, *(at for stay in stays for at in (stay.queued, stay.admitted, stay.left))})
    forward, backward = (page.get_by_role("button", name=n) for n in ("next event", "previous event"))
    for stop in stops[1:9]:
        forward.click()
        assert page.locator(".scrub input").input_value() == str(stop)
    for stop in reversed(stops[:8]):
        backward.click()
        assert page.locator(".scrub input").input_value() == str(stop)
    assert backward.is_disabled()


def test_reduced_motion_leaves_steps_and_takes_play_away(show: Any) -> None:
    page = show(figures.two_allocators(step=0), reduced_motion="reduce")
    assert not page.locator(".play").is_visible()
    page.evaluate("document.querySelector('.play').click()")
    page.wait_for_timeout(100)
    assert page.locator(".scrub input").input_value() == "0"
    page.get_by_role("button", name="next event").click()
    assert page.locator(".scrub input").input_value() != "0"
    durations = page.evaluate(
        "[...document.querySelectorAll('.pkv *')].map(e => getComputedStyle(e).transitionDuration)"
    )
    assert set(durations) == {"0s"}


def test_motion_stops_when_the_reader_asks_for_less(show: Any) -> None:
    page = show(figures.two_allocators())
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('.scrub input').value > 2")
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_timeout(100)
    stopped = page.locator(".scrub input").input_value()
    page.wait_for_timeout(150)
    assert page.locator(".scrub input").input_value() == stopped


def test_a_cell_names_its_request_by_pointer_and_by_keyboard(show: Any, runs: Any) -> None:
    page = show(figures.two_allocators(step=260))
    owner = {
        block: stay.request.id
        for stay in runs["paged"][0].stays
        if stay.admitted <= 260 < stay.left
        for block in stay.placement[: -(-(261 - stay.admitted) // 16)]
    }
    pool = page.locator(".side.paged .cells")
    pool.focus()
    for block in (0, 1, 2, 37, 38):
        while int(pool.get_attribute("aria-valuenow")) < block:
            pool.press(
                "ArrowDown" if block - int(pool.get_attribute("aria-valuenow")) >= 35 else "ArrowRight"
            )
        said = pool.get_attribute("aria-valuetext")
        assert said.startswith(f"Block {block}: ")
        assert ("free" in said) if block not in owner else (f"request {owner[block]}," in said)
        assert page.locator(".side.paged .inspect").inner_text() == said
    box = page.locator(".side.contiguous .cells").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    first = next(
        s for s in runs["contiguous"][0].stays if s.placement.start == 0 and s.admitted <= 260 < s.left
    )
    assert f"request {first.request.id}, 16 tokens" in page.locator(".side.contiguous .inspect").inner_text()
    # The same request is ringed on the other side.
    assert page.locator(".side.paged .chip.on text").text_content() == str(first.request.id)


def test_following_a_request_marks_all_its_blocks(show: Any, runs: Any) -> None:
    page = show(figures.two_allocators(step=260))
    page.get_by_label("Follow request").select_option("5")
    assert page.evaluate("document.querySelector('pagedkv-figure').state") == {"step": 260, "request": 5}
    stay = next(s for s in runs["paged"][0].stays if s.request.id == 5)
    ring = page.locator(".side.paged svg path[stroke-linejoin=round]").get_attribute("d")
    assert ring.count("M") == -(-(261 - stay.admitted) // 16)
    page.get_by_label("Follow request").press("Escape")
    assert page.evaluate("document.querySelector('pagedkv-figure').state.request") is None


# --- figure 2 -------------------------------------------------------------------------------------------------------


def choose_size(page: Any, size: int) -> None:
    page.locator(".pkv-block-table input[type=range]").fill(str(SIZES.index(size)))


def test_every_token_is_traced_to_pythons_slot(show: Any) -> None:
    page = show(figures.block_table())
    for size in SIZES:
        choose_size(page, size)
        trace_all(page, size)


def trace_all(page: Any, size: int) -> None:
    _, a, _ = scattered(size, 37, 54, 260)
    seen = page.evaluate(
        """() => [...document.querySelectorAll(".tok input")].map(input => {
          input.click();
          const box = css => document.querySelector(css).getBoundingClientRect();
          const slot = box(".over .slot"), block = box(".over .block"), on = document.querySelector(".entry.on");
          return {read: document.querySelector(".read").textContent, entry: [...on.parentNode.children].indexOf(on),
            slot: +document.querySelector(".over .slot").dataset.slot,
            block: +document.querySelector(".over .block").dataset.block,
            mapped: +on.querySelector("b").lastChild.textContent, state: document.querySelector("pagedkv-figure").state,
            inside: slot.left >= block.left - 1.6 && slot.right <= block.right + 1.6
              && slot.top >= block.top - 1 && slot.bottom <= block.bottom + 1};
        })"""
    )
    assert len(seen) == 37
    for token, one in enumerate(seen):
        expected = selection(a, token)
        assert one["read"] == read_out(expected) and one["state"] == expected
        assert one["slot"] == expected["slot"] and one["block"] == one["mapped"] == expected["physical_block"]
        assert one["entry"] == expected["logical_block"] and one["inside"]
    held = len(a.blocks) * size
    assert page.locator(".unused").inner_text() == (
        f"{a.slack} of {held} slots, {100 * a.slack / held:.1f} %"
    )
    assert page.locator(".bytes").inner_text().endswith(f"= {4 * len(a.blocks)} B")


def test_slots_lie_at_their_address(show: Any) -> None:
    """The picture of the pool is a map: slot 0 at its top left, row after row, whatever the block size."""
    page = show(figures.block_table())
    for size in SIZES:
        choose_size(page, size)
        places = page.evaluate(
            """() => [...document.querySelectorAll(".tok input")].map(input => {
              input.click();
              const box = document.querySelector(".over .slot").getBoundingClientRect();
              return [+document.querySelector(".over .slot").dataset.slot, Math.round(box.top), box.left]; })"""
        )
        ordered = [slot for slot, *_ in sorted(places, key=lambda place: (place[1], place[2]))]
        assert ordered == sorted(ordered)


def test_appending_and_freeing_moves_nothing_and_matches_the_manager(show: Any) -> None:
    page = show(figures.block_table())
    for size in (1, 4, 16, 64, 256):
        choose_size(page, size)
        append_and_free(page, size)


def append_and_free(page: Any, size: int) -> None:
    pool, a, b = scattered(size, 37, 54, 260)
    script: list[tuple[str, Any]] = [
        ("A +1", lambda: a.extend(1)),
        ("A +16", lambda: a.extend(16)),
        ("B +16", lambda: b.extend(16)),
        ("Free B", lambda: b.free()),
        ("A +16", lambda: a.extend(16)),
    ]
    for name, act in script:
        page.get_by_role("button", name=name, exact=True).click()
        act()
        assert page.locator(".moved").inner_text() == "Moved: 0 tokens"
        assert page.evaluate("document.querySelector('pagedkv-figure').state") == selection(a, 21)
        shown = page.locator(".freelist").evaluate(
            "node => [...node.textContent.matchAll(/\\d+/g)].map(m => +m[0])"
        )
        assert shown == list(pool.free_list()[:40])
    assert page.get_by_role("button", name="Free B").is_disabled()
    # B starts anew as another sequence, and takes what was freed last.
    b = BlockTable(pool)
    page.get_by_role("button", name="B +1", exact=True).click()
    if size < 256:
        b.append()
    holds = re.search(
        r"B holds blocks? ([\d, ]+)", page.locator(".pkv-block-table > p.pkv-sr").text_content()
    )
    assert holds and holds[1].startswith(str(b.blocks[0] if b.blocks else 1))
    page.get_by_role("button", name="Reset").click()
    _, fresh, _ = scattered(size, 37, 54, 260)
    assert page.evaluate("document.querySelector('pagedkv-figure').state") == selection(fresh, 21)


def test_a_new_block_size_keeps_what_the_reader_appended(show: Any) -> None:
    page = show(figures.block_table())
    page.get_by_role("button", name="A +16", exact=True).click()
    choose_size(page, 8)
    _, a, _ = scattered(8, 37, 54, 260)
    a.extend(16)
    assert page.evaluate("document.querySelector('pagedkv-figure').state") == selection(a, 21)
    assert page.locator(".tok").count() == 53


def test_buttons_stop_at_the_figures_limits(show: Any) -> None:
    page = show(figures.block_table(tokens=90))
    assert page.get_by_role("button", name="A +16").is_disabled()
    for _ in range(6):
        page.get_by_role("button", name="A +1", exact=True).click()
    assert page.get_by_role("button", name="A +1", exact=True).is_disabled()
    assert page.locator(".tok").count() == 96


def test_a_refusal_is_said_and_changes_nothing(show: Any) -> None:
    page = show(figures.block_table(tokens=96, other=128, block_size=256))
    page.get_by_role("button", name="Free B").click()
    figure = figures.block_table(tokens=96, other=0, block_size=256)
    # A pool without a free block: B cannot take its first.
    figure.data["start"]["256"]["free"] = ()
    page = show(figure)
    page.get_by_role("button", name="B +1", exact=True).click()
    said = page.locator(".event").inner_text()
    assert said.startswith("Refused: 1 blocks needed, 0 free") and "Nothing was changed" in said
    assert page.locator(".moved").inner_text() == "Moved: 0 tokens"


def test_figure_2_by_keyboard_alone(show: Any) -> None:
    page = show(figures.block_table())
    page.keyboard.press("Tab")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert page.locator(".chart label").inner_text() == "Block size: 64 tokens"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    for _ in range(7):  # over the buttons, to the strip
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Token 21"
    page.keyboard.press("ArrowRight")
    assert page.locator(".read").inner_text().startswith("Token 22: logical block 1, offset 6")
    page.keyboard.press("ArrowUp")
    assert page.locator(".read").inner_text().startswith("Token 6: logical block 0, offset 6")
    page.keyboard.press("End")
    assert page.locator(".read").inner_text().startswith("Token 36:")
    page.keyboard.press("Home")
    assert page.locator(".read").inner_text().startswith("Token 0:")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Token 0"


def test_a_click_in_the_pool_selects_the_token_that_lies_there(show: Any) -> None:
    page = show(figures.block_table())
    page.get_by_role("radio", name="Token 30", exact=True).check()
    box = page.locator(".over .slot").bounding_box()
    page.get_by_role("radio", name="Token 0", exact=True).check()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 6)
    assert page.locator(".read").inner_text().startswith("Token 30:")


# --- both -----------------------------------------------------------------------------------------------------------


def both() -> list[figures.Figure]:
    return [figures.two_allocators(), figures.block_table()]


@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 360)])
def test_axe_finds_nothing(show: Any, theme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(*both(), theme=theme, viewport={"width": width, "height": 900}, reduced_motion="reduce")
    for _ in range(2):
        found = axe.Axe().run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["target"]) for v in found] == []
        # And once more with everything in another state.
        page.get_by_role("button", name="next event").click()
        page.locator(".side.paged .cells").focus()
        page.get_by_role("button", name="A +16").click()
        choose_size(page, 4)


def test_no_page_scrolls_sideways(show: Any) -> None:
    page = show(*both())
    for width in (1000, 700, 480, 360, 320):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(60)
        for size in SIZES:
            choose_size(page, size)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, size)


def test_targets_are_large_enough(show: Any) -> None:
    page = show(*both(), viewport={"width": 360, "height": 800})
    small = page.evaluate(
        """() => [...document.querySelectorAll(".pkv :is(button, select, input, .cells)")]
          .map(e => [e.outerHTML.slice(0, 80), e.getBoundingClientRect()])
          .filter(([, r]) => r.width < 24 || r.height < 24).map(([html]) => html)"""
    )
    assert small == []


def test_a_resize_redraws(show: Any) -> None:
    page = show(*both())
    wide = page.locator(".side.paged svg").first.bounding_box()["width"]
    page.set_viewport_size({"width": 420, "height": 800})
    page.wait_for_timeout(200)
    assert page.locator(".side.paged svg").first.bounding_box()["width"] != wide
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    page.get_by_role("radio", name="Token 5", exact=True).check()
    slot, pool = page.locator(".over .slot").bounding_box(), page.locator(".pic .under").bounding_box()
    assert pool["x"] <= slot["x"] <= pool["x"] + pool["width"]


def test_figures_on_one_page_do_not_disturb_each_other(show: Any) -> None:
    page = show(figures.block_table(), figures.two_allocators(), figures.block_table(token=3))
    ids = page.evaluate("[...document.querySelectorAll('.pkv [id]')].map(e => e.id)")
    assert len(ids) == len(set(ids)) > 0
    first, second = page.locator(".pkv-block-table").nth(0), page.locator(".pkv-block-table").nth(1)
    first.locator("input[type=range]").press("ArrowRight")
    first.get_by_role("radio", name="Token 9", exact=True).check()
    assert second.locator(".read").inner_text().startswith("Token 3: logical block 0, offset 3")
    assert second.locator(".chart label").inner_text() == "Block size: 16 tokens"


def test_without_javascript_the_same_numbers_stand_there(show: Any) -> None:
    page = show(*both(), java_script_enabled=False)
    text = page.locator("main").inner_text()
    for figure in both():
        if figure.kind == "allocators":
            assert all(f"{figure.data[side]['of_taken']:.1f} %" in text for side in ("contiguous", "paged"))
    assert "Token 21: logical block 1, offset 5 -> physical block 7, slot 117" in text
    assert page.locator("pagedkv-figure svg").first.is_visible()


def test_with_javascript_the_fallback_makes_way(show: Any) -> None:
    page = show(*both())
    assert page.locator(".pkv-fallback:visible").count() == 0
    assert page.locator(".pkv").count() == 2


def test_a_figure_survives_being_moved_and_added_late(show: Any) -> None:
    page = show(*both())
    page.get_by_role("radio", name="Token 9", exact=True).check()
    page.evaluate(
        """() => { const [one, two] = document.querySelectorAll("pagedkv-figure"), copy = two.cloneNode(true);
          copy.removeAttribute("data-ready");
          copy.lastChild.remove();
          one.before(two);
          document.querySelector("main").append(copy); }"""
    )
    page.wait_for_timeout(100)
    assert page.locator(".pkv-block-table .read").all_inner_texts() == [
        "Token 9: logical block 0, offset 9 -> physical block 18, slot 297",
        "Token 21: logical block 1, offset 5 -> physical block 7, slot 117",
    ]


def test_kinds_may_be_loaded_in_any_order(show: Any) -> None:
    html = page_with(both())
    scripts = re.findall(r"<script defer[^>]*></script>", html)
    core, first, *rest = scripts
    page = show(html=html.replace("".join(scripts), "".join([core, *rest, first])))
    assert page.locator(".pkv-block-table .read").inner_text().startswith("Token 21")
    assert page.locator(".side").count() == 2


def test_forced_colours_keep_every_cue(show: Any) -> None:
    page = show(*both(), forced_colors="active")
    seen = page.evaluate(
        """() => { const css = (q, name) => getComputedStyle(document.querySelector(q))[name];
          return {text: css(".read", "color"), title: css(".pkv text", "fill"),
            token: css(".tok span", "borderTopStyle"), picked: css(".tok :checked + span", "backgroundColor"),
            other: css(".tok span", "backgroundColor")}; }"""
    )
    assert seen["token"] == "solid" and seen["picked"] != seen["other"]
    assert seen["text"] == seen["title"]
    assert page.evaluate("document.querySelectorAll('.pkv pattern').length") > 4


def test_a_screen_reader_hears_a_selection_once_and_no_animation(show: Any) -> None:
    page = show(*both())
    heard = """() => [...document.querySelectorAll("[aria-live]")].map(node => node.textContent)"""
    page.evaluate(
        """() => { window.said = 0; for (const node of document.querySelectorAll("[aria-live]"))
          new MutationObserver(() => window.said++).observe(node, {childList: true, subtree: true}); }"""
    )
    page.get_by_label("Speed").select_option(label="4×")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('.scrub input').value > 60")
    assert page.evaluate("window.said") == 0
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(500)
    assert page.evaluate("window.said") == 1
    assert page.evaluate(heard)[0].startswith("Iteration ")
    # Walking along the strip says where the reader has come to, not every step.
    page.get_by_role("radio", name="Token 4", exact=True).check()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(600)
    assert page.evaluate("window.said") == 2
    assert page.evaluate(heard)[1] == "Token 9: logical block 0, offset 9 -> physical block 18, slot 297"
