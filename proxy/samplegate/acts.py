"""Acting on one request: a model samples, fixed content answers, the client is asked, a rule refuses. Time-outs are kept here.

Not the decision, and not the record: those stand before and behind, in ``gate.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never

import anyio
import msgspec

from samplegate.core import jsontext
from samplegate.core.answers import fits
from samplegate.core.capabilities import can_forward
from samplegate.core.decide import Rulebook, decide
from samplegate.core.decisions import (
    Allowed,
    Answered,
    Decision,
    Denied,
    DenyAs,
    FixedAnswer,
    Forwarded,
    LeftOpen,
    Outcome,
    Reason,
    Situation,
    Unanswered,
)
from samplegate.core.parsing import strictjson
from samplegate.core.patience import DEFAULT, Patience, until
from samplegate.core.recording import Done
from samplegate.core.requests import BadRequest, Request
from samplegate.core.samples import SampleFailed, SampleRequest
from samplegate.core.session import shapes
from samplegate.core.session.rounds import Item, Reply, Round
from samplegate.ports import Ports

MAX_DEPTH: Final = 64  # of a client's answer, as of the requests that we decide
MAX_VALUES: Final = 250_000
MODEL_PATIENCE: Final = 600.0  # seconds for a model where neither the rule nor a peer sets an end: nothing may hang


class Scene(msgspec.Struct, frozen=True):
    """Where an act takes place: the request, its round, the policy in force and the ports."""

    round: Round
    key: str
    item: Item
    book: Rulebook
    ports: Ports


async def act(scene: Scene, decision: Decision) -> Done:
    """Carry a decision out. On a time-out the rule's ``on_timeout`` says what follows; each further rule gets what time is left."""
    tried: list[str] = []
    while True:
        done = msgspec.structs.replace(await _act_once(scene, decision), tried=tuple(tried))
        late = done.outcome
        if not isinstance(late, Unanswered) or late.reason is not Reason.TIMEOUT or decision.on_timeout == "unanswered":
            return done
        if decision.on_timeout == "deny":
            return msgspec.structs.replace(done, outcome=Denied(Reason.TIMEOUT, detail=late.detail))
        tried.append(f"{decision.rule}: {late.detail}")
        request = scene.item.request
        assert not isinstance(request, BadRequest)
        situation = Situation(can_forward=can_forward(request, scene.round.client))
        decision = decide(scene.book, request, situation, start=decision.index + 1)


async def _act_once(scene: Scene, decision: Decision) -> Done:
    match decision.act:
        case DenyAs(as_):
            return Done(Denied(decision.reason, as_, detail=decision.detail), decision)
        case LeftOpen():
            return Done(Unanswered(decision.reason, detail=decision.detail, code=shapes.code_of(decision.reason)), decision)
        case FixedAnswer(result):
            return Done(_shaped(scene, result), decision, model=result.get("model"))
        case Allowed():
            return await _sample(scene, decision, decision.act)
        case Forwarded():
            return await _ask_client(scene, decision, decision.act)
        case _:
            assert_never(decision.act)


def _shaped(scene: Scene, result: Mapping[str, Any]) -> Outcome:
    revision = scene.round.origin.revision
    shaped = shapes.sampling_result(result, revision) if scene.item.method.startswith("sampling/") else dict(result)
    if shaped is None:
        return Unanswered(Reason.CANNOT, detail=f"the answer's content has no form in revision {revision or 'unknown'}")
    return Answered(jsontext.dump(shaped), "policy")


