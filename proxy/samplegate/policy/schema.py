"""Pure. The policy's schema: what the file may say, as typed values. Not the loader (``policy/file/load.py``), not the
meaning of a match (``match.py``).

Each key has its sentence for editors, the one in the tables of policies/README.md. Structs of msgspec, not pydantic
models: in every wrapped server's start-up pydantic costs 130 ms and 12 MiB, msgspec comes with the frames. Annotations
are evaluated here, since msgspec would compile each one anew at every start (5 ms).
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from samplegate.protocol.elicitation_schema import FieldType
from samplegate.protocol.requests import Kind

Stage: TypeAlias = Literal["request", "answer"]
"""What is reviewed: the server's request before anything is done about it, or a model's answer before the server sees
it."""

# bytes of a request or an answer that is put before a person: some pictures; each is kept for days
MOST_REVIEWED: Final = 8 * 1024 * 1024


Mode: TypeAlias = Literal["form", "url"]
ContentType: TypeAlias = Literal["text", "image", "audio", "tool_use", "tool_result"]
Otherwise: TypeAlias = Literal["next", "unanswered", "deny"]
Show: TypeAlias = Literal["full", "redacted", "none"]
OnLimit: TypeAlias = Literal["next", "unanswered", "deny", "wait"]
Quality: TypeAlias = Literal["cost", "speed", "intelligence"]
Extra: TypeAlias = Literal["image", "audio", "tools"]
By: TypeAlias = Literal["server", "caller", "tool", "model", "rule", "session"]
Names: TypeAlias = str | list[str]
"""One glob (``*``, ``?``, ``[...]``) or several, of which one must match."""


Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Duration: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$")]
"""A span of time: ``500ms``, ``50s``, ``15m`` or ``1h``."""
Pattern: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "regex"})]
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

    min: Annotated[int | None, Meta(description="The least that matches.")] = None
    max: Annotated[int | None, Meta(description="The most that matches.")] = None


class Match(Strict, frozen=True, rename={"not_": "not"}):
    """The conditions of a rule: all that are given must hold. An empty match holds for everything but ``mode: url``,
    which a rule must name."""

    kind: Annotated[Kind | None, Meta(description="What is asked for: a text by a model, or an input by a person.")] = (
        None
    )
    server: Annotated[Names | None, Meta(description="The server's configured name.")] = None
    caller: Annotated[Names | None, Meta(description="Who is connected; on stdio always `local`.")] = None
    tool: Annotated[Names | None, Meta(description="The tool being called; `none` for no call in flight.")] = None
    method: Annotated[
        Names | None, Meta(description="The client's call in flight: `tools/call`, `prompts/get` or `resources/read`.")
    ] = None
    mode: Annotated[
        Mode | list[Mode] | None,
        Meta(description="Elicitation: by form or by url; a rule covers urls only if it says so."),
    ] = None
    era: Annotated[
        Literal["legacy", "modern"] | None,
        Meta(description="The protocol's era: legacy up to 2025-11-25, modern from 2026-07-28 on."),
    ] = None
    max_tokens: Annotated[Range | None, Meta(description="Sampling: the output tokens asked for.")] = None
    messages: Annotated[Range | None, Meta(description="Sampling: the number of messages.")] = None
    size: Annotated[Range | None, Meta(description="The bytes of the request's params as JSON.")] = None
    content_types: Annotated[
        list[ContentType] | None, Meta(description="Sampling: every content block is of one of these types.")
    ] = None
    tools: Annotated[bool | None, Meta(description="Sampling: whether the request brings tools along.")] = None
    system_prompt: Annotated[
        bool | Pattern | None,
        Meta(description="Sampling: whether there is a system prompt, or an expression found in it."),
    ] = None
    text: Annotated[
        Pattern | None,
        Meta(description="An expression found in any text of any message; in an elicitation, in its message."),
    ] = None
    hint: Annotated[Names | None, Meta(description="Sampling: one of the model hints asked for.")] = None
    fields: Annotated[list[str] | None, Meta(description="Elicitation: the form has exactly these fields.")] = None
    has: Annotated[list[str] | None, Meta(description="Elicitation: the form has at least these fields.")] = None
    field_names: Annotated[
        Pattern | None, Meta(description="Elicitation: an expression found in the name of any field of the form.")
    ] = None
    field_types: Annotated[
        list[FieldType] | None, Meta(description="Elicitation: every field of the form is of one of these types.")
    ] = None
    host: Annotated[Names | None, Meta(description="Elicitation by url: the url's host, in its ASCII form.")] = None
    scheme: Annotated[Names | None, Meta(description="Elicitation by url: the url's scheme.")] = None
    not_: Annotated["Match | None", Meta(description="Conditions that must not all hold.")] = None


class Price(Strict, frozen=True):
    """US dollars for a million tokens."""

    input: Annotated[Amount, Meta(description="US dollars for a million tokens that it reads.")]
    output: Annotated[Amount, Meta(description="US dollars for a million tokens that it writes.")]


class Model(Strict, frozen=True):
    """A model that the gate may call: ``name`` is ours, ``model`` is litellm's or ``scripted``."""

    name: Annotated[str, Meta(description="Your name of the model, used in rules and hints.")]
    model: Annotated[
        str, Meta(description="The model as litellm names it, `provider/model`; or `scripted`, which is built in.")
    ]
    api_base: Annotated[str | None, Meta(description="The address to call instead of the provider's own.")] = None
    api_key_env: Annotated[
        str | None, Meta(description="The name of the environment variable that holds the provider's key.")
    ] = None
    api_key_file: Annotated[
        str | None, Meta(description="The file that holds the provider's key, relative to the policy.")
    ] = None
    max_tokens: Annotated[
        Positive | None, Meta(description="The most output tokens that the model is ever asked for.")
    ] = None
    price: Annotated[
        Price | None,
        Meta(
            description=(
                "What it costs; without it litellm's table says, and where that has nothing the price is unknown, never"
                " zero."
            )
        ),
    ] = None
    accepts: Annotated[
        list[Extra] | None,
        Meta(
            description=(
                "What it takes besides text; without it litellm's table says, and where that has nothing it takes text"
                " only."
            )
        ),
    ] = None
    context: Annotated[
        Positive | None,
        Meta(
            description=(
                "The tokens of input and output together; without it litellm's table says how long the input may be."
            )
        ),
    ] = None
    intelligence: Annotated[
        Share | None, Meta(description="How good it is beside your other models, in your eyes.")
    ] = None
    speed: Annotated[Share | None, Meta(description="How fast it is beside your other models, in your eyes.")] = None
    margin: Annotated[
        float,
        Meta(ge=1, description="What the counted tokens of a request are multiplied by before they are reserved."),
    ] = 1.25
    image_tokens: Annotated[Positive, Meta(description="What one image is counted as.")] = 10_000
    """What one image is counted as: providers count from some hundreds to some ten thousand."""
    warm: Annotated[
        bool,
        Meta(
            description=(
                "The models' process is started ahead: by `serve` before it is ready, by `run` at the client's first"
                " tools/call."
            )
        ),
    ] = False
    cases: Annotated[
        str | None, Meta(description="Only for `scripted`: the file of its cases, relative to the policy.")
    ] = None


