"""Tasks between real clients and servers, with the gate between them except where a test says ``direct``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.acceptance.sdk import peers
from tests.acceptance.sdk.peers import POLICIES, Drive, Gate, Server, call
from tests.acceptance.sdk.task_peers import (
    ACCEPTED,
    CASES,
    CLIENT_NAMES,
    DIRECT,
    FORM,
    GATES,
    SAMPLED,
    SAMPLING,
    SERVER_NAMES,
    client,
    served,
)

BOTH = [FORM, SAMPLING]


At = Callable[[str, str], Server]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    """Where a client reaches a server, by the server's name and what is between. What serves HTTP is started once."""
    with ExitStack() as started:

        @cache
        def at(server: str, through: str) -> Server:
            gate = Gate(POLICIES / "forwards.yaml", tmp_path_factory.mktemp(through) / "decisions.jsonl")
            return started.enter_context(served(server, through, gate))

        yield at


@pytest.mark.parametrize("through", [DIRECT, *GATES])
@pytest.mark.parametrize("server", SERVER_NAMES)
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_call_that_becomes_a_task_ends_with_the_tools_result(
    *, name: str, server: str, through: str, at: At, drive: Drive
) -> None:
    cases = [case for case in CASES if case.server == server]
    seen = drive(client(name), at(server, through), None, [case.step for case in cases], declare=BOTH)
    assert [{"error": case.error, "text": case.text} for case in cases] == seen.results
    assert sorted(kind for case in cases for kind in case.asked) == seen.kinds()


@pytest.mark.parametrize("through", [DIRECT, "run"])
def test_forms_and_sampling_in_a_task_are_answered_by_a_client_that_can(through: str, at: At, drive: Drive) -> None:
    steps = [call("classify", text="t"), call("both")]
    seen = drive(client("ext-tasks"), at("fastmcp", through), None, steps, declare=BOTH)
    assert [SAMPLED, f"{ACCEPTED} {SAMPLED}"] == [result["text"] for result in seen.results]
    assert [["task", "working", "input_required", "completed"]] * 2 == seen.progress


@pytest.mark.parametrize("through", [DIRECT, "run"])
def test_fastmcps_client_stops_at_a_sampling_request_in_a_task(through: str, at: At, drive: Drive) -> None:
    seen = drive(
        client("fastmcp"), at("fastmcp", through), None, [call("classify", text="t"), call("work")], declare=BOTH
    )
    assert "only elicitation is supported" in seen.results[0]["stopped"]
    assert {"error": False, "text": "worked"} == seen.results[1]


@pytest.mark.parametrize("through", GATES)
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_client_cancels_a_task(name: str, through: str, at: At, drive: Drive) -> None:
    steps = [{"do": "cancel_task", "name": "hangs"}, call("work")]
    seen = drive(client(name), at("fastmcp", through), None, steps, declare=BOTH)
    assert [{"status": "cancelled"}, {"error": False, "text": "worked"}] == seen.results


@pytest.mark.parametrize("through", GATES)
def test_a_client_that_declares_no_tasks_gets_rounds_or_an_error_that_names_the_extension(
    through: str, at: At, drive: Drive
) -> None:
    plain = peers.clients()["python2-pinned"]
    seen = drive(plain, at("fastmcp", through), None, [call("confirm"), call("work")], declare=BOTH)
    assert {"error": False, "text": ACCEPTED} == seen.results[0]
    assert {"extensions": {"io.modelcontextprotocol/tasks": {}}} == (
        seen.results[1]["failed"]["data"]["requiredCapabilities"]
    )
