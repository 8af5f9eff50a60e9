"""Conditions on arguments: types, paths of files and their spellings, several calls, and hostile arguments."""

from __future__ import annotations

import json
import os.path
import time
import unicodedata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.arguments import is_under, path_of
from samplegate.policy.decide import compile_policy, decide
from samplegate.policy.decisions import FixedAnswer, Situation
from samplegate.policy.facts import Facts
from samplegate.policy.match import compile_match
from samplegate.policy.schema import AnswerRule, ArgumentTest, Match, Policy, Wanted
from samplegate.protocol.requests import Request
from tests.fakes.requests import form, tool

SPELLINGS: Final[dict[str, list[str]]] = yaml.safe_load(Path(__file__).with_name("paths.yaml").read_text("utf-8"))


def during(*params: bytes | None) -> Request:
    """A form during calls of one tool with these raw params."""
    asked = form(tool("t"), confirm="boolean")
    return msgspec.structs.replace(asked, origin=msgspec.structs.replace(asked.origin, params=(params,)))


def call(**arguments: Any) -> bytes:
    return json.dumps({"name": "t", "arguments": arguments}).encode()


def raw(arguments: str) -> bytes:
    return f'{{"name":"t","arguments":{arguments}}}'.encode()


def holds(wanted: Wanted, *params: bytes | None, every: bool = True, path: str = "a") -> bool | None:
    return compile_match(Match(arguments={path: wanted})).holds(Facts(during(*params)), every)


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [
        ("x", "x", True),
        ("x", "y", False),
        ("x*", "xyz", True),
        ("x", 1, None),
        (["x", "y"], "y", True),
        (["x", 1], 1, True),
        (["x", 1], 2, False),
        (["x", 1], True, None),
        (1, 1, True),
        (1, 1.0, True),
        (1, "1", None),
        (1, True, None),
        (0, False, None),
        (True, True, True),
        (True, False, False),
        (True, 1, None),
        (False, 0, None),
        ("*", None, None),
        ("*", ["x"], None),
        ("*", {"x": 1}, None),
        (ArgumentTest(min=1), 1, True),
        (ArgumentTest(min=1), 0.5, False),
        (ArgumentTest(max=2**60), 2**60 + 1, False),
        (ArgumentTest(min=1), "5", None),
        (ArgumentTest(min=0), True, None),
        (ArgumentTest(matches="^b+$"), "bb", True),
        (ArgumentTest(matches="^b+$"), "bc", False),
        (ArgumentTest(matches="1"), 1, None),
        (ArgumentTest(under="/tmp"), "/tmp/x", True),
        (ArgumentTest(under="/tmp"), 5, None),
        (ArgumentTest(under="/tmp", matches="[.]txt$"), "/tmp/x.txt", True),
        (ArgumentTest(under="/tmp", matches="[.]txt$"), "/tmp/x.png", False),
        (ArgumentTest(under="/tmp", absent=True), "/tmp/x", True),
        (ArgumentTest(under="/tmp", absent=True), "/etc", False),
        (ArgumentTest(absent=True), "x", False),
        (ArgumentTest(absent=True), None, None),
    ],
)
def test_a_value_is_compared_with_its_type(wanted: Wanted, value: Any, expected: bool | None) -> None:
    assert expected is holds(wanted, call(a=value))


@pytest.mark.parametrize(("absent", "expected"), [(False, False), (True, True)])
@pytest.mark.parametrize("params", [call(), raw("null"), b'{"name":"t"}', call(b=1)])
def test_an_absent_argument_matches_only_if_that_is_said(params: bytes, absent: Any, expected: bool) -> None:
    assert expected is holds(ArgumentTest(max=5, absent=absent), params)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a":"x","a":"y"}',
        '{"a":"x","A":"y"}',
        '{"a":"x","a\\u0000":"y"}',
        '{"\\u0061":"x","a":"y"}',
        '{"a":"\\ud800"}',
        '{"a":1e999}',
        '{"a":' + "9" * 5_000 + "}",
        '{"a":' + "9" * 400 + "}",
        '{"a":-9223372036854775809}',
        '{"a":"x\\u0000y"}',
        '["a"]',
        '"a"',
        '{"a":"x"',
        '{"a":{"a":"x"}}',
    ],
)
@pytest.mark.parametrize("wanted", ["*", ArgumentTest(min=0), ArgumentTest(max=0)])
def test_arguments_with_another_reading_grant_nothing_and_are_denied(arguments: str, wanted: Wanted) -> None:
    assert holds(wanted, raw(arguments)) is None


def test_another_argument_with_two_readings_is_in_no_ones_way() -> None:
    assert holds("x", raw('{"a":"x","b":1,"B":2}')) is True


def test_many_paths_into_a_large_call_are_read_in_time() -> None:
    """The object is parsed once, not for each path."""
    large = call(o={f"name{number}": number for number in range(4_000)})
    paths: dict[str, Wanted] = {f"o.name{number}": number for number in range(100)}
    begun = time.process_time()
    assert compile_match(Match(arguments=paths)).holds(Facts(during(large)), True) is True
    assert time.process_time() - begun < 5.0


def test_arguments_that_were_not_kept_grant_nothing_and_are_denied() -> None:
    assert holds("*", None) is None
    assert holds("*", call(a="x"), None) is None
    assert holds("*", call(a="x"), None, every=False) is True
    asked = during()
    unknown = msgspec.structs.replace(asked, origin=msgspec.structs.replace(asked.origin, params=()))
    assert compile_match(Match(arguments={"a": "*"})).holds(Facts(unknown), True) is None


