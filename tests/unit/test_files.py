"""Files: folders for the owner alone, locks, and resolving a file's name."""

from __future__ import annotations

import os
from pathlib import Path

from samplegate.files import identity, make_file, make_folder, try_lock, unlock


def test_a_folder_is_made_with_what_is_missing_above_it_for_the_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert [tmp_path / "a", folder] == make_folder(folder)
    assert [0o700, 0o700] == [made.stat().st_mode & 0o777 for made in (folder, folder.parent)]
    assert [] == make_folder(folder)


def test_a_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert [True, False] == [make_file(path) for _ in range(2)]
    assert 0o600 == path.stat().st_mode & 0o777


def test_a_lock_is_one_holders_until_it_is_given_back(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert [True, False] == [try_lock(first), try_lock(second)]
        unlock(first)
        assert try_lock(second)
    finally:
        os.close(first)
        os.close(second)


def test_a_lock_goes_with_the_file_that_was_open(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first)
    os.close(first)
    try:
        assert try_lock(second)
    finally:
        os.close(second)


def test_a_name_may_come_to_mean_another_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert identity(path) is None
    path.write_text("")
    first = identity(path)
    path.rename(tmp_path / "y")
    path.write_text("")
    assert identity(tmp_path / "y") == first
    assert identity(path) not in (None, first)
