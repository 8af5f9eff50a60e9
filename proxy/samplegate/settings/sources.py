"""What is said about the settings by the command line, the variables and the env file, and which of it holds. Not the settings file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, get_origin

import msgspec

from samplegate.core.policyfile import envfile
from samplegate.settings.definition import Setting, Table, wrong

PREFIX: Final = "SAMPLEGATE_"

# What Kubernetes sets by itself in a pod beside a Service named samplegate: nobody mistyped these.
_service_links: Final = re.compile(PREFIX + r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?)\Z")
_whole: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_flags: Final = frozenset({"true", "false"})


@dataclass(frozen=True, slots=True)
class Said:
    """What one source says about one setting."""

    where: str
    value: Any
    folder: Path
    """What a relative path is relative to."""
    text: bool = False
    """The source knows only text, whatever the setting's type."""
    source: str = ""
    """The file it stands in."""


Layer: TypeAlias = Mapping[str, Said]
"""What one source says, by the setting's name."""


class _NoPath(Exception):
    """The text is no path that can be used; the message says why."""


def line_layer(given: Mapping[str, str | Path | None]) -> Layer:
    """What the command line says: None is nothing."""
    return {name: Said(f"--{name.replace('_', '-')}", value, Path(), text=True) for name, value in given.items() if value is not None}


def environment_layer(environ: Mapping[str, str], table: Table, problems: list[str]) -> Layer:
    """What the variables say; one that is empty says nothing, one that no setting has is a mistake somebody would look for long."""
    found = {}
    for variable, value in environ.items():
        if not variable.upper().startswith(PREFIX) or _service_links.match(variable):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if variable != PREFIX + name.upper() or name not in table:
            meant = instead(name, table, "unset it", lambda like: f"{PREFIX}{like.upper()}")
            problems.append(f"{variable}: is no variable that is read; {meant}")
        elif value:
            found[name] = Said(variable, value, Path(), text=True)
    return found


def instead(name: str, table: Table, otherwise: str, spelled: Callable[[str], str] = str) -> str:
    """Which setting may be meant by a name that none has, as it is ``spelled`` there; ``otherwise`` where nothing is like it."""
    from difflib import get_close_matches

    like = get_close_matches(name.removeprefix("samplegate_"), table, 1, 0.6)
    return f"is {spelled(like[0])} meant" if like else otherwise


def env_file(said: Said | None, problems: list[str]) -> dict[str, str]:
    """The variables of the env file that ``said`` names. What is wrong with the name itself is told when the settings are settled."""
    try:
        path = None if said is None else Path(_path(said))
    except _NoPath:
        return {}
    if path is None:
        return {}
    try:
        found = envfile.parse(path.read_text(encoding="utf-8"), file=str(path))
    except envfile.EnvFileError as problem:
        problems += problem.problems
        return {}
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{path}: the env file cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}")
        return {}
    if PREFIX + "ENV_FILE" in found:
        problems.append(f"{path}: {PREFIX}ENV_FILE: an env file names no other; put all variables in one")
    return found


def settled(layers: Sequence[Layer], table: Table, problems: list[str]) -> dict[str, Any]:
    """The values that hold, from the layers in their order of precedence; a problem for every one that is wrong, overridden or not."""
    values: dict[str, Any] = {}
    for layer in layers:
        for name, said in layer.items():
            value = accepted(table[name], said, partial(msgspec.convert, type=table[name].type), problems)
            if value is not None:
                values.setdefault(name, value)
    return values


def accepted(setting: Setting, said: Said, check: Callable[[Any], Any], problems: list[str]) -> Any:
    """The value in its setting's type, as a strict ``check`` lets it pass; None, and a problem at its place, where it is none."""
    try:
        if setting.is_path:
            path = _path(said, setting.no_path, setting.store)
            value = check(path if setting.kind is Path else str(path))
            why = None if setting.check is None else setting.check(str(said.value))
        else:
            value = check(_read(setting, said))
            why = None if setting.check is None else setting.check(value)
        if why is None:
            return value
        problems.append(f"{said.where}: {why}")
    except _NoPath as problem:
        problems.append(f"{said.where}: {problem}")
    except (msgspec.ValidationError, ValueError):
        problems.append(f"{said.where}: {wrong(setting, said.value)}")
    return None


def _read(setting: Setting, said: Said) -> Any:
    """What is said, read from its text where the source knows only text."""
    value = said.value
    if get_origin(setting.kind) is tuple:
        items = [item.strip() for item in value.split(",")] if said.text else value
        return tuple(items) if isinstance(items, list) else items
    if said.text and setting.kind is int and _whole.fullmatch(value):
        return int(value)
    if said.text and setting.kind is bool and value in _flags:
        return value == "true"
    return value


def _path(said: Said, but: str | None = None, store: str = "") -> Path | str:
    """The path that is said, from the folder it is relative to; the word ``but`` and what begins a ``store`` stay as they are."""
    if not isinstance(said.value, str | Path) or not str(said.value):
        raise _NoPath("must be a path")
    if but is not None and said.value == but:
        return Path(but)
    text = str(said.value)
    begin = store if store and text.startswith(store) else ""
    if begin and text == begin:
        raise _NoPath(f"names no file; write {begin}PATH")
    try:
        path = said.folder / Path(text.removeprefix(begin)).expanduser()
    except RuntimeError:
        raise _NoPath("begins with ~ though no such home folder is known; write the folder out") from None
    return f"{begin}{path}" if begin else path
