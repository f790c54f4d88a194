from __future__ import annotations

import hashlib
import itertools
import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedkv.errors import BadValue
from pagedkv.workloads import (
    QuantileTable,
    Request,
    alpaca_like,
    from_quantiles,
    lognormal,
    make_requests,
    poisson,
    quantile,
    quantile_table,
    renewal,
    sharegpt_like,
    summary,
    teaching_stream,
    uniform,
)

SEEDS = st.integers(0, 2**40)
unhurried = settings(deadline=None)  # a busy machine is no failure


def digest(requests: tuple[Request, ...]) -> str:
    return hashlib.sha256(repr(requests).encode()).hexdigest()


def gaps(arrivals: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(arrivals)]


# Requests


def test_a_request_knows_its_total_and_cannot_be_changed() -> None:
    request = Request(3, 1.5, 20, 7)
    assert request.total == 27
    with pytest.raises(AttributeError):
        request.prompt = 5  # type: ignore[misc]
    assert not hasattr(request, "__dict__")


@pytest.mark.parametrize("field", ["id", "prompt", "output"])
@pytest.mark.parametrize("value", [-1, 1.0, 2.5, True, "3", None, math.nan])
def test_a_request_refuses_what_is_not_a_count(field: str, value: object) -> None:
    fields: dict[str, object] = {"id": 0, "arrival": 0.0, "prompt": 1, "output": 1, field: value}
    with pytest.raises(BadValue, match=field):
        Request(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("arrival", [-0.5, math.nan, math.inf, -math.inf, True, "1", None, 1j])
def test_a_request_refuses_an_arrival_that_is_no_time(arrival: object) -> None:
    with pytest.raises(BadValue, match="arrival"):
        Request(0, arrival, 1, 1)  # type: ignore[arg-type]


def test_a_request_takes_numpy_numbers_and_keeps_python_ones() -> None:
    request = Request(np.int64(1), np.float32(2), np.int32(3), np.uint8(4))  # type: ignore[arg-type]
    assert request == Request(1, 2.0, 3, 4)
    assert [type(value) for value in (request.id, request.arrival, request.prompt, request.output)] == [
        int,
        float,
        int,
        int,
    ]
    assert type(Request(0, 3, 1, 1).arrival) is float


def test_empty_requests_are_allowed() -> None:
    assert Request(0, 0.0, 0, 0).total == 0


def test_make_requests_numbers_joins_and_checks() -> None:
    assert make_requests([(5, 6), (7, 8)], [0.0, 2.5]) == (Request(0, 0.0, 5, 6), Request(1, 2.5, 7, 8))
    assert [request.arrival for request in make_requests([(1, 1)] * 3)] == [0.0, 0.0, 0.0]
    assert make_requests([]) == ()
    with pytest.raises(BadValue, match="2 lengths need as many arrivals, not 1"):
        make_requests([(1, 1), (1, 1)], [0.0])
    with pytest.raises(BadValue, match="order"):
        make_requests([(1, 1), (1, 1)], [2.0, 1.0])


# The stream of figure 1


@unhurried
@given(SEEDS)
def test_every_teaching_stream_fits_its_reservation(seed: int) -> None:
    stream = teaching_stream(seed)
    totals = [request.total for request in stream]
    assert len(stream) == 24
    assert [request.id for request in stream] == list(range(24))
    assert all(
        48 <= total <= 560 and request.prompt == 0 for total, request in zip(totals, stream, strict=True)
    )
    assert sum(total >= 520 for total in totals) >= 3
    arrivals = [request.arrival for request in stream]
    assert arrivals[0] == 0
    assert all(arrival == int(arrival) for arrival in arrivals)
    assert all(gap >= 1 for gap in gaps(arrivals))


def test_the_teaching_stream_of_the_book_shows_what_it_should() -> None:
    stream = teaching_stream()
    totals = sorted(request.total for request in stream)
    assert sum(100 <= total <= 300 for total in totals) >= 16
    # Eight reservations of 560 fit; a slot share well under half, and many more arrivals than places while they last.
    assert sum(totals) / (24 * 560) < 0.45
    ninth_place_frees = min(request.arrival + request.total for request in stream[:8])
    assert sum(request.arrival < ninth_place_frees for request in stream) >= 20
    # Paged, all of them fit into 300 blocks at any moment: nobody waits.
    moments = range(int(stream[-1].arrival + 560))
    held = [sum(blocks_at(request, moment) for request in stream) for moment in moments]
    assert 150 <= max(held) <= 300


def blocks_at(request: Request, moment: int) -> int:
    grown = moment + 1 - int(request.arrival)
    return -(-grown // 16) if 0 < grown <= request.total else 0


# Lengths


@pytest.mark.parametrize("seed", range(3))
def test_lengths_like_sharegpt_have_the_published_means_after_the_caps(seed: int) -> None:
    requests = sharegpt_like(3000, seed)
    facts = summary(requests)
    assert facts.prompt.mean == pytest.approx(161.31, abs=0.001)
    assert facts.output.mean == pytest.approx(337.99, abs=0.001)
    assert (
        max(request.prompt for request in requests) == 1024
    )  # the caps bite, and this is why rescaling is needed
    assert max(request.total for request in requests) == 2048
    assert min(min(request.prompt, request.output) for request in requests) >= 1
    deviation = statistics.pstdev(request.output for request in requests)
    assert 0.7 < deviation / facts.output.mean < 0.87


def test_lengths_like_alpaca_have_the_published_means() -> None:
    facts = summary(alpaca_like(4000, 0))
    assert facts.prompt.mean == pytest.approx(19.31, abs=0.001)
    assert facts.output.mean == pytest.approx(58.45, abs=0.001)


def test_the_rate_changes_arrivals_and_not_lengths() -> None:
    saturated, slow = sharegpt_like(200, 4), sharegpt_like(200, 4, rate=0.5)
    assert [(r.prompt, r.output) for r in saturated] == [(r.prompt, r.output) for r in slow]
    assert {request.arrival for request in saturated} == {0.0}
    assert 150 < summary(slow).span < 800


@unhurried
@given(
    n=st.integers(1, 60),
    seed=SEEDS,
    prompt_cv=st.floats(0, 3),
    output_cv=st.floats(0, 3),
    prompt_mean=st.floats(1, 30),
    output_mean=st.floats(1, 40),
)
def test_lognormal_hits_its_means_under_any_reachable_cap(
    n: int, seed: int, prompt_cv: float, output_cv: float, prompt_mean: float, output_mean: float
) -> None:
    lengths = lognormal(
        n,
        random.Random(seed),
        prompt_mean=prompt_mean,
        output_mean=output_mean,
        prompt_cv=prompt_cv,
        output_cv=output_cv,
        prompt_cap=60,
        total_cap=140,
    )
    assert len(lengths) == n
    assert all(1 <= prompt <= 60 and 1 <= output <= 140 - prompt for prompt, output in lengths)
    slack = 0.51 / n  # one half token in all, from rounding
    assert sum(prompt for prompt, _ in lengths) / n == pytest.approx(prompt_mean, abs=slack)
    assert sum(output for _, output in lengths) / n == pytest.approx(output_mean, abs=slack)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_mean": 2000.0},
        {"prompt_mean": 0.0},
        {"output_mean": 0.2},
        {"output_mean": math.nan},
        {"prompt_cv": -1.0},
        {"prompt_cap": 0},
        {"total_cap": 1024},
        {"total_cap": 2048.0},
    ],
)
def test_lognormal_refuses_what_it_cannot_reach(change: dict[str, float]) -> None:
    arguments: dict[str, float] = {
        "prompt_mean": 100.0,
        "output_mean": 100.0,
        "prompt_cv": 1.0,
        "output_cv": 1.0,
        "prompt_cap": 1024,
        "total_cap": 2048,
    }
    with pytest.raises(BadValue):
        lognormal(10, random.Random(0), **(arguments | change))  # type: ignore[arg-type]


