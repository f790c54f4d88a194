from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedkv.blocks import BlockPool
from pagedkv.contiguous import Allocator, Buddy, FirstFit, Fixed, Oracle, Policy, PowerOfTwo, Span
from pagedkv.errors import BadValue, NeverFits, OutOfHoles
from pagedkv.replay import ITERATIONS, Clock, Memory, Moment, Paged, Replay, Reserved, Stay, replay
from pagedkv.tables import BlockTable
from pagedkv.waste import Breakdown, of_spans, of_tables
from pagedkv.workloads import Request, teaching_stream

# Exact in binary, so that no arrival or horizon falls on another side when sums are taken in another order.
AFFINE = Clock(0.5, 1 / 1024, 1 / 64)


def requests(*lengths: tuple[int, int], arrivals: tuple[float, ...] = ()) -> list[Request]:
    times = arrivals or (0.0,) * len(lengths)
    return [Request(i, times[i], prompt, output) for i, (prompt, output) in enumerate(lengths)]


def paged(num_blocks: int, block_size: int = 16, spare: int = 0) -> Paged:
    return Paged(BlockPool(num_blocks, block_size), spare)


# The naive replay: one iteration at a time, one token at a time, everything counted afresh.


@dataclass
class Naive:
    """A memory and a queue without a single running sum. `take` and `give_back` are the only differences."""

    clock: Clock
    max_running: float
    spans: tuple[Allocator, Policy] | None = None
    pool: BlockPool | None = None
    spare: int = 0
    running: dict[int, Resident] = field(default_factory=dict)

    def fits_alone(self, request: Request) -> bool:
        if self.pool:
            return -(-request.total // self.pool.block_size) <= self.pool.num_blocks
        assert self.spans
        allocator, policy = self.spans
        try:
            return policy.reserve(request) <= allocator.capacity
        except NeverFits:
            return False

    def take(self, request: Request, held: int) -> Span | BlockTable | None:
        if self.pool:
            table = BlockTable(self.pool)
            tokens = min(held + 1, request.total)
            spare = self.spare if self.running else 0
            if not table.can_extend(tokens) or table.blocks_to_extend(tokens) + spare > self.pool.num_free:
                return None
            for _ in range(held):
                table.append()
            return table
        assert self.spans
        try:
            return self.spans[0].allocate(max(1, self.spans[1].reserve(request)))
        except OutOfHoles:
            return None

    def give_back(self, resident: Resident) -> Span | tuple[int, ...]:
        place = resident.place
        if isinstance(place, BlockTable):
            blocks = tuple(place.blocks)
            place.free()
            return blocks
        assert self.spans
        self.spans[0].free(place)
        return place

    def look(self, head: Request | None) -> Breakdown:
        if self.pool:
            tables = [(r.place, r.request.total) for r in self.running.values()]
            return of_tables(self.pool, tables)  # type: ignore[arg-type]
        assert self.spans
        allocator, policy = self.spans
        spans = [(r.place, r.tokens, r.request.total) for r in self.running.values()]
        return of_spans(allocator, spans, policy.reserve(head) if head else None)  # type: ignore[arg-type]

    def run(
        self, arriving: list[Request], until_queue: int, horizon: float
    ) -> tuple[list[Moment], list[Stay]]:
        arriving = sorted(arriving, key=lambda r: r.arrival)
        queue: list[tuple[Request, int, int]] = []
        moments: list[Moment] = []
        stays: list[Stay] = []
        step, now = 0, 0.0

        def end(resident: Resident) -> None:
            r = self.running.pop(resident.request.id)
            finished = r.tokens == r.request.total and step > r.admitted
            stays.append(Stay(r.request, r.queued, r.admitted, step, r.held, self.give_back(r), finished))

        while now < horizon:
            while arriving and arriving[0].arrival <= now:
                request = arriving.pop(0)
                if self.fits_alone(request):
                    queue.append((request, request.prompt, step))
            if not arriving and (len(queue) < until_queue or not (queue or self.running)):
                break
            preempted = False
            for resident in list(self.running.values()):
                while isinstance(resident.place, BlockTable) and resident.request.id in self.running:
                    if resident.place.can_extend(1):
                        resident.place.append()
                        break
                    preempted = True
                    youngest = list(self.running.values())[-1]
                    queue.insert(0, (youngest.request, youngest.tokens, step))
                    end(youngest)
            prefill = 0
            resident_tokens = sum(r.tokens for r in self.running.values())
            while queue and not preempted and len(self.running) < self.max_running:
                request, held, queued = queue[0]
                place = self.take(request, held)
                if place is None:
                    break
                queue.pop(0)
                if isinstance(place, BlockTable) and held < request.total:
                    place.append()
                self.running[request.id] = Resident(request, held, queued, step, held, place)
                prefill += held
                resident_tokens += held
            now += self.clock.seconds(resident_tokens, 0, 1, prefill)
            for resident in self.running.values():
                resident.tokens = min(resident.request.total, resident.tokens + 1)
            where = self.look(queue[0][0] if queue else None)
            moments.append(Moment(step, now, len(self.running), len(queue), where))
            step += 1
            for resident in sorted(self.running.values(), key=lambda r: r.request.id):
                if resident.tokens == resident.request.total:
                    end(resident)
        for resident in list(self.running.values()):
            end(resident)
        return moments, stays


@dataclass
class Resident:
    request: Request
    held: int
    queued: int
    admitted: int
    tokens: int
    place: Span | BlockTable


def averages(moments: list[Moment]) -> tuple[list[float], float, float]:
    parts, resident, waiting, before = [0.0] * 6, 0.0, 0.0, 0.0
    for moment in moments:
        took, before = moment.seconds - before, moment.seconds
        parts = [total + took * part for total, part in zip(parts, moment.breakdown.parts, strict=True)]
        resident += took * moment.resident
        waiting += took * moment.waiting
    return [part / before for part in parts], resident / before, waiting / before


def agree(result: Replay, moments: list[Moment], stays: list[Stay]) -> None:
    assert list(result.stays) == stays
    assert result.iterations == len(moments)
    assert result.finished == sum(stay.finished for stay in stays)
    if moments:
        parts, resident, waiting = averages(moments)
        assert result.seconds == moments[-1].seconds
        assert result.breakdown.parts == pytest.approx(parts, abs=1e-9)
        assert result.mean_resident == pytest.approx(resident)
        assert result.mean_waiting == pytest.approx(waiting)
        assert result.peak_resident == max(moment.resident for moment in moments)


WORKLOADS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 120)), min_size=1, max_size=14
).map(lambda rows: [Request(i, quarter / 4, p, o) for i, (p, o, quarter) in enumerate(rows)])
RULES = {
    "arriving": WORKLOADS,
    "clock": st.sampled_from([ITERATIONS, AFFINE]),
    "max_running": st.sampled_from([None, 1, 3]),
    "until_queue": st.sampled_from([0, 0, 2]),
    "horizon": st.sampled_from([float("inf"), float("inf"), 20.0, 0.0]),
}


