"""Pure. Negotiation of the era: a plain session or a bridge, by the client's era and the detected eras of the server.

If the server has both eras, the client's is used (R88). A legacy client's ``initialize`` goes to the server unchanged
and without an earlier probe, because stdio servers keep the era of their first request.

For a modern client, the server gets ``server/discover`` first (R84). A modern client on stdio may start again as a
legacy one, if nothing but its own probes is under way (T21).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

import msgspec

from samplegate.protocol import capabilities, frames, rawjson, results
from samplegate.protocol.bridge import era_detection, translation
from samplegate.protocol.bridge.calls import FrameReceiver, HeldFrame, HeldFrames, SessionProtocol, full
from samplegate.protocol.bridge.era_detection import Eras, Probe
from samplegate.protocol.bridge.translation import Envelope
from samplegate.protocol.capabilities import modern_meta
from samplegate.protocol.evidence import REFUSED
from samplegate.protocol.frames import CALLS, META, META_CAPABILITIES, Frame, FrameId, Protocol
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import ClientCapabilities, Offer
from samplegate.protocol.rounds import Conclusion, Effects, Note, Over, Side, ToClient, Withdraw
from samplegate.protocol.session import NESTED_BATCH, Session, batch_elements, is_nested_batch, refused_line
from samplegate.protocol.session_state import (
    CANCELLED,
    DISCOVER,
    INITIALIZE,
    INTERNAL,
    LISTEN,
    OpenCall,
    SessionState,
    request_id,
)
from samplegate.protocol.task_state import Found

Phase = Literal["new", "relaying", "probing", "greeting", "calling", "settled"]
"""State of the negotiation.

``new``: not started. ``relaying``: the client's ``initialize`` is with the server. ``probing``: our ``server/discover``
is with the server. ``greeting``: a bridge opens the server. ``calling``: a modern client's first call is with the
server. ``settled``: decided.
"""

ERAS_BY_SETTING: Final[Mapping[Protocol, Eras]] = {
    "legacy": Eras(legacy=True, modern=False),
    "modern": Eras(legacy=False, modern=True),
}
"""The eras for a setting, which replaces the probe."""


class NegotiationState:
    """State of the negotiation with one server."""

    def __init__(
        self,
        state: SessionState,
        known: Eras | None,
        patience: float,
        take: Callable[[FrameReceiver], None],
        *,
        protocol: Protocol = "auto",
        prefers_legacy: bool = False,
    ) -> None:
        """``take`` gets the receiver of later frames; ``prefers_legacy`` (``Evidence``) counts only under ``auto``."""
        self.state = state
        self.protocol: Final = protocol
        self.eras = ERAS_BY_SETTING[protocol] if protocol != "auto" else known if known is not None else Eras()
        self.prefers_legacy = protocol == "auto" and prefers_legacy and self.eras.legacy is not False
        self.probed_first = False
        """Whether the server's first request was our ``server/discover``."""
        self.phase: Phase = "new"
        self.chosen: SessionProtocol = Session(state)
        self.waiting = HeldFrames()
        self.hello: HeldFrame | None = None
        """The legacy client's ``initialize``, until the server is known to accept it."""
        self.refusal: ToClient | None = None
        """The server's error for it, while the server is probed for the modern era."""
        self.found = Eras()
        """The probe's finding, kept once the server has confirmed it."""
        self.known_legacy = False
        """While a bridge opens the server: whether it is known to be spoken to in a legacy era."""
        self.probe = Probe(state, patience)
        self.take = take
        self._maps_ids = state.maps_ids

    def settle(self, chosen: SessionProtocol) -> None:
        """End the negotiation."""
        self.chosen, self.phase, self.hello, self.refusal = chosen, "settled", None, None
        self.probe.answered()
        self.take(chosen.frame)

    def is_sent_back(self, stream: int, f: Frame) -> bool:
        """Whether a ``server/discover`` gets a legacy server's answer, so that the client starts again.

        Raises Malformed.
        """
        if self.protocol == "auto":
            return era_detection.is_sent_back(self.state, stream, f)
        return self.protocol == "legacy" and f.kind == "request" and f.method == DISCOVER

    def handshake_refused(self) -> Effects:
        """Note that the server refuses the handshake, so that no connection prefers the legacy era."""
        self.prefers_legacy = False
        # on stdio, a server keeps the era of its first request (T21)
        if self.probed_first and not self.state.streams:
            return []
        return [Note(REFUSED, {"server": self.state.server}, warn=False)]

    def restart(self) -> None:
        """Restart the negotiation, as before the first frame."""
        self.phase, self.chosen = "new", Session(self.state)

    def replayed(self) -> Effects:
        """Send the waiting frames to the chosen session, in their order."""
        return [
            effect
            for held in self.waiting.take()
            for effect in self.chosen.frame("client", held.stream, held.frame, held.now)
        ]

    def left(self) -> Effects:
        """Leave the previous session: its rounds and own requests end, but the clients' requests stay open."""
        state = self.state
        for pending in [pending for pending in state.inflight.asked.values() if pending.stream == INTERNAL]:
            state.abandon(pending)
        outlived, state.outlived = state.outlived, False
        out: Effects = [effect for effect in self.chosen.eof("server") if isinstance(effect, Withdraw)]
        state.outlived = outlived
        return out

    def reset(self) -> None:
        """Reset the state as before the first frame, except for its numbers."""
        self.state.maps_ids, self.state.revision = self._maps_ids, ""
        self.state.client, self.state.offered = ClientCapabilities(), Offer()


