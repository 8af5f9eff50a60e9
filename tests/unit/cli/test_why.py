"""`samplegate why`: the story of every reason that a request can be refused, from the records alone."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from samplegate.audit.decision_log import decision_log
from samplegate.audit.record import Attempt, Record
from samplegate.audit.story import INCOMPLETE, REASONS
from samplegate.cli.progress import Progress
from samplegate.policy.decisions import NOT_CARRIED_OUT, Misses, Shadow
from samplegate.policy.schema import DenyRule
from samplegate.protocol.outcomes import Reason
from samplegate.protocol.requests import Call
from samplegate.reviews.review import Vote
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes import logged
from tests.fakes.github_runner import commands
from tests.fakes.shell import Ended, Run, Write
from tests.fakes.stored_reviews import review
from tests.paths import ROOT

ID = "a1b2c3d4e5f6a1b2c3d4e5f6"
OTHER = "a1b2c3ffffffffffffffffff"
NAMES = ("no secrets", "own host", "trial", "models")
RULES = Misses(
    [DenyRule(name=name) for name in NAMES],
    ("", "", "", ""),
    ((0, "text", ""), (1, "host?", ""), (2, "", "shadow")),
    0,
    3,
)


def record(**members: Any) -> Record:
    found: dict[str, Any] = {
        "decision_id": ID,
        "time": 1_795_000_000.0,
        "server": "docs",
        "caller": "ci",
        "session": "5e551011",
        "era": "legacy",
        "revision": "2025-11-25",
        "door": "push",
        "kind": "sampling",
        "effect": "none",
        "reason": Reason.NO_RULE,
        "outcome": "unanswered",
        "policy_hash": "abc",
        "settings_hash": "def",
        "duration_ms": 1200.0,
    }
    return Record(**{**found, **members})


def why(run: Run, write: Write, *records: Record, id: str = ID, options: tuple[str, ...] = ()) -> Ended:
    write("log.jsonl", "".join(f"{logged.text(one, 'hash')}\n" for one in records))
    return run("why", id, "--log", "log.jsonl", *options)


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("outcome", ["denied", "unanswered"])
def test_every_reason_of_a_refusal_has_a_sentence(run: Run, write: Write, reason: Reason, outcome: str) -> None:
    assert reason in REASONS, "give the new reason a sentence in audit/story.py"
    ended = why(run, write, record(reason=reason, outcome=outcome))
    assert (0, "") == (ended.code, ended.err)
    head, sentence, *_ = ended.out.splitlines()
    assert f"decision  {ID}: {outcome} ({reason})" == head
    assert sentence.strip().endswith(".")
    assert "does not know" not in sentence
    assert "server    got an error with the reason and this ID" in ended.out or reason is Reason.CLIENT


VOTE = Vote(by="ann", how="webhook", verdict="approve", at=1_795_000_000.0, digest="sha256:d", void=True)
VAIN = Misses(RULES.rules, ("",) * 4, ((0, "", f"{NOT_CARRIED_OUT}: the prompt contains a secret"),), 0, 1)
REVIEWED = {"review": "rv_1", "reviewer": "ops"}
FAILED = (Attempt("cheap", "rate_limited", usd=0), Attempt("smart", "error", 12, 0))
DETAILS: list[tuple[dict[str, Any], str]] = [
    ({"reason": Reason.RULE, "outcome": "denied"}, "A rule denies the request."),
    ({}, REASONS[Reason.NO_RULE]),
    ({"rules": RULES}, REASONS[Reason.NO_RULE]),
    ({"tried": ("models: no answer",)}, "The rules that matched gave no answer, and no later rule matched."),
    ({"rules": VAIN}, "The rules that matched gave no answer, and no later rule matched."),
    ({"reason": Reason.NOT_OFFERED}, REASONS[Reason.NOT_OFFERED]),
    ({"reason": Reason.LIMIT}, REASONS[Reason.LIMIT]),
    ({"reason": Reason.LIMIT, "refused_by": "day"}, "A limit had no room for the request."),
    ({"reason": Reason.TIMEOUT}, "No answer came in time."),
    ({"reason": Reason.TIMEOUT, **REVIEWED}, "The reviewer did not decide in time."),
    (
        {"reason": Reason.TIMEOUT, **REVIEWED, "votes": (VOTE,)},
        "Not all of the approvals that the reviewer needs came in time.",
    ),
    (
        {"outcome": "answered", "effect": "escalate", **REVIEWED, "votes": (VOTE,)},
        "A rule escalated the request to a reviewer, and as many people approved it as the reviewer needs.",
    ),
    ({"reason": Reason.TIMEOUT, "attempts": FAILED[:1]}, "The model did not answer in time."),
    ({"reason": Reason.TIMEOUT, "effect": "forward"}, "The client did not answer in time."),
    ({"reason": Reason.MODEL, "attempts": FAILED[:1]}, REASONS[Reason.MODEL]),
    ({"reason": Reason.MODEL, "attempts": FAILED}, "None of the models gave a usable answer."),
    ({"reason": Reason.CLIENT}, REASONS[Reason.CLIENT]),
    ({"reason": Reason.CLIENT, "outcome": "denied"}, "The client refused the request."),
    ({"reason": Reason.CLIENT, "fits": False}, "The client's answer does not fit the request."),
    ({"reason": Reason.REVIEW}, "No reviewer could be asked."),
    ({"reason": Reason.REVIEW, **REVIEWED}, REASONS[Reason.REVIEW]),
    ({"reason": Reason.REVIEW, **REVIEWED, "outcome": "denied"}, "A reviewer rejected the request."),
    ({"reason": Reason.REVIEW, **REVIEWED, "revokes": True}, "An earlier record named an answer, but it was not rele"),
    ({"outcome": "withdrawn"}, "The request or its call was cancelled before anything was released."),
    (
        {"outcome": "forwarded", "effect": "forward", "door": "input_required"},
        "A rule forwarded the request, and the client was asked. No answer is recorded: the client has not retried its",
    ),
    (
        {"outcome": "forwarded", "effect": "forward", "door": "url_error"},
        "A rule forwarded the request: the client got the server's error with the URL.",
    ),
    (
        {"outcome": "forwarded", "effect": "forward", "door": "tool_result"},
        "A rule forwarded the request: the client got the tool's result with the question.",
    ),
    ({"outcome": "put_off", "effect": "allow"}, "A model has answered, but a reviewer has not yet decided"),
    ({"outcome": "answered", "effect": "allow"}, "A rule allowed the request, and a model answered."),
    ({"outcome": "answered", "effect": "answer"}, "A rule answered the request with fixed content."),
    ({"outcome": "answered", "effect": "forward"}, "A rule forwarded the request, and the client answered."),
    (
        {"outcome": "answered", "effect": "escalate", **REVIEWED},
        "A rule escalated the request to a reviewer, who approved or",
    ),
    ({"outcome": "answered", "effect": "allow", **REVIEWED}, "A rule allowed the request, and a reviewer approved the"),
    ({"outcome": "answered", "effect": "forward", "door": "unasked"}, "The client answered before it was asked."),
]


@pytest.mark.parametrize(("members", "sentence"), DETAILS)
def test_the_sentence_knows_the_details(run: Run, write: Write, members: dict[str, Any], sentence: str) -> None:
    assert why(run, write, record(**members)).out.splitlines()[1].strip().startswith(sentence)


GOT: list[tuple[dict[str, Any], str]] = [
    ({"door": "input_required", "era": "modern"}, "no answer: its call ended with an error that has this ID"),
    ({"kind": "elicitation", "mode": "form", "action": "cancel"}, "the reply cancel, without content"),
    ({"kind": "elicitation", "mode": "form", "outcome": "answered", "action": "accept"}, "the reply accept"),
    ({"outcome": "answered"}, "the answer"),
    ({"outcome": "withdrawn"}, "nothing: the request was withdrawn"),
    ({"outcome": "forwarded", "door": "input_required"}, "nothing yet: the client is being asked"),
    ({"outcome": "forwarded", "door": "url_error"}, "nothing: the client got its error with the URL"),
    (
        {"kind": "elicitation", "mode": "form", "action": "cancel", "door": "tool_result"},
        "nothing: the client got the reply cancel in the tool's result",
    ),
    (
        {"kind": "elicitation", "mode": "form", "outcome": "forwarded", "door": "tool_result"},
        "nothing: the client got the tool's result as it was",
    ),
    ({"outcome": "withdrawn", "door": "tool_result"}, "nothing: the request was withdrawn"),
    ({"outcome": "put_off"}, "nothing yet: the client retries the call"),
    ({"reason": Reason.CLIENT, "outcome": "denied"}, "the client's own error"),
]


@pytest.mark.parametrize(("members", "got"), GOT)
def test_it_says_what_the_server_got(run: Run, write: Write, members: dict[str, Any], got: str) -> None:
    assert f"server    got {got}\n" in why(run, write, record(**members)).out


def test_the_whole_story_of_a_refusal(run: Run, write: Write) -> None:
    ended = why(
        run,
        write,
        record(decision_id=OTHER),
        record(
            reason=Reason.MODEL,
            effect="allow",
            rule="models",
            rules=RULES,
            detail="rate_limited: try later",
            calls=(Call("tools/call", "summarize"),),
            tried=("first: limit day is reached",),
            shadows=(Shadow("trial", "deny"),),
            changed=("maxTokens",),
            attempts=FAILED,
            reserved_usd=574 * 10**9,
            limits=("day",),
            refused_by="month",
            redacted={"aws-key": 2},
            run="17-1-test",
            **REVIEWED,
            reviewed_by="ann",
            review_door="page",
            reviewed_ms=2000.0,
        ),
        id=ID[:7],
    )
    assert (
        """\