def test_uniform_covers_both_bounds() -> None:
    lengths = uniform(400, random.Random(0), prompt=(5, 9), output=(0, 3))
    assert {prompt for prompt, _ in lengths} == {5, 6, 7, 8, 9}
    assert {output for _, output in lengths} == {0, 1, 2, 3}
    assert uniform(2, random.Random(0), prompt=(4, 4), output=(0, 0)) == [(4, 0), (4, 0)]
    for bounds in [(3, 2), (-1, 2), (0.0, 2)]:
        with pytest.raises(BadValue):
            uniform(1, random.Random(0), prompt=bounds, output=(0, 1))  # type: ignore[arg-type]


# Arrivals


def test_poisson_arrivals_have_their_rate_and_exponential_gaps() -> None:
    arrivals = poisson(20_000, random.Random(1), rate=4.0)
    between = gaps(arrivals)
    assert arrivals[0] == 0.0
    assert statistics.fmean(between) == pytest.approx(0.25, rel=0.03)
    assert statistics.pstdev(between) / statistics.fmean(between) == pytest.approx(1.0, abs=0.03)
    share_over_mean = sum(gap > 0.25 for gap in between) / len(between)
    assert share_over_mean == pytest.approx(math.exp(-1), abs=0.015)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_renewal_gaps_have_their_mean_and_cv(cv: float) -> None:
    between = gaps(renewal(30_000, random.Random(2), mean_gap=0.4, cv=cv))
    assert statistics.fmean(between) == pytest.approx(0.4, rel=0.05)
    assert statistics.pstdev(between) / statistics.fmean(between) == pytest.approx(cv, rel=0.05)


