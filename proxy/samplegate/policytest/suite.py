"""Pure. The structs of a ``*_test.yaml`` file: cases, steps, short forms and scenes, each key with its description for
editors.

The file's text is read by ``policy/file/load.py``, which also refuses contradictions. The tables of policies/README.md
have the same sentences.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from samplegate.policy.conditions import NO_CALL_NAME
from samplegate.policy.prompt import Failure
from samplegate.policy.schema import Amount, Count, Duration, Positive, Strict
from samplegate.protocol.frames import LEGACY, MODERN, Era, era_of
from samplegate.protocol.requests import ELICITATION, SAMPLING, Call, ClientCapabilities, Origin

START: Final = "2026-01-15T12:00:00Z"
"""Noon in the middle of a month: a case that says nothing of time comes near no midnight."""
FREE: Final[frozenset[Failure | None]] = frozenset(
    {"bad_key", "rate_limited", "bad_request", "unknown_model", "no_case"}
)
"""Failures for which nothing can be charged: the request was refused with a 4xx or never sent."""
TOOL_CALL: Final = "tools/call"

Declared: TypeAlias = Literal[
    "sampling", "sampling.tools", "sampling.context", "elicitation.form", "elicitation.url", "roots"
]
"""What a client may have declared. ``sampling.tools`` and ``sampling.context`` say ``sampling`` too."""
Instant: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class Scene(Strict, frozen=True):
    """Who asks, during what, and what the client can do. What is left out comes from a file's ``defaults`` and then
    from here."""

    server: Annotated[str | None, Meta(description="Who asks; default `default`.")] = None
    caller: Annotated[str | None, Meta(description="Who is connected; default `local`.")] = None
    era: Annotated[Era | None, Meta(description="Default `legacy`, or that of `revision`.")] = None
    revision: Annotated[str | None, Meta(description="The protocol's revision; default the newest of the era.")] = None
    tool: Annotated[
        str | list[str] | None, Meta(description="The tool being called, or a list of candidates; default `none`.")
    ] = None
    method: Annotated[
        str | list[str] | None, Meta(description="Calls in flight that are no tool's: `prompts/get`, `resources/read`.")
    ] = None
    client: Annotated[list[Declared] | None, Meta(description="What the client declared, a list; default nothing.")] = (
        None
    )
    environment: Annotated[
        dict[str, str] | None, Meta(description="What `${VAR}` stands for; the real environment is not looked at.")
    ] = None


class Raw(Strict, frozen=True):
    """The request as the server wrote it; ``jsonrpc`` and ``id`` may stay in."""

    method: Annotated[str, Meta(description="`sampling/createMessage` or `elicitation/create`.")]
    params: Annotated[dict[str, Any], Meta(description="Its params.")] = msgspec.field(default_factory=dict)
    jsonrpc: Annotated[Any, Meta(description="May stay in.")] = None
    id: Annotated[Any, Meta(description="May stay in.")] = None


class Sampling(Strict, frozen=True):
    """``sampling/createMessage`` in short: its params by MCP's names, ``text`` for one user message, ``hints`` for the
    names of model hints."""

    text: Annotated[str | None, Meta(description="The one user message; or give `messages`.")] = None
    messages: Annotated[list[dict[str, Any]] | None, Meta(description="The messages, as MCP has them.")] = None
    max_tokens: Annotated[Any, Meta(description="Default 1000.")] = msgspec.field(default=1000, name="maxTokens")
    system_prompt: Annotated[str | None, Meta(description="The system prompt.")] = msgspec.field(
        default=None, name="systemPrompt"
    )
    temperature: Annotated[float | int | None, Meta(description="The temperature.")] = None
    stop_sequences: Annotated[list[str] | None, Meta(description="The stop sequences.")] = msgspec.field(
        default=None, name="stopSequences"
    )
    include_context: Annotated[str | None, Meta(description="As MCP has it.")] = msgspec.field(
        default=None, name="includeContext"
    )
    hints: Annotated[list[str] | None, Meta(description="The names of model hints; or give `modelPreferences`.")] = None
    model_preferences: Annotated[dict[str, Any] | None, Meta(description="As MCP has it.")] = msgspec.field(
        default=None, name="modelPreferences"
    )
    tools: Annotated[list[dict[str, Any]] | None, Meta(description="As MCP has it.")] = None
    tool_choice: Annotated[dict[str, Any] | None, Meta(description="As MCP has it.")] = msgspec.field(
        default=None, name="toolChoice"
    )
    metadata: Annotated[dict[str, Any] | None, Meta(description="As MCP has it.")] = None


class Elicitation(Strict, frozen=True):
    """``elicitation/create`` in short: a form by its ``fields``, or a ``url``."""

    message: Annotated[str, Meta(description="What the person is told; default `Please fill this in`.")] = (
        "Please fill this in"
    )
    fields: Annotated[
        dict[str, str | dict[str, Any]] | None,
        Meta(description="The form: by field name a type (`string`, `number`, `integer`, `boolean`) or a schema."),
    ] = None
    required: Annotated[list[str] | None, Meta(description="The required fields; default all of them.")] = None
    url: Annotated[str | None, Meta(description="Instead of a form, the url to open.")] = None


class Usage(Strict, frozen=True):
    """The tokens that the model reports; what it leaves out counts as the worst case."""

    input_tokens: Annotated[
        Count | None, Meta(description="The tokens that the model has read; default: what was reserved.")
    ] = None
    output_tokens: Annotated[
        Count | None, Meta(description="The tokens that the model has written; default: what was reserved.")
    ] = None


class Edited(Strict, frozen=True):
    """What a person changes of a sampling request, by MCP's names but for ``model``, which is ours. What is left out
    stays."""

    messages: Annotated[list[dict[str, Any]] | None, Meta(description="The messages, as MCP has them.")] = None
    system_prompt: Annotated[str | None, Meta(description="The system prompt; an empty one takes it away.")] = (
        msgspec.field(default=None, name="systemPrompt")
    )
    model: Annotated[str | None, Meta(description="Your name of the model, one that the rule may ask.")] = None
    max_tokens: Annotated[int | None, Meta(description="The output tokens.")] = msgspec.field(
        default=None, name="maxTokens"
    )
    temperature: Annotated[float | int | None, Meta(description="The temperature.")] = None


class Said(Strict, frozen=True):
    """A person's own answer, or an approval with changes: one of the two."""

    answer: Annotated[
        Any,
        Meta(
            description=(
                "The person's own answer: text or content blocks in place of a model's, or the values of a form."
            )
        ),
    ] = None
    edits: Annotated[Edited | None, Meta(description="What is changed before a model is asked: see below.")] = None


