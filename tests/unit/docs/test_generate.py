"""`make docs`: the tables of the pages, whose links lead to the page that has the heading."""

from __future__ import annotations

from pathlib import Path

import pytest

import samplegate
from docs import generate
from samplegate.policy import schema


def test_a_link_of_a_table_names_the_page_of_its_folder_that_has_the_heading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "TABLES", {"keys": lambda: "[a](#here), [b](#over-there), [c](#nowhere)\n"})
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## Here\n\n<!-- table: keys -->\nold\n<!-- end -->\n")
    (tmp_path / "other.md").write_text("# Other\n\n### Over there\n\n## Here\n")
    written = generate.with_tables(page).partition("<!-- table: keys -->\n")[2]
    assert "\n[a](#here), [b](other.md#over-there), [c](#nowhere)\n\n<!-- end -->\n" == written


def test_the_command_for_the_package_index_appears_with_the_first_release(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "samplegate is not in a package index yet.\n" == generate.published_command()
    assert "uvx samplegate" not in generate.published_command()
    monkeypatch.setattr(samplegate, "RELEASED", "1.2.3")
    assert "```sh\nuvx samplegate@1.2.3 demo " in generate.published_command()


def test_a_value_that_is_a_duration_or_a_word_has_every_word() -> None:
    rows = generate.keys(schema.Limit).splitlines()
    assert [
        "| `per` | duration, `day`, `month`, `call`, `run`, `process` | – | The period or scope of the limit. |"
    ] == [row for row in rows if row.startswith("| `per` ")]
