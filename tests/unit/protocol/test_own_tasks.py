"""Tasks of the gate, as transcripts: a call whose request waits for a reviewer, between a modern client and server."""

from __future__ import annotations

import json
from typing import Any

import msgspec.structs
import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.identity import static
from samplegate.protocol.outcomes import Denied, Reason, SealedDecision
from samplegate.protocol.own_tasks import AGAIN, HOLD, RENEW
from samplegate.protocol.rounds import Effect, ForwardRound, Later, Open, Round, TaskStep, Withdraw
from samplegate.protocol.task_state import CLAIM, MAX_TASK_BYTES, spending
from samplegate.tasks.store import carry_out
from tests.fakes.dialogue import (
    CAPABILITIES,
    FORWARD,
    NONCE,
    ask,
    form,
    modern,
    one,
    result,
    sample,
    to_client,
    to_server,
)
from tests.fakes.task_dialogue import ALL, EXTENSION, SCOPE, TaskDialogue

ESCALATE: dict[str, Any] = {"name": "people", "effect": "escalate", "reviewer": "ops"}
YES = {"action": "accept", "content": {"confirm": True}}


def dialogue(**more: Any) -> TaskDialogue:
    return TaskDialogue({**ESCALATE, "match": {"server": "elsewhere"}}, FORWARD, **more)


def asked(d: TaskDialogue, id: int = 1, capabilities: Any = ALL) -> list[Effect]:
    """A call whose server asks in a round."""
    d.client(modern(id, "tools/call", capabilities, name="x", arguments={"n": 1}))
    return d.server(result(id, resultType="input_required", inputRequests={"k": ask(form())}, requestState="s1"))


def created(d: TaskDialogue, out: list[Effect]) -> tuple[str, list[Effect]]:
    """The ID of the task that the call becomes when its round is put off, and the effects."""
    made = d.hand_on(out)
    (task,) = [frame["result"] for frame in to_client(made)]
    assert ("task", "working") == (task["resultType"], task["status"])
    return task["taskId"], made


def get(d: TaskDialogue, id: str, number: int = 5) -> tuple[dict[str, Any], list[Effect]]:
    out = d.client(modern(number, "tasks/get", ALL, taskId=id))
    (found,) = to_client(out)
    return found.get("result", found), out


def test_a_call_that_waits_for_a_reviewer_becomes_a_task_and_is_carried_on() -> None:
    d = dialogue()
    first = asked(d)
    assert HOLD == one(first, Open).round.hold
    id, made = created(d, first)
    again = one(made, Open).round
    assert {"k"} == again.items.keys()
    assert again.called is None, "nobody waits on the line"
    assert again.returned is not None
    assert {"k": "d-k"} == again.returned.ids
    status, polled = get(d, id)
    assert ("complete", "working") == (status["resultType"], status["status"])
    assert [] == to_server(polled)
    retried = d.settle(made)
    (sent,) = to_server(retried)
    assert ({"k": YES}, "s1") == (sent["params"]["inputResponses"], sent["params"]["requestState"])
    assert (
        "extensions" not in sent["params"]["_meta"][CAPABILITIES]
        or not sent["params"]["_meta"][CAPABILITIES]["extensions"]
    )
    done = d.server(result(sent["id"], resultType="complete", content=[{"type": "text", "text": "done"}]))
    assert [] == to_client(done)
    status, _ = get(d, id)
    assert ("completed", "done") == (status["status"], status["result"]["content"][0]["text"])


@pytest.mark.parametrize("extensions", [{}, {"extensions": {"y": {}}}])
def test_a_client_learns_that_there_are_tasks_whatever_it_declares_itself(extensions: dict[str, Any]) -> None:
    """Some declare tasks only in their calls, and only to a server that has them."""
    d = dialogue()
    d.client(modern(9, "server/discover", {"elicitation": {}}))
    found = to_client(d.server(result(9, supportedVersions=["2026-07-28"], capabilities=extensions)))
    assert {**extensions.get("extensions", {}), **EXTENSION} == found[0]["result"]["capabilities"]["extensions"]


def test_without_reviewers_a_server_has_the_tasks_that_it_says() -> None:
    d = TaskDialogue(FORWARD)
    d.client(modern(9, "server/discover", ALL))
    found = to_client(d.server(result(9, supportedVersions=["2026-07-28"], capabilities={})))
    assert {} == found[0]["result"]["capabilities"]