Word: TypeAlias = Literal["approve", "reject", "accept", "decline", "cancel", "none"]
"""``none``: nobody decides in time."""
Verdict: TypeAlias = Word | Said


Wire: TypeAlias = Literal["result", "accept", "decline", "cancel", "error -1", "error -32602", "call ends"]


class Expect(Strict, frozen=True, rename={"as_": "as"}):
    """What must come of a request; only what is given is compared."""

    effect: Annotated[
        Literal["allow", "answer", "forward", "escalate", "deny", "none"],
        Meta(description="`allow`, `answer`, `forward`, `escalate`, `deny`, or `none` for nobody."),
    ]
    rule: Annotated[str | None, Meta(description="The name of the rule that decided.")] = None
    reason: Annotated[
        Literal["rule", "no_rule", "cannot", "not_offered", "malformed", "limit", "brake", "review", "timeout"] | None,
        Meta(
            description=(
                "`rule`, `no_rule`, `cannot`, `not_offered`, `malformed`, `limit` or `brake`; with a verdict also"
                " `review` and `timeout`."
            )
        ),
    ] = None
    reviewer: Annotated[str | None, Meta(description="Whom it is escalated to.")] = None
    review_answer: Annotated[str | None, Meta(description="Who sees the model's answer before the server does.")] = None
    outcome: Annotated[
        Literal["answered", "denied", "unanswered"] | None,
        Meta(
            description="`answered`, `denied` or `unanswered`, where no model's answer and no client has a say in it."
        ),
    ] = None
    declared: Annotated[
        bool | None, Meta(description="Whether the capability that the request needs was declared to the server.")
    ] = None
    wire: Annotated[
        Wire | None,
        Meta(
            description=(
                "What the server gets: `result`, `accept`, `decline`, `cancel`, `error -1`, `error -32602`, or `call"
                " ends`."
            )
        ),
    ] = None
    model: Annotated[str | None, Meta(description="The model that is asked first.")] = None
    models: Annotated[list[str] | None, Meta(description="All models that would be asked, in order.")] = None
    max_tokens: Annotated[Positive | None, Meta(description="The output tokens that the model is asked for.")] = None
    params: Annotated[
        dict[str, Any] | None,
        Meta(description="What the model is asked, by MCP's names; null for what must not be there."),
    ] = None
    content: Annotated[Any, Meta(description="What is answered.")] = None
    as_: Annotated[
        Literal["cancel", "decline"] | None,
        Meta(description="What a denied elicitation is answered: `cancel` or `decline`."),
    ] = None
    shadows: Annotated[list[str] | None, Meta(description="The shadow rules that would have taken it, in order.")] = (
        None
    )
    limit: Annotated[
        str | None, Meta(description="The limit that had no room; of several the one that was asked last.")
    ] = None
    waits: Annotated[
        Duration | None, Meta(description="With `on_limit: wait`, the duration after which it would fit.")
    ] = None
    limits: Annotated[
        dict[str, Amount] | None,
        Meta(
            description=(
                "How much is drawn on limits after the request, each in its unit, for whoever made it: `{team-day:"
                " 0.0125, docs-rate: 1}`."
            )
        ),
    ] = None
    cost: Annotated[Amount | None, Meta(description="The dollars that the model's answer may cost at worst.")] = None


