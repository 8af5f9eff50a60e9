"""Pure. The policy's schema: the keys of the file as typed values, each with its description for editors.

``policy/file/load.py`` loads a policy, and ``match.py`` evaluates a match. The tables of policies/*.md have the
same descriptions. These are msgspec structs, not pydantic models: pydantic would add 130 ms and 12 MiB to the start of
every wrapped server, and frames need msgspec anyway. Annotations are evaluated in this module, because msgspec would
otherwise compile each of them at every start (5 ms).
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from samplegate.protocol.elicitation_schema import FieldType
from samplegate.protocol.requests import Kind

Stage: TypeAlias = Literal["request", "answer"]
"""The subject of a review: the server's request before any action, or a model's answer before the server gets it."""

# bytes of a request or an answer that a reviewer gets: some images; each is kept for days
MAX_REVIEW_BYTES: Final = 8 * 1024 * 1024


Mode: TypeAlias = Literal["form", "url"]
ContentType: TypeAlias = Literal["text", "image", "audio", "tool_use", "tool_result"]
Otherwise: TypeAlias = Literal["next", "unanswered", "deny"]
Show: TypeAlias = Literal["full", "redacted", "none"]
OnLimit: TypeAlias = Literal["next", "unanswered", "deny", "wait"]
Quality: TypeAlias = Literal["cost", "speed", "intelligence"]
Extra: TypeAlias = Literal["image", "audio", "tools"]
By: TypeAlias = Literal["server", "caller", "tool", "model", "rule", "session"]
Names: TypeAlias = str | list[str]
"""One glob (``*``, ``?``, ``[...]``) or several, one of which must match."""


Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Duration: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$")]
"""A duration: ``500ms``, ``50s``, ``15m`` or ``1h``."""
Pattern: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "regex"})]
"""An RE2 expression, checked when the policy is loaded. It is searched for, not anchored."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(span: Duration) -> float:
    """A Duration in seconds."""
    unit = "ms" if span.endswith("ms") else span[-1]
    return float(span.removesuffix(unit)) * _UNITS[unit]


