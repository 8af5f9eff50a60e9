"""Match conditions: what each means, several candidate calls, and unknown values."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.conditions import TABLE, absent
from samplegate.policy.facts import ABSENT, UNKNOWN, Facts, Known
from samplegate.policy.match import compile_match
from samplegate.policy.schema import Match, Range
from samplegate.protocol.requests import Request
from tests.fakes.requests import PROMPT, form, sampling, text, tool, url

IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}
RESULT = {
    "type": "tool_result",
    "toolUseId": "1",
    "content": [text("deep"), {"type": "resource", "resource": {"uri": "a:b", "text": "deeper"}}],
}


def holds(match: Match, request: Request, *, every: bool = True) -> bool | None:
    return compile_match(match).holds(Facts(request), every)


HINTED = sampling(modelPreferences={"hints": [{"name": ""}, {"name": "Claude-3-Sonnet"}]})
ASKED = form(confirm="boolean", reason="string")


@pytest.mark.parametrize(
    ("match", "request_"),
    [
        (Match(), sampling()),
        (Match(), ASKED),
        (Match(kind="sampling"), sampling()),
        (Match(server=["db", "do*"]), sampling()),
        (Match(caller="local"), sampling()),
        (Match(era="legacy"), sampling()),
        (Match(max_tokens=Range(max=1000)), sampling()),
        (Match(messages=Range(min=1, max=1)), sampling()),
        (Match(size=Range(max=100)), ASKED),
        (Match(content_types=["text"]), sampling()),
        (Match(content_types=["text", "image"]), sampling([text("a"), IMAGE])),
        (Match(tools=True), sampling(tools=[{"name": "t", "inputSchema": {}}])),
        (Match(tools=False), sampling()),
        (Match(system_prompt=True), sampling(systemPrompt="Be brief")),
        (Match(system_prompt=False), sampling()),
        (Match(system_prompt="(?i)^be b"), sampling(systemPrompt="Be brief")),
        (Match(text="(?i)^HELLO$"), sampling([text("first"), text("hello")])),
        (Match(text="^deep$"), sampling([RESULT])),
        (Match(text="^deeper$"), sampling([RESULT])),
        (Match(text="delete"), ASKED),
        (Match(text="lone ."), sampling("lone \ud800")),
        (Match(hint="claude*"), HINTED),
        (Match(mode="form"), ASKED),
        (Match(mode=["url", "form"]), ASKED),
        (Match(fields=["reason", "confirm"]), ASKED),
        (Match(has=["reason"]), ASKED),
        (Match(field_names="^rea"), ASKED),
        (
            Match(field_names="(?i)password"),
            form(login={"type": "object", "properties": {"Password": {"type": "string"}}}),
        ),
        (Match(field_types=["boolean", "string"]), ASKED),
        (Match(fields=[]), form()),
        (Match(mode="url"), url("https://a.example.com/x")),
        (Match(mode="url", host="*.Example.com", scheme="HTTPS"), url("https://A.example.com/x")),
        (Match(mode="url", host="[::1]"), url("http://[::1]/")),
        (Match(mode="url", host="*.bücher.example"), url("https://a.bücher.example/")),
        (Match(not_=Match(mode="url")), sampling()),
        (Match(not_=Match(mode="url")), ASKED),
        (Match(not_=Match(kind="sampling", server="docs")), ASKED),
        (Match(not_=Match(not_=Match(mode="url"))), url("https://a.example/")),
    ],
)
def test_it_holds(match: Match, request_: Request) -> None:
    assert holds(match, request_) is True
    assert compile_match(match).complaint(Facts(request_)) == ""


@pytest.mark.parametrize(
    ("match", "request_", "why"),
    [
        (Match(kind="sampling"), ASKED, "kind: 'elicitation' is not sampling"),
        (Match(server="DOCS"), sampling(), "server: 'docs' is not DOCS"),
        (Match(server=["db", "d?c"]), sampling(), "server: 'docs' is not one of db, d?c"),
        (Match(max_tokens=Range(max=10)), sampling(), "max_tokens: 1000 is more than 10"),
        (Match(max_tokens=Range(max=10)), ASKED, "max_tokens: not set"),
        (
            Match(content_types=["text"]),
            sampling([text("a"), IMAGE]),
            "content_types: ['image', 'text'] has types other than text",
        ),
        (Match(system_prompt=".*"), sampling(), "system_prompt: '' does not match '.*'"),
        (Match(text="^b"), sampling("a"), "text: ['a'] does not match '^b'"),
        (Match(hint="*gpt*"), HINTED, "hint: ['claude-3-sonnet'] does not include *gpt*"),
        (Match(hint="*"), sampling(), "hint: [] does not include *"),
        (Match(mode="form"), sampling(), "mode: not set"),
        (Match(fields=["confirm"]), ASKED, "fields: ['confirm', 'reason'] is not exactly confirm"),
        (Match(has=["x"]), sampling(), "has: not set"),
        (Match(field_types=["string"]), form(a={"type": "object"}), "field_types: [''] has types other than string"),
        (Match(), url("https://a.example/"), "mode: 'url' needs a rule with `mode: url`"),
        (
            Match(host="a.example"),
            url("https://a.example/"),
            "mode: 'url' needs a rule with `mode: url`",
        ),
        (
            Match(not_=Match(mode="form")),
            url("https://a.example/"),
            "mode: 'url' needs a rule with `mode: url`",
        ),
        (Match(not_=Match(server="docs")), sampling(), "not: the excluded conditions match (server)"),
        (Match(text="x"), sampling("a" * 1000), "text: ['" + "a" * 55 + "...'] does not match 'x'"),
    ],
)
def test_it_does_not_hold_and_says_why(match: Match, request_: Request, why: str) -> None:
    assert holds(match, request_) is False
    assert why == compile_match(match).complaint(Facts(request_))


@pytest.mark.parametrize(
    "address",
    ["mailto:a@b.example", "javascript:alert(1)", "data:text/html,x", "view-source:https://a.example/", "file:///x"],
)
def test_a_url_without_a_host_is_in_doubt_for_every_host(address: str) -> None:
    assert holds(Match(mode="url", host="*"), url(address)) is None
    assert holds(Match(mode="url", not_=Match(host="a.example")), url(address)) is None


def around(**more: Any) -> Request:
    asked = form(confirm="boolean")
    asked.params["requestedSchema"].update(more)
    return asked


MORE: dict[str, dict[str, Any]] = {
    "allOf": {"allOf": [{"properties": {"account": {"type": "string"}}, "required": ["account"]}]},
    "patternProperties": {"patternProperties": {"^account$": {"type": "string"}}},
    "required": {"required": ["account"]},
    "required beside free properties": {"required": ["account"], "additionalProperties": True},
    "a schema for the rest": {"additionalProperties": {"type": "string"}},
    "dependentRequired": {"dependentRequired": {"confirm": ["account"]}},
    "dependentSchemas": {"dependentSchemas": {"confirm": {"required": ["account"]}}},
    "a reference": {"$ref": "#/$defs/account", "$defs": {"account": {}}},
    "an old reference": {"$ref": "#/definitions/account", "definitions": {"account": {}}},
    "a condition": {"if": {}, "then": {"required": ["account"]}},
}


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
def test_what_a_form_may_ask_beside_its_properties_leaves_its_fields_in_doubt(more: dict[str, Any]) -> None:
    for match in (Match(fields=["confirm"]), Match(has=["confirm"]), Match(has=["x"]), Match(field_types=["boolean"])):
        assert holds(match, around(**more)) is None


@pytest.mark.parametrize("name", sorted(MORE.keys() - {"a schema for the rest"}))
def test_a_name_is_found_wherever_a_schema_says_it(name: str) -> None:
    assert holds(Match(field_names="^.?account"), around(**MORE[name])) is True


def test_what_changes_no_field_leaves_no_doubt() -> None:
    asked = around(
        **{
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "t",
            "additionalProperties": False,
            "x-note": 1,
        }
    )
    assert holds(Match(fields=["confirm"], field_types=["boolean"]), asked) is True


def test_very_many_names_are_in_doubt_rather_than_searched() -> None:
    asked = around(anyOf=[{"required": [f"f{n}" for n in range(20_000)]}])
    assert holds(Match(field_names="^nothing$"), asked) is None


def test_content_types_look_into_the_results_of_tools() -> None:
    def result(type_: str) -> Request:
        return sampling([{"type": "tool_result", "toolUseId": "1", "content": [{"type": type_}]}])

    assert holds(Match(content_types=["tool_result", "text"]), result("text")) is True
    assert holds(Match(content_types=["tool_result", "text"]), result("image")) is False
    assert holds(Match(content_types=["tool_result", "text"]), result("resource")) is False
    assert frozenset({"tool_result", "other"}) == Facts(result("\x1b[2J" * 100)).content_types


def test_a_url_with_two_readings_is_in_doubt_for_every_host() -> None:
    asked = url("https://good.example@evil.example/")
    assert holds(Match(mode="url", host="*"), asked) is None
    assert holds(Match(mode="url", not_=Match(host="evil.example")), asked) is None
    assert holds(Match(mode="url"), asked) is True


@pytest.mark.parametrize(
    ("match", "calls", "every", "some"),
    [
        (Match(tool="a*"), ["ab"], True, True),
        (Match(tool="A*"), ["ab"], False, False),
        (Match(tool="a*"), ["ab", "b"], False, True),
        (Match(not_=Match(tool="a*")), ["ab", "b"], False, True),
        (Match(not_=Match(tool="a*")), ["c", "b"], True, True),
        (Match(tool="none"), ["none"], False, False),
        (Match(tool="[n]one"), ["none"], True, True),
        (Match(tool="none"), [], True, True),
        (Match(tool="[n]one"), [], False, False),
        (Match(tool="*"), [], False, False),
        (Match(method="*"), [], False, False),
        (Match(not_=Match(tool="a*")), [], False, False),
        (Match(not_=Match(method="prompts/get")), [], False, False),
        (Match(not_=Match(tool="none")), [], False, False),
        (Match(tool=["none", "a"], not_=Match(method="prompts/get")), [], True, True),
        (Match(not_=Match(not_=Match(tool="none"))), [], True, True),
        (Match(tool="none", method="*"), [], False, False),
        (Match(server="docs"), [], True, True),
        (Match(method="tools/*"), ["a", "b"], True, True),
    ],
)
def test_with_candidate_calls(match: Match, calls: list[str], every: bool, some: bool) -> None:
    asked = sampling("hello", *map(tool, calls))
    assert every is holds(match, asked, every=True)
    assert some is holds(match, asked, every=False)


def test_a_prompt_is_no_tool_whatever_its_name() -> None:
    assert holds(Match(tool="*"), sampling("hello", PROMPT)) is False
    assert holds(Match(tool="none"), sampling("hello", PROMPT)) is False
    assert holds(Match(method="prompts/get"), sampling("hello", PROMPT)) is True


def test_the_complaint_names_how_many_calls_it_may_belong_to() -> None:
    asked = sampling("hello", tool("a"), tool("b"))
    assert compile_match(Match(tool="a")).complaint(Facts(asked)) == "tool: 'b' is not a (one of 2 calls in flight)"
    assert (
        compile_match(Match(tool="a")).complaint(Facts(sampling()))
        == "tool: no call is in flight, but the rule names a tool or method"
    )


def test_an_expression_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValueError, match="not a valid RE2 expression"):
        compile_match(Match(text="(?=a)"))


NAMES = st.sampled_from(["docs", "db", "*", "d*", ["db", "docs"]])
CALLS = st.lists(st.sampled_from([tool("a"), tool("b"), tool("none"), PROMPT]), max_size=3)
REQUESTS = st.one_of(
    st.builds(lambda calls, what: sampling(what, *calls), CALLS, st.sampled_from(["hello", "bye"])),
    st.builds(lambda calls: sampling("hello", *calls, tools=[{"name": "t", "inputSchema": {}}]), CALLS),
    st.builds(lambda calls: form(*calls, confirm="boolean"), CALLS),
    st.builds(
        lambda calls, to: url(to, *calls), CALLS, st.sampled_from(["https://a.example/", "https://a@b.example/", "x:y"])
    ),
)


def matches(depth: int = 2) -> st.SearchStrategy[Match]:
    parts: dict[str, st.SearchStrategy[Any]] = {
        "kind": st.sampled_from(["sampling", "elicitation"]),
        "server": NAMES,
        "tool": st.sampled_from(["a", "b", "none", ["none", "a"], "*", "[n]one"]),
        "method": st.sampled_from(["tools/call", "prompts/*"]),
        "mode": st.sampled_from(["form", "url", ["form", "url"]]),
        "max_tokens": st.sampled_from([Range(max=1000), Range(min=1001)]),
        "tools": st.booleans(),
        "text": st.sampled_from(["hello", "sign"]),
        "has": st.just(["confirm"]),
        "host": st.sampled_from(["a.example", "b.example", "*"]),
    }
    if depth:
        parts["not_"] = matches(depth - 1)
    return st.fixed_dictionaries({}, optional=parts).map(lambda found: Match(**found))


@given(
    matches(),
    REQUESTS,
    st.booleans(),
    st.sets(st.sampled_from(["kind", "mode", "is_url", "server", "tools", "calls", "texts", "host"])),
)
def test_knowing_less_never_says_the_opposite(match: Match, request: Request, every: bool, told: set[str]) -> None:
    matcher, facts = compile_match(match), Facts(request)
    known = Known(
        request.origin.calls if "calls" in told else UNKNOWN, {name: getattr(facts, name) for name in told - {"calls"}}
    )
    said, real = matcher.holds(known, every), matcher.holds(facts, every)
    assert said is None or said is real


@given(matches(), REQUESTS)
def test_a_deny_takes_wherever_a_grant_would(match: Match, request: Request) -> None:
    matcher = compile_match(match)
    if matcher.holds(Facts(request), True) is True:
        assert matcher.holds(Facts(request), False) is True


@given(matches(), REQUESTS)
def test_the_complaint_is_empty_exactly_where_a_grant_matches(match: Match, request: Request) -> None:
    matcher = compile_match(match)
    said = matcher.complaint(Facts(request))
    assert (said == "") is (matcher.holds(Facts(request), True) is True)
    assert len(said) < 600


def test_every_condition_of_a_match_has_its_row_and_every_row_its_fact() -> None:
    assert {*Match.__struct_fields__} - {"not_", "arguments", "claims"} == {*TABLE}
    assert [] == [
        row.name for row in TABLE.values() if not hasattr(Facts, row.fact) and not hasattr(Facts(sampling()), row.fact)
    ]


@pytest.mark.parametrize(
    ("kind", "request_"), [("sampling", sampling()), ("form", ASKED), ("url", url("https://a.example/"))]
)
def test_a_fact_is_absent_where_the_table_says_so_and_nowhere_else(
    kind: Literal["sampling", "form", "url"], request_: Request
) -> None:
    facts = Facts(sampling(maxTokens=5) if kind == "sampling" else request_)
    given = {row.fact for row in TABLE.values() if row.kind != "any" and getattr(facts, row.fact) is not ABSENT}
    assert given.isdisjoint(absent(kind))
    assert {row.fact for row in TABLE.values() if row.kind != "any"} == given | absent(kind).keys()
