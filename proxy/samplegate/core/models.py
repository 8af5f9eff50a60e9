"""Which models may answer a request, best first: the rule's list, what each takes, the server's hints, then the weights. Calls no model.

What the chosen one is asked is ``bounds.py``'s, what fits ``fitting.py``'s, what hints mean ``hints.py``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from samplegate.core.bounds import Asked, bounded, most_tokens
from samplegate.core.catalogue import ModelFacts
from samplegate.core.costs import worst_of
from samplegate.core.fitting import Asking, grouped, nobody, taken
from samplegate.core.hints import ALIKE, heard, meaning
from samplegate.core.matching.conditions import shown
from samplegate.core.matching.facts import Facts
from samplegate.core.policy import Model, ModelRule, Policy, Weights
from samplegate.core.scores import QUALITIES, Score, rank, wanted

if TYPE_CHECKING:
    from samplegate.core.matching.match import Rulebook

__all__ = ["Asked", "Choice", "Score", "bounded", "candidates", "choose"]

_UNKNOWN: Final = ModelFacts()


class Choice(msgspec.Struct, frozen=True):
    """The models that may answer, best first; none, and ``why`` says what no model can take."""

    models: tuple[Model, ...]
    why: str
    scores: Mapping[str, Score] = {}
    """By our names; empty where no weights were asked."""
    unfit: Mapping[str, str] = {}
    """The models of the rule that do not fit, and why not."""


def choose(book: Rulebook, rule: ModelRule, facts: Facts) -> Choice:
    """The rule's models (R21) that take the request, by the hints in their order (R19), then by weights (R20), else as they stand."""
    allowed = candidates(book.policy, rule)
    if not allowed:
        return Choice((), "the policy has no model for it")
    request = Asking(facts)
    unfit = {model.name: why for model in allowed if (why := request.misfit(rule.with_, model, _facts(book, model))) is not None}
    fitting = [model for model in allowed if model.name not in unfit] if unfit else allowed
    if not fitting:
        takes = {model.name: taken(model, _facts(book, model)) for model in allowed}
        return Choice((), nobody(request.needs, unfit, takes), unfit=unfit)
    if len(fitting) == 1:
        return Choice(tuple(fitting), _only(rule, unfit), unfit=unfit)
    weights, whose = wanted(rule.with_.prefer, facts.request.params.get("modelPreferences"))
    scores = {} if weights is None else _scores(book, rule, request, fitting, weights)
    ordered, why = _ordered(book.policy, fitting, scores, facts.request.params)
    if not why and weights is not None:
        why = _by_weights(ordered, scores, weights, whose)
    why = why or _first(rule, unfit)
    return Choice(tuple(ordered if rule.with_.fallback else ordered[:1]), why, scores, unfit)


def candidates(policy: Policy, rule: ModelRule) -> list[Model]:
    """The models that a rule allows, in its order."""
    by_name = {model.name: model for model in policy.models}
    names = dict.fromkeys(rule.with_.models or by_name)
    return [by_name[name] for name in names if name in by_name]


def _facts(book: Rulebook, model: Model) -> ModelFacts:
    return book.catalogue.get(model.name, _UNKNOWN)


def _scores(book: Rulebook, rule: ModelRule, request: Asking, fitting: Sequence[Model], weights: Weights) -> Mapping[str, Score]:
    usd: dict[str, int | None] = {}
    if weights.cost:
        for model in fitting:
            facts = _facts(book, model)
            usd[model.name] = worst_of(model, facts, request.reading, most_tokens(rule.with_, model, facts, request.params["maxTokens"])).usd
    return rank(fitting, weights, usd)


def _ordered(policy: Policy, fitting: Sequence[Model], scores: Mapping[str, Score], params: Mapping[str, Any]) -> tuple[list[Model], str]:
    """All of them, those first that the first hint means, then those of the next; and what the first hint that meant one said, "" if none did."""
    # where cost counts, a model of unknown price comes behind the dearest
    rest = sorted(fitting, key=lambda model: (-scores[model.name].total, scores[model.name].usd is None)) if scores else list(fitting)
    ordered: list[Model] = []
    why = ""
    for hint in heard(params):
        said, meant = meaning(policy, rest, hint.lower())
        if meant:
            why = why or f"hint {shown(hint)} {said}{_among(meant, scores, said)}"
            ordered += meant
            rest = [model for model in rest if model not in meant]
            if not rest:
                break
    return ordered + rest, why


def _among(meant: Sequence[Model], scores: Mapping[str, Score], said: str) -> str:
    """That the scores decided among several that one hint means; a list of the policy's hints is an order of its own."""
    return f"; the best of {len(meant)} by score, {scores[meant[0].name].total:.2f}" if scores and len(meant) > 1 and said == ALIKE else ""


def _by_weights(ordered: Sequence[Model], scores: Mapping[str, Score], weights: Weights, whose: str) -> str:
    """Why the first is first, in numbers."""
    counted = ", ".join(f"{name} {weight:g}" for name in QUALITIES if (weight := getattr(weights, name)))
    first, second = (scores[model.name] for model in ordered[:2])
    unpriced = [model.name for model in ordered if weights.cost and scores[model.name].usd is None]
    said = f"; no price is known of {', '.join(unpriced)}" if unpriced else ""
    return f"score {first.total:.2f} by {whose} ({counted}), before {ordered[1].name} with {second.total:.2f}{said}"


def _first(rule: ModelRule, unfit: Mapping[str, str]) -> str:
    return f"first of {_whose(rule)}{_left_out(unfit)}"


def _only(rule: ModelRule, unfit: Mapping[str, str]) -> str:
    return f"the only one of {_whose(rule)}{_left_out(unfit)}"


def _whose(rule: ModelRule) -> str:
    return "the rule's list" if rule.with_.models else "the policy's models"


def _left_out(unfit: Mapping[str, str]) -> str:
    return f" that fits ({grouped(unfit)})" if unfit else ""
