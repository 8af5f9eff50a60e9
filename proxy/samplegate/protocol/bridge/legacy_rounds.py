"""Pure. Input rounds of a modern server for a legacy client (R48, R120, R121).

The questions become requests in the client's revision. All questions of a round are adapted to that revision before any
is sent. If one fails, the others are cancelled. The call is then retried with the answers, or fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.protocol import frames, rawjson, request_state, results
from samplegate.protocol.bridge.calls import BridgedCall, BridgeIO, Calls, beat
from samplegate.protocol.frames import META, META_RELATED_TASK, FrameId, has_elicitation, has_modes
from samplegate.protocol.outcomes import Reason, Unanswered
from samplegate.protocol.rawjson import Malformed, cut, dump, elements, fields, lookup, object_of, splice, string
from samplegate.protocol.requests import ELICITATION, ROOTS, SAMPLING
from samplegate.protocol.rounds import Effects, ForwardRound, Note, Over, Release, ToClient
from samplegate.protocol.session_state import CANCELLED, SessionState

METHODS: Final = frozenset({SAMPLING, ELICITATION, ROOTS})
MAX_ELEMENTS: Final = 10_000  # messages of a request, blocks of a message, choices of a field: each is read
_OF_TASKS: Final = frozenset({"task"})


class ClientQuestion(msgspec.Struct, frozen=True):
    """A request to a legacy client. ``params`` is raw JSON, None for none."""

    method: str
    params: bytes | None


def question(entry: bytes, revision: str, elicitation_id: str) -> ClientQuestion | str:
    """The request to a legacy client for an entry, or the reason why there is none.

    ``elicitation_id`` is used for mode URL, because the modern era has no such id. Raises rawjson.Malformed for an
    entry of two readings.
    """
    method, params = string(lookup(entry, "method")), lookup(entry, "params")
    if method not in METHODS or method is None:
        return "not a sampling, elicitation or roots request"
    if params is None or params[:1] != b"{":
        return ClientQuestion(method, None) if method == ROOTS else "params is not an object"
    params = _bare(params)
    if method == SAMPLING:
        return _sampling(params, revision)
    return ClientQuestion(method, params) if method == ROOTS else _elicitation(params, revision, elicitation_id)


def _bare(params: bytes) -> bytes:
    """The params without ties to a task or to progress: a client with a task could bypass the policy (R106)."""
    params = cut(params, _OF_TASKS)
    for name in ("progressToken", META_RELATED_TASK):
        if lookup(params, META, name) is not None:
            params = splice(params, (META, name), None)
    return params


# -- sampling
# ----------------------------------------------------------------------------------------------------------------------


def _sampling(params: bytes, revision: str) -> ClientQuestion | str:
    """Sampling for a revision: before 2025-11-25, a message is one block of text, image or audio, no tools (R6)."""
    if has_modes(revision):
        return ClientQuestion(SAMPLING, params)
    if not fields(params).keys().isdisjoint({"tools", "toolChoice"}):
        return f"{revision} does not support tools"
    messages = _elements(lookup(params, "messages"))
    if messages is None:
        return "messages is not an array"
    fitted = [_message(message, revision) for message in messages]
    if any(message is None for message in fitted):
        return f"{revision} cannot express one of its messages"
    changed = [message for message in fitted if message is not None]
    return ClientQuestion(SAMPLING, params if changed == messages else splice(params, ("messages",), _array(changed)))


def _message(message: bytes, revision: str) -> bytes | None:
    content = lookup(message, "content")
    blocks = _elements(content) if content is not None and content[:1] == b"[" else None
    if blocks is not None:
        if len(blocks) != 1:
            return None
        content = blocks[0]
        message = splice(message, ("content",), content)
    known = {"text", "image"} if revision < "2025-03-26" else {"text", "image", "audio"}
    return message if string(lookup(content, "type")) in known else None


# -- elicitation
# ----------------------------------------------------------------------------------------------------------------------


def _elicitation(params: bytes, revision: str, elicitation_id: str) -> ClientQuestion | str:
    if not has_elicitation(revision):
        return f"{revision} does not support elicitation"
    is_url = string(lookup(params, "mode")) == "url"
    if has_modes(revision):
        # R40: required there
        return ClientQuestion(
            ELICITATION, splice(params, ("elicitationId",), dump(elicitation_id)) if is_url else params
        )
    if is_url:
        return f"{revision} does not support mode url"
    return _form(cut(params, {"mode"}), revision)


def _form(params: bytes, revision: str) -> ClientQuestion | str:
    """A form for 2025-06-18: titled choices in its own keywords, no arrays (R48)."""
    properties = lookup(params, "requestedSchema", "properties")
    found = (
        {}
        if properties is None or properties[:1] != b"{"
        else {name: bytes(raw) for name, raw in fields(properties).items()}
    )
    fitted = {name: _field(raw) for name, raw in found.items()}
    if any(field is None for field in fitted.values()):
        return f"{revision} does not support one of its fields"
    if fitted == found:
        return ClientQuestion(ELICITATION, params)
    text = object_of({name: field for name, field in fitted.items() if field is not None})
    # in one splice, because there may be thousands of fields
    return ClientQuestion(ELICITATION, splice(params, ("requestedSchema", "properties"), text))


def _field(field: bytes) -> bytes | None:
    if string(lookup(field, "type")) == "array":
        return None
    choices = _elements(lookup(field, "oneOf"))
    if choices is None:
        return field
    values = [lookup(choice, "const") for choice in choices]
    names = [lookup(choice, "title") for choice in choices]
    if not values or any(string(value) is None for value in values):
        return None
    shown = [value if string(name) is None else name for value, name in zip(values, names, strict=True)]
    field = splice(cut(field, {"oneOf", "enum", "enumNames"}), ("enum",), _array(values))
    return splice(field, ("enumNames",), _array(shown))


def _elements(raw: bytes | None) -> list[bytes] | None:
    """The elements of a raw JSON array; None for anything else. Raises Malformed for too many or unreadable ones."""
    return None if raw is None or raw[:1] != b"[" else elements(raw, MAX_ELEMENTS)


def _array(elements: list[bytes | None] | list[bytes]) -> bytes:
    return b"[" + b",".join(one for one in elements if one is not None) + b"]"


MAX_ASKED: Final = 1000  # questions that wait for one client; real ones have one or two


class RoundWithClient(msgspec.Struct, eq=False):
    """A round whose questions are with the client."""

    call: BridgedCall
    state: bytes
    """The requestState of the retry, raw JSON."""
    at: float
    """The last known time of the session."""
    deadline: float
    forwarded: bool
    """Whether the policy forwarded any of its questions; otherwise they only ask for roots."""
    waiting: dict[FrameId, str] = msgspec.field(default_factory=dict)
    """Keys without an answer, by the id of our request."""
    replies: dict[str, bytes] = msgspec.field(default_factory=dict)
    failed: bool = False
    size: int = 0
    """Bytes of the state and the replies, counted for its call."""


class ClientQuestions(msgspec.Struct, eq=False):
    """The questions that wait for a client."""

    state: SessionState
    _by_id: dict[FrameId, RoundWithClient] = msgspec.field(default_factory=dict)
    _by_call: dict[FrameId, RoundWithClient] = msgspec.field(default_factory=dict)

    def asks(self, asked: RoundWithClient) -> bool:
        """Whether the client still has questions of the round."""
        return self._by_call.get(asked.call.id) is asked

    def ask(self, asked: RoundWithClient, entries: Mapping[str, bytes], revision: str) -> Effects:
        """Send all questions to the client, or none: then ``failed`` is set."""
        questions = self._questions(entries, revision)
        if isinstance(questions, Note):
            asked.failed = True
            return [questions]
        out: Effects = []
        for key, (id, asks) in questions.items():
            asked.waiting[id] = key
            self._by_id[id] = asked
            out.append(ToClient(asked.call.stream, frames.request(id, asks.method, asks.params), asks=id))
        self._by_call[asked.call.id] = asked
        return out

    def _questions(
        self, entries: Mapping[str, bytes], revision: str
    ) -> dict[str, tuple[FrameId, ClientQuestion]] | Note:
        if len(self._by_id) + len(entries) > MAX_ASKED:
            return self._refused(f"{MAX_ASKED} questions are already waiting for the client")
        out: dict[str, tuple[FrameId, ClientQuestion]] = {}
        for key, entry in entries.items():
            id = self.state.new_id()
            try:
                asks = question(entry, revision, str(id))
            except Malformed as problem:
                return self._refused(problem.fault)
            if isinstance(asks, str):
                return self._refused(asks)
            out[key] = (id, asks)
        return out

    def _refused(self, fault: str) -> Note:
        return Note("question.refused", {"server": self.state.server, "fault": fault})

    def asked_by(self, id: FrameId) -> RoundWithClient | None:
        """The round of a question."""
        return self._by_id.get(id)

    def answered(self, id: FrameId, result: bytes | None) -> tuple[RoundWithClient, Effects] | None:
        """Store the client's answer to a question and return its round; None if no question has this id.

        ``result`` is None for an error or an unreadable answer. The round is over when ``asks`` is False.
        """
        asked = self._by_id.pop(id, None)
        if asked is None:
            return None
        key = asked.waiting.pop(id)
        if not _is_object(result):
            asked.failed = True
            return asked, self.withdraw(asked, "another question of this call was not answered")
        assert result is not None
        asked.replies[key] = result
        return asked, [] if asked.waiting else self.withdraw(asked, "")

    def questions(self) -> list[FrameId]:
        """The ids of all waiting questions."""
        return list(self._by_id)

    def of(self, call: BridgedCall) -> RoundWithClient | None:
        """The round of a call that is with the client."""
        return self._by_call.get(call.id)

    def withdraw(self, asked: RoundWithClient, reason: str) -> Effects:
        """Cancel the remaining questions of a round at the client."""
        out: Effects = []
        for id in asked.waiting:
            self._by_id.pop(id, None)
            params = rawjson.dump({"requestId": id, "reason": reason})
            out.append(ToClient(asked.call.stream, frames.notification(CANCELLED, params), cancels=id))
        asked.waiting.clear()
        self._by_call.pop(asked.call.id, None)
        return out

    def withdraw_all(self, reason: str) -> Effects:
        """Cancel all questions at the client."""
        return [effect for asked in list(self._by_call.values()) for effect in self.withdraw(asked, reason)]


def _is_object(result: bytes | None) -> bool:
    """Whether an answer is an object with a single reading; anything else is not a valid answer."""
    try:
        return result is not None and rawjson.fields(result) is not None
    except Malformed:
        return False


MAX_ROUNDS: Final = 8  # times that the client is asked in one call, as the SDKs' own bridges count (R120)
BEAT: Final = 5.0  # seconds between two progress notifications on a call whose client is being asked
MARGIN: Final = 5.0  # seconds left for the retry before a seal expires


class ForwardedRound:
    """The rounds that are with one client."""

    def __init__(self, state: SessionState, calls: Calls, io: BridgeIO) -> None:
        self.state = state
        self._io = io
        self._calls = calls
        self._asking = ClientQuestions(state)

    def hand(self, call: BridgedCall, handed: bytes, forwarded: ForwardRound, revision: str) -> Effects:
        """Send the questions of an ``input_required`` result to the client, in its revision, on the call's stream."""
        call.rounds += 1
        if call.rounds > MAX_ROUNDS:
            return self._too_many(call, forwarded)
        requests, state = rawjson.lookup(handed, "inputRequests"), rawjson.lookup(handed, "requestState")
        now, limit = self._io.now(), min([*_limits(forwarded), request_state.LIFETIME - MARGIN])
        asked = RoundWithClient(call, state or b'""', now, now + limit, bool(forwarded.keys))
        entries = {key: bytes(raw) for key, raw in rawjson.fields(requests or b"{}").items()}
        self._grow(asked, len(asked.state))
        out = self._asking.ask(asked, entries, revision)
        return [*out, *(self._go_on(asked) if asked.failed else self._wait(asked))]

    def _grow(self, asked: RoundWithClient, size: int) -> None:
        """Change the bytes counted for a round until its call continues."""
        asked.size += size
        self._calls.grow(asked.call, size)

    def _too_many(self, call: BridgedCall, forwarded: ForwardRound) -> Effects:
        fault = f"the server asked the client more than {MAX_ROUNDS} times in one call"
        decided = next((seen.decision_id for seen in forwarded.seen.values()), "")
        line = results.ended_call(call.id, call.method, "legacy", "input", Release(Unanswered(Reason.ROUNDS), decided))
        return [
            Note("call.failed", {"server": self.state.server, "method": call.method, "fault": fault}),
            *self._io.answer(call, line),
        ]

    def replied(self, id: FrameId, result: bytes | None) -> Effects | None:
        """Process the client's answer; None if the client was not asked this.

        ``result`` is None for an error or an unreadable answer.
        """
        asked = self._asking.asked_by(id)
        if asked is None:
            return None
        out: Effects = []
        if result is not None and (full := self.state.call_fault(len(result))) is not None:
            out, result = [Note("question.refused", {"server": self.state.server, "fault": full})], None
        self._grow(asked, len(result or b""))
        found = self._asking.answered(id, result)
        out += [] if found is None else found[1]
        return out if self._asking.asks(asked) else [*out, *self._go_on(asked)]

    def cancelled(self, call: BridgedCall) -> Effects | None:
        """Cancel the questions of a cancelled call; None if the call is not with the client."""
        asked = self._asking.of(call)
        return None if asked is None else [*self._asking.withdraw(asked, "its call was cancelled"), Over(call.stream)]

    def questions(self) -> list[FrameId]:
        """The ids of the questions that are with the client."""
        return self._asking.questions()

    def withdraw_all(self, reason: str) -> Effects:
        """Cancel all questions at the client."""
        return self._asking.withdraw_all(reason)

    def _wait(self, asked: RoundWithClient) -> Effects:
        """Schedule the next check of the deadline, with progress for the client (R101)."""
        pause = max(min(BEAT, asked.deadline - asked.at), 0.0)
        return self._io.after(pause, lambda: self._waited(asked, pause))

    def _waited(self, asked: RoundWithClient, pause: float) -> Effects:
        if not self._asking.asks(asked):
            return []
        asked.at = max(asked.at + pause, self._io.now())
        if asked.at >= asked.deadline:
            return [*self._asking.withdraw(asked, "timed out"), *self._go_on(asked)]
        sign = beat(asked.call)
        return [*([] if sign is None else [sign]), *self._wait(asked)]

    def _go_on(self, asked: RoundWithClient) -> Effects:
        """Retry the call with the client's answers."""
        call = asked.call
        assert call.params is not None
        self._grow(asked, -asked.size)
        if asked.failed and not asked.forwarded:  # roots only: without them, the other answers are worthless (T7)
            line = results.ended_call(call.id, call.method, "legacy", "roots", Release(Unanswered(Reason.CLIENT), ""))
            return self._io.answer(call, line)
        params = rawjson.splice(call.params, ("inputResponses",), rawjson.object_of(asked.replies))
        params = rawjson.splice(params, ("requestState",), asked.state)
        return self._io.send(call.stream, frames.request(call.id, call.method, params))


def _limits(forwarded: ForwardRound) -> list[float]:
    """Timeouts of the client from the rules of the forwarded keys, in seconds."""
    return [seen.timeout for key, seen in forwarded.seen.items() if key in forwarded.keys and seen.timeout is not None]
