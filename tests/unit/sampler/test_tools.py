"""Tools, their calls and results as sent to a chat model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.sampler.worker.request import MAX_SIGNATURE, MAX_TOOLS, PROVIDER, UnsupportedRequest, call

TOOL: dict[str, Any] = {"name": "a.b", "description": "does it", "inputSchema": {"type": "object"}}
USE: dict[str, Any] = {"type": "tool_use", "id": "x", "name": "a.b", "input": {"q": 1}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(id: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": [text("done")], **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def asked(*messages: dict[str, Any], **params: Any) -> dict[str, Any]:
    return call({"messages": list(messages) or [user(text("hi"))], "maxTokens": 10, **params}, None)


TURN = (user(text("hi")), assistant(USE), user(result()))


def test_a_tool_goes_out_with_three_of_its_fields() -> None:
    out = asked(
        tools=[
            {
                **TOOL,
                "title": "T",
                "outputSchema": {},
                "annotations": {},
                "_meta": {"api_key": "x"},
                "type": "web_search",
            }
        ]
    )

    function = {"name": "a_b", "description": "does it", "parameters": {"type": "object"}}
    assert [{"type": "function", "function": function}] == out["tools"]
    assert {"names": {"a_b": "a.b"}, "required": False, "taken": []} == {
        **out["offer"],
        "taken": list(out["offer"]["taken"]),
    }
    assert "tool_choice" not in out


@pytest.mark.parametrize("schema", [None, 5, [], "x"])
def test_a_tool_without_a_schema_takes_an_object(schema: object) -> None:
    (tool,) = asked(tools=[{"name": "a", "inputSchema": schema}])["tools"]

    assert {"name": "a", "parameters": {"type": "object", "properties": {}}} == tool["function"]


@pytest.mark.parametrize(
    ("messages", "params", "tools", "choice", "names"),
    [
        ((), {"tools": [TOOL], "toolChoice": {"mode": "auto"}}, 1, None, ["a.b"]),
        ((), {"tools": [TOOL], "toolChoice": {}}, 1, None, ["a.b"]),
        ((), {"tools": [TOOL], "toolChoice": {"mode": "required"}}, 1, "required", ["a.b"]),
        ((), {"tools": [TOOL], "toolChoice": {"mode": "none"}}, 0, None, []),
        ((), {"tools": []}, 0, None, []),
        ((), {"toolChoice": {"mode": "auto"}}, 0, None, []),
        (TURN, {"tools": [TOOL]}, 1, None, ["a.b"]),
        (TURN, {"tools": [TOOL], "toolChoice": {"mode": "none"}}, 1, "none", []),
        (TURN, {}, 1, "none", []),
    ],
)
def test_what_is_offered(
    messages: tuple[dict[str, Any], ...], params: dict[str, Any], tools: int, choice: str | None, names: list[str]
) -> None:
    out = asked(*messages, **params)

    assert (tools, choice) == (len(out.get("tools", [])), out.get("tool_choice"))
    assert names == list(out.get("offer", {"names": {}})["names"].values())


def test_a_turn_with_tools() -> None:
    out = asked(
        user(text("hi")),
        assistant(text("well"), USE, {**USE, "id": "y"}),
        user(result("y"), result("x", isError=True)),
        tools=[TOOL],
    )

    function = {"name": "a_b", "arguments": '{"q":1}'}
    uses = [{"id": id, "type": "function", "function": function} for id in ("use000001", "use000002")]
    assert [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "well", "tool_calls": uses},
        {"role": "tool", "tool_call_id": "use000001", "content": "error: the tool failed\ndone"},
        {"role": "tool", "tool_call_id": "use000002", "content": "done"},
    ] == out["messages"]
    assert {"x", "y"} == set(out["offer"]["taken"])


def test_a_result_that_looks_like_an_image_stays_text() -> None:
    words = "data:image/png;base64,YQ=="
    out = asked(user(text("hi")), assistant(USE), user(result(content=[text(words)])))

    assert [text(words)] == out["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("meta", "handed"),
    [
        ({PROVIDER: {"thought_signature": "c2ln"}}, {"thought_signature": "c2ln"}),
        ({PROVIDER: {"thought_signature": "c2ln", "api_base": "http://evil"}}, {"thought_signature": "c2ln"}),
        ({PROVIDER: {"thought_signature": "x" * (MAX_SIGNATURE + 1)}}, None),
        ({PROVIDER: {"thought_signature": {"a": 1}}}, None),
        ({PROVIDER: {"thought_signature": "not one\n"}}, None),
        ({PROVIDER: "c2ln"}, None),
        ("c2ln", None),
        (None, None),
    ],
)
def test_what_a_provider_signed_goes_back_and_nothing_else_does(meta: object, handed: dict[str, str] | None) -> None:
    (use,) = asked(user(text("hi")), assistant({**USE, "_meta": meta}), user(result()))["messages"][1]["tool_calls"]

    assert handed == use.get("provider_specific_fields")
    assert "evil" not in json.dumps(use)


IMAGE = {"type": "image", "data": "YQ==", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ((user(text("hi")), assistant(USE)), "params.messages.1.content: a tool_use has no tool_result"),
        ((user(text("hi")), assistant(USE), user(text("well"))), "params.messages.2.content: only tool_result blocks"),
        (
            (user(text("hi")), assistant(USE), user(result(), text("well"))),
            "params.messages.2.content: only tool_result blocks",
        ),
        (
            (user(text("hi")), assistant(USE), user(result("other"))),
            "params.messages.2.content: tool_result blocks must match the 1 preceding tool_use blocks, one each",
        ),
        (
            (user(text("hi")), assistant(USE), user(result(), result())),
            "params.messages.2.content: tool_result blocks must match the 1 preceding",
        ),
        (
            (user(result()),),
            "params.messages.0.content: tool_result blocks must match the 0 preceding tool_use blocks, one each",
        ),
        (
            (user(text("hi")), assistant(USE, USE), user(result())),
            "params.messages.1.content: two tool_use blocks have the same id",
        ),
        (
            (user(text("hi")), assistant({**USE, "id": 5})),
            "params.messages.1.content.0: a tool_use needs an id and a name",
        ),
        (
            (user(text("hi")), assistant({**USE, "name": None})),
            "params.messages.1.content.0: a tool_use needs an id and a name",
        ),
        (
            (user(text("hi")), assistant({**USE, "input": [1]})),
            "params.messages.1.content.0.input: not an object",
        ),
        ((user(USE),), "params.messages.0.content.0: content of type 'tool_use'"),
        ((assistant(IMAGE),), "params.messages.0.content.0: image in an assistant message is not supported"),
        ((assistant({"type": "thing"}),), "params.messages.0.content.0: content of type 'thing'"),
        ((user(),), "params.messages.0.content: empty"),
    ],
)
def test_a_conversation_that_does_not_add_up_is_refused(messages: tuple[dict[str, Any], ...], what: str) -> None:
    with pytest.raises(UnsupportedRequest) as refused:
        asked(*messages, tools=[TOOL])
    assert what in str(refused.value)


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"tools": [{}]}, "params.tools: a tool has no name"),
        ({"tools": ["x"]}, "params.tools: a tool has no name"),
        ({"tools": {"name": "x"}}, "params.tools: a tool has no name"),
        ({"tools": [TOOL, TOOL]}, "params.tools: two tools have the same name"),
        (
            {"tools": [{"name": str(n)} for n in range(MAX_TOOLS + 1)]},
            "params.tools: 129 tools, more than the maximum of 128",
        ),
        ({"tools": [TOOL], "toolChoice": {"mode": "always"}}, "params.toolChoice.mode: not one of"),
        ({"toolChoice": {"mode": "required"}}, "params.toolChoice.mode: 'required' without tools"),
        (
            {"tools": [{"name": "x", "inputSchema": {"a": object()}}]},
            "params.tools.0.inputSchema: cannot be encoded as JSON",
        ),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(params: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedRequest) as refused:
        asked(**params)
    assert what in str(refused.value)
