"""Model selection: which models may answer, in which order, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy import model_choice
from samplegate.policy.catalogue import ModelFacts
from samplegate.policy.facts import Facts
from samplegate.policy.match import CompiledPolicy, compile_policy
from samplegate.policy.model_choice import ModelChoice, choose, needs
from samplegate.policy.schema import AllowRule, Match, Model, Policy, Price, Quality, Weights, With
from samplegate.protocol.requests import SamplingRequest
from tests.fakes.requests import MODELS, sampling, text

Hints = dict[str, str | list[str]]

PRICED: Final = (
    Model(name="smart", model="a/claude-sonnet-4-5", intelligence=0.95, speed=0.5, price=Price(input=3, output=15)),
    Model(name="middle", model="o/gpt-5", intelligence=0.8, speed=0.6, price=Price(input=1, output=10)),
    Model(name="cheap", model="o/gpt-5-mini", intelligence=0.6, speed=0.9, price=Price(input=0.25, output=2)),
)
ABLE: Final = (
    Model(name="plain", model="a/plain"),
    Model(name="seeing", model="a/seeing", accepts=["image"]),
    Model(name="whole", model="a/whole", accepts=["image", "audio", "tools"]),
)
IMAGE: Final = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
AUDIO: Final = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
USE: Final = {"type": "tool_use", "id": "1", "name": "t", "input": {}}


def result(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": "1", "content": list(content)}


TOOLS: Final = [{"name": "t", "inputSchema": {"type": "object"}}]


def compiled(all_: Sequence[Model], hints: Hints | None = None) -> CompiledPolicy:
    return compile_policy(Policy(version=1, models=list(all_), hints=hints or {}), {})


def choice(
    request: SamplingRequest, all_: Sequence[Model] = PRICED, hints: Hints | None = None, **with_: Any
) -> ModelChoice:
    return choose(
        compiled(all_, hints), AllowRule(name="r", match=Match(kind="sampling"), with_=With(**with_)), Facts(request)
    )


def names(made: ModelChoice) -> list[str]:
    return [model.name for model in made.models]


def preferring(*hints: str, **priorities: Any) -> SamplingRequest:
    return sampling(modelPreferences={"hints": [{"name": name} for name in hints], **priorities})


@pytest.mark.parametrize(
    ("expected", "asked", "allowed", "hints"),
    [
        (["smart", "cheap", "local"], [], None, None),
        (["cheap", "smart"], [], ["cheap", "smart"], None),
        (["local", "smart", "cheap"], ["QWEN"], None, None),
        (["smart", "cheap", "local"], ["anthropic/claude"], None, None),
        (["cheap", "local", "smart"], ["openai"], None, None),
        (["local", "cheap"], ["openai"], ["local", "cheap"], None),
        (["smart", "cheap", "local"], ["", "  "], None, None),
        (["smart", "cheap", "local"], ["nobody"], None, None),
        (["local", "smart", "cheap"], ["nobody", "qwen"], None, None),
        (["local", "smart", "cheap"], ["gpt-4o"], None, {"gpt*": "local"}),
        (["cheap", "local", "smart"], ["GPT-4o"], None, {"gpt*": ["cheap", "local"]}),
        (["local", "smart"], ["gpt-4o"], ["smart", "local"], {"gpt*": ["cheap", "local"]}),
        (["smart", "local"], ["gpt-4o"], ["smart", "local"], {"gpt*": "cheap", "4o": "smart"}),
        (["local", "smart", "cheap"], ["my-gpt-4"], None, {"gpt*": "smart", "gpt": "local"}),
        (["smart", "cheap", "local"], ["gpt"], None, {"": "local", "g?t": "smart"}),
        (["cheap", "smart"], ["local", "cheap"], ["smart", "cheap"], None),
        (["local", "cheap", "smart"], ["qwen", "gpt"], None, None),
        (["cheap", "smart", "local"], ["cheap"], None, {"*": "local"}),
        (["cheap", "smart", "local"], ["OpenAI/GPT-5-mini"], None, {"*": "local"}),
        (["cheap", "smart", "local"], ["gpt-5-mini"], None, {"gpt*": "local"}),
        (["local", "smart", "cheap"], ["gpt-5"], None, {"gpt*": "local"}),
    ],
)
def test_the_list_of_the_rule_is_ordered_by_the_hints_in_their_order(
    expected: list[str], asked: list[str], allowed: list[str] | None, hints: Hints | None
) -> None:
    assert expected == names(choice(preferring(*asked), MODELS, hints, models=allowed or []))


@pytest.mark.parametrize(
    ("expected", "prefer"),
    [
        (["cheap", "middle", "smart"], "cost"),
        (["cheap", "middle", "smart"], "speed"),
        (["smart", "middle", "cheap"], "intelligence"),
        (["cheap", "middle", "smart"], Weights(cost=0.7, intelligence=0.3)),
        (["smart", "middle", "cheap"], Weights(cost=0.1, intelligence=0.9)),
        (["smart", "middle", "cheap"], Weights()),
    ],
)
def test_prefer_orders_by_weighted_qualities(expected: list[str], prefer: Quality | Weights) -> None:
    assert expected == names(choice(sampling(), prefer=prefer))


@pytest.mark.parametrize(
    ("expected", "priorities"),
    [
        ([], {}),
        (["cheap", "middle", "smart"], {"costPriority": 1}),
        (["cheap", "middle", "smart"], {"speedPriority": 0.5, "intelligencePriority": 0.1}),
        (["smart", "middle", "cheap"], {"intelligencePriority": 0.2, "costPriority": None}),
        ([], {"costPriority": 0}),
        ([], {"costPriority": 2}),
        ([], {"costPriority": -1}),
        ([], {"costPriority": True}),
        ([], {"costPriority": float("nan")}),
        ([], {"costPriority": "1"}),
    ],
)
def test_the_priorities_of_the_server_count_where_the_rule_prefers_nothing(
    expected: list[str], priorities: dict[str, Any]
) -> None:
    assert (expected or ["smart", "middle", "cheap"]) == names(choice(preferring(**priorities)))
    assert ["smart", "middle", "cheap"] == names(choice(preferring(**priorities), prefer="intelligence"))


def test_hints_rank_above_numbers_and_numbers_order_what_one_hint_means() -> None:
    assert ["smart", "cheap", "middle"] == names(choice(preferring("claude", costPriority=1)))
    assert ["smart", "cheap", "middle"] == names(choice(preferring("claude"), prefer="cost"))
    assert ["cheap", "middle", "smart"] == names(choice(preferring("gpt-5-"), prefer="cost"))
    assert ["cheap", "middle", "smart"] == names(choice(preferring("o/"), prefer="cost"))
    assert ["middle", "cheap", "smart"] == names(choice(preferring("o/"), prefer="intelligence"))
    assert ["middle", "cheap", "smart"] == names(choice(preferring("o/")))


def test_a_list_in_the_policys_hints_is_an_order_of_its_own() -> None:
    assert ["middle", "cheap", "smart"] == names(
        choice(preferring("gpt"), hints={"gpt": ["middle", "cheap"]}, prefer="cost")
    )


def test_no_model_is_asked_twice() -> None:
    assert ["cheap", "smart"] == names(
        choice(preferring("gpt"), hints={"gpt": ["cheap", "cheap"]}, models=["smart", "cheap", "smart"])
    )


def test_cost_is_what_this_request_comes_to() -> None:
    wordy = Model(name="wordy", model="a/wordy", price=Price(input=1, output=100))
    bookish = Model(name="bookish", model="a/bookish", price=Price(input=10, output=1))
    assert ["wordy", "bookish"] == names(choice(sampling("x" * 10_000, maxTokens=10), (bookish, wordy), prefer="cost"))
    assert ["bookish", "wordy"] == names(choice(sampling("x", maxTokens=10_000), (wordy, bookish), prefer="cost"))
    assert ["wordy", "bookish"] == names(
        choice(sampling("x" * 10_000, maxTokens=10_000), (bookish, wordy), prefer="cost", max_tokens=1)
    )


def test_an_unknown_price_is_the_last_and_said() -> None:
    made = choice(sampling(), (Model(name="dark", model="a/dark"), *PRICED), prefer="cost")
    assert ["cheap", "middle", "smart", "dark"] == names(made)
    assert made.scores["dark"].usd is None
    assert 0 == made.scores["dark"].total
    assert made.why.endswith("; unknown price: dark")


def test_scores_are_from_0_to_1_and_a_tie_is_the_lists_to_decide() -> None:
    made = choice(sampling(), prefer=Weights(cost=1, speed=1, intelligence=1))
    assert all(0 <= score.total <= 1 for score in made.scores.values())
    same = [Model(name=name, model="a/b", price=Price(input=1, output=1)) for name in ("b", "a", "c")]
    assert ["b", "a", "c"] == names(choice(sampling(), same, prefer="cost"))
    assert ["c", "b"] == names(choice(sampling(), same, prefer="cost", models=["c", "b"]))


def test_a_model_without_a_number_is_not_preferred_for_it() -> None:
    two = (Model(name="unsaid", model="a/b"), Model(name="slow", model="a/c", speed=0))
    assert ["slow", "unsaid"] == names(choice(sampling(), two, prefer="speed"))


def test_without_fallback_only_the_best_is_asked() -> None:
    assert ["cheap"] == names(choice(sampling(), prefer="cost", fallback=False))
    assert ["smart"] == names(choice(sampling(), fallback=False))
    assert ["middle"] == names(choice(preferring("gpt-5"), fallback=False))


@pytest.mark.parametrize(
    ("expected", "request_"),
    [
        (["plain", "seeing", "whole"], sampling()),
        (["seeing", "whole"], sampling([IMAGE])),
        (["seeing", "whole"], sampling([text("a"), IMAGE])),
        (["whole"], sampling([AUDIO])),
        (["whole"], sampling([AUDIO, IMAGE])),
        (["whole"], sampling(tools=TOOLS)),
        (["whole"], sampling([USE])),
        (["whole"], sampling([{"type": "tool_result", "toolUseId": "1", "content": [text("a"), IMAGE]}])),
        (["whole"], sampling([result({"type": "resource", "resource": {"uri": "a:b", "text": "x"}})])),
        (["whole"], sampling([result({"type": "resource_link", "uri": "a:b"})])),
        (
            ["whole"],
            sampling(
                [result({"type": "resource", "resource": {"uri": "a:b", "blob": "aGk=", "mimeType": "image/png"}})]
            ),
        ),
        ([], sampling([result({"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}})])),
        ([], sampling([result(AUDIO)])),
        ([], sampling([{"type": "tool_result", "toolUseId": "1", "content": [{"type": "video"}]}])),
        (["plain", "seeing", "whole"], sampling(tools=[])),
        (["plain", "seeing", "whole"], sampling(tools=TOOLS, toolChoice={"mode": "none"})),
        (["whole"], sampling(tools=TOOLS, toolChoice={"mode": "required"})),
        (["whole"], sampling(tools=TOOLS, toolChoice={})),
    ],
)
def test_only_models_that_take_what_the_request_holds_are_asked(expected: list[str], request_: SamplingRequest) -> None:
    assert expected == names(choice(request_, ABLE))


@pytest.mark.parametrize(
    ("why", "request_", "all_"),
    [
        ("no model accepts audio (plain: text only; seeing: text and images)", sampling([AUDIO]), ABLE[:2]),
        ("no model accepts images or tools (plain: text only)", sampling([IMAGE], tools=TOOLS), ABLE[:1]),
        (
            "no model accepts tools (plain: text only; seeing: text and images)",
            sampling([IMAGE], tools=TOOLS),
            ABLE[:2],
        ),
        (
            "no model fits (a: does not accept audio; b: does not accept images)",
            sampling([IMAGE, AUDIO]),
            (Model(name="a", model="x", accepts=["image"]), Model(name="b", model="x", accepts=["audio"])),
        ),
        ("the policy has no model for the rule", sampling(), ()),
    ],
)
def test_what_no_model_can_take_is_named(why: str, request_: SamplingRequest, all_: Sequence[Model]) -> None:
    made = choice(request_, all_)
    assert () == made.models
    assert why == made.why
    assert {model.name for model in all_} == set(made.unfit)


def test_a_script_is_played_whatever_comes() -> None:
    script = (Model(name="trial", model="scripted", cases="c.yaml"),)
    assert ["trial"] == names(
        choice(sampling([result(AUDIO, {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}})]), script)
    )
    assert (
        "no model accepts content of an unknown type (trial: text, images, audio and tools)"
        == choice(sampling([result({"type": "x"})]), script).why
    )


SMALL: Final = Model(name="small", model="a/small", context=1000)
LARGE: Final = Model(name="large", model="a/large")


def sized(request: SamplingRequest, size: int) -> SamplingRequest:
    return msgspec.structs.replace(request, size=size)


@pytest.mark.parametrize(
    ("expected", "letters", "answer"),
    [
        (["small", "large"], 10, 100),
        (["small", "large"], 7100, 100),
        (["large"], 7300, 100),
        (["large"], 10, 1001),
        (["small", "large"], 10, 999),
    ],
)
def test_a_request_that_surely_is_too_long_for_a_model_is_not_for_it(
    expected: list[str], letters: int, answer: int
) -> None:
    request = sized(sampling("x" * letters, maxTokens=answer), letters + 100)
    assert expected == names(choice(request, (SMALL, LARGE)))


def test_images_are_bytes_but_no_long_text() -> None:
    seeing = msgspec.structs.replace(SMALL, accepts=["image"])
    assert ["small"] == names(
        choice(sized(sampling([{**IMAGE, "data": "a" * 100_000}], maxTokens=10), 100_100), (seeing,))
    )


def test_the_bound_of_the_table_is_for_input_alone() -> None:
    policy = Policy(version=1, models=[LARGE])
    catalogue = {"large": ModelFacts(context=1000, max_output=5000)}
    found = [
        choose(
            compile_policy(policy, {}, catalogue=catalogue),
            AllowRule(name="r"),
            Facts(sized(sampling("x" * size, maxTokens=4000), size)),
        )
        for size in (7000, 9000)
    ]
    assert [["large"], []] == [names(made) for made in found]
    assert "no model fits (large: accepts 1000 tokens, but the request has more than 1124)" == found[1].why


@pytest.mark.parametrize(
    ("why", "made"),
    [
        ("the only model in the policy's list", choice(sampling(), PRICED[:1])),
        ("first in the policy's list", choice(sampling())),
        ("first in the rule's list", choice(sampling(), models=["cheap", "smart"])),
        (
            "the only model in the rule's list that fits (plain: does not accept images)",
            choice(sampling([IMAGE]), ABLE, models=["plain", "seeing"]),
        ),
        ("first in the policy's list that fits (plain: does not accept images)", choice(sampling([IMAGE]), ABLE)),
        ("hint 'gpt' is part of its name", choice(preferring("gpt"))),
        ("hint 'gpt' is part of its name; the best of 2 by score, 1.00", choice(preferring("gpt"), prefer="cost")),
        ("hint 'CHEAP' is its name", choice(preferring("CHEAP"))),
        ("hint 'opus' matches 'op*' in the policy's hints", choice(preferring("opus"), hints={"op*": "cheap"})),
        ("score 1.00 by the rule's prefer (speed 1), ahead of middle with 0.25", choice(sampling(), prefer="speed")),
        (
            "score 0.75 by the server's priorities (speed 0.3, intelligence 0.1), ahead of middle with 0.33",
            choice(preferring("nobody", speedPriority=0.3, intelligencePriority=0.1)),
        ),
    ],
)
def test_why_is_one_sentence_with_the_numbers(why: str, made: ModelChoice) -> None:
    assert why == made.why


def test_a_score_is_not_worked_out_where_nothing_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(*_: object) -> None:
        raise AssertionError("the prompt was counted")

    monkeypatch.setattr(model_choice, "reading", counted)
    assert ["smart", "middle", "cheap"] == names(choice(sampling()))
    assert ["cheap"] == names(choice(sampling(), PRICED[2:], prefer="cost"))
    assert "cheap" == names(choice(sampling(), prefer="speed"))[0]
    assert ["cheap"] == names(
        choice(sampling([AUDIO], maxTokens=9), [msgspec.structs.replace(PRICED[2], accepts=["audio"])], prefer="cost")
    )


MAKERS: Final[dict[str, Callable[[], SamplingRequest]]] = {
    "plain": sampling,
    "hint": lambda: preferring("gpt"),
    "priorities": lambda: preferring(costPriority=0.5, speedPriority=0.5),
}


@given(
    st.lists(st.builds(Model, name=st.sampled_from("abcdef"), model=st.sampled_from(["o/gpt", "a/claude", "x"]),
    speed=st.none() | st.floats(0, 1),
                       price=st.none() | st.builds(Price, input=st.floats(0, 100), output=st.floats(0, 100)),
                       accepts=st.none() | st.just(["image"])), unique_by=lambda model: model.name),
    st.sampled_from(sorted(MAKERS)), st.none() | st.sampled_from(["cost", "speed", "intelligence"]),
)  # fmt: skip
def test_every_model_is_either_chosen_or_said_not_to_fit(all_: list[Model], made: str, prefer: Quality | None) -> None:
    found = choice(MAKERS[made](), all_, prefer=prefer)
    assert sorted(model.name for model in all_) == sorted([*names(found), *found.unfit])
    assert all(0 <= score.total <= 1 for score in found.scores.values())
    assert found.why


def test_hints_beyond_reason_are_not_looked_at() -> None:
    early, late = [*["nobody"] * (model_choice.MAX_HINTS - 1), "cheap"], [*["nobody"] * model_choice.MAX_HINTS, "cheap"]
    assert "cheap" == names(choice(preferring(*early)))[0]
    assert "smart" == names(choice(preferring(*late)))[0]
    long: Hints = {"middle": "middle"}
    assert "middle" == names(choice(preferring("middle" + "x" * (model_choice.MAX_HINT - 6)), hints=long))[0]
    assert "smart" == names(choice(preferring("middle" + "x" * (model_choice.MAX_HINT - 5)), hints=long))[0]


def test_what_a_request_needs_is_told_by_its_content() -> None:
    assert frozenset() == needs(Facts(sampling()))
    assert {"image", "tools", "other"} == needs(
        Facts(sampling([IMAGE, {"type": "tool_result", "toolUseId": "1", "content": [{"type": "x"}]}]))
    )
