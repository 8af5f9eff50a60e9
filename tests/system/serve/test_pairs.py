"""Pairs of protocol versions with HTTP in front, and a process or a URL behind: a server's requests are answered,
forwarded and denied by policy, and decided by reviewers. One daemon has a server of each kind for each policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.fakes.daemon import Client, Gate, asking, client, serving
from tests.fakes.daemon_reviews import ACCEPTED, People, form, people, said, sample, settings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
ABLE: Final[dict[str, Any]] = {"sampling": {}, "elicitation": {"form": {}}}
FORWARD: Final = {"name": "all", "effect": "forward", "match": {"not": {"mode": "url"}}}
RULES: Final[dict[str, list[dict[str, Any]]]] = {
    "answers": [
        {"name": "models", "match": {"kind": "sampling"}, "effect": "allow", "with": {"models": ["m"]}},
        {
            "name": "forms",
            "match": {"kind": "elicitation", "mode": "form"},
            "effect": "answer",
            "content": {"confirm": True},
        },
    ],
    "denies": [{"name": "never", "match": {}, "effect": "deny"}],
    "forwards": [{"name": "all", "match": {}, "effect": "forward"}],
    "people": [{"name": "people", "match": {}, "effect": "escalate", "reviewer": "ops"}],
    "silence": [{"name": "silence", "match": {}, "effect": "escalate", "reviewer": "ops", "timeout": "100ms"}],
}
"""The rules of the servers whose names begin with the key."""
POLICY: Final = {
    "version": 1,
    "models": [{"name": "m", "model": "scripted", "cases": "answers.yaml"}],
    "reviewers": {"ops": {"timeout": "15m"}},
    "rules": [
        {**rule, "name": f"{key}: {rule['name']}", "match": {**rule["match"], "server": f"{key}-*"}}
        for key, rules in RULES.items()
        for rule in rules
    ],
}
PAIRS: Final = [(front, back, "stdio") for front in ("legacy", "modern") for back in ("legacy", "modern")] + [
    (front, back, "http") for front, back in (("legacy", "legacy"), ("legacy", "modern"), ("modern", "modern"))
]
"""Behind HTTP a gate stands here, which speaks both versions itself: a legacy-only server over HTTP is among the real
counterparts."""
WITHHELD: Final = ("legacy", "modern", "http")
"""The gate behind has its own words for an error of its client."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, whose daemon outlives each test."""
    return "asyncio"


@pytest.fixture(scope="module")
async def gate(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gate]:
    """The daemon with all servers. Those at URLs are of a second daemon, which forwards everything."""
    folder, behind = tmp_path_factory.mktemp("pairs"), tmp_path_factory.mktemp("behind")
    commands = {
        eras: {"command": command, "args": more} for eras in ("legacy", "modern") for command, *more in [asking(eras)]
    }
    (behind / "policy.yaml").write_text(json.dumps({"version": 1, "rules": [FORWARD]}))
    (behind / "serve.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": commands}))
    async with serving(behind, "--settings", "serve.yaml", forked=True) as inner:
        servers: dict[str, Any] = {}
        for key in RULES:
            for eras, command in commands.items():
                servers[f"{key}-{eras}-stdio"] = command
                servers[f"{key}-{eras}-http"] = {"url": f"{inner.url}/servers/{eras}/mcp"}
        arguments = settings(folder, policy=json.dumps(POLICY), servers=servers)
        async with serving(folder, *arguments, forked=True) as outer:
            await outer.said("reviews on")
            yield outer


@pytest.fixture(scope="module")
async def person(gate: Gate) -> AsyncIterator[People]:
    """Who may decide."""
    async with people(gate) as found:
        yield found


@asynccontextmanager
async def connected(gate: Gate, rules: str, pair: tuple[str, str, str], **capabilities: Any) -> AsyncIterator[Client]:
    """A client of the pair's front before a server under these rules."""
    front, back, behind = pair
    async with client(gate, f"/servers/{rules}-{back}-{behind}/mcp", capabilities=capabilities) as c:
        if front == "legacy":
            await c.begin()
        yield c


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
async def test_policy_answers_in_every_pair(gate: Gate, pair: tuple[str, str, str]) -> None:
    async with connected(gate, "answers", pair) as c:
        assert ACCEPTED.items() <= said(await c.call(pair[0], 1, **form("sure?"))).items()
        assert "from a model" == said(await c.call(pair[0], 2, **sample("hello")))["content"]["text"]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
