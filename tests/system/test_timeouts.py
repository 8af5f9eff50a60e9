"""`start_timeout` and `call_timeout`: a server that does not answer holds neither its clients nor the gate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.gate import admin, client, serving
from tests.system.wrapping import SLOW, call, modern, opening, request, running
from tests.system.wrapping import serving as at_url

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="pipes"), pytest.mark.anyio]
ERAS = [("legacy", ""), ("modern", "modern"), ("legacy", "modern"), ("modern", "")]


def cancelled(notes: Path) -> list[Any]:
    """What the server was told to be taken back."""
    return [json.loads(line)["requestId"] for line in notes.read_text().splitlines()]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_that_does_not_answer_its_first_request_ends_the_run_with_2(tmp_path: Path, era: str) -> None:
    with running(tmp_path, "--start-timeout", "1", command=(*SLOW, "silent")) as gate:
        gate.write(*opening(era))
        answer = gate.read()
        assert (0, -32603) == (answer["id"], answer["error"]["code"])
        assert (
            "the server did not answer its first request within 1 s (setting start_timeout)"
            == answer["error"]["message"]
        )
        assert 2 == gate.process.wait(40)
        assert "start_timeout" in gate.end()[2]


@pytest.mark.parametrize("protocol", ["auto", "legacy", "modern"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_that_does_not_answer_a_call_without_an_opening_ends_the_run_with_2(
    tmp_path: Path, era: str, protocol: str
) -> None:
    with running(tmp_path, "--start-timeout", "1", "--protocol", protocol, command=(*SLOW, "silent")) as gate:
        gate.write(call(1, era=era))
        answer = gate.read()
        assert (1, True) == (answer["id"], "setting start_timeout" in str(answer["error"])), answer
        assert 2 == gate.process.wait(40)


def test_a_first_listen_to_a_server_that_answers_nothing_ends_the_run_with_2(tmp_path: Path) -> None:
    with running(tmp_path, "--start-timeout", "1", "--protocol", "modern", command=(*SLOW, "silent")) as gate:
        gate.write(modern(request("l", "subscriptions/listen", notifications={})))
        assert "setting start_timeout" in gate.read()["error"]["message"]
        assert 2 == gate.process.wait(40)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_first_call_may_take_longer_than_the_start_timeout_where_the_server_lives(tmp_path: Path, era: str) -> None:
    with running(
        tmp_path, "--strict", "--start-timeout", "2", "--protocol", "modern", command=(*SLOW, "modern")
    ) as gate:
        gate.write(call(1, era=era, seconds=3.5))
        gate.write(call(2, era=era))
        code, answers, said = gate.end()
    assert (0, [1, 2], []) == (code, sorted(answers), [id for id in answers if "error" in answers[id]]), said
    assert "unasked" not in said


def test_a_server_at_a_url_that_does_not_answer_its_first_request_ends_the_run_with_2(tmp_path: Path) -> None:
    with (
        at_url(tmp_path, command=(*SLOW, "silent")) as url,
        running(tmp_path, "--start-timeout", "1", "--url", url, command=()) as gate,
    ):
        gate.write(*opening())
        assert "start_timeout" in gate.read()["error"]["message"]
        assert 2 == gate.process.wait(40)


def test_a_server_may_take_its_time_while_its_client_says_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "--start-timeout", "2") as gate:
        with pytest.raises(subprocess.TimeoutExpired):
            gate.process.wait(2.5)
        gate.write(*opening(), call(1, seconds=2.5))
        assert [0, 1] == [gate.read()["id"], gate.read()["id"]]


@pytest.mark.parametrize(("era", "server"), ERAS)
def test_a_call_that_is_not_answered_ends_with_an_error_and_a_cancellation(
    tmp_path: Path, era: str, server: str
) -> None:
    notes = tmp_path / "notes"
    with running(tmp_path, "--strict", "--call-timeout", "3", command=(*SLOW, server, f"note={notes}")) as gate:
        gate.write(*opening(era), call(1, "never", era=era))
        assert 0 == gate.read()["id"]
        answer = gate.read()
        assert (1, -32603, "the server did not answer within 3 s (setting call_timeout)") == (
            answer["id"],
            *answer["error"].values(),
        )
        gate.write(call(2, era=era))
        assert (2, True) == ((answer := gate.read())["id"], "result" in answer)
        code, _, said = gate.end()
    assert (3, True) == (code, "no requests; 1 call without an answer" in said), said
    assert 1 == len(cancelled(notes))


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_call_to_a_server_at_a_url_that_is_not_answered_ends_with_an_error(tmp_path: Path, era: str) -> None:
    with (
        at_url(tmp_path, command=(*SLOW, era)) as url,
        running(tmp_path, "--call-timeout", "3", "--url", url, command=()) as gate,
    ):
        gate.write(*opening(era), call(1, "never", era=era))
        assert 0 == gate.read()["id"]
        assert "call_timeout" in gate.read()["error"]["message"]
        gate.write(call(2, era=era))
        assert (2, True) == ((answer := gate.read())["id"], "result" in answer)


@pytest.mark.parametrize(("server", "answered"), [("patient", True), ("default", False)])
def test_progress_begins_the_wait_anew_where_the_policy_says_so(tmp_path: Path, server: str, answered: bool) -> None:
    with running(tmp_path, "--call-timeout", "3", "--server", server) as gate:
        gate.write(*opening(), call(1, token="t", progress=8, pause=0.5))
        frames = [gate.read()]
        while "id" not in frames[-1] or frames[-1]["id"] != 1:
            frames.append(gate.read())
        assert answered is ("result" in frames[-1])


def test_the_time_in_which_the_server_waits_for_an_answer_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text("cases: [{answer: hi, delay: 3s}]\n")
    with running(tmp_path, "--call-timeout", "2") as gate:
        gate.write(*opening(), call(1, ask="sample", then=0.5))
        assert [0, True] == [gate.read()["id"], "hi" in gate.read()["result"]["content"][0]["text"]]


def test_a_listen_has_no_timeout_and_is_not_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, "--call-timeout", "1", command=(*SLOW, "modern")) as gate:
        gate.write(*opening("modern"), modern(request("l", "subscriptions/listen", notifications={})))
        assert 0 == gate.read()["id"]
        for id in (1, 2):  # each takes as long as the listen would
            gate.write(call(id, "never", era="modern"))
            assert id == gate.read()["id"]
        code, answers, said = gate.end()
    assert (0, {}) == (code, answers), said


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_servers_of_the_daemon_have_both_timeouts(tmp_path: Path, era: str) -> None:
    notes = tmp_path / "notes"
    silent = {"command": SLOW[0], "args": [*SLOW[1:], "silent"], "start_timeout": 1}
    slow = {"command": SLOW[0], "args": [*SLOW[1:], era, f"note={notes}"], "call_timeout": 3}
    (tmp_path / "policy.yaml").write_text("version: 1\nrules: [{name: a, effect: forward}]\n")
    settings = tmp_path / "serve.yaml"
    settings.write_text(json.dumps({"policy": "policy.yaml", "servers": {"silent": silent, "slow": slow}}))
    async with (
        serving(tmp_path, "--settings", str(settings)) as gate,
        client(gate, "/servers/silent/mcp") as one,
        client(gate, "/servers/slow/mcp") as other,
    ):
        first = await one.begin() if era == "legacy" else await one.modern("tools/list")
        assert "setting start_timeout" in first["error"]["message"]
        if era == "legacy":
            await other.begin()
        answer = await (other.legacy if era == "legacy" else other.modern)("tools/call", 5, name="never", arguments={})
        assert "setting call_timeout" in answer["error"]["message"]
        assert "result" in await other.call(era, 6)
        assert 'samplegate_calls_lost_total{reason="timeout",server="slow"} 1.0' in (await admin(gate, "/metrics"))[1]
    assert 1 == len(cancelled(notes))
