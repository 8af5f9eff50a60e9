"""Pure. Compiled matches of rules, and the compiled policy. ``decide.py`` chooses between rules and applies them.

A match is True, False, or None if a fact is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from samplegate.policy.catalogue import Catalogue, catalogue_of
from samplegate.policy.claims import limit_specs
from samplegate.policy.conditions import (
    NO_CALL_NAME,
    Condition,
    Holds,
    IdentityNames,
    conditions,
    identity_names,
    listed,
    names,
    names_arguments,
    names_call,
    names_identity,
    no_urls,
    web_only,
)
from samplegate.policy.facts import ABSENT, UNKNOWN, Calls, Candidate, Facts, Known
from samplegate.policy.ledger import LimitSpec
from samplegate.policy.redaction import Redactor, redactor
from samplegate.policy.schema import AnswerRule, DenyRule, Match, Model, Policy, Rule
from samplegate.regex import Search, any_of
from samplegate.yamlfile import envfile

if TYPE_CHECKING:
    from samplegate.policy.script import Script


__all__ = ["NO_CALL_NAME", "CompiledPolicy", "CompiledRule", "Matcher", "Negation", "compile_match", "compile_policy"]


_MAX_SHORTLISTS: Final = 256  # servers times callers times tools; bounded, because a client may invent tools


class Negation(msgspec.Struct, frozen=True):
    """``not``: holds if its inner conditions do not all hold."""

    inner: tuple[Condition | Negation, ...]

    def complaint(self, facts: Facts | Known) -> str:
        """Why it does not hold: the excluded conditions hold, or may hold."""
        names = ", ".join(c.name if isinstance(c, Condition) else "not" for c in self.inner) or "everything"
        return (
            f"not: the excluded conditions {'may match' if _all(_probes(self.inner), facts) is None else 'match'}"
            f" ({names})"
        )


Probe: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Holds], str]
"""A condition in its evaluated form: the read of a fact, the test of that value, and the condition's name."""


def _probes(conditions: Iterable[Condition | Negation]) -> tuple[Probe, ...]:
    return tuple(_probe(condition) for condition in conditions)


def _probe(condition: Condition | Negation) -> Probe:
    if isinstance(condition, Condition):
        return condition.read, condition.test, condition.name
    inner = _probes(condition.inner)

    def excluded(facts: Facts | Known) -> Holds:
        value = _all(inner, facts)
        return None if value is None else not value

    return _itself, excluded, "not"


def _itself(facts: Facts | Known) -> Facts | Known:
    return facts


def _all(probes: tuple[Probe, ...], facts: Facts | Known) -> Holds:
    """Whether all conditions hold."""
    result: Holds = True
    for read, test, _ in probes:
        value = read(facts)
        if value is ABSENT:
            return False
        held = None if value is UNKNOWN else test(value)
        if held is None:
            result = None
        elif not held:
            return False
    return result


def _missed(probes: tuple[Probe, ...], facts: Facts | Known, grants: bool) -> str:
    """The name of the first condition that rules a request out; empty if none does. An unknown value, marked with
    ``?``, rules it out only for a rule that ``grants``.

    One look-up and one test each: this is the inner loop of every decision.
    """
    for read, test, name in probes:
        value = read(facts)
        if value is ABSENT:
            return name
        held = None if value is UNKNOWN else test(value)
        if held is None:
            if grants:
                return f"{name}?"
        elif not held:
            return name
    return ""


