"""What a ``*_test.yaml`` file may say, as typed values. Not its text (``cases.py``), not what contradicts itself in it (``contradictions.py``)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from samplegate.core.policy import Duration, Strict
from samplegate.core.samples import Failure
from samplegate.core.trials.scenes import Scene

Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Instant: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class Raw(Strict, frozen=True):
    """The request as the server wrote it; ``jsonrpc`` and ``id`` may stay in."""

    method: str
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    jsonrpc: Any = None
    id: Any = None


class Sampling(Strict, frozen=True):
    """``sampling/createMessage`` in short: its params by MCP's names, ``text`` for one user message, ``hints`` for the names of model hints."""

    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    max_tokens: Any = msgspec.field(default=1000, name="maxTokens")
    system_prompt: str | None = msgspec.field(default=None, name="systemPrompt")
    temperature: float | int | None = None
    stop_sequences: list[str] | None = msgspec.field(default=None, name="stopSequences")
    include_context: str | None = msgspec.field(default=None, name="includeContext")
    hints: list[str] | None = None
    model_preferences: dict[str, Any] | None = msgspec.field(default=None, name="modelPreferences")
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = msgspec.field(default=None, name="toolChoice")
    metadata: dict[str, Any] | None = None


class Elicitation(Strict, frozen=True):
    """``elicitation/create`` in short: a form by its ``fields``, or a ``url``."""

    message: str = "Please fill this in"
    fields: dict[str, str | dict[str, Any]] | None = None
    """Each by its name: the name of a type, or a schema."""
    required: list[str] | None = None
    """Default all of them."""
    url: str | None = None


class Usage(Strict, frozen=True):
    """The tokens that the model reports; what it leaves out counts as the worst case."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None


class Edited(Strict, frozen=True):
    """What a person changes of a sampling request, by MCP's names but for ``model``, which is ours. What is left out stays."""

    messages: list[dict[str, Any]] | None = None
    system_prompt: str | None = msgspec.field(default=None, name="systemPrompt")
    model: str | None = None
    max_tokens: int | None = msgspec.field(default=None, name="maxTokens")
    temperature: float | int | None = None


class Said(Strict, frozen=True):
    """A person's own answer, or an approval with changes: one of the two."""

    answer: Any = None
    """Text or content blocks in place of a model's, or the values of a form."""
    edits: Edited | None = None


Word: TypeAlias = Literal["approve", "reject", "accept", "decline", "cancel", "none"]
"""``none``: nobody decides in time."""
Verdict: TypeAlias = Word | Said


Wire: TypeAlias = Literal["result", "accept", "decline", "cancel", "error -1", "error -32602", "call ends"]


class Expect(Strict, frozen=True, rename={"as_": "as"}):
    """What must come of a request; only what is given is compared."""

    effect: Literal["allow", "answer", "forward", "escalate", "deny", "none"]
    rule: str | None = None
    reason: Literal["rule", "no_rule", "cannot", "not_offered", "malformed", "limit", "brake", "review", "timeout"] | None = None
    reviewer: str | None = None
    """Whom the request is escalated to."""
    review_answer: str | None = None
    """Who sees the model's answer before the server does."""
    outcome: Literal["answered", "denied", "unanswered"] | None = None
    """What comes of it, where no model and no client has a say."""
    declared: bool | None = None
    """Whether the server was told that it may ask this."""
    wire: Wire | None = None
    """What the server gets, where no model and no client has a say."""
    model: str | None = None
    """The model that is asked first."""
    models: list[str] | None = None
    """All that would be asked, in order."""
    max_tokens: Tokens | None = None
    params: dict[str, Any] | None = None
    """What a model is asked, by MCP's names; null for what must not be there."""
    content: Any = None
    """What is answered: text or content blocks, or the values of a form."""
    as_: Literal["cancel", "decline"] | None = None
    """What a denied elicitation is answered."""
    shadows: list[str] | None = None
    """The rules on trial that would have taken it, in order."""
    limit: str | None = None
    """The limit that had no room; of several the last that was asked."""
    waits: Duration | None = None
    """With ``on_limit: wait``: how long until it would fit."""
    limits: dict[str, Amount] | None = None
    """By the limit's name, how much of it is drawn after the step, in requests, tokens, dollars or open requests."""
    cost: Amount | None = None
    """Dollars that the model's answer may cost at worst."""


class Asked(Scene, frozen=True, kw_only=True):
    """One request, who makes it and when, and what becomes of it behind the decision."""

    request: Raw | None = None
    sampling: str | Sampling | None = None
    elicitation: str | Elicitation | None = None
    at: Duration | None = None
    """Since the case's start; default that of the step before, or the start."""
    call: str | list[str] | None = None
    """Names of the calls in flight: the same name is the same call. Default: a tool's calls in one case are one."""
    usage: Usage | None = None
    """What the model reports; default: it stays at the worst case."""
    fails: Failure | None = None
    """The model fails like this, and no other stands in for it."""
    verdict: Verdict | None = None
    """What the person says whom the request is escalated to; default: the case ends with the question."""
    hold: bool | Duration | None = None
    """The request stays open: to the case's end, or so long."""
    expect: Expect | None = None


class Step(Asked, frozen=True, kw_only=True):
    """One moment of a case; what it leaves out of the scene and the request is the case's."""

    repeat: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """This many times at the same moment; each must come out as expected, ``limits`` after the last."""


class Case(Asked, frozen=True, kw_only=True):
    """One request, or several ``steps``, and what must come of it. The scene's members override the defaults."""

    name: str
    start: Instant | None = None
    """When it begins, for limits of a day or month; default ``START``."""
    steps: list[Step] | None = None


class Suite(Strict, frozen=True):
    """A test file."""

    cases: list[Case]
    policy: str | None = None
    """The policy's file, beside this one; default is this file's name without ``_test``."""
    defaults: Scene = Scene()


START: Final = "2026-01-15T12:00:00Z"
"""Noon in the middle of a month: a case that says nothing of time comes near no midnight."""
FREE: Final[frozenset[Failure | None]] = frozenset({"bad_key", "rate_limited", "bad_request", "unknown_model", "no_case"})
"""Failures for which nothing can be charged: the request was refused with a 4xx or never sent."""