class Prepend(Strict, frozen=True):
    """A text put before the server's system prompt."""

    prepend: Annotated[str, Meta(description="The text that is put before the server's system prompt.")]


class Temperature(Strict, frozen=True):
    """Bounds that a request's temperature is clamped to; a request without one is left without."""

    min: Annotated[Amount | None, Meta(description="The lowest temperature.")] = None
    max: Annotated[Amount | None, Meta(description="The highest temperature.")] = None


class StopSequences(Strict, frozen=True):
    """How many stop sequences are passed on; the rest is dropped and logged."""

    max: Annotated[Count, Meta(description="How many are passed on; the rest is dropped and logged.")]


class Weights(Strict, frozen=True):
    """What counts when a model is chosen, in place of the server's priorities; what is left out counts nothing."""

    cost: Annotated[Share, Meta(description="How much a low price counts.")] = 0.0
    speed: Annotated[Share, Meta(description="How much speed counts.")] = 0.0
    intelligence: Annotated[Share, Meta(description="How much intelligence counts.")] = 0.0


class Secrets(Strict, frozen=True):
    """What becomes of secrets that are found: in the prompt to the model, and in its answer."""

    prompt: Annotated[
        Literal["keep", "redact", "stop"], Meta(description="What becomes of secrets in what the model is asked.")
    ] = "redact"
    answer: Annotated[
        Literal["keep", "redact", "stop"], Meta(description="What becomes of secrets in what the model answers.")
    ] = "redact"


