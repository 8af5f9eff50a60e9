"""A deferred wait: the client gets only a sealed state, retries at once, and the round is as before (T10, R62, R68)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.policy.capabilities import SessionRules
from samplegate.protocol import request_state
from samplegate.protocol.input_required import MAX_ROUNDS
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason, SealedDecision, Unanswered
from samplegate.protocol.request_state import FOREIGN, LIFETIME, UNKNOWN
from samplegate.protocol.rounds import PARKS, Effect, ForwardRound, Note, Open, Over, Round, ToServer, Withdraw
from samplegate.protocol.seals import SealKeys
from samplegate.protocol.session import Session
from samplegate.protocol.session_state import SessionState
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    DENY,
    FORWARD,
    NONCE,
    SEAL_KEYS,
    Dialogue,
    ask,
    error,
    form,
    modern,
    one,
    request,
    result,
    sample,
    to_client,
    to_server,
)

BOTH: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
ROOTS = {"method": "roots/list"}
REPLY = {"role": "assistant", "content": {"type": "text", "text": "me"}, "model": "client"}


def call(id: Any = 1, **params: Any) -> dict[str, Any]:
    return modern(id, "tools/call", BOTH, **{"name": "x", "arguments": {"n": 1}, **params})


def asks(id: Any, requests: Any, **more: Any) -> dict[str, Any]:
    return result(id, resultType="input_required", inputRequests=requests, **more)


def defer(d: Dialogue, effects: list[Effect]) -> str:
    """The request state that the client gets when the gate defers the one round among ``effects``."""
    (shown,) = to_client(d.hand_on(effects))
    assert {"resultType", "requestState"} == set(shown["result"])
    state: str = shown["result"]["requestState"]
    return state


def client_retry(d: Dialogue, state: str, id: Any, **more: Any) -> list[Effect]:
    """The client's retry."""
    return d.client(call(id, requestState=state, **more))


def parked(requests: Any = None, **more: Any) -> tuple[Dialogue, Round, str]:
    """A dialogue whose round was deferred once, the round, and the state that the client got."""
    d = Dialogue(ALLOW, ANSWER)
    d.client(call(1))
    opened = d.server(asks(1, requests or {"k": ask(sample())}, **more))
    return d, one(opened, Open).round, defer(d, opened)


def is_empty(d: Dialogue) -> bool:
    s = d.session
    return not any((s.state.inflight.asked, s.state.inflight.wire, s.exchange.open))