MAX_APPROVALS: Final = 10
MAX_ALSO: Final = 10


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A mapping in the file; unknown keys are errors."""


class Range(Strict, frozen=True):
    """A number within inclusive bounds."""

    min: Annotated[int | None, Meta(description="The lowest number that matches.")] = None
    max: Annotated[int | None, Meta(description="The highest number that matches.")] = None


Plain: TypeAlias = bool | int | float | str
"""A value of an argument or claim. A text is a glob."""


class ArgumentTest(Strict, frozen=True):
    """A test of an argument or claim. All of its keys must hold, except that `absent` also permits that there is
    none."""

    min: Annotated[int | float | None, Meta(description="The lowest number that matches.")] = None
    max: Annotated[int | float | None, Meta(description="The highest number that matches.")] = None
    matches: Annotated[Pattern | None, Meta(description="An expression found in the text.")] = None
    under: Annotated[
        Names | None,
        Meta(
            description=(
                "A folder, or several: the text is an absolute POSIX path of it or below it, without `.`, `..`, empty"
                " segments, backslashes, `%` and control characters. The gate cannot see symbolic links."
            )
        ),
    ] = None
    absent: Annotated[
        bool, Meta(description="Whether a call without the argument, or a caller without the claim, matches, too.")
    ] = False


Wanted: TypeAlias = Plain | list[Plain] | ArgumentTest


class Match(Strict, frozen=True, rename={"not_": "not"}):
    """Conditions of a rule, all of which must hold. An empty match holds for everything except URLs, for which a rule
    needs `mode: url`."""

    kind: Annotated[
        Kind | None,
        Meta(
            description="The kind of request: `sampling` asks for a model's answer, `elicitation` for a user's input."
        ),
    ] = None
    server: Annotated[Names | None, Meta(description="The server's configured name.")] = None
    caller: Annotated[Names | None, Meta(description="The caller's name; on stdio always `local`.")] = None
    groups: Annotated[Names | None, Meta(description="One of the caller's groups.")] = None
    claims: Annotated[
        dict[str, Wanted] | None,
        Meta(
            description=(
                "Claims of the caller's JWT, by name or dotted path: compared like `arguments`. Of a list, one item"
                " is enough."
            )
        ),
    ] = None
    tool: Annotated[
        Names | None, Meta(description="The tool of the call in flight; `none` if no call is in flight.")
    ] = None
    method: Annotated[
        Names | None,
        Meta(description="The method of the client's call in flight: `tools/call`, `prompts/get` or `resources/read`."),
    ] = None
    arguments: Annotated[
        dict[str, Wanted] | None,
        Meta(
            description=(
                "Arguments of the call in flight, by name or dotted path: a value or glob, a list of them, or a test"
                " with `min`, `max`, `matches`, `under` or `absent`."
            )
        ),
    ] = None
    mode: Annotated[
        Mode | list[Mode] | None,
        Meta(description="Elicitation: a form or a URL. A rule matches URLs only if it has `mode: url`."),
    ] = None
    era: Annotated[
        Literal["legacy", "modern"] | None,
        Meta(description="The protocol version: `legacy` is 2025-11-25 and older, `modern` is 2026-07-28."),
    ] = None
    max_tokens: Annotated[Range | None, Meta(description="Sampling: the requested output tokens.")] = None
    messages: Annotated[Range | None, Meta(description="Sampling: the number of messages.")] = None
    size: Annotated[Range | None, Meta(description="The size of the request's params as JSON, in bytes.")] = None
    content_types: Annotated[
        list[ContentType] | None, Meta(description="Sampling: every content block has one of these types.")
    ] = None
    tools: Annotated[bool | None, Meta(description="Sampling: whether the request has tools.")] = None
    system_prompt: Annotated[
        bool | Pattern | None,
        Meta(description="Sampling: whether there is a system prompt, or an expression found in it."),
    ] = None
    text: Annotated[
        Pattern | None,
        Meta(description="An expression found in any text of any message; for an elicitation, in its message."),
    ] = None
    hint: Annotated[Names | None, Meta(description="Sampling: one of the requested model hints.")] = None
    fields: Annotated[list[str] | None, Meta(description="Elicitation: the form has exactly these fields.")] = None
    has: Annotated[list[str] | None, Meta(description="Elicitation: the form has at least these fields.")] = None
    field_names: Annotated[
        Pattern | None, Meta(description="Elicitation: an expression found in the name of any field of the form.")
    ] = None
    field_types: Annotated[
        list[FieldType] | None, Meta(description="Elicitation: every field of the form has one of these types.")
    ] = None
    host: Annotated[Names | None, Meta(description="URL elicitation: the URL's host, in its ASCII form.")] = None
    scheme: Annotated[Names | None, Meta(description="URL elicitation: the URL's scheme.")] = None
    not_: Annotated["Match | None", Meta(description="Conditions that must not all match.")] = None


class Price(Strict, frozen=True):
    """Price in US dollars per million tokens."""

    input: Annotated[Amount, Meta(description="US dollars per million input tokens.")]
    output: Annotated[Amount, Meta(description="US dollars per million output tokens.")]


class Model(Strict, frozen=True):
    """A model that the gate may call. `name` is the policy's name, `model` is litellm's name or `scripted`."""

    name: Annotated[str, Meta(description="Your name for the model, used in rules and hints.")]
    model: Annotated[
        str, Meta(description="The litellm model name, `provider/model`; or `scripted`, which is built in.")
    ]
    api_base: Annotated[str | None, Meta(description="The URL to call instead of the provider's own.")] = None
    api_key_env: Annotated[str | None, Meta(description="The environment variable with the provider's API key.")] = None
    api_key_file: Annotated[
        str | None, Meta(description="The file with the provider's API key, relative to the policy.")
    ] = None
    max_tokens: Annotated[
        Positive | None, Meta(description="The maximum number of output tokens per request to the model.")
    ] = None
    price: Annotated[
        Price | None,
        Meta(
            description=(
                "The model's price. Default: the price in litellm's table; if there is none, the price is unknown,"
                " never zero."
            )
        ),
    ] = None
    accepts: Annotated[
        list[Extra] | None,
        Meta(
            description=(
                "The content that the model accepts besides text. Default: as in litellm's table; if it has no entry,"
                " text only."
            )
        ),
    ] = None
    context: Annotated[
        Positive | None,
        Meta(
            description=(
                "The maximum number of input and output tokens together. Default: the input limit in litellm's table."
            )
        ),
    ] = None
    intelligence: Annotated[
        Share | None, Meta(description="Your rating of the model's intelligence, relative to your other models.")
    ] = None
    speed: Annotated[
        Share | None, Meta(description="Your rating of the model's speed, relative to your other models.")
    ] = None
    margin: Annotated[
        float,
        Meta(
            ge=1,
            description=(
                "The factor by which the estimated tokens of a request are multiplied before they are reserved."
            ),
        ),
    ] = 1.25
    image_tokens: Annotated[Positive, Meta(description="The number of tokens that one image counts as.")] = 10_000
    """Providers count from a few hundred to tens of thousands of tokens per image."""
    warm: Annotated[
        bool,
        Meta(
            description=(
                "Whether a model worker process starts early: with `serve` before it is ready, with `run` at the"
                " client's first tools/call."
            )
        ),
    ] = False
    cases: Annotated[str | None, Meta(description="For `scripted` only: the case file, relative to the policy.")] = None


class Prepend(Strict, frozen=True):
    """Text before the server's system prompt."""

    prepend: Annotated[str, Meta(description="The text to put before the server's system prompt.")]