class With(Strict, frozen=True):
    """How an allowed request is sampled."""

    models: Annotated[
        list[str], Meta(description="Your models, in order of preference; without it, all of the policy.")
    ] = []
    prefer: Annotated[
        Quality | Weights | None, Meta(description="What counts when a model is chosen, whatever the server says.")
    ] = None
    fallback: Annotated[
        bool, Meta(description="A model that fails before its first token is followed by the next that fits.")
    ] = True
    secrets: Annotated[
        Secrets | None,
        Meta(description="What becomes of secrets in the prompt and in the answer; without it, nobody looks for them."),
    ] = None
    max_answer: Annotated[
        Positive | None,
        Meta(description="The most bytes of the answer's content as JSON; a longer answer is not given."),
    ] = None
    on_overrun: Annotated[
        Literal["keep", "withhold"],
        Meta(
            description=(
                "What becomes of an answer over the limit of output tokens: `keep` passes on up to 1.25 times the"
                " limit."
            )
        ),
    ] = "keep"
    max_tokens: Annotated[
        Positive | None, Meta(description="The most output tokens; a request for more is lowered to it.")
    ] = None
    temperature: Annotated[
        Temperature | None,
        Meta(
            description=(
                "The bounds that the request's temperature is moved into; a request without one is left without."
            )
        ),
    ] = None
    stop_sequences: Annotated[StopSequences | None, Meta(description="The bounds of the request's stop sequences.")] = (
        None
    )
    system_prompt: Annotated[
        Literal["keep", "drop"] | Prepend, Meta(description="What becomes of the server's system prompt.")
    ] = "keep"
    timeout: Annotated[
        Duration | None, Meta(description="How long the model may take; without it, as long as the peers wait.")
    ] = None


class Webhook(Strict, frozen=True):
    """Where a reviewer is told of reviews, and may answer at once. One of ``url``, ``url_file`` and ``url_env``."""

    url: Annotated[str | None, Meta(description="The address.")] = None
    url_file: Annotated[
        str | None,
        Meta(
            description=(
                "The file that holds the address, relative to the policy: for addresses that are secrets, such as"
                " Slack's."
            )
        ),
    ] = None
    url_env: Annotated[str | None, Meta(description="The name of the environment variable that holds the address.")] = (
        None
    )
    format: Annotated[
        Literal["standard", "slack"], Meta(description="What is sent: Standard Webhooks, or a message for Slack.")
    ] = "standard"
    secret_file: Annotated[
        str | None,
        Meta(
            description="The file that holds the key of the signatures, relative to the policy; `standard` needs one."
        ),
    ] = None
    """``standard``: the key of its signatures (Standard Webhooks: base64, with ``whsec_`` before it or without)."""
    secret_env: Annotated[str | None, Meta(description="The name of the environment variable that holds it.")] = None
    old_secret_file: Annotated[
        str | None, Meta(description="While keys are changed, the file of the one before: both sign.")
    ] = None
    old_secret_env: Annotated[
        str | None, Meta(description="The name of the environment variable that holds that one.")
    ] = None


class Reviewer(Strict, frozen=True):
    """Who decides what rules escalate: people at the page, the command line or the API, and whoever stands behind a
    webhook or a command."""

    timeout: Annotated[
        Duration,
        Meta(description="How long a review waits for a verdict; its request waits only as long as its peers do."),
    ] = "15m"
    late_verdict: Annotated[
        Duration,
        Meta(
            description=(
                "How long a verdict that came after its request had ended answers the next same one, once; `0s` for"
                " never."
            )
        ),
    ] = "24h"
    webhook: Annotated[Webhook | None, Meta(description="Where the reviewer is told of reviews, and may answer.")] = (
        None
    )
    command: Annotated[
        list[str] | None,
        Meta(
            description=(
                "A program and its arguments that gets a review as JSON on its standard input and prints the verdict."
            )
        ),
    ] = None


