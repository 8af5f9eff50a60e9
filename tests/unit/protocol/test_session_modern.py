"""The session in the modern protocol version, as transcripts: rounds inside ``input_required`` results, and what the
client must never see of them."""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar

import pytest

from samplegate.policy.decisions import Forwarded
from samplegate.protocol.identity import static
from samplegate.protocol.input_required import MAX_ROUNDS
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason, Unanswered
from samplegate.protocol.request_state import LIFETIME
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.rounds import Effect, Later, Note, Open, Over, Release, Settled, ToClient, ToServer, Withdraw
from samplegate.protocol.seals import SealKeys
from samplegate.protocol.session_state import MAX_WAITS
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    CAPABILITIES,
    DENY,
    FORWARD,
    META,
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

TASKS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
BOTH: dict[str, Any] = {"sampling": {}, "elicitation": {}}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "x"}),
    ("prompts/get", {"name": "x"}),
    ("resources/read", {"uri": "file:///x"}),
]
URL = {"mode": "url", "message": "log in", "url": "https://a.example/x"}


def call(id: Any = 1, capabilities: Any = None, **params: Any) -> dict[str, Any]:
    return modern(id, "tools/call", capabilities, **{"name": "x", "arguments": {"n": 1}, **params})


def asks(id: Any, requests: Any = None, **more: Any) -> dict[str, Any]:
    """An ``input_required`` result."""
    extra = {} if requests is None else {"inputRequests": requests}
    return result(id, resultType="input_required", **extra, **more)


def declared(effects: list[Effect]) -> Any:
    (sent,) = to_server(effects)
    return sent["params"]["_meta"][CAPABILITIES]


