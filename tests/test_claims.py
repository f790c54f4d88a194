from __future__ import annotations

from typing import Any

import pytest

from pagedkv.book import claims
from pagedkv.errors import BadValue, ClaimFailed

Bundle = dict[str, Any]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Bundle]:
    bundles: list[Bundle] = []
    monkeypatch.setattr(claims, "_display", bundles.append)
    monkeypatch.setattr(claims, "_claims", {})
    return bundles


def make(value: float, *expected: tuple[float, float], **more: Any) -> None:
    claims.claim("waste.used", value, "%", "used share", *expected, source="a test", **more)


def test_a_claim_is_shown_and_recorded(shown: list[Bundle]) -> None:
    make(53.27, (50, 55), device="a <b>CPU</b>")
    record = shown[0][claims.CLAIM_MIME]
    assert record["key"] == "waste.used" and record["section"] == "waste" and record["holds"] is True
    assert (record["value"], record["low"], record["high"]) == (53.27, 50, 55)
    assert "53.3\N{NO-BREAK SPACE}%" in shown[0]["text/html"] and "expected 50 to 55" in shown[0]["text/html"]
    assert "<b>CPU" not in shown[0]["text/html"]


@pytest.mark.parametrize("value", [49.9, 55.1, float("nan")])
def test_a_claim_out_of_its_range_is_shown_and_stops_the_notebook(shown: list[Bundle], value: float) -> None:
    with pytest.raises(ClaimFailed, match=r"waste\.used"):
        make(value, (50, 55))
    assert shown[0][claims.CLAIM_MIME]["holds"] is False


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1, 2, "1 to 2"),
        (1, None, "at least 1"),
        (None, 2, "at most 2"),
        (0, 0, "exactly 0"),
        (None, None, "–"),
    ],
)
def test_ranges_in_words(shown: list[Bundle], low: float | None, high: float | None, text: str) -> None:
    value = low if low is not None else high or 0
    claims.claim("a.b", value, "", "l", (low, high), source="s", kind="given")
    assert claims._claims["a.b"].expected() == text


def test_prose_quotes_claims_by_key(shown: list[Bundle]) -> None:
    make(53.27)
    claims.claim("waste.hostage", 1868, "slots", "l", source="s", digits=0)
    claims.say("It ends at {waste.used}, or {waste.used:.0f}, with {waste.hostage} held; {{braces}} stay.")
    said = shown[-1]["text/markdown"].replace("\N{NO-BREAK SPACE}", " ")
    assert said == "It ends at 53.3 %, or 53, with 1,868 slots held; {braces} stay."


def test_quoting_a_claim_that_nobody_made_is_refused(shown: list[Bundle]) -> None:
    make(1)
    with pytest.raises(BadValue, match=r"no claim 'waste.usd'.*waste\.used"):
        claims.say("{waste.usd}")


@pytest.mark.parametrize("key", ["used", "waste used.x", ""])
def test_keys_have_a_section(shown: list[Bundle], key: str) -> None:
    with pytest.raises(BadValue, match="dotted"):
        claims.claim(key, 1, "", "l", source="s")


def test_kinds_are_listed_when_one_is_unknown(shown: list[Bundle]) -> None:
    with pytest.raises(BadValue, match="measured, reproduced, modelled, quoted, given"):
        claims.claim("a.b", 1, "", "l", source="s", kind="guessed")  # type: ignore[arg-type]


def test_the_input_of_a_notebook_is_recorded(shown: list[Bundle]) -> None:
    claims.used_input("azure", "Azure trace, 2023", real=True)
    assert shown[0][claims.INPUT_MIME] == {"name": "azure", "source": "Azure trace, 2023", "real": True}
    assert "recorded" in shown[0]["text/html"]
