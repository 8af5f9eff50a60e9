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
from samplegate.config.sources import plain_values, read_layers, state_folder
from samplegate.config.values import address

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
    found = read_layers(SETTINGS, environ, file, flags or {}, problems)
    values = plain_values(SETTINGS, found)
    if "people" in found.effective:
        from samplegate.config.identities import people_of

        section = found.section(found.effective["people"])
        values["people"] = people_of(section)
        if values["people"].assertion is not None:
            section.problem(("assertion",), "needs `samplegate serve`; remove it, or give these people tokens")
    listen = found.effective.get("reviews_listen")
    if listen is not None and "people" not in values and "reviews_listen" in values:
        at = address(values["reviews_listen"])
        if not at.is_loopback:
            problems.append(
                f"{listen.where}: other machines can reach {at}, so users need tokens; add `people`, or use"
                f" 127.0.0.1:{at.port}"
            )
    if problems:
        raise SettingsError(problems)
    return LoadedSettings(RunSettings(**values), found.environment)
