"""The benchmark measures something: programs that it starts do at least a relay's work. Speed is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

import pytest

from bench import endpoint, large, latency, memory, report, sampling, startup
from bench.faults import Faults
from bench.memory import Memory
from bench.variants import SERVER, Variant, variants

FLOOR = [variant for variant in variants((), None) if variant.name in ("bare", "floor")]


def test_calls_pass_through_the_floor() -> None:
    found = latency.measure(FLOOR, laps=2, calls=5, faults=Faults())
    assert {"bare", "floor"} == set(found)
    assert 0 == found["bare"].added_p50
    assert 0 < found["floor"].p50


def test_starts_are_timed() -> None:
    assert all(
        took > 0 for took in startup.measure(FLOOR, {"bare": 1, "floor": 1, "gate": 0, "peer": 0}, Faults()).values()
    )


def test_large_frames_pass_both_ways() -> None:
    found = large.measure(FLOOR, rounds=1, faults=Faults(), size=1 << 20)
    assert 0 < found["floor"].both


def test_small_calls_go_on_beside_large_frames() -> None:
    found = large.beside(FLOOR[1], rounds=1, calls=5, size=1 << 20)
    assert 0 < found.beside_p50


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_server_is_no_part_of_a_variants_memory() -> None:
    alone, floor, python = memory.measure(SERVER), memory.measure(FLOOR[1].command), memory.bare_python()
    assert Memory(0, 0, 0) == alone
    assert floor is not None
    assert python is not None
    assert floor.processes == 1
    assert python.rss > 0


def answered(url: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=20) as response:
        found: bytes = response.read()
        return found


def test_the_endpoint_answers_whole_and_streamed_alike() -> None:
    with endpoint.running() as model:
        whole = json.loads(answered(model.url, b'{"model": "m"}'))
        lines = answered(model.url, b'{"model": "m", "stream": true}').split(b"\n\n")
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-2]]
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert (b"data: [DONE]", whole["choices"][0]["message"]["content"]) == (lines[-2], said)
    assert whole["usage"] == events[-1]["usage"]


def test_a_lap_of_refused_samples_is_none() -> None:
    asking = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sample","arguments":{"count":1,"at_once":1}}}\n'  # noqa: E501
    refusal = b'{"jsonrpc":"2.0","id":0,"error":{"code":-1,"message":"no"}}\n'
    done = subprocess.run(sampling.SERVER, input=asking + refusal, capture_output=True, timeout=20, check=False)
    assert 1 == done.returncode
    assert b"a sample was refused" in done.stderr


def test_a_variant_that_ends_early_is_named() -> None:
    with pytest.raises(RuntimeError, match="ended before it answered"):
        startup.measure(
            [Variant("bare", (sys.executable, "-c", "pass"))], {"bare": 1, "floor": 0, "gate": 0, "peer": 0}, Faults()
        )


# A peer that answers the handshake and 230 calls, and then ends as if it had crashed.
LEAVES = """
import json, sys
for number, line in enumerate(sys.stdin):
    frame = json.loads(line)
    if number > 230:
        sys.exit("the peer has | crashed")
    if "id" in frame:
        print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": {}}), flush=True)
"""


def test_a_peer_that_fails_among_the_laps_is_a_cell_and_the_others_go_on() -> None:
    faults = Faults()
    found = latency.measure([*FLOOR, Variant("peer", (sys.executable, "-c", LEAVES))], laps=4, calls=20, faults=faults)
    assert {"bare", "floor"} == set(found)
    assert faults.why["peer"].endswith("the peer has / crashed")
    row = report.latency({**found, "gate": found["floor"]}, faults)[2]
    assert (None, "the same, against the peer, p50") == (row.met, row.what)
    assert "fastmcp proxy failed:" in row.beside
    assert "crashed" in row.beside
