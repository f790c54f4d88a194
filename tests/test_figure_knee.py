"""Figure 6: its numbers are the simulator's, its lanes the scheduler's log, and the script shows both to everyone."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from browser import pages, watch
from pagedkv.book import figures
from pagedkv.book.figures.base import module_source
from pagedkv.book.figures.knee import CAPTION, MARKS, POOLS, RATES, Run, read_out, runs, selection
from pagedkv.book.figures.lanes import (
    COUNT,
    FIRST,
    SPAN,
    UNIT,
    Lane,
    describe,
    describe_lanes,
    encode,
    lanes,
)
from pagedkv.errors import BadValue
from pagedkv.pressure import OUTPUT_HEAVY, SERVER, knee
from pagedkv.simulator import Setting, fast_forward, step_by_step

CHOICES = list(product(RATES, MARKS, POOLS))
LAST = FIRST + COUNT - 1


@pytest.fixture(scope="module")
def everything() -> Any:
    return runs(0)


# --- what Python computes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "marks", "blocks"), [(4, False, 1250), (5, False, 1500), (6, True, 1750)])
def test_the_numbers_are_those_of_the_experiment(
    everything: Any, rate: int, marks: bool, blocks: int
) -> None:
    (row,) = knee(replace(OUTPUT_HEAVY, rate=rate), [blocks], marks={"": MARKS[marks]})
    numbers = (row.preemptions_per_request, row.goodput, row.completion_p99, row.recompute_multiple)
    shown = everything[rate, marks, blocks].numbers
    assert all(abs(a - b) <= 0.051 and a > 0 for a, b in zip(shown, numbers, strict=True))
    assert shown == tuple(round(n, d) for n, d in zip(numbers, (2, 2, 1, 2), strict=True))


class Over(Exception):
    """The lanes have ended."""


def observed(rate: int, marks: bool, blocks: int) -> dict[int, list[list[Any]]]:
    """[state, from, to] of each request with a lane, in seconds, watched iteration by iteration on block tables."""
    requests = replace(OUTPUT_HEAVY, rate=float(rate))(0)
    begin = requests[FIRST].arrival
    seen: dict[int, list[list[Any]]] = {number: [] for number in range(FIRST, LAST + 1)}
    before = 0.0

    def look(scheduler: Any, plan: Any, now: float) -> None:
        nonlocal before
        for name in seen.keys() & scheduler.live.keys():
            past = seen[name]
            if not past:
                past.append(["wait", requests[name].arrival - begin, before - begin])
            state = "run" if name in scheduler.running else "out" if len(past) > 1 else "wait"
            if past[-1][0] != state:
                past.append([state, before - begin, now - begin])
            past[-1][2] = now - begin
        before = now
        if now - begin > SPAN * UNIT:
            raise Over

    with pytest.raises(Over):
        step_by_step(requests, Setting(blocks, SERVER, watermarks=MARKS[marks]), observe=look)
    return seen


@pytest.mark.parametrize(("rate", "marks", "blocks"), [(5, False, 1500), (6, True, 1125)])
def test_the_lanes_are_what_an_observer_sees(everything: Any, rate: int, marks: bool, blocks: int) -> None:
    seen = observed(rate, marks, blocks)
    for lane in everything[rate, marks, blocks].lanes:
        inside = [spell for spell in seen[lane.request] if round(spell[1] / UNIT) < SPAN]
        kinds = ["wait", *("run" if i % 2 else "out" for i in range(1, len(inside)))]
        assert [state for state, *_ in inside] == kinds and len(lane.spells) == len(inside)
        at = lane.arrival
        assert abs(at * UNIT - inside[0][1]) <= UNIT / 2 + 1e-9
        for spell, (_, start, end) in zip(lane.spells, inside, strict=True):
            assert abs(at * UNIT - start) <= UNIT / 2 + 1e-9, lane
            at += spell
            assert abs(at * UNIT - min(end, SPAN * UNIT)) <= UNIT / 2 + 1e-9, lane


def test_the_lanes_are_of_that_very_run(everything: Any) -> None:
    """Only the start of a run is run again for them; who finishes there was evicted as often as in the whole run."""
    for rate, marks, blocks in ((5, False, 1375), (5, True, 1375), (6, False, 2125)):
        report = fast_forward(
            replace(OUTPUT_HEAVY, rate=float(rate))(0), Setting(blocks, SERVER, watermarks=MARKS[marks])
        )
        strip = everything[rate, marks, blocks].lanes
        ended = [lane for lane in strip if lane.end < SPAN]
        assert len(ended) > 5
        begin = report.requests[FIRST].arrival
        for lane in ended:
            assert lane.evictions == report.preemptions[lane.request]
            assert abs(lane.end * UNIT - (report.finishes[lane.request] - begin)) <= UNIT / 2 + 1e-9


def test_a_pool_that_suffices_shows_nothing_but_running(everything: Any) -> None:
    for rate in RATES:
        assert all(lane.evictions == 0 and lane.end < SPAN for lane in everything[rate, False, 2500].lanes)
    assert sum(lane.evictions for lane in everything[5, False, 1500].lanes) > 80


def test_what_the_reader_must_see(everything: Any) -> None:
    rate = {blocks: everything[5, False, blocks].numbers[0] for blocks in POOLS}
    late = {blocks: everything[5, False, blocks].numbers[2] for blocks in POOLS}
    assert rate[1500] > 3 * rate[1625] > 50 * rate[2125], "a cliff"
    assert max(rate.values()) < 1.05 * rate[1000], "a ceiling"
    assert late[1000] > 3.5 * late[1500] > 10 * late[2125] / 4, "latency goes on"
    for blocks in POOLS[:6]:
        assert everything[5, True, blocks].numbers[0] < 0.5 * rate[blocks]


def decode(text: str, digits: str) -> list[list[int]]:
    strips = []
    for codes in text.split(".")[:-1]:
        rest, spells = iter(codes), []
        for code in rest:
            number = digits.index(code)
            spells.append(number if number < 48 else 48 + 64 * (number - 48) + digits.index(next(rest)))
        strips.append(spells)
    return strips


def test_every_number_survives_its_code() -> None:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    strip = [Lane(0, 0, tuple(range(SPAN + 1))), Lane(1, 0, (5,))]
    assert decode(encode(strip), digits) == [list(range(SPAN + 1)), [5]]


def test_requests_are_described_in_every_state() -> None:
    def told(*spells: int) -> str:
        return describe(Lane(130, 25, spells)).replace("\u00a0", " ")

    assert told(0, 150) == "Request 130: came at 1.0 s, waited 0.0 s, finished at 7.0 s."
    assert told(25, 10, 5, 150) == (
        "Request 130: came at 1.0 s, waited 1.0 s, was evicted once and out for 0.2 s in all, finished at 8.6 s."
    )
    assert told(SPAN - 25) == "Request 130: came at 1.0 s, still waits at 24 s."
    assert told(25, SPAN - 50) == "Request 130: came at 1.0 s, waited 1.0 s, runs at 24 s."
    assert told(25, 10, 5, 10, SPAN - 75) == (
        "Request 130: came at 1.0 s, waited 1.0 s, was evicted 2 times and out for 21.2 s in all, is out at 24 s."
    )


def test_the_read_out_names_the_neighbours(everything: Any) -> None:
    def told(*key: Any) -> str:
        return read_out(everything, everything[key]).replace("\u00a0", " ")

    assert re.fullmatch(
        r"1,500 blocks at 5 requests per second, without watermarks: 3\.\d\d preemptions per request, p99 \d+\.\d s\. "
        r"With 8 % more \(1,625\), \d\.\d\d and \d+\.\d s; with 8 % fewer \(1,375\), 3\.\d\d and \d+\.\d s\. "
        r"\d\.\d\d requests per second are good; prefill does 5\.\d\d times the work of the prompts alone\.",
        told(5, False, 1500),
    )
    assert "With 13 % more (1,125)" in told(4, True, 1000) and "fewer" not in told(4, True, 1000)
    assert "With 5 % fewer (2,375)" in told(4, True, 2500) and "more (" not in told(4, True, 2500)


def test_the_fallback_has_the_same_numbers(everything: Any) -> None:
    html = figures.knee(rate=6, blocks=1750).fallback
    assert html.startswith(f"<p>{CAPTION}</p>") and CAPTION.count(". ") == 2
    for blocks in POOLS:
        cells = [
            f"<td>{a:.2f}</td><td>{b:.2f}</td><td>{c:.1f}</td>"
            for a, b, c, _ in (everything[6, on, blocks].numbers for on in MARKS)
        ]
        assert f'<th scope="row">{blocks:,}</th>{"".join(cells)}</tr>' in html
    assert f"1,750 blocks. {describe_lanes(everything[6, False, 1750].lanes)}" in html
    strokes = re.findall(r"M(\d+) (\d+)h(\d+)", html)
    drawn = [(int(x), int(y), int(w)) for x, y, w in strokes]
    expected = []
    for row, lane in enumerate(everything[6, False, 1750].lanes):
        at = lane.arrival
        for spell in lane.spells:
            expected.append((at, row * 8 + 4, spell))
            at += spell
    assert sorted(drawn) == sorted(expected)


def test_code_and_data_stay_small_and_two_builds_agree() -> None:
    html = figures.knee().to_html()
    assert html == figures.knee().to_html()
    own = (figures.JS_DIR / figures.SCRIPTS["knee"][-1]).read_bytes() + html.encode()
    assert len(own) < 40_000
    assert len(gzip.compress(module_source("knee").encode() + html.encode())) < 24_000
    requests = replace(OUTPUT_HEAVY, rate=5.0)(0)
    assert lanes(requests, Setting(1500, SERVER)) == runs(0)[5, False, 1500].lanes
    assert json.loads(json.dumps(figures.knee(request=130).state)) == figures.knee(request=130).state


@pytest.mark.parametrize(
    "wrong",
    [{"blocks": 1501}, {"blocks": 900}, {"rate": 7}, {"watermarks": 1}, {"request": 119}, {"request": 148}],
)
def test_the_figure_refuses_what_it_cannot_show(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        figures.knee(**wrong)


# --- in a browser ---------------------------------------------------------------------------------------------------

READ = """() => {
  const root = document.querySelector(".pkv-knee"), text = css => root.querySelector(css).textContent;
  const numbers = [...root.querySelectorAll(".name tspan.b")].map(n => n.textContent);
  const dots = kind => [...root.querySelectorAll(`[data-curve=${kind}] .dots circle`)]
    .map(dot => +dot.getAttribute("cy"));
  const boxes = kind => [...root.querySelector(`[data-lane=${kind}]`).getAttribute("d")
    .matchAll(/M([-\\d.]+) ([-\\d.]+)h([\\d.]+)v/g)].map(m => m.slice(1).map(Number));
  return {state: document.querySelector("pagedkv-figure").state, say: text(".say"), tell: text(".tell"), numbers,
    dots: ["pre", "good", "late"].map(dots), here: [...root.querySelectorAll(".here")].map(n => +n.getAttribute("cy")),
    at: [...root.querySelectorAll(".here")].map(n => +n.getAttribute("cx")),
    lanes: Object.fromEntries(["wait", "run", "gone", "back"].map(kind => [kind, boxes(kind)])),
    width: root.querySelector(".curves").clientWidth, inspect: text(".inspect"),
    pool: root.querySelector(".pool input").value, bytes: text(".pool label"), other: text(".key span")};
}"""
SET = """([rate, marks, blocks]) => { const set = (css, value) => { const node = document.querySelector(css);
    if (node.type === "checkbox") { if (node.checked !== value) node.click(); return; }
    node.value = value; node.dispatchEvent(new Event("input")); };
  set(".pkv .top input[type=range]", rate - 4); set(".pkv .check input", marks); set(".pkv .pool input", blocks); }"""


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    with pages(browser, tmp_path, figures.knee, height=1200) as open_page:
        yield open_page


def check(shown: Any, everything: Any, run: Run, request: int | None = None) -> None:
    """What is shown against what Python computed: words, numbers, the curves' heights and every bar of the lanes."""
    assert shown["state"] == selection(run, request)
    assert shown["say"] == read_out(everything, run) and shown["tell"] == describe_lanes(run.lanes)
    preemptions, good, late, _ = run.numbers
    assert shown["numbers"] == [f"{preemptions:.2f}", f"{good:.2f}", f"{late:.1f}"]
    assert shown["pool"] == str(run.blocks)
    assert shown["bytes"] == f"KV pool: {run.blocks:,} blocks ({run.blocks / 512:.1f} GiB)"
    assert shown["other"] == f"the same {'without' if run.watermarks else 'with'} watermarks"
    place = POOLS.index(run.blocks)
    for i, heights in enumerate(shown["dots"]):
        line = [everything[run.rate, run.watermarks, blocks].numbers[i] for blocks in POOLS]
        top = 1.06 * max(one.numbers[i] for one in everything.values())
        tall = (60, 60, 92)[i]
        for value, height in zip(line, heights, strict=True):
            assert height - heights[-1] == pytest.approx((line[-1] - value) / top * tall, abs=0.01)
        assert shown["here"][i] == heights[place]
    inner = shown["width"] - 50
    assert shown["at"] == pytest.approx([38 + (run.blocks - POOLS[0]) / 1500 * inner] * 3)
    expected: dict[str, list[list[float]]] = {"wait": [], "run": [], "gone": [], "back": []}
    for row, lane in enumerate(run.lanes):
        at = lane.arrival
        for i, spell in enumerate(lane.spells):
            kind, down = ("wait", 3.2) if i == 0 else ("run", 1) if i % 2 else ("gone", 2)
            if spell:
                expected[kind].append([38 + at / SPAN * inner, row * 8 + down, spell / SPAN * inner])
            if kind == "run" and i > 1:
                expected["back"].append([37.5 + at / SPAN * inner, row * 8 - 0.5, 2.5])
            at += spell
    for kind, boxes in expected.items():
        assert len(shown["lanes"][kind]) == len(boxes)
        for drawn, box in zip(shown["lanes"][kind], boxes, strict=True):
            assert drawn == pytest.approx(box, abs=0.006), kind


