"""The interactive figures of the course: the same object is live in a notebook and works without a kernel in the book.

>>> from pagedkv.book import figures
>>> figure = figures.block_table()  # as the last line of a notebook cell, this displays the figure
>>> figure.state["slot"]  # what the reader has selected; in JupyterLab it follows the picture
117
"""

from pagedkv.book.figures.allocators import ending_percentages, two_allocators
from pagedkv.book.figures.base import JS_DIR, SCRIPTS, Figure
from pagedkv.book.figures.block_table import block_table
from pagedkv.book.figures.copy_on_write import copy_on_write
from pagedkv.book.figures.evict import evict
from pagedkv.book.figures.knee import knee
from pagedkv.book.figures.watermarks import watermarks

__all__ = [
    "JS_DIR",
    "SCRIPTS",
    "Figure",
    "block_table",
    "copy_on_write",
    "ending_percentages",
    "evict",
    "knee",
    "two_allocators",
    "watermarks",
]
