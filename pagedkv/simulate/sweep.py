"""A grid of settings, each simulated on the same requests, on several processes or machines with joblib.

    for row in sweep(points(Options(), {"pool": [6000, 4000]}), {None: requests}, jobs=2, backend="loky"): ...

Rows come in the order of the grid, as soon as they and all before them are there. joblib's back ends: "loky" is
processes on this machine; "dask" and "ray" are clusters, which may be elsewhere. A task carries its requests with it
(about 27 bytes each), so a worker needs nothing but this package, and all points see the same input.
"""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pagedkv.errors import BadValue, PagedKVError, require_count
from pagedkv.simulate.experiment import setting_of, simulate
from pagedkv.simulate.files import require
from pagedkv.simulate.options import BACKENDS, Options
from pagedkv.simulate.output import Figures, figures
from pagedkv.workloads import Request

SWEEP_EXTRA = "pip install 'pagedkv[sweep]'"

CONNECT_TIMEOUT = 10.0
"""Seconds after which a Dask scheduler that does not answer is given up."""


@dataclass(frozen=True, slots=True)
class Row:
    """One point of a sweep: its figures, or why it has none.

    Attributes:
        options: what was simulated.
        figures: by name; empty when it failed.
        error: one sentence, or "".
    """

    options: Options
    figures: Figures
    error: str = ""


def points(base: Options, axes: Mapping[str, Sequence[Any]]) -> list[Options]:
    """Every combination of the swept values, the last axis varying fastest."""
    names = [name.replace("-", "_") for name in axes]
    grid = itertools.product(*axes.values())
    return [dataclasses.replace(base, **dict(zip(names, values, strict=True))) for values in grid]


def require_backend(backend: str, jobs: int) -> None:
    """Refuse a back end that is unknown or not installed, before anything is computed.

    Raises:
        BadValue: for an unknown name, or fewer jobs than one.
        PagedKVError: when a module is missing.
    """
    if backend not in BACKENDS:
        raise BadValue(f"unknown backend {backend!r}; valid are: {', '.join(BACKENDS)}")
    require_count("jobs", jobs, 1)
    require("joblib", "--sweep", SWEEP_EXTRA)
    if backend != "loky":
        module = {"dask": "distributed", "ray": "ray"}[backend]
        require(module, f"--backend {backend}", f"pip install {module}")


def sweep(
    grid: Sequence[Options], requests: Mapping[int | None, Sequence[Request]], *, jobs: int, backend: str
) -> Iterator[Row]:
    """Simulate each point, and yield its row; a point that fails yields why.

    Args:
        grid: the points.
        requests: for each seed in the grid, what to simulate.
        jobs: processes. A cluster that was there before decides itself how many it has. joblib takes the points one
            by one in this process when there is but one.
        backend: as `require_backend` takes it.
    """
    from joblib import Parallel, delayed, parallel_config

    packed = {seed: pickle.dumps(each, pickle.HIGHEST_PROTOCOL) for seed, each in requests.items()}
    tasks = [delayed(run_point)(options, packed[options.seed]) for options in grid]
    came = 0
    with _BACKENDS[backend](jobs), parallel_config(backend=backend, n_jobs=jobs):
        # Ray's back end hands over its results together.
        parallel = Parallel(return_as="list" if backend == "ray" else "generator", batch_size=1)
        try:
            for row in parallel(tasks):
                yield row
                came += 1
        except Exception as error:  # a worker died, or a cluster went away; what came before is kept
            why = f"the workers stopped: {type(error).__name__}: {str(error).partition('. ')[0]}"
            yield from (Row(options, {}, why) for options in grid[came:])


def run_point(options: Options, packed: bytes) -> Row:
    """Simulate one point; what goes wrong in it becomes its row. Runs in a worker."""
    try:
        setting = setting_of(options)
        return Row(options, figures(simulate(_unpack(packed), options, setting), options, setting))
    except PagedKVError as error:
        return Row(options, {}, str(error))
    except Exception as error:
        return Row(options, {}, f"{type(error).__name__}: {error}")


@lru_cache(maxsize=1)
def _unpack(packed: bytes) -> Sequence[Request]:
    requests: Sequence[Request] = pickle.loads(packed)
    return requests


@contextmanager
def _dask(jobs: int) -> Iterator[None]:
    import dask
    from distributed import Client, LocalCluster

    if address := dask.config.get("scheduler-address", None):
        try:
            client = Client(address, timeout=CONNECT_TIMEOUT)
        except OSError as error:
            raise PagedKVError(
                f"no Dask scheduler answers at {address}; is 'dask scheduler' running there?"
            ) from error
        with client:
            yield
    else:
        cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
        with cluster, Client(cluster):
            yield


def _ray(jobs: int) -> AbstractContextManager[None]:
    from ray.util.joblib import register_ray

    register_ray()
    return nullcontext()


_BACKENDS: dict[str, Callable[[int], AbstractContextManager[None]]] = {
    "loky": lambda jobs: nullcontext(),
    "dask": _dask,
    "ray": _ray,
}