class TestARoundThatIsPutOff:
    def test_the_client_gets_a_state_and_no_questions(self) -> None:
        d, _, state = parked(requestState="theirs")
        assert state.startswith("sg2.")
        assert "theirs" not in state
        assert is_empty(d)

    def test_nothing_of_it_reaches_the_server_until_it_is_settled(self) -> None:
        d, _, state = parked(requestState="theirs")
        opened = client_retry(d, state, 2)
        assert [] == to_server(opened)
        (retry,) = to_server(d.settle(opened))
        assert ("theirs", ["k"]) == (retry["params"]["requestState"], list(retry["params"]["inputResponses"]))
        assert [result(2, content=[])] == to_client(d.server(result(retry["id"], content=[])))
        assert is_empty(d)

    def test_its_requests_and_their_names_are_as_before_however_often_it_returns(self) -> None:
        d, first, state = parked({"a": ask(sample()), "b": ask(form())})
        for id in range(2, PARKS + 2):
            opened = client_retry(d, state, id)
            round = one(opened, Open).round
            assert {key: item.params for key, item in first.items.items()} == {
                key: item.params for key, item in round.items.items()
            }
            assert (first.call_ids, first.origin) == (round.call_ids, round.origin)
            assert round.returned is not None
            assert ({}, {}, {"a": "d-a", "b": "d-b"}) == (
                round.returned.replies,
                round.returned.seen,
                round.returned.ids,
            )
            if round.parks:
                state = defer(d, opened)

    def test_it_is_decided_again_by_the_policy_in_force_at_its_return(self) -> None:
        _, _, state = parked()
        stricter = Dialogue(DENY)
        assert not one(client_retry(stricter, state, 2), Open).round.items["k"].offered

    def test_what_the_client_sends_along_is_no_answer_to_anything(self) -> None:
        """The client was asked nothing (T3)."""
        d, _, state = parked()
        round = one(client_retry(d, state, 2, inputResponses={"k": REPLY}), Open).round
        assert round.returned is not None
        assert ({}, {}) == (round.returned.replies, round.returned.seen)

    @pytest.mark.parametrize("outcome", [Denied(Reason.RULE), Unanswered(Reason.TIMEOUT)])
    def test_it_can_end_the_call(self, outcome: Outcome) -> None:
        d, _, state = parked()
        out = d.settle(client_retry(d, state, 2), answers={"k": outcome})
        assert ([], 2, True) == (to_server(out), to_client(out)[0]["id"], to_client(out)[0]["result"]["isError"])
        assert is_empty(d)

    def test_the_client_may_take_a_try_back(self) -> None:
        d, _, state = parked()
        round = one(client_retry(d, state, 2), Open).round
        gone = d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
        assert [Withdraw(round.id), Over(0)] == gone
        assert [] == d.done(
            round, ForwardRound(frozenset(), {"k": SealedDecision("d", "escalate", "r")}, "hash", NONCE)
        )

    def test_a_state_is_good_for_this_call_only(self) -> None:
        d, _, state = parked()
        for params in ({"name": "y"}, {"arguments": {"n": 2}}):
            (end,) = to_client(client_retry(d, state, 2, **params))
            assert -32602 == end["error"]["code"]

    def test_its_age_counts_from_the_last_time_that_it_was_put_off(self) -> None:
        d, _, state = parked()
        for id in (2, 3):
            d.now += LIFETIME - 1
            state = defer(d, client_retry(d, state, id))
        d.now += LIFETIME
        assert -32602 == to_client(client_retry(d, state, 4))[0]["error"]["code"]

    def test_the_servers_rounds_are_not_counted_up_by_it(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(0))
        wire: Any = 0
        for number in range(1, MAX_ROUNDS + 1):
            opened = d.server(asks(wire, {"k": ask(sample())}))
            if number < 5:
                opened = client_retry(d, defer(d, opened), number)
            (retry,) = to_server(d.settle(opened))
            wire = retry["id"]
        assert Reason.ROUNDS is one(d.server(asks(wire, {"k": ask(sample())})), Open).round.items["k"].refused

    def test_a_fault_of_the_gates_leaves_the_round_to_be_settled(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(1))
        opened = d.server(asks(1, {"k": ask(sample())}))
        with pytest.raises(KeyError):
            d.done(one(opened, Open).round, ForwardRound(frozenset(), {}, "hash", NONCE))
        (end,) = to_client(d.settle(opened, answers={"k": Unanswered(Reason.ERROR)}))
        assert end["result"]["isError"]