class Temperature(Strict, frozen=True):
    """Range to which a request's temperature is clamped. A request without a temperature stays without one."""

    min: Annotated[Amount | None, Meta(description="The lowest temperature.")] = None
    max: Annotated[Amount | None, Meta(description="The highest temperature.")] = None


class StopSequences(Strict, frozen=True):
    """Limit on stop sequences. Further ones are dropped and logged."""

    max: Annotated[
        Count, Meta(description="The maximum number of stop sequences to pass on. Others are dropped and logged.")
    ]


class Weights(Strict, frozen=True):
    """Weights for the choice of a model, instead of the server's priorities. Absent ones are 0."""

    cost: Annotated[Share, Meta(description="The weight of a low price.")] = 0.0
    speed: Annotated[Share, Meta(description="The weight of speed.")] = 0.0
    intelligence: Annotated[Share, Meta(description="The weight of intelligence.")] = 0.0


class Secrets(Strict, frozen=True):
    """Treatment of secrets in the prompt and in the model's answer."""

    prompt: Annotated[Literal["keep", "redact", "stop"], Meta(description="What happens to secrets in the prompt.")] = (
        "redact"
    )
    answer: Annotated[
        Literal["keep", "redact", "stop"], Meta(description="What happens to secrets in the model's answer.")
    ] = "redact"


