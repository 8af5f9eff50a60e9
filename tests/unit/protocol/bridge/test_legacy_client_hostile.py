"""A bridge between peers that write anything: it never raises, each client request gets one response, and no protocol
version leaks to the other side."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import frames
from samplegate.protocol.bridge.calls import MAX_CALLS
from samplegate.protocol.outcomes import Denied, Reason, Unanswered, Withdrawn
from samplegate.protocol.rounds import Effect, Later, Note, Open, Over, Round, ToClient, ToServer, Withdraw
from tests.fakes.bridged import (
    BOTH,
    SUBSCRIPTION,
    URL,
    VERSION,
    Bridge,
    cancel,
    discovered,
    input_required,
    notification,
)
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    FORWARD,
    FORWARD_URLS,
    answered,
    ask,
    error,
    form,
    request,
    result,
    sample,
    to_client,
)
from tests.unit.protocol.test_session_fuzz import ANYTHING

EVERYTHING: dict[str, Any] = {
    "sampling": {"tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
SERVER = {"tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}, "logging": {}}
IDS = [1, 2, "a", "1"]
LEGACY_ONLY = {
    *("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "roots/list"),
    *("sampling/createMessage", "elicitation/create", "notifications/initialized", "notifications/roots/list_changed"),
}
MODERN_WORDS = (
    b'"resultType"',
    b'"ttlMs"',
    b'"cacheScope"',
    b'"input_required"',
    b'"inputRequests"',
    b'"requestState"',
    b"io.modelcontextprotocol",
)


class Play:
    """A bridge, its open requests, and the steps that its peers and its gate can take; each choice is a number."""

    def __init__(self, revision: str) -> None:
        self.d = Bridge(FORWARD_URLS, FORWARD, ALLOW, ANSWER)
        self.d.open(EVERYTHING, revision, server=SERVER)
        self.d.log.clear()
        self.at_server: list[Any] = list(self.d.opened)
        self.at_client: list[Any] = []
        self.rounds: list[Round] = []
        self.requests = 0

    def step(self, kind: str, n: int) -> None:
        for effect in getattr(self, kind)(n):
            self._note(effect)

    def _note(self, effect: Effect) -> None:
        if isinstance(effect, ToServer):
            self._sent(json.loads(effect.line))
        elif isinstance(effect, ToClient):
            self._shown(effect)
        elif isinstance(effect, Open):
            self.rounds.append(effect.round)
        elif isinstance(effect, Withdraw):
            self.rounds = [round for round in self.rounds if round.id != effect.round]

    def _sent(self, line: Any) -> None:
        assert "method" in line, "a client of the modern era answers nothing"
        assert line["method"] not in LEGACY_ONLY
        if "id" in line:
            assert "2026-07-28" == line["params"]["_meta"][VERSION]
            self.at_server.append(line)

    def _shown(self, effect: ToClient) -> None:
        line = json.loads(effect.line)
        assert not [word for word in MODERN_WORDS if word in effect.line], effect.line
        assert effect.stream >= 0
        if "method" in line and "id" in line:
            self.at_client.append(line)

    # -- the client
    # ------------------------------------------------------------------------------------------------------------------

    def _ask(self, n: int, method: str, **params: Any) -> list[Effect]:
        self.requests += 1
        return self.d.on(n % 3, request(IDS[n % len(IDS)], method, **params))

    def call(self, n: int) -> list[Effect]:
        metas: list[dict[str, Any]] = [{}, {"_meta": {"progressToken": n % 2}}, {"_meta": {VERSION: "x", "v": 1}}]
        return self._ask(n, ["tools/call", "prompts/get", "resources/read"][n % 3], name="x", uri="a:b", **metas[n % 3])

    def other(self, n: int) -> list[Effect]:
        methods = [
            "tools/list",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "server/discover",
            "tasks/get",
            "initialize",
        ]
        return self._ask(
            n, methods[n % 8], level="info", uri=f"a:{n % 5}", protocolVersion="2025-11-25", capabilities=EVERYTHING
        )

    def cancel(self, n: int) -> list[Effect]:
        return self.d.on(n % 4, cancel(IDS[n % len(IDS)]))

    def reply(self, n: int) -> list[Effect]:
        if not self.at_client:
            return []
        id = self.at_client.pop(n % len(self.at_client))["id"]
        answers = [
            result(id, action="accept", content={"confirm": True}),
            result(id, roots=[]),
            error(id, -1),
            {**result(id), "result": 5},
        ]
        return self.d.client(answers[n % 4])

    def says(self, n: int) -> list[Effect]:
        return self.d.client(
            notification(
                ["notifications/initialized", "notifications/roots/list_changed", "notifications/progress", "x/y"][
                    n % 4
                ]
            )
        )

    # -- the server
    # ------------------------------------------------------------------------------------------------------------------

    def answer(self, n: int) -> list[Effect]:
        if not self.at_server:
            return []
        asked = self.at_server.pop(n % len(self.at_server))
        id = asked["id"]
        if asked["method"] == "server/discover":
            return self.d.server(discovered(id, SERVER))
        answers = [
            result(id, resultType="complete", content=[], ttlMs=1, cacheScope="public"),
            input_required(id, {"s": ask(sample()), "f": ask(form()), "u": ask(URL)}, requestState="st"),
            input_required(
                id, {"r": {"method": "roots/list"}, "f": ask(form(m={"type": "array", "items": {"enum": ["a"]}}))}
            ),
            input_required(id, {"r": {"method": "roots/list"}}, requestState="st"),
            input_required(id, requestState="later"),
            input_required(id, {"x": {"method": "vendor/x"}}),
            error(id, [-32021, -32022, -32601, -32042][n % 4], data={"elicitations": []}),
            result(id, resultType="task"),
        ]
        return self.d.server(answers[n // 7 % len(answers)])

    def tells(self, n: int) -> list[Effect]:
        listens = [line["id"] for line in self.at_server if line["method"] == "subscriptions/listen"] or ["none"]
        tag = {"_meta": {SUBSCRIPTION: listens[n % len(listens)]}}
        lines = [
            notification("notifications/subscriptions/acknowledged", notifications={}, **tag),
            notification("notifications/tools/list_changed", **tag),
            notification("notifications/progress", progressToken=n % 2, progress=n % 11),
            cancel(listens[n % len(listens)]),
            cancel(IDS[n % len(IDS)]),
            request(n, "sampling/createMessage", **sample()),
            result("nobody", resultType="complete"),
            notification("notifications/message", level="info", data="x"),
        ]
        return self.d.server(lines[n % 8])

    # -- the gate
    # ------------------------------------------------------------------------------------------------------------------

    def gate(self, n: int) -> list[Effect]:
        if not self.rounds:
            return []
        round = self.rounds.pop(n % len(self.rounds))
        if round.door == "input_required" and round.returned is None and n % 3:
            return self.d.hand_on([Open(round)], *round.items)
        outcome = [Denied(Reason.RULE), Unanswered(Reason.CLIENT), Withdrawn(), None][n % 4]
        return self.d.settle(
            [Open(round)], answers={key: outcome or answered(item.method) for key, item in round.items.items()}
        )

    def beat(self, n: int) -> list[Effect]:
        return (
            []
            if not self.rounds
            else self.d.take(self.d.session.round_progress(self.rounds[n % len(self.rounds)].id, n))
        )

    def due(self, n: int) -> list[Effect]:
        tokens = [effect.token for effect in self.d.log if isinstance(effect, Later)]
        return self.d.take(self.d.session.due(tokens[n % len(tokens)])) if tokens else []

    def closed(self, n: int) -> list[Effect]:
        return self.d.take(self.d.session.stream_closed("client", n % 4))


STEPS = [
    "call",
    "call",
    "other",
    "cancel",
    "reply",
    "reply",
    "says",
    "answer",
    "answer",
    "answer",
    "tells",
    "gate",
    "gate",
    "beat",
    "due",
    "closed",
]


@given(
    st.sampled_from(["2025-11-25", "2025-06-18", "2024-11-05"]),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1000)), max_size=60),
)
def test_every_request_of_the_client_is_answered_once_or_taken_back_or_in_flight(
    revision: str, script: list[tuple[str, int]]
) -> None:
    play = Play(revision)
    for kind, n in script:
        play.step(kind, n)
    log, in_flight = play.d.log, len(play.d.session._calls.by_id)
    answers = [effect for effect in log if isinstance(effect, ToClient) and effect.last]
    assert all("method" not in line for line in to_client(list(answers)))
    over = [effect for effect in log if isinstance(effect, Over)]
    withdrawn = play.requests - len(answers) - len(over) - in_flight
    assert 0 == withdrawn
    kept = sum(map(len, (play.d.session._rounds._asking._by_id, play.d.session._rounds._asking._by_call)))
    assert in_flight or not kept


@given(
    st.sampled_from(["2025-11-25", "2025-03-26"]),
    st.lists(
        st.tuples(
            st.sampled_from(["client", "server", "forward", "settle", "beat", "due", *STEPS]),
            ANYTHING,
            st.integers(0, 99),
        ),
        max_size=14,
    ),
)
def test_a_bridge_never_raises_whatever_is_written(revision: str, script: list[tuple[str, bytes, int]]) -> None:
    """The relay around the bridge catches nothing: an exception here would end the gate or leave a request
    unanswered."""
    play = Play(revision)
    for kind, line, n in script:
        match kind:
            case "client" | "server":
                out = play.d.take(play.d.session.frame(kind, 0, line, 0.0))
                play.rounds += [effect.round for effect in out if isinstance(effect, Open)]
                play.at_client += [sent for sent in to_client(out) if "method" in sent and "id" in sent]
            case "forward":
                out = play.d.take(play.d.session.lost("server" if n % 2 else "client", 0, line, "too long"))
            case "settle":
                out = play.d.take(play.d.session.lost_end("server" if n % 2 else "client", 0, line[:9], line))
            case _:
                out = getattr(play, kind)(n)
                play.rounds += [effect.round for effect in out if isinstance(effect, Open)]
        for effect in out:
            if isinstance(effect, ToClient | ToServer):
                frames.read(effect.line)
    play.d.session.eof("server")
    play.d.session.eof("client")


def test_a_client_with_requests_without_end_is_bounded() -> None:
    d = Bridge()
    d.open()
    for number in range(MAX_CALLS + 10):
        d.session.frame("client", 0, b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}' % number, 0.0)
    assert MAX_CALLS == len(d.session._calls.by_id)


def test_ids_of_ours_are_nobody_elses() -> None:
    d = Bridge(FORWARD)
    d.open(BOTH)
    d.call(1)
    (asked,) = to_client(d.handed_on({"s": ask(sample())}))
    assert "error" in to_client(d.client(request(asked["id"], "tools/list")))[0]
    assert [] == to_client(d.server(result(asked["id"], content=[])))
    assert [Note("frame.unasked", {"side": "server"})] == d.server(result(asked["id"]))


def test_a_server_that_asks_with_twin_keys_or_members_ends_the_call() -> None:
    entry = (
        b'"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}'
    )
    for requests in (b'{"k":{%s},"k":{%s}}' % (entry, entry), b'{"k":{%s,"Params":{}}}' % entry, b"[]", b'{"k":5}'):
        d = Bridge(FORWARD)
        d.open(BOTH)
        d.call(1)
        out = d.server(
            b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":%s}}' % requests
        )
        assert [(1, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]
