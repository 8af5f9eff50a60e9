"""Pure. Checks of single rules and of their order: contradicting conditions, an effect that does not suit its match,
unreachable rules.

The content of an ``answer`` rule is checked against its kind of request. Messages do not show its values, because they
are content. A rule gets the warning "no request reaches this rule" only if that is certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from samplegate.policy.arguments import path_fault, path_of, source_fault, source_of
from samplegate.policy.conditions import NO_CALL_NAME, TABLE, globs, is_glob, listed, names, names_call
from samplegate.policy.file import model_checks, timeouts
from samplegate.policy.file.draft import Draft
from samplegate.policy.schema import (
    AllowRule,
    AnswerRule,
    ArgumentTest,
    DenyRule,
    EscalateRule,
    ForwardRule,
    Match,
    ModelRule,
    Policy,
    Range,
    Rule,
    RuleBase,
    StopSequences,
    Temperature,
    Wanted,
    With,
)
from samplegate.policy.script import bad_block, bad_value
from samplegate.protocol.frames import CALLS
from samplegate.secret_names import looks_secret
from samplegate.yamlfile import envfile
from samplegate.yamlfile.tree import Path, quoted

SAMPLING_ONLY: Final = names(lambda row: row.kind == "sampling")
FORM_ONLY: Final = names(lambda row: row.kind == "form")
URL_ONLY: Final = names(lambda row: row.kind == "url")
ELICITATION_ONLY: Final = names(lambda row: row.kind in ("elicitation", "form", "url"))
MAY_BE_EMPTY: Final = frozenset({"fields"})  # a form without fields asks for a confirmation only


def check(draft: Draft) -> None:
    """Check every rule by itself."""
    for index, rule in enumerate(draft.policy.rules):
        path: Path = ("rules", index)
        _match(draft, (*path, "match"), rule.match)
        if not isinstance(rule, DenyRule):
            warn_of_path_globs(draft, (*path, "match"), rule.match)
        _url(draft, (*path, "match"), rule.match)
        if draft.sound(*path, "effect"):
            _effect(draft, path, rule)


def _effect(draft: Draft, path: Path, rule: RuleBase) -> None:
    match rule:
        case AllowRule():
            _allow(draft, path, rule)
        case AnswerRule():
            check_answer(draft, path, rule)
        case ForwardRule():
            timeouts.check_timeout(draft, path, rule.match, rule.timeout, (*path, "timeout"))
            if rule.timeout is None and draft.has_value(*path, "on_timeout") and draft.sound(*path, "timeout"):
                draft.warn(
                    (*path, "on_timeout"),
                    "the rule has no timeout, so the key has no effect; add one or remove the key",
                    key=True,
                )
        case EscalateRule():
            if rule.with_.models or draft.policy.models:
                _with(draft, path, rule)
            elif draft.has_value(*path, "with") and draft.sound("models"):
                draft.warn(
                    (*path, "with"),
                    "the policy has no models, so nothing can be approved; add one under models or remove the key",
                    key=True,
                )
        case DenyRule():
            if draft.has_value(*path, "as") and rule.match.kind == "sampling":
                draft.problem(
                    (*path, "as"),
                    "the key is for elicitations, but the match has `kind: sampling`; remove one of the two",
                    key=True,
                )
            if draft.has_value(*path, "otherwise"):
                draft.warn(
                    (*path, "otherwise"),
                    "a deny rule can always be carried out, so the key has no effect; remove it",
                    key=True,
                )


def _allow(draft: Draft, path: Path, rule: AllowRule) -> None:
    if rule.match.kind != "sampling" and draft.sound(*path, "match", "kind"):
        draft.problem((*path, "match"), "an allow rule is for sampling only; add `kind: sampling` to the match")
    if not draft.policy.models and draft.sound("models"):
        draft.problem((*path, "effect"), "the policy has no models, so nothing can be allowed; add one under models")
    _with(draft, path, rule)


def _with(draft: Draft, path: Path, rule: ModelRule) -> None:
    with_: Path = (*path, "with")
    if draft.policy.models or isinstance(rule, EscalateRule):
        model_checks.known_models(draft, (*with_, "models"), rule.with_.models)
    if not rule.with_.models and draft.has_value(*with_, "models") and draft.sound(*with_, "models"):
        draft.problem((*with_, "models"), "the list is empty; add models, or remove the key to use all of them")
    _bounds(draft, with_, rule.with_)
    timeouts.check_timeout(draft, path, rule.match, rule.with_.timeout, (*with_, "timeout"))


def _bounds(draft: Draft, path: Path, with_: With) -> None:
    for name in ("temperature", "stop_sequences"):
        value: Temperature | StopSequences | None = getattr(with_, name)
        if isinstance(value, Temperature) and draft.sound(*path, name):
            _range(draft, (*path, name), value.min, value.max)


def _range(draft: Draft, path: Path, least: float | None, most: float | None) -> None:
    if least is None and most is None:
        draft.problem(path, "neither min nor max is set; set one of them or remove the key")
    elif least is not None and most is not None and least > most:
        draft.problem(path, f"min {least:g} is above max {most:g}; swap them")


def _match(draft: Draft, path: Path, match: Match) -> None:
    for name in match.__struct_fields__:
        value = getattr(match, name)
        _names(draft, (*path, name), name, value)
        if isinstance(value, Range) and draft.sound(*path, name):
            _range(draft, (*path, name), value.min, value.max)
            for end in ("min", "max"):
                if (getattr(value, end) or 0) < 0:
                    draft.problem((*path, name, end), f"{getattr(value, end)} is negative; use 0 or more")
    _kinds(draft, path, match)
    _call(draft, path, match)
    _values(draft, path, "arguments", match.arguments)
    _values(draft, path, "claims", match.claims)
    _fields(draft, path, match)
    if match.not_ is not None:
        inner: Path = (*path, "not")
        if match.not_ == Match() and draft.sound(*inner):
            draft.problem(inner, "`not` without conditions excludes everything; add a condition or remove it")
        _match(draft, inner, match.not_)


def _names(draft: Draft, path: Path, name: str, value: Any) -> None:
    """Report empty lists and empty texts, because they never match, and hosts and schemes with other parts of a URL."""
    if value == [] and name not in MAY_BE_EMPTY and draft.sound(*path):
        draft.problem(path, "the list is empty, so nothing can match; add an item or remove the key")
    for index, member in enumerate(value if isinstance(value, list) else [value]):
        at = (*path, index) if isinstance(value, list) else path
        if member == "" and draft.sound(*at):
            draft.problem(at, "the string is empty; set a value or remove it")
        elif name == "host" and isinstance(member, str) and ("/" in member or "@" in member):
            draft.problem(at, f"{quoted(member)} is not just a host; write only the host, such as *.example.com")
        elif name == "scheme" and isinstance(member, str) and (":" in member or "/" in member):
            draft.problem(at, f"{quoted(member)} is not just a scheme; write only the scheme, such as https")


def _given(match: Match, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(match, name) is not None]


def _modes(match: Match) -> list[str]:
    return [] if match.mode is None else [match.mode] if isinstance(match.mode, str) else list(match.mode)


def _kinds(draft: Draft, path: Path, match: Match) -> None:
    """Report conditions that no request satisfies together: of sampling and elicitation, of forms and URLs."""
    sampling, elicitation = _given(match, SAMPLING_ONLY), _given(match, ELICITATION_ONLY)
    if match.kind is not None:
        foreign, other = (elicitation, "elicitation") if match.kind == "sampling" else (sampling, "sampling")
        for name in foreign:
            draft.problem(
                (*path, name),
                f"the condition is for {other} only, but the match has `kind: {match.kind}`; remove one of the two",
                key=True,
            )
    elif sampling and elicitation and draft.sound(*path, "kind"):
        draft.problem(
            path,
            f"`{sampling[0]}` is for sampling only and `{elicitation[0]}` for elicitation only, so nothing can match;"
            " split this into two rules",
        )
    modes, forms, urls = _modes(match), _given(match, FORM_ONLY), _given(match, URL_ONLY)
    foreign, mode = (forms, "form") if modes == ["url"] else (urls, "url") if modes == ["form"] else ([], "")
    for name in foreign:
        draft.problem(
            (*path, name),
            f"the condition is for mode {mode} only, but the match has `mode: {modes[0]}`; remove one of the two",
            key=True,
        )
    if forms and urls and not foreign and draft.sound(*path, "mode"):
        draft.problem(
            path,
            f"`{forms[0]}` is for forms only and `{urls[0]}` for URLs only, so nothing can match; split this into two"
            " rules",
        )


def _url(draft: Draft, path: Path, match: Match) -> None:
    """Report a condition on a URL without `mode: url`. A rule matches URLs only with it (policies/conditions.md,
    "Conditions"), so this one would never match."""
    for name in _given(match, URL_ONLY):
        if (
            match.mode is None
            and match.kind != "sampling"
            and match.not_ is None
            and draft.sound(*path, "mode")
            and not _given(match, FORM_ONLY)
        ):
            draft.problem(
                (*path, name), "a rule matches URLs only if it has `mode: url`; add it to the match", key=True
            )


def _call(draft: Draft, path: Path, match: Match) -> None:
    """Check `tool` and `method` against the calls that can be in flight."""
    tools = [match.tool] if isinstance(match.tool, str) else match.tool or []
    if match.arguments is not None and tools == [NO_CALL_NAME]:
        draft.problem(
            (*path, "arguments"),
            "`tool: none` means that no call is in flight, so there are no arguments; remove one of the two",
            key=True,
        )
    if match.method is None or not draft.sound(*path, "method"):
        return
    test, _ = globs(match.method)
    methods = [method for method in sorted(CALLS) if test(method)]
    if not methods:
        draft.problem(
            (*path, "method"),
            f"servers cannot send requests during this method; use one of {', '.join(sorted(CALLS))}",
        )
    elif tools and "tools/call" not in methods:
        draft.problem(
            (*path, "tool"),
            f"only tools/call has a tool, but the match has `method: {methods[0]}`; remove one of the two",
            key=True,
        )
    elif match.arguments is not None and methods == ["resources/read"]:
        draft.problem(
            (*path, "arguments"),
            "resources/read has no arguments, so nothing can match; remove one of the two",
            key=True,
        )
    elif tools == [NO_CALL_NAME]:
        draft.problem(
            (*path, "tool"),
            "`tool: none` means that no call is in flight, so there is no method; remove one of the two",
            key=True,
        )


def _values(draft: Draft, path: Path, key: str, tests: Mapping[str, Wanted] | None) -> None:
    """Check `arguments` or `claims`: the paths, and tests that no value satisfies."""
    if tests == {} and draft.sound(*path, key):
        draft.problem((*path, key), f"the mapping is empty; add {_ITEMS[key]} or remove the key")
    for name, wanted in (tests or {}).items():
        at: Path = (*path, key, name)
        try:
            path_of(name)
        except ValueError as problem:
            draft.problem(at, str(problem), key=True)
        if wanted == [] and draft.sound(*at):
            draft.problem(at, "the list is empty, so nothing can match; add an item or remove the key")
        if isinstance(wanted, ArgumentTest) and draft.sound(*at):
            _argument_test(draft, at, wanted)


_ITEMS: Final = {"arguments": "an argument", "claims": "a claim"}


def _argument_test(draft: Draft, at: Path, wanted: ArgumentTest) -> None:
    ranged = wanted.min is not None or wanted.max is not None
    if wanted == ArgumentTest():
        draft.problem(at, "the test is empty; set min, max, matches, under or absent")
    elif ranged and (wanted.matches is not None or wanted.under is not None):
        draft.problem(at, "min and max are for numbers, matches and under for texts, so nothing can match; remove one")
    elif ranged:
        _range(draft, at, wanted.min, wanted.max)
    folders = listed(wanted.under)
    if wanted.under == []:
        draft.problem((*at, "under"), "the list is empty, so nothing can match; add an item or remove the key")
    for index, folder in enumerate(folders):
        fault = path_fault(folder)
        if fault is not None:
            where = (*at, "under", index) if isinstance(wanted.under, list) else (*at, "under")
            draft.problem(where, f"{quoted(folder)} {fault}; write an absolute path without a slash at its end")


def warn_of_path_globs(draft: Draft, path: Path, match: Match) -> None:
    """Warn of globs for arguments of a rule that grants, if they look like paths: `*` also matches `/` and `..`."""
    for name, wanted in (match.arguments or {}).items():
        several = isinstance(wanted, list)
        for index, value in enumerate(wanted if isinstance(wanted, list) else [wanted]):
            if isinstance(value, str) and is_glob(value) and ("/" in value or "\\" in value):
                at = (*path, "arguments", name, index) if several else (*path, "arguments", name)
                draft.warn(
                    at,
                    f"{quoted(value)} compares text: `*` also matches `/` and `..`, so that paths elsewhere may match;"
                    " use `under` for a folder",
                )
    if match.not_ is not None:
        warn_of_path_globs(draft, (*path, "not"), match.not_)


def _fields(draft: Draft, path: Path, match: Match) -> None:
    if match.fields is None or match.has is None:
        return
    for index, name in enumerate(match.has):
        if name not in match.fields and draft.sound(*path, "fields") and draft.sound(*path, "has", index):
            draft.problem(
                (*path, "has", index),
                f"{quoted(name)} is not in `fields`, which lists all fields of the form; add it there or remove it",
            )


_ALWAYS_THERE: Final = frozenset({"server", "caller"})
"""Facts that every request has, so that `*` is not a condition."""


class _Shape(msgspec.Struct, frozen=True):
    """The parts of a rule to compare. Lists are sets, so that a thousand rules are compared quickly."""

    match: Match
    given: tuple[tuple[str, Any], ...]
    conditions: Mapping[str, Any]
    is_deny: bool
    names_call: bool
    may_be_url: bool
    web_only: bool
    """Whether it matches only http and https URLs, because it grants and names no other scheme."""
    doubts: bool
    """Whether it reads a fact that may be unknown. A deny matches such a request, a grant does not."""
    takes_all: bool


def _shape(rule: Rule) -> _Shape:
    match = rule.match
    conditions = _conditions(match)
    given = tuple(
        (name, value) for name, value in conditions.items() if not (name in _ALWAYS_THERE and "*" in value.names)
    )
    is_deny = isinstance(rule, DenyRule)
    web_only = not is_deny and (
        match.scheme is None or {name.lower() for name in listed(match.scheme)} <= {"http", "https"}
    )
    return _Shape(
        match,
        given,
        conditions,
        is_deny,
        names_call(match),
        _may_be_url(match),
        web_only,
        _doubts(match),
        _takes_all(rule),
    )


class _Names(NamedTuple):
    """The members of a list or a single name, and whether one of them is a glob."""

    names: frozenset[str]
    has_glob: bool


def _conditions(match: Match) -> dict[str, Any]:
    """The conditions of a match, in a form that can be compared."""
    given = {name: getattr(match, name) for name in match.__struct_fields__}
    return {name: _comparable(name, value) for name, value in given.items() if value is not None}


def _comparable(name: str, value: Any) -> Any:
    if name in TABLE and TABLE[name].compared in ("names", "parts"):
        names = frozenset([value] if isinstance(value, str) else value)
        return _Names(names, any(map(is_glob, names)))
    if name in _ITEMS:
        return {path: _strict(wanted) for path, wanted in value.items()}
    if isinstance(value, Match):
        return _conditions(value)
    return frozenset(value) if isinstance(value, list) else value


def _strict(wanted: Wanted) -> object:
    """A test of an argument, or its values with their types, because `1` and `true` are different."""
    if isinstance(wanted, ArgumentTest):
        return wanted
    return frozenset((type(value).__name__, value) for value in (wanted if isinstance(wanted, list) else [wanted]))


def check_reach(draft: Draft) -> None:
    """Warn of every unreachable rule, with the first earlier rule that matches all of its requests."""
    rules = draft.policy.rules
    takers: list[tuple[int, _Shape]] = []
    for index, rule in enumerate(rules):
        if not draft.sound("rules", index):
            continue
        shape = _shape(rule)
        taker = next((place for place, earlier in takers if _covers(earlier, shape)), None)
        if taker is not None:
            line, name = draft.line(("rules", taker)), quoted(rules[taker].name)
            draft.warn(
                ("rules", index),
                f"no request reaches this rule: rule {name} on line {line} matches them all; move this one up or"
                " remove it",
            )
        elif shape.takes_all:
            takers.append((index, shape))


def _takes_all(rule: Rule) -> bool:
    """Whether no request that the rule matches goes on to later rules."""
    if rule.shadow:
        return False
    if isinstance(rule, DenyRule):
        return True
    timed = isinstance(rule, AllowRule | ForwardRule | EscalateRule) and rule.on_timeout == "next"
    limited = bool(rule.limits) and rule.on_limit == "next"
    return rule.otherwise != "next" and not timed and not limited


def _covers(first: _Shape, later: _Shape) -> bool:
    """Whether ``first`` matches every request that ``later`` matches."""
    for name, value in first.given:
        if name not in later.conditions or not _implied(name, value, later.conditions[name]):
            return False
    if (first.names_call or first.doubts) and not first.is_deny and later.is_deny:
        # of several candidate calls, a deny needs one, other effects need all (policies/conditions.md, "The call")
        return False
    if first.web_only and later.may_be_url and not later.web_only and first.match.scheme is None:
        return False
    return first.match.mode is not None or first.match.kind == "sampling" or not later.may_be_url


def _doubts(match: Match) -> bool:
    names = [*_ITEMS, *(row.name for row in TABLE.values() if row.doubtful)]
    return bool(_given(match, tuple(names))) or (match.not_ is not None and _doubts(match.not_))


def _may_be_url(match: Match) -> bool:
    """Whether a rule may match URLs: it has ``mode: url``, or a mode under a `not`."""
    return (match.mode is not None and match.mode != "form") or (
        match.not_ is not None and match.not_ != Match(mode="url") and _speaks(match.not_)
    )


def _speaks(match: Match) -> bool:
    return match.mode is not None or (match.not_ is not None and _speaks(match.not_))


def _implied(name: str, wide: Any, narrow: Any) -> bool:
    """Whether every value that satisfies ``narrow`` satisfies ``wide``."""
    if wide == narrow:
        return True
    if name in _ITEMS:
        return all(path in narrow and _implied_argument(wide[path], narrow[path]) for path in wide)
    if isinstance(wide, _Names):
        return narrow.names <= wide.names or (name in _ALWAYS_THERE and _all_meet(narrow, wide))
    if name in TABLE and TABLE[name].compared == "at_least":
        return bool(wide <= narrow)
    return isinstance(wide, Range) and isinstance(narrow, Range) and _within(narrow, wide)


def _implied_argument(wide: Any, narrow: Any) -> bool:
    """Whether every argument that satisfies ``narrow`` satisfies ``wide``. If ``wide`` had more types, it would judge
    values that ``narrow`` cannot judge, and which a deny matches."""
    if isinstance(wide, frozenset) and isinstance(narrow, frozenset):
        return narrow <= wide and {kind for kind, _ in narrow} == {kind for kind, _ in wide}
    return bool(wide == narrow)


def _within(narrow: Range, wide: Range) -> bool:
    low = wide.min is None or (narrow.min is not None and narrow.min >= wide.min)
    return low and (wide.max is None or (narrow.max is not None and narrow.max <= wide.max))


def _all_meet(narrow: _Names, wide: _Names) -> bool:
    """Whether every plain name matches one of the globs."""
    if narrow.has_glob or not wide.has_glob:
        return False
    test, _ = globs(sorted(wide.names))
    return all(map(test, narrow.names))


def check_answer(draft: Draft, path: Path, rule: AnswerRule) -> None:
    """Check that the rule can answer the requests that it matches."""
    kind = rule.match.kind
    content: Path = (*path, "content")
    if draft.has_value(*path, "cases"):
        _cases(draft, path, rule)
        return
    if kind is None and draft.sound(*path, "match", "kind"):
        draft.problem(
            (*path, "match"), "an answer rule needs a kind; add `kind: sampling` or `kind: elicitation` to the match"
        )
    if rule.content is None and draft.has_value(*content):
        draft.problem(content, "the value is missing; set one or remove the key")
    elif rule.content is None and not rule.defaults and draft.sound(*content) and draft.sound(*path, "defaults"):
        more = ", `defaults: true`" if kind != "sampling" else ""
        draft.problem(path, f"the rule has no answer; add `content`{more} or `cases`")
    for at, text in texts(rule.content, content):
        if draft.sound(*at) and (why := envfile.fault(text)) is not None:
            draft.problem(at, why)
    if kind == "sampling":
        _sampling(draft, path, rule)
    elif kind == "elicitation":
        _elicitation(draft, path, rule)


def _cases(draft: Draft, path: Path, rule: AnswerRule) -> None:
    """Check a rule with `cases`, which answers both kinds and has no other content."""
    for name in ("content", "defaults"):
        if draft.has_value(*path, name):
            draft.problem((*path, name), "the rule answers from its `cases`; remove one of the two", key=True)
    if rule.cases is not None and not rule.cases.strip() and draft.sound(*path, "cases"):
        draft.problem((*path, "cases"), "the file name is empty; set one, relative to this file")


def unset(policy: Policy, environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Every variable of an answer that is not set in the environment, with its path."""
    for index, rule in enumerate(policy.rules):
        if isinstance(rule, AnswerRule):
            for path, text in texts(rule.content, ("rules", index, "content")):
                yield from ((path, name) for name in dict.fromkeys(envfile.names(text)) if name not in environment)


def texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every text in plain data, with its path."""
    match value:
        case str():
            yield path, value
        case list():
            for index, item in enumerate(value):
                yield from texts(item, (*path, index))
        case dict():
            for key, item in value.items():
                yield from texts(item, (*path, key))
        case _:
            pass


def _sampling(draft: Draft, path: Path, rule: AnswerRule) -> None:
    content: Path = (*path, "content")
    if draft.has_value(*path, "defaults"):
        draft.problem(
            (*path, "defaults"),
            "the key is for elicitations, but the match has `kind: sampling`; remove one of the two",
            key=True,
        )
    if rule.content is None or isinstance(rule.content, str) or not draft.sound(*content):
        return
    if not isinstance(rule.content, list) or not rule.content:
        draft.problem(
            content,
            "an answer to sampling is a string or a list of content blocks; quote a number, and put a single block in"
            " a list",
        )
        return
    for index, block in enumerate(rule.content):
        if (why := bad_block(block)) is not None:
            draft.problem((*content, index), why)


def _elicitation(draft: Draft, path: Path, rule: AnswerRule) -> None:
    modes = [rule.match.mode] if isinstance(rule.match.mode, str) else rule.match.mode or []
    if "url" in modes:
        draft.problem((*path, "match", "mode"), "the gate never accepts a URL; use forward or deny for `mode: url`")
    content: Path = (*path, "content")
    if rule.content is None or not draft.sound(*content):
        return
    if not isinstance(rule.content, dict):
        draft.problem(
            content, "an answer to an elicitation is a mapping from field names to values; write {field: value}"
        )
        return
    fields = rule.match.fields if draft.sound(*path, "match", "fields") else None
    for name, value in rule.content.items():
        _field(draft, (*content, name), value, fields)


def _field(draft: Draft, path: Path, value: Any, fields: list[str] | None) -> None:
    name = str(path[-1])
    why = bad_value(value) if source_of(value) is None else source_fault(source_of(value))
    if why is not None:
        draft.problem(path, why)
    if looks_secret(name) and not isinstance(value, bool):
        draft.warn(
            path, "the field looks like a secret, and the gate never fills in secrets; use forward or deny", key=True
        )
    if fields is not None and name not in fields:
        draft.warn(
            path,
            "the field is not in the `fields` of the match, so it is never sent; add it there or remove it",
            key=True,
        )
