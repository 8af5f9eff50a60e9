"""Pure. The decision: a function from request, policy and situation to a Decision, with its model request and draws.

The first rule that matches and can be carried out wins. Without one, the request is not answered. A request for an
undeclared capability is denied if a rule denies it, else left unanswered. A ``detail`` names rules, fields and types,
never content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

from samplegate.policy import answers, claims, cost, model_choice, redaction
from samplegate.policy.catalogue import Worst
from samplegate.policy.claims import Claimant
from samplegate.policy.conditions import short_value
from samplegate.policy.decisions import (
    NO_MATCH,
    NOT_CARRIED_OUT,
    Act,
    Allowed,
    Decision,
    DenyAs,
    Escalated,
    FixedAnswer,
    Forwarded,
    LeftOpen,
    Misses,
    RuleStep,
    Shadow,
    Situation,
)
from samplegate.policy.facts import Facts
from samplegate.policy.ledger import Draw
from samplegate.policy.match import CompiledPolicy, compile_policy
from samplegate.policy.schema import (
    MAX_REVIEW_BYTES,
    AllowRule,
    AnswerRule,
    DenyRule,
    EscalateRule,
    ForwardRule,
    ModelRule,
    Otherwise,
    Rule,
    seconds,
)
from samplegate.protocol.elicitation_schema import NotFlat
from samplegate.protocol.outcomes import Reason
from samplegate.protocol.requests import Request

__all__ = ["CompiledPolicy", "compile_policy", "decide", "explain"]

Effect: TypeAlias = Literal["allow", "answer", "forward", "escalate", "deny"]


SHADOW: Final = "it matched, but it is a shadow rule"
NOT_DECLARED: Final = "the capability was not advertised to the server"


class Feasible(msgspec.Struct, frozen=True):
    """A rule whose effect can be carried out."""

    act: Act
    why: str = ""


class Infeasible(msgspec.Struct, frozen=True):
    """A rule whose effect cannot be carried out, as far as this is known in advance."""

    why: str


def decide(compiled: CompiledPolicy, request: Request, situation: Situation, start: int = 0) -> Decision:
    """The decision on a request. ``start`` is the first rule to consider: ``Decision.index`` + 1 for ``on_timeout:
    next``."""
    decision = _walk(compiled, request, situation, start, None)
    return decision if situation.declared else _undeclared(decision)


def explain(
    compiled: CompiledPolicy, request: Request, situation: Situation, start: int = 0
) -> tuple[Decision, list[RuleStep]]:
    """The decision, with every rule that was considered and why it did not match. The steps show actual values, the
    decision does not."""
    steps: list[RuleStep] = []
    decision = _walk(compiled, request, situation, start, steps)
    return (decision if situation.declared else _undeclared(decision)), steps


def _undeclared(found: Decision) -> Decision:
    """The decision on a request for an undeclared capability: a denial by a rule stays, everything else becomes
    unanswered (R8, R31)."""
    if isinstance(found.act, DenyAs):
        return msgspec.structs.replace(
            found, declared=False, detail=f"{NOT_DECLARED}{found.detail and f'; {found.detail}'}"
        )
    why = (
        found.detail if isinstance(found.act, LeftOpen) else f"rule {short_value(found.rule or '')} would have matched"
    )
    return Decision(
        LeftOpen(),
        "none",
        found.rule,
        Reason.NOT_OFFERED,
        f"{NOT_DECLARED}; {why}",
        shadows=found.shadows,
        declared=False,
        ruled=found.reason,
        missed=found.missed,
    )


def _walk(
    compiled: CompiledPolicy, request: Request, situation: Situation, start: int, steps: list[RuleStep] | None
) -> Decision:
    facts = Facts(request, compiled.finders) if steps is None else Facts(request)
    shadows: list[Shadow] = []
    tested: list[tuple[int, str, str]] = []
    passed = ""
    rules, excluded = compiled.shortlist(facts) if steps is None else compiled.every()
    for index, entry in rules:
        if index < start:
            continue
        rule = entry.rule
        if missed := entry.missed(facts):
            tested.append((index, missed, ""))
            if steps is not None:
                steps.append(_step(rule, False, entry.matcher.complaint(facts)))
            continue
        made = _carry_out(compiled, rule, facts, situation)
        if steps is not None:
            steps.append(_rule_step(rule, made))
        if rule.shadow:
            shadows.extend(_shadow(rule, made))
            tested.append((index, "", SHADOW))
        elif isinstance(made, Feasible):
            return _matched(rule, made, tuple(shadows), _misses(compiled, excluded, tested, start, index))
        else:
            passed = f"rule {short_value(rule.name)} could not be carried out: {made.why}"
            if rule.otherwise != "next":
                missed_rules = _misses(compiled, excluded, tested, start, index)
                return _not_carried_out(rule.otherwise, rule, passed, tuple(shadows), missed_rules)
            tested.append((index, "", f"{NOT_CARRIED_OUT}: {made.why}"))
    detail = f"{passed}; no later rule matched" if passed else NO_MATCH
    missed_rules = _misses(compiled, excluded, tested, start, len(compiled.entries))
    return Decision(LeftOpen(), "none", None, Reason.NO_RULE, detail, shadows=tuple(shadows), missed=missed_rules)


def _misses(
    compiled: CompiledPolicy, excluded: Sequence[str], tested: Sequence[tuple[int, str, str]], start: int, end: int
) -> Misses:
    return Misses(compiled.policy.rules, excluded, tested, start, end)


def _matched(rule: Rule, made: Feasible, shadows: tuple[Shadow, ...], missed: Misses) -> Decision:
    on_timeout: Otherwise = (
        rule.on_timeout if isinstance(rule, AllowRule | ForwardRule | EscalateRule) else "unanswered"
    )
    if isinstance(rule, DenyRule):
        return Decision(
            made.act, "deny", rule.name, Reason.RULE, made.why, on_timeout, missed.end, shadows, missed=missed
        )
    return Decision(
        made.act,
        effect_of(rule),
        rule.name,
        Reason.RULE,
        made.why,
        on_timeout,
        missed.end,
        shadows,
        tuple(rule.limits),
        rule.on_limit,
        missed=missed,
    )


def _not_carried_out(
    otherwise: Literal["unanswered", "deny"],
    rule: Rule,
    detail: str,
    shadows: tuple[Shadow, ...],
    missed: Misses,
) -> Decision:
    """Apply the ``otherwise`` of a rule that could not be carried out, the last that was looked at."""
    index = missed.end
    if otherwise == "deny":
        return Decision(
            DenyAs("cancel"), "deny", rule.name, Reason.CANNOT, detail, index=index, shadows=shadows, missed=missed
        )
    return Decision(LeftOpen(), "none", rule.name, Reason.CANNOT, detail, index=index, shadows=shadows, missed=missed)


def _carry_out(compiled: CompiledPolicy, rule: Rule, facts: Facts, situation: Situation) -> Feasible | Infeasible:
    match rule:
        case AllowRule():
            return _allow(compiled, rule, facts)
        case AnswerRule():
            result: Mapping[str, Any] | str = answers.answer(
                rule, facts, compiled.environment, compiled.scripts.get(rule.name)
            )
            return Infeasible(result) if isinstance(result, str) else Feasible(FixedAnswer(result))
        case ForwardRule():
            if not situation.can_forward:
                return Infeasible("the client did not declare the capability")
            return Feasible(Forwarded(rule.verify, _seconds(rule.timeout)))
        case EscalateRule():
            return _escalate(compiled, rule, facts)
        case DenyRule():
            return Feasible(DenyAs(rule.as_))
        case _ as never:
            assert_never(never)


def _escalate(compiled: CompiledPolicy, rule: EscalateRule, facts: Facts) -> Feasible | Infeasible:
    reviewer = compiled.policy.reviewers[rule.reviewer]
    timeout, late = seconds(rule.timeout or reviewer.timeout), seconds(reviewer.late_verdict)
    if facts.request.size > MAX_REVIEW_BYTES:
        return Infeasible(
            f"the request has {facts.request.size} bytes, but a review can have at most {MAX_REVIEW_BYTES}"
        )
    if facts.is_sampling:
        made = _allow(compiled, rule, facts)
        if isinstance(made, Feasible):
            assert isinstance(made.act, Allowed)
            return Feasible(Escalated(rule.reviewer, made.act, timeout, late), made.why)
        return Feasible(
            Escalated(rule.reviewer, None, timeout, late, made.why),
            f"reviewer {short_value(rule.reviewer)}; no model: {made.why}",
        )
    if not facts.is_url and isinstance(form := facts.form, NotFlat):
        return Infeasible(f"the form is not flat: {form.why}")  # T16: a reviewer could not fill it in
    shows = rule.ui == "show" and not facts.is_url
    origins = tuple(rule.ui_origins) if shows else ()
    return Feasible(
        Escalated(rule.reviewer, None, timeout, late, ui=shows, ui_origins=origins),
        f"reviewer {short_value(rule.reviewer)}",
    )


def _allow(compiled: CompiledPolicy, rule: ModelRule, facts: Facts) -> Feasible | Infeasible:
    if not facts.is_sampling:
        return Infeasible("models answer sampling only")
    if not facts.request.params["messages"]:
        return Infeasible("the request has no messages")
    choice = model_choice.choose(compiled, rule, facts)
    if not choice.models:
        return Infeasible(choice.why)
    names = tuple(model.name for model in choice.models)
    asked = model_params(compiled, rule, names[0], facts.request.params)
    if isinstance(asked, str):
        return Infeasible(asked)
    allowed = Allowed(
        names, asked.params, _seconds(rule.with_.timeout), asked.changed, asked.redacted, rule.review_answer
    )
    return Feasible(allowed, f"model {short_value(names[0])}: {choice.why}")


def _seconds(span: str | None) -> float | None:
    return None if span is None else seconds(span)


def effect_of(rule: Rule) -> Effect:
    """The name of a rule's effect."""
    match rule:
        case AllowRule():
            return "allow"
        case AnswerRule():
            return "answer"
        case ForwardRule():
            return "forward"
        case EscalateRule():
            return "escalate"
        case DenyRule():
            return "deny"
        case _ as never:
            assert_never(never)