def compare(
    make: Callable[[], Memory],
    naive: Naive,
    arriving: list[Request],
    max_running: int | None,
    until_queue: int,
    horizon: float,
) -> Replay:
    clock, expected = naive.clock, naive.run(arriving, until_queue, horizon)
    watched: list[Moment] = []
    for watch in (None, watched.append):  # many iterations at once; then one by one
        memory = make()
        result = replay(
            arriving, memory, clock=clock, max_running=max_running, until_queue=until_queue, horizon=horizon,
            watch=watch,
        )  # fmt: skip
        agree(result, *expected)
    assert [(m.step, m.seconds, m.resident, m.waiting, m.breakdown) for m in watched] == [
        (m.step, m.seconds, m.resident, m.waiting, m.breakdown) for m in expected[0]
    ]
    return result


@settings(max_examples=120, deadline=None)
@given(
    make=st.sampled_from([FirstFit, Buddy]),
    slots=st.integers(64, 300),
    policy=st.sampled_from([Fixed(60), PowerOfTwo(64), Oracle(64)]),
    **RULES,
)
def test_reservations_agree_with_one_iteration_at_a_time(
    make: Callable[[int], Allocator], slots: int, policy: Policy, arriving: list[Request], clock: Clock,
    max_running: int | None, until_queue: int, horizon: float,
) -> None:  # fmt: skip
    naive = Naive(clock, max_running or float("inf"), spans=(make(slots), policy))
    compare(lambda: Reserved(make(slots), policy), naive, arriving, max_running, until_queue, horizon)