def test_a_grant_needs_every_call_and_a_deny_one() -> None:
    one, other = call(a="x"), call(a="y")
    assert (False, True) == (holds("x", one, other), holds("x", one, other, every=False))
    assert (True, False) == (holds("x", one, one), holds("x", other, other, every=False))


def test_no_call_in_flight_has_no_arguments() -> None:
    matcher = compile_match(Match(arguments={"a": ArgumentTest(absent=True)}))
    assert matcher.holds(Facts(form(confirm="boolean")), True) is False


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ("a",)), ("a.b", ("a", "b")), (r"a\.b", ("a.b",)), (r"a\\.b", ("a\\", "b")), ("1.0", ("1", "0"))],
)
def test_a_path_is_split_at_its_dots(text: str, names: tuple[str, ...]) -> None:
    assert names == path_of(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", r"a\b", "a\\", ".".join("a" * 33)])
def test_a_path_without_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty|backslash|more than"):
        path_of(text)


def test_a_path_leads_through_objects_only() -> None:
    inner = call(a={"b": {"c.d": "x"}, "e": ["x"]})
    assert holds("x", inner, path=r"a.b.c\.d") is True
    assert holds("x", inner, path="a.b.c.d") is False  # absent
    assert holds("x", inner, path="a.e.0") is None
    assert holds("x", inner, path="a.x.y") is False


# -- folders
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", SPELLINGS["inside"])
def test_a_path_inside_is_granted(value: str) -> None:
    assert is_under(value, ["/tmp"]) is True


@pytest.mark.parametrize("value", SPELLINGS["outside"])
def test_a_path_outside_is_not_granted_and_not_denied_as_inside(value: str) -> None:
    assert is_under(value, ["/tmp"]) is False


@pytest.mark.parametrize("value", SPELLINGS["unclear"])
def test_a_path_with_another_spelling_or_reading_is_not_granted_and_is_denied(value: str) -> None:
    assert is_under(value, ["/tmp"]) is None


PIECES: Final = ["/", "..", ".", "tmp", "a", "%2e", "\\", "\0", "%2f", "\u2024", "\uff0f"]


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_what_is_granted_stays_inside_by_every_reading(pieces: list[str]) -> None:
    """By POSIX (without links), by decoding percent signs, by backslashes, and by compatibility forms."""
    value = "".join(pieces)
    if is_under(value, ["/tmp"]):
        for one in (value, unquote(value), value.replace("\\", "/"), unicodedata.normalize("NFKC", value)):
            plain = os.path.normpath(one.partition("\0")[0])
            assert plain == "/tmp" or plain.startswith("/tmp/")


def test_a_path_that_no_program_can_open_is_not_read() -> None:
    assert is_under("/tmp/" + "a" * 4_091, ["/tmp"]) is True
    assert is_under("/tmp/" + "a" * 4_092, ["/tmp"]) is None


def test_the_root_is_a_folder() -> None:
    assert is_under("/etc/x", ["/"]) is True
    assert is_under("etc/x", ["/"]) is None


# -- answers
# ----------------------------------------------------------------------------------------------------------------------


def answered(content: dict[str, Any], request: Request) -> Any:
    rule = AnswerRule(name="r", match=Match(kind="elicitation"), content=content)
    act = decide(compile_policy(Policy(version=1, rules=[rule]), {}), request, Situation()).act
    return act.result["content"] if isinstance(act, FixedAnswer) else None


REASON: Final = {"confirm": {"from": "arguments.a.b"}}


@pytest.mark.parametrize(
    ("content", "params", "expected"),
    [
        (REASON, [call(a={"b": True})], {"confirm": True}),
        (REASON, [call(a={"b": True}), call(a={"b": True})], {"confirm": True}),
        (REASON, [call(a={"b": True}), call(a={"b": False})], None),
        (REASON, [call(a={"b": True}), call(a={"b": 1})], None),
        (REASON, [call(a={"b": "true"})], None),
        (REASON, [call(a={"b": 1})], None),
        (REASON, [call(a={"b": [True]})], None),
        (REASON, [call(a={})], None),
        (REASON, [raw('{"a":{"b":true,"B":true}}')], None),
        (REASON, [None], None),
        ({"confirm": {"from": "default"}}, [call()], None),
    ],
)
def test_an_answer_takes_an_argument_of_the_fields_type(
    content: Any, params: list[bytes | None], expected: Any
) -> None:
    assert expected == answered(content, during(*params))


def test_an_answer_takes_the_forms_default() -> None:
    asked = form(confirm="boolean")
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean", "default": False}}}
    asked = msgspec.structs.replace(asked, params={**asked.params, "requestedSchema": schema})
    assert {"confirm": False} == answered({"confirm": {"from": "default"}}, asked)


def test_an_argument_fills_in_no_secret() -> None:
    asked = form(password="string")
    origin = msgspec.structs.replace(asked.origin, calls=(tool("t"),), params=((call(a="x"),),))
    assert answered({"password": {"from": "arguments.a"}}, msgspec.structs.replace(asked, origin=origin)) is None


def test_without_a_call_there_is_no_argument() -> None:
    assert answered({"confirm": {"from": "arguments.a"}}, form(confirm="boolean")) is None
