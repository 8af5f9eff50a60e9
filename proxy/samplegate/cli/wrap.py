"""``samplegate wrap`` and ``unwrap``: put the gate before the servers in clients' files, and remove it again.

The default prints the changes. ``clients/`` has the edits, the journal and the files.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.client_files import Target, edit_arguments, file_arguments, gate_of, journal_of, targets
from samplegate.cli.files import count, print_error, print_lines, read
from samplegate.clients import store
from samplegate.clients.diff import diff_lines
from samplegate.clients.faults import FileFault, quoted
from samplegate.clients.journal import Journal
from samplegate.clients.known import CLIENTS
from samplegate.clients.plan import Plan, Record, Row, Source, servers
from samplegate.clients.plan import unwrap as planned_unwrap
from samplegate.clients.plan import wrap as planned_wrap
from samplegate.clients.store import Snapshot
from samplegate.clients.wrapper import Open, Skipped, Wrapped
from samplegate.errors import InputError
from samplegate.policy.file.load import PolicyError
from samplegate.runtime.process import load_policy
from samplegate.yamlfile.validate import did_you_mean

MAX_NAMES: Final = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    file_arguments(parser)
    parser.add_argument("--policy", type=Path, required=True, metavar="FILE", help="policy of the wrapped servers")
    parser.add_argument(
        "--remote",
        action="store_true",
        help="also wrap servers at a URL without headers or with OAuth, where the client may sign in itself;"
        " `samplegate login` logs the gate in",
    )
    parser.add_argument(
        "--run-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="further argument of `samplegate run` in each server, such as --run-arg=--strict; repeatable",
    )
    edit_arguments(parser, "wrap")


def command(args: argparse.Namespace) -> int:
    """Wrap servers. Returns 1 if --check finds one that is not wrapped, 2 if a file cannot be read or written."""
    try:
        _check_policy(args.policy)
        gate = gate_of(args.policy, tuple(args.run_arg))
        return Edits(
            args,
            targets(args, remote=args.remote),
            lambda data, source, _: planned_wrap(data, source, gate, args.only),
            unwrapping=False,
        ).run()
    except PolicyError as problem:
        print_lines(map(str, problem.problems), file=sys.stderr)
        return UNREADABLE
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE


def _check_policy(path: Path) -> None:
    """Raises InputError and PolicyError."""
    load_policy(read(path), file=str(path), environment=os.environ)


Planned = Callable[[bytes, Source, Sequence[Record]], Plan]


@dataclass
class Edits:
    """One call of `wrap` or `unwrap`."""

    args: argparse.Namespace
    targets: list[Target]
    plan: Planned
    unwrapping: bool

    @property
    def word(self) -> str:
        """The command's name."""
        return "unwrap" if self.unwrapping else "wrap"

    def run(self) -> int:
        """Carry out the command. Raises InputError."""
        args = self.args
        if not self.targets:
            raise InputError(f"{self.word}: no file of a client was found; name one with --file PATH")
        if args.out is not None and len(self.targets) > 1:
            raise InputError(
                f"--out: {len(self.targets)} files were found; choose one with --file PATH (see `samplegate clients`)"
            )
        journal = journal_of(args)
        failed = False
        matched = False
        others: list[str] = []
        rows: list[Row] = []
        changes = 0
        for target in self.targets:
            try:
                plan = self._one(target, journal)
            except FileFault as problem:
                place = f":{problem.place}" if problem.place else ""
                print_error(f"{target.path}{place}: {problem.what}")
                failed = True
                continue
            except OSError as problem:
                print_error(f"{problem.filename or target.path}: {(problem.strerror or str(problem)).lower()}")
                failed = True
                continue
            matched = matched or bool(plan.rows)
            others += self._names(plan, target.source)
            if not target.fixed:
                rows += plan.rows
                changes += len(plan.changes)
        if changes and not (args.write or args.check or args.out):
            told = f"{self.word} {count(changes, 'server')}"
            print_lines([f"nothing was written; add --write to {told}, or --out FILE for a copy"])
        if args.only and others and not matched:
            glob, *_ = args.only
            raise InputError(f"--only: no server is named {quoted(glob)}{_remedy(glob, others)}")
        if failed:
            return UNREADABLE
        return self._verdict(rows)

    def _names(self, plan: Plan, source: Source) -> list[str]:
        """The file's servers, if `--only` selects none of them."""
        return [entry.name for entry in servers(plan.before, source)] if self.args.only and not plan.rows else []

    def _verdict(self, rows: Sequence[Row]) -> int:
        if self.args.check:
            return FAILED if any(isinstance(row.state, Wrapped) is self.unwrapping for row in rows) else OK
        return FAILED if any(row.refused for row in rows) else OK

    def _one(self, target: Target, journal: Journal) -> Plan:
        """Edit or show one file. Raises FileFault and OSError."""
        before = target.read()
        plan = self.plan(before.data, target.source, journal.records(before.path) if self.unwrapping else ())
        writes = self.args.write and not target.fixed and bool(plan.changes)
        backup: list[Path] = []
        if writes:
            with journal.lock():
                plan = store.update(target.path, partial(self._changed, target, journal, backup))
                if self.unwrapping:
                    journal.remove(before.path, plan.records)
        elif self.args.out is not None:
            _write_copy(self.args.out, before.path, plan.after.text.encode())
        print_lines(self._report(target, plan, written=writes))
        if writes:
            print_lines([f"  backup: {backup[-1]}"] if backup else [])
        return plan

    def _changed(
        self, target: Target, journal: Journal, backup: list[Path], before: Snapshot
    ) -> tuple[bytes | None, Plan]:
        plan = self.plan(before.data, target.source, journal.records(before.path) if self.unwrapping else ())
        if not plan.changes:
            return None, plan
        if (fault := store.write_fault(before)) is not None:
            raise FileFault(fault)
        backup.append(journal.back_up(before.path, before.data))
        if not self.unwrapping:
            journal.add(before.path, plan.records)
        return plan.after.text.encode(), plan

    def _report(self, target: Target, plan: Plan, *, written: bool) -> Iterator[str]:
        title = CLIENTS[target.client].title if target.client else "file"
        yield f"{title}: {target.path}"
        if target.fixed:
            yield f"  not edited: {target.fixed}"
            return
        for row in plan.rows:
            yield f"  {shown(row.entry.key, row.entry.name)}: {self._told(row, written=written)}"
        if not plan.rows:
            others = len(self._names(plan, target.source))
            yield f"  none of {count(others, 'server')} selected by --only" if others else "  no servers"
        if plan.changes and not written and not self.args.check and self.args.out is None:
            yield from diff_lines(str(target.path), plan, target.source)
        if plan.changes and written and target.client:
            yield f"  next: {CLIENTS[target.client].after}"

    def _told(self, row: Row, *, written: bool) -> str:
        match row.state:
            case Skipped():
                return f"skipped: {row.state.reason}"
            case Wrapped() if not self.unwrapping:
                return f"already wrapped, policy {row.state.call.policy or 'unknown'}"
            case Wrapped() if row.change is not None:
                how = "" if row.change.exact else ", without a record of its original text"
                return f"{'unwrapped' if written else 'to be unwrapped'}{how}"
            case Wrapped():
                return f"cannot be unwrapped: {row.refused}"
            case Open():
                return (
                    "not wrapped" if self.unwrapping or self.args.check else "wrapped" if written else "to be wrapped"
                )
            case _:
                assert_never(row.state)


