"""Everything that `run` is told, read and found right before the server is started. Starts nothing."""

from __future__ import annotations

import argparse
import os
import time

import msgspec

from samplegate import settings as process
from samplegate.core import load
from samplegate.core.matching.match import Rulebook, compile_policy
from samplegate.core.unnamed import unnamed
from samplegate.records.decisions import DecisionLog, NoDecisionLog, decision_log
from samplegate.records.log import Log, configure
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


def prepare(args: argparse.Namespace) -> Run:
    """Read everything that is named on the command line.

    Raises for what is wrong with it: PolicyError, SettingsError, Unavailable, OSError, and UnicodeDecodeError for the policy.
    """
    told = {name: getattr(args, name) for name in ("server", "decision_log", "metrics_file", "env_file")}
    loaded = process.load(os.environ, file=args.settings, given=told)
    settings = loaded.settings
    text = args.policy.read_bytes().decode("utf-8-sig")
    policy = load.load(text, file=str(args.policy), environment=loaded.environment, missing="error")
    models = Models(policy.policy.models, folder=args.policy.parent, environment=loaded.environment)
    decisions = decision_log(settings.decision_log, state=settings.state, server=settings.server, content=settings.record_content)
    decisions.check_writable(time.time())
    return Run(
        command=args.command,
        settings=settings,
        policy=policy,
        book=compile_policy(policy.policy, policy.environment),
        models=models,
        decisions=decisions,
        server_environment=child_environment(os.environ, policy.policy.models),
        log=configure(settings.log_level, settings.log_format),
        strict=args.strict,
    )


def warnings(run: Run) -> list[str]:
    """What can be told at the start and keeps nothing from running."""
    found = [*map(str, run.policy.warnings), *run.models.problems()]
    if unnamed(run.book, run.settings.server):
        found.append(f"no rule can match a server named {run.settings.server!r}; name it with --server")
    return found
