"""One call of one model through litellm, and the reading of its answer. It runs only in the worker; litellm and httpx
are parameters.

Only the params in ``ARGUMENTS`` and ``_MANNER`` reach litellm: no retries, no fallbacks, no callbacks. Answers are
streamed, which shows when a model has begun; a provider that cannot stream answers in one piece. litellm's wrapper
reads from a tap in place of the provider's reader. The tap sees the provider's own chunks. It ends the wrapper before
that assembles the answer a second time and counts its tokens with a tokenizer.
"""

from __future__ import annotations

import asyncio
import re
import secrets as randomness
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

import msgspec

from samplegate.policy.prompt import Failure
from samplegate.sampler.worker.errors import classify, sentence
from samplegate.sampler.worker.request import RESPONSES, AnswerBounds, UnsupportedRequest, provider_messages
from samplegate.sampler.worker.response import AnswerRefused, AnswerTooLarge, ResponseAccumulator, sampled_fields

ARGUMENTS: Final = frozenset({"messages", "max_tokens", "temperature", "stop", "tools", "tool_choice"})
_MANNER: Final = {
    "num_retries": 0,
    "max_retries": 0,
    "drop_params": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}
_MUST: Final = {"tools": "tools", "tool_choice": "toolChoice"}

Answer = dict[str, Any]


async def ask(
    litellm: Any, call: Mapping[str, Any], secrets: Sequence[str], on_progress: Callable[[int], None]
) -> Answer:
    """Call a model. Returns ``{"sampled": {...}}`` or ``{"failed": {...}}`` with the fields of ``Sampled`` and
    ``SampleFailed``.

    ``call`` has the policy's ``name`` of the model; ``target`` with litellm's ``model`` and optional ``api_base`` and
    ``api_key``; the ARGUMENTS, ``offer``, and ``timeout`` in seconds. ``on_progress`` is called at
    every piece, with the number of pieces so far.
    """
    name, target = call["name"], call["target"]
    asked = {key: call[key] for key in ARGUMENTS if key in call}
    accumulator = ResponseAccumulator()
    on_done.set(accumulator.note_done)
    try:
        async with asyncio.timeout(call["timeout"]):
            model, provider = _provider(litellm, target)
            responds = _responds(litellm, model, provider, target.get("api_base"), asked.get("tools"))
            asked["messages"] = provider_messages(RESPONSES if responds else provider, model, asked["messages"])
            dropped = _dropped(litellm, model, provider, asked)
            if responds and asked.pop("stop", None) is not None and "stop" not in dropped:
                dropped.append("stop")
            response = await litellm.acompletion(**target, **asked, **_MANNER, timeout=call["timeout"])
            await listen(litellm, response, accumulator, on_progress)
        return {
            "sampled": {
                **sampled_fields(
                    accumulator,
                    msgspec.convert(call.get("offer", {}), AnswerBounds),
                    secrets,
                    lambda: f"use_{randomness.token_hex(8)}",
                ),
                "dropped": dropped,
            }
        }
    except _Unknown:
        return _failed(name, "unknown_model", accumulator, free=True)
    except UnsupportedRequest as why:
        return _failed(name, "bad_request", accumulator, what=str(why), free=True)
    except AnswerRefused as why:
        return _failed(name, why.failure, accumulator, what=why.what)
    except (AnswerTooLarge, ResponseTooLarge) as why:
        return _failed(name, "error", accumulator, what=str(why))
    except TruncatedStream:
        silent = "the response is not a chat completion; check api_base, and that the server supports chat completions"
        return _failed(
            name,
            "error",
            accumulator,
            what="the answer was cut off; try again, or use another model" if accumulator.pieces else silent,
        )
    except Exception as error:
        fault = classify(error, time.time())
        return _failed(
            name,
            fault.failure,
            accumulator,
            status=fault.status,
            retry_after=fault.retry_after,
            free=fault.free and not accumulator.pieces,
        )


class _Unknown(Exception):
    """litellm knows no provider for the model's name."""


def _provider(litellm: Any, target: Mapping[str, Any]) -> tuple[str, str]:
    """litellm's names of the model and its provider. Raises _Unknown."""
    try:
        model, provider, *_ = litellm.get_llm_provider(**target)
    except Exception:
        raise _Unknown from None
    return str(model), str(provider)


def _responds(litellm: Any, model: str, provider: str, base: str | None, tools: Any) -> bool:
    """Whether litellm will use OpenAI's Responses API in place of chat completions. If that is unknown, it is assumed
    for OpenAI and Azure, so that nothing is sent which a response does not support."""
    try:
        facts, _ = litellm.main.responses_api_bridge_check(
            model=model, custom_llm_provider=provider, tools=tools, api_base=base
        )
    except Exception:
        return provider in ("openai", "azure", "azure_ai")
    return bool(facts.get("mode") == "responses")


