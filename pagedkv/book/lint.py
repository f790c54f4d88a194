"""House rules that a machine can check in notebooks and pages: structure, cell length, and no number typed by hand.

A quantity in prose must come from a claim (`say` in notebooks, the `claim` role in pages), so that it stays true.
Numbers that define the setting are exempt; `GIVEN` lists them, and grows by decision, not by accident.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from pagedkv.book.layout import Layout
from pagedkv.errors import BadValue

LONGEST_CELL = 14
LONGEST_HIDDEN_CELL = 24
"""A collapsed cell may be longer: it states claims or solves an exercise, a call after the other."""
KERNEL = "python3"
PARAMETERS = {"profile": '"quick"', "device": '"auto"', "seed": "0"}

UNITS = (
    r"%|percent(?:age points?)?|points|x|times|[kKMGT]?i?B(?:/s)?|bytes?|bits?|[nuµm]?s|seconds?|minutes?|hours?"
    r"|tokens?|slots?|blocks?|requests?|sequences?|samples?|steps?|iterations?|entries|layers?|heads?|parameters"
    r"|preemptions?|copies|[KMGTP]?FLOPs?(?:/s)?|cores?|GPUs?"
)
NUMBER = r"\d[\d,]*(?:\.\d+)?"
# A number with a unit (which may be joined by a hyphen), or any number with decimals.
QUANTITY = re.compile(rf"(?<![\w.])(?:{NUMBER}[\s  -]?(?:{UNITS})(?![\w])|\d[\d,]*\.\d+(?![\w.]))")

_TO_THE_END_OF_THE_PARAGRAPH = r"(?:(?!\n\s*\n).)*"
GIVEN = (
    # Settings: 16-token blocks, the 24-request stream, reservations of 2,048 slots, the pool of the paper.
    r"\d[\d,]*-(?:token|slot|request|bit|byte|block)s?",
    r"\b(?:1|2|4|8|16|32|64|128|256|512|1,024|2,048|4,096|8,192)\s(?:slots?|tokens?|sequences?)",
    r"\b15,700\sslots",
    # What a reader is asked: the statement of an exercise, and what to predict.
    rf"\*\*\d+\.\d+ \([^)]*\)\.\*\*{_TO_THE_END_OF_THE_PARAGRAPH}",
    rf"\*\*Predict:\*\*{_TO_THE_END_OF_THE_PARAGRAPH}",
    # Somebody else's words, in quotation marks.
    r"[\"“][^\"“”]{20,}[\"”]",
    # Names and places.
    r"Llama \d(?:\.\d)? \d+B|Qwen ?\d(?:\.\d)?(?:[- ]\d+B)?|OPT-\d+B",
    r"(?i:figure|fig\.|section|table|exercise|chapter|notebook|part)s? \d+(?:\.\d+)*(?:[a-z])?(?: and \d+(?:\.\d+)*)?",
    r"(?:Python|Jupyter Book|CUDA|torch|triton|PyTorch|Triton|version|vLLM v?)\s?\d+(?:\.\d+)*\+?",
    r"(?<![\d.,])(?:[48] %|40 %|20 ms|(?:5|25|55) GB/s)",  # watermarks, prefill efficiency, set-up, links
    r"CC[- ]BY[- ]\d\.\d|Apache[- ]\d\.\d",
)
_GIVEN = re.compile("|".join(GIVEN), re.DOTALL)

# What is not prose: code, maths, roles with their argument, comments, link targets, HTML tags, bare addresses.
_NOT_PROSE = re.compile(
    r"\$\$.*?\$\$|\$[^$\n]+\$|\{[\w:.-]+\}`[^`]*`|``.+?``|`[^`\n]+`|<!--.*?-->|(?<=\])\([^)\s]*\)|</?[a-zA-Z][^>]*>"
    r"|<?https?://[^\s>)]+>?",
    re.DOTALL,
)
_FENCE = re.compile(r"^[ ]*(`{3,}|~{3,}|:{3,})(.*)$")
# Directives whose body is prose; the body of any other fence is code, data or maths.
_PROSE_DIRECTIVES = {
    "admonition", "note", "tip", "warning", "important", "hint", "seealso", "dropdown", "card", "grid",
    "grid-item", "grid-item-card", "margin", "sidebar", "epigraph", "div",
}  # fmt: skip
QUOTED = re.compile(r"^\s*%\s*quoted\b", re.IGNORECASE)
"""A MyST comment line `% quoted: source` above a table says that its numbers are somebody else's, word for word."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: file, place in it ("cell 3" or "line 12"), and what is wrong."""

    path: Path
    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.place}: {self.problem}"


