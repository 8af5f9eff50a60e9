"""A small GitHub runner: the steps of a job or a composite action in bash, with the runner's files, and its reading of
what the steps print."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

STEP_SECONDS: Final = 600.0
KNOWN: Final = (
    "set-env set-output save-state add-mask add-path add-matcher remove-matcher debug warning error notice group"
    " endgroup echo stop-commands internal-set-repo-path"
).split()


class Command(NamedTuple):
    """A workflow command that the runner finds in a line."""

    name: str
    properties: dict[str, str]
    text: str


def unescape(text: str, *more: str) -> str:
    for character in ("\r", "\n", *more, "%"):
        text = text.replace(f"%{ord(character):02X}", character)
    return text


def command(line: str) -> Command | None:
    """The command of a line, as the runner reads it: ``::name a=b::text`` after white space, ``##[name a=b]text``
    anywhere."""
    new = re.match(r"\s*::(\S*)(?: (.*?))?::(.*)", line)
    if new and new[1] in KNOWN:
        pairs = (pair.split("=", 1) for pair in (new[2] or "").split(",") if "=" in pair)
        return Command(new[1], {key.strip(): unescape(text, ":", ",") for key, text in pairs}, unescape(new[3]))
    old = re.search(r"##\[([^\] ]*)(?: ([^\]]*))?\](.*)", line)
    return Command(old[1], {}, unescape(old[3], ";", "]")) if old and old[1] in KNOWN else None


def file_values(text: str) -> dict[str, str]:
    """The values of GITHUB_ENV or GITHUB_OUTPUT: ``name=value``, or ``name<<END`` before lines up to ``END``."""
    out, lines = {}, iter(re.split(r"\r?\n", text))
    for line in lines:
        if "=" in line.partition("<<")[0]:
            name, _, out_value = line.partition("=")
            out[name] = out_value
        elif "<<" in line:
            name, _, end = line.partition("<<")
            out[name] = "\n".join(iter(lambda: next(lines), end))
    return out


class Scope:
    """The steps of a job or of a composite action, as far as they ran."""

    def __init__(self, inputs: Mapping[str, str]) -> None:
        self.inputs = dict(inputs)
        self.outputs: dict[str, dict[str, str]] = {}
        self.failed = False

    def value(self, expression: str) -> str:
        """The value of an operand: a literal, ``inputs.NAME`` or ``steps.ID.outputs.NAME``."""
        kind, *path = expression.strip().split(".")
        if literal := re.fullmatch(r"'((?:[^']|'')*)'", expression.strip()):
            return literal[1].replace("''", "'")
        if kind == "inputs":
            return self.inputs.get(path[0], "")
        assert ["steps", "outputs"] == [kind, path[1]], f"the harness does not know {expression!r}"
        return self.outputs.get(path[0], {}).get(path[2], "")

    def text(self, template: object) -> str:
        return re.sub(r"\$\{\{(.*?)\}\}", lambda found: self.value(found[1]), str(template))

    def applies(self, condition: str) -> bool:
        """Whether a step runs: ``always()``, or nothing has failed and ``a == b`` or ``a != b`` holds."""
        if condition == "always()":
            return True
        left, operator, right = re.fullmatch(r"(.+?)\s*(==|!=)\s*(.+)|", condition).groups("")  # type: ignore[union-attr]
        return not self.failed and (not operator or (self.value(left) == self.value(right)) == (operator == "=="))


class Job:
    """A job on a runner with an empty home. ``folder`` gets the workspace and the runner's folders."""

    def __init__(self, folder: Path, repository: Path, **environment: str) -> None:
        self.folder, self.repository = folder, repository
        self.workspace, self.temp = folder / "workspace", folder / "temp"
        for each in (self.workspace, self.temp, folder / "home", folder / "files"):
            each.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_RUN_ID": "1234",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_JOB": "agent",
            "RUNNER_TEMP": str(self.temp),
            **environment,
        }
        self.path: list[str] = []
        self.commands: list[Command] = []
        self.log = ""
        self.summary = ""

    def run(self, steps: Sequence[Mapping[str, Any]], scope: Scope | None = None) -> Scope:
        """Run steps. A step with ``uses`` runs the action in that folder of the repository."""
        scope = scope or Scope({})
        for number, step in enumerate(steps):
            if not scope.applies(step.get("if", "")):
                continue
            id = step.get("id", str(number))
            if "uses" in step:
                with_ = {name: scope.text(each) for name, each in step.get("with", {}).items()}
                failed, outputs = self.action(step["uses"], **with_)
            else:
                failed, outputs = self.script(
                    step["run"], {name: scope.text(each) for name, each in step.get("env", {}).items()}
                )
            scope.outputs[id] = outputs
            scope.failed |= failed and not step.get("continue-on-error", False)
        return scope

    def action(self, uses: str, **given: str) -> tuple[bool, dict[str, str]]:
        """Whether a composite action failed, and its outputs, which it has also then."""
        action = yaml.safe_load((self.repository / uses / "action.yml").read_text("utf-8"))
        assert set(given) <= set(action["inputs"]), f"{uses}: unknown inputs"
        defaults = {name: each.get("default", "") for name, each in action["inputs"].items()}
        assert all(step["shell"] == "bash" for step in action["runs"]["steps"])
        scope = self.run(action["runs"]["steps"], Scope({**defaults, **given}))
        return scope.failed, {name: scope.text(each["value"]) for name, each in action["outputs"].items()}

    def script(self, text: str, environment: Mapping[str, str]) -> tuple[bool, dict[str, str]]:
        """Run one script, then read what it printed and the files of the runner that it wrote."""
        files = {name: self.folder / "files" / name for name in ("script", "ENV", "OUTPUT", "PATH", "STEP_SUMMARY")}
        for each in files.values():
            each.write_text("")
        files["script"].write_text(text, "utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(files["script"])],
            cwd=self.workspace,
            env={
                **self.environment,
                "PATH": os.pathsep.join([*reversed(self.path), self.environment["PATH"]]),
                **environment,
                **{f"GITHUB_{name}": str(each) for name, each in files.items() if name != "script"},
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=STEP_SECONDS,
            check=False,
        )
        printed = done.stdout.decode("utf-8", "replace")
        self.log += printed
        self.commands += [found for line in re.split(r"\r\n|\r|\n", printed) if (found := command(line))]
        self.environment |= file_values(files["ENV"].read_text("utf-8"))
        self.path += files["PATH"].read_text("utf-8").split("\n")[:-1]
        self.summary += files["STEP_SUMMARY"].read_text("utf-8")
        return done.returncode != 0, file_values(files["OUTPUT"].read_text("utf-8"))
