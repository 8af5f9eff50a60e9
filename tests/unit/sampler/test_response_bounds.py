"""The bound on the size of a response. ``test_shapes.py`` tests it with the real readers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from samplegate.sampler.worker import call as flood
from samplegate.sampler.worker.call import ResponseTooLarge, bounded

pytestmark = pytest.mark.anyio


async def read(*chunks: bytes) -> list[bytes]:
    """The chunks that get through."""

    async def answer(of: Sequence[bytes]) -> AsyncIterator[bytes]:
        for chunk in of:
            yield chunk

    return [chunk async for chunk in bounded(answer)(chunks)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "MAX_LINE", 10)
    monkeypatch.setattr(flood, "MAX_BODY", 25)


async def test_what_is_within_the_bounds_comes_through_as_it_is(small: None) -> None:
    lines = [b"data: 1\n", b"\nda", b"ta: 2", b"\n\n", b"end"]

    assert b"".join(lines) == b"".join(await read(*lines))


async def test_every_chunk_with_the_end_of_a_line_is_passed_on_at_once() -> None:
    lines = [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\nda"]

    assert lines == await read(*lines)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "chunks", [[b"x" * 11], [b"x" * 6] * 2, [b"xxxx\n", b"x" * 6, b"x" * 5], [b"x" * 8, b"\n" + b"x" * 11]]
)
async def test_a_line_that_is_too_long_ends_the_answer(chunks: list[bytes]) -> None:
    with pytest.raises(ResponseTooLarge, match="the response has a line longer than 10 bytes"):
        await read(*chunks)


async def test_a_body_that_is_too_long_ends_the_answer(small: None) -> None:
    with pytest.raises(ResponseTooLarge, match="the response is larger than 25 bytes"):
        await read(*[b"x\n"] * 13)


async def test_a_long_line_comes_in_few_pieces_since_readers_copy_what_they_have_with_each() -> None:
    pieces = await read(*[b"x" * 16] * 4096)

    assert b"x" * 16 * 4096 == b"".join(pieces)
    assert len(pieces) < 20