def _read(path: Path) -> nbformat.NotebookNode | None:
    """The notebook as it lies there, nothing repaired; None when it is not one."""
    try:
        notebook = nbformat.v4.reads(path.read_text(encoding="utf-8"))
    except (ValueError, AttributeError):
        return None
    return notebook if notebook.get("nbformat") == 4 else None


def structure(path: Path) -> Iterator[Finding]:
    """Problems that would make papermill run the notebook otherwise than meant."""
    notebook = _read(path)
    if notebook is None:
        yield Finding(path, "file", "not a notebook of format 4; save it once in JupyterLab")
        return
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    if kernel != KERNEL:
        yield Finding(
            path, "metadata", f"kernelspec is {kernel!r}; it must be {KERNEL!r}, which every machine has"
        )
    tagged = [
        (n, cell) for n, cell in enumerate(notebook.cells, 1) if "parameters" in cell.metadata.get("tags", [])
    ]
    if len(tagged) != 1:
        yield Finding(
            path, "cells", f"{len(tagged)} cells are tagged 'parameters'; there must be exactly one"
        )
    for number, cell in tagged:
        for name, default in PARAMETERS.items():
            if not re.search(
                rf"^{name}\s*(?::[^=]+)?=\s*{re.escape(default)}\s*(?:#.*)?$", cell.source, re.MULTILINE
            ):
                yield Finding(path, f"cell {number}", f"the parameters cell must say: {name} = {default}")


def require_runnable(path: Path) -> None:
    """Raise BadValue with all structural problems of a notebook, if it has any."""
    problems = [str(finding) for finding in structure(path)]
    if problems:
        raise BadValue("\n".join(problems))


def hygiene(path: Path) -> Iterator[Finding]:
    """All problems of one notebook as committed: its structure, leftovers of a run, long cells, prose numbers."""
    yield from structure(path)
    notebook = _read(path)
    if notebook is None:
        return
    if "widgets" in notebook.metadata:
        yield Finding(path, "metadata", "holds widget state; clear all outputs before committing")
    ids = set()
    for number, cell in enumerate(notebook.cells, 1):
        place = f"cell {number}"
        if not cell.get("id") or cell.id in ids:
            yield Finding(path, place, "the cell has no id of its own; save it once in JupyterLab")
        ids.add(cell.get("id"))
        if cell.cell_type == "code":
            yield from _code(path, place, cell)
        elif cell.cell_type == "markdown":
            for line, quantity in typed_quantities(cell.source):
                yield Finding(path, f"{place}, line {line}", _typed(quantity))


def page(path: Path) -> Iterator[Finding]:
    """Numbers typed by hand in a Markdown page."""
    for line, quantity in typed_quantities(path.read_text(encoding="utf-8")):
        yield Finding(path, f"line {line}", _typed(quantity))


def book(layout: Layout) -> list[Finding]:
    """All findings over the notebooks and pages of a book, and whether its contents list names them all."""
    findings: list[Finding] = []
    toc = (layout.root / "_toc.yml").read_text(encoding="utf-8")
    for notebook in sorted(layout.notebooks.glob("*.ipynb")):
        findings += hygiene(notebook)
        if f"notebooks/{notebook.stem}" not in toc:
            findings.append(Finding(notebook, "file", "not in _toc.yml, so it would not be published"))
    for text in sorted((layout.root / "book").glob("**/*.md")):
        findings += page(text)
    return findings


