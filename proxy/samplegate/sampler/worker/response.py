"""A model's answer: the parts received so far, within bounds, and the complete answer in MCP's newest shape. No I/O.

Three values are not taken from litellm, because it invents them if a provider omits them. It counts the tokens with a
tokenizer. It reports ``stop`` in every piece of Gemini's, and at the end of a stream that broke off. As the model's
name, it uses the requested one.

Text comes first, then images, then tool uses (R13). Each tool use has the server's name of the tool and a unique id
(T27). Content that has no place among them fails the answer with a message; it is not left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from samplegate.policy.prompt import Failure
from samplegate.sampler.worker.request import PROVIDER, SIGNATURE, AnswerBounds, is_base64, valid_signature, valid_text

# characters; a thousand times the usual length, and small enough for every later frame
MAX_ANSWER: Final = 16 * 1024 * 1024
MAX_PIECES: Final = 1_000_000  # of a stream; a piece has one or several tokens
MAX_USES: Final = 128

_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_RESPONSES: Final = frozenset({"response.completed", "response.incomplete"})
_ANTHROPIC: Final = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    }
)


class AnswerTooLarge(Exception):
    """The answer exceeds a bound. The message says which, for the operator."""


class PartialToolCall(msgspec.Struct):
    """A tool call, as far as it was received."""

    id: str | None = None
    name: str = ""
    arguments: list[str] = []
    signature: object = None


class ResponseAccumulator(msgspec.Struct):
    """An answer while it is received."""

    texts: list[str] = []
    calls: list[PartialToolCall] = []
    images: list[object] = []
    audio: bool = False
    refusal: bool = False
    pieces: int = 0
    """Pieces with content, which are reported as tokens."""
    stop: str | None = None
    """The provider's own stop reason; None until it was received."""
    mapped: str | None = None
    """litellm's stop reason."""
    has_native_stop: bool = False
    """Whether the provider's own frames had a known shape. If so, ``stop`` is all it has reported."""
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    last_count: int | None = None
    """The last count of output tokens, even if the end was not announced."""
    done: bool = False
    """Whether the stream's end was seen (``[DONE]``), so that it did not break off."""
    length: int = 0
    _open: dict[int, PartialToolCall] = {}
    _chunks: int = 0

    def add_piece(self, delta: Any) -> bool:
        """Add a delta of a stream, or a whole message. True if it had content. Raises AnswerTooLarge."""
        self._chunks += 1
        if self._chunks > MAX_PIECES:
            raise AnswerTooLarge(f"the answer has more than {MAX_PIECES} chunks; use another model")
        before = self.length
        self._add_text(getattr(delta, "content", None))
        self._add_images(getattr(delta, "images", None))
        self.audio = self.audio or bool(getattr(delta, "audio", None))
        self.refusal = self.refusal or _refuses(delta)
        calls = getattr(delta, "tool_calls", None) or ()
        for place, one in enumerate(calls):
            self._add_call_delta(one, place)
        if getattr(delta, "function_call", None):
            self._add_call(PartialToolCall(), delta.function_call)
        thought = getattr(delta, "reasoning_content", None)
        held = self.length > before or bool(calls) or bool(isinstance(thought, str) and thought)
        self.pieces += held
        return held

    def read_native_frame(self, frame: Mapping[str, Any]) -> None:
        """Read one of the provider's own frames, before litellm changes its values."""
        kind = frame.get("type")
        if isinstance(kind, str) and kind in _ANTHROPIC:
            self.has_native_stop = True
            self._set_stop(_of(frame.get("delta"), "stop_reason"))
        if isinstance(kind, str) and kind in _RESPONSES:
            self._read_response(frame.get("response"))
        for key, name in (("candidates", "finishReason"), ("choices", "finish_reason")):
            listed = frame.get(key)
            if isinstance(listed, list):
                self.has_native_stop = True
                self._set_stop(_of(listed[0] if listed else None, name))
        blocked = _of(frame.get("promptFeedback"), "blockReason")
        if blocked is not None:
            self.has_native_stop = True
            self._set_stop(blocked)

    def read_chunk(self, raw: Any) -> None:
        """Read one chunk of litellm's reader of the provider, before litellm adds to it."""
        self.note_model(getattr(raw, "model", None))
        choices = getattr(raw, "choices", None)
        if isinstance(choices, list) and choices:
            self.note_stop(getattr(choices[0], "finish_reason", None))
            # a chunk with only a refusal is dropped later
            self.refusal = self.refusal or _refuses(getattr(choices[0], "delta", None))
        elif isinstance(raw, Mapping) and raw.get("is_finished"):
            self.note_stop(raw.get("finish_reason"))
        self.note_usage(getattr(raw, "usage", None) or (raw.get("usage") if isinstance(raw, Mapping) else None))

    def note_stop(self, word: object) -> None:
        """Note litellm's stop reason; it counts if the provider's own was not seen."""
        if isinstance(word, str) and word:
            self.mapped = word
            if not self.has_native_stop:
                self._set_stop(word)

    def note_done(self) -> None:
        """Note that the stream did not break off."""
        self.done = True

    def note_model(self, model: object) -> None:
        """Note the answering model, as its provider names it."""
        if isinstance(model, str) and model:
            self.model = model

    def note_usage(self, usage: object) -> None:
        """Note the provider's counts. The output counts only once the end was announced, because earlier counts are
        followed by higher ones."""
        if usage is None:
            return
        self.input_tokens = _count(usage, "prompt_tokens") or self.input_tokens
        self.last_count = _count(usage, "completion_tokens") or self.last_count
        if self.stop is not None or not self.has_native_stop:
            self.output_tokens = _count(usage, "completion_tokens") or self.output_tokens

    def _add_text(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._grow(len(text))
            self.texts.append(text)

    def _add_images(self, images: object) -> None:
        for image in images if isinstance(images, list) else ():
            url = _get(_get(image, "image_url"), "url")
            self._grow(len(url) if isinstance(url, str) else 1)
            self.images.append(url)

    def _add_call_delta(self, delta: Any, place: int) -> None:
        """Start a tool call, or extend its arguments. A new id at an old index is another call, because some servers
        use index 0 for all."""
        index = _get(delta, "index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else place
        id, function = _get(delta, "id"), _get(delta, "function")
        call = self._open.get(index)
        if call is None or (_get(function, "name") and isinstance(id, str) and id and call.id and id != call.id):
            call = self._open[index] = PartialToolCall()
        if isinstance(id, str) and id:
            call.id = id
        fields = _get(delta, "provider_specific_fields") or _get(function, "provider_specific_fields")
        call.signature = _get(fields, "thought_signature") or call.signature
        self._add_call(call, function)

    def _add_call(self, call: PartialToolCall, function: object) -> None:
        if not any(call is one for one in self.calls):
            if len(self.calls) == MAX_USES:
                raise AnswerTooLarge(f"the answer has more than {MAX_USES} tool calls; use another model")
            self.calls.append(call)
        name, arguments = _get(function, "name"), _get(function, "arguments")
        if isinstance(name, str) and not call.name:
            self._grow(len(name))
            call.name = name
        if isinstance(arguments, str) and arguments:
            self._grow(len(arguments))
            call.arguments.append(arguments)

    def _grow(self, by: int) -> None:
        self.length += by
        if self.length > MAX_ANSWER:
            raise AnswerTooLarge(f"the answer is longer than {MAX_ANSWER} characters; lower max_tokens")

    def _read_response(self, response: object) -> None:
        """Read the last event of OpenAI's Responses API. It repeats the whole answer, and has more than the pieces if
        litellm splits a whole answer."""
        self.has_native_stop = True
        self.note_model(_of(response, "model"))
        reason = _of(_of(response, "incomplete_details"), "reason")
        self._set_stop(reason if isinstance(reason, str) else "stop")
        output = _of(response, "output")
        items = [item for item in output if _of(item, "type") == "function_call"] if isinstance(output, list) else []
        if items:
            self.calls, self._open = [], {}
        for item in items:
            id = _of(item, "call_id")
            self._add_call(PartialToolCall(id if isinstance(id, str) else None), item)

    def _set_stop(self, word: object) -> None:
        if isinstance(word, str) and _WORD.match(word):
            self.stop = word


def _refuses(delta: Any) -> bool:
    """Whether OpenAI's field for refusals is set, which litellm stores separately."""
    return bool(getattr(delta, "refusal", None) or (_get(getattr(delta, "provider_specific_fields", None), "refusal")))


def _of(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _get(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def _count(usage: object, which: str) -> int | None:
    """The provider's count, or None. litellm reports 0 for a missing count, and no answer has zero tokens."""
    count = _get(usage, which)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


MAX_DEPTH: Final = 64  # of a tool's arguments: every later reader accepts it

_STOPS: Final[Mapping[str, str]] = {"stop": "endTurn", "length": "maxTokens", "stop_sequence": "stopSequence"}
# Providers' synonyms, without further meaning (R5); other words are passed on unchanged.
_ENDS: Final = frozenset({"end_turn", "complete", "eos", "eos_token", "stop", "finish_reason_unspecified"})
_LENGTHS: Final = frozenset({"max_tokens", "max_output_tokens"})
_USES: Final = frozenset({"tool_calls", "tool_use", "function_call"})
# Passed on unchanged: the provider cut the model's answer off.
_CUT: Final = frozenset(
    "content_filter refusal safety recitation language blocklist prohibited_content spii image_safety"
    " malformed_function_call pause_turn".split()
)
_NAME: Final = re.compile(r"[\x20-\x7e]{1,256}\Z")
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")
_URL: Final = re.compile(r"data:(image/[a-z0-9][a-z0-9.+-]{0,63});base64,", re.IGNORECASE)
_SIGNED: Final = "__thought__"  # litellm puts a signature behind this marker in the id

Block = dict[str, Any]


class AnswerRefused(Exception):
    """The answer cannot be used. ``what`` is for the operator; None: the failure's standard sentence."""

    def __init__(self, failure: Failure, what: str | None = None) -> None:
        super().__init__(what)
        self.failure: Failure = failure
        self.what = what


def sampled_fields(
    accumulator: ResponseAccumulator, offer: AnswerBounds, secrets: Sequence[str], fresh: Callable[[], str]
) -> dict[str, Any]:
    """The fields of ``Sampled`` except ``dropped``. ``fresh`` makes an id for a tool use. Raises AnswerRefused."""
    if accumulator.audio:
        raise AnswerRefused("error", "the answer contains audio, which is not supported; use another model")
    text = "".join(accumulator.texts)
    uses = _uses(accumulator.calls, offer, fresh)
    content = [*([{"type": "text", "text": valid_text(text)}] if text else []), *map(_image, accumulator.images), *uses]
    if not content:
        refused = accumulator.refusal or accumulator.mapped == "content_filter" or accumulator.stop == "content_filter"
        raise AnswerRefused("refused" if refused else "empty")
    if offer.required and not uses:
        raise AnswerRefused("error", "the answer has no tool call although toolChoice requires one; use another model")
    if _leaks(text, accumulator, uses, secrets):
        raise AnswerRefused("error", "the answer contains an API key of the gate and is withheld; replace the key")
    return {
        "content": content,
        "model": _model(accumulator.model, secrets),
        "stop_reason": _stop_reason(accumulator.stop, bool(uses)),
        "unknown_stop": None if is_known(accumulator.stop) else accumulator.stop,
        "input_tokens": accumulator.input_tokens,
        "output_tokens": accumulator.output_tokens,
    }


def _stop_reason(word: str | None, uses: bool) -> str:
    """MCP's stop reason (R5). Gemini uses the same word for tool uses and for the end. An unknown word only means that
    the model ended."""
    lower = "" if word is None else word.lower()
    if word is None or lower in _USES or lower in _ENDS or not is_known(word):
        return "toolUse" if uses else "endTurn"
    if lower in _LENGTHS:
        return "maxTokens"
    return _STOPS.get(word, word)


def is_known(word: str | None) -> bool:
    """Whether a provider's stop reason has a known meaning; None needs none."""
    return word is None or word in _STOPS or word.lower() in _ENDS | _USES | _LENGTHS | _CUT


def _uses(calls: Sequence[PartialToolCall], offer: AnswerBounds, fresh: Callable[[], str]) -> list[Block]:
    taken = set(offer.taken)
    uses: list[Block] = []
    for call in calls:
        name = offer.names.get(call.name)
        if name is None:
            offered = f"{len(offer.names)} were offered" if offer.names else "none was offered"
            raise AnswerRefused("error", f"the answer calls an unknown tool ({offered}); use another model")
        id = _unique(call.id, taken, fresh)
        block: Block = {"type": "tool_use", "id": id, "name": name, "input": _arguments(call, len(uses))}
        hidden = (call.id or "").partition(_SIGNED)[2]
        if (signature := valid_signature(call.signature or hidden)) is not None:
            block["_meta"] = {PROVIDER: {SIGNATURE: signature}}
        uses.append(block)
    return uses


def _unique(given: str | None, taken: set[str], fresh: Callable[[], str]) -> str:
    """The provider's id if it is valid and unique, else a new one."""
    id = (given or "").partition(_SIGNED)[0]
    while not _ID.match(id) or id in taken:
        id = fresh()
    taken.add(id)
    return id


def _arguments(call: PartialToolCall, index: int) -> dict[str, Any]:
    raw = "".join(call.arguments).strip() or "{}"
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        value = None
    if not isinstance(value, dict) or _is_too_deep(value):
        raise AnswerRefused(
            "error",
            f"the arguments of tool call {index + 1} are not a JSON object; raise max_tokens, or use another model",
        )
    return value


def _is_too_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            one
            for outer in level
            if isinstance(outer, dict | list)
            for one in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _image(url: object) -> Block:
    found = _URL.match(url) if isinstance(url, str) else None
    if not isinstance(url, str) or found is None or not is_base64(url[found.end() :]):
        raise AnswerRefused("error", "the answer has an image that is not embedded as base64; use another model")
    return {"type": "image", "data": url[found.end() :], "mimeType": found[1].lower()}


def _leaks(text: str, accumulator: ResponseAccumulator, uses: Sequence[Block], secrets: Sequence[str]) -> bool:
    """Whether an answer contains a secret. Arguments are checked as received and as sent, because their escapes may
    differ."""
    texts = [
        text,
        accumulator.stop or "",
        *("".join(call.arguments) for call in accumulator.calls),
        *(msgspec.json.encode(use).decode() for use in uses),
    ]
    return any(secret in one for secret in secrets for one in texts)


def _model(model: str | None, secrets: Sequence[str]) -> str | None:
    """The model that actually answered (R1); None if its provider reports no valid name."""
    if model is None or not _NAME.match(model) or any(secret in model for secret in secrets):
        return None
    return model
