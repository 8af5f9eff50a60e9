"""A sentence for each key of a ``*_test.yaml`` file, for editors. The tables of policies/README.md say the same: a test compares them."""

from __future__ import annotations

from typing import Final

KEYS: Final[dict[str, dict[str, str]]] = {
    "Suite": {
        "cases": "The cases, at least one.",
        "policy": "The policy's file, beside this one; without it, this file's name without `_test`.",
        "defaults": "The scene of every case that does not say its own.",
    },
    "Case": {
        "name": "The case's name, each its own.",
        "steps": "Several requests one after the other, in a time of their own.",
        "start": 'When it begins, such as `"2026-01-31T23:59:00Z"`, quoted, for limits of a day or month; default a noon in mid-month.',
        "expect": "What must come of the request.",
        "sampling": "A sampling request in short: the user's text, or a mapping.",
        "elicitation": "An elicitation in short: its message, or a mapping.",
        "request": "The request as a server writes it.",
        "server": "Who asks; default `default`.",
        "caller": "Who is connected; default `local`.",
        "era": "Default `legacy`, or that of `revision`.",
        "revision": "The protocol's revision; default the newest of the era.",
        "tool": "The tool being called, or a list of candidates; default `none`.",
        "method": "Calls in flight that are no tool's: `prompts/get`, `resources/read`.",
        "client": "What the client declared, a list; default nothing.",
        "environment": "What `${VAR}` stands for; the real environment is not looked at.",
        "at": "When it is asked, as a duration since the case's start; default the time of the step before.",
        "repeat": "Steps only: so many times at that moment, up to 10000, each as expected; `limits` are compared after the last.",
        "call": "The name of the call in flight, or one for each candidate; default: all calls of one tool in a case are one call.",
        "usage": "What the model reports: `{input_tokens: N, output_tokens: N}`, bounded as in a run. Default: what was reserved stays.",
        "fails": "The model fails instead, and no other stands in for it: `bad_key`, `rate_limited`, `timeout` and the like.",
        "verdict": "What the person says whom it is escalated to: see [verdicts](#verdicts); default: the case ends with the question.",
        "hold": "The request stays open for a duration, or with true to the end of the case; default: it ends at once.",
    },
    "Expect": {
        "effect": "`allow`, `answer`, `forward`, `escalate`, `deny`, or `none` for nobody.",
        "rule": "The name of the rule that decided.",
        "reason": "`rule`, `no_rule`, `cannot`, `not_offered`, `malformed`, `limit` or `brake`; with a verdict also `review` and `timeout`.",
        "reviewer": "Whom it is escalated to.",
        "review_answer": "Who sees the model's answer before the server does.",
        "outcome": "`answered`, `denied` or `unanswered`, where no model's answer and no client has a say in it.",
        "declared": "Whether the capability that the request needs was declared to the server.",
        "wire": "What the server gets: `result`, `accept`, `decline`, `cancel`, `error -1`, `error -32602`, or `call ends`.",
        "model": "The model that is asked first.",
        "models": "All models that would be asked, in order.",
        "max_tokens": "The output tokens that the model is asked for.",
        "params": "What the model is asked, by MCP's names; null for what must not be there.",
        "content": "What is answered.",
        "as": "What a denied elicitation is answered: `cancel` or `decline`.",
        "shadows": "The shadow rules that would have taken it, in order.",
        "limit": "The limit that had no room; of several the one that was asked last.",
        "waits": "With `on_limit: wait`, the duration after which it would fit.",
        "limits": "How much is drawn on limits after the request, each in its unit, for whoever made it: `{team-day: 0.0125, docs-rate: 1}`.",
        "cost": "The dollars that the model's answer may cost at worst.",
    },
    "Sampling": {
        "text": "The one user message; or give `messages`.",
        "messages": "The messages, as MCP has them.",
        "hints": "The names of model hints; or give `modelPreferences`.",
        "maxTokens": "Default 1000.",
        "systemPrompt": "The system prompt.",
        "temperature": "The temperature.",
        "stopSequences": "The stop sequences.",
        "includeContext": "As MCP has it.",
        "modelPreferences": "As MCP has it.",
        "tools": "As MCP has it.",
        "toolChoice": "As MCP has it.",
        "metadata": "As MCP has it.",
    },
    "Elicitation": {
        "message": "What the person is told; default `Please fill this in`.",
        "fields": "The form: by field name a type (`string`, `number`, `integer`, `boolean`) or a schema.",
        "required": "The required fields; default all of them.",
        "url": "Instead of a form, the url to open.",
    },
    "Said": {
        "answer": "The person's own answer: text or content blocks in place of a model's, or the values of a form.",
        "edits": "What is changed before a model is asked: see below.",
    },
    "Edited": {
        "messages": "The messages, as MCP has them.",
        "systemPrompt": "The system prompt; an empty one takes it away.",
        "model": "Your name of the model, one that the rule may ask.",
        "maxTokens": "The output tokens.",
        "temperature": "The temperature.",
    },
    "Raw": {
        "method": "`sampling/createMessage` or `elicitation/create`.",
        "params": "Its params.",
        "jsonrpc": "May stay in.",
        "id": "May stay in.",
    },
}
"""By the name of the struct. ``Case`` has those of ``Step`` too, and of the scene."""

USAGE: Final = {
    "input_tokens": "The tokens that the model has read; default: what was reserved.",
    "output_tokens": "The tokens that the model has written; default: what was reserved.",
}


def describe(struct: str, key: str) -> str:
    """The sentence for a key. Raises KeyError."""
    if struct == "Usage":
        return USAGE[key]
    return KEYS["Case" if struct in ("Step", "Scene") else struct][key]
