"""Pure. Outcomes on the wire: results in the shape of the negotiated revision, errors, and the end of a call.

Only this module words the outcomes of requests. A server learns the kind, the class of the reason and the decision id.
It learns the rule, which it could then evade, only if the operator allows that (``explain_to_server``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from samplegate.protocol import frames, rawjson, strictjson
from samplegate.protocol.frames import META_RELATED_TASK, Era, has_modes
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered, Withdrawn
from samplegate.protocol.rounds import Release, Round, Settled
from samplegate.protocol.strictjson import quoted_name

REJECTED: Final = -1
"""The code of a refused sampling request (R24); own codes stay outside the reserved ranges (R56)."""
BAD_PARAMS: Final = -32602
INTERNAL: Final = -32603
METHOD_NOT_FOUND: Final = -32601
INVALID_REQUEST: Final = -32600
PROVENANCE: Final = "samplegate/provenance"

_SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.RULE: "denied by policy",
    Reason.NO_RULE: "not answered: no matching rule",
    Reason.CANNOT: "not answered: the matching rule could not be carried out",
    Reason.NOT_OFFERED: "not answered: the gate's policy does not advertise this capability to the server",
    Reason.MALFORMED: "malformed",
    Reason.TIMEOUT: "not answered in time",
    Reason.MODEL: "not answered: the model failed",
    Reason.CLIENT: "not answered by the client",
    Reason.LIMIT: "not answered: a limit was reached",
    Reason.REVIEW: "not answered by a reviewer",
    Reason.BRAKE: "not answered: loop detected",
    Reason.CONTENT: "not answered: the answer was withheld",
    Reason.RECORDS: "not answered: the decision could not be recorded",
    Reason.ROUNDS: "not answered: too many requests in one call",
    Reason.ERROR: "not answered: internal error in the gate",
}


def is_error(kind: str, outcome: Denied | Unanswered) -> bool:
    """Whether an outcome can only be an error, which in the modern era ends the call (R70)."""
    return kind == "sampling" or outcome.code != REJECTED


def refused_answer(kind: str, era: Era, outcome: Denied | Unanswered) -> str:
    """The server's result for an outcome without answer: ``decline``, ``cancel``, ``error CODE``, or ``call ends``."""
    if not is_error(kind, outcome):
        return _action(outcome)
    return "call ends" if era == "modern" else f"error {outcome.code}"


def sentence(kind: str, release: Release) -> str:
    """The sentence for a peer about a request that was not answered."""
    outcome = release.outcome
    assert isinstance(outcome, Denied | Unanswered)
    text = f"{kind} request {_refused(outcome) if isinstance(outcome, Denied) else _SENTENCES[outcome.reason]}"
    if outcome.reason is Reason.MALFORMED and outcome.detail:
        text = f"{text}: {outcome.detail}"
    if release.explain:
        text = f"{text} ({release.explain})"
    return f"{text} [decision {release.decision_id}]" if release.decision_id else text


def _refused(outcome: Denied) -> str:
    if outcome.code != REJECTED:  # a rule's `otherwise: deny` is also a denial
        return _SENTENCES[Reason.RULE]
    return (
        "refused: no answer in time"
        if outcome.reason is Reason.TIMEOUT
        else _SENTENCES[outcome.reason].replace("not answered", "refused")
    )


def sampling_result(result: Mapping[str, Any], revision: str) -> dict[str, Any] | None:
    """A createMessage result for a revision; None if there is no such form.

    Before 2025-11-25, content is exactly one block of text, image or audio (R6).
    """
    content = result["content"]
    blocks: Sequence[Mapping[str, Any]] = content if isinstance(content, list) else [content]
    if has_modes(revision):
        return {**result, "content": blocks[0] if len(blocks) == 1 else list(blocks)}
    if len(blocks) > 1 and all(block["type"] == "text" for block in blocks):
        blocks = [{"type": "text", "text": "\n".join(block["text"] for block in blocks)}]
    known = {"text", "image"} if revision < "2025-03-26" else {"text", "image", "audio"}
    if len(blocks) != 1 or blocks[0]["type"] not in known:
        return None
    return {**result, "content": blocks[0]}


