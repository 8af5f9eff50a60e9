"""2026-07-28: `input_required` rounds of a real server, answered by the gate, by the client, or by both, for real
clients of that version and for older ones, which the gate asks by requests."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Drive, call, clients
from tests.acceptance.sdk.test_capabilities import outcome

NOT = "fails or is declined"
SAMPLES = ("samplegate/sampling is answered|endTurn|from the policy", "client-model|endTurn|from the client")
FORMS = ("accept|True|from the policy", "accept|True|from the client")
RESOURCE = {"do": "resource", "uri": "counterpart://asking/x"}
PROMPT = {"do": "prompt", "name": "haiku", "arguments": {"about": "x"}}
PAGE = "https://login.example.com/start?x=1"


def said(text: str) -> dict[str, object]:
    return {"error": False, "text": text}


def both(sample: str, form: str) -> list[tuple[dict[str, Any], object]]:
    """A round of two requests, and consecutive rounds: the server gets back the state that it sent."""
    return [
        (call("review", subject="x"), said(f"{sample} & {form} & state of review")),
        (call("steps", count=6), said(";".join([sample, form] * 3))),
    ]


# What the client declares, what it calls and what comes of it, and what it is asked.
ROUNDS: Final[dict[str, tuple[list[str], list[tuple[dict[str, Any], object]], list[str]]]] = {
    "answers": (
        [],
        [
            *both(SAMPLES[0], FORMS[0]),
            (call("comes_back", times=3), said("came back 3 times")),  # asks nothing: the gate comes back
            (call("steps", count=1000), NOT),  # a server that asks without end is stopped
            (call("open_link"), NOT),  # no client can open it
            (call("add", a=1, b=2), said("3")),
            (RESOURCE, SAMPLES[0]),
            (PROMPT, f"Write a haiku about x ({FORMS[0]})"),
            (call("declared"), said('{"sampling":{},"elicitation":{"form":{}}}')),
        ],
        [],
    ),
    "mixed": (
        ["elicitation", "roots", "url"],
        [
            *both(SAMPLES[0], FORMS[1]),
            (call("roots"), said(f"file:///srv/project & {SAMPLES[0]}")),
            (call("open_link"), said("accept")),
        ],
        ["elicitation"] * 5 + ["roots"],
    ),
    "forwards": (
        ["sampling", "elicitation", "url", "roots"],
        [
            *both(SAMPLES[1], FORMS[1]),
            (call("roots"), said(f"file:///srv/project & {SAMPLES[1]}")),
            (call("open_link"), said("accept")),
            (RESOURCE, SAMPLES[1]),
            (PROMPT, f"Write a haiku about x ({FORMS[1]})"),
        ],
        ["elicitation"] * 6 + ["roots"] + ["sampling"] * 6,
    ),
    # a denied half ends the call before the other half is asked
    "denies": (
        ["sampling", "elicitation"],
        [(call("review", subject="x"), NOT), (call("open_link"), NOT), (call("add", a=1, b=2), said("3"))],
        [],
    ),
}
RUN: Final = ("python2-legacy", "typescript2-pinned")
"""Before these clients the gate that mixes is a process of its own."""


@pytest.mark.parametrize("client", list(clients()))
def test_every_question_of_a_round_is_answered_by_whom_the_policy_says(
    client: str, places: Places, drive: Drive
) -> None:
    for policy, (declare, steps, asked) in ROUNDS.items():
        front = "run" if client in RUN and policy == "mixed" else "serve"
        gated = places.gated("sdk2-modern", front=front, behind="http", policy=policy)
        seen = drive(clients()[client], gated.server, None, [step for step, _ in steps], declare=declare)
        outcomes = [result if isinstance(result, str) else outcome(result) for result in seen.results]
        assert [expected for _, expected in steps] == outcomes, (policy, seen.said, gated.said())
        assert asked == seen.kinds(), policy
        # a client that drives rounds itself reports them: there is none of them where the gate does
        assert asked != [] or [] == seen.steps(), policy
        pages = [one["params"] for one in seen.asked if one.get("params", {}).get("mode") == "url"]
        assert ("url" in declare) * [PAGE] == [page["url"] for page in pages]
        assert clients()[client].modern or all("elicitationId" in page for page in pages)


def test_a_client_that_refuses_ends_its_call_and_no_other(places: Places, drive: Drive) -> None:
    gated = places.gated("sdk2-modern", front="serve", behind="http", policy="forwards")
    for client in ("python1", "typescript2-pinned"):
        steps = [call("steps", count=1), call("add", a=1, b=2)]
        seen = drive(clients()[client], gated.server, None, steps, declare=["sampling"], refuse=True)
        assert [NOT, said("3")] == [outcome(result) for result in seen.results], gated.said()