def cancel(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def is_empty(d: Dialogue) -> bool:
    """Whether nothing is kept for requests that are over."""
    s = d.session
    return not any(
        (
            s.state.inflight.asked,
            s.state.inflight.wire,
            s.exchange.open,
            s.exchange.pauses.waiting,
            s.pushes.open,
            s.url_errors.open,
            s.tool_results.open,
        )
    )


def sealed(
    *rules: Any, keys: tuple[str, ...] = ("f",), requests: Any = None, **more: Any
) -> tuple[Dialogue, dict[str, Any]]:
    """A dialogue whose round went to the client, and the result that the client got."""
    d = Dialogue(*(rules or (FORWARD,)))
    d.client(call(1, BOTH))
    out = d.hand_on(d.server(asks(1, requests or {"f": ask(sample("for you"))}, **more)), *keys)
    (shown,) = to_client(out)
    return d, shown["result"]


class TestCapabilities:
    def test_what_the_policy_answers_is_declared_with_every_request(self) -> None:
        d = Dialogue(ALLOW, ANSWER)
        for id, method in enumerate(["server/discover", "tools/list", "tools/call", "x/y"]):
            assert {"sampling": {}, "elicitation": {"form": {}}} == declared(d.client(modern(id, method, name="x")))

    def test_what_is_denied_is_not_declared_and_the_rest_stays(self) -> None:
        d = Dialogue(DENY)
        assert {"roots": {}, "vendor": 1.0} == declared(
            d.client(call(1, {"sampling": {}, "roots": {}, "elicitation": {"url": {}}, "vendor": 1.0}))
        )

    def test_each_request_is_taken_by_itself(self) -> None:
        """R50: nothing is inferred from an earlier request."""
        d = Dialogue(FORWARD)
        assert [BOTH, {}, BOTH] == [
            declared(d.client(call(id, capabilities))) for id, capabilities in enumerate([BOTH, {}, BOTH])
        ]

    def test_a_rule_for_one_tool_is_declared_for_that_tool(self) -> None:
        d = Dialogue({**ALLOW, "match": {"kind": "sampling", "tool": "a*"}})
        assert [{"sampling": {}}, {}] == [declared(d.client(call(name, name=name))) for name in ("ab", "b")]
        assert {} == declared(d.client(modern(3, "prompts/get", name="ab")))

    def test_a_rule_for_one_method_is_declared_for_that_method(self) -> None:
        d = Dialogue({**ALLOW, "match": {"kind": "sampling", "method": "prompts/get"}})
        assert [{}, {"sampling": {}}, {}] == [
            declared(d.client(modern(method, method, None, **params))) for method, params in CALLS
        ]

    @pytest.mark.parametrize(
        "capabilities",
        [
            b"{}",
            b'{"roots":{}}',
            b'{ "sampling" : { } , "elicitation":{"form":{},"vendor":1.0} }',
            b'{"elicitation":{}, "sampling":{}}',
        ],
    )
    def test_where_nothing_differs_the_bytes_are_those_that_came(self, capabilities: bytes) -> None:
        d = Dialogue(FORWARD)
        head = (
            b'{ "jsonrpc":"2.0", "id":"\\u0041","method":"tools/call"'
            b' ,"params":{"n":1.0,"name":"x","_meta":{"traceparent":"0","'
        )
        line = (
            head
            + CAPABILITIES.encode()
            + b'" : '
            + capabilities
            + b',"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}'
        )
        assert [ToServer(0, line)] == d.client(line)

    def test_only_the_capabilities_are_spliced(self) -> None:
        d = Dialogue(ALLOW)
        head = (
            b'{"id":1, "jsonrpc":"2.0","method":"tools/call","params":{"arguments":{"u":"\\u00e9","n":1.50}, "_meta":{"'
            + CAPABILITIES.encode()
            + b'": '
        )
        tail = b' , "io.modelcontextprotocol/protocolVersion":"2026-07-28","x":[1 ]},"name":"x"}}'
        assert [ToServer(0, head + b'{"vendor": 1e3,"sampling":{}}' + tail)] == d.client(
            head + b'{"vendor": 1e3}' + tail
        )

    def test_an_envelope_spelled_with_escapes_is_a_modern_one(self) -> None:
        d = Dialogue(DENY)
        line = (
            json.dumps(call(1, BOTH))
            .replace("protocolVersion", "protocol\\u0056ersion")
            .replace("clientCap", "client\\u0043ap")
            .encode()
        )
        assert {} == declared(d.client(line))

    @pytest.mark.parametrize(
        "twin",
        [
            f'"{CAPABILITIES}":{{}},"{CAPABILITIES}":{{"sampling":{{}}}}',
            f'"{CAPABILITIES}":{{"sampling":{{}},"sampling":1}}',
        ],
    )
    def test_capabilities_of_two_readings_are_refused(self, twin: str) -> None:
        d = Dialogue(DENY)
        out = d.client(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{'
            + twin.encode()
            + b","
            + json.dumps(META)[1:].encode()
            + b"}}"
        )
        assert [] == to_server(out)
        assert (1, -32600) == (to_client(out)[0]["id"], to_client(out)[0]["error"]["code"])

    def test_a_request_without_the_required_capabilities_gets_none_added(self) -> None:
        """R49: the server must refuse it."""
        line = request(1, "tools/call", name="x", _meta=META)
        assert [line] == to_server(Dialogue(ALLOW).client(line))

    def test_the_tasks_extension_is_offered_to_neither_side(self) -> None:
        d = Dialogue(ALLOW)
        seen = declared(d.client(modern(1, "server/discover", {"extensions": {**TASKS, "vendor/x": {}}})))
        assert {"vendor/x": {}} == seen["extensions"]
        line = (
            b'{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{'
            b' },"extensions":{"io.modelcontextprotocol/tasks":{},"y":{} }},"ttlMs":1.0}}'
        )
        assert [ToClient(0, line.replace(b'"io.modelcontextprotocol/tasks":{},', b""), True)] == d.server(line)

    def test_what_else_a_server_says_of_itself_passes_as_it_came(self) -> None:
        d = Dialogue(ALLOW)
        d.client(modern(1, "server/discover"))
        line = (
            b'{"jsonrpc":"2.0","id":1,"result":{'
            b' "supportedVersions":["2026-07-28"],"capabilities":{"extensions":{"y":1.0}} }}'
        )
        assert [ToClient(0, line, True)] == d.server(line)


class TestTasks:
    @pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel", "tasks/list"])
    def test_its_methods_do_not_exist(self, method: str) -> None:
        out = Dialogue(ALLOW).client(modern(1, method, taskId="t", inputResponses={}))
        assert ([], -32601) == (to_server(out), to_client(out)[0]["error"]["code"])

    def test_a_call_that_was_made_a_task_fails(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        out = d.server(b'{"jsonrpc":"2.0","id":1,"result":{"result\\u0054ype":"t\\u0061sk","task":{"taskId":"t"}}}')
        assert -32603 == to_client(out)[0]["error"]["code"]
        assert is_empty(d)

    def test_its_notifications_are_dropped(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        assert [] == to_client(
            d.server({"jsonrpc": "2.0", "method": "notifications/tasks", "params": {"inputRequests": {}}})
        )


class TestPassing:
    @pytest.mark.parametrize(
        "payload",
        [
            b'{"resultType":"complete","content":[{"type":"text","text":"input_required"}]}',
            b'{"resultType":"vendor/later","x":1.0}',
            b'{"content":[], "structuredContent":{"resultType":"input_required","task":1}}',
            b'{"resultType":null}',
            b'"input_required"',
            b'["task"]',
        ],
    )
    def test_every_other_result_passes_as_it_came(self, payload: bytes) -> None:
        d = Dialogue(ALLOW)
        d.client(call("a"))
        line = b' {"jsonrpc":"2.0", "id":"a","result":' + payload + b"}"
        assert [ToClient(0, line, True)] == d.server(line)
        assert is_empty(d)

    def test_errors_pass_as_they_came(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        line = (
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"x","data":{"requiredCapabilities":{"sampling":{}},'
            b' "n":1.0}}}'
        )
        assert [ToClient(0, line, True)] == d.server(line)

    @pytest.mark.parametrize("method", ["subscriptions/listen", "vendor/thing", "completion/complete", "ping"])
    def test_other_methods_pass(self, method: str) -> None:
        line = modern(1, method, BOTH, requestState=5, inputResponses=6)
        assert [line] == to_server(Dialogue(FORWARD).client(line))

    def test_a_listen_runs_and_is_ended_by_either_side(self) -> None:
        d = Dialogue(ALLOW)
        d.client(modern("L", "subscriptions/listen", notifications={"toolsListChanged": True}))
        tagged = {"_meta": {"io.modelcontextprotocol/subscriptionId": "L"}}
        for method in ("notifications/subscriptions/acknowledged", "notifications/tools/list_changed"):
            line = {"jsonrpc": "2.0", "method": method, "params": tagged}
            assert [line] == to_client(d.server(line))
        assert [cancel("L")] == to_client(d.server(cancel("L")))

        d = Dialogue(ALLOW)
        d.client(modern("L", "subscriptions/listen"))
        assert [cancel("L")] == to_server(d.client(cancel("L")))
        assert [] == to_client(d.server(result("L", resultType="complete")))
        assert is_empty(d)

    @pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list", "ping"])
    def test_a_request_written_by_a_server_is_dropped_and_logged(self, method: str) -> None:
        d = Dialogue(ALLOW, ANSWER)
        d.client(call())
        out = d.server(request(7, method, **sample()))
        assert ["frame.refused"] == [effect.event for effect in out if isinstance(effect, Note) and effect.warn]
        assert [] == to_client(out) == to_server(out)
        assert not any(isinstance(effect, Open) for effect in out)


class TestRounds:
    @pytest.mark.parametrize(("method", "params"), CALLS)
    def test_a_call_is_retried_with_the_answers_and_the_client_sees_the_end_only(
        self, method: str, params: dict[str, Any]
    ) -> None:
        d = Dialogue(ALLOW, ANSWER)
        d.client(modern("c1", method, **params))
        out = d.settle(d.server(asks("c1", {"a": ask(sample()), "b": ask(form())}, requestState="s")))
        (retry,) = to_server(out)
        assert [] == to_client(out)
        assert retry["id"].startswith("sg:")
        assert ["assistant", "accept"] == [
            retry["params"]["inputResponses"]["a"]["role"],
            retry["params"]["inputResponses"]["b"]["action"],
        ]
        assert "resultType" not in retry["params"]["inputResponses"]["a"]
        assert [result("c1", content=[])] == to_client(d.server(result(retry["id"], content=[])))
        assert is_empty(d)

    def test_a_retry_is_the_same_call_with_all_of_its_meta(self) -> None:
        d = Dialogue(ALLOW)
        meta = {
            **META,
            CAPABILITIES: {"vendor": {"a": 1}},
            "progressToken": 5,
            "traceparent": "00-1",
            "io.modelcontextprotocol/clientInfo": {"name": "c"},
        }
        (first,) = to_server(
            d.client(
                {
                    **call(),
                    "params": {
                        "name": "x",
                        "arguments": {"n": 1.5, "deep": {"a": [None, "é"]}},
                        "vendor": True,
                        "_meta": meta,
                    },
                }
            )
        )
        (retry,) = to_server(d.settle(d.server(asks(1, {"k": ask(sample())}, requestState="s"))))
        bare = {
            name: value for name, value in retry["params"].items() if name not in ("inputResponses", "requestState")
        }
        assert (first["method"], first["params"]) == (retry["method"], bare)

    def test_numbers_and_escapes_of_the_arguments_stay_byte_for_byte(self) -> None:
        d = Dialogue(ALLOW)
        arguments = b'{"n": 1.0, "big":12345678901234567890123, "u":"\\u00e9", "half":"\\ud83d"}'
        meta = json.dumps({**META, CAPABILITIES: {}}).encode()
        d.client(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":'
            + arguments
            + b',"_meta":'
            + meta
            + b"}}"
        )
        out = d.settle(d.server(asks(1, {"k": ask(sample())})))
        assert b'"arguments":' + arguments in one(out, ToServer).line

    @pytest.mark.parametrize(
        "state",
        [
            b'"plain"',
            b'""',
            b'"a\\u0041\\/\\u00e9\\n\\"\\\\"',
            '"é😀"'.encode(),
            b'"\\ud83d\\ude00"',
            b'"' + b"x" * 100_000 + b'"',
        ],
    )
    def test_the_servers_state_goes_back_as_it_was(self, state: bytes) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        questions = json.dumps({"k": ask(sample())}).encode()
        line = (
            b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":'
            + questions
            + b',"requestState":'
            + state
            + b"}}"
        )
        (retry,) = to_server(d.settle(d.server(line)))
        assert json.loads(state) == retry["params"]["requestState"]

    def test_a_state_is_never_invented_nor_kept_from_an_earlier_round(self) -> None:
        """T9, R65."""
        d = Dialogue(ALLOW)
        d.client(call())
        (first,) = to_server(d.settle(d.server(asks(1, {"a": ask(sample())}, requestState="s"))))
        (second,) = to_server(d.settle(d.server(asks(first["id"], {"b": ask(sample())}))))
        assert "requestState" not in second["params"]
        assert ["b"] == list(second["params"]["inputResponses"])
        assert first["id"] != second["id"]
        (third,) = to_server(d.session.due(one(d.server(asks(second["id"], requestState="t")), Later).token))
        assert ("t", False) == (third["params"]["requestState"], "inputResponses" in third["params"])

    def test_the_gate_answers_the_round_of_the_call_that_asked(self) -> None:
        """R64: two simultaneous calls with answers crosswise."""
        d = Dialogue(ALLOW)
        d.client(call(1))
        d.client(call("1", name="y"))
        opened = {id: d.server(asks(id, {"k": ask(sample())}, requestState=f"s{id!r}")) for id in ("1", 1)}
        assert [("y",), ("x",)] == [tuple(c.tool for c in one(out, Open).round.origin.calls) for out in opened.values()]
        retries = {id: to_server(d.settle(opened[id]))[0] for id in (1, "1")}
        assert [("x", "s1"), ("y", "s'1'")] == [
            (r["params"]["name"], r["params"]["requestState"]) for r in retries.values()
        ]
        for id in ("1", 1):
            assert [result(id, to=str(id))] == to_client(d.server(result(retries[id]["id"], to=str(id))))

    def test_a_round_has_all_its_keys_in_their_order(self) -> None:
        d = Dialogue(ALLOW, ANSWER)
        d.client(call())
        keys = {"": ask(sample()), "é": ask(form()), 'q"\\': ask(sample()), "a.b": ask(form())}
        opened = d.server(asks(1, keys))
        assert list(keys) == list(one(opened, Open).round.items)
        assert list(keys) == list(to_server(d.settle(opened))[0]["params"]["inputResponses"])

    def test_rounds_in_one_call_are_capped(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        id: Any = 1
        for _ in range(MAX_ROUNDS):
            (retry,) = to_server(d.settle(d.server(asks(id, {"k": ask(sample())}))))
            id = retry["id"]
        opened = d.server(asks(id, {"k": ask(sample()), "f": ask(form())}))
        assert {"k": Reason.ROUNDS, "f": Reason.ROUNDS} == {
            key: item.refused for key, item in one(opened, Open).round.items.items()
        }
        over = Unanswered(Reason.ROUNDS, code=-32603)
        out = d.settle(opened, answers={"k": over, "f": over})
        assert ([], 1, True) == (to_server(out), to_client(out)[0]["id"], to_client(out)[0]["result"]["isError"])
        assert is_empty(d)

    @pytest.mark.parametrize(
        "method", ["tools/list", "server/discover", "completion/complete", "vendor/x", "subscriptions/listen"]
    )
    def test_input_is_asked_for_in_calls_only(self, method: str) -> None:
        d = Dialogue(ALLOW)
        d.client(modern(1, method))
        out = d.server(asks(1, {"k": ask(sample())}))
        assert -32603 == to_client(out)[0]["error"]["code"]
        assert "inputRequests" not in json.dumps(to_client(out))
        assert is_empty(d)

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"inputRequests": {}},
            {"inputRequests": []},
            {"inputRequests": {"k": 5}},
            {"inputRequests": {"k": {"method": "ping"}}},
            {"inputRequests": {"k": {"params": {}}}},
            {"inputRequests": {str(n): ask(sample()) for n in range(1000)}},
            {"inputRequests": {"k": ask(sample())}, "requestState": 5},
            {"requestState": {"a": 1}},
        ],
    )
    def test_what_cannot_be_read_ends_the_call(self, body: dict[str, Any]) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        (end,) = to_client(d.server(result(1, resultType="input_required", **body)))
        assert (1, -32603) == (end["id"], end["error"]["code"])
        assert is_empty(d)

    @pytest.mark.parametrize(
        "questions",
        [
            b'{"k":{"method":"sampling/createMessage"},"k":{"method":"elicitation/create"}}',
            b'{"k":{"method":"sampling/createMessage","method":"elicitation/create"}}',
            b'{"k":{"method":"sampling/createMessage"}},"inputRequests":{}',
        ],
    )
    def test_questions_of_two_readings_end_the_call(self, questions: bytes) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        out = d.server(
            b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":' + questions + b"}}"
        )
        assert "error" in to_client(out)[0]
        assert is_empty(d)

    def test_an_undeclared_key_is_known_as_such(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        keys = {"s": ask(sample()), "t": ask(sample(tools=[])), "f": ask(form()), "u": ask(URL)}
        items = one(d.server(asks(1, keys)), Open).round.items
        assert {"s": True, "t": False, "f": False, "u": False} == {key: item.offered for key, item in items.items()}

    def test_a_malformed_key_is_known_as_such(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        opened = d.server(
            b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"sampling/createMessage","params":{"a":1,"a":2}}}}}'
        )
        assert isinstance(one(opened, Open).round.items["k"].request, BadRequest)
        out = d.settle(opened, answers={"k": Unanswered(Reason.MALFORMED, code=-32602)})
        assert ([], True) == (to_server(out), to_client(out)[0]["result"]["isError"])

    def test_a_second_answer_while_a_round_is_open_is_dropped(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        opened = d.server(asks(1, {"k": ask(sample())}))
        for late in (result(1, content=[]), error(1, -1), asks(1, {"k": ask(sample())})):
            assert [Note("frame.unasked", {"side": "server"})] == d.server(late)
        assert 1 == len(to_server(d.settle(opened)))


class TestStateOnly:
    def test_it_is_retried_after_growing_pauses_and_never_shown(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        id: Any = 1
        pauses = []
        for number in range(8):
            out = d.server(asks(id, requestState=f"s{number}"))
            later = one(out, Later)
            assert [later] == [effect for effect in out if not isinstance(effect, Note)]
            pauses.append(later.delay)
            (retry,) = to_server(d.session.due(later.token))
            assert f"s{number}" == retry["params"]["requestState"]
            assert "inputResponses" not in retry["params"]
            assert retry["id"] != id
            id = retry["id"]
        assert [0.25, 0.5, 1, 2, 4, 5, 5, 5] == pauses
        assert [result(1, content=[])] == to_client(d.server(result(id, content=[])))
        assert is_empty(d)

    def test_an_empty_map_of_questions_is_none(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        assert isinstance(one(d.server(asks(1, {}, requestState="s")), Later), Later)

    def test_it_is_capped(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        id: Any = 1
        for _ in range(MAX_WAITS):
            (retry,) = to_server(d.session.due(one(d.server(asks(id, requestState="s")), Later).token))
            id = retry["id"]
        assert [1] == [end["id"] for end in to_client(d.server(asks(id, requestState="s")))]
        assert is_empty(d)

    def test_a_pause_is_over_once(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        token = one(d.server(asks(1, requestState="s")), Later).token
        assert 1 == len(d.session.due(token))
        assert [] == d.session.due(token) == d.session.due("nobody's")


class TestEnds:
    DENIED: ClassVar[list[Outcome]] = [
        Denied(Reason.RULE),
        Unanswered(Reason.NO_RULE),
        Unanswered(Reason.TIMEOUT),
        Unanswered(Reason.NOT_OFFERED, code=-32602),
    ]

    @pytest.mark.parametrize("outcome", DENIED)
    @pytest.mark.parametrize(("method", "params"), CALLS)
    def test_sampling_that_is_not_answered_ends_the_call(
        self, method: str, params: dict[str, Any], outcome: Outcome
    ) -> None:
        """R70: an ``isError`` result for tools/call and error -1 for the others; the server gets nothing."""
        d = Dialogue(ALLOW)
        d.client(modern(1, method, **params))
        out = d.settle(
            d.server(asks(1, {"a": ask(sample()), "b": ask(sample())})),
            answers={"a": outcome, "b": Answered(b"{}", "policy")},
        )
        (end,) = to_client(out)
        assert ([], 1) == (to_server(out), end["id"])
        if method == "tools/call":
            assert ("complete", True, "text") == (
                end["result"]["resultType"],
                end["result"]["isError"],
                end["result"]["content"][0]["type"],
            )
        else:
            assert -1 == end["error"]["code"]
        assert is_empty(d)

    @pytest.mark.parametrize(
        ("outcome", "action"),
        [
            (Denied(Reason.RULE, "decline"), "decline"),
            (Denied(Reason.RULE), "cancel"),
            (Unanswered(Reason.NO_RULE), "cancel"),
        ],
    )
    def test_an_elicitation_that_is_not_answered_goes_on_without_consent(self, outcome: Outcome, action: str) -> None:
        d = Dialogue(ANSWER)
        d.client(call())
        out = d.settle(d.server(asks(1, {"a": ask(form())})), answers={"a": outcome})
        assert [] == to_client(out)
        assert {"a": {"action": action}} == to_server(out)[0]["params"]["inputResponses"]

    @pytest.mark.parametrize(
        "outcome", [Unanswered(Reason.NOT_OFFERED, code=-32602), Unanswered(Reason.MALFORMED, code=-32602)]
    )
    def test_an_elicitation_that_should_not_have_been_asked_ends_the_call(self, outcome: Outcome) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        out = d.settle(d.server(asks(1, {"a": ask(form())})), answers={"a": outcome})
        assert ([], True) == (to_server(out), to_client(out)[0]["result"]["isError"])

    def test_the_end_names_no_rule_and_no_content(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        out = d.settle(
            d.server(asks(1, {"k": ask(sample("secret"))})), answers={"k": Denied(Reason.RULE, detail="rule hush")}
        )
        assert not any(word in json.dumps(to_client(out)) for word in ("hush", "secret"))

    def test_a_late_answer_after_the_end_is_dropped(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        d.settle(d.server(asks(1, {"a": ask(sample())})), answers={"a": Denied(Reason.RULE)})
        assert [] == to_client(d.server(result(1)))

    def test_our_answers_say_who_decided_where_the_schema_has_room(self) -> None:
        d = Dialogue(ALLOW, ANSWER)
        d.client(call())
        (retry,) = to_server(d.settle(d.server(asks(1, {"a": ask(sample()), "b": ask(form())}))))
        responses = retry["params"]["inputResponses"]
        assert {"decided_by": "policy", "decision_id": "d-a"} == responses["a"]["_meta"]["samplegate/provenance"]
        assert {"action": "accept", "content": {"confirm": True}} == responses["b"]


class TestForwarded:
    def test_the_client_gets_its_keys_as_the_server_wrote_them_under_a_state_of_ours(self) -> None:
        d = Dialogue(FORWARD)
        d.client(call(1, BOTH))
        entry = b'{ "method":"sampling/createMessage","params":{"messages":[], "maxTokens":1.0,"vendor":[1 ]}}'
        opened = d.server(
            b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"f":'
            + entry
            + b'},"requestState":"theirs"}}'
        )
        shown = one(d.hand_on(opened, "f"), ToClient).line
        assert b'"f":' + entry in shown
        assert "input_required" == json.loads(shown)["result"]["resultType"]
        assert b"theirs" not in shown
        assert is_empty(d)

    def test_nothing_of_the_servers_state_or_of_the_local_keys_can_be_read_by_the_client(self) -> None:
        requests = {"f": ask(sample("for you")), "hidden": ask(sample("not for you"))}
        _, shown = sealed(ALLOW, requests=requests, requestState="state-of-server")
        state = shown["requestState"]
        opened = base64.urlsafe_b64decode(state.partition(".")[2]).decode("latin-1")
        assert ["f"] == list(shown["inputRequests"])
        assert not any(
            word in text
            for word in ("state-of-server", "hidden", "not for you", "hash")
            for text in (json.dumps(shown), opened)
        )

    def test_the_return_reopens_the_round_and_the_server_gets_everything(self) -> None:
        d, shown = sealed(requests={"f": ask(sample()), "g": ask(sample())}, requestState='th\u00e9"irs')
        reply = {"role": "assistant", "content": {"type": "text", "text": "me"}, "model": "client"}
        back = call(
            "again",
            BOTH,
            requestState=shown["requestState"],
            inputResponses={"f": reply, "extra": {"x": 1}, "g": {"forged": True}},
        )
        opened = d.client(back)
        round = one(opened, Open).round
        assert [] == to_server(opened)
        assert round.returned is not None
        assert ({"f": reply}, ["f"]) == (
            {k: json.loads(v) for k, v in round.returned.replies.items()},
            list(round.returned.seen),
        )
        assert {"f", "g"} == set(round.items)
        outcomes = {
            "f": Answered(round.returned.replies["f"], "client"),
            "g": Answered(b'{"role":"assistant"}', "policy"),
        }
        (retry,) = to_server(d.settle(opened, answers=outcomes))
        assert ({"f", "g"}, reply) == (set(retry["params"]["inputResponses"]), retry["params"]["inputResponses"]["f"])
        assert 'th\u00e9"irs' == retry["params"]["requestState"]
        assert {"name": "x", "arguments": {"n": 1}} == {k: retry["params"][k] for k in ("name", "arguments")}
        assert [result("again", content=[])] == to_client(d.server(result(retry["id"], content=[])))
        assert is_empty(d)

    def test_without_a_state_of_the_server_the_retry_has_none(self) -> None:
        d, shown = sealed()
        opened = d.client(call(2, BOTH, requestState=shown["requestState"], inputResponses={"f": {}}))
        (retry,) = to_server(d.settle(opened, answers={"f": Answered(b"{}", "client")}))
        assert "requestState" not in retry["params"]

    def test_a_key_that_the_client_left_out_has_no_reply(self) -> None:
        d, shown = sealed()
        answers: list[Any] = [{}, {"other": {}}, [], None]
        for id, responses in enumerate(answers):
            opened = d.client(call(id, BOTH, requestState=shown["requestState"], inputResponses=responses))
            round = one(opened, Open).round
            assert round.returned is not None
            assert {} == round.returned.replies
            (end,) = to_client(d.settle(opened, answers={"f": Unanswered(Reason.CLIENT)}))
            assert end["result"]["isError"]

    def test_answers_of_two_readings_are_refused(self) -> None:
        d, shown = sealed()
        params = json.dumps(call(2, BOTH, requestState=shown["requestState"])["params"]).encode()
        line = (
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":'
            + params[:-1]
            + b',"inputResponses":{"f":{},"f":{"a":1}}}}'
        )
        out = d.client(line)
        assert ([], -32600) == (to_server(out), to_client(out)[0]["error"]["code"])

    def test_what_varies_from_try_to_try_may_vary(self) -> None:
        d, shown = sealed()
        back = call(2, {**BOTH, "roots": {}}, requestState=shown["requestState"], inputResponses={})
        back["params"]["_meta"]["progressToken"] = "new"
        back["params"] = dict(reversed(back["params"].items()))
        assert isinstance(one(d.client(json.dumps(back, indent=1).encode()), Open), Open)

    @pytest.mark.parametrize(
        "change",
        [
            {"name": "y"},
            {"arguments": {"n": 2}},
            {"arguments": {"n": 1.0}},
            {"arguments": {"n": True}},
            {"arguments": {"n": "1"}},
            {"arguments": {"n": 1, "m": None}},
            {"vendor": 1},
        ],
    )
    def test_a_state_is_good_for_the_same_params_only(self, change: dict[str, Any]) -> None:
        d, shown = sealed()
        self.refused(d.client(call(2, BOTH, requestState=shown["requestState"], inputResponses={"f": {}}, **change)))

    def test_a_state_is_good_for_the_same_method_only(self) -> None:
        d, shown = sealed()
        back = call(2, BOTH, requestState=shown["requestState"])
        self.refused(d.client({**back, "method": "prompts/get"}))

    @pytest.mark.parametrize("change", ["server", "identity", "keys"])
    def test_a_state_is_good_for_the_same_server_caller_and_key_only(self, change: str) -> None:
        _, shown = sealed()
        other = Dialogue(FORWARD)
        changes = {"server": "other", "identity": static("other"), "keys": SealKeys([bytes(32)], bytes(16))}
        setattr(other.session.state, change, changes[change])
        self.refused(other.client(call(2, BOTH, requestState=shown["requestState"])))

    def test_another_process_with_the_same_key_reopens_it(self) -> None:
        _, shown = sealed()
        assert isinstance(one(Dialogue(FORWARD).client(call(2, BOTH, requestState=shown["requestState"])), Open), Open)

    def test_a_state_expires(self) -> None:
        d, shown = sealed()
        d.now = LIFETIME - 1
        assert isinstance(one(d.client(call(2, BOTH, requestState=shown["requestState"])), Open), Open)
        d.now = LIFETIME
        self.refused(d.client(call(3, BOTH, requestState=shown["requestState"])))

    @pytest.mark.parametrize(
        "state",
        ["", "foreign", *(f"sg{n}.{end}" for n in "12" for end in ("", "AAAA", "é", "A" * 400)), 5, True, {}, ["x"]],
    )
    def test_a_foreign_state_is_bad_params_and_never_reaches_the_server(self, state: Any) -> None:
        """R68."""
        self.refused(Dialogue(FORWARD).client(call(1, BOTH, requestState=state, inputResponses={"f": {}})))

    def test_null_is_no_state_and_does_not_go_on(self) -> None:
        """Some clients send null for none (T9). Answers beside it are still unsolicited."""
        (sent,) = to_server(Dialogue(FORWARD).client(call(1, BOTH, requestState=None)))
        assert "requestState" not in sent["params"]
        opened = Dialogue(FORWARD).client(call(1, BOTH, requestState=None, inputResponses={"f": {}}))
        assert "unasked" == one(opened, Open).round.door

    def test_a_changed_state_is_refused_at_every_place(self) -> None:
        d, shown = sealed()
        state = shown["requestState"]
        for place in range(0, len(state), 7):
            changed = state[:place] + ("A" if state[place] != "A" else "B") + state[place + 1 :]
            self.refused(d.client(call(2, BOTH, requestState=changed)))
        for changed in (state[:-4], state + "AAAA", state + "\n", " " + state, state.replace("sg2.", "sg1.")):
            self.refused(d.client(call(2, BOTH, requestState=changed)))

    def test_a_state_spelled_with_escapes_is_still_a_state(self) -> None:
        line = json.dumps(call(1, BOTH, requestState="foreign")).replace("requestState", "request\\u0053tate").encode()
        self.refused(Dialogue(FORWARD).client(line))

    def test_rounds_are_counted_across_returns(self) -> None:
        d = Dialogue(FORWARD)
        d.client(call(0, BOTH))
        wire: Any = 0
        for number in range(1, MAX_ROUNDS + 1):
            (shown,) = to_client(d.hand_on(d.server(asks(wire, {"f": ask(sample())})), "f"))
            opened = d.client(
                call(number, BOTH, requestState=shown["result"]["requestState"], inputResponses={"f": {}})
            )
            (retry,) = to_server(d.settle(opened, answers={"f": Answered(b"{}", "client")}))
            wire = retry["id"]
        opened = d.server(asks(wire, {"f": ask(sample())}))
        assert Reason.ROUNDS is one(opened, Open).round.items["f"].refused

    def test_the_clients_patience_runs_from_its_first_try(self) -> None:
        d = Dialogue(FORWARD)
        d.now = 10.0
        d.client(call(1, BOTH))
        d.now = 20.0
        (shown,) = to_client(d.hand_on(d.server(asks(1, {"f": ask(sample())})), "f"))
        d.now = 30.0
        round = one(d.client(call(2, BOTH, requestState=shown["result"]["requestState"])), Open).round
        assert 10.0 == round.called

    def test_a_key_that_the_policy_now_refuses_is_still_decided_anew(self) -> None:
        _, shown = sealed()
        stricter = Dialogue(DENY)
        opened = stricter.client(call(2, BOTH, requestState=shown["requestState"], inputResponses={"f": {}}))
        assert not one(opened, Open).round.items["f"].offered

    def test_forwarding_needs_the_clients_own_capability(self) -> None:
        d = Dialogue({**FORWARD, "otherwise": "deny"})
        d.client(call(1, {"sampling": {}}))
        opened = d.server(asks(1, {"s": ask(sample())}))
        assert isinstance(d.decide(opened)["s"].act, Forwarded)

    @staticmethod
    def refused(out: list[Effect]) -> None:
        (end,) = to_client(out)
        assert ([], -32602) == (to_server(out), end["error"]["code"])
        assert not any(isinstance(effect, Open) for effect in out)


class TestRoots:
    ROOTS: ClassVar[dict[str, Any]] = {"method": "roots/list", "params": {"_meta": {"n": 1}}}

    def test_they_always_go_to_the_client_that_declared_them(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(1, {"roots": {}}))
        opened = d.server(asks(1, {"r": self.ROOTS, "k": ask(sample())}, requestState="s"))
        round = one(opened, Open).round
        assert (frozenset({"r"}), ["k"]) == (round.roots, list(round.items))
        (shown,) = to_client(d.hand_on(opened))
        assert {"r": self.ROOTS} == shown["result"]["inputRequests"]
        opened = d.client(
            call(2, {"roots": {}}, requestState=shown["result"]["requestState"], inputResponses={"r": {"roots": []}})
        )
        assert ["k"] == list(one(opened, Open).round.items)
        (retry,) = to_server(d.settle(opened))
        assert {"roots": []} == retry["params"]["inputResponses"]["r"]
        assert {"r", "k"} == set(retry["params"]["inputResponses"])
        assert "s" == retry["params"]["requestState"]

    def test_a_client_that_does_not_answer_them_ends_the_call(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(1, {"roots": {}}))
        (shown,) = to_client(d.hand_on(d.server(asks(1, {"r": self.ROOTS}))))
        opened = d.client(call(2, {"roots": {}}, requestState=shown["result"]["requestState"], inputResponses={}))
        out = d.settle(opened)
        assert ([], True) == (to_server(out), to_client(out)[0]["result"]["isError"])
        assert is_empty(d)

    def test_a_client_that_declared_none_is_not_asked(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(1))
        out = d.server(asks(1, {"r": self.ROOTS}))
        assert "inputRequests" not in json.dumps(to_client(out))
        assert is_empty(d)


class TestUnsolicited:
    """T3: an unsolicited answer passes if every rule that can match is ``forward``, is refused if a rule may deny, and
    is otherwise stripped."""

    LINE = call(1, BOTH, inputResponses={"k": {"action": "accept"}})

    def test_passed_where_the_client_would_have_been_asked(self) -> None:
        d = Dialogue(FORWARD)
        opened = d.client(self.LINE)
        assert ("unasked", []) == (one(opened, Open).round.door, to_server(opened))  # recorded before it is forwarded
        assert [self.LINE] == to_server(d.settle(opened, answers={"k": Answered(b"{}", "client")}))
        assert [result(1, content=[])] == to_client(d.server(result(1, content=[])))

    def test_what_could_not_be_recorded_does_not_go_on(self) -> None:
        d = Dialogue(FORWARD)
        out = d.settle(d.client(self.LINE), answers={"k": Unanswered(Reason.RECORDS)})
        assert ([], True) == (to_server(out), to_client(out)[0]["result"]["isError"])
        assert is_empty(d)

    def test_refused_where_a_rule_may_deny(self) -> None:
        # the forward rule before it matches everything
        assert one(Dialogue(FORWARD, DENY).client(self.LINE), Open).round.door == "unasked"
        out = Dialogue({**DENY, "match": {"kind": "sampling", "text": "x"}}, FORWARD).client(self.LINE)
        assert ([], -32602) == (to_server(out), to_client(out)[0]["error"]["code"])
        assert "answers.unsolicited" == one(out, Note).event

    @pytest.mark.parametrize("rules", [(ALLOW,), (ANSWER,), (), (ALLOW, FORWARD)])
    def test_stripped_everywhere_else(self, rules: tuple[Any, ...]) -> None:
        (sent,) = to_server(Dialogue(*rules).client(self.LINE))
        assert "inputResponses" not in sent["params"]
        assert {"name": "x", "arguments": {"n": 1}} == {k: sent["params"][k] for k in ("name", "arguments")}

    def test_the_tool_counts(self) -> None:
        d = Dialogue({**DENY, "match": {"tool": "x"}}, FORWARD)
        assert [] == to_server(d.client(self.LINE))
        other = call(2, BOTH, name="y", inputResponses={})
        assert [other] == to_server(d.client(other))

    def test_an_escaped_spelling_is_no_way_round(self) -> None:
        line = json.dumps(self.LINE).replace("inputResponses", "input\\u0052esponses").encode()
        assert [] == to_server(Dialogue({**DENY, "match": {"tool": "x"}}, FORWARD).client(line))

    def test_they_are_not_kept_for_the_next_round(self) -> None:
        d = Dialogue(FORWARD)
        d.settle(d.client(self.LINE), answers={"k": Answered(b"{}", "client")})
        opened = d.server(asks(1, {"q": ask(sample())}))
        (retry,) = to_server(d.settle(opened, answers={"q": Answered(b"{}", "client")}))
        assert {"q": {}} == retry["params"]["inputResponses"]


class TestCancellation:
    def test_while_the_server_works_it_is_told_as_it_came(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call("a"))
        line = b'{"jsonrpc":"2.0", "method":"notifications/cancelled","params":{"reason":"r\\u00e9","requestId":"a"}}'
        assert [ToServer(0, line), Over(0)] == d.client(line)
        assert [] == to_client(d.server(result("a")))
        assert is_empty(d)

    def test_while_a_retry_is_at_the_server_it_is_told_under_the_retrys_id(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        (retry,) = to_server(d.settle(d.server(asks(1, {"k": ask(sample())}))))
        (told,) = to_server(d.client({**cancel(1), "params": {"requestId": 1, "reason": "bored"}}))
        assert {"requestId": retry["id"], "reason": "bored"} == told["params"]
        assert [] == to_client(d.server(result(retry["id"])))
        assert is_empty(d)

    def test_in_a_round_its_work_ends_and_the_server_is_not_told(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        opened = d.server(asks(1, {"k": ask(sample())}))
        round = one(opened, Open).round
        assert [Withdraw(round.id), Over(0)] == d.client(cancel(1))
        assert [] == d.done(round, Settled({"k": Release(Answered(b"{}", "policy"), "d")}))
        assert is_empty(d)

    def test_a_round_that_was_withdrawn_is_not_handed_on(self) -> None:
        d = Dialogue(FORWARD)
        d.client(call(1, BOTH))
        opened = d.server(asks(1, {"k": ask(sample())}))
        d.client(cancel(1))
        assert [] == d.hand_on(opened, "k")

    def test_in_a_reopened_round(self) -> None:
        d, shown = sealed()
        round = one(d.client(call(2, BOTH, requestState=shown["requestState"])), Open).round
        assert [Withdraw(round.id), Over(0)] == d.client(cancel(2))
        assert is_empty(d)

    def test_in_a_pause_the_call_is_not_tried_again(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        token = one(d.server(asks(1, requestState="s")), Later).token
        assert [Over(0)] == d.client(cancel(1))
        assert [] == d.session.due(token)
        assert is_empty(d)

    def test_after_the_end_it_goes_nowhere(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        d.server(result(1))
        assert [] == to_server(d.client(cancel(1)))

    def test_a_type_is_part_of_an_id(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call(1))
        assert [] == to_server(d.client(cancel("1")))
        assert [result(1)] == to_client(d.server(result(1)))

    def test_an_id_is_free_again_after_a_cancel(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        first = d.server(asks(1, {"k": ask(sample())}))
        d.client(cancel(1))
        d.client(call(1, name="other"))
        second = d.server(asks(1, {"k": ask(sample())}))
        assert [] == d.settle(first)
        assert "other" == to_server(d.settle(second))[0]["params"]["name"]


class TestStreams:
    def test_a_closed_stream_cancels_its_modern_calls_and_no_others(self) -> None:
        """T35."""
        d = Dialogue(ALLOW)
        for stream, id in ((1, "a"), (1, "b"), (1, "c"), (2, "d")):
            d.take(d.session.frame("client", stream, json.dumps(call(id)).encode(), 0.0))
        round = one(d.server(asks("b", {"k": ask(sample())})), Open).round
        later = one(d.server(asks("c", requestState="s")), Later)
        out = d.session.stream_closed("client", 1)
        assert ["a"] == [told["params"]["requestId"] for told in to_server(out)]
        assert Withdraw(round.id) in out
        assert [] == d.session.due(later.token)
        assert [ToClient(2, json.dumps(result("d"), separators=(",", ":")).encode(), True)] == d.server(result("d"))
        assert is_empty(d)

    def test_a_closed_stream_is_no_cancel_in_the_legacy_eras(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(request(1, "tools/call", name="x"))
        assert [] == d.session.stream_closed("client", 0)
        assert [result(1)] == to_client(d.server(result(1)))

    def test_two_streams_may_choose_the_same_id(self) -> None:
        """R111."""
        d = Dialogue(ALLOW)
        sent = [
            one(d.take(d.session.frame("client", stream, json.dumps(call(1)).encode(), 0.0)), ToServer)
            for stream in (1, 2)
        ]
        ids = [json.loads(effect.line)["id"] for effect in sent]
        assert 1 == ids[0] != ids[1]
        out = [one(d.server(result(id, n=n)), ToClient) for n, id in enumerate(ids)]
        assert [(1, result(1, n=0)), (2, result(1, n=1))] == [
            (effect.stream, json.loads(effect.line)) for effect in out
        ]

    def test_the_end_of_a_side_withdraws_every_round(self) -> None:
        for side in ("client", "server"):
            d = Dialogue(ALLOW)
            d.client(call(1))
            d.client(call(2))
            rounds = [one(d.server(asks(id, {"k": ask(sample())})), Open).round.id for id in (1, 2)]
            out = d.session.eof("client" if side == "client" else "server")
            assert set(rounds) == {effect.round for effect in out if isinstance(effect, Withdraw)}

    @pytest.mark.parametrize("side", ["client", "server"])
    def test_nothing_is_done_for_anybody_after_it(self, side: Any) -> None:
        d = Dialogue(FORWARD)
        for id in (1, 2, 3):
            d.client(call(id, BOTH))
        opened = d.server(asks(1, {"k": ask(sample())}))
        later = one(d.server(asks(2, requestState="s")), Later)
        urls = d.server(error(3, -32042, data={"elicitations": [{**URL, "elicitationId": "e"}]}))
        unasked = d.client(call(4, BOTH, inputResponses={"k": {"action": "accept"}}))
        rounds = {one(out, Open).round.id for out in (opened, urls, unasked)}
        assert rounds == {effect.round for effect in d.session.eof(side) if isinstance(effect, Withdraw)}
        assert [] == d.session.due(later.token)
        for out in (opened, urls, unasked):
            assert [] == d.settle(out)
        assert [] == [effect for effect in d.session.eof(side) if isinstance(effect, Withdraw)]

    def test_a_request_that_went_to_the_client_is_answered_by_nobody_after_it(self) -> None:
        d = Dialogue(FORWARD)
        d.open_legacy(sampling={})
        pushed = d.server(request(7, "sampling/createMessage", **sample()))
        (sent,) = to_client(d.session.forward(one(pushed, Open).round.id))
        d.session.eof("server")
        assert [Note("frame.unasked", {"side": "client"})] == d.client(result(sent["id"]))
        assert [] == d.settle(pushed)
        assert isinstance(one(d.server(request(7, "sampling/createMessage", **sample())), Open), Open)

    def test_what_is_withheld_is_said_again_after_it(self) -> None:
        d = Dialogue(DENY)
        said = [[effect.event for effect in d.client(call(id, BOTH)) if isinstance(effect, Note)] for id in (1, 2)]
        d.session.eof("server")
        assert [["capability.withheld"], []] == said
        assert "capability.withheld" == one(d.client(call(3, BOTH)), Note).event


class TestProgress:
    @staticmethod
    def report(value: Any, token: Any = "p") -> dict[str, Any]:
        return {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": value},
        }

    def started(self) -> Dialogue:
        d = Dialogue(ALLOW)
        line = call()
        line["params"]["_meta"]["progressToken"] = "p"
        d.client(line)
        return d

    def test_a_retry_that_starts_again_at_zero_does_not_run_the_clients_series_backwards(self) -> None:
        """T33."""
        d = self.started()
        assert 1 == len(to_client(d.server(self.report(5))))
        d.settle(d.server(asks(1, {"k": ask(sample())})))
        seen = [
            out["params"]["progress"] for value in (0, 3, 5, 6, 6, 7) for out in to_client(d.server(self.report(value)))
        ]
        assert [6, 7] == seen

    def test_beats_stand_between_the_servers_values(self) -> None:
        d = self.started()
        d.server(self.report(5))
        opened = d.server(asks(1, {"k": ask(sample())}))
        round = one(opened, Open).round
        beats = [out["params"] for _ in range(3) for out in to_client(d.session.round_progress(round.id))]
        assert ["p"] * 3 == [beat["progressToken"] for beat in beats]
        values = [beat["progress"] for beat in beats]
        assert 5 < values[0] < values[1] < values[2] < 5.01
        assert all(set(beat) == {"progressToken", "progress"} for beat in beats)

    def test_nobody_who_gave_no_token_hears_of_progress(self) -> None:
        d = Dialogue(ALLOW)
        d.client(call())
        round = one(d.server(asks(1, {"k": ask(sample())})), Open).round
        assert [] == d.session.round_progress(round.id)

    def test_a_round_that_is_over_makes_no_progress(self) -> None:
        d = self.started()
        opened = d.server(asks(1, {"k": ask(sample())}))
        d.settle(opened)
        assert [] == d.session.round_progress(one(opened, Open).round.id)

    def test_tokens_of_nobody_pass(self) -> None:
        d = self.started()
        assert [self.report(1, 5)] == to_client(d.server(self.report(1, 5)))
