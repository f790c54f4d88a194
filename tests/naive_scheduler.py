"""A scheduler as one would write it first: every token of every sequence counted one by one, nothing clever.

It knows blocks only as numbers, grows sequences one after the other, and evicts when a block is missing. The package's
scheduler must log the same events.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

Event = tuple[int, str, int]


class NaiveScheduler:
    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        low: float = 0.0,
        high: float = 0.0,
        shed: bool = False,
        host_blocks: int = 0,
        swaps: Callable[[int], bool] = lambda held: False,
        max_running: int | None = None,
        max_prefill_tokens: int | None = None,
    ) -> None:
        self.num_blocks, self.block_size, self.host_free = num_blocks, block_size, host_blocks
        self.low, self.high = (math.ceil(Fraction(str(mark)) * num_blocks) for mark in (low, high))
        self.shed, self.swaps = shed, swaps
        self.max_running, self.max_prefill_tokens = max_running, max_prefill_tokens
        self.open = True
        self.events: list[Event] = []
        self.iteration = 0
        self.prompt: dict[int, int] = {}
        self.output: dict[int, int] = {}
        self.emitted: dict[int, int] = {}
        self.kv: dict[int, int] = {}  # tokens on the device
        self.host: dict[int, int] = {}  # tokens on the host
        self.running: list[int] = []
        self.preempted: list[int] = []  # in order of arrival
        self.newcomers: list[int] = []

    def need(self, tokens: int) -> int:
        return math.ceil(tokens / self.block_size)

    @property
    def free(self) -> int:
        return self.num_blocks - sum(self.need(tokens) for tokens in self.kv.values())

    @property
    def busy(self) -> bool:
        return bool(self.running or self.preempted or self.newcomers)

    def log(self, kind: str, name: int) -> None:
        self.events.append((self.iteration, kind, name))

    def add(self, name: int, prompt: int, output: int) -> None:
        self.iteration += 1  # it is seen by the next iteration
        self.log("arrive", name)
        if self.need(prompt + max(output, 1) - 1) > self.num_blocks:
            self.log("reject", name)
        else:
            self.prompt[name], self.output[name], self.emitted[name] = prompt, output, 0
            self.newcomers.append(name)
        self.iteration -= 1

    def step(self) -> None:
        self.iteration += 1
        after_growth = self.free - sum(self.need(n + 1) - self.need(n) for n in self.kv.values())
        if self.open and max(after_growth, 0) < self.low:
            self.open = False
            self.log("close", -1)
        elif not self.open and after_growth >= self.high:
            self.open = True
            self.log("open", -1)
        victims = []
        grown: list[int] = []
        for name in list(self.running):
            while (
                name in self.running and self.need(self.kv[name] + 1) - self.need(self.kv[name]) > self.free
            ):
                victims.append(self.evict(self.running[-1], grown))
            if name in self.running:
                self.kv[name] += 1
                grown.append(name)
        while self.shed and self.free < self.low and len(self.running) > 1:
            victims.append(self.evict(self.running[-1], grown))
        for name in self.running:
            self.emitted[name] += 1
        if not victims:
            self.admit()
        for name in list(self.running):
            if self.emitted[name] >= self.output[name]:
                self.emitted[name] = self.output[name]
                self.running.remove(name)
                del self.kv[name]
                self.log("finish", name)

    def evict(self, name: int, grown: list[int]) -> int:
        self.running.remove(name)
        held = self.kv.pop(name) - (name in grown)  # what is written; the slot just granted is not
        if self.swaps(held) and 0 < self.need(held) <= self.host_free:
            self.host_free -= self.need(held)
            self.host[name] = held
            self.log("swap-out", name)
        else:
            self.log("preempt", name)
        self.preempted.insert(0, name)
        return name

    def admit(self) -> None:
        prefilled = 0
        while self.preempted or self.newcomers:
            line = self.preempted or self.newcomers
            name = line[0]
            tokens = self.prompt[name] + self.emitted[name]
            room = tokens
            if line is self.preempted and self.emitted[name] + 1 < self.output[name]:
                room += 1
            if self.running and not self.open:
                return
            if self.running and self.free - self.need(tokens) < self.low:
                return
            if self.need(room) > self.free:
                return
            if self.max_running is not None and len(self.running) >= self.max_running:
                return
            if name not in self.host:
                too_much = (
                    self.max_prefill_tokens is not None and prefilled + tokens > self.max_prefill_tokens
                )
                if prefilled and too_much:
                    return
                prefilled += tokens
            line.pop(0)
            kind = "admit" if line is self.newcomers else "swap-in" if name in self.host else "resume"
            if name in self.host:
                self.host_free += self.need(self.host.pop(name))
            self.kv[name] = tokens
            self.emitted[name] += 1
            self.running.append(name)
            self.log(kind, name)