@pytest.mark.browser
def test_every_choice_shows_pythons_numbers_curves_and_lanes(show: Any, everything: Any) -> None:
    page = show()
    check(page.evaluate(READ), everything, everything[5, False, 1500])
    read = page.evaluate(
        f"choices => choices.map(choice => {{ ({SET})(choice); return ({READ})(); }})", CHOICES
    )
    for choice, shown in zip(CHOICES, read, strict=True):
        check(shown, everything, everything[choice])


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 360])
def test_the_pool_is_dragged_on_the_curves(show: Any, everything: Any, width: int) -> None:
    page = show(viewport={"width": width, "height": 1200})
    box = page.locator(".curves").bounding_box()
    inner = box["width"] - 50

    def x(blocks: float) -> float:
        return float(box["x"] + 38 + (blocks - 1000) / 1500 * inner)

    page.mouse.move(x(2010), box["y"] + 60)
    assert page.evaluate(READ)["state"]["blocks"] == 1500, "hovering drags nothing"
    page.mouse.down()
    check(page.evaluate(READ), everything, everything[5, False, 2000])
    page.mouse.move(x(1360), box["y"] + 130, steps=4)
    check(page.evaluate(READ), everything, everything[5, False, 1375])
    page.mouse.move(box["x"] - 30, box["y"] + 900)
    check(page.evaluate(READ), everything, everything[5, False, 1000])
    page.mouse.up()
    page.mouse.move(x(2500), box["y"] + 60)
    assert page.evaluate(READ)["state"]["blocks"] == 1000
    # The thumb of the slider stands under the mark in the curves.
    thumb = page.evaluate(
        """() => { const node = document.querySelector(".pool input"), box = node.getBoundingClientRect();
          return box.left + 8 + (node.value - node.min) / (node.max - node.min) * (box.width - 16); }"""
    )
    assert thumb == pytest.approx(x(1000), abs=0.6)


