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


def refused(side: Side, line: bytes, fault: str, answer: Callable[[Malformed], list[Effect]]) -> list[Effect]:
    """A batch is refused: ``answer`` is called for each of its first elements that somebody waits for. One note counts the requests in it.

    Elements over the bound count as requests unread, and so does a batch that cannot be read, once: `--strict` must not miss a lost call.
    """
    try:
        found = frames.batch(line)
    except Malformed:
        return [Note("frame.refused", {"side": side, "fault": fault, "requests": 1})]
    told = [Malformed(fault, **frames.whose(element)) for element in found[:MAX_BATCH]]
    waiting = [problem for problem in told if problem.id is not None]
    requests = sum(not problem.answers for problem in waiting) + max(len(found) - MAX_BATCH, 0)
    out: list[Effect] = [Note("frame.refused", {"side": side, "fault": fault, "requests": requests})]
    return out + [effect for problem in waiting for effect in answer(problem) if not isinstance(effect, Note)]
