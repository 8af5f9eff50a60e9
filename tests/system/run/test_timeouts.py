"""`start_timeout` and `call_timeout` in running gates: errors, exit codes and the operator's view.
tests/unit/runtime/test_relay_waits.py has the requests that they bound."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.daemon import Client
from tests.fakes.run_process import BOUND, SLOW, Daemon, call, opening, running, serving

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="pipes"), pytest.mark.anyio]


def cancelled(notes: Path) -> list[Any]:
    """The cancellations that the server received."""
    return [json.loads(line)["requestId"] for line in notes.read_text().splitlines()]


def test_a_server_that_does_not_answer_its_first_request_ends_the_run_with_2(tmp_path: Path) -> None:
    with running(tmp_path, "--start-timeout", "1", command=(*SLOW, "silent")) as gate:
        gate.write(*opening())
        answer = gate.read()
        assert (0, -32603) == (answer["id"], answer["error"]["code"])
        assert (
            "the server did not answer its first request within 1s (setting start_timeout)"
            == answer["error"]["message"]
        )
        assert 2 == gate.process.wait(40)
        assert "start_timeout" in gate.end()[2]


def test_a_server_that_exits_before_its_first_answer_is_told_to_client_and_operator(tmp_path: Path) -> None:
    with running(tmp_path, command=(sys.executable, "-S", "-c", "input(); raise SystemExit(3)")) as gate:
        gate.write(*opening())
        assert (
            "the server ended before it answered its first request; check the server's own log"
            == (gate.read()["error"]["message"])
        )
        assert 3 == gate.process.wait(40)
        assert "server default: it exited with code 3 before it answered its first request" in gate.end()[2]


def test_a_call_that_is_not_answered_ends_with_an_error_and_a_cancellation(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with running(tmp_path, "--strict", "--call-timeout", "2", command=(*SLOW, "modern", f"note={notes}")) as gate:
        gate.write(*opening(), call(1, "never"))
        assert 0 == gate.read()["id"]
        answer = gate.read()
        assert (1, -32603, "the server did not answer within 2s (setting call_timeout)") == (
            answer["id"],
            *answer["error"].values(),
        )
        code, _, said = gate.end()
    assert (3, True) == (code, "no requests; 1 call without an answer" in said), said
    assert 1 == len(cancelled(notes))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for the tests below, whose servers answer in time, late, or never."""
    folder = tmp_path_factory.mktemp("daemon")

    def server(*words: str, **timeouts: int) -> dict[str, Any]:
        return {"command": SLOW[0], "args": [*SLOW[1:], *words], **timeouts}

    with serving(
        folder,
        quiet=server("silent"),
        silent=server("silent", start_timeout=1),
        legacy=server(),
        modern=server("modern"),
        slow=server(f"note={folder / 'notes'}", call_timeout=2),
    ) as daemon:
        yield daemon


def test_a_server_at_a_url_that_does_not_answer_its_first_request_ends_the_run_with_2(
    tmp_path: Path, daemon: Daemon
) -> None:
    url = f"{daemon.url}/servers/quiet/mcp"
    with running(tmp_path, "--start-timeout", "1", "--url", url, command=()) as gate:
        gate.write(*opening())
        assert "start_timeout" in gate.read()["error"]["message"]
        assert 2 == gate.process.wait(40)


def test_a_call_to_a_server_at_a_url_that_is_not_answered_ends_with_an_error(tmp_path: Path, daemon: Daemon) -> None:
    url = f"{daemon.url}/servers/legacy/mcp"
    with running(tmp_path, "--call-timeout", "2", "--url", url, command=()) as gate:
        gate.write(*opening(), call(1, "never"))
        assert 0 == gate.read()["id"]
        assert "call_timeout" in gate.read()["error"]["message"]


def test_a_call_to_a_server_at_a_url_is_answered_after_the_end_of_the_input(tmp_path: Path, daemon: Daemon) -> None:
    url = f"{daemon.url}/servers/modern/mcp"
    with running(tmp_path, "--strict", "--url", url, command=()) as gate:
        gate.write(*opening("modern"), call(1, era="modern", seconds=1.5))
        code, answers, said = gate.end()
    assert (0, True) == (code, "result" in answers.get(1, {})), said


async def test_the_servers_of_the_daemon_have_both_timeouts(daemon: Daemon) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=BOUND)) as http:
        one, other = (Client(http, f"{daemon.url}/servers/{name}/mcp") for name in ("silent", "slow"))
        first = await one.modern("tools/list")
        assert "setting start_timeout" in first["error"]["message"]
        await other.begin()
        answer = await other.legacy("tools/call", 5, name="never", arguments={})
        assert "setting call_timeout" in answer["error"]["message"]
        assert "result" in await other.call("legacy", 6)
        async with http.get(f"{daemon.admin}/metrics") as metrics:
            assert 'samplegate_calls_lost_total{reason="timeout",server="slow"} 1.0' in await metrics.text()
    assert 1 == len(cancelled(daemon.folder / "notes"))
