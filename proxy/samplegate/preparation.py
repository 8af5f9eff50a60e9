"""Everything that `run` is told, read and found right before the server is started. Starts nothing."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import msgspec

from samplegate import settings as process
from samplegate.book import compile_book, load_policy
from samplegate.core import load
from samplegate.core.matching.match import Rulebook
from samplegate.core.unnamed import unnamed
from samplegate.limits.place import check_writable
from samplegate.ports import Unavailable
from samplegate.records.decisions import DecisionLog, NoDecisionLog, decision_log
from samplegate.records.log import Log, configure
from samplegate.records.tape import Tape
from samplegate.sampler.client import Models
from samplegate.sampler.keys import child_environment


class Run(msgspec.Struct, frozen=True):
    """Everything `run` was told, read and found right."""

    command: list[str]
    settings: process.RunSettings
    policy: load.Loaded
    book: Rulebook
    models: Models
    decisions: DecisionLog | NoDecisionLog
    server_environment: dict[str, str]
    log: Log
    strict: bool
    folder: Path
    """The policy's."""
    tape: Tape | None = None
    """Where what models and clients really answer is written as cases."""


def prepare(args: argparse.Namespace) -> Run:
    """Read everything that is named on the command line.

    Raises for what is wrong with it: PolicyError, SettingsError, Unavailable, OSError, and UnicodeDecodeError for the policy.
    """
    told = {name: getattr(args, name) for name in ("server", "state", "decision_log", "metrics_file", "env_file")}
    loaded = process.load(os.environ, file=args.settings, given=told)
    settings = loaded.settings
    text = args.policy.read_bytes().decode("utf-8-sig")
    policy = load_policy(text, file=str(args.policy), environment=loaded.environment, missing="error")
    book = compile_book(policy, args.policy.parent)
    models = Models(policy.policy.models, folder=args.policy.parent, environment=loaded.environment)
    decisions = decision_log(settings.decision_log, state=settings.state, server=settings.server, content=settings.record_content)
    decisions.check_writable(time.time())
    if any(terms.shared for terms in book.terms.values()):
        _check_state(settings)
    log = configure(settings.log_level, settings.log_format)
    tape = None if args.record is None else Tape.open(args.record, warn=log.warning)
    return Run(
        command=args.command,
        settings=settings,
        policy=policy,
        book=book,
        models=models,
        decisions=decisions,
        server_environment=child_environment(os.environ, policy.policy.models),
        log=log,
        strict=args.strict,
        folder=args.policy.parent,
        tape=tape,
    )


def _check_state(settings: process.RunSettings) -> None:
    """Limits that several processes share need a folder. Raises Unavailable."""
    if settings.state == Path():
        raise Unavailable("state: no home folder is known, and the policy's limits need one; give --state DIR, or set SAMPLEGATE_STATE or HOME")
    check_writable(settings.state)


def warnings(run: Run) -> list[str]:
    """What can be told at the start and keeps nothing from running."""
    found = [*map(str, run.policy.warnings), *run.models.problems()]
    if unnamed(run.book, run.settings.server):
        found.append(f"no rule can match a server named {run.settings.server!r}; name it with --server")
    return found
