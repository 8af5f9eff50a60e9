"""Real legacy clients before a real server that speaks 2026-07-28 alone: the gate answers, hands on and translates."""

from __future__ import annotations

import sys

import pytest

from tests.real.peers import PROGRAMS, Client, Gate, Server, call, drive, servers
from tests.real.test_capabilities import failed

POLICY_SAMPLE = "samplegate/sampling is answered|endTurn|from the policy"
POLICY_FORM = "accept|True|from the policy"
CLIENT_SAMPLE = "client-model|endTurn|from the client"
CLIENT_FORM = "accept|True|from the client"

pytestmark = pytest.mark.parametrize(
    "client", ["python1", "python2-legacy", "typescript1", "typescript2-legacy"], indirect=True
)


@pytest.fixture
def modern() -> Server:
    """A server that refuses `initialize`."""
    return Server("modern-only", (sys.executable, str(PROGRAMS / "modern_only.py"), *servers()["sdk2"].words))


def said(text: str) -> dict[str, object]:
    return {"error": False, "text": text}


def test_a_call_a_resource_and_a_list_pass(client: Client, modern: Server, answers: Gate) -> None:
    seen = drive(
        client,
        modern,
        answers,
        [call("add", a=1, b=2), {"do": "resource", "uri": "counterpart://greeting"}, {"do": "ping"}],
    )
    assert [said("3"), "hello from a resource"] == seen.results[:2]
    assert seen.revision is None or seen.revision < "2026"  # the TypeScript SDK 1 does not tell
    assert '"level": "warning"' not in seen.said


def test_rounds_are_answered_for_a_client_that_can_nothing(client: Client, modern: Server, answers: Gate) -> None:
    seen = drive(
        client, modern, answers, [call("review", subject="x"), call("steps", count=4), call("comes_back", times=2)]
    )
    assert [
        said(f"{POLICY_SAMPLE} & {POLICY_FORM} & state of review"),
        said(";".join([POLICY_SAMPLE, POLICY_FORM] * 2)),
        said("came back 2 times"),
    ] == seen.results
    assert [] == seen.asked


def test_what_the_client_must_answer_is_asked_in_its_own_era(client: Client, modern: Server, forwards: Gate) -> None:
    seen = drive(
        client,
        modern,
        forwards,
        [call("review", subject="x"), call("steps", count=4)],
        declare=["sampling", "elicitation"],
    )
    assert [
        said(f"{CLIENT_SAMPLE} & {CLIENT_FORM} & state of review"),
        said(";".join([CLIENT_SAMPLE, CLIENT_FORM] * 2)),
    ] == seen.results
    assert ["elicitation"] * 3 + ["sampling"] * 3 == seen.kinds()


def test_a_mixed_round_asks_the_client_only_what_is_its_own(client: Client, modern: Server, mixed: Gate) -> None:
    seen = drive(client, modern, mixed, [call("review", subject="x"), call("roots")], declare=["elicitation", "roots"])
    assert said(f"{POLICY_SAMPLE} & {CLIENT_FORM} & state of review") == seen.results[0]
    assert ["elicitation", "roots"] == seen.kinds()


def test_a_page_to_open_is_the_clients(client: Client, modern: Server, forwards: Gate) -> None:
    seen = drive(client, modern, forwards, [call("open_link")], declare=["elicitation", "url"])
    assert [said("accept")] == seen.results
    assert "elicitationId" in seen.asked[0]["params"]


def test_a_client_that_refuses_ends_its_call_and_no_other(client: Client, modern: Server, forwards: Gate) -> None:
    seen = drive(
        client, modern, forwards, [call("steps", count=1), call("add", a=1, b=2)], declare=["sampling"], refuse=True
    )
    assert failed(seen.results[0])
    assert said("3") == seen.results[1]


def test_progress_and_cancellation_pass(client: Client, modern: Server, answers: Gate) -> None:
    slow = {"do": "cancel", "name": "slow", "arguments": {}}
    seen = drive(client, modern, answers, [call("count", to=3), slow, call("cancelled")])
    assert [[1, 3, "1 of 3"], [2, 3, "2 of 3"], [3, 3, "3 of 3"]] == seen.progress[:3]
    assert said("1") == seen.results[-1]
