"""Progress on the client's calls: the server's own values, kept rising where the gate stands between (R101, T33). Counts only, never text."""

from __future__ import annotations

import math
from typing import Final

from samplegate.core import frames, jsontext
from samplegate.core.frames import Frame
from samplegate.core.session.inflight import Inflight, Pending

STEP: Final = 1e-6  # our beats stay between two values of a server that counts in whole or hundredth parts


class Progress:
    """The progress series of one session's calls."""

    def __init__(self, inflight: Inflight) -> None:
        self._inflight = inflight

    def passes(self, pending: Pending, f: Frame) -> bool:
        """Whether the server's progress notification on a request goes on to the client."""
        value = _number(f.lookup("progress"))
        if value is None:
            return True
        if pending.rewound and pending.progress is not None and value <= pending.progress:
            return False
        pending.progress = value if pending.progress is None else max(value, pending.progress)
        return True

    def of(self, token: bytes) -> Pending | None:
        """The request in flight that the server knows by this token (raw JSON)."""
        wanted = frames.plain_id(token)
        if isinstance(wanted, str) and (mapped := self._inflight.tokens.get(wanted)) is not None:
            return mapped
        for pending in self._inflight.wire.values():
            if pending.token is not None and pending.wire_token is None and frames.plain_id(pending.token) == wanted:
                return pending
        return None

    def beat(self, pending: Pending) -> bytes | None:
        """A notification that keeps the client's timer alive, None if it gave no token."""
        token = pending.token
        if token is None or pending.progress == math.inf:
            return None
        pending.rewound = True
        before = pending.progress if pending.progress is not None else 0.0
        pending.progress = max(before + STEP, math.nextafter(before, math.inf))
        if pending.progress == math.inf:
            return None
        return notification(token, pending.progress)


def notification(token: bytes, value: float) -> bytes:
    """A progress notification of ours on a token (raw JSON) that the peer gave."""
    return frames.notification("notifications/progress", b'{"progressToken":' + token + b',"progress":' + jsontext.dump(value) + b"}")


def _number(raw: bytes | None) -> float | None:
    try:
        return None if raw is None else float(raw)
    except ValueError:
        return None