class With(Strict, frozen=True):
    """Constraints and settings for the model call."""

    models: Annotated[
        list[str], Meta(description="Your models, in order of preference. Default: all models of the policy.")
    ] = []
    prefer: Annotated[
        Quality | Weights | None,
        Meta(description="The criterion for choosing the model, regardless of the server's priorities."),
    ] = None
    fallback: Annotated[
        bool, Meta(description="Whether the next suitable model is tried if a model fails before its first token.")
    ] = True
    secrets: Annotated[
        Secrets | None,
        Meta(
            description=(
                "What happens to secrets in the prompt and in the answer. Without this key, the gate does not search"
                " for secrets."
            )
        ),
    ] = None
    max_answer: Annotated[
        Positive | None,
        Meta(description="The maximum size of the answer's content as JSON, in bytes. A longer answer is withheld."),
    ] = None
    on_overrun: Annotated[
        Literal["keep", "withhold"],
        Meta(
            description=(
                "What happens to an answer over the limit of output tokens: `keep` passes it on if it has at most 1.25"
                " times as many; `withhold` never does."
            )
        ),
    ] = "keep"
    max_tokens: Annotated[
        Positive | None, Meta(description="The maximum number of output tokens. Requests for more are capped.")
    ] = None
    temperature: Annotated[
        Temperature | None,
        Meta(
            description=(
                "The range to which the request's temperature is clamped. A request without one stays without one."
            )
        ),
    ] = None
    stop_sequences: Annotated[StopSequences | None, Meta(description="The limit on the request's stop sequences.")] = (
        None
    )
    system_prompt: Annotated[
        Literal["keep", "drop"] | Prepend, Meta(description="What happens to the server's system prompt.")
    ] = "keep"
    timeout: Annotated[
        Duration | None,
        Meta(description="The timeout of the model call. Default: as long as the client and the server wait."),
    ] = None


class Webhook(Strict, frozen=True):
    """Webhook that notifies a reviewer of reviews and may return the decision. It has one of `url`, `url_file` and
    `url_env`."""

    url: Annotated[str | None, Meta(description="The URL of the webhook.")] = None
    url_file: Annotated[
        str | None,
        Meta(description="The file with the URL, relative to the policy, for URLs that are secrets, such as Slack's."),
    ] = None
    url_env: Annotated[str | None, Meta(description="The environment variable with the URL.")] = None
    format: Annotated[
        Literal["standard", "slack", "json"],
        Meta(description="The message format: Standard Webhooks, a message for Slack, or `json` with your own `body`."),
    ] = "standard"
    body: Annotated[
        dict[str, Any] | None,
        Meta(
            description=(
                "For `json`: the message, whose texts may name fields of the review, such as `{title}`, `{link}` or"
                " `{summary:500}` (at most 500 characters)."
            )
        ),
    ] = None
    ended_body: Annotated[
        dict[str, Any] | None,
        Meta(description="For `json`: the message when the review has ended. Default: none is sent."),
    ] = None
    authorization_file: Annotated[
        str | None,
        Meta(description="For `json`: the file with the value of the header `Authorization`, relative to the policy."),
    ] = None
    authorization_env: Annotated[
        str | None, Meta(description="For `json`: the environment variable with the value of that header.")
    ] = None
    secret_file: Annotated[
        str | None,
        Meta(
            description=(
                "The file with the signing key, relative to the policy. `standard` needs a key. For `json`: the file"
                " with the field `{secret}`."
            )
        ),
    ] = None
    """The signing key for ``standard`` (Standard Webhooks: base64, optionally with the prefix ``whsec_``)."""
    secret_env: Annotated[str | None, Meta(description="The environment variable with the signing key.")] = None
    old_secret_file: Annotated[
        str | None, Meta(description="The file with the previous signing key, during a rotation: both keys sign.")
    ] = None
    old_secret_env: Annotated[
        str | None, Meta(description="The environment variable with the previous signing key.")
    ] = None


