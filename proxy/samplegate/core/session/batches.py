"""A line that no frame could be read from: a batch (R92), taken apart, or what is wrong with it. Each element is gated and answered on its own."""

from __future__ import annotations

from typing import Final

from samplegate.core import frames
from samplegate.core.eras import has_batches
from samplegate.core.jsontext import Malformed

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
