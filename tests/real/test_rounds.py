"""2026-07-28: `input_required` rounds of a real server, answered by the gate, by the client, or by both; for real
clients of that era."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real.peers import Client, Gate, Server, call, drive
from tests.real.test_capabilities import failed

POLICY_SAMPLE = "samplegate/sampling is answered|endTurn|from the policy"
POLICY_FORM = "accept|True|from the policy"
CLIENT_SAMPLE = "client-model|endTurn|from the client"
CLIENT_FORM = "accept|True|from the client"

pytestmark = [
    # both SDKs, both ways to open the era
    pytest.mark.parametrize("client", ["python2-auto", "typescript2-pinned"], indirect=True),
    pytest.mark.parametrize("server", ["sdk2"], indirect=True),
]


def said(text: str) -> dict[str, object]:
    return {"error": False, "text": text}


def test_a_round_of_two_questions_is_answered_for_a_client_that_can_neither(
    client: Client, server: Server, answers: Gate
) -> None:
    seen = drive(client, server, answers, [call("review", subject="x")])
    assert [said(f"{POLICY_SAMPLE} & {POLICY_FORM} & state of review")] == seen.results
    assert [[], []] == [seen.asked, seen.progress]


def test_round_after_round_is_answered_and_the_servers_state_comes_back_as_it_was(
    client: Client, server: Server, answers: Gate
) -> None:
    seen = drive(client, server, answers, [call("steps", count=6)])
    assert [said(";".join([POLICY_SAMPLE, POLICY_FORM] * 3))] == seen.results
    assert 6 == len(answers.records())


def test_a_server_that_only_says_come_back_is_asked_again_by_the_gate(
    client: Client, server: Server, answers: Gate
) -> None:
    seen = drive(client, server, answers, [call("comes_back", times=3)])
    assert [said("came back 3 times")] == seen.results
    assert [] == seen.progress  # a client that drives rounds itself reports them


def test_a_server_that_asks_without_end_is_stopped(client: Client, server: Server, answers: Gate) -> None:
    seen = drive(client, server, answers, [call("steps", count=1000), call("add", a=1, b=2)])
    assert failed(seen.results[0])
    assert said("3") == seen.results[1]


def test_resources_and_prompts_may_ask_too(client: Client, server: Server, answers: Gate) -> None:
    resource = {"do": "resource", "uri": "counterpart://asking/x"}
    steps: list[dict[str, Any]] = [resource, {"do": "prompt", "name": "haiku", "arguments": {"about": "x"}}]
    assert [POLICY_SAMPLE, f"Write a haiku about x ({POLICY_FORM})"] == drive(client, server, answers, steps).results


def test_of_a_mixed_round_the_client_sees_only_what_is_its_own(client: Client, server: Server, mixed: Gate) -> None:
    seen = drive(client, server, mixed, [call("review", subject="x")], declare=["sampling", "elicitation"])
    assert [said(f"{POLICY_SAMPLE} & {CLIENT_FORM} & state of review")] == seen.results
    assert ["elicitation"] == seen.kinds()


def test_mixed_rounds_follow_one_another(client: Client, server: Server, mixed: Gate) -> None:
    seen = drive(client, server, mixed, [call("steps", count=6)], declare=["elicitation"])
    assert [said(";".join([POLICY_SAMPLE, CLIENT_FORM] * 3))] == seen.results
    assert ["elicitation"] * 3 == seen.kinds()


def test_roots_go_to_the_client_and_the_sampling_beside_them_does_not(
    client: Client, server: Server, mixed: Gate
) -> None:
    seen = drive(client, server, mixed, [call("roots")], declare=["roots"])
    assert [said(f"file:///srv/project & {POLICY_SAMPLE}")] == seen.results
    assert ["roots"] == seen.kinds()


def test_a_page_is_opened_by_the_client_only(client: Client, server: Server, mixed: Gate) -> None:
    seen = drive(client, server, mixed, [call("open_link")], declare=["elicitation", "url"])
    if client.name.startswith("python"):  # 2.3 declares both modes with its one callback
        assert [said("accept")] == seen.results
    assert ["https://login.example.com/start?x=1"] == [one["params"]["url"] for one in seen.asked]


def test_a_page_that_no_client_can_open_is_never_accepted(client: Client, server: Server, answers: Gate) -> None:
    seen = drive(client, server, answers, [call("open_link"), call("add", a=1, b=2)])
    assert failed(seen.results[0]) or said("cancel") == seen.results[0]
    assert said("3") == seen.results[1]


def test_one_denied_half_ends_the_call_before_the_other_is_asked(client: Client, server: Server, denies: Gate) -> None:
    seen = drive(
        client,
        server,
        denies,
        [call("review", subject="x"), call("add", a=1, b=2)],
        declare=["sampling", "elicitation"],
    )
    assert failed(seen.results[0])
    assert said("3") == seen.results[1]
    assert [] == seen.asked


def test_the_server_sees_what_the_policy_can_do_and_not_what_the_client_cannot(
    client: Client, server: Server, answers: Gate
) -> None:
    (result,) = drive(client, server, answers, [call("declared")]).results
    assert '"sampling"' in result["text"]
    assert '"form"' in result["text"]
    assert '"url"' not in result["text"]
