"""The npm reference server behind the gate. It offers its asking tools only to a client that declares the capabilities:
the gate does."""

from __future__ import annotations

import pytest

from tests.real.peers import Client, Gate, Server, call, drive

pytestmark = [
    pytest.mark.parametrize("client", ["python1", "typescript1", "typescript2-auto"], indirect=True),
    pytest.mark.parametrize("server", ["everything"], indirect=True),
]
SAMPLE = call("trigger-sampling-request", prompt="hello", maxTokens=50)
FORM = call("trigger-elicitation-request")
PAGE = call("trigger-url-elicitation", url="https://pay.example.com/x")
PAGE_ERROR = call("trigger-url-elicitation", url="https://pay.example.com/x", errorPath=True)


def test_its_sampling_tool_completes_for_a_client_that_declares_nothing(
    client: Client, server: Server, answers: Gate
) -> None:
    tools, sampled = drive(client, server, answers, [{"do": "tools"}, SAMPLE]).results
    assert "trigger-sampling-request" in tools
    assert False is sampled["error"]
    assert '"text": "from the policy"' in sampled["text"]


def test_its_form_of_thirteen_fields_completes_for_a_client_that_declares_nothing(
    client: Client, server: Server, answers: Gate
) -> None:
    (filled,) = drive(client, server, answers, [FORM]).results
    assert False is filled["error"]
    for part in [
        '"name": "policy"',
        '"check": true',
        '"integer": 42',
        '"untitledSingleSelectEnum": "Monica"',
        '"fish-1"',
        '"legacyTitledEnum": "pet-1"',
    ]:
        assert part in filled["text"]


def test_a_capable_client_answers_where_the_policy_forwards(client: Client, server: Server, forwards: Gate) -> None:
    declare = ["sampling", "elicitation", "url"]
    steps = [SAMPLE, FORM, PAGE]
    sampled, filled, opened = drive(
        client, server, forwards, steps, declare=declare, content={"name": "somebody", "check": True}
    ).results
    assert "from the client" in sampled["text"]
    assert "Name: somebody" in filled["text"]
    assert '"action": "accept"' in opened["text"]


def test_a_call_that_needs_a_page_first_fails_with_the_page_where_the_policy_forwards(
    client: Client, server: Server, forwards: Gate
) -> None:
    alone = drive(client, server, None, [PAGE_ERROR], declare=["elicitation", "url"]).results[0]["failed"]
    gated = drive(client, server, forwards, [PAGE_ERROR], declare=["elicitation", "url"]).results[0]["failed"]
    assert -32042 == gated["code"]
    assert without_id(alone) == without_id(gated)


def test_a_call_that_needs_a_page_first_fails_without_the_page_where_the_policy_denies(
    client: Client, server: Server, denies: Gate
) -> None:
    (result,) = drive(client, server, denies, [PAGE_ERROR], declare=["elicitation", "url"]).results
    assert "https://" not in str(result)


def test_it_is_offered_no_page_where_nobody_can_open_one(client: Client, server: Server, answers: Gate) -> None:
    (tools,) = drive(client, server, answers, [{"do": "tools"}]).results
    assert "trigger-url-elicitation" not in tools


def test_it_gets_the_roots_it_asks_for_by_itself(client: Client, server: Server, answers: Gate) -> None:
    seen = drive(client, server, answers, [call("get-roots-list")], declare=["roots"])
    assert "file:///srv/project" in seen.results[0]["text"]


def without_id(error: dict[str, object]) -> str:
    data = error["data"]
    assert isinstance(data, dict)
    return str([{**one, "elicitationId": "..."} for one in data["elicitations"]])
