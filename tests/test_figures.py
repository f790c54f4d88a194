"""What the figures hand to their scripts, and the pages they make, without a browser."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from pagedkv.blocks import BlockPool
from pagedkv.book import figures
from pagedkv.book.figures.allocators import STATES, ending_percentages
from pagedkv.book.figures.base import look, module_source
from pagedkv.book.figures.block_table import SIZES, SLOTS, read_out, scattered, selection
from pagedkv.book.palette import PALETTE
from pagedkv.contiguous import FirstFit, Fixed
from pagedkv.errors import BadValue, NeverFits
from pagedkv.replay import Moment, Paged, Reserved, replay
from pagedkv.waste import Breakdown
from pagedkv.workloads import make_requests, teaching_stream

MAKERS = {
    "allocators": figures.two_allocators,
    "block-table": figures.block_table,
    "copy-on-write": figures.copy_on_write,
    "watermarks": figures.watermarks,
    "evict": figures.evict,
    "knee": figures.knee,
}


def payload(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


class Balance(HTMLParser):
    """Tags that are opened and closed in order."""

    EMPTY = ("rect", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


# --- every figure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
def test_a_figure_is_one_element_with_its_data_and_a_fallback(kind: str) -> None:
    html = MAKERS[kind]().to_html()
    assert html.startswith(f'<pagedkv-figure kind="{kind}">') and html.endswith("</pagedkv-figure>")
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    held = payload(html)
    assert set(held) == {"title", "palette", "data", "state"} and held["title"]
    assert all(value["color"] == PALETTE[name].color for name, value in held["palette"].items())


@pytest.mark.parametrize("kind", MAKERS)
def test_two_builds_agree(kind: str) -> None:
    assert MAKERS[kind]().to_html() == MAKERS[kind]().to_html()


@pytest.mark.parametrize("kind", MAKERS)
def test_code_and_data_of_a_figure_stay_small(kind: str) -> None:
    own = (figures.JS_DIR / figures.SCRIPTS[kind][-1]).read_bytes() + MAKERS[kind]().to_html().encode()
    with_shared = module_source(kind).encode() + MAKERS[kind]().to_html().encode()
    assert len(own) < 40_000
    assert len(gzip.compress(with_shared)) < 24_000  # of the 400 KB that a page may weigh


def test_every_listed_script_exists_and_every_script_is_listed() -> None:
    listed = {name for names in figures.SCRIPTS.values() for name in names}
    assert listed == {path.name for path in figures.JS_DIR.glob("*.js")}
    assert all(names[0] == "core.js" for names in figures.SCRIPTS.values())


def test_scripts_have_no_module_syntax_and_fetch_nothing() -> None:
    for path in figures.JS_DIR.glob("*.js"):
        source = path.read_text()
        assert not re.search(
            r"^\s*(import|export)\b|\bfetch\(|XMLHttpRequest|https?://(?!www\.w3\.org)", source, re.MULTILINE
        )


def test_every_state_with_a_pattern_has_its_tile() -> None:
    patterned = {
        name for name, state in PALETTE.items() if state.pattern not in ("solid", "outline", "count")
    }
    assert patterned == {name for name, state in look(tuple(PALETTE)).items() if state["tile"]}


def test_data_cannot_end_the_script_element() -> None:
    figure = figures.Figure("block-table", "</script><!--<script>", {"x": "</SCRIPT>"}, {}, ("tokens",), "")
    html = figure.to_html()
    assert html.count("</script>") == 1 and "</SCRIPT>" not in html and "<!--" not in html
    assert payload(html)["title"] == "</script><!--<script>" and payload(html)["data"]["x"] == "</SCRIPT>"


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadValue, match="allocators, block-table"):
        figures.Figure("pie", "a pie", {}, {}, (), "")


def test_figures_load_without_the_widget_machinery() -> None:
    code = (
        "import sys; from pagedkv.book import figures; figures.block_table().to_html(); "
        "figures.two_allocators(); print(sorted({'anywidget', 'ipywidgets', 'traitlets'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # traitlets comes with IPython, which claims need.
    assert "anywidget" not in run.stdout and "ipywidgets" not in run.stdout


@pytest.mark.parametrize("kind", MAKERS)
def test_the_bundle_is_live_and_static_at_once(kind: str) -> None:
    pytest.importorskip("anywidget")
    figure = MAKERS[kind]()
    bundle, _ = figure._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/html"] == figure.to_html()
    assert bundle["text/plain"] == figure.title
    assert figure.widget._esm.endswith("export default globalThis.pagedkv.anywidget;\n")


def test_the_state_follows_the_widget_and_moves_it() -> None:
    pytest.importorskip("anywidget")
    figure = figures.block_table()
    figure.state = {"token": 3}
    assert figure.state["token"] == 3 and figure.widget.state["token"] == 3
    figure.widget.state = {**figure.widget.state, "token": 9}
    assert figure.state["token"] == 9
    figure.state = {"block_size": 32}
    assert figure.widget.state["block_size"] == 32 and figure.state["token"] == 9
    assert payload(figure.to_html())["state"] == figure.state


# --- figure 1 -------------------------------------------------------------------------------------------------------


def test_the_fallback_and_the_data_carry_both_ending_percentages() -> None:
    figure = figures.two_allocators()
    stream = teaching_stream()
    for side, memory in (
        ("contiguous", Reserved(FirstFit(4800), Fixed(560))),
        ("paged", Paged(BlockPool(300, 16))),
    ):
        run = replay(stream, memory)
        of_taken, of_pool = ending_percentages(run.breakdown)
        assert figure.data[side]["of_taken"] == pytest.approx(of_taken, abs=1e-4)
        assert figure.data[side]["of_pool"] == pytest.approx(of_pool, abs=1e-4)
        assert figure.data[side]["of_pool"] == pytest.approx(run.breakdown.percent().tokens, abs=1e-4)
        assert f"<td>{of_taken:.1f} %</td><td>{of_pool:.1f} %</td>" in figure.fallback
    assert figure.data["contiguous"]["of_taken"] < 40 and figure.data["paged"]["of_taken"] > 90
    assert figure.data["paged"]["iterations"] < figure.data["contiguous"]["iterations"]


def test_ending_percentages_are_shares_of_what_was_taken_and_of_the_pool() -> None:
    average = Breakdown(tokens=10, reserved=5, overprovisioned=20, sliver=1, external=4, free=60)
    assert ending_percentages(average) == (25.0, 10.0)
    assert ending_percentages(Breakdown(free=5)) == (0.0, 0.0)


def test_the_stays_are_the_replay() -> None:
    """Everything that the script looks up: who is where, from when to when, adds up to Python's own moments."""
    data = figures.two_allocators().data
    moments: list[Moment] = []
    replay(teaching_stream(), Reserved(FirstFit(4800), Fixed(560)), watch=moments.append)
    for moment in moments:
        here = [s for s in data["contiguous"]["stays"] if s[2] <= moment.step < s[3]]
        waiting = [s for s in data["contiguous"]["stays"] if s[1] <= moment.step < s[2]]
        assert (len(here), len(waiting)) == (moment.resident, moment.waiting)
        assert sum(moment.step + 1 - s[2] for s in here) == moment.breakdown.tokens
    assert len(data["contiguous"]["stays"]) == len(data["paged"]["stays"]) == 24