@pytest.mark.browser
def test_everything_by_keyboard(show: Any, everything: Any) -> None:
    page = show()

    def press(*keys: str) -> Any:
        for key in keys:
            page.keyboard.press(key)
        return page.evaluate(READ)

    check(press("Tab", "ArrowRight"), everything, everything[6, False, 1500])
    check(press("Tab", "Space"), everything, everything[6, True, 1500])
    check(press("Tab", "ArrowRight", "ArrowRight"), everything, everything[6, True, 1750])
    check(press("Home"), everything, everything[6, True, 1000])
    strip = everything[6, True, 1000].lanes
    press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "slider"
    for keys, row in (
        (["ArrowDown"], 0),
        (["ArrowDown", "ArrowDown"], 2),
        (["PageDown"], 7),
        (["ArrowUp"], 6),
        (["End", "ArrowRight"], COUNT - 1),
        (["Home", "ArrowLeft"], 0),
    ):
        shown = press(*keys)
        check(shown, everything, everything[6, True, 1000], FIRST + row)
        assert shown["inspect"] == describe(strip[row])
        rows = page.locator(".rows")
        assert rows.get_attribute("aria-valuetext") == describe(strip[row])
        assert rows.get_attribute("aria-valuenow") == str(FIRST + row)
    frame = page.locator(".frame")
    assert frame.get_attribute("visibility") == "visible" and frame.get_attribute("y") == "-1"
    assert press("Escape")["state"]["request"] is None
    assert frame.get_attribute("visibility") == "hidden"
    assert press("ArrowUp")["state"]["request"] == LAST