class Reviewer(Strict, frozen=True, rename={"not_": "not"}):
    """Reviewer to whom rules escalate: people who use the page, the command line or the API, or a webhook or command
    that decides."""

    timeout: Annotated[
        Duration,
        Meta(
            description=(
                "How long a review waits for a decision. Its request waits only as long as the client and the server"
                " do."
            )
        ),
    ] = "15m"
    late_verdict: Annotated[
        Duration,
        Meta(
            description=(
                "How long a decision that comes after its request has ended can answer the next identical request,"
                " once. `0s`: never."
            )
        ),
    ] = "24h"
    webhook: Annotated[
        Webhook | None, Meta(description="The webhook that notifies the reviewer and may return the decision.")
    ] = None
    command: Annotated[
        list[str] | None,
        Meta(description="A program with its arguments. It gets a review as JSON on stdin and prints the decision."),
    ] = None
    approvals: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_APPROVALS,
            description=(
                "How many people must approve the same content. A rejection ends the review at once, and an edit voids"
                " the earlier approvals."
            ),
        ),
    ] = 1
    not_: Annotated[
        Literal["caller"] | None,
        Meta(description="`caller`: the person who made the call may reject its requests, but not approve them."),
    ] = None
    groups: Annotated[
        list[str],
        Meta(description="Only people in one of these groups, and admins, may decide. Default: all of its people."),
    ] = []
    after: Annotated[
        Duration | None,
        Meta(description="How long a review is pending before the reviewers in `also` are notified and may decide it."),
    ] = None
    also: Annotated[
        list[str],
        Meta(
            max_length=MAX_ALSO, description="Reviewers who also decide a review that is still pending `after` a time."
        ),
    ] = []


def is_notified(reviewer: Reviewer) -> bool:
    """Whether a webhook or a command is called for the reviewer's reviews."""
    return reviewer.webhook is not None or reviewer.command is not None


def may_decide(reviewer: Reviewer) -> bool:
    """Whether a program may decide the reviewer's reviews: a command, or a webhook whose answers are decisions."""
    webhook = reviewer.webhook
    return reviewer.command is not None or (webhook is not None and webhook.format == "standard")


class RuleBase(Strict, frozen=True, tag_field="effect"):
    """Keys of every rule."""

    name: Annotated[str, Meta(description="The rule's name, for the decision log and for messages.")]
    match: Annotated[
        Match,
        Meta(
            description=(
                "The conditions. All of them must match; a rule without conditions matches everything except URLs."
            )
        ),
    ] = Match()
    otherwise: Annotated[
        Otherwise,
        Meta(description="What happens if the gate already knows that it cannot carry out the effect."),
    ] = "unanswered"
    shadow: Annotated[
        bool,
        Meta(description="A trial: the rule is evaluated and recorded, and the request goes on to later rules."),
    ] = False


