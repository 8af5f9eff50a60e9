"""Records that were revoked, as they came out after all: the revoking record takes the place of the one before. Pure; it reads no lines.

A verdict is marked as used after the record stands. Where that cannot be done nothing is released, and a second record of the same
``decision_id`` says so. It follows within seconds, so that only a bounded number of records, each with a verdict, is held back to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from samplegate.core.logline import Line
from samplegate.core.record import may_be_revoked

MAX_HELD: Final = 10_000  # records
MAX_BYTES: Final = 64 * 1024 * 1024  # of JSON; a log may be anybody's, and its lines may have contents


def settled(lines: Iterable[Line]) -> Iterator[Line]:
    """The records of a log, each revoked one with its revoking one as one. Those with a verdict come later than they stand in the log.

    A revoking record is passed on by itself where the one before is not there: in a file that begins between them.
    """
    held: dict[str, tuple[Line, int]] = {}
    total = 0
    for line in lines:
        before, size = held.pop(line.decision_id, (None, 0))
        total -= size
        if before is not None and line.revokes:
            yield _revoked(before, line)
            continue
        if before is not None:
            yield before
        if not may_be_revoked(line.outcome, line.review):
            yield line
            continue
        held[line.decision_id] = (_alone(line), size := len(msgspec.json.encode(line)))
        total += size
        while len(held) > MAX_HELD or total > MAX_BYTES:
            oldest, size = held.pop(next(iter(held)))
            total -= size
            yield oldest
    for line, _ in held.values():
        yield line


def _revoked(first: Line, last: Line) -> Line:
    """What was asked and spent stands in the first, what came of it in the last."""
    return msgspec.structs.replace(
        first,
        time=last.time,
        outcome=last.outcome,
        reason=last.reason,
        action=last.action,
        decided_by=last.decided_by,
        duration_ms=last.duration_ms,
        revokes=True,
        result=last.result,
    )


def _alone(line: Line) -> Line:
    """Without the rest of the text that it was read from, which its contents would keep in memory."""
    return msgspec.structs.replace(line, request=line.request.copy(), result=line.result.copy())