class LegacyProbe(msgspec.Struct, eq=False):
    """Negotiation for a legacy client."""

    choice: NegotiationState

    def begin(self, stream: int, f: Frame, now: float) -> Effects:
        """Send ``initialize`` on unchanged, so that a server of both eras uses the client's (R88)."""
        choice = self.choice
        if choice.eras.legacy is False and choice.eras.modern:
            choice.hello = HeldFrame(stream, f, now)
            return self.bridged()
        out = choice.chosen.frame("client", stream, f, now)
        if choice.eras.legacy:
            choice.settle(choice.chosen)
        elif not any(isinstance(effect, ToClient) for effect in out):
            choice.phase, choice.hello = "relaying", HeldFrame(stream, f, now)
        return out

    def answers(self, stream: int, f: Frame) -> bool:
        """Whether a frame for the client answers its ``initialize``."""
        hello = self.choice.hello
        return (
            self.choice.phase == "relaying" and hello is not None and (stream, f.id) == (hello.stream, hello.frame.id)
        )

    def answered(self, effect: ToClient, f: Frame, now: float) -> Effects:
        """Process the server's answer to ``initialize``."""
        choice = self.choice
        if f.kind == "result":
            choice.eras = choice.eras.updated_by(Eras(legacy=True))
            choice.settle(choice.chosen)
            return [effect, *choice.replayed()]
        if era_detection.is_modern_error(f):
            choice.eras = choice.eras.updated_by(Eras(legacy=False, modern=True))
            return [*choice.handshake_refused(), *self.bridged()]
        if choice.eras.modern is False:
            choice.settle(choice.chosen)
            return [effect, *choice.replayed()]
        choice.refusal = effect
        choice.phase = "probing"
        return choice.probe.ask(choice.chosen, now)

    def bridged(self) -> Effects:
        """Put a bridge before a server that turned out to be modern."""
        from samplegate.protocol.bridge.legacy_client import LegacyClient

        choice = self.choice
        assert choice.hello is not None
        hello, out = choice.hello, [*choice.left(), *self._early_request_errors()]
        choice.reset()
        choice.settle(LegacyClient(choice.state))
        return [*out, *choice.chosen.frame("client", hello.stream, hello.frame, hello.now), *choice.replayed()]

    def _early_request_errors(self) -> Effects:
        """Errors for the client's requests before ``initialize``, which its server does not understand."""
        inflight = self.choice.state.inflight
        early = list(inflight.asked.values())
        for pending in early:
            inflight.remove(pending)
        fault = "sent before initialize, in a protocol version that the server does not support"
        return [
            ToClient(pending.stream, frames.error(pending.id, results.INVALID_REQUEST, fault), True)
            for pending in early
        ]


STDIO = 0


