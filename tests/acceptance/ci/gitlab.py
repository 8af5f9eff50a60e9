"""A small GitLab: the jobs of a component with its inputs put in, and their scripts in bash."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

JOB_SECONDS: Final = 600.0


class Refused(Exception):
    """GitLab creates no pipeline because of an input."""


def jobs(component: Path, **given: object) -> dict[str, Any]:
    """The jobs of a component. As in GitLab, values become part of the file's text before it is read as YAML."""
    header, _, body = component.read_text("utf-8").partition("\n---\n")
    values = {}
    spec = yaml.safe_load(header)["spec"]["inputs"]
    if unknown := set(given) - set(spec):
        raise Refused(f"unknown inputs: {unknown}")
    for name, each in spec.items():
        value = given.get(name, each.get("default"))
        if value is None or not isinstance(value, list if each.get("type") == "array" else str):
            raise Refused(f"{name}: missing, or of another type")
        # RE2 and Python write the end of the text differently
        if "regex" in each and not re.search(each["regex"].replace(r"\z", r"\Z"), str(value)):
            raise Refused(f"{name}: does not match {each['regex']}")
        values[name] = value if isinstance(value, str) else json.dumps(value)
    text = re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda found: values[found[1]], body)
    assert "$[[" not in text or any("$[[" in value for value in values.values())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


class Ended(NamedTuple):
    """A job that ended."""

    code: int
    log: str


def run(job: Mapping[str, Any], folder: Path, **environment: str) -> Ended:
    """Run the script of a job in a project's folder, with an empty home."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    defined = {"CI": "true", "GITLAB_CI": "true", "CI_JOB_ID": "77", "CI_PROJECT_DIR": str(folder), **environment}
    variables = {}
    for name, each in job["variables"].items():
        value = each["value"]
        if each.get("expand", True):
            value = re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda found: defined.get(found[1] or found[2], ""), value)
        variables[name] = value
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **defined, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=JOB_SECONDS,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode("utf-8", "replace"))
