"""What came of a request beside what was expected of it. Not how it came about (``play.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from samplegate.core.decisions import Allowed, Decision, DenyAs, Escalated, FixedAnswer, Forwarded, LeftOpen
from samplegate.core.policy import seconds
from samplegate.core.trials.suite import Expect

Object: TypeAlias = dict[str, Any]

_OUTCOMES: Final = {FixedAnswer: "answered", DenyAs: "denied", LeftOpen: "unanswered"}
"""Where no model, no client and no person has a say."""
_EXACT: Final = 1e-6  # of the amount: what is lost where amounts are whole numbers of small units
_DECIMALS: Final = 9  # a thousandth of what one token costs at the least
_MOMENT: Final = 0.001  # seconds by which a wait may differ


class Mismatch(msgspec.Struct, frozen=True):
    """One expectation that was not met; both sides as they are to be printed. ``where`` is the step's place, empty for a case without steps."""

    what: str
    expected: Any
    got: Any
    where: str = ""


def seen(decision: Decision) -> Object:
    """What a decision says, by the names of ``Expect``."""
    found: Object = {
        "effect": decision.effect,
        "rule": decision.rule,
        "reason": decision.reason.value,
        "shadows": [shadow.rule for shadow in decision.shadows],
        "declared": decision.declared,
        "ruled": None if decision.ruled is None else decision.ruled.value,
    }
    if (asked := decision.allowed) is not None:
        found |= {"models": list(asked.models), "model": asked.models[0], "params": dict(asked.params), "max_tokens": asked.params.get("maxTokens")}
    found["outcome"] = _OUTCOMES.get(type(decision.act))
    match decision.act:
        case Allowed(review_answer=reviewer):
            found["review_answer"] = reviewer
        case Escalated(reviewer=reviewer, allowed=allowed):
            found |= {"reviewer": reviewer, "review_answer": None if allowed is None else allowed.review_answer}
        case FixedAnswer(result=result):
            found["content"] = result.get("content")
        case DenyAs(as_=as_):
            found["as"] = as_ if decision.declared else None  # an error has no action
        case Forwarded() | LeftOpen():
            pass
        case _ as never:
            assert_never(never)
    return found


def differences(expect: Expect, got: Object) -> Iterator[Mismatch]:
    """What was expected otherwise. ``got`` is by the names of ``Expect``; ``waits`` in seconds."""
    for what, expected in msgspec.to_builtins(expect).items():
        found = got.get(what)
        match what:
            case "reason" if expected == got.get("ruled"):
                continue  # that no rule takes it holds also where it is not offered
            case "params" | "limits":
                yield from _members(what, expected, found or {})
            case "cost":
                if not _as_written(expected, found):
                    yield Mismatch(what, _number(expected), _number(found))
            case "waits":
                if not isinstance(found, float) or abs(found - seconds(expected)) > _MOMENT:
                    yield Mismatch(what, expected, None if found is None else f"{found:g}s")
            case _:
                if not same(expected, _words(found) if isinstance(expected, str) else found):
                    yield Mismatch(what, expected, found)


def _members(what: str, expected: Object, got: Object) -> Iterator[Mismatch]:
    equal = same if what == "params" else _as_written
    for name, value in expected.items():
        if not equal(value, got.get(name)):
            yield Mismatch(f"{what}.{name}", _number(value), _number(got.get(name)))


def _as_written(expected: float, got: object) -> bool:
    """Equal to as many decimals as are written; a whole number is meant as it stands."""
    if not isinstance(got, float):
        return False
    decimals = len(f"{expected:.12f}".rstrip("0").partition(".")[2])
    rounding = 0.5 * 10**-decimals if decimals else 0.0
    return abs(expected - got) <= rounding + _EXACT * abs(expected)


def _number(value: Any) -> Any:
    """As it is to be printed: without the zeros behind it."""
    if not isinstance(value, float):
        return value
    value = round(value, _DECIMALS)
    return int(value) if value.is_integer() else value


def _words(content: Any) -> Any:
    """The text of content that is one text block, so that a case may say it as text."""
    match content:
        case {"type": "text", "text": str(text)} | [{"type": "text", "text": str(text)}]:
            return text
        case _:
            return content


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values: 1 is 1.0 and neither is true (T15)."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case list() | tuple(), list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case _:
            return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
