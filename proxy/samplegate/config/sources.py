"""Sources of settings: the command line, SAMPLEGATE_* variables, the env file and the settings file.

One reader serves all commands and reports every problem with its place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_origin

import msgspec

from samplegate.config.settings import SERVER_ONLY, Setting, Table, value_error
from samplegate.files import missing_hint
from samplegate.yamlfile import envfile
from samplegate.yamlfile.tree import Fault, Mark, Node, Unreadable, compose, dotted, find, plain_value
from samplegate.yamlfile.tree import Mapping as Tree
from samplegate.yamlfile.tree import Path as Steps
from samplegate.yamlfile.validate import Type, Validator, type_of

PREFIX: Final = "SAMPLEGATE_"
NO_STATE: Final = "state: the home folder is unknown; set SAMPLEGATE_STATE or HOME to a folder"
_NO_HOME: Final = "begins with ~, but that home folder is unknown; write the full path"
# Variables that Kubernetes sets in a pod if the namespace has a Service named samplegate: not a mistake of the user.
_service_links: Final = re.compile(
    PREFIX + r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?)\Z"
)
_whole_number: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_booleans: Final = {"true": True, "false": False}

Struct = TypeVar("Struct", bound=msgspec.Struct)


class SourceValue(msgspec.Struct, frozen=True):
    """One source's value of one setting. ``text``: the source provides text, whatever the setting's type."""

    where: str
    value: Any
    folder: Path
    """The base folder of a relative path."""
    text: bool = False


Layer: TypeAlias = Mapping[str, SourceValue]
"""One source's values, by the setting's name."""


class GatheredSettings(msgspec.Struct, eq=False):
    """The values of every source in order of precedence, with the problems and warnings of reading them."""

    layers: list[Layer]
    environment: Mapping[str, str]
    """The process's own variables over the env file's. Secret."""
    problems: list[str]
    warnings: list[str] = []
    named: set[str] = set()
    """The variables that servers' ``env``, ``url`` and ``headers`` refer to."""
    places: dict[str, str] = {}
    """The place of each server's command, by the server's name."""

    @property
    def effective(self) -> Layer:
        """The effective value of each setting, from the source with the highest precedence."""
        return {name: source for layer in reversed(self.layers) for name, source in layer.items()}

    def section(self, source: SourceValue) -> Any:
        """A section of the settings file, or of the environment variable with its name, which contains YAML or JSON."""
        if not source.text:
            return source.value
        root = tree_in(str(source.value), source.where, self.problems)
        return None if root is None else Section(source.where, root, (), source.folder, self.problems)


