"""The link on a process's own stdin and stdout, of any kind and shared with any process."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.loops import LOOPS
from tests.fakes.recorder import BOUND, environment
from tests.paths import PROGRAMS

BOTH = pytest.mark.parametrize("loop", LOOPS)
LAST = LOOPS[-1]  # the one that `run` takes


def command(loop: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "own_echo.py"), loop]


def run(loop: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(loop), env=environment(), timeout=BOUND, check=False, **streams)


@BOTH
def test_lines_over_pipes_come_back(loop: str) -> None:
    done = run(loop, input=b"one\r\n\n\xff\xfe\nrest", capture_output=True)
    assert (0, b"echo one\necho \xff\xfe\necho rest\n") == (done.returncode, done.stdout)


def test_stray_prints_go_to_stderr() -> None:
    done = run(LAST, input=b"one\n", capture_output=True)
    assert b"echo one\n" == done.stdout
    assert b"a stray print" in done.stderr
    assert b"a stray write" in done.stderr


@BOTH
def test_a_long_line_comes_back(loop: str) -> None:
    line = b"x" * (20 << 20)
    done = run(loop, input=line + b"\n", capture_output=True)
    assert b"echo " + line + b"\n" == done.stdout


def test_stdin_and_stdout_may_be_files(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"".join(b"%d\n" % n for n in range(20_000)))
    with source.open("rb") as stdin, target.open("wb") as stdout:
        done = run(LAST, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
    assert b"drained dropped 0" in done.stderr
    assert b"".join(b"echo %d\n" % n for n in range(20_000)) == target.read_bytes()


def test_the_null_device_is_the_end_of_input() -> None:
    done = run(LAST, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (0, b"drained dropped 0\n") == (done.returncode, done.stderr)


@pytest.mark.parametrize(("name", "close"), [("stdin", "<&-"), ("stdout", ">&-")])
def test_a_closed_stream_is_refused_with_a_remedy(name: str, close: str) -> None:
    done = run_shell(LAST, close)
    assert (1, b"") == (done.returncode, done.stdout)
    assert f"{name}: closed, but the client connects over it; start".encode() in done.stderr


def test_a_closed_stderr_does_no_harm() -> None:
    done = run_shell(LAST, "2>&-")
    assert (0, b"echo one\n", b"") == (done.returncode, done.stdout, done.stderr)


def run_shell(loop: str, redirection: str) -> subprocess.CompletedProcess[bytes]:
    shell = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *command(loop)]
    return subprocess.run(shell, env=environment(), input=b"one\n", capture_output=True, timeout=BOUND, check=False)


@BOTH
def test_one_socket_for_both_directions(loop: str) -> None:
    """As ssh and inetd do it."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                command(loop), stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE, env=environment()
            )
            os.set_blocking(theirs.fileno(), True)
            ours.settimeout(BOUND)
            ours.sendall(b"one\ntwo\n")
            got = b""
            while got.count(b"\n") < 2:
                got += ours.recv(1000)
            ours.shutdown(socket.SHUT_WR)
            errors = process.communicate(timeout=BOUND)[1]
            assert os.get_blocking(theirs.fileno()), "the mode is restored for whoever shares the socket"
        assert b"echo one\necho two\n" == got
        assert b"drained dropped 0" in errors
        assert b"" == ours.recv(1000)


def test_a_terminal_stays_blocking() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(LAST), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment(), start_new_session=True
    )
    os.write(ours, b"one\n")
    got = b""
    while b"echo one" not in got:
        got += os.read(ours, 1000)
    assert os.get_blocking(theirs)
    os.write(ours, b"\x04")  # control-d
    assert b"drained dropped 0" in process.communicate(timeout=BOUND)[1]
    os.close(ours)
    os.close(theirs)


def test_a_shared_pipe_is_left_blocking() -> None:
    reading, writing = os.pipe()
    out_reading, out_writing = os.pipe()
    process = subprocess.Popen(command(LAST), stdin=reading, stdout=out_writing, stderr=out_writing, env=environment())
    os.write(writing, b"one\n")
    got = b""
    while b"echo one" not in got:
        got += os.read(out_reading, 1000)
    if sys.platform == "linux":  # elsewhere only at the end
        assert os.get_blocking(reading)
    assert os.get_blocking(out_writing), "stderr is the same pipe"
    os.close(writing)
    assert 0 == process.wait(BOUND)
    assert os.get_blocking(reading)
    for fd in (reading, out_reading, out_writing):
        os.close(fd)


@BOTH
def test_a_client_that_does_not_read_is_not_read_from(loop: str) -> None:
    """Backpressure through the process: what it buffers is bounded, however much it receives."""
    process = subprocess.Popen(
        command(loop), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    line = b"x" * 999 + b"\n"
    process.stdin.write(line)
    process.stdin.flush()
    assert b"echo " + line == process.stdout.readline()
    fcntl.fcntl(process.stdin, fcntl.F_SETFL, os.O_NONBLOCK)
    sent, stalls = 0, 0
    while stalls < 3:
        try:
            sent += os.write(process.stdin.fileno(), line * 64)
            stalls = 0
        except BlockingIOError:
            stalls += _stalled(process.stdin.fileno())
    assert sent < 2 << 20
    process.kill()
    process.communicate(timeout=BOUND)


def _stalled(fd: int) -> bool:
    """True if the pipe stays full for a fifth of a second."""
    return not select.select([], [fd], [], 0.2)[1]


@BOTH
def test_a_client_that_has_gone_ends_it(loop: str) -> None:
    process = subprocess.Popen(
        command(loop), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(b"one\ntwo\n")
    process.stdin.close()
    assert process.stderr is not None
    assert b"not drained dropped 2" in process.stderr.read()
    process.stderr.close()
    assert 0 == process.wait(BOUND)
