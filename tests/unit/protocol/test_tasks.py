"""Tasks of modern servers, as transcripts: what the client sees of a task's requests, and what the server gets."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from samplegate.protocol import session_state
from samplegate.protocol.identity import static
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason
from samplegate.protocol.rounds import Close, Effect, Later, Note, Open, Withdraw
from samplegate.protocol.task_state import CLAIM, MAX_TASK_BYTES, MAX_TASK_KEYS, TaskRecord, paying
from samplegate.protocol.tasks import MAX_OWN
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    CAPABILITIES,
    DENY,
    FORWARD,
    ask,
    error,
    form,
    modern,
    one,
    result,
    sample,
    to_client,
    to_server,
)
from tests.fakes.task_dialogue import ALL, TaskDialogue, notified, task

OTHER: dict[str, Any] = {"sampling": {}, "elicitation": {}}
DENIED: Outcome = Denied(Reason.RULE)
YES = {"action": "accept", "content": {"confirm": True}}


def shown(effects: list[Effect]) -> tuple[str, list[str]]:
    """The status and the keys that the client sees."""
    (found,) = [frame["result"] for frame in to_client(effects) if "status" in frame.get("result", {})]
    return found["status"], list(found.get("inputRequests", {}))


def sent(effects: list[Effect], method: str) -> list[Any]:
    """The params of the gate's own requests of this method."""
    return [
        frame["params"]
        for frame in to_server(effects)
        if frame["method"] == method and str(frame["id"]).startswith("sg:")
    ]


def record(d: TaskDialogue, id: str = "task-1") -> Any:
    return json.loads(d.rows.rows["s", id][0])


def test_the_extension_passes_in_both_directions() -> None:
    d = TaskDialogue(ALLOW, ANSWER)
    out = d.client(modern(1, "tools/call", ALL, name="x"))
    assert {"io.modelcontextprotocol/tasks": {}} == to_server(out)[0]["params"]["_meta"][CAPABILITIES]["extensions"]
    d.client(modern(9, "server/discover", ALL))
    found = d.server(result(9, supportedVersions=["2026-07-28"], capabilities={"extensions": ALL["extensions"]}))
    assert ALL["extensions"] == to_client(found)[0]["result"]["capabilities"]["extensions"]


def test_a_task_passes_with_the_bytes_that_arrived() -> None:
    d = TaskDialogue(ALLOW)
    made = d.create(statusMessage="on its way")
    assert "task" == to_client(made)[0]["result"]["resultType"]
    out = d.poll(progress={"a": [1.0]})
    assert [{"a": [1.0]}] == [frame["result"]["progress"] for frame in to_client(out)]


def test_an_answer_of_the_gate_goes_to_the_server_and_the_client_sees_no_request() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    out = d.poll(asks={"k": ask(form())})
    assert ("working", []) == shown(out)
    assert "task" == one(out, Open).round.door
    answers = sent(d.settle(out), "tasks/update")
    assert [("task-1", {"k": YES})] == [(one["taskId"], one["inputResponses"]) for one in answers]
    assert {"io.modelcontextprotocol/tasks": {}} == answers[0]["_meta"][CAPABILITIES]["extensions"]


def test_a_key_is_decided_once_for_life() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    first = d.poll(asks={"k": ask(form())})
    assert [] == [effect for effect in d.poll(asks={"k": ask(form())}) if isinstance(effect, Open)], "being decided"
    d.settle(first)
    again = d.poll(asks={"k": ask(form())})
    assert ("working", []) == shown(again)
    assert [] == [effect for effect in again if isinstance(effect, Open)]
    assert [] == sent(again, "tasks/update"), "the answer is on its way"


def test_a_gate_that_ends_need_not_wait_for_a_server_to_confirm_answers() -> None:
    """They are stored, and sent again. Some servers never confirm."""
    d = TaskDialogue(ANSWER)
    d.create()
    assert sent(d.settle(d.poll(asks={"k": ask(form())})), "tasks/update")
    assert not d.session.state.inflight.at_server_for_tasks


