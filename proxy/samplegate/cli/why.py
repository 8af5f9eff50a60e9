"""``samplegate why``: tells the story of a recorded decision. It reads the decision logs and the review store, and
never evaluates a policy. ``audit/story.py`` has the sentences."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from samplegate import money
from samplegate.audit.reader import Logs
from samplegate.audit.record import CONTENT_FIELDS, MAX_CALLS, MAX_DETAIL, MAX_RULES, RecordedTry, timestamp
from samplegate.audit.story import INCOMPLETE, DecisionLine, RecordedRule, explanation, read_decision, server_got
from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.database_argument import database_argument, log_name
from samplegate.cli.files import STATE, STDOUT, plain, print_error, print_lines, write_json
from samplegate.cli.progress import Progress
from samplegate.cli.since import since_argument, since_time
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.config.settings import SETTINGS, ProcessSettings
from samplegate.config.sources import gather
from samplegate.durations import duration_text
from samplegate.errors import InputError, Unavailable
from samplegate.files import SQLITE
from samplegate.policy.conditions import short_value
from samplegate.policy.decisions import NO_MATCH
from samplegate.postgres.url import DATABASE, is_database
from samplegate.protocol.outcomes import Reason

MIN_PREFIX: Final = 6
MAX_RECORDS: Final = 20  # of one decision: a call that is put off is recorded at each retry
MAX_LISTED: Final = 5
MAX_EVENTS: Final = 50
_ID: Final = re.compile(r"[0-9A-Za-z_-]{6,64}\Z")
_ID_IN_TEXT: Final = re.compile(r"(?<![0-9A-Za-z_-])[0-9a-f]{24}(?![0-9A-Za-z_-])")
_REVIEW_IN_TEXT: Final = re.compile(r"\brv_[0-9a-f]{24}\b")
_UNKNOWN: Final = "unknown"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    # argparse would put ID last, where --log would take it
    parser.usage = (
        "samplegate why ID [--log LOG [LOG ...]] [--since TIME] [--state DIR]\n"
        "                      [--settings FILE] [--json [FILE]]"
    )
    parser.add_argument(
        "id",
        nargs="+",
        metavar="ID",
        help="decision ID, a unique prefix of at least 6 characters, or the text of an error with the ID",
    )
    parser.add_argument(
        "--log",
        type=log_name,
        nargs="+",
        metavar="LOG",
        help=(
            "decision logs: files, folders, globs, or the URL of a database (default: the log of the settings, or those"
            " in the state folder)"
        ),
    )
    since_argument(parser)
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="state folder of the gate (default: that of `samplegate run`)"
    )
    database_argument(parser)
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings file of the gate, to find its log and its review store"
    )
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="print one JSON object, or write it to this file"
    )


def command(args: argparse.Namespace) -> int:
    """Explain a decision. Returns 1 if no record was found, 2 if a log is unreadable or damaged at a record that may be
    the decision's."""
    try:
        id = _decision_id(" ".join(args.id).strip())
        since = since_time(args.since, time.time())
        places = _places_of(args.settings, args.state, args.database)
        with Progress("records") as progress:
            logs = Logs(args.log or places.logs(), decision=id, read=read_decision, passed=progress.step)
            found = _found(logs, id, since)
        if found.records:
            _tell(args, found, _reviews(found, places), logs)
        elif found.problem is None and not logs.bad:
            print_error(
                f"why: no record of decision {id} in {_searched(logs)}; pass other logs with --log. A gate with"
                " `--decision-log none`, or whose log could not be written (reason records), leaves no record"
            )
            return FAILED
        if found.problem is not None:
            raise found.problem
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    for complaint in logs.complaints():
        print_error(complaint)
    return UNREADABLE if logs.bad else OK


