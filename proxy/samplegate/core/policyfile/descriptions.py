"""One sentence for each key of the policy: what an editor shows through the JSON Schema, and what policies/README.md says in its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "Policy": {
        "version": "The version of this format: 1.",
        "models": "The models that the gate may call.",
        "hints": "What servers ask for, to your models: in order, the first that is found wins.",
        "rules": "Who may ask what, and who answers: the first rule that matches wins, and no match means that nobody answers.",
        "client": "What is known of the client.",
        "servers": "What is known of servers, by their configured names.",
    },
    "Model": {
        "name": "Your name of the model, used in rules and hints.",
        "model": "The model as litellm names it, `provider/model`; or `scripted`, which is built in.",
        "api_base": "The address to call instead of the provider's own.",
        "api_key_env": "The name of the environment variable that holds the provider's key.",
        "api_key_file": "The file that holds the provider's key, relative to the policy.",
        "max_tokens": "The most output tokens that the model is ever asked for.",
        "warm": "Its process is started by the client's first tools/call, not by the first request that needs it.",
        "cases": "Only for `scripted`: the file of its cases, relative to the policy.",
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
    },
    "AnswerRule": {
        "content": "What is answered: text or a list of content blocks for sampling, values by field name for a form.",
        "defaults": "Forms only: what `content` leaves open takes the default that the form proposes.",
    },
    "ForwardRule": {
        "verify": "The client's answer is sent on only if it fits what was asked.",
        "timeout": "How long the client may take; without it, as long as the peers wait.",
        "on_timeout": "What happens when the client takes longer than `timeout`.",
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
        "max_tokens": "The most output tokens; a request for more is lowered to it.",
        "temperature": "The bounds that the request's temperature is moved into; a request without one is left without.",
        "stop_sequences": "The bounds of the request's stop sequences.",
        "system_prompt": "What becomes of the server's system prompt.",
        "timeout": "How long the model may take; without it, as long as the peers wait.",
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
    "Peer": {
        "peer_timeout": "How long the peer waits for an answer before it gives up, or none.",
        "extends_on_progress": "Whether progress makes the peer wait on.",
    },
    "Server": {
        "explain_to_server": "For development: the server is told the rule and the reason.",
    },
}
"""By struct of ``policy.py`` and key of the file; ``Rule`` stands for what every rule has, and ``Server`` has all of ``Peer`` too."""


def describe(struct: str, key: str) -> str:
    """The sentence for a key. Raises KeyError where there is none."""
    for owner in (struct, "Rule" if struct.endswith("Rule") else "Peer"):
        if key in KEYS.get(owner, {}):
            return KEYS[owner][key]
    raise KeyError(f"{struct}.{key}")
