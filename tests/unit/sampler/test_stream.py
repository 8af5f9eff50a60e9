"""litellm's return values, in forms that no endpoint of the tests can produce. The real ones are in
``test_shapes.py``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from samplegate.sampler.worker.call import TruncatedStream, listen
from samplegate.sampler.worker.response import ResponseAccumulator

pytestmark = pytest.mark.anyio

LITELLM = SimpleNamespace(
    ModelResponse=SimpleNamespace,
    utils=SimpleNamespace(
        convert_to_model_response_object=lambda response_object, model_response_object: _plain(response_object)
    ),
)


def _plain(value: dict[str, Any]) -> SimpleNamespace:
    choices = [
        SimpleNamespace(message=SimpleNamespace(**one["message"]), finish_reason=one["finish_reason"])
        for one in value["choices"]
    ]
    return SimpleNamespace(model=value["model"], choices=choices, usage=value.get("usage"))


def chunk(text: str | None = None, finish: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(content=text), finish_reason=finish)])


class Wrapper:
    """A stream like litellm's: it reads from ``completion_stream`` if there is one."""

    def __init__(self, *chunks: Any, reader: Any = None) -> None:
        self._chunks = chunks
        self.completion_stream = reader
        self.chunks: list[Any] = []
        self.most_kept = 0
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        if self.completion_stream is not None:
            async for one in self.completion_stream:
                yield one
        for one in self._chunks:
            self.chunks.append(one)
            self.most_kept = max(self.most_kept, len(self.chunks))
            yield one

    async def aclose(self) -> None:
        self.closed = True


class Reader:
    """A provider's reader over an HTTP response that contains JSON."""

    def __init__(self, body: bytes, kind: str = "application/json; charset=utf-8") -> None:
        self._body = body
        self.response = SimpleNamespace(headers={"content-type": kind}, aiter_bytes=self._pieces)

    async def _pieces(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), 10):
            yield self._body[start : start + 10]

    async def __aiter__(self) -> AsyncIterator[Any]:
        return
        yield


async def heard(response: Any) -> tuple[ResponseAccumulator, list[int]]:
    out, told = ResponseAccumulator(), list[int]()
    await listen(LITELLM, response, out, told.append)
    return out, told


async def test_a_stream_without_a_reader_to_overhear_ends_with_litellms_word_and_counts_nothing() -> None:
    wrapper = Wrapper(chunk("a"), chunk("b"), chunk(None, "length"))
    out, told = await heard(wrapper)

    assert (["a", "b"], "length", None, [1, 2]) == (out.texts, out.stop, out.output_tokens, told)
    assert wrapper.closed


async def test_a_stream_without_an_end_is_broken_and_closed() -> None:
    wrapper = Wrapper(chunk("a"))

    with pytest.raises(TruncatedStream):
        await heard(wrapper)
    assert wrapper.closed


async def test_nothing_is_kept_twice() -> None:
    wrapper = Wrapper(*[chunk("a")] * 50, chunk(None, "stop"))
    await heard(wrapper)

    assert 1 == wrapper.most_kept


async def test_an_answer_in_one_piece_keeps_the_providers_own_word() -> None:
    choice = SimpleNamespace(
        message=SimpleNamespace(content="all"),
        finish_reason="stop",
        provider_specific_fields={"native_finish_reason": "ran_out_of_ink"},
    )
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    out, told = await heard(SimpleNamespace(model="m-1", choices=[choice], usage=usage))

    assert (["all"], "ran_out_of_ink", "stop", "m-1", 7, 3, [1]) == (
        out.texts,
        out.stop,
        out.mapped,
        out.model,
        out.input_tokens,
        out.output_tokens,
        told,
    )


async def test_json_in_place_of_a_stream_is_read() -> None:
    body = {"model": "m-1", "choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]}
    out, told = await heard(Wrapper(reader=Reader(msgspec.json.encode(body))))

    assert (["all"], "stop", "m-1", [1]) == (out.texts, out.stop, out.model, told)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[" * 10_000])
async def test_what_claims_to_be_json_and_is_not_is_broken(body: bytes) -> None:
    with pytest.raises(TruncatedStream):
        await heard(Wrapper(reader=Reader(body)))


async def test_an_answer_without_choices_is_heard_as_nothing() -> None:
    out, told = await heard(SimpleNamespace(model="m-1", choices=[], usage=None))

    assert (0, []) == (out.length, told)
