"""All that is said about the settings of one command, from every source, and which of it holds. Not which settings there are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from samplegate.settings.definition import Table
from samplegate.settings.sources import Layer, Said, env_file, environment_layer, line_layer, settled


class Gathered(msgspec.Struct, frozen=True):
    """``values`` by name, only those that somebody gave; ``said`` what holds of each, with its place; and the environment, over the env file's."""

    values: dict[str, Any]
    said: Mapping[str, Said]
    environment: Mapping[str, str]


def gather(table: Table, environ: Mapping[str, str], file: Path | None, given: Mapping[str, str | Path | None], problems: list[str]) -> Gathered:
    """Read every source: the line, the variables (the env file's below the process's own), the settings file."""
    line = line_layer(given)
    filed = {} if file is None else _filed(file, table, problems)
    named = {**filed, **environment_layer(environ, table, []), **line}.get("env_file")
    environment = {**env_file(named, problems), **environ}
    layers = [line, environment_layer(environment, table, problems), filed]
    plain: list[Layer] = [{name: said for name, said in layer.items() if not table[name].is_section} for layer in layers]
    values = settled(plain, table, problems) if file is None else _settled_with_file(plain, table, problems)
    if "state" not in values:
        values["state"] = state_folder(environment) or Path()  # the code that needs a state reports its absence
    elif values["state"] == Path():
        values["state"] = Path.cwd()
    said = {name: said for layer in reversed(layers) for name, said in layer.items()}
    return Gathered(values, said, environment)


def _filed(file: Path, table: Table, problems: list[str]) -> Layer:
    from samplegate.settings.file import file_layer

    return file_layer(file, table, problems)


def _settled_with_file(layers: Sequence[Layer], table: Table, problems: list[str]) -> dict[str, Any]:
    from samplegate.settings.file import settled

    return settled(layers, table, problems)


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


NO_STATE: Final = "state: no home folder is known; set SAMPLEGATE_STATE to a folder, or HOME"