def _dropped(litellm: Any, model: str, provider: str, asked: Mapping[str, Any]) -> list[str]:
    """The params that litellm leaves out for this model, found by translating the request with and without each.

    Raises UnsupportedRequest if one of them must not be left out, and any exception of litellm.
    """

    def translated(**params: Any) -> Any:
        return litellm.utils.get_optional_params(model=model, custom_llm_provider=provider, drop_params=True, **params)

    params = {key: value for key, value in asked.items() if key != "messages"}
    whole_request = translated(**params)
    other = 2 if params["max_tokens"] == 1 else 1
    if translated(**{**params, "max_tokens": other}) == whole_request:
        raise UnsupportedRequest(
            "the provider does not support max_tokens, so the model was not called; use another model"
        )  # R3

    def without(key: str) -> dict[str, Any]:
        return {k: v for k, v in params.items() if k != key and not (key == "tools" and k == "tool_choice")}

    gone = [key for key in params if key != "max_tokens" and translated(**without(key)) == whole_request]
    for key in gone:
        if key in _MUST and params[key] != "none":  # with "none", a tool use in the answer is rejected later (R9)
            raise UnsupportedRequest(
                f"the provider does not support {_MUST[key]}; use another model, or let the client answer (effect:"
                " forward)"
            )
    return [key for key in gone if key not in _MUST]


def _failed(
    name: str,
    failure: Failure,
    accumulator: ResponseAccumulator,
    *,
    status: int | None = None,
    retry_after: float | None = None,
    what: str | None = None,
    free: bool = False,
) -> Answer:
    """A failed call with the tokens counted so far, because they are paid for."""
    failed = {
        "failure": failure,
        "message": sentence(name, failure, status, what),
        "retry_after": retry_after,
        "started": accumulator.pieces > 0,
        "free": free,
        "input_tokens": accumulator.input_tokens,
        "output_tokens": accumulator.output_tokens,
    }
    return {"failed": failed}


OnProgress = Callable[[int], None]

_JSON: Final = "application/json"


class TruncatedStream(Exception):
    """The stream ended before the provider announced its end."""


async def listen(litellm: Any, response: Any, accumulator: ResponseAccumulator, on_progress: OnProgress) -> None:
    """Read the whole response. ``on_progress`` is called with the number of pieces so far. Raises TruncatedStream,
    ResponseTooLarge, AnswerTooLarge and any exception of litellm."""
    if not hasattr(response, "__aiter__"):
        _whole(response, accumulator, on_progress)
        return
    try:
        tapped = _tap(response, accumulator)
        body = await _json_body(getattr(response, "completion_stream", None))
        if body is None:
            await _pieces(response, accumulator, on_progress, tapped)
        else:
            _whole(_converted(litellm, body), accumulator, on_progress)
    finally:
        close = getattr(response, "aclose", None)
        if close is not None:
            await close()
    if body is None:
        _finish(response, accumulator)


def _finish(response: Any, accumulator: ResponseAccumulator) -> None:
    """Check that the end was announced, because a stream that breaks off between two pieces looks complete."""
    if accumulator.stop is None and accumulator.done and accumulator.pieces:  # some servers never send a reason
        accumulator.stop, accumulator.output_tokens = "stop", accumulator.output_tokens or accumulator.last_count
    if accumulator.stop is None:
        accumulator.mapped = accumulator.mapped or getattr(response, "received_finish_reason", None)
        if accumulator.has_native_stop or accumulator.mapped is None:
            raise TruncatedStream
        accumulator.stop = accumulator.mapped


async def _pieces(response: Any, accumulator: ResponseAccumulator, on_progress: OnProgress, tapped: bool) -> None:
    try:
        async for chunk in response:
            choices = getattr(chunk, "choices", None)
            if choices and accumulator.add_piece(choices[0].delta):
                on_progress(accumulator.pieces)
            if choices and not tapped:
                accumulator.note_stop(choices[0].finish_reason)
            _forget(response)
    except _Ended:
        return


def _forget(wrapper: Any) -> None:
    """Drop the chunks that litellm keeps, some kilobytes each, for an assembly at the end that we never reach."""
    kept = getattr(wrapper, "chunks", None)
    if isinstance(kept, list):
        kept.clear()
    if isinstance(getattr(wrapper, "response_uptil_now", None), str):
        wrapper.response_uptil_now = ""


def _whole(response: Any, accumulator: ResponseAccumulator, on_progress: OnProgress) -> None:
    """Read an answer that arrived in one piece."""
    accumulator.note_model(getattr(response, "model", None))
    choices = getattr(response, "choices", None)
    if choices:
        native = (getattr(choices[0], "provider_specific_fields", None) or {}).get("native_finish_reason")
        mapped = getattr(choices[0], "finish_reason", None)
        accumulator.mapped = mapped if isinstance(mapped, str) else None
        accumulator.stop = native if isinstance(native, str) else accumulator.mapped
        if accumulator.add_piece(choices[0].message):
            on_progress(accumulator.pieces)
    accumulator.note_usage(getattr(response, "usage", None))


class _Ended(BaseException):
    """The end of the provider's stream. Not an Exception, because litellm handles all of those."""


