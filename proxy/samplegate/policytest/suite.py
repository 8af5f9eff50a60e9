"""Pure. Structs of a ``*_test.yaml`` file: cases, steps, short forms of requests, and scenes, each key with its
description for editors.

``policytest/load.py`` reads the file's text and rejects contradictions. The tables of policies/tests.md have the same
descriptions.
"""

import json
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from samplegate.policy.conditions import NO_CALL_NAME
from samplegate.policy.prompt import Failure
from samplegate.policy.schema import Amount, Count, Duration, Positive, Strict
from samplegate.protocol.frames import LEGACY, MODERN, Era, era_of
from samplegate.protocol.identity import Identity
from samplegate.protocol.requests import ELICITATION, SAMPLING, Call, ClientCapabilities, Origin

START: Final = "2026-01-15T12:00:00Z"
"""Noon in the middle of a month, so that a case without times is far from midnight."""
FREE: Final[frozenset[Failure | None]] = frozenset(
    {"bad_key", "rate_limited", "bad_request", "unknown_model", "no_case"}
)
"""Failures that cost nothing: the request was rejected with a 4xx or never sent."""
TOOL_CALL: Final = "tools/call"

Declared: TypeAlias = Literal[
    "sampling", "sampling.tools", "sampling.context", "elicitation.form", "elicitation.url", "roots"
]
"""Capabilities that a client may declare. ``sampling.tools`` and ``sampling.context`` include ``sampling``."""
Instant: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class Scene(Strict, frozen=True):
    """Server, caller, call in flight and client of a request. Absent keys come from the file's `defaults`, then from
    the built-in defaults."""

    server: Annotated[str | None, Meta(description="The server that makes the request. Default: `default`.")] = None
    caller: Annotated[str | None, Meta(description="The caller. Default: `local`.")] = None
    groups: Annotated[list[str] | None, Meta(description="The caller's groups. Default: none.")] = None
    claims: Annotated[dict[str, Any] | None, Meta(description="The claims of the caller's JWT. Default: none.")] = None
    era: Annotated[
        Era | None,
        Meta(
            description=(
                "The protocol version, `legacy` (2025-11-25 and older) or `modern` (2026-07-28). Default: that of"
                " `revision`, or `legacy`."
            )
        ),
    ] = None
    revision: Annotated[str | None, Meta(description="The exact protocol version. Default: the newest of `era`.")] = (
        None
    )
    tool: Annotated[
        str | list[str] | None,
        Meta(description="The tool of the call in flight, or a list of candidates. Default: `none`."),
    ] = None
    method: Annotated[
        str | list[str] | None,
        Meta(description="Calls in flight other than a tool's: `prompts/get`, `resources/read`."),
    ] = None
    arguments: Annotated[
        dict[str, Any] | list[dict[str, Any]] | None,
        Meta(
            description=(
                "The arguments of the call in flight; a list for several calls of the same tool, to any of which the"
                " request may belong. Default: none."
            )
        ),
    ] = None
    client: Annotated[
        list[Declared] | None, Meta(description="The capabilities that the client declared, a list. Default: none.")
    ] = None
    environment: Annotated[
        dict[str, str] | None, Meta(description="Values for `${VAR}`. The real environment is not used.")
    ] = None


class Raw(Strict, frozen=True):
    """A request as the server sends it; `jsonrpc` and `id` are ignored."""

    method: Annotated[str, Meta(description="`sampling/createMessage` or `elicitation/create`.")]
    params: Annotated[dict[str, Any], Meta(description="The request's params.")] = msgspec.field(default_factory=dict)
    jsonrpc: Annotated[Any, Meta(description="Ignored.")] = None
    id: Annotated[Any, Meta(description="Ignored.")] = None


