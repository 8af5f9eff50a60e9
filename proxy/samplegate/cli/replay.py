"""``samplegate replay``: decides the recorded requests of decision logs under another policy, and shows what changes.

Nothing is sent or written. ``audit/replay.py`` decides again; this module groups and prints the changes.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from samplegate.audit.reader import Logs
from samplegate.audit.record import RecordLine, comes_again, settled
from samplegate.audit.replay import (
    BRAKES,
    FAULT,
    NO_CLIENT,
    NO_CONTENTS,
    REMOVED_PARTS,
    UNASKED,
    UNREADABLE,
    Changed,
    ReplayedDecision,
    Same,
    Undetermined,
    replay,
)
from samplegate.cli import FAILED, OK
from samplegate.cli.database_argument import log_name
from samplegate.cli.files import (
    capability_names,
    count,
    environment,
    json_text,
    plain,
    print_error,
    print_lines,
    read,
    report_error,
)
from samplegate.cli.progress import counted
from samplegate.cli.since import since_argument, since_time
from samplegate.errors import InputError
from samplegate.policy.conditions import short_value
from samplegate.policy.file.load import PolicyError
from samplegate.policy.match import CompiledPolicy
from samplegate.policytest import suite
from samplegate.protocol.requests import ClientCapabilities
from samplegate.runtime.process import compile_loaded, load_policy

SHOWN: Final = 3  # ids of a group in text output; each identifies a record
LISTED: Final = 1_000  # in JSON output
MAX_GROUPS: Final = 10_000  # bound on memory, because a log may come from anyone
MAX_HANDED_ON: Final = 100_000  # forwards whose second record has not been read yet
_REASONS: Final = {
    NO_CONTENTS: (
        "the record has no content, but rules that may match depend on it; record with `record_content: full`"
    ),
    NO_CLIENT: "it depends on the client's capabilities, which are not recorded; pass --client",
    REMOVED_PARTS: (
        "it depends on parts that were removed from the record: secrets, fields that look like secrets, or the query"
        " of a URL"
    ),
    BRAKES: "decided by loop detection, which is not replayed",
    FAULT: "an internal error in the gate left it unanswered",
    UNREADABLE: "the recorded content can no longer be parsed as a request",
    UNASKED: "the client answered before it was asked; no request was decided",
}
"""Text output of the reasons whose sentences in JSON must not change."""


@dataclass(frozen=True, slots=True)
class Change:
    """Key of a group: what its changes have in common."""

    kind: str
    server: str
    outcome: str
    was: ReplayedDecision
    now: tuple[ReplayedDecision, ...]


@dataclass(slots=True)
class Group:
    """Changes with the same key."""

    count: int = 0
    ids: list[str] = field(default_factory=list)

    def add(self, decision_id: str) -> None:
        self.count += 1
        if len(self.ids) < LISTED:
            self.ids.append(decision_id)


@dataclass(slots=True)
class Replayed:
    """Result of replaying all records."""

    same: int = 0
    changed: dict[Change, Group] = field(default_factory=dict)
    rest: Group = field(default_factory=Group)
    """Changes beyond MAX_GROUPS groups."""
    undetermined: Counter[str] = field(default_factory=Counter)

    @property
    def changes(self) -> int:
        return self.rest.count + sum(group.count for group in self.changed.values())

    @property
    def requests(self) -> int:
        return self.same + self.changes + self.undetermined.total()


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--log",
        type=log_name,
        nargs="+",
        required=True,
        metavar="LOG",
        help="decision logs: files, folders, globs, or the URL of a database",
    )
    parser.add_argument("--policy", type=Path, required=True, metavar="FILE", help="policy to replay against")
    since_argument(parser)
    parser.add_argument(
        "--client",
        metavar="LIST",
        help="capabilities that the clients declared (see explain --client); without it, some results are undetermined",
    )
    parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="file of NAME=value lines: values for ${VAR} in the policy"
    )
    parser.add_argument("--fail-on-change", action="store_true", help="exit with 1 if any decision changes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    """Replay all records.

    Returns 1 for a policy with problems, or with ``--fail-on-change`` if a decision changed; 2 if a file is unreadable.
    """
    try:
        client = None if args.client is None else suite.capabilities(capability_names(args.client))
        loaded = load_policy(read(args.policy), file=str(args.policy), environment=environment(args.env_file))
        compiled = compile_loaded(loaded, args.policy.parent)
        since = since_time(args.since, time.time())
        logs = Logs(args.log)
        replayed = _replay(logs, compiled, client, since)
    except (InputError, PolicyError) as problem:
        return report_error(problem)
    for warning in loaded.warnings:  # a missing variable causes changes that are not real
        print_error(f"warning: {warning}")
    if args.json:
        print(json_text(_json(replayed, logs)))
    else:
        print_lines(_report(replayed, args.policy))
    for complaint in logs.complaints():
        print_error(complaint)
    return FAILED if args.fail_on_change and replayed.changes else OK


def _replay(logs: Logs, compiled: CompiledPolicy, client: ClientCapabilities | None, since: str) -> Replayed:
    replayed = Replayed()
    handed_on: dict[str, None] = {}
    for line in settled(counted(logs, "records")):
        if line.time < since:
            continue
        if line.decision_id in handed_on:  # its second record: the request has been replayed already
            del handed_on[line.decision_id]
            continue
        if comes_again(line.outcome, line.door):
            handed_on[line.decision_id] = None
            if len(handed_on) > MAX_HANDED_ON:
                del handed_on[next(iter(handed_on))]
        _count(replayed, line, replay(compiled, line, client))
    return replayed


def _count(replayed: Replayed, line: RecordLine, found: Same | Changed | Undetermined) -> None:
    match found:
        case Same():
            replayed.same += 1
        case Undetermined(why=why):
            replayed.undetermined[why] += 1
        case Changed(was=was, now=now):
            change = Change(line.kind, line.server, line.outcome, was, now)
            group = replayed.changed.get(change, replayed.rest if len(replayed.changed) >= MAX_GROUPS else Group())
            if group is not replayed.rest:
                replayed.changed[change] = group
            group.add(line.decision_id)


def _sorted(replayed: Replayed) -> list[tuple[Change, Group]]:
    return sorted(replayed.changed.items(), key=lambda pair: (-pair[1].count, str(pair[0])))


def _report(replayed: Replayed, policy: Path) -> Iterator[str]:
    undetermined = replayed.undetermined.total()
    yield (
        f"{count(replayed.requests, 'request')} under {policy}: {replayed.same} unchanged, {replayed.changes} changed,"
        f" {undetermined} undetermined"
    )
    if replayed.changes:
        yield "changed"
    for change, group in _sorted(replayed):
        now = " or ".join(_decision_text(decision) for decision in change.now)
        was = f"{_decision_text(change.was)}, {plain(change.outcome)}"
        yield f"  {group.count:>6}  {change.kind} by {short_value(change.server)}: {was} -> {now}"
        more = f" and {group.count - SHOWN} more" if group.count > SHOWN else ""
        yield f"          {', '.join(map(plain, group.ids[:SHOWN]))}{more}"
    if replayed.rest.count:
        yield f"  {replayed.rest.count:>6}  other changes"
    if replayed.undetermined:
        yield "undetermined"
    yield from (f"  {number:>6}  {_REASONS.get(why, why)}" for why, number in replayed.undetermined.most_common())


def _decision_text(decision: ReplayedDecision) -> str:
    rule = "no rule" if decision.rule is None else short_value(decision.rule)
    action = f" ({plain(decision.action)})" if decision.action is not None else ""
    return f"{plain(decision.effect)}{action} by {rule}{', different answer' if decision.answer is not None else ''}"


def _json(replayed: Replayed, logs: Logs) -> dict[str, Any]:
    return {
        "requests": replayed.requests,
        "same": replayed.same,
        "changed": replayed.changes,
        "untold": replayed.undetermined.total(),
        "unreadable_lines": logs.bad,
        "changes": [_change_json(change, group) for change, group in _sorted(replayed)],
        "why_untold": [{"why": why, "count": number} for why, number in replayed.undetermined.most_common()],
    }


def _change_json(change: Change, group: Group) -> dict[str, Any]:
    was, now = (
        _decision_json(change.was) | {"outcome": change.outcome},
        [_decision_json(decision) for decision in change.now],
    )
    return {
        "kind": change.kind,
        "server": change.server,
        "was": was,
        "now": now,
        "count": group.count,
        "decision_ids": group.ids,
    }


def _decision_json(decision: ReplayedDecision) -> dict[str, Any]:
    found = {"effect": decision.effect, "rule": decision.rule, "action": decision.action}
    return {name: value for name, value in found.items() if value is not None or name == "rule"}
