"""Sealed request state: it opens only for the call it was made for, with the same key and before it expires."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol.request_state import (
    FOREIGN,
    UNKNOWN,
    Binding,
    SealedKey,
    SealedRound,
    params_digest,
    seal,
    unseal,
)
from samplegate.protocol.seals import SealKeys

KEYS, NONCE = SealKeys([bytes(range(32))], b"a gate process.."), bytes(range(12))
OTHER_GATE = SealKeys([bytes(range(32))], b"another process.")
BINDING = Binding("docs", "local", "tools/call", params_digest(b'{"name":"x"}'))
ROUND = SealedRound(
    expires=1000.0,
    policy_hash="abc",
    round="t-1",
    rounds=3,
    state='their "state" é\n😀',
    keys={
        "k": SealedKey(
            "sampling/createMessage", '{"n": 1.0,"u":"\\u00e9","half":"\\ud83d"}', "d1", "forward", "a rule", True
        ),
        'é"': SealedKey("elicitation/create", None, "d2", "answer", None, False, reviews={"answer:a rule": "rv_1"}),
    },
    started=5.0,
)
SEALED = seal(ROUND, BINDING, keys=KEYS, nonce=NONCE)


def reopened(text: str, binding: Binding = BINDING, *, keys: SealKeys = KEYS, now: float = 999.0) -> SealedRound | None:
    found = unseal(text, binding, keys=keys, now=now)
    if isinstance(found, str):
        assert UNKNOWN == found
        return None
    return found


def test_what_was_sealed_comes_back_byte_for_byte() -> None:
    assert ROUND == reopened(SEALED)


def test_a_server_without_a_state_still_has_none() -> None:
    round = reopened(seal(msgspec.structs.replace(ROUND, state=None), BINDING, keys=KEYS, nonce=NONCE))
    assert round is not None
    assert round.state is None


def test_so_does_what_the_client_has_answered_before() -> None:
    put_off = msgspec.structs.replace(ROUND, shown=4, replies={"k": '{"n": 1.0,"u":"\\u00e9"}'})
    assert put_off == reopened(seal(put_off, BINDING, keys=KEYS, nonce=NONCE))


def test_a_state_of_before_this_was_sealed_still_opens() -> None:
    """A gate is upgraded while a client has an open request."""
    short = msgspec.json.encode(ROUND)[: -len(b",0,null,false,[]]")] + b"]"
    assert ROUND == msgspec.json.decode(short, type=SealedRound)
    shorter = short.replace(b",{}]", b"]").replace(b',{"answer:a rule":"rv_1"}]', b"]")
    assert shorter != short
    keys = {name: msgspec.structs.replace(key, reviews={}) for name, key in ROUND.keys.items()}
    assert keys == msgspec.json.decode(shorter, type=SealedRound).keys


def test_it_is_text_of_one_line_that_needs_no_escapes() -> None:
    assert f'"{SEALED}"' == json.dumps(SEALED)
    assert SEALED.startswith("sg2.")
    assert SEALED.isascii()
    assert SEALED.isprintable()


@pytest.mark.parametrize("field", ["server", "caller", "method", "digest"])
def test_every_part_of_what_binds_it_counts(field: str) -> None:
    assert reopened(SEALED, msgspec.structs.replace(BINDING, **{field: "other"})) is None
    assert reopened(SEALED, msgspec.structs.replace(BINDING, **{field: ""})) is None


def test_the_parts_of_what_binds_it_do_not_run_into_each_other() -> None:
    shifted = Binding("doc", "slocal", "tools/call", BINDING.digest)
    assert reopened(SEALED, shifted) is None
    assert Binding('a","b', "c", "m", "d").data() != Binding("a", 'b","c', "m", "d").data()


def test_another_key_does_not_open_it() -> None:
    assert reopened(SEALED, keys=SealKeys([bytes(32)], bytes(16))) is None


def test_another_gate_with_the_key_opens_it_unless_it_is_local() -> None:
    local = seal(msgspec.structs.replace(ROUND, local=True), BINDING, keys=KEYS, nonce=NONCE)
    assert ROUND == reopened(SEALED, keys=OTHER_GATE)
    assert FOREIGN == unseal(local, BINDING, keys=OTHER_GATE, now=999.0)
    assert msgspec.structs.replace(ROUND, local=True) == reopened(local)


def test_a_local_one_that_has_expired_or_is_of_another_call_is_unknown_to_another_gate() -> None:
    local = seal(msgspec.structs.replace(ROUND, local=True), BINDING, keys=KEYS, nonce=NONCE)
    assert reopened(local, keys=OTHER_GATE, now=1000.0) is None
    assert reopened(local, msgspec.structs.replace(BINDING, caller="other"), keys=OTHER_GATE) is None


@pytest.mark.parametrize(("now", "opens"), [(0.0, True), (999.9, True), (1000.0, False), (1e12, False)])
def test_it_opens_until_it_expires(now: float, opens: bool) -> None:
    assert opens == (reopened(SEALED, now=now) is not None)


@given(st.integers(0, len(SEALED) - 2), st.sampled_from("AZaz09-_.= é"))
def test_any_changed_character_keeps_it_shut(place: int, char: str) -> None:
    changed = SEALED[:place] + char + SEALED[place + 1 :]
    assert changed == SEALED or reopened(changed) is None


@pytest.mark.parametrize("rule", ["", "a", "ab"])
def test_it_has_one_spelling_whatever_its_length(rule: str) -> None:
    """Base64 has bits at its end that belong to no byte."""
    sealed = seal(msgspec.structs.replace(ROUND, call=rule), BINDING, keys=KEYS, nonce=NONCE)
    bare = sealed.rstrip("=")
    others = [
        bare[:-1] + letter + sealed[len(bare) :]
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    ]
    assert [sealed] == [text for text in others if reopened(text) is not None]


@given(
    st.one_of(
        st.text(max_size=80),
        st.text(alphabet="ABab01-_=", max_size=80).map(lambda text: "sg2." + text),
        st.integers(0, 60).map(lambda n: SEALED[:n]),
    )
)
def test_any_other_text_is_nobodys(text: str) -> None:
    assert reopened(text) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":2}', b' { "b" : 2 , "a" : 1 } '),
        (b'{"a":"\\u00e9"}', '{"a":"é"}'.encode()),
        (b'{"a":1,"_meta":{"x":1},"inputResponses":{},"requestState":"s"}', b'{"a":1}'),
        (b"{}", None),
        (b'{"a":"\\ud83d"}', b'{"\\u0061":"\\uD83D"}'),
    ],
)
def test_spelling_order_and_what_varies_from_try_to_try_do_not_count(one: bytes, other: bytes | None) -> None:
    assert params_digest(one) == params_digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":2}'),
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":1}', b'{"a":true}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":[1,2]}', b'{"a":[2,1]}'),
        (b'{"a":{"_meta":1}}', b'{"a":{}}'),
        (b'{"a":{"requestState":1}}', b'{"a":{}}'),
        (b'{"a":"x"}', b'{"a":"x "}'),
        (b"{}", b"[]"),
    ],
)
def test_every_other_difference_counts(one: bytes, other: bytes) -> None:
    assert params_digest(one) != params_digest(other)
