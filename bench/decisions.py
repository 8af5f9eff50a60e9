"""`python -m bench.decisions`: duration of one decision over 1, 100 and 1000 rules of which only the last matches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

from samplegate.policy.decide import CompiledPolicy, compile_policy, decide
from samplegate.policy.decisions import Situation
from samplegate.policy.schema import AllowRule, AnswerRule, DenyRule, ForwardRule, Match, Model, Policy, Range, Rule
from samplegate.protocol.requests import Call, ElicitationRequest, Origin, Request, SamplingRequest

LAPS: Final = 20
SIZES: Final = (1, 100, 1000)  # no policy has more
GOAL: Final = 100.0  # microseconds over 100 rules

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
    """Rules of every kind, one in eight with an expression to search for. None matches the two requests, except the
    last, which matches everything."""
    before = [_rule(index) for index in range(rules - 1)]
    return Policy(
        version=1,
        models=[Model(name="smart", model="anthropic/claude-sonnet-4-5")],
        rules=[*before, ForwardRule(name="last")],
    )


def _rule(index: int) -> Rule:
    name = f"rule {index}"
    match index % 8:
        case 0:
            return AllowRule(
                name=name,
                match=Match(kind="sampling", server=[f"server{index}", f"search{index}-*"], max_tokens=Range(max=4000)),
            )
        case 1:
            return AnswerRule(
                name=name,
                match=Match(kind="elicitation", server=f"db{index}", fields=["confirm"]),
                content={"confirm": True},
            )
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
            return DenyRule(
                name=name, match=Match(kind="elicitation", mode="form", field_names=f"(?i)password{index}|token")
            )
        case _:
            return DenyRule(name=name, match=Match(text=f"(?i)^ignore all previous instructions {index}"))


@dataclass(frozen=True, slots=True)
class Speed:
    """Microseconds of one decision over ``rules`` rules, and decisions per second in one thread."""

    rules: int
    p50: float
    p99: float
    a_second: float
    best: float
    """The mean of the best lap: on a busy machine, the other laps also measure other processes."""


def measure(rules: int, laps: int = LAPS, repeats: int | None = None) -> Speed:
    """Time each decision in laps that alternate between a sampling request and a form. Returns the medians of the laps;
    p50 is the mean of the two requests' medians."""
    compiled = compile_policy(policy(rules), {})
    runs = [_lap(compiled, repeats or max(200, min(1_000, 100_000 // rules))) for _ in range(laps)]
    p50 = sum(median(median(run[kind]) for run in runs) for kind in range(len(REQUESTS))) / len(REQUESTS)
    whole = [[took for kind in run for took in kind] for run in runs]
    means = [sum(run) / len(run) for run in whole]
    return Speed(rules, p50, median(quantiles(run, n=100)[98] for run in whole), 1e6 / median(means), min(means))


def _lap(compiled: CompiledPolicy, repeats: int) -> list[list[float]]:
    """Microseconds of each decision, by request."""
    situation = Situation()
    times: list[list[float]] = [[] for _ in REQUESTS]
    for _ in range(repeats):
        for request, took in zip(REQUESTS, times, strict=True):
            start = time.perf_counter_ns()
            decide(compiled, request, situation)
            took.append((time.perf_counter_ns() - start) / 1000)
    return times


def main() -> None:
    """Print the figures."""
    for rules in SIZES:
        speed = measure(rules)
        goal = f" (goal {GOAL:.0f})" if rules == 100 else ""
        print(
            f"{rules:>5} rules: p50 {speed.p50:7.1f} us{goal}, p99 {speed.p99:7.1f}, {speed.a_second:8.0f} a second,"
            f" best lap {speed.best:7.1f}"
        )


if __name__ == "__main__":
    main()
