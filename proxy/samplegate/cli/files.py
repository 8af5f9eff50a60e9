"""Inputs and outputs of the commands: files and their kinds, tests of a policy, environment, capabilities of
``--client``, and text that no CI runner takes for a command."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TextIO, TypeAlias, get_args

from samplegate.ci.annotations import inert
from samplegate.cli import FAILED, UNREADABLE
from samplegate.cli.color import has_color, painted
from samplegate.config import state_folder
from samplegate.config.settings import SETTINGS
from samplegate.errors import InputError
from samplegate.files import missing_hint
from samplegate.policy.conditions import short_value
from samplegate.policy.file.load import PolicyError
from samplegate.policy.schema import Policy
from samplegate.policy.script import MAX_BYTES, MAX_VALUES
from samplegate.policytest.suite import Declared
from samplegate.printable import without_hashes
from samplegate.yamlfile import envfile, tree
from samplegate.yamlfile.tree import compose

FileKind: TypeAlias = Literal["policy", "tests", "script", "settings"]

SUFFIX: Final = "_test"
MAX_PLAIN_LENGTH: Final = 60
STATE: Final = "SAMPLEGATE_STATE"
STDOUT: Final = "-"
"""The value of `--json` without a file."""
_UNUSUAL: Final = re.compile(r"[^ -~\n]")


def read(path: Path) -> str:
    """Text of a UTF-8 file, with its line ends. Raises InputError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        hint = missing_hint(str(path), Path())
        raise InputError(f"{path}: cannot be read: no such file or directory; {hint}") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{path}: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text") from None


def is_test(path: Path) -> bool:
    """Whether a file is a test file, by its name."""
    return path.stem.endswith(SUFFIX)


def file_kind(path: Path, text: str) -> FileKind:
    """Kind of a file: tests by its name; a script by `cases`, or settings by their keys, without `version` and `rules`;
    otherwise a policy."""
    if is_test(path):
        return "tests"
    root = _tree(text)
    keys = set(root.entries) if root is not None else set()
    if not keys.isdisjoint({"version", "rules"}):
        return "policy"
    if "cases" in keys:
        return "script"
    return "settings" if root is not None and _is_settings(root) else "policy"


def _tree(text: str) -> tree.Mapping | None:
    """The mapping of a file; None if it is not one."""
    try:
        # a recorded script may be larger than a policy
        root, _ = compose(text, max_bytes=MAX_BYTES, max_values=MAX_VALUES)
    except tree.Unreadable:
        return None
    return root if isinstance(root, tree.Mapping) else None


def _is_settings(root: tree.Mapping) -> bool:
    """Whether a mapping has more keys of settings than of a policy. `servers` may be in both: those of settings have a
    command or a URL."""
    from samplegate.config.serve_settings import SERVE_SETTINGS

    keys = set(root.entries)
    servers = root.entries.get("servers")
    entries = servers.node.entries.values() if servers is not None and isinstance(servers.node, tree.Mapping) else ()
    if any(isinstance(one.node, tree.Mapping) and {"command", "url"} & set(one.node.entries) for one in entries):
        return True
    policy = set(Policy.__struct_fields__)
    settings = (SERVE_SETTINGS.keys() | SETTINGS.keys()) - policy
    return len(keys & settings) > len(keys & policy - {"servers"})


def is_for_run(text: str) -> bool:
    """Whether settings are for `run`: they have no key that only `serve` has, or more that only `run` has."""
    from samplegate.config.serve_settings import SERVE_SETTINGS

    root = _tree(text)
    keys = set() if root is None else set(root.entries)
    of_run, of_serve = SETTINGS.keys() - SERVE_SETTINGS.keys(), SERVE_SETTINGS.keys() - SETTINGS.keys()
    return len(keys & of_run) > len(keys & of_serve) or not keys & of_serve


SUFFIXES: Final = (".yaml", ".yml")
MOST_FILES: Final = 10_000


def files_of(given: Iterable[Path]) -> list[Path]:
    """The files, and those of ours in each folder and its subfolders, sorted: policies, their tests, scripts and
    settings. Other YAML files in folders are left out. Raises InputError for a folder without any."""
    found: dict[Path, None] = {}
    for path in given:
        if not path.is_dir():
            found[path] = None
            continue
        ours = [file for file in _yaml_files(path) if _is_ours(file)]
        if not ours:
            raise InputError(f"{path}: the folder has no policy, test, script or settings file (*.yaml, *.yml)")
        found.update(dict.fromkeys(ours))
    return list(found)