def test_a_client_without_the_extension_carries_its_state_itself() -> None:
    d = dialogue()
    first = asked(d, capabilities={"elicitation": {}})
    assert one(first, Open).round.hold is None
    assert ["input_required"] == [frame["result"]["resultType"] for frame in to_client(d.hand_on(first))]


def test_a_rejection_is_the_tasks_result() -> None:
    d = dialogue()
    d.client(modern(1, "tools/call", ALL, name="x"))
    out = d.server(result(1, resultType="input_required", inputRequests={"k": ask(sample())}))
    id, made = created(d, out)
    d.settle(made, answers={"k": Denied(Reason.REVIEW)})
    status, _ = get(d, id)
    assert ("completed", True) == (status["status"], status["result"]["isError"])


def test_an_error_of_the_server_fails_the_task() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    d.server({"jsonrpc": "2.0", "id": sent["id"], "error": {"code": -32000, "message": "broken"}})
    status, _ = get(d, id)
    assert ("failed", "broken") == (status["status"], status["error"]["message"])


def test_another_gate_goes_on_after_a_kill() -> None:
    d = dialogue()
    id, _ = created(d, asked(d))
    other = dialogue(rows=d.rows, token="other")
    assert [] == [effect for effect in get(other, id)[1] if isinstance(effect, Open)], "the first may still live"
    other.rows.wall += CLAIM
    _, out = get(other, id)
    retried = other.settle(out)
    (sent,) = to_server(retried)
    assert "s1" == sent["params"]["requestState"]
    other.server(result(sent["id"], resultType="complete", content=[]))
    assert "completed" == get(other, id)[0]["status"]


def test_a_running_task_keeps_its_claim() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    for _ in range(5):
        d.rows.wall += RENEW
        made = d.take(d.session.due(one([e for e in made if isinstance(e, Later)], Later).token))
    other = dialogue(rows=d.rows, token="other")
    assert [] == [effect for effect in get(other, id)[1] if isinstance(effect, Open)]


def test_a_round_that_is_put_off_again_is_reopened() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    put_off = d.hand_on(made)
    assert [] == to_client(put_off)
    later = [effect for effect in put_off if isinstance(effect, Later)]
    assert [AGAIN] == [effect.delay for effect in later]
    again = d.take(d.session.due(later[0].token))
    assert {"k"} == one(again, Open).round.items.keys()
    assert "working" == get(d, id)[0]["status"]


def test_a_cancelled_task_withdraws_its_request() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    out = d.client(modern(6, "tasks/cancel", ALL, taskId=id))
    assert [one(made, Open).round.id] == [effect.round for effect in out if isinstance(effect, Withdraw)]
    assert [{"resultType": "complete"}] == [frame["result"] for frame in to_client(out)]
    assert "cancelled" == get(d, id)[0]["status"]
    assert not d.session.state.inflight.asked


def test_a_task_cancelled_at_another_gate_ends_here_at_the_next_renewal() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    other = dialogue(rows=d.rows, token="other")
    other.client(modern(6, "tasks/cancel", ALL, taskId=id))
    out = d.take(d.session.due(one(made, Later).token))
    assert 1 == len([effect for effect in out if isinstance(effect, Withdraw)])


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/update"])
def test_a_task_is_its_callers_alone(method: str) -> None:
    d = dialogue()
    id, _ = created(d, asked(d))
    d.session.state.identities[0] = static("eve")
    found = d.client(modern(7, method, ALL, taskId=id, inputResponses={}))
    assert [-32602] == [frame["error"]["code"] for frame in to_client(found)]


def test_a_running_task_lives_on_for_what_the_server_asks_later() -> None:
    d = dialogue()
    out = asked(d)
    seen = ForwardRound(frozenset(), {"k": _decision()}, "hash", NONCE, expires=d.rows.wall + 600)
    made = d.done(one(out, Open).round, seen)
    (task,) = [frame["result"] for frame in to_client(made)]
    assert 4_200_000 == task["ttlMs"]
    for _ in range(3):
        d.rows.wall += 2_000
        made = d.take(d.session.due(one([e for e in made if isinstance(e, Later)], Later).token))
    d.rows.wall += 3_500
    status, _ = get(d, task["taskId"])
    assert ("working", 9_600_000) == (status["status"], status["ttlMs"])