class Asked(Scene, frozen=True, kw_only=True):
    """One request, who makes it and when, and what becomes of it behind the decision."""

    request: Annotated[Raw | None, Meta(description="The request as a server writes it.")] = None
    sampling: Annotated[
        str | Sampling | None, Meta(description="A sampling request in short: the user's text, or a mapping.")
    ] = None
    elicitation: Annotated[
        str | Elicitation | None, Meta(description="An elicitation in short: its message, or a mapping.")
    ] = None
    at: Annotated[
        Duration | None,
        Meta(
            description="When it is asked, as a duration since the case's start; default the time of the step before."
        ),
    ] = None
    call: Annotated[
        str | list[str] | None,
        Meta(
            description=(
                "The name of the call in flight, or one for each candidate; default: all calls of one tool in a case"
                " are one call."
            )
        ),
    ] = None
    usage: Annotated[
        Usage | None,
        Meta(
            description=(
                "What the model reports: `{input_tokens: N, output_tokens: N}`, bounded as in a run. Default: what was"
                " reserved stays."
            )
        ),
    ] = None
    fails: Annotated[
        Failure | None,
        Meta(
            description=(
                "The model fails instead, and no other stands in for it: `bad_key`, `rate_limited`, `timeout` and the"
                " like."
            )
        ),
    ] = None
    verdict: Annotated[
        Verdict | None,
        Meta(
            description=(
                "What the person says whom it is escalated to: see [verdicts](#verdicts); default: the case ends with"
                " the question."
            )
        ),
    ] = None
    hold: Annotated[
        bool | Duration | None,
        Meta(
            description=(
                "The request stays open for a duration, or with true to the end of the case; default: it ends at once."
            )
        ),
    ] = None
    expect: Annotated[Expect | None, Meta(description="What must come of the request.")] = None


class Step(Asked, frozen=True, kw_only=True):
    """One moment of a case; what it leaves out of the scene and the request is the case's."""

    repeat: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description=(
                "Steps only: so many times at that moment, up to 10000, each as expected; `limits` are compared after"
                " the last."
            ),
        ),
    ] = 1


class Case(Asked, frozen=True, kw_only=True):
    """One request, or several ``steps``, and what must come of it. The scene's members override the defaults."""

    name: Annotated[str, Meta(description="The case's name, each its own.")]
    start: Annotated[
        Instant | None,
        Meta(
            description=(
                'When it begins, such as `"2026-01-31T23:59:00Z"`, quoted, for limits of a day or month; default a noon'
                " in mid-month."
            )
        ),
    ] = None
    steps: Annotated[
        list[Step] | None, Meta(description="Several requests one after the other, in a time of their own.")
    ] = None