def _yaml_files(folder: Path) -> list[Path]:
    """YAML files in a folder and its subfolders, without hidden ones. Links to folders are not followed."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in sorted(names) if name.endswith(SUFFIXES) and name[0] != "."]
        if len(found) > MOST_FILES:
            raise InputError(f"{folder}: the folder has more than {MOST_FILES} YAML files; name those to be read")
    return found


def _is_ours(file: Path) -> bool:
    """Whether a YAML file in a folder is one of ours. An unreadable one is reported when it is read again."""
    if is_test(file):
        return True
    try:
        text = read(file)
    except InputError:
        return True
    root = _tree(text)
    if root is None:
        return re.search(r"^rules[ \t]*:", text, re.MULTILINE) is not None
    keys = set(root.entries)
    match file_kind(file, text):
        case "script":
            return True
        case "settings":
            from samplegate.config.serve_settings import SERVE_SETTINGS

            return 2 * len(keys & (SERVE_SETTINGS.keys() | SETTINGS.keys())) >= len(keys)
        case _:
            return 2 * len(keys & set(Policy.__struct_fields__)) > len(keys) and "rules" in keys


def test_of(policy: Path) -> Path:
    """Path of a policy's tests: ``ci_test.yaml`` beside ``ci.yaml``."""
    return policy.with_name(f"{policy.stem}{SUFFIX}{policy.suffix}")


def policy_of(test: Path) -> Path:
    """Path of the policy of a test file."""
    return test.with_name(test.stem.removesuffix(SUFFIX) + test.suffix)


def environment(env_file: Path | None) -> Mapping[str, str]:
    """Environment as for `run`: process variables override the file. Raises InputError with every problem of the
    file."""
    if env_file is None:
        return os.environ
    try:
        return {**envfile.parse(read(env_file), file=str(env_file)), **os.environ}
    except envfile.EnvFileError as error:
        raise InputError("\n".join(error.problems)) from None


def capability_names(text: str) -> list[Declared]:
    """Capabilities in a comma-separated list. Raises InputError for an unknown one."""
    names = [name for name in text.split(",") if name]
    known: tuple[Declared, ...] = get_args(Declared)
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"--client: {unknown[0]!r} is not one of {', '.join(known)}")
    return [name for name in known if name in names]


def count(number: int, noun: str) -> str:
    """Number and noun: ``1 case`` or ``2 cases``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def plain(word: str) -> str:
    """Untrusted text (a peer's name, a word in a log), made safe for a terminal."""
    return word if word.isascii() and word.isprintable() and len(word) <= MAX_PLAIN_LENGTH else short_value(word)


def report_error(problem: InputError | PolicyError) -> int:
    """Print why a command cannot work, and return its exit code."""
    if isinstance(problem, PolicyError):
        print_lines(map(str, problem.problems), file=sys.stderr)
        return FAILED
    print_error(str(problem))
    return UNREADABLE


def print_error(message: str) -> None:
    """Print a message on stderr. Only its own line ends are kept: none of its lines is a command for a CI runner."""
    print("\n".join(map(inert, f"samplegate: {message}".split("\n"))), file=sys.stderr)


def print_lines(lines: Iterable[str], *, file: TextIO | None = None) -> None:
    """Print lines with names from files, logs and peers: each stays one line and is no command for a CI runner. On a
    terminal, status words have colors."""
    color = has_color(sys.stdout if file is None else file)
    for line in lines:
        print(painted(inert(line)) if color else inert(line), file=file)


def json_text(value: Any) -> str:
    """Indented JSON, in which a CI runner finds no command: unprintable characters and ``##`` are escaped."""
    text = _UNUSUAL.sub(
        lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1],
        json.dumps(value, indent=2, ensure_ascii=False).replace("\x7f", r"\u007f"),
    )
    return without_hashes(text, escape=r"\u0023")


def write_json(file: str, value: Any) -> None:
    """Print JSON, or write it to a file. Raises InputError."""
    if file == STDOUT:
        print(json_text(value))
    else:
        write_report("--json", Path(file), json_text(value).encode("utf-8", "backslashreplace") + b"\n")


def state_of(given: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The state folder, as `run` finds it without a settings file; None if the home folder is unknown."""
    return given or (Path(environ[STATE]) if environ.get(STATE) else state_folder(environ))


def workspace_path(path: Path) -> str | None:
    """Path below the workspace of the CI system (GITHUB_WORKSPACE, else the current folder), with ``/``. None for a
    path outside of it."""
    try:
        workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
        # the file itself may be a link: it has its own lines in a change
        place = path.resolve() if path.name == ".." else path.parent.resolve() / path.name
        return place.relative_to(workspace).as_posix()
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a loop of links, before Python 3.13
        return None


def write_report(option: str, path: Path, content: bytes) -> None:
    """Write a report for another program: the file has its old content or all of the new one. Missing folders are
    created. Raises InputError, which names the option."""
    try:
        if path.exists() and not path.is_file():  # a device or a pipe must not be replaced
            path.write_bytes(content)
            return
        place = Path(os.path.realpath(path))  # a link stays
        if not place.parent.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".samplegate-{os.urandom(8).hex()}")
        try:
            with draft.open("xb") as file:
                file.write(content)
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"{option}: {path} cannot be written: {reason}") from None
