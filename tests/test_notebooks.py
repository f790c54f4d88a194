"""House rules of the notebooks and pages, on the real ones and on samples that break them."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

import toybook
from pagedkv.book import lint
from pagedkv.book.layout import Layout
from toybook import code, parameters, text


def test_the_books_own_notebooks_and_pages_keep_the_rules() -> None:
    assert [str(finding) for finding in lint.book(Layout(toybook.ROOT))] == []


def found(tmp_path: Path, *cells: nbformat.NotebookNode, kernel: str = "python3") -> list[str]:
    path = toybook.write(tmp_path / "01_toy.ipynb", *cells, kernel=kernel)
    return [f"{finding.place}: {finding.problem}" for finding in lint.hygiene(path)]


def test_a_clean_notebook_has_no_findings(tmp_path: Path) -> None:
    visible = code("\n".join(f"step_{n}()" for n in range(14)))
    hidden = code("\n".join(f"step_{n}()" for n in range(24)), "hide-cell")
    assert found(tmp_path, text("# Toy\n\nText."), parameters(), visible, hidden) == []


def test_broken_rules_are_found(tmp_path: Path) -> None:
    shown = code("1")
    shown.outputs = [new_output("stream", text="1")]
    counted = code("2")
    counted.execution_count = 1
    timed = code("3", execution={"iopub.status.busy": "now"})
    slider = code("if True:\n    from ipywidgets import IntSlider")
    long = code("\n".join(["x"] * 15))
    said = code("say('Uses {waste.used:.1f} %, ' 'or 38.2 %')\nplot(0.25)\nother('7.5 ms')")
    plot = code("plot()", mystnb={"figure": {"caption": "Waste falls to 3.1 %", "name": "fig-2.5"}})
    prose = text("# Toy\n\nIt uses\n38.2 % of it.")
    cells = [prose, parameters(), shown, counted, timed, slider, long, said, plot]
    assert [problem.split(";")[0] for problem in found(tmp_path, *cells, kernel="mine")] == [
        "metadata: kernelspec is 'mine'",
        "cell 1, line 4: '38.2 %' is typed by hand",
        "cell 3: has outputs",
        "cell 4: has outputs",
        "cell 5: holds execution times",
        "cell 6: uses a bare ipywidget, which is dead in the published page",
        "cell 7: has 15 lines, at most 14",
        "cell 8: '38.2 %' is typed by hand",
        "cell 9: '3.1 %' is typed by hand",
    ]


def test_widget_state_and_missing_ids_are_found(tmp_path: Path) -> None:
    path = toybook.write(tmp_path / "01_toy.ipynb", parameters(), code("1"))
    made = json.loads(path.read_text())
    made["metadata"]["widgets"] = {"state": {}}
    made["cells"].append({**made["cells"][1], "id": made["cells"][0]["id"]})
    made["cells"].append({name: value for name, value in made["cells"][1].items() if name != "id"})
    path.write_text(json.dumps(made))
    problems = [(finding.place, finding.problem.split(";")[0]) for finding in lint.hygiene(path)]
    no_id = "the cell has no id of its own"
    assert problems == [("metadata", "holds widget state"), ("cell 3", no_id), ("cell 4", no_id)]


def test_what_is_no_notebook_is_found(tmp_path: Path) -> None:
    path = tmp_path / "01_toy.ipynb"
    for content in ("{", "[]", '{"cells": [], "nbformat": 3}', "{}"):
        path.write_text(content)
        (finding,) = lint.hygiene(path)
        assert "not a notebook" in finding.problem


def test_a_notebook_outside_the_contents_is_found(tmp_path: Path) -> None:
    made = toybook.layout(tmp_path, **{"01_toy": [parameters()]})
    toybook.write(made.notebooks / "02_more.ipynb", parameters())
    (finding,) = lint.book(made)
    assert (finding.path.stem, finding.problem) == (
        "02_more",
        "not in _toc.yml, so it would not be published",
    )


@pytest.mark.parametrize(
    ("prose", "quantities"),
    [
        ("It uses 38.2 % of memory.", ["38.2 %"]),
        ("It uses 38% of memory.", ["38%"]),
        ("Between 20.4 and 38.2 percent.", ["20.4", "38.2 percent"]),
        ("A block takes 2 MiB, a token 128 KiB.", ["2 MiB", "128 KiB"]),
        ("It took 3 s, or 40 ms each, or 5 µs.", ["3 s", "40 ms", "5 µs"]),
        ("All 1,868 slots are lost.", ["1,868 slots"]),
        ("Paging admits 4 x more, 2.5 times as many.", ["4 x", "2.5 times"]),
        ("At 31 GB/s and 40 TFLOP/s.", ["31 GB/s", "40 TFLOP/s"]),
        ("**96.3** is *bold*.", ["96.3"]),
        ("See [the 7.5 ms one](a-3.5-s.md).", ["7.5 ms"]),
        ("| a | b |\n|---|---|\n| 20.4 | 13.3 |", ["20.4", "13.3"]),
        ("```{note}\nIt wastes 60 % here.\n```", ["60 %"]),
        (":::{dropdown} Solution, 5 blocks\nIt is 6 blocks.\n:::", ["5 blocks", "6 blocks"]),
    ],
)
def test_quantities_typed_by_hand_are_found(prose: str, quantities: list[str]) -> None:
    assert [quantity for _, quantity in lint.typed_quantities(prose)] == quantities


@pytest.mark.parametrize(
    "prose",
    [
        "Blocks of 16 or so, and 16-token blocks; the 24-request stream over 560-slot reservations.",
        "Llama 3.1 8B and OPT-13B, in Figure 1, Section 4.5 and Table 2 of a paper of 2023.",
        "Python 3.11+, version 1.0.4, CC-BY 4.0.",
        "1. first\n2. second\n\nStep 3 of exercise 1.1 is Exercise 1.2 again.",
        "Math $x = 3.5$ and $$y = 38.2\\%$$ and `38.2 %` and ``a `3.5` b``.",
        "```python\nx = 38.2\n```\n\n~~~\n38.2 %\n~~~",
        "```{math}\n1 - 38.2 \\%\n```",
        ":::{note}\n```python\nx = 38.2\n```\nText.\n:::",
        "{claim}`waste.used:.1f` and {cite:t}`kwon2023`, <!-- 38.2 % -->, <span style='width: 38.2%'>a</span>.",
        "[text](https://example.org/3.5-s) and <https://example.org/38.2%>, https://example.org/3.5",
        "% quoted: Kwon et al. 2023, Fig. 2\n| a |\n|---|\n| 38.2 % |\n",
        "---\nwidth: 38.2 %\n---\n\nText.",
        "**1.3 (on the trace).** Which reservation fits\nat least 99 % of the requests?",
        "**Predict:** a pool of 300 slots holds\nthree requests of 100 slots.",
        'The sentence "Production systems use 20 to 38 % of their memory" is often quoted.',
        "A reservation of 2,048\nslots, 256 sequences, in 16 tokens a block.",
    ],
)
def test_what_is_no_typed_quantity_passes(prose: str) -> None:
    assert list(lint.typed_quantities(prose)) == []


def test_an_exemption_ends_with_its_paragraph() -> None:
    prose = "**1.3 (easy).** Which 5 blocks?\n\nIt is 6 blocks.\n\n**Predict:** 7 blocks.\n \nThere are 8 blocks.\n"
    assert [quantity for _, quantity in lint.typed_quantities(prose)] == ["6 blocks", "8 blocks"]


def test_a_quoted_mark_ends_with_its_table() -> None:
    prose = "% quoted: a paper\n\n| a |\n|---|\n| 38.2 % |\n\nAfter it 38.2 % counts.\n\n| b |\n|---|\n| 7.5 % |\n"
    assert list(lint.typed_quantities(prose)) == [(7, "38.2 %"), (11, "7.5 %")]
