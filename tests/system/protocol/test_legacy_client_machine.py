"""A legacy client and a modern server under any order of events: each side and the gate act at any time, and often
late.

The client is on stdio, or on HTTP with a stream for each request: the stream ends with its answer, and nothing is sent
on it after that.

What must hold: each request has one answer unless the client cancelled it, the client answers only what it was asked, a
call is in one place at a time, what belongs to a call arrives on its stream and in order, and nothing is left in
flight.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from samplegate.policy.capabilities import SessionRules
from samplegate.policy.match import compile_policy
from samplegate.protocol.bridge.legacy_client import LegacyClient
from samplegate.protocol.bridge.translation import OF_MODERN
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
from samplegate.protocol.session_state import INTERNAL, SessionState
from tests.fakes.bridged import BOTH, INFO, URL, cancel, discovered
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    DENY,
    FORWARD,
    FORWARD_URLS,
    NONCE,
    SEAL_KEYS,
    answered,
    form,
    policy,
    request,
    result,
    sample,
)
from tests.fakes.streams import CAPABILITIES, LEVEL, SUBSCRIPTION, VERSION, raw, tells

Id = tuple[str, Any]
"""A type and a value: 1 and "1" are two ids."""
POLICIES = [(FORWARD,), (FORWARD,), (FORWARD,), (ALLOW, ANSWER), (DENY,), (FORWARD_URLS, ALLOW)]
ALL: dict[str, Any] = {
    "sampling": {"tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
DECLARED = [ALL, ALL, ALL, {**BOTH, "roots": {}}, {"sampling": {}}, {}]
REVISIONS = ["2025-11-25", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
IDS = st.sampled_from([0, 1, "1", "a", 2**70])
OWN = ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
METHODS = st.sampled_from(
    [
        "tools/call",
        "tools/call",
        "tools/call",
        "prompts/get",
        "resources/read",
        "tools/list",
        "vendor/x",
        *OWN,
        *OWN,
        "server/discover",
    ]
)
QUESTIONS = {
    "s": {"method": "sampling/createMessage", "params": sample()},
    "e": {"method": "elicitation/create", "params": form()},
    "u": {"method": "elicitation/create", "params": URL},
    "r": {"method": "roots/list"},
    "bad": {"method": "sampling/createMessage", "params": {"messages": 5}},
}
KEYS = st.sampled_from([["s"], ["s"], ["s", "e"], ["s", "e", "r"], ["e"], ["r"], ["u"], ["s", "bad"], []])
SERVER = {"tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}, "logging": {}}
ANSWERS: list[dict[str, Any]] = [
    {"result": {"resultType": "complete", "content": []}},
    {"result": {"content": [], "structuredContent": 5, "ttlMs": 5}},
    {"result": {"resultType": "task", "task": {}}},
    {"result": 5},
    {"error": {"code": -32021, "message": "no"}},
    {"error": {"code": -32601, "message": "no"}},
    {"error": {"code": -32042, "message": "no", "data": {"elicitations": [{**URL, "elicitationId": "e"}]}}},
]
NEWS = [
    "notifications/message",
    "notifications/tools/list_changed",
    "vendor/news",
    "notifications/elicitation/complete",
    "notifications/resources/updated",
]
GARBAGE = [
    b"",
    b"\xff\xfe",
    b"[]",
    b'{"jsonrpc":"2.0","method":"a","method":"b"}',
    b'{"jsonrpc":"2.0","Id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":"nobody","result":{}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"jsonrpc":"2.0","method":"sampling/createMessage","params":{}}',
]


def key(id: Any) -> Id:
    return type(id).__name__, id


class OneClient(RuleBasedStateMachine):
    """What each peer waits for, as the peers themselves would count it."""

    @initialize(
        rules=st.sampled_from(POLICIES),
        http=st.booleans(),
        streams=st.booleans(),
        hello=st.fixed_dictionaries(
            {
                "protocolVersion": st.sampled_from(REVISIONS),
                "capabilities": st.sampled_from(DECLARED),
                "clientInfo": st.just(INFO),
            }
        ),
        opened=st.sampled_from([True, True, True, False]),
    )
    def begin(self, rules: tuple[Any, ...], http: bool, streams: bool, hello: dict[str, Any], opened: bool) -> None:
        """``http``: the client has a stream for each request; ``streams``: the server has."""
        self.session = LegacyClient(
            SessionState(
                SessionRules(compile_policy(policy(*rules), {})),
                "default",
                "t",
                SEAL_KEYS,
                streams=streams,
                outlived=True,
            )
        )
        self.http, self.now = http, 0.0
        self.posts = self.fresh = self.told = 0
        self.awaited: set[int] = set()  # the client's open streams, over HTTP
        self.waiting: dict[Id, tuple[int, str]] = {}  # the client's requests without an answer, with stream and method
        self.refused: Counter[tuple[int, Id]] = Counter()  # requests with an id in flight: an error is due at once
        self.at_server: dict[Id, tuple[str, int]] = {}  # requests that the server works on: method, and its stream
        self.gone: list[Id] = []  # requests that it worked on and that were cancelled
        self.at_client: dict[Id, int] = {}  # requests that the client has not answered, with the stream
        self.withdrawn: list[Id] = []
        self.rounds: dict[str, Round] = {}
        self.late: list[Round] = []  # rounds that were withdrawn before their release
        self.timers: list[str] = []
        self.tokens: dict[Id, Any] = {}  # of requests that the server works on
        self.reported: dict[Id, float] = {}  # its last progress value
        self.progress: dict[Any, float] = {}  # the last value, by the client's token
        self.messages: dict[int, int] = {}  # the last log message, by the client's stream
        self.forwarding = self.releasing = False
        self.hello = hello
        self.says(request("hello", "initialize", **self.hello))
        if opened:
            self.the_server_says_what_it_is()
            self.says(tells("notifications/initialized"))

    # -- checks of the effects
    # ----------------------------------------------------------------------------------------------------

    def says(self, line: dict[str, Any] | bytes) -> list[Effect]:
        stream = 0
        if self.http:
            self.posts += 1
            stream = self.posts
        if isinstance(line, dict) and "method" in line and "id" in line:
            if self.http:
                self.awaited.add(stream)
            if key(line["id"]) in self.waiting:
                self.refused[stream, key(line["id"])] += 1
            else:
                self.waiting[key(line["id"])] = (stream, line["method"])
        out = self.carry_out(self.session.frame("client", stream, raw(line), self.now))
        assert not +self.refused, "a second request with an id in flight was not refused"
        return out

    def hears(self, line: dict[str, Any] | bytes, stream: int = 0) -> list[Effect]:
        return self.carry_out(self.session.frame("server", stream, raw(line), self.now))

    def carry_out(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case ToClient(stream, line):
                    assert stream != INTERNAL
                    assert b"\n" not in line
                    assert not self.http or stream == 0 or stream in self.awaited, (
                        "sent on a stream that has ended",
                        line,
                    )
                    self.client_hears(effect, json.loads(line))
                case Over(stream, id):
                    assert id is None or self.waiting.pop(key(id))[0] == stream
                    self.awaited.discard(stream)
                case ToServer(stream, line):
                    assert b"\n" not in line
                    self.server_hears(stream, json.loads(line))
                case Close(number) if number:
                    for dropped in [id for id, (_, stream) in self.at_server.items() if stream == number]:
                        self.drop(dropped)
                case Open(round):
                    assert round.id not in self.rounds
                    self.rounds[round.id] = round
                case Withdraw(round):
                    self.late.append(self.rounds.pop(round))
                case Later(_, token):
                    self.timers.append(token)
                case ClientReply():
                    raise AssertionError("a modern server pushes nothing")
                case _:
                    pass
        return effects

    def drop(self, id: Id) -> None:
        del self.at_server[id]
        self.gone.append(id)

    def client_hears(self, effect: ToClient, said: dict[str, Any]) -> None:
        for word in (VERSION, CAPABILITIES, LEVEL, "requestState", "resultType", "ttlMs"):
            assert f'"{word}":'.encode() not in effect.line.replace(b": ", b":"), ("a modern member", word)
        assert effect.asks == (said["id"] if "id" in said and "method" in said else None)
        if "method" not in said:
            if said["id"] is None:
                return
            assert effect.last
            self.answered(effect.stream, key(said["id"]))
            assert said.get("error", {}).get("code") not in OF_MODERN
        elif "id" in said:
            assert self.forwarding, "a question passed that the gate did not forward"
            assert said["id"].startswith("sg:")
            assert effect.stream in {stream for stream, _ in self.waiting.values()}, (
                "a question on the stream of no call"
            )
            self.at_client[key(said["id"])] = effect.stream
        else:
            assert not effect.last
            self.client_is_told(effect, said)

    def answered(self, stream: int, id: Id) -> None:
        if self.refused[stream, id]:
            self.refused[stream, id] -= 1
        else:
            assert id in self.waiting, ("answered too often, or nobody's", id)
            assert self.waiting.pop(id)[0] == stream, "answered on the stream of another request"
        self.awaited.discard(stream)

    def client_is_told(self, effect: ToClient, said: dict[str, Any]) -> None:
        params = said["params"]
        if said["method"] == "notifications/cancelled":
            assert effect.cancels == params["requestId"]
            assert self.at_client.pop(key(params["requestId"])) == effect.stream
            self.withdrawn.append(key(params["requestId"]))
        elif said["method"] == "notifications/progress":
            token = params["progressToken"]
            stream, id = next(
                ((stream, id) for id, (stream, _) in self.waiting.items() if f"p{id!r}" == token), (None, None)
            )
            if id is not None:
                assert effect.stream == stream, "progress of another call's"
                assert self.progress.get(token, -1.0) < params["progress"], "progress that does not rise"
                self.progress[token] = params["progress"]
        elif said["method"] == "notifications/message":
            assert self.messages.get(effect.stream, 0) < params["data"], "messages in another order"
            self.messages[effect.stream] = params["data"]
        else:
            assert said["method"] in NEWS
            assert said["method"] != "notifications/elicitation/complete"
            assert SUBSCRIPTION not in params.get("_meta", {})

    def server_hears(self, stream: int, said: dict[str, Any]) -> None:
        assert b"sg2." not in raw(said), "a sealed state reached the server"
        assert "method" in said, "a modern server asked nothing"
        if "id" in said:
            assert "2026-07-28" == said["params"]["_meta"][VERSION]
            assert said["method"] not in ("initialize", *OWN)
            id = key(said["id"])
            assert id not in self.at_server
            self.at_server[id] = (said["method"], stream)
            self.reported[id] = 0.0
            self.tokens[id] = said["params"]["_meta"].get("progressToken", "none")
            if "inputResponses" in said["params"]:
                assert self.releasing, "answers passed that the gate did not release"
        elif said["method"] == "notifications/cancelled":
            self.drop(key(said["params"]["requestId"]))
        else:
            # useless notifications, which do no harm
            assert said["method"] in ("vendor/x", "sampling/createMessage")

    # -- the client
    # ------------------------------------------------------------------------------------------------------------------

    @rule(id=IDS, method=METHODS, token=st.booleans())
    def the_client_asks(self, id: Any, method: str, token: bool) -> None:
        if key(id) not in self.waiting:
            self.progress.pop(f"p{key(id)!r}", None)
        meta = {"_meta": {"progressToken": f"p{key(id)!r}"}} if token else {}
        self.says(request(id, method, name="x", uri=f"u{id}", level="debug", **meta))

    @rule(keys=KEYS, state=st.booleans())
    def a_call_is_asked_for_input(self, keys: list[str], state: bool) -> None:
        """Two steps that a random search rarely makes one after the other."""
        self.fresh += 1
        id = f"c{self.fresh}"
        self.says(request(id, "tools/call", name="y", _meta={"progressToken": f"p{key(id)!r}"}))
        if key(id) in self.at_server:
            self.reports(key(id), 1.0)
            self.asks_for_input(key(id), keys, state=state)

    @rule(
        data=st.data(),
        keys=st.sampled_from([["s"], ["e"], ["r"], ["s", "e"], ["s", "e", "r"]]),
        then=st.sampled_from(["", "", "cancel", "answer", "again"]),
    )
    def a_call_is_handed_to_the_client(self, data: st.DataObject, keys: list[str], then: str) -> None:
        """Several such steps, up to the request to the client and its result."""
        self.a_call_is_asked_for_input(keys, state=True)
        id = key(f"c{self.fresh}")
        before = set(self.at_client)
        for round in list(self.rounds.values()):
            if round.returned is None:
                self.conclude(round, data, forward=True)
        asked = sorted(set(self.at_client) - before, key=repr)
        if then == "cancel" and id in self.waiting:
            self.cancels(id)
        for question in asked if then in ("answer", "again") else []:
            self.replies(question, {"result": {"by": "client"}})
        if then == "again":
            for round in list(self.rounds.values()):
                self.conclude(round, data, forward=False)
            for at_work in self.works_on():
                self.reports(at_work, 0.5)
                self.asks_for_input(at_work, keys, state=True)

    @rule(params=st.sampled_from([{}, {"requestState": "s"}, {"inputResponses": {}}, {"task": {}}, {"_meta": 5}]))
    def the_client_sends_members_of_another_era(self, params: dict[str, Any]) -> None:
        self.fresh += 1
        self.says(request(f"o{self.fresh}", "tools/call", name="x", **params))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def the_client_cancels(self, data: st.DataObject) -> None:
        self.cancels(data.draw(st.sampled_from(sorted(self.waiting, key=repr))))

    def cancels(self, id: Id) -> None:
        stream, method = self.waiting[id]
        ends = method != "initialize"
        out = self.says(cancel(id[1]))
        assert [stream] * ends == [effect.stream for effect in out if isinstance(effect, Over)]
        if ends:
            self.waiting.pop(id, None)
            self.awaited.discard(stream)
        assert not any(isinstance(effect, ToClient) and effect.last for effect in out)

    @precondition(lambda self: self.at_client)
    @rule(
        data=st.data(),
        body=st.sampled_from(
            [{"result": {"by": "client"}}] * 3 + [{"result": 5}, {"error": {"code": -1, "message": ""}}]
        ),
    )
    def the_client_answers(self, data: st.DataObject, body: dict[str, Any]) -> None:
        self.replies(data.draw(st.sampled_from(sorted(self.at_client, key=repr))), body)

    def replies(self, id: Id, body: dict[str, Any]) -> None:
        if id in self.at_client:
            del self.at_client[id]
            self.withdrawn.append(id)
            self.says({"jsonrpc": "2.0", "id": id[1], **body})

    @precondition(lambda self: self.at_client)
    @rule(data=st.data())
    def the_client_is_not_reached(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.at_client, key=repr)))
        del self.at_client[id]
        self.withdrawn.append(id)
        assert isinstance(self.carry_out(self.session.undelivered(id[1]))[0], Note)
        assert [] == self.session.undelivered(id[1])

    @precondition(lambda self: self.withdrawn)
    @rule(data=st.data())
    def the_client_answers_late_or_twice(self, data: st.DataObject) -> None:
        out = self.says(
            {"jsonrpc": "2.0", "id": data.draw(st.sampled_from(self.withdrawn))[1], "result": {"by": "client"}}
        )
        assert [Note] == [type(effect) for effect in out]

    @rule(
        again=st.sampled_from([True, False, False, False]),
        method=st.sampled_from(["initialized", "roots/list_changed", "vendor/x"]),
    )
    def the_client_tells(self, again: bool, method: str) -> None:
        if again:
            self.fresh += 1
            self.says(request(f"h{self.fresh}", "initialize", **self.hello))
        self.says(tells(method if "vendor" in method else f"notifications/{method}"))

    @rule(data=st.data(), busy=st.booleans())
    def a_stream_of_the_client_closes(self, data: st.DataObject, busy: bool) -> None:
        """For a legacy client this does not cancel the call (T35): everything of its call continues, and waits for the
        client to reconnect."""
        stream = data.draw(st.sampled_from(sorted(self.awaited))) if busy and self.awaited else self.posts
        assert [] == self.session.stream_closed("client", stream)

    # -- the server
    # ------------------------------------------------------------------------------------------------------------------

    def works_on(self) -> list[Id]:
        return sorted(
            (
                id
                for id, (method, _) in self.at_server.items()
                if method not in ("subscriptions/listen", "server/discover")
            ),
            key=repr,
        )

    @precondition(lambda self: any(method == "server/discover" for method, _ in self.at_server.values()))
    @rule()
    def the_server_says_what_it_is(self) -> None:
        id = next(id for id, (method, _) in self.at_server.items() if method == "server/discover")
        _, stream = self.at_server.pop(id)
        self.hears(discovered(id[1], SERVER), stream)

    @precondition(lambda self: self.at_server)
    @rule(data=st.data(), body=st.sampled_from(ANSWERS))
    def the_server_answers(self, data: st.DataObject, body: dict[str, Any]) -> None:
        id = data.draw(st.sampled_from(sorted(self.at_server, key=repr)))
        _, stream = self.at_server.pop(id)
        self.hears({"jsonrpc": "2.0", "id": id[1], **body}, stream)

    @precondition(lambda self: self.works_on())
    @rule(data=st.data(), keys=KEYS, state=st.booleans())
    def the_server_asks_for_input(self, data: st.DataObject, keys: list[str], state: bool) -> None:
        self.asks_for_input(data.draw(st.sampled_from(self.works_on())), keys, state=state)

    def asks_for_input(self, id: Id, keys: list[str], *, state: bool) -> None:
        _, stream = self.at_server.pop(id)
        asked = {"inputRequests": {name: QUESTIONS[name] for name in keys}} if keys or not state else {}
        self.hears(
            result(id[1], resultType="input_required", **asked, **({"requestState": "theirs"} if state else {})), stream
        )

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), keys=KEYS, body=st.sampled_from([None, *ANSWERS]))
    def the_server_answers_what_it_was_told_to_drop(
        self, data: st.DataObject, keys: list[str], body: dict[str, Any] | None
    ) -> None:
        id = data.draw(st.sampled_from(self.gone))
        if id in self.at_server:
            return
        asked = {"result": {"resultType": "input_required", "inputRequests": {name: QUESTIONS[name] for name in keys}}}
        out = self.hears({"jsonrpc": "2.0", "id": id[1], **(asked if body is None else body)})
        assert [Note] == [type(effect) for effect in out]

    @precondition(lambda self: self.works_on())
    @rule(data=st.data(), steps=st.lists(st.sampled_from([0.001, 1, 2.5]), min_size=1, max_size=3))
    def the_server_reports(self, data: st.DataObject, steps: list[float]) -> None:
        """Its values rise, but restart with each retry of a call (T33)."""
        id = data.draw(st.sampled_from(self.works_on()))
        for step in steps:
            self.reports(id, step)

    def reports(self, id: Id, step: float) -> None:
        self.reported[id] += step
        line = tells("notifications/progress", progressToken=self.tokens[id], progress=self.reported[id])
        self.hears(line, self.at_server[id][1])

    @rule(
        data=st.data(),
        method=st.sampled_from([*NEWS, "notifications/message", "notifications/tasks"]),
        named=st.booleans(),
    )
    def the_server_tells(self, data: st.DataObject, method: str, named: bool) -> None:
        self.told += 1
        stream = data.draw(st.sampled_from([0, *(stream for _, stream in self.at_server.values())]))
        listens = [id[1] for id, (asked, _) in self.at_server.items() if asked == "subscriptions/listen"]
        meta = {"_meta": {SUBSCRIPTION: listens[0]}} if named and listens else {}
        self.hears(tells(method, level="info", data=self.told, uri="u", **meta), stream)

    @precondition(lambda self: any(method == "subscriptions/listen" for method, _ in self.at_server.values()))
    @rule(word=st.sampled_from(["yes", "yes", "cancel"]))
    def the_server_listens(self, word: str) -> None:
        id, stream = next(
            (id, stream) for id, (method, stream) in self.at_server.items() if method == "subscriptions/listen"
        )
        if word == "yes":
            self.hears(tells("notifications/subscriptions/acknowledged", _meta={SUBSCRIPTION: id[1]}), stream)
        else:
            self.hears(tells("notifications/cancelled", requestId=id[1]), stream)

    @rule(data=st.data(), method=st.sampled_from(["sampling/createMessage", "ping"]))
    def the_server_pushes_though_its_era_cannot(self, data: st.DataObject, method: str) -> None:
        self.fresh += 1
        stream = data.draw(st.sampled_from([0, *(stream for _, stream in self.at_server.values())]))
        out = self.hears(request(f"q{self.fresh}", method, **sample()), stream)
        assert not any(isinstance(effect, Open | ToServer | ToClient) for effect in out)

    @rule(line=st.sampled_from(GARBAGE), from_server=st.booleans())
    def a_peer_writes_garbage(self, line: bytes, from_server: bool) -> None:
        out = self.hears(line) if from_server else self.says(line)
        assert not any(isinstance(effect, Open | Later | Withdraw) for effect in out)

    @rule(sure=st.integers(0, 5))
    def the_server_ends_and_is_started_again(self, sure: int) -> None:
        """The calls that it worked on end with an error. Requests to the client stay open (R120)."""
        if sure == 5:
            asked = set(self.at_client)
            self.at_server.clear()
            self.carry_out(self.session.eof("server"))
            assert asked == set(self.at_client)

    # -- the gate
    # ------------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.rounds)
    @rule(data=st.data(), forward=st.sampled_from([True, True, False]))
    def the_gate_is_done(self, data: st.DataObject, forward: bool) -> None:
        self.conclude(self.rounds[data.draw(st.sampled_from(sorted(self.rounds)))], data, forward=forward)

    def conclude(self, round: Round, data: st.DataObject, *, forward: bool) -> None:
        self.rounds.pop(round.id, None)
        if round.door == "input_required" and round.returned is None and (forward or round.roots):
            seen = {
                name: SealedDecision("d", "forward", "r", timeout=data.draw(st.sampled_from([None, 3.0])))
                for name in round.items
            }
            self.forwarding = True
            self.carry_out(
                self.session.round_done(round.id, ForwardRound(frozenset(round.items), seen, "hash", NONCE), self.now)
            )
        else:
            refused: list[Outcome] = [
                Denied(Reason.RULE, "decline"),
                Unanswered(Reason.TIMEOUT),
                Unanswered(Reason.CLIENT),
            ]
            chosen: dict[str, Outcome] = {}
            for name, item in round.items.items():
                reply = None if round.returned is None else round.returned.replies.get(name)
                good: list[Outcome] = [answered(item.method) if reply is None else Answered(reply, "client")]
                chosen[name] = data.draw(
                    st.sampled_from(refused if round.door == "url_error" else [*good, *good, *refused])
                )
            self.release(round, chosen)
        self.forwarding = False

    def release(self, round: Round, outcomes: Mapping[str, Outcome]) -> None:
        self.releasing = True
        self.carry_out(
            self.session.round_done(
                round.id, Settled({name: Release(o, "d") for name, o in outcomes.items()}), self.now
            )
        )
        self.releasing = False

    @precondition(lambda self: self.late)
    @rule(data=st.data(), forward=st.booleans())
    def the_gate_is_done_after_the_call(self, data: st.DataObject, forward: bool) -> None:
        """A verdict that arrives after the call has ended is dropped."""
        before = (dict(self.at_server), dict(self.at_client), dict(self.waiting), dict(self.rounds))
        self.conclude(data.draw(st.sampled_from(self.late)), data, forward=forward)
        assert before == (self.at_server, self.at_client, self.waiting, self.rounds)

    @precondition(lambda self: self.rounds or self.late)
    @rule(data=st.data())
    def a_beat(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted({*self.rounds, *(round.id for round in self.late)})))
        for effect in self.carry_out(self.session.round_progress(id)):
            assert isinstance(effect, ToClient)
            assert id in self.rounds
            assert "notifications/progress" == json.loads(effect.line)["method"]

    @precondition(lambda self: self.timers)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 1.0, 5.0]))
    def a_time_is_over(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        self.due(data.draw(st.sampled_from(self.timers)))

    def due(self, token: str) -> None:
        self.timers.remove(token)
        self.carry_out(self.session.due(token))

    @rule(seconds=st.sampled_from([1.0, 10.0]))
    def the_server_is_overdue(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.session.overdue(self.now, 10.0))

    # -- invariants
    # ------------------------------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_counted(self) -> None:
        if hasattr(self, "session"):
            assert {(*place, id) for id, place in self.waiting.items()} == {
                (one.stream, one.method, key(one.id)) for one in self.session.open_calls()
            }
            assert set(self.at_client) == set(map(key, self.session.questions()))
            assert self.awaited == ({stream for stream, _ in self.waiting.values()} if self.http else set())

    def teardown(self) -> None:
        """Each peer finishes what is open. Then all requests have their answers, and nothing is kept."""
        if not hasattr(self, "session"):
            return
        for _ in range(100):
            for id in list(self.at_client):
                if id in self.at_client:
                    del self.at_client[id]
                    self.says({"jsonrpc": "2.0", "id": id[1], "error": {"code": 1, "message": "no"}})
            for round in list(self.rounds.values()):
                del self.rounds[round.id]
                self.release(round, dict.fromkeys(round.items, Unanswered(Reason.CLIENT)))
            for token in self.timers[:]:
                self.due(token)
            for id in list(self.at_server):
                if id in self.at_server:
                    _, stream = self.at_server.pop(id)
                    self.hears({"jsonrpc": "2.0", "id": id[1], "error": {"code": -32601, "message": "no"}}, stream)
            if not (self.waiting or self.at_client or self.rounds or self.at_server or self.timers):
                break
        assert {} == self.waiting, "a request has no answer"
        assert ({}, {}, {}) == (self.at_client, self.rounds, self.at_server)
        inflight = self.session.state.inflight
        assert ({}, {}, {}, {}, 0) == (
            inflight.asked,
            inflight.wire,
            inflight.numbered,
            inflight.streams,
            inflight.size,
        )
        assert not any(isinstance(effect, ToClient | Withdraw) for effect in self.session.eof("client"))
        assert [] == self.session.frame("server", 0, raw(tells("vendor/news")), self.now)


TestOneClient = OneClient.TestCase
TestOneClient.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
