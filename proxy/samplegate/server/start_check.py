"""Check of the start of `serve`: all that it reads and validates, without binding, starting or creating anything.

In contrast to a start, which ends at the first kind of problem, all problems are found at once.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from samplegate.config.serve import LoadedServe, read_serve
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.values import Address, address
from samplegate.errors import Unavailable
from samplegate.key_file import seal_keys
from samplegate.policy.file.load import PolicyError, Problem
from samplegate.runtime.preflight import preflight
from samplegate.runtime.process import Rules
from samplegate.runtime.run import check_state, open_decision_log, read_rules, run_of
from samplegate.server.prepare import admin_token, seen_by_servers, settings_warnings, unresolved_servers
from samplegate.urls import address_of
from samplegate.yamlfile.tree import quoted

LISTENERS = ("listen", "admin_listen", "reviews_listen")


class StartCheck(msgspec.Struct, frozen=True):
    """Result of a check. A start succeeds only without ``problems`` and ``policy_problems``."""

    settings: ServeSettings
    environment: Mapping[str, str]
    """The variables of the policy. Secret."""
    problems: tuple[str, ...]
    """Problems of the settings and of what they name, each with its place. Without secrets."""
    warnings: tuple[str, ...]
    policy: Path | None
    """The policy, if it can be read."""
    policy_problems: tuple[Problem, ...]
    policy_warnings: tuple[Problem, ...]

    def __repr__(self) -> str:
        return f"StartCheck({self.problems!r})"


def check_start(args: argparse.Namespace) -> StartCheck:
    """Check a command line of `serve`. Never raises for what the user wrote."""
    loaded, problems = read_serve(
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
    rules, policy_problems = _rules(loaded, problems)
    problems += unresolved_servers(loaded, seen_by_servers(loaded, rules))
    problems += _listeners(loaded)
    for check in _edges(settings, rules, run_of(settings, loaded.environment)):
        try:
            check()
        except Unavailable as problem:
            problems.append(_placed(str(problem), loaded))
    return StartCheck(
        settings,
        loaded.environment,
        tuple(dict.fromkeys(problems)),
        (*loaded.warnings, *(() if rules is None else settings_warnings(rules, settings))),
        settings.policy if rules is not None or policy_problems else None,
        policy_problems,
        () if rules is None else (*rules.policy.warnings, *_preflight(loaded, rules)),
    )


def _placed(message: str, loaded: LoadedServe) -> str:
    """A message that begins with a setting, with the place of the setting's value."""
    name, _, what = message.partition(": ")
    return f"{loaded.origins[name]}: {what}" if name in loaded.origins else message


def _rules(loaded: LoadedServe, problems: list[str]) -> tuple[Rules | None, tuple[Problem, ...]]:
    """The policy, or its problems. That it cannot be read is a problem of the settings."""
    file = loaded.settings.policy
    if file is None:
        return None, ()
    try:
        return read_rules(file, loaded.environment, loaded.settings.model_workers), ()
    except PolicyError as error:
        return None, error.problems
    except Unavailable as problem:
        problems.append(f"{loaded.origins['policy']}: {problem}")
        return None, ()


def _preflight(loaded: LoadedServe, rules: Rules) -> tuple[Problem, ...]:
    file = loaded.settings.policy
    assert file is not None
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # it has changed since it was read
        return ()
    networks = loaded.settings.webhook_networks
    return preflight(rules.policy, text, file=file, environment=loaded.environment, networks=networks)


def _edges(settings: ServeSettings, rules: Rules | None, run: str | None) -> Iterator[Callable[[], object]]:
    """The checks of files and folders. Without a home folder, the settings have that problem already."""
    yield lambda: admin_token(settings.admin_token_file)
    yield lambda: seal_keys(settings.seal_key_file)
    if settings.state != Path() or settings.decision_log is not None:
        yield lambda: open_decision_log(settings, "serve")
    if rules is not None and settings.state != Path():
        yield lambda: check_state(rules, settings, run)


def _listeners(loaded: LoadedServe) -> Iterator[str]:
    """Listeners that cannot be bound, as far as their addresses tell. Nothing is bound or resolved."""
    taken: dict[str, Address] = {}
    for name in LISTENERS:
        text = getattr(loaded.settings, name)
        if text is None:
            continue
        at, where = address(text), loaded.origins.get(name, name)
        if address_of(at.host) is None and at.host.replace(".", "").isdigit():
            yield f"{where}: {quoted(at.host)} is not an IP address; write four numbers from 0 to 255"
        for other, its in taken.items():
            if at.port and at.port == its.port and _overlap(at, its):
                yield f"{where}: {text} overlaps with {other} ({its}); choose another port"
        taken[name] = at


def _overlap(one: Address, other: Address) -> bool:
    """Whether two listeners with the same port cannot both be bound."""
    hosts = {one.host.lower(), other.host.lower()}
    return len(hosts) == 1 or (("0.0.0.0" in hosts or "::" in hosts) and len({":" in host for host in hosts}) == 1)


def settings_arguments(file: Path, env_file: Path | None) -> argparse.Namespace:
    """The command line of `serve --settings FILE`."""
    return argparse.Namespace(
        settings=file,
        env_file=env_file,
        command=[],
        url=None,
        header_from=[],
        header_env=[],
        server=None,
        protocol=None,
    )
