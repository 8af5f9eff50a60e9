"""The settings of a process: where it keeps things and how it speaks. Not the rules: those are the policy, another file
with another owner.

By precedence: command line, SAMPLEGATE_* variables (the env file's below the process's own), the settings file,
defaults. ``definition`` has the settings and ``sources`` reads them. The other modules are about what only `serve` has:
`run` imports none of them at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from samplegate.config.settings import SETTINGS, ProcessSettings, RunSettings
from samplegate.config.sources import gather, state_folder

__all__ = ["Loaded", "ProcessSettings", "RunSettings", "SettingsError", "load", "state_folder"]


class SettingsError(Exception):
    """The settings are wrong. ``problems`` has all there are, each with its place and remedy, and no value that may be
    a secret."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings, and the environment they were read from: the process's own over the env file's. The environment is
    secret."""

    settings: RunSettings
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Loaded({self.settings!r})"


def load(
    environ: Mapping[str, str], *, file: Path | None = None, given: Mapping[str, object] | None = None
) -> LoadedSettings:
    """Read the settings of `run`. ``given`` is the command line: None for what it does not say. Raises SettingsError
    with every problem."""
    problems: list[str] = []
    values, environment = gather(SETTINGS, environ, file, given or {}, problems)
    if problems:
        raise SettingsError(problems)
    return LoadedSettings(RunSettings(**values), environment)