@settings(max_examples=200, deadline=None)
@given(
    num_blocks=st.integers(1, 30),
    block_size=st.sampled_from([1, 3, 4, 16, 64]),
    spare=st.integers(0, 2),
    **RULES,
)
def test_blocks_agree_with_one_iteration_at_a_time(
    num_blocks: int, block_size: int, spare: int, arriving: list[Request], clock: Clock,
    max_running: int | None, until_queue: int, horizon: float,
) -> None:  # fmt: skip
    naive = Naive(clock, max_running or float("inf"), pool=BlockPool(num_blocks, block_size), spare=spare)
    result = compare(
        lambda: paged(num_blocks, block_size, spare), naive, arriving, max_running, until_queue, horizon
    )
    for stay in result.stays:
        grown = stay.request.total if stay.finished else stay.held + stay.left - stay.admitted
        assert isinstance(stay.placement, tuple)
        assert len(stay.placement) == -(-grown // block_size) == len(stay.block_steps(block_size))
    assert result.preemptions == sum(not s.finished and s.left < result.iterations for s in result.stays)


@settings(max_examples=60, deadline=None)
@given(WORKLOADS, st.integers(1, 12), st.sampled_from([1, 4, 16]))
def test_no_block_has_two_owners_and_nobody_is_left_behind(
    arriving: list[Request], num_blocks: int, block_size: int
) -> None:
    result = replay(arriving, paged(num_blocks, block_size))
    owner: dict[tuple[int, int], int] = {}
    for number, stay in enumerate(result.stays):
        assert isinstance(stay.placement, tuple)
        for block, taken in zip(stay.placement, stay.block_steps(block_size), strict=True):
            assert 0 <= block < num_blocks and stay.admitted <= taken < max(stay.left, stay.admitted + 1)
            for step in range(taken, stay.left):
                assert owner.setdefault((step, block), number) == number
    finished = sorted(stay.request.id for stay in result.stays if stay.finished)
    refused = {request.id for request, _ in result.rejected}
    assert finished == [request.id for request in arriving if request.id not in refused]
    assert result.unserved == ()
    # A preempted request comes back with what it had, and never loses or repeats a token.
    for request in arriving:
        held = request.prompt
        for stay in (s for s in result.stays if s.request.id == request.id):
            assert stay.held == held
            held += stay.left - stay.admitted if request.output else 0
        assert request.id in refused or held == request.total
    assert result.recomputed == sum(s.held for s in result.stays if s.held > s.request.prompt)


def test_when_each_block_was_taken() -> None:
    (stay,) = replay(requests((20, 30), arrivals=(3.0,)), paged(8)).stays
    assert (stay.queued, stay.admitted, stay.left) == (3, 3, 33)
    # 20 tokens take two blocks; the 33rd token comes 12 iterations later, the 49th 16 after that.
    assert stay.block_steps(16) == [3, 3, 15, 31]


# vllm#35541, #39734, PR #2163: such a request waited for ever, and everybody behind it.
def test_a_request_that_can_never_fit_is_rejected_at_once_and_blocks_nobody() -> None:
    result = replay(requests((65, 1), (64, 0), (20, 4)), paged(4))
    ((request, reason),) = result.rejected
    assert request.id == 0 and (reason.needed, reason.capacity, reason.unit) == (5, 4, "blocks")
    assert [stay.request.id for stay in result.stays] == [1, 2] and result.finished == 2
    result = replay(requests((500, 61), (500, 60)), Reserved(FirstFit(600), Fixed(560)))
    ((request, reason),) = result.rejected
    assert request.id == 0 and (reason.needed, reason.capacity, reason.unit) == (561, 560, "slots")
    result = replay(requests((100, 1)), Reserved(Buddy(200), Fixed(150)))  # its largest chunk has 128
    assert result.rejected[0][1].capacity == 128 and result.iterations == 0


# vllm#7283, #10432: an empty prompt, and nothing to generate.
@pytest.mark.parametrize(
    "memory", [paged(8), Reserved(Buddy(256), Oracle(64)), Reserved(FirstFit(256), Fixed(64))]
)
def test_empty_prompts_and_empty_outputs(memory: Memory) -> None:
    result = replay(requests((0, 0), (0, 5), (20, 0), (20, 5)), memory)
    assert [(stay.request.id, stay.left) for stay in result.stays] == [(0, 1), (2, 1), (1, 5), (3, 5)]
    assert result.finished == 4


def test_the_youngest_is_preempted_and_resumes_before_newcomers() -> None:
    # As in vLLM's test_preempt_during_execution: ten blocks, two requests of 80 tokens hold five each, and the next
    # token of the first costs the second its blocks.
    result = replay(requests((79, 10), (79, 10), (1, 1), arrivals=(0.0, 0.0, 2.0)), paged(10))
    assert [(s.request.id, s.admitted, s.left, s.held, s.finished) for s in result.stays] == [
        (1, 0, 1, 79, False),
        (0, 0, 10, 79, True),
        (2, 10, 11, 1, True),
        (1, 10, 19, 80, True),
    ]
    assert (result.preemptions, result.recomputed) == (1, 80)


def test_spare_blocks_are_kept_from_newcomers_but_not_from_the_first() -> None:
    greedy = replay(requests((48, 1), (16, 30)), paged(7, 16))
    careful = replay(requests((48, 1), (16, 30)), paged(7, 16, spare=2))
    assert [s.admitted for s in greedy.stays] == [0, 0]
    assert [s.admitted for s in careful.stays] == [0, 1]
    assert replay(requests((100, 12)), paged(7, 16, spare=7)).finished == 1


def test_a_saturated_run_stops_before_it_drains_and_a_horizon_stops_in_time() -> None:
    workload = requests(*[(10, 10)] * 100)
    memory = Reserved(FirstFit(200), Fixed(20))
    result = replay(workload, memory, until_queue=30)
    # Seven rounds of ten, and the iteration after which fewer than 30 wait.
    assert (result.finished, result.iterations, len(result.stays)) == (70, 71, 80)
    assert [request.id for request in result.unserved] == list(range(80, 100))
    assert result.mean_resident == 10 and result.breakdown.free == result.breakdown.external == 0
    assert result.breakdown.tokens == pytest.approx((70 * 155 + 110) / 71)
    result = replay(workload, memory, horizon=15.0)
    assert (result.iterations, result.finished, len(result.stays)) == (15, 10, 20)
    assert replay(workload, memory).finished == 100  # the memory was left empty each time


def test_idle_time_counts() -> None:
    result = replay(requests((1, 4), (1, 4), arrivals=(0.0, 10.0)), Reserved(FirstFit(10), Fixed(5)))
    assert result.iterations == 14 and result.mean_resident == pytest.approx(8 / 14)
    assert result.breakdown.free == pytest.approx((10 * 6 + 5 * 8) / 14)


def test_nothing_to_do() -> None:
    result = replay([], paged(4, 16))
    assert result.breakdown == Breakdown(free=64) and result.iterations == result.seconds == 0


def test_a_memory_in_use_is_refused() -> None:
    pool, allocator = BlockPool(4, 16), FirstFit(64)
    memories: list[Memory] = [Paged(pool), Reserved(allocator, Fixed(48))]
    pool.allocate(2)
    allocator.allocate(32)
    for memory in memories:
        with pytest.raises(BadValue, match="somebody else"):
            replay(requests((40, 8)), memory)
    with pytest.raises(BadValue, match="in use"):
        Paged(pool)
    with pytest.raises(BadValue, match="in use"):
        Reserved(allocator, Fixed(8))


@pytest.mark.parametrize(
    "arguments", [{"max_running": 0}, {"max_running": 2.5}, {"until_queue": -1}, {"until_queue": True}]
)
def test_bad_arguments_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(BadValue):
        replay(requests((1, 1)), paged(4), **arguments)  # type: ignore[arg-type]


def test_two_requests_with_one_id_are_refused() -> None:
    with pytest.raises(BadValue, match="same id"):
        replay([Request(7, 0.0, 1, 1), Request(7, 1.0, 1, 1)], paged(4))


@pytest.mark.parametrize(
    "costs", [(0.0,), (-1.0,), (float("inf"),), (float("nan"),), (1.0, -1.0), (1.0, 0.0, -1.0)]
)
def test_a_clock_that_could_stand_still_is_refused(costs: tuple[float, ...]) -> None:
    with pytest.raises(BadValue):
        Clock(*costs)


@given(st.integers(0, 99), st.integers(0, 9), st.integers(1, 50), st.integers(0, 99))
def test_a_clock_adds_up_what_it_says_of_single_iterations(
    tokens: int, growth: int, count: int, prefill: int
) -> None:
    clock = Clock(0.01, 1e-5, 2e-4)
    singles = [clock.seconds(tokens + i * growth, growth, 1, prefill) for i in range(count)]
    assert clock.seconds(tokens, growth, count, prefill) == pytest.approx(sum(singles))
    weighted = sum(took * (tokens + (i + 1) * growth) for i, took in enumerate(singles))
    assert clock.token_seconds(tokens, growth, count, prefill) == pytest.approx(weighted)


def test_the_same_stream_through_both_memories() -> None:
    stream = teaching_stream()
    reserved = replay(stream, Reserved(FirstFit(2240), Fixed(560)))
    blocks = replay(stream, paged(140))
    assert reserved.finished == blocks.finished == 24
    assert blocks.peak_resident >= 2 * reserved.peak_resident == 8
    assert blocks.mean_waiting < reserved.mean_waiting and blocks.iterations < reserved.iterations
    share = [result.breakdown.tokens / result.breakdown.held for result in (reserved, blocks)]
    assert share[0] < 0.5 and share[1] > 0.9
    assert replay(stream, paged(140)) == blocks
