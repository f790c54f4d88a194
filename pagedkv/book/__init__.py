"""What turns notebooks into the book. Notebooks import `claim`, `say`, `check`, `table` and more from here."""

from pagedkv.book import checkers as _checkers  # registers the exercises
from pagedkv.book.claims import claim, say, used_input
from pagedkv.book.exercises import check
from pagedkv.book.tabulate import table

del _checkers

__all__ = ["check", "claim", "say", "table", "used_input"]