class TestBeforeAndBehindAForward:
    def asked(self, **replies: Any) -> tuple[Dialogue, list[Effect]]:
        """A round whose client was asked for one key and its roots, and has retried."""
        d = Dialogue(ALLOW, {**FORWARD, "match": {"kind": "elicitation"}})
        d.client(call(1))
        requests = {"mine": ask(form()), "r": ROOTS, "local": ask(sample())}
        (shown,) = to_client(d.hand_on(d.server(asks(1, requests, requestState="theirs")), "mine"))
        assert {"mine", "r"} == set(shown["result"]["inputRequests"])
        return d, client_retry(d, shown["result"]["requestState"], 2, inputResponses=replies)

    def test_what_the_client_has_answered_is_there_again_at_every_return(self) -> None:
        accept = {"action": "accept", "content": {"confirm": True, "n": 1.0}}
        d, opened = self.asked(mine=accept, r={"roots": []}, local={"forged": True})
        for id in (3, 4):
            opened = client_retry(
                d,
                defer(d, opened),
                id,
                inputResponses={"mine": {"action": "decline"}, "local": {}, "r": {"roots": [1]}},
            )
            returned = one(opened, Open).round.returned
            assert returned is not None
            assert {"mine": accept, "r": {"roots": []}} == {
                key: json.loads(raw) for key, raw in returned.replies.items()
            }
            assert {"mine": "d-mine", "local": "d-local"} == returned.ids
            assert SealedDecision("d-mine", "forward", "r") == returned.seen["mine"]
        outcomes = {
            "mine": Answered(json.dumps(accept).encode(), "client"),
            "local": Answered(b'{"role":"assistant"}', "human"),
        }
        (retry,) = to_server(d.settle(opened, answers=outcomes))
        responses = retry["params"]["inputResponses"]
        assert ({"mine", "r", "local"}, accept, {"roots": []}) == (set(responses), responses["mine"], responses["r"])

    def test_a_key_that_the_client_left_out_stays_left_out(self) -> None:
        d, opened = self.asked(r={"roots": []})
        round = one(client_retry(d, defer(d, opened), 3, inputResponses={"mine": {"action": "accept"}}), Open).round
        assert round.returned is not None
        assert {"r"} == set(round.returned.replies)
        assert "mine" in round.returned.seen

    @pytest.mark.parametrize(("took", "late"), [(5.0, False), (20.0, True)])
    def test_whether_the_client_was_in_time_does_not_change_while_people_take_theirs(
        self, took: float, late: bool
    ) -> None:
        d = Dialogue(FORWARD)
        d.client(call(1))
        opened = d.server(asks(1, {"f": ask(form())}))
        seen = {"f": SealedDecision("d", "forward", "r", verify=True, timeout=10.0)}
        (shown,) = to_client(d.done(one(opened, Open).round, ForwardRound(frozenset({"f"}), seen, "hash", NONCE)))
        d.now += took
        opened = client_retry(d, shown["result"]["requestState"], 2, inputResponses={"f": {"action": "decline"}})
        for id in (3, 4):
            state = defer(d, opened)
            d.now += 50.0
            opened = client_retry(d, state, id)
            round = one(opened, Open).round
            assert round.returned is not None
            assert SealedDecision("d", "forward", "r", verify=True, late=late) == round.returned.seen["f"]

    def test_a_forward_still_works_after_a_round_that_was_put_off(self) -> None:
        d, _, state = parked()
        (retry,) = to_server(d.settle(client_retry(d, state, 2)))
        (shown,) = to_client(d.hand_on(d.server(asks(retry["id"], {"f": ask(form())})), "f"))
        round = one(
            client_retry(d, shown["result"]["requestState"], 3, inputResponses={"f": {"action": "accept"}}), Open
        ).round
        assert round.returned is not None
        assert {"f"} == set(round.returned.replies)


class TestHowOften:
    def test_a_call_is_put_off_until_its_client_would_give_it_up(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(0))
        opened, left = d.server(asks(0, {"k": ask(sample())})), []
        for id in range(1, PARKS + 1):
            left.append(one(opened, Open).round.parks)
            opened = client_retry(d, defer(d, opened), id)
        assert (list(range(PARKS, 0, -1)), 0) == (left, one(opened, Open).round.parks)

    def test_what_was_forwarded_counts_too_and_so_do_the_rounds_before(self) -> None:
        d = Dialogue(FORWARD)
        d.client(call(0))
        wire: Any = 0
        for number in (1, 2):
            (shown,) = to_client(d.hand_on(d.server(asks(wire, {"f": ask(form())})), "f"))
            opened = client_retry(
                d, shown["result"]["requestState"], number, inputResponses={"f": {"action": "accept"}}
            )
            assert PARKS - number == one(opened, Open).round.parks
            (retry,) = to_server(d.settle(opened, answers={"f": Answered(b"{}", "client")}))
            wire = retry["id"]
        assert PARKS - 2 == one(d.server(asks(wire, {"f": ask(form())})), Open).round.parks

    def test_a_round_that_may_not_be_put_off_is_not(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(0))
        opened = d.server(asks(0, {"k": ask(sample())}))
        for id in range(1, PARKS + 1):
            opened = client_retry(d, defer(d, opened), id)
        with pytest.raises(ValueError, match="put off"):
            d.hand_on(opened)
        assert to_client(d.settle(opened, answers={"k": Unanswered(Reason.ERROR)}))[0]["result"]["isError"]

    def test_it_is_for_calls_of_modern_clients_alone(self) -> None:
        d = Dialogue(ALLOW, FORWARD)
        d.open_legacy(sampling={}, elicitation={"url": {}})
        d.client(request(1, "tools/call", name="x"))
        assert 0 == one(d.server(request(7, "sampling/createMessage", **sample())), Open).round.parks
        url = {"mode": "url", "message": "m", "url": "https://a.example/x", "elicitationId": "e"}
        assert 0 == one(d.server(error(1, -32042, data={"elicitations": [url]})), Open).round.parks
        d = Dialogue(FORWARD)
        assert 0 == one(d.client(call(1, inputResponses={"k": {"action": "accept"}})), Open).round.parks

    def test_it_gains_nothing_where_the_client_waits_on_one_call_all_along(self) -> None:
        d = Dialogue(ALLOW)
        d.session = Session(SessionState(SessionRules(d.compiled), "default", "t", SEAL_KEYS), parks=0)
        for _ in range(2):
            d.client(call(1))
            opened = d.server(asks(1, {"k": ask(sample())}))
            assert 0 == one(opened, Open).round.parks
            d.take(d.session.eof("server"))
            d.session.state.inflight.remove(next(iter(d.session.state.inflight.asked.values())))


