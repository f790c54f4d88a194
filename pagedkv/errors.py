"""Every refusal of the package, as a type that says what was asked, what there was, and what to do."""

from __future__ import annotations

from pathlib import Path


class PagedKVError(Exception):
    """Base of all errors raised on purpose by this package."""


class BadValue(PagedKVError, ValueError):
    """An argument that no state of the program could make valid."""


class OutOfBlocks(PagedKVError):
    """The pool has fewer free blocks than one operation needs. Nothing was changed.

    Attributes:
        needed: blocks the operation asked for.
        free: blocks that were free.
    """

    def __init__(self, needed: int, free: int) -> None:
        self.needed = needed
        self.free = free
        super().__init__(f"{needed} blocks needed, {free} free; free a sequence or use a larger pool")


class OutOfHoles(PagedKVError):
    """No hole of a contiguous allocator is large enough, whatever the holes add up to. Nothing was changed.

    Attributes:
        requested: slots asked for, in one piece.
        largest: slots of the largest hole.
        free: slots of all holes together.
    """

    def __init__(self, requested: int, largest: int, free: int) -> None:
        self.requested = requested
        self.largest = largest
        self.free = free
        super().__init__(
            f"{requested} contiguous slots requested, the largest hole has {largest} "
            f"({free} free in total); free a neighbour or request less"
        )


class NeverFits(PagedKVError):
    """A request larger than the whole memory: waiting cannot help, so it is refused at once.

    Attributes:
        needed: units the request needs at its longest.
        capacity: units there are.
        unit: "blocks" or "slots".
    """

    def __init__(self, needed: int, capacity: int, unit: str = "blocks") -> None:
        self.needed = needed
        self.capacity = capacity
        self.unit = unit
        super().__init__(
            f"the request needs {needed} {unit} and only {capacity} {unit} exist; it can never be admitted: "
            f"shorten it or use a larger pool"
        )


class NotAllocated(PagedKVError):
    """A block or span that is not held now: freed twice, listed twice, or never handed out. Nothing was changed."""


class FreedTable(PagedKVError):
    """A block table was used, or freed again, after it had been freed."""

    def __init__(self) -> None:
        super().__init__("this block table has been freed; make a new BlockTable for a new sequence")


class TraceError(PagedKVError):
    """A trace file that cannot be read as one.

    Attributes:
        path: the file.
        line: line number in it, from 1.
        reason: what is wrong there.
    """

    def __init__(self, path: Path | str, line: int, reason: str) -> None:
        self.path = Path(path)
        self.line = line
        self.reason = reason
        super().__init__(f"{path}, line {line}: {reason}")


class ChecksumMismatch(PagedKVError):
    """A file under a known name with other content than the published one."""

    def __init__(self, path: Path | str, expected: str, actual: str) -> None:
        self.path = Path(path)
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"{path}: sha256 is {actual}, expected {expected}; delete the file to download it again, "
            f"or load it as your own trace"
        )


class TraceUnavailable(PagedKVError):
    """A published trace is neither at hand nor to be downloaded now."""


class ClaimFailed(PagedKVError):
    """A number of the book left the range that its text relies on."""


class NotebookFailed(PagedKVError):
    """A notebook that did not run to its end.

    Attributes:
        notebook: its path.
        cell: index of the cell that stopped it, from 1, or None when unknown.
        detail: the traceback or the reason.
    """

    def __init__(self, notebook: Path | str, cell: int | None, detail: str) -> None:
        self.notebook = Path(notebook)
        self.cell = cell
        self.detail = detail
        where = f"cell {cell}" if cell is not None else "an unknown cell"
        super().__init__(f"{notebook} stopped at {where}\n{detail}")


class BookFailed(PagedKVError):
    """The pages could not be made from the executed notebooks; the book made before stays in place."""


def require_count(name: str, value: object, minimum: int = 0) -> int:
    """Return `value` if it is an int (not a bool) of at least `minimum`.

    Raises:
        BadValue: for anything else; numpy integers are accepted through `__index__`.
    """
    index = getattr(type(value), "__index__", None)
    if index is None or isinstance(value, bool):
        raise BadValue(f"{name} must be a whole number, not {value!r}")
    count: int = index(value)
    if count < minimum:
        raise BadValue(f"{name} must be at least {minimum}, not {count}")
    return count
