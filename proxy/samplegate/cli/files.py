"""The commands' inputs: files with their kind, and the tests of each policy; the environment; ``--client``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from samplegate.cli import FAILED, UNREADABLE
from samplegate.errors import InputError
from samplegate.policy.conditions import short_value
from samplegate.policy.file.load import PolicyError
from samplegate.policy.script import MAX_BYTES, MAX_VALUES
from samplegate.policytest.suite import Declared
from samplegate.yamlfile import envfile, tree
from samplegate.yamlfile.tree import compose

Sort: TypeAlias = Literal["policy", "tests", "script"]

SUFFIX: Final = "_test"
WIDEST: Final = 60


def read(path: Path) -> str:
    """The text of a UTF-8 file, its line ends as they are. Raises Unreadable."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{path}: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text") from None


def is_test(path: Path) -> bool:
    """Whether a file is a test file by its name."""
    return path.stem.endswith(SUFFIX)


def sort_of(path: Path, text: str) -> Sort:
    """What a file is: a test by its name, a script of the built-in model by its `cases` without `version` and `rules`,
    else a policy."""
    if is_test(path):
        return "tests"
    try:
        # a recorded script is larger than a policy may be
        root, _ = compose(text, most_bytes=MAX_BYTES, most_values=MAX_VALUES)
    except tree.Unreadable:
        return "policy"
    keys = set(root.entries) if isinstance(root, tree.Mapping) else set()
    return "script" if "cases" in keys and keys.isdisjoint({"version", "rules"}) else "policy"


def test_of(policy: Path) -> Path:
    """Where the cases of a policy stand: ``ci_test.yaml`` beside ``ci.yaml``."""
    return policy.with_name(f"{policy.stem}{SUFFIX}{policy.suffix}")


def policy_of(test: Path) -> Path:
    """The other way round."""
    return test.with_name(test.stem.removesuffix(SUFFIX) + test.suffix)


def environment(env_file: Path | None) -> Mapping[str, str]:
    """As `run` has it: what is set in the process goes before the file. Raises Unreadable with every problem of the
    file."""
    if env_file is None:
        return os.environ
    try:
        return {**envfile.parse(read(env_file), file=str(env_file)), **os.environ}
    except envfile.EnvFileError as error:
        raise InputError("\n".join(error.problems)) from None


def declared(said: str) -> list[Declared]:
    """The capabilities of a list with commas. Raises Unreadable for one that there is not."""
    names = [name for name in said.split(",") if name]
    known: tuple[Declared, ...] = get_args(Declared)
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"--client: {unknown[0]!r} is not one of {', '.join(known)}")
    return [name for name in known if name in names]


def count(number: int, noun: str) -> str:
    """``1 case`` or ``2 cases``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def plain(word: str) -> str:
    """Untrusted text (a peer's name, a word of a log), made safe for a terminal."""
    return word if word.isascii() and word.isprintable() and len(word) <= WIDEST else short_value(word)


def refused(problem: InputError | PolicyError) -> int:
    """Say what keeps a command from working; the exit code for it."""
    if isinstance(problem, PolicyError):
        print("\n".join(map(str, problem.problems)), file=sys.stderr)
        return FAILED
    complain(str(problem))
    return UNREADABLE


def complain(message: str) -> None:
    """One line on stderr, as every command says what keeps it from working."""
    print(f"samplegate: {message}", file=sys.stderr)
