"""The server of the review demo with a UI of its own: what it names to which client, and the UI itself."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from samplegate.demo.color_server import BANNER, HTML, LABEL, PICKER, REVISION, UI, ColorServer
from samplegate.protocol.elicitation_schema import Form, field_problems, read_form
from samplegate.protocol.rawjson import read
from samplegate.protocol.requests import UiRef, ui_of
from samplegate.protocol.ui_resources import ui_in

SHOWS: Final = {
    "elicitation": {"form": {}},
    "extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"], "elicitation": {}}},
}
ACCEPTED: Final = {"action": "accept", "content": {"color": "#3b82f6"}}


def asked(era: str, tool: str, client: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The params of the form in a call, and the result of the call after an answer."""
    server = ColorServer()
    call: dict[str, Any] = {"id": 7, "method": "tools/call", "params": {"name": tool}}
    if era == "legacy":
        hello = {"protocolVersion": "2025-11-25", "capabilities": client}
        list(server.message({"id": 1, "method": "initialize", "params": hello}))
        (form,) = server.message(call)
        (done,) = server.message({"id": form["id"], "result": ACCEPTED})
        return form["params"], done["result"]
    call["params"]["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": client,
    }
    (required,) = server.message(call)
    call["params"]["inputResponses"] = {"color": ACCEPTED}
    (done,) = server.message(call)
    return required["result"]["inputRequests"]["color"]["params"], done["result"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    ("tool", "client", "named"),
    [
        (BANNER, SHOWS, UiRef(PICKER, "sep-3118")),
        (BANNER, {"elicitation": {"form": {}}}, None),
        (LABEL, {"elicitation": {"form": {}}}, UiRef(PICKER, "rich", {"defaultColor": "#3b82f6"})),
    ],
)
def test_a_form_names_the_ui_to_a_client_that_may_show_it(
    era: str, tool: str, client: dict[str, Any], named: UiRef | None
) -> None:
    params, result = asked(era, tool, client)
    assert named == ui_of(params)
    assert ACCEPTED == result["structuredContent"]


@pytest.mark.parametrize(("color", "fits"), [("#3b82f6", True), ("#gggggg", False), ("3b82f6", False)])
def test_the_form_takes_colors_only(color: str, fits: bool) -> None:
    params, _ = asked("legacy", BANNER, SHOWS)
    form = read_form(params["requestedSchema"], "2025-11-25")
    assert isinstance(form, Form), form
    assert fits == (field_problems(form, {"color": color}) == {})


def test_the_ui_is_a_resource_that_the_gate_reads() -> None:
    (answer,) = ColorServer().message({"id": 2, "method": "resources/read", "params": {"uri": PICKER}})
    assert HTML.encode() == ui_in(read(json.dumps(answer["result"]).encode()), PICKER).body