def _shadow(rule: Rule, made: Feasible | Infeasible) -> list[Shadow]:
    """The result of a shadow rule; none if the request would have gone on to later rules."""
    if isinstance(made, Feasible):
        return [Shadow(rule.name, effect_of(rule))]
    return [] if rule.otherwise == "next" else [Shadow(rule.name, "deny" if rule.otherwise == "deny" else "none")]


def _rule_step(rule: Rule, made: Feasible | Infeasible) -> RuleStep:
    why = (
        made.why
        if isinstance(made, Feasible)
        else f"it matches but cannot be carried out: {made.why}; otherwise: {rule.otherwise}"
    )
    if rule.shadow:
        return _step(rule, False, f"shadow: {why or 'matches, recorded only'}")
    return _step(rule, isinstance(made, Feasible) or rule.otherwise != "next", why)


def _step(rule: Rule, taken: bool, why: str) -> RuleStep:
    return RuleStep(rule.name, effect_of(rule), taken, why)


class ModelParams(msgspec.Struct, frozen=True):
    """createMessage params for one model, the names of changed params, and the number of redacted secrets by
    pattern."""

    params: Mapping[str, Any]
    changed: tuple[str, ...] = ()
    redacted: Mapping[str, int] = msgspec.field(default_factory=dict)


