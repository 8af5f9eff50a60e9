"""The scripted server with tasks by itself, over stdio and HTTP: what each of its tools does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.scripted_tasks import KINDS, Reached, keys, reached
from tests.fakes.task_client import ACCEPT, HttpTaskClient, StdioTaskClient


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The transport to the server."""
    return str(request.param)


@pytest.fixture
def direct(kind: str, tmp_path: Path) -> Iterator[Reached]:
    """The server without a gate."""
    with reached(kind, "direct", tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("tool", "arguments", "asked"),
    [
        ("asks", {}, [["k1"]]),
        ("asks_both", {}, [["k1", "k2"]]),
        ("asks_many", {"count": 4}, [["k0", "k1", "k2", "k3"]]),
        ("asks_again", {}, [["k1"], ["k2"]]),
        ("completed", {}, []),
        ("notifies", {}, [["k1"]]),
    ],
)
def test_a_task_of_the_server_ends_once_all_is_answered(
    direct: Reached, tool: str, arguments: dict[str, Any], asked: list[list[str]]
) -> None:
    client = direct.client
    task = client.create(tool, **arguments)
    for expected in asked:
        assert expected == keys(client.until(task, "input_required"))
        assert {"resultType": "complete"} == client.update(task, **dict.fromkeys(expected, ACCEPT))["result"]
    view = client.until(task)
    assert ["complete", "completed"] == [view["resultType"], view["status"]]
    answers = dict.fromkeys([key for each in asked for key in each], ACCEPT)
    assert answers == json.loads(view["result"]["content"][0]["text"])
    assert Counter(answers.keys()) == direct.answered()


@pytest.mark.parametrize(
    ("tool", "polled"),
    [
        ("renames", [["k1"], ["k2"], ["k3"]]),
        ("repeats", [["k1"], ["k1"], ["k1"]]),
        ("unanswered", [["k1"], ["k2"], ["k3"]]),
    ],
)
def test_a_task_of_the_server_asks_without_end(direct: Reached, tool: str, polled: list[list[str]]) -> None:
    task = direct.client.create(tool)
    for expected in polled:
        view = direct.client.until(task, "input_required")
        assert expected == keys(view)
        direct.client.update(task, **dict.fromkeys(expected, ACCEPT))


def test_the_server_changes_a_question_under_its_key(direct: Reached) -> None:
    task = direct.client.create("changes")
    asked = [direct.client.get(task)["result"]["inputRequests"]["k1"]["params"]["message"] for _ in range(2)]
    assert ["sure 1?", "sure 2?"] == asked


@pytest.mark.parametrize(
    ("tool", "status"), [("failed", "failed"), ("cancelled", "cancelled"), ("never", "working"), ("forgets", None)]
)
def test_a_task_of_the_server_has_the_end_of_its_name(direct: Reached, tool: str, status: str | None) -> None:
    reply = direct.client.get(direct.client.create(tool))
    assert status == reply.get("result", {}).get("status")
    assert (status is None) == (reply.get("error", {}).get("code") == -32602)


@pytest.mark.parametrize(("tool", "status"), [("asks", "cancelled"), ("never", "working")])
def test_the_server_cancels_a_task_that_lets_itself_be_cancelled(direct: Reached, tool: str, status: str) -> None:
    task = direct.client.create(tool)
    assert {"resultType": "complete"} == direct.client.cancel(task)["result"]
    assert status == direct.client.get(task)["result"]["status"]


def test_the_server_tells_of_a_task_that_is_subscribed_to(direct: Reached) -> None:
    client = direct.client
    task = client.create("notifies")
    client.listen(task)
    client.heard(lambda told: bool(told) and told[-1].get("params", {}).get("status") == "input_required")
    client.update(task, k1=ACCEPT)
    told = client.heard(lambda told: told[-1].get("params", {}).get("status") == "completed")
    assert "notifications/subscriptions/acknowledged" in [frame["method"] for frame in told]


def test_the_server_floods_with_tasks_on_stdio(tmp_path: Path) -> None:
    with reached("stdio", "direct", tmp_path) as found:
        client = found.client
        assert isinstance(client, StdioTaskClient)
        client.create("floods", count=50)
        client.get("none")  # the messages before are read by now
        assert 49 == len({frame["result"]["taskId"] for frame in client.extra})


def test_the_server_refuses_requests_that_do_not_declare_tasks(direct: Reached) -> None:
    task = direct.client.create("asks")
    for method, params in (
        ("tasks/get", {"taskId": task}),
        ("subscriptions/listen", {"notifications": {"taskIds": []}}),
    ):
        refused = direct.client.request(method, params, declare=False)["error"]
        assert [-32021, {"io.modelcontextprotocol/tasks": {}}] == [
            refused["code"],
            refused["data"]["requiredCapabilities"]["extensions"],
        ]
    assert -32601 == direct.client.request("tasks/list", {})["error"]["code"]


def test_the_server_logs_the_header_that_names_a_task(tmp_path: Path) -> None:
    with reached("http", "direct", tmp_path) as found:
        assert isinstance(found.client, HttpTaskClient)
        task = found.client.create("asks")
        found.client.get(task)
        assert [task] == [frame["headers"]["mcp-name"] for frame in found.received("tasks/get")]
