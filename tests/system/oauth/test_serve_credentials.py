"""Client credentials of `samplegate serve`: from its settings to the server, with nothing secret in what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.daemon import admin, client, serving
from tests.fakes.oauth_world import MARK, World, oauth_world

pytestmark = pytest.mark.anyio

SECRET: Final = f"{MARK}client"
POLICY: Final = """
version: 1
rules:
  - {name: forms, match: {kind: elicitation, fields: [confirm]}, effect: answer, content: {confirm: true}}
"""


def settings(world: World, down: World) -> dict[str, object]:
    """A server with a secret from a variable, and one with a secret from a file, whose authorization server is down."""
    oauth = {"grant": "client_credentials", "client_id": "ci", "issuer": world.issuer}
    return {
        "policy": "policy.yaml",
        "decision_log": "log.jsonl",
        "servers": {
            "docs": {"url": world.url, "oauth": {**oauth, "client_secret": "${CI_SECRET}"}},
            "down": {"url": down.url, "oauth": {**oauth, "client_secret_file": "secret", "issuer": down.issuer}},
        },
    }


def secrets_in(folder: Path) -> list[tuple[str, int]]:
    """The files that the gate has written secrets to, with their modes."""
    kept = [path for path in folder.rglob("*") if path.is_file() and path.name != "secret"]
    return [(path.name, path.stat().st_mode & 0o777) for path in kept if MARK.encode() in path.read_bytes()]


async def test_serve_gets_tokens_by_itself_and_shows_none(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    with oauth_world() as world, oauth_world() as down:
        world.register("ci", secret=SECRET, method="client_secret_basic")
        down.stop("issuer")
        (tmp_path / "serve.yaml").write_text(json.dumps(settings(world, down)))
        environment = {"CI_SECRET": SECRET, "HOME": str(tmp_path), "SAMPLEGATE_LOG_LEVEL": "debug"}
        async with serving(tmp_path, "--settings", "serve.yaml", env=environment) as gate:
            async with (
                client(gate, "/servers/docs/mcp", capabilities={}) as one,
                client(gate, "/servers/down/mcp") as two,
            ):
                assert "result" in await one.begin()
                refused = await two.begin()
                asked = await one.legacy("tools/call", name="ask", arguments={})
                world.expire_tokens()
                assert "did work" in json.dumps(await one.legacy("tools/call", name="work", arguments={}))
            metrics = (await admin(gate, "/metrics"))[1]
        answer = json.loads(asked["result"]["content"][0]["text"])
        message = json.dumps(refused["error"])
        assert {"confirm": True} == answer["content"]
        assert f"{down.origin} cannot be reached for the metadata request; try again later" in message
        assert 2 == len(world.of("token", grant_type="client_credentials"))
    assert "forms" in (tmp_path / "log.jsonl").read_text()
    assert [] == [text for text in (message, metrics, *gate.lines) if MARK in text]
    assert [("docs.json", 0o600)] == secrets_in(tmp_path)