class Sampling(Strict, frozen=True):
    """Short form of `sampling/createMessage`: its params by MCP's names, `text` for one user message, and `hints`
    for the names of model hints."""

    text: Annotated[str | None, Meta(description="The text of one user message; or use `messages`.")] = None
    messages: Annotated[list[dict[str, Any]] | None, Meta(description="The messages, as in MCP.")] = None
    max_tokens: Annotated[Any, Meta(description="The requested output tokens.")] = msgspec.field(
        default=1000, name="maxTokens"
    )
    system_prompt: Annotated[str | None, Meta(description="The system prompt.")] = msgspec.field(
        default=None, name="systemPrompt"
    )
    temperature: Annotated[float | int | None, Meta(description="The temperature.")] = None
    stop_sequences: Annotated[list[str] | None, Meta(description="The stop sequences.")] = msgspec.field(
        default=None, name="stopSequences"
    )
    include_context: Annotated[str | None, Meta(description="As in MCP.")] = msgspec.field(
        default=None, name="includeContext"
    )
    hints: Annotated[list[str] | None, Meta(description="The names of model hints; or use `modelPreferences`.")] = None
    model_preferences: Annotated[dict[str, Any] | None, Meta(description="As in MCP.")] = msgspec.field(
        default=None, name="modelPreferences"
    )
    tools: Annotated[list[dict[str, Any]] | None, Meta(description="As in MCP.")] = None
    tool_choice: Annotated[dict[str, Any] | None, Meta(description="As in MCP.")] = msgspec.field(
        default=None, name="toolChoice"
    )
    metadata: Annotated[dict[str, Any] | None, Meta(description="As in MCP.")] = None


class Elicitation(Strict, frozen=True):
    """Short form of `elicitation/create`: a form by its `fields`, or a `url`."""

    message: Annotated[str, Meta(description="The message for the user.")] = "Please fill this in"
    fields: Annotated[
        dict[str, str | dict[str, Any]] | None,
        Meta(description="The form: for each field a type (`string`, `number`, `integer`, `boolean`) or a schema."),
    ] = None
    required: Annotated[list[str] | None, Meta(description="The required fields. Default: all fields.")] = None
    url: Annotated[str | None, Meta(description="Instead of a form, the URL to open.")] = None


class Usage(Strict, frozen=True):
    """Token counts that the model reports. An absent one counts as the reserved number."""

    input_tokens: Annotated[
        Count | None, Meta(description="The input tokens that the model reports. Default: the reserved number.")
    ] = None
    output_tokens: Annotated[
        Count | None, Meta(description="The output tokens that the model reports. Default: the reserved number.")
    ] = None


class Edited(Strict, frozen=True):
    """A reviewer's edits of a sampling request, by MCP's names; `model` is the policy's name. Absent keys stay
    unchanged."""

    messages: Annotated[list[dict[str, Any]] | None, Meta(description="The messages, as in MCP.")] = None
    system_prompt: Annotated[str | None, Meta(description="The system prompt; an empty one removes it.")] = (
        msgspec.field(default=None, name="systemPrompt")
    )
    model: Annotated[str | None, Meta(description="Your name for a model that the rule allows.")] = None
    max_tokens: Annotated[int | None, Meta(description="The output tokens.")] = msgspec.field(
        default=None, name="maxTokens"
    )
    temperature: Annotated[float | int | None, Meta(description="The temperature.")] = None


class Said(Strict, frozen=True):
    """A reviewer's own answer, or an approval with edits; exactly one of the two."""

    answer: Annotated[
        Any,
        Meta(
            description=(
                "The reviewer's own answer: text or content blocks instead of a model's answer, or the values of a"
                " form."
            )
        ),
    ] = None
    edits: Annotated[Edited | None, Meta(description="Edits to the request before the model is called.")] = None


Word: TypeAlias = Literal["approve", "reject", "accept", "decline", "cancel", "none"]
"""``none``: no reviewer decides in time."""
Verdict: TypeAlias = Word | Said


Wire: TypeAlias = Literal["result", "accept", "decline", "cancel", "error -1", "error -32602", "call ends"]


