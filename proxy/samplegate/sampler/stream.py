"""Reads litellm's answer, a stream or not, into a ``Heard``. Runs in the worker only; litellm's objects are handed in.

litellm's wrapper is given a tap in place of the provider's reader: it shows what the provider really said, and ends the wrapper before that
assembles the answer a second time and counts its tokens with a tokenizer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from samplegate.sampler.heard import Heard

Told = Callable[[int], None]

_JSON: Final = "application/json"


class Broken(Exception):
    """The stream ended before the provider said that it was done."""


async def listen(litellm: Any, response: Any, heard: Heard, told: Told) -> None:
    """Read all of it. ``told`` hears the number of pieces so far. Raises Broken, Flood, TooMuch and whatever litellm raises."""
    if not hasattr(response, "__aiter__"):
        _whole(response, heard, told)
        return
    try:
        tapped = _tap(response, heard)
        body = await _json_body(getattr(response, "completion_stream", None))
        if body is None:
            await _pieces(response, heard, told, tapped)
        else:
            _whole(_converted(litellm, body), heard, told)
    finally:
        close = getattr(response, "aclose", None)
        if close is not None:
            await close()
    if body is None:
        _finish(response, heard)


def _finish(response: Any, heard: Heard) -> None:
    """The end of a stream must have been announced: one that breaks off between two pieces looks like any other."""
    if heard.stop is None and heard.done and heard.pieces:  # some servers never give a reason
        heard.stop, heard.output_tokens = "stop", heard.output_tokens or heard.last_count
    if heard.stop is None:
        heard.mapped = heard.mapped or getattr(response, "received_finish_reason", None)
        if heard.knows or heard.mapped is None:
            raise Broken
        heard.stop = heard.mapped


async def _pieces(response: Any, heard: Heard, told: Told, tapped: bool) -> None:
    try:
        async for chunk in response:
            choices = getattr(chunk, "choices", None)
            if choices and heard.piece(choices[0].delta):
                told(heard.pieces)
            if choices and not tapped:
                heard.ended(choices[0].finish_reason)
            _forget(response)
    except _Ended:
        return


def _forget(wrapper: Any) -> None:
    """litellm keeps every piece, some kilobytes each, to put them together at an end that it does not reach."""
    kept = getattr(wrapper, "chunks", None)
    if isinstance(kept, list):
        kept.clear()
    if isinstance(getattr(wrapper, "response_uptil_now", None), str):
        wrapper.response_uptil_now = ""


def _whole(response: Any, heard: Heard, told: Told) -> None:
    """An answer that came in one piece."""
    heard.named(getattr(response, "model", None))
    choices = getattr(response, "choices", None)
    if choices:
        native = (getattr(choices[0], "provider_specific_fields", None) or {}).get("native_finish_reason")
        mapped = getattr(choices[0], "finish_reason", None)
        heard.mapped = mapped if isinstance(mapped, str) else None
        heard.stop = native if isinstance(native, str) else heard.mapped
        if heard.piece(choices[0].message):
            told(heard.pieces)
    heard.used(getattr(response, "usage", None))


class _Ended(BaseException):
    """The provider's stream is at its end. No Exception, for litellm handles all of those."""


class _Tap:
    """The provider's reader, overheard."""

    def __init__(self, reader: Any, heard: Heard) -> None:
        self._reader = reader
        self._chunks: AsyncIterator[Any] = reader.__aiter__()
        self._heard = heard
        parse = getattr(reader, "chunk_parser", None)
        if callable(parse):
            reader.chunk_parser = _overhearing(parse, heard)

    def __aiter__(self) -> _Tap:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await self._chunks.__anext__()
        except StopAsyncIteration:
            raise _Ended from None
        if type(chunk).__module__.partition(".")[0] == "openai":  # its package hands on what came, word for word
            self._heard.native({"choices": [{"finish_reason": one.finish_reason} for one in chunk.choices or ()]})
        self._heard.chunk(chunk)
        return chunk

    async def aclose(self) -> None:
        for name in ("aclose", "close"):
            close = getattr(self._reader, name, None)
            if close is not None:
                await close()
                return


def _overhearing(parse: Callable[..., Any], heard: Heard) -> Callable[..., Any]:
    def overheard(*args: Any, **kwargs: Any) -> Any:
        frame = kwargs.get("chunk", args[0] if args else None)
        if isinstance(frame, dict):
            heard.native(frame)
        return parse(*args, **kwargs)

    return overheard


def _tap(wrapper: Any, heard: Heard) -> bool:
    """False where there is no reader to overhear. Some are there already, others are made by the first step."""
    reader = getattr(wrapper, "completion_stream", None)
    if hasattr(reader, "__aiter__"):
        wrapper.completion_stream = _Tap(reader, heard)
        return True
    make = getattr(wrapper, "make_call", None)
    if reader is not None or make is None:
        return False

    async def made(*args: Any, **kwargs: Any) -> Any:
        return _Tap(await make(*args, **kwargs), heard)

    wrapper.make_call = made
    return True


async def _json_body(tap: Any) -> bytes | None:
    """The body of an OpenAI-compatible server that answers with JSON although a stream was asked for; None for a stream."""
    answer = getattr(getattr(tap, "_reader", None), "response", None)
    headers = getattr(answer, "headers", None)
    if answer is None or headers is None or not hasattr(answer, "aiter_bytes"):
        return None
    if not str(headers.get("content-type", "")).lower().startswith(_JSON):
        return None
    return b"".join([some async for some in answer.aiter_bytes()])


def _converted(litellm: Any, body: bytes) -> Any:
    """A chat completion as litellm reads it where no stream is asked for."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        raise Broken from None
    return litellm.utils.convert_to_model_response_object(response_object=answer, model_response_object=litellm.ModelResponse())
