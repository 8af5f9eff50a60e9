"""The settings of a process: where it keeps things and how it speaks. Not the rules: those are the policy, another file with another owner.

One reading for all sources, by precedence: command line, SAMPLEGATE_* variables, the settings file, defaults. msgspec converts, as it does for
the policy: pydantic-settings would cost `run` 0.1 s, ignores mistyped variables, and knows no line of the file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from samplegate.core import envfile
from samplegate.core.record import ContentMode
from samplegate.core.tree import quoted

PREFIX: Final = "SAMPLEGATE_"
MIB: Final = 1024 * 1024

# What Kubernetes sets by itself in a pod beside a Service named samplegate: nobody mistyped these.
_service_links: Final = re.compile(PREFIX + r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?)\Z")


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of ``samplegate run``. A name here is a key of the settings file, and in capitals behind SAMPLEGATE_ a variable."""

    server: Annotated[str, msgspec.Meta(min_length=1)] = "default"
    """What the rules call the wrapped server."""
    state: Path = Path()
    """The folder for what outlives the process; the platform's own place by default."""
    decision_log: str | None = None
    """A path, ``none``, or None for the daily file in the state folder."""
    record_content: ContentMode = "hash"
    """What the decision log keeps of what was asked and answered."""
    metrics_file: str | None = None
    """Where Prometheus text is written at the end; ``{server}`` and ``{pid}`` expand."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] | None = None
    """None: text where stderr is a terminal, else JSON."""
    max_frame_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024, le=1024 * MIB)] = 64 * MIB
    """The longest line read from either side; images and sounds make tens of MiB."""
    env_file: Path | None = None
    """Variables for the policy and the models, for clients that start the gate with a bare environment."""


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


@dataclass(frozen=True, slots=True)
class _Said:
    """What one source says about one setting."""

    where: str
    value: Any
    folder: Path
    """What a relative path is relative to."""
    text: bool = False
    """The value is text whatever the setting's type."""


def load(environ: Mapping[str, str], *, file: Path | None = None, given: Mapping[str, str | Path | None] | None = None) -> Loaded:
    """Read everything. ``given`` is the command line: None for what it does not say. Raises SettingsError with every problem."""
    problems: list[str] = []
    line = {name: _Said(f"--{name.replace('_', '-')}", value, Path()) for name, value in (given or {}).items() if value is not None}
    filed = {} if file is None else _filed(file, problems)
    first = {**filed, **_environment(environ, []), **line}
    environment = {**_env_file(first.get("env_file"), problems), **environ}
    values: dict[str, Any] = {}
    for source in (filed, _environment(environment, problems), line):
        for name, said in source.items():
            converted = _converted(name, said, problems)
            if converted is not None:
                values[name] = converted
    if "state" not in values:
        values["state"] = _default_state(environment, problems)
    if problems:
        raise SettingsError(problems)
    return Loaded(RunSettings(**values), environment)


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


def _environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, _Said]:
    """What the variables say; one that is empty says nothing, one that no setting has is a mistake somebody would look for long."""
    found = {}
    for variable, value in environ.items():
        if not variable.upper().startswith(PREFIX) or _service_links.match(variable):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if variable != PREFIX + name.upper() or name not in RunSettings.__struct_fields__:
            problems.append(f"{variable}: is no variable that is read; {_instead(name, 'unset it', lambda like: f'{PREFIX}{like.upper()}')}")
        elif value:
            found[name] = _Said(variable, value, Path(), text=True)
    return found


def _instead(name: str, otherwise: str, spelled: Any) -> str:
    from difflib import get_close_matches

    like = get_close_matches(name.removeprefix("samplegate_"), RunSettings.__struct_fields__, 1, 0.6)
    return f"is {spelled(like[0])} meant" if like else otherwise


def _filed(file: Path, problems: list[str]) -> dict[str, _Said]:
    """What the settings file says, each with its line and column."""
    from samplegate.core.nodes import compose
    from samplegate.core.tree import Mapping as Tree
    from samplegate.core.tree import Unreadable, dotted, plain

    try:
        text = file.read_text(encoding="utf-8")
        if not text.strip():
            return {}
        root, faults = compose(text)
    except Unreadable as problem:
        mark = problem.fault.mark
        problems.append(f"{file}:{mark.line}:{mark.column}: {problem.fault.what}")
        return {}
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}")
        return {}
    problems += [f"{file}:{fault.mark.line}:{fault.mark.column}: {dotted(fault.path)}{': ' if fault.path else ''}{fault.what}" for fault in faults]
    if not isinstance(root, Tree):
        problems.append(f"{file}:1:1: is no mapping; write one setting a line, such as log_level: debug")
        return {}
    found = {}
    for name, entry in root.entries.items():
        where = f"{file}:{entry.mark.line}:{entry.mark.column}: {dotted((name,))}"
        if name in RunSettings.__struct_fields__:
            found[name] = _Said(where, plain(entry.node), file.parent)
        else:
            problems.append(f"{where}: is no setting; {_instead(name, 'one of ' + ', '.join(RunSettings.__struct_fields__), str)}")
    return {name: said for name, said in found.items() if said.value is not None}


def _env_file(said: _Said | None, problems: list[str]) -> dict[str, str]:
    path = None if said is None else _converted("env_file", said, [])
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


_TYPES: Final = {field.name: field.type for field in msgspec.structs.fields(RunSettings)}
_WORDS: Final = {"record_content": "none, hash, full", "log_level": "debug, info, warning, error", "log_format": "json, text"}
_PATHS: Final = frozenset({"state", "env_file"})
_TEMPLATES: Final = frozenset({"decision_log", "metrics_file"})


def _converted(name: str, said: _Said, problems: list[str]) -> Any:
    """The value as its setting's type; None, and a problem, where it is none."""
    if name in _PATHS | _TEMPLATES:
        if not isinstance(said.value, str | Path) or not str(said.value):
            problems.append(f"{said.where}: must be a path")
            return None
        if name == "decision_log" and said.value == "none":
            return "none"
        try:
            path = said.folder / Path(said.value).expanduser()
        except RuntimeError:
            problems.append(f"{said.where}: begins with ~ though no such home folder is known; write the folder out")
            return None
        return path if name in _PATHS else str(path)
    try:
        return msgspec.convert(said.value, _TYPES[name], strict=not said.text)
    except msgspec.ValidationError as problem:
        problems.append(f"{said.where}: {_wording(name, said.value, str(problem))}")
        return None


def _wording(name: str, value: Any, problem: str) -> str:
    if name in _WORDS:
        return f"{quoted(str(value))} is not one of {_WORDS[name]}"
    if name == "max_frame_bytes":
        return f"{quoted(str(value))} is no whole number from {64 * 1024} to {1024 * MIB}"
    return problem[:1].lower() + problem[1:]
