"""Requests in tasks of 2025-11-25: they belong to the call that created the task, in rules, limits and records."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.protocol import legacy_tasks
from samplegate.protocol.rounds import Effect, Open, Round
from tests.fakes.dialogue import ALLOW, DENY, Dialogue, form, one, request, result, sample

RELATED = "io.modelcontextprotocol/related-task"


def opened(*rules: Any) -> Dialogue:
    d = Dialogue(*(rules or (ALLOW,)))
    d.open_legacy(sampling={}, elicitation={})
    return d


def create(d: Dialogue, id: str = "t1", call: int = 1, tool: str = "pay", *, ttl: Any = None, **params: Any) -> None:
    asked = {"task": {"ttl": 60_000}, **params}
    d.client(request(call, "tools/call", name=tool, arguments={"n": call}, **asked))
    d.server(result(call, task={"taskId": id, "status": "working", "ttl": ttl}))


def push(d: Dialogue, task: Any = "t1", id: int = 50, **more: Any) -> Round:
    out = d.server(request(id, "sampling/createMessage", **sample(), _meta={RELATED: {"taskId": task}}, **more))
    return one(out, Open).round


def tools(round: Round) -> list[str | None]:
    return [call.tool for call in round.origin.calls]


def test_a_request_in_a_task_belongs_to_the_call_that_created_it() -> None:
    d = opened()
    create(d)
    round = push(d)
    assert ["pay"] == tools(round)
    assert b'"arguments":{"n":1}' in (round.arguments or b"")
    assert ((round.arguments,),) == round.origin.params


def test_a_deny_on_the_tool_matches_the_tasks_requests() -> None:
    never = {"name": "no-pay", "match": {"tool": "pay"}, "effect": "deny"}
    d = opened(never, ALLOW)
    create(d)
    out = d.server(request(50, "sampling/createMessage", **sample(), _meta={RELATED: {"taskId": "t1"}}))
    assert ["no-pay"] == [decision.rule for decision in d.decide(out).values()]


def test_limits_per_call_go_on() -> None:
    d = opened()
    d.client(request(1, "tools/call", name="pay", arguments={"n": 1}, task={}))
    before = one(d.server(request(49, "sampling/createMessage", **sample())), Open).round
    d.server(result(1, task={"taskId": "t1", "status": "working"}))
    assert before.call_ids == push(d).call_ids


def test_calls_in_flight_remain_candidates_because_the_server_chooses_what_it_names() -> None:
    d = opened()
    create(d)
    d.client(request(2, "tools/call", name="read", arguments={}))
    round = push(d)
    assert ["read", "pay"] == tools(round)
    assert round.arguments is None


@pytest.mark.parametrize("task", ["t2", None, 1, {"taskId": "t1"}])
def test_a_task_that_is_not_known_attributes_nothing(task: Any) -> None:
    d = opened()
    create(d)
    assert [] == tools(push(d, task))


def test_a_result_without_a_task_in_its_call_creates_none() -> None:
    d = opened()
    d.client(request(1, "tools/call", name="pay", arguments={}))
    d.server(result(1, task={"taskId": "t1", "status": "working"}))
    assert [] == tools(push(d))


def ended_by_get(d: Dialogue) -> list[Effect]:
    d.client(request(7, "tasks/get", taskId="t1"))
    return d.server(result(7, taskId="t1", status="completed"))


def ended_by_notification(d: Dialogue) -> list[Effect]:
    params = {"taskId": "t1", "status": "cancelled"}
    return d.server({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params})


def ended_by_its_ttl(d: Dialogue) -> list[Effect]:
    d.now += 61
    return []


@pytest.mark.parametrize("end", [ended_by_get, ended_by_notification, ended_by_its_ttl])
def test_a_task_that_has_ended_attributes_nothing(end: Any) -> None:
    d = opened()
    create(d, ttl=60_000)
    end(d)
    assert [] == tools(push(d))


def test_the_oldest_tasks_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_tasks, "MAX_TASKS", 2)
    d = opened()
    for number in range(3):
        create(d, f"t{number}", call=number + 1, tool=f"tool{number}")
    assert [[], ["tool1"], ["tool2"]] == [tools(push(d, f"t{number}", id=60 + number)) for number in range(3)]


def test_another_call_with_the_same_id_replaces_the_task() -> None:
    d = opened()
    create(d)
    create(d, call=2, tool="other")
    assert ["other"] == tools(push(d))


def test_forms_in_tasks_too() -> None:
    d = opened(DENY)
    create(d)
    out = d.server(request(51, "elicitation/create", **form(), _meta={RELATED: {"taskId": "t1"}}))
    assert ["pay"] == tools(one(out, Open).round)
