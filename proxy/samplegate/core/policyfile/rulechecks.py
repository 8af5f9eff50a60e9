"""What must hold within one rule: conditions that can hold together, an effect that suits its match, an answer that can be given."""

from __future__ import annotations

from typing import Any, Final

from samplegate.core.eras import CALLS
from samplegate.core.matching.conditions import NO_CALL_NAME, globs, names
from samplegate.core.policy import (
    AllowRule,
    AnswerRule,
    DenyRule,
    EscalateRule,
    ForwardRule,
    Match,
    ModelRule,
    Range,
    RuleBase,
    StopSequences,
    Temperature,
    With,
)
from samplegate.core.policyfile import modelchecks, timechecks
from samplegate.core.policyfile.answerchecks import check_answer
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.tree import Path, quoted

SAMPLING_ONLY: Final = names(lambda row: row.kind == "sampling")
FORM_ONLY: Final = names(lambda row: row.kind == "form")
URL_ONLY: Final = names(lambda row: row.kind == "url")
ELICITATION_ONLY: Final = names(lambda row: row.kind in ("elicitation", "form", "url"))
MAY_BE_EMPTY: Final = frozenset({"fields"})  # a form without fields asks for a mere yes


def check(draft: Draft) -> None:
    """Every rule by itself."""
    for index, rule in enumerate(draft.policy.rules):
        path: Path = ("rules", index)
        _match(draft, (*path, "match"), rule.match)
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
            timechecks.check(draft, path, rule.match, rule.timeout, (*path, "timeout"))
            if rule.timeout is None and draft.says(*path, "on_timeout") and draft.sound(*path, "timeout"):
                draft.warn((*path, "on_timeout"), "the rule gives no timeout, so this never happens; add one or remove the key", key=True)
        case EscalateRule():
            if rule.with_.models or draft.policy.models:
                _with(draft, path, rule)
            elif draft.says(*path, "with") and draft.sound("models"):
                draft.warn((*path, "with"), "the policy has no models, so nothing can be approved; add one under models or remove the key", key=True)
        case DenyRule():
            if draft.says(*path, "as") and rule.match.kind == "sampling":
                draft.problem((*path, "as"), "the key is for elicitations, and the match says kind: sampling; remove one of the two", key=True)
            if draft.says(*path, "otherwise"):
                draft.warn((*path, "otherwise"), "a deny can always be carried out, so this never happens; remove the key", key=True)


def _allow(draft: Draft, path: Path, rule: AllowRule) -> None:
    if rule.match.kind != "sampling" and draft.sound(*path, "match", "kind"):
        draft.problem((*path, "match"), "an allow is for sampling only; add `kind: sampling` to the match")
    if not draft.policy.models and draft.sound("models"):
        draft.problem((*path, "effect"), "the policy has no models, so nothing can be allowed; add one under models")
    _with(draft, path, rule)


def _with(draft: Draft, path: Path, rule: ModelRule) -> None:
    with_: Path = (*path, "with")
    if draft.policy.models or isinstance(rule, EscalateRule):
        modelchecks.known_models(draft, (*with_, "models"), rule.with_.models)
    if not rule.with_.models and draft.says(*with_, "models") and draft.sound(*with_, "models"):
        draft.problem((*with_, "models"), "the list is empty; name models, or remove the key for all of them")
    _bounds(draft, with_, rule.with_)
    timechecks.check(draft, path, rule.match, rule.with_.timeout, (*with_, "timeout"))


def _bounds(draft: Draft, path: Path, with_: With) -> None:
    for name in ("temperature", "stop_sequences"):
        value: Temperature | StopSequences | None = getattr(with_, name)
        if isinstance(value, Temperature) and draft.sound(*path, name):
            _range(draft, (*path, name), value.min, value.max)


def _range(draft: Draft, path: Path, least: float | None, most: float | None) -> None:
    if least is None and most is None:
        draft.problem(path, "neither min nor max is given; give one of them or remove the key")
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
                    draft.problem((*path, name, end), f"{getattr(value, end)} is below 0, and nothing counts that low; correct it")
    _kinds(draft, path, match)
    _call(draft, path, match)
    _fields(draft, path, match)
    if match.not_ is not None:
        inner: Path = (*path, "not")
        if match.not_ == Match() and draft.sound(*inner):
            draft.problem(inner, "`not` without conditions excludes everything; add a condition or remove it")
        _match(draft, inner, match.not_)