def test_renewal_without_spread_is_a_metronome() -> None:
    assert renewal(4, random.Random(0), mean_gap=0.5, cv=0) == [0.0, 0.5, 1.0, 1.5]
    assert renewal(3, random.Random(0), mean_gap=0, cv=3) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("n", [0, 1])
def test_no_and_one_arrival(n: int) -> None:
    assert renewal(n, random.Random(0), mean_gap=1.0, cv=1.0) == [0.0] * n
    assert poisson(n, random.Random(0), rate=2) == [0.0] * n
    assert len(sharegpt_like(n, 0)) == n
    assert uniform(n, random.Random(0), prompt=(1, 1), output=(1, 1)) == [(1, 1)] * n


@pytest.mark.parametrize("rate", [0, 0.0, -1.0, math.inf, math.nan, "2", True])
def test_poisson_refuses_what_is_no_rate(rate: float) -> None:
    with pytest.raises(BadValue, match="rate"):
        poisson(3, random.Random(0), rate=rate)


@pytest.mark.parametrize(
    "change", [{"mean_gap": -1.0}, {"cv": -1.0}, {"cv": math.nan}, {"n": -1}, {"n": 2.0}]
)
def test_renewal_refuses_bad_arguments(change: dict[str, float]) -> None:
    arguments = {"n": 3, "mean_gap": 1.0, "cv": 1.0} | change
    with pytest.raises(BadValue):
        renewal(arguments.pop("n"), random.Random(0), **arguments)  # type: ignore[arg-type]


# Seeds


TABLE = QuantileTable(
    100, (0.0, 0.5, 1.0), (10.0, 20.0, 100.0), ((1.0, 2.0, 3.0), (50.0, 60.0, 90.0)), 0.5, 2.0
)


@unhurried
@given(SEEDS)
def test_the_same_seed_gives_the_same_requests_and_leaves_the_global_generator_alone(seed: int) -> None:
    before = random.getstate()
    for make in (
        lambda s: teaching_stream(s),
        lambda s: sharegpt_like(20, s, rate=1.0),
        lambda s: from_quantiles(TABLE, 20, s),
    ):
        assert digest(make(seed)) == digest(make(seed))
        assert digest(make(seed)) != digest(make(seed + 1))
    assert random.getstate() == before


@pytest.mark.parametrize("seed", [None, -1, 0.5, True, "0"])
def test_a_seed_is_a_whole_number(seed: int) -> None:
    for make in (teaching_stream, lambda s: sharegpt_like(3, s), lambda s: from_quantiles(TABLE, 3, s)):
        with pytest.raises(BadValue, match="seed"):
            make(seed)


def test_the_streams_of_the_book_do_not_change_between_versions() -> None:
    # Lengths are whole numbers, so these hold wherever Python's generator and the C library's logarithm agree.
    assert [request.total for request in teaching_stream()][:6] == [225, 558, 124, 210, 131, 538]
    assert [int(request.arrival) for request in teaching_stream()][:6] == [0, 15, 19, 25, 26, 33]
    assert [(r.prompt, r.output) for r in sharegpt_like(1000, 0)][:3] == [(99, 260), (206, 236), (373, 81)]


# Statistics


@unhurried
@given(st.lists(st.integers(0, 1000), min_size=1), st.floats(0, 1))
def test_quantile_is_numpys(values: list[int], point: float) -> None:
    assert quantile(sorted(values), point) == pytest.approx(float(np.quantile(values, point)), abs=1e-9)


def test_quantile_refuses_what_does_not_exist() -> None:
    for values, point in [([], 0.5), ([1], -0.1), ([1], 1.1), ([1], math.nan)]:
        with pytest.raises(BadValue):
            quantile(values, point)


