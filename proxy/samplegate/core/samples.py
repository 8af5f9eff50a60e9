"""What a sampler is asked and what it may say: the values on both sides of the sampler port. Not a model client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

Failure: TypeAlias = Literal[
    "bad_key", "rate_limited", "refused", "unreachable", "unknown_model", "bad_request", "timeout", "no_case", "empty", "crashed", "error"
]


class SampleRequest(msgspec.Struct, frozen=True):
    """One model is asked once. ``params`` are MCP createMessage params, already within the rule's bounds."""

    model: str
    """Our name of the model."""
    params: Mapping[str, Any]
    timeout: float
    """Seconds until the caller gives up; the HTTP call ends by then."""


class Sampled(msgspec.Struct, frozen=True):
    """The model answered."""

    content: tuple[Mapping[str, Any], ...]
    """Content blocks in MCP's newest shape, at least one: text, tool_use, image or audio (R13)."""
    model: str | None
    """The model that really generated the text, as its provider names it (R1); None where it does not say."""
    stop_reason: str | None
    """``endTurn``, ``maxTokens``, ``toolUse`` or the provider's own word (R5)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    unknown_stop: str | None = None
    """The provider's own stop reason, if it is unknown; ``stop_reason`` is ``endTurn`` then."""
    dropped: tuple[str, ...] = ()
    """What was asked and the provider does not take, so it was left out: ``temperature``, ``stop``."""


class SampleFailed(msgspec.Struct, frozen=True):
    """The model did not answer. ``message`` is for the log: it holds no key, no URL query and no content."""

    failure: Failure
    message: str
    retry_after: float | None = None
    started: bool = False
    """The model had begun to answer: no other is asked in its place."""
    free: bool = False
    """Nothing can have been charged: it was never sent, or refused with a 4xx."""
    input_tokens: int | None = None
    """What the provider reported all the same, for an answer that was not taken."""
    output_tokens: int | None = None


SampleResult: TypeAlias = Sampled | SampleFailed