async def _sample(scene: Scene, decision: Decision, allowed: Allowed) -> Done:
    model = allowed.models[0]
    limit = _patience(scene).limit(allowed.timeout, scene.ports.clock())
    seconds = MODEL_PATIENCE if limit is None else limit
    if seconds <= 0:
        return Done(_late("no time was left to ask a model"), decision, model=model)
    with anyio.move_on_after(seconds):
        answer = await scene.ports.sample(SampleRequest(model, allowed.params, seconds))
        if isinstance(answer, SampleFailed):
            reason = Reason.TIMEOUT if answer.failure == "timeout" else Reason.MODEL
            return Done(Unanswered(reason, detail=f"model {model}: {answer.failure}: {answer.message}"), decision, model=model)
        result: dict[str, Any] = {"role": "assistant", "content": {"type": "text", "text": answer.text}, "model": answer.model}
        if answer.stop_reason is not None:
            result["stopReason"] = answer.stop_reason
        outcome = _shaped(scene, result)
        return Done(outcome, decision, answer.model, answer.input_tokens, answer.output_tokens, dropped=answer.dropped)
    return Done(_late(f"model {model} did not answer within {seconds:.3g} s"), decision, model=model)


def _patience(scene: Scene) -> Patience:
    policy, round = scene.book.policy, scene.round
    server = policy.servers.get(round.origin.server, DEFAULT)
    return Patience(until(server, round.asked, told=round.server_told), until(policy.client, round.called, told=round.client_told))


def _late(detail: str) -> Unanswered:
    return Unanswered(Reason.TIMEOUT, detail=detail)


async def _ask_client(scene: Scene, decision: Decision, forwarded: Forwarded) -> Done:
    """A forwarded request has no limit of ours unless its rule gives one: the peers' own clocks and cancels apply."""
    seen = None if scene.round.returned is None else scene.round.returned.seen.get(scene.key)
    if scene.round.returned is not None and seen is not None:
        if seen.late and decision.rule != seen.rule:
            return Done(Unanswered(Reason.CANNOT, detail="the client cannot be asked any more in this round"), decision)
        if seen.late:
            return Done(_late("the client came back after the rule's time"), decision)
        return _returned(scene.item, decision, forwarded, scene.round.returned.replies.get(scene.key))
    if scene.round.door != "push":  # `on_timeout: next` came here too late: a modern forward ends the exchange, so it is done before anything else
        return Done(Unanswered(Reason.CANNOT, detail="the client cannot be asked any more in this round"), decision)
    with anyio.move_on_after(forwarded.timeout):
        reply = await scene.ports.ask_client(scene.round)
        return _replied(scene.item, decision, forwarded, reply)
    return Done(_late(f"the client did not answer within {forwarded.timeout:.3g} s"), decision)


def _replied(item: Item, decision: Decision, forwarded: Forwarded, reply: Reply) -> Done:
    if not reply.ok:
        return Done(_client_error(reply.payload), decision)
    assert not isinstance(item.request, BadRequest)
    return _checked(item.request, decision, forwarded, reply.payload)


def _client_error(error: bytes) -> Outcome:
    """Error -1 is a refusal; any other means that nobody answered. Both are released as they came (R118)."""
    code = jsontext.lookup(error, "code")
    if code is not None and code.strip() == b"-1":
        return Denied(Reason.CLIENT, error=error)
    return Unanswered(Reason.CLIENT, error=error, detail="the client answered with an error")


def _checked(request: Request, decision: Decision, forwarded: Forwarded, result: bytes) -> Done:
    """The client's result is released as it came; with ``verify`` only if it fits what was asked (R36).

    One that has two readings is nobody's consent: the server's parser might see the other one.
    """
    try:
        problem = fits(request, strictjson.decode(result, max_bytes=len(result), max_depth=MAX_DEPTH, max_values=MAX_VALUES))
    except strictjson.Fault as fault:
        return Done(Unanswered(Reason.CLIENT, detail=f"the client's answer cannot be read: {fault}"), decision, fits=False)
    if problem is not None and forwarded.verify:
        return Done(Unanswered(Reason.CLIENT, detail=f"the client's answer does not fit: {problem}"), decision, fits=False)
    return Done(Answered(result, "client"), decision, fits=problem is None)


def _returned(item: Item, decision: Decision, forwarded: Forwarded, result: bytes | None) -> Done:
    """A key that the client answered in its retry; one that it left out is Unanswered."""
    if result is None:
        return Done(Unanswered(Reason.CLIENT, detail="the client came back without an answer to it"), decision)
    assert not isinstance(item.request, BadRequest)
    return _checked(item.request, decision, forwarded, result)
