"""Each measurement over HTTP measures something, in a tiny form. Speed is not tested."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.overhttp import calls, programs, rounds, sessions
from bench.overhttp.calls import FORWARDING, HTTP, STDIO
from bench.overhttp.programs import FLOOR, Program
from bench.overhttp.started import started

pytestmark = pytest.mark.timeout(180)
TINY = calls.Size(laps=1, calls=2, many=32)
SILENT = Program("silent", (sys.executable, "-c", "import sys; sys.exit('no port for me')"))
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


def test_calls_are_answered_beside_idle_sessions() -> None:
    found = sessions.measure_idle(3, laps=1, calls=16)
    assert (3, 0) == (found.open, found.errors)
    for latency in (found.one, found.one_alone, found.many, found.many_alone):
        assert 0 < latency.p50 <= latency.p99
    assert 0 < found.opening
    assert 0 < found.opening_alone


def test_each_round_brings_its_sample_and_is_on_record() -> None:
    found = rounds.measure(40)
    assert (0, 40) == (found.lost, found.recorded)


def test_a_round_that_is_refused_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rounds, "POLICY", rounds.POLICY.replace("effect: allow, with: {models: [script]}", "effect: deny")
    )
    found = rounds.measure(3)
    assert (3, 0) == (found.lost, found.recorded)


def test_a_program_that_does_not_listen_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no port for me"), started(SILENT.command, SILENT.path, None):
        pass
