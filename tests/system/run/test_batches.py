"""JSON-RPC batches on the stdin of `run`: each call in a batch is answered, and a refused batch fails `--strict`
(R92)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.run_process import SLOW, Running, call, modern, opening, request, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes")
REFUSED = "refused: batches are not supported in this protocol version"


def hello(revision: str) -> list[dict[str, Any]]:
    """The first frames of a client that requests this protocol version."""
    first, second = opening()
    first["params"]["protocolVersion"] = revision
    return [first, second]


def pipe(gate: Running, *lines: Any) -> None:
    """Write all lines at once, without waiting for answers."""
    assert gate.process.stdin is not None
    gate.process.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    gate.process.stdin.flush()


@pytest.mark.parametrize("options", [(), ("--protocol", "modern")])
def test_a_batch_piped_right_after_initialize_is_answered(tmp_path: Path, options: tuple[str, ...]) -> None:
    server = (*SLOW, "modern") if "modern" in options else SLOW
    first, second = hello("2025-03-26")
    with running(tmp_path, "--strict", *options, command=server) as gate:
        pipe(gate, first, [call(1), call(2)], second, call(3))
        code, answers, said = gate.end()
    assert (0, [0, 1, 2, 3], []) == (code, sorted(answers), [id for id in answers if "error" in answers[id]]), said


def test_a_batch_before_the_answer_of_a_server_that_turns_out_modern_is_answered(tmp_path: Path) -> None:
    with running(tmp_path, "--strict", command=(*SLOW, "modern")) as gate:
        pipe(gate, hello("2025-03-26")[0], [call(1), call(2)])
        code, answers, said = gate.end()
    assert (0, [0, 1, 2], []) == (code, sorted(answers), [id for id in answers if "error" in answers[id]]), said


@pytest.mark.parametrize(("server", "waits"), [("legacy", False), ("modern", True)])
def test_each_call_of_a_batch_that_the_revision_does_not_have_gets_an_error_and_fails_strict(
    tmp_path: Path, server: str, waits: bool
) -> None:
    with running(tmp_path, "--strict", command=(*SLOW, server)) as gate:
        gate.write(hello("2025-11-25")[0])
        if waits:
            assert 0 == gate.read()["id"]
        pipe(gate, [call(1), {"jsonrpc": "2.0", "method": "notifications/x"}, call("two")])
        code, answers, said = gate.end()
    assert (3, REFUSED, REFUSED) == (code, answers[1]["error"]["message"], answers["two"]["error"]["message"]), said
    assert "no requests; 2 calls refused" in said


def test_each_call_of_a_batch_with_initialize_in_it_gets_an_error_and_fails_strict(tmp_path: Path) -> None:
    with running(tmp_path, "--strict", command=(*SLOW, "modern")) as gate:
        pipe(gate, [hello("2025-03-26")[0], call(1)])
        code, answers, said = gate.end()
    assert (3, [REFUSED, REFUSED]) == (code, [answers[id]["error"]["message"] for id in (0, 1)]), said


def test_each_call_of_a_modern_clients_batch_gets_an_error_and_fails_strict(tmp_path: Path) -> None:
    with running(tmp_path, "--strict") as gate:
        gate.write(modern(request(0, "tools/list")))
        assert 0 == gate.read()["id"]
        pipe(gate, [call(1, era="modern"), call(2, era="modern")])
        code, answers, said = gate.end()
    assert (3, [REFUSED, REFUSED]) == (code, [answers[id]["error"]["message"] for id in (1, 2)]), said


@pytest.mark.parametrize(("server", "waits"), [("legacy", True), ("modern", False)])
def test_a_batch_in_a_batch_is_refused_and_its_calls_get_errors(tmp_path: Path, server: str, waits: bool) -> None:
    with running(tmp_path, "--strict", command=(*SLOW, server)) as gate:
        gate.write(hello("2025-03-26")[0])
        if waits:
            assert 0 == gate.read()["id"]
        pipe(gate, [call(1), [call(2), call(3)]])
        code, answers, said = gate.end()
    assert (3, True) == (code, "result" in answers[1]), said
    assert ["refused: nested batches are not allowed"] * 2 == [answers[id]["error"]["message"] for id in (2, 3)]


@pytest.mark.parametrize(
    ("line", "calls"), [([request(id, "ping") for id in range(1, 1006)], 1005), (["x" * 5_000_000], 1)]
)
def test_a_batch_over_the_bounds_fails_strict(tmp_path: Path, line: list[Any], calls: int) -> None:
    with running(tmp_path, "--strict") as gate:
        gate.write(hello("2025-03-26")[0])
        assert 0 == gate.read()["id"]
        pipe(gate, line)
        code, answers, said = gate.end()
    assert (3, 1000 if calls > 1 else 0) == (code, len(answers)), said
    assert f"{calls} call{'s' if calls > 1 else ''} refused" in said
    assert 1 == said.count('"side": "client"')
