"""The engine against two oracles: the simulator, for what happens when; each request generated alone, for its tokens.

Other neighbours in a batch, and a prefill in place of single tokens, change the order in which a matrix product sums,
hence the last bits of a score. Two tokens that close to a tie could then change places with no error anywhere. So each
choice of the oracle is made a second time from scores moved at random by up to `SHIFT`, dozens of times what the
order of sums does to them here; a request whose tokens could turn out otherwise is `fragile`, and of these there are
next to none.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pagedkv.cache import PagedKVCache
from pagedkv.cache_interface import Extension
from pagedkv.cache_residency import CacheResidency
from pagedkv.clock import ITERATIONS
from pagedkv.engine import Completion, Engine, Job, Service, random_jobs
from pagedkv.errors import BadValue, NeverFits, PagedKVError
from pagedkv.generate import Beam, Choice, Chooser, Sample, Strategy, generate
from pagedkv.model import Decoder, encode, load_small
from pagedkv.preemption import Mode, always_recompute, always_swap
from pagedkv.scheduler import Scheduler
from pagedkv.sequences import Plan, State
from pagedkv.simulator import Setting, step_by_step
from pagedkv.watermarks import OFF, Watermarks
from pagedkv.workloads import Request
from small_models import decoder, geometry, prompt

SHIFT = 1e-4
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@pytest.fixture(scope="module")
def model() -> Decoder:
    return decoder(geometry(layers=1))


@dataclass
class Watched:
    """A strategy that makes each choice again from slightly other scores, and remembers if that ever mattered."""

    inner: Strategy
    fragile: bool = field(default=False)

    def chooser(self, prompt: Sequence[int]) -> Chooser:
        choose, again = self.inner.chooser(prompt), self.inner.chooser(prompt)
        noise = torch.Generator().manual_seed(0)

        def both(scores: Tensor, totals: Sequence[float]) -> list[Choice]:
            chosen = choose(scores, totals)
            moved = (2 * torch.rand(scores.shape, generator=noise, dtype=scores.dtype) - 1) * SHIFT
            self.fragile |= [c.token for c in again(scores + moved, totals)] != [c.token for c in chosen]
            return chosen

        return both


def alone(model: Decoder, job: Job) -> tuple[list[int], float, bool]:
    """Tokens and log-probability of a job without any neighbour, scheduler or preemption; and whether fragile."""
    watched = Watched(job.strategy)
    cache = PagedKVCache(model.geometry, 1, len(job.prompt) + job.max_new + 1, device=model.device)
    result = generate(model, cache, [job.prompt], max_new=job.max_new, strategy=watched)
    ((continuation,),) = result.continuations
    return list(continuation.tokens), continuation.log_probability, watched.fragile


def assert_tokens_are_those_of_each_alone(
    model: Decoder, completions: Sequence[Completion], fragile: Counter[bool] | None = None
) -> None:
    for completion in completions:
        if completion.state is State.REJECTED:
            assert completion.tokens == []
            continue
        tokens, log_probability, close = alone(model, completion.job)
        if fragile is not None:
            fragile[close] += 1
        if not close or fragile is None:
            assert completion.tokens == tokens, completion.job
            assert completion.log_probability == pytest.approx(log_probability, abs=1e-3)


def poison(engine: Engine) -> None:
    """Write NaN over every free block of both pools."""
    engine.cache.storage[:, :, list(engine.cache.pool.free_list())] = torch.nan
    if engine.host:
        engine.host.storage[list(engine.host.pool.free_list())] = torch.nan


class Watchful(Engine):
    """An engine whose free memory is NaN at all times, and which writes down who held which blocks."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.held: list[dict[int, list[int]]] = []
        schedule, retire = self.scheduler.schedule, self.scheduler.retire

        def watched_schedule() -> Plan:
            plan = schedule()
            tables = {name: self.cache.table(sequence) for name, sequence in self.residency.sequences.items()}
            self.held.append({name: list(table.blocks) for name, table in tables.items()})
            assert engine_is_sound(self)
            poison(self)
            return plan

        def watched_retire() -> Any:
            finished = retire()
            poison(self)
            return finished

        self.scheduler.schedule = watched_schedule  # type: ignore[method-assign]
        self.scheduler.retire = watched_retire  # type: ignore[method-assign]