@pytest.mark.browser
def test_a_request_is_followed_through_all_pools(show: Any, everything: Any) -> None:
    page = show()
    box = page.locator(".rows").bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 11 * 8 + 4)
    assert page.evaluate(READ)["inspect"] == describe(everything[5, False, 1500].lanes[11])
    assert page.evaluate(READ)["state"]["request"] is None
    page.mouse.click(box["x"] + 50, box["y"] + 11 * 8 + 4)
    page.mouse.move(5, 5)
    for blocks in (1500, 1000, 2500):
        page.locator(".pool input").fill(str(blocks))
        shown = page.evaluate(READ)
        check(shown, everything, everything[5, False, blocks], FIRST + 11)
        assert shown["inspect"] == describe(everything[5, False, blocks].lanes[11])
    page.mouse.click(box["x"] + 50, box["y"] + 11 * 8 + 4)
    assert page.evaluate(READ)["state"]["request"] is None


@pytest.mark.browser
def test_a_screen_reader_hears_the_numbers_and_the_lanes(show: Any, everything: Any) -> None:
    page = show()
    page.locator(".pool input").press("ArrowLeft")
    page.wait_for_timeout(450)
    run = everything[5, False, 1375]
    heard = page.locator(".pkv [aria-live]").inner_text()
    assert heard == f"{read_out(everything, run)} {describe_lanes(run.lanes)}"
    assert page.locator(".pool input").get_attribute("aria-valuetext") == "1,375 blocks"
    assert page.get_by_label("Load").get_attribute("aria-valuetext") == "5 requests per second"
    assert page.get_by_label("KV pool: 1,375 blocks").count() == 1
    assert page.get_by_label("Watermarks 4\u00a0% / 8\u00a0%").count() == 1


