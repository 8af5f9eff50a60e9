"""Preparation of `serve`: reads and validates its inputs before the start and at each reload.

It starts nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from samplegate.auth.guard import preload
from samplegate.config import SettingsError
from samplegate.config.identities import PeopleSettings, approval_warnings, caller_warnings, reviewer_warnings
from samplegate.config.serve import LoadedServe, load_serve
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.servers import ServerSettings
from samplegate.errors import Unavailable
from samplegate.policy.catalogue import SCRIPTED
from samplegate.runtime.preflight import ui_warnings, webhook_warnings
from samplegate.runtime.process import Rules
from samplegate.runtime.run import check_state, read_rules, run_of, unmatched_server, without_webhooks
from samplegate.sampler.keys import child_environment
from samplegate.transport.subprocess import unresolved


def admin_token(file: Path | None) -> bytes | None:
    """The bearer token that a reload over HTTP needs. It is read at each call. Raises Unavailable."""
    if file is None:
        return None
    try:
        found = file.read_bytes().strip()
    except OSError as problem:
        raise Unavailable(
            f"admin_token_file: {file} cannot be read: {(problem.strerror or str(problem)).lower()}"
        ) from None
    if not found:
        raise Unavailable(
            f"admin_token_file: {file} is empty; write a token to it, for example with `samplegate token admin`"
        )
    return found


_COMMON: Final = frozenset(
    "HOME LANG LANGUAGE LC_ALL LC_CTYPE LOGNAME PATH PWD SHELL TEMP TERM TMP TMPDIR TZ USER "
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT USERNAME USERPROFILE".split()
)
"""Variables without secrets that processes need. Servers keep them even if another server's settings use them, as in
`PATH: /opt/bin:${PATH}`."""


class ServeConfig(msgspec.Struct, frozen=True, eq=False):
    """Configuration of `serve` from its files and command line: settings, policy and warnings."""

    settings: ServeSettings
    rules: Rules
    environment: Mapping[str, str]
    """Environment of the servers' processes: ours without the keys of models and without variables that servers'
    settings use (``${VAR}``)."""
    reviewers_see: Mapping[str, str]
    """The whole environment with the env file, for webhooks' secrets; empty if the policy names no reviewer. Secret."""
    models_see: Mapping[str, str]
    """The environment of the models, with the env file; empty if no model needs it. Secret."""
    warnings: tuple[str, ...]
    files: tuple[Path, ...]
    """Files whose change triggers a reload."""
    run: str | None = None
    """The ID of the run to which the daemon belongs."""


def read_all(args: argparse.Namespace) -> ServeConfig:
    """Read and validate all inputs. Raises SettingsError, PolicyError or Unavailable."""
    loaded = load_serve(
        os.environ,
        file=args.settings,
        flags=vars(args),
        command=args.command,
        url=args.url,
        headers_from=args.header_from,
        headers_env=args.header_env,
        oauth=vars(args),
        name=args.server or "default",
        protocol=args.protocol,
    )
    settings = loaded.settings
    preload(settings)  # at a reload, this does not run in the event loop's thread
    assert settings.policy is not None
    rules = read_rules(settings.policy, loaded.environment, settings.model_workers)
    run = run_of(settings, loaded.environment)
    check_state(rules, settings, run)
    models = rules.policy.policy.models
    seen = seen_by_servers(loaded, rules)
    problems = unresolved_servers(loaded, seen)
    if problems:
        raise SettingsError(problems)
    return ServeConfig(
        settings,
        rules,
        seen,
        loaded.environment if rules.policy.policy.reviewers else {},
        loaded.environment if any(model.model != SCRIPTED for model in models) else {},
        (*loaded.warnings, *_warnings(rules, loaded)),
        tuple(dict.fromkeys([*loaded.files, settings.policy])),
        run,
    )


def seen_by_servers(loaded: LoadedServe, rules: Rules | None) -> dict[str, str]:
    """The environment of servers' processes. ``rules`` is None if the policy is invalid."""
    open_to_servers = {name: value for name, value in os.environ.items() if name not in loaded.named or name in _COMMON}
    if rules is None:
        return open_to_servers
    return child_environment(
        without_webhooks(open_to_servers, rules),
        rules.policy.policy.models,
        database=loaded.settings.database is not None,
    )


def unresolved_servers(loaded: LoadedServe, environment: Mapping[str, str]) -> list[str]:
    """The problems of servers whose commands cannot be started."""
    return [
        problem
        for name, server in loaded.settings.servers.items()
        if (problem := _unresolved(server, environment, loaded.places.get(name)))
    ]


def _unresolved(server: ServerSettings, environment: Mapping[str, str], place: str | None) -> str | None:
    """Why a server's command cannot be started; None if it can."""
    why = None if server.url is not None else unresolved(server.argv, env={**environment, **server.env}, cwd=server.cwd)
    return None if why is None else str(why) if place is None else f"{place}: {why.value!r} {why.fault}; {why.remedy}"


def _warnings(rules: Rules, loaded: LoadedServe) -> list[str]:
    """Warnings that do not prevent the start."""
    settings = loaded.settings
    assert settings.policy is not None, "the rules are from its policy"
    webhooks = webhook_warnings(
        rules.policy.policy, settings.policy.parent, loaded.environment, settings.webhook_networks
    )
    return [
        *map(str, rules.policy.warnings),
        *rules.models.problems(),
        *webhooks,
        *settings_warnings(rules, settings),
    ]


def settings_warnings(rules: Rules, settings: ServeSettings) -> list[str]:
    """Warnings about servers, callers and reviewers that do not fit the policy."""
    remedy = "rename it, or add a rule for it"
    unmatched = [unmatched_server(rules.compiled, name, remedy, others=settings.servers) for name in settings.servers]
    found = [what for what in unmatched if what is not None]
    named, reviewers = rules.compiled.identity_names, rules.policy.policy.reviewers
    found += caller_warnings(settings.callers, groups=named.groups, claims=bool(named.claims))
    found += approval_warnings(settings.people, reviewers)
    found += ui_warnings(rules.policy.policy, settings.reviews_url or settings.reviews_listen)
    if not settings.callers.required:
        found += [
            f"callers: they have no tokens, so `not: caller` of the reviewer {name} excludes nobody; add tokens or jwt"
            for name, reviewer in reviewers.items()
            if reviewer.not_ is not None
        ]
    return found + (reviewer_warnings(settings.people, reviewers) if settings.people != PeopleSettings() else [])
