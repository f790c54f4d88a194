"""The command line: its verbs, its refusals, and that it starts at once."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

import pagedkv
import toybook
from pagedkv import cli
from pagedkv.book import runner, serve
from pagedkv.book.layout import Layout
from pagedkv.book.parameters import DEVICES, PROFILES, Parameters
from pagedkv.errors import BookFailed, NotebookFailed


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    made = toybook.layout(tmp_path, **{"01_toy": [toybook.parameters()]})
    monkeypatch.chdir(tmp_path)
    return made


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"pagedkv {pagedkv.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["book"]])
def test_without_a_verb_it_prints_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    for verb in cli.BOOK_VERBS if arguments else cli.VERBS:
        assert verb.name in said
        assert verb.help in said


def test_help_names_every_profile_and_device(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["book", "run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert ", ".join(PROFILES) in said
    assert ", ".join(DEVICES) in said


def test_starting_imports_only_what_is_light() -> None:
    heavy = [
        "IPython",
        "anywidget",
        "matplotlib",
        "nbformat",
        "numpy",
        "pandas",
        "papermill",
        "sphinx",
        "torch",
    ]
    program = (
        "import sys; from pagedkv import cli; cli.make_parser();"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--profile", "fast"], "unknown profile 'fast'; valid are: quick, full"),
        (["--device", "gpu"], "unknown device 'gpu'; valid are: auto, cpu, cuda"),
        (["--notebook", "9"], "no notebook '9'; there are: 01_toy"),
    ],
)
def test_misuse_is_said_in_a_line(
    book: Layout, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["book", "run", *arguments]) == 2
    assert capsys.readouterr().err == f"pagedkv: {reason}\n"


def test_arguments_reach_the_runner(book: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(runner, "forget", lambda *arguments: calls.append(("forget", *arguments)))
    monkeypatch.setattr(runner, "run", lambda *arguments: calls.append(("run", *arguments)))
    words = "book run --profile full --device cpu --seed 3 --force --notebook 01 --cell-timeout 5"
    assert cli.main(words.split()) == 0
    found = Layout(book.root.resolve())
    assert calls == [("forget", found, ["01"]), ("run", found, Parameters("full", "cpu", 3), ["01"], 5.0)]


def test_a_failed_notebook_is_status_1_and_an_interrupt_130(
    book: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> None:
        raise NotebookFailed("01_toy.ipynb", 3, "ValueError: no blocks left")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", fail)
    assert cli.main(["book", "run"]) == 1
    assert capsys.readouterr().err == "pagedkv: 01_toy.ipynb stopped at cell 3\nValueError: no blocks left\n"
    monkeypatch.setattr(runner, "run", interrupt)
    assert cli.main(["book", "run"]) == 130


def test_lint_lists_findings(book: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["book", "lint"]) == 0
    (book.root / "book/index.md").write_text("# Home\n\nIt wastes 61.8 %.\n")
    assert cli.main(["book", "lint"]) == 1
    assert "line 3: '61.8 %' is typed by hand" in capsys.readouterr().err


def test_clean_deletes_what_was_made(book: Layout) -> None:
    (book.html / "deep").mkdir(parents=True)
    assert cli.main(["book", "clean"]) == 0
    assert not book.build.exists()
    assert book.notebooks.exists()
    assert cli.main(["book", "clean"]) == 0


def test_serve(book: Layout) -> None:
    with pytest.raises(BookFailed, match=r"no book at .*; make it with: make book"):
        serve.make_server(book, 0)
    book.html.mkdir(parents=True)
    (book.html / "index.html").write_text("<h1>Home</h1>")
    with serve.make_server(book, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(BookFailed, match=r"port \d+ cannot be used"):
            serve.make_server(book, server.server_port)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/") as answer:
            assert answer.read() == b"<h1>Home</h1>"
        server.shutdown()
        serving.join()
