"""Pure. Coverage of a policy by its cases: the reached rules, and the reached arms of each rule.

Coverage is independent of whether the cases pass. `check` finds unreachable rules. A rule is reached by a request that
it really applied to: within its limits, or as a shadow rule. Its arms are

- each of several alternatives of a condition: reached if a request to which the rule applied has that value;
- its ``not``: reached if it is the only reason why the rule did not apply to a request;
- an ``otherwise`` or ``on_limit`` other than the default: reached if it was followed.

``on_timeout`` is an arm only of a rule that escalates, because a case can have `verdict: none`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from samplegate.policy.arguments import shown
from samplegate.policy.conditions import TABLE, conditions, listed, names
from samplegate.policy.facts import ABSENT, UNKNOWN, Facts
from samplegate.policy.match import CompiledPolicy, CompiledRule, Matcher, Negation
from samplegate.policy.schema import DenyRule, EscalateRule, Match
from samplegate.policytest.compare import RuleWalk
from samplegate.yamlfile import tree

_ALTERNATIVES: Final = names(lambda row: row.compared in ("names", "parts"))


class Missing(msgspec.Struct, frozen=True):
    """An unreached rule or arm: the line of the policy, the rule, and the case to add."""

    line: int
    rule: str
    what: str


class Coverage(msgspec.Struct, frozen=True):
    """The coverage of one policy."""

    rules: int
    rules_reached: int
    arms: int
    arms_reached: int
    missing: tuple[Missing, ...] = ()
    """Unreached rules and arms; the arms of an unreached rule are in its entry."""
    uncounted: tuple[Missing, ...] = ()

    @property
    def percent(self) -> float:
        """Coverage of rules and arms together; 100 for a policy without rules."""
        total = self.rules + self.arms
        return 100.0 if total == 0 else 100 * (self.rules_reached + self.arms_reached) / total


class _Walk:
    """A walk with the facts of its request, computed once for all rules."""

    def __init__(self, source: RuleWalk) -> None:
        self.source = source
        self.shadows = frozenset(shadow.rule for shadow in source.shadows)

    @cached_property
    def facts(self) -> Facts:
        return Facts(self.source.request)

    def applied(self, place: int, entry: CompiledRule) -> bool:
        """Whether the rule applied to the request, or would have as a shadow rule."""
        if entry.rule.shadow:
            return entry.rule.name in self.shadows
        return self.source.place == place and self.source.end in ("taken", "timeout")

    def considered(self, place: int) -> bool:
        return self.source.first <= place < self.source.first + self.source.looked


class _Arm(msgspec.Struct):
    """One arm of a rule: its key in the policy, the message if it is unreached, and the test of a walk."""

    path: tree.Path
    missing: str
    reached: Callable[[_Walk], bool]


def coverage(compiled: CompiledPolicy, walks: Iterable[RuleWalk], root: tree.Node) -> Coverage:
    """The coverage by ``walks``. ``root`` is the tree of the policy's text, for line numbers."""
    entered = [_Walk(walk) for walk in walks]
    rules_reached = arms = arms_reached = 0
    missing: list[Missing] = []
    for place, entry in enumerate(compiled.entries):
        path: tree.Path = ("rules", place)
        found = list(_arms(place, entry))
        open_arms = [arm for arm in found if not any(map(arm.reached, entered))]
        arms, arms_reached = arms + len(found), arms_reached + len(found) - len(open_arms)
        if any(walk.applied(place, entry) for walk in entered):
            rules_reached += 1
            missing += [
                Missing(tree.mark(root, (*path, *arm.path)).line, entry.rule.name, arm.missing) for arm in open_arms
            ]
        else:
            missing.append(Missing(tree.mark(root, path).line, entry.rule.name, _untaken(entry, len(open_arms))))
    return Coverage(
        len(compiled.entries),
        rules_reached,
        arms,
        arms_reached,
        tuple(missing),
        tuple(_uncounted(compiled.entries, root)),
    )


def _untaken(entry: CompiledRule, arms: int) -> str:
    what = "no case covers its effect as a shadow rule" if entry.rule.shadow else "no case covers its effect"
    verb = "is" if arms == 1 else "are"
    uncovered = f" ({arms} of its branches {verb} not covered either)" if arms else ""
    return f"{what}; add a case that this rule matches and decides{uncovered}"


