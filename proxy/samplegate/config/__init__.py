"""Settings of a process, such as its paths, listeners and limits. Rules are in the policy, a file with another owner.

Sources by precedence: command line, SAMPLEGATE_* variables (the process's own before the env file's), settings file,
defaults. ``settings`` defines the settings, ``values`` has their checks, and ``sources`` reads them. The other modules
are for `serve`, and `run` does not import them at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from samplegate.config.settings import SETTINGS, ProcessSettings, RunSettings
from samplegate.config.sources import gather, state_folder

__all__ = ["LoadedSettings", "ProcessSettings", "RunSettings", "SettingsError", "load", "state_folder"]


class SettingsError(Exception):
    """Invalid settings. ``problems`` lists all errors, each with its place and remedy, and without values that may be
    secret."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings of `run`, and the environment they were read from.

    The environment has the process's own variables over the env file's. It is secret.
    """

    settings: RunSettings
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoadedSettings({self.settings!r})"


def load(
    environ: Mapping[str, str], *, file: Path | None = None, flags: Mapping[str, object] | None = None
) -> LoadedSettings:
    """Read the settings of `run`. Raises SettingsError with every problem.

    ``flags`` are the options of the command line by name; None means an absent option.
    """
    problems: list[str] = []
    values, environment = gather(SETTINGS, environ, file, flags or {}, problems)
    if problems:
        raise SettingsError(problems)
    return LoadedSettings(RunSettings(**values), environment)
