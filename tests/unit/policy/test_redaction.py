"""Redaction: secrets are found in every text that a model reads or writes and nowhere else, and nothing is changed in
place."""

from __future__ import annotations

import json
import string
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.redaction import MAX_DEPTH, Redactor, clean_blocks, clean_params, redactor, size_of
from samplegate.policy.schema import AllowRule, DenyRule, Policy, Rule, Secrets, With

PATTERNS: Final = {"ticket": "T-[0-9]{4}", "pair": "(?i)user=(?P<secret>[a-z]+)", "block": "(?s)<<.*?>>"}
BLOT: Final = "[secret:ticket]"


def rule(secrets: Secrets | None) -> Rule:
    return AllowRule(name="r", with_=With(secrets=secrets))


def policy(*rules: Rule, secrets: Mapping[str, str] = PATTERNS) -> Policy:
    return Policy(version=1, rules=list(rules), secrets=dict(secrets))


def built(secrets: Mapping[str, str] = PATTERNS, detectors: Mapping[str, str] | None = None) -> Redactor:
    made = redactor(policy(rule(Secrets()), secrets=secrets), detectors or {})
    assert made is not None
    return made


REDACTOR: Final = built()


def params(*content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": each} for each in content], "maxTokens": 5, **more}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def redacted(value: str) -> str:
    """A text after redaction."""
    cleaned: str = clean_params(REDACTOR, params(text(value)))[0]["messages"][0]["content"]["text"]
    return cleaned


# --- when there is one
# -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secrets", [None, Secrets(prompt="keep", answer="keep")])
def test_without_a_rule_that_looks_for_secrets_there_is_no_redactor(secrets: Secrets | None) -> None:
    assert redactor(policy(rule(secrets), DenyRule(name="d")), {"x": "y"}) is None
    assert redactor(policy(), {"x": "y"}) is None


@pytest.mark.parametrize("secrets", [Secrets(), Secrets(prompt="stop", answer="keep"), Secrets(prompt="keep")])
def test_one_rule_that_looks_somewhere_is_enough(secrets: Secrets) -> None:
    assert redactor(policy(rule(None), rule(secrets)), {}) is not None


def test_the_policys_pattern_stands_in_place_of_the_known_one_of_its_name() -> None:
    _, found = clean_params(
        built({"ticket": "T-[0-9]"}, {"ticket": "K-[0-9]", "other": "O-[0-9]"}), params(text("T-1 K-1 O-1"))
    )
    assert {"ticket": 1, "other": 1} == found


def test_a_pattern_that_is_not_re2_is_not_passed_over() -> None:
    with pytest.raises(re2.error):
        built({}, {"ahead": "(?=x)"})


# --- where it looks
# ----------------------------------------------------------------------------------------------------------------------

RESOURCE: Final = {"type": "resource", "resource": {"uri": "file:///a", "text": "T-1234", "mimeType": "text/plain"}}
RESULT: Final = {"type": "tool_result", "toolUseId": "1", "content": [text("T-1234")]}
PLACES: Final[dict[str, dict[str, Any]]] = {
    "a text": params(text("T-1234")),
    "one of several texts": params([text("a"), text("T-1234")]),
    "the system prompt": params(systemPrompt="T-1234"),
    "a stop sequence": params(stopSequences=["T-1234"]),
    "a tool's result": params([RESULT]),
    "a resource in it": params([RESULT | {"content": [RESOURCE]}]),
    "the address of a resource": params(
        [RESULT | {"content": [{"type": "resource", "resource": {"uri": "x://T-1234", "blob": ""}}]}]
    ),
    "a link to one": params([RESULT | {"content": [{"type": "resource_link", "uri": "x://T-1234", "name": "a"}]}]),
    "structured content": params([RESULT | {"content": [], "structuredContent": {"a": [{"b": "T-1234"}]}}]),
    "a tool's input": params([{"type": "tool_use", "id": "1", "name": "n", "input": {"a": {"b": ["T-1234"]}}}]),
    "what looks like an image in it": params(
        [{"type": "tool_use", "id": "1", "name": "n", "input": {"type": "image", "data": "T-1234"}}]
    ),
    "a name in it": params([{"type": "tool_use", "id": "1", "name": "n", "input": {"T-1234": 1}}]),
    "a tool's description": params(tools=[{"name": "n", "description": "T-1234", "inputSchema": {}}]),
    "a tool's schema": params(tools=[{"name": "n", "inputSchema": {"properties": {"a": {"enum": ["T-1234"]}}}}]),
    "metadata": params(metadata={"a": "T-1234"}),
    "a block of no known type": params({"type": "video", "data": "T-1234"}),
    "an image's annotations": params({"type": "image", "data": "", "mimeType": "image/png", "_meta": {"a": "T-1234"}}),
    "data that is no text": params({"type": "image", "data": ["T-1234"], "mimeType": "image/png"}),
}


@pytest.mark.parametrize("asked", PLACES.values(), ids=list(PLACES))
def test_a_secret_is_redacted_in(asked: dict[str, Any]) -> None:
    before = json.dumps(asked)
    cleaned, found = clean_params(REDACTOR, asked)
    assert {"ticket": 1} == found
    assert json.loads(before.replace("T-1234", BLOT)) == cleaned
    assert before == json.dumps(asked), "what was handed in is not changed"


MEDIA: Final[dict[str, dict[str, Any]]] = {
    "an image": params({"type": "image", "data": "T-1234", "mimeType": "image/png"}),
    "a sound": params([{"type": "audio", "data": "T-1234", "mimeType": "audio/wav"}]),
    "an image in a tool's result": params(
        [RESULT | {"content": [{"type": "image", "data": "T-1234", "mimeType": "image/png"}]}]
    ),
    "a binary resource": params(
        [RESULT | {"content": [{"type": "resource", "resource": {"uri": "x", "blob": "T-1234"}}]}]
    ),
}


@pytest.mark.parametrize("asked", MEDIA.values(), ids=list(MEDIA))
def test_nobody_looks_into(asked: dict[str, Any]) -> None:
    cleaned, found = clean_params(REDACTOR, asked)
    assert asked is cleaned
    assert {} == found


def test_the_words_of_the_protocol_are_no_secret_whatever_the_patterns() -> None:
    everything = built({"any": ".+"})
    asked = params(
        [text("a"), {"type": "tool_use", "id": "1", "name": "n", "input": {"text": "b"}}],
        modelPreferences={"hints": [{"name": "m"}]},
    )
    cleaned, _ = clean_params(everything, asked)
    blot = "[secret:any]"
    use = {"type": "tool_use", "id": blot, "name": blot, "input": {blot: blot}}
    assert params([text(blot), use], modelPreferences={"hints": [{"name": "m"}]}) == cleaned


def test_what_holds_no_secret_stays_the_object_it_was() -> None:
    asked = params(text("clean"), text("T-1234"), metadata={"a": "b"})
    cleaned, _ = clean_params(REDACTOR, asked)
    assert asked["messages"][0] is cleaned["messages"][0]
    assert asked["metadata"] is cleaned["metadata"]
    assert asked["messages"][1] is not cleaned["messages"][1]


def test_every_secret_is_counted_by_the_name_of_its_pattern() -> None:
    asked = params(text("T-1234 T-1234 user=me"), systemPrompt="T-9999")
    assert {"ticket": 3, "pair": 1} == clean_params(REDACTOR, asked)[1]


def test_an_answer_is_cleaned_in_texts_and_in_the_input_of_tools() -> None:
    image = {"type": "image", "data": "T-1234", "mimeType": "image/png"}
    blocks = (text("a T-1234"), {"type": "tool_use", "id": "1", "name": "n", "input": {"a": "T-1234", "b": 1}}, image)
    cleaned, found = clean_blocks(REDACTOR, blocks)
    assert (
        text(f"a {BLOT}"),
        {"type": "tool_use", "id": "1", "name": "n", "input": {"a": BLOT, "b": 1}},
        image,
    ) == cleaned
    assert {"ticket": 2} == found
    assert "T-1234" in blocks[0]["text"]


def test_a_clean_answer_stays_the_object_it_was() -> None:
    blocks = (text("nothing"),)
    assert blocks is clean_blocks(REDACTOR, blocks)[0]


def test_names_that_differ_in_their_secrets_only_stay_apart() -> None:
    asked = params([{"type": "tool_use", "id": "1", "name": "n", "input": {"T-1111": 1, "T-2222": 2, BLOT: 3, "x": 4}}])
    cleaned, found = clean_params(REDACTOR, asked)
    held = cleaned["messages"][0]["content"][0]["input"]
    assert [1, 2, 3, 4] == sorted(held.values())
    assert 3 == held[BLOT]
    assert {"ticket": 2} == found


# --- what it does to a text
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("T-1234", BLOT),
        ("aT-12345", f"a{BLOT}5"),
        ("T-1234T-5678", BLOT + BLOT),
        ("é T-1234 é😀", f"é {BLOT} é😀"),
        ("\ud83d T-1234", f"? {BLOT}"),
        ("User=me, T-1", "User=[secret:pair], T-1"),
        ("user=", "user="),
        ("<<T-1234>> T-1234", f"[secret:block] {BLOT}"),
        ("<<\nuser=me>>", "[secret:block]"),
        ("user=<<a>>", "user=[secret:block]"),
        ("T-12<<34>>", "T-12[secret:block]"),
        ("", ""),
    ],
)
def test_a_text_becomes(before: str, after: str) -> None:
    assert after == redacted(before)


