"""The policy's schema: what the file may say, as typed values. Not the loader (``load.py``), not the meaning of a match (``match.py``).

Structs of msgspec, not pydantic models: in every wrapped server's start-up pydantic costs 130 ms and 12 MiB, msgspec comes with the frames.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["sampling", "elicitation"]
Mode: TypeAlias = Literal["form", "url"]
ContentType: TypeAlias = Literal["text", "image", "audio", "tool_use", "tool_result"]
FieldType: TypeAlias = Literal["string", "number", "integer", "boolean", "enum", "multi_enum"]
Otherwise: TypeAlias = Literal["next", "unanswered", "deny"]
Show: TypeAlias = Literal["full", "redacted", "none"]
OnLimit: TypeAlias = Literal["next", "unanswered", "deny", "wait"]
Quality: TypeAlias = Literal["cost", "speed", "intelligence"]
Extra: TypeAlias = Literal["image", "audio", "tools"]
By: TypeAlias = Literal["server", "caller", "tool", "model", "rule", "session"]
Names: TypeAlias = str | list[str]
"""One glob (``*``, ``?``, ``[...]``) or several, of which one must match."""


Duration: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$")]
"""A span of time: ``500ms``, ``50s``, ``15m`` or ``1h``."""
Pattern: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "regex"})]
"""An RE2 expression, checked when the policy is loaded; it is searched for, not anchored."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(span: Duration) -> float:
    """A Duration in seconds."""
    unit = "ms" if span.endswith("ms") else span[-1]
    return float(span.removesuffix(unit)) * _UNITS[unit]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A mapping of the file: unknown keys are errors."""


class Range(Strict, frozen=True):
    """A number within bounds, both included."""

    min: int | None = None
    max: int | None = None


class Match(Strict, frozen=True, rename={"not_": "not"}):
    """The conditions of a rule: all that are given must hold. An empty match holds for everything but ``mode: url``, which a rule must name."""

    kind: Kind | None = None
    server: Names | None = None
    caller: Names | None = None
    tool: Names | None = None
    """The tool being called; ``none`` for no call in flight."""
    method: Names | None = None
    mode: Mode | list[Mode] | None = None
    era: Literal["legacy", "modern"] | None = None
    max_tokens: Range | None = None
    messages: Range | None = None
    """How many messages."""
    size: Range | None = None
    """Bytes of the request's params as JSON."""
    content_types: list[ContentType] | None = None
    """Every content block is of one of these types."""
    tools: bool | None = None
    """Whether the request brings tools along."""
    system_prompt: bool | Pattern | None = None
    """Whether there is one, or an expression found in it."""
    text: Pattern | None = None
    """Found in any text of any message; in an elicitation, in its message."""
    hint: Names | None = None
    """One of the model hints asked for."""
    fields: list[str] | None = None
    """The form has exactly these fields."""
    has: list[str] | None = None
    """The form has at least these fields."""
    field_names: Pattern | None = None
    """Found in the name of any field of the form."""
    field_types: list[FieldType] | None = None
    """Every field of the form is of one of these types."""
    host: Names | None = None
    """The host of a URL elicitation, in its ASCII form."""
    scheme: Names | None = None
    not_: Match | None = None


class Price(Strict, frozen=True):
    """US dollars for a million tokens."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]


class Model(Strict, frozen=True):
    """A model that the gate may call: ``name`` is ours, ``model`` is litellm's or ``scripted``."""

    name: str
    model: str
    api_base: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The most output tokens it is ever asked for."""
    price: Price | None = None
    """None: litellm's table; unknown where that has none, never zero."""
    accepts: list[Extra] | None = None
    """What it takes besides text. None: litellm's table; text only where that has none."""
    context: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Tokens of input and output together. None: litellm's table."""
    intelligence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    speed: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    margin: Annotated[float, msgspec.Meta(ge=1)] = 1.25
    """What a request's counted tokens are multiplied by before they are reserved."""
    image_tokens: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """What one image is counted as: providers count from some hundreds to some ten thousand."""
    warm: bool = False
    """Its worker is started by the client's first tools/call, rather than by the first request: a start takes seconds."""
    cases: str | None = None
    """``scripted`` only: the file of its cases, relative to the policy."""


