"""Real servers of both versions that ask by requests only, behind the gate, for clients that prefer 2026-07-28."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest

from tests.acceptance.sdk import node, peers
from tests.acceptance.sdk.http_peers import SERVER
from tests.acceptance.sdk.peers import POLICIES, PROGRAMS, Drive, Gate, Server, call, clients
from tests.acceptance.sdk.test_capabilities import BY_CLIENT, BY_POLICY, failed
from tests.conformance.listening import gate, listening

CAPABLE = ["sampling", "elicitation"]
STEPS = [call("classify", text="x"), call("confirm")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon in front of the pushing server over HTTP: with its default settings, and set to legacy."""
    folder = tmp_path_factory.mktemp("pushing")
    with listening((peers.sdk(2), SERVER, "server_sdk2_pushing")) as behind:
        servers = {
            "learned": {"url": behind.url},
            **{name: {"url": behind.url, "protocol": "legacy"} for name in ("forwards", "answers")},
        }
        rules = [
            {"name": "answered", "match": {"kind": "sampling", "server": "answers"}, "effect": "answer"}
            | {"content": "from the policy"},
            {"name": "filled in", "match": {"kind": "elicitation", "server": "answers"}, "effect": "answer"}
            | {"content": {"confirm": True, "reason": "from the policy"}},
            {"name": "the client", "match": {"server": ["learned", "forwards"]}, "effect": "forward"},
        ]
        settings = {
            "policy": "policy.yaml",
            "listen": "127.0.0.1:0",
            "state": str(folder / "state"),
            "decision_log": "none",
            "servers": servers,
        }
        (folder / "policy.yaml").write_text(json.dumps({"version": 1, "rules": rules}), "utf-8")  # JSON is YAML
        (folder / "samplegate.yaml").write_text(json.dumps(settings), "utf-8")
        with listening(gate("serve", "--settings", str(folder / "samplegate.yaml"))) as found:
            yield found.url


def test_the_next_connection_after_a_failed_push_works(served: str, drive: Drive) -> None:
    server = Server("learned", (urljoin(served, "/servers/learned/mcp"),))
    pinned, auto = clients()["python2-pinned"], clients()["python2-auto"]
    before, after = (drive(client, server, None, STEPS, declare=CAPABLE) for client in (pinned, auto))
    assert ("2026-07-28", [True, True]) == (before.revision, [failed(result) for result in before.results])
    assert ("2025-11-25", BY_CLIENT) == (after.revision, after.results)


def test_the_next_run_after_a_failed_push_works_too(tmp_path: Path, drive: Drive) -> None:
    """The first client asks nothing ahead, so that a server that starts slowly on a busy machine is not taken for an
    older one."""
    server = Server("typescript2-pushing", (str(node.node()), str(PROGRAMS / "server_ts2_pushing.mjs")))
    wrapped = Gate(POLICIES / "forwards.yaml", None, ("--state", str(tmp_path / "state")))
    pinned, auto = clients()["python2-pinned"], clients()["python2-auto"]
    before, after = (drive(client, server, wrapped, STEPS, declare=CAPABLE) for client in (pinned, auto))
    assert ("2026-07-28", [True, True]) == (before.revision, [failed(result) for result in before.results])
    assert '"setting": "--protocol legacy"' in before.said
    assert ("2025-11-25", BY_CLIENT) == (after.revision, after.results)


@pytest.mark.parametrize(
    ("client", "server", "declare", "revision"),
    [
        ("python2-auto", "forwards", CAPABLE, "2025-11-25"),
        ("typescript2-auto", "forwards", CAPABLE, "2025-11-25"),
        # one that speaks nothing older, and does not ask first, gets the bridge
        ("python2-pinned", "answers", [], "2026-07-28"),
    ],
)
def test_a_server_that_is_set_to_legacy_works_from_the_first_connection(
    client: str, server: str, declare: list[str], revision: str, *, served: str, drive: Drive
) -> None:
    at = Server(server, (urljoin(served, f"/servers/{server}/mcp"),))
    seen = drive(clients()[client], at, None, STEPS, declare=declare)
    expected = BY_CLIENT if server == "forwards" else [by_policy("samplegate/answered"), BY_POLICY[1]]
    assert (revision, expected) == (seen.revision, seen.results)


def by_policy(model: str) -> dict[str, object]:
    return {"error": False, "text": f"{model}|endTurn|from the policy"}
