"""Traffic through the gate arrives unchanged: one scenario with and without it, between real programs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Drive, Seen, call, clients, ended, started
from tests.fakes.pairwise import Row, pairwise

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
TAKEN_BACK = [call("cancelled"), {"do": "cancel", "name": "slow"}, call("cancelled", more=True)]
LARGE: Final = {"run": 4 * 1024 * 1024, "serve": 400 * 1024}
"""Characters, twice in the frame: the TypeScript client ends at 10 MiB, the Python SDK's HTTP client at 1 MiB."""


def comparison(client: str, server: str, front: str, behind: str, asked: bool) -> bool:
    """Whether the two can talk without the gate in the protocol version that they use with it."""
    if server == "sdk1":  # where the client need not answer itself, the gate brings it to 2026-07-28
        return "pinned" not in client and (asked or "auto" not in client)
    # this server may start more slowly than the gate waits to learn what it speaks
    return behind == "http" or "pinned" not in client


ROWS: Final = pairwise(
    {
        "client": list(clients()),
        "server": ["sdk1", "sdk2"],
        "front": ["serve", "run"],
        "behind": ["http", "stdio"],
        "asked": [True, False],
    },
    lambda row: comparison(**row),
)


def steps(row: Row) -> list[dict[str, Any]]:
    """The client's steps."""
    modern = clients()[row["client"]].modern and row["server"] == "sdk2"
    pings = [] if clients()[row["client"]].modern else [{"do": "ping"}]
    asking = [*ASKING, *(ROUNDS if modern else [])] if row["asked"] else []
    return [*PLAIN, *pings, *asking, *TAKEN_BACK]


def comparable(seen: Seen, row: Row) -> Seen:
    """The 2.3 server may send a call's last progress and log after its result, and which come in time is chance: only
    the first counts. TypeScript's client 1 does not tell the version over stdio. What a server counts grows."""
    *results, _before, taken_back, _after = seen.results
    others = [method for method in seen.notifications if method != "notifications/progress"]
    seen = replace(seen, results=[*results, taken_back], progress=seen.steps(), notifications=others)
    if row["client"] == "typescript1":
        seen = replace(seen, revision=None)
    if row["server"] != "sdk2":
        return seen
    return replace(seen, progress=[one for one in seen.progress if one[0] == 1], logs=[], notifications=[])


class Alone:
    """A client's report on a server without a gate, over HTTP. Each pair runs only once."""

    def __init__(self, places: Places, drive: Drive) -> None:
        self._places, self._drive = places, drive
        self._seen: dict[tuple[str, str, bool], Seen] = {}

    def __call__(self, row: Row, declare: Sequence[str]) -> Seen:
        meeting = (row["client"], row["server"], row["asked"])
        if meeting not in self._seen:
            server = self._places.server(row["server"])
            self._seen[meeting] = self._drive(clients()[row["client"]], server, None, steps(row), declare=declare)
        return self._seen[meeting]


@pytest.fixture(scope="module")
def alone(places: Places, drive: Drive) -> Alone:
    return Alone(places, drive)


@pytest.mark.parametrize("row", [pytest.param(row, id="-".join(map(str, row.values()))) for row in ROWS])
def test_a_client_sees_the_same_with_a_gate(row: Row, places: Places, drive: Drive, alone: Alone) -> None:
    """A client that can do everything that it is asked, or one that can do nothing and is asked nothing. A call that it
    cancels is cancelled at the server, and large results pass."""
    client, declare = clients()[row["client"]], CAPABLE if row["asked"] else []
    gated = places.gated(
        row["server"], front=row["front"], behind=row["behind"], policy="forwards" if row["asked"] else "answers"
    )
    gated.rules()
    large = call("large", size=LARGE[row["front"]])
    seen, bare = drive(client, gated.server, None, [*steps(row), large], declare=declare), alone(row, declare)
    assert {"error": False, "length": LARGE[row["front"]]} == seen.results.pop()
    assert comparable(bare, row) == comparable(seen, row), gated.said()
    assert row["asked"] == (bare.asked != []) == (gated.rules() != [])
    before, taken_back, after = seen.results[-3:]
    assert {"cancelled": True} == taken_back
    # a server over HTTP counts for all its sessions
    assert int(before["text"]) + 1 == int(after["text"]), (seen.said, gated.said())


@pytest.mark.parametrize("behind", ["http", "stdio"])
def test_clients_that_ask_at_the_same_time_do_not_meet(behind: str, places: Places) -> None:
    gated = places.gated("sdk1", front="serve", behind=behind, policy="forwards")
    both = {"steps": [call("both_at_once")] * 3, "declare": ["sampling", "elicitation"]}
    with ExitStack() as at_work:
        working = [
            at_work.enter_context(started(clients()[name], gated.server, None, **both))
            for name in ("python1", "typescript1")
        ]
        seen = [ended(process) for process in working]
    assert seen[0].results == seen[1].results, gated.said()
    assert [6, 6] == [len(one.asked) for one in seen]
