"""The verdict on a run: words from gates and records, each request once, and what cannot be told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from samplegate.audit import verdict
from samplegate.audit.record import RecordedTry, RecordLine
from samplegate.audit.verdict import (
    STRICT,
    WORDS,
    FailOn,
    FoundGate,
    GateState,
    RunCounts,
    RunRecords,
    RunVerdict,
    fail_on_words,
    judge,
)


def gate(runs: bool = False, **changes: Any) -> FoundGate:
    state = GateState(
        run="7",
        gate="g",
        command="run",
        server="docs",
        key="k",
        policy="/p.yaml",
        decision_log="/log",
        started="2026-11-18T12:00:00.000Z",
        pid=1,
        served=True,
        ended=None if runs else "2026-11-18T12:00:01.000Z",
        exit_code=None if runs else 0,
    )
    return FoundGate(msgspec.structs.replace(state, **changes), runs)


def record(id: str = "d1", **changes: Any) -> RecordLine:
    line = RecordLine(
        decision_id=id,
        time="2026-11-18T12:00:00.000Z",
        server="docs",
        caller="local",
        era="legacy",
        revision="2025-11-25",
        door="push",
        kind="sampling",
        effect="allow",
        reason="rule",
        outcome="answered",
        run="7",
    )
    return msgspec.structs.replace(line, **changes)


def judged(
    *lines: RecordLine,
    gates: list[FoundGate] | None = None,
    fail_on: tuple[FailOn, ...] = STRICT,
    expected: int | None = None,
) -> RunVerdict:
    records = RunRecords("7", fail_on)
    for line in records.counted(lines):
        records.add(line)
    records.end()
    counted = gate(counts=RunCounts(requests=records.counts.requests), recorded=records.lines.total())
    given = [counted] if gates is None else gates
    return judge("7", "/state", fail_on, given, records, problems=(), expected=expected)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (record(), []),
        (record(outcome="withdrawn"), []),
        (record(outcome="denied", effect="deny"), ["denied"]),
        (record(outcome="unanswered", reason="model"), ["unanswered"]),
        (record(effect="escalate", review="rv_1"), ["escalated"]),
        (record(review="rv_1"), ["escalated"]),
        (record(outcome="unanswered", reason="limit", refused_by="dollar"), ["unanswered", "limit"]),
        (record(refused_by="dollar"), ["limit"]),
        (record(attempts=(RecordedTry("m", "ok"),)), ["unpriced"]),
        (record(attempts=(RecordedTry("m", "ok", cost_usd=0.0),)), []),
    ],
)
def test_a_request_meets_these_words(line: RecordLine, words: list[str]) -> None:
    found = judged(line, fail_on=WORDS)
    assert (words, "fail" if words else "pass") == (list(found.met), found.word)
    assert (bool(words), not words) == (bool(found.failed), bool(found.others))


def test_only_the_named_words_fail_a_run() -> None:
    line = record(outcome="denied", effect="deny")
    assert [("fail", 1), ("pass", 0), ("pass", 0)] == [
        ((found := judged(line, fail_on=words)).word, len(found.failed)) for words in [STRICT, ("unanswered",), ()]
    ]


def test_a_run_without_requests_fails_on_that_word_only() -> None:
    assert ["fail", "pass"] == [judged(fail_on=words).word for words in [("no_requests",), STRICT]]


def test_the_two_records_of_a_request_are_one_request() -> None:
    first = record(outcome="forwarded", door="input_required", refused_by="dollar", effect="forward")
    last = record(outcome="denied", door="input_required", effect="forward")
    found = judged(first, last, fail_on=WORDS)
    assert (RunCounts(requests=1, denied=1, limit=1), ["denied", "limit"]) == (found.counts, list(found.met))
    assert ["denied"] == [row.line.outcome for row in found.failed]
    assert "pass" == judged(first, record(door="input_required", effect="forward")).word


def test_a_second_record_moves_a_request_between_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "MAX_ROWS", 1)
    first = [record(str(n), outcome="forwarded", door="input_required", effect="forward") for n in range(3)]
    last = [record(str(n), outcome="denied", door="input_required", effect="forward") for n in range(2)]
    found = judged(*first, *last)
    assert (["0"], [], (2, 0)) == (
        [row.line.decision_id for row in found.failed],
        [row.line.decision_id for row in found.others],
        found.unlisted,
    )


def test_records_of_other_runs_do_not_count() -> None:
    assert "pass" == judged(record(run="8", outcome="denied"), record(run=None, outcome="denied")).word


def test_the_gates_count_what_no_log_has() -> None:
    without = gate(decision_log=None, counts=RunCounts(requests=2, denied=1))
    found = judged(gates=[without])
    assert ("fail", (), ("gate 'docs' keeps no decision log; its requests are counted, but not listed",)) == (
        found.word,
        found.problems,
        found.notes,
    )


def test_a_request_that_could_not_be_recorded_is_not_missed_in_the_log() -> None:
    found = judged(record(), gates=[gate(counts=RunCounts(requests=2, unanswered=1), recorded=1)])
    assert ("fail", ()) == (found.word, found.problems)


@pytest.mark.parametrize(
    ("gates", "expected", "problem"),
    [
        ([], None, "run 7: no gate of this run has used the state folder /state; start the gates with this run ID"),
        ([gate()], 2, "run 7: 1 of 2 expected servers have answered through a gate in /state"),
        ([gate(runs=True)], 1, "gate 'docs' still runs (process 1); end the client before the report"),
        ([gate(runs=True, command="serve", server="", open=1)], 1, "the gate of `serve` still runs"),
        ([gate(), gate()], 2, "run 7: 1 of 2 expected servers have answered"),
        ([gate(served=False)], None, "gate 'docs' ended before its server had answered any request"),
        ([gate(command="serve", exit_code=1)], None, "the gate of `serve` ended with exit code 1"),
        ([gate(started_up=False, exit_code=2)], 1, "gate 'docs' did not start; the reason is on its stderr"),
        ([gate(recorded=2)], 1, "the decision logs have 0 of the 2 lines that the gates wrote (/log)"),
    ],
)
def test_what_cannot_be_told_is_unknown_and_never_passes(
    gates: list[FoundGate], expected: int | None, problem: str
) -> None:
    found = judged(gates=gates, expected=expected)
    assert "unknown" == found.word
    assert problem in found.problems[0]


def test_further_lines_of_one_server_do_not_make_up_for_those_of_another() -> None:
    gates = [gate(recorded=1, decision_log="/a"), gate(server="db", key="d", recorded=1, decision_log="/b")]
    found = judged(record(), record(), gates=gates)
    assert "unknown" == found.word
    assert ("the decision logs have 1 of the 2 lines that the gates wrote (/b); keep the logs until the report",) == (
        *(problem.partition(" (see")[0] for problem in found.problems),
    )


def test_a_server_whose_gate_has_no_file_is_unknown() -> None:
    found = judged(record(), record(server="db"), gates=[gate(recorded=1)])
    assert "unknown" == found.word
    assert "requests from server 'db', but its gate left no file in /state/runs/7" in found.problems[0]
    assert "pass" == judged(record(), record(server="db"), gates=[gate(command="serve", server="", recorded=2)]).word


def test_the_servers_of_a_log_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "MAX_SERVERS", 2)
    records = RunRecords("7", STRICT)
    for _ in records.counted(record(server=str(number)) for number in range(9)):
        pass
    assert {"0": 1, "1": 1, verdict.OTHERS: 7} == records.lines


def test_a_gate_that_got_a_wrong_command_line_has_no_name() -> None:
    found = judged(gates=[gate(server="", started_up=False, exit_code=2)])
    assert "a gate with an invalid command line did not start" in found.problems[0]


def test_a_word_that_is_met_fails_whatever_else_cannot_be_told() -> None:
    assert "fail" == judged(record(outcome="denied"), gates=[gate(runs=True)]).word


@pytest.mark.parametrize("outcome", ["forwarded", "put_off"])
def test_a_request_that_the_client_never_returned_is_unanswered(outcome: str) -> None:
    first = record(outcome=outcome, door="input_required")
    found = judged(first)
    assert ("fail", 1, ["d1"]) == (found.word, found.counts.unanswered, [row.line.decision_id for row in found.failed])
    assert "pass" == judged(first, record(door="input_required")).word
    assert "pass" == judged(record(outcome="forwarded", door="url_error")).word, "the error itself was the end"
    assert "pass" == judged(record(outcome="forwarded", door="tool_result")).word, "the result itself was the end"


@pytest.mark.parametrize(
    ("open_", "word", "note"), [(0, "pass", "no request was open"), (2, "fail", "while 2 requests were open")]
)
def test_a_killed_gate_has_lost_only_what_was_open(open_: int, word: str, note: str) -> None:
    found = judged(gates=[gate(ended=None, open=open_)])
    assert (word, open_) == (found.word, found.counts.unanswered)
    assert note in found.notes[0]


def test_a_daemon_may_still_run() -> None:
    found = judged(gates=[gate(runs=True, command="serve")])
    assert ("pass", True) == (found.word, "until now" in found.notes[0])


def test_a_start_that_came_to_nothing_does_not_matter_if_another_gate_of_the_server_served() -> None:
    assert "pass" == judged(gates=[gate(served=False, ended=None), gate()], expected=1).word
    assert "pass" == judged(gates=[gate(), gate(key="other")], expected=2).word


def test_a_gate_that_failed_by_its_own_words_fails_the_run() -> None:
    found = judged(gates=[gate(failed=("a limit was reached",))], fail_on=())
    assert ("fail", ("gate 'docs' failed: a limit was reached",)) == (found.word, found.failed_gates)


def test_what_the_client_has_not_returned_counts_without_a_log_too() -> None:
    assert "fail" == judged(gates=[gate(decision_log=None, handed_on=1)]).word
    assert "pass" == judged(gates=[gate(handed_on=1)]).word, "a log tells"


def test_two_gates_that_carry_one_request_out_count_its_lines_and_not_the_request_twice() -> None:
    first, last = (record(outcome=outcome, door="input_required") for outcome in ("forwarded", "answered"))
    gates = [gate(recorded=1, counts=RunCounts(requests=1)) for _ in range(2)]
    assert ("pass", ()) == ((found := judged(first, last, gates=gates)).word, found.problems)


@pytest.mark.parametrize(("fails", "word"), [(True, "fail"), (False, "pass")])
def test_cases_that_were_not_replayed_fail_where_they_shall(fails: bool, word: str) -> None:
    assert word == judged(gates=[gate(unused_cases=3, fails_unused=fails)]).word


def test_the_rows_are_bounded_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "MAX_ROWS", 3)
    monkeypatch.setattr(verdict, "MAX_HANDED_ON", 3)
    lines = [record(str(n), outcome="denied" if n % 2 else "forwarded", door="input_required") for n in range(20)]
    found = judged(*lines, gates=[gate(counts=RunCounts(requests=20))])
    assert (20, 10, 3, 3) == (found.counts.requests, found.counts.denied, len(found.failed), len(found.others))
    assert (10, 4) == found.unlisted, "of the forwarded ones, the last three are known to be open"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("denied", ("denied",)),
        ("limit, denied,limit", ("denied", "limit")),
        ("none", ()),
        (",".join(WORDS), WORDS),
    ],
)
def test_words_are_a_list(text: str, words: tuple[str, ...]) -> None:
    assert words == fail_on_words(text)


@pytest.mark.parametrize(
    ("text", "problem"), [("deny", "'deny' is not one of denied, "), ("", "is empty"), ("none,limit", "'none'")]
)
def test_other_words_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        fail_on_words(text)
