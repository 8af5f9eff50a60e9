"""What goes through the gate arrives as if there were none: one scenario, run with and without it, between real
programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.real.peers import Client, Gate, Seen, Server, call, drive

CAPABLE = ["sampling", "elicitation", "url", "roots"]
PLAIN = [
    {"do": "tools"},
    call("add", a=1, b=2),
    {"do": "resource", "uri": "counterpart://greeting"},
    call("count", to=3),
    call("nothing_of_that_name"),
]
ASKING = [
    call("classify", text="a text"),
    call("confirm"),
    {"do": "prompt", "name": "haiku", "arguments": {"about": "gates"}},
    call("open_link"),
    call("roots"),
    call("add", a=1, b=2),
]
ROUNDS = [
    call("review", subject="a subject"),
    call("steps", count=5),
    {"do": "resource", "uri": "counterpart://asking/something"},
]

LEGACY = ["python1", "python2-legacy", "typescript1", "typescript2-legacy"]
MODERN = ["python2-auto", "python2-pinned", "typescript2-auto", "typescript2-pinned"]
PAIRS = [
    *[(client, "sdk1") for client in [*LEGACY, "python2-auto", "typescript2-auto"]],
    *[(client, "sdk2") for client in [*LEGACY, *MODERN]],
]
# Each client, server and era at least once, for what does not hang on who meets whom: every meeting takes two seconds.
FEW = [
    ("python1", "sdk1"),
    ("python2-legacy", "sdk2"),
    ("python2-auto", "sdk2"),
    ("typescript1", "sdk1"),
    ("typescript2-auto", "sdk2"),
]


def comparable(seen: Seen, server: Server) -> Seen:
    """The 2.3 server may send a call's last progress and log after its result, and which come in time is chance: only
    the first counts."""
    if server.name != "sdk2":
        return seen
    return replace(seen, progress=[one for one in seen.progress if one[0] == 1], logs=[], notifications=[])


@pytest.mark.parametrize(("client", "server"), PAIRS, indirect=True)
def test_a_capable_client_sees_the_same_with_a_gate_that_forwards(
    client: Client, server: Server, forwards: Gate
) -> None:
    steps = [*PLAIN, *ASKING, *(ROUNDS if client.modern and server.name == "sdk2" else [])]
    alone = drive(client, server, None, steps, declare=CAPABLE)
    gated = drive(client, server, forwards, steps, declare=CAPABLE)
    assert comparable(alone, server) == comparable(gated, server)
    assert [] != alone.asked


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_client_that_is_never_asked_sees_the_same(client: Client, server: Server, answers: Gate) -> None:
    alone = drive(client, server, None, PLAIN)
    gated = drive(client, server, answers, PLAIN)
    assert comparable(alone, server) == comparable(gated, server)
    assert [] == answers.records()


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_result_of_several_mebibytes_passes(client: Client, server: Server, answers: Gate) -> None:
    size = 4 * 1024 * 1024  # twice in the frame; the TypeScript client ends at 10 MiB
    assert [{"error": False, "length": size}] == drive(client, server, answers, [call("large", size=size)]).results


@pytest.mark.parametrize("client", LEGACY, indirect=True)
@pytest.mark.parametrize("server", ["sdk1"], indirect=True)
def test_ping_is_answered_through_the_gate(client: Client, server: Server, answers: Gate) -> None:
    assert ["pong"] == drive(client, server, answers, [{"do": "ping"}]).results


@pytest.mark.parametrize(("client", "server"), FEW, indirect=True)
def test_a_call_taken_back_is_cancelled_at_the_server_and_the_session_goes_on(
    client: Client, server: Server, answers: Gate
) -> None:
    seen = drive(client, server, answers, [{"do": "cancel", "name": "slow"}, call("cancelled"), call("add", a=1, b=2)])
    assert [{"cancelled": True}, {"error": False, "text": "1"}, {"error": False, "text": "3"}] == seen.results
