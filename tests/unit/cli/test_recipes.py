"""The recipes: each policy is valid, its tests pass and reach all of it, and no rule forwards where it says so."""

from __future__ import annotations

import pytest

from samplegate.cli.bundled import RECIPES
from tests.fakes.shell import Run
from tests.paths import ROOT

FOLDER = ROOT / "policies" / "recipes"


@pytest.mark.parametrize("name", RECIPES)
def test_the_tests_of_a_recipe_pass_and_reach_all_of_its_policy(run: Run, name: str) -> None:
    ended = run("test", "--require-tests", "--fail-under", "100", str(FOLDER / f"{name}.yaml"))
    assert (0, "") == (ended.code, ended.err), ended.out


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_valid_and_lacks_only_the_keys_of_its_reader(run: Run, name: str) -> None:
    ended = run("check", str(FOLDER / f"{name}.yaml"))
    assert 0 == ended.code
    warnings = [line for line in ended.out.splitlines() if ": warning: " in line]
    keys = ("api_key", "url_file", "secret_file", "authorization_file")
    assert [] == [line for line in warnings if not any(key in line for key in keys)]
    noted = ": note: " in ended.out
    assert noted == (name == "desktop-forms"), "only that recipe forwards forms, because a person is at the client"


def test_every_file_of_the_folder_belongs_to_a_recipe() -> None:
    known = {"README.md", "nginx.conf"} | {f"{name}{end}" for name in RECIPES for end in (".md", ".yaml", "_test.yaml")}
    assert known == {path.name for path in FOLDER.iterdir()}
    listed = (FOLDER / "README.md").read_text("utf-8")
    assert [] == [name for name in RECIPES if f"({name}.md)" not in listed]