def provenance(result: bytes, *, decided_by: str, decision_id: str) -> bytes:
    """A result of our own whose ``_meta`` names who decided, so that a machine never poses as a person."""
    mark = rawjson.dump({"decided_by": decided_by, "decision_id": decision_id})
    return rawjson.splice(result, ("_meta", PROVENANCE), mark)


def related(result: bytes, request_params: bytes | None) -> bytes:
    """A result with the task to which its request belonged (R106)."""
    try:
        task = rawjson.lookup(request_params, "_meta", META_RELATED_TASK)
    except rawjson.Malformed:  # params with two readings: the request was refused for that
        return result
    return result if task is None else rawjson.splice(result, ("_meta", META_RELATED_TASK), task)


def pushed(id: frames.FrameId, kind: str, release: Release, params: bytes | None) -> bytes:
    """The answer to a pushed request; not for withdrawn requests, which get none."""
    outcome = release.outcome
    match outcome:
        case Answered(result=result, decided_by="client"):
            return frames.result(id, result)
        case Answered(result=result, decided_by=by):
            return frames.result(
                id, related(provenance(result, decided_by=by, decision_id=release.decision_id), params)
            )
        case Denied(error=bytes(error)) | Unanswered(error=bytes(error)):
            return b'{"jsonrpc":"2.0","id":' + rawjson.dump(id) + b',"error":' + error + b"}"
        case Denied() | Unanswered() if is_error(kind, outcome):
            return _error(id, outcome.code, kind, release)
        case Denied() | Unanswered():
            result = rawjson.dump({"action": _action(outcome)})
            return frames.result(
                id,
                related(provenance(result, decided_by=_decided_by(outcome), decision_id=release.decision_id), params),
            )
    raise AssertionError(f"a withdrawn request has no answer: {outcome}")


def _error(id: frames.FrameId, code: int, kind: str, release: Release) -> bytes:
    assert isinstance(release.outcome, Denied | Unanswered)
    data = rawjson.dump({"kind": kind, "reason": release.outcome.reason.value, "decision_id": release.decision_id})
    return frames.error(id, code, sentence(kind, release), data)


def _decided_by(outcome: object) -> str:
    reason = outcome.reason if isinstance(outcome, Denied | Unanswered) else None
    if reason is Reason.REVIEW and isinstance(outcome, Denied):
        return outcome.decided_by
    return "timeout" if reason is Reason.TIMEOUT else "client" if reason is Reason.CLIENT else "policy"


def _action(outcome: Denied | Unanswered) -> str:
    return outcome.action if isinstance(outcome, Denied) else "cancel"


def nested(kind: str, release: Release) -> bytes | None:
    """The ``inputResponses`` entry of one key; None if the key can only end the call (R70: there is no error form)."""
    outcome = release.outcome
    match outcome:
        case Answered(result=result, decided_by="client"):
            return result
        case Answered(result=result, decided_by=by):
            marked = kind == "sampling"
            return provenance(result, decided_by=by, decision_id=release.decision_id) if marked else result
        case Denied() | Unanswered() if not is_error(kind, outcome):
            return rawjson.dump({"action": _action(outcome)})
        case _:
            return None


def in_tool_result(outcome: Answered | Denied | Unanswered) -> bytes:
    """The answer to a question in a tool's result: ``action`` and ``content`` only. Whatever is refused is declined or
    cancelled, because the result itself is no refusal."""
    if not isinstance(outcome, Answered):
        return rawjson.dump({"action": _action(outcome)})
    found = rawjson.fields(outcome.result)
    return rawjson.object_of({name: found[name] for name in ("action", "content") if name in found})


def ended_call(id: frames.FrameId, method: str, era: Era, kind: str, release: Release) -> bytes:
    """The answer to a client's call that the gate ends: an ``isError`` result for tools/call, else error -1 (R70)."""
    if method != "tools/call":
        return _error(id, REJECTED, kind, release)
    return frames.result(id, rawjson.dump(refused_call(era, kind, release)))


