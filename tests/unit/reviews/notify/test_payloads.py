from __future__ import annotations

import json
from typing import Any, Final

import pytest
from msgspec.structs import replace

from samplegate.reviews.notify import formats
from samplegate.reviews.notify.formats import ReviewView
from samplegate.reviews.review import Delivery, Review, Verdict
from samplegate.reviews.views import MAX_BYTES
from tests.fakes.reviews import NOW, review, said

KEY: Final = bytes(range(32))
VIEW: Final = ReviewView(now=NOW + 30, url="https://reviews.example.com", clean=None, key=KEY)


def delivery(event: Any = "review.opened") -> Delivery:
    return Delivery(id="msg_1", review="rv_1", reviewer="ops", event=event, created=NOW, due=NOW)


def standard(about: Review, event: Any = "review.opened", view: ReviewView = VIEW) -> Any:
    return json.loads(formats.standard(delivery(event), about, view))


def test_the_body_says_the_event_when_it_was_and_the_review_as_it_is() -> None:
    body = standard(review(show="full"))
    assert ["data", "timestamp", "type"] == sorted(body)
    assert ("review.opened", "2027-01-15T08:00:00Z") == (body["type"], body["timestamp"])
    assert ("docs", 870, "Be brief") == (
        body["data"]["server"],
        body["data"]["seconds_left"],
        body["data"]["request"]["systemPrompt"],
    )


def test_the_callback_s_token_opens_exactly_this_review_until_it_expires() -> None:
    asked = review()
    callback = standard(asked)["data"]["callback"]
    assert f"https://reviews.example.com/v1/reviews/{asked.id}/verdict" == callback["url"]
    assert "2027-01-15T08:15:00Z" == callback["expires"]
    assert formats.callback_fault(KEY, callback["token"], asked.id, asked.digest, NOW) is None
    assert formats.callback_fault(KEY, callback["token"], asked.id, asked.digest, asked.expires) is not None


@pytest.mark.parametrize("event", ["review.decided", "review.expired", "review.withdrawn"])
def test_what_became_of_it_comes_without_a_callback(event: str) -> None:
    over = replace(
        review(), state="approved", verdict=Verdict(word="approve"), decided=NOW + 20, who="ann", door="page"
    )
    body = standard(over, event)
    assert event == body["type"]
    assert ("approved", "ann", "page") == tuple(body["data"][name] for name in ("state", "who", "door"))
    assert "callback" not in body["data"]


def test_without_a_page_there_is_no_callback_and_no_link() -> None:
    data = standard(review(), view=ReviewView(now=NOW, url=None, clean=None, key=KEY))["data"]
    assert "callback" not in data
    assert data["link"] is None


def test_what_the_rule_does_not_show_is_not_in_it() -> None:
    body = standard(review(show="none"))
    assert "request" not in body["data"]
    assert "Classify this" not in json.dumps(body)


def test_redacted_content_has_gone_through_the_given_cleaner() -> None:
    view = ReviewView(now=NOW, url=None, clean=lambda text: text.replace("hunter2", "[secret]"), key=KEY)
    body = standard(
        review(show="redacted", params={"messages": [said("my password is hunter2")], "maxTokens": 1}), view=view
    )
    assert "hunter2" not in json.dumps(body)
    assert "my password is [secret]" in json.dumps(body)


def test_a_huge_request_is_cut_to_a_body_that_receivers_take() -> None:
    raw = formats.standard(
        delivery(), review(show="full", params={"messages": [said("x" * 3_000_000)], "maxTokens": 1}), VIEW
    )
    assert len(raw) < MAX_BYTES + 1_000
    assert json.loads(raw)["data"]["truncated"]


def test_the_text_is_ascii_whatever_was_asked() -> None:
    assert formats.standard(
        delivery(), review(show="full", params={"messages": [said("grüße \u2028 😀")], "maxTokens": 1}), VIEW
    ).isascii()


def test_a_chat_gets_no_callback_since_everybody_in_it_would_have_it() -> None:
    assert b"cb1." not in formats.for_slack(delivery(), review(show="full"), VIEW)
