from __future__ import annotations

import pytest

from pagedkv.blocks import BlockPool
from pagedkv.residency import TableResidency
from pagedkv.scheduler import Scheduler
from pagedkv.sequences import Sequence, State
from pagedkv.workloads import Request


@pytest.mark.parametrize(
    ("prompt", "output", "longest"), [(0, 0, 0), (7, 0, 7), (7, 1, 7), (0, 1, 0), (16, 17, 32)]
)
def test_the_token_emitted_last_is_never_written(prompt: int, output: int, longest: int) -> None:
    assert Sequence(Request(0, 0.0, prompt, output)).longest == longest


def test_states_read_as_words() -> None:
    assert State.PREEMPTED == "preempted" and f"{State.SWAPPED}" == "swapped"
    assert len(set(State)) == 7


def test_a_plan_names_everybody_who_emits_a_token() -> None:
    scheduler = Scheduler(TableResidency(BlockPool(8, 16)))
    for number in range(2):
        scheduler.add(Request(number, 0.0, 20, 3))
    first = scheduler.schedule()
    assert (first.iteration, first.decodes, [tokens for _, tokens in first.prefills]) == (1, 0, [20, 20])
    scheduler.retire()
    second = scheduler.schedule()
    assert (second.iteration, second.decodes, second.prefills, second.swapped_in) == (2, 2, [], [])
