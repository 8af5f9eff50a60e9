"""Any messages in any order, before and after the negotiation: nothing raises, no request is answered twice, and none
waits forever."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import frames
from samplegate.protocol.bridge.era_detection import Eras
from samplegate.protocol.bridge.negotiation import EraNegotiator
from samplegate.protocol.outcomes import Denied, Reason
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Effect, Later, Open, Over, Release, Settled, ToClient, ToServer, Withdraw
from tests.fakes.dialogue import ALLOW, request, result, sample
from tests.fakes.streams import ALL, INFO, SUBSCRIPTION, VERSION, Streams, asks, raw, tells

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": ALL, "serverInfo": INFO}
DISCOVERED = {"resultType": "complete", "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}
CLIENT: list[Any] = [
    request(0, "initialize", **HELLO),
    tells("notifications/initialized"),
    asks("d", "server/discover"),
    asks("d", "server/discover", {VERSION: "2099-01-01"}),
    asks(1, "tools/call", name="x"),
    asks(1, "tools/call", name="x", requestState="s"),
    asks("L", "subscriptions/listen", notifications={"toolsListChanged": True, "resourceSubscriptions": ["u"]}),
    request(2, "tools/list"),
    request(3, "ping"),
    tells("notifications/cancelled", requestId=1),
    tells("notifications/cancelled", requestId="d"),
    tells("notifications/vendor"),
    result("nobody"),
    b"",
    b"[]",
    b'{"jsonrpc":"2.0","id":9,"method":"a","method":"b"}',
    b'{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"_meta":{"a":1,"a":2,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}',
]
SERVER: list[Any] = [
    {"result": WELCOME},
    {"result": {**WELCOME, "protocolVersion": "2025-03-26"}},
    {"result": {**DISCOVERED, "supportedVersions": ["2026-07-28"]}},
    {"result": {**DISCOVERED, "supportedVersions": ["2026-07-28", "2025-11-25"]}},
    {"result": {**DISCOVERED, "supportedVersions": ["2025-11-25"]}},
    {"result": {}},
    {"result": 5},
    {"error": {"code": -32601, "message": "no"}},
    {"error": {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}},
    {"error": {"code": -32022, "message": "no", "data": {"supported": ["2025-11-25"]}}},
    {"error": {"code": -32000, "message": "no", "message ": "no"}},
    {"error": 5},
]
PUSHED: list[Any] = [
    request("p", "ping"),
    request("r", "roots/list"),
    request("s", "sampling/createMessage", **sample()),
    tells("notifications/tools/list_changed"),
    tells("notifications/tools/list_changed", _meta={SUBSCRIPTION: "L"}),
    b"Listening on port 3000",
]
STEPS = st.one_of(
    st.tuples(st.just("client"), st.integers(0, 1), st.sampled_from(CLIENT)),
    st.tuples(st.just("client"), st.just(0), st.sampled_from(CLIENT[:5])),
    st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from(SERVER)),
    st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from(SERVER)),
    st.tuples(
        st.sampled_from(["push", "push", "due", "close", "settle", "lost"]), st.integers(0, 1), st.sampled_from(PUSHED)
    ),
)
KNOWN = st.sampled_from(
    [
        None,
        Eras(True, False),
        Eras(False, True),
        Eras(True, None),
        Eras(None, True),
        Eras(True, True),
        Eras(False, False),
    ]
)


class Counted(Streams):
    """Open requests as the peers themselves would count them."""

    def __init__(self, known: Eras | None) -> None:
        super().__init__(lambda state: EraNegotiator(state, known), ALLOW)
        self.waiting: Counter[tuple[int, str]] = Counter()
        self.modern: set[tuple[int, str]] = set()
        self.at_server: list[Any] = []
        self.timers: list[str] = []
        self.open: set[str] = set()
        self.cancelled = (0, "")

    def take(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case ToClient(stream, line):
                    assert stream >= 0
                    self.hears(stream, json.loads(line))
                case ToServer(_, line):
                    said = json.loads(line)
                    if "method" in said and "id" in said:
                        self.at_server.append(said["id"])
                    elif (
                        said.get("method") == "notifications/cancelled"
                        and said["params"].get("requestId") in self.at_server
                    ):
                        self.at_server.remove(said["params"]["requestId"])
                case Over(stream):
                    gone = [place for place, count in self.waiting.items() if place[0] == stream and count]
                    # closing a stream ends only its modern requests (T35)
                    ended = next((place for place in gone if place in self.modern), gone[0])
                    self.waiting[self.cancelled if self.waiting[self.cancelled] else ended] -= 1
                case Open(round):
                    self.open.add(round.id)
                case Withdraw(round):
                    self.open.discard(round)
                case Later(_, token):
                    self.timers.append(token)
                case _:
                    pass
        return super().take(effects)

    def hears(self, stream: int, said: dict[str, Any]) -> None:
        if "method" not in said and said.get("id") is not None:
            place = (stream, repr(said["id"]))
            assert self.waiting[place] > 0, ("answered too often, or nobody's", said)
            self.waiting[place] -= 1

    def says(self, stream: int, line: Any) -> None:
        try:
            f = frames.read(raw(line))
            if f.kind == "request":
                self.waiting[stream, repr(f.id)] += 1
                if VERSION.encode() in f.raw:
                    self.modern.add((stream, repr(f.id)))
            self.cancelled = (stream, repr(json.loads(f.payload or b"{}").get("requestId")))
        except Malformed as problem:
            if problem.id is not None:
                self.waiting[stream, repr(problem.id)] += 1
        self.client(stream, line)

    def step(self, kind: str, number: int, line: Any) -> None:
        match kind:
            case "client":
                self.says(number, line)
            case "answer" if self.at_server:
                self.server({"jsonrpc": "2.0", "id": self.at_server.pop(number % len(self.at_server)), **line})
            case "push":
                self.server(line)
            case "due" if self.timers:
                self.take(self.session.due(self.timers.pop()))
            case "lost" if self.at_server:
                self.take(
                    self.session.lost(
                        "server",
                        0,
                        raw({"jsonrpc": "2.0", "id": self.at_server.pop(0), "result": {}})[:-2],
                        "it is too long",
                    )
                )
            case "settle" if self.open:
                round = self.open.pop()
                self.take(self.session.round_done(round, Settled({"": Release(Denied(Reason.RULE), "d")}), 0.0))
            case "close" if number:
                self.take(self.session.stream_closed("client", number))
            case _:
                pass


@given(KNOWN, st.lists(STEPS, max_size=20))
def test_nothing_raises_and_nobody_is_answered_twice(known: Eras | None, script: list[tuple[str, int, Any]]) -> None:
    d = Counted(known)
    for kind, number, line in script:
        d.step(kind, number, line)
    d.state.outlived = True
    d.take(d.session.eof("server"))
    d.take(d.session.eof("client"))


@given(KNOWN, st.lists(STEPS.filter(lambda step: step[0] not in ("close", "lost")), max_size=20))
def test_whatever_was_asked_is_answered_once_when_the_server_is_gone(
    known: Eras | None, script: list[tuple[str, int, Any]]
) -> None:
    d = Counted(known)
    d.state.outlived = True
    for kind, number, line in script:
        d.step(kind, number, line)
    for round in sorted(d.open):
        d.take(d.session.round_done(round, Settled({"": Release(Denied(Reason.RULE), "d")}), 0.0))
    d.take(d.session.eof("server"))
    assert [] == [place for place, count in d.waiting.items() if count]
