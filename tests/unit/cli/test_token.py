"""`samplegate token`: the settings accept the hash of the new token."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from samplegate.cli.main import main
from samplegate.config.serve import load_serve


def test_the_hash_that_is_printed_is_that_of_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["token", "ci"])
    token, said = capsys.readouterr()
    assert f"ci {hashlib.sha256(token.strip().encode()).hexdigest()}" == said.splitlines()[0]
    assert len(token.strip()) > 40


def test_the_hash_is_appended_to_a_file_and_only_the_token_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    lines = []
    for name in ("ci", "team-a"):
        assert 0 == main(["token", name, "--append", str(file)])
        token, said = capsys.readouterr()
        assert "" == said
        lines.append(f"{name} {hashlib.sha256(token.strip().encode()).hexdigest()}\n")
    assert "".join(lines) == file.read_text()
    assert 0o600 == file.stat().st_mode & 0o777


def test_groups_follow_the_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["token", "ci", "--groups", "ops,sre"])
    token, said = capsys.readouterr()
    assert f"ci {hashlib.sha256(token.strip().encode()).hexdigest()} ops,sre" == said.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--groups", "a b"], "--groups 'a b' contains an invalid name"),
        (["--groups", ""], "--groups '' contains an invalid name"),
        (["--groups", "a", "--role", "viewer"], "--groups are for callers, --role is for users; remove one of the two"),
    ],
)
def test_invalid_groups_make_no_token(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["token", "ci", *words])
    printed, said = capsys.readouterr()
    assert ("", True) == (printed, why in said)


def test_a_last_line_without_an_end_is_not_continued(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "people"
    file.write_text("# people")
    assert 0 == main(["token", "ann", "--role", "viewer", "--append", str(file)])
    assert ["# people", "ann viewer "] == [line[:11] for line in file.read_text().splitlines()]


def test_a_file_that_cannot_be_written_is_named_and_no_token_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert 2 == main(["token", "ci", "--append", str(tmp_path / "none" / "tokens")])
    place = tmp_path / "none" / "tokens"
    assert ("", f"samplegate: token: --append: {place} cannot be written: no such file or directory\n") == (
        capsys.readouterr()
    )


def test_two_tokens_are_two(capsys: pytest.CaptureFixture[str]) -> None:
    main(["token", "ci"])
    main(["token", "ci"])
    assert 2 == len(set(capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize("name", ["local", "a b", "", "jwt:x"])
def test_what_is_no_name_of_a_caller_makes_no_token(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["token", name])
    out, said = capsys.readouterr()
    assert "" == out
    assert "is not a valid caller name" in said


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--role", "admin"], "ann admin {}"),
        (["--role", "reviewer", "--reviewers", "ops,legal"], "ann reviewer {} ops,legal"),
        (["--role", "viewer"], "ann viewer {}"),
    ],
)
def test_the_line_for_a_person_is_one_that_the_settings_take(
    given: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert 0 == main(["token", "ann", *given])
    token, said = capsys.readouterr()
    assert line.format(hashlib.sha256(token.strip().encode()).hexdigest()) == said.splitlines()[0]
    (tmp_path / "people").write_text(said.splitlines()[0])
    (tmp_path / "s.yaml").write_text("policy: p\nservers: {docs: {command: x}}\npeople: {tokens_file: people}\n")
    (found,) = load_serve({"HOME": "/srv/u"}, file=tmp_path / "s.yaml").settings.people.tokens
    assert ("ann", given[1]) == (found.name, found.role)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--reviewers", "ops"], "--reviewers needs --role"),
        (["--role", "admin", "--reviewers", "ops"], "cannot be combined with --role admin"),
        (["--role", "reviewer", "--reviewers", "ops, legal"], "is not a list of names"),
        (["--role", "reviewer", "--reviewers", ""], "is not a list of names"),
        (["--role", "reviewer", "--reviewers", "ops,"], "is not a list of names"),
    ],
)
def test_what_no_person_can_be_makes_no_token(given: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["token", "ann", *given])
    out, said = capsys.readouterr()
    assert "" == out
    assert why in said
    assert 2 == main(["token", "a b", "--role", "viewer"])
    assert "is not a valid user name" in capsys.readouterr().err
