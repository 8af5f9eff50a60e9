"""What a server asks in a round that went to a legacy client: requests of ours to it, and its answers, until the call can be made again (R120, R121).

All of a round's questions are fit for the client's revision before any is sent; the first that fails takes its siblings back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.bridge.calls import Call
from samplegate.core.bridge.questions import Question, question
from samplegate.core.frames import FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.session.rounds import Effect, Note, ToClient
from samplegate.core.session.state import State

Effects = list[Effect]
MAX_ASKED: Final = 1000  # questions that wait for one client; real ones have one or two


class Asked(msgspec.Struct, eq=False):
    """A round whose questions are with the client."""

    call: Call
    state: bytes
    """The requestState of the retry, raw JSON."""
    at: float
    """Session time as far as it is known here."""
    deadline: float
    forwarded: bool
    """Whether a policy handed any of it on; else it is roots alone."""
    waiting: dict[FrameId, str] = msgspec.field(default_factory=dict)
    """Keys without an answer, by the id of our request."""
    replies: dict[str, bytes] = msgspec.field(default_factory=dict)
    failed: bool = False
    size: int = 0
    """Bytes of the state and the replies, which its call counts for."""


class Asking(msgspec.Struct, eq=False):
    """The questions that wait for a client."""

    state: State
    _by_id: dict[FrameId, Asked] = msgspec.field(default_factory=dict)
    _by_call: dict[FrameId, Asked] = msgspec.field(default_factory=dict)

    def asks(self, asked: Asked) -> bool:
        """Whether the client still has questions of it."""
        return self._by_call.get(asked.call.id) is asked

    def ask(self, asked: Asked, entries: Mapping[str, bytes], revision: str) -> Effects:
        """Ask the client everything, or nothing: then ``failed`` is set."""
        questions = self._questions(entries, revision)
        if isinstance(questions, Note):
            asked.failed = True
            return [questions]
        out: Effects = []
        for key, (id, asks) in questions.items():
            asked.waiting[id] = key
            self._by_id[id] = asked
            out.append(ToClient(asked.call.lane, frames.request(id, asks.method, asks.params), asks=id))
        self._by_call[asked.call.id] = asked
        return out

    def _questions(self, entries: Mapping[str, bytes], revision: str) -> dict[str, tuple[FrameId, Question]] | Note:
        if len(self._by_id) + len(entries) > MAX_ASKED:
            return self._refused(f"{MAX_ASKED} questions wait for the client already")
        out: dict[str, tuple[FrameId, Question]] = {}
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

    def asked_by(self, id: FrameId) -> Asked | None:
        """The round that one of the questions belongs to."""
        return self._by_id.get(id)

    def answered(self, id: FrameId, result: bytes | None) -> tuple[Asked, Effects] | None:
        """The client answered one, with None for an error or what cannot be read; None if nobody asked it. It is over when ``asks`` says so."""
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
        """The ids of all that wait."""
        return list(self._by_id)

    def of(self, call: Call) -> Asked | None:
        """The round that the client is asked in a call."""
        return self._by_call.get(call.id)

    def withdraw(self, asked: Asked, reason: str) -> Effects:
        """Nobody waits for what is left of it any more: tell the client."""
        out: Effects = []
        for id in asked.waiting:
            self._by_id.pop(id, None)
            params = jsontext.dump({"requestId": id, "reason": reason})
            out.append(ToClient(asked.call.lane, frames.notification("notifications/cancelled", params), takes_back=id))
        asked.waiting.clear()
        self._by_call.pop(asked.call.id, None)
        return out

    def withdraw_all(self, reason: str) -> Effects:
        """The same of everything."""
        return [effect for asked in list(self._by_call.values()) for effect in self.withdraw(asked, reason)]


def responses(replies: Mapping[str, bytes]) -> bytes:
    """``inputResponses``, each as the client wrote it."""
    return b"{" + b",".join(jsontext.dump(key) + b":" + raw for key, raw in replies.items()) + b"}"


def _is_object(result: bytes | None) -> bool:
    """Whether an answer is an object of one reading: anything else is nobody's answer."""
    try:
        return result is not None and jsontext.fields(result) is not None
    except Malformed:
        return False
