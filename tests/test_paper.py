from __future__ import annotations

import pytest

from pagedkv.errors import BadValue
from pagedkv.paper import CLOCK, PUBLISHED, PUBLISHED_BATCHED, SYSTEMS, Row, figure_2
from pagedkv.replay import replay
from pagedkv.workloads import sharegpt_like

TOLERANCE = {"Orca (Max)": 2.0, "Orca (Pow2)": 4.5, "Orca (Oracle)": 2.0, "paged": 1.5}


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.system: row for row in figure_2([sharegpt_like(6000, seed) for seed in range(1, 5)])}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_cell_of_figure_2_comes_out(rows: dict[str, Row], system: str) -> None:
    row = rows[system]
    assert max(map(abs, row.deviations)) < TOLERANCE[system], row
    assert len(row.deviations) == (1 if system == "paged" else 4)
    assert sum(share or 0 for share in row.shares) == pytest.approx(100)
    assert row.lowest <= row.shares.token_states <= row.highest < row.lowest + 1


def test_batched_requests_come_out_in_the_published_order(rows: dict[str, Row]) -> None:
    assert rows["Orca (Max)"].batched == pytest.approx(7, abs=0.01)  # 7 x 2,048 slots, all the time
    for system, published in PUBLISHED_BATCHED.items():
        assert rows[system].batched == pytest.approx(published, rel=0.15)
    assert set(SYSTEMS) == set(PUBLISHED) == set(PUBLISHED_BATCHED)


def test_at_two_requests_a_second_the_paged_system_just_keeps_up() -> None:
    hour = sharegpt_like(2 * 3600 + 50, 1, rate=2.0)
    result = replay(hour, SYSTEMS["paged"](), clock=CLOCK, horizon=3600.0)
    assert 1.8 < result.finished / result.seconds < 2.0
    assert result.breakdown.percent().tokens == pytest.approx(PUBLISHED["paged"].token_states, abs=5)
    assert result.mean_resident == pytest.approx(PUBLISHED_BATCHED["paged"], rel=0.1)


def test_no_workload_is_refused() -> None:
    with pytest.raises(BadValue):
        figure_2([])
