"""Random workloads that put a small pool under pressure, for the tests of the scheduler and the simulator."""

from __future__ import annotations

import dataclasses
import random
from array import array

from pagedkv.clock import ITERATIONS, AffineClock
from pagedkv.metrics import Report
from pagedkv.preemption import Cheaper, RecomputeCost, SwapCost, always_recompute, always_swap
from pagedkv.simulator import Setting
from pagedkv.watermarks import Watermarks
from pagedkv.workloads import Request


def random_case(seed: int) -> tuple[list[Request], Setting]:
    """Requests and a setting. Half of the requests are within the pool's reach, a few are not."""
    chance = random.Random(seed)
    size = chance.choice([1, 2, 3, 4, 16])
    blocks = chance.randint(1, 40)
    slots = size * blocks
    gap = chance.choice([0.0, 0.5, 3.0, 20.0])
    now = 0.0
    requests = []
    for number in range(chance.randint(1, 40)):
        now += chance.choice([0.0, float(chance.randint(0, 4)), chance.expovariate(1) * gap])
        prompt = chance.choice(
            [0, chance.randint(0, 3 * size), chance.randint(0, slots // 2), chance.randint(0, slots)]
        )
        output = chance.choice(
            [0, 1, chance.randint(0, 4 * size), chance.randint(0, slots), chance.randint(0, 90)]
        )
        requests.append(Request(number, now, prompt, output))
    low = chance.choice([0.0, 0.0, 0.04, 0.1, 0.3])
    clock = AffineClock(
        chance.random() + 0.01,
        chance.random() * 0.01,
        chance.random() * 0.1,
        RecomputeCost(chance.random() * 0.1, chance.random() * 0.01),
        SwapCost(chance.random(), chance.random() * 0.1, 0.1, size),
    )
    setting = Setting(
        num_blocks=blocks,
        clock=chance.choice([ITERATIONS, AffineClock(0.1), clock]),
        block_size=size,
        watermarks=Watermarks(low, low + chance.choice([0.0, 0.04, 0.2]), shed=chance.random() < 0.5),
        choose=chance.choice(
            [always_recompute, always_swap, Cheaper(RecomputeCost(0.1), SwapCost(1.0, 0.05))]
        ),
        host_blocks=chance.choice([0, 3, blocks]),
        max_running=chance.choice([None, None, chance.randint(1, 6)]),
        max_prefill_tokens=chance.choice([None, None, chance.randint(1, 50)]),
        concurrency=chance.choice([None, None, chance.randint(1, 8)]),
        samples=chance.choice([2, 5, 1000]),
    )
    return requests, setting


def exactly(report: Report) -> dict[str, object]:
    """All of a report, times to the last bit, so that two can be compared (NaN is not equal to itself)."""
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    fields["rejected"] = {position: str(reason) for position, reason in report.rejected.items()}
    return {name: value.tobytes() if isinstance(value, array) else value for name, value in fields.items()}
