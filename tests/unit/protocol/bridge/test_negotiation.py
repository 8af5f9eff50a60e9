"""Protocol negotiation for every pair of versions, as transcripts."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.policy.capabilities import SessionRules
from samplegate.protocol.bridge.era_detection import Eras
from samplegate.protocol.bridge.legacy_client import LegacyClient
from samplegate.protocol.bridge.modern_client import ModernClient
from samplegate.protocol.bridge.negotiation import EraNegotiator
from samplegate.protocol.evidence import REFUSED
from samplegate.protocol.rounds import Close, Later, Note, Open, Over, ToServer, Withdraw
from samplegate.protocol.session import Session
from tests.fakes.dialogue import ALLOW, FORWARD, Dialogue, error, one, request, result, sample
from tests.fakes.streams import (
    ALL,
    CAPABILITIES,
    ENVELOPE,
    INFO,
    SERVER,
    VERSION,
    Streams,
    asks,
    heard,
    raw,
    sent,
    tells,
    timer,
)

MODERN = ["2026-07-28"]
BOTH = ["2026-07-28", "2025-11-25"]
OFFERED: dict[str, Any] = {"sampling": {}}
HELLO = request(
    0, "initialize", protocolVersion="2025-11-25", capabilities=OFFERED, clientInfo={"name": "c", "version": "1"}
)
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": ALL, "serverInfo": INFO}


class Negotiation(Streams):
    """A negotiation and the session that it led to."""

    def __init__(self, known: Eras | None = None) -> None:
        self.opening: EraNegotiator | None = None

        def make(state: Any) -> EraNegotiator:
            self.opening = EraNegotiator(state, known)
            return self.opening

        super().__init__(make, ALLOW)

    def eras(self) -> tuple[bool | None, bool | None]:
        assert self.opening is not None
        return self.opening.eras.legacy, self.opening.eras.modern

    def chosen(self) -> type:
        assert self.opening is not None
        return type(self.opening._choice.chosen) if self.opening.phase == "settled" else type(None)

    def due(self, effects: list[Any]) -> list[Any]:
        return self.take(self.session.due(timer(effects).token))


def discovered(id: Any, versions: list[str], **more: Any) -> dict[str, Any]:
    return result(
        id,
        resultType="complete",
        supportedVersions=versions,
        capabilities={"tools": {}},
        ttlMs=0,
        cacheScope="private",
        **more,
    )


class TestModernClient:
    def test_its_own_discover_is_the_probe_and_its_answer_is_its_own(self) -> None:
        d = Negotiation()
        out = d.client(0, asks("d", "server/discover", {CAPABILITIES: {"vendor": {}}}, x=1.0))
        (probe,) = sent(out)
        assert ("server/discover", 1.0) == (probe["method"], probe["params"]["x"])
        assert {} == probe["params"]["_meta"][CAPABILITIES]["vendor"]
        assert [(0, discovered("d", MODERN), True)] == heard(d.server(discovered(probe["id"], MODERN)))
        assert (Session, (None, True)) == (d.chosen(), d.eras())

    def test_another_first_frame_is_kept_until_the_server_was_asked(self) -> None:
        d = Negotiation()
        out = d.client(3, asks(1, "tools/call", name="x"))
        assert ["server/discover"] == [line["method"] for line in sent(out)]
        assert 5.0 == timer(out).delay
        assert [] == d.client(4, asks(1, "tools/list"))
        after = d.server(discovered(sent(out)[0]["id"], BOTH))
        assert ["tools/call", "tools/list"] == [line["method"] for line in sent(after)]
        assert ([], (True, True)) == (heard(after), d.eras())
        assert "2026-07-28" == sent(after)[0]["params"]["_meta"][VERSION]
        assert [] == d.due(out)

    @pytest.mark.parametrize(
        ("answer", "modern"),
        [
            (error("?", -32601), False),
            (error("?", -32602), False),
            (error("?", -32600), False),
            (error("?", -32000), None),
            (error("?", 401), None),
            (error("?", -32603), None),
            (result("?"), False),
            (result("?", supportedVersions=["2025-11-25"]), False),
            (result("?", supportedVersions="2026-07-28"), False),
            ({"jsonrpc": "2.0", "error": {"code": "no"}}, None),
            ({"jsonrpc": "2.0", "error": 5}, None),
            (error("?", -32022, data={"supported": ["2025-06-18"]}), False),
        ],
    )
    def test_a_server_that_does_not_say_that_it_is_modern_is_bridged(
        self, answer: dict[str, Any], modern: bool | None
    ) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks(1, "tools/list")))
        (hello,) = sent(d.server({**answer, "id": probe["id"]}))
        assert "initialize" == hello["method"]
        assert (None, None) == d.eras()  # nothing is certain until the server has answered
        out = d.server(result(hello["id"], **WELCOME))
        assert ["notifications/initialized", "tools/list"] == [line["method"] for line in sent(out)]
        assert (ModernClient, (True, modern)) == (d.chosen(), d.eras())

    @pytest.mark.parametrize(
        "answer",
        [error("?", -32022, data={"supported": MODERN}), error("?", -32022), error("?", -32021), error("?", -32020)],
    )
    def test_an_error_that_only_a_modern_server_makes_is_modern(self, answer: dict[str, Any]) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks(1, "tools/list")))
        assert ["tools/list"] == [line["method"] for line in sent(d.server({**answer, "id": probe["id"]}))]
        assert (Session, (None, True)) == (d.chosen(), d.eras())

    def test_a_discover_of_an_unknown_version_is_not_the_probe_and_is_judged_by_the_server(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks(1, "server/discover", {VERSION: "2099-01-01"})))
        assert "2026-07-28" == probe["params"]["_meta"][VERSION]
        (theirs,) = sent(d.server(discovered(probe["id"], MODERN)))
        assert "2099-01-01" == theirs["params"]["_meta"][VERSION]

    def test_discover_before_a_legacy_server_is_answered_by_the_bridge(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks("d", "server/discover")))
        (hello,) = sent(d.server(error(probe["id"], -32601)))
        ((stream, said, last),) = heard(d.server(result(hello["id"], **WELCOME)))
        assert (3, "d", MODERN, True) == (stream, said["id"], said["result"]["supportedVersions"], last)

    def test_no_answer_in_time_is_legacy_and_is_not_kept(self) -> None:
        d = Negotiation()
        out = d.client(3, asks(1, "tools/list"))
        (hello,) = sent(d.due(out))
        assert "initialize" == hello["method"]
        assert [] == d.server(error(sent(out)[0]["id"], -32601))
        d.server(result(hello["id"], **WELCOME))
        assert (ModernClient, (True, None)) == (d.chosen(), d.eras())

    def test_a_server_that_was_only_slow_to_say_that_it_is_modern_is_not_bridged(self) -> None:
        d = Negotiation()
        out = d.client(3, asks(1, "tools/list"))
        d.client(4, asks(1, "server/discover"))
        (hello,) = sent(d.due(out))
        after = d.server(discovered(sent(out)[0]["id"], MODERN))
        assert ["tools/list", "server/discover"] == [line["method"] for line in sent(after)]
        assert "_meta" in sent(after)[0]["params"]
        assert (Session, (None, True)) == (d.chosen(), d.eras())
        assert [] == d.server(error(hello["id"], -32022)), "the answer to our own initialize counts as a lost message"
        assert [Note("frame.unasked", {"side": "server"})] == d.server(error(hello["id"], -32022))

    def test_a_server_that_refuses_initialize_as_only_a_modern_one_does_is_not_bridged(self) -> None:
        d = Negotiation(Eras(legacy=True, modern=False))
        (hello,) = sent(d.client(3, asks(1, "tools/list")))
        after = d.server(error(hello["id"], -32022, data={"supported": MODERN}))
        assert (["tools/list"], []) == ([line["method"] for line in sent(after)], heard(after))
        assert (Session, (True, True)) == (d.chosen(), d.eras())
        assert [(3, result(1), True)] == heard(d.server(result(sent(after)[0]["id"])))

    def test_a_server_that_refuses_initialize_after_a_probe_is_not_taken_for_one_that_always_does(self) -> None:
        """T21: it stays with the protocol version of its first request, which was ours."""
        d = Negotiation()
        out = d.client(0, asks(1, "tools/list"))
        (hello,) = sent(d.due(out))
        assert [] == [
            effect
            for effect in d.server(error(hello["id"], -32022))
            if isinstance(effect, Note) and effect.event == REFUSED
        ]
        first = Negotiation()
        (hello,) = sent(first.client(0, HELLO))
        assert [REFUSED] == [
            effect.event for effect in first.server(error(hello["id"], -32022)) if isinstance(effect, Note)
        ]

    def test_a_server_that_takes_neither_fails_those_who_wait_and_is_found_out_anew(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks(1, "tools/list")))
        (hello,) = sent(d.server(error(probe["id"], -32601)))
        assert [(3, 1)] == [(stream, said["id"]) for stream, said, _ in heard(d.server(error(hello["id"], -32000)))]
        assert (None, None) == d.eras()
        assert ["server/discover"] == [line["method"] for line in sent(d.client(3, asks(2, "tools/list")))]

    def test_who_is_cancelled_or_leaves_while_the_server_is_asked_is_not_sent_on(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks(1, "server/discover")))
        d.client(4, asks(1, "tools/list"))
        d.client(5, asks(1, "prompts/list"))
        d.session.stream_closed("client", 3)
        assert [Over(4)] == d.client(4, tells("notifications/cancelled", requestId=1))
        after = d.server(discovered(probe["id"], MODERN))
        assert (["prompts/list"], []) == ([line["method"] for line in sent(after)], heard(after))

    def test_an_id_that_waits_already_is_refused_and_its_request_goes_on(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks("d", "server/discover")))
        assert [-32600] == [said["error"]["code"] for _, said, _ in heard(d.client(3, asks("d", "server/discover")))]
        assert [(3, discovered("d", MODERN), True)] == heard(d.server(discovered(probe["id"], MODERN)))

    def test_frames_that_wait_are_bounded(self) -> None:
        d = Negotiation()
        for number in range(1000):
            assert [] == heard(d.client(3, asks(number, "tools/list")))
        assert [-32603] == [said["error"]["code"] for _, said, _ in heard(d.client(3, asks(1000, "tools/list")))]
        assert [] == sent(d.client(3, tells("notifications/vendor")))

    def test_a_probe_whose_answer_is_lost_is_legacy(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks(1, "tools/list")))
        out = d.session.lost(
            "server", 0, raw({"jsonrpc": "2.0", "id": probe["id"], "result": {}})[:-2], "it is too long"
        )
        assert ["initialize"] == [line["method"] for line in sent(out)]

    def test_the_end_of_the_server_while_it_is_asked_fails_those_who_wait(self) -> None:
        d = Negotiation()
        d.client(3, asks(1, "tools/list"))
        assert [(3, 1)] == [(stream, said["id"]) for stream, said, _ in heard(d.session.eof("server"))]

    @pytest.mark.parametrize("known", [Eras(modern=True), Eras(True, True)])
    def test_a_server_known_to_be_modern_is_not_asked(self, known: Eras) -> None:
        d = Negotiation(known)
        assert ["tools/list"] == [line["method"] for line in sent(d.client(3, asks(1, "tools/list")))]
        assert Session is d.chosen()

    def test_a_server_known_to_be_legacy_is_not_asked(self) -> None:
        d = Negotiation(Eras(legacy=True, modern=False))
        assert ["initialize"] == [line["method"] for line in sent(d.client(3, asks(1, "tools/list")))]

    def test_a_server_of_which_only_the_other_era_is_known_is_asked(self) -> None:
        assert ["server/discover"] == [
            line["method"] for line in sent(Negotiation(Eras(legacy=True)).client(3, asks(1, "tools/list")))
        ]


class TestLegacyClient:
    def test_initialize_goes_to_the_server_as_it_is_without_a_probe(self) -> None:
        d = Negotiation()
        out = d.client(0, HELLO)
        assert ["initialize"] == [line["method"] for line in sent(out)]
        assert not any(isinstance(effect, Later) for effect in out)
        assert [(0, result(0, **WELCOME), True)] == heard(d.server(result(0, **WELCOME)))
        assert (Session, (True, None)) == (d.chosen(), d.eras())

    def test_what_it_writes_meanwhile_goes_on_in_its_order(self) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        assert [] == sent(d.client(0, tells("notifications/initialized")) + d.client(0, request(1, "tools/list")))
        assert ["notifications/initialized", "tools/list"] == [
            line["method"] for line in sent(d.server(result(0, **WELCOME)))
        ]

    def test_what_it_answers_to_the_server_meanwhile_goes_on_at_once(self) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        assert [0] == [stream for stream, _, _ in heard(d.server(request("p", "ping")))]
        assert [result("p")] == sent(d.client(0, result("p")))

    def test_one_that_writes_all_and_leaves_is_served_all_the_same(self) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        d.client(0, request(1, "tools/list"))
        out = d.session.eof("client")
        assert ["tools/list"] == [line["method"] for line in sent(out)]
        assert isinstance(out[-1], Close)
        assert [0] == [stream for stream, _, _ in heard(d.server(result(0, **WELCOME)))]

    @pytest.mark.parametrize("refusal", [error(0, -32601), error(0, -32602), error(0, -32600), error(0, -1)])
    def test_a_server_that_refuses_is_asked_whether_it_is_modern_and_then_bridged(
        self, refusal: dict[str, Any]
    ) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        d.client(0, tells("notifications/initialized"))
        out = d.server(refusal)
        assert ([], ["server/discover"]) == (heard(out), [line["method"] for line in sent(out)])
        after = d.server(discovered(sent(out)[0]["id"], MODERN, _meta={SERVER: INFO}))
        assert (LegacyClient, (False, True)) == (d.chosen(), d.eras())
        for line in sent(after):
            if line["method"] == "server/discover":
                after = after + d.server(discovered(line["id"], MODERN, _meta={SERVER: INFO}))
        assert [0] == [said["id"] for _, said, _ in heard(after) if "result" in said]

    def test_a_server_that_refuses_as_only_a_modern_one_does_is_bridged_without_a_probe(self) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        assert [] == heard(d.server(error(0, -32022, data={"supported": MODERN, "requested": "2025-11-25"})))
        assert (LegacyClient, (False, True)) == (d.chosen(), d.eras())

    def test_answers_of_two_readings_tell_nothing(self) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        out = d.server(
            b'{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"data":{"supported":[],"supported":["2026-07-28"]}}}'
        )
        probe = sent(out)[0]["id"].encode()
        after = d.server(
            b'{"jsonrpc":"2.0","id":"'
            + probe
            + b'","error":{"code":-32022,"data":{"supported":[],"supported":["2026-07-28"]}}}'
        )
        assert [-32022] == [said["error"]["code"] for _, said, _ in heard(after)]
        assert (Session, (None, None)) == (d.chosen(), d.eras())

    @pytest.mark.parametrize("answer", [error("?", -32601), result("?", supportedVersions=["2025-11-25"]), None])
    def test_a_server_that_is_not_modern_either_has_its_own_say(self, answer: dict[str, Any] | None) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        out = d.server(error(0, -32000, "no room"))
        after = d.due(out) if answer is None else d.server({**answer, "id": sent(out)[0]["id"]})
        assert [(0, error(0, -32000, "no room"), True)] == heard(after)
        assert (Session, None) == (d.chosen(), d.eras()[1])
        assert ["initialize"] == [line["method"] for line in sent(d.client(0, HELLO))]

    def test_the_end_of_the_server_while_it_is_asked_gives_the_client_what_it_said(self) -> None:
        d = Negotiation()
        d.client(0, HELLO)
        d.server(error(0, -32000, "no room"))
        assert [(0, error(0, -32000, "no room"), True)] == heard(d.session.eof("server"))

    def test_a_server_known_to_be_only_modern_is_bridged_at_once(self) -> None:
        d = Negotiation(Eras(legacy=False, modern=True))
        assert "initialize" not in [line["method"] for line in sent(d.client(0, HELLO))]
        assert LegacyClient is d.chosen()

    def test_what_it_asked_before_initialize_of_a_modern_server_is_refused(self) -> None:
        d = Negotiation(Eras(legacy=False, modern=True))
        d.client(0, request(7, "tools/list"))
        assert [(7, -32600)] == [
            (said["id"], said["error"]["code"]) for _, said, _ in heard(d.client(0, HELLO)) if "error" in said
        ]
        assert [] == heard(d.server(result(7)))

    def test_a_server_known_to_be_legacy_has_its_say_without_more_ado(self) -> None:
        d = Negotiation(Eras(legacy=True))
        assert ["initialize"] == [line["method"] for line in sent(d.client(0, HELLO))]
        assert Session is d.chosen()

    def test_its_closed_stream_takes_nothing_back(self) -> None:
        d = Negotiation()
        d.client(1, HELLO)
        d.client(1, request(1, "tools/list"))
        assert [] == d.session.stream_closed("client", 1)
        assert ["tools/list"] == [line["method"] for line in sent(d.server(result(0, **WELCOME)))]


class TestFallingBack:
    """A client that supports both protocol versions and falls back from the modern one, on the same stdio (T21)."""

    def test_while_the_server_is_asked(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(0, asks("d", "server/discover")))
        out = d.client(0, HELLO)
        assert [("d", -32603)] == [(said["id"], said["error"]["code"]) for _, said, _ in heard(out)]
        assert [HELLO] == sent(out)
        assert [] == heard(d.server(error(probe["id"], -32601)))
        assert [(0, result(0, **WELCOME), True)] == heard(d.server(result(0, **WELCOME)))
        assert (Session, (True, None)) == (d.chosen(), d.eras())

    def test_while_a_bridge_opens_the_server(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(0, asks("d", "server/discover")))
        (own,) = sent(d.server(error(probe["id"], -32601)))
        assert [HELLO] == sent(d.client(0, HELLO))
        assert [] == heard(d.server(result(own["id"], **WELCOME)))
        assert [(0, result(0, **WELCOME), True)] == heard(d.server(result(0, **WELCOME)))

    def test_after_a_bridge_has_answered_its_discover(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(0, asks("d", "server/discover")))
        (own,) = sent(d.server(error(probe["id"], -32601)))
        d.server(result(own["id"], **WELCOME))
        assert [HELLO] == sent(d.client(0, HELLO))
        assert [(0, result(0, **WELCOME), True)] == heard(d.server(result(0, **WELCOME)))
        assert [request(1, "tools/list")] == sent(d.client(0, request(1, "tools/list")))
        assert not d.state.maps_ids

    def test_a_server_that_was_modern_all_along_is_then_bridged(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(0, asks("d", "server/discover")))
        d.client(0, HELLO)
        d.server(discovered(probe["id"], MODERN))
        d.server(error(0, -32022, data={"supported": MODERN}))
        assert LegacyClient is d.chosen()

    def test_not_while_it_waits_for_something_else(self) -> None:
        d = Negotiation(Eras(legacy=True, modern=False))
        (own,) = sent(d.client(0, asks(1, "tools/list")))
        d.server(result(own["id"], **WELCOME))
        assert [-32601] == [said["error"]["code"] for _, said, _ in heard(d.client(0, HELLO))]
        assert ModernClient is d.chosen()

    def test_not_by_a_line_that_only_holds_the_word(self) -> None:
        d = Negotiation(Eras(legacy=True, modern=False))
        (own,) = sent(d.client(0, asks(1, "server/discover")))
        d.server(result(own["id"], **WELCOME))
        assert ["tools/call"] == [
            line["method"] for line in sent(d.client(0, asks(2, "tools/call", name="initialize")))
        ]
        assert [] == sent(d.client(0, b'{"initialize'))
        assert ModernClient is d.chosen()

    def test_not_over_http_where_other_clients_share_the_server(self) -> None:
        d = Negotiation(Eras(legacy=True, modern=False))
        (own,) = sent(d.client(3, asks(1, "server/discover")))
        d.server(result(own["id"], **WELCOME))
        assert [-32601] == [said["error"]["code"] for _, said, _ in heard(d.client(3, HELLO))]
        assert ModernClient is d.chosen()


class TestSentBack:
    """A client that could answer what the policy forwards, if it spoke the server's protocol version."""

    def scene(self, *rules: Any, known: Eras | None = None) -> Negotiation:
        d = Negotiation(known or Eras(legacy=True, modern=False))
        d.session.state.policy = SessionRules(Dialogue(*rules).compiled)
        return d

    def test_where_the_policy_forwards_what_it_declares_its_discover_is_refused_and_it_begins_again(self) -> None:
        d = self.scene(FORWARD)
        out = d.client(0, asks("d", "server/discover", {CAPABILITIES: {"sampling": {}}}))
        assert [-32601] == [line["error"]["code"] for _, line, _ in heard(out)]
        (hello,) = sent(d.client(0, HELLO))
        assert ("initialize", {"sampling": {}}) == (hello["method"], hello["params"]["capabilities"])

    def test_roots_are_the_clients_alone_so_it_is_sent_back_for_them(self) -> None:
        out = self.scene(ALLOW).client(0, asks("d", "server/discover", {CAPABILITIES: {"roots": {}}}))
        assert [-32601] == [line["error"]["code"] for _, line, _ in heard(out)]

    @pytest.mark.parametrize(
        ("rule", "capabilities"), [(ALLOW, {"sampling": {}}), (FORWARD, {}), (FORWARD, {"vendor": {}})]
    )
    def test_where_policy_answers_all_or_the_client_declares_nothing_it_is_bridged(
        self, rule: Any, capabilities: dict[str, Any]
    ) -> None:
        d = self.scene(rule)
        out = d.client(0, asks("d", "server/discover", {CAPABILITIES: capabilities}))
        assert ["initialize"] == [line["method"] for line in sent(out)]
        assert [] == heard(out)

    def test_a_call_without_a_discover_is_bridged_and_a_later_discover_is_refused(self) -> None:
        d = self.scene(FORWARD)
        out = d.client(1, asks(1, "tools/call", {CAPABILITIES: {"sampling": {}}}, name="x"))
        assert ["initialize"] == [line["method"] for line in sent(out)]
        discover = asks("d", "server/discover", {CAPABILITIES: {"sampling": {}}})
        assert [-32601] == [line["error"]["code"] for _, line, _ in heard(d.client(2, discover))], "it is known"
        d.server(result(sent(out)[0]["id"], **WELCOME))
        assert [-32601] == [line["error"]["code"] for _, line, _ in heard(d.client(3, discover))]

    def test_while_it_is_not_known_whether_the_server_is_older_each_discover_waits(self) -> None:
        d = self.scene(FORWARD, known=Eras())
        discover = asks("d", "server/discover", {CAPABILITIES: {"sampling": {}}})
        out = d.due(d.client(1, asks(1, "tools/call", {CAPABILITIES: {"sampling": {}}}, name="x")))
        assert ["initialize"] == [line["method"] for line in sent(out)]
        assert [] == d.client(2, discover)
        opened = d.server(result(sent(out)[0]["id"], **WELCOME))
        assert [(2, -32601)] == [(stream, line["error"]["code"]) for stream, line, _ in heard(opened)]
        assert [-32601] == [line["error"]["code"] for _, line, _ in heard(d.client(3, discover))]

    def test_a_server_that_is_only_slow_to_start_is_not_taken_for_a_legacy_one(self) -> None:
        d = self.scene(FORWARD, known=Eras())
        discover = asks("d", "server/discover", {CAPABILITIES: {"sampling": {}}})
        out = d.client(0, discover)
        assert [] == heard(d.due(out)) == d.client(0, {**discover, "id": "again"})
        first, again = sent(d.server(discovered(sent(out)[0]["id"], MODERN)))
        assert [(0, discovered("d", MODERN), True)] == heard(d.server(discovered(first["id"], MODERN)))
        assert [(0, discovered("again", MODERN), True)] == heard(d.server(discovered(again["id"], MODERN)))
        assert Session is d.chosen()

    def test_a_legacy_server_that_ignores_the_probe_is_known_by_its_answer_to_initialize(self) -> None:
        d = self.scene(FORWARD, known=Eras())
        out = d.client(0, asks("d", "server/discover", {CAPABILITIES: {"sampling": {}}}))
        (own,) = sent(d.due(out))
        assert "initialize" == own["method"]
        assert [-32601] == [line["error"]["code"] for _, line, _ in heard(d.server(result(own["id"], **WELCOME)))]
        (hello,) = sent(d.client(0, HELLO))
        assert ("initialize", {"sampling": {}}) == (hello["method"], hello["params"]["capabilities"])