def engine_is_sound(engine: Engine) -> bool:
    """Both pools conserve their blocks, and each request is where its state says."""
    inside = [engine.cache.table(sequence) for sequence in engine.cache.sequences()]
    blocks = [block for table in inside for block in table.blocks]
    assert sorted([*blocks, *engine.cache.pool.free_list()]) == list(range(engine.cache.pool.num_blocks))
    assert list(engine.residency.sequences) == list(engine.scheduler.running)
    assert len(inside) == len(engine.scheduler.running)
    if engine.host:
        outside = [engine.host.table(swapped) for swapped in engine.host.sequences()]
        blocks = [block for table in outside for block in table.blocks]
        assert sorted([*blocks, *engine.host.pool.free_list()]) == list(range(engine.host.pool.num_blocks))
    swapped = {name for name, s in engine.scheduler.live.items() if s.state is State.SWAPPED}
    assert set(engine.residency.swapped) == swapped
    return True


def assert_everything_is_given_back(engine: Engine) -> None:
    assert engine.cache.pool.num_free == engine.cache.pool.num_blocks and not engine.cache.sequences()
    assert engine.host is None or engine.host.pool.num_free == engine.host.pool.num_blocks
    assert not engine.scheduler.live and not engine.residency.sequences and not engine.residency.swapped
    assert not engine._live