@pytest.mark.parametrize(("days", "ttl"), [(1, 25 * 3_600_000), (8, 7 * 24 * 3_600_000)])
def test_a_task_outlives_the_review_of_a_later_round_that_is_put_off(days: int, ttl: int) -> None:
    """Such as by a drain. Another gate goes on only when its client asks."""
    d = dialogue()

    def put_off(key: str, out: list[Effect], seconds: float) -> list[Effect]:
        seen = {key: msgspec.structs.replace(_decision(), decision_id=f"d-{key}")}
        conclusion = ForwardRound(frozenset(), seen, "hash", NONCE, expires=d.rows.wall + seconds)
        return d.done(one(out, Open).round, conclusion)

    made = put_off("k", asked(d), 600)
    (task,) = [frame["result"] for frame in to_client(made)]
    (sent,) = to_server(d.settle(made))
    later = {"a": ask(form())}
    put_off("a", d.server(result(sent["id"], resultType="input_required", inputRequests=later)), days * 86_400)
    assert ttl == get(d, task["taskId"])[0]["ttlMs"]


def test_a_review_in_a_later_round_has_its_own_time() -> None:
    d = dialogue()
    _, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    out = d.server(result(sent["id"], resultType="input_required", inputRequests={"a": ask(form())}))
    assert [None, None] == [one(effects, Open).round.until for effects in (made, out)]


def test_later_questions_for_the_client_are_shown_in_the_task() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    questions = {"a": ask(form()), "b": ask(form())}
    out = d.server(result(sent["id"], resultType="input_required", inputRequests=questions, requestState="s2"))
    d.hand_on(out, "a", "b")
    status, _ = get(d, id)
    assert ("input_required", ["a", "b"]) == (status["status"], list(status["inputRequests"]))
    half = d.update(7, id, a=YES, other=YES)
    assert [] == [effect for effect in half if isinstance(effect, Open)]
    assert ["b"] == list(get(d, id)[0]["inputRequests"])
    back = one(d.update(8, id, b=YES), Open).round
    assert back.returned is not None
    assert {"a", "b"} == back.returned.replies.keys()
    assert [] == [effect for effect in d.update(9, id, b=YES) if isinstance(effect, Open)], "each is accepted once"


def test_a_task_outlives_the_time_that_a_client_has_for_its_retry() -> None:
    d = dialogue()
    out = asked(d)
    round: Round = one(out, Open).round
    seen = ForwardRound(frozenset(), {"k": _decision()}, "hash", NONCE, expires=d.rows.wall + 7_200)
    made = d.done(round, seen)
    (task,) = [frame["result"] for frame in to_client(made)]
    assert 3 * 3_600_000 == task["ttlMs"], "an hour longer than the review"
    other = dialogue(rows=d.rows, token="other")
    other.rows.wall += 7_000
    other.now += 7_000
    _, again = get(other, task["taskId"])
    assert {"k"} == one(again, Open).round.items.keys()


def _decision() -> Any:
    return SealedDecision("d-k", "escalate", "people", reviews={"request:people": "r1"})


def test_nothing_is_left_after_a_task() -> None:
    d = dialogue()
    _, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    d.server(result(sent["id"], resultType="complete", content=[]))
    d.take(d.session.due(one(made, Later).token))
    inflight, own = d.session.state.inflight, d.session.exchange.own
    left = (inflight.asked, inflight.wire, inflight.size, own._running, own._steps, own._timers)
    assert not any(left)


def test_a_call_that_was_with_the_server_is_not_repeated_by_another_gate() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    d.settle(made)
    assert d.session.state.inflight.at_server_for_tasks, "so a gate that ends waits for it"
    other = dialogue(rows=d.rows, token="other")
    other.rows.wall += CLAIM
    status, out = get(other, id)
    assert [] == [effect for effect in out if isinstance(effect, Open)]
    assert "failed" == status["status"]


def test_a_call_that_is_cancelled_while_its_task_is_made_has_none() -> None:
    d = dialogue()
    round: Round = one(asked(d), Open).round
    steps = d.session.round_done(round.id, ForwardRound(frozenset(), {"k": _decision()}, "hash", NONCE), d.now)
    d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    out = d.take(steps)
    assert [] == to_client(out)
    assert [] == [effect for effect in out if isinstance(effect, Open)]
    assert not d.session.state.inflight.asked


