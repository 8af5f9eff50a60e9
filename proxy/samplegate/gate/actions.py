"""Actions on one request: ask a model, answer with fixed content, ask the client or a reviewer, or refuse.

Timeouts are enforced here. ``sampling.py`` asks models and ``review.py`` asks reviewers; deciding and recording are in
``gate.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never

import anyio
import msgspec

from samplegate.audit.record import Done
from samplegate.durations import duration_text
from samplegate.gate.admission import admit
from samplegate.gate.ports import Replay, offload
from samplegate.gate.request import PendingRequest, Wait
from samplegate.gate.review import escalate, sample_reviewed
from samplegate.gate.sampling import sample, shaped, timed_out
from samplegate.policy.answers import answer_error
from samplegate.policy.decide import decide_later
from samplegate.policy.decisions import Allowed, Decision, DenyAs, Escalated, FixedAnswer, Forwarded, LeftOpen, refusal
from samplegate.protocol import rawjson, strictjson
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason, Unanswered
from samplegate.protocol.requests import Request
from samplegate.protocol.results import second_reading
from samplegate.protocol.rounds import ClientReply

MAX_DEPTH: Final = 64  # of a client's answer; the same as for the requests that we decide
MAX_VALUES: Final = 250_000


async def act(pending: PendingRequest, decision: Decision) -> Done:
    """Carry a decision out. After a timeout, continue as the rule's ``on_timeout`` demands; a later rule gets the time
    that is left."""
    tried: list[str] = []
    refused_by: str | None = None
    while True:
        done = await _act_once(pending, decision)
        done = msgspec.structs.replace(done, tried=tuple(tried), refused_by=done.refused_by or refused_by)
        outcome = done.outcome
        if (
            pending.put_off
            or not isinstance(outcome, Unanswered)
            or outcome.reason is not Reason.TIMEOUT
            or decision.on_timeout == "unanswered"
            # a recorded timeout was the request's end, and a later rule would play the case of the next request
            or (pending.ports.replay is not None and pending.attempts)
        ):
            return done
        if decision.on_timeout == "deny":
            return msgspec.structs.replace(done, outcome=Denied(Reason.TIMEOUT, detail=outcome.detail))
        tried.append(f"{decision.rule}: {outcome.detail}")
        await pending.close()
        if pending.hold is not None:
            pending.past_holds.append(pending.hold)
            pending.hold = None
        pending.verdict = pending.missed = None
        # at each retry the model would be asked again in vain
        pending.comes_back = pending.comes_back and not pending.attempts
        decision = decide_later(pending.compiled, pending.request, pending.situation, decision)
        if pending.was_answered(decision):
            pending.hold, pending.waited = None, 0.0
            continue
        with pending.waiting(Wait("limit", ", ".join(decision.limits)) if decision.limits else None):
            admitted = await admit(pending.compiled, pending.ports, pending.round, pending.request, decision)
        decision, pending.hold, refused_by = admitted.decision, admitted.hold, admitted.refused_by
        pending.waited = admitted.waited
        tried.extend(admitted.tried)


async def _act_once(pending: PendingRequest, decision: Decision) -> Done:
    pending.acting = decision
    match decision.act:
        case DenyAs() | LeftOpen():
            return Done(refusal(decision), decision)
        case FixedAnswer(result):
            pending.begin()
            return Done(shaped(pending, result), decision, model=result.get("model"))
        case Allowed(review_answer=None):
            return await sample(pending, decision, decision.act)
        case Allowed():
            return await sample_reviewed(pending, decision, decision.act)
        case Escalated():
            return await escalate(pending, decision, decision.act)
        case Forwarded():
            return await _ask_client(pending, decision, decision.act)
        case _:
            assert_never(decision.act)


async def _ask_client(pending: PendingRequest, decision: Decision, forwarded: Forwarded) -> Done:
    """Release the client's result as received; with ``verify`` only if it fits the request (R36).

    A result with two readings is not released, because the server's parser might read the other one.
    """
    if pending.ports.replay is not None:
        return await _replay(pending, pending.ports.replay, decision, forwarded)
    if pending.round.door == "tool_result":
        pending.begin()  # the client gets the result, and asks its user
        return Done.handed_on(decision)
    result = await _client_result(pending, decision, forwarded)
    if not isinstance(result, bytes):
        return Done(result, decision)
    request = pending.request
    try:
        problem = await offload(len(result) + request.size, _misfit, request, result)
    except strictjson.JsonFault as fault:
        return Done(
            Unanswered(Reason.CLIENT, detail=f"the client's answer cannot be read: {fault}"), decision, fits=False
        )
    if problem is not None and forwarded.verify:
        return Done(
            Unanswered(Reason.CLIENT, detail=f"the client's answer does not fit: {problem}"), decision, fits=False
        )
    return Done(Answered(result, "client"), decision, fits=problem is None)


async def _replay(pending: PendingRequest, replay: Replay, decision: Decision, forwarded: Forwarded) -> Done:
    """Release an answer from a cassette. The client did not give it now, so it counts as the policy's."""
    request = pending.request
    pending.begin()
    found: Mapping[str, Any] | str | None = None
    with anyio.move_on_after(None if forwarded.timeout is None else max(forwarded.timeout - pending.waited, 0.0)):
        found = await replay(request, await offload(request.size, pending.params_to_record))
    if found is None:
        return Done(timed_out("the recorded answer is delayed beyond the rule's timeout"), decision)
    if isinstance(found, str):
        return Done(Unanswered(Reason.CANNOT, detail=found), decision)
    outcome = shaped(pending, found)
    if not isinstance(outcome, Answered):
        return Done(outcome, decision)
    try:
        problem = await offload(len(outcome.result) + request.size, _misfit, request, outcome.result)
    except strictjson.JsonFault as fault:
        problem, verify = str(fault), True
    else:
        verify = forwarded.verify
    if problem is not None and verify:
        detail = f"the recorded answer does not fit: {problem}"
        return Done(Unanswered(Reason.CANNOT, detail=detail), decision, fits=False)
    return Done(outcome, decision, fits=problem is None)


