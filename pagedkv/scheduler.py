"""The scheduler: who runs in the next iteration, who is let in, and who has to go.

It schedules iteration by iteration over one block pool, first come first served, and knows neither tensors nor time:
`pagedkv.simulator` gives it a modelled clock, an engine a real one. One iteration:

    plan = scheduler.schedule()      # preempts, grows, admits; then run what the plan says
    finished = scheduler.retire()    # who has all its tokens leaves, and its blocks come back

Every sequence that runs in an iteration emits one token in it, a prefill included. The token emitted last is never fed
back, so its KV is never written: a request holds `prompt + output - 1` tokens at its longest.

The rules, in the order in which an iteration applies them:

1. Every running sequence needs room for one more token. While the free blocks do not suffice, the youngest is
   preempted. A victim emits nothing in the iteration that evicts it, and goes back to the head of the queue.
2. The gate sees how many blocks that growth leaves. With shedding, the youngest are preempted below the low mark too,
   as long as more than one runs.
3. An iteration that preempted admits nobody. Otherwise the head of the queue comes in while the gate is open, the low
   mark is kept, and it fits: a newcomer with its prompt; a preempted sequence with all its tokens and room for the next
   one, so that it is not evicted again at once. The preempted stand at the head of the queue, thus before newcomers.
4. When nothing runs, the head of the queue comes in whatever the marks say. A request too long for the whole pool was
   rejected when it was added. So the oldest request always advances, and every run ends.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import inf

from pagedkv.blocks import blocks_needed
from pagedkv.errors import BadValue, NeverFits, PagedKVError, require_count
from pagedkv.preemption import Choice, Mode, always_recompute
from pagedkv.residency import Residency
from pagedkv.sequences import GATE, Event, Plan, Sequence, State, Transfer
from pagedkv.watermarks import OFF, Gate, Watermarks
from pagedkv.workloads.request import Request

# Looking up a member of an enum is slow in Python 3.11.
_RUNNING, _FINISHED = State.RUNNING, State.FINISHED


class Scheduler:
    """An iteration-level scheduler; its rules stand at the top of this module.

    >>> from pagedkv.blocks import BlockPool
    >>> from pagedkv.residency import TableResidency
    >>> scheduler = Scheduler(TableResidency(BlockPool(num_blocks=10, block_size=16)))
    >>> for number in range(2):
    ...     sequence = scheduler.add(Request(id=number, arrival=0.0, prompt=80, output=3))
    >>> while scheduler.live:
    ...     plan = scheduler.schedule()
    ...     finished = scheduler.retire()
    >>> [event for event in scheduler.events if event[1] != "arrive"]  # doctest: +NORMALIZE_WHITESPACE
    [(1, 'admit', 0), (1, 'admit', 1), (2, 'preempt', 1), (3, 'finish', 0), (4, 'resume', 1), (5, 'finish', 1)]

    Args:
        residency: where the KV lies. Only the scheduler may change who is resident there.
        watermarks: the gate for those who want to come in; off by default.
        choose: recompute or swap, for a victim that holds so many tokens. Swap falls back to recompute when the host
            pool has no room for it.
        max_running: most sequences that run at once; None for no limit.
        max_prefill_tokens: most tokens to prefill in one iteration; None for no limit. A longer prompt is let in
            nevertheless, first of its iteration: prompts are not cut into chunks here.

    Attributes:
        gate: the watermarks at work.
        live: all that wait or run, by request id.
        running: those that run, oldest first.
        queue: the preempted, then newcomers.
        iteration: iterations so far.
        events: everything that happened, in order. A server that runs for long may clear it.
        num_preemptions_total: victims so far, of both modes.
        prefill_tokens: tokens prefilled so far, for the first time or again.

    Raises:
        BadValue: for limits that are not whole numbers above 0.
    """

    def __init__(
        self,
        residency: Residency,
        watermarks: Watermarks = OFF,
        choose: Choice = always_recompute,
        *,
        max_running: int | None = None,
        max_prefill_tokens: int | None = None,
    ) -> None:
        for name, limit in (("max_running", max_running), ("max_prefill_tokens", max_prefill_tokens)):
            if limit is not None:
                require_count(name, limit, 1)
        self.residency, self.choose = residency, choose
        self.max_running, self.max_prefill_tokens = max_running, max_prefill_tokens
        self.gate = Gate(watermarks, residency.num_blocks)
        self.live: dict[int, Sequence] = {}
        self.running: dict[int, Sequence] = {}
        self.queue: deque[Sequence] = deque()
        self.iteration = 0
        self.events: list[Event] = []
        self.num_preemptions_total = 0
        self.prefill_tokens = 0
        # Heap of (iteration, ticket, who leaves then). An entry whose ticket its sequence no longer holds is void.
        self._dues: list[tuple[int, int, Sequence]] = []
        self._retired = 0  # the last iteration that was closed
        self._tickets = 0
        self._capacity = residency.num_blocks * residency.block_size
        # Whether the next iteration would admit nobody and leave the gate alone if nothing but growth came in between.
        self._settled = True

    def emitted(self, sequence: Sequence) -> int:
        """Output tokens of a sequence in all iterations retired so far, whatever happened to it in between."""
        if sequence.ticket and sequence.request.output:
            return sequence.request.output - (sequence.due - self._retired)
        return sequence.paused_at

    def add(self, request: Request) -> Sequence:
        """Queue a request, or reject it at once if it could never run: see the state of what is returned.

        Raises:
            BadValue: if a request with this id waits or runs already.
        """
        name = request.id
        if name in self.live:
            raise BadValue(f"request {name} is already here; give every request an id of its own")
        sequence = Sequence(request)
        self._log("arrive", name)
        if sequence.longest > self._capacity:
            needed = blocks_needed(sequence.longest, self.residency.block_size)
            sequence.state, sequence.reason = State.REJECTED, NeverFits(needed, self.residency.num_blocks)
            self._log("reject", name)
            return sequence
        if not self.queue:
            self._settled = False
        self.queue.append(sequence)
        self.live[name] = sequence
        return sequence

    def schedule(self) -> Plan:
        """Decide the next iteration: preempt, grow, admit.

        Raises:
            PagedKVError: if the iteration before has not been retired.
        """
        if self.iteration != self._retired:
            raise PagedKVError(f"iteration {self.iteration} is still running; retire it before the next one")
        self.iteration += 1
        residency, gate, running = self.residency, self.gate, self.running
        plan = Plan(self.iteration, [], [], 0, [], [])
        left = residency.num_free - residency.wanted()
        if gate.observe(left if left > 0 else 0):
            self._log("open" if gate.open else "close", GATE)
        while left < 0 or (left < gate.low and gate.shed and len(running) > 1):
            self._preempt(plan)
            left = residency.num_free - residency.wanted()
        residency.grow()
        plan.decodes = len(running)
        if plan.recomputing or plan.swapped_out:
            self._settled = False
        else:
            self._admit(plan)
        return plan

    def retire(self) -> list[Sequence]:
        """Close the iteration: sequences that have all their tokens leave, in the order of their admission."""
        iteration = self._retired = self.iteration
        finished: list[Sequence] = []
        dues = self._dues
        while dues and dues[0][0] <= iteration:
            _, ticket, sequence = heappop(dues)
            if ticket != sequence.ticket:
                continue
            name = sequence.request.id
            self._stop(sequence, _FINISHED)
            self.residency.drop(name)
            del self.live[name]
            self.events.append((iteration, "finish", name))
            finished.append(sequence)
        if finished and (self.queue or not self.gate.open):
            self._settled = False
        return finished

    def complete(self, name: int) -> None:
        """Let a running request leave with the token of this iteration: an engine saw a stop token.

        Raises:
            BadValue: if the request emits no token now: it does not run, or no iteration is under way.
        """
        sequence = self.running.get(name)
        if sequence is None or self.iteration == self._retired:
            raise BadValue(f"request {name} emits no token now; complete it between schedule and retire")
        self._book(sequence, self.iteration)

    def abort(self, name: int) -> bool:
        """Drop a request wherever it is and give its blocks back; a token of the iteration under way is not counted.

        Returns False, and changes nothing, for a request that has left already or never came: a client may hang up at
        any time.
        """
        sequence = self.live.pop(name, None)
        if sequence is None:
            return False
        if sequence.ticket:
            self.residency.drop(name)
            self._stop(sequence, State.ABORTED)
        else:
            self.queue.remove(sequence)
            if sequence.state is State.SWAPPED:
                self.residency.drop_host(name)
            sequence.state = State.ABORTED
        self._log("abort", name)
        self._settled = False
        return True

    def quiet(self) -> tuple[int, int]:
        """How long nothing can happen but growth: so many iterations, and only while growth takes so many blocks.

        The last of these iterations is the first in which a sequence finishes. (0, 0) when the next iteration must be
        scheduled.
        """
        if not self._settled or not self.running:
            return 0, 0
        gate, dues = self.gate, self._dues
        while dues[0][1] != dues[0][2].ticket:
            heappop(dues)
        kept = gate.low if gate.open or (gate.shed and len(self.running) > 1) else 0
        return dues[0][0] - self.iteration, self.residency.num_free - kept

    def skip(self, iterations: int) -> None:
        """Schedule so many quiet iterations at once; `retire` then closes them all."""
        self.residency.grow(iterations)
        self.iteration += iterations

    def _preempt(self, plan: Plan) -> None:
        """Evict the youngest."""
        name, sequence = next(reversed(self.running.items()))
        held = sequence.request.prompt + self.emitted(sequence) - 1
        blocks = blocks_needed(held, self.residency.block_size)
        if self.choose(held) == Mode.SWAP and 0 < blocks <= self.residency.host_free:
            self.residency.swap_out(name)
            self._stop(sequence, State.SWAPPED)
            plan.swapped_out.append(Transfer(sequence, blocks, held))
            self._log("swap-out", name)
        else:
            self.residency.drop(name)
            self._stop(sequence, State.PREEMPTED)
            plan.recomputing.append(sequence)
            self._log("preempt", name)
        sequence.preemptions += 1
        self.num_preemptions_total += 1
        self.queue.appendleft(sequence)

    def _admit(self, plan: Plan) -> None:
        """Let the head of the queue in, as long as it may come."""
        queue, residency = self.queue, self.residency
        prefilled = 0
        self._settled = True
        while queue:
            sequence = queue[0]
            request = sequence.request
            name, tokens = request.id, request.prompt + sequence.paused_at
            if not self._fits(sequence, tokens):
                break
            if sequence.preemptions and sequence.state is State.SWAPPED:
                blocks = residency.swap_in(name, tokens)
                plan.swapped_in.append(Transfer(sequence, blocks, tokens - 1))
                kind = "swap-in"
            else:
                if prefilled and prefilled + tokens > (self.max_prefill_tokens or inf):
                    self._settled = False  # the next iteration has a budget of its own
                    break
                residency.take(name, tokens)
                plan.prefills.append((sequence, tokens))
                prefilled += tokens
                kind = "admit"
                if sequence.preemptions:
                    sequence.recomputed_tokens += tokens
                    kind = "resume"
            queue.popleft()
            sequence.state = _RUNNING
            remaining = request.output - sequence.paused_at
            sequence.due = self.iteration + remaining - 1 if remaining else self.iteration
            self._book(sequence, sequence.due)
            self.running[name] = sequence
            self.events.append((self.iteration, kind, name))
        self.prefill_tokens += prefilled

    def _fits(self, sequence: Sequence, tokens: int) -> bool:
        """Whether a sequence may come in now and start with `tokens` tokens of KV."""
        residency = self.residency
        free, size = residency.num_free, residency.block_size
        left = free - blocks_needed(tokens, size)
        if self.running and (len(self.running) == self.max_running or not self.gate.admits(left)):
            return False
        if sequence.preemptions:  # room for the next token too, unless there is none to come
            left = free - blocks_needed(min(tokens + 1, sequence.longest), size)
        return left >= 0

    def _book(self, sequence: Sequence, iteration: int) -> None:
        """Let a sequence leave after that iteration, whatever was booked before."""
        self._tickets += 1
        sequence.ticket = self._tickets
        heappush(self._dues, (iteration, self._tickets, sequence))

    def _stop(self, sequence: Sequence, state: State) -> None:
        """Take a sequence out of those that run."""
        sequence.paused_at = self.emitted(sequence)
        sequence.state = state
        sequence.ticket = 0
        del self.running[sequence.request.id]

    def _log(self, kind: str, name: int) -> None:
        self.events.append((self._retired + 1, kind, name))
