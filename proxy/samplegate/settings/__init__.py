"""The settings of a process: where it keeps things and how it speaks. Not the rules: those are the policy, another file with another owner.

By precedence: command line, SAMPLEGATE_* variables (the env file's below the process's own), the settings file, defaults. One definition, two
readers of it with one result: pydantic-settings where a settings file is named, msgspec where none is, so that a wrapped server which needs no
file does not wait for pydantic. ``definition`` says what settings there are, ``sources`` what is said about them, ``file`` reads the file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samplegate.settings.definition import RunSettings
from samplegate.settings.sources import Layer, env_file, environment_layer, line_layer, settled

__all__ = ["Loaded", "RunSettings", "SettingsError", "load", "state_folder"]


class SettingsError(Exception):
    """The settings are wrong. ``problems`` has all there are, each with its place and remedy, and no value that may be a secret."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and the environment they were read from: the process's own over the env file's."""

    settings: RunSettings
    environment: Mapping[str, str]


def load(environ: Mapping[str, str], *, file: Path | None = None, given: Mapping[str, str | Path | None] | None = None) -> Loaded:
    """Read everything. ``given`` is the command line: None for what it does not say. Raises SettingsError with every problem."""
    problems: list[str] = []
    line = line_layer(given or {})
    filed = {} if file is None else _filed(file, problems)
    named = {**filed, **environment_layer(environ, []), **line}.get("env_file")
    environment = {**env_file(named, problems), **environ}
    layers = [line, environment_layer(environment, problems), filed]
    values = settled(layers, problems) if file is None else _settled_with_file(layers, problems)
    if "state" not in values:
        values["state"] = _default_state(environment, problems if "decision_log" not in values else [])  # limits that need it complain themselves
    if problems:
        raise SettingsError(problems)
    return Loaded(RunSettings(**values), environment)


def _filed(file: Path, problems: list[str]) -> Layer:
    from samplegate.settings.file import file_layer

    return file_layer(file, problems)


def _settled_with_file(layers: list[Layer], problems: list[str]) -> dict[str, Any]:
    from samplegate.settings.file import settled

    return settled(layers, problems)


def state_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path | None:
    """The user's own folder for state on this platform, None where the environment does not say whose it is."""
    home = environ.get("USERPROFILE" if platform == "win32" else "HOME", "")
    if platform == "win32":
        base = environ.get("LOCALAPPDATA") or (home and f"{home}/AppData/Local")
    elif Path(environ.get("XDG_STATE_HOME", "")).is_absolute():  # a relative one is to be ignored, says its specification
        base = environ["XDG_STATE_HOME"]
    else:
        base = home and home + ("/Library/Application Support" if platform == "darwin" else "/.local/state")
    return Path(base) / "samplegate" if base else None


def _default_state(environ: Mapping[str, str], problems: list[str]) -> Path:
    found = state_folder(environ)
    if found is None:
        problems.append("state: no home folder is known; set SAMPLEGATE_STATE to a folder, or HOME")
    return found or Path()