class RuleBase(Strict, frozen=True, tag_field="effect"):
    """What every rule has."""

    name: Annotated[str, Meta(description="The rule's name, in the decision log and in messages.")]
    match: Annotated[
        Match, Meta(description="The conditions: all that are given must hold; without any, all but urls match.")
    ] = Match()
    otherwise: Annotated[
        Otherwise,
        Meta(description="What happens when the effect cannot be carried out, as far as known before acting."),
    ] = "unanswered"
    shadow: Annotated[
        bool,
        Meta(description="On trial: the rule is evaluated and recorded, and the request goes on to the later rules."),
    ] = False


class AllowRule(RuleBase, frozen=True, tag="allow", rename={"with_": "with"}):
    """A model answers. Sampling only: the match must say ``kind: sampling``."""

    with_: Annotated[With, Meta(description="How the model is asked.")] = With()
    on_timeout: Annotated[Otherwise, Meta(description="What happens when the model takes too long.")] = "unanswered"
    limits: Annotated[
        list[str], Meta(description="The limits that a request draws on, all or none, before anything is done.")
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens when one of the limits has no room.")] = "unanswered"
    review_answer: Annotated[
        str | None, Meta(description="The reviewer who sees the model's answer before the server does.")
    ] = None
    show: Annotated[
        Show,
        Meta(description="What of the contents the reviewer's webhook or command is told; the page has them whole."),
    ] = "redacted"


class AnswerRule(RuleBase, frozen=True, tag="answer"):
    """Fixed content answers: text or content blocks for sampling, values by field name for elicitation."""

    content: Annotated[
        Any,
        Meta(
            description=(
                "What is answered: text or a list of content blocks for sampling, values by field name for a form."
            )
        ),
    ] = None
    defaults: Annotated[
        bool, Meta(description="Forms only: what `content` leaves open takes the default that the form proposes.")
    ] = False
    cases: Annotated[
        str | None,
        Meta(
            description=(
                "Instead of `content`: the file of `scripted` cases that are answered from, relative to the policy."
            )
        ),
    ] = None
    limits: Annotated[
        list[str], Meta(description="The limits that a request draws on, all or none, before anything is done.")
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens when one of the limits has no room.")] = "unanswered"


class ForwardRule(RuleBase, frozen=True, tag="forward"):
    """The client answers."""

    verify: Annotated[bool, Meta(description="The client's answer is sent on only if it fits what was asked.")] = False
    timeout: Annotated[
        Duration | None, Meta(description="How long the client may take; without it, as long as the peers wait.")
    ] = None
    on_timeout: Annotated[Otherwise, Meta(description="What happens when the client takes longer than `timeout`.")] = (
        "unanswered"
    )
    limits: Annotated[
        list[str], Meta(description="The limits that a request draws on, all or none, before anything is done.")
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens when one of the limits has no room.")] = "unanswered"


class DenyRule(RuleBase, frozen=True, tag="deny", rename={"as_": "as"}):
    """Refused. An elicitation is answered ``cancel``, or ``decline`` where the rule says so."""

    as_: Annotated[Literal["cancel", "decline"], Meta(description="What a denied elicitation is answered.")] = "cancel"


class EscalateRule(RuleBase, frozen=True, kw_only=True, tag="escalate", rename={"with_": "with"}):
    """A person decides. Sampling: whether a model is asked, and what; elicitation: the person fills in the form."""

    reviewer: Annotated[str, Meta(description="Who decides: one of `reviewers`.")]
    with_: Annotated[
        With,
        Meta(
            description=(
                "Sampling: how the model is asked once a person has approved; the person's edits keep to it too."
            )
        ),
    ] = With()
    show: Annotated[
        Show,
        Meta(description="What of the contents the reviewer's webhook or command is told; the page has them whole."),
    ] = "redacted"
    review_answer: Annotated[
        str | None, Meta(description="Sampling: the reviewer who sees the model's answer before the server does.")
    ] = None
    timeout: Annotated[
        Duration | None,
        Meta(description="How long the review waits for a verdict, in place of the reviewer's own `timeout`."),
    ] = None
    on_timeout: Annotated[
        Otherwise, Meta(description="What happens when no verdict has come in time, or the model takes too long.")
    ] = "unanswered"
    limits: Annotated[
        list[str], Meta(description="The limits that a request draws on, all or none, before anybody is asked.")
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens when one of the limits has no room.")] = "unanswered"


Rule: TypeAlias = AllowRule | AnswerRule | ForwardRule | EscalateRule | DenyRule
ModelRule: TypeAlias = AllowRule | EscalateRule
"""A rule under which a model may be asked."""


class Limit(Strict, frozen=True):
    """How much may be drawn, within what, counted for each of what. Exactly one amount; ``concurrent`` has no ``per``,
    the others need one."""

    requests: Annotated[Positive | None, Meta(description="How many requests.")] = None
    input_tokens: Annotated[Positive | None, Meta(description="How many tokens models read.")] = None
    output_tokens: Annotated[Positive | None, Meta(description="How many tokens models write.")] = None
    usd: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="How many US dollars models cost.")] = None
    concurrent: Annotated[
        Positive | None, Meta(description="How many requests are under way at once; without `per`.")
    ] = None
    per: Annotated[
        Annotated[str, Meta(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|day|month|call|process)$")] | None,
        Meta(description="Over what it counts."),
    ] = None
    """A duration is a token bucket; ``day`` and ``month`` are the calendar's, in ``tz``; ``call`` is the client's call;
    ``process`` this process."""
    tz: Annotated[
        str | None,
        Meta(
            description=(
                "The time zone in which a `day` or `month` begins: `UTC`, or an IANA name such as `Europe/Berlin`."
            )
        ),
    ] = None
    by: Annotated[
        list[By], Meta(description="Counted separately for each of these; without it, for all together.")
    ] = []
    warn_at: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="The share of it, up to 1, at which the log warns, once in its time."),
    ] = None


class Brakes(Strict, frozen=True):
    """When a server that asks in circles is left unanswered for a while."""

    requests_per_call: Annotated[
        Positive | None, Meta(description="How many requests a server may make during one call of the client.")
    ] = None
    repeats: Annotated[
        Annotated[int, Meta(ge=2)] | None,
        Meta(description="How many times in a row a server asks the same before it is stopped."),
    ] = None
    cooling: Annotated[Duration, Meta(description="How long the server is left unanswered then.")] = "60s"


class Peer(Strict, frozen=True):
    """What the operator knows about a peer's patience."""

    peer_timeout: Annotated[
        str,
        Meta(
            pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|none)$",
            description="How long the peer waits for an answer before it gives up, or none.",
        ),
    ] = "60s"
    extends_on_progress: Annotated[bool, Meta(description="Whether progress makes the peer wait on.")] = False


