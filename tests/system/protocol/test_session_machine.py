"""The session under any order of events, in both protocol versions: client, server and gate act at any time.

Each side is on stdio, or on HTTP with a stream for each request: it ends with its answer, its client may leave it, and
nothing is sent on it then.

What must hold whatever happens: nobody is answered twice or under another name, nothing passes that the gate did not
release, and nothing is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from samplegate.policy.capabilities import SessionRules
from samplegate.policy.match import compile_policy
from samplegate.protocol import capabilities, frames
from samplegate.protocol.input_required import MAX_ROUNDS
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason, SealedDecision, Unanswered
from samplegate.protocol.rounds import (
    ClientReply,
    Close,
    Effect,
    ForwardRound,
    Later,
    Note,
    Open,
    Over,
    Release,
    Round,
    Settled,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.protocol.session import Session
from samplegate.protocol.session_state import SessionState, call_and_token
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    CAPABILITIES,
    DENY,
    FORWARD,
    FORWARD_URLS,
    NONCE,
    SEAL_KEYS,
    answered,
    form,
    modern,
    policy,
    request,
    sample,
)

Id = tuple[str, Any]
"""A type and a value: 1 and "1" are two ids."""
POLICIES = [
    (ALLOW, ANSWER),
    (FORWARD,),
    (FORWARD, ALLOW),
    (DENY,),
    (FORWARD_URLS, ALLOW),
    ({**DENY, "match": {"tool": "x"}}, FORWARD, ALLOW),
]
IDS = st.sampled_from([0, 1, "1", "a", 2**70])
STREAMS = st.integers(0, 1)
SIDE = 10**6
"""The stream of a client's notifications and answers over HTTP."""
METHODS = st.sampled_from(
    ["tools/call", "tools/call", "tools/call", "prompts/get", "tools/list", "subscriptions/listen", "server/discover"]
)
DECLARED = st.sampled_from(
    [{}, {"sampling": {}}, {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}]
)
URL = {"mode": "url", "message": "m", "url": "https://a.example/x", "elicitationId": "e"}
PUSHES = {"sampling/createMessage": sample(), "elicitation/create": form(), "roots/list": {}, "ping": {}}
QUESTIONS = {
    "s": {"method": "sampling/createMessage", "params": sample()},
    "e": {"method": "elicitation/create", "params": form()},
    "u": {"method": "elicitation/create", "params": URL},
    "r": {"method": "roots/list"},
    "bad": {"method": "sampling/createMessage", "params": {"messages": 5}},
    "?": {"method": "ping"},
}
THEIRS = "state-of-the-server"
PLAIN: list[dict[str, Any]] = [{"result": {"content": []}}, {"error": {"code": -32000, "message": "no"}}]
ANSWERS = st.sampled_from(
    [
        *PLAIN,
        {"error": {"code": -32042, "message": "no", "data": {"elicitations": [URL]}}},
        {"result": {"resultType": "task", "task": {}}},
        {
            "result": {
                "resultType": "vendor/later",
                "capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
            }
        },
    ]
)
GARBAGE = st.sampled_from(
    [
        b"",
        b"Listening on port 3000",
        b"\xff\xfe",
        b"[]",
        b'[{"jsonrpc":"2.0","method":"n"},[]]',
        b'{"jsonrpc":"2.0","method":"a","method":"b"}',
        b'{"jsonrpc":"2.0","id":true,"method":"tools/call"}',
        b'{"jsonrpc":"2.0","Id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":"nobody","result":{}}',
        b'{"jsonrpc":"2.0","id":"nobody","result":{},"result":1}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":null}}',
        b'{"jsonrpc":"2.0","method":"notifications/tasks","params":{"inputRequests":{}}}',
        b'{"jsonrpc":"2.0","method":"sampling/createMessage","params":{}}',
    ]
)


def key(id: Any) -> Id:
    return type(id).__name__, id


def may_go(round: Round) -> bool:
    """Whether the gate may still forward a round to the client."""
    return round.door == "input_required" and round.returned is None


