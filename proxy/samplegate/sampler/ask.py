"""One call of one model through litellm, and what its answer comes to. Runs in the worker only; litellm is handed in, so that one file imports it.

Only what stands in ``ARGUMENTS`` and below reaches litellm: no retries, no fallbacks, no callbacks. Answers are as hostile as servers:
bounded and checked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from samplegate.core.samples import Failure
from samplegate.sampler.chat import whole
from samplegate.sampler.faults import classify, sentence

ARGUMENTS: Final = frozenset({"messages", "max_tokens", "temperature", "stop"})
MAX_ANSWER: Final = 16 * 1024 * 1024  # characters; a thousand times what models write, small enough for every frame after it

_STOPS: Final[Mapping[str, str | None]] = {"stop": "endTurn", "length": "maxTokens", "stop_sequence": "stopSequence"}
# What litellm calls `stop` although the provider had a word of its own, which says no more than that (R5); others pass as they are.
_ENDS: Final = frozenset({"end_turn", "complete", "eos", "eos_token", "stop", "finish_reason_unspecified"})
_LENGTHS: Final = frozenset({"max_tokens", "max_output_tokens"})
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_NAME: Final = re.compile(r"[\x20-\x7e]{1,256}\Z")

Answer = dict[str, Any]


async def ask(litellm: Any, name: str, target: Mapping[str, Any], call: Mapping[str, Any], secrets: Sequence[str]) -> Answer:
    """``{"sampled": {...}}`` or ``{"failed": {...}}``, the fields of ``core.samples``.

    ``target`` has litellm's ``model`` and, where given, ``api_base`` and ``api_key``; ``call`` the ARGUMENTS and ``timeout`` in seconds.
    """
    asked = {key: call[key] for key in ARGUMENTS if key in call}
    try:
        async with asyncio.timeout(call["timeout"]):
            try:
                dropped = _dropped(litellm, target, asked)
            except _Unknown:
                return _failed(name, "unknown_model")
            except _Unbounded:
                return _failed(name, "bad_request", what="its provider takes no bound on an answer's length, so it is not asked; choose another")
            response = await litellm.acompletion(
                **target, **asked, timeout=call["timeout"], num_retries=0, max_retries=0, drop_params=True, stream=False
            )
    except Exception as error:
        fault = classify(error)
        return _failed(name, fault.failure, fault.status, fault.retry_after)
    return _answer(name, response, call["max_tokens"], dropped, secrets)


class _Unknown(Exception):
    """litellm knows no provider for the name."""


class _Unbounded(Exception):
    """The provider's request would not carry max_tokens (R3)."""


def _dropped(litellm: Any, target: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Which of what is asked litellm leaves out for this model, found by asking twice. Raises _Unknown, _Unbounded, and whatever litellm raises."""
    try:
        model, provider, *_ = litellm.get_llm_provider(**target)
    except Exception:
        raise _Unknown from None

    def translated(**params: Any) -> Any:
        return litellm.utils.get_optional_params(model=model, custom_llm_provider=provider, drop_params=True, **params)

    params = {key: value for key, value in asked.items() if key != "messages"}
    whole_request = translated(**params)
    other = 2 if params["max_tokens"] == 1 else 1
    if translated(**{**params, "max_tokens": other}) == whole_request:
        raise _Unbounded
    rest = [key for key in params if key != "max_tokens"]
    return [key for key in rest if translated(**{k: v for k, v in params.items() if k != key}) == whole_request]


def _answer(name: str, response: Any, most: int, dropped: Sequence[str], secrets: Sequence[str]) -> Answer:
    choices = getattr(response, "choices", None)
    if not choices:
        return _failed(name, "empty")
    message = choices[0].message
    text = message.content
    stop = _stop_reason(choices[0])
    if getattr(message, "tool_calls", None) or getattr(message, "function_call", None):
        return _failed(name, "error", what="it called a tool although none was offered; ask another model")
    if not isinstance(text, str) or not text:
        refused = stop == "content_filter" or _has_refusal(message)
        return _failed(name, "refused" if refused else "empty")
    if len(text) > MAX_ANSWER:
        return _failed(name, "error", what=f"its answer is longer than {MAX_ANSWER} characters; lower max_tokens")
    if any(secret in text for secret in secrets):
        return _failed(name, "error", what="its answer holds the key it was called with; the answer is withheld, change the key")
    given = _tokens(response, "completion_tokens")
    if given is not None and given > most:
        return _failed(name, "error", what=f"it gave {given} tokens where {most} was the most; the answer is withheld, ask another model")
    sampled = {
        "text": whole(text),
        "model": _model(response, secrets),
        "stop_reason": stop,
        "input_tokens": _tokens(response, "prompt_tokens"),
        "output_tokens": given,
        "dropped": list(dropped),
    }
    return {"sampled": sampled}


def _has_refusal(message: Any) -> bool:
    """OpenAI's own field, which litellm keeps aside."""
    return bool(getattr(message, "refusal", None) or (getattr(message, "provider_specific_fields", None) or {}).get("refusal"))


def _stop_reason(choice: Any) -> str | None:
    """R5. litellm turns every word that it does not know into `stop` and keeps the provider's own beside it."""
    said = (getattr(choice, "provider_specific_fields", None) or {}).get("native_finish_reason")
    word = said if isinstance(said, str) else choice.finish_reason
    if not isinstance(word, str) or not _WORD.match(word):
        return None
    if word.lower() in _ENDS:
        return "endTurn"
    if word.lower() in _LENGTHS:
        return "maxTokens"
    return _STOPS.get(word, word)


def _tokens(response: Any, which: str) -> int | None:
    """A count of the provider's; litellm says 0 where there was none, and no answer has none."""
    count = getattr(getattr(response, "usage", None), which, None)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def _model(response: Any, secrets: Sequence[str]) -> str | None:
    """The model that really answered (R1), None where its provider says nothing that could be a name."""
    model = getattr(response, "model", None)
    if not isinstance(model, str) or not _NAME.match(model) or any(secret in model for secret in secrets):
        return None
    return model


def _failed(name: str, failure: Failure, status: int | None = None, retry_after: float | None = None, what: str | None = None) -> Answer:
    return {"failed": {"failure": failure, "message": sentence(name, failure, status, what), "retry_after": retry_after}}
