"""Preparation of `serve`: reads and validates its inputs before the start and at each reload.

It starts nothing. It also derives the keys that seal rounds.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from samplegate.auth.guard import preload
from samplegate.config import SettingsError
from samplegate.config.identities import PeopleSettings, reviewer_warnings
from samplegate.config.serve import LoadedServe, load_serve
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.servers import ServerSettings
from samplegate.errors import Unavailable
from samplegate.policy.catalogue import SCRIPTED
from samplegate.runtime.preflight import webhook_warnings
from samplegate.runtime.process import Rules
from samplegate.runtime.run import check_state, read_rules, run_of, unmatched_server, without_webhooks
from samplegate.sampler.keys import child_environment
from samplegate.transport.subprocess import unresolved

MIN_KEY_BYTES: Final = 32
"""Minimum size of a key file in bytes."""
MAX_KEY_BYTES: Final = 64 * 1024
"""Maximum size of a key file in bytes: a larger file is not a key."""

_PURPOSE: Final = b"samplegate seal 1"
_remedy: Final = "create a key with `openssl rand -hex 32`"


def seal_keys(file: Path | None) -> tuple[bytes, ...]:
    """Read the keys of a file, 32 bytes each: the first seals, and all open. Empty without a file. Raises Unavailable.

    A file is one key. Two keys are a first line of 64 hex digits, which is the new key, and the old key below it, which
    may be of any form. No key of random bytes and no key in base64 begins with such a line.
    """
    if file is None:
        return ()
    try:
        with file.open("rb") as opened:
            found = opened.read(MAX_KEY_BYTES + 1)
    except OSError as problem:
        raise Unavailable(
            f"seal_key_file: {file} cannot be read: {(problem.strerror or str(problem)).lower()}"
        ) from None
    if len(found) > MAX_KEY_BYTES:
        raise Unavailable(f"seal_key_file: {file} is larger than {MAX_KEY_BYTES} bytes, so it is not a key; {_remedy}")
    first = _hex_line.match(found)
    keys = [found] if first is None else [first[1], found[first.end() :]]
    if _hex_line.match(keys[-1]):
        raise Unavailable(f"seal_key_file: {file} has more than two keys; keep the new one and the one before it")
    return tuple(_seal_key(file, key, " as its second key" if number else "") for number, key in enumerate(keys))


_hex_line: Final = re.compile(rb"([0-9a-fA-F]{64})\r?\n(?=\s*\S)")
"""A first line that is a key, before more lines."""


def _seal_key(file: Path, found: bytes, which: str) -> bytes:
    """Derive a key (32 bytes) from its text. A line end after the text is not part of it. Raises Unavailable.

    HMAC-SHA-256 with a fixed purpose lets other programs use the same file.
    """
    line = found.removesuffix(b"\n").removesuffix(b"\r")
    # otherwise the line end belongs to a key of random bytes
    if found.endswith(b"\n") and (len(line) >= MIN_KEY_BYTES or len(found) < MIN_KEY_BYTES):
        found = line
    if len(found) < MIN_KEY_BYTES:
        raise Unavailable(
            f"seal_key_file: {file} has {len(found)} bytes{which}, but a key needs at least {MIN_KEY_BYTES}; {_remedy}"
        )
    return hmac.digest(_PURPOSE, found, hashlib.sha256)


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
    return child_environment(without_webhooks(open_to_servers, rules), rules.policy.policy.models)


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
    """Warnings about servers and reviewers that do not fit the policy."""
    remedy = "rename it, or add a rule for it"
    unmatched = [unmatched_server(rules.compiled, name, remedy, others=settings.servers) for name in settings.servers]
    found = [what for what in unmatched if what is not None]
    return found + (
        reviewer_warnings(settings.people, rules.policy.policy.reviewers) if settings.people != PeopleSettings() else []
    )
