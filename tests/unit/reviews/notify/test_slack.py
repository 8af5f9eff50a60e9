"""Slack messages. The expected bodies are in ``slack/``, one file per case, as Slack's Block Kit Builder accepts
them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from samplegate.policy.ledger import SCALE
from samplegate.protocol.requests import Call
from samplegate.reviews.notify.formats import message
from samplegate.reviews.review import Review, Verdict
from samplegate.reviews.views import to_view
from tests.fakes.reviews import NOW, address, form, model_answer, review, said, text

GOLDEN: Final = Path(__file__).parent / "slack"
URL: Final = "https://reviews.example.com"
HOSTILE: Final = (
    "<!channel> <@U1> <https://evil.example|click> *bold* ```\nout``` & https://evil.example/x \u202egnp.exe\x07"
)

CASES: Final[dict[str, tuple[str, Review]]] = {
    "sampling": ("review.opened", review(show="full", worst_usd=SCALE["usd"] // 80, answers_until=NOW + 45)),
    "sampling_without_content": ("review.opened", review(show="none")),
    "form": (
        "review.opened",
        form(
            ["confirm"],
            confirm={"type": "boolean", "title": "Sure"},
            why={"type": "string", "description": "For the log"},
        ),
    ),
    "url": ("review.opened", address("https://xn--pypal-4ve.example/in?state=xyz")),
    "answer": (
        "review.opened",
        replace(
            model_answer(text("Here you are"), {"type": "image", "mimeType": "image/png", "data": "AAAA"}), show="full"
        ),
    ),
    "hostile": (
        "review.opened",
        review(
            show="full",
            server="docs <!here>",
            calls=(Call("tools/call", HOSTILE),),
            params={"messages": [said(HOSTILE)], "systemPrompt": HOSTILE},
        ),
    ),
    "approved": (
        "review.decided",
        replace(review(), state="approved", verdict=Verdict(word="approve"), decided=NOW, who="ann <@U1>", door="page"),
    ),
    "declined": (
        "review.decided",
        replace(
            form(confirm={"type": "boolean"}),
            state="answered",
            verdict=Verdict(word="answer", result={"action": "decline"}),
            decided=NOW,
            who="ann",
            door="cli",
        ),
    ),
    "expired": ("review.expired", replace(review(), state="expired", decided=NOW, door="gate")),
    "withdrawn": ("review.withdrawn", replace(review(), state="withdrawn", decided=NOW, door="gate")),
}


def body(event: str, about: Review, url: str | None = URL) -> dict[str, Any]:
    return message(event, to_view(about, show=about.show, now=NOW, url=url))


@pytest.mark.parametrize("name", CASES)
def test_the_body_is_the_golden_one(name: str) -> None:
    assert json.loads((GOLDEN / f"{name}.json").read_text("utf-8")) == body(*CASES[name])


def test_every_golden_body_has_its_case() -> None:
    assert set(CASES) == {path.stem for path in GOLDEN.glob("*.json")}


def texts(found: Any) -> Iterator[dict[str, Any]]:
    """Every text object in a message."""
    if isinstance(found, dict):
        if found.get("type") in ("plain_text", "mrkdwn"):
            yield found
        for value in found.values():
            yield from texts(value)
    elif isinstance(found, list):
        for value in found:
            yield from texts(value)


def urls(found: Any) -> list[str]:
    return [element["url"] for block in found["blocks"] for element in block.get("elements", []) if "url" in element]


def is_within_slack_s_limits(found: Any) -> bool:
    most = {"header": 150, "section": 3000, "context": 2000}
    assert len(found["blocks"]) <= 50
    assert len(found["text"]) <= 3000
    for block in found["blocks"]:
        for one in texts(block):
            assert 1 <= len(one["text"]) <= most.get(block["type"], 75)
        assert len(block.get("fields", [])) <= 10
        assert len(block.get("elements", [])) <= 25
    return all(len(url) <= 3000 for url in urls(found))


@pytest.mark.parametrize("name", CASES)
def test_the_only_link_is_that_of_the_button(name: str) -> None:
    found = body(*CASES[name])
    assert [f"{URL}/reviews/{CASES[name][1].id}"] == urls(found)
    assert all("://" not in one["text"] for one in texts(found["blocks"]))
    assert "://" not in found["text"]


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_unfurled_and_no_text_is_made_a_link(name: str) -> None:
    found = body(*CASES[name])
    assert (False, False, False) == (found["unfurl_links"], found["unfurl_media"], found["mrkdwn"])
    assert all(one["verbatim"] is True for one in texts(found["blocks"]) if one["type"] == "mrkdwn")
    assert all(one["emoji"] is False for one in texts(found["blocks"]) if one["type"] == "plain_text")


@pytest.mark.parametrize("show", ["full", "redacted", "none"])
@pytest.mark.parametrize("words", ["sign in at {}", "{}", "<{}|here>", "`{}`"])
def test_the_address_of_a_url_elicitation_is_never_in_chat(show: Any, words: str) -> None:
    asked = address("https://sign.example.com/in?state=xyz")
    told_by_server = {**asked.params, "message": words.format(asked.params["url"])}
    found = json.dumps(
        body("review.opened", replace(asked, show=show, params=told_by_server, arguments={"go": asked.params["url"]}))
    )
    assert "/in" not in found.replace("/v1", "")
    assert "state=xyz" not in found
    assert show == "none" or "sign.example.com" in found


def test_markup_of_a_server_is_text() -> None:
    shown = [one["text"] for one in texts(body(*CASES["hostile"]))]
    assert any("channel" in text for text in shown)
    ours = [text for text in shown if "<" in text.replace("<!date^", "")]
    assert [] == ours
    assert all(text.count("```") in (0, 2) for text in shown)


FIELDS: Final[dict[str, Any]] = {
    "color": {
        "type": "string",
        "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}],
        "default": "r",
    },
    "port": {"type": "integer", "title": "Port", "minimum": 1, "maximum": 9},
    "password": {"type": "string", "default": "hunter2"},
}


def form_text(about: Review) -> Any:
    return next(
        one["text"]
        for one in texts(body("review.opened", replace(about, show="full")))
        if one["text"].startswith("*Fields*")
    )


def test_a_field_is_told_with_what_it_takes() -> None:
    said = form_text(form(["port"], **FIELDS))
    for line in (
        "color (single choice)\n    default: r\n    - r: Red\n    - g: Green\n",
        "port (integer, required): Port\n    constraints: at least 1, at most 9\n",
    ):
        assert line in said
    assert "hunter2" not in said


def test_a_form_that_is_too_long_with_it_is_told_without() -> None:
    said = form_text(
        form([], **{f"f{n}": {"type": "string", "enum": [f"choice {m} of it" for m in range(30)]} for n in range(20)})
    )
    assert all(f"f{n} (single choice)" in said for n in range(20))
    assert not re.search(r"choice [0-9]", said)
    assert "(see the review page for constraints and choices)" in said


@pytest.mark.parametrize(
    ("until", "says"),
    [
        (None, ["Request and review expire: ", 900]),
        (NOW + 900, ["Request and review expire: ", 900]),
        (NOW + 45, ["Request expires: ", 45, ". Review expires: ", 900]),
    ],
)
def test_both_ends_are_told(until: float | None, says: list[str | int]) -> None:
    found = [
        one["text"] for one in texts(body("review.opened", review(answers_until=until))) if "<!date^" in one["text"]
    ]
    parts = [
        part if isinstance(part, str) else f"<!date^{int(NOW) + part}^{{date_short_pretty}} {{time}}|" for part in says
    ]
    assert "".join(parts) == "".join(re.sub(r"\|[^>]*>", "|", text) for text in found)


def test_without_a_page_there_is_no_button() -> None:
    assert [] == urls(body("review.opened", review(), url=None))


def test_no_content_is_told_where_the_rule_shows_none() -> None:
    found = json.dumps(body("review.opened", review(show="none")))
    assert "Classify" not in found
    assert "T-1" not in found


_anything: Final = st.text(max_size=40) | st.sampled_from(
    [HOSTILE, "<" * 5_000, "&" * 3_000, "`" * 4_000, "x\n" * 5_000, "\u202e" * 100]
)


@given(_anything, _anything, st.lists(_anything, max_size=60), _anything)
def test_whatever_a_server_writes_keeps_to_slack_s_limits(
    server: str, tool: str, messages: list[str], system: str
) -> None:
    params = {"messages": [said(one) for one in messages], "systemPrompt": system, "maxTokens": 5}
    found = body(
        "review.opened",
        review(
            show="full", server=server or "s", calls=(Call("tools/call", tool),) * 30, params=params, arguments=messages
        ),
    )
    assert is_within_slack_s_limits(found)
    assert all("://" not in one["text"] for one in texts(found))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | _anything,
        lambda inner: st.lists(inner) | st.dictionaries(_anything, inner),
        max_leaves=15,
    )
)
def test_whatever_a_form_or_an_answer_holds_is_shown_within_the_limits(value: Any) -> None:
    for about in (
        replace(form(), show="full", params={"message": value, "requestedSchema": value}),
        replace(
            form(), show="full", params={"message": "m", "requestedSchema": {"properties": value, "required": value}}
        ),
        replace(form(), show="full", params={"message": "m", "requestedSchema": {"properties": {"a": value}}}),
        review(show="full", params={"messages": value, "systemPrompt": value, "temperature": value}),
        review(show="full", params={"messages": [value, {"role": value, "content": value}]}),
        replace(model_answer(text("")), show="full", answer={"content": value}),
    ):
        assert is_within_slack_s_limits(body("review.opened", about))