async def test_policy_denies_in_every_pair(gate: Gate, pair: tuple[str, str, str]) -> None:
    async with connected(gate, "denies", pair, **ABLE) as c:
        answer = await c.call(pair[0], 1, **sample("hello"))
        assert "from a" not in str(answer)
        assert [] == [frame for frame in c.heard if "id" in frame]


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair[0] == "legacy"], ids="-".join)
async def test_a_legacy_client_is_asked_what_policy_forwards(gate: Gate, pair: tuple[str, str, str]) -> None:
    async with connected(gate, "forwards", pair, **ABLE) as c:
        assert "accept" == said(await c.call("legacy", 1, **form("sure?")))["action"]
        assert "a person" == said(await c.call("legacy", 2, **sample("hello")))["content"]["text"]
        assert ["elicitation/create", "sampling/createMessage"] == [
            frame["method"] for frame in c.heard if "id" in frame
        ]


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair[:2] == ("modern", "modern")], ids="-".join)
async def test_a_modern_client_is_asked_what_policy_forwards_by_a_modern_server(
    gate: Gate, pair: tuple[str, str, str]
) -> None:
    async with connected(gate, "forwards", pair, **ABLE) as c:
        asked = (await c.call("modern", 1, **form("sure?")))["result"]
        assert "input_required" == asked["resultType"]
        assert "elicitation/create" == asked["inputRequests"]["k"]["method"]
        answers = {"k": ACCEPTED}
        state = asked["requestState"]
        done = await c.modern(
            "tools/call", 2, name="do", arguments=form("sure?"), inputResponses=answers, requestState=state
        )
        assert ACCEPTED == said(done)


async def test_what_policy_forwards_is_refused_between_a_modern_client_and_a_legacy_server(gate: Gate) -> None:
    async with connected(gate, "forwards", ("modern", "legacy", "stdio"), **ABLE) as c:
        answer = (await c.call("modern", 1, **sample("hello")))["result"]["structuredContent"]
        assert {"error"} == answer.keys()


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
async def test_what_a_person_decides_reaches_the_server_in_every_pair(
    gate: Gate, person: People, pair: tuple[str, str, str]
) -> None:
    async with connected(gate, "people", pair) as c:
        call, _ = await asyncio.gather(
            c.call(pair[0], 1, **form(f"yes, {pair}?")), person.decide(verdict="answer", **ACCEPTED)
        )
        assert ACCEPTED.items() <= said(call).items()
        call, _ = await asyncio.gather(c.call(pair[0], 2, **sample(f"{pair}")), person.decide(verdict="approve"))
        assert "from a model" == said(call)["content"]["text"]
        edits = {"messages": [{"role": "user", "content": {"type": "text", "text": "edited"}}]}
        call, _ = await asyncio.gather(
            c.call(pair[0], 3, **sample(f"{pair} again")), person.decide(verdict="approve", edits=edits)
        )
        assert "to the edited" == said(call)["content"]["text"]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
async def test_a_persons_no_is_a_decline_of_a_form_and_an_error_of_a_sample(
    gate: Gate, person: People, pair: tuple[str, str, str]
) -> None:
    async with connected(gate, "people", pair) as c:
        call, _ = await asyncio.gather(c.call(pair[0], 1, **form(f"no, {pair}?")), person.decide(verdict="reject"))
        assert "decline" == said(call)["action"]
        call, _ = await asyncio.gather(
            c.call(pair[0], 2, **sample(f"no, {pair}")),
            person.decide(verdict="reject", reason="not this", tell_server=True),
        )
        for words in ("not answered by the client",) if pair == WITHHELD else ("refused by a reviewer", "not this"):
            assert words in str(call)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
async def test_a_reviewer_who_says_nothing_leaves_the_request_unanswered(
    gate: Gate, pair: tuple[str, str, str]
) -> None:
    async with connected(gate, "silence", pair) as c:
        assert "cancel" == said(await c.call(pair[0], 1, **form(f"nothing, {pair}?")))["action"]
        words = "not answered by the client" if pair == WITHHELD else "not answered in time"
        assert words in str(await c.call(pair[0], 2, **sample(f"nothing, {pair}")))
