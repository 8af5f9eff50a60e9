"""What a model's answer comes to: content blocks in MCP's newest shape, or the failure that it is. Pure; answers are as hostile as servers.

Text first, then images, then uses of tools (R13), each under the server's name for the tool and an id that stands nowhere else (T27). What has
no place among them is a failure and is named, not left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from samplegate.core.samples import Failure
from samplegate.sampler.heard import Call, Heard
from samplegate.sampler.names import Offer
from samplegate.sampler.parts import is_base64, whole
from samplegate.sampler.tools import PROVIDER, SIGNATURE, signed_with

MAX_DEPTH: Final = 64  # of a tool's arguments: what every reader after us takes

_STOPS: Final[Mapping[str, str]] = {"stop": "endTurn", "length": "maxTokens", "stop_sequence": "stopSequence"}
# What providers call the same, which says no more than that (R5); other words pass as they are.
_ENDS: Final = frozenset({"end_turn", "complete", "eos", "eos_token", "stop", "finish_reason_unspecified"})
_LENGTHS: Final = frozenset({"max_tokens", "max_output_tokens"})
_USES: Final = frozenset({"tool_calls", "tool_use", "function_call"})
# These pass as they are: what the model had to say was cut off by its provider.
_CUT: Final = frozenset(
    "content_filter refusal safety recitation language blocklist prohibited_content spii image_safety malformed_function_call pause_turn".split()
)
_NAME: Final = re.compile(r"[\x20-\x7e]{1,256}\Z")
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")
_URL: Final = re.compile(r"data:(image/[a-z0-9][a-z0-9.+-]{0,63});base64,", re.IGNORECASE)
_SIGNED: Final = "__thought__"  # litellm hides a signature behind this, in the id

Block = dict[str, Any]


class Refused(Exception):
    """The answer is not taken. ``what`` is for the operator; None: what is said of the failure anyway."""

    def __init__(self, failure: Failure, what: str | None = None) -> None:
        super().__init__(what)
        self.failure: Failure = failure
        self.what = what


def read(heard: Heard, offer: Offer, secrets: Sequence[str], fresh: Callable[[], str]) -> dict[str, Any]:
    """The fields of ``Sampled`` but for ``dropped``. ``fresh`` makes an id of a tool use. Raises Refused."""
    if heard.audio:
        raise Refused("error", "it answered with audio, which cannot be passed on; ask another model")
    text = "".join(heard.texts)
    uses = _uses(heard.calls, offer, fresh)
    content = [*([{"type": "text", "text": whole(text)}] if text else []), *map(_image, heard.images), *uses]
    if not content:
        refused = heard.refusal or heard.mapped == "content_filter" or heard.stop == "content_filter"
        raise Refused("refused" if refused else "empty")
    if offer.required and not uses:
        raise Refused("error", "it used no tool although it was required to (toolChoice); ask another model")
    if _leaks(text, heard, uses, secrets):
        raise Refused("error", "its answer holds the key it was called with; the answer is withheld, change the key")
    return {
        "content": content,
        "model": _model(heard.model, secrets),
        "stop_reason": _stop_reason(heard.stop, bool(uses)),
        "unknown_stop": None if is_known(heard.stop) else heard.stop,
        "input_tokens": heard.input_tokens,
        "output_tokens": heard.output_tokens,
    }


def _stop_reason(word: str | None, uses: bool) -> str:
    """R5. Gemini stops to have tools used with the same word as at its end; an unknown word only means that the model ended."""
    lower = "" if word is None else word.lower()
    if word is None or lower in _USES or lower in _ENDS or not is_known(word):
        return "toolUse" if uses else "endTurn"
    if lower in _LENGTHS:
        return "maxTokens"
    return _STOPS.get(word, word)


def is_known(word: str | None) -> bool:
    """Whether a provider's word for why it stopped is one that has a meaning for others; no word needs none."""
    return word is None or word in _STOPS or word.lower() in _ENDS | _USES | _LENGTHS | _CUT


def _uses(calls: Sequence[Call], offer: Offer, fresh: Callable[[], str]) -> list[Block]:
    taken = set(offer.taken)
    uses: list[Block] = []
    for call in calls:
        name = offer.names.get(call.name)
        if name is None:
            offered = f"{len(offer.names)} were offered" if offer.names else "none was offered"
            raise Refused("error", f"it wants a tool used that nobody offered ({offered}); ask another model")
        id = _unique(call.id, taken, fresh)
        block: Block = {"type": "tool_use", "id": id, "name": name, "input": _arguments(call, len(uses))}
        hidden = (call.id or "").partition(_SIGNED)[2]
        if (signature := signed_with(call.signature or hidden)) is not None:
            block["_meta"] = {PROVIDER: {SIGNATURE: signature}}
        uses.append(block)
    return uses


def _unique(given: str | None, taken: set[str], fresh: Callable[[], str]) -> str:
    """The provider's id if it is one and stands nowhere else, else a new one."""
    id = (given or "").partition(_SIGNED)[0]
    while not _ID.match(id) or id in taken:
        id = fresh()
    taken.add(id)
    return id


def _arguments(call: Call, index: int) -> dict[str, Any]:
    raw = "".join(call.arguments).strip() or "{}"
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        value = None
    if not isinstance(value, dict) or _deep(value):
        raise Refused("error", f"the arguments of its tool use {index + 1} are no JSON object; raise max_tokens, or ask another model")
    return value


def _deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [one for outer in level if isinstance(outer, dict | list) for one in (outer.values() if isinstance(outer, dict) else outer)]
        if not level:
            return False
    return True


def _image(url: object) -> Block:
    found = _URL.match(url) if isinstance(url, str) else None
    if not isinstance(url, str) or found is None or not is_base64(url[found.end() :]):
        raise Refused("error", "it answered with an image that is not in the answer itself; nothing is fetched, ask another model")
    return {"type": "image", "data": url[found.end() :], "mimeType": found[1].lower()}


def _leaks(text: str, heard: Heard, uses: Sequence[Block], secrets: Sequence[str]) -> bool:
    """Arguments as they came and as they go, which spell a character differently."""
    said = [text, heard.stop or "", *("".join(call.arguments) for call in heard.calls), *(msgspec.json.encode(use).decode() for use in uses)]
    return any(secret in one for secret in secrets for one in said)


def _model(model: str | None, secrets: Sequence[str]) -> str | None:
    """The model that really answered (R1), None where its provider says nothing that could be a name."""
    if model is None or not _NAME.match(model) or any(secret in model for secret in secrets):
        return None
    return model
