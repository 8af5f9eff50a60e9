"""The order in which a real client, the gate and a real server end, as processes. Unix only, because of named pipes and
signals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.sdk.peers import PROGRAMS, WAIT, Drive, Gate, Server, call, clients, sdk, started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="named pipes and signals")
SOON = 15.0  # seconds; shutdown is bounded by 1.8 s, the rest is a slow machine's


@dataclass
class Watched:
    """A server that holds the write end of a named pipe each time it is started. ``gone`` waits until no process holds
    it."""

    server: Server
    reading: int

    def gone(self) -> bool:
        os.set_blocking(self.reading, True)
        # nothing is ever written: it ends with the last holder
        reader = threading.Thread(target=os.read, args=(self.reading, 1), daemon=True)
        reader.start()
        reader.join(SOON)
        return not reader.is_alive()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    yield Watched(Server("sdk1", (sdk(1), str(PROGRAMS / "server_sdk1.py"), str(pipe))), reading)
    os.close(reading)


@contextmanager
def by_hand(words: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """The gate, with the test as its client."""
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SOON)


def say(process: subprocess.Popen[str], **frame: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
    process.stdin.flush()


def answer_to(process: subprocess.Popen[str], id: int) -> dict[str, Any]:
    """The answer with this id. The test's timeout ends a wait for one that never arrives."""
    assert process.stdout is not None
    for line in process.stdout:
        frame: dict[str, Any] = json.loads(line)
        if frame.get("id") == id and "method" not in frame:
            return frame
    raise AssertionError("the gate closed its output before it answered")


def shake_hands(process: subprocess.Popen[str]) -> None:
    info = {"name": "by hand", "version": "1"}
    say(
        process,
        id=1,
        method="initialize",
        params={"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info},
    )
    assert "counterpart-sdk1" == answer_to(process, 1)["result"]["serverInfo"]["name"]
    say(process, method="notifications/initialized")


def test_the_end_of_the_input_ends_the_gate_with_0_and_the_server(watched: Watched, answers: Gate) -> None:
    with by_hand(answers.words + watched.server.words) as process:
        shake_hands(process)
        _, said = process.communicate(timeout=WAIT)
    assert 0 == process.returncode, said
    assert watched.gone()


def test_a_killed_gate_leaves_no_server_behind(watched: Watched, answers: Gate) -> None:
    with by_hand(answers.words + watched.server.words) as process:
        shake_hands(process)
        process.kill()
        assert watched.gone()


def test_a_killed_client_leaves_nothing_behind(watched: Watched, answers: Gate) -> None:
    with started(
        clients()["python1"], watched.server, answers, steps=[call("add", a=1, b=2), {"do": "hang"}]
    ) as process:
        assert process.stdout is not None
        assert {"hanging": True} == json.loads(process.stdout.readline())
        process.kill()
        assert watched.gone()


def test_a_client_that_probes_with_a_first_process_and_throws_it_away_leaves_nothing_behind(
    watched: Watched, answers: Gate, drive: Drive
) -> None:
    seen = drive(clients()["typescript2-auto"], watched.server, answers, [call("add", a=1, b=2)])
    assert [{"error": False, "text": "3"}] == seen.results
    assert watched.gone()
