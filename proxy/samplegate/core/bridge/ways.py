"""How the parts of a bridge reach the peers, each way with the effects of what it did. Functions only: whose they are is ``legacy_client.py``'s."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from samplegate.core.bridge.calls import Call
from samplegate.core.frames import FrameId
from samplegate.core.session.rounds import Effect

Effects = list[Effect]
Action = Callable[[], Effects]


class Ways(msgspec.Struct, frozen=True):
    """Ways of one bridge."""

    say: Callable[[int, bytes], Effects]
    """Write a line to the inner session, on a lane of the client's."""
    ask: Callable[[FrameId, str, bytes], Effects]
    """Send the server a request of ours: its id, method and params, which are stamped."""
    cancel: Callable[[FrameId], Effects]
    """Take one back."""
    answer: Callable[[Call, bytes], Effects]
    """Answer a request of the client's with a line, unless it is over."""
    after: Callable[[float, Action], Effects]
    """Do something in so many seconds."""
    now: Callable[[], float]
    """The time of the session, as far as it is known."""
