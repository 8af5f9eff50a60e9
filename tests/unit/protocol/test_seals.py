"""Seals: which keys open them, whose they are, and those of 0.1.0."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol.seals import INSTANCE_BYTES, NONCE_BYTES, Opened, SealKeys

OLD, NEW = b"o" * 32, b"n" * 32
ONE, TWO = b"1" * INSTANCE_BYTES, b"2" * INSTANCE_BYTES
NONCE, DATA = bytes(range(NONCE_BYTES)), b"the call"


def sealed(*keys: bytes, instance: bytes = ONE, content: bytes = b"content") -> str:
    return SealKeys(keys, instance).seal(content, data=DATA, nonce=NONCE)


def opened(text: str, *keys: bytes, instance: bytes = ONE, data: bytes = DATA) -> Opened | None:
    return SealKeys(keys, instance).open(text, data=data)


@given(st.binary(max_size=200))
def test_a_seal_opens_with_its_content(content: bytes) -> None:
    assert Opened(content, foreign=False) == opened(sealed(OLD, content=content), OLD)


def test_the_seal_of_another_process_with_the_key_opens_as_foreign() -> None:
    assert Opened(b"content", foreign=True) == opened(sealed(OLD), OLD, instance=TWO)


@pytest.mark.parametrize("writer", [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)])
@pytest.mark.parametrize("reader", [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)])
def test_the_first_key_seals_and_all_open(writer: tuple[bytes, ...], reader: tuple[bytes, ...]) -> None:
    assert (writer[0] in reader) == (opened(sealed(*writer), *reader) is not None)


def test_processes_encrypt_with_keys_of_their_own() -> None:
    """The same nonce in two processes is harmless: without a shared keystream, the ciphertexts do not show what differs
    between the contents."""
    one, two = (base64.urlsafe_b64decode(sealed(OLD, instance=each)[4:]) for each in (ONE, TWO))
    assert (ONE + NONCE, TWO + NONCE) == (one[: len(ONE + NONCE)], two[: len(TWO + NONCE)])
    assert one[len(ONE + NONCE) :][:7] != two[len(TWO + NONCE) :][:7]
    raw = AESGCM(OLD).encrypt(NONCE, b"content", DATA)
    assert raw not in (one[-len(raw) :], two[-len(raw) :])


def test_a_seal_does_not_open_under_the_name_of_another_process() -> None:
    data = base64.urlsafe_b64decode(sealed(OLD)[4:])
    renamed = "sg2." + base64.urlsafe_b64encode(TWO + data[INSTANCE_BYTES:]).decode()
    assert opened(renamed, OLD, instance=TWO) is None


def test_a_seal_opens_with_its_own_data_only() -> None:
    assert opened(sealed(OLD), OLD, data=b"another call") is None


@pytest.mark.parametrize("keys", [(OLD,), (NEW, OLD)])
def test_a_seal_of_0_1_0_opens_and_counts_as_our_own(keys: tuple[bytes, ...]) -> None:
    text = "sg1." + base64.urlsafe_b64encode(NONCE + AESGCM(OLD).encrypt(NONCE, b"content", DATA)).decode()
    assert Opened(b"content", foreign=False) == opened(text, *keys)
    assert opened(text, NEW) is None
    assert opened(text, OLD, data=b"another call") is None
    assert opened("sg2." + text[4:], OLD) is None


@pytest.mark.parametrize("prefix", ["sg1.", "sg2."])
@pytest.mark.parametrize("size", [0, 1, INSTANCE_BYTES, INSTANCE_BYTES + NONCE_BYTES, 60])
def test_a_text_of_any_size_that_nobody_sealed_does_not_open(prefix: str, size: int) -> None:
    assert opened(prefix + base64.urlsafe_b64encode(bytes(size)).decode(), OLD) is None


def test_the_keys_are_not_in_the_representation() -> None:
    assert "ooo" not in repr(SealKeys([OLD], ONE))