decision  a1b2c3d4e5f6a1b2c3d4e5f6: unanswered (model)
          None of the models gave a usable answer.
          rate_limited: try later
when      2026-11-18 11:06:40.000 UTC: unanswered (model), after 1.2s
who       server docs, caller ci, session 5e551011
protocol  2025-11-25 (legacy)
request   sampling, during tools/call summarize, as a request from the server
rules     no secrets: text did not match
          own host: host could not be matched: the value is unknown or ambiguous
          trial: shadow
          models: decided (effect allow); later rules were not looked at
tried     first: limit day is reached
shadow    trial would have had the effect deny
changed   maxTokens
limits    charged: day
          reached: month
models    cheap: rate_limited, $0.00
          smart: error, 12 input and 0 output tokens, unknown cost
          total: unknown cost (reserved: $0.58)
secrets   found 2 aws-key
review    rv_1 for reviewer ops, the request waited 2s
          decided by ann (page)
          its history is not in the state folder; pass the gate's --state or --settings
server    got an error with the reason and this ID
policy    hash abc, settings hash def
run       17-1-test
"""
        == ended.out
    )
    assert (0, "") == (ended.code, ended.err)


RULED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["the policy has none"]),
    ({"reason": Reason.BRAKE}, ["none was looked at"]),
    (
        {"reason": Reason.NOT_OFFERED, "rule": "models", "rules": Misses(RULES.rules, ("tool",) * 4, (), 0, 1)},
        [
            "no secrets: tool did not match (no call was in flight)",
            "models: matched, but the capability was not advertised",
        ],
    ),
    (
        {"reason": Reason.CANNOT, "rule": "models", "detail": "rule 'models' could not be carried out: no models"},
        ["models: matched, but could not be carried out; later rules were not looked at"],
    ),
    ({"reason": Reason.LIMIT, "rule": "models"}, ["models: matched; later rules were not looked at"]),
    (
        {
            "kind": "elicitation",
            "mode": "url",
            "rules": Misses([DenyRule(name=str(number)) for number in range(300)], ("mode",) * 300, (), 0, 300),
        },
        [f"{number}: mode did not match (URLs need a rule with `mode: url`)" for number in range(200)]
        + ["not listed: 100 by mode"],
    ),
]


@pytest.mark.parametrize(("members", "lines"), RULED)
def test_every_rule_has_its_reason(run: Run, write: Write, members: dict[str, Any], lines: list[str]) -> None:
    out = why(run, write, record(**members)).out.splitlines()
    first = next(number for number, line in enumerate(out) if line.startswith("rules"))
    assert lines == [line[10:] for line in out[first : first + len(lines)]]
    assert not out[first + len(lines)].startswith(" ")


def test_a_detail_that_repeats_the_sentence_is_left_out(run: Run, write: Write) -> None:
    _head, sentence, following, *_ = why(run, write, record(detail="no rule matched")).out.splitlines()
    assert ("No rule matched the request.", "when") == (sentence.strip(), following[:4])
    out = why(run, write, record(detail="no rule matched", tried=("models: no answer",))).out
    assert "no rule matched" not in out, "a rule matched, in vain"


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0.02, "0.001s"), (0.868, "0.001s"), (1.02, "0.001s"), (250.0, "0.25s"), (61e3, "1m1s")]
)
def test_durations_are_readable(run: Run, write: Write, milliseconds: float, text: str) -> None:
    assert f"unanswered (no_rule), after {text}\n" in why(run, write, record(duration_ms=milliseconds)).out


PASTED = [
    f"sampling request denied by policy [decision {ID}]",
    f'{{"code": -1, "data": {{"kind": "sampling", "decision_id": "{ID}"}}, "message": "x [decision {ID}]"}}',
    f"  {ID}\n",
]


@pytest.mark.parametrize("text", PASTED)
def test_the_text_of_an_error_is_searched_for_the_id(run: Run, write: Write, text: str) -> None:
    assert f"decision  {ID}: unanswered (no_rule)" in why(run, write, record(), id=text).out


def test_the_text_of_an_error_needs_no_quotes(run: Run, write: Write) -> None:
    why(run, write, record())
    assert f"decision  {ID}: unanswered (no_rule)" in run("why", *PASTED[0].split(), "--log", "log.jsonl").out


def test_a_text_with_several_ids_names_them(run: Run, write: Write) -> None:
    ended = why(run, write, record(), id=f"[decision {OTHER}] and [decision {ID}]")
    assert 2 == ended.code
    assert f"why: the text has several decision IDs: {OTHER}, {ID}; pass one of them" in ended.err


def test_the_records_of_a_request_that_the_client_answered_are_one_story(run: Run, write: Write) -> None:
    first = record(
        effect="forward", reason=Reason.RULE, rule="models", rules=RULES, outcome="forwarded", limits=("day",)
    )
    last = record(effect="forward", reason=Reason.CLIENT, rule="models", outcome="unanswered", time=1_795_000_060.0)
    out = why(run, write, first, last).out
    assert f"decision  {ID}: unanswered (client)" in out
    assert (
        "when      2026-11-18 11:06:40.000 UTC: forwarded (rule), after 1.2s\n"
        "          2026-11-18 11:07:40.000 UTC: unanswered (client), after 1.2s\n" in out
    )
    assert "no secrets: text did not match" in out
    assert "charged: day" in out


def test_json_has_every_member_of_the_records_and_no_content(run: Run, write: Write) -> None:
    one = record(rule="models", rules=RULES, request={"systemPrompt": "s3cret"}, calls=(Call("tools/call", "x"),))
    write("log.jsonl", logged.text(one, "full"))
    ended = run("why", ID, "--log", "log.jsonl", "--json")
    told = json.loads(ended.out)
    assert (ID, "no_rule", True, ["log.jsonl"]) == tuple(
        told[it] for it in ("decision_id", "reason", "complete", "logs")
    )
    (found,) = told["records"]
    assert {"rule": "no secrets", "condition": "text"} == found["rules"][0]
    assert ("5e551011", "def", [{"method": "tools/call", "tool": "x"}]) == (
        found["session"],
        found["settings_hash"],
        found["calls"],
    )
    assert "s3cret" not in ended.out


def test_a_record_of_0_1_0_shows_what_it_has_and_says_that_this_is_not_all(run: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests" / "upgrade" / "v0.1.0" / "state", tmp_path / "state")
    ended = run("why", "07714e", "--state", "state")
    assert (0, "") == (ended.code, ended.err)
    assert "The reviewer did not decide in time." in ended.out
    assert "rules     soon over: decided (effect escalate)" in ended.out
    assert "2026-11-20 09:00:00.765 UTC: opened" in ended.out
    assert INCOMPLETE in ended.out
    assert not json.loads(run("why", "07714e", "--state", "state", "--json").out)["complete"]


def test_no_record_is_1_with_the_places_that_were_searched(run: Run, write: Write) -> None:
    ended = why(run, write, record(), id="ffffff")
    assert (1, "") == (ended.code, ended.out)
    assert "no record of decision ffffff in log.jsonl; pass other logs with --log" in ended.err


WRONG: list[tuple[str, str]] = [
    ("a1b2c3", f"a1b2c3 matches {ID}, {OTHER}; use a longer prefix"),
    ("a1b2c", "'a1b2c' is not a decision ID; write the ID, or at least its first 6 characters"),
    ("::error::x", "'::error::x' is not a decision ID"),
]


@pytest.mark.parametrize(("id", "message"), WRONG)
def test_what_is_no_decision_or_several_is_2(run: Run, write: Write, id: str, message: str) -> None:
    ended = why(run, write, record(), record(decision_id=OTHER), id=id)
    assert (2, "") == (ended.code, ended.out)
    assert message in ended.err


def test_a_damaged_record_of_the_decision_is_2_and_others_are_not_read(run: Run, write: Write) -> None:
    whole = logged.text(record(), "hash") + "\n"
    write("log.jsonl", f'{whole}{{"decision_id":"{ID}","ti\n')
    ended = run("why", ID, "--log", "log.jsonl")
    assert 2 == ended.code
    assert "log.jsonl:2: is not JSON" in ended.err
    assert f"decision  {ID}: unanswered (no_rule)" in ended.out, "what there is, is shown"
    write("log.jsonl", f'{whole}{{"decision_id":"{OTHER}","ti\n')
    assert (0, "") == (run("why", ID, "--log", "log.jsonl").code, run("why", ID, "--log", "log.jsonl").err)
    write("log.jsonl", f'{{"decision_id":"{ID}","ti\n')
    assert (2, "") == (run("why", ID, "--log", "log.jsonl").code, run("why", ID, "--log", "log.jsonl").out)
    assert 2 == run("why", ID, "--log", "none.jsonl").code
    assert 2 == run("why", ID, "--state", "nowhere").code


def test_names_of_peers_drive_no_terminal_and_give_a_runner_no_command(run: Run, write: Write) -> None:
    hostile = "::error::x\n::error::y\x1b[31m##[error]\u202e" + "z" * 5000
    found = record(
        server=hostile,
        caller=hostile,
        rule=hostile,
        detail=hostile,
        calls=(Call(hostile, hostile),) * 30,
        tried=(hostile,) * 30,
        shadows=(Shadow(hostile, hostile),),
        rules=Misses([DenyRule(name=hostile)] * 2, ("", ""), ((0, hostile, ""), (1, "", hostile)), 0, 2),
        attempts=(Attempt(hostile, hostile),),
        redacted={hostile: 1},
        review=hostile,
        reviewer=hostile,
        run=hostile,
        traceparent=hostile,
    )
    for options in ((), ("--json",)):
        out = why(run, write, found, options=options).out
        assert [] == commands(out)
        assert not {"\x1b", "\u202e"} & set(out)
        assert options or all(len(line) < 2100 for line in out.splitlines())


def test_a_log_with_too_many_records_of_a_decision_is_counted(run: Run, write: Write) -> None:
    ended = why(run, write, *[record(outcome="put_off")] * 30)
    assert (0, 20) == (ended.code, ended.out.count("put_off (no_rule), after"))
    assert "and 10 more records" in ended.out


@pytest.mark.parametrize("name", ["sqlite:rows.db", "many.jsonl"])
def test_databases_and_rotated_files_are_searched_too(run: Run, tmp_path: Path, name: str) -> None:
    async def keep() -> None:
        setting = f"sqlite:{tmp_path / 'rows.db'}" if name.startswith("sqlite:") else str(tmp_path / name)
        log = decision_log(setting, state=tmp_path, server="docs", content="hash", max_bytes=600)
        for number in range(6):
            await log.write(record(decision_id=ID if number == 1 else f"{number:024d}"))
        await log.aclose()

    anyio.run(keep)
    ended = run("why", ID, "--log", name)
    assert (0, "") == (ended.code, ended.err)
    assert f"decision  {ID}: unanswered (no_rule)" in ended.out


def test_compressed_files_are_searched_too(run: Run, write: Write, tmp_path: Path) -> None:
    why(run, write, record(decision_id=OTHER))
    packed = gzip.compress(logged.text(record(), "hash").encode() + b"\n")
    (tmp_path / "log.jsonl.2.gz").write_bytes(packed)
    ended = run("why", ID, "--log", "log.jsonl*")
    assert (0, "") == (ended.code, ended.err)
    assert f"decision  {ID}: unanswered (no_rule)" in ended.out
    (tmp_path / "log.jsonl.2.gz").write_bytes(packed[:-9])
    ended = run("why", ID, "--log", "log.jsonl*")
    assert (2, True) == (ended.code, "log.jsonl.2.gz: cannot be read: " in ended.err)


def store_with_reviews(empty_store: Callable[[Path], str], folder: Path) -> tuple[str, str, str]:
    """A store with two expired reviews: its URL, and their IDs."""
    (folder / "gate").mkdir(exist_ok=True)
    url, first, second = empty_store(folder / "gate"), f"rv_{'a' * 24}", f"rv_{'b' * 24}"
    store = SqlReviewStore(url)
    for id in (first, second):
        assert store.open(review(id), announce=False, most=9)
    store.close()
    return url, first, second


def test_settings_name_the_log_and_the_review_store(
    run: Run, write: Write, tmp_path: Path, empty_store: Callable[[Path], str]
) -> None:
    store, id, _ = store_with_reviews(empty_store, tmp_path)
    write("gate/log.jsonl", logged.text(record(reason=Reason.TIMEOUT, review=id, reviewer="ops"), "hash") + "\n")
    write("gate/serve.yaml", f"decision_log: log.jsonl\nstore: {store}\n")
    ended = run("why", ID, "--settings", "gate/serve.yaml")
    assert (0, "") == (ended.code, ended.err)
    assert f"review    {id} for reviewer ops, now " in ended.out
    assert " UTC: opened" in ended.out
    write("none.yaml", "decision_log: none\n")
    ended = run("why", ID, "--settings", "none.yaml")
    assert (2, True) == (ended.code, "the settings have `decision_log: none`" in ended.err)
    ended = run("why", ID, "--settings", "gone.yaml")
    assert (2, True) == (ended.code, "gone.yaml: cannot be read" in ended.err)


def test_reviews_that_ended_before_a_later_rule_have_their_history(
    run: Run, write: Write, tmp_path: Path, empty_store: Callable[[Path], str]
) -> None:
    store, first, second = store_with_reviews(empty_store, tmp_path)
    one = record(tried=(f"ask: reviewer ops did not decide review {first} within 2s",), review=second, reviewer="ops")
    write("log.jsonl", logged.text(one, "hash"))
    options = ("--log", "log.jsonl", "--settings", "s.yaml")
    write("s.yaml", f"store: {store}\n")
    out = run("why", ID, *options).out
    assert f"review    {first} for reviewer " in out
    assert f"          {second} for reviewer ops" in out
    told = json.loads(run("why", ID, *options, "--json").out)
    assert ([first], second) == ([one["id"] for one in told["earlier_reviews"]], told["review"]["id"])


def test_a_long_search_shows_its_progress(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(Progress, "step", lambda self: steps.append("step"))
    why(run, write, *[record(decision_id=f"{number:024d}") for number in range(7)], id="0" * 23 + "6")
    assert 7 == len(steps), "lines of other decisions count, too"


def test_each_vote_is_told(run: Run, write: Write) -> None:
    asked = record(outcome="answered", effect="escalate", **REVIEWED, review_door="page", votes=(VOTE,))
    assert "          vote: approve by ann (webhook, unproved name, void)\n" in why(run, write, asked).out
    asked = record(outcome="answered", effect="escalate", **REVIEWED, votes=(replace(VOTE, ui="ab" * 32),))
    assert "          vote: approve by ann (webhook, unproved name, void, saw the UI)\n" in why(run, write, asked).out
