"""What a request may come to that a model answers, as `explain` shows it: which model and why, the worst case of each,
what limits it draws on.

Nothing is drawn: whether a limit has room at the moment is not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from samplegate.policy import cost, model_choice
from samplegate.policy.catalogue import Worst
from samplegate.policy.claims import Claimant
from samplegate.policy.decide import Rulebook, draws_of
from samplegate.policy.decisions import Decision
from samplegate.policy.facts import Facts
from samplegate.policy.ledger import SCALE, Draw, Quantity, Terms
from samplegate.policy.model_choice import Choice
from samplegate.policy.schema import AllowRule, EscalateRule
from samplegate.protocol.requests import Request

_UNIT: Final[dict[Quantity, str]] = {
    "requests": "requests",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "usd": "USD",
    "concurrent": "at once",
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """One account of one limit."""

    terms: Terms
    draw: Draw


@dataclass(frozen=True, slots=True)
class Spending:
    """The models in the order in which they are asked, and what is drawn. ``untold`` says why a draw cannot be told."""

    choice: Choice | None
    worst: dict[str, Worst]
    draws: Sequence[Drawn]
    untold: str | None


def spending(book: Rulebook, request: Request, decision: Decision) -> Spending:
    """Of a decision that was made for the request."""
    made = draws_of(book, decision, Claimant(request.origin, _calls(request), "its session", decision.rule or ""))
    draws, untold = ((), made) if isinstance(made, str) else (made, None)
    drawn = [Drawn(book.terms[draw.limit], draw) for draw in draws]
    rule = book.policy.rules[decision.index] if decision.index >= 0 else None
    allowed = decision.allowed
    if allowed is None or not isinstance(rule, AllowRule | EscalateRule):
        return Spending(None, {}, drawn, untold)
    choice = model_choice.choose(book, rule, Facts(request))
    worst = {}
    for model in choice.models:
        facts = book.catalogue[model.name]
        worst[model.name] = cost.worst(
            model, facts, model_choice.bounded(rule.with_, model, facts, request.params).params
        )
    first = allowed.models[0]
    worst[first] = cost.worst(book.model(first), book.catalogue[first], allowed.params)
    return Spending(choice, worst, drawn, untold)


def _calls(request: Request) -> tuple[str, ...]:
    """Names for the calls that the request may belong to: real ones are given by the session."""
    calls = len(request.origin.calls)
    if calls == 0:
        return ("its session, for there is no call",)
    return ("this call",) if calls == 1 else tuple(f"call {number} of {calls}" for number in range(1, calls + 1))


def report(spent: Spending) -> Iterator[str]:
    """A line for each model and each draw."""
    if spent.choice is not None:
        width = max(map(len, [*spent.worst, *spent.choice.unfit]))
        for number, (name, worst) in enumerate(spent.worst.items(), 1):
            yield f"model   {number:>3} {name:<{width}}  at worst {_worst(worst)}{_score(spent.choice, name)}"
        for name, why in spent.choice.unfit.items():
            yield f"model     - {name:<{width}}  not asked: {why}"
    for drawn in spent.draws:
        terms, draw = drawn.terms, drawn.draw
        by = f", for {', '.join(json.loads(draw.key))}" if draw.key != "[]" else ""
        yield (
            f"limit     {terms.name}: {_amount(terms, draw.amount)} of {_amount(terms, terms.most)}"
            f" {_UNIT[terms.quantity]}{_per(terms)}{by}"
        )
    if spent.untold is not None:
        yield f"limit     cannot be held: {spent.untold}"


def _worst(worst: Worst) -> str:
    usd = "its price is not known" if worst.usd is None else f"{_dollars(worst.usd)} USD"
    return f"{worst.input_tokens} tokens in and {worst.output_tokens} out, {usd}"


def _score(choice: Choice, name: str) -> str:
    score = choice.scores.get(name)
    if score is None:
        return ""
    return (
        f"; score {score.total:.2f} (cost {score.cost:.2f}, speed {score.speed:.2f}, intelligence"
        f" {score.intelligence:.2f})"
    )


def _amount(terms: Terms, amount: int) -> str:
    return _dollars(amount) if terms.quantity == "usd" else f"{amount / SCALE[terms.quantity]:.15g}"


def _dollars(units: int) -> str:
    """To a millionth of a dollar, or as small as it is."""
    dollars = units / SCALE["usd"]
    return f"{dollars:.6f}".rstrip("0").rstrip(".") if dollars >= 1e-6 or not units else f"{dollars:.3g}"


def _per(terms: Terms) -> str:
    match terms.per:
        case "bucket":
            return f" per {terms.period:g} s"
        case "slots":
            return ""
        case "day" | "month":
            return f" per {terms.per} ({terms.tz})"
        case _:
            return f" per {terms.per}"


def as_json(spent: Spending) -> dict[str, Any]:
    """The same for programs; dollars as numbers, null for an unknown price."""
    return {
        "choice": None if spent.choice is None else _choice_json(spent, spent.choice),
        "draws": [
            {
                "limit": drawn.terms.name,
                "key": drawn.draw.key,
                "quantity": drawn.terms.quantity,
                "amount": drawn.draw.amount / SCALE[drawn.terms.quantity],
                "of": drawn.terms.most / SCALE[drawn.terms.quantity],
            }
            for drawn in spent.draws
        ],
        "untold": spent.untold,
    }


def _choice_json(spent: Spending, choice: Choice) -> dict[str, Any]:
    return {
        "why": choice.why,
        "models": [
            {"name": name, "worst": _worst_json(worst), "score": _score_json(choice, name)}
            for name, worst in spent.worst.items()
        ],
        "unfit": dict(choice.unfit),
    }


def _worst_json(worst: Worst) -> dict[str, Any]:
    usd = None if worst.usd is None else worst.usd / SCALE["usd"]
    return {"input_tokens": worst.input_tokens, "output_tokens": worst.output_tokens, "usd": usd}


def _score_json(choice: Choice, name: str) -> dict[str, float] | None:
    score = choice.scores.get(name)
    if score is None:
        return None
    return {"total": score.total, "cost": score.cost, "speed": score.speed, "intelligence": score.intelligence}