class Matcher(msgspec.Struct, frozen=True):
    """A compiled match."""

    conditions: tuple[Condition | Negation, ...]
    probes: tuple[Probe, ...]
    names_call: bool
    """Whether it has a tool or method anywhere, also under ``not``."""
    matches_no_call: bool
    """Whether it has ``tool: none``, not under a ``not``."""
    names_arguments: bool = False
    """Whether it has arguments anywhere, also under ``not``."""
    names_identity: bool = False
    """Whether it has groups or claims anywhere, also under ``not``."""

    def holds(self, facts: Facts | Known, every: bool) -> Holds:
        """Whether it matches. With several candidate calls, or callers' tokens, ``every`` requires a match for all of
        them, otherwise one is enough (policies/conditions.md, "The call")."""
        if not self.names_identity:
            return self._holds(facts, every)
        return _combined([self._holds(facts, every) for _ in facts.by_identity()], every)

    def _holds(self, facts: Facts | Known, every: bool) -> Holds:
        if not self.names_call:
            return _all(self.probes, facts)
        calls = facts.calls
        if calls is UNKNOWN:
            # Without a call in flight the conditions may fail, so the result cannot be True.
            return _all(self.probes, facts) and None
        if not calls:
            return self._during(facts, None) if self.matches_no_call else False
        return _combined(
            [self._during(facts, candidate) for candidate in facts.candidates(self.names_arguments)], every
        )

    def _during(self, facts: Facts | Known, candidate: Candidate | None) -> Holds:
        facts.during(candidate)
        return _all(self.probes, facts)

    def missed(self, facts: Facts | Known, grants: bool) -> str:
        """The name of the first condition that rules a request out, as in ``_missed``; empty if it matches. A rule that
        ``grants`` must match all candidate calls and tokens, any other rule only one."""
        if not self.names_identity:
            return self._missed(facts, grants)
        return _overall([self._missed(facts, grants) for _ in facts.by_identity()], grants)

    def _missed(self, facts: Facts | Known, grants: bool) -> str:
        calls = facts.calls
        if not self.names_call or calls is UNKNOWN:
            return _missed(self.probes, facts, grants)
        if not calls and not self.matches_no_call:
            return "tool"
        missed: list[str] = []
        for candidate in facts.candidates(self.names_arguments) or (None,):
            facts.during(candidate)
            missed.append(_missed(self.probes, facts, grants))
        return _overall(missed, grants)

    def complaint(self, facts: Facts | Known) -> str:
        """The first condition that does not hold, as a sentence; with several candidates, for the first call or token
        that does not match."""
        if not self.names_identity:
            return self._complaint(facts)
        return next(filter(None, (self._complaint(facts) for _ in facts.by_identity())), "")

    def _complaint(self, facts: Facts | Known) -> str:
        if not self.names_call or facts.calls is UNKNOWN:
            return self._first(facts)
        if not facts.calls:
            if not self.matches_no_call:
                return "tool: no call is in flight, but the rule names a tool or method"
            facts.during(None)
            return self._first(facts)
        candidates = facts.candidates(self.names_arguments)
        for candidate in candidates:
            if self._during(facts, candidate) is not True:
                what = self._first(facts)
                return what if len(candidates) == 1 else f"{what} (one of {len(candidates)} calls in flight)"
        return ""

    def doubts_identity(self, known: Known) -> bool:
        """Whether one of its conditions with groups or claims cannot be judged."""
        pairs = zip(self.conditions, self.probes, strict=True)
        return any(_names_identity(condition) and _all((probe,), known) is None for condition, probe in pairs)

    def _first(self, facts: Facts | Known) -> str:
        pairs = zip(self.conditions, self.probes, strict=True)
        return next((condition.complaint(facts) for condition, probe in pairs if _all((probe,), facts) is not True), "")


def _names_identity(condition: Condition | Negation) -> bool:
    if isinstance(condition, Negation):
        return any(map(_names_identity, condition.inner))
    return condition.name == "groups" or condition.name.startswith("claims.")


def _combined(values: list[Holds], every: bool) -> Holds:
    """The result for several candidates: with ``every`` all must match, otherwise one is enough."""
    if len(values) == 1:
        return values[0]
    worst, best = (False, True) if every else (True, False)
    if worst in values:
        return worst
    return None if None in values else best


def _overall(missed: list[str], grants: bool) -> str:
    """The name of the condition that rules a request out, by those of several candidates."""
    return next(filter(None, missed), "") if grants else "" if "" in missed else missed[0]


def compile_match(match: Match, *, grants: bool = False) -> Matcher:
    """Compile a match of the policy. ``grants`` means that its rule leads to an answer. Raises ValueError for an
    invalid RE2 expression."""
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
        any(map(names_arguments, parts)),
        any(map(names_identity, parts)),
    )


