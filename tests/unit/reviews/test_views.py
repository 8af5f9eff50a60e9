"""Views of a review for others: in full, redacted, or only that it exists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from samplegate.policy.schema import Show
from samplegate.protocol.requests import Call
from samplegate.reviews.review import Edits, Review, Verdict
from samplegate.reviews.views import MAX_BYTES, notes, size, to_view
from tests.fakes.reviews import DIGEST, NOW, address, form, model_answer, review, said, text
from tests.fakes.stored_reviews import LOADING, READY

PICTURE = {"type": "image", "data": "AAAAAAA=", "mimeType": "image/png"}
SHOWN: tuple[Show, ...] = ("full", "redacted", "none")


def tell(of: Review, show: Show = "full", **options: Any) -> dict[str, Any]:
    return to_view(
        of, show=show, now=options.pop("now", NOW + 60), url=options.pop("url", "https://gate.example"), **options
    )


def clean(text: str) -> str:
    return text.replace("hunter2", "[gone]")


def test_who_what_when_and_where_is_told() -> None:
    whole = tell(review(worst_usd=25 * 10**9, answers_until=NOW + 45))
    expected = {
        "id": "rv_" + "a" * 24,
        "digest": DIGEST,
        "state": "pending",
        "reviewer": "ops",
        "kind": "sampling",
        "method": "sampling/createMessage",
        "during": [{"method": "tools/call", "tool": "purge"}],
        "created": "2027-01-15T08:00:00Z",
        "expires": "2027-01-15T08:15:00Z",
        "decided": None,
        "seconds_left": 840,
        "worst_usd": 0.025,
        "link": "https://gate.example/reviews/rv_" + "a" * 24,
        "verdict": None,
        "arguments": {"name": "purge", "arguments": {"ticket": "T-1"}},
        "request": dict(review().params),
        "bounds": {"models": ["smart", "cheap"], "max_tokens": {"smart": 500, "cheap": 100}, "temperature_max": 1.0},
        "truncated": False,
    }
    assert expected == {name: whole[name] for name in expected}
    assert None is tell(review(), url=None)["link"]


def test_of_an_elicitation_the_form_or_the_address_is_told_with_its_host() -> None:
    of = form(a="string")
    assert of.params == tell(of)["request"]
    by_url = tell(address("https://xn--pypl-53dc.com/in?state=xyz"))
    assert {"message": "Please sign in", "url": "https://xn--pypl-53dc.com/in?state=xyz"} == by_url["request"]
    assert ("xn--pypl-53dc.com", "p\u0430yp\u0430l.com") == (
        by_url["address"]["host"],
        by_url["address"]["host_unicode"],
    )
    assert by_url["address"]["warnings"]


def test_of_a_models_answer_the_answer_is_told() -> None:
    assert text("hi") == tell(model_answer(text("hi")))["answer"]["content"]


SECRETIVE = (
    review(
        params={"messages": [said("it is hunter2")], "systemPrompt": "hunter2", "maxTokens": 5},
        arguments={"q": ["hunter2"], "hunter2": 1},
    ),
    review(arguments={"password": "abc", "n": {"api_key": "abc"}}, params={"messages": [said("x")], "maxTokens": 5}),
    form(
        a={"type": "string", "title": "hunter2", "default": "hunter2"},
        password={"type": "string", "default": "abc", "examples": ["abc"]},
    ),
    address("https://hunter2:abc@sign.example/in?token=abc#hunter2"),
    model_answer(text("hunter2")),
    replace(
        review(state="answered", verdict=Verdict(word="answer", result={"content": text("hunter2")}, reason="hunter2")),
        decided=NOW,
    ),
    review(state="approved", verdict=Verdict(word="approve", edits=Edits(system_prompt="hunter2"))),
)


@pytest.mark.parametrize("of", SECRETIVE)
def test_redacted_holds_no_secret(of: Review) -> None:
    redacted = json.dumps(tell(of, "redacted", clean=clean))
    assert "hunter2" not in redacted
    assert "abc" not in redacted.replace(DIGEST, "")


def test_a_secret_that_a_person_filled_in_is_told_nowhere() -> None:
    of = form(password="string", ticket="string")
    result = {"action": "accept", "content": {"password": "tr0ub4dor", "ticket": "T-1"}}
    of = replace(
        of, state="answered", verdict=Verdict(word="answer", result=result), decided=NOW, who="ada", door="page"
    )
    for show in SHOWN:
        assert "tr0ub4dor" not in json.dumps(tell(of, show))
    whole = tell(of)
    assert {"verdict": "answer", "action": "accept", "content": {"password": "[secret]", "ticket": "T-1"}} == whole[
        "verdict"
    ]
    assert ("ada", "page") == (whole["who"], whole["door"])


def test_redacted_has_pictures_as_type_and_size_wherever_they_are() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "toolUseId": "1", "content": [PICTURE]}]}
    of = review(params={"messages": [{"role": "user", "content": PICTURE}, result], "maxTokens": 5})
    messages = tell(of, "redacted")["request"]["messages"]
    expected = {"type": "image", "mimeType": "image/png", "bytes": 5}
    assert [expected, [expected]] == [messages[0]["content"], messages[1]["content"][0]["content"]]
    assert PICTURE == tell(of)["request"]["messages"][0]["content"]


@pytest.mark.parametrize("of", [*SECRETIVE, review(), form(very_own_field="string"), model_answer(text("words"))])
def test_none_tells_no_content_and_no_name_of_a_field(of: Review) -> None:
    bare = tell(of, "none")
    assert not {"arguments", "request", "address", "bounds", "changed", "why", "answer"} & bare.keys()
    assert bare["verdict"] is None or {"verdict"} == bare["verdict"].keys()
    for word in ("hunter2", "very_own_field", "words", "Classify", "Be brief", "Really delete", "sign.example"):
        assert word not in json.dumps(bare)
    assert "ops" == bare["reviewer"]
    assert bare["link"]


HUGE = (
    review(params={"messages": [said("x" * 2_000_000)], "maxTokens": 5}),
    review(params={"messages": [said("\u00e4" * 100)] * 3_000, "maxTokens": 5}),
    review(
        params={
            "messages": [{"role": "user", "content": {**PICTURE, "data": "A" * 3_000_000}}, said("x" * 300_000)],
            "maxTokens": 5,
        }
    ),
    review(arguments={"a" * 1000 + str(n): ["b" * 100] * 100 for n in range(300)}),
    form(None, **{f"field{n}": {"type": "string", "enum": [str(m) * 50 for m in range(100)]} for n in range(100)}),
    review(calls=tuple(Call("tools/call", "t" * 60) for _ in range(100)), arguments=[[[["x"] * 45] * 45] * 45]),
)


@pytest.mark.parametrize("of", HUGE)
@pytest.mark.parametrize("show", ["full", "redacted"])
@pytest.mark.parametrize("most", [MAX_BYTES, 20_000])
def test_what_is_too_large_is_cut_and_says_so(of: Review, show: Show, most: int) -> None:
    found = tell(of, show, most=most)
    assert size(found) <= most
    assert found["truncated"]
    assert "the review page" in found["notes"][-1]
    assert of.digest == found["digest"]
    assert found["link"]


def test_what_is_small_enough_is_whole() -> None:
    assert tell(review()) == tell(review(), most=MAX_BYTES)


def test_a_picture_goes_before_words_are_cut() -> None:
    of = review(
        params={
            "messages": [said("words " * 1000), {"role": "user", "content": {**PICTURE, "data": "A" * 3_000_000}}],
            "maxTokens": 5,
        }
    )
    assert "words " * 1000 == tell(of, most=MAX_BYTES)["request"]["messages"][0]["content"]["text"]


@pytest.mark.parametrize(
    ("of", "now", "note"),
    [
        (address(), NOW, "is not that user"),
        (
            review(answers_until=NOW + 45),
            NOW + 45,
            "a decision now answers the next identical request, once, within 60 min",
        ),
        (
            review(answers_until=NOW + 45, late=86_400.0),
            NOW + 45,
            "a decision now answers the next identical request, once, within 24 h",
        ),
        (
            review(answers_until=NOW + 45, late=0.0),
            NOW + 45,
            (
                "the request has ended: a decision has no effect, unless the same request is made again first, while"
                " this review is pending"
            ),
        ),
        (
            review(state="approved", decided=NOW),
            NOW + 1,
            "the verdict is not used yet: the next same request gets it",
        ),
        (review(state="approved", decided=NOW), NOW + 3600, "never used and has expired"),
    ],
)
def test_what_a_verdict_does_is_noted(of: Review, now: float, note: str) -> None:
    assert any(note in said for said in notes(of, now))


@pytest.mark.parametrize(
    "of",
    [
        review(),
        review(answers_until=NOW + 45),
        review(state="approved", decided=NOW, used=NOW),
        review(state="expired"),
    ],
)
def test_nothing_is_noted_where_nothing_is_odd(of: Review) -> None:
    assert [] == notes(of, NOW + 1)


def test_two_names_that_differ_in_their_secrets_stay_two() -> None:
    found = tell(review(arguments={"hunter2": 1, "[gone]": 2}), "redacted", clean=clean)
    assert [1, 2] == sorted(found["arguments"].values())


def test_what_is_nested_too_deep_is_left_out() -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    assert "nested too deep" in json.dumps(tell(review(arguments=deep), "redacted")["arguments"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["type", "data", "blob"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(
    arguments=JSON,
    answer=st.dictionaries(st.text(), JSON, max_size=3),
    show=st.sampled_from(SHOWN),
    most=st.none() | st.integers(2_000, 5_000),
)
def test_whatever_a_server_sent_it_is_json_and_bounded(
    arguments: Any, answer: dict[str, Any], show: Show, most: int | None
) -> None:
    of = replace(model_answer(text("x")), arguments=arguments, answer=answer)
    found = tell(of, show, clean=clean, most=most)
    assert json.loads(json.dumps(found)) == found
    assert most is None or size(found) <= most


def test_of_a_ui_that_is_a_url_its_query_is_told_with_full_content_only() -> None:
    ui = replace(READY, url="https://a.example:8443/x?token=1")
    told = [tell(replace(form(a="string"), ui=ui), show)["ui"].get("url") for show in SHOWN]
    assert ["https://a.example:8443/x?token=1", "https://a.example:8443/x", None] == told


def test_of_a_servers_ui_its_state_hash_and_size_are_told_and_its_uri_with_the_content() -> None:
    shown = replace(form(a="string"), ui=replace(READY, context={"secret": 1}))
    uri = {"uri": READY.uri}
    told = {"state": "ready", "sha256": READY.sha256, "size": READY.size}
    assert [uri | told, uri | told, told] == [tell(shown, show)["ui"] for show in SHOWN]
    assert {"uri": LOADING.uri, "state": "loading", "sha256": None, "size": 0} == tell(replace(shown, ui=LOADING))["ui"]
    verdict = Verdict(word="answer", result={"action": "decline"}, ui=READY.sha256)
    after = replace(shown, state="answered", verdict=verdict, decided=NOW)
    assert [READY.sha256] * 3 == [tell(after, show)["verdict"]["ui"] for show in SHOWN]
    assert "ui" not in tell(replace(after, verdict=replace(verdict, ui="")))["verdict"]