def gather(
    table: Table, environ: Mapping[str, str], file: Path | None, flags: Mapping[str, object], problems: list[str]
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The settings without sections, and the environment.

    `run` and `reviews` use this without pydantic, whose import takes 0.1 s.
    """
    found = read_layers(table, environ, file, flags, problems)
    return plain_values(table, found), found.environment


def plain_values(table: Table, found: GatheredSettings) -> dict[str, Any]:
    """The values of the settings without sections. Every problem is reported."""
    problems = found.problems
    values: dict[str, Any] = {}
    for name, source in (
        (name, source) for layer in found.layers for name, source in layer.items() if not table[name].section
    ):
        try:  # even if another source overrides it: an invalid value is reported
            values.setdefault(
                name,
                converted_value(
                    table[name], source, partial(msgspec.convert, type=table[name].type, dec_hook=_to_path)
                ),
            )
        except msgspec.ValidationError:
            problems.append(f"{source.where}: {value_error(table[name], source.value)}")
        except ValueError as problem:
            problems.append(f"{source.where}: {problem}")
    return values


def read_layers(
    table: Table, environ: Mapping[str, str], file: Path | None, flags: Mapping[str, object], problems: list[str]
) -> GatheredSettings:
    """Read every source: the command line, the variables (the process's own before the env file's), the settings file,
    and the platform's default state folder."""
    line = {
        name: SourceValue(f"--{name.replace('_', '-')}", value, Path(), text=True)
        for name, value in flags.items()
        if name in table and value is not None
    }
    filed = {} if file is None else _in_file(file, table, problems)
    env_file = {**filed, **_in_environment(environ, table, []), **line}.get("env_file")
    environment = {**_env_file(env_file, problems), **environ}
    folder = state_folder(environment)
    platform = {} if folder is None else {"state": SourceValue("state", folder, Path())}
    return GatheredSettings(
        [line, _in_environment(environment, table, problems), filed, platform], environment, problems
    )


def state_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path | None:
    """The user's folder for state on this platform; None if the environment does not identify the user's home."""
    home = environ.get("USERPROFILE" if platform == "win32" else "HOME", "")
    if platform == "win32":
        base = environ.get("LOCALAPPDATA") or (home and f"{home}/AppData/Local")
    # the XDG specification requires relative paths to be ignored
    elif Path(environ.get("XDG_STATE_HOME", "")).is_absolute():
        base = environ["XDG_STATE_HOME"]
    else:
        base = home and home + ("/Library/Application Support" if platform == "darwin" else "/.local/state")
    return Path(base) / "samplegate" if base else None


def _in_environment(environ: Mapping[str, str], table: Table, problems: list[str]) -> dict[str, SourceValue]:
    """The settings from variables. An empty variable counts as unset. An unknown one is reported, because the mistake
    would be hard to find."""
    found = {}
    for variable, value in environ.items():
        if not variable.upper().startswith(PREFIX) or _service_links.match(variable):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if variable != PREFIX + name.upper() or name not in table:
            problems.append(
                f"{variable}: unknown variable;"
                f" {_suggestion(name, table, 'unset it', lambda like: PREFIX + like.upper())}"
            )
        elif value:
            found[name] = SourceValue(variable, value, Path(), text=True)
    return found


def _in_file(file: Path, table: Table, problems: list[str]) -> dict[str, SourceValue]:
    """The settings from the file, with their lines and columns. A key without a value counts as unset. A section is a
    ``Section``."""
    root = tree_of(file, problems)
    if root is not None and not isinstance(root, Tree):
        problems.append(f"{file}:1:1: is not a mapping; write one setting per line, such as log_level: debug")
    found: dict[str, SourceValue] = {}
    if isinstance(root, Tree) and {"version", "rules"} <= root.entries.keys():
        problems.append(f"{file}:1:1: this is a policy, not a settings file; pass it with --policy")
        return found
    for name, entry in root.entries.items() if isinstance(root, Tree) else ():
        where = f"{file}:{entry.mark.line}:{entry.mark.column}: {dotted((name,))}"
        if name not in table:
            remedy = (
                "set it under servers.NAME"
                if "servers" in table and name in SERVER_ONLY
                else _suggestion(name, table, "use one of " + ", ".join(table))
            )
            problems.append(f"{where}: unknown setting; {remedy}")
        elif (value := plain_value(entry.node)) is not None:
            part = Section(str(file), entry.node, (name,), file.parent, problems) if table[name].section else value
            found[name] = SourceValue(where, part, file.parent)
    return found


def _suggestion(name: str, table: Table, otherwise: str, spelled: Callable[[str], str] = str) -> str:
    """A suggestion for an unknown name, written by ``spelled``; ``otherwise`` if no setting is similar."""
    from difflib import get_close_matches

    like = get_close_matches(name.removeprefix("samplegate_"), table, 1, 0.6)
    return f"did you mean {spelled(like[0])}?" if like else otherwise


def _env_file(source: SourceValue | None, problems: list[str]) -> dict[str, str]:
    """The variables of the env file. A problem with the file's own name is reported when that setting is read."""
    try:
        path = None if source is None else Path(_path(source))
    except ValueError:
        return {}
    try:
        found = {} if path is None else envfile.parse(path.read_text(encoding="utf-8"), file=str(path))
    except envfile.EnvFileError as problem:
        problems += problem.problems
        return {}
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{path}: the env file {read_error(problem)}")
        return {}
    if PREFIX + "ENV_FILE" in found:
        problems.append(
            f"{path}: {PREFIX}ENV_FILE: an env file cannot refer to another one; put all variables in one file"
        )
    return found


def read_error(problem: OSError | UnicodeDecodeError) -> str:
    """The reason that a file cannot be read."""
    reason: str = getattr(problem, "strerror", None) or "it is not UTF-8 text"
    name = str(problem.filename) if isinstance(problem, FileNotFoundError) else ""
    hint = f"; {missing_hint(name, Path())}" if name else ""
    return f"cannot be read: {reason[0].lower()}{reason[1:]}{hint}"


MAX_SECRET: Final = 64 * 1024  # bytes of a file with a secret, a key or a header's value


def secret_text(path: Path) -> str:
    """The text of a file with a secret. Raises ValueError, whose text contains no value."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SECRET + 1)
        if len(data) <= MAX_SECRET:
            return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path}: {read_error(problem)}") from None
    raise ValueError(f"{path}: is larger than {MAX_SECRET} bytes; keep only the secret in it")


def converted_value(setting: Setting, source: SourceValue, convert: Callable[[Any], Any]) -> Any:
    """A source's value, converted by ``convert``. Raises its error, or a ValueError with the problem."""
    value = convert(_path(source, setting.keywords, setting.store) if setting.path else _read(setting, source))
    if setting.check is not None:
        setting.check(value)
    return Path.cwd() if setting.name == "state" and value == Path() else value


def _to_path(type: Any, text: Any) -> Any:
    """Convert text to a path, for msgspec."""
    return type(text)


def _read(setting: Setting, source: SourceValue) -> Any:
    """The value, parsed if its source provides text."""
    if not source.text:
        return source.value
    if get_origin(setting.kind) is tuple:
        return [item.strip() for item in source.value.split(",")]
    if setting.kind is int and _whole_number.fullmatch(source.value):
        return int(source.value)
    return _booleans.get(source.value, source.value) if setting.kind is bool else source.value


def _path(source: SourceValue, keywords: tuple[str, ...] = (), store: str = "") -> str:
    """The path, resolved from its base folder. ``keywords`` and the prefix ``store`` are kept. Raises
    ValueError."""
    if not isinstance(source.value, str | Path) or not str(source.value):
        raise ValueError("must be a path")
    text = str(source.value)
    if text in keywords:
        return text
    prefix = store if store and text.startswith(store) else ""
    if prefix and text == prefix:
        raise ValueError(f"has no path; write {prefix}PATH")
    try:
        return prefix + str(source.folder / Path(text.removeprefix(prefix)).expanduser())
    except RuntimeError:
        raise ValueError(_NO_HOME) from None


def tree_of(file: Path, problems: list[str]) -> Node | None:
    """The tree of a YAML or JSON file; None if the file is empty or unreadable."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: {read_error(problem)}")
        return None
    # empty, or only comments
    if all(line.lstrip()[:1] in ("", "#") for line in text.removeprefix("\ufeff").splitlines()):
        return None
    return tree_in(text, str(file), problems)


def tree_in(text: str, where: str, problems: list[str]) -> Node | None:
    """The tree of a text; None if it cannot be parsed. ``where`` is the place for problems."""
    try:
        root, faults = compose(text)
    except Unreadable as problem:
        root, faults = None, [problem.fault]
    problems += [_fault_line(where, fault) for fault in faults]
    return root


def _fault_line(where: str, fault: Fault) -> str:
    return (
        f"{where}:{fault.mark.line}:{fault.mark.column}: {dotted(fault.path)}{': ' if fault.path else ''}{fault.what}"
    )


class Section(msgspec.Struct, frozen=True, eq=False):
    """A subtree of the settings: its node, its file or variable, its path in it, and the base folder of relative
    paths."""

    where: str
    node: Node
    path: Steps
    folder: Path
    problems: list[str]

    def entries(self) -> dict[str, Section]:
        """The entries of a mapping by name. Anything else is a problem and has no entries."""
        if not isinstance(self.node, Tree):
            self.problem((), "is not a mapping; write one name per line, each with its settings")
            return {}
        return {
            name: Section(self.where, entry.node, (*self.path, name), self.folder, self.problems)
            for name, entry in self.node.entries.items()
        }

    def value(self, struct: type[Struct]) -> Struct | None:
        """The section as ``struct``; None if it is invalid, with every problem reported."""
        walk = Validator()
        found = walk.value(self.node, _type(struct), self.path)
        self.problems.extend(_fault_line(self.where, fault) for fault in walk.faults)
        if walk.faults or walk.broken:
            return None
        try:
            return msgspec.convert(found, struct, dec_hook=_to_path)
        # the validator accepts a value that msgspec rejects: a gap in the validator, but still an error
        except msgspec.ValidationError as problem:
            self.problem((), str(problem))
            return None

    def problem(self, below: Steps, what: str) -> None:
        """Report a problem at ``below`` of this section, or at the nearest place above it that the file has."""
        self.problems.append(_fault_line(self.where, Fault(self._mark(below), (*self.path, *below), what)))

    def place(self, below: Steps) -> str:
        """The place of ``below`` of this section: ``FILE:LINE:COLUMN: a.b``."""
        mark = self._mark(below)
        return f"{self.where}:{mark.line}:{mark.column}: {dotted((*self.path, *below))}"

    def file(self, below: Steps, path: Path | str | None) -> Path | None:
        """The path of ``below``, resolved from the base folder. None, with a problem, if its home folder is unknown."""
        try:
            return None if path is None else self.folder / Path(path).expanduser()
        except RuntimeError:
            self.problem(below, _NO_HOME)
            return None

    def _mark(self, below: Steps) -> Mark:
        while (node := find(self.node, below)) is None:
            below = below[:-1]
        return node.mark


@cache
def _type(struct: type[msgspec.Struct]) -> Type:
    return type_of(struct)
