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
from samplegate.config import state_folder
from samplegate.errors import InputError
from samplegate.policy.conditions import short_value
from samplegate.policy.file.load import PolicyError
from samplegate.policy.script import MAX_BYTES, MAX_VALUES
from samplegate.policytest.suite import Declared
from samplegate.printable import without_hashes
from samplegate.yamlfile import envfile, tree
from samplegate.yamlfile.tree import compose

FileKind: TypeAlias = Literal["policy", "tests", "script"]

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
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{path}: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text") from None


def is_test(path: Path) -> bool:
    """Whether a file is a test file, by its name."""
    return path.stem.endswith(SUFFIX)


def file_kind(path: Path, text: str) -> FileKind:
    """Kind of a file: tests by its name, a script by `cases` without `version` and `rules`, otherwise a policy."""
    if is_test(path):
        return "tests"
    try:
        # a recorded script may be larger than a policy
        root, _ = compose(text, max_bytes=MAX_BYTES, max_values=MAX_VALUES)
    except tree.Unreadable:
        return "policy"
    keys = set(root.entries) if isinstance(root, tree.Mapping) else set()
    return "script" if "cases" in keys and keys.isdisjoint({"version", "rules"}) else "policy"


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
    """Print lines with names from files, logs and peers: each stays one line and is no command for a CI runner."""
    for line in lines:
        print(inert(line), file=file)


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