class Expect(Strict, frozen=True, rename={"as_": "as"}):
    """Expected result of a request. Only the given keys are compared."""

    effect: Annotated[
        Literal["allow", "answer", "forward", "escalate", "deny", "none"],
        Meta(description="The effect of the decision; `none` if no rule decides."),
    ]
    rule: Annotated[str | None, Meta(description="The name of the rule that decided.")] = None
    reason: Annotated[
        Literal["rule", "no_rule", "cannot", "not_offered", "malformed", "limit", "brake", "review", "timeout"] | None,
        Meta(description="The reason for the decision. `review` and `timeout` need a verdict."),
    ] = None
    reviewer: Annotated[str | None, Meta(description="The reviewer to whom the request is escalated.")] = None
    review_answer: Annotated[
        str | None, Meta(description="The reviewer who sees the model's answer before the server does.")
    ] = None
    outcome: Annotated[
        Literal["answered", "denied", "unanswered"] | None,
        Meta(description="The outcome, if it depends on no model and no client."),
    ] = None
    declared: Annotated[
        bool | None, Meta(description="Whether the capability for the request was advertised to the server.")
    ] = None
    wire: Annotated[
        Wire | None,
        Meta(description="What the server gets."),
    ] = None
    model: Annotated[str | None, Meta(description="The model that is called first.")] = None
    models: Annotated[list[str] | None, Meta(description="All models that would be called, in order.")] = None
    max_tokens: Annotated[Positive | None, Meta(description="The output tokens requested from the model.")] = None
    params: Annotated[
        dict[str, Any] | None,
        Meta(description="The params of the model call, by MCP's names; null for a member that must be absent."),
    ] = None
    content: Annotated[Any, Meta(description="The content of the answer.")] = None
    as_: Annotated[
        Literal["cancel", "decline"] | None,
        Meta(description="The reply to a denied elicitation."),
    ] = None
    shadows: Annotated[list[str] | None, Meta(description="The shadow rules that match the request, in order.")] = None
    limit: Annotated[
        str | None, Meta(description="The limit that was reached; if several were, the last one checked.")
    ] = None
    waits: Annotated[
        Duration | None, Meta(description="With `on_limit: wait`, the time after which the request would fit.")
    ] = None
    limits: Annotated[
        dict[str, Amount] | None,
        Meta(
            description=(
                "How much of the limits is used after the request, each in its unit, on the accounts of the request:"
                " `{team-day: 0.0125, docs-rate: 1}`."
            )
        ),
    ] = None
    cost: Annotated[Amount | None, Meta(description="The maximum cost of the model's answer in dollars.")] = None


class Asked(Scene, frozen=True, kw_only=True):
    """One request: its scene, its time, and the behavior of model, client and reviewer."""

    request: Annotated[Raw | None, Meta(description="The request exactly as the server sends it.")] = None
    sampling: Annotated[
        str | Sampling | None, Meta(description="A sampling request in short: the user's text, or a mapping.")
    ] = None
    elicitation: Annotated[
        str | Elicitation | None, Meta(description="An elicitation in short: its message, or a mapping.")
    ] = None
    at: Annotated[
        Duration | None,
        Meta(
            description=(
                "The time of the request, as a duration since the start of the case. Default: the time of the previous"
                " step."
            )
        ),
    ] = None
    call: Annotated[
        str | list[str] | None,
        Meta(
            description=(
                "The name of the call in flight, or a list of names if the request may belong to several calls."
                " Default: all calls of the same tool in a case count as one call."
            )
        ),
    ] = None
    usage: Annotated[
        Usage | None,
        Meta(
            description=(
                "The tokens that the model reports, `{input_tokens: N, output_tokens: N}`, bounded as in a run."
                " Default: the reserved numbers."
            )
        ),
    ] = None
    fails: Annotated[
        Failure | None,
        Meta(description="The failure of the model, with no fallback to another model."),
    ] = None
    verdict: Annotated[
        Verdict | None,
        Meta(
            description=(
                "The reviewer's decision: see [verdicts](#verdicts). Default: the case ends with the escalation."
            )
        ),
    ] = None
    votes: Annotated[
        dict[str, Verdict] | None,
        Meta(
            description=(
                "Instead of `verdict`: what each person decides, by name and in this order, for a reviewer with"
                " `approvals` or `not`. A vote that does not count has no effect."
            )
        ),
    ] = None
    hold: Annotated[
        bool | Duration | None,
        Meta(
            description=(
                "How long the request stays open: a duration, or `true` for the rest of the case. Default: it ends at"
                " once."
            )
        ),
    ] = None
    expect: Annotated[Expect | None, Meta(description="The expected result.")] = None

    @property
    def decided(self) -> Verdict | dict[str, Verdict] | None:
        """The verdict or the votes; None if the case has neither."""
        return self.verdict if self.votes is None else self.votes


class Step(Asked, frozen=True, kw_only=True):
    """One step of a case. Absent keys come from the case."""

    repeat: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description=(
                "Steps only: how many times the request is made at that moment, each time with the expected result."
                " `limits` are compared after the last one."
            ),
        ),
    ] = 1


