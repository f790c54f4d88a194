"""Requests, and where they come from: the stream of figure 1, generators, published traces, your own trace.

A workload is a tuple of `Request`s in order of arrival. Published traces come by name, and yours by file:

    load("azure-conversation")          load_csv("mine.csv")          load_mooncake("mine.jsonl")

Generators come in two independent halves, lengths and arrivals, which `make_requests` joins:

>>> import random
>>> rng = random.Random(0)
>>> lengths = uniform(3, rng, prompt=(500, 1500), output=(2500, 7500))
>>> [request.total for request in make_requests(lengths, poisson(3, rng, rate=2.0))]
[7019, 7221, 5162]

Every draw comes from the `random.Random` that was handed in, or from one made of the seed that was: the global
generator is never touched, and the same seed gives the same requests. Only the standard library is imported; pooch and
tqdm only when a trace is downloaded.
"""

from pagedkv.workloads.generators import (
    alpaca_like,
    lognormal,
    poisson,
    renewal,
    sharegpt_like,
    teaching_stream,
    uniform,
)
from pagedkv.workloads.quantiles import (
    QuantileTable,
    Spread,
    Summary,
    from_quantiles,
    quantile,
    quantile_table,
    summary,
)
from pagedkv.workloads.request import Request, make_requests
from pagedkv.workloads.traces import (
    TRACES,
    Trace,
    Workload,
    embedded_table,
    fetch,
    find,
    load,
    load_csv,
    load_mooncake,
)

__all__ = [
    "TRACES",
    "QuantileTable",
    "Request",
    "Spread",
    "Summary",
    "Trace",
    "Workload",
    "alpaca_like",
    "embedded_table",
    "fetch",
    "find",
    "from_quantiles",
    "load",
    "load_csv",
    "load_mooncake",
    "lognormal",
    "make_requests",
    "poisson",
    "quantile",
    "quantile_table",
    "renewal",
    "sharegpt_like",
    "summary",
    "teaching_stream",
    "uniform",
]