class Prepend(Strict, frozen=True):
    """A text put before the server's system prompt."""

    prepend: str


class Temperature(Strict, frozen=True):
    """Bounds that a request's temperature is clamped to; a request without one is left without."""

    min: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max: Annotated[float, msgspec.Meta(ge=0)] | None = None


class StopSequences(Strict, frozen=True):
    """How many stop sequences are passed on; the rest is dropped and logged."""

    max: Annotated[int, msgspec.Meta(ge=0)]


class Weights(Strict, frozen=True):
    """What counts when a model is chosen, in place of the server's priorities; what is left out counts nothing."""

    cost: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    speed: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    intelligence: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class Secrets(Strict, frozen=True):
    """What becomes of secrets that are found: in the prompt to the model, and in its answer."""

    prompt: Literal["keep", "redact", "stop"] = "redact"
    answer: Literal["keep", "redact", "stop"] = "redact"


class With(Strict, frozen=True):
    """How an allowed request is sampled."""

    models: list[str] = []
    """Our names, in order of preference; empty means every model of the policy."""
    prefer: Quality | Weights | None = None
    """Overrides the server's priorities."""
    fallback: bool = True
    """A model that fails before its first token is followed by the next that fits."""
    secrets: Secrets | None = None
    max_answer: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Bytes of the answer's content as JSON; a longer one is Unanswered."""
    on_overrun: Literal["keep", "withhold"] = "keep"
    """An answer over the effective limit of output tokens."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    temperature: Temperature | None = None
    stop_sequences: StopSequences | None = None
    system_prompt: Literal["keep", "drop"] | Prepend = "keep"
    timeout: Duration | None = None


class Webhook(Strict, frozen=True):
    """Where a reviewer is told of reviews, and may answer at once. One of ``url``, ``url_file`` and ``url_env``."""

    url: str | None = None
    url_file: str | None = None
    """For addresses that are secrets themselves, such as Slack's."""
    url_env: str | None = None
    format: Literal["standard", "slack"] = "standard"
    secret_file: str | None = None
    """``standard``: the key of its signatures (Standard Webhooks: base64, with ``whsec_`` before it or without)."""
    secret_env: str | None = None
    old_secret_file: str | None = None
    """While keys are changed: both sign."""
    old_secret_env: str | None = None


class Reviewer(Strict, frozen=True):
    """Who decides what rules escalate: people at the page, the command line or the API, and whoever stands behind a webhook or a command."""

    timeout: Duration = "15m"
    """How long a review waits for a verdict; the request itself only as long as its peers do."""
    late_verdict: Duration = "24h"
    """How long a verdict that came after its request had ended answers the next same one, once. ``0s``: never."""
    webhook: Webhook | None = None
    command: list[str] | None = None
    """A program that gets the review as JSON on its standard input and prints the verdict."""


class RuleBase(Strict, frozen=True, tag_field="effect"):
    """What every rule has."""

    name: str
    match: Match = Match()
    otherwise: Otherwise = "unanswered"
    """What happens when the effect cannot be carried out, as far as known before acting."""
    shadow: bool = False
    """Evaluated and recorded, not enforced."""


class AllowRule(RuleBase, frozen=True, tag="allow", rename={"with_": "with"}):
    """A model answers. Sampling only: the match must say ``kind: sampling``."""

    with_: With = With()
    on_timeout: Otherwise = "unanswered"
    limits: list[str] = []
    """Names of limits that a request draws on before anything is spent."""
    on_limit: OnLimit = "unanswered"
    review_answer: str | None = None
    """The reviewer who sees the model's answer before the server does."""
    show: Show = "redacted"
    """What of the contents a reviewer's webhook or command is told; the page has them whole."""


