"""The four situations: a client that can and one that cannot, under a policy that answers and one that forwards;
between real programs."""

from __future__ import annotations

import pytest

from tests.real.peers import Client, Gate, Server, call, drive
from tests.real.test_transparency import FEW, LEGACY, PAIRS

BOTH = [call("classify", text="a text"), call("confirm")]
BY_POLICY = [
    {"error": False, "text": "samplegate/sampling is answered|endTurn|from the policy"},
    {"error": False, "text": "accept|True|from the policy"},
]
BY_CLIENT = [
    {"error": False, "text": "client-model|endTurn|from the client"},
    {"error": False, "text": "accept|True|from the client"},
]


@pytest.mark.parametrize(
    ("client", "server", "declare"),
    [*(pytest.param(*pair, [], id=f"cannot-{'-'.join(pair)}") for pair in PAIRS)]
    + [pytest.param(*pair, ["sampling", "elicitation"], id=f"can-{'-'.join(pair)}") for pair in FEW],
    indirect=["client", "server"],
)
def test_a_policy_that_answers_asks_no_client(
    client: Client, server: Server, answers: Gate, declare: list[str]
) -> None:
    seen = drive(client, server, answers, BOTH, declare=declare)
    assert BY_POLICY == seen.results
    assert [] == seen.asked
    assert ["sampling is answered", "forms are answered"] == [record["rule"] for record in answers.records()]


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_policy_that_forwards_asks_a_client_that_can(client: Client, server: Server, forwards: Gate) -> None:
    seen = drive(client, server, forwards, BOTH, declare=["sampling", "elicitation"])
    assert BY_CLIENT == seen.results
    assert ["elicitation", "sampling"] == seen.kinds()


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_policy_that_forwards_offers_nothing_for_a_client_that_cannot(
    client: Client, server: Server, forwards: Gate
) -> None:
    alone = drive(client, server, None, [*BOTH, call("add", a=1, b=2)])
    gated = drive(client, server, forwards, [*BOTH, call("add", a=1, b=2)])
    assert [True, True, False] == [failed(result) for result in gated.results]
    assert [failed(result) for result in alone.results] == [failed(result) for result in gated.results]
    assert [] == gated.asked


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_client_that_can_sample_only_is_asked_for_nothing_else(
    client: Client, server: Server, forwards: Gate
) -> None:
    seen = drive(client, server, forwards, BOTH, declare=["sampling"])
    assert BY_CLIENT[0] == seen.results[0]
    assert failed(seen.results[1])
    assert ["sampling"] == seen.kinds()


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_each_half_goes_where_the_policy_says(client: Client, server: Server, mixed: Gate) -> None:
    seen = drive(client, server, mixed, BOTH, declare=["sampling", "elicitation"])
    assert [BY_POLICY[0], BY_CLIENT[1]] == seen.results
    assert ["elicitation"] == seen.kinds()


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_policy_that_denies_ends_the_call_and_not_the_session(client: Client, server: Server, denies: Gate) -> None:
    seen = drive(client, server, denies, [*BOTH, call("add", a=1, b=2)], declare=["sampling", "elicitation"])
    assert failed(seen.results[0])
    assert failed(seen.results[1]) or {"error": False, "text": "decline"} == seen.results[1]
    assert {"error": False, "text": "3"} == seen.results[2]
    assert [] == seen.asked


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_client_that_refuses_is_believed(client: Client, server: Server, forwards: Gate) -> None:
    alone = drive(client, server, None, BOTH, declare=["sampling", "elicitation"], refuse=True)
    gated = drive(client, server, forwards, BOTH, declare=["sampling", "elicitation"], refuse=True)
    assert alone.results == gated.results


@pytest.mark.parametrize("client", LEGACY, indirect=True)
@pytest.mark.parametrize("server", ["sdk1"], indirect=True)
@pytest.mark.parametrize("policy", ["answers", "forwards", "mixed"])
def test_a_model_and_a_person_can_be_asked_at_the_same_time(
    client: Client, server: Server, policy: str, request: pytest.FixtureRequest
) -> None:
    gate: Gate = request.getfixturevalue(policy)
    seen = drive(client, server, gate, [call("both_at_once")], declare=["sampling", "elicitation"])
    model = BY_CLIENT[0] if policy == "forwards" else BY_POLICY[0]
    person = BY_POLICY[1] if policy == "answers" else BY_CLIENT[1]
    assert [{"error": False, "text": f"{model['text']} & {person['text']}"}] == seen.results


def failed(result: dict[str, object]) -> bool:
    return "failed" in result or result.get("error") is True
