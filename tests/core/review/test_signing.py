from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from samplegate.core.review.formats import TOLERANCE, headers, key_of, secret_fault

NOW: Final = 1_800_000_000.0
KEY: Final = bytes(range(32))
OLD: Final = b"the key before"
BODY: Final = b'{"type":"review.opened"}'


def signed(*keys: bytes, at: float = NOW, **changed: str) -> dict[str, str]:
    return {**headers(keys or (KEY,), id="msg_1", at=at, body=BODY), **changed}


@given(st.binary(min_size=1, max_size=64), st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=200))
def test_the_signature_is_the_one_of_the_reference_library(key: bytes, text: str) -> None:
    ours = headers([key], id="msg_7", at=NOW, body=text.encode())
    assert Webhook(key).sign("msg_7", datetime.fromtimestamp(NOW, UTC), text) == ours["webhook-signature"]


def test_the_reference_library_takes_a_message_of_today_with_either_key() -> None:
    now = datetime.now(UTC).timestamp()
    sent = headers([KEY, OLD], id="msg_1", at=now, body=BODY)
    for key in (KEY, OLD):
        assert {"type": "review.opened"} == Webhook(key).verify(BODY, sent)


def test_the_specification_s_own_example_is_signed_as_it_says() -> None:
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert key is not None
    sent = headers([key], id="msg_p5jXN8AQM9LWM0D4loKWxJek", at=1_614_265_330, body=b'{"test": 2432232314}')
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == sent["webhook-signature"]


@pytest.mark.parametrize("now", [NOW, NOW - TOLERANCE, NOW + TOLERANCE])
def test_a_message_holds_within_five_minutes(now: float) -> None:
    assert secret_fault([KEY], signed(), BODY, now=now) is None


def test_while_keys_are_changed_both_sign_and_either_is_known() -> None:
    sent = signed(KEY, OLD)
    assert 2 == len(sent["webhook-signature"].split(" "))
    assert [None, None] == [secret_fault([key], sent, BODY, now=NOW) for key in (KEY, OLD)]
    assert secret_fault([b"another", OLD], signed(OLD), BODY, now=NOW) is None


def test_header_names_are_known_in_any_case() -> None:
    assert secret_fault([KEY], {name.title(): value for name, value in signed().items()}, BODY, now=NOW) is None


@pytest.mark.parametrize(
    ("now", "why"), [(NOW + TOLERANCE + 1, "webhook-timestamp is too old"), (NOW - TOLERANCE - 1, "webhook-timestamp lies in the future")]
)
def test_stale_and_future_messages_are_refused(now: float, why: str) -> None:
    assert why == secret_fault([KEY], signed(), BODY, now=now)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_a_value_and_no_exception(name: str) -> None:
    sent = {key: value for key, value in signed().items() if key != name}
    assert "webhook-id, webhook-timestamp or webhook-signature is missing" == secret_fault([KEY], sent, BODY, now=NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "1800000000.0"},
        {"webhook-timestamp": "-1800000000"},
        {"webhook-timestamp": "1" * 5000},
        {"webhook-timestamp": "١٨٠٠٠٠٠٠٠٠"},  # digits to Python's int()
        {"webhook-id": "a\nb"},
        {"webhook-id": "x" * 1000},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,a,b"},
        {"webhook-signature": "v1,!!!"},
        {"webhook-signature": "v1a,abc v2,abc"},
        {"webhook-signature": ", , ,"},
        {"webhook-signature": "v1," + "é" * 44},
        {"webhook-signature": "v1,AA== " * 100_000},
    ],
    ids=lambda changed: str(changed)[:50],
)
def test_malformed_headers_are_refused_as_a_value(changed: dict[str, str]) -> None:
    assert secret_fault([KEY], {**signed(), **changed}, BODY, now=NOW) is not None


@pytest.mark.parametrize("changed", [{"webhook-id": "msg_2"}, {"webhook-timestamp": "1800000001"}])
def test_nothing_that_is_signed_can_be_changed(changed: dict[str, str]) -> None:
    assert "webhook-signature fits none of the keys" == secret_fault([KEY], {**signed(), **changed}, BODY, now=NOW)


def test_another_body_or_another_key_is_refused() -> None:
    assert "webhook-signature fits none of the keys" == secret_fault([KEY], signed(), BODY + b" ", now=NOW)
    assert "webhook-signature fits none of the keys" == secret_fault([OLD], signed(), BODY, now=NOW)
    assert "webhook-signature fits none of the keys" == secret_fault([], signed(), BODY, now=NOW)


@given(st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()))
def test_no_headers_raise_or_hold(found: dict[str, Any]) -> None:
    assert secret_fault([KEY], found, BODY, now=NOW) is not None


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("whsec_" + base64.b64encode(KEY).decode(), KEY),
        ("whsec_" + base64.b64encode(KEY).decode().rstrip("="), KEY),
        (f"  {base64.b64encode(KEY).decode()}\n", KEY),
        ("plain words", None),
        ("whsec_", None),
        ("whsec_no base64!", None),
        ("whsec_A", None),
        ("", None),
        (" \n", None),
    ],
)
def test_a_secret_is_base64_with_or_without_its_prefix(secret: str, key: bytes | None) -> None:
    assert key == key_of(secret)
