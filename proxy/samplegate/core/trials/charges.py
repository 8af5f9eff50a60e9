"""What a step of a case comes to once its model has answered or failed: the worst case, less what is known. Asks no model."""

from __future__ import annotations

from typing import Literal

from samplegate.core import claims, costs
from samplegate.core.decide import Rulebook
from samplegate.core.decisions import Decision
from samplegate.core.ledger import Draw
from samplegate.core.trials.suite import FREE, Asked


def actual(
    book: Rulebook, decision: Decision, asked: Asked, draws: tuple[Draw, ...], act: Literal["ask", "answer", "nothing"] = "ask"
) -> tuple[Draw, ...]:
    """What the draws really come to by the step's ``usage`` and ``fails``; or where a person has answered or refused."""
    if act != "ask":  # a person was asked: that is a request, but no model's
        return claims.truth(draws, book.terms, None)
    allowed = decision.allowed
    if allowed is None:
        return draws
    if asked.fails in FREE:
        return claims.truth(draws, book.terms, None)
    if asked.usage is None:
        return draws
    model, params = allowed.models[0], allowed.params
    spent = costs.actual(book.model(model), book.catalogue[model], params, asked.usage.input_tokens, asked.usage.output_tokens)
    return claims.truth(draws, book.terms, spent)
