"""The engine: the scheduler of the simulator drives a real model on a real cache. Continuous batching.

One iteration asks the scheduler who runs, feeds every one of them its new tokens in one batch (a whole prompt after
admission, everything so far after a recompute, one token otherwise), and picks the next token of each. Who is
preempted, and when, is the scheduler's decision alone: so an engine has the events of a simulator on the same workload,
and whatever happens to a request on its way, its tokens are those it would have got alone.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter

import torch
from torch import Tensor

from pagedkv.cache import PagedKVCache
from pagedkv.cache_residency import CacheResidency
from pagedkv.clock import ITERATIONS, Timeline
from pagedkv.errors import BadValue, require_count
from pagedkv.generate import Choice, Chooser, Greedy, Strategy
from pagedkv.model import Decoder
from pagedkv.scheduler import Scheduler
from pagedkv.sequences import Event, Plan, State
from pagedkv.sequences import Sequence as Scheduled
from pagedkv.simulator import Setting
from pagedkv.swap import HostPool
from pagedkv.workloads import Request


@dataclass(frozen=True, slots=True)
class Job:
    """A request with the tokens of its prompt.

    Attributes:
        id: its number, among those that are in the engine at one time.
        prompt: token ids, at least one.
        max_new: tokens to generate, unless a stop token comes first; 0 only prefills.
        arrival: when it comes, in iterations; `Engine.serve` looks at it.
        strategy: how tokens are chosen, with one branch: `Greedy()` or `Sample(1, ...)`. Requests of equal prompt and
            seed draw equal samples; give each its own seed.
        stop: token ids that end it. The one that came is the last of its tokens.
    """

    id: int
    prompt: Sequence[int]
    max_new: int
    arrival: float = 0.0
    strategy: Strategy = field(default_factory=Greedy)
    stop: Collection[int] = ()

    @property
    def request(self) -> Request:
        """What a scheduler or a simulator needs to know. Raises BadValue for counts that are none."""
        return Request(self.id, self.arrival, len(self.prompt), self.max_new)


def random_jobs(
    requests: Iterable[Request], vocabulary: int, seed: int = 0, strategy: Strategy | None = None
) -> tuple[Job, ...]:
    """A job for each request of a workload: a prompt of its length, random tokens out of `vocabulary`."""
    jobs = []
    for request in requests:
        chance = random.Random(f"{seed} {request.id}")
        prompt = [chance.randrange(vocabulary) for _ in range(request.prompt)]
        jobs.append(Job(request.id, prompt, request.output, request.arrival, strategy or Greedy()))
    return tuple(jobs)


@dataclass(slots=True, eq=False)
class Completion:
    """What has become of a job so far. The engine alone changes it.

    Attributes:
        job: as it was given.
        sequence: how it stands with the scheduler: state, preemptions, recomputed tokens, reason of a rejection.
        tokens: generated so far, without the prompt.
        log_probability: of all of them under the model, in nats, at temperature 1.
    """

    job: Job
    sequence: Scheduled
    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0

    @property
    def state(self) -> State:
        """Where it is now."""
        return self.sequence.state


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one iteration did.

    Attributes:
        plan: as the scheduler made it.
        tokens: the token that each request emitted, by id.
        finished: ids of those that left with their last token.
        resident_tokens: tokens of KV in the device pool, before they left.
        free_blocks: of the device pool, before they left.
        seconds: wall-clock time of all of it, swapping included.
    """

    plan: Plan
    tokens: Mapping[int, int]
    finished: tuple[int, ...]
    resident_tokens: int
    free_blocks: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """What came of serving a workload: the completions in the order of the jobs, the scheduler's log, and the steps."""

    completions: tuple[Completion, ...]
    events: tuple[Event, ...]
    steps: tuple[Step, ...]

    @property
    def num_preemptions_total(self) -> int:
        """Evictions, of both modes."""
        return sum(completion.sequence.preemptions for completion in self.completions)

    @property
    def recomputed_tokens(self) -> int:
        """Tokens prefilled again because of that."""
        return sum(completion.sequence.recomputed_tokens for completion in self.completions)

    @property
    def swapped_blocks(self) -> int:
        """Blocks moved between device and host, either way."""
        return sum(
            moved.blocks for step in self.steps for moved in (*step.plan.swapped_out, *step.plan.swapped_in)
        )

    @property
    def seconds(self) -> float:
        """Wall-clock time of all iterations."""
        return sum(step.seconds for step in self.steps)


