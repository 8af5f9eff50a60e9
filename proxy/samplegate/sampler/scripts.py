"""Reads the case files of a policy's ``scripted`` models. What stands in them is ``core/scripted.py``'s."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from samplegate.core.load import PolicyError, Problem
from samplegate.core.policy import Model
from samplegate.core.scripted import Script, parse
from samplegate.sampler.keys import SCRIPTED

MAX_BYTES: Final = 1024 * 1024


def load_scripts(models: Sequence[Model], *, folder: Path) -> dict[str, Script]:
    """The script of each ``scripted`` model, by its name; the files are relative to ``folder``. Raises PolicyError with all their problems."""
    files = {model.name: model.cases for model in models if model.model == SCRIPTED}
    scripts: dict[str, Script] = {}
    problems: list[Problem] = []
    for name, file in files.items():
        try:
            scripts[name] = parse(_read(folder, name, file), file=str(file))
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(tuple(problems))
    return scripts


def _read(folder: Path, name: str, file: str | None) -> str:
    if file is None:
        raise PolicyError((Problem("policy", 1, 1, "models", f"model {name} is scripted and has no cases; give it `cases: FILE`"),))
    try:
        with (folder / file).open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
        return raw.decode("utf-8-sig")
    except OSError as problem:
        what = f"the cases of model {name} cannot be read: {problem.strerror or type(problem).__name__}; check `cases`, it is relative to the policy"
    except UnicodeDecodeError:
        what = f"the cases of model {name} are not UTF-8; save the file as UTF-8 text"
    raise PolicyError((Problem(file, 1, 1, "", what),))