class AllowRule(RuleBase, frozen=True, tag="allow", rename={"with_": "with"}):
    """A model answers. Only for sampling: the match must have `kind: sampling`."""

    with_: Annotated[With, Meta(description="Constraints on the model call.")] = With()
    on_timeout: Annotated[Otherwise, Meta(description="What happens if the model takes too long.")] = "unanswered"
    limits: Annotated[
        list[str],
        Meta(
            description=(
                "Limits to reserve capacity in before anything else happens. Either all reservations succeed or none is"
                " made."
            )
        ),
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens if a limit is reached.")] = "unanswered"
    review_answer: Annotated[
        str | None, Meta(description="The reviewer who sees the model's answer before the server does.")
    ] = None
    show: Annotated[
        Show,
        Meta(description="How much content the reviewer's webhook or command gets. The page shows everything."),
    ] = "redacted"


class AnswerRule(RuleBase, frozen=True, tag="answer"):
    """Fixed content answers: text or content blocks for sampling, values by field name for an elicitation."""

    content: Annotated[
        Any,
        Meta(description="The answer: text or a list of content blocks for sampling, values by field name for a form."),
    ] = None
    defaults: Annotated[
        bool, Meta(description="Forms only: fields that `content` leaves out get the form's default.")
    ] = False
    cases: Annotated[
        str | None,
        Meta(
            description=(
                "A `scripted` case file with the answers, instead of `content`. Its path is relative to the policy."
            )
        ),
    ] = None
    limits: Annotated[
        list[str],
        Meta(
            description=(
                "Limits to reserve capacity in before anything else happens. Either all reservations succeed or none is"
                " made."
            )
        ),
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens if a limit is reached.")] = "unanswered"


class ForwardRule(RuleBase, frozen=True, tag="forward"):
    """The client answers."""

    verify: Annotated[
        bool, Meta(description="Whether the client's answer is passed on only if it fits the request.")
    ] = False
    timeout: Annotated[
        Duration | None,
        Meta(description="The timeout of the client. Default: as long as the client and the server wait."),
    ] = None
    on_timeout: Annotated[Otherwise, Meta(description="What happens if the client takes longer than `timeout`.")] = (
        "unanswered"
    )
    limits: Annotated[
        list[str],
        Meta(
            description=(
                "Limits to reserve capacity in before anything else happens. Either all reservations succeed or none is"
                " made."
            )
        ),
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens if a limit is reached.")] = "unanswered"


class DenyRule(RuleBase, frozen=True, tag="deny", rename={"as_": "as"}):
    """The request is denied. An elicitation gets `cancel`, or `decline` if the rule says so."""

    as_: Annotated[Literal["cancel", "decline"], Meta(description="The reply to a denied elicitation.")] = "cancel"


class EscalateRule(RuleBase, frozen=True, kw_only=True, tag="escalate", rename={"with_": "with"}):
    """A reviewer decides. For sampling, whether a model is called and with which params; for an elicitation, the form's
    values."""

    reviewer: Annotated[str, Meta(description="The reviewer who decides: a name in `reviewers`.")]
    with_: Annotated[
        With,
        Meta(description="Sampling: constraints on the model call after an approval, and on the reviewer's edits."),
    ] = With()
    show: Annotated[
        Show,
        Meta(description="How much content the reviewer's webhook or command gets. The page shows everything."),
    ] = "redacted"
    ui: Annotated[
        Literal["show", "hide"],
        Meta(description="Forms: whether the review page shows the server's own UI, in a sandbox."),
    ] = "hide"
    ui_origins: Annotated[
        list[str],
        Meta(
            description=(
                "Forms with `ui: show`: the origins, such as `https://ui.example.com`, from which the page may load a"
                " UI that the server gives as a URL."
            ),
            max_length=16,
        ),
    ] = []
    review_answer: Annotated[
        str | None, Meta(description="Sampling: the reviewer who sees the model's answer before the server does.")
    ] = None
    timeout: Annotated[
        Duration | None,
        Meta(description="How long the review waits for a decision, instead of the reviewer's own `timeout`."),
    ] = None
    on_timeout: Annotated[
        Otherwise, Meta(description="What happens if there is no decision in time, or the model takes too long.")
    ] = "unanswered"
    limits: Annotated[
        list[str],
        Meta(
            description=(
                "Limits to reserve capacity in before a reviewer is asked. Either all reservations succeed or none is"
                " made."
            )
        ),
    ] = []
    on_limit: Annotated[OnLimit, Meta(description="What happens if a limit is reached.")] = "unanswered"


Rule: TypeAlias = AllowRule | AnswerRule | ForwardRule | EscalateRule | DenyRule
ModelRule: TypeAlias = AllowRule | EscalateRule
"""A rule that may call a model."""


class Limit(Strict, frozen=True):
    """Limit on exactly one quantity, over a period or scope (`per`), with one account for each value of `by`.
    `concurrent` has no `per`; the others need one."""

    requests: Annotated[Positive | None, Meta(description="The number of requests.")] = None
    input_tokens: Annotated[Positive | None, Meta(description="The number of input tokens.")] = None
    output_tokens: Annotated[Positive | None, Meta(description="The number of output tokens.")] = None
    usd: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="The cost of model calls in US dollars.")] = (
        None
    )
    concurrent: Annotated[Positive | None, Meta(description="The number of simultaneous requests; without `per`.")] = (
        None
    )
    per: Annotated[
        Annotated[str, Meta(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|day|month|call|run|process)$")] | None,
        Meta(description="The period or scope of the limit."),
    ] = None
    """A duration is a token bucket. ``day`` and ``month`` are calendar windows in ``tz``. ``call`` is the client's
    call, ``run`` is all processes with one run ID, and ``process`` is this process."""
    tz: Annotated[
        str | None,
        Meta(
            description=(
                "The time zone in which a `day` or `month` begins: `UTC`, or an IANA name such as `Europe/Berlin`."
            )
        ),
    ] = None
    by: Annotated[
        list[By], Meta(description="Separate accounts for each of these. Default: one account for everything.")
    ] = []
    warn_at: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="The share of the limit at which a warning is logged, once per period."),
    ] = None


