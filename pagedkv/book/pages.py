"""Contents of the generated pages, as plain tables: the list of claims, and how it all was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from pagedkv.book.claims import Claim
from pagedkv.book.records import Record
from pagedkv.errors import BadValue


@dataclass(frozen=True, slots=True)
class Link:
    """Text that leads to a place in the book: document name and id of the element."""

    text: str
    document: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Text set as code."""

    text: str


Part = str | Link | Code
Cell = Part | tuple[Part, ...]
"""What a cell holds; the parts of a tuple stand below each other."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what it is about (its accessible name), heads of the columns, rows of as many cells."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def as_claim(record: Record) -> Claim:
    """The claim of a record in `claims.json`."""
    return Claim(**{field.name: record[field.name] for field in dataclasses.fields(Claim)})


def anchor(key: str) -> str:
    """Id of the element that shows the claim `key` in its notebook's page."""
    return f"claim-{key.replace('.', '-')}"


def fill(reference: str, claims: dict[str, Record]) -> tuple[str, Record]:
    """Text of a reference "key" (with its unit) or "key:.2f" (the bare number), and the claim's record.

    Raises:
        BadValue: for a key that no notebook claims, or a format that numbers do not have.
    """
    key, _, form = reference.partition(":")
    if key not in claims:
        raise BadValue(f"no claim {key!r}; there are: {', '.join(sorted(claims)) or 'none'}")
    record = claims[key]
    try:
        return (format(record["value"], form) if form else as_claim(record).text()), record
    except ValueError as error:
        raise BadValue(f"claim {key!r}: {error}") from error


def claims_tables(claims: Sequence[Record], run: Record) -> list[Table]:
    """One table per notebook, in reading order; the title of each is the notebook's."""
    titles = {entry["notebook"]: entry["title"] for entry in run.get("notebooks", [])}
    tables: dict[str, list[Sequence[Cell]]] = {}
    for record in claims:
        tables.setdefault(record["notebook"], []).append(_claim_row(record))
    heads = ("Claim", "Value", "Expected", "Verdict", "Kind", "Source")
    return [Table(titles.get(name) or name, heads, rows) for name, rows in tables.items()]


def _claim_row(record: Record) -> Sequence[Cell]:
    claim = as_claim(record)
    bounded = claim.low is not None or claim.high is not None
    verdict = ("✓ holds" if claim.holds else "✗ fails") if bounded else "no range"
    where = Link(claim.label, f"notebooks/{record['notebook']}", anchor(claim.key))
    kind = f"{claim.kind} on {claim.device}" if claim.device else claim.kind
    return ((where, Code(claim.key)), claim.text(), claim.expected(), verdict, kind, claim.source)


def run_table(name: str, run: Record) -> Table:
    """A table about how the notebooks were run: "notebooks", "inputs", "machine" or "versions".

    Raises:
        BadValue: for another name.
    """
    if name not in RUN_TABLES:
        raise BadValue(f"no run table {name!r}; there are: {', '.join(RUN_TABLES)}")
    return RUN_TABLES[name](run)


def _notebooks(run: Record) -> Table:
    heads = ("Notebook", "Run time", "Cells", "Profile", "Device", "Seed", "Date")
    rows: list[Sequence[Cell]] = []
    for entry in run.get("notebooks", []):
        used = entry["parameters"]
        notebook = Link(entry["title"] or entry["notebook"], f"notebooks/{entry['notebook']}")
        seconds, cells = f"{entry['seconds']:.1f} s", str(entry["cells"])
        rows.append(
            (notebook, seconds, cells, used["profile"], used["device"], str(used["seed"]), entry["date"])
        )
    return Table("Run time and parameters of each notebook", heads, rows)


def _inputs(run: Record) -> Table:
    rows: list[Sequence[Cell]] = []
    for entry in run.get("notebooks", []):
        notebook = Link(entry["title"] or entry["notebook"], f"notebooks/{entry['notebook']}")
        for used in entry["inputs"]:
            nature = "recorded" if used["real"] else "generated from published quantiles"
            rows.append((notebook, Code(used["name"]), nature, used["source"]))
    return Table("Inputs that the notebooks worked on", ("Notebook", "Input", "Nature", "Source"), rows)


def _machine(run: Record) -> Table:
    machine = run.get("machine") or {}
    memory = machine.get("memory_gib")
    rows = [
        ("Processor", machine.get("processor", "unknown")),
        ("Cores used", str(machine.get("cores", "unknown"))),
        ("Memory", f"{memory:g} GiB" if memory else "unknown"),
        ("System", machine.get("system", "unknown")),
        ("GPU", ", ".join(machine.get("gpus", [])) or "none"),
    ]
    return Table("The machine that executed the notebooks", ("Part", "What it is"), rows)


def _versions(run: Record) -> Table:
    rows = [(name, Code(version)) for name, version in run.get("versions", {}).items()]
    return Table("Versions of the software", ("Package", "Version"), rows)


RUN_TABLES = {"notebooks": _notebooks, "inputs": _inputs, "machine": _machine, "versions": _versions}
