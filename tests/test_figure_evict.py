"""Figure 5: the script's cost formulas are those of pagedkv.preemption, and it says what they say."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import pages, watch
from pagedkv.book import figures
from pagedkv.book.figures.base import module_source
from pagedkv.book.figures.evict import (
    BLOCK_SIZES,
    CAPTION,
    LIMITS,
    SPANS,
    Eviction,
    milliseconds,
    read_out,
    rounded,
    selection,
    verdict,
)
from pagedkv.errors import BadValue
from pagedkv.geometry import LLAMA_3_1_8B, PRESETS
from pagedkv.preemption import RecomputeCost, SwapCost, break_even_bandwidth, crossover

DEFAULT = Eviction()

# --- what Python computes -------------------------------------------------------------------------------------------


def test_the_first_view_is_the_setting_of_the_course() -> None:
    recompute, swap = RecomputeCost.linear(LLAMA_3_1_8B), SwapCost.over_link(LLAMA_3_1_8B, 25e9)
    assert (DEFAULT.recompute, DEFAULT.swap) == (recompute, swap)
    state = figures.evict().state
    assert state["crossover"] == crossover(recompute, swap) == pytest.approx(664.2, abs=0.05)
    assert (state["tokens"], state["mode"]) == (1200, "swap")
    assert state["recompute_seconds"] == pytest.approx(0.0487, abs=5e-5)
    assert state["swap_seconds"] == pytest.approx(0.0326, abs=5e-5)
    assert json.loads(json.dumps(state)) == state


def test_where_the_crossover_moves_and_where_there_is_none() -> None:
    assert replace(DEFAULT, gigabytes_per_second=55.0).crossover == pytest.approx(558.2, abs=0.05)
    assert "from 559 on" in verdict(replace(DEFAULT, gigabytes_per_second=55.0))
    slowest = DEFAULT.slowest_link
    assert slowest == break_even_bandwidth(LLAMA_3_1_8B, DEFAULT.recompute) / 1e9
    assert slowest == pytest.approx(6.46, abs=0.005)
    assert replace(DEFAULT, gigabytes_per_second=slowest * 0.999).crossover is None
    assert replace(DEFAULT, gigabytes_per_second=slowest * 1.001).crossover is not None


def test_attention_and_blocks_move_it_too() -> None:
    assert replace(DEFAULT, gigabytes_per_second=6.0, attention=True).crossover is not None
    for size in BLOCK_SIZES:
        blocks = replace(DEFAULT, per_block_us=30.0, block_size=size)
        link = blocks.slowest_link
        if link is None:
            assert size == 1 or 30 / size >= 40
            continue
        assert link > 6.46
        assert replace(blocks, gigabytes_per_second=min(64.0, link * 1.001)).crossover or link > 64
        if 2 <= link * 0.999 <= 64:
            assert replace(blocks, gigabytes_per_second=link * 0.999).crossover is None
    assert replace(DEFAULT, per_block_us=100.0, block_size=1).slowest_link is None
    # A mark that is the decision: one token less, and it is the other way round.
    for link in (10.0, 25.0, 55.0):
        eviction = replace(DEFAULT, gigabytes_per_second=link)
        first = math.floor(eviction.crossover or 0) + 1
        assert [eviction.decide(first - 1).mode, eviction.decide(first).mode] == ["recompute", "swap"]


def test_every_verdict() -> None:
    assert verdict(DEFAULT) == "Crossover at 664.2 tokens: from 665 on swap is cheaper."
    assert verdict(replace(DEFAULT, gigabytes_per_second=6.5)) == (
        "Crossover at 74,993 tokens: from 74,994 on swap is cheaper."
    )
    assert verdict(replace(DEFAULT, gigabytes_per_second=6.0)) == (
        "No crossover: swap costs 43.7 µs per token and recompute 40.6, so recompute is cheaper at every length. "
        "It takes a host link of more than 6.46 GB/s."
    )
    assert verdict(replace(DEFAULT, per_block_us=100.0, block_size=1)).endswith(
        "No host link is fast enough: the overhead of the blocks alone costs as much."
    )
    assert verdict(replace(DEFAULT, setup_ms=0.0)) == (
        "Swap has no set-up to win back: it is cheaper from the first token on."
    )
    assert "first block on" in verdict(replace(DEFAULT, setup_ms=0.0, per_block_us=1.0))
    assert re.fullmatch(
        r"Crossover near \d+ tokens, counting full blocks: beyond it swap is cheaper\.",
        verdict(replace(DEFAULT, per_block_us=30.0)),
    )


def test_the_decision_has_as_many_decimals_as_it_takes() -> None:
    assert read_out(DEFAULT, 1200) == "At 1,200 tokens: recompute 49 ms, swap 33 ms: swap."
    assert read_out(DEFAULT, 664) == "At 664 tokens: recompute 26.956 ms, swap 26.963 ms: recompute."
    assert read_out(DEFAULT, 0) == "At 0 tokens: recompute 0.0 ms, swap 20.0 ms: recompute."
    assert milliseconds(0.02, 0.02) == ["20.000", "20.000"]
    assert [rounded(2.5, 0), rounded(1234.25, 1), rounded(0.0, 1)] == ["3", "1,234.3", "0.0"]


def test_the_fallback_has_the_key_numbers() -> None:
    html = figures.evict().fallback
    assert (
        html.startswith(f"<p>{CAPTION}</p>") and verdict(DEFAULT) in html and read_out(DEFAULT, 1200) in html
    )
    assert (
        '<th scope="row">6 GB/s</th><td>none: recompute is always cheaper</td>' in html
        and '<th scope="row">55 GB/s</th><td>558.2 tokens</td>' in html
    )
    assert '<th scope="row">1,200</th><td>49 ms</td><td>33 ms</td><td>swap</td>' in html
    assert "crossover: 664.2 tokens</text>" in html
    assert "tokens</text>" not in figures.evict(gigabytes_per_second=6).fallback


def test_the_figure_refuses_what_it_cannot_show() -> None:
    wrong: list[dict[str, Any]] = [
        {"model": "gpt"},
        {"block_size": 3},
        {"span": 4000},
        {"tokens": 2001},
        {"tokens": -1},
        {"tokens": 1.5},
    ]
    for name, (least, most, _) in LIMITS.items():
        wrong += [{name: least - 0.1}, {name: most + 0.1}, {name: math.nan}, {name: "20"}]
    for arguments in wrong:
        with pytest.raises(BadValue):
            figures.evict(**arguments)
    assert figures.evict(2500, span=8000).state["tokens"] == 2500


def test_code_and_data_stay_small_and_two_builds_agree() -> None:
    html = figures.evict().to_html()
    assert html == figures.evict().to_html()
    own = b"".join((figures.JS_DIR / name).read_bytes() for name in figures.SCRIPTS["evict"][1:])
    assert len(own + html.encode()) < 40_000
    assert len(gzip.compress(module_source("evict").encode() + html.encode())) < 20_000


# --- in a browser ---------------------------------------------------------------------------------------------------

READ = """() => {
  const root = document.querySelector(".pkv-evict"), chart = root.querySelector(".chart");
  const words = css => [...root.querySelectorAll(css)].map(n => n.textContent);
  const points = kind => [...chart.querySelector(`.curve.${kind}`).getAttribute("d")
    .matchAll(/[ML]([\\d.-]+) ([\\d.-]+)/g)].map(m => [+m[1], +m[2]]);
  return {state: document.querySelector("pagedkv-figure").state, say: words(".say")[0], verdict: words(".verdict")[0],
    texts: [...chart.querySelectorAll("text")].map(t => [t.textContent, +t.getAttribute("x"), +t.getAttribute("y")]),
    recompute: points("recompute"), swap: points("swap"), width: +chart.getAttribute("width"),
    cross: (chart.querySelector(".cross") || {getAttribute: () => null}).getAttribute("d"),
    ring: [...chart.querySelectorAll(".ring")].map(n => [+n.getAttribute("cx"), +n.getAttribute("cy")]),
    dots: [...chart.querySelectorAll(".dot")].map(n => [+n.getAttribute("cx"), +n.getAttribute("cy")]),
    bands: [...chart.querySelectorAll(".band")].map(n => { const r = n.querySelector("rect");
      return [n.dataset.cheaper, +r.getAttribute("x"), +r.getAttribute("width")]; }),
    shown: words(".knobs b").concat(words(".length b"))};
}"""


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    with pages(browser, tmp_path, figures.evict, height=1200) as open_page:
        yield open_page


def random_settings(count: int) -> list[tuple[Eviction, int]]:
    """Slider positions, with the corners in which there is no set-up, no block overhead or no crossover."""
    chance = random.Random(5)

    def slide(name: str) -> float:
        least, most, step = LIMITS[name]
        return chance.choice([least, most, least + step * chance.randint(0, round((most - least) / step))])

    settings = []
    for _ in range(count):
        eviction = Eviction(
            chance.choice(list(PRESETS)),
            *(slide(name) for name in ("gigabytes_per_second", "setup_ms", "efficiency_percent")),
            chance.choice(BLOCK_SIZES),
            chance.choice([0.0, slide("per_block_us")]),
            chance.random() < 0.4,
        )
        settings.append(
            (eviction, chance.choice([0, 1, chance.randint(0, 2000), chance.randint(0, 128_000)]))
        )
    return settings


@pytest.mark.browser
def test_the_scripts_formulas_are_those_of_the_package(show: Any) -> None:
    page, settings = show(), random_settings(600)
    asked = [selection(eviction, tokens, 128_000) for eviction, tokens in settings]
    seen = page.evaluate(
        """asked => { const {costs, recompute, swap, crossover, slowestLink} = globalThis.pagedkv.preemption;
          const {data} = JSON.parse(document.querySelector("pagedkv-figure > script").textContent);
          return asked.map(state => { const both = costs(data, state); return [recompute(both.recompute, state.tokens),
            swap(both.swap, state.tokens), crossover(both.recompute, both.swap), slowestLink(data, state)]; }); }""",
        asked,
    )
    crossings = []
    for (eviction, tokens), found in zip(settings, seen, strict=True):
        decision = eviction.decide(tokens)
        costs = [decision.recompute_seconds, decision.swap_seconds, eviction.crossover, eviction.slowest_link]
        for here, there in zip(found, costs, strict=True):
            assert (here is None) == (there is None), (eviction, tokens)
            assert here is None or here == pytest.approx(there, rel=1e-9, abs=0), (eviction, tokens)
        crossings.append(eviction.crossover)
    assert crossings.count(None) > 50 and crossings.count(0) > 20
    assert sum(one is not None and one > 2000 for one in crossings) > 50


@pytest.mark.browser
def test_the_script_says_what_python_says(show: Any) -> None:
    page = show()
    for eviction, tokens in [*random_settings(120), (DEFAULT, 664), (DEFAULT, 665)]:
        state = selection(eviction, tokens, 128_000)
        seen = page.evaluate(
            """state => { document.querySelector("pagedkv-figure").state = state;
              return [document.querySelector("pagedkv-figure").state,
                document.querySelector(".say").textContent, document.querySelector(".verdict").textContent]; }""",
            {**state, "crossover": -1, "mode": "?", "recompute_seconds": 0},
        )
        assert seen == [state, read_out(eviction, tokens), verdict(eviction)]


def check(page: Any, eviction: Eviction, tokens: int, span: int) -> None:
    """All that the figure says and draws, against the package."""
    seen = page.evaluate(READ)
    assert seen["state"] == selection(eviction, tokens, span)
    assert (seen["say"], seen["verdict"]) == (read_out(eviction, tokens), verdict(eviction))
    values = (
        eviction.gigabytes_per_second,
        eviction.setup_ms,
        eviction.efficiency_percent,
        eviction.per_block_us,
    )
    units = ("GB/s", "ms", "% of 989 TFLOP/s", "µs")
    assert seen["shown"] == [*(f"{v:g} {u}" for v, u in zip(values, units, strict=True)), f"{tokens:,}"]
    # The scale, read off the picture's own labels.
    left, right, floor, top_y = 48, seen["width"] - 10, 296, 26
    labels = [
        (float(words.replace(",", "")), x, y)
        for words, x, y in seen["texts"]
        if re.fullmatch(r"[\d,.]+", words)
    ]
    top = max(value for value, x, _ in labels if x < left) / 1e3
    assert max(value for value, x, _ in labels if x >= left) == span

    def x(n: float) -> float:
        return left + n * (right - left) / span

    def y(seconds: float) -> float:
        return floor - seconds * (floor - top_y) / top

    for name, cost in (("recompute", eviction.recompute), ("swap", eviction.swap)):
        points = seen[name]
        assert points[0][0] == left and points[-1][0] == pytest.approx(right, abs=0.06)
        for px, py in points[:: max(1, len(points) // 50)]:
            tokens_there = (px - left) * span / (right - left)
            steps = eviction.swap.per_block if name == "swap" else 0.0
            slope = cost.seconds(span) / span
            slack = 0.2 + (steps + slope * span / (right - left)) * (floor - top_y) / top
            assert py == pytest.approx(y(cost.seconds(round(tokens_there))), abs=slack), (name, tokens_there)
    # The crossover: a mark with its number in the picture, a number beyond it, or words.
    crossing = eviction.crossover
    words = [text for text, _, y_at in seen["texts"] if y_at == 17 and text != "ms"]
    if crossing is None:
        assert (
            words == ["no crossover"]
            and seen["ring"] == []
            and [b[0] for b in seen["bands"]] == ["recompute"]
        )
    elif crossing == 0:
        assert words == ["swap is cheaper at once"] and [b[0] for b in seen["bands"]] == ["swap"]
    else:
        number = rounded(crossing, 1 if crossing < 10_000 and not eviction.per_block_us else 0)
        assert words == [f"crossover: {number} tokens" + (" →" if crossing > span else "")]
        if crossing < span:
            [[ring_x, ring_y]] = seen["ring"]
            assert ring_x == pytest.approx(x(crossing), abs=0.01)
            whole = (
                eviction.recompute.per_token * crossing
                + eviction.recompute.per_pair * crossing * (crossing + 1) / 2
            )
            assert ring_y == pytest.approx(y(whole), abs=0.01)
            assert seen["cross"].startswith(f"M{ring_x:g}"[:7])
            assert seen["bands"] == [
                ["recompute", left, pytest.approx(ring_x - left)],
                ["swap", pytest.approx(ring_x), pytest.approx(right - ring_x)],
            ]
        else:
            assert seen["ring"] == [] and [b[0] for b in seen["bands"]] == ["recompute"]
    # The length at hand.
    decision = eviction.decide(tokens)
    heights = [y(one) for one in (decision.recompute_seconds, decision.swap_seconds)]
    assert seen["dots"] == [[pytest.approx(x(tokens)), pytest.approx(at)] for at in heights if at >= top_y]
    texts = milliseconds(decision.recompute_seconds, decision.swap_seconds)
    for name, text, at in zip(("recompute", "swap"), texts, heights, strict=True):
        assert f"{name}: {text} ms{'' if at >= top_y else ' ↑'}" in [words for words, *_ in seen["texts"]]


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 360])
def test_what_is_shown_is_pythons_after_every_control(show: Any, width: int) -> None:
    page = show(viewport={"width": width, "height": 900})
    eviction, tokens, span = DEFAULT, 1200, 2000
    check(page, eviction, tokens, span)

    def slide(label: str, **change: float) -> None:
        nonlocal eviction
        eviction = replace(eviction, **change)
        [value] = change.values()
        page.get_by_label(label).fill(f"{value:g}")
        check(page, eviction, tokens, span)

    slide("Host link", gigabytes_per_second=55.0)
    slide("Host link", gigabytes_per_second=6.0)
    slide("Host link", gigabytes_per_second=2.0)
    slide("Host link", gigabytes_per_second=10.5)
    slide("Set-up of a swap", setup_ms=3.0)
    slide("Set-up of a swap", setup_ms=0.0)
    slide("Set-up of a swap", setup_ms=40.0)
    slide("Prefill efficiency", efficiency_percent=55.0)
    slide("Overhead per block", per_block_us=70.0)
    page.get_by_label("Block size").select_option("256")
    eviction = replace(eviction, block_size=256)
    check(page, eviction, tokens, span)
    page.get_by_label("Axis to").select_option("32000")
    span = 32_000
    check(page, eviction, tokens, span)
    page.get_by_label("Attention").check()
    eviction = replace(eviction, attention=True)
    check(page, eviction, tokens, span)
    page.get_by_label("Model").select_option("opt-13b")
    eviction = replace(eviction, model="opt-13b")
    check(page, eviction, tokens, span)
    tokens = 20_000
    page.get_by_label("Cached tokens").fill(str(tokens))
    check(page, eviction, tokens, span)
    page.get_by_label("Axis to").select_option("8000")
    check(page, eviction, 8000, 8000)
    page.get_by_role("button", name="Reset").click()
    check(page, DEFAULT, 1200, 2000)


@pytest.mark.browser
def test_everything_by_keyboard(show: Any) -> None:
    page = show()

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    press("Tab", "ArrowRight")
    eviction = replace(DEFAULT, gigabytes_per_second=25.5)
    check(page, eviction, 1200, 2000)
    press("Tab", "ArrowLeft", "Tab", "ArrowUp", "Tab", "ArrowRight", "ArrowRight")
    eviction = replace(eviction, setup_ms=19.0, efficiency_percent=41.0, per_block_us=2.0)
    check(page, eviction, 1200, 2000)
    press("Tab", "ArrowDown", "Tab", "ArrowDown", "Tab", "ArrowDown", "Tab", "Space")
    eviction = replace(eviction, model="opt-13b", block_size=32, attention=True)
    check(page, eviction, 1200, 8000)
    press("Tab", "Tab", "ArrowRight")
    check(page, eviction, 1201, 8000)
    press("Home")
    check(page, eviction, 0, 8000)
    press("End")
    check(page, eviction, 8000, 8000)
    press("Shift+Tab", "Enter")
    check(page, DEFAULT, 1200, 2000)


@pytest.mark.browser
def test_pointing_at_the_chart_picks_a_length(show: Any) -> None:
    page = show()
    box = page.locator(".chart").bounding_box()
    plot = box["width"] - 48 - 10
    page.mouse.move(box["x"] + 48 + plot / 2, box["y"] + 100)
    check(page, DEFAULT, 1200, 2000)  # a pointer that only passes changes nothing
    page.mouse.down()
    check(page, DEFAULT, 1000, 2000)
    page.mouse.move(box["x"] + 48 + plot / 4, box["y"] + 120)
    page.mouse.up()
    check(page, DEFAULT, 500, 2000)
    page.mouse.click(box["x"] + 10, box["y"] + 100)
    check(page, DEFAULT, 0, 2000)


@pytest.mark.browser
def test_the_link_at_which_the_crossover_begins_is_marked(show: Any) -> None:
    page = show()
    marks = page.locator(".knobs .ticks").first
    assert marks.locator("text").all_text_contents() == ["6.46 break-even", "PCIe 4", "PCIe 5"]
    page.get_by_label("Model").select_option("opt-13b")
    words = marks.locator("text").all_text_contents()
    link = replace(DEFAULT, model="opt-13b").slowest_link
    assert words == [f"{link:.2f} break-even", "PCIe 5"]
    page.get_by_label("Attention").check()  # from some length on swap wins over any link
    assert marks.locator("text").all_text_contents() == ["PCIe 4", "PCIe 5"]


@pytest.mark.browser
def test_a_screen_reader_hears_the_decision_and_the_verdict(show: Any) -> None:
    page = show()
    page.get_by_label("Host link").fill("6")
    page.wait_for_timeout(450)
    eviction = replace(DEFAULT, gigabytes_per_second=6.0)
    assert page.locator(".pkv [aria-live]").inner_text() == f"{read_out(eviction, 1200)} {verdict(eviction)}"


@pytest.mark.browser
def test_the_kernel_can_move_the_figure(show: Any) -> None:
    start = replace(DEFAULT, model="qwen-2.5-7b", gigabytes_per_second=31.5)
    page = show(figure=figures.evict(3000, model="qwen-2.5-7b", gigabytes_per_second=31.5, span=8000))
    check(page, start, 3000, 8000)
    move = "state => { document.querySelector('pagedkv-figure').state = state; }"
    page.evaluate(move, {"tokens": 7000, "setup_ms": 5})
    check(page, replace(start, setup_ms=5.0), 7000, 8000)
    garbage = {
        "model": "x",
        "gigabytes_per_second": 1e9,
        "setup_ms": -1,
        "block_size": 20,
        "tokens": 1e9,
        "span": 0,
    }
    page.evaluate(move, {**garbage, "efficiency_percent": None, "per_block_us": "y"})
    check(
        page,
        replace(DEFAULT, gigabytes_per_second=64.0, setup_ms=0.0, efficiency_percent=20.0),
        2000,
        2000,
    )


@pytest.mark.browser
def test_in_a_notebook_the_kernel_sees_what_the_reader_chose(browser: Any) -> None:
    page = browser.new_page()
    trouble = watch(page, "about:")
    figure = figures.evict()
    seen = page.evaluate(
        """async ([source, payload, state]) => {
          const module = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
          const values = {kind: "evict", payload, state}, el = document.body, heard = [];
          const model = {get: name => values[name], set: (name, value) => { values[name] = value; },
            save_changes: () => {}, on: (_, fn) => heard.push(fn), off: () => {}};
          const close = module.default.render({model, el});
          el.querySelector("[type=checkbox]").click();
          await new Promise(done => setTimeout(done, 300));
          const chosen = {...values.state};
          values.state = {...values.state, tokens: 500};
          heard.forEach(fn => fn());
          const said = el.querySelector(".say").textContent;
          close();
          return [chosen, said, el.childElementCount]; }""",
        [module_source("evict"), figure._payload(), figure.state],
    )
    page.close()
    eviction = replace(DEFAULT, attention=True)
    assert seen == [selection(eviction, 1200, 2000), read_out(eviction, 500), 0]
    assert trouble == []


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 360)])
def test_axe_finds_nothing(show: Any, theme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(theme=theme, viewport={"width": width, "height": 900})
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["target"]) for v in found] == []


@pytest.mark.browser
def test_it_fits_every_width_with_its_labels_inside(show: Any) -> None:
    extremes = [
        selection(replace(DEFAULT, gigabytes_per_second=2.0, per_block_us=100.0, block_size=1), 30, 2000),
        selection(replace(DEFAULT, model="opt-13b", attention=True, per_block_us=100.0), 127_000, 128_000),
        selection(replace(DEFAULT, gigabytes_per_second=6.5), 1990, 2000),
    ]
    page = show()
    for width in (1200, 700, 480, 360, 330, 320):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(120)
        for state in extremes:
            outside = page.evaluate(
                """state => { document.querySelector("pagedkv-figure").state = state;
                  const box = document.querySelector(".pkv").getBoundingClientRect();
                  return [...document.querySelectorAll(".pkv svg text")].filter(text => {
                    const {left, right} = text.getBoundingClientRect(); return left < box.left || right > box.right;
                  }).map(text => text.textContent); }""",
                state,
            )
            assert outside == [], (width, state)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        """() => [...document.querySelectorAll(
            ".pkv :is(button, select, input[type=range], label:has([type=checkbox]))")]
          .filter(e => e.getBoundingClientRect().width < 24 || e.getBoundingClientRect().height < 24).length"""
    )
    assert small == 0


@pytest.mark.browser
def test_nothing_is_said_by_colour_alone(show: Any) -> None:
    page = show(forced_colors="active")
    looks = page.evaluate(
        """() => ["recompute", "swap"].map(kind => { const style = getComputedStyle(document.querySelector(
          `.chart .curve.${kind}`)); return [style.stroke, style.strokeDasharray]; })"""
    )
    assert looks[0][0] == looks[1][0] and looks[0][1] == "none" != looks[1][1]
    assert page.locator(".band text").all_text_contents() == ["recompute is cheaper", "swap is cheaper"]


@pytest.mark.browser
def test_without_javascript_the_numbers_stand_there(show: Any) -> None:
    page = show(java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert CAPTION in text and verdict(DEFAULT) in text and read_out(DEFAULT, 1200) in text
    assert re.search(r"25 GB/s\s+664\.2 tokens", text)
    assert page.locator("pagedkv-figure svg").is_visible()


def test_the_caption_has_two_sentences() -> None:
    assert CAPTION.count(". ") == 1 and CAPTION.endswith(".")
    assert set(SPANS) == {2000, 8000, 32000, 128000}
