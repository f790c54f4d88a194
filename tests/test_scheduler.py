from __future__ import annotations

import random
from collections import Counter

import pytest

from naive_scheduler import NaiveScheduler
from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.errors import BadValue, NeverFits, PagedKVError
from pagedkv.preemption import Mode, always_swap
from pagedkv.residency import TableResidency
from pagedkv.scheduler import Scheduler
from pagedkv.sequences import Event, Plan, Sequence, State
from pagedkv.simulator import Setting
from pagedkv.watermarks import POLICIES, Watermarks
from pagedkv.workloads import Request
from pressure import random_case


def scheduler_of(blocks: int, size: int = 16, host: int = 0, **options: object) -> Scheduler:
    residency = TableResidency(BlockPool(blocks, size), BlockPool(host, size) if host else None)
    return Scheduler(residency, **options)  # type: ignore[arg-type]


def scheduler_for(setting: Setting) -> Scheduler:
    return scheduler_of(
        setting.num_blocks,
        setting.block_size,
        setting.host_blocks,
        watermarks=setting.watermarks,
        choose=setting.choose,
        max_running=setting.max_running,
        max_prefill_tokens=setting.max_prefill_tokens,
    )


def add(scheduler: Scheduler, name: int, prompt: int, output: int) -> Sequence:
    return scheduler.add(Request(name, 0.0, prompt, output))


def step(scheduler: Scheduler) -> Plan:
    plan = scheduler.schedule()
    scheduler.retire()
    return plan


def run(scheduler: Scheduler, most: int = 10_000) -> None:
    for _ in range(most):
        if not scheduler.live:
            return
        step(scheduler)
    raise AssertionError("the run does not end")


def kinds(scheduler: Scheduler, *unwanted: str) -> list[Event]:
    return [event for event in scheduler.events if event[1] not in (*unwanted, "arrive")]


def tables(scheduler: Scheduler) -> TableResidency:
    assert isinstance(scheduler.residency, TableResidency)
    return scheduler.residency


# vLLM's test_preempt_during_execution: 10 usable blocks of 16, two requests of 80 tokens.
def test_the_next_decode_preempts_the_second_of_two_that_fill_the_pool() -> None:
    scheduler = scheduler_of(10)
    first, second = (add(scheduler, name, 80, 8) for name in range(2))
    step(scheduler)
    assert [len(tables(scheduler).tables[name].blocks) for name in range(2)] == [5, 5]
    plan = scheduler.schedule()
    assert plan.recomputing == [second] and plan.decodes == 1 and not plan.prefills
    assert (first.state, second.state) == (State.RUNNING, State.PREEMPTED)
    assert tables(scheduler).num_free == 4
    scheduler.retire()
    assert (scheduler.emitted(first), scheduler.emitted(second)) == (2, 1)
    run(scheduler)
    assert scheduler.emitted(first) == scheduler.emitted(second) == 8


# A request that can never fit: vllm#35541, #39734, PR #35570; vllm-rbln#957.
def test_a_request_that_can_never_fit_is_rejected_at_once_and_blocks_nobody() -> None:
    scheduler = scheduler_of(4)
    rejected = add(scheduler, 0, 65, 0)
    assert rejected.state is State.REJECTED and isinstance(rejected.reason, NeverFits)
    assert (rejected.reason.needed, rejected.reason.capacity) == (5, 4)
    assert "5 blocks" in str(rejected.reason) and "4 blocks" in str(rejected.reason)
    fits = [add(scheduler, 1, 64, 0), add(scheduler, 2, 64, 1)]
    too_long_later = add(scheduler, 3, 64, 2)
    assert too_long_later.state is State.REJECTED
    run(scheduler)
    assert [sequence.state for sequence in fits] == [State.FINISHED] * 2
    assert [event for event in scheduler.events if event[1] == "reject"] == [
        (1, "reject", 0),
        (1, "reject", 3),
    ]


# The last token's KV is never written: pegainfer PR #335, where 16 + 17 tokens were charged 3 blocks.
def test_the_last_token_needs_no_slot() -> None:
    scheduler = scheduler_of(2)
    sequence = add(scheduler, 0, 16, 17)
    assert sequence.longest == 32
    run(scheduler)
    assert scheduler.emitted(sequence) == 17 and scheduler.num_preemptions_total == 0
    assert add(scheduler, 1, 16, 18).state is State.REJECTED


