"""When a modern client that asks what the server speaks is told that it is the legacy eras only. Most clients then begin again in those.

Bridged, it could be asked nothing (``modern_client.py``). So where it has roots, or the policy would forward what it declares, the server's own era
gives it more; where policy answers everything, nothing is lost by the bridge, and a client that knows no other era works too.
"""

from __future__ import annotations

from typing import Final

from samplegate.core import frames
from samplegate.core.bridge.probing import DISCOVER
from samplegate.core.eras import LEGACY, META_CAPABILITIES
from samplegate.core.frames import Frame
from samplegate.core.requests import ClientCapabilities
from samplegate.core.session import declared, shapes
from samplegate.core.session.rounds import ToClient
from samplegate.core.session.state import State

FAULT: Final = "method not found: server/discover; the server speaks the revisions of the handshake only, begin with initialize"


def is_better(state: State, lane: int, f: Frame) -> bool:
    """Whether the client declares what only it can answer: roots, or what is offered to the server on its account alone.

    Raises jsontext.Malformed for two readings.
    """
    client = declared.read(f.meta.raw(META_CAPABILITIES))
    caller = state.caller_on(lane)
    bridged = state.offer("legacy", LEGACY[-1], ClientCapabilities(), None, caller)
    return client.roots or state.offer("legacy", LEGACY[-1], client, None, caller) != bridged


def is_sent_back(state: State, lane: int, f: Frame) -> bool:
    """Whether a client's frame asks what the server speaks, and is better answered that it is the legacy eras only. Raises as ``is_better``."""
    return f.kind == "request" and f.method == DISCOVER and is_better(state, lane, f)


def refusal(lane: int, f: Frame) -> ToClient:
    """What a legacy server would say (R84, R85)."""
    return ToClient(lane, frames.error(f.id, shapes.METHOD_NOT_FOUND, FAULT), True)
