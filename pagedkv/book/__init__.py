"""What turns notebooks into the book. Notebooks import `claim`, `say`, `check`, `figures` and `plots` from here."""

from pagedkv.book.claims import claim, say, used_input
from pagedkv.book.exercises import check

__all__ = ["check", "claim", "say", "used_input"]