class AnswerRule(RuleBase, frozen=True, tag="answer"):
    """Fixed content answers: text or content blocks for sampling, values by field name for elicitation."""

    content: Any = None
    defaults: bool = False
    """Elicitation: what ``content`` leaves open is taken from the schema's defaults."""
    cases: str | None = None
    """In place of ``content``: a file of ``scripted`` cases, relative to the policy."""
    limits: list[str] = []
    on_limit: OnLimit = "unanswered"


class ForwardRule(RuleBase, frozen=True, tag="forward"):
    """The client answers."""

    verify: bool = False
    """The client's answer is sent on only if it fits what was asked."""
    timeout: Duration | None = None
    on_timeout: Otherwise = "unanswered"
    limits: list[str] = []
    on_limit: OnLimit = "unanswered"


class DenyRule(RuleBase, frozen=True, tag="deny", rename={"as_": "as"}):
    """Refused. An elicitation is answered ``cancel``, or ``decline`` where the rule says so."""

    as_: Literal["cancel", "decline"] = "cancel"


class EscalateRule(RuleBase, frozen=True, kw_only=True, tag="escalate", rename={"with_": "with"}):
    """A person decides. Sampling: whether a model is asked, and what; elicitation: the person fills in the form."""

    reviewer: str
    with_: With = With()
    """How an approved request is sampled, as for ``allow``: its models and bounds hold for the person's edits too."""
    show: Show = "redacted"
    review_answer: str | None = None
    """The reviewer who sees the model's answer before the server does."""
    timeout: Duration | None = None
    """In place of the reviewer's own."""
    on_timeout: Otherwise = "unanswered"
    limits: list[str] = []
    on_limit: OnLimit = "unanswered"


Rule: TypeAlias = AllowRule | AnswerRule | ForwardRule | EscalateRule | DenyRule
ModelRule: TypeAlias = AllowRule | EscalateRule
"""A rule under which a model may be asked."""


class Limit(Strict, frozen=True):
    """How much may be drawn, within what, counted for each of what. Exactly one amount; ``concurrent`` has no ``per``, the others need one."""

    requests: Annotated[int, msgspec.Meta(ge=1)] | None = None
    input_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    usd: Annotated[float, msgspec.Meta(gt=0)] | None = None
    concurrent: Annotated[int, msgspec.Meta(ge=1)] | None = None
    per: Annotated[str, msgspec.Meta(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|day|month|call|process)$")] | None = None
    """A duration is a token bucket; ``day`` and ``month`` are the calendar's, in ``tz``; ``call`` is the client's call; ``process`` this process."""
    tz: str | None = None
    """An IANA time zone, for ``day`` and ``month``."""
    by: list[By] = []
    """Counted separately for each of these; without, for all together."""
    warn_at: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """The share of it at which the log warns, once a window."""


class Brakes(Strict, frozen=True):
    """When a server that asks in circles is left unanswered for a while."""

    requests_per_call: Annotated[int, msgspec.Meta(ge=1)] | None = None
    repeats: Annotated[int, msgspec.Meta(ge=2)] | None = None
    """The same request this many times in a row."""
    cooling: Duration = "60s"


class Peer(Strict, frozen=True):
    """What the operator knows about a peer's patience."""

    peer_timeout: Annotated[str, msgspec.Meta(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|none)$")] = "60s"
    extends_on_progress: bool = False


class Server(Peer, frozen=True):
    """The same for a server, by its configured name."""

    explain_to_server: bool = False
    """For development: the server is told the rule and the reason."""
    plain_sampling: bool = False
    """``sampling`` is declared without sub-capabilities, for servers that refuse what they do not know (R114)."""


class Policy(Strict, frozen=True):
    """A policy file."""

    version: Literal[1]
    models: list[Model] = []
    hints: dict[str, Names] = {}
    """What servers ask for -> our names, in order; a key is a substring or a glob."""
    limits: dict[str, Limit] = {}
    brakes: Brakes | None = None
    secrets: dict[str, Pattern] = {}
    """The policy's own patterns of secrets, by name, beside those of the detector."""
    rules: list[Rule] = []
    client: Peer = Peer()
    servers: dict[str, Server] = {}
    reviewers: dict[str, Reviewer] = {}
