"""That each measurement over HTTP measures something, in a tiny form. Never how fast anything is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.overhttp import calls, programs, reloads, rounds, sessions
from bench.overhttp.calls import FORWARDING, HTTP, STDIO
from bench.overhttp.programs import FLOOR, Program
from bench.overhttp.started import started
from tests.system import hostile_traffic

pytestmark = pytest.mark.timeout(180)
TINY = calls.Size(laps=1, calls=2, many=32)
SILENT = Program("silent", (sys.executable, "-c", "import sys; sys.exit('no port for me')"))
# An endpoint that answers so many requests and then takes no more.
CRASHES = """
import http.server, sys
left = int(sys.argv[2])

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global left
        left -= 1
        if left < 0:
            self.close_connection = True
            return
        id = self.rfile.read(int(self.headers["content-length"])).split(b'"id":')[1].split(b",")[0]
        body = b'{"id":%s,"result":{"content":[{"text":"x"}]}}' % id
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
PLAIN = Program("plain", programs.bare().words, "/bare")


def test_calls_pass_through_the_gate_in_both_eras_and_a_peer_that_cannot_is_named() -> None:
    found = calls.measure(TINY, [SILENT, PLAIN])
    everywhere = {(name, era) for name in (STDIO, HTTP) for era in ("legacy", "modern")}
    measured = {(call.name, call.era) for call in found.calls}
    assert everywhere | {(FLOOR, "legacy"), (FORWARDING, "legacy"), ("plain", "modern")} == measured
    assert all(0 < call.p50 <= call.p99 and 0 < call.rate for call in found.calls)
    refused = {(name, era): why for name, era, why in found.refused}
    assert {("silent", "legacy"), ("silent", "modern"), ("plain", "legacy")} == set(refused)
    assert "no port for me" in refused["silent", "modern"]


def test_a_peer_that_fails_among_its_laps_is_named_and_the_others_have_figures() -> None:
    warm = TINY.calls // 2 + 2 + TINY.many // 2 + 1
    crashing = Program("crashing", (sys.executable, "-c", CRASHES, "{port}", str(warm)), "/", plain=True)
    found = calls.measure(TINY, [crashing])
    assert [("crashing", "legacy")] == [(name, era) for name, era, _ in found.failed]
    assert "lost" in found.failed[0][2]
    assert "crashing" not in {call.name for call in found.calls}
    assert {FLOOR, FORWARDING, STDIO, HTTP} == {call.name for call in found.calls}


@pytest.mark.parametrize("behind", ["HTTP", "stdio"])
def test_sessions_are_opened_and_call_at_once(behind: sessions.Behind) -> None:
    found = sessions.measure(behind, 3, 2, 2)
    assert (3, 2, 0) == (found.open, found.calling, found.errors)
    assert 0 < found.p50 <= found.p99
    if found.children is not None:
        assert (found.children > 0) == (behind == "stdio")


def test_each_round_brings_its_sample_and_is_on_record() -> None:
    found = rounds.measure(40)
    assert (0, 40) == (found.lost, found.recorded)


def test_a_round_that_is_refused_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rounds, "POLICY", rounds.POLICY.replace("effect: allow, with: {models: [script]}", "effect: deny")
    )
    found = rounds.measure(3)
    assert (3, 0) == (found.lost, found.recorded)


def test_reloads_are_taken_while_calls_go_on() -> None:
    found = reloads.measure(2)
    assert (2, 0) == (found.taken, found.failed)
    assert found.calls >= calls.MANY


def test_a_program_that_does_not_listen_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no port for me"), started(SILENT.command, SILENT.path, None):
        pass


def test_hostile_frames_are_timed() -> None:
    found = hostile_traffic.measured([("NaN, in an argument", 1 << 20), ("deep lists, in argument", 1 << 19)])
    assert [("NaN, in an argument", 1 << 20), ("deep lists, in argument", 1 << 19)] == [
        (stall.name, stall.size) for stall in found
    ]
    assert all(stall.cpu >= 0 for stall in found)