# The watermark is for newcomers: vllm#255, PR #11, PR #28018, PR #44594.
def test_a_newcomer_keeps_the_mark_and_a_running_sequence_need_not() -> None:
    scheduler = scheduler_of(100, 1, watermarks=Watermarks(0.04, 0.04))
    add(scheduler, 0, 95, 6)
    step(scheduler)
    assert scheduler.residency.num_free == 5
    add(scheduler, 1, 2, 1)
    # Growth leaves 4; the newcomer would leave 2.
    for free in (4, 3, 2, 1, 0):
        assert not step(scheduler).prefills
        assert scheduler.residency.num_free == free or free == 0
    run(scheduler)
    assert scheduler.num_preemptions_total == 0
    assert kinds(scheduler) == [
        (1, "admit", 0), (3, "close", -1), (6, "finish", 0), (7, "open", -1), (7, "admit", 1), (7, "finish", 1),
    ]  # fmt: skip


def test_a_newcomer_may_take_the_pool_down_to_the_mark() -> None:
    scheduler = scheduler_of(100, 1, watermarks=Watermarks(0.04, 0.04))
    add(scheduler, 0, 50, 2)
    add(scheduler, 1, 46, 1)
    add(scheduler, 2, 1, 1)
    assert [name.request.id for name, _ in step(scheduler).prefills] == [0, 1]


