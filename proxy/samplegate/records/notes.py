"""What the session has to say: each note is counted, and the log gets the first of a kind and then a count now and then. Not the records.

A peer chooses how often something is refused, and every line of the log costs more than the frame that caused it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol

from samplegate.core.session.rounds import Note
from samplegate.records.metrics import Metrics

LOGGED: Final = 20  # of an event; then the 100th, the 1000th and so on
DROPPED: Final = "samplegate_frames_dropped_total"
COUNTED: Final[Mapping[str, str]] = {
    "frame.refused": "samplegate_frames_refused_total",
    "frame.unasked": DROPPED,
    "frame.oversized": DROPPED,
    "frame.failed": DROPPED,
}
"""The events by which a frame was lost, and the metric of each; its ``reason`` is the event's second half."""


class EventLog(Protocol):
    """Where events go, ``records/log.py``."""

    def debug(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class Notes:
    """Takes every note of one session. ``take`` is called where a fault is handled, so that its traceback can be logged."""

    def __init__(self, log: EventLog, metrics: Metrics, server: str) -> None:
        self._log = log
        self._metrics = metrics
        self._server = server
        self._seen: Counter[str] = Counter()

    def take(self, note: Note) -> None:
        """Count one note, and log it unless there were too many of its event."""
        if note.event in COUNTED:
            reason = note.event.partition(".")[2]
            self._metrics.count(COUNTED[note.event], server=self._server, side=note.fields.get("side"), reason=reason)
        if not note.warn:
            self._log.debug(note.event, **note.fields)
            return
        self._seen[note.event] += 1
        count = self._seen[note.event]
        if count <= LOGGED:
            self._tell(note, {})
        elif _is_round(count):
            self._tell(note, {"count": count})

    def summary(self) -> str:
        """``not every one is in the log: 5120 frame.refused``; empty where the log has all."""
        many = ", ".join(f"{count} {event}" for event, count in sorted(self._seen.items()) if count > LOGGED)
        return f"not every one is in the log: {many}" if many else ""

    def _tell(self, note: Note, more: Mapping[str, object]) -> None:
        tell = self._log.error if "exc_info" in note.fields else self._log.warning
        tell(note.event, **note.fields, **more)


def _is_round(count: int) -> bool:
    """A power of ten."""
    return str(count).strip("0") == "1"