class Brakes(Strict, frozen=True):
    """Loop detection: a server that repeats itself gets no answers for a while."""

    requests_per_call: Annotated[
        Positive | None,
        Meta(description="The maximum number of requests that a server may send during one call of the client."),
    ] = None
    repeats: Annotated[
        Annotated[int, Meta(ge=2)] | None,
        Meta(description="How many identical requests in a row stop a server."),
    ] = None
    cooling: Annotated[Duration, Meta(description="How long requests from a stopped server are not answered.")] = "60s"


class Peer(Strict, frozen=True):
    """Timeout of a client or server, and whether progress extends it."""

    peer_timeout: Annotated[
        str,
        Meta(
            pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h)|none)$",
            description="The timeout of the client or server for a request, or `none`.",
        ),
    ] = "60s"
    extends_on_progress: Annotated[bool, Meta(description="Whether progress notifications extend that timeout.")] = (
        False
    )


class Server(Peer, frozen=True):
    """Properties of a server."""

    explain_to_server: Annotated[
        bool, Meta(description="For development: errors to the server include the rule and the reason.")
    ] = False
    ui_forward: Annotated[
        Literal["pass", "cut"],
        Meta(description="Whether forms that are forwarded to the client keep `params.ui` (RICH elicitation)."),
    ] = "pass"
    ui_results: Annotated[
        Literal["pass", "police"],
        Meta(
            description=(
                "Experimental: whether the rules decide a question in a tool's result (`metadata.elicitation`, RICH"
                " elicitation) before the client gets the result."
            )
        ),
    ] = "pass"
    plain_sampling: Annotated[
        bool,
        Meta(
            description="Advertises sampling without tools and context, for servers that reject unknown capabilities."
        ),
    ] = False
    """``sampling`` is declared without sub-capabilities, for servers that reject unknown ones (R114)."""


class Policy(Strict, frozen=True):
    """A policy file."""

    version: Annotated[Literal[1], Meta(description="The version of this format: 1.")]
    models: Annotated[list[Model], Meta(description="The models that the gate may call.")] = []
    hints: Annotated[
        dict[str, Names],
        Meta(description="Maps the model names that servers ask for to your models. The first hint that matches wins."),
    ] = {}
    """Requested names to the policy's names, in order; a key is a substring or a glob."""
    limits: Annotated[dict[str, Limit], Meta(description="Limits, by the names that rules use.")] = {}
    brakes: Annotated[
        Brakes | None,
        Meta(description="Loop detection: when a server that repeats itself gets no answers for a while."),
    ] = None
    secrets: Annotated[
        dict[str, Pattern], Meta(description="Your own patterns of secrets, by name, in addition to the built-in ones.")
    ] = {}
    rules: Annotated[
        list[Rule],
        Meta(
            description="The rules. The first rule that matches wins; a request that matches no rule is not answered."
        ),
    ] = []
    client: Annotated[Peer, Meta(description="Properties of the client.")] = Peer()
    servers: Annotated[
        dict[str, Server], Meta(description="Properties of the servers, by their configured names.")
    ] = {}
    reviewers: Annotated[
        dict[str, Reviewer],
        Meta(description="The reviewers to whom rules escalate requests, by the names that rules use."),
    ] = {}
