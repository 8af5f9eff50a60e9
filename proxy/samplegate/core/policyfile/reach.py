"""Rules that no request reaches, because an earlier one takes all that they match. Errs to silence: it says so only where it is certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from samplegate.core.matching.conditions import TABLE, globs, is_glob, listed
from samplegate.core.policy import AllowRule, DenyRule, EscalateRule, ForwardRule, Match, Range, Rule
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.tree import quoted

_ALWAYS_THERE: Final = frozenset({"server", "caller"})
"""What every request has, so that `*` is no condition."""


class _Shape(msgspec.Struct, frozen=True):
    """What is compared of a rule: its match with every list as a set, so that a thousand rules take no time."""

    match: Match
    given: tuple[tuple[str, Any], ...]
    conditions: Mapping[str, Any]
    is_deny: bool
    names_call: bool
    may_be_url: bool
    web_only: bool
    """Of urls it takes those by http and https only, as it grants and names no other scheme."""
    doubts: bool
    """It looks at what may be unknown of a request: such a request a deny takes and a grant does not."""
    takes_all: bool


def _shape(rule: Rule) -> _Shape:
    match = rule.match
    conditions = {name: _comparable(name, getattr(match, name)) for name in match.__struct_fields__ if getattr(match, name) is not None}
    given = tuple((name, value) for name, value in conditions.items() if not (name in _ALWAYS_THERE and "*" in value.names))
    is_deny = isinstance(rule, DenyRule)
    web_only = not is_deny and (match.scheme is None or {name.lower() for name in listed(match.scheme)} <= {"http", "https"})
    return _Shape(match, given, conditions, is_deny, _names_call(match), _may_be_url(match), web_only, _doubts(match), _takes_all(rule))


class _Names(NamedTuple):
    """The members of a list, or the one that stands for it; whether one of them is a glob."""

    names: frozenset[str]
    has_glob: bool


def _comparable(name: str, value: Any) -> Any:
    if name in TABLE and TABLE[name].compared in ("names", "parts"):
        names = frozenset([value] if isinstance(value, str) else value)
        return _Names(names, any(map(is_glob, names)))
    return frozenset(value) if isinstance(value, list) else value


def check(draft: Draft) -> None:
    """Warn of every such rule, with the first that stands before it."""
    rules = draft.policy.rules
    takers: list[tuple[int, _Shape]] = []
    for index, rule in enumerate(rules):
        if not draft.sound("rules", index):
            continue
        shape = _shape(rule)
        taker = next((place for place, earlier in takers if _covers(earlier, shape)), None)
        if taker is not None:
            line, name = draft.line(("rules", taker)), quoted(rules[taker].name)
            draft.warn(("rules", index), f"no request reaches this rule: {name} in line {line} takes them all; move it up or remove it")
        elif shape.takes_all:
            takers.append((index, shape))


def _takes_all(rule: Rule) -> bool:
    """Whether nothing that the rule matches goes on to later rules."""
    if rule.shadow:
        return False
    if isinstance(rule, DenyRule):
        return True
    timed = isinstance(rule, AllowRule | ForwardRule | EscalateRule) and rule.on_timeout == "next"
    limited = bool(rule.limits) and rule.on_limit == "next"
    return rule.otherwise != "next" and not timed and not limited


def _covers(first: _Shape, later: _Shape) -> bool:
    """Whether all that ``later`` matches, ``first`` matches."""
    for name, value in first.given:
        if name not in later.conditions or not _implied(name, value, later.conditions[name]):
            return False
    if (first.names_call or first.doubts) and not first.is_deny and later.is_deny:
        return False  # of several candidate calls a deny needs one, the others need all (policies/README.md, "The call")
    if first.web_only and later.may_be_url and not later.web_only and first.match.scheme is None:
        return False
    return first.match.mode is not None or first.match.kind == "sampling" or not later.may_be_url


def _names_call(match: Match) -> bool:
    return match.tool is not None or match.method is not None or (match.not_ is not None and _names_call(match.not_))


def _doubts(match: Match) -> bool:
    return any(row.doubtful and getattr(match, row.name) is not None for row in TABLE.values()) or (match.not_ is not None and _doubts(match.not_))


def _may_be_url(match: Match) -> bool:
    """A rule covers urls only if it says so; one that speaks of modes under a `not` may."""
    return (match.mode is not None and match.mode != "form") or (match.not_ is not None and match.not_ != Match(mode="url") and _speaks(match.not_))


def _speaks(match: Match) -> bool:
    return match.mode is not None or (match.not_ is not None and _speaks(match.not_))


def _implied(name: str, wide: Any, narrow: Any) -> bool:
    """Whether a request that meets ``narrow`` meets ``wide``."""
    if wide == narrow:
        return True
    if isinstance(wide, _Names):
        return narrow.names <= wide.names or (name in _ALWAYS_THERE and _all_meet(narrow, wide))
    if name in TABLE and TABLE[name].compared == "at_least":
        return bool(wide <= narrow)
    return isinstance(wide, Range) and isinstance(narrow, Range) and _within(narrow, wide)


def _within(narrow: Range, wide: Range) -> bool:
    low = wide.min is None or (narrow.min is not None and narrow.min >= wide.min)
    return low and (wide.max is None or (narrow.max is not None and narrow.max <= wide.max))


def _all_meet(narrow: _Names, wide: _Names) -> bool:
    """Whether plain names all fit one of the globs."""
    if narrow.has_glob or not wide.has_glob:
        return False
    test, _ = globs(sorted(wide.names))
    return all(map(test, narrow.names))