def test_hysteresis_waits_for_the_high_mark() -> None:
    scheduler = scheduler_of(100, 1, watermarks=Watermarks(0.1, 0.4))
    add(scheduler, 0, 60, 4)
    add(scheduler, 1, 29, 40)
    step(scheduler)
    add(scheduler, 2, 1, 1)
    run(scheduler)
    # 11 blocks are left. Growth by two closes the gate; sequence 0 leaves with 63 blocks, and it opens.
    assert kinds(scheduler, "finish") == [
        (1, "admit", 0), (1, "admit", 1), (2, "close", -1), (5, "open", -1), (5, "admit", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("high", "opens", "finishes"), [(0.4, 21, 22), (0.1, 9, 10)])
def test_between_the_marks_a_closed_gate_stays_closed(high: float, opens: int, finishes: int) -> None:
    scheduler = scheduler_of(100, 1, watermarks=Watermarks(0.1, high))
    for name, (prompt, output) in enumerate([(60, 20), (20, 8), (11, 2)]):
        add(scheduler, name, prompt, output)
    run(scheduler)
    # 20 blocks are free, too few for sequence 2 and the mark. Growth closes the gate. Then sequence 1 leaves, and 33
    # are free, which is above low; there are 40 only after sequence 0 has left.
    assert sorted(kinds(scheduler)) == sorted([
        (1, "admit", 0), (1, "admit", 1), (7, "close", -1), (8, "finish", 1), (opens, "open", -1), (opens, "admit", 2),
        (finishes, "finish", 2), (20, "finish", 0),
    ])  # fmt: skip


def test_with_nothing_running_the_head_comes_in_whatever_the_marks_say() -> None:
    scheduler = scheduler_of(10, 4, watermarks=Watermarks(0.5, 0.9))
    add(scheduler, 0, 40, 1)
    add(scheduler, 1, 4, 1)
    assert [sequence.request.id for sequence, _ in step(scheduler).prefills] == [0]
    run(scheduler)


def test_shedding_preempts_the_youngest_below_low_as_long_as_more_than_one_runs() -> None:
    scheduler = scheduler_of(20, 1, watermarks=Watermarks(0.25, 0.5, shed=True))
    for name in range(3):
        add(scheduler, name, 5, 12)
    first = step(scheduler)
    assert len(first.prefills) == 3 and scheduler.residency.num_free == 5
    second = scheduler.schedule()
    assert [sequence.request.id for sequence in second.recomputing] == [2]  # 3 blocks of growth would leave 2
    assert second.decodes == 2 and not second.prefills
    scheduler.retire()
    run(scheduler)
    # Alone, a sequence goes below the mark: 0 grows to 16 of the 20 blocks.
    assert max(Counter(event[2] for event in scheduler.events if event[1] == "preempt").values()) <= 3
    assert not [event for event in scheduler.events if event[1:] == ("preempt", 0)]


# Were the preempted let in below low, the next iteration would shed them again, over and over.
def test_the_low_mark_holds_for_the_preempted_too() -> None:
    counts = {}
    for name, marks in POLICIES.items():
        chance = random.Random(7)
        scheduler = scheduler_of(200, 16, watermarks=marks)
        for number in range(60):
            add(scheduler, number, chance.randint(50, 150), chance.randint(200, 700))
        run(scheduler)
        counts[name] = scheduler.num_preemptions_total
    assert counts["one mark, shedding"] < 3 * counts["none"]
    assert counts["two marks"] < counts["none"]


# Recompute loses and repeats nothing: FastDeploy PR #3080; vllm#16832, PR #5349.
def test_preempted_after_10_tokens_of_32_a_prompt_of_16_prefills_26_and_gets_exactly_32() -> None:
    scheduler = scheduler_of(48, 1)
    add(scheduler, 0, 14, 30)  # 14 + 16 blocks, and 2 more per iteration: full after 10
    victim = add(scheduler, 1, 16, 32)
    tokens = Counter[int]()
    resumed = []
    while scheduler.live:
        plan = scheduler.schedule()
        tokens.update(list(scheduler.running))
        if plan.recomputing:
            assert plan.recomputing == [victim] and scheduler.emitted(victim) == 10
        resumed += [prefill for prefill in plan.prefills if prefill[0].preemptions]
        scheduler.retire()
    assert tokens == {0: 30, 1: 32}
    assert resumed == [(victim, 26)]
    assert (victim.preemptions, victim.recomputed_tokens, scheduler.prefill_tokens) == (1, 26, 14 + 16 + 26)


def test_a_sequence_evicted_before_its_last_token_comes_back_though_it_fills_the_pool() -> None:
    scheduler = scheduler_of(3, 4)
    add(scheduler, 0, 0, 2)  # takes its first block in iteration 2
    victim = add(scheduler, 1, 11, 2)  # fills 3 blocks with its last iteration, and needs no slot after that
    run(scheduler, most=10)
    assert (victim.preemptions, victim.recomputed_tokens, scheduler.emitted(victim)) == (1, 12, 2)


def test_a_victim_emits_nothing_in_the_iteration_that_evicts_it() -> None:
    seen = 0
    for seed in range(60):
        requests, setting = random_case(seed)
        scheduler = scheduler_for(setting)
        for request in requests:
            scheduler.add(request)
        while scheduler.live:
            before = {name: scheduler.emitted(s) for name, s in scheduler.live.items()}
            plan = scheduler.schedule()
            victims = [*plan.recomputing, *(sequence for sequence, _, _ in plan.swapped_out)]
            scheduler.retire()
            for sequence in victims:
                assert scheduler.emitted(sequence) == before[sequence.request.id]
                assert sequence.state in (State.PREEMPTED, State.SWAPPED)
            assert not victims or not (plan.prefills or plan.swapped_in)
            seen += len(victims)
    assert seen > 100


# Swap space is a pool of its own, and finite: vllm#787, #588, #546.
def test_a_full_host_pool_falls_back_to_recompute() -> None:
    scheduler = scheduler_of(4, 16, host=1, choose=always_swap)
    add(scheduler, 0, 16, 20)
    victim = add(scheduler, 1, 33, 10)  # 3 blocks, and 1 on the host
    plan = [step(scheduler) for _ in range(2)][1]
    assert plan.recomputing == [victim] and not plan.swapped_out
    assert (scheduler.residency.num_free, scheduler.residency.host_free) == (2, 1)
    run(scheduler)
    assert (scheduler.residency.num_free, scheduler.residency.host_free) == (4, 1)


def test_no_host_pool_at_all_is_a_full_one() -> None:
    scheduler = scheduler_of(10, choose=always_swap)
    for name in range(2):
        add(scheduler, name, 80, 8)
    run(scheduler)
    assert {event[1] for event in kinds(scheduler)} == {"admit", "preempt", "resume", "finish"}


# Newcomers were admitted while others sat swapped out: vllm#5578.
def test_swapped_sequences_come_back_before_newcomers() -> None:
    scheduler = scheduler_of(10, host=10, choose=always_swap)
    for name in range(2):
        add(scheduler, name, 80, 4)
    step(scheduler)
    newcomer = add(scheduler, 2, 1, 1)
    plan = step(scheduler)
    ((victim, blocks, tokens),) = plan.swapped_out
    assert (victim.request.id, blocks, tokens, victim.state) == (1, 5, 80, State.SWAPPED)
    assert (scheduler.residency.num_free, scheduler.residency.host_free) == (4, 5)
    step(scheduler)
    assert newcomer.state is State.WAITING  # it would fit
    run(scheduler)
    assert kinds(scheduler, "admit") == [
        (2, "swap-out", 1), (4, "finish", 0), (5, "swap-in", 1), (5, "finish", 2), (7, "finish", 1),
    ]  # fmt: skip
    assert scheduler.residency.host_free == 10 and scheduler.prefill_tokens == 161


def test_swap_and_recompute_schedule_alike_when_the_host_is_large() -> None:
    logs = []
    for host in (0, 1000):
        scheduler = scheduler_of(20, 4, host=host, choose=always_swap)
        for name in range(12):
            add(scheduler, name, 5 + name % 7, 30)
        run(scheduler)
        assert scheduler.num_preemptions_total > 5
        rename = {"swap-out": "preempt", "swap-in": "resume"}
        logs.append([(i, rename.get(kind, kind), name) for i, kind, name in scheduler.events])
    assert logs[0] == logs[1]


# Empty prompts and zero outputs: vllm#7283, #7632, PR #7746, #10432, #52693.
@pytest.mark.parametrize(
    ("prompt", "output", "iterations"), [(0, 0, 1), (20, 0, 1), (0, 1, 1), (0, 5, 5), (20, 5, 5)]
)
def test_empty_prompts_and_zero_outputs_finish_and_disturb_nobody(
    prompt: int, output: int, iterations: int
) -> None:
    scheduler = scheduler_of(4, 16)
    odd, other = add(scheduler, 0, prompt, output), add(scheduler, 1, 10, 20)
    run(scheduler)
    assert (odd.state, scheduler.emitted(odd)) == (State.FINISHED, output)
    assert (other.state, scheduler.emitted(other)) == (State.FINISHED, 20)
    assert (iterations, "finish", 0) in scheduler.events
    assert scheduler.residency.num_free == 4


def test_an_empty_prompt_starts_without_a_block() -> None:
    scheduler = scheduler_of(1, 2)
    sequence = add(scheduler, 0, 0, 3)
    held = []
    while scheduler.live:
        scheduler.schedule()
        held.append((scheduler.residency.num_tokens, 1 - scheduler.residency.num_free))
        scheduler.retire()
    assert held == [(0, 0), (1, 1), (2, 1)] and scheduler.emitted(sequence) == 3


@pytest.mark.parametrize("state", ["waiting", "running", "preempted", "swapped", "finished", "unknown"])
def test_a_request_can_be_aborted_in_any_state(state: str) -> None:
    scheduler = scheduler_of(
        10, host=10, choose=always_swap if state == "swapped" else lambda tokens: Mode.RECOMPUTE
    )
    sequences = [add(scheduler, name, 80, 3) for name in range(3)]
    name = {"waiting": 2, "running": 0, "preempted": 1, "swapped": 1, "finished": 0, "unknown": 9}[state]
    for _ in range(4 if state == "finished" else 2):
        step(scheduler)
    there = state not in ("finished", "unknown")
    if there:
        assert sequences[name].state == state
    before = scheduler.emitted(sequences[name]) if there else 0
    assert scheduler.abort(name) is there
    assert not scheduler.abort(name)
    if there:
        assert (sequences[name].state, scheduler.emitted(sequences[name])) == (State.ABORTED, before)
    run(scheduler)
    rest = [sequence for sequence in sequences if sequence.state is not State.ABORTED]
    assert len(rest) == 3 - there
    assert all(s.state is State.FINISHED and scheduler.emitted(s) == 3 for s in rest)
    assert (scheduler.residency.num_free, scheduler.residency.host_free) == (10, 10)


def test_an_abort_lets_the_next_one_in_and_frees_the_id() -> None:
    scheduler = scheduler_of(5)
    add(scheduler, 0, 80, 1)
    add(scheduler, 1, 80, 1)
    scheduler.schedule()
    assert scheduler.abort(0)  # under way: its token does not count
    assert scheduler.retire() == []
    assert [sequence.request.id for sequence, _ in step(scheduler).prefills] == [1]
    assert add(scheduler, 0, 1, 1).state is State.WAITING


def test_a_stop_token_ends_a_request_early() -> None:
    scheduler = scheduler_of(10)
    stopped, other = add(scheduler, 0, 4, 50), add(scheduler, 1, 4, 3)
    step(scheduler)
    with pytest.raises(BadValue):
        scheduler.complete(0)
    scheduler.schedule()
    scheduler.complete(0)
    scheduler.complete(0)
    with pytest.raises(BadValue):
        scheduler.complete(7)
    assert scheduler.retire() == [stopped]
    assert (stopped.state, scheduler.emitted(stopped)) == (State.FINISHED, 2)
    scheduler.schedule()
    scheduler.complete(1)  # which would leave now anyway
    assert scheduler.retire() == [other]
    assert not scheduler.live and scheduler.residency.num_free == 10
    assert scheduler.iteration == 3


def test_first_come_first_served_even_if_the_second_would_fit() -> None:
    scheduler = scheduler_of(10, 1)
    for name, prompt in enumerate((6, 8, 1)):
        add(scheduler, name, prompt, 2)
    run(scheduler)
    assert [event[2] for event in scheduler.events if event[1] == "admit"] == [0, 1, 2]


def test_at_most_so_many_run_at_once() -> None:
    scheduler = scheduler_of(100, max_running=3)
    for name in range(8):
        add(scheduler, name, 4, 5)
    while scheduler.live:
        plan = scheduler.schedule()
        assert len(scheduler.running) <= 3 and plan.decodes + len(plan.prefills) == len(scheduler.running)
        scheduler.retire()


def test_a_prefill_budget_spreads_prompts_and_lets_a_longer_one_in_alone() -> None:
    scheduler = scheduler_of(100, max_prefill_tokens=50)
    for name, prompt in enumerate((30, 20, 1, 120, 10)):
        add(scheduler, name, prompt, 9)
    plans = [step(scheduler) for _ in range(4)]
    assert [[tokens for _, tokens in plan.prefills] for plan in plans] == [[30, 20], [1], [120], [10]]


@pytest.mark.parametrize("option", ["max_running", "max_prefill_tokens"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_limits_are_whole_numbers_above_0(option: str, bad: object) -> None:
    with pytest.raises(BadValue, match=option):
        scheduler_of(4, **{option: bad})


def test_misuse_is_refused() -> None:
    scheduler = scheduler_of(4)
    add(scheduler, 0, 1, 5)
    with pytest.raises(BadValue, match="request 0"):
        add(scheduler, 0, 1, 1)
    scheduler.schedule()
    with pytest.raises(PagedKVError, match="retire"):
        scheduler.schedule()
    scheduler.retire()
    assert step(scheduler).decodes == 1


def check_everything(scheduler: Scheduler, sequences: dict[int, Sequence]) -> None:
    """What must hold in every iteration, between `schedule` and `retire`."""
    residency = tables(scheduler)
    size = residency.block_size
    held = [block for table in residency.tables.values() for block in table.blocks]
    assert len(held) == len(set(held)) and len(held) + residency.num_free == residency.num_blocks
    on_host = [block for table in residency.host_tables.values() for block in table.blocks]
    total = residency.host.num_blocks if residency.host else 0
    assert len(on_host) == len(set(on_host)) and len(on_host) + residency.host_free == total
    assert list(residency.tables) == list(scheduler.running)
    by_state: dict[State, set[int]] = {state: set() for state in State}
    for name, sequence in sequences.items():
        by_state[sequence.state].add(name)
    assert set(scheduler.running) == by_state[State.RUNNING]
    assert set(residency.host_tables) == by_state[State.SWAPPED]
    waiting = by_state[State.WAITING] | by_state[State.PREEMPTED] | by_state[State.SWAPPED]
    assert {sequence.request.id for sequence in scheduler.queue} == waiting
    assert len(scheduler.queue) == len(waiting)
    assert set(scheduler.live) == waiting | by_state[State.RUNNING]
    order = [sequence.preemptions == 0 for sequence in scheduler.queue]
    assert order == sorted(order)  # the preempted first
    for name, sequence in scheduler.running.items():
        table = residency.tables[name]
        # With the token of this iteration not counted yet, KV is prompt + emitted for everyone.
        assert table.length == sequence.request.prompt + scheduler.emitted(sequence) <= sequence.longest
        assert len(table.blocks) == blocks_needed(table.length, size)


def test_invariants_hold_in_every_iteration_and_every_run_ends() -> None:
    total = Counter[str]()
    for seed in range(250):
        requests, setting = random_case(1000 + seed)
        scheduler = scheduler_for(setting)
        chance = random.Random(seed)
        sequences: dict[int, Sequence] = {}
        waiting = list(requests)
        bound = sum(request.prompt + request.output + 2 for request in requests) * 3 + 100
        while waiting or scheduler.live:
            assert scheduler.iteration < bound
            while waiting and (chance.random() < 0.4 or not scheduler.live):
                request = waiting.pop(0)
                sequences[request.id] = scheduler.add(request)
            scheduler.schedule()
            check_everything(scheduler, sequences)
            if scheduler.live and chance.random() < 0.02:
                scheduler.abort(chance.choice(list(scheduler.live)))
            scheduler.retire()
        assert scheduler.residency.num_free == setting.num_blocks
        assert scheduler.residency.host_free == setting.host_blocks
        for sequence in sequences.values():
            total[sequence.state] += 1
            assert sequence.state in (State.FINISHED, State.REJECTED, State.ABORTED)
            assert (
                sequence.state is not State.FINISHED or scheduler.emitted(sequence) == sequence.request.output
            )
        total["preemptions"] += scheduler.num_preemptions_total
        total.update(event[1] for event in scheduler.events)
    assert (
        min(total[kind] for kind in ("preempt", "swap-out", "close", "finished", "rejected", "aborted")) > 50
    )


def test_every_event_is_that_of_a_scheduler_that_counts_one_by_one() -> None:
    events = Counter[str]()
    for seed in range(400):
        requests, setting = random_case(seed)
        marks, choose = setting.watermarks, setting.choose
        scheduler = scheduler_for(setting)
        naive = NaiveScheduler(
            setting.num_blocks,
            setting.block_size,
            marks.low,
            marks.high,
            marks.shed,
            setting.host_blocks,
            lambda held, choose=choose: choose(held) is Mode.SWAP,  # type: ignore[misc]
            setting.max_running,
            setting.max_prefill_tokens,
        )
        waiting = list(requests)
        while waiting or scheduler.live:
            while waiting and (waiting[0].arrival <= scheduler.iteration or not scheduler.live):
                request = waiting.pop(0)
                scheduler.add(request)
                naive.add(request.id, request.prompt, request.output)
            assert naive.busy == bool(scheduler.live)
            if scheduler.live:
                step(scheduler)
                naive.step()
        assert scheduler.events == naive.events, (seed, setting)
        events.update(event[1] for event in scheduler.events)
    assert min(events[kind] for kind in ("preempt", "resume", "swap-out", "swap-in", "reject", "open")) > 50


def test_quiet_iterations_are_those_in_which_nothing_but_growth_happens() -> None:
    """What `quiet` promises is compared with what scheduling those iterations does."""
    promised = 0
    for seed in range(150):
        requests, setting = random_case(seed)
        scheduler = scheduler_for(setting)
        for request in requests:
            scheduler.add(request)
        while scheduler.live:
            iterations, blocks = scheduler.quiet()
            start = scheduler.residency.num_free
            for number in range(1, iterations + 1):
                if start - scheduler.residency.num_free + scheduler.residency.wanted() > blocks:
                    break
                log = len(scheduler.events)
                plan = scheduler.schedule()
                assert not (plan.prefills or plan.swapped_in or plan.recomputing or plan.swapped_out)
                assert len(scheduler.events) == log
                assert bool(scheduler.retire()) == (number == iterations)
                promised += 1
            if scheduler.live:
                step(scheduler)
    assert promised > 1000
