"""What stands between one server and its clients while its era is found out, and what is known of it so far. Finds nothing out itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from samplegate.core.bridge import fallback
from samplegate.core.bridge.conversing import Converses, TakesFrames
from samplegate.core.bridge.probe import Probe
from samplegate.core.bridge.probing import DISCOVER, Eras
from samplegate.core.bridge.waiting import Held, Waiting
from samplegate.core.capabilities import Offer
from samplegate.core.eras import Protocol
from samplegate.core.evidence import REFUSED
from samplegate.core.frames import Frame
from samplegate.core.requests import ClientCapabilities
from samplegate.core.session.rounds import Effect, Note, ToClient, Withdraw
from samplegate.core.session.session import Session
from samplegate.core.session.state import INTERNAL, State

Effects = list[Effect]
Phase = Literal["new", "relaying", "probing", "greeting", "calling", "settled"]
"""Nothing yet; the client's ``initialize`` is with the server; our ``server/discover`` is; a bridge opens the server;
a modern client's first call is with it; decided."""

SET: Final[Mapping[Protocol, Eras]] = {"legacy": Eras(legacy=True, modern=False), "modern": Eras(legacy=False, modern=True)}
"""What a setting says in place of a probe."""


class Choice:
    """One server's."""

    def __init__(
        self,
        state: State,
        known: Eras | None,
        patience: float,
        take: Callable[[TakesFrames], None],
        *,
        protocol: Protocol = "auto",
        prefers_legacy: bool = False,
    ) -> None:
        """``take``: told who takes frames from here on. ``prefers_legacy``: see ``Evidence``; it counts under ``auto`` only."""
        self.state = state
        self.protocol: Final = protocol
        self.eras = SET[protocol] if protocol != "auto" else known if known is not None else Eras()
        self.prefers_legacy = protocol == "auto" and prefers_legacy and self.eras.legacy is not False
        self.probed_first = False
        """Whether the first request that the server got was our ``server/discover``."""
        self.phase: Phase = "new"
        self.chosen: Converses = Session(state)
        self.waiting = Waiting()
        self.hello: Held | None = None
        """The legacy client's ``initialize``, while nobody knows whether the server takes it."""
        self.refusal: ToClient | None = None
        """What the server said to it, while it is asked whether it is modern."""
        self.found = Eras()
        """What the probe told, kept once the server has shown it."""
        self.probe = Probe(state, patience)
        self.take = take
        self._maps_ids = state.maps_ids

    def settle(self, chosen: Converses) -> None:
        """All is decided."""
        self.chosen, self.phase, self.hello, self.refusal = chosen, "settled", None, None
        self.probe.answered()
        self.take(chosen.frame)

    def is_sent_back(self, lane: int, f: Frame) -> bool:
        """Whether a client's ``server/discover`` is answered as a legacy server would, so that the client begins again. Raises Malformed."""
        if self.protocol == "auto":
            return fallback.is_sent_back(self.state, lane, f)
        return self.protocol == "legacy" and f.kind == "request" and f.method == DISCOVER

    def handshake_refused(self) -> Effects:
        """The server does not take the handshake: neither this connection nor a later one prefers it."""
        self.prefers_legacy = False
        if self.probed_first and not self.state.streams:  # on stdio a server keeps to the era of its first request (T21)
            return []
        return [Note(REFUSED, {"server": self.state.server}, warn=False)]

    def begin_anew(self) -> None:
        """Nothing is decided, as before the first frame."""
        self.phase, self.chosen = "new", Session(self.state)

    def replayed(self) -> Effects:
        """What waited goes to what was chosen, in its order."""
        return [effect for held in self.waiting.take() for effect in self.chosen.frame("client", held.lane, held.frame, held.now)]

    def left(self) -> Effects:
        """What was chosen before is left: its rounds end, what it asked for itself is nobody's any more, and what clients asked stays asked."""
        state = self.state
        for pending in [pending for pending in state.inflight.asked.values() if pending.lane == INTERNAL]:
            state.inflight.remove(pending)
        outlived, state.outlived = state.outlived, False
        out: Effects = [effect for effect in self.chosen.eof("server") if isinstance(effect, Withdraw)]
        state.outlived = outlived
        return out

    def reset(self) -> None:
        """The state as before the first frame, but for its numbers."""
        self.state.maps_ids, self.state.revision = self._maps_ids, ""
        self.state.client, self.state.offered = ClientCapabilities(), Offer()
