"""Claims: the numbers of the book, each computed, checked against the range its text relies on, and recorded.

A notebook states what it found with one call of `claim`. The call shows the number on the page, leaves a record in
the cell's output that the book build collects, and raises when the number has left its range, which stops the build.
Prose then refers to the number by its key, through `say`, and never by typing it.
"""

from __future__ import annotations

import html
import json
import math
import string
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from pagedkv.errors import BadValue, ClaimFailed

CLAIM_MIME = "application/vnd.pagedkv.claim+json"
INPUT_MIME = "application/vnd.pagedkv.input+json"

Kind = Literal["measured", "reproduced", "modelled", "quoted", "given"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One number of the book.

    Attributes:
        key: dotted name, the section first: "waste.contiguous.used".
        value: the number.
        unit: "%", "slots", "ns", ...; empty for a pure number.
        low, high: the range in which the text stays true; None is open.
        holds: whether value is in it.
        source: where the number comes from: a trace, a setting, a paper's table.
        kind: measured (timed or counted on this machine or on real data), reproduced (a published result computed
            again), modelled (follows from a model), quoted (somebody else's figure), given (defines the setting).
        device: what it was measured on, when that matters.
        label: what it is, in words.
        digits: decimals shown.
    """

    key: str
    value: float
    unit: str
    low: float | None
    high: float | None
    holds: bool
    source: str
    kind: Kind
    device: str | None
    label: str
    digits: int

    @property
    def section(self) -> str:
        """First part of the key."""
        return self.key.split(".", 1)[0]

    def text(self, digits: int | None = None) -> str:
        """The value as the book writes it, unit included: "53.3 %", "1,868 slots", never broken between the two."""
        number = f"{self.value:,.{self.digits if digits is None else digits}f}"
        return f"{number}\N{NO-BREAK SPACE}{self.unit}".rstrip()

    def expected(self) -> str:
        """The range in words, or a dash where none was set."""
        bounds = [None if bound is None else f"{bound:,g}" for bound in (self.low, self.high)]
        if bounds == [None, None]:
            return "–"
        if bounds[0] == bounds[1]:
            return f"exactly {bounds[0]}"
        if bounds[1] is None:
            return f"at least {bounds[0]}"
        if bounds[0] is None:
            return f"at most {bounds[1]}"
        return f"{bounds[0]} to {bounds[1]}"


# The claims made so far in this process, by key, so that `say` can quote them.
_claims: dict[str, Claim] = {}


def claim(
    key: str,
    value: float,
    unit: str,
    label: str,
    expected: tuple[float | None, float | None] = (None, None),
    *,
    source: str,
    kind: Kind = "measured",
    device: str | None = None,
    digits: int = 1,
) -> None:
    """State a number: show it, record it, and stop the notebook if it is outside its expected range.

    A key may be claimed again, as happens when a cell is run twice; the last counts.

    Args:
        key: dotted name, the section first.
        value: the number.
        unit: "%", "slots", ...; "" for a pure number.
        label: what it is, in words.
        expected: (low, high), each None where open: the range in which the text stays true.
        source, kind, device, digits: see `Claim`.

    Raises:
        ClaimFailed: when the value is outside its range, or not a number.
        BadValue: for a key without a section, or an unknown kind.
    """
    if "." not in key or " " in key:
        raise BadValue(f"claim key {key!r} must be dotted, its section first, like 'waste.contiguous.used'")
    if kind not in get_args(Kind):
        raise BadValue(f"claim kind {kind!r} must be one of {', '.join(get_args(Kind))}")
    number, (low, high) = float(value), expected
    holds = not math.isnan(number) and (low is None or low <= number) and (high is None or number <= high)
    made = Claim(key, number, unit, low, high, holds, source, kind, device, label, digits)
    _claims[key] = made
    _display(
        {
            "text/html": _row(made),
            "text/plain": f"{'✓' if holds else '✗'} {label}: {made.text()} ({kind}; {source})",
            CLAIM_MIME: {**asdict(made), "section": made.section},
        }
    )
    if not holds:
        raise ClaimFailed(
            f"{key} = {made.text()} is not in its range ({made.expected()}); the text around it is no longer true"
        )


def say(template: str) -> None:
    """Display Markdown with claims put in by key, as "{waste.contiguous.used}" or "{waste.contiguous.used:.0f}".

    Without a format the claim is written as the book writes it, unit included; with one, the bare number is.

    Raises:
        BadValue: for a key that no claim of this notebook has.
    """
    _display({"text/markdown": _fill(template), "text/plain": _fill(template)})


def used_input(name: str, source: str, real: bool) -> None:
    """Record on the page, and for the page "how it was measured", which input a notebook worked on."""
    mark = "recorded" if real else "generated"
    _display(
        {
            "text/html": f'<p class="pkv-input"><b>Input, {mark}:</b> {html.escape(source)}</p>',
            "text/plain": f"Input, {mark}: {source}",
            INPUT_MIME: {"name": name, "source": source, "real": real},
        }
    )


class _Formatter(string.Formatter):
    """Looks whole dotted names up among the claims instead of walking attributes."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        if field_name not in _claims:
            known = ", ".join(sorted(_claims)) or "none yet"
            raise BadValue(f"no claim {field_name!r} in this notebook; there are: {known}")
        return _claims[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return format(value.value, format_spec) if format_spec else value.text()


def _fill(template: str) -> str:
    return _Formatter().vformat(template, (), {})


def _row(made: Claim) -> str:
    verdict = "holds" if made.holds else "fails"
    where = f" on {html.escape(made.device)}" if made.device else ""
    return (
        f'<div class="pkv-claim" id="claim-{html.escape(made.key.replace(".", "-"))}">'
        f'<span class="pkv-claim-label">{html.escape(made.label)}</span> '
        f'<b class="pkv-claim-value">{html.escape(made.text())}</b> '
        f'<span class="pkv-claim-about">{made.kind}{where}; expected {html.escape(made.expected())}; {verdict}. '
        f"{html.escape(made.source)}</span></div>"
    )


def _display(bundle: dict[str, Any]) -> None:
    from IPython.display import display

    json.dumps(bundle, allow_nan=True)  # a value that is not plain data fails here, not in the book build
    display(bundle, raw=True)