def _spread(match: Match) -> Iterator[Match]:
    """The match. If its ``not`` has nothing but a ``not``, the inner match as well: ``not: {not: X}`` is X."""
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
    """A rule of the policy with its compiled match."""

    rule: Rule
    matcher: Matcher
    grants: bool
    """Whether it leads to an answer. Then every candidate call must match, because any may be the real one. A deny
    needs only one."""

    def holds(self, facts: Facts | Known) -> Holds:
        """Whether the match holds; None if it may."""
        return self.matcher.holds(facts, self.grants)

    def rest(self, known: Known) -> CompiledRule:
        """The rule for requests with these ``known`` facts, reduced to the conditions that these leave open. The rule
        must not fail on ``known``."""
        matcher = self.matcher
        pairs = [
            pair for pair in zip(matcher.conditions, matcher.probes, strict=True) if _all((pair[1],), known) is not True
        ]
        settled = known.calls is not UNKNOWN  # at most one call: the rule's tool and method are already evaluated
        conditions, probes = tuple(condition for condition, _ in pairs), tuple(probe for _, probe in pairs)
        return CompiledRule(
            self.rule,
            Matcher(
                conditions,
                probes,
                matcher.names_call and (matcher.names_arguments or not settled),
                matcher.matches_no_call,
                matcher.names_arguments,
                matcher.names_identity,
            ),
            self.grants,
        )

    def missed(self, facts: Facts) -> str:
        """The name of the first condition that rules a request out; empty if the rule applies to the request. A
        doubtful case (an ambiguous URL) is denied and never granted."""
        matcher = self.matcher
        if matcher.names_call or matcher.names_identity:
            return matcher.missed(facts, self.grants)
        return _missed(matcher.probes, facts, self.grants)

    def matches(self, facts: Facts) -> bool:
        """Whether the rule applies to a request."""
        return not self.missed(facts)

    def excluded(self, known: Known) -> str:
        """The name of the first condition that these facts rule out; empty if they leave the match open."""
        return self.matcher.missed(known, False) if self.holds(known) is False else ""


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy that is ready for decisions."""

    policy: Policy
    entries: tuple[CompiledRule, ...]
    environment: Mapping[str, str] = field(repr=False)
    """The variables in the policy's answers; their values may be secrets."""
    finders: Mapping[str, Search] = field(default_factory=dict, repr=False, compare=False)
    """For `text` and `field_names`: a search for all expressions of the rules at once."""
    catalogue: Catalogue = field(default_factory=dict, repr=False)
    """Facts about the models, by the policy's names."""
    limit_specs: Mapping[str, LimitSpec] = field(default_factory=dict, repr=False)
    """The limits by name."""
    redactor: Redactor | None = field(default=None, repr=False, compare=False)
    """Redacts secrets; None if no rule looks for them."""
    identity_names: IdentityNames = field(default_factory=IdentityNames, repr=False)
    """What rules name of a caller's identity."""
    scripts: Mapping[str, Script] = field(default_factory=dict, repr=False)
    """The case files of `answer` rules, by rule."""
    _models: Mapping[str, Model] = field(default_factory=dict, repr=False, compare=False)
    _shortlists: dict[tuple[object, ...], Shortlist] = field(default_factory=dict, repr=False, compare=False)

    def shortlist(self, facts: Facts) -> Shortlist:
        """The rules that may apply to requests with the same kind, mode, server, caller, era and call, reduced to the
        open conditions, and why the others do not apply.

        Lists are cached, because few servers ask repeatedly during few tools. Caching never changes a list.
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
            excluded = tuple(entry.excluded(known) for entry in self.entries)
            found = Shortlist(
                tuple(
                    PlacedRule(index, entry.rest(known))
                    for index, entry in enumerate(self.entries)
                    if not excluded[index]
                ),
                excluded,
            )
            self._shortlists[key] = found
        return found

    def model(self, name: str) -> Model:
        """The policy's model of that name. Raises KeyError."""
        return self._models[name]

    def every(self) -> Shortlist:
        """All rules with all their conditions."""
        rules = tuple(PlacedRule(index, entry) for index, entry in enumerate(self.entries))
        return Shortlist(rules, ("",) * len(rules))


class PlacedRule(NamedTuple):
    """A rule with its index in the policy."""

    place: int
    entry: CompiledRule


class Shortlist(NamedTuple):
    """The rules that may apply to a request, and by index the condition that excludes each of the others."""

    rules: tuple[PlacedRule, ...]
    excluded: tuple[str, ...]


def compile_policy(
    policy: Policy,
    environment: Mapping[str, str],
    *,
    catalogue: Catalogue | None = None,
    detectors: Mapping[str, str] | None = None,
    scripts: Mapping[str, Script] | None = None,
) -> CompiledPolicy:
    """Compile a policy for decisions. Raises ValueError for an invalid RE2 expression, which the loader would have
    rejected.

    ``catalogue`` has the facts about the models (None: the policy's own values). ``detectors`` are known patterns of
    secrets by name, in addition to the policy's own. ``scripts`` are the case files of ``answer`` rules, by rule.
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
        catalogue_of(policy.models, {}) if catalogue is None else catalogue,
        limit_specs(policy),
        redactor(policy, detectors or {}),
        identity_names(rule.match for rule in policy.rules),
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


def has_no_rule_for(compiled: CompiledPolicy, server: str) -> bool:
    """Whether there are rules, but none can match a request of this server."""
    known = Known(UNKNOWN, {"server": server})
    return bool(compiled.entries) and all(entry.holds(known) is False for entry in compiled.entries)
