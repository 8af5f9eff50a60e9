"""The four pairs of eras, over HTTP and over `samplegate run`: sampling and forms answered by policy, forwarded, and
denied."""

from __future__ import annotations

import pytest

from tests.real.http_peers import Places
from tests.real.peers import Client, Seen, Server, call, clients, drive
from tests.real.test_capabilities import BOTH, BY_CLIENT, BY_POLICY, failed

KINDS = ("http", "stdio")
ACROSS = ("legacy-modern", "modern-legacy")
# Clients that open the era they are said to, and servers that speak it: sdk1 nothing newer, sdk2-modern nothing older.
# One client for each kind.
ERAS = {
    "legacy-legacy": ("python1", "typescript1", "sdk1"),
    "modern-modern": ("typescript2-pinned", "python2-pinned", "sdk2-modern"),
    "legacy-modern": ("python1", "typescript2-legacy", "sdk2-modern"),
    "modern-legacy": ("python2-pinned", "typescript2-pinned", "sdk1"),
}
SERVED = [
    pytest.param(names[n], names[2], "serve", kind, id=f"{eras}-serve-{kind}")
    for eras, names in ERAS.items()
    for n, kind in enumerate(KINDS)
]
RUN = [
    *(pytest.param(names[0], names[2], "run", "http", id=f"{eras}-run-http") for eras, names in ERAS.items()),
    *(
        pytest.param(names[1], names[2], "run", "stdio", id=f"{eras}-run-stdio")
        for eras, names in ERAS.items()
        if eras in ACROSS
    ),
]
each = pytest.mark.parametrize(("client", "server", "front", "kind"), [*SERVED, *RUN], indirect=["client"])
served = pytest.mark.parametrize(("client", "server", "front", "kind"), SERVED, indirect=["client"])
STEPS = [*BOTH, call("add", a=1, b=2)]
SUM = {"error": False, "text": "3"}
CAPABLE = ["sampling", "elicitation"]


def gated(places: Places, server: str, front: str, kind: str, policy: str) -> Server:
    return places.gate(server, kind, policy).server if front == "serve" else places.run(server, kind, policy)


def seen(client: Client, gate: Server, declare: list[str]) -> Seen:
    found = drive(client, gate, None, STEPS, declare=declare)
    assert client.modern == ((found.revision or "2025-11-25") >= "2026-07-28")
    return found


@each
def test_a_policy_that_answers_answers_a_client_that_can_neither(
    client: Client, server: str, front: str, kind: str, places: Places
) -> None:
    found = seen(client, gated(places, server, front, kind, "answers"), [])
    assert [*BY_POLICY, SUM] == found.results, found.said
    assert [] == found.asked


@each
def test_a_policy_that_forwards_asks_a_client_that_can(
    client: Client, server: str, front: str, kind: str, places: Places
) -> None:
    # it asks what the server speaks, is told, and knows no other era
    if client.name == "typescript2-pinned" and server == "sdk1":
        with pytest.raises(AssertionError, match="did not offer pinned protocol version"):
            seen(client, gated(places, server, front, kind, "forwards"), CAPABLE)
        return
    found = seen(client, gated(places, server, front, kind, "forwards"), CAPABLE)
    # nobody could bring the answer back to a call that waits: refused, and the session goes on
    if client.modern and server == "sdk1":
        assert [True, True, False] == [failed(result) for result in found.results], found.said
        assert [] == found.asked
    else:
        assert [*BY_CLIENT, SUM] == found.results, found.said
        assert ["elicitation", "sampling"] == found.kinds()


@served
def test_a_policy_that_denies_ends_the_call_and_not_the_session(
    client: Client, server: str, front: str, kind: str, places: Places
) -> None:
    found = seen(client, gated(places, server, front, kind, "denies"), CAPABLE)
    assert failed(found.results[0])
    assert failed(found.results[1]) or {"error": False, "text": "decline"} == found.results[1]
    assert SUM == found.results[2]
    assert [] == found.asked


@served
def test_a_policy_that_forwards_asks_no_client_that_cannot(
    client: Client, server: str, front: str, kind: str, places: Places
) -> None:
    found = seen(client, gated(places, server, front, kind, "forwards"), [])
    assert [True, True, False] == [failed(result) for result in found.results], found.said
    assert [] == found.asked


def test_every_decision_is_recorded_once_whatever_the_eras(places: Places) -> None:
    for http, _, server in ERAS.values():
        gate = places.gate(server, "http", "answers")
        gate.rules()
        drive(clients()[http], gate.server, None, BOTH)
        assert ["sampling is answered", "forms are answered"] == gate.rules(), f"{http} and {server}"
