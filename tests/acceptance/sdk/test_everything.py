"""The npm reference server behind the gate. It offers the tools that ask the client only if sampling and elicitation
are declared, which the gate does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Drive, Seen, call, clients
from tests.acceptance.sdk.test_capabilities import failed

SAMPLE = call("trigger-sampling-request", prompt="hello", maxTokens=50)
FORM = call("trigger-elicitation-request")
PAGE = call("trigger-url-elicitation", url="https://pay.example.com/x")
PAGE_ERROR = call("trigger-url-elicitation", url="https://pay.example.com/x", errorPath=True)
STEPS = [
    {"do": "tools"},
    call("echo", message="hello"),
    call("get-sum", a=1, b=2),
    SAMPLE,
    FORM,
    PAGE,
    PAGE_ERROR,
    call("get-roots-list"),
]
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
CAPABLE: dict[str, Any] = {
    "declare": ["sampling", "elicitation", "url", "roots"],
    "content": {"name": "somebody", "check": True},
}
# Each SDK once, each front over each way to the server.
before = pytest.mark.parametrize(
    ("client", "front", "behind"),
    [
        ("python1", "serve", "http"),
        ("python2-auto", "serve", "stdio"),
        ("typescript1", "run", "http"),
        ("typescript2-auto", "run", "stdio"),
    ],
)


def comparable(seen: Seen) -> Seen:
    """Ids are random, and it asks for roots by itself at a time of its own, once or twice; TypeScript's client 1 does
    not tell the version over stdio."""
    results, asked = json.loads(
        ID.sub("...", json.dumps([seen.results, [one for one in seen.asked if one["kind"] != "roots"]]))
    )
    revision = seen.revision or "2025-11-25"
    return replace(
        seen, revision=revision, results=results, asked=asked, progress=seen.steps(), notifications=[], logs=[]
    )


@before
def test_a_capable_client_sees_the_same_with_a_gate_that_forwards(
    client: str, front: str, behind: str, places: Places, drive: Drive
) -> None:
    alone = drive(clients()[client], places.server("everything"), None, STEPS, **CAPABLE)
    gated = places.gated("everything", front=front, behind=behind, policy="forwards")
    seen = drive(clients()[client], gated.server, None, STEPS, **CAPABLE)
    assert comparable(alone) == comparable(seen), gated.said()
    assert {"sampling", "elicitation", "roots"} == set(seen.kinds())
    *_, sampled, filled, opened, refused, roots = seen.results
    assert "from the client" in sampled["text"]
    assert "Name: somebody" in filled["text"]
    assert '"action": "accept"' in opened["text"]
    assert -32042 == refused["failed"]["code"]
    assert "file:///srv/project" in roots["text"]


@before
def test_its_asking_tools_complete_for_a_client_that_declares_nothing(
    client: str, front: str, behind: str, places: Places, drive: Drive
) -> None:
    gated = places.gated("everything", front=front, behind=behind, policy="answers")
    gated.rules()
    tools, sampled, filled = drive(clients()[client], gated.server, None, [{"do": "tools"}, SAMPLE, FORM]).results
    assert "trigger-sampling-request" in tools
    assert "trigger-url-elicitation" not in tools  # nobody can open a page
    assert False is sampled["error"], gated.said()
    assert '"text": "from the policy"' in sampled["text"]
    for part in [
        '"name": "policy"',
        '"check": true',
        '"integer": 42',
        '"untitledSingleSelectEnum": "Monica"',
        '"fish-1"',
        '"legacyTitledEnum": "pet-1"',
    ]:
        assert part in filled["text"]
    assert ["sampling is answered", "the big form is answered"] == gated.rules()


@pytest.mark.parametrize("client", ["python1", "typescript2-legacy"])
def test_a_call_that_needs_a_page_first_fails_without_a_page_that_the_policy_denies(
    client: str, places: Places, drive: Drive
) -> None:
    gated = places.gated("everything", front="serve", behind="http", policy="mixed")
    gated.rules()
    seen = drive(clients()[client], gated.server, None, [PAGE, PAGE_ERROR], declare=["elicitation", "url"])
    opened, denied = seen.results
    assert '"action": "accept"' in opened["text"], gated.said()
    assert failed(denied)
    assert "https://" not in str(denied)
    assert ["a person confirms", "not this page"] == gated.rules()


def test_it_asks_and_is_answered_before_a_client_that_knows_only_2026_07_28(places: Places, drive: Drive) -> None:
    gated = places.gated("everything", front="serve", behind="http", policy="answers")
    steps = [call("echo", message="hi"), SAMPLE, {"do": "tools"}]
    echoed, sampled, tools = drive(clients()["typescript2-pinned"], gated.server, None, steps).results
    assert {"error": False, "text": "Echo: hi"} == echoed, gated.said()
    assert "from the policy" in sampled["text"]
    assert "trigger-elicitation-request" in tools
