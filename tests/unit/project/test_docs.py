"""The documentation against the code: it describes every key of the policy and its tests and no other, and every
example loads."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from docs import generate
from samplegate import __version__
from samplegate.cli import bundled, main
from samplegate.config import SettingsError
from samplegate.config.serve import load_serve
from samplegate.policy import schema, script
from samplegate.policy.file.load import json_schema, load
from samplegate.policytest import load as cases
from samplegate.policytest import play, suite
from samplegate.yamlfile.tree import compose, plain_value
from tests.paths import ROOT

README: Final = ROOT / "README.md"
DECISIONS: Final = ROOT / "docs" / "decisions.md"
PAGES: Final = [ROOT / path for path in bundled.PAGES.values() if path != "CHANGELOG.md"]
REFERENCE: Final = [page for page in PAGES if page.parent.name == "policies"]
RECIPES: Final = [page for page in PAGES if page.parent.name == "recipes"]
GUIDES: Final = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "tour.md"]
OPERATORS: Final = [page for page in PAGES if page.parent.name == "deploy"]

FENCE: Final = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODELS: Final = "version: 1\nmodels: [{name: smart, model: a/b}]\nrules:\n"


def examples(path: Path) -> list[Any]:
    found = [match for match in FENCE.finditer(path.read_text()) if match[1] in {"yaml", "yml"}]
    return [
        pytest.param(match[2] or "policy", match[3], id=f"{path.parent.name}-{path.stem}-{index}")
        for index, match in enumerate(found)
    ]


def example_under(heading: str, sort: str) -> str:
    """The first example of one kind below a heading of the reference."""
    parts = (re.split(rf"^#+ {re.escape(heading)}$", page.read_text("utf-8"), flags=re.MULTILINE) for page in REFERENCE)
    behind = next(part[1] for part in parts if len(part) > 1)
    return next(match[3] for match in FENCE.finditer(behind) if match[2] == sort)


def fits_schema(text: str) -> bool:
    return jsonschema.Draft202012Validator(json_schema()).is_valid(plain_value(compose(text)[0]))


def test_a_wheel_in_a_command_has_the_version_that_make_build_gives_it() -> None:
    named = {(page.name, wheel) for page in PAGES for wheel in re.findall(r"samplegate-([\d.]+)-py3", page.read_text())}
    assert {"README.md", "tour.md"} <= {page for page, _ in named}
    assert [] == [(page, wheel) for page, wheel in named if wheel != __version__]


@pytest.mark.cpu(4)  # it generates every table
def test_the_tables_of_the_pages_are_those_of_the_code() -> None:
    stale = [page.name for page in generate.PAGES if generate.with_tables(page) != page.read_text("utf-8")]
    assert [] == stale, "run `make docs`"


def test_every_table_stands_on_one_page() -> None:
    used = [name for page in generate.PAGES for _, name, _ in generate.TABLE.findall(page.read_text("utf-8"))]
    assert sorted(generate.TABLES) == sorted(used)


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in generate.TABLES
        if not name.startswith(("commands", "exit codes", "recipe", "file", "published"))
    ),
)
def test_every_row_of_a_table_has_a_meaning_and_none_comes_twice(name: str) -> None:
    rows = re.findall(r"^\| `.*$", generate.TABLES[name](), re.MULTILINE)
    assert rows
    assert [] == [row for row in rows if re.search(r"\|\s*\|$", row)]
    assert len(rows) == len(set(rows))


def test_every_struct_of_the_policy_and_of_its_tests_has_a_table() -> None:
    for module, sort, parts in ((schema, "policy", {"Peer"}), (suite, "tests", {"Scene", "Asked", "Step", "Usage"})):
        own = {name for name, value in vars(module).items() if is_own_struct(value, module.__name__)} - parts
        assert {f"{sort} {name}" for name in own} <= set(generate.TABLES), sort


def is_own_struct(value: object, module: str) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, schema.Strict)
        and value.__module__ == module
        and value not in (schema.Strict, schema.RuleBase)
    )


def test_the_reference_names_every_value_that_a_key_can_take() -> None:
    text = "".join(page.read_text("utf-8") for page in REFERENCE)
    for literal in re.findall(r"'(?:enum|const)': (\[[^\]]*\]|'[^']*')", str(json_schema())):
        for word in re.findall(r"'([^']*)'", literal):
            assert f"`{word}" in text, word


@pytest.mark.parametrize(
    ("sort", "text"),
    [each for page in [*REFERENCE, *RECIPES, README, *GUIDES] for each in examples(page)]
    + [each for page in OPERATORS for each in examples(page) if each.values[0] == "settings"],
)
def test_every_example_loads(sort: str, text: str, tmp_path: Path) -> None:
    match sort:
        case "policy":
            assert load(text, file="example", environment={"CI_PIPELINE_ID": "1"}).policy.rules
            assert fits_schema(text)
        case "rules":
            assert () == load(MODELS + text, file="example", environment={}).warnings
            assert fits_schema(MODELS + text)
        case "tests":
            assert cases.load_cases(text, file="example").cases
        case "script":
            assert script.parse(text, file="example").size
        case "settings":
            (tmp_path / "tokens").write_text(f"ci {'0' * 64}\n")
            (tmp_path / "serve.yaml").write_text(text)
            problems: Sequence[str] = ()
            try:
                load_serve({"HOME": "/srv/u"}, file=tmp_path / "serve.yaml")
            except SettingsError as refused:
                problems = refused.problems
            assert [] == [each for each in problems if "/run/secrets/" not in each], "its secrets do not exist here"
        case "workflow":  # tests/acceptance/ci/test_lint.py reads it with GitHub's schema
            assert "jobs" in plain_value(compose(text)[0])
        case _:
            pytest.fail(
                f"an example is of sort {sort!r}; write ```yaml with one of policy, rules, settings, tests, script,"
                " workflow"
            )


@pytest.mark.parametrize(
    ("heading", "policies"),
    [("Tests of a policy", "Policy reference"), ("Steps", "Limits"), ("Verdicts", "Human review")],
)
def test_the_cases_of_the_reference_hold_for_its_policies(heading: str, policies: str) -> None:
    compiled = load(example_under(policies, "policy"), file="policy", environment={}).policy
    tested = cases.load_cases(example_under(heading, "tests"), file="tests").cases
    assert [] == [(each.case.name, each.mismatches) for each in play.run(tested, compiled) if each.mismatches]


@pytest.mark.parametrize("path", sorted((ROOT / "policies").rglob("*.yaml")), ids=lambda path: path.name)
def test_a_shipped_file_is_named_in_the_reference_and_has_no_problem(path: Path) -> None:
    text = path.read_text()
    if path.stem.endswith("_test"):
        assert cases.load_cases(text, file=path.name).cases
    elif "rules:" in text:
        assert path.parent.name == "recipes" or f"({path.name})" in (ROOT / "policies" / "README.md").read_text()
        load(text, file=path.name, environment={})


def help_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        main.main([*command, "--help"])
    assert 0 == caught.value.code
    return capsys.readouterr().out


def test_every_command_and_flag_of_the_pages_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = set(re.findall(r"^    (\w+) ", help_of([], capsys), re.MULTILINE))
    helps = {name: help_of([name], capsys) for name in known}
    for command in ("reviews", "database"):
        actions = re.findall(r"^    (\w+) ", helps[command], re.MULTILINE)
        helps[command] += "".join(help_of([command, name], capsys) for name in actions)
    unknown = []
    for page in PAGES:
        text = page.read_text("utf-8").replace("\\\n", " ")
        told = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        told += re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for line in told:
            for name, rest in re.findall(r"\bsamplegate ([a-z]+)\b((?:(?! -- |&&|[|#;]).)*)", line):
                flags = re.findall(r"(?<=\s)--[a-z-]+", rest)
                unknown += [
                    f"{page.name}: samplegate {name} {flag}" for flag in ["", *flags] if flag not in helps.get(name, ())
                ]
            flag = re.match(r"--[a-z-]+", line)
            if flag and not any(flag[0] in each for each in helps.values()):
                unknown.append(f"{page.name}: {flag[0]}")
    assert {"daemon.md: --init", "settings.md: --log-format"} >= set(unknown), (
        "those are Docker's, and one that the page says is none"
    )


def test_every_link_within_the_repository_leads_somewhere() -> None:
    dead = []
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists():
                dead.append(f"{page.relative_to(ROOT)}: {link}")
            elif anchor:
                text = target.read_text("utf-8")
                headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
                if anchor not in [*anchors, *re.findall(r'<a id="(\w+)"></a>', text)]:
                    dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert [] == dead


def test_the_changelog_has_each_heading_once_in_order_and_a_line_for_each_change() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[(.+?)\](.*)$", text, re.MULTILINE)
    assert ("Unreleased", "") == versions[0]
    assert ("0.1.0", " - 2026-11-22") == versions[-1]
    unreleased = text.partition("## [Unreleased]\n")[2].partition("\n## [")[0]
    headings = re.findall(r"^### (.+)$", unreleased, re.MULTILINE)
    assert [name for name in ("Added", "Changed", "Fixed", "Security") if name in headings] == headings
    for section in unreleased.split("\n### ")[1:]:
        heading, *lines = section.strip().split("\n")
        assert lines, f"{heading}: it is empty"
        assert [] == [line for line in lines if not line.startswith("- ")], f"{heading}: a list has one change a line"


def decisions() -> list[int]:
    """The numbers of the entries in docs/decisions.md, in page order."""
    entries = re.findall(r'^<a id="(\d+)"></a>\*\*(\d+)\. ', DECISIONS.read_text("utf-8"), re.MULTILINE)
    assert [] == [entry for entry in entries if entry[0] != entry[1]], "the anchor of a decision is its number"
    return [int(number) for number, _ in entries]


def test_the_decisions_are_numbered_without_a_gap_and_none_twice() -> None:
    numbers = decisions()
    assert list(range(1, len(numbers) + 1)) == sorted(numbers)
    assert DECISIONS.read_text("utf-8").count('<a id="') == len(numbers), "an entry begins with its anchor and number"


CITING: Final = re.compile(r"\bdecisions? \[?(\d+(?:(?:, | and |, and | to )\d+)*)", re.IGNORECASE)


@pytest.mark.cpu(2)
def test_every_decision_that_is_cited_exists() -> None:
    names = ("proxy", "tests", "bench", "deploy", "policies", "docs", "Makefile", "*.md")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *names]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=20).stdout.decode().split("\0")
    known, unknown, cited = set(decisions()), [], 0
    for path in (ROOT / name for name in listed if name):
        if path.suffix in {".py", ".md", ".mjs", ".yaml", ""} and path.is_file():
            text = re.sub(r"\s+(?:# )?", " ", path.read_text("utf-8", "replace"))  # a citation may span two lines
            numbers = [int(number) for found in CITING.findall(text) for number in re.findall(r"\d+", found)]
            cited += len(numbers)
            unknown += [f"{path.relative_to(ROOT)}: decision {number}" for number in numbers if number not in known]
    assert [] == unknown
    assert cited, "nothing was read"


def test_every_module_is_on_the_map() -> None:
    page = (ROOT / "proxy" / "README.md").read_text("utf-8")
    named = set(re.findall(r"\w+", page.partition("## Where things are")[2].partition("```\n\n")[0]))
    modules = (path for path in (ROOT / "proxy" / "samplegate").rglob("*.py") if "migrations" not in path.parts)
    assert [] == sorted(path.stem for path in modules if path.stem not in named and path.stem != "__init__")
