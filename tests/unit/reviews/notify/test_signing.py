from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from samplegate.reviews.notify.formats import headers, key_of

NOW: Final = 1_800_000_000.0
KEY: Final = bytes(range(32))
OLD: Final = b"the key before"
BODY: Final = b'{"type":"review.opened"}'


def signed(*keys: bytes, at: float = NOW, **changed: str) -> dict[str, str]:
    return {**headers(keys or (KEY,), id="msg_1", at=at, body=BODY), **changed}


@given(
    st.binary(min_size=1, max_size=64), st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=200)
)
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
