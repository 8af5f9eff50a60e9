"""A record that revokes an earlier one replaces it, in a log that is read once from start to end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from samplegate.audit import record
from samplegate.audit.record import Attempt, RecordLine, settled
from samplegate.audit.report import NO_CALL, Report, ServerReport
from samplegate.policy.schema import AllowRule, ForwardRule, Match
from tests.fakes import logged
from tests.fakes.requests import compiled, form, sampling

BOOK = compiled(
    AllowRule(name="models", match=Match(kind="sampling")), ForwardRule(name="person", match=Match(kind="elicitation"))
)
PAID: dict[str, Any] = {
    "attempts": (Attempt("smart", "ok", 7, 3, 250_000_000_000),),
    "usd": 250_000_000_000,
    "limits": ("day",),
    "refused_by": "rate",
    "model": "gpt-5",
    "input_tokens": 7,
    "output_tokens": 3,
}
SEEN: dict[str, Any] = {
    "review": "rv_1",
    "reviewer": "ops",
    "reviewed_by": "ann",
    "review_door": "page",
    "reviewed_ms": 2000.0,
}
LOST: dict[str, Any] = {
    "outcome": "unanswered",
    "reason": "review",
    "decided_by": "policy",
    "revokes": True,
    "time": 1_800_000_001.0,
}


def first(decision_id: str = "d1", **more: Any) -> RecordLine:
    fields = {"duration_ms": 100.0, "decided_by": "human", **PAID, **SEEN, **more}
    return logged.line(logged.record(BOOK, sampling(), decision_id=decision_id, result={"a": 1}, **fields))


def revoking_one(decision_id: str = "d1", **more: Any) -> RecordLine:
    return logged.line(
        logged.record(BOOK, sampling(), decision_id=decision_id, **{"duration_ms": 150.0, **SEEN, **LOST, **more})
    )


def other(decision_id: str, **more: Any) -> RecordLine:
    return logged.line(logged.record(BOOK, sampling(), decision_id=decision_id, **more))


def ids(*lines: RecordLine) -> list[tuple[str, str]]:
    return [(line.decision_id, line.outcome) for line in settled(lines)]


def summed(*lines: RecordLine) -> ServerReport:
    report = Report()
    for line in settled(lines):
        report.add(line)
    return report.servers["docs"]


def test_a_revoked_record_says_what_came_of_it_after_all_and_what_was_spent_on_it() -> None:
    (found,) = settled([first(), revoking_one(result=None)])
    assert ("unanswered", "review", "policy", True, "2027-01-15T08:00:01.000Z", 150.0) == (
        found.outcome,
        found.reason,
        found.decided_by,
        found.revokes,
        found.time,
        found.duration_ms,
    )
    assert (0.25, ("day",), "rate", ["smart"]) == (
        found.cost_usd,
        found.limits,
        found.refused_by,
        [tried.model for tried in found.attempts],
    )
    assert (b"", True) == (bytes(found.result), bool(bytes(found.request)))


def test_what_a_person_denied_is_revoked_too() -> None:
    assert [("d1", "unanswered")] == ids(first(outcome="denied", reason="review"), revoking_one())


def test_other_requests_between_the_two_stay_as_they_are() -> None:
    lines = [first(), other("d2"), first("d3"), revoking_one(), other("d4"), revoking_one("d3")]
    assert [("d1", "unanswered"), ("d2", "answered"), ("d3", "unanswered"), ("d4", "answered")] == sorted(ids(*lines))


def test_a_verdict_that_was_used_loses_nothing() -> None:
    assert [("d1", "answered"), ("d2", "denied")] == sorted(ids(first(), first("d2", outcome="denied")))


def test_a_revoking_record_whose_first_is_not_there_is_one_by_itself() -> None:
    assert [("d1", "unanswered")] == ids(revoking_one())
    assert [("d2", "answered"), ("d1", "unanswered")] == ids(revoking_one(), first("d2"))[::-1]


def test_two_records_of_one_id_that_revoke_nothing_are_both_there() -> None:
    assert [("d1", "answered"), ("d1", "answered")] == ids(first(), first())


def test_what_nobody_was_asked_about_is_not_waited_with() -> None:
    taken = settled(iter([other("d1"), first("d2"), other("d3")]))
    assert ["d1", "d3", "d2"] == [line.decision_id for line in taken]


@pytest.mark.parametrize("bound", ["MAX_HELD", "MAX_BYTES"])
def test_no_log_makes_it_hold_much(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(msgspec.json.encode(first()))
    monkeypatch.setattr(record, bound, 3 if bound == "MAX_HELD" else 4 * size - 1)
    taken = 0

    def lines() -> Any:
        nonlocal taken
        for number in range(20):
            taken += 1
            yield first(f"d{number}")

    ahead = [taken - number for number, _ in enumerate(settled(lines()), 1)]
    assert 3 == max(ahead)
    assert 20 == len(ahead)


def test_what_was_revoked_takes_no_room_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_BYTES", 2 * len(msgspec.json.encode(first())))
    pairs = [line for number in range(10) for line in (first(f"d{number}"), revoking_one(f"d{number}"))]
    assert [(f"d{number}", "unanswered") for number in range(10)] == ids(*pairs)


def test_a_record_larger_than_all_that_is_held_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_BYTES", 10)
    assert [("d1", "answered"), ("d2", "answered")] == ids(first(), other("d2"))


def test_a_revoked_request_is_summed_once_and_paid_once() -> None:
    server = summed(first(), revoking_one())
    assert (1, {"unanswered": 1}) == (server.requests, dict(server.kinds["sampling"].outcomes))
    assert (0.25, 0, {}) == (server.usd, server.unpriced, server.models)
    assert {"calls": 1, "input_tokens": 7, "output_tokens": 3, "units": 250_000_000_000} == dict(
        server.attempts["smart"]
    )
    for names, name in (
        (server.rules, "allow: models"),
        (server.tools, NO_CALL),
        (server.refusals, "review: models"),
        (server.limits, "rate"),
    ):
        assert {name: {"requests": 1}} == {key: dict(counts) for key, counts in names.items()}
    assert server.kinds["sampling"].durations.quantile(1.0) == pytest.approx(150, rel=0.02)


def test_a_verdict_that_was_not_used_is_nobodys_here() -> None:
    server = summed(first(), revoking_one())
    assert {"reviews": 1, "undecided": 1} == dict(server.reviews["ops"])
    assert ({}, None) == (dict(server.doors), server.reviewed.quantile(0.5))


def test_a_forward_whose_return_was_revoked_is_one_request() -> None:
    away, back, lost = (
        logged.line(logged.record(BOOK, form(a="string"), can=True, door="input_required", **more))
        for more in ({"outcome": "forwarded"}, SEEN, {**SEEN, **LOST})
    )
    server = summed(away, back, lost)
    assert {"unanswered": 1} == {
        name: number for name, number in server.kinds["elicitation"].outcomes.items() if number
    }
    assert 1 == server.requests
