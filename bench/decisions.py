"""`python -m bench.decisions`: how long one decision takes over 1, 100 and 1000 rules of which only the last takes the request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from samplegate.core.decide import Rulebook, compile_policy, decide
from samplegate.core.decisions import Situation
from samplegate.core.policy import AllowRule, AnswerRule, DenyRule, ForwardRule, Match, Model, Policy, Range, Rule
from samplegate.core.requests import Call, ElicitationRequest, Origin, Request, SamplingRequest

LAPS: Final = 40
GOAL: Final = 100.0  # microseconds over 100 rules, as the table of report.py asks

_origin: Final = Origin("docs", "local", "legacy", "2025-11-25", (Call("tools/call", "summarize_page"),))
_text: Final[dict[str, Any]] = {"type": "text", "text": "Summarise this page in three sentences. " * 25}
_sampling: Final = SamplingRequest(
    _origin,
    {
        "messages": [{"role": "user", "content": _text}] * 4,
        "maxTokens": 800,
        "systemPrompt": "You are brief.",
        "modelPreferences": {"hints": [{"name": "claude-sonnet"}], "intelligencePriority": 0.8},
    },
    4_400,
)
_schema: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean"}, "reason": {"type": "string", "maxLength": 200}},
    "required": ["confirm", "reason"],
}
_form: Final = ElicitationRequest(_origin, {"message": "Delete 12 rows?", "requestedSchema": _schema}, 300, "form")
REQUESTS: Final[tuple[Request, ...]] = (_sampling, _form)


def policy(rules: int) -> Policy:
    """Rules of every kind, one in eight with an expression to look for, none of which takes the two requests; the last takes everything."""
    before = [_rule(index) for index in range(rules - 1)]
    return Policy(version=1, models=[Model(name="smart", model="anthropic/claude-sonnet-4-5")], rules=[*before, ForwardRule(name="last")])


def _rule(index: int) -> Rule:
    name = f"rule {index}"
    match index % 8:
        case 0:
            return AllowRule(name=name, match=Match(kind="sampling", server=[f"server{index}", f"search{index}-*"], max_tokens=Range(max=4000)))
        case 1:
            return AnswerRule(name=name, match=Match(kind="elicitation", server=f"db{index}", fields=["confirm"]), content={"confirm": True})
        case 2:
            return DenyRule(name=name, match=Match(kind="elicitation", mode="form", has=["confirm", f"amount{index}"]))
        case 3:
            return AllowRule(name=name, match=Match(kind="sampling", server="docs", tool=f"summarize_{index}_*"))
        case 4:
            return ForwardRule(name=name, match=Match(kind="elicitation", mode="url", host=[f"*.example{index}.com"]))
        case 5:
            return AllowRule(name=name, match=Match(kind="sampling", hint=f"gpt-{index}*", content_types=["text"]))
        case 6:
            return DenyRule(name=name, match=Match(server="docs", max_tokens=Range(min=10_000 + index)))
        case 7 if index % 16 == 7:
            return DenyRule(name=name, match=Match(kind="elicitation", mode="form", field_names=f"(?i)password{index}|token"))
        case _:
            return DenyRule(name=name, match=Match(text=f"(?i)^ignore all previous instructions {index}"))


def microseconds(rules: int = 100) -> float:
    """One decision in microseconds: the median of the laps, mean of a sampling request and a form."""
    return measure(rules)[0]


def measure(rules: int) -> tuple[float, float]:
    """The same and the best lap: on a busy machine the median is also the neighbours'."""
    book = compile_policy(policy(rules), {})
    laps = [sorted(_lap(book, request, max(2, 2_000 // rules)) for _ in range(LAPS)) for request in REQUESTS]
    return sum(lap[LAPS // 2] for lap in laps) / len(laps), sum(lap[0] for lap in laps) / len(laps)


def _lap(book: Rulebook, request: Request, repeats: int) -> float:
    situation = Situation()
    start = time.perf_counter()
    for _ in range(repeats):
        decide(book, request, situation)
    return (time.perf_counter() - start) / repeats * 1e6


def main(sizes: Sequence[int] = (1, 100, 1000)) -> None:
    """Print the figures."""
    for size in sizes:
        median, best = measure(size)
        print(f"{size:>5} rules: {median:8.1f} us a decision, best lap {best:8.1f}" + (f" (goal {GOAL:.0f})" if size == 100 else ""))


if __name__ == "__main__":
    main()
