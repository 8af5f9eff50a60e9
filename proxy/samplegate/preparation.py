"""Everything that `run` is told, read and found right before the server is started. Starts nothing."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from samplegate import config as process
from samplegate.audit.cassette import Tape
from samplegate.audit.decision_log import DecisionLog, decision_log
from samplegate.book import compile_book, load_policy
from samplegate.gate.ports import Unavailable
from samplegate.limits.place import check_writable
from samplegate.policy.match import unnamed
from samplegate.runtime.process import Rules
from samplegate.sampler.client import Models
from samplegate.sampler.keys import child_environment
from samplegate.telemetry.log import Log

NO_LOG: Final = (
    "no decision log is kept, because no home folder is known; set HOME, or give --state DIR or --decision-log PATH"
)


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
    environment: Mapping[str, str] = {}
    """With the env file: where webhooks find their secrets. Secret."""
    tape: Tape | None = None
    """Where what models and clients really answer is written as cases."""
    headers: Mapping[str, str] = {}
    """Of every request to a server at a URL. Secret."""
    warnings: tuple[str, ...] = ()
    """Of the command line."""


def prepare(args: argparse.Namespace) -> Run:
    """Read everything that is named on the command line.

    Raises for what is wrong with it: PolicyError, SettingsError, Unavailable.
    """
    loaded = process.load(os.environ, file=args.settings, given=vars(args))
    settings = loaded.settings
    warned: list[str] = []
    headers = {} if args.url is None else _headers(args.url, args.header_from, settings.server, warned)
    rules = read_rules(args.policy, loaded.environment)
    no_log = settings.decision_log is None and settings.state == Path()
    if no_log:
        warned.append(NO_LOG)
    decisions = open_decision_log(
        msgspec.structs.replace(settings, decision_log="none") if no_log else settings, settings.server
    )
    check_state(rules, settings)
    log = Log(settings.log_level, settings.log_format)
    tape = None if args.record is None else Tape.open(args.record, warn=log.warning)
    return Run(
        command=args.command,
        settings=settings,
        rules=rules,
        decisions=decisions,
        server_environment=child_environment(without_webhooks(os.environ, rules), rules.policy.policy.models),
        log=log,
        strict=args.strict,
        url=args.url,
        folder=args.policy.parent,
        environment=loaded.environment if rules.policy.policy.reviewers else {},
        tape=tape,
        headers=headers,
        warnings=tuple(warned),
    )


def _headers(url: str, headers_from: Sequence[str], name: str, warnings: list[str]) -> dict[str, str]:
    """The headers for the server at a URL, which is found right. Raises SettingsError."""
    from samplegate.config.servers import at_url

    problems: list[str] = []
    _, headers = at_url(name, url, headers_from, problems, warnings)
    if problems:
        raise process.SettingsError(problems)
    return headers


def without_webhooks(environment: Mapping[str, str], rules: Rules) -> dict[str, str]:
    """An environment without the secrets of reviewers' webhooks: no server is to sign in their name."""
    webhooks = [reviewer.webhook for reviewer in rules.policy.policy.reviewers.values() if reviewer.webhook is not None]
    hidden = {name for webhook in webhooks for name in (webhook.url_env, webhook.secret_env, webhook.old_secret_env)}
    return {name: value for name, value in environment.items() if name not in hidden}


def read_rules(file: Path, environment: Mapping[str, str]) -> Rules:
    """A policy with all that is built of it; nothing is started. Raises PolicyError, and Unavailable where the file
    cannot be read."""
    policy = load_policy(_text(file), file=str(file), environment=environment, missing="error")
    book = compile_book(policy, file.parent)
    return Rules(policy, book, Models(policy.policy.models, folder=file.parent, environment=environment))


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise Unavailable(f"{file}: cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except UnicodeDecodeError as problem:
        raise Unavailable(f"{file}: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text") from None


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


def check_state(rules: Rules, settings: process.ProcessSettings) -> None:
    """Limits that several processes share need a folder, and so do reviews without a store of their own. Raises
    Unavailable."""
    limits = any(terms.shared for terms in rules.book.terms.values())
    reviews = bool(rules.policy.policy.reviewers) and settings.store is None
    if settings.state == Path() and (limits or reviews):
        what = "limits need" if limits else "reviewers need"
        raise Unavailable(
            f"state: no home folder is known, and the policy's {what} one; give --state DIR, or set SAMPLEGATE_STATE or"
            " HOME"
        )
    if limits:
        check_writable(settings.state)


def warnings(run: Run) -> list[str]:
    """What can be told at the start and keeps nothing from running."""
    found = [*run.warnings, *map(str, run.rules.policy.warnings), *run.rules.models.problems()]
    if unnamed(run.rules.book, run.settings.server):
        found.append(f"no rule can match a server named {run.settings.server!r}; name it with --server")
    return found


def loop_options() -> dict[str, bool]:
    """How the event loop is run, for ``anyio.run``: by uvloop where it exists, which is not on Windows."""
    try:
        import uvloop
    except ImportError:
        return {"use_uvloop": False}
    return {"use_uvloop": uvloop is not None}
