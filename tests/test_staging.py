"""Executed notebooks become presentable sources (MyST-NB#520: widget state; the anopheles book's PR #51)."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

import pagedkv
import toybook
from pagedkv.book import records, staging
from pagedkv.book.layout import Layout
from pagedkv.errors import NotebookFailed
from toybook import code, parameters, text

VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET = {VIEW: {"model_id": "3f"}, "text/html": "<p>static twin</p>", "text/plain": "Figure()"}
PATH = Path("notebooks/01_toy.ipynb")


def executed(**outputs: dict[str, object]) -> nbformat.NotebookNode:
    """A notebook as papermill leaves it."""
    injected = code('# Parameters\nprofile = "full"\ndevice = "cpu"\nseed = 7\n', "injected-parameters")
    shown = code("figure", execution={"iopub.status.busy": "2026-01-01"}, papermill={"duration": 1.5})
    shown.outputs = [new_output("display_data", data) for data in outputs.values()]
    marker = text("error").copy()
    marker.metadata["tags"] = ["papermill-error-cell-tag"]
    made = nbformat.v4.new_notebook(cells=[marker, text("# Toy"), parameters(), injected, shown])
    made.metadata.update(
        papermill={"duration": 2.0},
        widgets={"state": {}},
        kernelspec={"name": "python3", "display_name": "Python 3"},
    )
    return made


def test_injected_values_stand_in_the_parameters_cell() -> None:
    made = staging.present(executed(), PATH)
    assert [cell.source for cell in made.cells] == [
        "# Toy\n\n:::{div} pkv-reading-time\nAbout 1 minute to read, longer with the exercises.\n:::",
        'profile = "full"\ndevice = "cpu"\nseed = 7',
        "figure",
    ]
    assert made.cells[1].metadata.tags == ["parameters"]


def test_nothing_is_left_of_times_and_widget_state() -> None:
    made = staging.present(executed(), PATH)
    assert set(made.metadata) == {"kernelspec"}
    assert dict(made.cells[-1].metadata) == {}


def test_widgets_give_way_to_their_static_twin_and_records_stay_out_of_the_page() -> None:
    claim = {"application/vnd.pagedkv.claim+json": {"key": "a.b"}, "text/html": "<p>claim</p>"}
    made = staging.present(executed(figure=WIDGET, claim=claim), PATH)
    shown = [output.data for output in made.cells[-1].outputs]
    assert shown == [
        {"text/html": "<p>static twin</p>", "text/plain": "Figure()"},
        {"text/html": "<p>claim</p>"},
    ]


def test_a_bare_widget_is_refused() -> None:
    bare = {VIEW: {"model_id": "3f"}, "text/plain": "IntSlider(value=0)"}
    with pytest.raises(NotebookFailed, match="bare ipywidget") as failure:
        staging.present(executed(slider=bare), PATH)
    assert (failure.value.notebook, failure.value.cell) == (PATH, 3)


def test_a_caption_over_several_outputs_is_refused() -> None:
    made = executed(plot={"image/svg+xml": "<svg/>"}, claim={"text/html": "<p>claim</p>"})
    made.cells[-1].metadata["mystnb"] = {"figure": {"caption": "A plot", "name": "fig-plot"}}
    with pytest.raises(NotebookFailed, match="only output of its cell"):
        staging.present(copy.deepcopy(made), PATH)
    del made.cells[-1].outputs[1]
    staging.present(made, PATH)


@pytest.fixture
def staged(tmp_path: Path) -> Layout:
    made = toybook.layout(tmp_path, **{"01_toy": [text("# Toy"), parameters()]})
    made.executed.mkdir(parents=True)
    nbformat.write(executed(figure=WIDGET), made.executed / "01_toy.ipynb")
    entry = {"notebook": "01_toy", "seconds": 1.0, "reused": False, "fingerprint": "f"}
    records.write_json(made.claims, [])
    records.write_json(made.run, {"versions": {}, "machine": {}, "notebooks": [entry]})
    staging.stage(made)
    return made


def test_stage_lays_out_what_sphinx_reads(staged: Layout) -> None:
    names = {
        path.relative_to(staged.source).as_posix() for path in staged.source.rglob("*") if path.is_file()
    }
    assert names == {
        "_config.yml", "_toc.yml", "book/index.md", "book/references.bib", "book/favicon.svg",
        "notebooks/01_toy.ipynb", "claims.json", "run.json", "edition.json",
    }  # fmt: skip
    assert records.read_json(staged.source / "run.json")["notebooks"] == [
        {"notebook": "01_toy", "seconds": 1.0}
    ]
    assert records.read_json(staged.source / "edition.json")["version"] == pagedkv.__version__


def test_the_hash_is_the_same_until_the_book_would_differ(staged: Layout) -> None:
    first = staging.stage(staged)
    run = records.read_json(staged.run)
    again = copy.deepcopy(run)
    again["notebooks"][0].update(reused=True, fingerprint="g")
    records.write_json(staged.run, again)
    assert staging.stage(staged) == first
    for change in (staged.root / "book/index.md", staged.root / "_toc.yml", staged.package / "style.css"):
        change.write_text(change.read_text() + "\n" if change.exists() else "a {}")
        second = staging.stage(staged)
        assert second != first, change
        first = second
    nbformat.write(executed(), staged.executed / "01_toy.ipynb")
    assert staging.stage(staged) != first


def test_pages_that_are_gone_do_not_linger(staged: Layout) -> None:
    (staged.root / "book/more.md").write_text("# More\n")
    staging.stage(staged)
    (staged.root / "book/more.md").unlink()
    staging.stage(staged)
    assert not (staged.source / "book/more.md").exists()


def test_the_parameters_cell_keeps_its_comments() -> None:
    source = 'profile = "quick"  # how much\ndevice = "auto"  # where\nseed = 0'
    folded = staging._folded(source, '# Parameters\nprofile = "full"\ndevice = "cpu"\nseed = 7\n')
    assert folded == 'profile = "full"  # how much\ndevice = "cpu"  # where\nseed = 7'


def test_reading_time_counts_what_say_wrote() -> None:
    spoken = code("say()")
    spoken.outputs = [new_output("display_data", {"text/markdown": "word " * 3 * staging.WORDS_PER_MINUTE})]
    made = staging.present(nbformat.v4.new_notebook(cells=[text("# Toy\n\nText."), spoken]), PATH)
    assert made.cells[0].source.startswith("# Toy\n\nText.\n\n:::{div}")
    assert "About 3 minutes to read" in made.cells[0].source
