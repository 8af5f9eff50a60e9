"""A token for a caller: its hash is what the settings take."""

from __future__ import annotations

import hashlib

import pytest

from samplegate.cli import main


def test_the_hash_that_is_printed_is_that_of_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["token", "ci"])
    token, said = capsys.readouterr()
    assert f"ci {hashlib.sha256(token.strip().encode()).hexdigest()}" == said.splitlines()[0]
    assert len(token.strip()) > 40


def test_two_tokens_are_two(capsys: pytest.CaptureFixture[str]) -> None:
    main(["token", "ci"])
    main(["token", "ci"])
    assert 2 == len(set(capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize("name", ["local", "a b", "", "jwt:x"])
def test_what_is_no_name_of_a_caller_makes_no_token(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["token", name])
    out, said = capsys.readouterr()
    assert "" == out
    assert "is no name of a caller" in said
