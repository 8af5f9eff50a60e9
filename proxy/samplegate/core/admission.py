"""From a decision to what it draws on limits, and from a refused limit to the decision that follows. Pure: nothing is reserved here.

The gate asks a store with what stands here (``admit.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from samplegate.core import claims, costs
from samplegate.core.catalogue import Worst
from samplegate.core.claims import Claimant
from samplegate.core.decide import Rulebook, decide
from samplegate.core.decisions import Decision, DenyAs, LeftOpen, Reason, Situation
from samplegate.core.ledger import Draw
from samplegate.core.requests import Request


def draws_of(book: Rulebook, decision: Decision, who: Claimant) -> tuple[Draw, ...] | str:
    """What carrying a decision out draws at worst; or why that cannot be told, as a sentence for the log."""
    if not decision.limits:
        return ()
    who = msgspec.structs.replace(who, rule=decision.rule or "")
    allowed = decision.allowed
    if allowed is None:
        return claims.claim(decision.limits, book.terms, who, None)
    model = allowed.models[0]
    return claims.claim(decision.limits, book.terms, msgspec.structs.replace(who, model=model), worst_of(book, model, allowed.params))


def worst_of(book: Rulebook, model: str, params: Mapping[str, Any]) -> Worst:
    """The most that one call of a model of the policy may come to."""
    return costs.worst(book.model(model), book.catalogue[model], params)


def later(book: Rulebook, request: Request, situation: Situation, decision: Decision) -> Decision:
    """What the rules behind a decision's come to, with the shadows that were met before."""
    found = decide(book, request, situation, start=decision.index + 1)
    return msgspec.structs.replace(found, shadows=(*decision.shadows, *found.shadows))


def unless_taken(found: Decision, refused: Decision, what: str) -> Decision:
    """``found``, or where no later rule took it, that it was a limit of ``refused`` which left it unanswered."""
    if found.reason is not Reason.NO_RULE:
        return found
    return msgspec.structs.replace(found, rule=refused.rule, reason=Reason.LIMIT, detail=f"rule {refused.rule}: {what}; no later rule took it")


def after_refusal(book: Rulebook, request: Request, situation: Situation, decision: Decision, what: str) -> Decision:
    """The decision that follows where a limit has no room, by ``on_limit``; ``what`` says which and why, for the log."""
    detail = f"rule {decision.rule}: {what}"
    match decision.on_limit:
        case "next":
            return unless_taken(later(book, request, situation, decision), decision, what)
        case "deny":
            return msgspec.structs.replace(decision, act=DenyAs("cancel"), effect="deny", reason=Reason.LIMIT, detail=detail, limits=())
        case _:
            return msgspec.structs.replace(decision, act=LeftOpen(), effect="none", reason=Reason.LIMIT, detail=detail, limits=())