class Engine:
    """A model, a paged cache, a host pool if the setting has one, and a scheduler over both.

    >>> from pagedkv.model import SMALL
    >>> engine = Engine(Decoder(SMALL), Setting(num_blocks=8, clock=ITERATIONS))
    >>> service = engine.serve([Job(0, [72, 105], max_new=3), Job(1, [33], max_new=2)])
    >>> [len(completion.tokens) for completion in service.completions]
    [3, 2]

    Args:
        model: the weights; it says the device, and the geometry of the cache.
        setting: pool sizes and policies, as a simulator takes them. Its clock is not used: the time here is real.
        dtype: of the cache; that of the weights by default.

    Attributes:
        model, setting: as given.
        cache, host: where the KV is; `host` is None for a setting without host blocks.
        residency: which request is where.
        scheduler: who decides. Let only the engine call what changes it.

    Raises:
        BadValue: for a dtype that a cache cannot have.
    """

    def __init__(self, model: Decoder, setting: Setting, dtype: torch.dtype | None = None) -> None:
        self.model = model
        self.setting = setting
        dtype = model.embedding.weight.dtype if dtype is None else dtype
        self.cache = PagedKVCache(model.geometry, setting.num_blocks, setting.block_size, dtype, model.device)
        self.host = HostPool(self.cache, setting.host_blocks) if setting.host_blocks else None
        self.residency = CacheResidency(self.cache, self.host)
        self.scheduler = Scheduler(
            self.residency,
            setting.watermarks,
            setting.choose,
            max_running=setting.max_running,
            max_prefill_tokens=setting.max_prefill_tokens,
        )
        even = torch.zeros(1, model.geometry.vocabulary, dtype=torch.float64)
        self._even = even.log_softmax(-1)
        self._live: dict[int, tuple[Completion, Chooser]] = {}
        self._plan: Plan | None = None  # of an iteration that has begun

    def add(self, job: Job) -> Completion:
        """Queue a job, or reject it at once if it could never run: see the state of what is returned.

        Raises:
            BadValue: for an empty prompt, a token that the model does not know, a strategy of several branches, or the
                id of a job that waits or runs already. Nothing is changed then, and nobody else is affected.
        """
        chooser = self._check(job)
        completion = Completion(job, self.scheduler.add(job.request))
        if completion.state is not State.REJECTED:
            self._live[job.id] = completion, chooser
        return completion

    def step(self) -> Step:
        """Run one iteration.

        If the model fails, as it may when a GPU runs out of memory, no token has been emitted: call again, and the same
        iteration starts over.
        """
        started = perf_counter()
        scheduler, residency = self.scheduler, self.residency
        if self._plan is None:
            self._plan = scheduler.schedule()
        plan = self._plan
        chosen = self._choose(plan)
        self._plan = None
        for name, choice in chosen.items():
            completion, _ = self._live[name]
            completion.tokens.append(choice.token)
            completion.log_probability += choice.log_probability
            if choice.token in completion.job.stop:
                scheduler.complete(name)
        resident, free = residency.num_tokens, residency.num_free
        finished = tuple(sequence.request.id for sequence in scheduler.retire())
        for name in finished:
            del self._live[name]
        tokens = {name: choice.token for name, choice in chosen.items()}
        return Step(plan, tokens, finished, resident, free, perf_counter() - started)

    def abort(self, name: int) -> bool:
        """Drop a job wherever it is; its completion keeps the tokens it has. False for one that has left already."""
        self._live.pop(name, None)
        return self.scheduler.abort(name)

    def serve(self, jobs: Sequence[Job]) -> Service:
        """Run jobs to their end, as they come: at their arrival times in iterations, or in the setting's closed loop.

        Raises:
            BadValue: for jobs that `add` refuses, that share an id, or that are not in order of arrival, before
                anything happens; and if the engine has other jobs.
        """
        if self._live:
            raise BadValue(f"{len(self._live)} other jobs are in this engine; step it until they have left")
        for job in jobs:
            self._check(job)
        if len({job.id for job in jobs}) != len(jobs):
            raise BadValue("two jobs share an id; give every job an id of its own")
        most = self.setting.concurrency
        if most is None and any(later.arrival < earlier.arrival for earlier, later in pairwise(jobs)):
            raise BadValue("jobs must be in order of arrival; sort them by it first")
        coming, time = deque(jobs), Timeline(ITERATIONS)
        first_event = len(self.scheduler.events)
        completions: list[Completion] = []
        steps: list[Step] = []
        while coming or self._live:
            if not self._live and most is None and coming[0].arrival > time.now:
                time.restart(coming[0].arrival)
            while coming and (coming[0].arrival <= time.now if most is None else len(self._live) < most):
                completions.append(self.add(coming.popleft()))
            if self._live:
                steps.append(self.step())
                time.advance(1, 0, 0)
        return Service(tuple(completions), tuple(self.scheduler.events[first_event:]), tuple(steps))

    def _choose(self, plan: Plan) -> dict[int, Choice]:
        """Feed everybody who runs, and choose the next token of those that are to have one, by id."""
        prefills = {sequence.request.id: tokens for sequence, tokens in plan.prefills}
        counts = {name: prefills.get(name, 1) for name in self.scheduler.running}
        if not counts:
            return {}
        feed: list[int] = []
        for name, count in counts.items():
            completion, _ = self._live[name]
            feed += (*completion.job.prompt, *completion.tokens)[-count:]
        tokens = torch.tensor(feed, dtype=torch.int64, device=self.model.device)
        logits = self.model.step(tokens, self.residency.newest(counts), self.cache)
        scores: Tensor = logits.double().log_softmax(-1).cpu()
        chosen = {}
        for name, row in zip(counts, scores, strict=True):
            completion, chooser = self._live[name]
            if completion.job.max_new:
                (chosen[name],) = chooser(row[None], (completion.log_probability,))
        return chosen

    def _check(self, job: Job) -> Chooser:
        """Refuse a job that the model cannot run; its chooser."""
        vocabulary = self.model.geometry.vocabulary
        if not job.request.prompt:
            raise BadValue(f"request {job.id} has an empty prompt; there is nothing to continue from")
        for token in job.prompt:
            if require_count("token", token) >= vocabulary:
                raise BadValue(f"token {token} of request {job.id} is outside a vocabulary of {vocabulary}")
        # Found out by asking it once, so that it is refused here and not in the middle of an iteration.
        branches = len(job.strategy.chooser(job.prompt)(self._even, (0.0,)))
        if branches != 1:
            raise BadValue(
                f"request {job.id} would have {branches} branches, and an engine runs one; add it so many times"
            )
        return job.strategy.chooser(job.prompt)
