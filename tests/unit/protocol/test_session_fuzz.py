"""Hostile bytes: the frame reader returns a frame or rejects them, the session never raises, and neither keeps what it
cannot use."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import frames
from samplegate.protocol.frames import Frame
from samplegate.protocol.outcomes import Denied, Reason
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Effect, Later, Open, Release, Settled, ToClient, ToServer
from tests.fakes.dialogue import ALLOW, ANSWER, FORWARD, Dialogue, ask, error, form, modern, request, result, sample

META = {"progressToken": "p", "io.modelcontextprotocol/related-task": {"taskId": "t"}}
URLS = {"elicitations": [{"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "e"}]}
SEEDS = [
    request(1, "tools/call", name="x", _meta=META),
    request(
        0,
        "initialize",
        protocolVersion="2025-03-26",
        capabilities={"sampling": {"tools": {}}, "tasks": {"requests": {"sampling": {}}}},
    ),
    modern(1, "tools/call", {"sampling": {}, "roots": {}}, name="x", inputResponses={"k": {}}),
    modern(1, "tools/call", {"sampling": {}}, name="x", requestState="sg2.AAAA"),
    modern("a", "server/discover", {"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    request(7, "sampling/createMessage", **sample(_meta=META, task={})),
    request("e", "elicitation/create", **form()),
    request(8, "roots/list"),
    result(
        1,
        resultType="input_required",
        inputRequests={"k": ask(sample()), "r": {"method": "roots/list"}},
        requestState="s",
    ),
    result(1, resultType="input_required", requestState="half \ud83d"),
    result("a", capabilities={"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    result(0, protocolVersion="2025-03-26", capabilities={}),
    error(1, -32042, data=URLS),
    result(1, content=[], metadata={"k": 1, "elicitation": form()}),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p", "progress": 1}},
    [request(1, "ping"), result(7, role="assistant"), []],
]
LINES = [json.dumps(seed, separators=(",", ":")).encode() for seed in SEEDS]
PIECES = [
    b"{",
    b"}",
    b"[",
    b'"',
    b",",
    b":",
    b"\\",
    b"null",
    b"1e999",
    b"NaN",
    b"-0",
    b"\xff",
    b"\x00",
    b"\n",
    b"\\ud83d",
    b"\\u0069d",
    b'"id":1,',
    b'"id":"sg:t:1",',
    b'"method":"ping",',
    b'"params":5,',
    b'"resultType":"task",',
    b"9" * 5000,
    b"[" * 1500,
    b'{"a":' * 985 + b"1" + b"}" * 985,
    "\u017f".encode(),
    b"notifications/cancelled",
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid frame with pieces inserted, cut out or doubled."""
    line = draw(st.sampled_from(LINES))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(line)))
        end = min(len(line), start + draw(st.sampled_from([0, 1, 2, 7, 40])))
        piece = draw(
            st.one_of(
                st.sampled_from(PIECES), st.sampled_from(PIECES), st.binary(max_size=3), st.just(line[start:end] * 2)
            )
        )
        line = line[:start] + piece + line[end:]
    return line


ANYTHING = st.one_of(mutated(), mutated(), st.binary(max_size=60), st.sampled_from(LINES))


def dialogue(kind: str) -> Dialogue:
    rules = [FORWARD] if kind == "forward" else [ALLOW, ANSWER]
    d = Dialogue(*rules, servers={"default": {"ui_results": "police"}})
    if kind != "modern":
        d.open_legacy("2025-03-26" if kind == "legacy" else "2025-11-25", sampling={}, elicitation={})
    return d


@given(ANYTHING)
def test_any_bytes_are_a_frame_or_malformed(line: bytes) -> None:
    try:
        f = frames.read(line)
    except Malformed:
        return
    assert isinstance(f, Frame)
    assert line is f.raw
    assert f.kind in ("request", "notification", "result", "error")


