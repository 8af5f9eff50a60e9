"""A webhook's own message: the bodies of the recipe as the services document them, and texts that are hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from samplegate.policy.file.load import load
from samplegate.policy.message_template import FIELDS, faults, shortened, size
from samplegate.policy.schema import Webhook
from samplegate.reviews.notify.endpoint import SecretSources, WebhookNotReady
from samplegate.reviews.notify.formats import ReviewView
from samplegate.reviews.notify.webhook import WebhookMessage, message
from samplegate.reviews.review import Delivery, Review
from tests.fakes.reviews import NOW, review
from tests.paths import ROOT

RECIPE: Final = ROOT / "policies" / "recipes" / "chat-notifications.yaml"
VIEW: Final = ReviewView(now=NOW + 30, url="https://reviews.example.com", clean=None, key=bytes(32))
ID: Final = review().id
LINK: Final = f"https://reviews.example.com/reviews/{ID}"


def delivery(event: Any = "review.opened") -> Delivery:
    return Delivery(id="msg_1", review="rv_1", reviewer="ops", event=event, created=NOW, due=NOW)


def sources(tmp_path: Path, **files: str) -> SecretSources:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return SecretSources(tmp_path, {})


def webhook(name: str) -> Webhook:
    """The webhook of a reviewer in the recipe, with its secrets in files ``url``, ``secret`` and ``authorization``."""
    loaded = load(RECIPE.read_text("utf-8"), file=str(RECIPE), environment={})
    found = loaded.policy.reviewers[name].webhook
    assert found is not None
    files = {
        key: key.removesuffix("_file")
        for key in ("url_file", "secret_file", "authorization_file")
        if getattr(found, key) is not None
    }
    return replace(found, **files)


def sent(tmp_path: Path, name: str, about: Review | None = None, event: str = "review.opened") -> WebhookMessage | None:
    files = {"url": "https://hook.example.com/x", "secret": "R0UT1NG", "authorization": "Bearer tk_1"}
    found = message(
        delivery(event),
        review() if about is None else about,
        webhook(name),
        view=VIEW,
        sources=sources(tmp_path, **files),
    )
    assert not isinstance(found, WebhookNotReady), found
    return found


def asks(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 5}


def body(tmp_path: Path, name: str, about: Review | None = None) -> Any:
    found = sent(tmp_path, name, about)
    assert found is not None
    return json.loads(found.body)


def test_teams_gets_an_adaptive_card_with_a_button(tmp_path: Path) -> None:
    """learn.microsoft.com: the post of a workflow is a message with a card as attachment."""
    made = body(tmp_path, "teams")
    assert "message" == made["type"]
    (attachment,) = made["attachments"]
    assert "application/vnd.microsoft.card.adaptive" == attachment["contentType"]
    card = attachment["content"]
    assert ("AdaptiveCard", "1.4") == (card["type"], card["version"])
    assert [{"type": "Action.OpenUrl", "title": "Open review", "url": LINK}] == card["actions"]
    assert "Sampling request from docs" == card["body"][0]["text"]


def test_discord_gets_content_that_mentions_nobody(tmp_path: Path) -> None:
    """discord.com/developers: content has at most 2,000 characters."""
    params = {
        "messages": [{"role": "user", "content": {"type": "text", "text": "@everyone " + "x" * 9_000}}],
        "maxTokens": 5,
    }
    made = body(tmp_path, "discord", replace(review(show="full"), params=params))
    assert {"parse": []} == made["allowed_mentions"]
    assert len(made["content"]) <= 2_000
    assert made["content"].endswith(LINK)


def test_ntfy_gets_its_topic_and_the_token_in_a_header(tmp_path: Path) -> None:
    """docs.ntfy.sh/publish: publishing as JSON."""
    found = sent(tmp_path, "ntfy")
    assert found is not None
    made = json.loads(found.body)
    assert ("reviews", LINK, 4) == (made["topic"], made["click"], made["priority"])
    assert "Bearer tk_1" == found.headers["Authorization"]


def test_pagerduty_is_triggered_and_resolved_with_its_key_in_the_message(tmp_path: Path) -> None:
    """developer.pagerduty.com: Events API v2."""
    made = body(tmp_path, "pagerduty")
    assert ("R0UT1NG", "trigger", ID) == (made["routing_key"], made["event_action"], made["dedup_key"])
    assert {"summary", "source", "severity", "custom_details"} == made["payload"].keys()
    assert [{"href": LINK, "text": "Open review"}] == made["links"]
    over = sent(tmp_path, "pagerduty", replace(review(), state="approved"), "review.decided")
    assert over is not None
    assert {"routing_key": "R0UT1NG", "event_action": "resolve", "dedup_key": ID} == json.loads(over.body)


def test_without_a_page_there_is_no_button_and_no_link(tmp_path: Path) -> None:
    no_page = replace(VIEW, url=None)
    button = {"type": "Action.OpenUrl", "title": "Open review", "url": "{link}"}
    assert {"actions": [], "links": ["x"]} == own(tmp_path, {"actions": [button], "links": ["{link}", "x"]}, no_page)


def test_without_a_body_for_the_end_nothing_is_sent(tmp_path: Path) -> None:
    assert None is sent(tmp_path, "teams", replace(review(), state="approved"), "review.decided")


HOSTILE: Final = '"}],"x":{"y":"{secret}","\\u202e{link}\n@here <!channel> https://evil.example/x {{'


@pytest.mark.parametrize("name", ["teams", "discord", "ntfy", "pagerduty"])
def test_a_servers_text_changes_no_structure_and_fills_no_field(name: str, tmp_path: Path) -> None:
    plain = body(tmp_path, name)
    made = body(tmp_path, name, replace(review(show="full"), params=asks(HOSTILE), server=HOSTILE[:60]))
    assert shape(plain) == shape(made)
    text = json.dumps(made, ensure_ascii=False)
    assert "https://evil.example" not in text
    assert "\u202e" not in text
    if name != "pagerduty":
        assert "R0UT1NG" not in text


def shape(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: shape(value) for name, value in node.items()}
    return [shape(each) for each in node] if isinstance(node, list) else type(node).__name__


def own(tmp_path: Path, made: Any, view: ReviewView = VIEW, **more: Any) -> Any:
    hook = Webhook(url="https://a.example/x", format="json", body=made, **more)
    found = message(delivery(), review(), hook, view=view, sources=SecretSources(tmp_path, {}))
    return json.loads(found.body) if isinstance(found, WebhookMessage) else found


def test_every_field_has_a_value_or_is_left_out(tmp_path: Path) -> None:
    made = own(tmp_path, {name: f"{{{name}}}" for name in FIELDS})
    assert {"secret", "who"} == FIELDS.keys() - made.keys()
    no_page = replace(VIEW, url=None)
    made = own(tmp_path, {"a": "no link: {link}", "b": "{link}", "c": [None]}, no_page)
    assert {"a": "no link: ", "c": []} == made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{x}}", "{x}"),
        ("{id}!", f"{ID}!"),
        ("{server:2}", "d…"),
        ("a {{ {id} }} b", "a { " + ID + " } b"),
        ("", ""),
        ("{reviewer}", "ops"),
    ],
)
def test_texts(text: str, expected: str, tmp_path: Path) -> None:
    assert {"a": expected} == own(tmp_path, {"a": text})


def test_a_missing_secret_is_named_and_nothing_is_sent(tmp_path: Path) -> None:
    found = own(tmp_path, {"a": "{secret}"}, secret_file="nothing")
    assert isinstance(found, WebhookNotReady)
    assert "secret_file nothing" in found.what


def test_a_header_of_two_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer a\nX-Other: b")
    found = own(tmp_path, {"a": "b"}, authorization_file="token")
    assert isinstance(found, WebhookNotReady)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"a": "{sumary}"}, "there is no field {sumary}; did you mean 'summary'?"),
        ({"a": "{xyzzy}"}, "there is no field {xyzzy}; use one of event, title"),
        ({"a": "{link:20}"}, "the field {link} is never cut; remove the number"),
        ({"a": {"link": None}}, "this is a mapping, not a field; quote it: '{link}'"),
        ({"a": ["x", "{"]}, "a single {"),
        ({"a": "}"}, "a single }"),
        ({"a": "{summary:0}"}, "is cut to 1 to"),
        ({"a": "{summary:99999}"}, "is cut to 1 to"),
        ({"a": "{}"}, "there is no field {}"),
    ],
)
def test_faults_of_a_template(made: Any, expected: str) -> None:
    assert [expected in why for _, why in faults(made)] == [True]


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("a\U0001f600b", 4, "a\U0001f600b"),
        ("a\U0001f600bc", 4, "a\U0001f600…"),
        ("\U0001f600\U0001f600", 3, "\U0001f600…"),
        ("\U0001f600", 1, "…"),
    ],
)
def test_emoji_count_twice(text: str, most: int, expected: str) -> None:
    assert expected == shortened(text, most)


def test_emoji_do_not_exceed_the_limits_of_services(tmp_path: Path) -> None:
    about = replace(review(show="full"), params=asks("\U0001f600" * 9_000))
    assert len(body(tmp_path, "discord", about)["content"].encode("utf-16-le")) // 2 <= 2_000
    assert len(body(tmp_path, "ntfy", about)["message"].encode()) <= 4_096


def test_the_size_of_a_message_is_known_before(tmp_path: Path) -> None:
    made = {"a": ["{summary:2000} {title:9}", 1, None, True], "b" * 50: "{link}{server}"}
    about = replace(review(show="full"), params=asks("x" * 9_000), server="s" * 5_000)
    hook = Webhook(url="https://a.example/x", format="json", body=made)
    found = message(delivery(), about, hook, view=VIEW, sources=SecretSources(tmp_path, {}))
    assert isinstance(found, WebhookMessage)
    assert 3_000 < len(found.body.replace(b"\\u2026", b".")) <= size(made) < 6_000


def test_no_text_of_a_server_mentions_anyone_or_hides_a_link(tmp_path: Path) -> None:
    hostile = "@everyone <@123> <!channel> <users/all> [click](evil.example) ann@example.com"
    content = body(tmp_path, "discord", replace(review(show="full"), params=asks(hostile)))["content"]
    assert not [bad for bad in ("@everyone", "<@", "<!", "<users/", "](") if bad in content]
    assert "ann@example.com" in content


def test_a_template_is_bounded_in_depth() -> None:
    deep: Any = "x"
    for _ in range(30):
        deep = [deep]
    assert ["the body has more than 20 levels"] == [why for _, why in faults(deep)]
