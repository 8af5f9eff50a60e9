"""The documentation against the code: every key of the policy and its tests is described, nothing else is, and every
example loads."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import jsonschema
import msgspec
import pytest

from samplegate import cli
from samplegate.core import policy, script
from samplegate.core.load import json_schema, load
from samplegate.core.policyfile.tree import compose, plain
from samplegate.policytest import load as cases
from samplegate.policytest import play, suite
from samplegate.settings import SettingsError
from samplegate.settings.serving import load_serve

ROOT: Final = Path(__file__).parent.parent
REFERENCE: Final = ROOT / "policies" / "README.md"
README: Final = ROOT / "README.md"
OPERATORS: Final = ROOT / "deploy" / "README.md"
DECISIONS: Final = ROOT / "docs" / "decisions.md"
PAGES: Final = [README, REFERENCE, ROOT / "proxy" / "README.md", OPERATORS, DECISIONS, ROOT / "bench" / "README.md"]

# Which table of the reference describes which struct, by the heading above it. `Rule` is what all rules have.
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "The file": ("Policy",),
    "A range": ("Range",),
    "A model": ("Model",),
    "Prices and what a model takes": ("Price",),
    "A rule": ("Rule",),
    "allow": ("AllowRule",),
    "answer": ("AnswerRule",),
    "forward": ("ForwardRule",),
    "escalate": ("EscalateRule",),
    "deny": ("DenyRule",),
    "Conditions": ("Match",),
    "With: how a model is asked": ("With",),
    "Which model is asked": ("Weights",),
    "Bounds": ("Temperature", "StopSequences", "Prepend"),
    "Secrets in prompts and answers": ("Secrets",),
    "Reviewers": ("Reviewer",),
    "Webhooks": ("Webhook",),
    "Limits": ("Limit",),
    "Brakes": ("Brakes",),
    "Client and servers": ("Peer", "Server"),
}
OTHER_TABLES: Final[dict[str, tuple[type[msgspec.Struct], ...]]] = {
    "A model": (script.Case,),
    "A test file": (suite.Suite,),
    "A case": (suite.Case, suite.Step),
    "What is expected": (suite.Expect,),
    "Verdicts": (suite.Said,),
    "Edits": (suite.Edited,),
    "Sampling in short": (suite.Sampling,),
    "Elicitation in short": (suite.Elicitation,),
    "A request as written": (suite.Raw,),
}
ROW: Final = re.compile(r"^\| `([^`]+)` \|(?:.*\|)? ([^|]+) \|$", re.MULTILINE)
FENCE: Final = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODELS: Final = "version: 1\nmodels: [{name: smart, model: a/b}]\nrules:\n"


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^#+ (.+)$", FENCE.sub("", text), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def tables(text: str) -> list[str]:
    """The tables of a section, those with four columns and those with two."""
    return re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)


def structs() -> dict[str, type[msgspec.Struct]]:
    found = {
        name: value
        for name, value in vars(policy).items()
        if isinstance(value, type) and issubclass(value, policy.Strict)
    }
    return {name: struct for name, struct in found.items() if struct not in (policy.Strict, policy.RuleBase)}


def keys(struct: type[msgspec.Struct]) -> set[str]:
    """The keys of the file that a struct takes, as the file spells them."""
    tag = struct.__struct_config__.tag_field
    return {*struct.__struct_encode_fields__, *([tag] if tag else [])}


def said(schema: Any) -> str:
    """The sentence of a key; that of `not` is one level down."""
    return str(schema.get("description") or schema["allOf"][0]["description"])


def sentences(name: str) -> dict[str, str]:
    """By key of a struct's own, what the schema says of it; ``Rule`` is what every rule has."""
    schema = json_schema()["$defs"]["DenyRule" if name == "Rule" else name]
    shared = keys(policy.RuleBase) if name.endswith("Rule") else keys(policy.Peer) if name == "Server" else set()
    return {key: said(value) for key, value in schema["properties"].items() if (key in shared) == (name == "Rule")}


def examples(path: Path) -> list[Any]:
    if not path.exists():
        return []
    found = [match for match in FENCE.finditer(path.read_text()) if match[1] in {"yaml", "yml"}]
    return [
        pytest.param(match[2] or "policy", match[3], id=f"{path.parent.name}-{index}")
        for index, match in enumerate(found)
    ]


def example_under(heading: str, sort: str) -> str:
    """The first example of a sort below a heading of the reference."""
    text = REFERENCE.read_text()
    behind = text[re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE).end() :]  # type: ignore[union-attr]
    return next(match[3] for match in FENCE.finditer(behind) if match[2] == sort)


def fits_schema(text: str) -> bool:
    return jsonschema.Draft202012Validator(json_schema()).is_valid(plain(compose(text)[0]))


@pytest.mark.parametrize("name", structs())
def test_every_key_of_a_struct_has_a_sentence_and_no_sentence_is_about_nothing(name: str) -> None:
    assert keys(structs()[name]) == {
        key for key, value in json_schema()["$defs"][name]["properties"].items() if said(value)
    }


