"""Tool results that ask the user (``metadata.elicitation``): the rules decide before the client sees the question."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from samplegate.protocol import tool_results
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.rounds import (
    Close,
    Effect,
    Note,
    Open,
    Over,
    Release,
    ResourceRead,
    Round,
    Settled,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.protocol.ui_resources import ui_in
from tests.fakes.bridged import Bridge
from tests.fakes.dialogue import CAPABILITIES, DENY, META, Dialogue, modern, one, request, result, to_client
from tests.fakes.streams import Streams, asks, bridge, sent
from tests.fakes.task_dialogue import ALL, TaskDialogue, notified, task

POLICED: Final[dict[str, Any]] = {"servers": {"default": {"ui_results": "police"}}}
SCHEMA: Final = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
UI: Final = {"uri": "ui://default/picker", "mode": "modal", "context": {"theme": "light"}}
QUESTION: Final = {"message": "Which color?", "requestedSchema": SCHEMA, "ui": UI}
ACCEPTED: Final = Answered(b'{"action":"accept","content":{"color":"#3b82f6"},"_meta":{"a":1}}', "human")
TOKEN: Final = "p"


class Talk:
    """A call of a tool between two versions of the protocol: ``client`` and ``server`` are legacy or modern."""

    def __init__(self, client: str, server: str, **policy: Any) -> None:
        more = policy or POLICED
        self.client, self.server = client, server
        self.d: Any
        if client == server:
            self.d = Dialogue(DENY, **more)
            if client == "legacy":
                self.d.open_legacy()
        elif client == "legacy":
            self.d = Bridge(DENY, policy=more)
            self.d.open()
        else:
            self.d = bridge(DENY, **more)
        self.wire = self._call()

    def _call(self) -> Any:
        params: dict[str, Any] = {"name": "pick", "arguments": {"n": 1}}
        if isinstance(self.d, Streams):
            (seen,) = sent(self.d.client(3, asks(1, "tools/call", {"progressToken": TOKEN}, **params)))
        else:
            meta = {**META, CAPABILITIES: {}} if self.client == "modern" else {}
            out = self.d.client(request(1, "tools/call", **params, _meta={**meta, "progressToken": TOKEN}))
            (seen,) = sent([effect for effect in out if b"server/discover" not in getattr(effect, "line", b"")])
        return seen["id"]

    def answer(self, metadata: Any, **more: Any) -> list[Effect]:
        """The server answers the call."""
        done = {"resultType": "complete"} if self.server == "modern" else {}
        return self.raw(json.dumps({**done, "content": [], **more, "metadata": metadata}))

    def raw(self, result: str) -> list[Effect]:
        """The server answers the call with this result."""
        out: list[Effect] = self.d.server(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (self._id, result.encode()))
        return out

    @property
    def _id(self) -> bytes:
        return json.dumps(self.wire).encode()

    def done(self, effects: list[Effect], outcome: Outcome) -> list[Effect]:
        """The gate settles the question."""
        round = one(effects, Open).round
        out: list[Effect] = self.d.session.round_done(round.id, Settled({"": Release(outcome, "d")}), self.d.now)
        self.d.take(out)
        return out

    def got(self, effects: list[Effect]) -> Any:
        """What the client gets in the end, and the server gets nothing."""
        assert [] == [effect for effect in effects if isinstance(effect, ToServer)]
        line = one(effects, ToClient)
        assert line.last
        frame = json.loads(line.line)
        assert 1 == frame["id"]
        return frame.get("result", frame)

    def cancel(self) -> list[Effect]:
        """The client cancels the call."""
        line = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        out: list[Effect] = self.d.client(*([3] if isinstance(self.d, Streams) else []), line)
        return out


PAIRS: Final = [(client, server) for client in ("legacy", "modern") for server in ("legacy", "modern")]
both: Final = pytest.mark.parametrize(("client", "server"), PAIRS)
OUTCOMES: Final[list[tuple[Outcome, dict[str, Any]]]] = [
    (ACCEPTED, {"action": "accept", "content": {"color": "#3b82f6"}}),
    (Answered(b'{"action":"decline"}', "human"), {"action": "decline"}),
    (Answered(b'{"action":"accept","content":{}}', "policy"), {"action": "accept", "content": {}}),
    (Denied(Reason.RULE), {"action": "cancel"}),
    (Denied(Reason.RULE, "decline"), {"action": "decline"}),
    (Denied(Reason.NOT_OFFERED, "decline", code=-32602), {"action": "decline"}),
    (Unanswered(Reason.TIMEOUT), {"action": "cancel"}),
    (Unanswered(Reason.MALFORMED, code=-32602), {"action": "cancel"}),
]


@both
def test_the_question_is_a_request_of_the_call(client: str, server: str) -> None:
    talk = Talk(client, server)
    round: Round = one(talk.answer({"elicitation": QUESTION}), Open).round
    (item,) = round.items.values()
    assert ("tool_result", server, "elicitation/create", True) == (
        round.door,
        round.origin.era,
        item.method,
        item.offered,
    )
    assert not isinstance(item.request, BadRequest)
    assert {"mode": "form", **QUESTION} == item.request.params
    assert item.ui is not None
    assert ("ui://default/picker", "rich", {"theme": "light"}) == (item.ui.uri, item.ui.dialect, item.ui.context)
    assert ["pick"] == [call.tool for call in round.origin.calls]
    assert {"n": 1} == json.loads(round.arguments or b"")["arguments"]
    assert round.client.form, "a rule may forward the question, whatever the client declared"


@both
@pytest.mark.parametrize(("outcome", "said"), OUTCOMES)
def test_the_client_gets_the_answer_in_place_of_the_question(
    client: str, server: str, outcome: Outcome, said: dict[str, Any]
) -> None:
    talk = Talk(client, server)
    asked = talk.answer({"a": 1, "elicitation": QUESTION, "z": [2]}, structuredContent={"b": "x"})
    assert [] == to_client(asked)
    got = talk.got(talk.done(asked, outcome))
    assert {"a": 1, "z": [2], "elicitationResult": said} == got["metadata"]
    assert ([], {"b": "x"}) == (got["content"], got["structuredContent"])
    assert ("resultType" in got) == (client == "modern")
    assert [] == talk.d.session.open_calls()
    assert [] == talk.done(asked, outcome), "nothing is kept"


@both
def test_a_question_that_is_left_to_the_client_passes_as_received(client: str, server: str) -> None:
    talk = Talk(client, server)
    got = talk.got(talk.done(talk.answer({"elicitation": QUESTION}), Answered(b"{}", "client")))
    assert {"elicitation": QUESTION} == got["metadata"]


def test_every_other_byte_of_the_result_stays() -> None:
    talk = Talk("legacy", "legacy")
    asked = talk.raw(
        '{ "z":1e2,"metadata" : { "k": "\\u00e9" ,"elicitation":' + json.dumps(QUESTION) + ' }, "content":[ ] }'
    )
    (line,) = [effect.line for effect in talk.done(asked, Denied(Reason.RULE)) if isinstance(effect, ToClient)]
    given = b'{ "z":1e2,"metadata" : { "k": "\\u00e9","elicitationResult":{"action":"cancel"}}, "content":[ ] }'
    assert b'{"jsonrpc":"2.0","id":1,"result":' + given + b"}" == line


@both
@pytest.mark.parametrize(
    "policy", [{"servers": {"default": {"ui_results": "pass"}}}, {"servers": {"other": {"ui_results": "police"}}}]
)
def test_nothing_is_decided_unless_the_servers_results_are_policed(client: str, server: str, policy: Any) -> None:
    talk = Talk(client, server, **policy)
    assert {"elicitation": QUESTION} == talk.got(talk.answer({"elicitation": QUESTION}))["metadata"]


UNTOUCHED: Final[list[Any]] = [
    None,
    [QUESTION],
    "elicitation",
    {"elicitation": None},
    {"elicitationResult": None},
    {"inner": {"elicitation": QUESTION}},
]


@pytest.mark.parametrize("metadata", UNTOUCHED)
def test_a_result_without_a_question_passes(metadata: Any) -> None:
    talk = Talk("legacy", "legacy")
    assert metadata == talk.got(talk.answer(metadata))["metadata"]


def test_results_of_other_requests_pass() -> None:
    d = Dialogue(DENY, **POLICED)
    d.open_legacy()
    for method in ("prompts/get", "resources/read", "tools/list"):
        d.client(request(method, method, name="x", uri="a:b"))
        (passed,) = to_client(d.server(result(method, metadata={"elicitation": QUESTION})))
        assert {"elicitation": QUESTION} == passed["result"]["metadata"]


MALFORMED: Final[list[tuple[Any, str]]] = [
    ([QUESTION], "metadata.elicitation: must be an object"),
    ("ask", "metadata.elicitation: must be an object"),
    (False, "metadata.elicitation: must be an object"),
    ({"requestedSchema": SCHEMA}, "message: must be a string"),
    ({"message": "m"}, "requestedSchema: must be an object"),
    ({**QUESTION, "requestedSchema": "x"}, "requestedSchema: must be an object"),
    ({**QUESTION, "requestedSchema": {**SCHEMA, "Properties": {}}}, "requestedSchema"),
    ({**QUESTION, "Message": "m"}, "'Message' could be read as another member"),
    ({**QUESTION, "UI": UI}, "'UI' could be read as another member"),
    ({**QUESTION, "mode": "url", "url": "https://a.example/"}, "metadata.elicitation.mode: must be form"),
    ({**QUESTION, "mode": None}, "metadata.elicitation.mode: must be form"),
    ({**QUESTION, "x": 2**70}, "more than 64 bits"),
]


@pytest.mark.parametrize(("question", "fault"), MALFORMED)
def test_a_malformed_question_is_recorded_as_such_and_cancelled(question: Any, fault: str) -> None:
    talk = Talk("legacy", "legacy")
    asked = talk.answer({"elicitation": question})
    (item,) = one(asked, Open).round.items.values()
    assert isinstance(item.request, BadRequest)
    assert fault in item.request.message
    got = talk.got(talk.done(asked, Unanswered(Reason.MALFORMED, code=item.request.code)))
    assert {"elicitationResult": {"action": "cancel"}} == got["metadata"]


def test_a_question_with_a_duplicate_member_is_malformed() -> None:
    talk = Talk("legacy", "legacy")
    asked = talk.raw('{"metadata":{"elicitation":{"message":"a","message":"b","requestedSchema":{}}}}')
    (item,) = one(asked, Open).round.items.values()
    assert isinstance(item.request, BadRequest)


@pytest.mark.parametrize("beside", [{}, {"elicitation": QUESTION}])
def test_a_server_cannot_forge_the_answer(beside: Any) -> None:
    talk = Talk("legacy", "legacy")
    asked = talk.answer({"elicitationResult": {"action": "accept", "content": {"color": "red"}}, **beside})
    (item,) = one(asked, Open).round.items.values()
    assert isinstance(item.request, BadRequest)
    got = talk.got(talk.done(asked, Unanswered(Reason.MALFORMED, code=item.request.code)))
    assert {"elicitationResult": {"action": "cancel"}} == got["metadata"]


AMBIGUOUS: Final = [
    '{"Metadata":{"elicitation":%s}}',
    '{"meta_data":{}}',
    '{"\uff4detadata":{}}',
    '{"metadata\\u0000x":{}}',
    '{"metadata":{"Elicitation":%s}}',
    '{"metadata":{"elicitation":%s,"elicitation_result":{}}}',
    '{"metadata":{"elicitation":%s,"elicitation":{}}}',
    '{"metadata":{},"metadata":{"elicitation":%s}}',
    '{"metadata":{},"met\\u0061data":{"elicitation":%s}}',
]


@both
@pytest.mark.parametrize("spelled", AMBIGUOUS)
def test_a_result_with_two_readings_ends_the_call(client: str, server: str, spelled: str) -> None:
    talk = Talk(client, server)
    out = talk.raw(spelled.replace("%s", json.dumps(QUESTION)))
    assert "frame.refused" == one(out, Note).event
    assert -32603 == talk.got(out)["error"]["code"]
    assert [] == talk.d.session.open_calls()


def test_a_question_spelled_with_escapes_is_decided() -> None:
    talk = Talk("legacy", "legacy")
    asked = talk.raw('{"met\\u0061data":{"\\u0065licitation":' + json.dumps(QUESTION) + "}}")
    got = talk.got(talk.done(asked, Denied(Reason.RULE)))
    assert {"elicitationResult": {"action": "cancel"}} == got["metadata"]


@both
def test_a_cancelled_call_withdraws_the_question(client: str, server: str) -> None:
    talk = Talk(client, server)
    asked = talk.answer({"elicitation": QUESTION})
    out = talk.cancel()
    assert Withdraw(one(asked, Open).round.id) in out
    assert [] == [effect for effect in out if isinstance(effect, ToServer)], "the server has already answered"
    assert [] == talk.done(asked, ACCEPTED)


@pytest.mark.parametrize("server", ["legacy", "modern"])
def test_the_servers_stream_is_not_closed_for_a_call_that_it_has_answered(server: str) -> None:
    talk = Talk("modern", server)
    talk.d.session.state.streams = True
    asked = talk.answer({"elicitation": QUESTION})
    assert Withdraw(one(asked, Open).round.id) in (out := talk.cancel())
    assert [] == [effect for effect in out if isinstance(effect, ToServer | Close)]


@pytest.mark.parametrize("client", ["legacy", "modern"])
def test_a_closed_stream_cancels_in_the_modern_era_only(client: str) -> None:
    talk = Talk(client, client)
    asked = talk.answer({"elicitation": QUESTION})
    out = talk.d.session.stream_closed("client", 0)
    assert (client == "modern") == (Withdraw(one(asked, Open).round.id) in out)


@both
@pytest.mark.parametrize("side", ["client", "server"])
def test_the_end_of_a_side_withdraws_the_question(client: str, server: str, side: Any) -> None:
    talk = Talk(client, server)
    asked = talk.answer({"elicitation": QUESTION})
    assert Withdraw(one(asked, Open).round.id) in talk.d.session.eof(side)
    assert [] == talk.done(asked, ACCEPTED)


def test_a_question_that_the_gate_withdrew_ends_the_call_without_an_answer() -> None:
    talk = Talk("legacy", "legacy")
    assert [Over(0, 1)] == talk.done(talk.answer({"elicitation": QUESTION}), Withdrawn())


def test_a_fault_leaves_the_round_to_be_settled_in_another_way() -> None:
    talk = Talk("legacy", "legacy")
    asked = talk.answer({"elicitation": QUESTION})
    with pytest.raises(ValueError, match="not a JSON object"):
        talk.done(asked, Answered(b"[]", "human"))
    assert {"action": "cancel"} == talk.got(talk.done(asked, Unanswered(Reason.ERROR)))["metadata"]["elicitationResult"]


@both
def test_progress_keeps_the_waiting_client_alive(client: str, server: str) -> None:
    talk = Talk(client, server)
    round = one(talk.answer({"elicitation": QUESTION}), Open).round
    assert round.client_has_token
    (beat,) = to_client(talk.d.session.round_progress(round.id))
    assert ("notifications/progress", TOKEN) == (beat["method"], beat["params"]["progressToken"])


@both
def test_the_gate_reads_the_ui_from_the_server_of_the_result(client: str, server: str) -> None:
    talk = Talk(client, server)
    round = one(talk.answer({"elicitation": QUESTION}), Open).round
    (read,) = sent(talk.d.session.read_resource("t1", round.id, UI["uri"], 0.0))
    assert ("resources/read", UI["uri"]) == (read["method"], read["params"]["uri"])
    assert (server == "modern") == ("_meta" in read["params"])
    out = talk.d.server(result(read["id"], contents=[], **({"resultType": "complete"} if server == "modern" else {})))
    assert "t1" == one(out, ResourceRead).token


PART: Final = {"uri": UI["uri"], "mimeType": "text/html;profile=mcp-app", "text": "<p>"}


@both
def test_a_ui_in_the_result_itself_is_not_read_again(client: str, server: str) -> None:
    """As servers of mcp-ui write it."""
    talk = Talk(client, server)
    parts = [{"type": "text", "text": "x"}, {"type": "resource", "resource": PART}]
    round = one(talk.answer({"elicitation": QUESTION}, content=parts), Open).round
    read = one(talk.d.session.read_resource("t1", round.id, UI["uri"], 0.0), ResourceRead)
    assert read.result is not None
    assert ("t1", b"<p>", "") == (read.token, ui_in(read.result, "ui://default/picker").body, read.fault)


@pytest.mark.parametrize(
    "content",
    [
        None,
        5,
        [5],
        [],
        [{"type": "resource"}],
        [{"type": "resource", "resource": 5}],
        [{"type": "resource", "resource": {**PART, "uri": "ui://default/other"}}],
        [{"type": "resource", "resource": PART}] * 2,
        [{"type": "text", "text": "x"}] * 65,
    ],
    ids=lambda content: str(content)[:40],
)
def test_a_result_without_exactly_one_such_resource_leaves_the_read_to_the_server(content: Any) -> None:
    talk = Talk("legacy", "legacy")
    round = one(talk.answer({"elicitation": QUESTION}, content=content), Open).round
    (read,) = sent(talk.d.session.read_resource("t1", round.id, UI["uri"], 0.0))
    assert "resources/read" == read["method"]


def test_a_result_that_is_too_large_to_be_kept_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_results, "MAX_RESULT", 2000)
    talk = Talk("legacy", "legacy")
    out = talk.answer({"elicitation": QUESTION}, text="x" * 2000)
    assert "call.failed" == one(out, Note).event
    assert tool_results.TOO_LARGE == talk.got(out)["error"]["message"]
    assert 0 == talk.d.session.state.held
    talk = Talk("legacy", "legacy")
    assert 2000 == len(talk.got(talk.answer({}, text="x" * 2000))["text"]), "there is nothing to keep"


@both
def test_what_is_kept_counts_until_the_question_is_settled(client: str, server: str) -> None:
    talk = Talk(client, server)
    before = talk.d.session.state.held
    asked = talk.answer({"elicitation": QUESTION}, text="x" * 10_000)
    assert 20_000 < talk.d.session.state.held - before < 30_000
    talk.done(asked, ACCEPTED)
    assert 0 == talk.d.session.state.held


def test_the_final_result_after_an_input_round_is_decided_too() -> None:
    d = Dialogue(DENY, **POLICED)
    d.client(modern(1, "tools/call", name="x"))
    form = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": SCHEMA}}
    (retry,) = sent(d.settle(d.server(result(1, resultType="input_required", inputRequests={"k": form}))))
    assert "tool_result" == one(d.server(result(retry["id"], metadata={"elicitation": QUESTION})), Open).round.door


def test_a_second_answer_of_the_server_changes_nothing() -> None:
    talk = Talk("legacy", "legacy")
    asked = talk.answer({"elicitation": QUESTION})
    assert [Note("frame.unasked", {"side": "server"})] == talk.answer({"other": 1})
    assert {"elicitationResult": {"action": "cancel"}} == talk.got(talk.done(asked, Denied(Reason.RULE)))["metadata"]


class TestTasks:
    """The result of a task can be read again and again, so that a question in it is cancelled without a decision."""

    ENDS: Final = ["poll", "notification", "legacy"]

    def end(self, way: str, policy: dict[str, Any], **told: Any) -> tuple[list[Effect], Any]:
        """A task ends with this result. Returns the effects and the result that the client sees."""
        if way == "legacy":
            legacy = Dialogue(DENY, **policy)
            legacy.open_legacy()
            legacy.client(request(1, "tasks/result", taskId="t1"))
            out = legacy.server(result(1, content=[], **told))
            return out, to_client(out)[0].get("result")
        d = TaskDialogue(DENY, **policy)
        d.create()
        ended = {"resultType": "complete", "content": [], **told}
        if way == "poll":
            out = d.poll(status="completed", result=ended)
        else:
            d.client(modern(9, "subscriptions/listen", ALL, notifications={"taskIds": ["task-1"]}))
            out = d.server(
                notified(
                    **task("task-1", "completed", result=ended), _meta={"io.modelcontextprotocol/subscriptionId": 9}
                )
            )
        (frame,) = to_client(out)
        return out, frame.get("params", frame.get("result", {})).get("result")

    @pytest.mark.parametrize("way", ENDS)
    @pytest.mark.parametrize("member", ["elicitation", "elicitationResult"])
    def test_a_question_is_cancelled_and_noted(self, way: str, member: str) -> None:
        out, seen = self.end(way, POLICED, metadata={"kept": 1, member: QUESTION}, structuredContent={"b": 2})
        assert ({"kept": 1, "elicitationResult": {"action": "cancel"}}, {"b": 2}) == (
            seen["metadata"], seen["structuredContent"],
        )  # fmt: skip
        assert ["question.refused"] == [effect.event for effect in out if isinstance(effect, Note)]
        assert [] == [effect for effect in out if isinstance(effect, Open)]

    @pytest.mark.parametrize("way", ENDS)
    @pytest.mark.parametrize(
        ("policy", "metadata"), [(POLICED, {"a": 1}), ({}, {"elicitation": QUESTION}), (POLICED, None)]
    )
    def test_every_other_result_passes(self, way: str, policy: dict[str, Any], metadata: Any) -> None:
        out, seen = self.end(way, policy, metadata=metadata)
        assert metadata == seen["metadata"]
        assert [] == [effect for effect in out if isinstance(effect, Note)]

    @pytest.mark.parametrize("way", ["poll", "legacy"])
    def test_a_result_with_two_readings_ends_the_call(self, way: str) -> None:
        _, seen = self.end(way, POLICED, Metadata={"elicitation": QUESTION})
        assert seen is None

    def test_a_result_cannot_pose_as_the_account_of_a_task(self) -> None:
        _, seen = self.end("legacy", POLICED, taskId="t1", result={}, metadata={"elicitation": QUESTION})
        assert {"elicitationResult": {"action": "cancel"}} == seen["metadata"]