def _decision_id(text: str) -> str:
    """The ID or prefix, or the ID in the text of an error. Raises InputError."""
    if _ID.match(text) is not None:
        return text
    ids = list(dict.fromkeys(found[0] for found in _ID_IN_TEXT.finditer(text)))
    if len(ids) > 1:
        listed = f"{', '.join(ids[:MAX_LISTED])}{' and more' if len(ids) > MAX_LISTED else ''}"
        raise InputError(f"why: the text has several decision IDs: {listed}; pass one of them")
    if not ids:
        raise InputError(
            f"why: {short_value(text)} is not a decision ID; write the ID, or at least its first {MIN_PREFIX}"
            " characters, as it is in the error or the log line"
        )
    return ids[0]


@dataclass(frozen=True)
class _Places:
    """Where the gate keeps its log and its reviews."""

    state: Path | None
    decision_log: str | None
    store: str | None
    database: str | None

    def logs(self) -> list[str]:
        """The log of the settings, or the daily logs in the state folder. Raises InputError."""
        if self.decision_log == "none":
            raise InputError("why: the settings have `decision_log: none`, so no decision is recorded")
        if self.decision_log == DATABASE and self.database is not None:
            return [self.database]
        if self.decision_log is not None:
            return [self.decision_log]
        if self.state is None:
            raise InputError(f"--log: the home folder is unknown; pass the log files with --log, or set {STATE}")
        if not (self.state / "decisions").is_dir():
            raise InputError(f"--log: {self.state / 'decisions'} does not exist; pass the log files with --log")
        return [str(self.state / "decisions")]

    def reviews(self) -> str | None:
        """The URL of the review store."""
        return (
            self.store or self.database or (None if self.state is None else ProcessSettings(state=self.state).reviews)
        )


def _places_of(settings: Path | None, state: Path | None, database: str | None) -> _Places:
    """The places by the command line, the variables and the settings (of `run` or `serve`). Raises InputError."""
    problems: list[str] = []
    named = {"state": state, "database": database}
    values, _ = gather({**SERVE_SETTINGS, **SETTINGS}, os.environ, settings, named, problems)
    if problems:
        raise InputError("\nsamplegate: ".join(problems))
    return _Places(values.get("state"), values.get("decision_log"), values.get("store"), values.get("database"))


def _searched(logs: Logs) -> str:
    more = len(logs.files) - MAX_LISTED
    return ", ".join(logs.files[:MAX_LISTED]) + (f" and {more} more logs" if more > 0 else "")


@dataclass
class _Found:
    """The records of a decision, in the order of the logs."""

    id: str = ""
    records: list[DecisionLine] = field(default_factory=list)
    left_out: int = 0
    problem: InputError | None = None
    """A log that could not be read to its end."""


def _found(logs: Logs, prefix: str, since: str) -> _Found:
    """The records of the decision with this prefix, from a time on. Raises InputError if it means several decisions."""
    found = _Found()
    ids: dict[str, None] = {}
    try:
        for line in logs:
            if not isinstance(line, DecisionLine) or not line.decision_id.startswith(prefix):
                continue
            if line.time < since:
                continue
            if len(ids) <= MAX_LISTED:
                ids[line.decision_id] = None
            if len(found.records) < MAX_RECORDS:
                found.records.append(line)
            else:
                found.left_out += 1
    except InputError as problem:
        if not found.records:
            raise
        found.problem = problem
    if len(ids) > 1 and prefix not in ids:
        listed = ", ".join(plain(one) for one in islice(ids, MAX_LISTED))
        raise InputError(
            f"why: {prefix} matches {listed}{' and more' if len(ids) > MAX_LISTED else ''}; use a longer prefix"
        )
    found.id = prefix if prefix in ids else next(iter(ids), "")
    found.records = [line for line in found.records if line.decision_id == found.id]
    return found


# -- the review
# ----------------------------------------------------------------------------------------------------------------------


class _ReviewEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    time: str
    """RFC 3339 in UTC, as in records."""
    what: str
    by: str = ""
    door: str = ""
    detail: str = ""


