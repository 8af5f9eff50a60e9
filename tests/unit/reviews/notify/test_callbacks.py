from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.notify.formats import TOKEN_PREFIX, callback_fault, callback_token

KEY: Final = bytes(range(32))
NOW: Final = 1_800_000_000.0
EXPIRES: Final = NOW + 900.7
DIGEST: Final = "sha256:" + "ab" * 32
TOKEN: Final = callback_token(KEY, "rv_1", DIGEST, EXPIRES)


def test_a_token_opens_its_review_until_it_expires() -> None:
    assert TOKEN.startswith(TOKEN_PREFIX)
    assert [None, None] == [callback_fault(KEY, TOKEN, "rv_1", DIGEST, now) for now in (NOW, NOW + 899.9)]
    assert "has expired" == callback_fault(KEY, TOKEN, "rv_1", DIGEST, NOW + 900)


def test_a_token_opens_nothing_else() -> None:
    not_its = "is not the callback token of this review"
    assert not_its == callback_fault(KEY, TOKEN, "rv_2", DIGEST, NOW)
    assert not_its == callback_fault(KEY, TOKEN, "rv_1", "sha256:" + "cd" * 32, NOW)
    assert not_its == callback_fault(b"another key of the store that is 32", TOKEN, "rv_1", DIGEST, NOW)


def test_its_end_cannot_be_put_off() -> None:
    _, seconds, code = TOKEN.split(".")
    assert "is not the callback token of this review" == callback_fault(
        KEY, f"{TOKEN_PREFIX}{int(seconds) + 1}.{code}", "rv_1", DIGEST, NOW
    )


def test_what_is_bound_cannot_be_moved_from_one_part_to_the_next() -> None:
    assert (
        callback_token(KEY, "a", "bc", EXPIRES).split(".")[2] != callback_token(KEY, "ab", "c", EXPIRES).split(".")[2]
    )


@pytest.mark.parametrize(
    "token",
    ["", "cb1.", "cb1..", TOKEN + "x", TOKEN[:-1], TOKEN.replace("cb1", "cb2"), f"{TOKEN}\n", "cb1.١." + "A" * 43],
)
def test_what_is_no_token_is_said_so(token: str) -> None:
    assert "is not a callback token" == callback_fault(KEY, token, "rv_1", DIGEST, NOW)


@given(st.text())
def test_no_text_raises_or_opens(token: str) -> None:
    assert callback_fault(KEY, token, "rv_1", DIGEST, NOW) is not None
