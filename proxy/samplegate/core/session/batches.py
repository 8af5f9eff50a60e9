"""A line that no frame could be read from: a batch (R92), taken apart, or what is wrong with it. Each element is gated and answered on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from samplegate.core import frames
from samplegate.core.eras import has_batches
from samplegate.core.jsontext import Malformed
from samplegate.core.session.rounds import Effect, Note, Side

MAX_BATCH: Final = 1000  # elements
NESTED: Final = Malformed("it is a batch in a batch")


def elements(line: bytes, problem: Malformed, revision: str) -> list[bytes] | Malformed:
    """The elements as lines of their own, under the negotiated ``revision``; ``problem`` is what was wrong with the line as a frame."""
    if not frames.is_batch(line):
        return problem
    if not revision or not has_batches(revision):
        return Malformed("it is a batch, which this revision does not have")
    try:
        found = frames.batch(line)
    except Malformed as worse:
        return worse
    if not 0 < len(found) <= MAX_BATCH:
        return Malformed(f"it is a batch of {len(found)}, not of 1 to {MAX_BATCH}")
    return [element.replace(b"\n", b" ").replace(b"\r", b" ") for element in found]


def is_nested(element: bytes) -> bool:
    """Whether an element is a batch itself."""
    return element[:1] == b"["


def refused(side: Side, line: bytes, problem: Malformed, answer: Callable[[Malformed], list[Effect]]) -> list[Effect]:
    """Refuse a line that is no frame. In a batch, ``answer`` refuses each of the first elements that has an id, and one note counts the requests.

    Elements over the bound count as requests unread, and so does a batch that cannot be read, once: `--strict` must not miss a lost call.
    """
    if not frames.is_batch(line):
        return answer(problem)
    fault = problem.fault
    try:
        found = frames.batch(line)
    except Malformed:
        return [Note("frame.refused", {"side": side, "fault": fault, "requests": 1})]
    told = [Malformed(fault, **frames.whose(element)) for element in found[:MAX_BATCH]]
    waiting = [one for one in told if one.id is not None]
    requests = sum(not one.answers for one in waiting) + max(len(found) - MAX_BATCH, 0)
    out: list[Effect] = [Note("frame.refused", {"side": side, "fault": fault, "requests": requests})]
    return out + [effect for one in waiting for effect in answer(one) if not isinstance(effect, Note)]
