"""One frame is one line for every reader, whatever line ends it knows: in Python's text mode, a carriage return between
two JSON tokens ends a line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from samplegate.transport.stdio import connect
from tests.fakes.daemon import client, serving
from tests.fakes.recorder import BOUND, Recorder
from tests.paths import PROGRAMS, ROOT

READER = PROGRAMS / "text_reader.py"
POLICY = "version: 1\nrules:\n  - {name: never, effect: deny}\n"
HELLO = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}}}}\n'  # noqa: E501
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe"}}\n'
SAMPLE = b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9}}'
FORGED = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"danger"}}'
MARKS = "\u2028{}\u2029\u0085\x7f"
"""Characters that ``str.splitlines`` ends a line at, and that may stand in a string of JSON as they are."""
BETWEEN = ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\u0085", "\u2028", "\u2029", "\ufeff")
"""What ends a line for some reader or counts as white space elsewhere, and is neither in JSON."""


class Gate:
    """``samplegate run`` around a server that reads its input in text mode."""

    def __init__(self, folder: Path) -> None:
        self.seen = folder / "seen"
        (folder / "policy.yaml").write_text(POLICY)
        self._folder = folder

    def run(self, said: Sequence[bytes], written: bytes = b"") -> tuple[list[str], list[str]]:
        """The lines that the server and the client read, both in text mode. The client writes each of its lines after
        the answer to the one before."""
        (self._folder / "write").write_bytes(written)
        given = {
            "PYTHONPATH": str(ROOT / "proxy"),
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "PYTHONUTF8": "1",
        }
        command = [sys.executable, "-m", "samplegate", "run", "--policy", "policy.yaml", "--decision-log", "none", "--"]
        command += [sys.executable, str(READER), str(self.seen), str(self._folder / "write")]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=self._folder, env=given
        ) as gate:
            assert gate.stdin is not None
            assert gate.stdout is not None
            heard = b""
            for line in said:
                gate.stdin.write(line)
                gate.stdin.flush()
                while line.startswith(b'{"jsonrpc":"2.0","id":'):
                    heard += (answer := gate.stdout.readline())
                    if b'"method"' not in answer:
                        break
            gate.stdin.close()
            heard += gate.stdout.read()
        read = [json.loads(line) for line in self.seen.read_text("utf-8").split("\n") if line]
        return read, heard.decode().replace("\r\n", "\n").replace("\r", "\n").splitlines(keepends=True)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def read_all(fd: int) -> bytes:
    """Read everything. It blocks, so it runs in a thread."""
    return b"".join(iter(lambda: os.read(fd, 1 << 20), b""))


def methods(lines: list[str]) -> list[Any]:
    """The methods of the frames in a reader's lines."""
    found = []
    for line in lines:
        try:
            frame = json.loads(line)
        except ValueError:
            continue
        found.append(frame.get("method") if isinstance(frame, dict) else frame)
    return found


def test_a_client_cannot_hide_a_second_call_from_the_gate_behind_a_carriage_return(gate: Gate) -> None:
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","arguments":\r' + FORGED + b"\r}}\n"
    read, _ = gate.run([HELLO, call])
    assert [call.replace(b"\r", b" ").decode()] == read[1:]  # a blank of the same length: positions stay


def test_a_server_cannot_hide_a_request_from_the_rules_behind_a_carriage_return(gate: Gate) -> None:
    hidden = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":\r' + SAMPLE + b"\r}}\n"
    _, heard = gate.run([HELLO, CALL], hidden)
    assert [None, "notifications/x", None] == methods(heard)
    assert hidden.replace(b"\r", b" ").decode() in heard


def test_a_line_end_of_another_system_leaves_as_a_plain_one(gate: Gate) -> None:
    read, _ = gate.run([HELLO.replace(b"\n", b"\r\n"), CALL.replace(b"\n", b"\r\r\n"), CALL.replace(b"\n", b" \r \n")])
    assert ["initialize", "tools/call", "tools/call"] == methods(read)


def test_other_line_ends_stand_in_strings_alone_where_no_cut_makes_a_frame(gate: Gate) -> None:
    """They pass unchanged (R109). A line that is cut there begins within a string, so it has no member names outside of
    strings."""
    text = json.dumps({"name": MARKS.format(FORGED.decode())}, ensure_ascii=False)
    call = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{text}}}\n'
    read, _ = gate.run([HELLO, call.encode()])
    assert call == read[1]
    assert [] == [frame for frame in methods(read[1].splitlines()) if frame is not None]


def test_other_line_ends_between_tokens_are_not_json_and_do_not_pass(gate: Gate) -> None:
    framed = [
        f'{{"jsonrpc":"2.0","method":"notifications/x","params":{mark}{FORGED.decode()}{mark}}}\n'.encode()
        for mark in BETWEEN
    ]
    read, _ = gate.run([HELLO, *framed, CALL])
    assert [CALL.decode()] == read[1:]


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_an_event_over_http_has_its_frame_in_one_line_of_data(tmp_path: Path) -> None:
    """The client parses each data line as a frame, as simple readers of event streams do."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "write").write_bytes(
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":\r' + SAMPLE + b"\r}}\n"
    )
    command = [sys.executable, str(READER), str(tmp_path / "seen"), str(tmp_path / "write")]
    async with serving(tmp_path, "--policy", "policy.yaml", "--", *command) as gate, client(gate) as c:
        await c.begin()
        assert {"content": []} == (await c.call("legacy", 1))["result"]
    assert [("notifications/message", {"data": json.loads(SAMPLE)})] == [
        (frame["method"], frame["params"]) for frame in c.heard
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("size", [10, 100_000])
async def test_no_writer_puts_out_a_line_end_within_a_line(threads: bool, size: int) -> None:
    (reading, other), (back, writing) = os.pipe(), os.pipe()
    link = connect(reading, writing, Recorder(), max_line=1 << 20, blocking=(reading, writing) if threads else ())
    link.send(b"{\r" + b"a" * size + b"\n\r}")
    link.send(b"\r")
    link.close_writing()
    put = await asyncio.wait_for(asyncio.to_thread(read_all, back), BOUND)
    os.close(back)
    os.close(other)
    link.abort()
    assert b"{ " + b"a" * size + b"  }\n \n" == put