class LegacyRestart(msgspec.Struct, eq=False):
    """Restart of the negotiation when a modern client falls back to ``initialize``."""

    choice: NegotiationState
    first: Callable[[int, Frame, float], Effects]
    """Receives a client's first frame and all later ones."""

    def frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects:
        """Pass frames through a bridge, unless a client on stdio falls back to ``initialize`` (T21).

        The bridge reads each frame anyway.
        """
        raw = line.raw if isinstance(line, Frame) else line
        if side == "client" and b"initialize" in raw:
            try:
                line = f = frames.of(line)
                if self.is_meant(stream, f):
                    return self.begin(stream, f, now)
            except Malformed:
                pass  # the bridge words the refusal
        return self.choice.chosen.frame(side, stream, line, now)

    def is_meant(self, stream: int, f: Frame) -> bool:
        """Whether a client's frame is an allowed restart."""
        from samplegate.protocol.bridge.modern_client import ModernClient

        choice = self.choice
        if (
            f.kind != "request"
            or f.method != INITIALIZE
            or stream != STDIO
            or choice.hello is not None
            or modern_meta(f) is not None
        ):
            return False
        if isinstance(choice.chosen, ModernClient) and choice.chosen.ready:
            return choice.chosen.idle
        waits = choice.chosen.waits if isinstance(choice.chosen, ModernClient) else choice.waiting.held
        return all(held.frame.method == DISCOVER for held in waits)

    def begin(self, stream: int, f: Frame, now: float) -> Effects:
        """Restart with a first frame; waiting requests get an error."""
        from samplegate.protocol.bridge.modern_client import ModernClient

        choice = self.choice
        held = choice.chosen.give_back() if isinstance(choice.chosen, ModernClient) else choice.waiting.take()
        choice.probe.give_up()
        out = choice.left()
        choice.reset()
        choice.restart()
        fault = "the client switched to another protocol version with initialize"
        out += [
            ToClient(one.stream, frames.error(one.frame.id, results.INTERNAL, fault), True)
            for one in held
            if one.frame.id is not None
        ]
        return out + self.first(stream, f, now)


class ModernProbe(msgspec.Struct, eq=False):
    """Negotiation for a modern client, and for a legacy one whose ``initialize`` the server refused."""

    choice: NegotiationState
    relaying: LegacyProbe
    again: LegacyRestart

    def begin(self, stream: int, f: Frame, now: float) -> Effects:
        """Keep the client's first frame until the server's eras are known."""
        choice = self.choice
        extended = choice.prefers_legacy and capabilities.has_modern_extension(f.lookup(META, META_CAPABILITIES))
        legacy = choice.eras.modern is False or (choice.prefers_legacy and not extended)
        if choice.eras.modern and not legacy:
            if f.method not in CALLS and f.method != LISTEN:
                self.server_answers()
                return choice.chosen.frame("client", stream, f, now)
            # such a request may legitimately take long, so our own probe shows whether the server answers at all
            choice.phase = "calling"
            return [*choice.probe.send_beside(choice.chosen, now), *choice.chosen.frame("client", stream, f, now)]
        own = f.method == DISCOVER and isinstance(translation.read_envelope(f), Envelope)
        if not choice.waiting.add(stream, f, now):
            return [full(stream, f)]
        if legacy:
            return self._greet(known=True)
        choice.phase, choice.probed_first = "probing", True
        return choice.probe.ask(choice.chosen, now, choice.waiting.held[0] if own else None)

    def server_answers(self) -> None:
        """End the negotiation: the server was known to be modern, and it answers."""
        self.choice.settle(self.choice.chosen)
        if self.choice.protocol == "modern":
            self.choice.take(self.again.frame)  # a later initialize must not reach this server

    def meanwhile(self, stream: int, line: bytes | Frame, now: float) -> Effects:
        """Process a client's frame while the first call is with the server."""
        takes = self.again.frame if self.choice.protocol == "modern" else self.choice.chosen.frame
        return takes("client", stream, line, now)

    def answered(self, f: Frame) -> Effects:
        """Process the server's answer to ``server/discover``."""
        choice, found = self.choice, era_detection.finding(f)
        choice.found = found.eras
        choice.probe.answered()
        if not found.modern:
            return self.not_modern(known=True)
        choice.eras = choice.eras.updated_by(found.eras)
        if choice.hello is not None:
            choice.eras = choice.eras.updated_by(Eras(legacy=False))
            return [*choice.handshake_refused(), *self.relaying.bridged()]
        choice.settle(choice.chosen)
        return [*choice.probe.clients(f, choice.waiting), *choice.replayed()]

    def not_modern(self, *, known: bool) -> Effects:
        """Continue with a legacy server, or with one that has not answered in time, which is not ``known``."""
        choice = self.choice
        if choice.hello is None:
            return self._greet(known=known)
        refusal, choice.refusal = choice.refusal, None
        choice.settle(choice.chosen)  # the client gets the server's own error, and may try another revision
        return [*([] if refusal is None else [refusal]), *choice.replayed()]

    def _greet(self, *, known: bool) -> Effects:
        from samplegate.protocol.bridge.modern_client import ModernClient

        choice = self.choice
        # a server that is only slow to start may be modern, so its clients' discovers wait until it answers
        out = [*choice.left(), *(self._sent_back() if known else [])]
        choice.reset()
        if not choice.waiting.held:  # a client that was refused may start again, in the server's era
            choice.restart()
            return out
        choice.phase, choice.known_legacy = "greeting", known
        choice.chosen = ModernClient(choice.state, is_sent_back=choice.is_sent_back)
        return out + choice.replayed()

    def _sent_back(self) -> Effects:
        choice = self.choice
        held = [held for held in choice.waiting.held if choice.is_sent_back(held.stream, held.frame)]
        for one in held:
            assert one.frame.id is not None
            choice.waiting.remove(one.stream, one.frame.id)
        return [era_detection.refusal(one.stream, one.frame) for one in held]

    def greeted(self) -> Effects:
        """Check whether the bridge has opened the server. After a refusal, the negotiation starts again."""
        from samplegate.protocol.bridge.modern_client import ModernClient

        choice, bridge = self.choice, self.choice.chosen
        assert isinstance(bridge, ModernClient)
        if bridge.ready:
            choice.eras = choice.eras.updated_by(Eras(legacy=True, modern=choice.found.modern))
            choice.settle(bridge)
            choice.take(self.again.frame)
        elif not bridge.opening:
            out = [*(choice.handshake_refused() if choice.prefers_legacy else []), *choice.left()]
            choice.reset()
            choice.restart()
            return out
        return []

    def found_late(self, line: bytes | Frame) -> Effects | None:
        """Handle late evidence of a modern server while a bridge opens it (T21); None for every other line."""
        choice = self.choice
        if choice.protocol == "legacy":
            return None
        try:
            f = frames.of(line)
        except Malformed:
            return None
        if f.id is None or f.kind not in ("result", "error"):
            return None
        pending = choice.state.inflight.wire.get(f.id)
        late = choice.probe.is_late_answer(f)
        opens = pending is not None and pending.stream == INTERNAL and pending.method == INITIALIZE
        refused = opens and era_detection.is_modern_error(f)
        if not (late and era_detection.finding(f).modern) and not refused:
            return [] if late else None
        choice.eras = choice.eras.updated_by(Eras(modern=True))
        return [*(choice.handshake_refused() if refused else []), *self._turned_out_modern()]

    def _turned_out_modern(self) -> Effects:
        from samplegate.protocol.bridge.modern_client import ModernClient

        choice, bridge = self.choice, self.choice.chosen
        assert isinstance(bridge, ModernClient)
        held = bridge.give_back()
        out = choice.left()
        choice.reset()
        choice.settle(Session(choice.state))
        for one in held:
            out += choice.chosen.frame("client", one.stream, one.frame, one.now)
        return out