def refused_call(era: Era, kind: str, release: Release) -> dict[str, Any]:
    """The ``isError`` result of a tools/call that the gate ends."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": sentence(kind, release)}], "isError": True}
    if era == "modern":
        result = {"resultType": "complete", **result}
    mark = {"decided_by": _decided_by(release.outcome), "decision_id": release.decision_id}
    return {**result, "_meta": {PROVENANCE: mark}}


def is_withdrawn(settled: Settled) -> bool:
    """Whether the round ended only because its sender or caller cancelled it."""
    outcomes = [release.outcome for release in settled.releases.values()]
    return any(isinstance(one, Withdrawn) for one in outcomes) and all(
        isinstance(one, Withdrawn | Answered) for one in outcomes
    )


def responses(round: Round, settled: Settled) -> dict[str, bytes] | tuple[str, Release]:
    """``inputResponses``, raw JSON by key; or the kind and the release of the key that can only end the call."""
    entries: dict[str, bytes] = {}
    for key, item in round.items.items():
        release = settled.releases[key]
        entry = None if isinstance(release.outcome, Withdrawn) else nested(item.kind, release)
        if entry is None:
            return _blocking(round, settled)
        entries[key] = entry
    for key in round.roots:
        reply = None if round.returned is None else round.returned.replies.get(key)
        if reply is None:
            return "roots", Release(Unanswered(Reason.CLIENT), "")
        entries[key] = reply
    return entries


def _blocking(round: Round, settled: Settled) -> tuple[str, Release]:
    """The key that ends the call: the first without a form in ``inputResponses`` that is not withdrawn."""
    for key, item in round.items.items():
        release = settled.releases[key]
        if not isinstance(release.outcome, Withdrawn) and nested(item.kind, release) is None:
            return item.kind, release
    return "input", Release(Unanswered(Reason.ERROR), "")


def input_required(id: frames.FrameId, requests: Mapping[str, bytes], state: str) -> bytes:
    """The ``input_required`` result that sends keys to the client, each as received, with a sealed state.

    Without keys, it only asks the client to return (R60, R62).
    """
    inner = b",".join(msgspec.json.encode(key) + b":" + raw for key, raw in requests.items())
    asked = b',"inputRequests":{' + inner + b"}" if requests else b""
    return frames.result(
        id, b'{"resultType":"input_required"' + asked + b',"requestState":' + rawjson.dump(state) + b"}"
    )


_MEMBERS: Final = frozenset({"action", "content", "role", "model", "stopReason", "_meta"})

_OF_BLOCKS: Final = frozenset({"type", "text", "data", "mimeType", "id", "name", "input", "annotations", "_meta"})


def second_reading(result: Mapping[str, Any], fields: frozenset[str] = frozenset()) -> str | None:
    """Why parsers may read a result of sampling or elicitation differently; None if all agree.

    ``fields`` are the fields of the form that the result answers.
    """
    twin = strictjson.second_reading(result, _MEMBERS)
    if twin is None:
        content = result.get("content")
        if "role" in result:
            blocks = [
                block for block in (content if isinstance(content, list) else [content]) if isinstance(block, dict)
            ]
            if sum(len(name) for block in blocks for name in block if not name.isascii()) > strictjson.MAX_FOLDED:
                return f"content has more than {strictjson.MAX_FOLDED} characters in non-ASCII names"
            found = (strictjson.second_reading(block, _OF_BLOCKS) for block in blocks)
            twin = next((name for name in found if name is not None), None)
        elif isinstance(content, dict):
            twin = strictjson.resembling_field(content, fields)
    if twin is not None:
        return f"{quoted_name(twin)} could be read as another member"
    return "parsers may read action differently" if "action" in result and not _is_plain(result["action"]) else None


_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})


def _is_plain(action: object) -> bool:
    """Whether no parser confuses an action with one of the three.

    Some parsers ignore the case of enums, and some convert other types to text.
    """
    return isinstance(action, str) and (action in _ACTIONS or strictjson.fold(action).strip() not in _ACTIONS)