def random_case(seed: int) -> tuple[list[Request], Setting, Strategy | None]:
    """A small workload that presses on a small pool; a few requests are too long for it."""
    chance = random.Random(seed)
    size = chance.choice([1, 2, 3, 4, 8])
    slots = chance.randint(16, 60)
    blocks = -(-slots // size)
    now, requests = 0.0, []
    for number in range(chance.randint(5, 12)):
        now += chance.choice([0.0, 0.0, 0.0, 1.0, 2.5, 30.0])
        text = chance.choice([1, chance.randint(1, slots // 5), chance.randint(1, slots // 3)])
        output = chance.choice([chance.randint(0, 2), *(chance.randint(1, slots * 2 // 3) for _ in range(3))])
        requests.append(Request(number, now, text, output))
    low = chance.choice([0.0, 0.0, 0.1, 0.25])
    setting = Setting(
        num_blocks=blocks,
        clock=ITERATIONS,
        block_size=size,
        watermarks=Watermarks(low, low + chance.choice([0.0, 0.15]), shed=chance.random() < 0.5),
        choose=(always_recompute, always_swap, every_other)[seed % 3],
        host_blocks=chance.choice([0, 3, blocks, blocks]),
        max_running=chance.choice([None, None, 3]),
        max_prefill_tokens=chance.choice([None, None, 20]),
        concurrency=chance.choice([None, None, None, 4]),
    )
    return requests, setting, chance.choice([None, Sample(1, 1.0, seed)])


def every_other(tokens: int) -> Mode:
    """Swaps victims of odd length."""
    return Mode.SWAP if tokens % 2 else Mode.RECOMPUTE


@pytest.mark.parametrize("part", range(6))
def test_events_blocks_and_tokens_on_random_workloads(
    model: Decoder, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """90 workloads: marks and shedding, both modes and a full host, limits, open and closed loops."""
    kinds, fragile, fed = Counter[str](), Counter[bool](), Counter[int]()
    newest = CacheResidency.newest

    def counted(self: CacheResidency, counts: Mapping[int, int]) -> Extension:
        fed[seed] += sum(counts.values())
        return newest(self, counts)

    monkeypatch.setattr(CacheResidency, "newest", counted)
    for seed in range(part * 15, part * 15 + 15):
        requests, setting, strategy = random_case(seed)
        engine = Watchful(model, setting)
        service = engine.serve(random_jobs(requests, 64, seed, strategy))
        held: list[dict[int, list[int]]] = []

        def note(scheduler: Scheduler, plan: Plan, now: float, held: Any = held) -> None:
            tables = scheduler.residency.tables.items()  # type: ignore[attr-defined]
            held.append({name: list(table.blocks) for name, table in tables})

        report = step_by_step(requests, setting, observe=note)
        assert list(service.events) == report.events, seed
        assert engine.held == held, seed
        assert service.num_preemptions_total == report.num_preemptions_total
        assert service.recomputed_tokens == sum(report.recomputed_tokens)
        assert service.swapped_blocks == report.swapped_blocks
        singles = sum(step.plan.decodes + len(step.plan.swapped_in) for step in service.steps)
        assert fed[seed] == report.prefill_tokens + singles, "nothing is computed twice but what was given up"
        if engine.host:
            assert engine.host.bytes_moved == report.swapped_blocks * engine.cache.bytes_per_block
        assert_tokens_are_those_of_each_alone(model, service.completions, fragile)
        assert_everything_is_given_back(engine)
        kinds.update(kind for _, kind, _ in service.events)
    assert kinds["preempt"] > 5 and kinds["resume"] > 5 and kinds["finish"] > 50
    assert kinds["swap-out"] > 3 and kinds["swap-in"] > 3 and kinds["close"] > 5
    assert fragile[False] > 50 and fragile[True] < 3


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("seed", range(8))
def test_the_same_on_a_gpu(device: str, seed: int) -> None:
    model = decoder(geometry(layers=1)).to(device)
    requests, setting, _ = random_case(seed)
    engine = Watchful(model, setting)
    service = engine.serve(random_jobs(requests, 64, seed))
    assert list(service.events) == step_by_step(requests, setting).events
    assert_tokens_are_those_of_each_alone(model, service.completions, Counter())
    assert_everything_is_given_back(engine)


def storm(choose: Callable[[int], Mode], host_blocks: int = 0, watermarks: Watermarks = OFF) -> Setting:
    return Setting(20, ITERATIONS, 8, watermarks, choose, host_blocks)


@pytest.mark.parametrize(
    ("choose", "host"), [(always_recompute, 0), (always_swap, 20)], ids=["recompute", "swap"]
)
def test_a_storm_on_the_trained_model_changes_no_token(choose: Callable[[int], Mode], host: int) -> None:
    small = load_small()
    texts = ["The with statement", "A list is ", "def ", "An iterator ", "If the key is ", "Return the "]
    jobs = [Job(number, encode(text), 40, float(number)) for number, text in enumerate(texts)]
    engine = Watchful(small, storm(choose, host))
    service = engine.serve(jobs)
    assert list(service.events) == step_by_step([job.request for job in jobs], engine.setting).events
    assert service.num_preemptions_total >= 3
    fragile = Counter[bool]()
    assert_tokens_are_those_of_each_alone(small, service.completions, fragile)
    assert fragile[False] >= 5
    assert_everything_is_given_back(engine)


# vLLM's test_preempt_during_execution: 10 usable blocks of 16, two requests of 80 tokens.
def test_the_next_decode_preempts_the_second_of_two_that_fill_the_pool(model: Decoder) -> None:
    engine = Watchful(model, Setting(10, ITERATIONS))
    service = engine.serve(random_jobs([Request(n, 0.0, 80, 3) for n in range(2)], 64))
    assert [event for event in service.events if event[1] != "arrive"] == [
        (1, "admit", 0), (1, "admit", 1), (2, "preempt", 1), (3, "finish", 0), (4, "resume", 1), (5, "finish", 1),
    ]  # fmt: skip
    assert [dict(step.tokens).keys() for step in service.steps] == [{0, 1}, {0}, {0}, {1}, {1}]
    assert [step.finished for step in service.steps] == [(), (), (0,), (), (1,)]
    assert [step.resident_tokens for step in service.steps] == [160, 81, 82, 81, 82]
    assert [step.free_blocks for step in service.steps] == [0, 4, 4, 4, 4]
    assert_tokens_are_those_of_each_alone(model, service.completions)


# Only the prompt was prefilled again, or generated tokens counted as new: FastDeploy PR #3080, vllm#16832, PR #5349.
def test_preempted_after_10_tokens_of_32_it_prefills_26_and_gets_exactly_32(model: Decoder) -> None:
    engine = Watchful(model, Setting(47, ITERATIONS, 1))
    jobs = [Job(0, prompt(13), 20), Job(1, prompt(16, 1), 32)]
    service = engine.serve(jobs)
    victim = service.completions[1]
    ((iteration, _, _),) = [event for event in service.events if event[1] == "preempt"]
    assert sum(1 in step.tokens for step in service.steps[: iteration - 1]) == 10
    (again,) = [tokens for step in service.steps[iteration:] for _, tokens in step.plan.prefills]
    assert again == victim.sequence.recomputed_tokens == service.recomputed_tokens == 26
    assert len(victim.tokens) == 32 and victim.sequence.preemptions == 1
    assert sum(1 in step.tokens for step in service.steps) == 32
    assert_tokens_are_those_of_each_alone(model, service.completions)


# Swap space is a pool of its own, and finite: vllm#787, #588, #546.
def test_a_full_host_pool_falls_back_to_recompute(model: Decoder) -> None:
    engine = Watchful(model, Setting(4, ITERATIONS, choose=always_swap, host_blocks=1))
    jobs = [Job(0, prompt(16), 20), Job(1, prompt(33, 1), 10)]
    for job in jobs:
        engine.add(job)
    engine.step()
    step = engine.step()
    assert [s.request.id for s in step.plan.recomputing] == [1] and not step.plan.swapped_out
    assert (engine.residency.num_free, engine.residency.host_free) == (2, 1)
    completions = [completion for completion, _ in engine._live.values()]
    while engine.scheduler.live:
        engine.step()
    assert_tokens_are_those_of_each_alone(model, completions)
    assert_everything_is_given_back(engine)


# Empty prompts and zero outputs: vllm#7283, #7632, PR #7746, #10432, #52693.
def test_an_empty_prompt_is_its_senders_error_and_nobody_elses(model: Decoder) -> None:
    engine = Watchful(model, Setting(4, ITERATIONS))
    other = engine.add(Job(1, prompt(5), 6))
    engine.step()
    with pytest.raises(BadValue, match="request 0 has an empty prompt"):
        engine.add(Job(0, [], 5))
    while engine.scheduler.live:
        engine.step()
    assert other.state is State.FINISHED
    assert_tokens_are_those_of_each_alone(model, [other])


def test_zero_outputs_finish_after_their_prefill(model: Decoder) -> None:
    engine = Watchful(model, Setting(4, ITERATIONS))
    service = engine.serve([Job(0, prompt(20), 0), Job(1, prompt(10), 20)])
    nothing, other = service.completions
    assert (nothing.state, nothing.tokens, nothing.log_probability) == (State.FINISHED, [], 0.0)
    assert service.steps[0].finished == (0,) and service.steps[0].resident_tokens == 30
    assert all(0 not in step.tokens for step in service.steps)
    assert_tokens_are_those_of_each_alone(model, [other])


# A request that can never fit: vllm#35541, #39734, PR #35570; vllm-rbln#957.
def test_a_request_that_can_never_fit_is_rejected_at_once_and_blocks_nobody(model: Decoder) -> None:
    engine = Watchful(model, Setting(4, ITERATIONS))
    service = engine.serve([Job(0, prompt(60), 6), Job(1, prompt(60), 5)])
    rejected, served = service.completions
    assert rejected.state is State.REJECTED and isinstance(rejected.sequence.reason, NeverFits)
    assert served.state is State.FINISHED and len(served.tokens) == 5


@pytest.mark.parametrize("state", list(State))
def test_an_abort_in_any_state_leaves_the_others_tokens_alone(model: Decoder, state: State) -> None:
    choose = always_swap if state is State.SWAPPED else always_recompute
    engine = Watchful(model, Setting(10, ITERATIONS, choose=choose, host_blocks=10))
    jobs = random_jobs([Request(name, 0.0, 80, 5) for name in range(3)], 64)
    completions = [engine.add(job) for job in jobs]
    rejected = engine.add(Job(3, prompt(200), 1))
    for _ in range(5 if state in (State.FINISHED, State.ABORTED) else 2):
        engine.step()
    number = {State.WAITING: 2, State.PREEMPTED: 1, State.SWAPPED: 1, State.REJECTED: 3}.get(state, 0)
    victim = [*completions, rejected][number]
    if state is State.ABORTED:
        number, victim = 1, completions[1]
        assert engine.abort(1)
    assert victim.state is state
    tokens = list(victim.tokens)
    gone = state in (State.FINISHED, State.REJECTED, State.ABORTED)
    assert engine.abort(number) is not gone
    assert not engine.abort(number) and not engine.abort(99)
    assert victim.state is (state if gone else State.ABORTED)
    while engine.scheduler.live:
        engine.step()
    assert victim.tokens == tokens == alone(model, victim.job)[0][: len(tokens)] or state is State.REJECTED
    rest = [completion for completion in completions if completion is not victim]
    assert all(c.state is State.FINISHED and len(c.tokens) == 5 for c in rest)
    assert_tokens_are_those_of_each_alone(model, rest)
    assert_everything_is_given_back(engine)
    engine.add(Job(number, prompt(3), 1))  # the id is free again


@pytest.mark.parametrize("choose", [always_recompute, always_swap])
def test_a_stop_token_ends_a_request_early_and_is_its_last(
    model: Decoder, choose: Callable[[int], Mode]
) -> None:
    setting = Setting(10, ITERATIONS, 8, choose=choose, host_blocks=8)
    jobs = random_jobs([Request(number, 0.0, 20, 30) for number in range(3)], 64, seed=5)
    expected = [alone(model, job)[0] for job in jobs]
    stops = [tokens[16] for tokens in expected]
    engine = Watchful(model, setting)
    service = engine.serve([replace(job, stop={stop}) for job, stop in zip(jobs, stops, strict=True)])
    assert service.num_preemptions_total
    lengths = []
    for completion, tokens, stop in zip(service.completions, expected, stops, strict=True):
        lengths.append(tokens.index(stop) + 1)
        assert completion.tokens == tokens[: lengths[-1]] and completion.state is State.FINISHED
    assert max(lengths) > 10
    # Nobody knows beforehand when a stop token comes, so all goes as with outputs that were to be of that length.
    requests = [replace(job.request, output=length) for job, length in zip(jobs, lengths, strict=True)]
    assert list(service.events) == step_by_step(requests, setting).events
    assert_everything_is_given_back(engine)


def test_a_model_that_fails_loses_and_repeats_nothing(
    model: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, setting, _ = random_case(3)
    jobs = random_jobs(requests, 64, 3, Sample(1, 1.0, 3))
    expected = Watchful(model, setting).serve(jobs)
    engine = Watchful(model, setting)
    completions = [engine.add(job) for job in jobs]
    step, failures = model.step, 0

    def unreliable(*arguments: Any) -> Tensor:
        nonlocal failures
        failures += 1
        if failures % 3:
            raise RuntimeError("out of memory")
        return step(*arguments)

    monkeypatch.setattr(model, "step", unreliable)
    while engine.scheduler.live:
        before = engine.scheduler.events.copy()
        for attempt in range(2):
            with pytest.raises(RuntimeError, match="out of memory"):
                engine.step()
            if attempt:
                assert engine.scheduler.events == before, "a second try schedules nothing"
            before = engine.scheduler.events.copy()
        engine.step()
    assert failures > 30 and sum(completion.sequence.preemptions for completion in completions) > 1
    assert_everything_is_given_back(engine)
    monkeypatch.undo()
    assert expected.completions[0].tokens == completions[0].tokens
    assert_tokens_are_those_of_each_alone(model, completions)


def test_an_abort_after_a_failure_is_fine(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Watchful(model, Setting(10, ITERATIONS))
    first, second = (engine.add(Job(number, prompt(5, number), 4)) for number in range(2))

    def fail(*arguments: Any) -> Tensor:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(model, "step", fail)
        with pytest.raises(RuntimeError):
            engine.step()
    assert engine.abort(0) and first.tokens == []
    assert dict(engine.step().tokens).keys() == {1}
    assert engine.abort(1)
    step = engine.step()  # nobody is there
    assert (step.tokens, step.finished, second.state) == ({}, (), State.ABORTED)
    assert_everything_is_given_back(engine)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_cache_of_another_precision_has_the_same_events(model: Decoder, dtype: torch.dtype) -> None:
    requests, setting, _ = random_case(1)
    setting = replace(setting, choose=always_swap, host_blocks=setting.num_blocks)
    engine = Watchful(model, setting, dtype)
    service = engine.serve(random_jobs(requests, 64))
    assert engine.cache.dtype == dtype and engine.host and engine.host.storage.dtype == dtype
    assert list(service.events) == step_by_step(requests, setting).events
    assert [len(c.tokens) for c in service.completions] == [
        0 if c.state is State.REJECTED else c.job.max_new for c in service.completions
    ]
    assert all(0 <= token < 64 for c in service.completions for token in c.tokens)


def test_an_engine_serves_again_and_its_events_go_on(model: Decoder) -> None:
    engine = Watchful(model, storm(always_recompute))
    jobs = random_jobs([Request(number, 0.0, 30, 30) for number in range(5)], 64)
    first, second = engine.serve(jobs), engine.serve(jobs)
    assert [c.tokens for c in first.completions] == [c.tokens for c in second.completions]
    assert len(first.events) == len(second.events) and first.num_preemptions_total > 0
    shift = len(first.steps)
    assert [(i - shift, kind, name) for i, kind, name in second.events] == list(first.events)
    assert tuple(engine.scheduler.events) == first.events + second.events
    assert first.seconds == sum(step.seconds for step in first.steps) > 0


def test_the_same_seed_gives_the_same_prompts() -> None:
    requests = [Request(number, number / 2, 6, 3) for number in range(4)]
    jobs = random_jobs(requests, 64, seed=1)
    assert jobs == random_jobs(requests, 64, seed=1) != random_jobs(requests, 64, seed=2)
    assert [job.request for job in jobs] == requests
    assert random_jobs(requests[2:], 64, seed=1) == jobs[2:]
    assert len({tuple(job.prompt) for job in jobs}) == 4
    assert {token for job in random_jobs([Request(0, 0.0, 500, 1)], 5) for token in job.prompt} == set(
        range(5)
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt": []}, {"prompt": [64]}, {"prompt": [-1]}, {"prompt": [1.5]}, {"prompt": "a"}, {"max_new": -1},
        {"max_new": 1.5}, {"id": -1}, {"arrival": float("nan")}, {"strategy": Beam(2)}, {"strategy": Sample(3)},
        {"strategy": Beam(65)},
    ],
)  # fmt: skip
def test_a_job_that_is_none_is_refused_before_anything_happens(model: Decoder, bad: dict[str, Any]) -> None:
    engine = Watchful(model, Setting(10, ITERATIONS))
    job = replace(Job(0, prompt(5), 3), **bad)
    with pytest.raises(BadValue):
        engine.add(job)
    with pytest.raises(BadValue):
        engine.serve([Job(7, prompt(5), 3), job])
    assert not engine.scheduler.events and not engine.scheduler.live and not engine._live
    assert engine.cache.pool.num_free == 10


def test_workloads_that_are_none_are_refused_before_anything_happens(model: Decoder) -> None:
    engine = Watchful(model, Setting(10, ITERATIONS))
    with pytest.raises(BadValue, match="share an id"):
        engine.serve([Job(0, [1], 3), Job(0, [2], 3)])
    with pytest.raises(BadValue, match="order of arrival"):
        engine.serve([Job(0, [1], 3, 2.0), Job(1, [2], 3, 1.0)])
    assert not engine.scheduler.events
    engine.add(Job(0, [1], 3))
    with pytest.raises(BadValue, match="request 0 is already here"):
        engine.add(Job(0, [1], 3))
    with pytest.raises(BadValue, match="1 other jobs"):
        engine.serve([Job(1, [1], 3)])
    assert len(engine.scheduler.live) == 1
    assert Engine(model, Setting(10, ITERATIONS)).serve([]).steps == ()


def test_a_scheduler_out_of_step_is_noticed(model: Decoder) -> None:
    engine = Watchful(model, Setting(10, ITERATIONS))
    engine.add(Job(0, [1], 3))
    engine.scheduler.schedule()
    with pytest.raises(PagedKVError, match="retire"):
        engine.step()


def test_a_small_engine_reports_what_the_service_adds_up_to(model: Decoder) -> None:
    service: Service = Engine(model, storm(always_swap, 20)).serve(
        random_jobs([Request(number, 0.0, 30, 30) for number in range(5)], 64)
    )
    assert (
        service.swapped_blocks
        == 2 * sum(moved.blocks for step in service.steps for moved in step.plan.swapped_out)
        > 0
    )
    assert service.recomputed_tokens == 0 < service.num_preemptions_total
    assert sum(len(step.tokens) for step in service.steps) == 150