class TestHowLarge:
    @staticmethod
    def parks(size: int, text: str = "x", state: str = "", **params: Any) -> int:
        d = Dialogue(ALLOW)
        d.client(call(1, **params))
        return one(
            d.server(asks(1, {"k": ask(sample(text * (size // len(text))))}, requestState=state)), Open
        ).round.parks

    def test_what_would_make_too_long_a_state_is_not_put_off(self) -> None:
        assert (PARKS, 0) == (self.parks(request_state.MAX_PARKED - 2000), self.parks(request_state.MAX_PARKED))

    def test_escapes_count_as_they_are_sealed(self) -> None:
        assert (PARKS, 0) == (
            self.parks(request_state.MAX_PARKED // 2, "x"),
            self.parks(request_state.MAX_PARKED // 2, '"'),
        )

    def test_what_the_client_must_send_beside_it_counts_as_well(self) -> None:
        assert (PARKS, 0) == (
            self.parks(10, arguments={"n": "x"}),
            self.parks(10, arguments={"n": "x" * request_state.MAX_PARKED}),
        )

    def test_so_does_the_servers_own_state(self) -> None:
        assert (PARKS, 0) == (self.parks(10, state="s" * 1000), self.parks(10, state="s" * request_state.MAX_PARKED))

    def test_so_does_what_it_has_answered(self) -> None:
        d = Dialogue(FORWARD)
        d.client(call(1))
        (shown,) = to_client(d.hand_on(d.server(asks(1, {"f": ask(sample())})), "f"))
        found = []
        for id, size in enumerate((10, request_state.MAX_PARKED), 2):
            opened = client_retry(
                d, shown["result"]["requestState"], id, inputResponses={"f": {**REPLY, "more": "x" * size}}
            )
            found.append(one(opened, Open).round.parks)
        assert [PARKS - 1, 0] == found

    def test_the_largest_state_leaves_room_in_a_body_of_one_mebibyte(self) -> None:
        """The default limit of the usual reverse proxies."""
        d = Dialogue(ALLOW)
        d.client(call(1))
        each = request_state.MAX_PARKED // 64 - 200
        opened = d.server(asks(1, {f"k{n:02}": ask(sample("x" * each)) for n in range(64)}))
        assert PARKS == one(opened, Open).round.parks
        assert len(json.dumps(call(2, requestState=defer(d, opened)))) < 1024 * 1024

    def test_answers_that_are_no_text_cannot_be_kept(self) -> None:
        d = Dialogue(FORWARD)
        d.client(call(1))
        (shown,) = to_client(d.hand_on(d.server(asks(1, {"f": ask(sample())})), "f"))
        line = json.dumps(
            call(2, requestState=shown["result"]["requestState"], inputResponses={"f": {"a": "?"}}),
            separators=(",", ":"),
        )
        opened = d.client(line.encode().replace(b'{"a":"?"}', b'{"a":"\xff"}'))
        assert not any(isinstance(effect, Open) and effect.round.parks for effect in opened)


class TestTime:
    def test_the_clients_patience_runs_from_the_try_that_waits(self) -> None:
        d, round, state = parked()
        assert 0.0 == round.called
        for id, now in ((2, 55.0), (3, 110.0)):
            d.now = now
            opened = client_retry(d, state, id)
            assert now == one(opened, Open).round.called
            state = defer(d, opened)

    def test_so_it_does_for_what_the_server_asks_behind_it(self) -> None:
        d, _, state = parked()
        d.now = 55.0
        (retry,) = to_server(d.settle(client_retry(d, state, 2)))
        d.now = 60.0
        assert 55.0 == one(d.server(asks(retry["id"], {"k": ask(sample())})), Open).round.called

    def test_a_forward_behind_it_counts_from_there(self) -> None:
        d, _, state = parked()
        d.now = 55.0
        (retry,) = to_server(d.settle(client_retry(d, state, 2)))
        (shown,) = to_client(d.hand_on(d.server(asks(retry["id"], {"f": ask(form())})), "f"))
        d.now = 70.0
        assert 55.0 == one(client_retry(d, shown["result"]["requestState"], 3), Open).round.called


class TestAnotherGate:
    def gate(self, token: str, key: bytes = bytes(range(32)), epoch: float = 0.0, *, streams: bool = True) -> Dialogue:
        """A process of its own, with a server at a URL (``streams``) or behind stdio."""
        d = Dialogue(ALLOW, FORWARD)
        keys = SealKeys([key], token.encode().ljust(16))
        d.session = Session(SessionState(SessionRules(d.compiled), "default", token, keys, epoch, streams=streams))
        return d

    def parked(self, **more: Any) -> str:
        """The state of a round of a stdio server that a gate has put off."""
        d = self.gate("one", streams=False)
        d.client(call(1))
        return defer(d, d.server(asks(1, {"k": ask(sample())}, **more)))

    def test_with_the_same_key_finishes_what_a_gate_has_begun_for_a_server_at_a_url(self) -> None:
        before = self.gate("one", epoch=1_000_000.0)
        before.client(call(1))
        (shown,) = to_client(
            before.hand_on(before.server(asks(1, {"f": ask(form()), "k": ask(sample())}, requestState="theirs")), "f")
        )
        opened = client_retry(before, shown["result"]["requestState"], 2, inputResponses={"f": {"action": "decline"}})
        was = one(opened, Open).round
        state = defer(before, opened)

        after = self.gate("two", epoch=1_000_060.0)
        opened = client_retry(after, state, 3)
        round = one(opened, Open).round
        assert round.returned is not None
        assert (was.call_ids, PARKS - 2, 0.0) == (round.call_ids, round.parks, round.called)
        assert ({"f": b'{"action":"decline"}'}, {"f": "d-f", "k": "d-k"}) == (
            round.returned.replies,
            round.returned.ids,
        )
        out = after.settle(
            opened,
            answers={
                "f": Answered(round.returned.replies["f"], "client"),
                "k": Answered(b'{"role":"assistant"}', "human"),
            },
        )
        (retry,) = to_server(out)
        assert "theirs" == retry["params"]["requestState"]
        assert [result(3, content=[])] == to_client(after.server(result(retry["id"], content=[])))

    def test_with_another_key_it_says_that_the_state_is_not_its_own(self) -> None:
        _, _, state = parked()
        (end,) = to_client(client_retry(self.gate("two", bytes(32)), state, 2))
        assert (-32602, UNKNOWN) == (end["error"]["code"], end["error"]["message"])

    def test_does_not_give_its_own_child_the_state_of_another_gates_child(self) -> None:
        two = self.gate("two", streams=False)
        out = client_retry(two, self.parked(requestState="theirs"), 2)
        (end,) = to_client(out)
        assert (-32602, FOREIGN) == (end["error"]["code"], end["error"]["message"])
        assert [FOREIGN] == [effect.fields["fault"] for effect in out if isinstance(effect, Note)]
        assert ([], True) == (to_server(out), is_empty(two))

    def test_goes_on_with_a_round_in_which_a_stdio_server_gave_no_state(self) -> None:
        assert isinstance(one(client_retry(self.gate("two", streams=False), self.parked(), 2), Open), Open)

    def test_the_gate_that_put_it_off_goes_on_with_its_childs_state(self) -> None:
        one_again = self.gate("one", streams=False)
        assert isinstance(one(client_retry(one_again, self.parked(requestState="theirs"), 2), Open), Open)


class TestTheCallItself:
    ARGUMENTS = b'{"name":"x","arguments":{"n": 1.0,"u":"\\u00e9"}'

    def modern(self) -> bytes:
        meta = json.dumps(call()["params"]["_meta"]).encode()
        return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + self.ARGUMENTS + b',"_meta":' + meta + b"}}"

    def test_a_round_shows_what_it_was_called_with_also_when_it_returns(self) -> None:
        d = Dialogue(ALLOW)
        d.client(self.modern())
        opened = d.server(asks(1, {"k": ask(sample())}))
        assert (one(opened, Open).round.arguments or b"").startswith(self.ARGUMENTS)
        state = defer(d, opened)
        line = (
            self.modern()
            .replace(b'"name"', b'"requestState":"' + state.encode() + b'","name"')
            .replace(b'"id":1', b'"id":2')
        )
        shown = one(d.client(line), Open).round.arguments
        assert json.loads(self.ARGUMENTS + b"}") == {
            key: value for key, value in json.loads(shown or b"{}").items() if key != "_meta"
        }
        assert b"sg2." not in (shown or b"")

    def test_the_servers_own_retries_show_the_same(self) -> None:
        d = Dialogue(ALLOW)
        d.client(self.modern())
        (retry,) = to_server(d.settle(d.server(asks(1, {"k": ask(sample())}))))
        arguments = one(d.server(asks(retry["id"], {"k": ask(sample())})), Open).round.arguments or b""
        assert arguments.startswith(self.ARGUMENTS)
        assert b"inputResponses" not in arguments

    @pytest.mark.parametrize(("calls", "known"), [(0, False), (1, True), (2, False)])
    def test_a_legacy_request_shows_them_where_one_call_alone_is_in_flight(self, calls: int, known: bool) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(request("l", "tools/list", cursor="c"))
        for id in range(1, calls + 1):
            d.client(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}}' % (id, self.ARGUMENTS))
        found = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round.arguments
        assert (self.ARGUMENTS + b"}" if known else None) == found

    def test_over_http_the_stream_says_which_call_it_is(self) -> None:
        d = Dialogue(ALLOW)
        d.session = Session(
            SessionState(SessionRules(d.compiled), "default", "t", SEAL_KEYS, maps_ids=True, streams=True)
        )
        d.open_legacy()
        sent = [one(d.client(request(id, "tools/call", name="x", arguments={"n": id})), ToServer) for id in (1, 2)]
        asked = json.dumps(request(7, "sampling/createMessage", **sample())).encode()
        found = one(d.take(d.session.frame("server", sent[1].stream, asked, 0.0)), Open).round.arguments
        assert {"name": "x", "arguments": {"n": 2}} == json.loads(found or b"null")

    def test_so_does_a_call_that_failed_for_its_urls(self) -> None:
        d = Dialogue(FORWARD)
        d.open_legacy(elicitation={"url": {}})
        d.client(request(1, "tools/call", name="x", arguments={"n": 1}))
        d.client(request(2, "tools/call", name="y", arguments={"n": 2}))
        url = {"mode": "url", "message": "m", "url": "https://a.example/x", "elicitationId": "e"}
        found = one(d.server(error(2, -32042, data={"elicitations": [url]})), Open).round.arguments
        assert {"name": "y", "arguments": {"n": 2}} == json.loads(found or b"null")

    def test_a_large_legacy_call_is_not_kept_for_it(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(request(1, "tools/call", name="x", arguments={"n": "x" * 2_000_000}))
        assert one(d.server(request(7, "sampling/createMessage", **sample())), Open).round.arguments is None
