"""The queries of the dashboard and of the alerts in a real Prometheus that scrapes a real daemon."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.deployment.board import VARIABLES, Query, alerts, filled, queries
from tests.deployment.prometheus import BOUND, Prometheus, scraping
from tests.fakes.daemon import ASK_FORM, ASK_SAMPLE, FORM, Client, Gate, admin, asking, client, serving
from tests.fakes.issuer import key_set, public
from tests.fakes.system_programs import program, run

TOKEN: Final = "t" * 40
POLICY: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml, price: {input: 1, output: 5}}]
limits:
  rate: {requests: 1000, per: 1m}
  cost: {usd: 1, per: process}
reviewers:
  ops: {command: [python3, -c, "print('{\\"verdict\\": \\"reject\\"}')"]}
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [m]}, limits: [rate, cost]}
  - {name: no secrets, match: {kind: elicitation, mode: form, text: secret}, effect: deny}
  - {name: people, match: {kind: elicitation, mode: form, text: somebody}, effect: escalate, reviewer: ops}
  - {name: forms, match: {kind: elicitation, mode: form}, effect: answer, content: {confirm: true}}
"""
ASK_SECRET: Final = {"ask": {"method": "elicitation/create", "params": {**FORM, "message": "what is the secret?"}}}
ASK_PERSON: Final = {"ask": {"method": "elicitation/create", "params": {**FORM, "message": "is there somebody?"}}}
MAY_BE_EMPTY: Final = {
    "Wait for limits",  # no request waits here
    "Time to first token",  # nothing streams here
    "Fallbacks",
    "Unpriced calls",
    "Warnings and overruns",
    "Loops and secrets",
    "Messages dropped",
    "Review store",
    ("Rejected requests", "B"),
    ("Internal errors", "A"),
    ("Records not written", "A"),
    ("Records not written", "C"),  # no gate has a shared database here
    ("Records not written", "D"),
}
"""What shows something only where something is wrong, or where a provider is asked: by panel, or by panel and query."""


def write(folder: Path) -> Path:
    """Settings of a daemon with a server that works, one that cannot be started, and a caller."""
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "answers.yaml").write_text("cases:\n  - {answer: from a model}\n")
    (folder / "token").write_text(TOKEN)
    (folder / "broken").write_text("#!/nowhere/interpreter\n")  # it is found at the start, and cannot be started
    (folder / "broken").chmod(0o700)
    command, *arguments = asking("legacy+modern")
    servers = {"one": {"command": command, "args": arguments}, "broken": {"command": str(folder / "broken")}}
    callers = {"tokens": [{"name": "ci", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]}
    (folder / "keys.json").write_bytes(key_set(public("k", "ES256")))
    keys = {"jwks_file": "keys.json", "people": {"ann@example.com": {"role": "admin"}}}
    settings = {
        "policy": "policy.yaml",
        "servers": servers,
        "callers": callers,
        "admin_token_file": "token",
        "reviews_listen": "127.0.0.1:0",
        "people": {"assertion": {"header": "x-jwt", "issuer": "i", "audience": ["a"], **keys}},
        "watch": False,
    }
    at = folder / "samplegate.yaml"
    at.write_text(json.dumps(settings))
    return at


async def use(gate: Gate, folder: Path) -> AsyncGenerator[None]:
    """What clients and operators do, a turn each time: calls in both eras, answered, denied and lost; a reload, taken
    or refused."""
    async with AsyncExitStack() as stack:
        legacy, modern, broken, stranger = [
            await stack.enter_async_context(client(gate, f"/servers/{name}/mcp", token=token))
            for name, token in (("one", TOKEN), ("one", TOKEN), ("broken", TOKEN), ("one", "x" * 40))
        ]
        await legacy.begin()
        for turn in count(1):
            for era, c in (("legacy", legacy), ("modern", modern)):
                await answered(c, era, turn)
            await refused(broken)
            await refused(stranger)
            async with stranger.http.get(f"{gate.reviews}/v1/reviews", headers={"x-jwt": "x"}) as response:
                assert 403 == response.status
            if turn % 3 == 1:
                await modern.call("modern", turn, exit=3)
            (folder / "policy.yaml").write_text(POLICY + f"# {turn}\n")
            await admin(gate, "/reload", "POST", authorization=f"Bearer {TOKEN}")
            yield


async def answered(c: Client, era: str, turn: int) -> None:
    """A model's answer, a form that is filled in, one that is denied and one that a person refuses; a server that has
    just died is not asked."""
    sampled = await c.call(era, f"{turn}a", **ASK_SAMPLE)
    if "from a model" in str(sampled):
        await c.call(era, f"{turn}b", **ASK_FORM)
        await c.call(era, f"{turn}c", **ASK_SECRET)
        await c.call(era, f"{turn}d", **ASK_PERSON)


async def refused(c: Client) -> None:
    """A request that the gate rejects."""
    with suppress(json.JSONDecodeError):
        assert "result" not in await c.modern("tools/call", 1, name="do", arguments={})


async def without_data(prometheus: Prometheus, wanted: list[Query]) -> list[Query]:
    """The queries that have no data yet. Raises AssertionError if one is an error."""
    now = time.time()
    return [
        query
        for query in wanted
        if not await prometheus.values(filled(query.text), now=now, seconds=30 if query.over else 0)
    ]


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.timeout(180)
async def test_a_real_prometheus_answers_every_query_and_promtool_accepts_what_is_scraped(
    tmp_path: Path,
) -> None:
    settings = write(tmp_path)
    async with (
        serving(tmp_path, "--settings", str(settings)) as gate,
        scraping(tmp_path, gate.admin.removeprefix("http://")) as prometheus,
    ):
        missing = [query for query in queries() if not {query.panel, (query.panel, query.ref)} & MAY_BE_EMPTY]
        try:
            async with asyncio.timeout(BOUND), aclosing(use(gate, tmp_path)) as turns:
                async for _ in turns:
                    missing = await without_data(prometheus, missing)
                    if not missing:
                        break
        except TimeoutError:
            said = "\n".join(gate.lines[-40:])
            pytest.fail(
                f"no data came for {[(query.panel, query.ref, filled(query.text)) for query in missing]}; the daemon"
                f" said:\n{said}"
            )
        await without_data(prometheus, queries())
        await the_rules_are_well(prometheus)
        await the_variables_have_values(prometheus)
        _, text = await admin(gate, "/metrics")
    assert "samplegate_requests_total{" in text
    assert (0, "") == await asyncio.to_thread(run, program("promtool"), "check", "metrics", input=text.encode())


async def the_rules_are_well(prometheus: Prometheus) -> None:
    """Check that every alert was evaluated without an error."""
    rules = [rule for group in (await prometheus.api("rules"))["groups"] for rule in group["rules"]]
    assert [(alert["alert"], "ok") for alert in alerts()] == [(rule["name"], rule["health"]) for rule in rules], rules
    for alert in alerts():
        await prometheus.api("query", query=alert["expr"])


async def the_variables_have_values(prometheus: Prometheus) -> None:
    for variable in VARIABLES:
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        assert await prometheus.api(f"label/{label}/values", **{"match[]": filled(selector)}), variable["name"]