def test_summary_counts_by_hand() -> None:
    facts = summary(make_requests([(10, 1), (20, 2), (60, 6)], [2.0, 3.0, 6.0]))
    assert (facts.requests, facts.span, facts.rate, facts.mean_gap, facts.longest_gap) == (
        3,
        4.0,
        0.5,
        2.0,
        3.0,
    )
    assert facts.gap_cv == 0.5
    assert (facts.prompt.mean, facts.prompt.median) == (30.0, 20.0)
    assert (facts.output.p90, facts.output.p99) == (pytest.approx(5.2), pytest.approx(5.92))


def test_summary_of_what_comes_at_once_or_alone() -> None:
    for requests in (make_requests([(1, 1)] * 3), make_requests([(1, 1)])):
        facts = summary(requests)
        assert (facts.rate, facts.mean_gap, facts.gap_cv, facts.longest_gap) == (math.inf, 0.0, 0.0, 0.0)
    with pytest.raises(BadValue, match="no summary"):
        summary([])


# Quantile tables


def test_sampling_reproduces_the_table() -> None:
    requests = from_quantiles(TABLE, 40_000, 3)
    prompts = sorted(request.prompt for request in requests)
    for point, expected in [(0.25, 15), (0.5, 20), (0.75, 60), (0.9, 84)]:
        assert quantile(prompts, point) == pytest.approx(expected, abs=1.5)
    assert (prompts[0], prompts[-1]) == (10, 100)
    short = sorted(request.output for request in requests if request.prompt < 20)
    long = sorted(request.output for request in requests if request.prompt > 20)
    assert (short[0], short[-1], long[0], long[-1]) == (1, 3, 50, 90)
    assert quantile(long, 0.5) == pytest.approx(60, abs=1)
    facts = summary(requests)
    assert facts.mean_gap == pytest.approx(0.5, rel=1e-9)  # scaled to be so
    assert facts.gap_cv == pytest.approx(2.0, rel=0.1)


def test_a_table_of_a_generated_workload_gives_its_like() -> None:
    original = sharegpt_like(5000, 1, rate=3.0)
    copy = from_quantiles(quantile_table(original), 5000, 2)
    for mine, theirs in [
        (summary(copy).prompt, summary(original).prompt),
        (summary(copy).output, summary(original).output),
    ]:
        assert mine.mean == pytest.approx(theirs.mean, rel=0.04)
        assert mine.median == pytest.approx(theirs.median, rel=0.06)
        assert mine.p99 == pytest.approx(theirs.p99, rel=0.1)
    assert summary(copy).rate == pytest.approx(summary(original).rate)


@unhurried
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=30), SEEDS)
def test_any_workload_has_a_table_and_its_like_stays_within_its_bounds(
    lengths: list[tuple[int, int]], seed: int
) -> None:
    table = quantile_table(make_requests(lengths))
    for request in from_quantiles(table, 10, seed):
        assert min(p for p, _ in lengths) <= request.prompt <= max(p for p, _ in lengths)
        assert min(o for _, o in lengths) <= request.output <= max(o for _, o in lengths)


@pytest.mark.parametrize(
    ("points", "prompt", "output"),
    [
        ((), (), ((),)),
        ((0.0,), (1.0,), ((1.0,),)),
        ((0.1, 1.0), (1.0, 2.0), ((1.0, 2.0),)),
        ((0.0, 0.9), (1.0, 2.0), ((1.0, 2.0),)),
        ((0.0, 0.5, 0.5, 1.0), (1.0,) * 4, ((1.0,) * 4,)),
        ((0.0, 1.0), (2.0, 1.0), ((1.0, 2.0),)),
        ((0.0, 1.0), (1.0, 2.0), ((2.0, 1.0),)),
        ((0.0, 1.0), (1.0, 2.0, 3.0), ((1.0, 2.0),)),
        ((0.0, 1.0), (1.0, 2.0), ((1.0, 2.0), (1.0,))),
        ((0.0, 1.0), (1.0, 2.0), ()),
        ((0.0, 1.0), (-1.0, 2.0), ((1.0, 2.0),)),
        ((0.0, 1.0), (1.0, math.nan), ((1.0, 2.0),)),
    ],
)
def test_a_quantile_table_refuses_what_is_none(
    points: tuple[float, ...], prompt: tuple[float, ...], output: tuple[tuple[float, ...], ...]
) -> None:
    with pytest.raises(BadValue):
        QuantileTable(5, points, prompt, output, 1.0, 1.0)