# seconds for an answer to server/discover; then the server gets initialize, too, and its first answer decides
PATIENCE: Final = 5.0


class EraNegotiator:
    """Era negotiation between one server and its clients; it has the methods of ``Session``.

    ``frame`` is replaced by that of the chosen object, so that later frames bypass the negotiator. Look it up anew for
    each frame.
    """

    def __init__(
        self,
        state: SessionState,
        known: Eras | None = None,
        patience: float = PATIENCE,
        *,
        protocol: Protocol = "auto",
        prefers_legacy: bool = False,
    ) -> None:
        """``protocol`` is the server's setting. ``prefers_legacy`` comes from earlier connections (``Evidence``)."""
        self.frame: FrameReceiver = self._frame
        self.died_probing = False
        """Whether the server ended during the probe, as some do at an unknown request."""
        self._choice = NegotiationState(
            state, known, patience, self._taken_by, protocol=protocol, prefers_legacy=prefers_legacy
        )
        self._again = LegacyRestart(self._choice, self._begun_again)
        self._relaying = LegacyProbe(self._choice)
        self._discovering = ModernProbe(self._choice, self._relaying, self._again)

    def _taken_by(self, takes: FrameReceiver) -> None:
        self.frame = takes

    @property
    def state(self) -> SessionState:
        """The state that the parts of the session share."""
        return self._choice.state

    @property
    def eras(self) -> Eras:
        """The known eras of the server, to be cached for its next conversation."""
        return self._choice.eras

    @property
    def phase(self) -> Phase:
        """The progress of the negotiation."""
        return self._choice.phase

    # -- the methods of a session, except ``frame``
    # ---------------------------------------------------------------------------------------

    def lost(self, side: Side, stream: int, head: bytes, fault: str) -> Effects:
        """Refuse a line that could not be read completely."""
        effects = self._choice.chosen.lost(side, stream, head, fault)
        return self._watched(effects, 0.0) if side == "server" else effects

    def lost_end(self, side: Side, stream: int, head: bytes, tail: bytes) -> Effects:
        """Refuse the line by its end, if its beginning did not show which peer waits."""
        effects = self._choice.chosen.lost_end(side, stream, head, tail)
        return self._watched(effects, 0.0) if side == "server" else effects

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """Apply the gate's conclusion to a round."""
        return self._choice.chosen.round_done(round, conclusion, now)

    def forward(self, round: str) -> Effects:
        """Forward a pushed request to the client."""
        return self._choice.chosen.forward(round)

    def unforward(self, round: str, reason: str) -> Effects:
        """Cancel a forwarded request at the client, because the gate no longer waits for its reply."""
        return self._choice.chosen.unforward(round, reason)

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """Progress notifications for a round that is still running."""
        return self._choice.chosen.round_progress(round, tokens)

    def due(self, token: str) -> Effects:
        """Handle a ``Later`` whose delay has elapsed."""
        if not self._choice.probe.is_due(token):
            return self._choice.chosen.due(token)
        self._choice.probe.give_up()
        return self._discovering.not_modern(known=False)

    def wait_long(self, round: str, nonce: bytes) -> Effects:
        """Handle a round that waits for a reviewer, so that its calls become tasks."""
        return self._choice.chosen.wait_long(round, nonce)

    def task_stepped(self, token: str, found: Found) -> Effects:
        """Continue after a ``TaskStep``, with the record of the task or the reason for none."""
        return self._choice.chosen.task_stepped(token, found)

    def read_resource(self, token: str, round: str, uri: str, now: float) -> Effects:
        """Read a resource of the server for a round; the answer is a ``ResourceRead``."""
        return self._choice.chosen.read_resource(token, round, uri, now)

    def stop_reading(self, token: str) -> Effects:
        """Cancel a read of the gate's own."""
        return self._choice.chosen.stop_reading(token)

    def open_calls(self) -> list[OpenCall]:
        """The clients' requests without an answer."""
        hello = self._choice.hello if self.phase == "probing" else None  # in every other phase, it is with the server
        first = (
            []
            if hello is None or hello.frame.id is None
            else [OpenCall(hello.stream, hello.frame.id, hello.frame.method, since=hello.now)]
        )
        return [*first, *self._choice.chosen.open_calls(), *self._choice.waiting.open_calls()]

    def questions(self) -> list[FrameId]:
        """The ids of the requests that wait for a client's answer."""
        return self._choice.chosen.questions()

    def overdue(self, now: float, seconds: float) -> Effects:
        """Cancel requests that the server has not answered within ``seconds``, and answer each with an error."""
        return self._watched(self._choice.chosen.overdue(now, seconds), now)

    def stream_closed(self, side: Side, stream: int) -> Effects:
        """Handle the end of a stream."""
        if side == "client" and self._choice.hello is None:  # a legacy client's requests continue (T35)
            self._choice.waiting.stream_closed(stream)
        return self._choice.chosen.stream_closed(side, stream)

    def undelivered(self, id: FrameId) -> Effects:
        """Fail a request for which the client has no stream."""
        return self._choice.chosen.undelivered(id)

    def eof(self, side: Side) -> Effects:
        """Handle the permanent end of a side. Frames that a legacy client sent early go to the server first."""
        if side == "client":
            out = self._choice.replayed() if self.phase == "relaying" else []
            self._choice.settle(self._choice.chosen)
            return out + self._choice.chosen.eof(side)
        self.died_probing = self.phase == "probing"
        out = [] if self._choice.refusal is None else [self._choice.refusal]
        out += [
            effect
            for effect in self._choice.chosen.eof(side)
            if not isinstance(effect, ToClient) or effect.stream != INTERNAL
        ]
        out += [self._ended(held) for held in self._choice.waiting.take() if held.frame.kind == "request"]
        self._choice.settle(self._choice.chosen)
        return out

    # -- frames during the negotiation
    # ------------------------------------------------------------------------------------------------------

    def _frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects:
        if side == "server":
            return self._server(stream, line, now)
        if self.phase == "calling":
            return self._discovering.meanwhile(stream, line, now)
        try:
            line = f = frames.of(line)
            return self._first(stream, f, now) if self.phase == "new" else self._meanwhile(stream, f, now)
        except Malformed as problem:
            return self._unreadable(stream, line, problem, now)

    def _unreadable(self, stream: int, line: bytes | Frame, problem: Malformed, now: float) -> Effects:
        """Process a batch before the answer to ``initialize``: its elements wait one by one (R92)."""
        hello = self._choice.hello
        found: list[bytes] | Malformed = problem
        if hello is not None and isinstance(line, bytes):
            found = batch_elements(line, problem, rawjson.string(hello.frame.lookup("protocolVersion")) or "")
        if isinstance(found, Malformed):
            return self._choice.chosen.frame("client", stream, line, now)  # the session words the refusal
        out: Effects = []
        for element in found:
            if is_nested_batch(element):
                out += refused_line("client", element, NESTED_BATCH, partial(_refused, stream))
            else:
                out += self.frame("client", stream, element, now)
        return out

    def _begun_again(self, stream: int, f: Frame, now: float) -> Effects:
        self.frame = self._frame
        return self._first(stream, f, now)

    def _first(self, stream: int, f: Frame, now: float) -> Effects:
        if f.kind == "request" and modern_meta(f) is not None:
            return self._discovering.begin(stream, f, now)
        if f.kind == "request" and (f.method == INITIALIZE or self._choice.protocol == "modern"):
            return self._relaying.begin(stream, f, now)
        return self._choice.chosen.frame("client", stream, f, now)

    def _meanwhile(self, stream: int, f: Frame, now: float) -> Effects:
        """Process a client's frame during the negotiation."""
        if self._again.is_meant(stream, f):
            return self._again.begin(stream, f, now)
        if self.phase == "greeting" and self._choice.known_legacy and self._choice.is_sent_back(stream, f):
            return [era_detection.refusal(stream, f)]
        if self.phase == "greeting" or f.kind in ("result", "error"):
            return self._choice.chosen.frame("client", stream, f, now)
        if f.method == CANCELLED and (id := request_id(f)) is not None and self._choice.waiting.remove(stream, id):
            return [Over(stream)]
        if f.kind == "request" and f.id is not None and self._choice.waiting.has(stream, f.id):
            return [
                ToClient(
                    stream,
                    frames.error(f.id, results.INVALID_REQUEST, "a request with this id is already in flight"),
                    True,
                )
            ]
        if self._choice.waiting.add(stream, f, now):
            return []
        if f.kind != "request" or f.id is None:
            return [Note("frame.unasked", {"side": "client"})]
        return [full(stream, f)]

    def _server(self, stream: int, line: bytes | Frame, now: float) -> Effects:
        if self.phase == "greeting":
            found = self._discovering.found_late(line)
            if found is not None:
                return found
        return self._watched(self._choice.chosen.frame("server", stream, line, now), now)

    def _ended(self, held: HeldFrame) -> ToClient:
        return ToClient(held.stream, frames.error(held.frame.id, results.INTERNAL, self.state.end_reason), True)

    def _watched(self, effects: Effects, now: float) -> Effects:
        """The server's effects, without those that decide its era."""
        if self.phase == "greeting":
            return effects + self._discovering.greeted()
        if self.phase == "calling":
            others = [effect for effect in effects if not isinstance(effect, ToClient) or effect.stream != INTERNAL]
            if len(others) < len(effects):
                self._discovering.server_answers()
            return others
        if self.phase not in ("relaying", "probing"):
            return effects
        out: Effects = []
        for effect in effects:
            f = (effect.frame or frames.read(effect.line)) if isinstance(effect, ToClient) else None
            if not isinstance(effect, ToClient) or f is None or f.kind in ("request", "notification"):
                out.append(effect)
            elif self.phase == "probing" and effect.stream == INTERNAL:
                out += self._discovering.answered(f)
            elif self._relaying.answers(effect.stream, f):
                out += self._relaying.answered(effect, f, now)
            elif effect.stream != INTERNAL:
                out.append(effect)
        return out


def _refused(stream: int, problem: Malformed) -> Effects:
    line = frames.error(problem.id, results.INVALID_REQUEST, f"refused: {problem.fault}")
    # before the handshake is over, no request is open that an answer could belong to
    return [] if problem.answers else [ToClient(stream, line, True)]
