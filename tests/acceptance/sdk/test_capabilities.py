"""Requests of servers under policies that answer, forward, mix and deny, for clients that can answer, cannot or refuse:
real programs in every pair of protocol versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.acceptance.sdk.http_peers import SERVED, Places
from tests.acceptance.sdk.peers import Drive, call, clients
from tests.fakes.pairwise import Row, pairwise

STEPS: Final = [call("classify", text="a text"), call("confirm"), call("add", a=1, b=2)]
BY_POLICY: Final[list[dict[str, object]]] = [
    {"error": False, "text": "samplegate/sampling is answered|endTurn|from the policy"},
    {"error": False, "text": "accept|True|from the policy"},
]
BY_CLIENT: Final[list[dict[str, object]]] = [
    {"error": False, "text": "client-model|endTurn|from the client"},
    {"error": False, "text": "accept|True|from the client"},
]
NOT = "fails or is declined"
SUM = {"error": False, "text": "3"}
ABLE: Final[dict[str, dict[str, Any]]] = {
    "nothing": {"declare": []},
    "sampling": {"declare": ["sampling"]},
    "both": {"declare": ["sampling", "elicitation"]},
    "refuses": {"declare": ["sampling", "elicitation"], "refuse": True},
}
# What becomes of sampling and of a form, and what the client is asked.
DECIDED: Final[dict[tuple[str, str], tuple[Sequence[object], list[str]]]] = {
    **{("answers", able): (BY_POLICY, []) for able in ABLE},
    **{("denies", able): ([NOT, NOT], []) for able in ABLE},
    ("forwards", "nothing"): ([NOT, NOT], []),
    ("forwards", "sampling"): ([BY_CLIENT[0], NOT], ["sampling"]),
    ("forwards", "both"): (BY_CLIENT, ["elicitation", "sampling"]),
    ("forwards", "refuses"): ([NOT, NOT], ["elicitation", "sampling"]),
    ("mixed", "nothing"): ([BY_POLICY[0], NOT], []),
    ("mixed", "sampling"): ([BY_POLICY[0], NOT], []),
    ("mixed", "both"): ([BY_POLICY[0], BY_CLIENT[1]], ["elicitation"]),
    ("mixed", "refuses"): ([BY_POLICY[0], NOT], ["elicitation"]),
}
DIMENSIONS: Final = {
    "client": list(clients()),
    "server": [
        "sdk1",
        "sdk2",
        "sdk2-modern",
    ],  # sdk1 speaks nothing newer than the handshake, sdk2-modern nothing older
    "front": ["serve", "run"],
    "behind": ["http", "stdio"],
    "policy": SERVED,
    "able": list(ABLE),
}


def begins_anew(row: Row) -> bool:
    """A client would have to answer in a protocol version that it did not open: see the next tests."""
    return (
        row["client"].endswith("-pinned") and row["server"] == "sdk1" and DECIDED[row["policy"], row["able"]][1] != []
    )


def slow_to_start(row: Row) -> bool:
    """The gate does not know that this server is modern, and it may start more slowly than the gate waits."""
    return row["client"].endswith("-pinned") and (row["server"], row["behind"]) == ("sdk2", "stdio")


def failed(result: dict[str, object]) -> bool:
    return "failed" in result or result.get("error") is True


def outcome(result: dict[str, object]) -> object:
    return NOT if failed(result) or result["text"] == "decline" else result


ROWS: Final = pairwise(
    DIMENSIONS,
    lambda row: not begins_anew(row) and not slow_to_start(row),
    also=lambda row: (clients()[row["client"]].modern, row["server"], row["policy"]),
)


@pytest.mark.parametrize("row", [pytest.param(row, id="-".join(row.values())) for row in ROWS])
def test_the_policy_and_then_the_client_decides_who_answers(row: Row, places: Places, drive: Drive) -> None:
    client = clients()[row["client"]]
    gated = places.gated(row["server"], front=row["front"], behind=row["behind"], policy=row["policy"])
    gated.rules()
    seen = drive(client, gated.server, None, STEPS, **ABLE[row["able"]])
    expected, asked = DECIDED[row["policy"], row["able"]]
    assert [*expected, SUM] == [outcome(result) for result in seen.results], (seen.said, gated.said())
    assert asked == seen.kinds()
    if row["policy"] == "answers":
        assert ["sampling is answered", "forms are answered"] == gated.rules()
    if client.mode != "auto":  # which takes what a server that starts slowly is taken for
        assert client.modern == ((seen.revision or "2025-11-25") >= "2026-07-28")


@pytest.mark.parametrize("able", ["sampling", "both", "refuses"])
def test_a_client_of_one_version_is_not_asked_by_a_server_of_the_other(able: str, places: Places, drive: Drive) -> None:
    """The answer could not get back to the waiting call, so the request is refused, and the session continues."""
    gated = places.gated("sdk1", front="serve", behind="http", policy="forwards")
    seen = drive(clients()["python2-pinned"], gated.server, None, STEPS, **ABLE[able])
    assert [NOT, NOT, SUM] == [outcome(result) for result in seen.results], gated.said()
    assert ([], "2026-07-28") == (seen.asked, seen.revision)


@pytest.mark.parametrize("front", ["serve", "run"])
def test_a_client_that_asks_first_what_the_server_speaks_is_told(front: str, places: Places, drive: Drive) -> None:
    """A client that also knows the older versions starts again in one of them: the table above has it."""
    gated = places.gated("sdk1", front=front, behind="http", policy="forwards")
    with pytest.raises(AssertionError, match="did not offer pinned protocol version"):
        drive(clients()["typescript2-pinned"], gated.server, None, STEPS, **ABLE["both"])


@pytest.mark.parametrize(("client", "front", "behind"), [("python1", "serve", "http"), ("typescript1", "run", "http")])
def test_a_model_and_a_person_can_be_asked_at_the_same_time(
    client: str, front: str, behind: str, places: Places, drive: Drive
) -> None:
    both = "{} & {}".format
    gated = places.gated("sdk1", front=front, behind=behind, policy="mixed")
    seen = drive(clients()[client], gated.server, None, [call("both_at_once")], **ABLE["both"])
    assert [both(BY_POLICY[0]["text"], BY_CLIENT[1]["text"])] == [result["text"] for result in seen.results], seen.said
