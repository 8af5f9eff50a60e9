"""What has been heard of a model's answer so far, whole or as a stream, bounded while it grows. No I/O; what it comes to is ``answer.py``'s.

litellm's own words are not taken for three things, for it makes them up where a provider is silent: the tokens (counted with a tokenizer), the
reason to stop (``stop`` in every piece of Gemini's, and at the end of a stream that broke off), and the model's name (the one that was asked).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

MAX_ANSWER: Final = 16 * 1024 * 1024  # characters; a thousand times what models write, small enough for every frame after it
MAX_PIECES: Final = 1_000_000  # of a stream; an answer has one for a token or for several
MAX_USES: Final = 128

_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_RESPONSES: Final = frozenset({"response.completed", "response.incomplete"})
_ANTHROPIC: Final = frozenset({"message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "content_block_stop"})


class TooMuch(Exception):
    """The answer has outgrown its bounds. The message says which, for the operator."""


class Call(msgspec.Struct):
    """A tool that the model wants used, as far as it came."""

    id: str | None = None
    name: str = ""
    arguments: list[str] = []
    signature: object = None


class Heard(msgspec.Struct):
    """An answer in the making."""

    texts: list[str] = []
    calls: list[Call] = []
    images: list[object] = []
    audio: bool = False
    refusal: bool = False
    pieces: int = 0
    """Pieces that held something of the answer: what is told as tokens."""
    stop: str | None = None
    """The provider's own reason to stop; None until it gave one."""
    mapped: str | None = None
    """litellm's word for it."""
    knows: bool = False
    """The provider's own frames were seen in a shape that is known, so ``stop`` is all it said."""
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    last_count: int | None = None
    """Of the output, whether the end was announced by then or not."""
    done: bool = False
    """The stream's own end was seen (``[DONE]``): it did not break off."""
    length: int = 0
    _open: dict[int, Call] = {}
    _all: int = 0

    def piece(self, delta: Any) -> bool:
        """One delta of a stream, or a whole message; True if it held something. Raises TooMuch."""
        self._all += 1
        if self._all > MAX_PIECES:
            raise TooMuch(f"its answer came in more than {MAX_PIECES} pieces; ask another model")
        before = self.length
        self._text(getattr(delta, "content", None))
        self._images(getattr(delta, "images", None))
        self.audio = self.audio or bool(getattr(delta, "audio", None))
        self.refusal = self.refusal or _refuses(delta)
        calls = getattr(delta, "tool_calls", None) or ()
        for place, one in enumerate(calls):
            self._call(one, place)
        if getattr(delta, "function_call", None):
            self._call_of(Call(), delta.function_call)
        thought = getattr(delta, "reasoning_content", None)
        held = self.length > before or bool(calls) or bool(isinstance(thought, str) and thought)
        self.pieces += held
        return held

    def native(self, frame: Mapping[str, Any]) -> None:
        """One frame of the provider's own, before litellm changes its words."""
        kind = frame.get("type")
        if isinstance(kind, str) and kind in _ANTHROPIC:
            self.knows = True
            self._stopped(_of(frame.get("delta"), "stop_reason"))
        if isinstance(kind, str) and kind in _RESPONSES:
            self._responded(frame.get("response"))
        for key, name in (("candidates", "finishReason"), ("choices", "finish_reason")):
            listed = frame.get(key)
            if isinstance(listed, list):
                self.knows = True
                self._stopped(_of(listed[0] if listed else None, name))
        blocked = _of(frame.get("promptFeedback"), "blockReason")
        if blocked is not None:
            self.knows = True
            self._stopped(blocked)

    def chunk(self, raw: Any) -> None:
        """One piece as litellm's reader of the provider gave it, before litellm adds to it."""
        self.named(getattr(raw, "model", None))
        choices = getattr(raw, "choices", None)
        if isinstance(choices, list) and choices:
            self.ended(getattr(choices[0], "finish_reason", None))
            self.refusal = self.refusal or _refuses(getattr(choices[0], "delta", None))  # a piece that holds nothing else is left out later
        elif isinstance(raw, Mapping) and raw.get("is_finished"):
            self.ended(raw.get("finish_reason"))
        self.used(getattr(raw, "usage", None) or (raw.get("usage") if isinstance(raw, Mapping) else None))

    def ended(self, word: object) -> None:
        """litellm's word for the end: it counts where the provider's own is not seen."""
        if isinstance(word, str) and word:
            self.mapped = word
            if not self.knows:
                self._stopped(word)

    def ended_well(self) -> None:
        """The stream did not break off."""
        self.done = True

    def named(self, model: object) -> None:
        """The model that answers, as its provider says."""
        if isinstance(model, str) and model:
            self.model = model

    def used(self, usage: object) -> None:
        """What the provider counted. The output only once the end was announced: what is told before is told again, higher."""
        if usage is None:
            return
        self.input_tokens = _count(usage, "prompt_tokens") or self.input_tokens
        self.last_count = _count(usage, "completion_tokens") or self.last_count
        if self.stop is not None or not self.knows:
            self.output_tokens = _count(usage, "completion_tokens") or self.output_tokens

    def _text(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._grow(len(text))
            self.texts.append(text)

    def _images(self, images: object) -> None:
        for image in images if isinstance(images, list) else ():
            url = _get(_get(image, "image_url"), "url")
            self._grow(len(url) if isinstance(url, str) else 1)
            self.images.append(url)

    def _call(self, delta: Any, place: int) -> None:
        """A call's beginning, or more of its arguments; a new id at an old index is another call, for some servers number all with 0."""
        index = _get(delta, "index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else place
        id, function = _get(delta, "id"), _get(delta, "function")
        call = self._open.get(index)
        if call is None or (_get(function, "name") and isinstance(id, str) and id and call.id and id != call.id):
            call = self._open[index] = Call()
        if isinstance(id, str) and id:
            call.id = id
        fields = _get(delta, "provider_specific_fields") or _get(function, "provider_specific_fields")
        call.signature = _get(fields, "thought_signature") or call.signature
        self._call_of(call, function)

    def _call_of(self, call: Call, function: object) -> None:
        if not any(call is one for one in self.calls):
            if len(self.calls) == MAX_USES:
                raise TooMuch(f"it wants more than {MAX_USES} tools used at once; ask another model")
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
            raise TooMuch(f"its answer is longer than {MAX_ANSWER} characters; lower max_tokens")

    def _responded(self, response: object) -> None:
        """The last event of OpenAI's responses says everything again, and more than the pieces do where litellm cuts a whole answer into some."""
        self.knows = True
        self.named(_of(response, "model"))
        reason = _of(_of(response, "incomplete_details"), "reason")
        self._stopped(reason if isinstance(reason, str) else "stop")
        output = _of(response, "output")
        items = [item for item in output if _of(item, "type") == "function_call"] if isinstance(output, list) else []
        if items:
            self.calls, self._open = [], {}
        for item in items:
            self._call_of(Call(_text_of(item, "call_id")), item)

    def _stopped(self, word: object) -> None:
        if isinstance(word, str) and _WORD.match(word):
            self.stop = word


def _refuses(delta: Any) -> bool:
    """OpenAI's own field, which litellm keeps aside."""
    return bool(getattr(delta, "refusal", None) or (_get(getattr(delta, "provider_specific_fields", None), "refusal")))


def _of(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _text_of(value: object, key: str) -> str | None:
    found = _of(value, key)
    return found if isinstance(found, str) else None


def _get(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def _count(usage: object, which: str) -> int | None:
    """A count of the provider's; litellm says 0 where there was none, and no answer has none."""
    count = _get(usage, which)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None