def may_wait(round: Round) -> bool:
    """Whether the gate may put a round off."""
    return round.parks > 0 and (round.returned is not None or not round.roots)


class Left(NamedTuple):
    """A round that was forwarded to the client, and what it must be when it returns."""

    items: dict[str, bytes | None]
    calls: tuple[str, ...]
    parks: int
    replies: dict[str, bytes] | None
    """None: the client is to answer now."""
    reviews: dict[str, dict[str, str]]
    """What was sealed of the reviews that wait."""

    def is_back(self, round: Round) -> None:
        returned = round.returned
        assert returned is not None
        assert self.items == {name: item.params for name, item in round.items.items()}
        assert dict.fromkeys(self.items, "d") == returned.ids
        assert self.reviews == returned.reviews
        assert (self.calls, self.parks) == (round.call_ids, round.parks)
        assert self.replies is None or self.replies == returned.replies


class Conversation(RuleBasedStateMachine):
    """What each peer waits for, as the peers themselves would count it."""

    @initialize(
        rules=st.sampled_from(POLICIES),
        legacy=st.booleans(),
        http=st.booleans(),
        streams=st.booleans(),
        capabilities=DECLARED,
    )
    def begin(
        self, rules: tuple[Any, ...], legacy: bool, http: bool, streams: bool, capabilities: dict[str, Any]
    ) -> None:
        """``http``: the client has a stream for each request; ``streams``: the server has."""
        self.compiled = compile_policy(policy(*rules), {})
        self.session = Session(
            SessionState(
                SessionRules(self.compiled), "default", "t", SEAL_KEYS, maps_ids=http and not legacy, streams=streams
            )
        )
        self.now = 0.0
        self.legacy, self.http = legacy, http
        self.awaited: dict[int, int] = {}  # the client's open streams, with the number of answers due on each
        self.ended: list[int] = []  # streams that have ended, which the session does not know yet
        self.posts = 0
        self.numbered: dict[int, Id] = {}  # the server's streams, with the last frame that was sent on each
        self.tokens: list[str] = []  # progress tokens as the server knows them
        # the client's requests without an answer, by stream and id
        self.waiting: Counter[tuple[int, Id]] = Counter()
        self.at_server: set[Id] = set()  # requests that the server has not answered and that were not cancelled
        self.pushed: dict[Id, str] = {}  # the server's requests without an answer, by id
        self.at_client: dict[Id, str] = {}  # requests that the client has not answered
        self.rounds: dict[str, Round] = {}
        self.forwards: dict[str, Id] = {}
        self.push_of: dict[str, Id] = {}
        self.pauses: list[str] = []
        self.handed: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.left: dict[str, Left] = {}  # rounds that are at the client, by their state
        self.calls: dict[tuple[int, Id], dict[str, Any]] = {}
        self.seen_rounds: set[str] = set()
        self.fresh = 0
        self.releasing = False
        if legacy:
            hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
            self.client_says(0, request("hello", "initialize", **hello))
            self.at_server.clear()
            self.server_says(
                {"jsonrpc": "2.0", "id": "hello", "result": {"protocolVersion": "2025-11-25", "capabilities": {}}}
            )

    # -- checks of the effects
    # ----------------------------------------------------------------------------------------------------

    def client_says(self, stream: int, line: dict[str, Any] | bytes) -> list[Effect]:
        if isinstance(line, dict) and "method" in line and "id" in line:
            stream = self.stream(stream, key(line["id"]))
            place = (stream, key(line["id"]))
            if not self.waiting[place]:
                self.calls[place] = line
            self.waiting[place] += 1
        return self.carry_out(
            self.session.frame(
                "client", stream, line if isinstance(line, bytes) else json.dumps(line).encode(), self.now
            )
        )

    def stream(self, stream: int, id: Id) -> int:
        """The stream of a request. Over HTTP it is its own stream. A legacy client that uses an id twice sends both in
        one batch."""
        if not self.http:
            return 0 if self.legacy else stream
        again = [at for (at, other), count in self.waiting.items() if other == id and count] if self.legacy else []
        self.posts += not again
        stream = again[0] if again else self.posts
        self.awaited[stream] = self.awaited.get(stream, 0) + 1
        return stream

    def server_says(self, line: dict[str, Any] | bytes, stream: int = 0) -> list[Effect]:
        return self.carry_out(
            self.session.frame(
                "server", stream, line if isinstance(line, bytes) else json.dumps(line).encode(), self.now
            )
        )

    def answered_on(self, stream: int) -> None:
        """A stream ends with its last answer."""
        if stream in self.awaited:
            self.awaited[stream] -= 1
            if not self.awaited[stream]:
                del self.awaited[stream]
                self.ended.append(stream)

    def carry_out(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case ToClient(stream, line):
                    assert b"\n" not in line
                    assert not self.http or stream == 0 or stream in self.awaited, (
                        "sent on a stream that has ended",
                        line,
                    )
                    self.client_hears(effect, json.loads(line))
                case Over(stream):
                    self.answered_on(stream)
                case ToServer(stream, line):
                    assert b"\n" not in line
                    self.server_hears(stream, json.loads(line), line)
                case Close(number) if number:
                    self.at_server.discard(self.numbered.pop(number))
                case Open(round):
                    assert round.id not in self.seen_rounds
                    self.seen_rounds.add(round.id)
                    self.rounds[round.id] = round
                case Withdraw(round):
                    del self.rounds[round]
                    self.forwards.pop(round, None)
                    self.pushed.pop(self.push_of.get(round, ("", None)), None)  # nothing is sent
                case Later(_, token):
                    self.pauses.append(token)
                case ClientReply(round, _, _, _):
                    assert round in self.rounds
                    self.forwards.pop(round)
                case _:
                    pass
        return effects

    def client_hears(self, effect: ToClient, said: dict[str, Any]) -> None:
        stream, line = effect.stream, effect.line
        assert THEIRS.encode() not in line
        assert effect.asks == (said.get("id") if "method" in said else None)
        if "method" not in said:
            if said.get("id") is None:
                return
            assert effect.last
            self.answered_on(stream)
            place = (stream, key(said["id"]))
            assert self.waiting[place] > 0, ("answered too often, or nobody's", said)
            self.waiting[place] -= 1
            assert b'"sg:' not in line
            if said.get("result", {}).get("resultType") == "input_required":
                assert said["result"]["requestState"].startswith("sg2.")
                self.handed.append((self.calls[place], said["result"]))
        elif "id" in said:
            if said["method"] in ("sampling/createMessage", "elicitation/create"):
                assert said["id"].startswith("sg:")
                assert self.releasing, "a request passed that the gate did not forward"
            assert key(said["id"]) not in self.at_client
            self.at_client[key(said["id"])] = said["method"]
        elif said["method"] == "notifications/cancelled":
            asked = self.at_client.pop(key(said["params"].get("requestId")), None)
            assert asked is None or effect.cancels == said["params"]["requestId"]

    def server_hears(self, stream: int, said: dict[str, Any], line: bytes) -> None:
        assert b"sg2." not in line, "a sealed state reached the server"
        if "method" not in said:
            method = self.pushed.pop(key(said["id"]))
            if method in ("sampling/createMessage", "elicitation/create") and "result" in said:
                assert self.releasing, "an answer passed that the gate did not release"
            return
        if "id" in said:
            assert key(said["id"]) not in self.at_server
            self.at_server.add(key(said["id"]))
            if stream:
                self.numbered[stream] = key(said["id"])
            self.tokens.append(said["params"].get("_meta", {}).get("progressToken", "none"))
            self.check_declared(said)
            if "inputResponses" in said.get("params", {}):
                assert self.releasing
        elif said["method"] == "notifications/cancelled":
            id = key(said["params"]["requestId"])
            assert id in self.at_server or self.legacy
            self.at_server.discard(id)

    def check_declared(self, said: dict[str, Any]) -> None:
        """The capabilities that the server sees are those that the policy offers for this call, given what its client
        declared."""
        meta = said["params"].get("_meta", {})
        if CAPABILITIES not in meta:
            return
        client = self.session.state.inflight.wire[said["id"]].client
        seen = capabilities.declared_by(json.dumps(meta[CAPABILITIES]).encode())
        call, _ = call_and_token(frames.read(json.dumps(said).encode()), modern=True)
        offer = self.session.state.offer("modern", "2026-07-28", client, call)
        assert (offer.sampling, offer.sampling_tools, offer.form, offer.url) == (
            seen.sampling,
            seen.sampling_tools,
            seen.form,
            seen.url,
        )

    # -- the client
    # ------------------------------------------------------------------------------------------------------------------

    @rule(stream=STREAMS, id=IDS, method=METHODS, capabilities=DECLARED)
    def client_asks(self, stream: int, id: Any, method: str, capabilities: dict[str, Any]) -> None:
        line = request(id, method, name="x") if self.legacy else modern(id, method, capabilities, name="x")
        line["params"].setdefault("_meta", {})["progressToken"] = f"p{stream}{id!r}"
        self.client_says(stream, line)

    @precondition(lambda self: not self.legacy)
    @rule(stream=STREAMS, keys=st.sampled_from([["s"], ["s", "e"], ["e"], ["r", "s"], []]), capabilities=DECLARED)
    def a_modern_call_is_asked_for_input(self, stream: int, keys: list[str], capabilities: dict[str, Any]) -> None:
        """Two steps that a random search rarely makes one after the other."""
        self.fresh += 1
        self.client_says(stream, modern(f"m{self.fresh}", "tools/call", capabilities, name="y"))
        if ("str", f"m{self.fresh}") in self.at_server:
            self.ask(("str", f"m{self.fresh}"), keys, state=True)

    @precondition(lambda self: self.legacy or not self.http)
    @rule(stream=STREAMS, id=IDS)
    def client_asks_without_an_envelope(self, stream: int, id: Any) -> None:
        self.client_says(stream, request(id, "tools/call", name="x"))

    @precondition(lambda self: self.handed)
    @rule(data=st.data(), stream=STREAMS, spoil=st.sampled_from(["", "state", "params", "keys"]))
    def client_returns(self, data: st.DataObject, stream: int, spoil: str) -> None:
        asked, shown = data.draw(st.sampled_from(self.handed))
        self.come_back(asked, shown, stream, spoil)

    def come_back(self, asked: dict[str, Any], shown: dict[str, Any], stream: int, spoil: str) -> None:
        self.fresh += 1
        asks = shown.get("inputRequests", {})
        responses = {"forged": {}} if spoil == "keys" else {name: {"from": "client"} for name in asks}
        params = {
            **asked["params"],
            "requestState": shown["requestState"] + "x" * (spoil == "state"),
            "inputResponses": responses,
        }
        if spoil == "params":
            params["name"] = "z"
        opened = len(self.rounds)
        out = self.client_says(stream, {**asked, "id": f"r{self.fresh}", "params": params})
        assert len(self.rounds) == opened + (spoil not in {"state", "params"})
        for effect in out:
            if isinstance(effect, Open):
                self.left[shown["requestState"]].is_back(effect.round)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def client_cancels(self, data: st.DataObject) -> None:
        stream, (_, id) = data.draw(st.sampled_from(sorted(self.calls, key=repr)))
        # there a cancellation arrives by itself, and names a request of any stream
        anywhere = self.http and self.legacy
        out = self.client_says(
            SIDE if anywhere else stream,
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}},
        )
        for place in list(self.waiting):
            if id != "hello" and (place == (stream, key(id)) or (anywhere and place[1] == key(id))):
                self.waiting[place] = 0
        assert not any(isinstance(effect, ToClient) and "method" not in json.loads(effect.line) for effect in out)

    @precondition(lambda self: self.at_client)
    @rule(data=st.data(), ok=st.booleans())
    def client_answers(self, data: st.DataObject, ok: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.at_client, key=repr)))
        del self.at_client[id]
        self.client_says(
            0, {"jsonrpc": "2.0", "id": id[1], **({"result": {}} if ok else {"error": {"code": -1, "message": ""}})}
        )

    def unanswered(self) -> list[Id]:
        """Requests at the client for which a peer still waits."""
        return sorted((id for id in self.at_client if id in self.pushed or id in self.forwards.values()), key=repr)

    @precondition(lambda self: self.unanswered())
    @rule(data=st.data())
    def the_client_is_not_reached(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.unanswered()))
        del self.at_client[id]
        note, reply = self.carry_out(self.session.undelivered(id[1]))
        assert isinstance(note, Note)
        assert isinstance(reply, ClientReply | ToServer)
        assert [] == self.session.undelivered(id[1])

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def an_ended_stream_is_put_away(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(self.ended))
        self.ended.remove(stream)
        assert [] == self.session.stream_closed("client", stream)

    @precondition(lambda self: self.awaited and not self.legacy)
    @rule(data=st.data())
    def a_modern_client_leaves_a_stream(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(sorted(self.awaited)))
        del self.awaited[stream]
        self.carry_out(self.session.stream_closed("client", stream))
        for place in [place for place in self.waiting if place[0] == stream]:
            self.waiting[place] = 0

    @precondition(lambda self: not self.http)
    @rule(stream=STREAMS)
    def a_stream_closes(self, stream: int) -> None:
        stream = 0 if self.legacy else stream
        before = {
            id
            for at, id in self.waiting
            if at == stream and self.waiting[at, id] and CAPABILITIES in self.calls[at, id]["params"].get("_meta", {})
        }
        self.carry_out(self.session.stream_closed("client", stream))
        for id in before:
            self.waiting[stream, id] = 0

    # -- the server
    # ------------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.at_server)
    @rule(data=st.data(), body=ANSWERS, twins=st.sampled_from([b"", b"", b"", b',"result":{}']))
    def server_answers(self, data: st.DataObject, body: dict[str, Any], twins: bytes) -> None:
        """Every answer of a server to a request in flight has an effect: it is never lost."""
        self.answer(data.draw(st.sampled_from(sorted(self.at_server, key=repr))), body, twins)

    @precondition(lambda self: self.at_server)
    @rule(
        data=st.data(),
        keys=st.sampled_from([["s"], ["s", "e"], ["e"], ["r"], ["s", "r"], ["s", "bad"], ["u"], ["?"], []]),
        state=st.booleans(),
    )
    def server_asks_for_input(self, data: st.DataObject, keys: list[str], state: bool) -> None:
        self.ask(data.draw(st.sampled_from(sorted(self.at_server, key=repr))), keys, state=state)

    def ask(self, id: Id, keys: list[str], *, state: bool) -> None:
        questions = {"inputRequests": {name: QUESTIONS[name] for name in keys}} if keys or not state else {}
        result = {"resultType": "input_required", **questions, **({"requestState": THEIRS} if state else {})}
        self.answer(id, {"result": result}, b"")

    def answer(self, id: Id, body: dict[str, Any], twins: bytes) -> None:
        self.at_server.remove(id)
        line = json.dumps({"jsonrpc": "2.0", "id": id[1], **body}).encode()
        out = self.server_says(line[:-1] + twins + b"}")
        (done,) = [effect for effect in out if isinstance(effect, ToClient | Open | Later)]
        if body in PLAIN and not (twins and "result" in body):
            assert isinstance(done, ToClient)
            if not twins:
                assert body == {
                    name: value for name, value in json.loads(done.line).items() if name not in {"jsonrpc", "id"}
                }

    @rule(data=st.data(), id=IDS, method=st.sampled_from(list(PUSHES)), token=st.booleans())
    def server_asks(self, data: st.DataObject, id: Any, method: str, token: bool) -> None:
        params = {**PUSHES[method], **({"_meta": {"progressToken": "s"}} if token else {})}
        again = key(id) in self.pushed
        before = self.pushed.get(key(id))
        self.pushed[key(id)] = method
        modern_only = not self.legacy and self.session._modern_seen
        out = self.server_says(request(id, method, **params), data.draw(self.server_streams()))
        self.push_of.update({effect.round.id: key(id) for effect in out if isinstance(effect, Open)})
        if again:
            assert key(id) not in self.pushed
            assert before is not None
            self.pushed[key(id)] = before
        elif modern_only:
            assert not any(isinstance(effect, ToClient | ToServer | Open) for effect in out)
            del self.pushed[key(id)]

    @precondition(lambda self: self.legacy)
    @rule(first=st.booleans(), later=st.booleans(), other=st.booleans(), second=st.booleans(), withdrawn=st.booleans())
    def a_request_is_forwarded_late(self, first: bool, later: bool, other: bool, second: bool, withdrawn: bool) -> None:
        """Steps that a random search rarely makes one after the other: calls end before their request is forwarded, and
        before it is withdrawn."""
        self.fresh += 1
        call, push = f"c{self.fresh}", f"q{self.fresh}"
        for id in (call, f"{call}-2") if other else (call,):
            self.client_says(0, request(id, "tools/call", name="x"))
        self.pushed[key(push)] = "sampling/createMessage"
        out = self.server_says(request(push, "sampling/createMessage", **sample()))
        (round,) = [effect.round.id for effect in out if isinstance(effect, Open)]
        self.push_of[round] = key(push)
        if first and key(call) in self.at_server:
            self.answer(key(call), PLAIN[0], b"")
        self.forward(round)
        if second and other and key(f"{call}-2") in self.at_server:
            self.answer(key(f"{call}-2"), PLAIN[0], b"")
        if later and key(call) in self.at_server:
            self.answer(key(call), PLAIN[0], b"")
        if withdrawn and round in self.forwards:
            del self.forwards[round]
            self.carry_out(self.session.unforward(round, "late"))

    @precondition(lambda self: self.pushed)
    @rule(data=st.data())
    def server_takes_back(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.pushed, key=repr)))
        del self.pushed[id]
        self.server_says({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id[1]}})
        self.at_client.pop(id, None)

    def server_streams(self) -> st.SearchStrategy[int]:
        """The streams on which a server may write requests and notifications: its own, or that of a request."""
        return st.sampled_from([0, 0, *sorted(self.numbered)])

    @rule(data=st.data(), value=st.sampled_from([0, 1, 2.5, 1e16]))
    def server_reports(self, data: st.DataObject, value: float) -> None:
        token = data.draw(st.sampled_from(["none", *self.tokens]))
        line = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": value},
        }
        self.server_says(line, data.draw(self.server_streams()))

    @rule(
        data=st.data(),
        method=st.sampled_from(["notifications/message", "notifications/tools/list_changed", "vendor/news"]),
    )
    def server_tells(self, data: st.DataObject, method: str) -> None:
        self.server_says(
            {"jsonrpc": "2.0", "method": method, "params": {"level": "info", "data": 1}},
            data.draw(self.server_streams()),
        )

    # -- the gate
    # ------------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.rounds)
    @rule(data=st.data(), away=st.booleans())
    def the_gate_settles(self, data: st.DataObject, away: bool) -> None:
        round = self.rounds.pop(data.draw(st.sampled_from(sorted(self.rounds))))
        self.forwards.pop(round.id, None)
        if may_go(round) and (away or round.roots):
            self.hand_on(round)
            return
        outcomes = {
            name: data.draw(st.sampled_from(self.outcomes(item.method, round))) for name, item in round.items.items()
        }
        self.release(round, outcomes)

    @precondition(lambda self: any(map(may_go, self.rounds.values())))
    @rule(stream=STREAMS, data=st.data())
    def a_round_goes_to_the_client_and_comes_back(self, stream: int, data: st.DataObject) -> None:
        """Two steps that a random search rarely makes one after the other."""
        self.hand_on(
            self.rounds.pop(
                data.draw(st.sampled_from(sorted(id for id, round in self.rounds.items() if may_go(round))))
            )
        )
        asked, shown = self.handed[-1]
        self.come_back(asked, shown, stream, "")

    def release(self, round: Round, outcomes: Mapping[str, Outcome]) -> None:
        self.releasing = True
        self.carry_out(
            self.session.round_done(
                round.id, Settled({name: Release(o, "d") for name, o in outcomes.items()}), self.now
            )
        )
        self.releasing = False

    @precondition(lambda self: any(map(may_wait, self.rounds.values())))
    @rule(stream=STREAMS, data=st.data(), returns=st.integers(1, 10))
    def a_round_is_put_off_and_comes_back(self, stream: int, data: st.DataObject, returns: int) -> None:
        """The client is asked to retry, as often as it tolerates, and the round is unchanged."""
        round = self.rounds[
            data.draw(st.sampled_from(sorted(id for id, round in self.rounds.items() if may_wait(round))))
        ]
        for _ in range(min(returns, round.parks)):
            before = set(self.rounds)
            self.put_off(self.rounds.pop(round.id))
            asked, shown = self.handed[-1]
            self.come_back(asked, shown, stream, "")
            (id,) = set(self.rounds) - before
            round = self.rounds[id]

    @precondition(lambda self: any(map(may_wait, self.rounds.values())))
    @rule(data=st.data())
    def a_round_is_put_off_and_its_client_stays_away(self, data: st.DataObject) -> None:
        self.put_off(
            self.rounds.pop(
                data.draw(st.sampled_from(sorted(id for id, round in self.rounds.items() if may_wait(round))))
            )
        )

    def put_off(self, round: Round) -> None:
        shown = self.leave(round, frozenset())
        assert {"resultType", "requestState"} == set(shown)

    def hand_on(self, round: Round) -> None:
        shown = self.leave(round, frozenset(round.items))
        assert {*round.items, *round.roots} == set(shown["inputRequests"])

    def leave(self, round: Round, keys: frozenset[str]) -> dict[str, Any]:
        before = {} if round.returned is None else round.returned.seen
        reviews = {name: {"answer:r": f"rv_{name}{len(self.left)}"} for name in sorted(round.items)[1:]}
        seen = {name: SealedDecision("d", "forward", None, reviews=reviews.get(name, {})) for name in round.items}
        out = self.carry_out(self.session.round_done(round.id, ForwardRound(keys, seen, "hash", NONCE), self.now))
        assert [ToClient] == [type(effect) for effect in out]
        shown: dict[str, Any] = self.handed[-1][1]
        replies = {} if round.returned is None else dict(round.returned.replies)
        items = {name: item.params for name, item in round.items.items()}
        asks = round.returned is None and (keys or round.roots)
        waiting = {name: kept for name, kept in reviews.items() if name not in before}
        self.left[shown["requestState"]] = Left(
            items, round.call_ids, max(round.parks - 1, 0), None if asks else replies, waiting
        )
        return shown

    @staticmethod
    def outcomes(method: str, round: Round) -> list[Outcome]:
        by_client: list[Outcome] = [Answered(b'{"by":"client"}', "client")]
        refused: list[Outcome] = [
            Denied(Reason.RULE, "decline"),
            Unanswered(Reason.TIMEOUT),
            Unanswered(Reason.MALFORMED, code=-32602),
            Unanswered(Reason.RECORDS),
        ]
        return (
            [*by_client, *refused]
            if round.door == "url_error"
            else [answered(method), answered(method), *by_client, *refused]
        )

    @precondition(lambda self: any(r.door == "push" and r.id not in self.forwards for r in self.rounds.values()))
    @rule(data=st.data())
    def the_gate_forwards(self, data: st.DataObject) -> None:
        self.forward(
            data.draw(
                st.sampled_from(
                    sorted(r.id for r in self.rounds.values() if r.door == "push" and r.id not in self.forwards)
                )
            )
        )

    def forward(self, round: str) -> None:
        self.releasing = True
        (sent,) = self.carry_out(self.session.forward(round))
        self.releasing = False
        assert isinstance(sent, ToClient)
        self.forwards[round] = key(json.loads(sent.line)["id"])

    @precondition(lambda self: self.forwards)
    @rule(data=st.data())
    def the_gate_waits_no_longer(self, data: st.DataObject) -> None:
        round = data.draw(st.sampled_from(sorted(self.forwards)))
        del self.forwards[round]
        assert 1 == len(self.carry_out(self.session.unforward(round, "late")))

    @precondition(lambda self: self.pauses)
    @rule(data=st.data())
    def a_pause_is_over(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.pauses))
        self.pauses.remove(token)
        self.carry_out(self.session.due(token))

    @precondition(lambda self: self.rounds)
    @rule(data=st.data())
    def a_beat(self, data: st.DataObject) -> None:
        for effect in self.carry_out(self.session.round_progress(data.draw(st.sampled_from(sorted(self.rounds))))):
            assert isinstance(effect, ToClient | ToServer)
            assert "notifications/progress" == json.loads(effect.line)["method"]

    @rule(id=IDS)
    def somebody_answers_what_nobody_asked(self, id: Any) -> None:
        if key(id) not in self.at_client:
            assert not any(
                isinstance(effect, ToServer)
                for effect in self.client_says(0, {"jsonrpc": "2.0", "id": id, "result": {}})
            )
        if key(id) not in self.at_server:
            out = self.server_says(
                {"jsonrpc": "2.0", "id": id, "result": {"resultType": "input_required", "inputRequests": QUESTIONS}}
            )
            assert not any(isinstance(effect, ToClient | Open | Later) for effect in out)

    @rule(line=GARBAGE, from_server=st.booleans(), stream=STREAMS)
    def somebody_writes_garbage(self, line: bytes, from_server: bool, stream: int) -> None:
        out = self.server_says(line) if from_server else self.client_says(SIDE if self.http else stream, line)
        assert not any(isinstance(effect, Open | Later | Withdraw | ClientReply) for effect in out)

    @rule(seconds=st.sampled_from([0.0, 1.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        if seconds >= 400:
            self.handed.clear()

    # -- invariants
    # ------------------------------------------------------------------------------------------------------------------

    @invariant()
    def rounds_are_counted(self) -> None:
        if hasattr(self, "session"):
            assert all(pending.rounds <= MAX_ROUNDS for pending in self.session.state.inflight.wire.values())
            assert {*self.session.pushes.open, *self.session.exchange.open, *self.session.url_errors.open} == set(
                self.rounds
            )

    def teardown(self) -> None:
        """Each peer finishes what is open. Then every request has its answer, and nothing is kept."""
        if not hasattr(self, "session"):
            return
        for id in list(self.pushed):
            if id in self.at_client:
                self.client_says(0, {"jsonrpc": "2.0", "id": id[1], "result": {}})
        while self.rounds or self.pauses or self.at_server:
            for round in list(self.rounds.values()):
                del self.rounds[round.id]
                outcome: Outcome = Answered(b"{}", "client") if round.door == "url_error" else Denied(Reason.RULE)
                self.release(round, dict.fromkeys(round.items, outcome))
            for token in self.pauses[:]:
                self.pauses.remove(token)
                self.carry_out(self.session.due(token))
            for id in list(self.at_server):
                self.at_server.remove(id)
                self.server_says({"jsonrpc": "2.0", "id": id[1], "result": {}})
        session = self.session
        assert [] == [place for place, count in self.waiting.items() if count], "somebody still waits"
        assert {} == self.awaited, "a stream is still open"
        assert {} == self.pushed
        assert ({}, {}) == (session.state.inflight.asked, session.state.inflight.wire)
        assert not any((session.pushes.open, session.pushes._by_id, session.pushes._sent, session.passed.open))
        assert not any((session.exchange.open, session.exchange.pauses.waiting, session.url_errors.open))
        assert [] == [
            effect
            for side in ("server", "client")
            for effect in session.eof("server" if side == "server" else "client")
            if isinstance(effect, Withdraw)
        ]


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
