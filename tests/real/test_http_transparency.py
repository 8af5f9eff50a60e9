"""What goes through a gate over HTTP arrives as if there were none: one scenario, run with and without it, between real
programs."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import cycle

import pytest

from tests.real.http_peers import Places
from tests.real.peers import Client, call, clients, drive, ended, started
from tests.real.test_transparency import ASKING, CAPABLE, FEW, PAIRS, PLAIN, ROUNDS, comparable

MEETINGS = [
    *(pytest.param(client, server, "http", id=f"{client}-{server}-http") for client, server in PAIRS),
    *(pytest.param(client, server, "stdio", id=f"{client}-{server}-stdio") for client, server in FEW),
]
EACH = [
    pytest.param(client, server, kind, id=f"{client}-{server}-{kind}")
    for (client, server), kind in zip(FEW, cycle(("http", "stdio")), strict=False)
]
FEW_BOTH = [
    pytest.param(client, server, kind, id=f"{client}-{server}-{kind}")
    for client, server in FEW
    for kind in ("http", "stdio")
]


def steps(client: Client, server: str) -> list[dict[str, object]]:
    return [*PLAIN, *ASKING, *(ROUNDS if client.modern and server == "sdk2" else [])]


@pytest.mark.parametrize(("client", "server", "kind"), MEETINGS, indirect=["client"])
def test_a_capable_client_sees_the_same_with_a_gate_that_forwards(
    client: Client, server: str, kind: str, places: Places
) -> None:
    alone = drive(client, places.server(server), None, steps(client, server), declare=CAPABLE)
    gate = places.gate(server, kind, "forwards")
    gated = drive(client, gate.server, None, steps(client, server), declare=CAPABLE)
    assert comparable(alone, gate.server) == comparable(gated, gate.server), gate.program.said()
    assert [] != alone.asked


@pytest.mark.parametrize(("client", "server", "kind"), EACH, indirect=["client"])
def test_a_client_that_is_never_asked_sees_the_same(client: Client, server: str, kind: str, places: Places) -> None:
    alone = drive(client, places.server(server), None, PLAIN)
    gate = places.gate(server, kind, "answers")
    gate.rules()
    gated = drive(client, gate.server, None, PLAIN)
    assert comparable(alone, gate.server) == comparable(gated, gate.server), gate.program.said()
    assert [] == gate.rules()


@pytest.mark.parametrize(("client", "server", "kind"), FEW_BOTH, indirect=["client"])
def test_a_call_taken_back_is_cancelled_at_the_server_and_the_session_goes_on(
    client: Client, server: str, kind: str, places: Places
) -> None:
    gate = places.gate(server, kind, "answers")
    steps = [call("cancelled"), {"do": "cancel", "name": "slow"}, call("cancelled", more=True), call("add", a=1, b=2)]
    before, taken_back, after, sum_ = drive(client, gate.server, None, steps).results
    assert {"cancelled": True} == taken_back
    # a server over HTTP counts for all its sessions
    assert int(before["text"]) + 1 == int(after["text"]), gate.program.said()
    assert {"error": False, "text": "3"} == sum_


@pytest.mark.parametrize(("client", "server", "kind"), EACH, indirect=["client"])
def test_a_result_of_several_hundred_kibibytes_passes(client: Client, server: str, kind: str, places: Places) -> None:
    size = 400 * 1024  # twice in the frame; the Python SDK's HTTP client ends at events of 1 MiB
    gate = places.gate(server, kind, "answers")
    assert [{"error": False, "length": size}] == drive(client, gate.server, None, [call("large", size=size)]).results, (
        gate.program.said()
    )


@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_clients_that_ask_at_the_same_time_do_not_meet(kind: str, places: Places) -> None:
    gate = places.gate("sdk1", kind, "forwards")
    both = {"steps": [call("both_at_once")] * 3, "declare": ["sampling", "elicitation"]}
    with ExitStack() as at_work:
        working = [
            at_work.enter_context(started(clients()[name], gate.server, None, **both))
            for name in ("python1", "typescript1")
        ]
        seen = [ended(process) for process in working]
    assert seen[0].results == seen[1].results, gate.program.said()
    assert [6, 6] == [len(one.asked) for one in seen]
