"""A legacy client with a modern-only server: handshake, requests and results, errors, cancellation, progress."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.protocol.frames import LEGACY
from samplegate.protocol.outcomes import Denied, Reason
from samplegate.protocol.rounds import Close, Later, Note, Over, ToClient, ToServer
from tests.fakes.bridged import (
    BOTH,
    CAPABILITIES,
    CLIENT_INFO,
    INFO,
    LEVEL,
    SERVER_INFO,
    SUBSCRIPTION,
    VERSION,
    Bridge,
    cancel,
    discovered,
    notification,
)
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    FORWARD,
    ask,
    error,
    form,
    one,
    request,
    result,
    sample,
    to_client,
    to_server,
)
from tests.fakes.task_dialogue import task


class TestOpening:
    def test_initialize_is_answered_from_what_the_server_says_of_itself(self) -> None:
        d = Bridge()
        capabilities = {
            "tools": {"listChanged": True},
            "logging": {},
            "resources": {"subscribe": True},
            "vendor": {"x": 1.0},
        }
        assert {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "s", "version": "2"},
            "instructions": "be kind",
        } == d.open(server=capabilities, instructions="be kind")

    def test_the_question_is_one_of_a_modern_client(self) -> None:
        d = Bridge(ALLOW)
        (asked,) = to_server(d.initialize({"roots": {"listChanged": True}}))
        assert "server/discover" == asked["method"]
        assert {VERSION: "2026-07-28", CAPABILITIES: {"roots": {}, "sampling": {}}, CLIENT_INFO: INFO} == asked[
            "params"
        ]["_meta"]

    def test_tasks_are_not_carried_to_a_legacy_client_that_declares_the_modern_extension(self) -> None:
        d = Bridge(ALLOW, tasks=True)
        extensions: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}, "a/b": {}}
        d.open({"extensions": extensions}, server={"tools": {}, "extensions": extensions})
        seen = d.call()
        assert {"a/b": {}} == seen["params"]["_meta"][CAPABILITIES]["extensions"]
        out = d.server(result(seen["id"], **task("task-1", "working", resultType="task")))
        why = "the server turned the call into a task, but tasks were not offered: the client declared none here"
        assert [f"refused: {why}"] == [frame["error"]["message"] for frame in to_client(out)]

    @pytest.mark.parametrize("asked", LEGACY)
    def test_the_client_gets_the_legacy_revision_it_asks_for(self, asked: str) -> None:
        assert asked == Bridge().open(revision=asked)["protocolVersion"]

    @pytest.mark.parametrize("asked", ["2026-07-28", "1999-01-01", "", "latest"])
    def test_a_client_of_another_revision_gets_the_newest_legacy_one(self, asked: str) -> None:
        assert LEGACY[-1] == Bridge().open(revision=asked)["protocolVersion"]

    @pytest.mark.parametrize(
        ("client", "server", "expected"),
        [
            ({}, {"extensions": {"a/b": {}}}, {}),
            (
                {"extensions": {"a/b": {}}},
                {"extensions": {"a/b": {"v": 1}, "c/d": {}}},
                {"extensions": {"a/b": {"v": 1}}},
            ),
            (
                {"extensions": {"io.modelcontextprotocol/tasks": {}}},
                {"extensions": {"io.modelcontextprotocol/tasks": {}}},
                {},
            ),
            ({}, {"tasks": {"list": {}}, "tools": {}}, {"tools": {}}),
            ({}, {"extensions": 5}, {}),
            ({}, [], {}),
        ],
    )
    def test_the_client_is_told_only_of_what_can_be_relayed(self, client: Any, server: Any, expected: Any) -> None:
        assert expected == Bridge().open(client, server=server)["capabilities"]

    @pytest.mark.parametrize(
        ("meta", "info"),
        [
            ({}, {"name": "default", "version": "unknown"}),
            ({SERVER_INFO: 5}, {"name": "default", "version": "unknown"}),
            ({SERVER_INFO: {"name": "s"}, "v": 1}, {"name": "s", "version": "unknown"}),
        ],
    )
    def test_a_server_without_a_name_has_the_one_it_is_configured_under(self, meta: Any, info: Any) -> None:
        assert info == Bridge().open(_meta=meta)["serverInfo"]

    def test_members_that_would_be_read_as_the_handshake_are_ours(self) -> None:
        opened = Bridge().open(
            protocolVersion="2026-07-28",
            serverInfo={"name": "evil"},
            instructions=["no text"],
            supportedVersions=["2026-07-28"],
        )
        assert ("2025-11-25", {"name": "s", "version": "2"}) == (opened["protocolVersion"], opened["serverInfo"])
        assert "instructions" not in opened

    @pytest.mark.parametrize("versions", [["2025-11-25"], [], None, "2026-07-28", [1]])
    def test_a_server_that_names_no_modern_revision_is_not_bridged(self, versions: Any) -> None:
        d = Bridge()
        (asked,) = to_server(d.initialize())
        (said,) = to_client(d.server(discovered(asked["id"], supportedVersions=versions)))
        assert (0, -32603) == (said["id"], said["error"]["code"])

    @pytest.mark.parametrize("code", [-32601, -32022, -32603, 1])
    def test_a_server_that_does_not_say_what_it_is_fails_the_opening(self, code: int) -> None:
        d = Bridge()
        (asked,) = to_server(d.initialize())
        (said,) = to_client(d.server(error(asked["id"], code, "no such thing")))
        assert (0, -32603, code) == (said["id"], said["error"]["code"], said["error"]["data"]["code"])

    def test_what_belongs_to_the_handshake_alone_stays_here(self) -> None:
        d = Bridge()
        d.open({"roots": {}})
        assert [] == d.opened
        for method in (
            "notifications/initialized",
            "notifications/roots/list_changed",
            "notifications/progress",
            "notifications/tasks/status",
        ):
            assert [] == d.client(notification(method))

    def test_a_client_may_open_again(self) -> None:
        d = Bridge(ALLOW)
        d.open()
        assert "2025-06-18" == d.open(revision="2025-06-18")["protocolVersion"]
        assert "2025-06-18" == d.session.revision

    def test_ping_is_answered_here(self) -> None:
        assert [{"jsonrpc": "2.0", "id": "p", "result": {}}] == to_client(Bridge().client(request("p", "ping")))

    def test_a_server_that_speaks_before_it_is_asked_is_not_heard(self) -> None:
        for line in (
            request(1, "sampling/createMessage", **sample()),
            notification("notifications/message", data="x"),
            result(0),
        ):
            assert [Note("frame.unasked", {"side": "server"})] == Bridge(ALLOW).server(line)


class TestRequests:
    def test_a_request_is_stamped_and_else_as_it_came(self) -> None:
        d = Bridge(ALLOW, ANSWER)
        d.open({"elicitation": {}})
        line = b'{"jsonrpc":"2.0","id":"a", "method":"x/y","params":{ "n":1.0,"_meta":{"progressToken":7,"v": 1e2}}}'
        out = d.client(line)
        sent = one(out, ToServer).line
        assert sent.startswith(
            b'{"jsonrpc":"2.0","id":"a", "method":"x/y","params":{ "n":1.0,"_meta":{"progressToken":7,"v": 1e2,'
        )
        (seen,) = to_server(out)
        meta = {
            "progressToken": 7,
            "v": 100.0,
            VERSION: "2026-07-28",
            CAPABILITIES: {"sampling": {}, "elicitation": {}},
            CLIENT_INFO: INFO,
        }
        assert meta == seen["params"]["_meta"]

    @pytest.mark.parametrize(
        "line",
        [
            b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
            b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}',
        ],
    )
    def test_a_request_without_params_gets_some(self, line: bytes) -> None:
        d = Bridge()
        d.open()
        (seen,) = to_server(d.client(line))
        assert {VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT_INFO: INFO} == seen["params"]["_meta"]

    def test_what_a_client_writes_in_place_of_the_stamp_counts_for_nothing(self) -> None:
        d = Bridge(FORWARD)
        d.open()
        forged = {
            VERSION: "2099-01-01",
            CAPABILITIES: {"sampling": {}},
            CLIENT_INFO: {"name": "root"},
            LEVEL: "debug",
            "kept": 1,
        }
        assert {"kept": 1, VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT_INFO: INFO} == d.call(_meta=forged)[
            "params"
        ]["_meta"]

    @pytest.mark.parametrize(
        ("revision", "declared", "seen"),
        [
            (
                "2025-11-25",
                {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}},
                {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}},
            ),
            ("2025-11-25", {"elicitation": {}}, {"elicitation": {}}),
            (
                "2025-11-25",
                {"tasks": {"requests": {"sampling": {}}}, "experimental": {"x": {}}},
                {"experimental": {"x": {}}},
            ),
            (
                "2025-06-18",
                {"sampling": {"tools": {}}, "elicitation": {"url": {}}},
                {"sampling": {}, "elicitation": {}},
            ),
            ("2025-03-26", {"sampling": {}, "elicitation": {}}, {"sampling": {}}),
            ("2025-11-25", {"roots": {"listChanged": True}}, {"roots": {}}),
        ],
    )
    def test_what_is_declared_is_what_the_clients_revision_has(self, revision: str, declared: Any, seen: Any) -> None:
        d = Bridge(FORWARD, {"name": "urls", "match": {"kind": "elicitation", "mode": "url"}, "effect": "forward"})
        d.open(declared, revision)
        assert seen == d.call()["params"]["_meta"][CAPABILITIES]

    def test_the_log_level_is_kept_and_stamped(self) -> None:
        d = Bridge()
        d.open(server={"logging": {}})
        assert LEVEL not in d.call()["params"]["_meta"]
        assert [{"jsonrpc": "2.0", "id": 2, "result": {}}] == to_client(
            d.client(request(2, "logging/setLevel", level="warning"))
        )
        assert "warning" == d.call(3)["params"]["_meta"][LEVEL]
        d.open(server={"logging": {}})
        assert LEVEL not in d.call(4)["params"]["_meta"]

    @pytest.mark.parametrize(
        ("server", "level", "code"),
        [({"logging": {}}, "loud", -32602), ({"logging": {}}, None, -32602), ({}, "info", -32601)],
    )
    def test_a_level_that_is_none_is_refused(self, server: Any, level: Any, code: int) -> None:
        d = Bridge()
        d.open(server=server)
        (said,) = to_client(d.client(request(2, "logging/setLevel", level=level)))
        assert code == said["error"]["code"]
        assert LEVEL not in d.call(3)["params"]["_meta"]

    @pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "tasks/get", "tasks/list"])
    def test_methods_of_another_era_are_not_there(self, method: str) -> None:
        d = Bridge()
        d.open()
        out = d.client(request(1, method))
        assert [] == to_server(out)
        assert -32601 == to_client(out)[0]["error"]["code"]

    @pytest.mark.parametrize("member", ["requestState", "inputResponses", "RequestState", "INPUTRESPONSES"])
    def test_a_legacy_call_brings_no_answers(self, member: str) -> None:
        d = Bridge(FORWARD)
        d.open(BOTH)
        out = d.client(request(1, "tools/call", name="x", **{member: {}}))
        assert [] == to_server(out)
        assert (1, -32600) == (to_client(out)[0]["id"], to_client(out)[0]["error"]["code"])

    def test_a_call_is_not_made_a_task(self) -> None:
        d = Bridge()
        d.open()
        assert "task" not in d.call(task={"ttl": 1})["params"]

    @pytest.mark.parametrize("params", [[], 5, {"_meta": 5}, {"_meta": []}])
    def test_params_that_cannot_be_stamped_are_refused(self, params: Any) -> None:
        d = Bridge()
        d.open()
        out = d.client({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
        assert [] == to_server(out)
        assert (1, -32600) == (to_client(out)[0]["id"], to_client(out)[0]["error"]["code"])

    def test_an_id_in_flight_is_refused_on_any_stream(self) -> None:
        d = Bridge()
        d.open()
        d.call(1)
        (said,) = to_client(d.on(7, request(1, "tools/list")))
        assert "in flight" in said["error"]["message"]
        assert [1] == [line["id"] for line in to_client(d.server(result(1, resultType="complete")))]

    def test_a_batch_of_2025_03_26_is_taken_apart(self) -> None:
        d = Bridge()
        d.open(revision="2025-03-26")
        out = d.client([request(1, "tools/list"), request(2, "ping"), []])
        assert [1] == [line["id"] for line in to_server(out)]
        assert [2] == [line["id"] for line in to_client(out)]
        assert [] == to_server(Bridge().client([request(1, "tools/list")]))

    def test_unknown_notifications_pass(self) -> None:
        d = Bridge()
        d.open()
        assert [notification("x/y", a=1)] == to_server(d.client(notification("x/y", a=1)))


class TestResults:
    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ({"resultType": "complete", "tools": [], "ttlMs": 5, "cacheScope": "public"}, {"tools": []}),
            ({"tools": [], "_meta": {SERVER_INFO: {"name": "s"}}}, {"tools": []}),
            ({"tools": [], "_meta": {SERVER_INFO: {"name": "s"}, "v": 1}}, {"tools": [], "_meta": {"v": 1}}),
            ({"vendor": {"resultType": "x", "ttlMs": 1}}, {"vendor": {"resultType": "x", "ttlMs": 1}}),
            ({"resultType": "complete"}, {}),
        ],
    )
    def test_members_of_the_modern_era_are_taken_out(self, said: Any, expected: Any) -> None:
        d = Bridge()
        d.open()
        d.client(request(1, "tools/list"))
        out = d.server(result(1, **said))
        assert [{"jsonrpc": "2.0", "id": 1, "result": expected}] == to_client(out)
        assert one(out, ToClient).last

    def test_the_rest_of_a_result_stays_byte_for_byte(self) -> None:
        d = Bridge()
        d.open()
        d.client(request(1, "tools/list"))
        out = d.server(
            b'{"jsonrpc":"2.0", "id":1,"result":{"a" : 1.0,"resultType":"complete", "b":"\\u00e9","ttlMs":0,"c":[ 1'
            b" ]} }"
        )
        assert b'{"jsonrpc":"2.0", "id":1,"result":{"a" : 1.0, "b":"\\u00e9","c":[ 1 ]} }' == one(out, ToClient).line

    def test_a_result_of_an_unknown_type_is_not_shown(self) -> None:
        d = Bridge()
        d.open()
        d.call()
        (said,) = to_client(d.server(result(1, resultType="vendor", content=[])))
        assert (1, -32603) == (said["id"], said["error"]["code"])

    @pytest.mark.parametrize(
        "line",
        [
            b'{"jsonrpc":"2.0","id":1,"result":{"ttlMs":1,"ttlMs":2}}',
            b'{"jsonrpc":"2.0","id":1,"result":{"ResultType":"complete"}}',
        ],
    )
    def test_a_result_of_two_readings_is_not_shown(self, line: bytes) -> None:
        d = Bridge()
        d.open()
        d.call()
        (said,) = to_client(d.server(line))
        assert (1, -32603) == (said["id"], said["error"]["code"])

    def test_schemas_that_only_the_modern_era_has_are_taken_out(self) -> None:
        d = Bridge()
        d.open()
        d.client(request(1, "tools/list"))
        tools = [
            {"name": "a", "outputSchema": {"type": "array"}},
            {"name": "b", "outputSchema": {"type": "object"}},
            {"name": "c"},
        ]
        (said,) = to_client(d.server(result(1, resultType="complete", tools=tools)))
        assert [{"name": "a"}, tools[1], tools[2]] == said["result"]["tools"]
        d.call(2)
        (said,) = to_client(d.server(result(2, resultType="complete", content=[], structuredContent=[1])))
        assert {"content": []} == said["result"]

    @pytest.mark.parametrize(
        ("code", "expected"),
        [(-32021, -32603), (-32022, -32603), (-32020, -32603), (-32602, -32602), (-32601, -32601), (-1, -1), (7, 7)],
    )
    def test_errors_pass_but_for_codes_of_the_modern_era(self, code: int, expected: int) -> None:
        d = Bridge()
        d.open()
        d.call()
        (said,) = to_client(d.server(error(1, code, "because", data={"requiredCapabilities": {}})))
        assert {"code": expected, "message": "because", "data": {"requiredCapabilities": {}}} == said["error"]

    def test_requests_of_the_server_are_refused(self) -> None:
        d = Bridge(FORWARD)
        d.open(BOTH)
        d.call()
        for method in ("sampling/createMessage", "elicitation/create", "roots/list", "ping", "x/y"):
            out = d.server(request(9, method, **sample()))
            assert [] == to_client(out) == to_server(out)

    def test_what_belongs_to_nobody_does_not_reach_the_client(self) -> None:
        d = Bridge()
        d.open()
        d.call()
        for line in (
            result(99),
            error(None, -32600),
            cancel(1),
            notification("notifications/elicitation/complete", elicitationId="e"),
        ):
            assert [] == to_client(d.server(line))
        assert [1] == [line["id"] for line in to_client(d.server(result(1)))]

    def test_an_answer_that_cannot_be_taken_leaves_nobody_waiting(self) -> None:
        d = Bridge()
        d.open()
        d.call()
        out = d.take(d.session.lost("server", 0, b'{"jsonrpc":"2.0","id":1,"result":{', "it is too long"))
        assert [(1, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]
        d.call(1)

    def test_a_request_that_cannot_be_taken_is_answered(self) -> None:
        d = Bridge()
        head = b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{'
        assert [4] == [line["id"] for line in to_client(d.session.lost("client", 0, head, "it is too long"))]
        assert [] == d.session.lost("client", 0, b'{"params":{', "it is too long")
        assert [4] == [
            line["id"]
            for line in to_client(d.session.lost_end("client", 0, b'{"method":"x",', b'"jsonrpc":"2.0","id":4}'))
        ]
        assert [] == d.session.lost_end("client", 0, head, b"")


class TestCancellation:
    def test_a_cancel_reaches_the_server_under_the_id_it_knows(self) -> None:
        d = Bridge()
        d.open()
        d.call(1)
        out = d.client(cancel(1))
        assert [cancel(1)] == to_server(out)
        assert Over(0) in out
        assert [] == to_client(d.server(result(1)))
        d.call(1)

    def test_a_cancel_may_come_on_another_stream(self) -> None:
        d = Bridge()
        d.open()
        d.on(3, request(1, "tools/call", name="x"))
        out = d.on(4, cancel(1))
        assert [cancel(1)] == to_server(out)
        assert Over(3) in out

    def test_a_server_over_http_has_its_stream_closed(self) -> None:
        d = Bridge(streams=True)
        d.open()
        number = one(d.on(3, request(1, "tools/call", name="x")), ToServer).stream
        assert Close(number) in d.on(4, cancel(1))

    @pytest.mark.parametrize("id", [99, "1", None, 1.5])
    def test_a_cancel_of_nothing_is_nothing(self, id: Any) -> None:
        d = Bridge()
        d.open()
        d.call(1)
        assert [] == to_server(d.client(cancel(id)))

    def test_initialize_is_never_cancelled(self) -> None:
        d = Bridge()
        (asked,) = to_server(d.initialize())
        assert [] == d.client(cancel(0))
        assert [0] == [line["id"] for line in to_client(d.server(discovered(asked["id"])))]

    def test_a_closed_stream_is_no_cancel(self) -> None:
        d = Bridge()
        d.open()
        d.on(3, request(1, "tools/call", name="x"))
        assert [] == d.session.stream_closed("client", 3)
        assert [3] == [effect.stream for effect in d.server(result(1)) if isinstance(effect, ToClient)]

    def test_an_open_round_is_withdrawn_with_its_call(self) -> None:
        d = Bridge(ALLOW)
        d.open()
        d.call(1)
        d.asks(1, {"k": ask(sample())})
        out = d.client(cancel(1))
        assert [] == to_server(out)
        assert ["Withdraw", "Over"] == [type(effect).__name__ for effect in out]


class TestAnsweredHere:
    def test_a_round_that_policy_answers_stays_inside_the_pending_request(self) -> None:
        d = Bridge(ALLOW, ANSWER)
        d.open()
        d.call(1)
        out = d.settle(d.asks(1, {"s": ask(sample()), "f": ask(form())}, requestState="st"))
        (retry,) = to_server(out)
        assert ("tools/call", "st", {"s", "f"}) == (
            retry["method"],
            retry["params"]["requestState"],
            set(retry["params"]["inputResponses"]),
        )
        (said,) = to_client(d.server(result(retry["id"], resultType="complete", content=[])))
        assert {"jsonrpc": "2.0", "id": 1, "result": {"content": []}} == said

    def test_a_denied_call_ends_as_a_legacy_client_knows_it(self) -> None:
        d = Bridge(ALLOW)
        d.open()
        d.call(1)
        (said,) = to_client(d.settle(d.asks(1, {"s": ask(sample())}), answers={"s": Denied(Reason.RULE)}))
        assert said["result"]["isError"]
        assert "resultType" not in said["result"]

    def test_rounds_without_questions_are_not_shown(self) -> None:
        d = Bridge()
        d.open()
        d.call(1)
        out = d.asks(1, requestState="later")
        assert [] == to_client(out)
        (retry,) = to_server(d.session.due(one(out, Later).token))
        assert "later" == retry["params"]["requestState"]


class TestProgress:
    def test_one_series_rises_through_all_rounds(self) -> None:
        d = Bridge(FORWARD)
        d.open({"elicitation": {}})
        d.call(1, _meta={"progressToken": "p"})

        def progress(value: float) -> list[Any]:
            return [
                line["params"]["progress"]
                for line in to_client(
                    d.server(notification("notifications/progress", progressToken="p", progress=value))
                )
            ]

        assert [[1], [2]] == [progress(1), progress(2)]
        (asked,) = to_client(d.hand_on(d.asks(1, {"f": ask(form())}), "f"))
        back = d.client(result(asked["id"], action="decline"))
        beats = [
            line["params"]["progress"]
            for line in to_client(d.session.round_progress(next(iter(d.session._session.exchange.open))))
        ]
        assert 2 < beats[0] < 2.1
        d.settle(back)
        assert [[], [], [3]] == [progress(1), progress(2), progress(3)]

    def test_the_client_hears_that_its_call_is_alive_while_it_is_asked(self) -> None:
        d = Bridge(FORWARD)
        d.open({"elicitation": {}})
        d.call(1, _meta={"progressToken": 7})
        out = d.hand_on(d.asks(1, {"f": ask(form())}), "f")
        later = one(out, Later)
        again = d.session.due(later.token)
        (beat,) = to_client(again)
        assert 7 == beat["params"]["progressToken"]
        d.client(result(to_client(out)[0]["id"], action="decline"))
        assert [] == d.session.due(one(again, Later).token)


class TestWhatIsLeft:
    """Corner cases of the handshake and of results."""

    def test_a_notification_before_the_opening_does_not_reach_the_server(self) -> None:
        assert [] == to_server(Bridge().client(notification("x/y")))

    def test_an_answer_to_the_opening_of_two_readings_fails_it(self) -> None:
        d = Bridge()
        (asked,) = to_server(d.initialize())
        line = '{"jsonrpc":"2.0","id":"%s","result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"tools":{}},"ttlMs":0,"ttlMs":0}}'  # noqa: E501
        (said,) = to_client(d.server((line % asked["id"]).encode()))
        assert (0, -32603) == (said["id"], said["error"]["code"])
        assert "2025-11-25" == d.open()["protocolVersion"]

    @pytest.mark.parametrize("payload", [b"5", b"[]", b"null", b'"x"'])
    def test_a_result_that_is_no_object_passes(self, payload: bytes) -> None:
        d = Bridge()
        d.open()
        d.client(request(1, "x/y"))
        line = b'{"jsonrpc":"2.0","id":1,"result":' + payload + b"}"
        assert line == one(d.server(line), ToClient).line

    def test_a_list_that_cannot_be_read_passes(self) -> None:
        d = Bridge()
        d.open()
        d.client(request(1, "tools/list"))
        (said,) = to_client(d.server(result(1, tools="outputSchema")))
        assert {"tools": "outputSchema"} == said["result"]

    @pytest.mark.parametrize(
        ("code", "expected"), [(b'"x"', -32603), (b"null", -32603), (b"-32021.0", -32603), (b"-32000.0", -32000)]
    )
    def test_codes_are_read_as_numbers(self, code: bytes, expected: object) -> None:
        d = Bridge()
        d.open()
        d.call()
        (said,) = to_client(d.server(b'{"jsonrpc":"2.0","id":1,"error":{"code":%s,"message":"m"}}' % code))
        assert expected == said["error"]["code"]

    def test_batches_are_bounded(self) -> None:
        d = Bridge()
        d.open(revision="2025-03-26")
        assert [] == to_client(d.client([]))
        refused = to_client(d.client([request(n, "ping") for n in range(1001)]))
        assert [(n, -32600) for n in range(1000)] == [(said["id"], said["error"]["code"]) for said in refused]

    def test_a_client_that_opens_badly_may_open_again(self) -> None:
        d = Bridge()
        (said,) = to_client(
            d.client(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{"a":1,"a":2}}}')
        )
        assert -32600 == said["error"]["code"]
        assert "2025-11-25" == d.open()["protocolVersion"]


class TestMappedIds:
    """The server sees our ids and tokens if several clients share it."""

    def test_the_client_sees_its_own(self) -> None:
        d = Bridge(FORWARD, maps_ids=True)
        d.open(BOTH, server={"resources": {"subscribe": True}})
        seen = d.call(1, _meta={"progressToken": "p"})
        assert 1 != seen["id"]
        token = seen["params"]["_meta"]["progressToken"]
        (sent,) = to_client(d.server(notification("notifications/progress", progressToken=token, progress=4)))
        assert {"progressToken": "p", "progress": 4} == sent["params"]
        (asked,) = to_client(d.handed_on({"s": ask(sample())}, id=seen["id"]))
        (retry,) = to_server(d.returned(d.client(result(asked["id"], role="assistant"))))
        token = retry["params"]["_meta"]["progressToken"]
        assert [] == to_client(d.server(notification("notifications/progress", progressToken=token, progress=4)))
        assert [1] == [line["id"] for line in to_client(d.server(result(retry["id"], resultType="complete")))]

    def test_a_listen_is_known_by_the_id_that_the_server_has(self) -> None:
        d = Bridge(maps_ids=True)
        d.open(server={"resources": {"subscribe": True}})
        (listen,) = to_server(d.client(request(5, "resources/subscribe", uri="a:1")))
        tag = {"_meta": {SUBSCRIPTION: listen["id"]}}
        assert [5] == [
            line["id"] for line in to_client(d.server(notification("notifications/subscriptions/acknowledged", **tag)))
        ]
        (sent,) = to_client(d.server(notification("notifications/resources/updated", uri="a:1", **tag)))
        assert {"uri": "a:1"} == sent["params"]
        assert [listen["id"]] == [
            line["params"]["requestId"] for line in to_server(d.client(request(6, "resources/unsubscribe", uri="a:1")))
        ]
