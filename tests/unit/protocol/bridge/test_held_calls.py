"""Calls of modern clients that a legacy server holds open: they become tasks of the gate while a reviewer decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.own_tasks import HOLD
from samplegate.protocol.rounds import Effect, Later, Open, TaskStep, Withdraw
from samplegate.protocol.task_state import CLAIM
from samplegate.tasks.store import carry_out
from tests.fakes.dialogue import FORWARD, ask, form, modern, one, request, result, to_client
from tests.fakes.streams import CAPABILITIES, Streams, asks, bridge, heard, sent
from tests.fakes.task_dialogue import ALL, EXTENSION, Rows, TaskDialogue

ESCALATE: dict[str, Any] = {"name": "people", "effect": "escalate", "reviewer": "ops"}
NONCE = bytes(range(12))


class Held:
    """A bridge with a store of tasks. Streams 3 and 4 are those of two calls, others those of polls."""

    def __init__(self, **policy: Any) -> None:
        self.d: Streams = bridge(ESCALATE, FORWARD, reviewers={"ops": {}}, **policy)
        self.d.state.tasks = True
        self.rows = Rows()

    def run(self, effects: list[Effect]) -> list[Effect]:
        """Carry out the steps among these effects, and what follows."""
        out: list[Effect] = [effect for effect in effects if not isinstance(effect, TaskStep)]
        for step in effects:
            if isinstance(step, TaskStep):
                assert step.own
                try:
                    found: Any = carry_out(self.rows, "s", step, 100)
                except Unavailable as problem:
                    found = str(problem)
                out += self.run(self.d.take(self.d.session.task_stepped(step.token, found)))
        return out

    def call(self, stream: int = 3, capabilities: Any = ALL) -> Any:
        """A client calls a tool; returns the id that the server sees."""
        (seen,) = sent(self.d.client(stream, asks(1, "tools/call", {CAPABILITIES: capabilities}, name="x")))
        return seen["id"]

    def pushed(self) -> list[Effect]:
        return self.d.server(request(50, "elicitation/create", **form()))

    def waits(self, pushed: list[Effect]) -> list[Effect]:
        """The gate says that the round waits for a reviewer, and ``HOLD`` passes."""
        later = one(self.d.session.wait_long(one(pushed, Open).round.id, NONCE), Later)
        assert HOLD == later.delay
        return self.run(self.d.session.due(later.token))

    def ask(self, method: str, id: str, stream: int = 9) -> dict[str, Any]:
        line = asks(7, method, {CAPABILITIES: ALL}, taskId=id)
        out = self.run(self.d.client(stream, line))
        (found,) = [answer for at, answer, _ in heard(out) if at == stream]
        return dict(found.get("result", found))


def test_a_task_lives_as_long_as_its_call_waits() -> None:
    h = Held()
    h.call()
    out = h.waits(h.pushed())
    (task,) = created(out).values()
    for passed in (task["ttlMs"] / 1000 - 1_800, 3_000, 3_000):
        h.rows.wall += passed
        out = h.run(h.d.session.due(one(out, Later).token))
    assert "working" == h.ask("tasks/get", task["taskId"])["status"]


def created(effects: list[Effect]) -> dict[int, dict[str, Any]]:
    """The tasks that were created, by the stream of their call."""
    return {stream: line["result"] for stream, line, _ in heard(effects) if line["result"]["resultType"] == "task"}


def test_a_call_that_waits_becomes_a_task_with_the_servers_result() -> None:
    h = Held()
    wire = h.call()
    pushed = h.pushed()
    assert one(pushed, Open).round.detaches
    (task,) = created(h.waits(pushed)).values()
    assert "working" == h.ask("tasks/get", task["taskId"])["status"]
    assert [] == h.d.session.stream_closed("client", 3), "the call's stream is no longer the client's"
    (answer,) = sent(h.d.settle(pushed))
    assert (50, "accept") == (answer["id"], answer["result"]["action"])
    out = h.run(h.d.server(result(wire, content=[{"type": "text", "text": "done"}])))
    assert [] == heard(out)
    ended = h.ask("tasks/get", task["taskId"])
    assert ("completed", "complete") == (ended["status"], ended["result"]["resultType"])
    assert "done" == ended["result"]["content"][0]["text"]


def test_a_question_in_the_result_of_a_call_that_became_a_task_is_decided_before_the_task_completes() -> None:
    h = Held(servers={"default": {"ui_results": "police"}})
    wire = h.call()
    pushed = h.pushed()
    (task,) = created(h.waits(pushed)).values()
    h.d.settle(pushed)
    asked = h.d.server(result(wire, content=[], metadata={"elicitation": form()}))
    assert one(asked, Open).round.called is None, "nobody waits on the line"
    assert "working" == h.ask("tasks/get", task["taskId"])["status"]
    assert [] == heard(h.run(h.d.settle(asked)))
    ended = h.ask("tasks/get", task["taskId"])
    assert ("completed", "accept") == (ended["status"], ended["result"]["metadata"]["elicitationResult"]["action"])


def test_a_decision_in_time_answers_the_call_itself() -> None:
    h = Held()
    wire = h.call()
    pushed = h.pushed()
    later = one(h.d.session.wait_long(one(pushed, Open).round.id, NONCE), Later)
    h.d.settle(pushed)
    assert [] == h.run(h.d.session.due(later.token))
    assert [3] == [stream for stream, _, _ in heard(h.d.server(result(wire, content=[])))]


@pytest.mark.parametrize(("rule", "offered"), [(ESCALATE, EXTENSION), (FORWARD, None)])
def test_a_client_learns_that_there_are_tasks_whatever_it_declares_itself(rule: dict[str, Any], offered: Any) -> None:
    """Some declare tasks only in their calls, and only to a server that has them."""
    d = bridge(rule, reviewers={"ops": {}})
    d.state.tasks = True
    ((_, found, _),) = heard(d.client(9, asks(7, "server/discover", {CAPABILITIES: {"elicitation": {}}})))
    assert offered == found["result"]["capabilities"].get("extensions")


def test_a_client_without_the_extension_waits() -> None:
    h = Held()
    h.call(capabilities={"elicitation": {}})
    pushed = h.pushed()
    assert not one(pushed, Open).round.detaches
    assert {} == created(h.waits(pushed))


def test_every_call_that_may_be_the_one_becomes_a_task() -> None:
    h = Held()
    h.call(3)
    h.call(4)
    tasks = created(h.waits(h.pushed()))
    assert [3, 4] == sorted(tasks)
    assert tasks[3]["taskId"] != tasks[4]["taskId"]


def test_an_answer_while_the_task_is_stored_answers_the_call() -> None:
    h = Held()
    wire = h.call()
    pushed = h.pushed()
    later = one(h.d.session.wait_long(one(pushed, Open).round.id, NONCE), Later)
    steps = h.d.session.due(later.token)
    assert [3] == [stream for stream, _, _ in heard(h.d.server(result(wire, content=[])))]
    assert [] == heard(h.run(steps)), "only one answer"
    assert all(expires <= h.rows.wall for _, expires in h.rows.rows.values()), "nobody knows the task"


def test_a_store_that_fails_lets_the_client_wait() -> None:
    h = Held()
    wire = h.call()
    h.rows.fault = "tasks: disk full"
    assert [] == heard(h.waits(h.pushed()))
    h.rows.fault = ""
    assert [3] == [stream for stream, _, _ in heard(h.d.server(result(wire, content=[])))]


def test_a_cancelled_task_cancels_the_call_and_its_request() -> None:
    h = Held()
    wire = h.call()
    pushed = h.pushed()
    (task,) = created(h.waits(pushed)).values()
    line = asks(7, "tasks/cancel", {CAPABILITIES: ALL}, taskId=task["taskId"])
    out = h.run(h.d.client(9, line))
    assert [one(pushed, Open).round.id] == [effect.round for effect in out if isinstance(effect, Withdraw)]
    cancelled = [frame for frame in sent(out) if frame["method"] == "notifications/cancelled"]
    assert [wire] == [frame["params"]["requestId"] for frame in cancelled]
    assert "cancelled" == h.ask("tasks/get", task["taskId"])["status"]


def test_a_server_that_ends_fails_the_task() -> None:
    h = Held()
    h.call()
    (task,) = created(h.waits(h.pushed())).values()
    h.d.state.outlived = True
    h.run(h.d.session.eof("server"))
    record = json.loads(next(iter(h.rows.rows.values()))[0])
    assert "failed" == json.loads(record["ended"])["status"]
    assert task["taskId"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_other_tasks_do_not_exist(method: str) -> None:
    h = Held()
    assert -32602 == h.ask(method, "another")["error"]["code"]


def test_nothing_is_left_after_a_task() -> None:
    h = Held()
    wire = h.call()
    pushed = h.pushed()
    h.waits(pushed)
    h.d.settle(pushed)
    h.run(h.d.server(result(wire, content=[])))
    session: Any = h.d.session
    own, inflight = session._inner.exchange.own, h.d.state.inflight
    assert not any((inflight.asked, inflight.size, own._running, own._steps, session._translator.asked))


def test_two_requests_in_one_call_make_one_task() -> None:
    h = Held()
    wire = h.call()
    pushed = [h.pushed(), h.d.server(request(51, "elicitation/create", **form()))]
    nonces = [NONCE, NONCE[::-1]]
    laters = [
        one(h.d.session.wait_long(one(p, Open).round.id, nonce), Later) for p, nonce in zip(pushed, nonces, strict=True)
    ]
    steps = [effect for later in laters for effect in h.d.session.due(later.token)]
    (task,) = created(h.run(steps)).values()
    assert "working" == h.ask("tasks/get", task["taskId"])["status"]
    for p in pushed:
        h.d.settle(p)
    assert [] == heard(h.run(h.d.server(result(wire, content=[]))))
    assert "completed" == h.ask("tasks/get", task["taskId"])["status"]


def test_a_task_of_a_modern_server_is_not_carried_on_by_a_legacy_one() -> None:
    before = TaskDialogue(ESCALATE, FORWARD, token="old")
    before.client(modern(1, "tools/call", ALL, name="x"))
    first = before.server(result(1, resultType="input_required", inputRequests={"k": ask(form())}))
    (task,) = [frame["result"] for frame in to_client(before.hand_on(first))]
    h = Held()
    h.d.state.server, h.rows, before.rows.wall = "default", before.rows, before.rows.wall + CLAIM
    h.call()
    out = h.run(h.d.client(9, asks(7, "tasks/get", {CAPABILITIES: ALL}, taskId=task["taskId"])))
    assert [] == [effect for effect in out if isinstance(effect, Open)]
    assert "failed" == h.ask("tasks/get", task["taskId"])["status"]


def test_an_error_with_urls_that_is_being_decided_answers_the_call() -> None:
    h = Held()
    wire = h.call()
    pushed = h.pushed()
    later = one(h.d.session.wait_long(one(pushed, Open).round.id, NONCE), Later)
    link = {"mode": "url", "elicitationId": "e", "url": "https://example.com/", "message": "open"}
    error = {"code": -32042, "message": "open it", "data": {"elicitations": [link]}}
    out = h.d.server({"jsonrpc": "2.0", "id": wire, "error": error})
    assert "url_error" == one(out, Open).round.door
    assert {} == created(h.run(h.d.session.due(later.token)))
    assert [3] == [stream for stream, _, _ in heard(h.d.settle(out))]


def test_a_machine_that_slept_still_holds_its_call() -> None:
    h = Held()
    h.call()
    (task,) = created(h.waits(h.pushed())).values()
    h.rows.wall += 2 * CLAIM
    assert "working" == h.ask("tasks/get", task["taskId"])["status"]