def test_the_first_view_is_where_most_requests_wait() -> None:
    figure = figures.two_allocators()
    stays, step = figure.data["contiguous"]["stays"], figure.state["step"]

    def waiting(at: int) -> int:
        return sum(queued <= at < admitted for _, queued, admitted, *_ in stays)

    assert waiting(step) == max(map(waiting, range(figure.data["iterations"]))) > 8
    assert figures.two_allocators(step=0).state["step"] == 0


def test_figure_1_refuses_what_it_cannot_draw() -> None:
    for wrong in (
        {"slots": 4801},
        {"reservation": 100},
        {"block_size": 0},
        {"step": 10**6},
        {"requests": []},
    ):
        with pytest.raises(BadValue):
            figures.two_allocators(**wrong)
    with pytest.raises(BadValue, match="whole iterations"):
        figures.two_allocators(make_requests([(0, 3)], [0.5]))
    with pytest.raises(NeverFits):
        figures.two_allocators(make_requests([(0, 561)]))


def test_every_state_of_a_slot_has_a_colour_of_its_own() -> None:
    assert tuple(Breakdown.__dataclass_fields__) == STATES
    assert len({PALETTE[state].color for state in STATES}) == len(STATES)
    assert len({PALETTE[state].pattern for state in STATES}) == len(STATES)


# --- figure 2 -------------------------------------------------------------------------------------------------------


def test_the_first_read_out() -> None:
    figure = figures.block_table()
    assert read_out(figure.state) == "Token 21: logical block 1, offset 5 -> physical block 7, slot 117"
    assert "offset 5 -&gt; physical block 7, slot 117" in figure.fallback
    assert "11 of 48, 22.9 %" in figure.fallback and "3 × 4 B = 12 B" in figure.fallback


@pytest.mark.parametrize("size", SIZES)
def test_the_start_is_a_pool_that_a_real_manager_left(size: int) -> None:
    pool, a, b = scattered(size, 37, 54, 260)
    start = figures.block_table().data["start"][str(size)]
    assert (start["free"], start["a"], start["b"]) == (pool.free_list(), tuple(a.blocks), tuple(b.blocks))
    assert sorted([*start["free"], *start["a"], *start["b"]]) == list(range(SLOTS // size))
    assert (a.length, b.length) == (37, 54)


def test_physical_order_is_scattered() -> None:
    for size in (1, 2, 4, 8, 16):
        blocks = figures.block_table().data["start"][str(size)]["a"]
        steps = [after - before for before, after in itertools.pairwise(blocks)]
        assert any(step < 0 for step in steps) and sum(step == 1 for step in steps) <= len(steps) // 4


def test_selection_agrees_with_the_table() -> None:
    _, a, _ = scattered(16, 37, 54, 260)
    for token in range(37):
        state = selection(a, token)
        assert state["slot"] == a.slot(token) == state["physical_block"] * 16 + state["offset"]


def test_figure_2_refuses_what_it_cannot_draw() -> None:
    for wrong in (
        {"block_size": 3},
        {"block_size": 512},
        {"tokens": 0},
        {"tokens": 97},
        {"other": 129},
        {"token": 37},
        {"token": -1},
        {"tokens": 1.5},
    ):
        with pytest.raises(BadValue):
            figures.block_table(**wrong)