@pytest.mark.parametrize(("heading", "names"), TABLES.items(), ids=list(TABLES))
def test_the_table_of_the_reference_says_what_the_schema_says(heading: str, names: tuple[str, ...]) -> None:
    section = sections(REFERENCE.read_text())[heading]
    rows = [row for table in tables(section) if table.startswith("| key | value") for row in ROW.findall(table)]
    assert sorted((key, sentence) for name in names for key, sentence in sentences(name).items()) == sorted(rows)


@pytest.mark.parametrize(("heading", "types"), OTHER_TABLES.items(), ids=list(OTHER_TABLES))
def test_every_key_of_tests_and_scripts_is_described(heading: str, types: tuple[type[msgspec.Struct], ...]) -> None:
    section = sections(REFERENCE.read_text())[heading]
    rows = [key for table in tables(section) if table.startswith("| key | |") for key, _ in ROW.findall(table)]
    assert {key for struct in types for key in keys(struct)} == set(rows)
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("heading", "types"),
    [(heading, types) for heading, types in OTHER_TABLES.items() if types[0].__module__ == suite.__name__],
)
def test_the_schema_of_the_tests_says_what_the_reference_says(
    heading: str, types: tuple[type[msgspec.Struct], ...]
) -> None:
    said = {
        key: value["description"]
        for struct in types
        for key, value in cases.json_schema()["$defs"][struct.__name__]["properties"].items()
    }
    assert dict(ROW.findall(sections(REFERENCE.read_text())[heading])) == said


def test_every_struct_of_the_policy_has_its_table() -> None:
    assert {*structs(), "Rule"} == {name for names in TABLES.values() for name in names}


def test_the_reference_names_every_value_that_a_key_can_take() -> None:
    text = REFERENCE.read_text()
    for literal in re.findall(r"'(?:enum|const)': (\[[^\]]*\]|'[^']*')", str(json_schema())):
        for word in re.findall(r"'([^']*)'", literal):
            assert f"`{word}" in text, word


@pytest.mark.parametrize(
    ("sort", "text"),
    examples(REFERENCE) + examples(README) + [each for each in examples(OPERATORS) if each.values[0] == "settings"],
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
            with pytest.raises(SettingsError) as refused:  # nobody has its secrets
                load_serve({"HOME": "/srv/u"}, file=tmp_path / "serve.yaml")
            assert [] == [problem for problem in refused.value.problems if "/run/secrets/" not in problem]
        case _:
            pytest.fail(
                f"an example is of sort {sort!r}; write ```yaml with one of policy, rules, settings, tests, script"
            )


@pytest.mark.parametrize(
    ("heading", "policies"), [("Tests of a policy", "The policy, whole"), ("Steps", "Limits"), ("Verdicts", "People")]
)
def test_the_cases_of_the_reference_hold_for_its_policies(heading: str, policies: str) -> None:
    book = load(example_under(policies, "policy"), file="policy", environment={}).policy
    tested = cases.load_cases(example_under(heading, "tests"), file="tests").cases
    assert [] == [(each.case.name, each.mismatches) for each in play.run(tested, book) if each.mismatches]


@pytest.mark.parametrize("path", sorted((ROOT / "policies").glob("*.yaml")), ids=lambda path: path.name)
def test_a_shipped_file_is_named_in_the_reference_and_has_no_problem(path: Path) -> None:
    text = path.read_text()
    if path.stem.endswith("_test"):
        assert cases.load_cases(text, file=path.name).cases
    elif "rules:" in text:
        assert f"({path.name})" in REFERENCE.read_text()
        load(text, file=path.name, environment={})


def help_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, "--help"])
    assert 0 == caught.value.code
    return capsys.readouterr().out


def test_every_command_and_flag_of_the_pages_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = set(re.findall(r"^    (\w+) ", help_of([], capsys), re.MULTILINE))
    helps = {name: help_of([name], capsys) for name in known}
    helps["reviews"] += "".join(
        help_of(["reviews", name], capsys) for name in re.findall(r"^    (\w+) ", helps["reviews"], re.MULTILINE)
    )
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
    assert {"README.md: --init", "README.md: --log-format"} >= set(unknown), (
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
    """The numbers of the entries of docs/decisions.md, in their order on the page."""
    entries = re.findall(r'^<a id="(\d+)"></a>\*\*(\d+)\. ', DECISIONS.read_text("utf-8"), re.MULTILINE)
    assert [] == [entry for entry in entries if entry[0] != entry[1]], "the anchor of a decision is its number"
    return [int(number) for number, _ in entries]


def test_the_decisions_are_numbered_without_a_gap_and_none_twice() -> None:
    numbers = decisions()
    assert list(range(1, len(numbers) + 1)) == sorted(numbers)
    assert DECISIONS.read_text("utf-8").count('<a id="') == len(numbers), "an entry begins with its anchor and number"


CITING: Final = re.compile(r"\bdecisions? \[?(\d+(?:(?:, | and |, and | to )\d+)*)", re.IGNORECASE)


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