class Suite(Strict, frozen=True):
    """A test file."""

    cases: Annotated[list[Case], Meta(description="The cases, at least one.")]
    policy: Annotated[
        str | None,
        Meta(description="The policy's file, beside this one; without it, this file's name without `_test`."),
    ] = None
    defaults: Annotated[Scene, Meta(description="The scene of every case that does not say its own.")] = Scene()


def over(scene: Scene, defaults: Scene) -> Scene:
    """``scene`` with what it leaves out taken from ``defaults``; environments are merged, and a call or an era replaces
    the default one whole."""
    during = scene if scene.tool is not None or scene.method is not None else defaults
    time = scene if scene.era is not None or scene.revision is not None else defaults
    return Scene(
        server=defaults.server if scene.server is None else scene.server,
        caller=defaults.caller if scene.caller is None else scene.caller,
        era=time.era,
        revision=time.revision,
        tool=during.tool,
        method=during.method,
        client=defaults.client if scene.client is None else scene.client,
        environment={**(defaults.environment or {}), **(scene.environment or {})},
    )


def scene_fault(scene: Scene) -> str | None:
    """What is contradictory in a scene that has its defaults, None if nothing is."""
    if scene.revision is not None and scene.revision not in (*LEGACY, *MODERN):
        return f"revision: {scene.revision!r} is not one of {', '.join((*LEGACY, *MODERN))}"
    if scene.era is not None and scene.revision is not None and era_of(scene.revision) != scene.era:
        return f"era: {scene.era} does not have revision {scene.revision}; leave one of them out"
    return None


def origin(scene: Scene) -> Origin:
    """The origin of a scene that has its defaults and no fault."""
    revision = scene.revision or (MODERN if scene.era == "modern" else LEGACY)[-1]
    return Origin(scene.server or "default", scene.caller or "local", era_of(revision), revision, _calls(scene))


def _calls(scene: Scene) -> tuple[Call, ...]:
    tools = [Call(TOOL_CALL, tool) for tool in _names(scene.tool) if tool != NO_CALL_NAME]
    return (*tools, *(Call(method, None) for method in _names(scene.method) if method != TOOL_CALL))


def _names(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else names or []


def capabilities(declared: list[Declared]) -> ClientCapabilities:
    """The same as the gate reads from a client's own words."""
    return ClientCapabilities(
        sampling=any(name.startswith("sampling") for name in declared),
        sampling_tools="sampling.tools" in declared,
        sampling_context="sampling.context" in declared,
        form="elicitation.form" in declared,
        url="elicitation.url" in declared,
        roots="roots" in declared,
    )


def wire(asked: Asked) -> tuple[str, dict[str, Any]]:
    """The method and params."""
    if asked.request is not None:
        return asked.request.method, asked.request.params
    if asked.sampling is not None:
        return SAMPLING, _sampling(Sampling(text=asked.sampling) if isinstance(asked.sampling, str) else asked.sampling)
    form = asked.elicitation
    return ELICITATION, _elicitation(Elicitation(message=form) if isinstance(form, str) else form or Elicitation())


def _sampling(short: Sampling) -> dict[str, Any]:
    params: dict[str, Any] = {"messages": short.messages, "maxTokens": short.max_tokens, **msgspec.to_builtins(short)}
    if short.text is not None:
        params["messages"] = [{"role": "user", "content": {"type": "text", "text": params.pop("text")}}]
    if short.hints is not None:
        params["modelPreferences"] = {"hints": [{"name": name} for name in params.pop("hints")]}
    return params


def _elicitation(short: Elicitation) -> dict[str, Any]:
    if short.url is not None:
        return {"mode": "url", "message": short.message, "url": short.url, "elicitationId": "case"}
    fields = short.fields or {}
    properties = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in fields.items()}
    required = list(fields) if short.required is None else short.required
    return {
        "message": short.message,
        "requestedSchema": {"type": "object", "properties": properties, "required": required},
    }
