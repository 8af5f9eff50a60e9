"""The demo's database: every step can be repeated safely."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.demo import server
from samplegate.demo.server import Found, Purge


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "users.db"
    server.create(made)
    return made


def test_a_purge_deletes_the_inactive_accounts_and_no_other(path: Path) -> None:
    server.count_inactive(path, "T-1")
    assert 4 == server.delete_inactive(path, "T-1", "cleaning")
    assert ["ada", "chen", "emil", "gita"] == server.names(path)


def test_a_step_repeated_for_its_ticket_says_what_it_said_first(path: Path) -> None:
    first = server.count_inactive(path, "T-1"), server.delete_inactive(path, "T-1", "cleaning")
    assert (Found(4, 8), 4) == first
    assert first == (server.count_inactive(path, "T-1"), server.delete_inactive(path, "T-1", "another reason"))
    assert Purge(4, "cleaning", None) == server.purge(path, "T-1")


def test_another_ticket_finds_what_the_first_left(path: Path) -> None:
    server.count_inactive(path, "T-1")
    server.delete_inactive(path, "T-1", "cleaning")
    assert Found(0, 4) == server.count_inactive(path, "T-2")


def test_there_is_no_purge_for_a_ticket_never_opened(path: Path) -> None:
    assert None is server.purge(path, "T-1")
