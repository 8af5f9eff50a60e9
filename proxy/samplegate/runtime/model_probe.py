"""Probe of models: asks each model of a policy for one token, through the sampler's worker as a run does.

A failure is a value in words, without keys and content. Cancelling a probe ends its HTTP calls and the worker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from samplegate.durations import duration_text
from samplegate.policy import cost
from samplegate.policy.catalogue import SCRIPTED
from samplegate.policy.file.load import LoadedPolicy
from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest
from samplegate.policy.schema import Model
from samplegate.sampler import keys
from samplegate.sampler.client import Models

TIMEOUT: Final = 30.0
"""Seconds for each model, by default."""
AT_ONCE: Final = 4
MORE_TOKENS: Final = 16
"""Tokens to ask for if a provider rejects a request for one: some models have a minimum."""


class ModelProbe(msgspec.Struct, frozen=True):
    """Result of asking one model. ``model`` is the policy's name."""

    model: str
    index: int
    """The model's number in the policy, from 0."""
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: int | None = None
    """Cost in units of ``ledger.SCALE["usd"]``; None: unknown."""
    failure: str | None = None
    """The kind of failure; None if the model answered."""
    message: str = ""
    """The failure in words, or a remark about the answer."""


async def probe_models(
    loaded: LoadedPolicy, *, folder: Path, environment: Mapping[str, str], timeout: float = TIMEOUT
) -> list[ModelProbe]:
    """Ask every model, at most ``AT_ONCE`` at a time and each for at most ``timeout`` seconds. Raises PolicyError for a
    script that is not valid.

    The start of the worker, which takes seconds, does not count.
    """
    policy = loaded.policy
    # warm models: loading a provider's code takes litellm seconds, which would count as the first model's latency
    warm = [msgspec.structs.replace(model, warm=model.model != SCRIPTED) for model in policy.models]
    models = Models(warm, folder=folder, environment=environment)
    found: dict[int, ModelProbe] = {}
    slots = anyio.Semaphore(AT_ONCE)

    async def one(index: int, model: Model) -> None:
        async with slots:
            probed = await _probe(models, loaded, index, model, timeout)
        why = keys.problem(model, folder=folder, environment=environment) if probed.failure == "bad_key" else None
        found[index] = probed if why is None else msgspec.structs.replace(probed, failure="no_key", message=why)

    try:
        why = await models.warm()
        async with anyio.create_task_group() as group:
            for index, model in enumerate(policy.models):
                if why is not None and model.model != SCRIPTED:
                    found[index] = ModelProbe(model.name, index, 0.0, failure="crashed", message=why)
                else:
                    group.start_soon(one, index, model)
    finally:
        with anyio.CancelScope(shield=True):
            await models.aclose()
    return [found[index] for index in sorted(found)]


async def _probe(models: Models, loaded: LoadedPolicy, index: int, model: Model, timeout: float) -> ModelProbe:
    began = time.monotonic()

    async def ask(tokens: int) -> tuple[Mapping[str, Any], Sampled | SampleFailed]:
        message = {"role": "user", "content": {"type": "text", "text": "Reply with OK."}}
        params = {"messages": [message], "maxTokens": tokens}
        left = max(timeout - (time.monotonic() - began), 0.001)
        return params, await models.sample(SampleRequest(model.name, params, left), lambda _: None)

    params, result = await ask(1)
    if isinstance(result, SampleFailed) and result.failure == "bad_request" and model.model != SCRIPTED:
        params, result = await ask(MORE_TOKENS)
    seconds = time.monotonic() - began
    failure, message = None, ""
    if isinstance(result, SampleFailed):
        failure, message = _in_words(model, result, timeout)
        if failure is not None:
            return ModelProbe(model.name, index, seconds, failure=failure, message=message)
    spent = None
    facts = loaded.catalogue.get(model.name)
    if facts is not None and result.input_tokens is not None and result.output_tokens is not None:
        spent = cost.actual(model, facts, params, result.input_tokens, result.output_tokens).usd
    return ModelProbe(model.name, index, seconds, result.input_tokens, result.output_tokens, spent, message=message)


def _in_words(model: Model, failed: SampleFailed, timeout: float) -> tuple[str | None, str]:
    """The failure and its message; no failure if the model is reachable nevertheless."""
    match failed.failure:
        case "empty":
            return None, "no text, because one token was too few"
        case "no_case":
            return None, "the script has no case for this question"
        case "timeout":
            return "timeout", f"no answer within {duration_text(timeout)}; check api_base, the network and the provider"
        case "rate_limited" if failed.retry_after is not None:
            again = f"; retry after {duration_text(failed.retry_after)}"
            return failed.failure, failed.message.removeprefix(f"model {model.name}: ") + again
        case _:
            return failed.failure, failed.message.removeprefix(f"model {model.name}: ")
