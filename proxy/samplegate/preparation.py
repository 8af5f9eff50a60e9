"""Everything that `run` is told, read and found right before the server is started. Starts nothing."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from samplegate import settings as process
from samplegate.book import compile_book, load_policy
from samplegate.core.unnamed import unnamed
from samplegate.house import Rules
from samplegate.limits.place import check_writable
from samplegate.ports import Unavailable
from samplegate.records.decisions import DecisionLog, decision_log
from samplegate.records.log import Log, configure
from samplegate.records.tape import Tape
from samplegate.sampler.client import Models
from samplegate.sampler.keys import child_environment
from samplegate.settings.urls import why_no_url


class Run(msgspec.Struct, frozen=True):
    """Everything `run` was told, read and found right."""

    command: list[str]
    """Empty where the server is at a URL."""
    settings: process.RunSettings
    rules: Rules
    decisions: DecisionLog
    server_environment: dict[str, str]
    log: Log
    strict: bool
    url: str | None
    """Where the server is, if it is no command."""
    folder: Path
    """The policy's."""
    tape: Tape | None = None
    """Where what models and clients really answer is written as cases."""


def prepare(args: argparse.Namespace) -> Run:
    """Read everything that is named on the command line.

    Raises for what is wrong with it: PolicyError, SettingsError, Unavailable, OSError, and UnicodeDecodeError for the policy.
    """
    told = {name: getattr(args, name) for name in ("server", "state", "decision_log", "metrics_file", "metrics_port", "env_file")}
    loaded = process.load(os.environ, file=args.settings, given=told)
    settings = loaded.settings
    why = None if args.url is None else why_no_url(args.url, query=True)
    if why is not None:
        raise process.SettingsError([f"--url: {why}"])
    rules = read_rules(args.policy, loaded.environment)
    decisions = open_decision_log(settings, settings.server)
    check_state(rules, settings.state)
    log = configure(settings.log_level, settings.log_format)
    tape = None if args.record is None else Tape.open(args.record, warn=log.warning)
    return Run(
        command=args.command,
        settings=settings,
        rules=rules,
        decisions=decisions,
        server_environment=child_environment(os.environ, rules.policy.policy.models),
        log=log,
        strict=args.strict,
        url=args.url,
        folder=args.policy.parent,
        tape=tape,
    )


def read_rules(file: Path, environment: Mapping[str, str]) -> Rules:
    """A policy with all that is built of it; nothing is started. Raises PolicyError, OSError, UnicodeDecodeError."""
    text = file.read_bytes().decode("utf-8-sig")
    policy = load_policy(text, file=str(file), environment=environment, missing="error")
    book = compile_book(policy, file.parent)
    return Rules(policy, book, Models(policy.policy.models, folder=file.parent, environment=environment))


def open_decision_log(settings: process.ProcessSettings, server: str) -> DecisionLog:
    """The decision log that is set, found writable. Raises Unavailable."""
    decisions = decision_log(
        settings.decision_log,
        state=settings.state,
        server=server,
        content=settings.record_content,
        durability=settings.decision_log_durability,
        max_bytes=settings.decision_log_max_bytes,
        keep=settings.decision_log_keep,
    )
    decisions.check_writable(time.time())
    return decisions


def check_state(rules: Rules, state: Path) -> None:
    """Limits that several processes share need a folder. Raises Unavailable."""
    if not any(terms.shared for terms in rules.book.terms.values()):
        return
    if state == Path():
        raise Unavailable("state: no home folder is known, and the policy's limits need one; give --state DIR, or set SAMPLEGATE_STATE or HOME")
    check_writable(state)


def warnings(run: Run) -> list[str]:
    """What can be told at the start and keeps nothing from running."""
    found = [*map(str, run.rules.policy.warnings), *run.rules.models.problems()]
    if unnamed(run.rules.book, run.settings.server):
        found.append(f"no rule can match a server named {run.settings.server!r}; name it with --server")
    return found