def typed_quantities(markdown: str) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and text of each quantity typed into the prose of `markdown`."""
    prose = _prose(markdown)
    for found in QUANTITY.finditer(_GIVEN.sub(_blank, prose)):
        yield prose.count("\n", 0, found.start()) + 1, found[0]


def _typed(quantity: str) -> str:
    return (
        f"{quantity!r} is typed by hand; state it as a claim, or list it in GIVEN if it defines the setting"
    )


def _code(path: Path, place: str, cell: nbformat.NotebookNode) -> Iterator[Finding]:
    if cell.outputs or cell.execution_count is not None:
        yield Finding(path, place, "has outputs; clear all outputs before committing")
    if re.search(r"^\s*(?:import|from)\s+ipywidgets\b", cell.source, re.MULTILINE):
        yield Finding(path, place, "uses a bare ipywidget, which is dead in the published page; use a figure")
    if "execution" in cell.metadata:
        yield Finding(path, place, "holds execution times; clear all outputs before committing")
    for quantity in _quantities_said(cell):
        yield Finding(path, place, _typed(quantity))
    lines = len(cell.source.splitlines())
    hidden = {"hide-cell", "hide-input", "remove-input"} & set(cell.metadata.get("tags", []))
    longest = LONGEST_HIDDEN_CELL if hidden else LONGEST_CELL
    if lines > longest:
        yield Finding(path, place, f"has {lines} lines, at most {longest}; move the work into the package")


def _quantities_said(cell: nbformat.NotebookNode) -> Iterator[str]:
    """Quantities in what a code cell shows as prose: the templates of `say`, and the caption of its plot."""
    told = [cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")]
    try:
        calls = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
    except SyntaxError:  # a line of IPython's own, which has no `say` in it
        calls = []
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == "say":
            strings = (
                node.value for part in call.args for node in ast.walk(part) if isinstance(node, ast.Constant)
            )
            told += [re.sub(r"\{[^}]*\}", "", value) for value in strings if isinstance(value, str)]
    for prose in told:
        for _, quantity in typed_quantities(prose):
            yield quantity


def _blank(found: re.Match[str]) -> str:
    """Spaces of the same length, line ends kept, so that places stay right."""
    return re.sub(r"[^\n]", " ", found[0])


def _prose(markdown: str) -> str:
    """`markdown` with all that is not prose blanked out."""
    lines = []
    fences: list[tuple[str, bool]] = []
    quoted = front = False
    for number, line in enumerate(markdown.split("\n")):
        if line.strip() == "---" and (number == 0 or front):
            front = not front
            line = ""
        fence = _FENCE.match(line)
        if fence and fences and fence[1][0] == fences[-1][0][0] and len(fence[1]) >= len(fences[-1][0]):
            if not fence[2].strip():
                fences.pop()
                line = ""
        elif fence and (not fences or fences[-1][1]):
            directive = re.match(r"\s*\{([\w:-]+)\}", fence[2])
            fences.append((fence[1], bool(directive and directive[1] in _PROSE_DIRECTIVES)))
            line = re.sub(r"^[ ]*[`~:]{3,}\s*(?:\{[\w:-]+\})?", _blank, line) if fences[-1][1] else ""
        # A mark holds to the end of the table below it.
        if QUOTED.match(line):
            quoted = True
        elif quoted and line.strip() and not line.lstrip().startswith("|"):
            quoted = False
        hidden = front or quoted or QUOTED.match(line) or (fences and not fences[-1][1])
        lines.append("" if hidden else line)
    return _NOT_PROSE.sub(_blank, "\n".join(lines))
