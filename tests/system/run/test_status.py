"""`samplegate status` with wrapped servers: processes that share a state folder, one of which is killed, and a
terminal."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.run_process import Running, call, opening, running
from tests.paths import PROXY

if sys.platform == "win32":
    pytest.skip("there are no such sockets on Windows", allow_module_level=True)

import pty

BOUND: Final = 50.0
POLICY: Final = """
version: 1
limits: {day: {requests: 5, per: day, tz: UTC}}
rules: [{name: person, match: {kind: elicitation}, effect: forward, limits: [day]}]
"""
BIDI: Final = "to\u202eol\x1b[2J"


def environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(PROXY), "PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "150"}


def status(folder: Path, *options: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of the command."""
    words = [sys.executable, "-m", "samplegate", "status", "--state", str(folder / "state"), *options]
    done = subprocess.run(words, capture_output=True, env=environment(folder), timeout=BOUND, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def expected(folder: Path, until: Callable[[str, str], object], *options: str) -> tuple[str, str]:
    """Stdout and stderr of the command, run until they are as expected: a process answers half a second after its
    start, and on a busy machine perhaps too late."""
    end = time.monotonic() + BOUND
    while True:
        code, text, said = status(folder, *options)
        assert 0 == code
        if until(text, said):
            return text, said
        assert time.monotonic() < end, text + said


def overview(folder: Path, until: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The status as JSON, without problems, once it is as expected."""
    text, _ = expected(folder, lambda text, said: not said and until(json.loads(text)), "--json")
    found: dict[str, Any] = json.loads(text)
    return found


def started(stack: ExitStack, folder: Path, name: str) -> Running:
    """A gate whose server asks its client for a form."""
    (folder / "policy.yaml").write_text(POLICY)
    one = stack.enter_context(running(folder, "--state", "state", "--server", name))
    one.write(*opening(elicitation={}))
    one.read()
    return one


def test_gates_that_share_a_state_are_found_and_a_killed_one_disappears(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first, second = (started(stack, tmp_path, name) for name in ("docs", "mail"))
        first.write(call(1, BIDI, ask="form"))
        assert "elicitation/create" == first.read()["method"]
        found = overview(tmp_path, lambda now: len(now["gates"]) == 2)
        gates = {gate["servers"]["items"][0]["name"]: gate for gate in found["gates"]}
        assert {"docs", "mail"} == gates.keys()
        assert {first.process.pid, second.process.pid} == {gate["pid"] for gate in found["gates"]}
        (asked,) = gates["docs"]["requests"]["items"]
        assert ("client", "person", "forward") == tuple(asked[name] for name in ("waits_for", "rule", "effect"))
        assert [r"to\u202eol\x1b[2J"] == [one["tool"] for one in gates["docs"]["calls"]["items"]]
        assert 0 == gates["mail"]["calls"]["total"]
        # both know what the other has drawn
        assert [1.0, 1.0] == [gate["limits"]["items"][0]["used"] for gate in gates.values()]
        text, _ = expected(tmp_path, lambda _, said: not said)
        assert text.isascii()
        assert "\x1b" not in text
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(BOUND)
        found = overview(tmp_path, lambda now: len(now["gates"]) == 1)
        assert [second.process.pid] == [gate["pid"] for gate in found["gates"]]
        second.end()
    found = overview(tmp_path, lambda now: not now["gates"])
    ((limit, used, most),) = [(one["limit"], one["used"], one["max"]) for one in found["limits"]["items"]]
    assert ("day", 1.0, None) == (limit, used, most)


def test_a_stopped_process_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first, second = (started(stack, tmp_path, name) for name in ("docs", "mail"))
        overview(tmp_path, lambda now: len(now["gates"]) == 2)
        first.process.send_signal(signal.SIGSTOP)
        try:
            named = f"process {first.process.pid}: it does not answer within 5 s"
            expected(tmp_path, lambda text, said: named in said and f"pid {second.process.pid}," in text)
        finally:
            first.process.send_signal(signal.SIGCONT)


def test_a_run_leaves_no_socket_behind(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one = started(stack, tmp_path, "docs")
        overview(tmp_path, lambda now: now["gates"])
        assert 0 == one.end()[0]
    assert [] == list((tmp_path / "state" / "status").iterdir())


def test_a_watch_on_a_terminal_redraws_its_screen_until_it_is_interrupted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one = started(stack, tmp_path, "docs")
        overview(tmp_path, lambda now: now["gates"])
        code, seen = on_a_terminal(tmp_path, ["--watch", "0.2"], lambda seen: seen.count(b"status at") >= 3)
        one.end()
    assert 0 == code
    # one screen, which is left at the end; each picture begins at the top and clears only what it does not write
    assert seen.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
    assert seen.rstrip("\r\n").endswith("\x1b[?25h\x1b[?1049l")
    assert "\x1b[2J" not in seen
    pictures = seen.split("\x1b[H")[1:]
    assert all(picture.split("\x1b[?25h")[0].endswith("\x1b[J") for picture in pictures[:3])
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", pictures[0])
    rows = plain.splitlines()
    assert len(rows) <= 24
    assert max(map(len, rows)) <= 40


def on_a_terminal(
    folder: Path, options: Sequence[str], until: Callable[[bytes], object], size: tuple[int, int] = (24, 40)
) -> tuple[int, str]:
    """Run the command on a terminal of this size, interrupt it when ``until`` is true, and return code and output."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    words = [sys.executable, "-m", "samplegate", "status", "--state", str(folder / "state"), *options]
    given = {name: value for name, value in environment(folder).items() if name != "COLUMNS"} | {"TERM": "xterm"}
    seen = b""
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=given) as process:
        os.close(theirs)
        try:
            end = time.monotonic() + BOUND
            while not until(seen):
                assert select.select([ours], [], [], max(0.0, end - time.monotonic()))[0], seen
                seen += os.read(ours, 65_536)
            process.send_signal(signal.SIGINT)
            while part := read_rest(ours):
                seen += part
            code = process.wait(BOUND)
        finally:
            process.kill()
            os.close(ours)
    return code, seen.decode()


def read_rest(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:  # the other side is closed
        return b""
