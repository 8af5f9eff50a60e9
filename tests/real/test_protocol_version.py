"""Real servers of both eras that ask by requests alone, behind the gate, for real clients that prefer 2026-07-28."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest

from tests.conformance.listening import gate, listening
from tests.real import node, peers
from tests.real.http_peers import SERVER
from tests.real.peers import POLICIES, PROGRAMS, Client, Gate, Server, call, drive
from tests.real.test_capabilities import BY_CLIENT, BY_POLICY, failed

PUSHING = {
    "sdk2": Server("sdk2-pushing", (peers.sdk(2), str(PROGRAMS / "server_sdk2_pushing.py"))),
    "typescript2": Server("typescript2-pushing", (str(node.node()), str(PROGRAMS / "server_ts2_pushing.mjs"))),
}
CAPABLE = ["sampling", "elicitation"]
STEPS = [call("classify", text="x"), call("confirm")]
default = pytest.mark.parametrize("client", ["python2-auto"], indirect=True)


def wrapped(policy: str, folder: Path, *more: str) -> Gate:
    return Gate(POLICIES / f"{policy}.yaml", None, ("--state", str(folder / "state"), *more))


@default
@pytest.mark.parametrize("server", PUSHING)
def test_the_next_connection_after_a_failed_push_works(client: Client, server: str, tmp_path: Path) -> None:
    """The first client asks nothing ahead, so that a server that starts slowly on a busy machine is not taken for an
    older one."""
    pinned = peers.clients()["python2-pinned"]
    before, after = (
        drive(one, PUSHING[server], wrapped("forwards", tmp_path), STEPS, declare=CAPABLE) for one in (pinned, client)
    )
    assert ("2026-07-28", [True, True]) == (before.revision, [failed(result) for result in before.results])
    assert '"setting": "--protocol legacy"' in before.said
    assert ("2025-11-25", BY_CLIENT) == (after.revision, after.results)


@pytest.mark.parametrize(
    ("client", "policy"), [("python2-auto", "forwards"), ("typescript2-auto", "answers")], indirect=["client"]
)
def test_a_server_that_is_set_to_legacy_works_from_the_first_connection(
    client: Client, policy: str, tmp_path: Path
) -> None:
    seen = drive(client, PUSHING["sdk2"], wrapped(policy, tmp_path, "--protocol", "legacy"), STEPS, declare=CAPABLE)
    assert ("2025-11-25", BY_CLIENT if policy == "forwards" else BY_POLICY) == (seen.revision, seen.results)


@pytest.mark.parametrize("client", ["python2-pinned"], indirect=True)
def test_a_client_that_speaks_nothing_older_gets_the_bridge(client: Client, tmp_path: Path) -> None:
    seen = drive(client, PUSHING["sdk2"], wrapped("answers", tmp_path, "--protocol", "legacy"), STEPS)
    assert ("2026-07-28", BY_POLICY) == (seen.revision, seen.results)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon before the pushing server, which is reached over HTTP: once as it comes, once set to legacy."""
    folder = tmp_path_factory.mktemp("pushing")
    with listening((peers.sdk(2), SERVER, "server_sdk2_pushing")) as behind:
        servers = {"learned": {"url": behind.url}, "set": {"url": behind.url, "protocol": "legacy"}}
        settings = {
            "policy": str(POLICIES / "forwards.yaml"),
            "listen": "127.0.0.1:0",
            "state": str(folder / "state"),
            "servers": servers,
        }
        (folder / "samplegate.yaml").write_text(json.dumps({**settings, "decision_log": "none"}), "utf-8")
        with listening(gate("serve", "--settings", str(folder / "samplegate.yaml"))) as found:
            yield found.url


@default
def test_the_same_holds_over_http_on_both_sides(client: Client, served: str) -> None:
    for name in ("set", "learned"):
        server = Server(name, (urljoin(served, f"/servers/{name}/mcp"),))
        if name == "learned":
            before = drive(peers.clients()["python2-pinned"], server, None, STEPS, declare=CAPABLE)
            assert [True, True] == [failed(result) for result in before.results]
        after = drive(client, server, None, STEPS, declare=CAPABLE)
        assert ("2025-11-25", BY_CLIENT) == (after.revision, after.results)