@given(ANYTHING)
def test_what_is_a_frame_is_json_of_one_reading(line: bytes) -> None:
    try:
        f = frames.read(line)
        text = line.decode()
    except (Malformed, UnicodeDecodeError):
        return
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (RecursionError, ValueError):
        assert len(line) > 980  # a depth or a number that this parser rejects
        return
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names))
    decoded: dict[str, Any] = dict(pairs)
    assert f.method == decoded.get("method", "")
    if f.id is not None:
        assert f.id == decoded["id"]


@given(
    st.sampled_from(["legacy", "modern", "forward"]),
    st.lists(
        st.tuples(st.sampled_from(["client", "server", "settle", "forward", "beat", "due"]), ANYTHING), max_size=12
    ),
)
def test_a_session_never_raises_whatever_is_written(kind: str, script: list[tuple[str, bytes]]) -> None:
    """The relay around the session catches nothing: an exception here would end the gate or leave a request
    unanswered."""
    d = dialogue(kind)
    for step, line in script:
        for effect in happens(d, step, line):
            if isinstance(effect, ToClient | ToServer):
                assert b"\n" not in effect.line or b"\n" in line
                frames.read(effect.line)  # every forwarded line can be read, and in one way only
    d.session.eof("server")
    d.session.eof("client")


def happens(d: Dialogue, step: str, line: bytes) -> list[Effect]:
    """Run one step of a script."""
    s = d.session
    open_ = {**s.pushes.open, **s.exchange.open, **s.url_errors.open, **s.tool_results.open}
    rounds = [round for round in d.rounds.values() if round.id in open_]
    match step:
        case "client":
            return d.client(line)
        case "server":
            return d.server(line)
        case "settle":
            return [
                e
                for round in rounds
                for e in d.done(round, Settled({key: Release(Denied(Reason.RULE), "d") for key in round.items}))
            ]
        case "forward":
            return [e for round in rounds for e in d.take(s.forward(round.id))]
        case "beat":
            return [e for round in rounds for e in d.take(s.round_progress(round.id))]
        case _:
            return [e for later in d.log if isinstance(later, Later) for e in s.due(later.token)]


def kept(d: Dialogue) -> int:
    """The number of entries in the session's tables."""
    s = d.session
    inflight = s.state.inflight
    return (
        len(inflight.asked)
        + len(inflight.wire)
        + len(s.pushes.open)
        + len(s.passed.open)
        + len(s.handshake._asked)
        + len(s.exchange.open)
    )


@given(st.lists(ANYTHING, min_size=1, max_size=6), st.sampled_from(["client", "server"]))
def test_nothing_is_kept_of_what_is_refused_or_passed(lines: list[bytes], side: str) -> None:
    """The same lines ten times over add nothing to any table except open requests."""
    d = dialogue("legacy")
    sizes = []
    for _ in range(10):
        for line in lines:
            d.client(line) if side == "client" else d.server(line)
        sizes.append(kept(d))
    assert sizes[1] == sizes[-1]


def test_a_server_that_asks_without_end_is_bounded() -> None:
    d = dialogue("legacy")
    asked = [json.dumps(request(0, method, **sample())) for method in ("sampling/createMessage", "ping")]
    assert all('"id": 0' in frame for frame in asked)
    opened = 0
    for number in range(12_000):
        frame = asked[number % 2].replace('"id": 0', f'"id": {number}', 1)
        out = d.session.frame("server", 0, frame.encode(), 0.0)
        opened += sum(isinstance(effect, Open | ToClient) for effect in out)
    assert opened <= 11_000
    assert len(d.session.pushes.open) <= 1000


def test_a_client_that_declares_ever_new_things_is_bounded() -> None:
    d = Dialogue(ALLOW)
    for number in range(1000):
        d.client(modern(1, "tools/call", {"vendor": number}, name=f"tool{number}"))
        d.server(result(1))
    assert len(d.session.exchange._declarations._kept) <= 256
    assert {} == d.session.state.inflight.asked
