"""Tasks of a scripted server through a real gate: what reaches the client and the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from time import sleep
from typing import Any, Final, TypeAlias

import pytest

from tests.fakes.scripted_tasks import ANSWERS, FORWARDS, Reached, keys, reached
from tests.fakes.task_client import ACCEPT, Frame

WAYS: Final = (("run", "stdio"), ("serve", "http"))
Reach: TypeAlias = Callable[[str], Reached]
UNABLE: Final[Frame] = {}
"""The capabilities of a client that can be asked nothing."""


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def gates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    """Reaches the server through the one gate with the policy that it is given."""
    through, kind = request.param
    with ExitStack() as started:

        @cache
        def reach(policy: str) -> Reached:
            return started.enter_context(reached(kind, through, tmp_path_factory.mktemp(through), policy))

        yield reach


@pytest.fixture
def reach(gates: Reach) -> Reach:
    """The same, with nothing received so far. What other tests left at the server are other tasks."""
    return lambda policy: gates(policy).anew()


def created(at: Reached, tool: str, **arguments: Any) -> str:
    reply = at.client.request("tools/call", {"name": tool, "arguments": arguments}, capabilities=UNABLE)
    assert "task" == reply.get("result", {}).get("resultType"), reply
    return str(reply["result"]["taskId"])


def polled(at: Reached, task: str, times: int = 150) -> list[Frame]:
    """The views of a task, up to its end."""
    views: list[Frame] = []
    while len(views) < times and (not views or views[-1].get("status") in ("working", "input_required")):
        reply = at.client.request("tasks/get", {"taskId": task}, capabilities=UNABLE)
        views.append(reply.get("result") or reply)
        sleep(0.005)
    return views


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("asks", {}, ["k1"]),
        ("asks_both", {}, ["k1", "k2"]),
        ("asks_many", {"count": 4}, ["k0", "k1", "k2", "k3"]),
        ("asks_again", {}, ["k1", "k2"]),
    ],
)
def test_the_gate_answers_each_key_once_and_the_client_sees_none(
    reach: Reach, tool: str, arguments: dict[str, Any], expected: list[str]
) -> None:
    at = reach(ANSWERS)
    task = created(at, tool, **arguments)
    views = polled(at, task)
    assert [[]] * len(views) == [keys(view) for view in views]
    assert "completed" == views[-1]["status"]
    assert expected == sorted(json.loads(views[-1]["result"]["content"][0]["text"]))
    assert dict.fromkeys(expected, 1) == dict(at.answered())
    assert {task} == {frame["params"]["taskId"] for frame in at.received("tasks/update")}
    headers = [frame["headers"]["mcp-name"] for frame in at.received("tasks/get") if "headers" in frame]
    assert {task} >= set(headers)


def test_a_clients_answer_reaches_the_server_once_and_only_for_a_key_that_it_was_shown(reach: Reach) -> None:
    at = reach(FORWARDS)
    task = at.client.create("asks")
    assert ["k1"] == keys(at.client.until(task, "input_required"))
    for _ in range(2):
        assert "complete" == at.client.update(task, k1=ACCEPT, k2=ACCEPT)["result"]["resultType"]
    assert "completed" == at.client.until(task)["status"]
    assert {"k1": 1} == dict(at.answered())


@pytest.mark.parametrize("tool", ["renames", "repeats", "changes", "unanswered"])
def test_a_server_that_asks_without_end_gets_one_answer_for_a_key_and_shows_the_client_none(
    reach: Reach, tool: str
) -> None:
    at = reach(ANSWERS)
    views = polled(at, created(at, tool), times=40)
    assert [[]] * len(views) == [keys(view) for view in views]
    assert {1} >= set(at.answered().values())
    assert "completed" == polled(at, created(at, "asks"))[-1]["status"]  # the gate goes on


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_the_end_of_a_task_reaches_the_client(reach: Reach, status: str) -> None:
    at = reach(FORWARDS)
    view = at.client.until(at.client.create(status))
    assert ["complete", status] == [view["resultType"], view["status"]]
    assert ("error" in view, "result" in view) == (status == "failed", status == "completed")


def test_a_task_that_never_ends_stays_as_it_is_after_a_cancellation(reach: Reach) -> None:
    at = reach(FORWARDS)
    task = at.client.create("never")
    assert "complete" == at.client.cancel(task)["result"]["resultType"]
    assert 1 == len(at.received("tasks/cancel"))
    assert at.client.get(task)["result"]["status"] in ("working", "cancelled")


def test_a_view_of_another_task_does_not_reach_the_client_under_its_own_name(reach: Reach) -> None:
    at = reach(FORWARDS)
    task = at.client.create("foreign")
    reply = at.client.get(task)
    assert "error" in reply or task == reply["result"]["taskId"]


def test_a_task_that_the_server_forgot_or_never_had_is_unknown(reach: Reach) -> None:
    at = reach(FORWARDS)
    assert [-32602, -32602] == [at.client.get(task)["error"]["code"] for task in (at.client.create("forgets"), "none")]


def test_a_flood_of_tasks_for_one_call_leaves_the_client_with_one(reach: Reach) -> None:
    at = reach(FORWARDS)
    at.client.create("floods", count=200)
    assert "completed" == at.client.until(at.client.create("completed"))["status"]
    assert [] == getattr(at.client, "extra", [])


def test_a_call_that_asks_first_becomes_a_task_in_its_final_round(reach: Reach) -> None:
    at = reach(FORWARDS)
    first = at.client.call("round")["result"]
    assert ["input_required", ["k1"]] == [first["resultType"], keys(first)]
    again = {
        "name": "round",
        "arguments": {},
        "inputResponses": {"k1": ACCEPT},
        "requestState": first.get("requestState"),
    }
    task = at.client.request("tools/call", again)["result"]
    assert "task" == task["resultType"]
    assert "completed" == at.client.until(task["taskId"])["status"]


def test_notifications_of_a_subscribed_task_show_no_key_that_the_gate_answers(reach: Reach) -> None:
    at = reach(ANSWERS)
    task = created(at, "notifies")
    at.client.listen(task)
    told = at.client.heard(lambda told: any(frame.get("params", {}).get("status") == "completed" for frame in told))
    assert "notifications/subscriptions/acknowledged" in [frame["method"] for frame in told]
    assert [[]] * len(told) == [keys(frame.get("params", {})) for frame in told]
    assert {"k1": 1} == dict(at.answered())


def test_notifications_that_were_not_subscribed_to_do_not_reach_the_client(reach: Reach) -> None:
    at = reach(FORWARDS)
    task = at.client.create("notifies")
    assert ["k1"] == keys(at.client.until(task, "input_required"))
    at.client.update(task, k1=ACCEPT)
    assert "completed" == at.client.until(task)["status"]
    assert [] == [frame for frame in at.client.told if frame["method"].startswith("notifications/tasks")]


@pytest.mark.parametrize("tool", ["deaf", "refuses"])
def test_a_server_that_does_not_acknowledge_an_answer_gets_it_a_bounded_number_of_times(
    reach: Reach, tool: str
) -> None:
    at = reach(ANSWERS)
    task = created(at, tool)
    views = polled(at, task, times=30)
    while "k1" not in at.answered():  # ends by the time limit of the test
        views += polled(at, task, times=1)
    assert [[]] * len(views) == [keys(view) for view in views]
    assert at.answered()["k1"] <= len(views)
