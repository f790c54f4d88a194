"""Exercise checkers: a reader's answer goes in, a verdict comes out on the page; nothing raises.

Each checker is registered under the exercise's number and compares the answer with what the package computes. The
book's own tests run every solution, which must pass, and every unfilled stub, which must not.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from pagedkv.errors import BadValue

CHECK_MIME = "application/vnd.pagedkv.check+json"

Checker = Callable[[Any], str | None]
"""Takes an answer; returns None when it is right, else a hint."""

CHECKERS: dict[str, Checker] = {}


def checker(number: str) -> Callable[[Checker], Checker]:
    """Register the decorated function as the checker of exercise `number`."""

    def register(function: Checker) -> Checker:
        if number in CHECKERS:
            raise BadValue(f"exercise {number} has a checker already")
        CHECKERS[number] = function
        return function

    return register


def verdict(number: str, answer: object) -> str | None:
    """None when `answer` solves exercise `number`; else what is missing.

    An answer of `...` is one not given yet; an answer that raises is reported, not raised.

    Raises:
        BadValue: for a number without an exercise.
    """
    if number not in CHECKERS:
        raise BadValue(f"there is no exercise {number}; there are {', '.join(sorted(CHECKERS))}")
    if answer is ... or answer is None:
        return "not answered yet"
    try:
        return CHECKERS[number](answer)
    except Exception as error:
        return f"your answer stopped with {type(error).__name__}: {error}"


def check(number: str, answer: object) -> None:
    """Show whether `answer` (a value, or a function for exercises that ask for one) solves exercise `number`."""
    from IPython.display import display

    missing = verdict(number, answer)
    state = "solved" if missing is None else "open"
    text = f"Exercise {number}: " + ("solved." if missing is None else f"not yet. {missing}")
    display(
        {
            "text/html": f'<p class="pkv-check pkv-check-{state}">{html.escape(text)}</p>',
            "text/plain": text,
            CHECK_MIME: {"id": number, "passed": missing is None},
        },
        raw=True,
    )


def returns(answer: object, cases: list[tuple[tuple[Any, ...], Any]], tolerance: float = 0.0) -> str | None:
    """Compare a function's results with expected ones; names the first case that differs.

    A stub whose body is `...` returns None, which counts as unanswered.
    """
    if not callable(answer):
        return "a function is asked for"
    for arguments, expected in cases:
        got = answer(*arguments)
        if got is None or got is ...:
            return "the function returns nothing yet"
        same = abs(got - expected) <= tolerance if tolerance else got == expected
        if not same:
            shown = ", ".join(map(repr, arguments))
            return f"for ({shown}) it returned {got!r}, expected {expected!r}"
    return None
