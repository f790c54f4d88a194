"""Figure 4: its runs are the simulator's, and the script shows every iteration of them as the scheduler had it."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from browser import pages, watch
from pagedkv.book import figures
from pagedkv.book.figures.base import module_source
from pagedkv.book.figures.watermark_runs import (
    ALPHABET,
    CONCURRENCIES,
    KINDS,
    POOLS,
    REQUESTS,
    Run,
    encode,
    encode_lengths,
    follow,
    grid,
    read_out,
    setting,
    workload,
)
from pagedkv.book.figures.watermarks import CAPTION, selection
from pagedkv.errors import BadValue
from pagedkv.simulator import fast_forward
from pagedkv.watermarks import POLICIES

NAMES = list(POLICIES)
DEFAULT = (1000, 64, "two marks, shedding")
HOT = (800, 80, "none")

run = cache(follow)

# --- what Python computes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [DEFAULT, HOT, (800, 64, "one mark"), (1200, 48, "two marks")])
def test_the_moments_are_the_simulators(choice: tuple[int, int, str]) -> None:
    followed, report = run(*choice), fast_forward(workload(), setting(*choice))
    moments = followed.moments
    assert followed.report.events == report.events and len(moments) == report.iterations
    assert moments[-1].seconds == report.seconds
    assert sum(moment.preempted for moment in moments) == report.num_preemptions_total
    assert sum(moment.admitted for moment in moments) == REQUESTS == sum(m.finished for m in moments)
    assert sum(moment.resumed for moment in moments) == report.num_preemptions_total
    gate = [True, *(moment.open for moment in moments)]
    assert sum(before != after for before, after in pairwise(gate)) == report.gate_flips
    assert min(moment.free for moment in moments) == followed.pool - report.peak_blocks
    # Whoever is let in takes the prompt's blocks, or those of all its tokens; the gate opens at what was there before.
    for moment in moments:
        assert (moment.before > moment.free) == bool(moment.admitted + moment.resumed)
    for was, now in pairwise(moments):
        if now.open and not was.open:
            assert now.before >= followed.high
        if was.open and not now.open and not now.preempted:
            assert now.before < followed.low
    in_system = {moment.running + moment.waiting for moment in moments}
    assert max(in_system) == followed.concurrency
    speed = sum(r.output for r in workload()) / report.seconds
    assert followed.numbers[::2] == [report.num_preemptions_total, report.gate_flips]
    assert followed.numbers[3] == round(speed)


def test_a_waiting_head_of_the_queue_is_told_why() -> None:
    """The reason, derived again from what the next moment says."""
    for choice in (DEFAULT, HOT, (1000, 64, "one mark")):
        followed = run(*choice)
        for moment in followed.moments:
            assert bool(moment.why) == bool(moment.waiting) == bool(moment.need)
            assert (moment.why == "evicted") == bool(moment.preempted and moment.waiting)
            if moment.why == "memory":
                assert moment.need > moment.free
            if moment.why in ("gate", "low"):
                assert moment.need <= moment.free and followed.low > 0
                assert moment.open == (moment.why == "low")
            if moment.why == "low":
                assert moment.free - moment.need < followed.low
        held_back = [m for m in followed.moments if m.why in ("gate", "low")]
        assert followed.held_back == len(held_back) == followed.numbers[1]
    assert run(*HOT).held_back == 0
    assert {m.why for m in run(*HOT).moments} == {"", "evicted", "memory"}


@pytest.mark.parametrize("seed", [1, 2])
def test_what_the_figure_is_there_to_show(seed: int) -> None:
    """Gating admission saves preemptions, hysteresis saves flips, shedding gives preemptions back."""
    for pool, concurrency in ((800, 64), (1000, 64), (1000, 80)):
        outcomes = {name: follow(pool, concurrency, name, seed).numbers for name in NAMES}
        preemptions = {name: numbers[0] for name, numbers in outcomes.items()}
        flips = {name: numbers[2] for name, numbers in outcomes.items()}
        speed = {name: numbers[3] for name, numbers in outcomes.items()}
        for gated in ("one mark", "two marks"):
            assert preemptions[gated] < preemptions["none"] / 2 and speed[gated] > speed["none"]
        assert preemptions["two marks, shedding"] < preemptions["one mark, shedding"]
        assert flips["two marks"] < flips["one mark"] / 1.5
        assert flips["two marks, shedding"] < flips["one mark, shedding"] / 2
        assert speed["two marks, shedding"] < speed["two marks"]
        assert outcomes["none"][1:3] == [0, 0]


def test_more_blocks_or_fewer_requests_are_less_pressure() -> None:
    runs = grid()
    for name in NAMES:
        by_pool = [[runs[pool, n, name].numbers[0] for n in CONCURRENCIES] for pool in POOLS]
        assert by_pool[0] > by_pool[1] > by_pool[2] or by_pool[1][0] == by_pool[2][0] == 0
        assert by_pool[2][0] == 0 < by_pool[0][2]


def test_a_log_says_who_came_and_went_in_which_iteration() -> None:
    for choice in ((1000, 64, "none"), (1200, 48, "none"), (800, 80, "one mark, shedding")):
        expected: Counter[tuple[int, int]] = Counter()
        for iteration, kind, _ in run(*choice).report.events:
            sign = {"admit": 1, "resume": 1, "preempt": -1}.get(kind)
            if sign:
                expected[iteration, sign] += 1
        decoded: Counter[tuple[int, int]] = Counter()
        iteration = 0
        for letter in grid()[choice].log:
            gap, kind_index = divmod(ALPHABET.index(letter), len(KINDS))
            iteration, count = iteration + gap, KINDS[kind_index]
            if count:
                decoded[iteration, 1 if count > 0 else -1] += abs(count)
        assert decoded == expected
    assert encode([]) == ""
    assert len(set(ALPHABET)) == 91 == 13 * len(KINDS) and not set(ALPHABET) & set('"\\<')


def test_lengths_are_two_digits_each() -> None:
    digits = [ALPHABET.index(letter) for letter in encode_lengths(workload())]
    found = [91 * high + low for high, low in zip(digits[::2], digits[1::2], strict=True)]
    assert found == [tokens for request in workload() for tokens in (request.prompt, request.output)]


def test_every_kind_of_moment_is_told() -> None:
    told: dict[str, str] = {}
    for choice in (DEFAULT, HOT, (1000, 64, "one mark"), (1000, 64, "two marks")):
        for moment in run(*choice).moments:
            key = moment.why if moment.why else "ends" if moment.finished == 1 else "calm"
            told.setdefault(key, read_out(run(*choice), moment.iteration))
            if moment.admitted and moment.resumed:
                told["mixed"] = read_out(run(*choice), moment.iteration)
    assert re.fullmatch(
        r"Iteration \d+, \d\.\d\d s: \d+ of 1,000 blocks free, gate closed; \d+ running, \d+ waiting\. 1 preempted\."
        r" An iteration that preempts lets nobody in\.",
        told["evicted"],
    )
    assert told["gate"].endswith(" and would fit, but the gate stays closed until 80 are free.")
    assert re.search(r"needs \d+ blocks and would fit, but would leave fewer than 40\.$", told["low"])
    assert re.search(r"\d of 800 blocks free; .* needs \d+ blocks: more than are free\.$", told["memory"])
    assert told["ends"].endswith(" 1 finishes.")
    assert re.search(r"\d let in, \d of them again", told["mixed"])
    free = 1000 - sum(-(-request.prompt // 16) for request in workload()[:64])
    assert read_out(run(*DEFAULT), 1) == (
        f"Iteration 1, {run(*DEFAULT).moments[0].seconds:.2f} s: {free} of 1,000 blocks free, gate open; "
        "64 running, 0 waiting. 64 let in."
    )


def test_the_first_view_is_where_the_policy_acts() -> None:
    figure = figures.watermarks()
    shown = run(*DEFAULT).moments[figure.state["iteration"] - 1]
    assert shown.resumed and not any(m.resumed for m in run(*DEFAULT).moments[: shown.iteration - 1])
    assert figure.state == selection(run(*DEFAULT), shown.iteration)
    calm = figures.watermarks(1200, 48, "none").state
    assert calm["free"] == min(moment.free for moment in run(1200, 48, "none").moments)
    assert json.loads(json.dumps(figure.state)) == figure.state


def test_the_fallback_has_the_same_numbers() -> None:
    html = figures.watermarks().fallback
    assert html.startswith(f"<p>{CAPTION}</p>")
    for name in NAMES:
        cells = "".join(f"<td>{number:,}</td>" for number in grid()[1000, 64, name].numbers)
        assert f'<th scope="row">{"no marks" if name == "none" else name}</th>{cells}' in html
    for pool in POOLS:
        cells = "".join(f"<td>{grid()[pool, n, DEFAULT[2]].numbers[0]}</td>" for n in CONCURRENCIES)
        assert f'<th scope="row">{pool:,} blocks</th>{cells}' in html
    assert (
        read_out(run(*DEFAULT), run(*DEFAULT).telling) in html
        and "The marks are at 40 and 80 blocks." in html
    )
    assert "The marks are at" not in figures.watermarks(policy="none").fallback


def test_the_figure_refuses_what_it_cannot_show() -> None:
    for wrong in (
        {"pool": 900},
        {"concurrency": 0},
        {"policy": "three marks"},
        {"iteration": 0},
        {"iteration": 10**6},
        {"iteration": 2.5},
        {"seed": -1},
    ):
        with pytest.raises(BadValue):
            figures.watermarks(**wrong)
    assert figures.watermarks(iteration=7).state["iteration"] == 7


def test_code_and_data_stay_small_and_two_builds_agree() -> None:
    html = figures.watermarks().to_html()
    assert html == figures.watermarks().to_html()
    own = (figures.JS_DIR / figures.SCRIPTS["watermarks"][-1]).read_bytes() + html.encode()
    assert len(own) < 40_000
    assert len(gzip.compress(module_source("watermarks").encode() + html.encode())) < 20_000


# --- in a browser ---------------------------------------------------------------------------------------------------

READ = """() => {
  const root = document.querySelector(".pkv-watermarks"), near = root.querySelector(".near");
  const row = root.querySelector("tr[aria-current]"), all = css => [...near.querySelectorAll(css)];
  const texts = all("text").map(t => [t.textContent, +t.getAttribute("x"), +t.getAttribute("y")]);
  return {state: document.querySelector("pagedkv-figure").state, say: root.querySelector(".say").textContent,
    policy: row.dataset.policy, rows: [...root.querySelectorAll("tbody tr")].map(tr =>
      [...tr.querySelectorAll("td")].map(td => td.textContent)),
    boxes: [...root.querySelectorAll("[type=checkbox]")].map(box => [box.checked, box.disabled]),
    scrub: [root.querySelector("input[aria-label=Iteration]").value,
      root.querySelector("input[aria-label=Iteration]").max],
    curve: near.querySelector(".edge").getAttribute("d"), texts, width: +near.getAttribute("width"),
    rise: near.querySelector(".rise").getAttribute("d") || "",
    shut: near.querySelector(".shut").getAttribute("d") || "",
    glyphs: ["admitted", "resumed", "preempted", "finished"].map(name => all("." + name).map(n =>
      n.getAttribute("d").slice(1).split("m")[0].split(" ").map(Number)))};
}"""


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    with pages(browser, tmp_path, figures.watermarks, height=1200) as open_page:
        yield open_page


def choose(page: Any, choice: tuple[int, int, str]) -> None:
    pool, concurrency, policy = choice
    page.get_by_label("Pool:").fill(str(POOLS.index(pool)))
    page.get_by_label("Concurrency:").fill(str(CONCURRENCIES.index(concurrency)))
    page.get_by_label("Watermark").set_checked(policy != "none")
    if policy != "none":
        page.get_by_label("Hysteresis").set_checked("two" in policy)
        page.get_by_label("Shedding").set_checked("shedding" in policy)


def check(page: Any, followed: Run, iteration: int) -> None:
    """All that the figure says, and what its close-up draws, against the run in Python."""
    seen = page.evaluate(READ)
    assert seen["state"] == selection(followed, iteration)
    assert seen["say"] == read_out(followed, iteration)
    # The table and the toggles.
    assert seen["policy"] == followed.policy
    for name, row in zip(NAMES, seen["rows"], strict=True):
        numbers = grid()[followed.pool, followed.concurrency, name].numbers
        assert row == [f"{number:,}" for number in numbers]
    marks, hysteresis, shedding = seen["boxes"]
    assert marks == [followed.policy != "none", False]
    if followed.policy != "none":
        assert hysteresis == ["two" in followed.policy, False]
        assert shedding == ["shedding" in followed.policy, False]
    assert seen["scrub"] == [str(iteration), str(len(followed.moments))]
    # The close-up: where its columns and its scale are, read off its own labels.
    texts, left = seen["texts"], 66
    step = 6 if seen["width"] > 520 else 5
    count = int(re.match(r"Close-up(\d+) iterations", texts[0][0])[1])
    numeric = [(int(words.replace(",", "")), x, y) for words, x, y in texts if re.fullmatch(r"[\d,]+", words)]
    top = max(value for value, x, _ in numeric if x < left)
    ticks = [(value, x) for value, x, y in numeric if x > left and y == max(y for *_, y in numeric)]
    first = round(ticks[0][0] - (ticks[0][1] - left) / step + 0.5)
    assert first <= iteration < first + count
    shown = followed.moments[first - 1 : first - 1 + count]
    assert all(round(left + (value - first + 0.5) * step, 2) == x for value, x in ticks)
    # The curve, iteration by iteration.
    free: list[int] = []
    at = float(left)
    for y, end in re.findall(r"([\d.]+)H([\d.]+)", seen["curve"]):
        free += [round((170 - float(y)) * top / 150)] * round((float(end) - at) / step)
        at = float(end)
    assert all(abs(drawn - moment.free) <= top / 300 + 1 for drawn, moment in zip(free, shown, strict=True))
    # Where the blocks stood before somebody was let in.
    rises = {}
    for x, y in re.findall(r"M([\d.]+) [\d.]+V([\d.]+)", seen["rise"]):
        rises[round((float(x) - left) / step - 0.5) + first] = round((170 - float(y)) * top / 150)
    assert rises == {m.iteration: m.before for m in shown if m.before > m.free}
    # Who comes and goes: a sign for each, up to four, or their number.
    piles = {
        round(x, 1): int(words) for words, x, y in texts if 190 < y < 215 and words.isdigit() and x > left
    }
    for name, places in zip(("admitted", "resumed", "preempted", "finished"), seen["glyphs"], strict=True):
        drawn = Counter(round((x - left) / step - 0.5) + first for x, _ in places)
        for moment in shown:
            expected = getattr(moment, name)
            many = piles.get(round(left + (moment.iteration - first + 0.5) * step, 1))
            if name in ("admitted", "resumed") and many is not None:
                assert many == moment.admitted + moment.resumed > 4
            else:
                assert drawn[moment.iteration] == expected, (name, moment.iteration)
    # The gate.
    closed = [False] * count
    for x, wide in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)v", seen["shut"]):
        begin = round((float(x) - left) / step)
        closed[begin : begin + round(float(wide) / step)] = [True] * round(float(wide) / step)
    assert closed == [not moment.open for moment in shown]


@pytest.mark.browser
def test_the_script_counts_every_iteration_as_the_scheduler_did(show: Any) -> None:
    page = show()
    data = page.evaluate(
        "JSON.parse(document.querySelector('pagedkv-figure > script').textContent).data.policies.length"
    )
    assert data == len(NAMES)
    places = list(product(POOLS, CONCURRENCIES))
    for which, (policy, place) in enumerate(product(NAMES, places)):
        if which % 4:  # every policy at several places; all of them take too long
            continue
        moments = page.evaluate(
            """([pool, concurrency, policy]) => {
              const {data} = JSON.parse(document.querySelector("pagedkv-figure > script").textContent);
              const [log] = data.runs[data.pools.indexOf(pool)][data.concurrencies.indexOf(concurrency)][policy];
              const run = globalThis.pagedkv.unroll(data, pool, concurrency, policy, log);
              return run.moments.map(moment => Object.values(moment)); }""",
            [*place, NAMES.index(policy)],
        )
        expected = run(*place, policy).moments
        assert len(moments) == len(expected)
        for seen, moment in zip(moments, expected, strict=True):
            assert tuple(seen) == moment, (place, policy)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 360])
def test_what_is_shown_is_pythons_after_every_choice(show: Any, width: int) -> None:
    page = show(viewport={"width": width, "height": 900})
    check(page, run(*DEFAULT), run(*DEFAULT).telling)
    for choice in ((1000, 64, "two marks"), (800, 80, "one mark"), HOT, (1200, 48, "one mark, shedding")):
        choose(page, choice)
        followed = run(*choice)
        for iteration in (1, 150, followed.telling, len(followed.moments) - 30, len(followed.moments)):
            page.get_by_label("Iteration", exact=True).fill(str(iteration))
            check(page, followed, iteration)


@pytest.mark.browser
def test_the_whole_run_is_drawn_with_all_that_happened(show: Any) -> None:
    page = show()
    scale, tall = (page.locator(".whole").bounding_box()["width"] - 66 - 8), 112
    scale /= max(outcome.iterations for outcome in grid().values())
    for choice in (DEFAULT, HOT, (800, 48, "one mark")):
        choose(page, choice)
        followed = run(*choice)
        drawn = page.evaluate(
            """() => [...["edge", "shut", "admitted", "resumed", "gone"].map(name =>
              document.querySelector(`.whole .${name}`).getAttribute("d") || ""),
              document.querySelector(".whole > :last-child path").getAttribute("d")]"""
        )
        curve, shut, *rugs, frame = drawn
        free: list[int] = []
        at = 66.0
        for y, end in re.findall(r"([\d.]+)H([\d.]+)", curve):
            free += [round((132 - float(y)) * followed.pool / tall)] * round((float(end) - at) / scale)
            at = 66 + len(free) * scale
        assert all(
            abs(here - moment.free) <= followed.pool / tall / 10 + 1
            for here, moment in zip(free, followed.moments, strict=True)
        )
        closed = {round((float(x) - 66) / scale) + 1 for x in re.findall(r"M([\d.]+) ", shut)}
        gate = [True, *(moment.open for moment in followed.moments)]
        assert closed == {i for i, (was, now) in enumerate(pairwise(gate), 1) if was and not now}
        for rug, what in zip(rugs, (("admitted", "resumed"), ("resumed",), ("preempted",)), strict=True):
            at_all = {round((float(x) - 66) / scale) + 1 for x in re.findall(r"M([\d.]+) ", rug)}
            assert at_all == {m.iteration for m in followed.moments if any(getattr(m, w) for w in what)}
        iteration = page.evaluate("document.querySelector('pagedkv-figure').state.iteration")
        assert float(frame.split()[0][1:]) == pytest.approx(66 + (iteration - 0.5) * scale)


@pytest.mark.browser
def test_toggles_come_back_as_they_were(show: Any) -> None:
    page = show()
    page.get_by_label("Shedding").uncheck()
    page.get_by_label("Watermark").uncheck()
    state = page.evaluate("document.querySelector('pagedkv-figure').state")
    assert state["policy"] == "none"
    assert page.get_by_label("Hysteresis").is_disabled() and page.get_by_label("Shedding").is_disabled()
    page.get_by_label("Watermark").check()
    assert page.evaluate("document.querySelector('pagedkv-figure').state.policy") == "two marks"


@pytest.mark.browser
def test_everything_by_keyboard(show: Any) -> None:
    page = show()
    stops = [
        m.iteration
        for m in run(1200, 48, "two marks, shedding").moments
        if m.admitted or m.resumed or m.preempted
    ]
    for key in ("Tab", "ArrowRight", "Tab", "ArrowLeft"):
        page.keyboard.press(key)
    choice = (1200, 48, "two marks, shedding")
    iteration = run(*DEFAULT).telling
    check(page, run(*choice), iteration)
    for key in (
        "Tab",
        "Tab",
        "Space",
        "Tab",
        "Space",
        "Tab",
    ):  # hysteresis off, shedding off, on to the slider
        page.keyboard.press(key)
    choice = (1200, 48, "one mark")
    assert (
        run(*choice).moments == run(1200, 48, "two marks, shedding").moments
    )  # a pool that never gets there
    page.keyboard.press("ArrowRight")
    check(page, run(*choice), iteration + 1)
    page.keyboard.press("Home")
    check(page, run(*choice), 1)
    for key in ("Tab", "Enter", "Enter"):  # back is not there at the start: on to the next event
        page.keyboard.press(key)
    check(page, run(*choice), stops[2])
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    check(page, run(*choice), stops[1])


@pytest.mark.browser
def test_pointing_at_the_pictures_moves_the_cursor(show: Any) -> None:
    page, followed = show(), run(*DEFAULT)
    whole = page.locator(".whole").bounding_box()
    scale = (whole["width"] - 66 - 8) / page.evaluate(
        "JSON.parse(document.querySelector('pagedkv-figure > script').textContent).data.longest"
    )
    page.mouse.click(whole["x"] + 66 + 399.5 * scale, whole["y"] + 60)
    check(page, followed, 400)
    page.mouse.move(whole["x"] + 66 + 399.5 * scale, whole["y"] + 60)
    page.mouse.down()
    page.mouse.move(whole["x"] + 66 + 699.5 * scale, whole["y"] + 60)
    page.mouse.up()
    check(page, followed, 700)
    near = page.locator(".near").bounding_box()
    cursor = page.locator(".near .dot").bounding_box()
    page.mouse.click(cursor["x"] + cursor["width"] / 2 + 60, near["y"] + 100)
    check(page, followed, 710)


@pytest.mark.browser
def test_a_screen_reader_hears_the_outcome_and_the_moment(show: Any) -> None:
    page, followed = show(), run(1000, 64, "two marks")
    page.get_by_label("Shedding").uncheck()
    page.wait_for_timeout(450)
    preemptions, held_back, flips, speed = followed.numbers
    assert page.locator(".pkv [aria-live]").inner_text() == (
        f"two marks: {preemptions} preemptions, {held_back} iterations held back, {flips} gate flips, "
        f"{speed:,} output tokens/s. {read_out(followed, run(*DEFAULT).telling)}"
    )
    page.get_by_label("Iteration", exact=True).press("ArrowRight")
    page.wait_for_timeout(450)
    assert page.locator(".pkv [aria-live]").inner_text() == read_out(followed, run(*DEFAULT).telling + 1)


@pytest.mark.browser
def test_the_kernel_can_move_the_figure(show: Any) -> None:
    page = show(figure=figures.watermarks(800, 48, "none", iteration=200))
    check(page, run(800, 48, "none"), 200)
    move = "state => { document.querySelector('pagedkv-figure').state = state; }"
    page.evaluate(move, {"pool": 1000, "policy": "one mark", "iteration": 300})
    check(page, run(1000, 48, "one mark"), 300)
    page.evaluate(move, {"pool": 990, "concurrency": 1e9, "policy": "no such thing", "iteration": -5})
    check(page, run(1000, 80, "none"), 1)


@pytest.mark.browser
def test_in_a_notebook_the_kernel_sees_what_the_reader_chose(browser: Any) -> None:
    page = browser.new_page()
    trouble = watch(page, "about:")
    figure = figures.watermarks()
    seen = page.evaluate(
        """async ([source, payload, state]) => {
          const module = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
          const values = {kind: "watermarks", payload, state}, el = document.body, heard = [];
          const model = {get: name => values[name], set: (name, value) => { values[name] = value; },
            save_changes: () => {}, on: (_, fn) => heard.push(fn), off: () => {}};
          const close = module.default.render({model, el});
          el.querySelectorAll("[type=checkbox]")[2].click();
          await new Promise(done => setTimeout(done, 300));
          const chosen = {...values.state};
          values.state = {...values.state, iteration: 500};
          heard.forEach(fn => fn());
          const said = el.querySelector(".say").textContent;
          close();
          return [chosen, said, el.childElementCount]; }""",
        [module_source("watermarks"), figure._payload(), figure.state],
    )
    page.close()
    followed = run(1000, 64, "two marks")
    assert seen == [selection(followed, run(*DEFAULT).telling), read_out(followed, 500), 0]
    assert trouble == []


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 360)])
def test_axe_finds_nothing(show: Any, theme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(theme=theme, viewport={"width": width, "height": 900})
    for checked in (True, False):
        page.get_by_label("Watermark").set_checked(checked)
        found = axe.Axe().run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["target"]) for v in found] == []


@pytest.mark.browser
def test_it_fits_every_width_with_its_labels_inside(show: Any) -> None:
    page = show(figure=figures.watermarks(800, 80, "one mark, shedding", iteration=300))
    for width in (1200, 700, 480, 360, 330, 320):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(120)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = page.evaluate(
            """() => { const box = document.querySelector(".pkv").getBoundingClientRect();
              return [...document.querySelectorAll(".pkv svg text")].filter(text => {
                const {left, right} = text.getBoundingClientRect(); return left < box.left || right > box.right;
              }).map(text => text.textContent); }"""
        )
        assert outside == [], width
    small = page.evaluate(
        """() => [...document.querySelectorAll(".pkv :is(button, input[type=range], label:has([type=checkbox]))")]
          .filter(e => e.getBoundingClientRect().width < 24 || e.getBoundingClientRect().height < 24).length"""
    )
    assert small == 0


@pytest.mark.browser
def test_nothing_is_said_by_colour_alone(show: Any) -> None:
    """Signs differ in shape, lanes are named, and the gate is written and barred as well as shaded."""
    page = show(forced_colors="active")
    shapes = page.evaluate(
        """() => ["admitted", "resumed", "preempted", "finished"].map(name =>
          document.querySelector(`.key .${name}`).getAttribute("d").replace(/^M[\\d. ]+/, ""))"""
    )
    assert len(set(shapes)) == 4
    words = page.locator(".near text").all_text_contents()
    assert {"finished", "let in", "preempted", "gate closed", "high 80: opens", "low 40: closes,"} <= set(
        words
    )
    assert (
        page.locator("tr[aria-current] th").evaluate("n => getComputedStyle(n, '::before').content") == '"▸"'
    )


@pytest.mark.browser
def test_without_javascript_the_numbers_stand_there(show: Any) -> None:
    page = show(java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert CAPTION in text and read_out(run(*DEFAULT), run(*DEFAULT).telling) in text
    preemptions, held_back, flips, speed = run(*DEFAULT).numbers
    assert re.search(rf"two marks, shedding\s+{preemptions}\s+{held_back}\s+{flips}\s+{speed:,}", text)
    assert page.locator("pagedkv-figure svg").is_visible()