class _ReviewStory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state and the history of a review, as the store has them; or why they are unknown."""

    id: str
    reviewer: str = _UNKNOWN
    state: str = _UNKNOWN
    problem: str = ""
    events: tuple[_ReviewEvent, ...] = ()


def _reviews(found: _Found, places: _Places) -> tuple[list[_ReviewStory], _ReviewStory | None]:
    """The reviews that ended before a later rule was looked at, and the last review of the decision, if it has one."""
    last = next((line.review for line in reversed(found.records) if line.review is not None), None)
    tried = (id for line in found.records for one in line.tried for id in _REVIEW_IN_TEXT.findall(one))
    earlier = [id for id in dict.fromkeys(tried) if id != last][:MAX_LISTED]
    return [_review(id, places) for id in earlier], None if last is None else _review(last, places)


def _review(id: str, places: _Places) -> _ReviewStory:
    url = places.reviews()
    if url is None or not (is_database(url) or Path(url.removeprefix(SQLITE)).is_file()):
        where = "the state folder" if places.store is None else plain(url or "")
        return _ReviewStory(id, problem=f"its history is not in {where}; pass the gate's --state or --settings")
    from samplegate.cli.review_text import current_state
    from samplegate.reviews.sql_store import SqlReviewStore
    from samplegate.reviews.views import EVENT_MEANINGS

    try:
        store = SqlReviewStore(url, make=False)
        try:
            review, events, now = store.get(id), store.history(id), store.wall()
        finally:
            store.close()
    except Unavailable as problem:
        return _ReviewStory(id, problem=str(problem))
    if review is None:
        return _ReviewStory(id, problem="it is no longer in the review store")
    return _ReviewStory(
        id,
        review.reviewer,
        current_state(review, now).state,
        events=tuple(
            _ReviewEvent(timestamp(one.at), EVENT_MEANINGS.get(one.what, one.what), one.who, one.door, one.detail)
            for one in events[-MAX_EVENTS:]
        ),
    )


# -- text
# ----------------------------------------------------------------------------------------------------------------------


def _tell(
    args: argparse.Namespace,
    found: _Found,
    reviews: tuple[list[_ReviewStory], _ReviewStory | None],
    logs: Logs,
) -> None:
    if args.json is None:
        print_lines(_cut(line) for line in _story(found, *reviews))
    else:
        write_json(args.json, _json(found, *reviews, logs))


def _story(found: _Found, earlier: Sequence[_ReviewStory], review: _ReviewStory | None) -> Iterator[str]:
    last, ruled = found.records[-1], _ruled(found.records)
    sentence = explanation(last)
    yield f"decision  {plain(found.id)}: {plain(last.outcome)} ({plain(last.reason)})"
    yield f"          {sentence}"
    if last.detail and last.detail != NO_MATCH and last.detail.lower() not in sentence.lower():
        yield f"          {last.detail}"
    yield from _labelled(
        "when",
        (f"{_moment(line.time)}: {plain(line.outcome)} ({plain(line.reason)}){_took(line)}" for line in found.records),
    )
    if found.left_out:
        yield f"          and {found.left_out} more records"
    session = "" if last.session is None else f", session {plain(last.session)}"
    yield f"who       server {plain(last.server)}, caller {plain(last.caller)}{session}"
    yield f"protocol  {plain(last.revision)} ({last.era})"
    yield f"request   {last.kind}{f', {last.mode}' if last.mode else ''}, {_during(last)}, {_door(last)}"
    yield from _labelled("rules", _rules(ruled))
    yield from _labelled("tried", (one for line in found.records for one in line.tried[:MAX_CALLS]))
    yield from _labelled("shadow", _shadows(ruled))
    yield from _labelled("changed", _joined(last.changed))
    yield from _labelled("limits", _limits(found.records))
    yield from _labelled("models", _attempts(found.records))
    yield from _labelled("secrets", _secrets(last))
    yield from _labelled("review", _reviewed(last, earlier, review))
    yield f"server    got {server_got(last)}"
    yield f"policy    hash {plain(last.policy_hash or _UNKNOWN)}, settings hash {plain(last.settings_hash or _UNKNOWN)}"
    if last.run is not None:
        yield f"run       {plain(last.run)}"
    if last.traceparent is not None:
        yield f"trace     {plain(last.traceparent)}"
    if not all(line.is_complete for line in found.records):
        yield f"note      {INCOMPLETE}"


def _ruled(records: Sequence[DecisionLine]) -> DecisionLine:
    """The record with the rules that led to the decision: the last that has any."""
    return next((line for line in reversed(records) if line.rules), records[-1])


def _labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{label if not number else '':<10}{line}"


def _cut(line: str) -> str:
    return line if len(line) <= MAX_DETAIL else f"{line[: MAX_DETAIL - 1]}…"


def _moment(recorded: str) -> str:
    return f"{recorded[:10]} {recorded[11:].rstrip('Z')} UTC"


def _took(line: DecisionLine) -> str:
    return "" if line.duration_ms is None else f", after {duration_text(line.duration_ms / 1000)}"


def _during(line: DecisionLine) -> str:
    calls = [f"{call.method} {call.tool}" if call.tool else call.method for call in line.calls[:MAX_CALLS]]
    return f"during {' or '.join(map(plain, calls))}" if calls else "outside any call"


def _door(line: DecisionLine) -> str:
    return {
        "push": "as a request from the server",
        "input_required": "in a result that asks for input",
        "url_error": "as a URL in an error",
        "unasked": "as unsolicited answers from the client",
        "task": "in a task of the server",
        "tool_result": "as a question in a tool's result",
    }.get(line.door, plain(line.door))


def _rules(line: DecisionLine) -> Iterator[str]:
    for rule in (line.rules or ())[: MAX_RULES + 1]:
        yield _rule(line, rule)
    if line.rule is not None and line.reason == Reason.NOT_OFFERED and line.outcome != "denied":
        yield f"{plain(line.rule)}: matched, but the capability was not advertised"
    elif line.rule is not None and all(line.rule != rule.rule for rule in line.rules or ()):
        what = f"decided (effect {plain(line.effect)})" if line.effect != "none" else "matched"
        what = "matched, but could not be carried out" if line.reason == Reason.CANNOT else what
        yield f"{plain(line.rule)}: {what}; later rules were not looked at"
    elif line.rule is None and not line.rules:
        asked = line.reason == Reason.NO_RULE
        yield "not recorded" if not line.is_complete else "the policy has none" if asked else "none was looked at"


def _rule(line: DecisionLine, rule: RecordedRule) -> str:
    if rule.left_out:
        counts = sorted(rule.left_out.items(), key=lambda pair: (-pair[1], pair[0]))
        return "not listed: " + ", ".join(
            f"{count} {'that matched without deciding' if name == 'matched' else f'by {plain(name)}'}"
            for name, count in counts[:MAX_CALLS]
        )
    if not rule.condition:
        return f"{plain(rule.rule)}: {rule.why}"
    name, unknown = rule.condition.removesuffix("?"), rule.condition.endswith("?")
    if unknown:
        return f"{plain(rule.rule)}: {plain(name)} could not be matched: the value is unknown or ambiguous"
    return f"{plain(rule.rule)}: {plain(name)} did not match{_hint(line, name)}"


def _hint(line: DecisionLine, condition: str) -> str:
    """The remedy where a rule fails on a condition that it need not have."""
    if condition == "mode" and line.mode == "url":
        return " (URLs need a rule with `mode: url`)"
    if condition == "scheme":
        return " (URLs other than http and https need a rule that names the scheme)"
    return " (no call was in flight)" if condition == "tool" and not line.calls else ""


def _shadows(line: DecisionLine) -> Iterator[str]:
    for shadow in line.shadows[:MAX_RULES]:
        yield f"{plain(shadow.rule)} would have had the effect {plain(shadow.effect)}"


def _joined(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield ", ".join(map(plain, names[:MAX_RULES]))


def _limits(records: Sequence[DecisionLine]) -> Iterator[str]:
    charged = dict.fromkeys(name for line in records for name in line.limits[:MAX_RULES])
    if charged:
        yield f"charged: {', '.join(map(plain, charged))}"
    for name in dict.fromkeys(line.refused_by for line in records if line.refused_by is not None):
        yield f"reached: {plain(name)}"


def _attempts(records: Sequence[DecisionLine]) -> Iterator[str]:
    for line in records:
        for one in line.attempts[:100]:
            yield f"{plain(one.model)}: {plain(one.result)}{_tokens(one)}, {_usd(one.cost_usd)}"
        if line.attempts:
            reserved = "" if line.reserved_usd is None else f" (reserved: {_usd(line.reserved_usd)})"
            yield f"total: {_usd(line.cost_usd)}{reserved}"


def _tokens(one: RecordedTry) -> str:
    if one.input_tokens is None and one.output_tokens is None:
        return ""
    known = (_UNKNOWN if count is None else str(count) for count in (one.input_tokens, one.output_tokens))
    return f", {' input and '.join(known)} output tokens"


def _usd(dollars: float | None) -> str:
    if dollars is None:
        return "unknown cost"
    return money.dollars(round(dollars * money.UNITS))


def _secrets(line: DecisionLine) -> Iterator[str]:
    if line.redacted:
        found = islice(line.redacted.items(), MAX_CALLS)
        yield "found " + ", ".join(f"{count} {plain(name)}" for name, count in found)


def _reviewed(line: DecisionLine, earlier: Sequence[_ReviewStory], review: _ReviewStory | None) -> Iterator[str]:
    for one in earlier:
        yield f"{plain(one.id)} for reviewer {plain(one.reviewer)}{'' if one.problem else f', now {one.state}'}"
        yield from _history(one)
    if review is None:
        return
    waited = "" if line.reviewed_ms is None else f", the request waited {duration_text(line.reviewed_ms / 1000)}"
    state = "" if review.problem else f", now {review.state}"
    yield f"{plain(review.id)} for reviewer {plain(line.reviewer or _UNKNOWN)}{state}{waited}"
    if line.review_door is not None:
        shown = f", who was shown the server's own UI (SHA-256 {plain(line.review_ui)})" if line.review_ui else ""
        yield f"decided by {plain(line.reviewed_by or _UNKNOWN)} ({plain(line.review_door)}){shown}"
    for vote in line.votes:
        marked = (("unproved name", not vote.proven), ("void", vote.void), ("saw the UI", bool(vote.ui)))
        marks = [mark for mark, holds in marked if holds]
        yield f"vote: {plain(vote.verdict)} by {plain(vote.by)} ({', '.join([plain(vote.how), *marks])})"
    yield from _history(review)


def _history(review: _ReviewStory) -> Iterator[str]:
    if review.problem:
        yield review.problem
    for event in review.events:
        by = f" by {plain(event.by)} ({event.door})" if event.by else ""
        yield f"{_moment(event.time)}: {event.what}{by}{f': {event.detail}' if event.detail else ''}"


# -- JSON
# ----------------------------------------------------------------------------------------------------------------------


def _json(found: _Found, earlier: Sequence[_ReviewStory], review: _ReviewStory | None, logs: Logs) -> dict[str, Any]:
    last = found.records[-1]
    return {
        "decision_id": found.id,
        "outcome": last.outcome,
        "reason": last.reason,
        "explanation": explanation(last),
        "server_got": server_got(last),
        "complete": all(line.is_complete for line in found.records),
        "records": [_record(line) for line in found.records],
        "records_left_out": found.left_out,
        "review": None if review is None else msgspec.to_builtins(review),
        "earlier_reviews": [msgspec.to_builtins(one) for one in earlier],
        "logs": logs.files,
        "unreadable_lines": logs.bad,
    }


def _record(line: DecisionLine) -> dict[str, Any]:
    """The members of a record that it has, without its contents."""
    names = (name for name in line.__struct_fields__ if name not in CONTENT_FIELDS)
    found = {name: msgspec.to_builtins(getattr(line, name)) for name in names}
    return {name: value for name, value in found.items() if value or (value == 0 and name != "revokes")}