def test_answers_have_a_bound() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    out = d.server(result(sent["id"], resultType="input_required", inputRequests={"a": ask(form()), "b": ask(form())}))
    d.hand_on(out, "a", "b")
    (refused,) = to_client(d.update(7, id, a={"action": "accept", "content": {"confirm": "x" * MAX_TASK_BYTES}}))
    assert -32602 == refused["error"]["code"]
    assert ["a", "b"] == list(get(d, id)[0]["inputRequests"])


def test_a_servers_cancellation_of_the_gates_call_is_not_the_clients() -> None:
    d = dialogue()
    _, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    out = d.server({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": sent["id"]}})
    assert [] == to_client(out)


def test_a_server_gets_no_progress_token_of_a_request_that_is_over() -> None:
    d = dialogue()
    call = modern(1, "tools/call", ALL, name="x")
    call["params"]["_meta"]["progressToken"] = 7
    d.client(call)
    out = d.server(result(1, resultType="input_required", inputRequests={"k": ask(form())}))
    _, made = created(d, out)
    (sent,) = to_server(d.settle(made))
    assert "progressToken" not in sent["params"]["_meta"]


def test_a_store_that_fails_delays_the_retry() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    d.rows.fault = "tasks: disk full"
    waits = d.settle(made)
    assert [] == to_server(waits)
    d.rows.fault = ""
    (later,) = [effect for effect in waits if isinstance(effect, Later)]
    (sent,) = to_server(d.take(d.session.due(later.token)))
    d.server(result(sent["id"], resultType="complete", content=[]))
    assert "completed" == get(d, id)[0]["status"]


def test_a_task_cancelled_before_the_retry_sends_none() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    d.is_slow = True
    d.settle(made)
    waiting, d._waiting = d._waiting, []
    d.is_slow = False
    d.client(modern(6, "tasks/cancel", ALL, taskId=id))
    d._waiting = waiting
    assert [] == to_server(d.go_on())
    assert not d.session.state.inflight.asked


def test_too_many_questions_for_the_client_fail_the_task() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    questions = {"a": ask(form(message="x" * MAX_TASK_BYTES))}
    out = d.server(result(sent["id"], resultType="input_required", inputRequests=questions))
    d.hand_on(out, "a")
    assert "failed" == get(d, id)[0]["status"]


def test_a_task_that_has_paid_a_model_is_not_paid_for_again() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    round: Round = one(made, Open).round
    assert id == round.own
    carry_out(d.rows, SCOPE, TaskStep("", round.own, spending("t"), own=True), 100)
    other = dialogue(rows=d.rows, token="other")
    other.rows.wall += CLAIM
    status, out = get(other, id)
    assert [] == [effect for effect in out if isinstance(effect, Open)]
    assert "failed" == status["status"]


def test_a_gate_that_has_lost_its_task_pays_no_model() -> None:
    d = dialogue()
    id, _ = created(d, asked(d))
    with pytest.raises(Unavailable):
        carry_out(d.rows, SCOPE, TaskStep("", id, spending("other"), own=True), 100)


def test_a_session_is_in_use_while_it_carries_a_task_on() -> None:
    d = dialogue()
    id, _ = created(d, asked(d))
    assert d.session.state.inflight.for_tasks
    d.client(modern(6, "tasks/cancel", ALL, taskId=id))
    assert not d.session.state.inflight.for_tasks


def test_an_answer_that_cannot_be_read_fails_the_task() -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    (sent,) = to_server(d.settle(made))
    head = json.dumps({"jsonrpc": "2.0", "id": sent["id"], "result": {}}).encode()
    d.take(d.session.lost("server", 0, head, "it is over the limit"))
    assert "failed" == get(d, id)[0]["status"]
    assert not d.session.exchange.own._running


@pytest.mark.parametrize("sent", [False, True])
def test_a_machine_that_slept_goes_on_with_its_own_call(sent: bool) -> None:
    d = dialogue()
    id, made = created(d, asked(d))
    if sent:
        d.settle(made)
    d.rows.wall += 2 * CLAIM
    status, out = get(d, id)
    assert "working" == status["status"]
    assert [] == [effect for effect in out if isinstance(effect, Open)]
