"""The YAML reader: one reading, bounded, with every fault at its place. Both of PyYAML's parsers must agree."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from samplegate.yamlfile import envfile, tree

READ_AS_YAML_1_2: Final[dict[str, Any]] = {
    "a": "a",
    "~": None,
    "null": None,
    "NULL": None,
    "nUll": "nUll",
    "True": True,
    "tRue": "tRue",
    "0": 0,
    "-12": -12,
    "+7": 7,
    "0x1F": 31,
    "1e3": 1000.0,
    ".5": 0.5,
    "-0.5": -0.5,
    "1.2.3": "1.2.3",
    "127.0.0.1:8000": "127.0.0.1:8000",
    "50s": "50s",
    "'yes'": "yes",
    '"010"': "010",
    "! 12": "12",
    "!!str 12": "12",
    "!!int 12": 12,
    "!!float 1.5": 1.5,
    "=": "=",
    "noon": "noon",
}

TWO_READINGS: Final = (
    "y n yes No ON off 010 -0777 0o17 0b11 1_000 0x_1f 12:30 1:30:00 190:20:30.15 2026-11-21 2026-11-21T10:00:00Z .inf"
    " -.INF .nan 00 09"
).split()


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(tree, "_LOADER", getattr(yaml, request.param))


def read(text: str) -> Any:
    root, faults = tree.compose(text)
    assert [] == faults
    return tree.plain_value(root)


def faults(text: str) -> list[str]:
    return [
        f"{fault.mark.line}:{fault.mark.column} {tree.dotted(fault.path)}: {fault.what}"
        for fault in tree.compose(text)[1]
    ]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("text", "value"), READ_AS_YAML_1_2.items())
def test_a_scalar_is_read_by_the_core_schema(text: str, value: Any) -> None:
    assert [value] == read(f"- {text}")
    assert type(value) is type(read(f"- {text}")[0])


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("text", TWO_READINGS)
def test_a_scalar_with_two_readings_is_refused_and_its_quoted_twin_is_text(text: str) -> None:
    assert [
        (
            f"1:3 0: {text!r} means different things to different YAML parsers; quote it for text, or write true,"
            " false or"
            " a plain number"
        )
    ] == faults(f"- {text}")
    assert [text] == read(f'- "{text}"')


@pytest.mark.usefixtures("parser")
def test_every_fault_of_a_file_is_told_and_the_rest_is_read() -> None:
    text = "a: &x 1\nb: *x\nc: {d: 1, d: 2}\n<<: {e: 1}\n? [k]\n: gone\nf: [yes, 3]\n1: one\ng: !t x\n"
    assert [
        "1:4 a: anchor '&x' is not supported; remove it and write the value out",
        "2:4 b: alias '*x' is not supported; write the value out",
        "3:11 c.d: duplicate key, first on line 3; remove one",
        "4:1 : merge key '<<' is not supported; write the keys out",
        "5:3 : a list or mapping cannot be a key; use a string",
        (
            "7:5 f.0: 'yes' means different things to different YAML parsers; quote it for text, or write true, false"
            " or a plain number"
        ),
        "8:1 : key '1' is not a string; quote it",
        "9:4 g: tag '!t' is not supported; remove it",
    ] == faults(text)
    assert {"a": 1, "b": None, "c": {"d": 1}, "f": [None, 3], "g": None} == tree.plain_value(tree.compose(text)[0])


@pytest.mark.usefixtures("parser")
def test_a_value_under_a_key_that_names_a_secret_is_not_shown() -> None:
    assert [
        (
            "1:14 api_key_env: this value means different things to different YAML parsers; quote it for text, or"
            " write true, false or a plain number"
        )
    ] == (faults("api_key_env: 0123456"))


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text",
    ['"\\ud800"', '"\\UFFFFFFFF"', "{", "a: b: c", "\t- x", "*", "%YAML 9.1\n---\na", "--- a\n--- b", "", "[" * 10_000],
)
def test_what_is_no_yaml_or_out_of_bounds_is_unreadable_or_faulty(text: str) -> None:
    assert outcome(text)


def outcome(text: str) -> str | list[str]:
    try:
        return faults(text)
    except tree.Unreadable as broken:
        return broken.fault.what


@given(
    st.recursive(st.text(st.characters(exclude_categories=["Cs"])), st.lists, max_leaves=10).map(lambda value: [value])
)
def test_what_pyyaml_writes_in_quotes_is_read_back(value: Any) -> None:
    assert value == read(yaml.safe_dump(value, default_style='"'))


def test_a_variable_is_braced_and_a_doubled_dollar_is_none() -> None:
    text = "a ${A} $${A} $A ${B_2}${A}"
    assert ["A", "B_2", "A"] == list(envfile.names(text))
    assert "a 1 ${A} $A 21" == envfile.fill(text, {"A": "1", "B_2": "2"})
    assert None is envfile.fault(text)


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(KeyError, match="B"):
        envfile.fill("${A}${B}", {"A": "1"})


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${A-B}", "${1}", "x ${A} ${ B }"])
def test_a_brace_that_begins_no_variable_is_a_fault(text: str) -> None:
    assert envfile.fault(text) is not None


@given(st.text("$${}AB 1"))
def test_filling_never_fails_once_every_variable_is_set(text: str) -> None:
    filled = envfile.fill(text, dict.fromkeys(envfile.names(text), ""))
    assert len(filled) <= len(text)