def model_params(compiled: CompiledPolicy, rule: ModelRule, model: str, params: Mapping[str, Any]) -> ModelParams | str:
    """The params for ``model`` (the policy's name), or the reason for none if the rule stops at secrets."""
    asked = model_choice.bounded(rule.with_, compiled.model(model), compiled.catalogue[model], params)
    secrets = rule.with_.secrets
    if secrets is None or secrets.prompt == "keep" or compiled.redactor is None:
        return ModelParams(asked.params, asked.changed)
    clean, found = redaction.clean_params(compiled.redactor, asked.params)
    if not found:
        return ModelParams(asked.params, asked.changed)
    if secrets.prompt == "stop":
        return f"the prompt contains a secret ({', '.join(sorted(found))})"
    return ModelParams(clean, (*asked.changed, "secrets"), found)


def tool_misfit(params: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]]) -> str | None:
    """Why an answer's blocks do not fit the offered tools (R9): a tool that was not offered, or no tool although one
    was required. None if they fit."""
    offered = {tool["name"] for tool in params.get("tools") or ()}
    used = [block["name"] for block in blocks if block["type"] == "tool_use"]
    if not offered.issuperset(used):
        return "it uses a tool that was not offered"
    if offered and not used and (params.get("toolChoice") or {}).get("mode") == "required":
        return "it uses no tool although one was required"
    return None


