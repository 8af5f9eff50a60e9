"""Acting on one request: a model samples (``sampling.py``), fixed content answers, the client is asked, a rule refuses. Time-outs are kept here.

Not the decision, and not the record: those stand before and behind, in ``gate.py``.
"""

from __future__ import annotations

from typing import Final, assert_never

import anyio
import msgspec

from samplegate.admit import admit
from samplegate.core import jsontext
from samplegate.core.admission import later
from samplegate.core.answers import fits
from samplegate.core.capabilities import can_forward
from samplegate.core.decisions import (
    Allowed,
    Answered,
    Decision,
    Denied,
    DenyAs,
    Escalated,
    FixedAnswer,
    Forwarded,
    LeftOpen,
    Outcome,
    Reason,
    Situation,
    Unanswered,
)
from samplegate.core.parsing import strictjson
from samplegate.core.recording import Done
from samplegate.core.replies import second_reading
from samplegate.core.requests import BadRequest, Request
from samplegate.core.session import shapes
from samplegate.core.session.rounds import Item, Reply
from samplegate.offload import offload
from samplegate.reviewing import escalate, sample_seen
from samplegate.sampling import late, sample, shaped
from samplegate.scene import Scene

MAX_DEPTH: Final = 64  # of a client's answer, as of the requests that we decide
MAX_VALUES: Final = 250_000


async def act(scene: Scene, decision: Decision) -> Done:
    """Carry a decision out. On a time-out the rule's ``on_timeout`` says what follows; each further rule gets what time is left."""
    tried: list[str] = []
    refused_by: str | None = None
    while True:
        done = await _act_once(scene, decision)
        done = msgspec.structs.replace(done, tried=tuple(tried), refused_by=done.refused_by or refused_by)
        outcome = done.outcome
        if scene.put_off or not isinstance(outcome, Unanswered) or outcome.reason is not Reason.TIMEOUT or decision.on_timeout == "unanswered":
            return done
        if decision.on_timeout == "deny":
            return msgspec.structs.replace(done, outcome=Denied(Reason.TIMEOUT, detail=outcome.detail))
        tried.append(f"{decision.rule}: {outcome.detail}")
        await scene.close()
        scene.verdict = scene.missed = None
        scene.comes_back = scene.comes_back and not scene.attempts  # a model that was asked in vain would be asked again at each return
        situation = Situation(can_forward=can_forward(scene.request, scene.round.client))
        decision = later(scene.book, scene.request, situation, decision)
        if scene.was_answered(decision):
            scene.hold, scene.waited = None, 0.0
            continue
        admitted = await admit(scene.book, scene.ports, scene.round, scene.request, decision)
        decision, scene.hold, refused_by = admitted.decision, admitted.hold, admitted.refused_by
        scene.waited = admitted.waited
        tried.extend(admitted.tried)


async def _act_once(scene: Scene, decision: Decision) -> Done:
    match decision.act:
        case DenyAs() | LeftOpen():
            return Done(shapes.refusal(decision), decision)
        case FixedAnswer(result):
            scene.begin()
            return Done(shaped(scene, result), decision, model=result.get("model"))
        case Allowed(review_answer=None):
            return await sample(scene, decision, decision.act)
        case Allowed():
            return await sample_seen(scene, decision, decision.act)
        case Escalated():
            return await escalate(scene, decision, decision.act)
        case Forwarded():
            return await _ask_client(scene, decision, decision.act)
        case _:
            assert_never(decision.act)


async def _ask_client(scene: Scene, decision: Decision, forwarded: Forwarded) -> Done:
    """A forwarded request has no limit of ours unless its rule gives one: the peers' own clocks and cancels apply."""
    seen = None if scene.round.returned is None else scene.round.returned.seen.get(scene.key)
    if scene.round.returned is not None and seen is not None:
        if seen.late and decision.rule != seen.rule:
            return Done(Unanswered(Reason.CANNOT, detail="the client cannot be asked any more in this round"), decision)
        if seen.late:
            return Done(late("the client came back after the rule's time"), decision)
        return await _returned(scene.item, decision, forwarded, scene.round.returned.replies.get(scene.key))
    if scene.round.door != "push":  # `on_timeout: next` came here too late: a modern forward ends the exchange, so it is done before anything else
        return Done(Unanswered(Reason.CANNOT, detail="the client cannot be asked any more in this round"), decision)
    scene.begin()
    reply: Reply | None = None
    with anyio.move_on_after(None if forwarded.timeout is None else max(forwarded.timeout - scene.waited, 0.0)):
        reply = await scene.ports.ask_client(scene.round)
    if reply is None:
        return Done(late(f"the client did not answer within {forwarded.timeout:.3g} s"), decision)
    return await _replied(scene.item, decision, forwarded, reply)


async def _replied(item: Item, decision: Decision, forwarded: Forwarded, reply: Reply) -> Done:
    if not reply.delivered:
        return Done(Unanswered(Reason.CLIENT, error=reply.payload, detail="the client had no open stream for the request"), decision)
    if not reply.ok:
        return Done(_client_error(reply.payload), decision)
    assert not isinstance(item.request, BadRequest)
    return await _checked(item.request, decision, forwarded, reply.payload)


def _client_error(error: bytes) -> Outcome:
    """Error -1 is a refusal; any other means that nobody answered. Both are released as they came (R118)."""
    code = jsontext.lookup(error, "code")
    if code is not None and float(code) == -1:
        return Denied(Reason.CLIENT, error=error)
    return Unanswered(Reason.CLIENT, error=error, detail="the client answered with an error")


async def _checked(request: Request, decision: Decision, forwarded: Forwarded, result: bytes) -> Done:
    """The client's result is released as it came; with ``verify`` only if it fits what was asked (R36).

    One that has two readings is nobody's consent: the server's parser might see the other one.
    """
    try:
        problem = await offload(len(result) + request.size, _misfit, request, result)
    except strictjson.Fault as fault:
        return Done(Unanswered(Reason.CLIENT, detail=f"the client's answer cannot be read: {fault}"), decision, fits=False)
    if problem is not None and forwarded.verify:
        return Done(Unanswered(Reason.CLIENT, detail=f"the client's answer does not fit: {problem}"), decision, fits=False)
    return Done(Answered(result, "client"), decision, fits=problem is None)


def _misfit(request: Request, result: bytes) -> str | None:
    """Why a client's result is no answer to the request, None if it is one. Raises Fault where it cannot be read."""
    decoded = strictjson.decode(result, max_bytes=len(result), max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    if isinstance(decoded, dict) and (why := second_reading(decoded, _fields(request))) is not None:
        raise strictjson.Fault(why)
    return fits(request, decoded)


def _fields(request: Request) -> frozenset[str]:
    """The names that a form asks for."""
    if request.kind == "sampling" or request.mode == "url":
        return frozenset()
    return frozenset(request.params["requestedSchema"].get("properties", {}))


async def _returned(item: Item, decision: Decision, forwarded: Forwarded, result: bytes | None) -> Done:
    """A key that the client answered in its retry; one that it left out is Unanswered."""
    if result is None:
        return Done(Unanswered(Reason.CLIENT, detail="the client came back without an answer to it"), decision)
    assert not isinstance(item.request, BadRequest)
    return await _checked(item.request, decision, forwarded, result)