async def _client_result(pending: PendingRequest, decision: Decision, forwarded: Forwarded) -> bytes | Outcome:
    """The client's answer as received, or the outcome if there is none.

    A forwarded request has no timeout of ours unless its rule sets one: the peers' timeouts and cancels apply.
    """
    returned = pending.round.returned
    seen = None if returned is None else returned.seen.get(pending.key)
    if returned is not None and seen is not None and seen.late and decision.rule == seen.rule:
        return timed_out("the client retried after the rule's timeout")
    if returned is not None and seen is not None and not seen.late:
        missing = Unanswered(Reason.CLIENT, detail="the client retried without answering it")
        return returned.replies.get(pending.key, missing)
    if seen is not None or pending.round.door != "push":
        # `on_timeout: next` cannot forward any more: a modern forward ends the exchange, so it precedes all other acts
        return Unanswered(Reason.CANNOT, detail="the request can no longer be sent to the client in this round")
    pending.begin()
    reply: ClientReply | None = None
    seconds = None if forwarded.timeout is None else max(forwarded.timeout - pending.waited, 0.0)
    wait = Wait("client", until=None if seconds is None else pending.ports.clock() + seconds)
    with pending.waiting(wait), anyio.move_on_after(seconds):
        reply = await pending.ports.ask_client(pending.round)
    if reply is None:
        return timed_out(f"the client did not answer within {duration_text(forwarded.timeout or 0.0)}")
    if not reply.delivered:
        return Unanswered(Reason.CLIENT, error=reply.payload, detail="the client had no open stream for the request")
    return reply.payload if reply.ok else _client_error(reply.payload)


def _client_error(error: bytes) -> Outcome:
    """Error -1 is a refusal; any other error means that there is no answer. Both are released as received (R118)."""
    code = rawjson.lookup(error, "code")
    if code is not None and float(code) == -1:
        return Denied(Reason.CLIENT, error=error)
    return Unanswered(Reason.CLIENT, error=error, detail="the client answered with an error")


def _misfit(request: Request, result: bytes) -> str | None:
    """Why a client's result does not answer the request, or None if it does. Raises JsonFault if it is unreadable."""
    decoded = strictjson.decode(result, max_bytes=len(result), max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    is_form = request.kind == "elicitation" and request.mode == "form"
    fields = frozenset(request.params["requestedSchema"].get("properties", {})) if is_form else frozenset[str]()
    if isinstance(decoded, dict) and (why := second_reading(decoded, fields)) is not None:
        raise strictjson.JsonFault(why)
    return answer_error(request, decoded)
