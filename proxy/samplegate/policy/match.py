"""Pure. A rule's ``match``, compiled once and asked often. Not the choice between rules, nor what a rule then does:
that is ``decide.py``.

Whether a match holds is True, False or None: None where a fact is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from samplegate.policy.catalogue import Catalogue, known
from samplegate.policy.claims import terms
from samplegate.policy.conditions import (
    NO_CALL_NAME,
    Condition,
    Holds,
    conditions,
    listed,
    names,
    names_call,
    no_urls,
    web_only,
)
from samplegate.policy.facts import ABSENT, UNKNOWN, Calls, Facts, Known
from samplegate.policy.ledger import LimitSpec
from samplegate.policy.redaction import Redactor, redactor
from samplegate.policy.schema import AnswerRule, DenyRule, Match, Model, Policy, Rule
from samplegate.protocol.requests import Call
from samplegate.regex import Search, any_of
from samplegate.yamlfile import envfile

if TYPE_CHECKING:
    from samplegate.policy.script import Script


__all__ = ["NO_CALL_NAME", "CompiledPolicy", "CompiledRule", "Matcher", "Negation", "compile_match", "compile_policy"]


_MAX_SHORTLISTS: Final = 256  # servers times callers times tools; a client may make up tools, so there is a bound


class Negation(msgspec.Struct, frozen=True):
    """``not``: holds where the inner conditions do not all hold."""

    inner: tuple[Condition | Negation, ...]

    def complaint(self, facts: Facts | Known) -> str:
        """Why it does not hold: what it excludes does, or may."""
        names = ", ".join(c.name if isinstance(c, Condition) else "not" for c in self.inner) or "everything"
        return f"not: what it excludes {'may hold' if _all(_probes(self.inner), facts) is None else 'holds'} ({names})"


Probe: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Holds]]
"""A condition as it is asked: what it reads of the facts, and its test of that."""


def _probes(conditions: Iterable[Condition | Negation]) -> tuple[Probe, ...]:
    return tuple(_probe(condition) for condition in conditions)


def _probe(condition: Condition | Negation) -> Probe:
    if isinstance(condition, Condition):
        return condition.read, condition.test
    inner = _probes(condition.inner)

    def excluded(facts: Facts | Known) -> Holds:
        value = _all(inner, facts)
        return None if value is None else not value

    return _itself, excluded


def _itself(facts: Facts | Known) -> Facts | Known:
    return facts


def _all(probes: tuple[Probe, ...], facts: Facts | Known) -> Holds:
    """Whether all of them hold. One look-up and one test each: this is the inner loop of every decision."""
    result: Holds = True
    for read, test in probes:
        value = read(facts)
        if value is ABSENT:
            return False
        held = None if value is UNKNOWN else test(value)
        if held is None:
            result = None
        elif not held:
            return False
    return result


class Matcher(msgspec.Struct, frozen=True):
    """A compiled match."""

    conditions: tuple[Condition | Negation, ...]
    probes: tuple[Probe, ...]
    names_call: bool
    """A tool or method stands anywhere in it, also under ``not``."""
    takes_no_call: bool
    """It says ``tool: none``, not under a ``not``."""

    def holds(self, facts: Facts | Known, every: bool) -> Holds:
        """Whether it matches; with several candidate calls for ``every`` one of them, else for at least one
        (policies/README.md, "The call")."""
        if not self.names_call:
            return _all(self.probes, facts)
        calls = facts.calls
        if calls is UNKNOWN:
            # With no call in flight the same conditions may be refused, so True cannot be promised.
            return _all(self.probes, facts) and None
        if not calls:
            return self._during(facts, None) if self.takes_no_call else False
        if len(calls) == 1:
            return self._during(facts, calls[0])
        values = [self._during(facts, call) for call in calls]
        worst, best = (False, True) if every else (True, False)
        if worst in values:
            return worst
        return None if None in values else best

    def _during(self, facts: Facts | Known, call: Call | None) -> Holds:
        facts.during(call)
        return _all(self.probes, facts)

    def complaint(self, facts: Facts | Known) -> str:
        """The first condition that does not hold, as a sentence; for several candidates the first call for which one
        does not."""
        if not self.names_call or facts.calls is UNKNOWN:
            return self._first(facts)
        if not facts.calls:
            if not self.takes_no_call:
                return "tool: no call is in flight, and it asks for a tool or method"
            facts.during(None)
            return self._first(facts)
        for call in facts.calls:
            if self._during(facts, call) is not True:
                what = self._first(facts)
                return what if len(facts.calls) == 1 else f"{what} (one of {len(facts.calls)} calls it may belong to)"
        return ""

    def _first(self, facts: Facts | Known) -> str:
        pairs = zip(self.conditions, self.probes, strict=True)
        return next((condition.complaint(facts) for condition, probe in pairs if _all((probe,), facts) is not True), "")


def compile_match(match: Match, *, grants: bool = False) -> Matcher:
    """A match from the policy; ``grants`` if its rule lets somebody answer. Raises ValueError for an RE2 expression
    that does not compile."""
    parts = tuple(_spread(match))
    found = [condition for part in parts for condition in _compiled(part)]
    if all(part.mode is None for part in parts) and not any(part.kind == "sampling" for part in parts):
        found.insert(0, no_urls())
    elif grants and any("url" in listed(part.mode) for part in parts) and not any(part.scheme for part in parts):
        found.append(web_only())
    return Matcher(
        tuple(found),
        _probes(found),
        any(map(names_call, parts)),
        any(NO_CALL_NAME in listed(part.tool) for part in parts),
    )


def _spread(match: Match) -> Iterator[Match]:
    """The match and, where it negates nothing but a negation, what that says: ``not: {not: X}`` is X."""
    inner = match.not_
    if inner is not None and inner.not_ is not None and inner == Match(not_=inner.not_):
        yield Match(**{name: getattr(match, name) for name in match.__struct_fields__ if name != "not_"})
        yield from _spread(inner.not_)
    else:
        yield match


def _compiled(match: Match) -> Iterator[Condition | Negation]:
    yield from conditions(match)
    if match.not_ is not None:
        yield Negation(tuple(condition for part in _spread(match.not_) for condition in _compiled(part)))


class CompiledRule(msgspec.Struct, frozen=True):
    """A rule of the policy with its match compiled."""

    rule: Rule
    matcher: Matcher
    grants: bool
    """It lets somebody answer: then every candidate call must match, as any may be the one. A deny needs only one."""

    def holds(self, facts: Facts | Known) -> Holds:
        """Whether the match holds, None where it may."""
        return self.matcher.holds(facts, self.grants)

    def rest(self, known: Known) -> CompiledRule:
        """The same rule for requests of which ``known`` is true: only what that leaves open is asked. It does not
        surely fail on ``known``."""
        matcher = self.matcher
        pairs = [
            pair for pair in zip(matcher.conditions, matcher.probes, strict=True) if _all((pair[1],), known) is not True
        ]
        settled = known.calls is not UNKNOWN  # one call or none: whether the rule's tool and method fit has been seen
        conditions, probes = tuple(condition for condition, _ in pairs), tuple(probe for _, probe in pairs)
        return CompiledRule(
            self.rule,
            Matcher(conditions, probes, matcher.names_call and not settled, matcher.takes_no_call),
            self.grants,
        )

    def takes(self, facts: Facts | Known) -> bool:
        """Whether the rule takes a request. What is in doubt (a URL with two readings) is denied and never granted."""
        matcher = self.matcher
        held = matcher.holds(facts, self.grants) if matcher.names_call else _all(matcher.probes, facts)
        return held is True if self.grants else held is not False


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy that is ready to decide."""

    policy: Policy
    entries: tuple[CompiledRule, ...]
    environment: Mapping[str, str] = field(repr=False)
    """The variables that the policy's answers name; their values may be secrets."""
    finders: Mapping[str, Search] = field(default_factory=dict, repr=False, compare=False)
    """For `text` and `field_names`: finds what any expression of the rules finds."""
    catalogue: Catalogue = field(default_factory=dict, repr=False)
    """What is known of the models, by our names."""
    terms: Mapping[str, LimitSpec] = field(default_factory=dict, repr=False)
    """The limits by name."""
    redactor: Redactor | None = field(default=None, repr=False, compare=False)
    """Finds secrets; None where no rule looks for any."""
    scripts: Mapping[str, Script] = field(default_factory=dict, repr=False)
    """The cases of `answer` rules that have a file of them, by rule."""
    _models: Mapping[str, Model] = field(default_factory=dict, repr=False, compare=False)
    _shortlists: dict[tuple[object, ...], tuple[PlacedRule, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def shortlist(self, facts: Facts) -> tuple[PlacedRule, ...]:
        """The rules that may take such a request, going by who asks for what during which call; what that settles is
        not asked again.

        Remembered: few servers ask again and again during few tools. The same request gets the same list, remembered or
        not.
        """
        calls: Calls = facts.calls if len(facts.calls) < 2 else UNKNOWN
        key = (facts.kind, facts.mode, facts.server, facts.caller, facts.era, calls)
        found = self._shortlists.get(key)
        if found is None:
            if len(self._shortlists) >= _MAX_SHORTLISTS:
                self._shortlists.clear()
            names = ("kind", "mode", "is_url", "server", "caller", "era")
            known = Known(
                calls, {name: getattr(facts, name) for name in (names if facts.is_url else (*names, "is_web"))}
            )
            found = tuple(
                PlacedRule(index, entry.rest(known))
                for index, entry in enumerate(self.entries)
                if entry.holds(known) is not False
            )
            self._shortlists[key] = found
        return found

    def model(self, name: str) -> Model:
        """The policy's model of that name. Raises KeyError."""
        return self._models[name]

    def every(self) -> tuple[PlacedRule, ...]:
        """All the rules, whole."""
        return tuple(PlacedRule(index, entry) for index, entry in enumerate(self.entries))


class PlacedRule(NamedTuple):
    """A rule and its place in the policy."""

    place: int
    entry: CompiledRule


def compile_policy(
    policy: Policy,
    environment: Mapping[str, str],
    *,
    catalogue: Catalogue | None = None,
    detectors: Mapping[str, str] | None = None,
    scripts: Mapping[str, Script] | None = None,
) -> CompiledPolicy:
    """A policy ready to decide. Raises ValueError for an RE2 expression that does not compile: the loader has refused
    it before.

    ``catalogue`` is what is known of the models (None: what the policy itself says); ``detectors`` are known patterns
    of secrets by name, beside the policy's own; ``scripts`` are the cases of ``answer`` rules, by rule.
    """
    entries = tuple(_entry(rule) for rule in policy.rules)
    wanted = {
        name
        for rule in policy.rules
        if isinstance(rule, AnswerRule)
        for text in _texts(rule.content)
        for name in envfile.names(text)
    }
    searched = names(lambda row: row.is_searched)
    found = {
        name: any_of([pattern for rule in policy.rules for pattern in _patterns(rule.match, name)]) for name in searched
    }
    finders = {name: search for name, search in found.items() if search is not None}
    return CompiledPolicy(
        policy,
        entries,
        {name: environment[name] for name in wanted if name in environment},
        finders,
        known(policy.models, {}) if catalogue is None else catalogue,
        terms(policy),
        redactor(policy, detectors or {}),
        scripts or {},
        {model.name: model for model in policy.models},
    )


def _patterns(match: Match, condition: str) -> Iterator[str]:
    wanted = getattr(match, condition)
    if wanted is not None:
        yield wanted
    if match.not_ is not None:
        yield from _patterns(match.not_, condition)


def _entry(rule: Rule) -> CompiledRule:
    grants = not isinstance(rule, DenyRule)
    return CompiledRule(rule, compile_match(rule.match, grants=grants), grants)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def unnamed(book: CompiledPolicy, server: str) -> bool:
    """True if there are rules, and none can match a request of this server."""
    known = Known(UNKNOWN, {"server": server})
    return bool(book.entries) and all(entry.holds(known) is False for entry in book.entries)
