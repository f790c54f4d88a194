"""Published traces by name, from a folder at hand, the cache or the network; and, when none can serve, a stand-in.

A trace is looked for in the folder `$PAGEDKV_TRACES`, then in the cache (`$PAGEDKV_CACHE`, or the system's place for
caches), and is then downloaded into that cache, unless `$PAGEDKV_OFFLINE` is set. Its sha256 is checked each time, and
a file with the right name and other contents is refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pagedkv.errors import BadValue, ChecksumMismatch, TraceUnavailable, require_count
from pagedkv.workloads.files import CSV_COLUMNS, MOONCAKE_KEYS, read_csv, read_mooncake
from pagedkv.workloads.quantiles import QuantileTable, from_quantiles
from pagedkv.workloads.request import Request

CONNECT_TIMEOUT, READ_TIMEOUT = 5.0, 10.0
"""Seconds without an answer, and without further bytes, after which a download is given up. It is tried once."""

_SPLITWISE = (
    "Patel, Choukse, Zhang, Shah, Goiri, Maleki and Bianchini: Splitwise: Efficient generative LLM inference using "
    "phase splitting, ISCA 2024"
)
_MOONCAKE = (
    "Qin, Li, He, Cui, Ren, Zhang, Wu, Zheng and Xu: Mooncake: Trading More Storage for Less Computation - A "
    "KVCache-centric Architecture for Serving LLM Chatbot, FAST 2025"
)


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a published trace is, and what may be done with it.

    Attributes:
        title: what the trace is, in a few words.
        repository: on github.com, "owner/name".
        commit: the commit that is meant, 40 hexadecimal digits.
        path: of the file in that repository.
        sha256: of the file, hexadecimal.
        format: "azure-csv" or "mooncake-jsonl".
        columns: columns or keys of a row.
        licence: SPDX identifier.
        citation: the paper to cite.
    """

    title: str
    repository: str
    commit: str
    path: str
    sha256: str
    format: str
    columns: tuple[str, ...]
    licence: str
    citation: str

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.path.rpartition("/")[2]

    @property
    def url(self) -> str:
        """Where it is downloaded from: pinned to the commit."""
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path}"


def _azure(title: str, path: str, sha256: str) -> Trace:
    commit = "b469a113cedca53ddc3bdea71a143dc4b7d8700c"
    repository = "Azure/AzurePublicDataset"
    return Trace(title, repository, commit, path, sha256, "azure-csv", CSV_COLUMNS, "CC-BY-4.0", _SPLITWISE)


