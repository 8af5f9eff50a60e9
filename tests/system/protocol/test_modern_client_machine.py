"""Modern clients and a legacy server under any order of events: clients on several streams and a server that act at any
time.

The clients are on stdio, or on HTTP with a stream for each request: the stream ends with its answer, and nothing is
sent on it after that.

What must hold whatever happens: nothing raises, every request is answered once or was taken back, the server never sees
the modern era, nobody hears what is another's, and nothing is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from samplegate.policy.capabilities import SessionRules
from samplegate.policy.match import compile_policy
from samplegate.protocol import frames
from samplegate.protocol.bridge.modern_client import ModernClient
from samplegate.protocol.bridge.translation import LEVELS, REMOVED
from samplegate.protocol.outcomes import Denied, Outcome, Reason, Unanswered
from samplegate.protocol.rounds import (
    ClientReply,
    Effect,
    Later,
    Open,
    Over,
    Release,
    Round,
    Settled,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.protocol.session_state import SessionState
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    DENY,
    FORWARD,
    FORWARD_URLS,
    SEAL_KEYS,
    answered,
    form,
    policy,
    request,
    sample,
)
from tests.fakes.streams import ALL, CAPABILITIES, INFO, LEVEL, SERVER, SUBSCRIPTION, VERSION, asks, raw, tells

Id = tuple[str, Any]
"""A type and a value: 1 and "1" are two ids."""
Place = tuple[int, Id]
POLICIES = [(ALLOW, ANSWER), (FORWARD,), (FORWARD, ALLOW), (DENY,), (FORWARD_URLS, ALLOW)]
IDS = st.sampled_from([0, 1, "1", "a", 2**70, "sg:t:1"])
STREAMS = st.integers(0, 2)
METHODS = st.sampled_from(
    [
        "tools/call",
        "tools/call",
        "prompts/get",
        "resources/read",
        "tools/list",
        "server/discover",
        "vendor/x",
        *sorted(REMOVED),
    ]
)
METAS = st.sampled_from(
    [
        {},
        {"progressToken": 1},
        {"progressToken": "p", LEVEL: "debug"},
        {LEVEL: "error", "vendor": 1.0},
        {CAPABILITIES: {"sampling": {}, "elicitation": {"url": {}}}},
        {VERSION: "2025-11-25"},
        {CAPABILITIES: None},
        {LEVEL: "loud"},
    ]
)
MORE = st.sampled_from(
    [{}, {}, {}, {"requestState": "s"}, {"inputResponses": {"k": {}}}, {"requeststate": 1}, {"task": {}}]
)
FILTERS = st.sampled_from(
    [
        {"toolsListChanged": True, "resourceSubscriptions": ["u"]},
        {"resourceSubscriptions": ["u", "u/v"]},
        {"promptsListChanged": True, "resourcesListChanged": True},
        {},
        {"resourceSubscriptions": 5},
        None,
    ]
)
URL = {"mode": "url", "message": "m", "url": "https://a.example/x", "elicitationId": "e"}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {**ALL, "tasks": {}}, "serverInfo": INFO}
ANSWERS: list[dict[str, Any]] = [
    {"result": WELCOME},
    {"result": WELCOME},
    {"result": {**WELCOME, "protocolVersion": "2025-03-26"}},
    {"result": {"content": [], "resultType": "task", "_meta": 5}},
    {"result": {"resultType": "input_required", "inputRequests": {"k": {}}}},
    {"result": 5},
    {"result": {}},
    {"result": {"content": [], "requestState": "s"}},
    {"error": {"code": -32002, "message": "no"}},
    {"error": {"code": -32042, "message": "no", "data": {"elicitations": [URL]}}},
]
PUSHES = {
    "sampling/createMessage": sample(),
    "elicitation/create": form(),
    "roots/list": {},
    "ping": {},
    "server/discover": {},
}
TOLD = [
    tells("notifications/message", level="error", data="d"),
    tells("notifications/message", level=5, data="d"),
    tells("notifications/tools/list_changed"),
    tells("notifications/prompts/list_changed", _meta={SUBSCRIPTION: 0}),
    tells("notifications/resources/updated", uri="u/v"),
    tells("notifications/resources/updated", uri="x"),
    tells("notifications/progress", progressToken=1, progress=1),
    tells("notifications/elicitation/complete", elicitationId="e"),
    tells("notifications/cancelled", requestId=1),
    tells("notifications/vendor"),
    {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": []},
]
GARBAGE = [
    b"",
    b"Listening on port 3000",
    b"\xff\xfe",
    b"[]",
    b'[{"jsonrpc":"2.0","method":"n"},[],{"jsonrpc":"2.0","id":"b","method":"ping"}]',
    b'{"jsonrpc":"2.0","method":"a","method":"b"}',
    b'{"jsonrpc":"2.0","Id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":"nobody","result":{}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","level":"debug"}}',
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u","uri":"v"}}',
    b'{"jsonrpc":"2.0","method":"sampling/createMessage","params":{}}',
]


OWN = {"initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}


def key(id: Any) -> Id:
    return type(id).__name__, id


class Clients(RuleBasedStateMachine):
    """What each peer waits for, as the peers themselves would count it."""

    @initialize(
        rules=st.sampled_from(POLICIES),
        http=st.booleans(),
        streams=st.booleans(),
        outlived=st.booleans(),
        opened=st.sampled_from([True, True, True, False]),
    )
    def begin(self, rules: tuple[Any, ...], http: bool, streams: bool, outlived: bool, opened: bool) -> None:
        self.session = ModernClient(
            SessionState(
                SessionRules(compile_policy(policy(*rules), {})),
                "default",
                "t",
                SEAL_KEYS,
                streams=streams,
                outlived=outlived,
            )
        )
        self.http, self.now = http, 0.0
        self.posts = 0
        self.awaited: set[int] = set()  # the clients' open streams, over HTTP
        self.ended: list[int] = []  # streams that have ended, which the session does not know yet
        self.late: list[Round] = []  # rounds that were withdrawn before their release
        self.waiting: Counter[Place] = Counter()  # the clients' requests without an answer
        # by stream: whether any request on it has asked for log messages since it was empty
        self.levels: Counter[int] = Counter()
        self.listening: set[Place] = set()  # the listens that were acknowledged
        # requests that the server has not answered: method, and the client's stream
        self.at_server: dict[Id, tuple[str, int]] = {}
        self.seen_ids: set[Id] = set()
        self.pushed: set[Id] = set()
        self.rounds: dict[str, Round] = {}
        self.push_of: dict[str, Id] = {}
        self.timers: list[str] = []
        self.pushes = self.fresh = 0
        if opened:
            self.says(self.stream(0), asks("first", "server/discover"))
            self.the_server_opens()

    # -- checks of the effects
    # ----------------------------------------------------------------------------------------------------

    def carry_out(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case ToClient(stream, line, last):
                    assert stream >= 0
                    assert not self.http or stream in self.awaited, ("sent on a stream that has ended", line)
                    assert b'"sg:' not in line.replace(b'"sg:t:1"', b"")
                    self.client_hears(stream, json.loads(line), last)
                case ToServer(stream, line):
                    assert b"\n" not in line
                    self.server_hears(json.loads(line), stream)
                case Open(round):
                    self.rounds[round.id] = round
                    self.push_of[round.id] = key(f"p{self.pushes}")
                case Withdraw(round):
                    self.late.append(self.rounds.pop(round))
                    if self.late[-1].door == "push":
                        self.pushed.remove(self.push_of[round])  # nothing is sent
                case Later(_, token):
                    self.timers.append(token)
                case ClientReply():
                    raise AssertionError("a client was asked")
                case _:
                    pass
        return effects

    def client_hears(self, stream: int, said: dict[str, Any], last: bool) -> None:
        if "method" not in said:
            place = (stream, key(said["id"]))
            assert last
            assert self.waiting[place] > 0, ("answered too often, or nobody's", said)
            self.waiting[place] -= 1
            if not self.waiting[place]:
                self.listening.discard(place)
            self.end(stream)
            if "result" in said:
                assert "complete" == said["result"]["resultType"]
                assert not {"inputRequests", "requestState"} & said["result"].keys()
                assert SUBSCRIPTION in said["result"]["_meta"] or INFO == said["result"]["_meta"][SERVER]
            else:
                assert said["error"]["code"] not in (-32002, -32042)
            return
        assert "id" not in said, "a modern client was sent a request"
        assert not last
        mark = said["params"].get("_meta", {}).get(SUBSCRIPTION) if isinstance(said.get("params"), dict) else None
        if said["method"] == "notifications/subscriptions/acknowledged":
            self.listening.add((stream, key(mark)))
        elif said["method"].endswith(("list_changed", "updated")):
            assert (stream, key(mark)) in self.listening
        elif said["method"] == "notifications/message":
            assert self.levels[stream], "a message for who asked for none"
        elif said["method"] == "notifications/progress":
            assert said["params"]["progressToken"] in (1, "p")
        else:
            assert said["method"] == "notifications/vendor"

    def server_hears(self, said: dict[str, Any], stream: int) -> None:
        for word in (VERSION, CAPABILITIES, LEVEL, "inputResponses", "requestState"):
            assert word not in json.dumps(said), ("a modern member", word)
        if "method" not in said:
            self.pushed.remove(key(said["id"]))
            return
        assert said["method"] not in ("server/discover", "subscriptions/listen")
        if "id" in said:
            assert key(said["id"]) not in self.seen_ids, "an id was used again"
            self.seen_ids.add(key(said["id"]))
            self.at_server[key(said["id"])] = (said["method"], stream)
        elif said["method"] == "notifications/cancelled":
            self.at_server.pop(key(said["params"]["requestId"]))

    def stream(self, stream: int) -> int:
        """The stream of a request: over HTTP its own."""
        if not self.http:
            return stream
        self.posts += 1
        self.awaited.add(self.posts)
        return self.posts

    def of(self, stream: int, id: Any) -> int:
        """The stream on which a request is cancelled: over HTTP the request's stream, if it is open."""
        return next((at for at in sorted(self.awaited) if self.waiting[at, key(id)]), stream) if self.http else stream

    def end(self, stream: int) -> None:
        """A stream ends with its answer."""
        if stream in self.awaited:
            self.awaited.remove(stream)
            self.ended.append(stream)

    def says(self, stream: int, line: dict[str, Any] | bytes) -> list[Effect]:
        if isinstance(line, dict) and "id" in line:
            self.waiting[stream, key(line["id"])] += 1
        return self.carry_out(self.session.frame("client", stream, raw(line), self.now))

    def told(self, line: dict[str, Any] | list[Any] | bytes, stream: int = 0) -> list[Effect]:
        return self.carry_out(self.session.frame("server", stream, raw(line), self.now))

    # -- the clients
    # ------------------------------------------------------------------------------------------------------------------

    @rule(stream=STREAMS, id=IDS, method=METHODS, meta=METAS, more=MORE)
    def a_client_asks(self, stream: int, id: Any, method: str, meta: dict[str, Any], more: dict[str, Any]) -> None:
        stream = self.stream(stream)
        if meta.get(LEVEL) in LEVELS:
            self.levels[stream] += 1
        self.says(stream, asks(id, method, meta, name="x", uri="u", **more))

    @rule(stream=STREAMS, id=IDS)
    def a_client_asks_without_an_envelope(self, stream: int, id: Any) -> None:
        self.says(self.stream(stream), request(id, "tools/call", name="x"))

    @rule(stream=STREAMS, id=IDS, filter=FILTERS)
    def a_client_listens(self, stream: int, id: Any, filter: Any) -> None:
        self.says(self.stream(stream), asks(id, "subscriptions/listen", notifications=filter))

    @rule(stream=STREAMS, id=IDS)
    def a_client_cancels(self, stream: int, id: Any) -> None:
        stream = self.of(stream, id)
        place = (stream, key(id))
        expected = [Over(stream)] if self.waiting[place] else []
        self.waiting[place] -= len(expected)
        self.listening.discard(place)
        out = self.says(stream, tells("notifications/cancelled", requestId=id))
        assert expected == [effect for effect in out if isinstance(effect, Over)]
        if expected:
            self.end(stream)

    @rule(
        stream=STREAMS,
        meta=st.sampled_from([{}, {"progressToken": 1}, {LEVEL: "debug"}]),
        answer=st.sampled_from([None, *ANSWERS]),
    )
    def a_call_goes_out(self, stream: int, meta: dict[str, Any], answer: dict[str, Any] | None) -> None:
        """Two steps that a random search rarely makes one after the other."""
        self.fresh += 1
        stream = self.stream(stream)
        self.levels[stream] += LEVEL in meta
        before = set(self.at_server)
        self.says(stream, asks(f"c{self.fresh}", "resources/read", meta, uri="u"))
        new = [id for id in self.at_server if id not in before and self.at_server[id][0] == "resources/read"]
        if answer is not None and new:
            _, to = self.at_server.pop(new[0])
            self.told({"jsonrpc": "2.0", "id": new[0][1], **answer}, to)

    @rule(data=st.data(), stream=STREAMS, busy=st.booleans())
    def a_stream_closes(self, data: st.DataObject, stream: int, busy: bool) -> None:
        if busy:
            self.a_call_goes_out(stream, {}, None)
        if self.http:
            stream = data.draw(st.sampled_from(sorted(self.awaited))) if self.awaited else self.posts
        self.awaited.discard(stream)
        for place in [place for place in self.waiting if place[0] == stream]:
            del self.waiting[place]
            self.listening.discard(place)
        self.levels[stream] = 0
        assert not any(
            isinstance(effect, ToClient) for effect in self.carry_out(self.session.stream_closed("client", stream))
        )

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def an_ended_stream_is_put_away(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.ended))
        self.ended.remove(stream)
        assert [] == self.session.stream_closed("client", stream)

    @rule(
        stream=STREAMS,
        method=st.sampled_from(["notifications/initialized", "notifications/vendor", "notifications/progress"]),
    )
    def a_client_tells(self, stream: int, method: str) -> None:
        self.says(stream, tells(method, _meta={VERSION: "2026-07-28"}))

    # -- the server
    # ------------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.at_server)
    @rule(data=st.data(), answer=st.sampled_from(ANSWERS))
    def the_server_answers(self, data: st.DataObject, answer: dict[str, Any]) -> None:
        id = data.draw(st.sampled_from(sorted(self.at_server, key=repr)))
        _, stream = self.at_server.pop(id)
        self.told({"jsonrpc": "2.0", "id": id[1], **answer}, stream)

    @precondition(lambda self: any(method == "initialize" for method, _ in self.at_server.values()))
    @rule()
    def the_server_opens(self) -> None:
        id = next(id for id, (method, _) in self.at_server.items() if method == "initialize")
        del self.at_server[id]
        self.told({"jsonrpc": "2.0", "id": id[1], "result": WELCOME})

    @rule(data=st.data(), method=st.sampled_from(sorted(PUSHES)), batch=st.booleans())
    def the_server_asks(self, data: st.DataObject, method: str, batch: bool) -> None:
        self.pushes += 1
        line = request(f"p{self.pushes}", method, **PUSHES[method])
        batch = batch and self.session.state.revision == "2025-03-26"
        self.pushed.add(key(line["id"]))
        stream = data.draw(st.sampled_from([0, *sorted({stream for _, stream in self.at_server.values()})]))
        self.told([line] if batch else line, stream)

    @rule(data=st.data(), line=st.sampled_from(TOLD))
    def the_server_tells(self, data: st.DataObject, line: dict[str, Any]) -> None:
        self.told(line, data.draw(st.sampled_from([0, *sorted({stream for _, stream in self.at_server.values()})])))

    @rule(line=st.sampled_from(GARBAGE), from_server=st.booleans(), stream=STREAMS)
    def somebody_writes_garbage(self, line: bytes, from_server: bool, stream: int) -> None:
        if line.startswith(b"[{") and from_server:
            self.pushed.add(key("b"))
        elif line.startswith(b"[{"):  # the batch is refused, and so is each request in it
            stream = self.stream(stream)
            self.waiting[stream, key("b")] += 1
        out = self.told(line) if from_server else self.says(stream, line)
        assert not any(isinstance(effect, Open | Later | Withdraw | ClientReply) for effect in out)

    @rule(side=st.sampled_from(["client", "server"]), stream=STREAMS, id=IDS)
    def a_line_is_lost(self, side: str, stream: int, id: Any) -> None:
        if side == "client":
            stream = self.stream(stream)
            self.waiting[stream, key(id)] += 1
            head = (
                json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call"}, separators=(",", ":"))[:-1].encode()
                + b',"params":{"a'
            )
            self.carry_out(self.session.lost("client", stream, head, "it is too long"))
            if id == 2**70:  # a number too long to be found in half a line
                self.waiting[stream, key(id)] -= 1
                self.end(stream)
        elif self.at_server:
            gone = next(iter(self.at_server))
            del self.at_server[gone]
            self.carry_out(
                self.session.lost(
                    "server",
                    0,
                    b'{"jsonrpc":"2.0","id":"' + str(gone[1]).encode() + b'","result":{"a',
                    "it is too long",
                )
            )

    # -- the gate
    # ------------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def the_gate_settles(self, data: st.DataObject) -> None:
        round = self.rounds.pop(data.draw(st.sampled_from(sorted(self.rounds))))
        refused: list[Outcome] = [
            Denied(Reason.RULE),
            Unanswered(Reason.TIMEOUT),
            Unanswered(Reason.NOT_OFFERED, code=-32602),
        ]
        chosen = {
            name: data.draw(
                st.sampled_from(refused if round.door == "url_error" else [*refused, answered(item.method)])
            )
            for name, item in round.items.items()
        }
        self.carry_out(
            self.session.round_done(round.id, Settled({name: Release(o, "d") for name, o in chosen.items()}), self.now)
        )

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def the_gate_settles_after_the_call(self, data: st.DataObject) -> None:
        """A verdict that arrives after the call has ended is dropped."""
        round = data.draw(st.sampled_from(self.late))
        chosen = {name: Release(answered(item.method), "d") for name, item in round.items.items()}
        assert [] == self.session.round_done(round.id, Settled(chosen), self.now)
        assert [] == self.session.round_progress(round.id)

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def a_beat(self, data: st.DataObject) -> None:
        self.carry_out(self.session.round_progress(data.draw(st.sampled_from(sorted(self.rounds)))))

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def a_time_is_over(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.timers))
        self.timers.remove(token)
        self.carry_out(self.session.due(token))

    @invariant()
    def the_server_works_only_for_who_waits(self) -> None:
        if hasattr(self, "session"):
            for_clients = [method for method, _ in self.at_server.values() if method not in OWN]
            assert len(for_clients) <= sum(self.waiting.values())

    def teardown(self) -> None:
        """The server finishes what is open, or ends. Then every client has its answers, and nothing is kept."""
        if not hasattr(self, "session"):
            return
        for round in list(self.rounds.values()):
            del self.rounds[round.id]
            self.carry_out(
                self.session.round_done(
                    round.id, Settled({name: Release(Denied(Reason.RULE), "d") for name in round.items}), self.now
                )
            )
        assert set() == self.pushed
        self.carry_out(self.session.eof("server"))
        assert [] == [place for place, count in self.waiting.items() if count], "somebody still waits"
        assert set() == self.awaited, "a stream is still open"
        assert {} == self.rounds
        assert self.session.idle
        assert {} == self.session.state.inflight.asked or not self.session.state.outlived
        for _, stream in list(self.at_server.values()):
            self.carry_out(self.session.frame("server", stream, frames.result("late", b"{}"), 0.0))
        stream = self.stream(0)
        self.says(stream, asks("after", "tools/list"))
        assert 0 == self.waiting[stream, key("after")]
        assert not any(isinstance(effect, ToClient | Withdraw) for effect in self.session.eof("client"))


TestClients = Clients.TestCase
TestClients.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
