"""Real clients of one protocol version with real servers of another: calls without requests to the client work in the
client's own version. test_capabilities.py and test_rounds.py have the requests to the client."""

from __future__ import annotations

import pytest

from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Drive, call, clients

SLOW = {"do": "cancel", "name": "slow", "arguments": {}}
STEPS = [
    call("add", a=1, b=2),
    {"do": "resource", "uri": "counterpart://greeting"},
    {"do": "tools"},
    call("count", to=3),
    call("cancelled"),
    SLOW,
    call("cancelled", more=True),
]
LEGACY = {"python1": "run", "python2-legacy": "serve", "typescript1": "serve", "typescript2-legacy": "run"}
MODERN = {"python2-auto": "run", "python2-pinned": "serve", "typescript2-auto": "serve", "typescript2-pinned": "run"}


@pytest.mark.parametrize(
    ("client", "server", "front", "behind"),
    [
        *((client, "sdk2-modern", front, "stdio" if front == "run" else "http") for client, front in LEGACY.items()),
        *((client, "sdk1", front, "http" if front == "run" else "stdio") for client, front in MODERN.items()),
    ],
)
def test_calls_lists_progress_and_cancellation_pass_in_the_clients_own_version(
    client: str, server: str, front: str, behind: str, *, places: Places, drive: Drive
) -> None:
    gated = places.gated(server, front=front, behind=behind, policy="answers")
    steps = STEPS if clients()[client].modern else [*STEPS, {"do": "ping"}]
    seen = drive(clients()[client], gated.server, None, steps)
    added, greeting, tools, counted, before, taken_back, after, *pong = seen.results
    assert {"error": False, "text": "3"} == added == counted, (seen.said, gated.said())
    assert "hello from a resource" == greeting
    assert {"add", "count", "slow"} <= set(tools)
    assert {"cancelled": True} == taken_back
    assert int(before["text"]) + 1 == int(after["text"])
    assert ["pong"] * (len(steps) - len(STEPS)) == pong
    # the TypeScript client 1 does not tell its version over stdio
    assert clients()[client].modern == ((seen.revision or "2025-11-25") >= "2026-07-28")
    assert clients()[client].modern or '"level": "warning"' not in seen.said
    told = [one for one in seen.progress if one[1] == 3]
    wanted = [[1, 3, "1 of 3"], [2, 3, "2 of 3"], [3, 3, "3 of 3"]]
    if client.startswith("typescript"):
        # It forgets a token with the answer, and so what it reads in one piece with it. An older client answers pings
        # in between; for a modern one the gate answers them, and all of it may come in one piece.
        wanted = wanted[: max(0 if clients()[client].modern else 1, len(told))]
    assert wanted == told
