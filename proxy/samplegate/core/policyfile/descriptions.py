"""One sentence for each key of the policy: what an editor shows through the JSON Schema, and what policies/README.md says in its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "Policy": {
        "version": "The version of this format: 1.",
        "models": "The models that the gate may call.",
        "hints": "What servers ask for, to your models: in order, the first that is found wins.",
        "limits": "How much may be drawn, by names that rules refer to.",
        "brakes": "When a server that asks in circles is left unanswered for a while.",
        "secrets": "Your own patterns of secrets, by name, beside those that are known.",
        "rules": "Who may ask what, and who answers: the first rule that matches wins, and no match means that nobody answers.",
        "client": "What is known of the client.",
        "servers": "What is known of servers, by their configured names.",
        "reviewers": "Who decides what rules escalate to people, by names that rules refer to.",
    },
    "Model": {
        "name": "Your name of the model, used in rules and hints.",
        "model": "The model as litellm names it, `provider/model`; or `scripted`, which is built in.",
        "api_base": "The address to call instead of the provider's own.",
        "api_key_env": "The name of the environment variable that holds the provider's key.",
        "api_key_file": "The file that holds the provider's key, relative to the policy.",
        "max_tokens": "The most output tokens that the model is ever asked for.",
        "price": "What it costs; without it litellm's table says, and where that has nothing the price is unknown, never zero.",
        "accepts": "What it takes besides text; without it litellm's table says, and where that has nothing it takes text only.",
        "context": "The tokens of input and output together; without it litellm's table says how long the input may be.",
        "intelligence": "How good it is beside your other models, in your eyes.",
        "speed": "How fast it is beside your other models, in your eyes.",
        "margin": "What the counted tokens of a request are multiplied by before they are reserved.",
        "image_tokens": "What one image is counted as.",
        "warm": "The models' process is started ahead: by `serve` before it is ready, by `run` at the client's first tools/call.",
        "cases": "Only for `scripted`: the file of its cases, relative to the policy.",
    },
    "Price": {
        "input": "US dollars for a million tokens that it reads.",
        "output": "US dollars for a million tokens that it writes.",
    },
    "Rule": {
        "effect": "What is done with a request that the rule matches.",
        "name": "The rule's name, in the decision log and in messages.",
        "match": "The conditions: all that are given must hold; without any, all but urls match.",
        "otherwise": "What happens when the effect cannot be carried out, as far as known before acting.",
        "shadow": "On trial: the rule is evaluated and recorded, and the request goes on to the later rules.",
    },
    "AllowRule": {
        "with": "How the model is asked.",
        "on_timeout": "What happens when the model takes too long.",
        "limits": "The limits that a request draws on, all or none, before anything is done.",
        "on_limit": "What happens when one of the limits has no room.",
        "review_answer": "The reviewer who sees the model's answer before the server does.",
        "show": "What of the contents the reviewer's webhook or command is told; the page has them whole.",
    },
    "AnswerRule": {
        "content": "What is answered: text or a list of content blocks for sampling, values by field name for a form.",
        "defaults": "Forms only: what `content` leaves open takes the default that the form proposes.",
        "cases": "Instead of `content`: the file of `scripted` cases that are answered from, relative to the policy.",
        "limits": "The limits that a request draws on, all or none, before anything is done.",
        "on_limit": "What happens when one of the limits has no room.",
    },
    "ForwardRule": {
        "verify": "The client's answer is sent on only if it fits what was asked.",
        "timeout": "How long the client may take; without it, as long as the peers wait.",
        "on_timeout": "What happens when the client takes longer than `timeout`.",
        "limits": "The limits that a request draws on, all or none, before anything is done.",
        "on_limit": "What happens when one of the limits has no room.",
    },
    "EscalateRule": {
        "reviewer": "Who decides: one of `reviewers`.",
        "with": "Sampling: how the model is asked once a person has approved; the person's edits keep to it too.",
        "show": "What of the contents the reviewer's webhook or command is told; the page has them whole.",
        "review_answer": "Sampling: the reviewer who sees the model's answer before the server does.",
        "timeout": "How long the review waits for a verdict, in place of the reviewer's own `timeout`.",
        "on_timeout": "What happens when no verdict has come in time, or the model takes too long.",
        "limits": "The limits that a request draws on, all or none, before anybody is asked.",
        "on_limit": "What happens when one of the limits has no room.",
    },
    "DenyRule": {
        "as": "What a denied elicitation is answered.",
    },
    "Match": {
        "kind": "What is asked for: a text by a model, or an input by a person.",
        "server": "The server's configured name.",
        "caller": "Who is connected; on stdio always `local`.",
        "tool": "The tool being called; `none` for no call in flight.",
        "method": "The client's call in flight: `tools/call`, `prompts/get` or `resources/read`.",
        "mode": "Elicitation: by form or by url; a rule covers urls only if it says so.",
        "era": "The protocol's era: legacy up to 2025-11-25, modern from 2026-07-28 on.",
        "max_tokens": "Sampling: the output tokens asked for.",
        "messages": "Sampling: the number of messages.",
        "size": "The bytes of the request's params as JSON.",
        "content_types": "Sampling: every content block is of one of these types.",
        "tools": "Sampling: whether the request brings tools along.",
        "system_prompt": "Sampling: whether there is a system prompt, or an expression found in it.",
        "text": "An expression found in any text of any message; in an elicitation, in its message.",
        "hint": "Sampling: one of the model hints asked for.",
        "fields": "Elicitation: the form has exactly these fields.",
        "has": "Elicitation: the form has at least these fields.",
        "field_names": "Elicitation: an expression found in the name of any field of the form.",
        "field_types": "Elicitation: every field of the form is of one of these types.",
        "host": "Elicitation by url: the url's host, in its ASCII form.",
        "scheme": "Elicitation by url: the url's scheme.",
        "not": "Conditions that must not all hold.",
    },
    "Range": {
        "min": "The least that matches.",
        "max": "The most that matches.",
    },
    "With": {
        "models": "Your models, in order of preference; without it, all of the policy.",
        "prefer": "What counts when a model is chosen, whatever the server says.",
        "fallback": "A model that fails before its first token is followed by the next that fits.",
        "max_tokens": "The most output tokens; a request for more is lowered to it.",
        "temperature": "The bounds that the request's temperature is moved into; a request without one is left without.",
        "stop_sequences": "The bounds of the request's stop sequences.",
        "system_prompt": "What becomes of the server's system prompt.",
        "secrets": "What becomes of secrets in the prompt and in the answer; without it, nobody looks for them.",
        "max_answer": "The most bytes of the answer's content as JSON; a longer answer is not given.",
        "on_overrun": "What becomes of an answer over the limit of output tokens: `keep` passes on up to 1.25 times the limit.",
        "timeout": "How long the model may take; without it, as long as the peers wait.",
    },
    "Secrets": {
        "prompt": "What becomes of secrets in what the model is asked.",
        "answer": "What becomes of secrets in what the model answers.",
    },
    "Weights": {
        "cost": "How much a low price counts.",
        "speed": "How much speed counts.",
        "intelligence": "How much intelligence counts.",
    },
    "Prepend": {
        "prepend": "The text that is put before the server's system prompt.",
    },
    "Temperature": {
        "min": "The lowest temperature.",
        "max": "The highest temperature.",
    },
    "StopSequences": {
        "max": "How many are passed on; the rest is dropped and logged.",
    },
    "Reviewer": {
        "timeout": "How long a review waits for a verdict; its request waits only as long as its peers do.",
        "late_verdict": "How long a verdict that came after its request had ended answers the next same one, once; `0s` for never.",
        "webhook": "Where the reviewer is told of reviews, and may answer.",
        "command": "A program and its arguments that gets a review as JSON on its standard input and prints the verdict.",
    },
    "Webhook": {
        "url": "The address.",
        "url_file": "The file that holds the address, relative to the policy: for addresses that are secrets, such as Slack's.",
        "url_env": "The name of the environment variable that holds the address.",
        "format": "What is sent: Standard Webhooks, or a message for Slack.",
        "secret_file": "The file that holds the key of the signatures, relative to the policy; `standard` needs one.",
        "secret_env": "The name of the environment variable that holds it.",
        "old_secret_file": "While keys are changed, the file of the one before: both sign.",
        "old_secret_env": "The name of the environment variable that holds that one.",
    },
    "Limit": {
        "requests": "How many requests.",
        "input_tokens": "How many tokens models read.",
        "output_tokens": "How many tokens models write.",
        "usd": "How many US dollars models cost.",
        "concurrent": "How many requests are under way at once; without `per`.",
        "per": "Over what it counts.",
        "tz": "The time zone in which a `day` or `month` begins: `UTC`, or an IANA name such as `Europe/Berlin`.",
        "by": "Counted separately for each of these; without it, for all together.",
        "warn_at": "The share of it, up to 1, at which the log warns, once in its time.",
    },
    "Brakes": {
        "requests_per_call": "How many requests a server may make during one call of the client.",
        "repeats": "How many times in a row a server asks the same before it is stopped.",
        "cooling": "How long the server is left unanswered then.",
    },
    "Peer": {
        "peer_timeout": "How long the peer waits for an answer before it gives up, or none.",
        "extends_on_progress": "Whether progress makes the peer wait on.",
    },
    "Server": {
        "explain_to_server": "For development: the server is told the rule and the reason.",
        "plain_sampling": "Sampling is declared to it without tools and context, for servers that refuse what they do not know.",
    },
}
"""By struct of ``policy.py`` and key of the file; ``Rule`` stands for what every rule has, and ``Server`` has all of ``Peer`` too."""


def describe(struct: str, key: str) -> str:
    """The sentence for a key. Raises KeyError where there is none."""
    for owner in (struct, "Rule" if struct.endswith("Rule") else "Peer"):
        if key in KEYS.get(owner, {}):
            return KEYS[owner][key]
    raise KeyError(f"{struct}.{key}")
