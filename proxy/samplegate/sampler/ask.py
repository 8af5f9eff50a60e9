"""One call of one model through litellm, and what its answer comes to. Runs in the worker only; litellm is handed in, so that one file imports it.

Only what stands in ``ARGUMENTS`` and below reaches litellm: no retries, no fallbacks, no callbacks. Answers come as streams, so that it is known
when a model has begun; what a provider cannot stream comes in one piece.
"""

from __future__ import annotations

import asyncio
import secrets as randomness
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from samplegate.core.samples import Failure
from samplegate.sampler.answer import Refused, read
from samplegate.sampler.faults import classify, sentence
from samplegate.sampler.fits import RESPONSES, fitted
from samplegate.sampler.flood import Flood, on_done
from samplegate.sampler.heard import Heard, TooMuch
from samplegate.sampler.names import offer
from samplegate.sampler.parts import Unfit
from samplegate.sampler.stream import Broken, listen

ARGUMENTS: Final = frozenset({"messages", "max_tokens", "temperature", "stop", "tools", "tool_choice"})
_MUST: Final = {"tools": "tools", "tool_choice": "a choice among tools"}

Answer = dict[str, Any]


async def ask(litellm: Any, call: Mapping[str, Any], secrets: Sequence[str], told: Callable[[int], None]) -> Answer:
    """``{"sampled": {...}}`` or ``{"failed": {...}}``, the fields of ``core.samples``.

    ``call`` has our ``name`` of the model, ``target`` with litellm's ``model`` and, where given, ``api_base`` and ``api_key``; the ARGUMENTS,
    ``offer``, and ``timeout`` in seconds. ``told`` hears the number of pieces of the answer so far, at every one.
    """
    name, target = call["name"], call["target"]
    asked = {key: call[key] for key in ARGUMENTS if key in call}
    heard = Heard()
    on_done.set(heard.ended_well)
    try:
        async with asyncio.timeout(call["timeout"]):
            model, provider = _provider(litellm, target)
            responds = _responds(litellm, model, provider, target.get("api_base"), asked.get("tools"))
            asked["messages"] = fitted(RESPONSES if responds else provider, model, asked["messages"])
            dropped = _dropped(litellm, model, provider, asked)
            if responds and asked.pop("stop", None) is not None and "stop" not in dropped:
                dropped.append("stop")
            response = await litellm.acompletion(**target, **asked, **_manner(call["timeout"]))
            await listen(litellm, response, heard, told)
        return {"sampled": {**read(heard, offer(call.get("offer", {})), secrets, _fresh), "dropped": dropped}}
    except _Unknown:
        return _failed(name, "unknown_model", heard, free=True)
    except Unfit as why:
        return _failed(name, "bad_request", heard, what=str(why), free=True)
    except Refused as why:
        return _failed(name, why.failure, heard, what=why.what)
    except (TooMuch, Flood) as why:
        return _failed(name, "error", heard, what=str(why))
    except Broken:
        silent = "its answer is no chat completion; check api_base, and that the server knows this kind of request"
        return _failed(name, "error", heard, what="its answer broke off; try again, or ask another model" if heard.pieces else silent)
    except Exception as error:
        fault = classify(error, time.time())
        return _failed(name, fault.failure, heard, status=fault.status, retry_after=fault.retry_after, free=fault.free and not heard.pieces)


class _Unknown(Exception):
    """litellm knows no provider for the name."""


def _manner(timeout: float) -> dict[str, Any]:
    return {
        "timeout": timeout,
        "num_retries": 0,
        "max_retries": 0,
        "drop_params": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _provider(litellm: Any, target: Mapping[str, Any]) -> tuple[str, str]:
    """litellm's names of the model and its provider. Raises _Unknown."""
    try:
        model, provider, *_ = litellm.get_llm_provider(**target)
    except Exception:
        raise _Unknown from None
    return str(model), str(provider)


def _responds(litellm: Any, model: str, provider: str, base: str | None, tools: Any) -> bool:
    """Whether litellm will ask for a response in place of a chat completion; where it cannot be told, what a response lacks is not sent."""
    try:
        facts, _ = litellm.main.responses_api_bridge_check(model=model, custom_llm_provider=provider, tools=tools, api_base=base)
    except Exception:
        return provider in ("openai", "azure", "azure_ai")
    return bool(facts.get("mode") == "responses")


def _dropped(litellm: Any, model: str, provider: str, asked: Mapping[str, Any]) -> list[str]:
    """Which of what is asked litellm leaves out for this model, found by asking twice.

    Raises Unfit for what must not be left out, and whatever litellm raises.
    """

    def translated(**params: Any) -> Any:
        return litellm.utils.get_optional_params(model=model, custom_llm_provider=provider, drop_params=True, **params)

    params = {key: value for key, value in asked.items() if key != "messages"}
    whole_request = translated(**params)
    other = 2 if params["max_tokens"] == 1 else 1
    if translated(**{**params, "max_tokens": other}) == whole_request:
        raise Unfit("its provider takes no bound on an answer's length, so it is not asked; choose another")  # R3

    def without(key: str) -> dict[str, Any]:
        return {k: v for k, v in params.items() if k != key and not (key == "tools" and k == "tool_choice")}

    gone = [key for key in params if key != "max_tokens" and translated(**without(key)) == whole_request]
    for key in gone:
        if key in _MUST and params[key] != "none":  # a use that was forbidden is refused when it comes (R9)
            raise Unfit(f"its provider takes no {_MUST[key]}; ask another model, or let a client answer this one (effect: forward)")
    return [key for key in gone if key not in _MUST]


def _fresh() -> str:
    return f"use_{randomness.token_hex(8)}"


def _failed(
    name: str,
    failure: Failure,
    heard: Heard,
    *,
    status: int | None = None,
    retry_after: float | None = None,
    what: str | None = None,
    free: bool = False,
) -> Answer:
    """What was counted is told all the same: it is paid for."""
    failed = {
        "failure": failure,
        "message": sentence(name, failure, status, what),
        "retry_after": retry_after,
        "started": heard.pieces > 0,
        "free": free,
        "input_tokens": heard.input_tokens,
        "output_tokens": heard.output_tokens,
    }
    return {"failed": failed}