class _Tap:
    """A wrapper of the provider's reader that records its chunks."""

    def __init__(self, reader: Any, accumulator: ResponseAccumulator) -> None:
        self._reader = reader
        self._chunks: AsyncIterator[Any] = reader.__aiter__()
        self._accumulator = accumulator
        parse = getattr(reader, "chunk_parser", None)
        if callable(parse):
            reader.chunk_parser = _recording_parser(parse, accumulator)

    def __aiter__(self) -> _Tap:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await self._chunks.__anext__()
        except StopAsyncIteration:
            raise _Ended from None
        if type(chunk).__module__.partition(".")[0] == "openai":  # OpenAI's package passes values on verbatim
            self._accumulator.read_native_frame(
                {"choices": [{"finish_reason": one.finish_reason} for one in chunk.choices or ()]}
            )
        self._accumulator.read_chunk(chunk)
        return chunk

    async def aclose(self) -> None:
        for name in ("aclose", "close"):
            close = getattr(self._reader, name, None)
            if close is not None:
                await close()
                return


def _recording_parser(parse: Callable[..., Any], accumulator: ResponseAccumulator) -> Callable[..., Any]:
    def recording(*args: Any, **kwargs: Any) -> Any:
        frame = kwargs.get("chunk", args[0] if args else None)
        if isinstance(frame, dict):
            accumulator.read_native_frame(frame)
        return parse(*args, **kwargs)

    return recording


def _tap(wrapper: Any, accumulator: ResponseAccumulator) -> bool:
    """Put a tap on the provider's reader; False if there is none. Some readers exist already, others are created by the
    wrapper's first step."""
    reader = getattr(wrapper, "completion_stream", None)
    if hasattr(reader, "__aiter__"):
        wrapper.completion_stream = _Tap(reader, accumulator)
        return True
    make = getattr(wrapper, "make_call", None)
    if reader is not None or make is None:
        return False

    async def made(*args: Any, **kwargs: Any) -> Any:
        return _Tap(await make(*args, **kwargs), accumulator)

    wrapper.make_call = made
    return True


async def _json_body(tap: Any) -> bytes | None:
    """The body of an OpenAI-compatible server that answers with JSON although a stream was requested; None for a
    stream."""
    answer = getattr(getattr(tap, "_reader", None), "response", None)
    headers = getattr(answer, "headers", None)
    if answer is None or headers is None or not hasattr(answer, "aiter_bytes"):
        return None
    if not str(headers.get("content-type", "")).lower().startswith(_JSON):
        return None
    return b"".join([some async for some in answer.aiter_bytes()])


def _converted(litellm: Any, body: bytes) -> Any:
    """A chat completion, converted as litellm converts it without streaming."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        raise TruncatedStream from None
    return litellm.utils.convert_to_model_response_object(
        response_object=answer, model_response_object=litellm.ModelResponse()
    )


MAX_BODY: Final = 128 * 1024 * 1024  # bytes, decompressed; the longest answer in the smallest pieces that occur
MAX_LINE: Final = 32 * 1024 * 1024  # bytes; the longest answer in one line, with a third of its characters escaped

DONE: Final = re.compile(rb"\ndata: ?\[DONE\]")
"""The line that ends a stream in OpenAI's format. It cannot occur within a piece, where a line end is escaped."""
on_done: ContextVar[Callable[[], None] | None] = ContextVar("on_done", default=None)
"""Called when that line was read, for the call of the current task: litellm and OpenAI's package do not report it."""

Reads = Callable[..., AsyncIterator[bytes]]


class ResponseTooLarge(BaseException):
    """A response has exceeded MAX_BODY or MAX_LINE. The message says which, for the operator. Not an Exception, because
    litellm handles all of those."""


def patch_httpx(response: Any) -> None:
    """Replace ``aiter_bytes`` of ``httpx.Response``, which all bodies, lines, events and errors pass, with one that
    raises ResponseTooLarge."""
    response.aiter_bytes = bounded(response.aiter_bytes)


def bounded(read: Reads) -> Reads:
    """The same bytes, within the bounds. Raises ResponseTooLarge if a chunk exceeds them.

    A long line is passed on in chunks that double its length each time. OpenAI's package copies an event's beginning
    with every chunk, which would delay all other calls by 15 s for an event of 32 MiB.
    """

    @wraps(read)
    async def bounded_read(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        body = line = 0
        held = bytearray()
        done, before = on_done.get(), b"\n"
        async for chunk in read(*args, **kwargs):
            body += len(chunk)
            if done is not None:
                if DONE.search(before + chunk):
                    done()
                before = (before + chunk)[-16:]
            after = len(chunk) - (chunk.rfind(b"\n") + 1)
            line = after if after < len(chunk) else line + len(chunk)
            if body > MAX_BODY:
                raise ResponseTooLarge(f"the response is larger than {MAX_BODY} bytes; use another model")
            if line > MAX_LINE:
                raise ResponseTooLarge(f"the response has a line longer than {MAX_LINE} bytes; use another model")
            held += chunk
            if after < len(chunk) or 2 * len(held) >= line:
                yield bytes(held)
                held.clear()
        if held:
            yield bytes(held)

    return bounded_read