def test_all_new_keys_of_a_snapshot_are_decided_together() -> None:
    d = TaskDialogue(ALLOW, ANSWER)
    d.create()
    out = d.poll(asks={"a": ask(form()), "b": ask(sample())})
    assert {"a", "b"} == one(out, Open).round.items.keys()
    assert {"a", "b"} == sent(d.settle(out), "tasks/update")[0]["inputResponses"].keys()


def test_forwarded_keys_stay_visible_until_the_client_has_answered() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    first = d.poll(asks={"k": ask(form())})
    assert ("working", []) == shown(first), "nothing is shown before it is decided"
    d.hand_on(first, "k")
    for _ in range(2):
        assert ("input_required", ["k"]) == shown(d.poll(asks={"k": ask(form())}))
    accepted = d.update(k=YES)
    assert [] == to_client(accepted), "acknowledged when it is recorded"
    done = d.settle(accepted, answers={"k": Answered(json.dumps(YES).encode(), "client")})
    assert [{"k": YES}] == [one["inputResponses"] for one in sent(done, "tasks/update")]
    assert [{"resultType": "complete"}] == [frame["result"] for frame in to_client(done)]
    assert ("working", []) == shown(d.poll(asks={"k": ask(form())})), "it leaves the client's view with the answer"


def test_other_keys_of_a_snapshot_are_decided_when_some_are_shown() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    out = d.hand_on(d.poll(asks={"mine": ask(form()), "yours": ask(form())}), "yours")
    rest = one(out, Open).round
    assert {"mine"} == rest.items.keys()
    assert rest.returned is not None
    assert {"mine": "d-mine"} == rest.returned.ids
    assert ("input_required", ["yours"]) == shown(d.poll(asks={"mine": ask(form()), "yours": ask(form())}))
    assert [["mine"]] == [list(one["inputResponses"]) for one in sent(d.settle(out), "tasks/update")]


def test_a_denied_elicitation_is_declined_and_the_task_goes_on() -> None:
    d = TaskDialogue(DENY)
    d.create()
    out = d.settle(d.poll(asks={"k": ask(form())}), answers={"k": Denied(Reason.RULE, action="decline")})
    assert [{"k": {"action": "decline"}}] == [one["inputResponses"] for one in sent(out, "tasks/update")]