class TestAround:
    @pytest.mark.parametrize("line", [b"", b"x", b'{"jsonrpc":"2.0","id":1,"result":{}}', b"[1]"])
    def test_what_is_no_frame_decides_nothing(self, line: bytes) -> None:
        d = Negotiation()
        assert ([], []) == (sent(d.client(0, line)), heard(d.client(0, line)))
        assert type(None) is d.chosen()

    def test_a_frame_before_any_era_is_shown_goes_on_as_it_is(self) -> None:
        d = Negotiation()
        line = raw(request(1, "ping"))
        assert [ToServer(0, line)] == d.client(0, line)

    def test_what_was_asked_before_any_era_is_shown_keeps_its_answer(self) -> None:
        d = Negotiation()
        d.state.outlived = True
        d.client(0, request(7, "ping"))
        (probe,) = sent(d.client(3, asks(1, "tools/list")))
        (hello,) = sent(d.server(error(probe["id"], -32601)))
        d.server(result(hello["id"], **WELCOME))
        assert [(0, result(7), True)] == heard(d.server(result(7)))

    def test_a_round_that_was_opened_before_a_bridge_is_withdrawn_by_it(self) -> None:
        d = Negotiation()
        round = one(d.server(request("s", "sampling/createMessage", **sample())), Open).round
        (probe,) = sent(d.client(3, asks(1, "tools/list")))
        assert Withdraw(round.id) in d.server(error(probe["id"], -32601))

    def test_a_round_is_settled_forwarded_and_told_of_by_what_was_chosen(self) -> None:
        d = Negotiation(Eras(legacy=True))
        d.client(0, request(0, "initialize", **{**HELLO["params"], "capabilities": {"sampling": {}}}))
        d.server(result(0, **WELCOME))
        out = d.server(request("s", "sampling/createMessage", **sample(_meta={"progressToken": 1})))
        round = one(out, Open).round
        assert ["sampling/createMessage"] == [said["method"] for _, said, _ in heard(d.session.forward(round.id))]
        assert ["notifications/cancelled"] == [
            said["method"] for _, said, _ in heard(d.session.unforward(round.id, "late"))
        ]
        assert ["notifications/progress"] == [said["method"] for said in sent(d.session.round_progress(round.id))]
        assert ["s"] == [said["id"] for said in sent(d.settle(out))]
        assert [] == d.session.due("nothing")

    def test_the_end_of_a_lost_line_tells_who_waits_for_it(self) -> None:
        d = Negotiation()
        (probe,) = sent(d.client(3, asks(1, "tools/list")))
        line = raw({"result": {}, "jsonrpc": "2.0", "id": probe["id"]})
        assert ["initialize"] == [
            said["method"] for said in sent(d.session.lost_end("server", 0, line[:12], line[12:]))
        ]

    def test_a_request_with_two_readings_is_refused_while_the_server_is_found_out(self) -> None:
        d = Negotiation()
        d.client(0, asks(1, "tools/list"))
        out = d.client(0, b'{"jsonrpc":"2.0","id":2,"method":"a","method":"b"}')
        assert ([], []) == (sent(out), [said for _, said, _ in heard(out) if "error" not in said])

    def test_frames_pass_without_the_opening_once_all_is_decided(self) -> None:
        d = Negotiation(Eras(legacy=True))
        d.client(0, HELLO)
        assert d.opening is not None
        assert getattr(d.opening.frame, "__self__", None) is d.opening._choice.chosen

    @pytest.mark.parametrize("envelope", [{VERSION: "2026-07-28"}, ENVELOPE])
    def test_the_first_frame_needs_no_good_envelope_to_be_modern(self, envelope: dict[str, Any]) -> None:
        d = Negotiation()
        assert ["server/discover"] == [
            line["method"] for line in sent(d.client(0, request(1, "server/discover", _meta=envelope)))
        ]
