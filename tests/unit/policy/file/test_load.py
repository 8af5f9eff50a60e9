"""The policy loader, driven by data: every file in bad_policies/ and warned_policies/ lists its expected messages after
`#=` at its end."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samplegate.policy.file.load import LoadedPolicy, PolicyError, Problem, json_schema, load
from samplegate.policy.schema import AllowRule, AnswerRule, DenyRule, ForwardRule, Match, Prepend
from samplegate.yamlfile.tree import MAX_BYTES, MAX_FAULTS, MAX_NODES, Unreadable, compose, plain_value
from tests.profiles import share

HERE: Final = Path(__file__).parent
BAD: Final = sorted((HERE / "bad_policies").glob("*.yaml"))
WARNED: Final = sorted((HERE / "warned_policies").glob("*.yaml"))
SCHEMA: Final = "schema "

GOOD: Final = """\
version: 1
models:
  - {name: smart, model: anthropic/claude-sonnet-4-5, max_tokens: 8192, api_key_file: /run/key}
  - {name: local, model: openai/qwen3, api_base: "http://127.0.0.1:8000/v1", api_key_env: LOCAL_KEY}
hints: {"claude*sonnet*": smart, gpt: [local, smart]}
rules:
  - name: docs may summarise
    match: {kind: sampling, server: [docs, "search-*"], tool: "summarize_*", max_tokens: {max: 4000}, system_prompt: true}
    effect: allow
    with: {models: [local], max_tokens: 100, temperature: {max: 1}, system_prompt: {prepend: Be short.}, timeout: 50s}
  - name: a form
    match: {kind: elicitation, mode: form, has: [confirm, reason], not: {text: "(?i)prod"}}
    effect: answer
    content: {confirm: true, reason: "pipeline ${CI}", level: 0.5, count: 3, word: no-doubt}
  - {name: links, match: {mode: url, host: "*.example.com"}, effect: forward, verify: true, otherwise: next}
  - {name: the rest, effect: deny, as: decline}