@pytest.mark.browser
def test_the_kernel_can_move_the_figure(show: Any, everything: Any) -> None:
    page = show(figure=figures.knee(2000, rate=6, watermarks=True, request=125))
    check(page.evaluate(READ), everything, everything[6, True, 2000], 125)
    page.evaluate(
        "document.querySelector('pagedkv-figure').state = {blocks: 1444, rate: 1, watermarks: false, request: 9}"
    )
    check(page.evaluate(READ), everything, everything[4, False, 1500])


@pytest.mark.browser
def test_in_a_notebook_the_kernel_sees_what_the_reader_chose(browser: Any, everything: Any) -> None:
    page = browser.new_page()
    trouble = watch(page, "about:")
    figure = figures.knee()
    seen = page.evaluate(
        """async ([source, payload, state]) => {
          const module = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
          const values = {kind: "knee", payload, state}, el = document.body, heard = [];
          const model = {get: name => values[name], set: (name, value) => { values[name] = value; },
            save_changes: () => {}, on: (_, fn) => heard.push(fn), off: () => {}};
          const close = module.default.render({model, el});
          el.querySelector(".check input").click();
          await new Promise(done => setTimeout(done, 300));
          const chosen = {...values.state};
          values.state = {...values.state, blocks: 1125};
          heard.forEach(fn => fn());
          const said = el.querySelector(".say").textContent;
          close();
          return [chosen, said, el.childElementCount]; }""",
        [module_source("knee"), figure._payload(), figure.state],
    )
    page.close()
    said = read_out(everything, everything[5, True, 1125])
    assert seen == [selection(everything[5, True, 1500], None), said, 0]
    assert trouble == []


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 360)])
def test_axe_finds_nothing(show: Any, theme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(theme=theme, viewport={"width": width, "height": 900}, reduced_motion="reduce")
    page.locator(".rows").press("ArrowDown")
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["target"]) for v in found] == []


