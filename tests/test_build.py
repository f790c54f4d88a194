"""The finished book: every warning an error, put in place at once, nothing fetched from elsewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

import toybook
from pagedkv.book import assets, build, pages, polish, records
from pagedkv.book.figures import SCRIPTS
from pagedkv.book.layout import Layout, find_layout
from pagedkv.errors import BadValue, BookFailed
from toybook import code, parameters, text

pytestmark = pytest.mark.xdist_group("build")

CLAIM = {
    "key": "waste.toy", "value": 58.333, "unit": "%", "low": 50, "high": 60, "holds": True, "source": "a | b <toy>",
    "kind": "measured", "device": "a CPU", "label": "Toy waste", "digits": 1, "section": "waste",
    "notebook": "01_toy", "cell": 2,
}  # fmt: skip
RUN = {
    "versions": {"Python": "3.11.0", "numpy": "2.0"},
    "machine": {"processor": "a CPU", "cores": 2, "memory_gib": 4.0, "system": "Linux", "gpus": []},
    "notebooks": [
        {
            "notebook": "01_toy", "title": "Toy", "seconds": 1.25, "cells": 3, "date": "2026-01-02",
            "parameters": {"profile": "quick", "device": "auto", "seed": 0},
            "inputs": [{"name": "toy", "source": "a toy stream", "real": False}],
        }
    ],
}  # fmt: skip
FIGURE = (
    '<pagedkv-figure kind="block-table"><script type="application/json">{}</script>'
    '<div class="pkv-fallback">A table.</div></pagedkv-figure>'
)


def ready(root: Path) -> Layout:
    """A book whose notebooks are executed already: one with maths, a claim and a figure, one without any."""
    made = toybook.layout(root, **{"01_toy": [text("# Toy"), parameters()], "02_plain": [parameters()]})
    shutil.copy(toybook.ROOT / "book/claims.md", root / "book")
    shutil.copy(toybook.ROOT / "book/measured.md", root / "book")
    (root / "book/index.md").write_text(
        "# Home\n\nWaste is {claim}`waste.toy`, or {claim}`waste.toy:.3f`.\n\n## More\n\nText.\n"
    )
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n  - file: notebooks/01_toy\n    sections:\n"
        "      - file: notebooks/02_plain\n  - file: book/claims\n  - file: book/measured\n"
    )
    shown, sized = code("figure"), code("claim")
    shown.outputs = [new_output("display_data", {"text/html": FIGURE, "text/plain": "figure"})]
    sized.outputs = [new_output("display_data", {"text/html": '<div id="claim-waste-toy">58.3 %</div>'})]
    toybook.write(made.executed / "01_toy.ipynb", text("# Toy\n\nMaths: $x^2$."), parameters(), shown, sized)
    toybook.write(made.executed / "02_plain.ipynb", text("# Plain\n\nNo maths."), parameters())
    records.write_json(made.claims, [CLAIM])
    records.write_json(made.run, RUN)
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    made = ready(tmp_path_factory.mktemp("built"))
    build.make_pages(made)
    return made


def page(layout: Layout, name: str) -> str:
    return (layout.html / f"{name}.html").read_text()


def test_every_page_of_the_contents_is_made(built: Layout) -> None:
    wanted = ["book/index", "notebooks/01_toy", "notebooks/02_plain", "book/claims", "book/measured"]
    assert build.expected_pages(built) == wanted
    assert build.missing_pages(built, built.html) == []
    assert 'lang="en"' in page(built, "book/index")


def test_claims_in_prose_lead_to_the_cell_that_makes_them(built: Layout) -> None:
    link = re.findall(
        r'<a class="[^"]*pkv-number[^"]*" href="([^"]+)">([^<]+)</a>', page(built, "book/index")
    )
    assert link == [
        ("../notebooks/01_toy.html#claim-waste-toy", shown) for shown in ("58.3\N{NO-BREAK SPACE}%", "58.333")
    ]
    assert 'id="claim-waste-toy"' in page(built, "notebooks/01_toy")


def test_claims_page_lists_all_there_is_to_know(built: Layout) -> None:
    text = page(built, "book/claims")
    for shown in (
        "Toy waste",
        "waste.toy",
        "58.3\N{NO-BREAK SPACE}%",
        "50 to 60",
        "✓ holds",
        "measured on a CPU",
        "a | b &lt;toy&gt;",
    ):
        assert shown in text
    assert "../notebooks/01_toy.html#claim-waste-toy" in text


def test_how_it_was_measured(built: Layout) -> None:
    text = page(built, "book/measured")
    for shown in (
        "1.2 s",
        "2026-01-02",
        "a toy stream",
        "generated from",
        "a CPU",
        "4 GiB",
        "none",
        "3.11.0",
        "numpy",
    ):
        assert shown in text


def test_scripts_only_where_they_are_used(built: Layout) -> None:
    with_figure, plain = page(built, "notebooks/01_toy"), page(built, "notebooks/02_plain")
    scripts = re.findall(r'<script defer="defer" src="\.\./_static/pagedkv/([\w./-]+\.js)', with_figure)
    assert [name for name in scripts if "mathjax" not in name] == list(SCRIPTS["block-table"])
    assert "tex-chtml.js" in with_figure
    assert "pagedkv/core.js" not in plain
    assert not re.search(r"<script[^>]*mathjax|window\.MathJax", plain)


def test_nothing_comes_from_another_host(built: Layout) -> None:
    for path in built.html.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)="([^"]+)"', path.read_text()
        )
        assert [url for url in loaded if "//" in url] == [], path
        assert "thebe" not in path.read_text().lower(), path
    for style in built.html.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import ['\"]http", style.read_text()), style


def test_pages_describe_themselves_and_the_edition(built: Layout) -> None:
    assert '<meta name="description" content="Waste is 58.3 %, or 58.333."' in page(built, "book/index")
    assert '<meta name="description" content="No maths."' in page(built, "notebooks/02_plain")
    assert re.search(r"Version \d+\.\d+", page(built, "book/index"))


def test_the_book_is_light(built: Layout) -> None:
    assert sum(path.stat().st_size for path in built.html.rglob("*")) < 4_000_000
    assert not list(built.html.rglob("*.map"))
    assert "fontawesome.js" not in page(built, "book/index")


def test_a_second_build_with_nothing_changed_does_nothing(
    built: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (built.html / "index.html").stat()
    build.make_pages(built)
    assert "up to date" in capsys.readouterr().out
    assert (built.html / "index.html").stat() == before


def test_a_warning_fails_the_build_and_leaves_the_book(tmp_path: Path) -> None:
    made = ready(tmp_path)
    (made.root / "book/index.md").write_text("# Home\n\n{claim}`waste.unknown` and [nowhere](nowhere.md)\n")
    made.html.mkdir(parents=True)
    (made.html / "index.html").write_text("the last good book")
    with pytest.raises(BookFailed) as failure:
        build.make_pages(made)
    said = str(failure.value)
    assert "no claim 'waste.unknown'; there are: waste.toy" in said
    assert "nowhere.md" in said  # all warnings, not only the first
    assert "\x1b" not in said
    assert (made.html / "index.html").read_text() == "the last good book"
    assert not list(made.build.glob(".html-*"))


def test_a_page_that_is_not_made_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ready(tmp_path)

    def silent(layout: Layout, into: Path) -> Path:
        """Jupyter Book 2 on this configuration: status 0, and no page."""
        (into / "html").mkdir()
        return into / "html"

    monkeypatch.setattr(build, "_sphinx", silent)
    with pytest.raises(BookFailed, match=r"no page was made for: book/index, notebooks/01_toy"):
        build.make_pages(made)
    assert not made.html.exists()


@pytest.mark.parametrize("version", ["2.0.0", "2.1.0a1", "0.15.1", "10.0"])
def test_another_major_version_of_jupyter_book_is_refused(version: str) -> None:
    build.require_jupyter_book("1.0.4.post1")
    with pytest.raises(
        BookFailed, match=rf"jupyter-book {version} is installed, and this book needs version 1\.x"
    ):
        build.require_jupyter_book(version)


def test_swap_puts_back_what_it_cannot_replace(tmp_path: Path) -> None:
    place = tmp_path / "html"
    place.mkdir()
    (place / "page").write_text("old")
    with pytest.raises(FileNotFoundError):
        build.swap(tmp_path / "missing", place)
    assert (place / "page").read_text() == "old"
    made = tmp_path / "made"
    made.mkdir()
    (made / "page").write_text("new")
    build.swap(made, place)
    assert (place / "page").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["html"]


def test_a_build_killed_in_the_middle_of_the_swap_is_repaired(tmp_path: Path) -> None:
    made = Layout(tmp_path)
    previous = made.build / "html.previous"
    previous.mkdir(parents=True)
    (made.build / ".html-abc").mkdir()
    build.recover(made)
    assert [path.name for path in made.build.iterdir()] == ["html"]


def test_the_book_is_found_from_any_folder(tmp_path: Path) -> None:
    made = toybook.layout(tmp_path / "clone")
    assert find_layout(made.root / "book").root == made.root
    assert find_layout(tmp_path).root == toybook.ROOT  # the clone that this package is installed from


def test_figure_scripts() -> None:
    assert assets.figure_scripts("<p>none</p>") == []
    with pytest.raises(BookFailed, match="no script draws figures of kind no-such"):
        assets.figure_scripts('<pagedkv-figure class="x" kind="no-such">')


def test_polish() -> None:
    with pytest.raises(BookFailed, match="has the theme changed"):
        polish.without_icon_script("<head></head>")
    assert polish.body('<tr><th></th><th>a</th></tr><div role="doc-biblioentry">') == (
        '<tr><td></td><th>a</th></tr><div role="listitem">'
    )
    assert polish.has_math('<span class="math notranslate nohighlight">')
    assert not polish.has_math('<section class="tex2jax_ignore mathjax_ignore"> mathematics')


def test_references_to_claims() -> None:
    claims = {"waste.toy": CLAIM}
    assert pages.fill("waste.toy", claims)[0] == "58.3\N{NO-BREAK SPACE}%"
    assert pages.fill("waste.toy:.0f", claims)[0] == "58"
    with pytest.raises(BadValue, match=r"no claim 'waste\.x'; there are: waste\.toy"):
        pages.fill("waste.x", claims)
    with pytest.raises(BadValue, match=r"claim 'waste\.toy'"):
        pages.fill("waste.toy:q", claims)
    with pytest.raises(BadValue, match="no run table 'x'; there are: notebooks, inputs, machine, versions"):
        pages.run_table("x", RUN)


def test_executed_notebooks_are_left_alone(built: Layout) -> None:
    kept = nbformat.read(built.executed / "01_toy.ipynb", as_version=4)
    assert [cell.cell_type for cell in kept.cells] == ["markdown", "code", "code", "code"]