def _remedy(glob: str, names: Sequence[str]) -> str:
    """The nearest of the servers, or some of them."""
    return did_you_mean(glob, names) or f"; the files have {', '.join(map(quoted, dict.fromkeys(names[:MAX_NAMES])))}"


def _write_copy(path: Path, original: Path, data: bytes) -> None:
    """Write --out. Raises InputError."""
    try:
        if path.exists() and path.samefile(original):
            raise InputError(f"--out: {path} is the file itself; name another file, or use --write")
        if path.exists() and not path.is_file():  # a device or a pipe must not be replaced
            path.write_bytes(data)
        else:
            store.write_new(Path(os.path.realpath(path)), data)
    except OSError as problem:
        raise InputError(f"--out: {path} cannot be written: {(problem.strerror or str(problem)).lower()}") from None


def shown(key: tuple[str, ...], name: str) -> str:
    """A server's name, with its project in Claude Code's file."""
    project = f" (in {key[1]})" if len(key) > 2 else ""
    return (name if name.isprintable() and name else quoted(name)) + project


def unwrap_command(args: argparse.Namespace) -> int:
    """Unwrap servers. Returns 1 if one cannot be unwrapped, or --check finds a wrapped one, 2 if a file cannot be read
    or written."""
    try:
        return Edits(
            args,
            targets(args),
            lambda data, source, records: planned_unwrap(data, source, records, args.only),
            unwrapping=True,
        ).run()
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