client: {peer_timeout: none}
servers: {docs: {peer_timeout: 120s, extends_on_progress: true, explain_to_server: true}}
"""  # noqa: E501


def expected(text: str) -> tuple[str, list[str]]:
    """The expectations at the end of a file: whether the schema accepts it, and the messages."""
    lines = [line.removeprefix("#= ") for line in text.splitlines() if line.startswith("#= ")]
    schema = next((line.removeprefix(SCHEMA) for line in lines if line.startswith(SCHEMA)), "accepts")
    return schema, [line for line in lines if not line.startswith(SCHEMA)]


def problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        load(text, file="p", environment=environment)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_every_fault_of_a_bad_policy_is_told_with_its_place(path: Path) -> None:
    text = path.read_text()
    assert [f"p:{line}" for line in expected(text)[1]] == problems(text)
    assert expected(text)[1]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_schema_refuses_a_bad_policy_as_far_as_a_schema_can(path: Path) -> None:
    text = path.read_text()
    try:
        verdict = "accepts" if validator().is_valid(plain_value(compose(text)[0])) else "rejects"
    except Unreadable:
        verdict = "is not asked"
    assert expected(text)[0] == verdict


@pytest.mark.parametrize("path", WARNED, ids=lambda path: path.stem)
def test_what_is_probably_not_meant_is_a_warning(path: Path) -> None:
    text = path.read_text()
    loaded = load(text, file="p", environment={"SET": "1"})
    assert [f"p:{line}" for line in expected(text)[1]] == [str(warning) for warning in loaded.warnings]
    assert validator().is_valid(plain_value(compose(text)[0]))


def test_ten_different_faults_come_at_once() -> None:
    assert len(problems((HERE / "bad_policies" / "ten_faults_at_once.yaml").read_text())) >= 10


def test_no_message_shows_what_stands_where_a_key_may_stand() -> None:
    for path in BAD:
        assert "sk-secret" not in "".join(problems(path.read_text())), path.stem


def test_a_good_policy_becomes_typed_rules() -> None:
    policy = load(GOOD, file="p", environment={}).policy
    assert [AllowRule, AnswerRule, ForwardRule, DenyRule] == [type(rule) for rule in policy.rules]
    allow, answer, forward, deny = policy.rules
    assert isinstance(allow, AllowRule)
    assert isinstance(answer, AnswerRule)
    assert isinstance(forward, ForwardRule)
    assert isinstance(deny, DenyRule)
    assert Prepend(prepend="Be short.") == allow.with_.system_prompt
    assert {"confirm": True, "reason": "pipeline ${CI}", "level": 0.5, "count": 3, "word": "no-doubt"} == answer.content
    assert Match(text="(?i)prod") == answer.match.not_
    assert (True, "next") == (forward.verify, forward.otherwise)
    assert "decline" == deny.as_
    assert policy.servers["docs"].explain_to_server
    assert ["smart", ["local", "smart"]] == list(policy.hints.values())
    assert validator().is_valid(plain_value(compose(GOOD)[0]))


def test_the_hash_is_that_of_the_text() -> None:
    assert hashlib.sha256(GOOD.encode()).hexdigest()[:12] == load(GOOD, file="p", environment={}).hash


def test_an_unset_variable_is_a_warning_or_an_error_as_asked() -> None:
    (warning,) = load(GOOD, file="p", environment={}).warnings
    assert (
        "p:14:38: rules.1.content.reason: ${CI} is not set in the environment, so the rule cannot answer; set it, or"
        " replace it with the value" == str(warning)
    )
    with pytest.raises(PolicyError) as caught:
        load(GOOD, file="p", environment={}, missing="error")
    assert (warning,) == caught.value.problems
    assert () == load(GOOD, file="p", environment={"CI": ""}, missing="error").warnings


def test_only_the_named_part_of_the_environment_travels_with_the_policy() -> None:
    assert {"CI": "7"} == load(GOOD, file="p", environment={"CI": "7", "LOCAL_KEY": "sk-secret"}).environment


def test_a_byte_order_mark_and_dos_line_ends_are_fine() -> None:
    assert 4 == len(load("\ufeff" + GOOD.replace("\n", "\r\n"), file="p", environment={"CI": "7"}).policy.rules)


@pytest.mark.cpu(2)  # files of the greatest size
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#" * (MAX_BYTES + 1), "p:1:1: the file is larger than 1048576 bytes; shorten it"),
        ("é" * (MAX_BYTES // 2 + 1), "p:1:1: the file is larger than 1048576 bytes; shorten it"),
        ("- a\n" * MAX_NODES, f"p:{MAX_NODES}:3: the file has more than {MAX_NODES} values; shorten it"),
        ("version: 1\nrules: " + "[" * 500_000, "p:2:39: the file is nested deeper than 32 levels; flatten it"),
    ],
    ids=["bytes", "encoded bytes", "values", "depth"],
)
def test_a_file_out_of_bounds_is_refused_at_once(text: str, what: str) -> None:
    assert [what] == problems(text)


def test_more_rules_than_a_decision_can_look_at_are_refused() -> None:
    rules = "".join(f"  - {{name: r{index}, effect: deny, match: {{server: s{index}}}}}\n" for index in range(1001))
    assert ["p:1003:5: rules.1000: there are more than 1000 rules; merge some"] == problems(
        "version: 1\nrules:\n" + rules
    )


def test_a_file_of_faults_alone_is_bounded_too() -> None:
    assert MAX_FAULTS == len(problems("".join(f"k{index}: 1\n" for index in range(2_000))))


@pytest.fixture(scope="module", autouse=True)
def _built_outside_of_the_cpu_budget() -> None:
    validator()


@cache
def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def load_or_problems(text: str) -> bool:
    """Load a text; if that fails, check that it fails with located problems."""
    found = outcome(text)
    if isinstance(found, LoadedPolicy):
        return True
    assert found
    assert all(
        problem.line >= 1 and problem.column >= 1 and problem.what and "\n" not in str(problem) for problem in found
    )
    return False


def outcome(text: str) -> LoadedPolicy | tuple[Problem, ...]:
    try:
        return load(text, file="p", environment={})
    except PolicyError as error:
        return error.problems


@given(st.text(max_size=200))
def test_any_text_is_loaded_or_refused(text: str) -> None:
    load_or_problems(text)


@given(
    st.lists(
        st.sampled_from(
            [
                *"-:?,[]{}#&*!|>'\"%@` \n\t~\\",
                "\n  ",
                "- ",
                ": ",
                "version: 1",
                "rules",
                "<<",
                "---",
                "yes",
                "!!",
                "\\x",
            ]
        ),
        max_size=60,
    )
)
def test_any_yaml_like_text_is_loaded_or_refused(parts: list[str]) -> None:
    load_or_problems("".join(parts))


WORDS: Final = (
    "version models hints rules client servers name model match effect with content otherwise shadow kind server tool"
    " method mode fields has text not max_tokens messages size min max temperature system_prompt timeout sampling"
    " elicitation form url allow answer forward deny decline keep 50s ${X} ("
).split()
SCALARS: Final = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-2, 2), st.sampled_from(WORDS), st.text(max_size=5)
)
TREES: Final = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)),
    max_leaves=15,
)


def flow(value: Any) -> str:
    """Any tree as YAML in flow style, with strings in single quotes."""
    match value:
        case dict():
            return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(flow, value)) + "]"
        case None:
            return "~"
        case bool():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return str(value)


@given(TREES)
def test_any_tree_is_loaded_or_refused(tree: Any) -> None:
    load_or_problems(flow(tree))


RULE: Final = st.fixed_dictionaries(
    {"name": SCALARS, "effect": st.sampled_from(["allow", "answer", "forward", "deny", "alow"])}
)
MATCH: Final = st.dictionaries(st.sampled_from([*Match.__struct_encode_fields__, "x"]), TREES, max_size=4)
RULES: Final = st.lists(
    st.builds(
        lambda rule, match, extra: {**extra, **rule, "match": match},
        RULE,
        MATCH,
        st.dictionaries(st.sampled_from(WORDS), TREES, max_size=3),
    ),
    max_size=4,
)


@settings(max_examples=share(0.6))  # each builds and checks a whole file, up to 20 ms
@given(RULES)
def test_any_rules_are_loaded_or_refused_and_what_is_loaded_fits_the_schema(rules: list[Any]) -> None:
    tree = {"version": 1, "models": [{"name": "max", "model": "a/b"}], "rules": rules}
    if load_or_problems(flow(tree)):
        assert validator().is_valid(tree)
