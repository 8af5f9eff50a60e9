"""`samplegate docs`: pages, sections and files of the documentation, with links that name topics."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import samplegate
from samplegate.cli import docs
from samplegate.cli.bundled import CI_FILES, PAGES, POLICIES, TEMPLATES, bundled
from samplegate.cli.manual import Manual
from tests.fakes.shell import Run
from tests.paths import ROOT

GUIDE = """\
# Guide

<!-- a comment -->

Read [Limits](#limits), [the same](other.md#limits), [Only there](other.md#only-there), [all of it](other.md),
[a rule](rules/a.yaml), [a test](../tests/test_a.py), [b.py](b.py) and [elsewhere](https://example.com/x).

<picture>
  <img alt="A page" src="x.png">
</picture>

## Limits

```sh
# not a heading [x](other.md)
```

### Below: it's one

Text.

## Limits

Again.

<a id="7"></a>**7. A decision.** Why.

<a id="8"></a>**8. Another.** Why.
"""
OTHER = "# Other\n\n## Limits\n\nOther limits.\n\n## Only there\n\nHere.\n"
MANUAL = Manual(
    {"guide": "docs/guide.md", "other": "docs/other.md"},
    {"docs/guide.md": GUIDE, "docs/other.md": OTHER, "docs/rules/a.yaml": "version: 1\n"},
)
REAL = Manual(PAGES, {path: bundled(path) for path in (*PAGES.values(), *POLICIES, *CI_FILES)})


def text_of(topic: str) -> str:
    found = MANUAL.find(topic)
    assert found is not None, topic
    return found.text


def test_links_name_topics_and_html_is_removed() -> None:
    assert text_of("guide").startswith(
        "# Guide\n\n"
        "Read [Limits](limits), [the same](other/limits), [Only there](only-there), [all of it](other),\n"
        "[a rule](a.yaml), a test (`tests/test_a.py`), `docs/b.py` and [elsewhere](https://example.com/x).\n\n"
        "[Image: A page]\n\n## Limits\n"
    )
    assert "<" not in text_of("guide")


def test_a_section_ends_at_the_next_heading_of_its_level_and_examples_are_unchanged() -> None:
    assert text_of("limits") == (
        "## Limits\n\n```sh\n# not a heading [x](other.md)\n```\n\n### Below: it's one\n\nText.\n"
    )
    assert "### Below: it's one\n\nText.\n" == text_of("below-its-one")


@pytest.mark.parametrize(
    ("topic", "begins"),
    [
        ("Limits", "## Limits\n\n```sh"),
        ("guide/limits-1", "## Limits\n\nAgain."),
        ("other/limits", "## Limits\n\nOther"),
        ("docs/other.md#limits", "## Limits\n\nOther"),
        ("docs/other.md", "# Other\n"),
        ("OTHER", "# Other\n"),
        ("Only there", "## Only there\n"),
        ("guide/only-there", "## Only there\n"),
        ("docs/guide.md#only-there", "## Only there\n"),
        ("guide/7", "**7. A decision.** Why.\n"),
        ("8", "**8. Another.** Why.\n"),
        ("a.yaml", "version: 1\n"),
        ("rules/a.yaml", "version: 1\n"),
    ],
)
def test_a_topic_has_several_spellings(topic: str, begins: str) -> None:
    assert text_of(topic).startswith(begins)


@pytest.mark.parametrize(
    ("topic", "begins"),
    [("wrap", "## samplegate wrap\n"), ("reviews-open", "## samplegate reviews open\n"), ("reviews", "# Reviews\n")],
)
def test_a_command_is_a_topic_unless_a_page_or_heading_has_its_name(topic: str, begins: str) -> None:
    found = REAL.find(topic)
    assert found is not None
    assert found.text.startswith(begins)


def test_a_heading_of_two_pages_is_the_first_ones_and_names_the_other() -> None:
    found = MANUAL.find("limits")
    assert found is not None
    assert ("other/limits",) == found.others


@pytest.mark.parametrize(
    ("topic", "suggested"),
    [
        ("limts", "; did you mean 'limits'?"),
        ("below", "; topics with that word: below-its-one"),
        ("\x1b[2J", "; list the topics with: samplegate docs --list"),
        ("", "; list the topics with: samplegate docs --list"),
    ],
)
def test_an_unknown_topic_gets_suggestions(topic: str, suggested: str) -> None:
    assert None is MANUAL.find(topic)
    assert suggested == MANUAL.suggestion(topic)


def test_every_listed_topic_prints_its_own_heading() -> None:
    for line in REAL.topics():
        topic, _, title = line.strip().partition(" ")
        found = REAL.find(topic)
        assert found is not None, topic
        if not topic.endswith((".yaml", ".yml", ".conf")):
            assert title.strip() in found.text.partition("\n")[0]


def test_every_link_of_the_documentation_that_names_a_topic_leads_there() -> None:
    dead = []
    for page in PAGES:
        found = REAL.find(page)
        assert found is not None
        prose = re.sub(r"^```.*?^```$", "", found.text, flags=re.DOTALL | re.MULTILINE)
        links = re.findall(r"\]\(([^)\s]+)\)", prose)
        dead += [f"{page}: {link}" for link in links if not link.startswith("http") and REAL.find(link) is None]
        assert "<!--" not in prose
        assert "<a id" not in prose
    assert [] == dead


def test_messages_name_topics_that_exist() -> None:
    named = set()
    for path in (ROOT / "proxy" / "samplegate").rglob("*.py"):
        named |= set(re.findall(r"`samplegate docs ([\w/.-]+)`", path.read_text("utf-8")))
    assert named
    assert [] == [topic for topic in named if REAL.find(topic) is None]


def test_the_wheel_has_the_pages_every_shipped_policy_and_the_files_for_ci_systems() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = {path: f"samplegate/bundled/{path}" for path in (*PAGES.values(), *POLICIES, *CI_FILES)}
    assert wanted == built["force-include"]
    listed = subprocess.run(
        ["git", "ls-files", "policies"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
    )
    assert set(listed.stdout.split()) == {path for path in wanted if path.startswith("policies/")}
    assert {"ci", "desktop", "service", "people"} == set(TEMPLATES)


def test_the_home_page_is_the_same_everywhere() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
    assert ({"Homepage": samplegate.HOME_PAGE} if samplegate.HOME_PAGE else {}) == urls
    assert samplegate.HOME_PAGE in (ROOT / "README.md").read_text("utf-8")


def test_the_home_page_is_printed_only_if_there_is_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Home page" not in run("docs", "limits").out
    monkeypatch.setattr(docs, "HOME_PAGE", "https://gate.example.com")
    assert run("docs", "limits").out.endswith("\nHome page: https://gate.example.com\n")


def test_a_topic_is_printed_with_a_note_about_its_links(run: Run) -> None:
    ended = run("docs", "limits")
    assert (0, "") == (ended.code, ended.err)
    assert ended.out.startswith("# Limits\n")
    assert "\n---\n\nLinks name topics: samplegate docs TOPIC\n" in ended.out
    assert bundled("policies/ci.yaml") == run("docs", "ci.yaml").out


def test_the_files_for_ci_systems_are_topics_by_folder_where_names_are_equal(run: Run) -> None:
    for path, topic in zip(CI_FILES, ("setup/action.yml", "report/action.yml", "samplegate.yml"), strict=True):
        ended = run("docs", topic)
        assert (0, bundled(path)) == (ended.code, ended.out)
        assert f"{topic:44}{path}\n" in run("docs", "--list").out
        assert f"]({topic})" in run("docs", "action").out
    assert run("docs", "action.yml").out.endswith("\n---\n\nAlso: samplegate docs report/action.yml\n")


def test_without_a_topic_the_overview_is_printed(run: Run) -> None:
    assert run("docs").out.startswith("# samplegate\n")


def test_an_unknown_topic_is_a_usage_error(run: Run) -> None:
    ended = run("docs", "limts\n::error::")
    assert (2, "", "samplegate: docs: unknown topic 'limts\\n::error::'; did you mean 'limits'?\n") == (
        ended.code,
        ended.out,
        ended.err,
    )


def test_a_missing_file_is_an_error_with_a_remedy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "POLICIES", ("policies/gone.yaml",))
    ended = run("docs")
    assert (2, "samplegate: policies/gone.yaml is missing from this installation; install samplegate again\n") == (
        ended.code,
        ended.err,
    )


def test_a_pager_is_used_on_a_terminal_only(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    script = tmp_path / "pager.py"
    script.write_text(f"import sys; open({str(shown)!r}, 'wb').write(sys.stdin.buffer.read())")
    monkeypatch.setenv("PAGER", f"'{sys.executable}' '{script}'")
    assert run("docs", "--list").out.startswith("policies ")
    assert not shown.exists()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "" == run("docs", "--list").out
    assert shown.read_text("utf-8").startswith("policies ")


@pytest.mark.parametrize("pager", ["", "no-such-program-7391", "'"])
def test_without_a_working_pager_text_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch, pager: str) -> None:
    monkeypatch.setenv("PAGER", pager)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("docs", "--list").out.startswith("policies ")