class Server(Peer, frozen=True):
    """The same for a server, by its configured name."""

    explain_to_server: Annotated[
        bool, Meta(description="For development: the server is told the rule and the reason.")
    ] = False
    plain_sampling: Annotated[
        bool,
        Meta(
            description=(
                "Sampling is declared to it without tools and context, for servers that refuse what they do not know."
            )
        ),
    ] = False
    """``sampling`` is declared without sub-capabilities, for servers that refuse what they do not know (R114)."""


class Policy(Strict, frozen=True):
    """A policy file."""

    version: Annotated[Literal[1], Meta(description="The version of this format: 1.")]
    models: Annotated[list[Model], Meta(description="The models that the gate may call.")] = []
    hints: Annotated[
        dict[str, Names],
        Meta(description="What servers ask for, to your models: in order, the first that is found wins."),
    ] = {}
    """What servers ask for -> our names, in order; a key is a substring or a glob."""
    limits: Annotated[dict[str, Limit], Meta(description="How much may be drawn, by names that rules refer to.")] = {}
    brakes: Annotated[
        Brakes | None, Meta(description="When a server that asks in circles is left unanswered for a while.")
    ] = None
    secrets: Annotated[
        dict[str, Pattern], Meta(description="Your own patterns of secrets, by name, beside those that are known.")
    ] = {}
    rules: Annotated[
        list[Rule],
        Meta(
            description=(
                "Who may ask what, and who answers: the first rule that matches wins, and no match means that nobody"
                " answers."
            )
        ),
    ] = []
    client: Annotated[Peer, Meta(description="What is known of the client.")] = Peer()
    servers: Annotated[dict[str, Server], Meta(description="What is known of servers, by their configured names.")] = {}
    reviewers: Annotated[
        dict[str, Reviewer],
        Meta(description="Who decides what rules escalate to people, by names that rules refer to."),
    ] = {}