def _names(draft: Draft, path: Path, name: str, value: Any) -> None:
    """No list without members, no name without characters: neither can ever match."""
    if value == [] and name not in MAY_BE_EMPTY and draft.sound(*path):
        draft.problem(path, "the list is empty, so nothing can match; add a member or remove the key")
    for index, member in enumerate(value if isinstance(value, list) else [value]):
        at = (*path, index) if isinstance(value, list) else path
        if member == "" and draft.sound(*at):
            draft.problem(at, "the text is empty; give some or remove it")
        elif name == "host" and isinstance(member, str) and ("/" in member or "@" in member):
            draft.problem(at, f"{quoted(member)} is more than a host; write the host alone, as in *.example.com")
        elif name == "scheme" and isinstance(member, str) and (":" in member or "/" in member):
            draft.problem(at, f"{quoted(member)} is more than a scheme; write the scheme alone, as in https")


def _given(match: Match, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(match, name) is not None]


def _modes(match: Match) -> list[str]:
    return [] if match.mode is None else [match.mode] if isinstance(match.mode, str) else list(match.mode)


def _kinds(draft: Draft, path: Path, match: Match) -> None:
    """Conditions that no request meets together: of sampling and of elicitation, of forms and of URLs."""
    sampling, elicitation = _given(match, SAMPLING_ONLY), _given(match, ELICITATION_ONLY)
    if match.kind is not None:
        foreign, other = (elicitation, "elicitation") if match.kind == "sampling" else (sampling, "sampling")
        for name in foreign:
            draft.problem((*path, name), f"only {other} has this, and the match says kind: {match.kind}; remove one of the two", key=True)
    elif sampling and elicitation and draft.sound(*path, "kind"):
        draft.problem(
            path, f"only sampling has `{sampling[0]}` and only elicitation has `{elicitation[0]}`, so nothing can match; make two rules of it"
        )
    modes, forms, urls = _modes(match), _given(match, FORM_ONLY), _given(match, URL_ONLY)
    foreign, mode = (forms, "form") if modes == ["url"] else (urls, "url") if modes == ["form"] else ([], "")
    for name in foreign:
        draft.problem((*path, name), f"only mode {mode} has this, and the match says mode: {modes[0]}; remove one of the two", key=True)
    if forms and urls and not foreign and draft.sound(*path, "mode"):
        draft.problem(path, f"only forms have `{forms[0]}` and only urls have `{urls[0]}`, so nothing can match; make two rules of it")


def _url(draft: Draft, path: Path, match: Match) -> None:
    """A rule covers `mode: url` only if it says so (policies/README.md, "Conditions"); one that looks at a host and does not say so never matches."""
    for name in _given(match, URL_ONLY):
        if match.mode is None and match.kind != "sampling" and match.not_ is None and draft.sound(*path, "mode") and not _given(match, FORM_ONLY):
            draft.problem((*path, name), "a rule covers urls only if it says so; add `mode: url` to the match", key=True)


def _call(draft: Draft, path: Path, match: Match) -> None:
    """`tool` and `method` against what can be in flight at all."""
    tools = [match.tool] if isinstance(match.tool, str) else match.tool or []
    if match.method is None or not draft.sound(*path, "method"):
        return
    test, _ = globs(match.method)
    methods = [method for method in sorted(CALLS) if test(method)]
    if not methods:
        draft.problem((*path, "method"), f"no call that a server may ask during is named so; the calls are {', '.join(sorted(CALLS))}")
    elif tools and "tools/call" not in methods:
        draft.problem((*path, "tool"), f"only tools/call has a tool, and the match says method: {methods[0]}; remove one of the two", key=True)
    elif tools == [NO_CALL_NAME]:
        draft.problem((*path, "tool"), "`none` is no call in flight, and such a request has no method; remove one of the two", key=True)


def _fields(draft: Draft, path: Path, match: Match) -> None:
    if match.fields is None or match.has is None:
        return
    for index, name in enumerate(match.has):
        if name not in match.fields and draft.sound(*path, "fields") and draft.sound(*path, "has", index):
            draft.problem((*path, "has", index), f"{quoted(name)} is not among `fields`, which are all that the form has; add it there or remove it")
