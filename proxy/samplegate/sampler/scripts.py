"""Reads the case files that a policy names, for ``scripted`` models and ``answer`` rules. ``core/script.py`` reads
their contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from samplegate.policy.catalogue import SCRIPTED
from samplegate.policy.file.load import PolicyError, Problem
from samplegate.policy.schema import AnswerRule, Model, Policy
from samplegate.policy.script import MAX_BYTES, Script, parse


def load_scripts(models: Sequence[Model], *, folder: Path) -> dict[str, Script]:
    """The script of each ``scripted`` model, by its name; the files are relative to ``folder``. Raises PolicyError with
    all their problems."""
    return _load(
        {(f"model {model.name}", model.name): model.cases for model in models if model.model == SCRIPTED}, folder
    )


def load_rule_scripts(policy: Policy, folder: Path) -> dict[str, Script]:
    """The script of each ``answer`` rule with ``cases``, by the rule's name; otherwise the same."""
    rules = (rule for rule in policy.rules if isinstance(rule, AnswerRule) and rule.cases is not None)
    return _load({(f"rule {rule.name}", rule.name): rule.cases for rule in rules}, folder)


def _load(files: Mapping[tuple[str, str], str | None], folder: Path) -> dict[str, Script]:
    """By name; a file that several name is read once, and its problems are told once."""
    read: dict[str | None, Script | PolicyError] = {}
    for (owner, _), file in files.items():
        if file not in read:
            try:
                read[file] = parse(_read(folder, owner, file), file=str(file))
            except PolicyError as error:
                read[file] = error
    problems = [problem for found in read.values() if isinstance(found, PolicyError) for problem in found.problems]
    if problems:
        raise PolicyError(tuple(problems))
    return {name: script for (_, name), file in files.items() if isinstance(script := read[file], Script)}


def _read(folder: Path, owner: str, file: str | None) -> str:
    if file is None:
        raise PolicyError(
            (Problem("policy", 1, 1, "models", f"{owner} is scripted and has no cases; give it `cases: FILE`"),)
        )
    try:
        with (folder / file).open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
        return raw.decode("utf-8-sig")
    except OSError as problem:
        what = (
            f"the cases of {owner} cannot be read: {problem.strerror or type(problem).__name__}; check `cases`, it is"
            " relative to the policy"
        )
    except UnicodeDecodeError:
        what = f"the cases of {owner} are not UTF-8; save the file as UTF-8 text"
    raise PolicyError((Problem(file, 1, 1, "", what),))
