"""The key that the gates of a shared database have in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.errors import Unavailable
from samplegate.key_file import combined_key, database_key, seal_keys

STORED = bytes(range(32))


def test_a_key_of_the_database_needs_the_file_and_what_is_stored(tmp_path: Path) -> None:
    keys = []
    for text in ("a" * 64, "b" * 64):
        (tmp_path / "key").write_text(text + "\n")
        key = database_key(tmp_path / "key")
        keys += [combined_key(STORED, key), combined_key(STORED[::-1], key)]
    assert 4 == len({STORED, *keys} - {STORED})
    assert {32} == {len(key) for key in keys}


def test_without_a_file_the_stored_key_is_used() -> None:
    assert STORED == combined_key(STORED, database_key(None))


def test_a_file_that_is_used_for_both_purposes_gives_two_keys(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("c" * 64)
    assert (database_key(tmp_path / "key"),) != seal_keys(tmp_path / "key")


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "cannot be read: no such file or directory"), (b"short", "has 5 bytes, but a key needs at least 32")],
    ids=["none", "short"],
)
def test_a_file_without_a_key_is_refused_by_its_name(content: bytes | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(Unavailable) as refused:
        database_key(tmp_path / "key")
    assert str(refused.value).startswith(f"database_key_file: {tmp_path / 'key'} {told}")