class Case(Asked, frozen=True, kw_only=True):
    """A test case: one request or several `steps`, with the expected results. Its scene overrides the defaults."""

    name: Annotated[str, Meta(description="The name of the case, unique in the file.")]
    start: Annotated[
        Instant | None,
        Meta(
            description=(
                'The time at which the case begins, such as `"2026-01-31T23:59:00Z"` (quoted), for limits of a day or'
                " month. Default: noon in mid-month."
            )
        ),
    ] = None
    steps: Annotated[
        list[Step] | None, Meta(description="Several requests one after another, each with its own time.")
    ] = None


class Suite(Strict, frozen=True):
    """A policy test file."""

    cases: Annotated[list[Case], Meta(description="The cases, at least one.")]
    policy: Annotated[
        str | None,
        Meta(description="The policy's file, relative to this one. Default: this file's name without `_test`."),
    ] = None
    defaults: Annotated[Scene, Meta(description="Defaults for the server, caller, client and call of every case.")] = (
        Scene()
    )


def with_defaults(scene: Scene, defaults: Scene) -> Scene:
    """``scene`` with absent keys from ``defaults``. Environments are merged; a call or an era replaces the whole
    default one."""
    during = scene if scene.tool is not None or scene.method is not None else defaults
    time = scene if scene.era is not None or scene.revision is not None else defaults
    return Scene(
        server=defaults.server if scene.server is None else scene.server,
        caller=defaults.caller if scene.caller is None else scene.caller,
        groups=defaults.groups if scene.groups is None else scene.groups,
        claims=defaults.claims if scene.claims is None else scene.claims,
        era=time.era,
        revision=time.revision,
        tool=during.tool,
        method=during.method,
        arguments=during.arguments if scene.arguments is None else scene.arguments,
        client=defaults.client if scene.client is None else scene.client,
        environment={**(defaults.environment or {}), **(scene.environment or {})},
    )


def scene_fault(scene: Scene) -> str | None:
    """The contradiction in a scene with its defaults, None if there is none."""
    if scene.revision is not None and scene.revision not in (*LEGACY, *MODERN):
        return f"revision: {scene.revision!r} is not one of {', '.join((*LEGACY, *MODERN))}"
    if scene.era is not None and scene.revision is not None and era_of(scene.revision) != scene.era:
        return f"era: revision {scene.revision} is not {scene.era}; remove one of the two"
    if scene.arguments is not None and not _calls(scene):
        return "arguments: no call is in flight; add a tool, or remove the arguments"
    return None


def origin(scene: Scene) -> Origin:
    """The origin of a valid scene with its defaults."""
    revision = scene.revision or (MODERN if scene.era == "modern" else LEGACY)[-1]
    calls = _calls(scene)
    params = tuple(_params(scene, call) for call in calls)
    caller = scene.caller or "local"
    identity = Identity(caller, frozenset(scene.groups or ()), json.dumps(scene.claims or {}).encode())
    return Origin(
        scene.server or "default",
        caller,
        era_of(revision),
        revision,
        calls,
        params=params,
        identities=(identity,),
    )


def _params(scene: Scene, call: Call) -> tuple[bytes, ...]:
    every = scene.arguments if isinstance(scene.arguments, list) else [scene.arguments or {}]
    return tuple(json.dumps({"name": call.tool, "arguments": arguments}).encode() for arguments in every)


def _calls(scene: Scene) -> tuple[Call, ...]:
    tools = [Call(TOOL_CALL, tool) for tool in _names(scene.tool) if tool != NO_CALL_NAME]
    return (*tools, *(Call(method, None) for method in _names(scene.method) if method != TOOL_CALL))


def _names(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else names or []


def capabilities(declared: list[Declared]) -> ClientCapabilities:
    """The capabilities as the gate reads them from a client's declaration."""
    return ClientCapabilities(
        sampling=any(name.startswith("sampling") for name in declared),
        sampling_tools="sampling.tools" in declared,
        sampling_context="sampling.context" in declared,
        form="elicitation.form" in declared,
        url="elicitation.url" in declared,
        roots="roots" in declared,
    )


def wire(asked: Asked) -> tuple[str, dict[str, Any]]:
    """The method and params of the request."""
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