def draws_of(compiled: CompiledPolicy, decision: Decision, who: Claimant) -> tuple[Draw, ...] | str:
    """The maximum draws of a decision, or the reason why they cannot be computed, as a sentence for the log."""
    if not decision.limits:
        return ()
    who = msgspec.structs.replace(who, rule=decision.rule or "")
    allowed = decision.allowed
    if allowed is None:
        return claims.charges_of(decision.limits, compiled.limit_specs, who, None)
    model = allowed.models[0]
    return claims.charges_of(
        decision.limits,
        compiled.limit_specs,
        msgspec.structs.replace(who, model=model),
        worst_of(compiled, model, allowed.params),
    )


def worst_of(compiled: CompiledPolicy, model: str, params: Mapping[str, Any]) -> Worst:
    """The upper bound for one call of a model of the policy."""
    return cost.worst(compiled.model(model), compiled.catalogue[model], params)


def decide_later(compiled: CompiledPolicy, request: Request, situation: Situation, decision: Decision) -> Decision:
    """The decision by the rules after the decision's own, with the earlier shadows."""
    found = decide(compiled, request, situation, start=decision.index + 1)
    missed = found.missed and msgspec.structs.replace(found.missed, before=decision.missed)
    return msgspec.structs.replace(found, shadows=(*decision.shadows, *found.shadows), missed=missed)


def unless_matched(found: Decision, refused: Decision, what: str) -> Decision:
    """``found``, or if no later rule matched, unanswered because of a limit of ``refused``."""
    if found.reason is not Reason.NO_RULE:
        return found
    return msgspec.structs.replace(
        found, rule=refused.rule, reason=Reason.LIMIT, detail=f"rule {refused.rule}: {what}; no later rule matched"
    )


def after_refusal(
    compiled: CompiledPolicy, request: Request, situation: Situation, decision: Decision, what: str
) -> Decision:
    """The decision by ``on_limit`` when a limit has no room; ``what`` names the limit and the reason for the log."""
    detail = f"rule {decision.rule}: {what}"
    match decision.on_limit:
        case "next":
            return unless_matched(decide_later(compiled, request, situation, decision), decision, what)
        case "deny":
            return msgspec.structs.replace(
                decision, act=DenyAs("cancel"), effect="deny", reason=Reason.LIMIT, detail=detail, limits=()
            )
        case _:
            return msgspec.structs.replace(
                decision, act=LeftOpen(), effect="none", reason=Reason.LIMIT, detail=detail, limits=()
            )
