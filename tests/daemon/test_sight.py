"""What is seen of a file from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from samplegate.daemon.sight import known_folders, look


def config_map(root: Path) -> Path:
    """As Kubernetes mounts one: the file is a link through ``..data``, which is turned to change it."""
    for version in ("v1", "v2"):
        (root / version).mkdir(parents=True)
        (root / version / "policy.yaml").write_text("version: 1\n")
    (root / "..data").symlink_to("v1")
    (root / "policy.yaml").symlink_to("..data/policy.yaml")
    return root / "policy.yaml"


def turn(path: Path) -> None:
    (path.parent / "..new").symlink_to("v2")
    (path.parent / "..new").rename(path.parent / "..data")


def replace(path: Path) -> None:
    new = path.with_name(".new")
    new.write_text(path.read_text())
    new.rename(path)


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write("# more\n")


@pytest.mark.parametrize("change", [grow, replace, Path.unlink, lambda path: path.chmod(0o600)], ids=["write", "replace", "remove", "chmod"])
def test_a_change_is_seen(tmp_path: Path, change: Callable[[Path], object]) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\n")
    path.chmod(0o644)
    before = look(path)
    assert before == look(path)
    change(path)
    assert before.marks != look(path).marks


def test_a_link_that_is_turned_is_seen_though_both_files_say_the_same(tmp_path: Path) -> None:
    path = config_map(tmp_path / "mount")
    before = look(path)
    turn(path)
    after = look(path)
    assert before.marks != after.marks
    assert {str(tmp_path / "mount"), str(tmp_path / "mount" / "v2")} == after.folders


def test_the_folder_of_every_link_on_the_way_is_named(tmp_path: Path) -> None:
    for folder in ("a", "b", "c/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "c" / "deep" / "real").write_text("")
    (tmp_path / "b" / "link").symlink_to("../c/deep/real")
    (tmp_path / "a" / "policy").symlink_to(tmp_path / "b" / "link")
    (tmp_path / "way").symlink_to("a")
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c" / "deep")} == look(tmp_path / "way" / "policy").folders


def test_a_file_that_is_not_there_would_show_in_the_nearest_folder_that_is(tmp_path: Path) -> None:
    found = look(tmp_path / "not" / "yet" / "policy.yaml")
    assert (frozenset({str(tmp_path)}), 0) == (found.folders, found.newest)


def test_links_in_a_ring_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert frozenset({str(tmp_path)}) == look(tmp_path / "a").folders


def test_a_step_up_is_taken_from_where_the_link_led(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "policy").write_text("")
    (tmp_path / "link").symlink_to("x/y")
    assert frozenset({str(tmp_path), str(tmp_path / "x")}) == look(tmp_path / "link" / ".." / "policy").folders


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_a_path_that_no_system_takes_is_not_there(tmp_path: Path, name: str) -> None:
    assert 0 == look(tmp_path / name).newest


def test_the_newest_change_is_that_of_any_link(tmp_path: Path) -> None:
    path = config_map(tmp_path / "mount")
    before = look(path).newest
    (tmp_path / "mount" / "..new").symlink_to("v1")
    made = os.lstat(tmp_path / "mount" / "..new").st_ctime_ns / 1e9
    (tmp_path / "mount" / "..new").rename(path.parent / "..data")
    assert look(path).newest >= max(before, made)


def test_a_folder_that_was_replaced_by_another_is_another(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "policy.yaml"
    path.parent.mkdir()
    path.write_text("")
    before = known_folders([look(path)])
    path.parent.rename(tmp_path / "old")
    path.parent.mkdir()
    path.write_text("")
    assert {str(path.parent)} == {name for name, _, _ in before} == {name for name, _, _ in known_folders([look(path)])}
    assert before != known_folders([look(path)])