def test_a_denied_sample_ends_the_task_for_good() -> None:
    d = TaskDialogue(DENY)
    d.create()
    out = d.settle(d.poll(asks={"k": ask(sample())}), answers={"k": DENIED})
    assert [] == sent(out, "tasks/update")
    assert ["task-1"] == [one["taskId"] for one in sent(out, "tasks/cancel")]
    for asked in ("tasks/update", "tasks/cancel", "tasks/get"):
        out = d.client(modern(8, asked, ALL, taskId="task-1", inputResponses={}))
        assert [] == to_server(out), "the gate answers"
    ended = to_client(out)[0]["result"]
    assert ("complete", "completed", True) == (ended["resultType"], ended["status"], ended["result"]["isError"])
    assert "complete" == ended["result"]["resultType"], "an inlined result is a result"
    assert ("task-1", 3_600_000) == (ended["taskId"], ended["ttlMs"])
    assert "denied by policy" in ended["result"]["content"][0]["text"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_an_undeclared_or_unknown_request_is_refused_without_the_server(method: str) -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
    undeclared = d.client(modern(5, method, OTHER, taskId="task-1", **more))
    assert -32021 == to_client(undeclared)[0]["error"]["code"]
    required = to_client(undeclared)[0]["error"]["data"]["requiredCapabilities"]
    assert {"extensions": {"io.modelcontextprotocol/tasks": {}}} == required
    unknown = d.client(modern(6, method, ALL, taskId="task-2", **more))
    d.session.state.identities[0] = static("eve")
    others = d.client(modern(7, method, ALL, taskId="task-1", **more))
    errors = [to_client(out)[0]["error"] for out in (unknown, others)]
    assert errors[0] == errors[1], "nothing tells another caller's task from one that does not exist"
    assert -32602 == errors[0]["code"]
    assert [] == to_server([*undeclared, *unknown, *others])


@pytest.mark.parametrize(
    "method", ["tasks/list", "tasks/result", "tasks/other", "Tasks/update", " tasks/get", "ta\u017fks/get"]
)
def test_methods_that_the_extension_does_not_have(method: str) -> None:
    d = TaskDialogue(FORWARD)
    out = d.client(modern(5, method, ALL, taskId="task-1"))
    assert (-32601, []) == (to_client(out)[0]["error"]["code"], to_server(out))


def test_a_client_answers_only_what_it_was_shown_and_only_once() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    assert [] == [effect for effect in d.update(k=YES) if isinstance(effect, Open)], "not asked at all"
    out = d.poll(asks={"k": ask(form())})
    early = d.update(id=4, k=YES)
    assert [] == [effect for effect in early if isinstance(effect, Open)], "not yet shown"
    assert [{"resultType": "complete"}] == [frame["result"] for frame in to_client(early)]
    d.hand_on(out, "k")
    accepted = d.update(id=5, k=YES, other=YES)
    assert {"k"} == one(accepted, Open).round.items.keys()
    assert [1] == [effect.fields["count"] for effect in accepted if isinstance(effect, Note)]
    repeated = d.update(id=6, k=YES)
    assert [] == [effect for effect in repeated if isinstance(effect, Open)]
    assert [6] == [frame["id"] for frame in to_client(repeated)], "an empty acknowledgment"


def test_a_request_of_a_kind_that_this_client_did_not_declare_is_not_shown() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    asked = {"f": ask(form()), "s": ask(sample())}
    d.hand_on(d.poll(asks=asked), "f", "s")
    forms = {"elicitation": {}, "extensions": ALL["extensions"]}
    assert ("input_required", ["f"]) == shown(d.poll(asks=asked, capabilities=forms))
    assert ("working", []) == shown(d.poll(asks={"s": ask(sample())}, capabilities=forms))


def test_a_request_that_changes_under_its_key_ends_the_task() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.hand_on(d.poll(asks={"k": ask(form())}), "k")
    out = d.poll(asks={"k": ask({**form(), "message": "Another?"})})
    assert ("failed", []) == shown(out)
    assert 1 == len(sent(out, "tasks/cancel"))
    assert ["call.failed"] == [effect.event for effect in out if isinstance(effect, Note)]


def test_another_spelling_of_the_same_request_is_the_same_and_is_shown_as_at_first() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.hand_on(d.poll(asks={"k": ask(form())}), "k")
    turned = {"params": dict(reversed(form().items())), "method": "elicitation/create"}
    found = to_client(d.poll(asks={"k": turned}))[0]["result"]["inputRequests"]["k"]
    assert list(ask(form())) == list(found), "clients fail a task whose request changes"


def test_a_server_that_floods_a_task_with_keys_ends_it() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    for number in range(MAX_TASK_KEYS // 64):
        d.settle(d.poll(asks={f"k{number}-{n}": ask(form()) for n in range(64)}))
    assert ("failed", []) == shown(d.poll(asks={"last": ask(form())}))


def test_a_server_that_floods_a_task_with_long_keys_ends_it_and_leaves_nothing() -> None:
    d = TaskDialogue(ANSWER)
    d.create(createdAt="2026" * 10_000)
    for number in range(MAX_TASK_BYTES // 2**18 - 1):
        d.settle(d.poll(asks={"k" * (2**18 - 8) + str(number): ask(form())}))
    assert ("failed", []) == shown(d.poll(asks={"k" * (2**18 - 1): ask(form())}))
    assert len(d.rows.rows["s", "task-1"][0]) < 2000


def test_rounds_and_notifications_of_tasks_have_the_bounds_of_pushed_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = session_state.MAX_PUSH_BYTES // 64  # so the test needs megabytes instead of hundreds of them
    monkeypatch.setattr(session_state, "MAX_PUSH_BYTES", most)
    d = TaskDialogue(ALLOW)
    d.create()
    listening(d, "task-1")
    big = ask(sample("x" * (most // 3)))
    first = d.poll(asks={"a": big})
    out = d.poll(asks={"b": big})
    assert [] == [effect for effect in out if isinstance(effect, Open)]
    assert ["call.failed"] == [effect.event for effect in out if isinstance(effect, Note)]
    d.settle(first)
    d.rows.wall += CLAIM
    assert {"b"} == one(d.poll(asks={"b": big}), Open).round.items.keys(), "there is room again"
    d.is_slow = True
    status = notified(**task("task-1", "working", statusMessage="x" * (most // 4)))
    assert [] == d.server(status)
    assert ["frame.refused"] == [effect.event for effect in d.server(status) if isinstance(effect, Note)]
    d.client(modern(7, "tasks/cancel", ALL, taskId="task-1"))
    d.go_on()
    assert 0 == d.session.state.pushed


def test_more_tasks_than_the_store_takes_are_refused() -> None:
    d = TaskDialogue(ANSWER, most=2)
    for number in range(2):
        d.create(f"task-{number}", call=number + 10)
    out = d.create("task-2", call=12)
    assert "already has 2 tasks" in to_client(out)[0]["error"]["message"]
    assert ["task-2"] == [one["taskId"] for one in sent(out, "tasks/cancel")]


def test_an_id_that_is_in_use_is_refused_and_its_task_goes_on() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    out = d.create(call=2)
    assert "ID of another task" in to_client(out)[0]["error"]["message"]
    assert [] == sent(out, "tasks/cancel")


def test_a_store_that_fails_refuses_the_task() -> None:
    d = TaskDialogue(ANSWER)
    d.rows.fault = "tasks: disk full"
    assert "disk full" in to_client(d.create())[0]["error"]["message"]


def test_a_task_without_the_extension_is_refused() -> None:
    d = TaskDialogue(ANSWER)
    d.client(modern(1, "tools/call", OTHER, name="x"))
    out = d.server(result(1, **task("task-1", "working", resultType="task")))
    assert "tasks were not offered" in to_client(out)[0]["error"]["message"]
    assert {} == d.rows.rows


def test_the_final_round_of_a_call_may_become_a_task() -> None:
    d = TaskDialogue(ANSWER)
    d.client(modern(1, "tools/call", ALL, name="x"))
    retried = d.settle(d.server(result(1, resultType="input_required", inputRequests={"k": ask(form())})))
    out = d.server(result(to_server(retried)[0]["id"], **task("task-1", "working", resultType="task")))
    assert (1, "task") == (to_client(out)[0]["id"], to_client(out)[0]["result"]["resultType"])
    before = next(iter(d.rounds.values()))
    after = one(d.poll(asks={"k": ask(form())}), Open).round
    assert before.call_ids == after.call_ids, "limits per call go on"


def test_requests_of_a_task_belong_to_its_tool_and_arguments() -> None:
    d = TaskDialogue(ANSWER)
    d.create(tool="pay")
    d.client(modern(7, "tools/call", ALL, name="other"))
    round = one(d.poll(asks={"k": ask(form())}), Open).round
    assert ["pay"] == [call.tool for call in round.origin.calls]
    assert b'"arguments":{"n":1}' in (round.arguments or b"")


def test_answers_that_could_not_be_stored_are_not_acknowledged() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.hand_on(d.poll(asks={"k": ask(form())}), "k")
    out = d.update(k=YES)
    d.rows.fault = "tasks: disk full"
    assert [-32603] == [frame["error"]["code"] for frame in to_client(d.settle(out))]


# -- restarts
# ----------------------------------------------------------------------------------------------------------------------


def restarted(d: TaskDialogue, *rules: Any, later: float = CLAIM) -> TaskDialogue:
    """Another process with the same store, after a kill of the first."""
    d.rows.wall += later
    return TaskDialogue(*rules, rows=d.rows, token=f"{d.session.state.token}x")


def test_a_shown_key_stays_shown_after_a_restart() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.hand_on(d.poll(asks={"k": ask(form())}), "k")
    d = restarted(d, FORWARD, later=0)
    assert ("input_required", ["k"]) == shown(d.poll(asks={"k": ask(form())}))
    assert {"k"} == one(d.update(k=YES), Open).round.items.keys()


def test_a_kill_while_deciding_lets_another_process_decide_once_the_claim_is_over() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.poll(asks={"k": ask(form())})
    d = restarted(d, ANSWER, later=CLAIM - 1)
    assert [] == [effect for effect in d.poll(asks={"k": ask(form())}) if isinstance(effect, Open)]
    d.rows.wall += 1
    out = d.poll(asks={"k": ask(form())})
    assert 1 == len(sent(d.settle(out), "tasks/update"))


def test_no_model_is_asked_again_after_a_kill() -> None:
    d = TaskDialogue(ALLOW)
    d.create()
    d.poll(asks={"k": ask(sample())})
    step(d, paying("k", "t"))
    d = restarted(d, ALLOW)
    round = one(d.poll(asks={"k": ask(sample())}), Open).round
    assert [Reason.ERROR] == [item.refused for item in round.items.values()]


def test_a_kill_between_the_answer_and_its_confirmation_sends_the_same_answer_again() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    before = sent(d.settle(d.poll(asks={"k": ask(form())})), "tasks/update")
    d = restarted(d, ANSWER)
    again = d.poll(asks={"k": ask(form())})
    assert [] == [effect for effect in again if isinstance(effect, Open)], "nothing is decided or paid twice"
    assert before == sent(again, "tasks/update")


def test_a_confirmed_answer_is_not_kept() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    out = d.settle(d.poll(asks={"k": ask(form())}))
    assert "confirm" in str(record(d)["keys"])
    d.server(result(next(frame["id"] for frame in to_server(out)), resultType="complete"))
    assert "confirm" not in str(record(d)["keys"])


def test_an_answer_that_the_server_refused_is_sent_again_with_the_next_snapshot() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    out = d.settle(d.poll(asks={"k": ask(form())}))
    d.server(error(to_server(out)[0]["id"], -32603))
    d.rows.wall += CLAIM
    assert 1 == len(sent(d.poll(asks={"k": ask(form())}), "tasks/update"))


def test_a_kill_while_the_clients_answer_is_checked_lets_the_client_answer_again() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.hand_on(d.poll(asks={"k": ask(form())}), "k")
    d.update(k=YES)
    d = restarted(d, FORWARD)
    assert ("input_required", ["k"]) == shown(d.poll(asks={"k": ask(form())}))


def test_a_process_that_lost_its_claim_releases_nothing() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    first = d.poll(asks={"k": ask(form())})
    other = restarted(d, ANSWER)
    second = other.poll(asks={"k": ask(form())})
    assert [] == sent(d.settle(first), "tasks/update"), "this process was frozen"
    assert 1 == len(sent(other.settle(second), "tasks/update"))


def test_an_answer_survives_a_store_that_fails_for_a_while() -> None:
    d = TaskDialogue(ALLOW)
    d.create()
    out = d.poll(asks={"k": ask(sample())})
    d.rows.fault = "tasks: disk full"
    failed = d.settle(out)
    assert [] == sent(failed, "tasks/update")
    later = one(failed, Later)
    d.rows.fault = ""
    assert 1 == len(sent(d.take(d.session.due(later.token)), "tasks/update"))


def test_a_running_round_keeps_its_claim() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    round = one(d.poll(asks={"k": ask(form())}), Open).round
    for _ in range(60):
        d.rows.wall += 5
        d.take(d.session.round_progress(round.id))
    other = restarted(d, ANSWER, later=0)
    assert [] == [effect for effect in other.poll(asks={"k": ask(form())}) if isinstance(effect, Open)]


def test_a_machine_that_slept_goes_on_with_its_own_round() -> None:
    d = TaskDialogue(ALLOW)
    d.create()
    first = d.poll(asks={"k": ask(sample())})
    step(d, paying("k", "t"))
    d.rows.wall += CLAIM * 10
    assert [] == [effect for effect in d.poll(asks={"k": ask(sample())}) if isinstance(effect, Open)]
    assert 1 == len(sent(d.settle(first), "tasks/update"))


# -- ends
# ----------------------------------------------------------------------------------------------------------------------


def test_a_cancelled_task_withdraws_its_rounds_and_decides_nothing_more() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.poll(asks={"k": ask(form())})
    out = d.client(modern(4, "tasks/cancel", ALL, taskId="task-1"))
    assert 1 == len([effect for effect in out if isinstance(effect, Withdraw)])
    assert ["tasks/cancel"] == [frame["method"] for frame in to_server(out)], "the client's own"
    after = d.poll(id=5, asks={"k2": ask(form())})
    assert ("working", []) == shown(after)
    assert [] == [effect for effect in after if isinstance(effect, Open)]


def test_the_servers_end_withdraws_what_is_open_and_passes() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.poll(asks={"k": ask(form())})
    out = d.poll(status="completed", result={"content": []})
    assert ("completed", []) == shown(out)
    assert 1 == len([effect for effect in out if isinstance(effect, Withdraw)])
    assert ("completed", []) == shown(d.poll(status="completed", result={"content": []})), "until its ttl is over"


def test_a_server_that_asks_after_the_end_of_a_task_is_not_decided() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.poll(status="completed", result={"content": []})
    out = d.poll(asks={"k": ask(form())})
    assert ("working", []) == shown(out)
    assert [] == [effect for effect in out if isinstance(effect, Open)]


@pytest.mark.parametrize(("ttl", "pause"), [(3_600_000, 25.0), (None, 86_400.0)])
def test_a_task_lives_as_long_as_its_server_says_now(ttl: int | None, pause: float) -> None:
    d = TaskDialogue(ANSWER)
    d.create(ttlMs=60_000 if ttl else None)
    for _ in range(10):
        d.rows.wall += pause
        assert ("working", []) == shown(d.poll(ttlMs=ttl))
    assert d.poll(asks={"k": ask(form())}, ttlMs=ttl)


def test_a_task_is_forgotten_after_its_ttl() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.rows.wall += 3_601
    assert -32602 == to_client(d.client(modern(2, "tasks/get", ALL, taskId="task-1")))[0]["error"]["code"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "working", "inputRequests": {}},
        {"status": "unknown"},
        {"status": "input_required", "inputRequests": {"k": {"method": "tools/call"}}},
        {"status": "input_required", "inputRequests": {"k": []}},
        {"status": "input_required", "inputRequests": {f"k{n}": {"method": "roots/list"} for n in range(65)}},
        {"status": "input_required", "input_requests": {"k": {"method": "roots/list"}}},
        {"status": "working", "taskId": "task-2"},
        {"status": "working", "requestState": "s"},
        {"status": "working", "resultType": "task"},
    ],
)
def test_an_invalid_task_fails_the_poll(wrong: dict[str, Any]) -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.client(modern(2, "tasks/get", ALL, taskId="task-1"))
    out = d.server(result(2, **{**task("task-1", "working", resultType="complete"), **wrong}))
    assert [-32603] == [frame["error"]["code"] for frame in to_client(out)]
    assert [] == [effect for effect in out if isinstance(effect, Open)]


@pytest.mark.parametrize(
    "answer",
    [
        {"resultType": "input_required", "inputRequests": {"k": ask(form())}, "requestState": "s"},
        {"resultType": "complete", "inputRequests": {"k": ask(form())}},
        task("task-1", "input_required", inputRequests={"k": ask(form())}),
        {"resultType": "task", **task("task-2", "working")},
        {"ResultType": "input_required", "inputRequests": {"k": ask(form())}},
    ],
)
def test_the_answer_to_a_cancel_asks_the_client_nothing(answer: dict[str, Any]) -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.client(modern(2, "tasks/cancel", ALL, taskId="task-1"))
    assert [-32603] == [frame["error"]["code"] for frame in to_client(d.server(result(2, **answer)))]


@pytest.mark.parametrize(
    "end",
    [
        {"status": "completed", "result": {"resultType": "input_required", "inputRequests": {"k": ask(form())}}},
        {"status": "completed", "result": {"content": [], "inputRequests": {"k": ask(form())}}},
        {"status": "completed", "result": {"resultType": "task", **task("task-2", "working")}},
        {"status": "failed", "error": {"code": -32042, "message": "m", "data": {"elicitations": []}}},
        {"status": "failed", "error": {"code": -32042.0, "message": "m"}},
        {"status": "failed", "error": {"code": "-32042", "message": "m"}},
        {"status": "failed", "error": {"code": -1, "Code": -32042, "message": "m"}},
    ],
)
@pytest.mark.parametrize("way", ["tasks/get", "notifications/tasks", "tools/call"])
def test_the_end_in_a_task_asks_the_client_nothing(way: str, end: dict[str, Any]) -> None:
    d = TaskDialogue(FORWARD)
    if way == "tools/call":
        d.client(modern(1, "tools/call", ALL, name="x"))
        out = d.server(result(1, **{**task("task-1", "working", resultType="task"), **end}))
    else:
        d.create()
        d.client(modern(2, "tasks/get", ALL, taskId="task-1"))
        listening(d, "task-1")
        found = {**task("task-1", "working"), **end}
        out = d.server(notified(**found) if way == "notifications/tasks" else result(2, **found))
    assert ([] if way == "notifications/tasks" else [-32603]) == [frame["error"]["code"] for frame in to_client(out)]


# -- a client that leaves while the store works
# ----------------------------------------------------------------------------------------------------------------------


def left(d: TaskDialogue, id: int) -> list[Effect]:
    """The client cancels its request, and then the store is done."""
    gone = d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    assert [] == to_server(gone), "the server has not seen it"
    d.is_slow = False
    return d.go_on()


def test_a_listen_that_was_cancelled_is_not_sent() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.is_slow = True
    listening(d, "task-1")
    assert [] == to_server(left(d, 9))
    assert {} == d.session.state.inflight.asked


def test_a_poll_that_was_cancelled_still_decides_what_it_found() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.client(modern(2, "tasks/get", ALL, taskId="task-1"))
    d.is_slow = True
    d.server(result(2, **task("task-1", "input_required", inputRequests={"k": ask(form())})))
    out = left(d, 2)
    assert [] == to_client(out)
    assert 1 == len(sent(d.settle(out), "tasks/update"))


def test_answers_that_were_accepted_count_although_their_request_was_cancelled() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.hand_on(d.poll(asks={"k": ask(form())}), "k")
    d.is_slow = True
    d.update(k=YES)
    out = left(d, 3)
    assert {"k"} == one(out, Open).round.items.keys()
    done = d.settle(out)
    assert ([], 1) == (to_client(done), len(sent(done, "tasks/update")))


def test_a_cancel_counts_although_its_request_was_cancelled() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    d.poll(asks={"k": ask(form())})
    d.is_slow = True
    d.client(modern(3, "tasks/cancel", ALL, taskId="task-1"))
    out = left(d, 3)
    assert ["task-1"] == [one["taskId"] for one in sent(out, "tasks/cancel")]
    assert 1 == len([effect for effect in out if isinstance(effect, Withdraw)])
    assert [] == to_client(out)


def test_a_task_of_which_no_client_learned_is_cancelled() -> None:
    d = TaskDialogue(ANSWER)
    d.is_slow = True
    d.create()
    assert ["task-1"] == [one["taskId"] for one in sent(left(d, 1), "tasks/cancel")]


def test_another_request_with_the_same_id_gets_its_own_answer() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    d.is_slow = True
    d.update(id=4, k=YES)
    d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}})
    d.client(modern(4, "tasks/get", ALL, taskId="task-1"))
    d.is_slow = False
    assert ["tasks/get"] == [frame["method"] for frame in to_server(d.go_on())]
    assert 4 == to_client(d.server(result(4, **task("task-1", "working"))))[0]["id"]


# -- notifications
# ----------------------------------------------------------------------------------------------------------------------


def listening(d: TaskDialogue, *ids: str, capabilities: Any = ALL) -> list[Effect]:
    return d.client(modern(9, "subscriptions/listen", capabilities, notifications={"taskIds": list(ids)}))


def test_a_listen_names_only_the_callers_own_tasks() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    out = listening(d, "task-1", "task-2")
    assert ["task-1"] == to_server(out)[0]["params"]["notifications"]["taskIds"]
    refused = d.client(modern(10, "subscriptions/listen", OTHER, notifications={"taskIds": ["task-1"]}))
    assert -32021 == to_client(refused)[0]["error"]["code"]
    assert [] == to_server(refused)


@pytest.mark.parametrize("method", ["notifications/tasks", "notifications/tasks/status"])
def test_requests_in_notifications_are_decided_before_they_are_shown(method: str) -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    listening(d, "task-1")
    meta = {"io.modelcontextprotocol/subscriptionId": 9}
    asked = {
        **notified(**task("task-1", "input_required", inputRequests={"k": ask(form())}), _meta=meta),
        "method": method,
    }
    out = d.server(asked)
    (first,) = to_client(out)
    assert ("working", meta) == (first["params"]["status"], first["params"]["_meta"])
    assert "inputRequests" not in first["params"]
    (second,) = to_client(d.hand_on(out, "k"))
    assert ("input_required", ["k"]) == (second["params"]["status"], list(second["params"]["inputRequests"]))
    assert method == second["method"]


def test_a_listening_client_learns_of_an_end_by_the_gate() -> None:
    d = TaskDialogue(DENY)
    d.create()
    listening(d, "task-1")
    out = d.server(notified(**task("task-1", "input_required", inputRequests={"k": ask(sample())})))
    (ended,) = to_client(d.settle(out, answers={"k": DENIED}))
    assert ("completed", True) == (ended["params"]["status"], ended["params"]["result"]["isError"])


def test_notifications_without_a_listen_are_dropped() -> None:
    d = TaskDialogue(FORWARD)
    d.create()
    out = d.server(notified(**task("task-1", "working")))
    assert [] == to_client(out)
    assert ["frame.refused"] == [effect.event for effect in out if isinstance(effect, Note)]


def updating(**state: Any) -> tuple[TaskDialogue, str]:
    """A task whose server has not confirmed the gate's answer yet, and the ID of the gate's request."""
    d = TaskDialogue(ANSWER)
    for name, value in state.items():
        setattr(d.session.state, name, value)
    d.create()
    return d, to_server(d.settle(d.poll(asks={"k": ask(form())})))[0]["id"]


@pytest.mark.parametrize(
    "line",
    [
        {"jsonrpc": "2.0", "id": "ID", "result": 1, "error": 2},
        {"jsonrpc": "2.0", "id": "ID", "result": {"resultType": "input_required", "inputRequests": {}}},
        {"jsonrpc": "2.0", "id": "ID", "error": {"code": -32042, "message": "m"}},
        {"jsonrpc": "2.0", "id": "ID", "method": "elicitation/create"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "ID"}},
        b"END",
    ],
)
def test_nothing_about_the_gates_own_request_reaches_the_client(line: Any) -> None:
    d, id = updating(outlived=True)
    out = d.take(d.session.eof("server")) if line == b"END" else d.server(json.dumps(line).replace("ID", id).encode())
    assert [] == to_client(out)


def test_a_server_that_confirms_nothing_leaves_no_open_stream() -> None:
    d, _ = updating(streams=True)
    number = next(iter(d.session.exchange.tasks._own.values())).number
    d.rows.wall += CLAIM
    d.client(modern(2, "tasks/get", ALL, taskId="task-1"))
    asked = task("task-1", "input_required", inputRequests={"k": ask(form())})
    assert [number] == [effect.stream for effect in d.server(result(2, **asked)) if isinstance(effect, Close)]


def test_a_server_that_confirms_nothing_leaves_a_bounded_number_of_requests() -> None:
    d = TaskDialogue(ANSWER, most=1000)
    for number in range(MAX_OWN + 2):
        d.create(f"task-{number}")
        d.settle(d.poll(task_id=f"task-{number}", asks={"k": ask(form())}))
    assert MAX_OWN == len(d.session.exchange.tasks._own) == len(d.session.state.inflight.asked)


def test_nothing_is_left_after_a_task() -> None:
    d = TaskDialogue(ANSWER)
    d.create()
    out = d.settle(d.poll(asks={"k": ask(form())}))
    d.server(result(to_server(out)[0]["id"], resultType="complete"))
    d.poll(status="completed", result={"content": []})
    inflight, tasks = d.session.state.inflight, d.session.exchange.tasks
    left = (inflight.asked, inflight.wire, inflight.size, tasks.open, tasks._steps, tasks._own)
    assert not any(left)


def step(d: TaskDialogue, change: Any) -> None:
    raw, expires = d.rows.rows["s", "task-1"]
    found = msgspec.json.decode(raw, type=TaskRecord)
    change(found, d.rows.wall)
    d.rows.put("s", "task-1", msgspec.json.encode(found), expires)
