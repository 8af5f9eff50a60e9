"""Real clients of 2026-07-28 before real servers that know only the handshake: the gate opens the server, answers what
it asks, and translates."""

from __future__ import annotations

import pytest

from tests.real.peers import Client, Gate, Server, call, drive
from tests.real.test_capabilities import failed

POLICY_SAMPLE = "samplegate/sampling is answered|endTurn|from the policy"
POLICY_FORM = "accept|True|from the policy"

pytestmark = pytest.mark.parametrize(
    "client", ["python2-auto", "python2-pinned", "typescript2-auto", "typescript2-pinned"], indirect=True
)
sdk1 = pytest.mark.parametrize("server", ["sdk1"], indirect=True)
everything = pytest.mark.parametrize("server", ["everything"], indirect=True)


def said(text: str) -> dict[str, object]:
    return {"error": False, "text": text}


@sdk1
def test_a_call_a_resource_and_a_list_pass_in_the_clients_own_era(
    client: Client, server: Server, answers: Gate
) -> None:
    steps = [call("add", a=1, b=2), {"do": "resource", "uri": "counterpart://greeting"}, {"do": "tools"}]
    seen = drive(client, server, answers, steps)
    assert [said("3"), "hello from a resource"] == seen.results[:2]
    assert "add" in seen.results[2]
    assert "2026-07-28" == seen.revision


@sdk1
def test_what_the_server_asks_is_answered_by_the_policy(client: Client, server: Server, answers: Gate) -> None:
    seen = drive(client, server, answers, [call("classify", text="x"), call("confirm")])
    assert [said(POLICY_SAMPLE), said(POLICY_FORM)] == seen.results
    assert [] == seen.asked
    assert 2 == len(answers.records())


STEPS = [call("classify", text="x"), call("confirm"), call("add", a=1, b=2)]


@sdk1
def test_what_only_the_client_could_answer_is_refused_and_the_next_call_goes_on(
    client: Client, server: Server, forwards: Gate
) -> None:
    """Unless it asks what the server speaks: then it is told, and begins again in that era, if it knows that."""
    if client.name == "typescript2-pinned":
        with pytest.raises(AssertionError, match="did not offer pinned protocol version"):
            drive(client, server, forwards, STEPS, declare=["sampling", "elicitation"])
        return
    seen = drive(client, server, forwards, STEPS, declare=["sampling", "elicitation"])
    begins_again = client.mode == "auto"
    assert [not begins_again] * 2 == [failed(one) for one in seen.results[:2]]
    assert said("3") == seen.results[2]
    assert 2 * begins_again == len(seen.asked)
    assert ("2025-11-25" if begins_again else "2026-07-28") == seen.revision


@sdk1
def test_progress_logs_and_cancellation_pass(client: Client, server: Server, answers: Gate) -> None:
    slow = {"do": "cancel", "name": "slow", "arguments": {}}
    seen = drive(client, server, answers, [call("count", to=3), slow, call("cancelled")])
    told = [one for one in seen.progress if one[1] == 3]
    wanted = [[1, 3, "1 of 3"], [2, 3, "2 of 3"], [3, 3, "3 of 3"]]
    # it forgets a token with the answer, and so what it reads in one piece with it
    if client.name.startswith("typescript"):
        wanted = wanted[: max(1, len(told))]
    assert wanted == told
    assert said("1") == seen.results[-1]


@everything
def test_a_server_of_another_make_asks_and_is_answered(client: Client, server: Server, answers: Gate) -> None:
    steps = [call("echo", message="hi"), call("trigger-sampling-request", prompt="x", maxTokens=10), {"do": "tools"}]
    seen = drive(client, server, answers, steps)
    assert said("Echo: hi") == seen.results[0]
    assert "from the policy" in seen.results[1]["text"]
    assert "trigger-elicitation-request" in seen.results[2]