TRACES: dict[str, Trace] = {
    "azure-conversation": _azure(
        "Azure LLM inference trace 2023, conversation",
        "data/AzureLLMInferenceTrace_conv.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
    ),
    "azure-code": _azure(
        "Azure LLM inference trace 2023, code",
        "data/AzureLLMInferenceTrace_code.csv",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
    ),
    "mooncake-conversation": Trace(
        "Mooncake trace 2025, conversation",
        "kvcache-ai/Mooncake",
        "3b5a594133958449a1feaf1c9e0fc1b553e34a28",
        "FAST25-release/traces/conversation_trace.jsonl",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        "mooncake-jsonl",
        MOONCAKE_KEYS,
        "Apache-2.0",
        _MOONCAKE,
    ),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival, and where they come from.

    Attributes:
        name: a key of `TRACES`, or the file's name.
        requests: in order of arrival, the first at 0 seconds.
        source: one sentence for the reader.
        real: False when the requests were generated in place of the trace.
        licence: SPDX identifier, or "not stated".
        citation: the paper to cite, or "".
        prefix_blocks: for each request the ids of its prompt's 512-token blocks (see `read_mooncake`), or None.
    """

    name: str
    requests: tuple[Request, ...]
    source: str
    real: bool
    licence: str
    citation: str = ""
    prefix_blocks: tuple[tuple[int, ...], ...] | None = None


def load(name: str, *, limit: int | None = None) -> Workload:
    """A published trace, or requests generated from its quantile table when the trace cannot be had.

    Args:
        name: a key of `TRACES`.
        limit: only the first so many requests.

    Raises:
        BadValue: for an unknown name.
        ChecksumMismatch: when a file found is not the published one.
    """
    trace = _named(name)
    if limit is not None:
        require_count("limit", limit, 1)
    try:
        path = _obtain(trace)
    except TraceUnavailable as why:
        return _stand_in(name, trace, limit, str(why))
    requests, blocks = _read(path, trace.format, limit)
    part = f"{len(requests):,} requests" if limit is None else f"the first {len(requests):,} requests"
    source = f"{trace.title}: {part} ({trace.repository} at commit {trace.commit[:10]}, {trace.file}, sha256 checked)"
    return Workload(name, requests, source, True, trace.licence, trace.citation, blocks)


def load_csv(path: Path | str, *, limit: int | None = None) -> Workload:
    """Your own trace with the Azure columns. Format and errors: `pagedkv.workloads.files.read_csv`."""
    return _own(Path(path), "azure-csv", limit)


def load_mooncake(path: Path | str, *, limit: int | None = None) -> Workload:
    """Your own trace with the Mooncake keys. Format and errors: `pagedkv.workloads.files.read_mooncake`."""
    return _own(Path(path), "mooncake-jsonl", limit)


def find(name: str) -> Path | None:
    """The file of a published trace in `$PAGEDKV_TRACES` or in the cache, checked; None when it is in neither.

    Raises:
        BadValue: for an unknown name.
        ChecksumMismatch: when a file of that name is there and is not the published one.
    """
    return _find(_named(name))


def fetch(name: str) -> Path:
    """The file of a published trace, downloaded with a progress bar when it is not at hand.

    Raises:
        BadValue: for an unknown name.
        ChecksumMismatch: when a file found is not the published one.
        TraceUnavailable: when it is not at hand and cannot be downloaded now, or what came is not the published file.
    """
    trace = _named(name)
    try:
        return _obtain(trace)
    except TraceUnavailable as why:
        raise TraceUnavailable(
            f"{trace.file} is neither in the folder $PAGEDKV_TRACES nor in {cache_folder()}, and {why}; "
            f"get it from {trace.url} and put it into one of them"
        ) from why.__cause__


def cache_folder() -> Path:
    """Where downloads are kept: `$PAGEDKV_CACHE`, or the folder that `pooch.os_cache("pagedkv")` names."""
    if chosen := os.environ.get("PAGEDKV_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local", "pagedkv/pagedkv/Cache")
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/pagedkv"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pagedkv")


@cache
def embedded_table(name: str) -> QuantileTable:
    """The quantile table of a published trace that comes with the package (`pagedkv/workloads/quantiles.json`)."""
    import json
    from importlib.resources import files

    _named(name)
    tables = json.loads(files("pagedkv.workloads").joinpath("quantiles.json").read_text(encoding="utf-8"))
    table = tables["traces"][name]
    return QuantileTable(
        table["requests"],
        tuple(tables["points"]),
        tuple(table["prompt_tokens"]),
        tuple(tuple(band) for band in table["output_tokens"]),
        table["mean_gap_s"],
        table["gap_cv"],
    )


def _named(name: str) -> Trace:
    if name not in TRACES:
        raise BadValue(f"there is no trace {name!r}; the names are {', '.join(sorted(TRACES))}")
    return TRACES[name]


def _read(
    path: Path, form: str, limit: int | None
) -> tuple[tuple[Request, ...], tuple[tuple[int, ...], ...] | None]:
    if form == "mooncake-jsonl":
        return read_mooncake(path, limit=limit)
    return read_csv(path, limit=limit), None


def _own(path: Path, form: str, limit: int | None) -> Workload:
    requests, blocks = _read(path, form, limit)
    source = f"{path.name}: {len(requests):,} requests"
    return Workload(path.name, requests, source, True, "not stated", prefix_blocks=blocks)


def _stand_in(name: str, trace: Trace, limit: int | None, why: str) -> Workload:
    table = embedded_table(name)
    requests = from_quantiles(table, table.requests, seed=0)[:limit]
    source = (
        f"Not the trace itself but {len(requests):,} requests generated (seed 0) from a quantile table of the "
        f"{trace.title}: the file is not at hand, and {why}"
    )
    return Workload(name, requests, source, False, trace.licence, trace.citation)


def _obtain(trace: Trace) -> Path:
    return _find(trace) or _download(trace, cache_folder())


def _find(trace: Trace) -> Path | None:
    chosen = os.environ.get("PAGEDKV_TRACES")
    for folder in ([Path(chosen).expanduser()] if chosen else []) + [cache_folder()]:
        path = folder / trace.file
        if os.path.isfile(path):  # unlike Path.is_file, False rather than an error in a folder closed to us
            actual = _sha256(path)
            if actual != trace.sha256:
                raise ChecksumMismatch(path, trace.sha256, actual)
            return path
    return None


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(trace: Trace, folder: Path) -> Path:
    """Download into `folder`: the file stands there whole and checked, or not at all."""
    if os.environ.get("PAGEDKV_OFFLINE", "") not in ("", "0"):
        raise TraceUnavailable("downloads are off (PAGEDKV_OFFLINE)")
    try:
        import pooch
        import tqdm  # noqa: F401  pooch draws its progress bar with it
    except ImportError as error:
        raise TraceUnavailable(f"downloading needs {error.name}: pip install pooch tqdm") from error
    from tempfile import TemporaryDirectory

    get: Callable[[str, str, None], object] = pooch.HTTPDownloader(
        progressbar=True, chunk_size=1 << 16, timeout=(CONNECT_TIMEOUT, READ_TIMEOUT)
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".download-", dir=folder) as scratch:
            part = Path(scratch, trace.file)
            get(trace.url, str(part), None)
            if (actual := _sha256(part)) != trace.sha256:
                raise TraceUnavailable(f"what {trace.url} sent is not the published file (sha256 {actual})")
            return part.replace(folder / trace.file)
    except OSError as error:  # every error of requests is one
        raise TraceUnavailable(f"the download failed ({type(error).__name__})") from error