def test_a_text_without_a_secret_keeps_even_half_a_character() -> None:
    assert "\ud83d" == redacted("\ud83d")


def test_finds_that_overlap_are_blotted_out_as_one() -> None:
    both = built({"front": "ab+c", "back": "b+cd"})
    cleaned, found = clean_params(both, params(text("xabbcdx")))
    assert "x[secret:front]x" == cleaned["messages"][0]["content"]["text"]
    assert {"front": 1} == found


@given(st.text(string.printable + "é😀\ud800", max_size=200), st.integers(0, 200))
def test_no_secret_is_left_and_the_rest_is_what_it_was(around: str, at: int) -> None:
    before = around[:at] + "T-4711" + around[at:]
    after = redacted(before)
    assert "T-4711" not in after
    if "\ud800" not in around and "<<" not in around and "=" not in around and "T-" not in around:
        assert before.replace("T-4711", BLOT) == after


# --- hostile
# ----------------------------------------------------------------------------------------------------------------------

BIG: Final = 1024 * 1024  # bytes: enough that quadratic work would exceed any timeout


@pytest.mark.parametrize("unit", ["T-", "T-1234", "<<", "user=a", "<<T-1234 ", "aaaaaaaT", "\ud800", "é"])
def test_a_mebibyte_of_anything_takes_bounded_time(unit: str) -> None:
    value = (unit * (BIG // len(unit) + 1))[:BIG]
    after = redacted(value)
    assert {} == clean_params(REDACTOR, params(text(after)))[1]


def test_a_pattern_that_looks_ahead_to_the_end_takes_bounded_time_and_too_much_rather_than_too_little() -> None:
    greedy = built({"greedy": "a(?s:.*b)?", "lazy": "c(?s:.*?d)?"})
    cleaned, found = clean_params(greedy, params(text("a" * BIG), text("c" * BIG)))
    for message in cleaned["messages"]:
        assert {*message["content"]["text"]} <= {*"[secret:greedy][secret:lazy]"}
        assert message["content"]["text"].endswith("]")
    assert {"greedy", "lazy"} == found.keys()


def test_many_short_texts_and_names_take_bounded_time() -> None:
    held = {f"T-{number:04} {number}": "T-1234" for number in range(2_500)}
    cleaned, found = clean_params(REDACTOR, params([{"type": "tool_use", "id": "1", "name": "n", "input": held}]))
    assert {"ticket": 5_000} == found
    assert 2_500 == len(cleaned["messages"][0]["content"][0]["input"])


def test_many_names_that_are_the_same_without_their_secrets_take_bounded_time() -> None:
    tokens = built({"token": "[a-z]+-[0-9]+"})
    held = {f"tok-{number}": number for number in range(10_000)}
    before = time.thread_time()
    cleaned, _ = clean_params(tokens, params([{"type": "tool_use", "id": "1", "name": "n", "input": held}]))
    assert time.thread_time() - before < 2  # takes 0.15 s; searching names from the start takes over 5 s
    assert list(range(10_000)) == sorted(cleaned["messages"][0]["content"][0]["input"].values())


@pytest.mark.parametrize("kind", ["list", "mapping", "result"])
def test_what_is_nested_too_deep_to_be_read_is_not_passed_on(kind: str) -> None:
    deep: Any = "T-1234"
    for _ in range(10 * MAX_DEPTH):
        match kind:
            case "list":
                deep = [deep]
            case "mapping":
                deep = {"a": deep}
            case _:
                deep = {"type": "tool_result", "content": deep}
    cleaned, found = clean_params(REDACTOR, params(deep))
    assert {"unread": 1} == found
    assert "T-1234" not in str(cleaned)


def test_a_hundred_patterns_of_ones_own_are_all_looked_for() -> None:
    many = built({f"own-{number}": f"(?i)own{number}x[a-z]{{3}}" for number in range(100)})
    asked = params(text(" ".join(f"OWN{number}Xabc" for number in range(100))))
    assert {f"own-{number}": 1 for number in range(100)} == clean_params(many, asked)[1]


# --- the answer's size
# -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "size"),
    [
        ((), 0),
        ((text("abc"),), len('{"type":"text","text":"abc"}')),
        ((text("é😀"),), len('{"type":"text","text":""}') + 6),
        ((text("a"), text("b")), 2 * len('{"type":"text","text":"a"}')),
        ((text('"\n'),), len('{"type":"text","text":""}') + 4),
        ((text("\ud800"),), len('{"type":"text","text":""}') + 3),
    ],
)
def test_the_size_of_an_answer_is_that_of_its_blocks_as_json(blocks: tuple[dict[str, Any], ...], size: int) -> None:
    assert size == size_of(blocks)


def test_the_size_is_what_the_gate_would_write() -> None:
    blocks = (text("hello é"), {"type": "tool_use", "id": "1", "name": "n", "input": {"a": [1, 2.5, None, True]}})
    assert sum(len(msgspec.json.encode(block)) for block in blocks) == size_of(blocks)