OUTSIDE = """() => {
  const bad = [], box = node => node.getBoundingClientRect(), figure = box(document.querySelector(".pkv"));
  const texts = [...document.querySelectorAll(".pkv svg text")].map(node => [node.textContent, box(node)]);
  const shared = (p, q, from, to) => Math.min(p[to], q[to]) - Math.max(p[from], q[from]);
  texts.forEach(([words, p], i) => {
    if (p.right > figure.right || p.left < figure.left) bad.push(words);
    for (const [others, q] of texts.slice(i + 1))
      if (shared(p, q, "left", "right") > 1 && shared(p, q, "top", "bottom") > 3) bad.push(words + " over " + others);
  });
  return bad; }"""


@pytest.mark.browser
def test_it_fits_every_width_and_stays_in_place(show: Any) -> None:
    page = show()
    for width in (1200, 700, 560, 480, 400, 360, 320):
        page.set_viewport_size({"width": width, "height": 900})
        heights = set()
        for choice in ((6, False, 1000), (4, True, 2500), (5, False, 1500)):
            page.evaluate(SET, list(choice))
            page.wait_for_timeout(80)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OUTSIDE) == [], (width, choice)
            heights.add(
                page.evaluate("document.querySelector('.rows').getBoundingClientRect().top + scrollY")
            )
        assert len(heights) == 1 or width < 360, "what is dragged does not jump"
    page.set_viewport_size({"width": 360, "height": 900})
    small = page.evaluate(
        """() => [...document.querySelectorAll(".pkv :is(button, select, input)")]
          .filter(e => e.getBoundingClientRect().width < 24 || e.getBoundingClientRect().height < 24).length"""
    )
    assert small == 0


@pytest.mark.browser
def test_nothing_is_said_by_colour_alone_and_nothing_moves(show: Any, everything: Any) -> None:
    page = show(forced_colors="active", reduced_motion="reduce")
    tall = page.evaluate(
        """() => Object.fromEntries(["wait", "run", "gone", "back"].map(kind => [kind, +document
          .querySelector(`[data-lane=${kind}]`).getAttribute("d").match(/v([\\d.]+)/)[1]]))"""
    )
    assert len(set(tall.values())) == 4, "every state has a height of its own"
    assert page.locator("[data-lane=gone]").get_attribute("fill").startswith("url(#")
    assert (
        page.locator("[data-curve=pre] .other").evaluate("n => getComputedStyle(n).strokeDasharray") != "none"
    )
    page.locator(".pool input").press("ArrowLeft")
    assert page.evaluate("document.getAnimations().length") == 0
    check(page.evaluate(READ), everything, everything[5, False, 1375])


@pytest.mark.browser
def test_without_javascript_the_numbers_stand_there(show: Any, everything: Any) -> None:
    page = show(java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert CAPTION in text and describe_lanes(everything[5, False, 1500].lanes) in text
    a, b, c, _ = everything[5, False, 1625].numbers
    assert re.search(rf"1,625\s+{a:.2f}\s+{b:.2f}\s+{c:.1f}", text)
    assert page.locator("pagedkv-figure svg").is_visible()
