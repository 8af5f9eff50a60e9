"""The pages of the documentation site: each has a place in the navigation, and Sphinx can follow its links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.site.pages import PAGES, STRUCTURE, contents, source
from samplegate.cli import bundled
from tests.paths import ROOT


def test_every_page_has_a_place_in_the_navigation_and_none_has_two() -> None:
    pages = [page for pages in STRUCTURE.values() for page in pages]
    assert [] == [page for page in pages if pages.count(page) > 1 or not (ROOT / page).is_file()]
    written = {str(path.relative_to(ROOT)) for folder in ("docs", "policies", "deploy") for path in _markdown(folder)}
    assert set() == (written | {*bundled.PAGES.values()}) - PAGES, "add these to STRUCTURE in docs/site/pages.py"


def test_every_page_of_the_site_is_a_topic_of_samplegate_docs() -> None:
    assert set() == PAGES - {*bundled.PAGES.values()}, "add these to PAGES in proxy/samplegate/cli/bundled.py"


def _markdown(folder: str) -> list[Path]:
    ours = (path for path in (ROOT / folder).rglob("*.md") if "node_modules" not in path.parts)
    return [path for path in ours if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("[a](../deploy/README.md)", "[a](/deploy/README.md)"),
        ("[a](../deploy#settings)", "[a](/deploy/README.md#settings)"),
        ("[a](limits.md#brakes)", "[a](/policies/limits.md#brakes)"),
        ("[a](#brakes)", "[a](/policies/rules.md#brakes)"),
        ("[a](https://example.com/x)", "[a](https://example.com/x)"),
        ("[decision\n68](../docs/decisions.md#68)", "[decision\n68](#decisions-68)"),
        ("[ci.yaml](ci.yaml)", "[ci.yaml](ci.yaml)"),
        ("[run.py](../proxy/samplegate/runtime/run.py)", "run.py"),
        ("[tests](../tests/README.md)", "tests"),
        ("[the folder](../proxy/samplegate)", "the folder"),
        ("[gone](gone.md)", "[gone](gone.md)"),
        ('<a id="7"></a>**7. Why.**', "(rules-7)=\n**7. Why.**"),
        ("```md\n[a](../deploy/README.md)\n```", "```md\n[a](../deploy/README.md)\n```"),
        (
            (
                '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="d.png">\n'
                '  <img alt="A page" src="l.png" width="5">\n</picture>'
            ),
            "![A page](l.png){.only-light}\n![A page](d.png){.only-dark}",
        ),
    ],
)
def test_a_page_is_read_with_links_that_sphinx_can_follow(written: str, read: str) -> None:
    assert f"x {read} y" == source("policies/rules.md", f"x {written} y", ROOT) or (
        f"{read}\n" == source("policies/rules.md", f"{written}\n", ROOT)
    )


def test_the_contents_of_the_first_page_are_hidden_and_have_every_page() -> None:
    text = contents({"Guide": ("a.md", "b/c.md")})
    assert "\n```{toctree}\n:caption: Guide\n:hidden:\n\n/a.md\n/b/c.md\n```\n" == text


def test_the_readme_is_short_and_its_policy_has_at_most_twelve_lines() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert 1_300 > len(text.split())
    (example,) = re.findall(r"^```yaml policy\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert 12 >= len(example.splitlines())
    assert text.index("elicitation") < text.index("sampling")
