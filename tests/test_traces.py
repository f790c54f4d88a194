from __future__ import annotations

import builtins
import dataclasses
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pagedkv.errors import BadValue, ChecksumMismatch, PagedKVError, TraceError, TraceUnavailable
from pagedkv.workloads import (
    TRACES,
    Workload,
    embedded_table,
    fetch,
    find,
    load,
    quantile_table,
    summary,
    traces,
)

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
AT_HAND = Path(os.environ.get("PAGEDKV_TRACES") or "/nonexistent")
needs_traces = pytest.mark.skipif(
    not (AT_HAND / TRACES["azure-conversation"].file).is_file(),
    reason="PAGEDKV_TRACES names no folder with the traces",
)


@pytest.fixture(autouse=True)
def _nothing_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder, an empty cache and no network, whatever the machine has."""
    monkeypatch.delenv("PAGEDKV_TRACES", raising=False)
    monkeypatch.setenv("PAGEDKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PAGEDKV_OFFLINE", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def lengths(workload: Workload) -> list[tuple[int, int]]:
    return [(request.prompt, request.output) for request in workload.requests]


# The registry


def test_every_trace_is_pinned_and_attributed() -> None:
    assert set(TRACES) == {"azure-conversation", "azure-code", "mooncake-conversation"}
    for trace in TRACES.values():
        assert re.fullmatch(
            r"https://raw\.githubusercontent\.com/[\w-]+/\w+/[0-9a-f]{40}/\S+\.(csv|jsonl)", trace.url
        )
        assert re.fullmatch("[0-9a-f]{64}", trace.sha256)
        assert trace.licence in {"CC-BY-4.0", "Apache-2.0"}
        assert re.search(r"(ISCA 2024|FAST 2025)$", trace.citation)


@pytest.mark.parametrize("call", [load, fetch, find, embedded_table])
def test_an_unknown_name_lists_the_valid_ones(call: object) -> None:
    with pytest.raises(BadValue, match=r"'azure'.* azure-code, azure-conversation, mooncake-conversation"):
        call("azure")  # type: ignore[operator]


SMALL = f"{HEADER}\n0,10,1\n1.5,20,2\n3,30,3\n".encode()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> traces.Trace:
    """A published trace of three rows, under the name azure-code."""
    replaced = dataclasses.replace(TRACES["azure-code"], sha256=hashlib.sha256(SMALL).hexdigest())
    monkeypatch.setitem(TRACES, "azure-code", replaced)
    return replaced


def put(folder: Path, trace: traces.Trace, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / trace.file
    path.write_bytes(content)
    return path


def test_the_folder_comes_before_the_cache(
    tmp_path: Path, small: traces.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find("azure-code") is None
    cached = put(tmp_path / "cache", small, SMALL)
    assert find("azure-code") == cached == fetch("azure-code")
    monkeypatch.setenv("PAGEDKV_TRACES", str(tmp_path / "absent"))
    assert find("azure-code") == cached  # a folder without the file is no obstacle
    chosen = put(tmp_path / "folder", small, SMALL)
    monkeypatch.setenv("PAGEDKV_TRACES", str(tmp_path / "folder"))
    assert find("azure-code") == chosen == fetch("azure-code")

    workload = load("azure-code")
    assert lengths(workload) == [(10, 1), (20, 2), (30, 3)]
    assert workload.real
    assert (workload.name, workload.licence, workload.citation) == ("azure-code", "CC-BY-4.0", small.citation)
    assert "3 requests (Azure/AzurePublicDataset at commit b469a113ce" in workload.source
    assert str(tmp_path) not in workload.source
    assert load("azure-code", limit=2).requests == workload.requests[:2]
    assert "the first 2 requests" in load("azure-code", limit=2).source


@pytest.mark.parametrize("where", ["folder", "cache"])
@pytest.mark.parametrize("content", [SMALL[:-1], SMALL + b"4,1,1\n", b"", SMALL.replace(b"\n", b"\r\n")])
def test_a_wrong_file_is_refused_and_left_alone(
    tmp_path: Path, small: traces.Trace, monkeypatch: pytest.MonkeyPatch, where: str, content: bytes
) -> None:
    monkeypatch.setenv("PAGEDKV_TRACES", str(tmp_path / "folder"))
    path = put(tmp_path / where, small, content)
    if where == "folder":
        put(tmp_path / "cache", small, SMALL)  # a good copy further down does not excuse it
    for call in (load, fetch, find):
        with pytest.raises(ChecksumMismatch) as caught:
            call("azure-code")
        assert caught.value.path == path
        assert caught.value.expected == small.sha256
        assert caught.value.actual == hashlib.sha256(content).hexdigest()
    assert path.read_bytes() == content


def test_the_cache_is_where_pooch_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv("PAGEDKV_CACHE")
    assert traces.cache_folder() == pooch.os_cache("pagedkv")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert traces.cache_folder() == tmp_path / "pagedkv" == pooch.os_cache("pagedkv")


# The stand-in


@pytest.mark.parametrize("name", sorted(TRACES))
def test_without_a_trace_its_stand_in_says_so(tmp_path: Path, name: str) -> None:
    workload = load(name)
    table = embedded_table(name)
    assert not workload.real
    assert workload.source.startswith(f"Not the trace itself but {table.requests:,} requests generated")
    assert workload.source.endswith("downloads are off (PAGEDKV_OFFLINE)")
    assert str(tmp_path) not in workload.source
    assert (workload.licence, workload.citation) == (TRACES[name].licence, TRACES[name].citation)
    assert load(name).requests == workload.requests
    assert load(name, limit=7).requests == workload.requests[:7]
    facts = summary(workload.requests)
    assert facts.prompt.median == pytest.approx(table.prompt[12], rel=0.04)
    assert facts.rate == pytest.approx(1 / table.mean_gap)
    assert facts.gap_cv == pytest.approx(table.gap_cv, rel=0.1)
    assert not (tmp_path / "cache").exists()


def test_stand_ins_keep_the_means_of_their_traces() -> None:
    means = {
        name: (summary(load(name).requests).prompt.mean, summary(load(name).requests).output.mean)
        for name in TRACES
    }
    # Means of the published files.
    assert means["azure-conversation"] == pytest.approx((1155, 211), rel=0.03)
    assert means["azure-code"] == pytest.approx((2048, 27.9), rel=0.05)
    assert means["mooncake-conversation"] == pytest.approx((12035, 343), rel=0.03)


def test_a_stand_in_keeps_what_a_reservation_holds() -> None:
    """Prompts and outputs belong together: 53 % of a 2,048-slot reservation, not the 44 % of independent lengths."""
    fitting = [request for request in load("azure-conversation").requests if request.total <= 2048]
    held = sum((request.prompt + request.output / 2) * request.output for request in fitting)
    assert held / sum(2048 * request.output for request in fitting) == pytest.approx(0.534, abs=0.01)


def test_fetch_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TraceUnavailable) as caught:
        fetch("azure-code")
    for part in ("PAGEDKV_TRACES", "PAGEDKV_OFFLINE", str(tmp_path / "cache"), TRACES["azure-code"].url):
        assert part in str(caught.value)


@pytest.mark.parametrize("missing", ["pooch", "tqdm"])
def test_without_the_download_packages_the_command_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAGEDKV_OFFLINE")
    monkeypatch.delitem(sys.modules, missing, raising=False)
    real_import = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TraceUnavailable, match=f"needs {missing}: pip install pooch tqdm"):
        fetch("azure-code")
    workload = load("azure-code", limit=3)
    assert not workload.real
    assert workload.source.endswith("pip install pooch tqdm")


# Downloads, from a server on this machine


class Server:
    """A web server that answers as told, and counts."""

    def __init__(self) -> None:
        self.status, self.content, self.cut, self.calls = 200, SMALL, 0, 0
        self.silent = False
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.calls += 1
                if server.silent:
                    server.closing.wait(60)
                    return
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(server.content)))
                self.end_headers()
                self.wfile.write(server.content[: len(server.content) - server.cut])

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(small: traces.Trace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    pytest.importorskip("pooch")
    pytest.importorskip("tqdm")
    monkeypatch.setenv("PAGEDKV_OFFLINE", "0")
    server = Server()
    url = f"http://127.0.0.1:{server.http.server_port}/{small.file}"
    monkeypatch.setattr(traces.Trace, "url", property(lambda _: url))
    yield server
    server.close()


def test_a_download_is_kept_and_shown(
    tmp_path: Path, server: Server, small: traces.Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = load("azure-code")
    assert workload.real
    assert lengths(workload) == [(10, 1), (20, 2), (30, 3)]
    assert "100%" in capsys.readouterr().err  # the progress bar
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [small.file]
    assert load("azure-code") == workload
    assert server.calls == 1


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"cut": 20}, "the download failed"),
        ({"status": 404}, "the download failed (HTTPError)"),
        ({"status": 500}, "the download failed (HTTPError)"),
        ({"silent": True}, "the download failed (ReadTimeout)"),
        ({"content": b"<html>please log in</html>"}, "is not the published file (sha256 "),
        ({"content": b""}, "is not the published file (sha256 "),
    ],
)
def test_a_failed_download_leaves_nothing_and_is_tried_once(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, setting: dict[str, object], why: str
) -> None:
    if "silent" in setting:
        monkeypatch.setattr(traces, "READ_TIMEOUT", 0.2)
    for name, value in setting.items():
        setattr(server, name, value)
    with pytest.raises(TraceUnavailable) as caught:
        fetch("azure-code")
    assert why in str(caught.value)
    assert server.calls == 1
    assert list((tmp_path / "cache").iterdir()) == []
    workload = load("azure-code", limit=3)
    assert not workload.real
    assert why in workload.source


def test_no_server_and_no_room_are_no_network(
    tmp_path: Path, server: Server, small: traces.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAGEDKV_CACHE", str(tmp_path / "file" / "cache"))
    assert not load("azure-code", limit=3).real
    assert server.calls == 0
    monkeypatch.setenv("PAGEDKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(traces.Trace, "url", property(lambda _: "http://127.0.0.1:1/nobody"))
    workload = load("azure-code", limit=3)
    assert workload.source.endswith("the download failed (ConnectionError)")


def test_an_interrupted_download_leaves_nothing(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    def interrupted(self: object, url: str, output: str, owner: None) -> None:
        Path(output).write_bytes(SMALL[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load("azure-code")
    assert list((tmp_path / "cache").iterdir()) == []


# The published files


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDKV_TRACES", str(AT_HAND))


@needs_traces
@pytest.mark.parametrize(
    ("name", "requests", "prompt", "output", "span", "cv", "longest_gap"),
    [
        ("azure-conversation", 19366, (1155, 1020, 2734, 4142), (211, 129, 424, 601), 3501.7, 1.094, 4.31),
        ("azure-code", 8819, (2048, 1469, 5188, 7436), (28, 13, 55, 251), 3435.9, 13.151, 217.17),
        (
            "mooncake-conversation",
            12031,
            (12035, 6909, 27367, 85400),
            (343, 350, 597, 1119),
            3539.6,
            0.371,
            1.50,
        ),
    ],
)
@pytest.mark.usefixtures("published")
def test_published_traces_are_what_they_are_known_to_be(
    name: str,
    requests: int,
    prompt: tuple[int, ...],
    output: tuple[int, ...],
    span: float,
    cv: float,
    longest_gap: float,
) -> None:
    workload = load(name)
    assert workload.real
    facts = summary(workload.requests)
    assert facts.requests == requests
    for spread, expected in ((facts.prompt, prompt), (facts.output, output)):
        found = (spread.mean, spread.median, spread.p90, spread.p99)
        assert found == pytest.approx(expected, abs=0.51)
    assert facts.span == pytest.approx(span, abs=0.1)
    assert facts.gap_cv == pytest.approx(cv, abs=0.001)
    assert facts.longest_gap == pytest.approx(longest_gap, abs=0.05)
    assert min(min(request.prompt, request.output) for request in workload.requests) >= 1


@needs_traces
@pytest.mark.usefixtures("published")
def test_mooncake_prefix_blocks_cover_the_prompts() -> None:
    workload = load("mooncake-conversation")
    assert workload.prefix_blocks is not None
    assert all(
        len(blocks) == -(-request.prompt // 512)
        for request, blocks in zip(workload.requests, workload.prefix_blocks, strict=True)
    )


@needs_traces
@pytest.mark.parametrize("name", sorted(TRACES))
@pytest.mark.usefixtures("published")
def test_the_embedded_table_is_what_the_trace_gives(name: str) -> None:
    derived, embedded = quantile_table(load(name).requests), embedded_table(name)
    assert embedded.requests == derived.requests
    assert embedded.points == derived.points
    assert embedded.prompt == pytest.approx(derived.prompt, abs=0.0501)
    for mine, theirs in zip(embedded.output, derived.output, strict=True):
        assert mine == pytest.approx(theirs, abs=0.0501)
    assert embedded.mean_gap == pytest.approx(derived.mean_gap, abs=1e-6)
    assert embedded.gap_cv == pytest.approx(derived.gap_cv, abs=1e-4)


def test_the_embedded_tables_say_where_they_come_from() -> None:
    path = Path(traces.__file__).with_name("quantiles.json")
    tables = json.loads(path.read_text(encoding="utf-8"))
    assert set(tables["traces"]) == set(TRACES)
    for name, table in tables["traces"].items():
        trace = TRACES[name]
        assert trace.commit in table["source"]
        assert (table["sha256"], table["licence"], table["citation"]) == (
            trace.sha256,
            trace.licence,
            trace.citation,
        )


def test_importing_workloads_brings_no_package_in() -> None:
    import subprocess

    code = "import sys, pagedkv.workloads; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    root = Path(traces.__file__).parents[2]
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pooch", "tqdm", "requests", "numpy", "pandas"} & set(loaded)


def test_errors_share_one_base() -> None:
    assert all(issubclass(kind, PagedKVError) for kind in (TraceError, ChecksumMismatch, TraceUnavailable))