def _uncounted(entries: Sequence[CompiledRule], root: tree.Node) -> Iterator[Missing]:
    for place, entry in enumerate(entries):
        on_timeout = getattr(entry.rule, "on_timeout", "unanswered")
        if on_timeout != "unanswered" and not entry.rule.shadow and not isinstance(entry.rule, EscalateRule):
            what = f"on_timeout: {on_timeout} is not counted, because cases take no time"
            yield Missing(tree.mark(root, ("rules", place, "on_timeout")).line, entry.rule.name, what)


def _arms(place: int, entry: CompiledRule) -> Iterator[_Arm]:
    yield from _alternatives(place, entry)
    without = _without_not(entry)
    if without is not None:
        yield _Arm(
            ("match", "not"),
            "its `not` excludes no case; add a case that only the `not` excludes",
            _kept_away(place, entry, without),
        )
    if entry.rule.shadow:
        return
    # a deny can always be carried out
    otherwise = "unanswered" if isinstance(entry.rule, DenyRule) else entry.rule.otherwise
    on_limit = getattr(entry.rule, "on_limit", "unanswered")
    if otherwise != "unanswered":
        what = f"otherwise: {otherwise} never applies; add a case that the rule matches but cannot carry out"
        yield _Arm(("otherwise",), what, lambda walk: walk.considered(place) and _fails(walk, place, entry))
    if isinstance(entry.rule, EscalateRule) and entry.rule.on_timeout != "unanswered":
        what = f"on_timeout: {entry.rule.on_timeout} never applies; add a case with `verdict: none`"
        yield _Arm(("on_timeout",), what, lambda walk: walk.source.place == place and walk.source.end == "timeout")
    if on_limit != "unanswered":
        what = f"on_limit: {on_limit} never applies; add a case with steps that use up a limit"
        yield _Arm(("on_limit",), what, lambda walk: walk.source.place == place and walk.source.end == "limit")


def _fails(walk: _Walk, place: int, entry: CompiledRule) -> bool:
    """Whether the rule matched and could not be carried out."""
    if walk.source.place == place:
        return walk.source.end == "otherwise"
    return entry.matches(walk.facts)


def _alternatives(place: int, entry: CompiledRule) -> Iterator[_Arm]:
    match = entry.rule.match
    for name in _ALTERNATIVES:
        choices = listed(getattr(match, name))
        for number, choice in enumerate(choices if len(choices) > 1 else []):
            what = f"{name}: no matching request has {tree.quoted(str(choice))}; add a case with it"
            yield _Arm(("match", name, number), what, _meets(place, entry, name, choice))
    for name in ("arguments", "claims"):
        for path, wanted in (getattr(match, name) or {}).items():
            for number, choice in enumerate(wanted if isinstance(wanted, list) and len(wanted) > 1 else []):
                what = f"{name}.{path}: no matching request has {shown([choice])}; add a case with it"
                yield _Arm(("match", name, path, number), what, _meets(place, entry, name, {path: choice}))


def _meets(place: int, entry: CompiledRule, name: str, choice: Any) -> Callable[[_Walk], bool]:
    only: dict[str, Any] = {name: choice if isinstance(choice, dict) else [choice]}
    (condition,) = conditions(Match(**only))

    def holds(walk: _Walk) -> bool:
        facts = walk.facts
        value = condition.read(facts)
        if value is ABSENT or value is UNKNOWN:
            return False
        parts = name in TABLE and TABLE[name].compared == "parts"
        return choice in value if parts else condition.test(value) is True

    def met(walk: _Walk) -> bool:
        if not walk.applied(place, entry):
            return False
        for _ in walk.facts.by_identity():
            for candidate in walk.facts.candidates(exactly=True) or (None,):
                walk.facts.during(candidate)
                if holds(walk):
                    return True
        return False

    return met


def _without_not(entry: CompiledRule) -> CompiledRule | None:
    """The rule without its ``not``, None if it has none."""
    matcher = entry.matcher
    pairs = [pair for pair in zip(matcher.conditions, matcher.probes, strict=True) if not isinstance(pair[0], Negation)]
    if len(pairs) == len(matcher.conditions):
        return None
    bare = Matcher(
        tuple(pair[0] for pair in pairs),
        tuple(pair[1] for pair in pairs),
        matcher.names_call,
        matcher.matches_no_call,
        matcher.names_arguments,
        matcher.names_identity,
    )
    return CompiledRule(entry.rule, bare, entry.grants)


def _kept_away(place: int, entry: CompiledRule, without: CompiledRule) -> Callable[[_Walk], bool]:
    return lambda walk: walk.considered(place) and not entry.matches(walk.facts) and without.matches(walk.facts)
