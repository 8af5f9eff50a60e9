"""URLs of PostgreSQL databases: what is valid, and that no piece of a password is ever shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from samplegate.cli.database_argument import log_name
from samplegate.cli.main import main
from samplegate.postgres.url import check_database, has_password, is_database, shown

VALID = {
    "postgresql://": "postgresql://",
    "postgresql://h/d": "postgresql://h/d",
    "postgres://h": "postgresql://h",
    "postgresql://u@h/d": "postgresql://u@h/d",
    "postgresql://u@h:5433/d": "postgresql://u@h:5433/d",
    "postgresql://u@h1,h2/d": "postgresql://u@h1,h2/d",
    "postgresql://u@h1:1,h2:2/d?target_session_attrs=any": "postgresql://u@h1:1,h2:2/d",
    "postgresql://u@[::1]:5432/d": "postgresql://u@[::1]:5432/d",
    "postgresql://u@[fe80::1%25eth0],[::2]/d": "postgresql://u@[fe80::1%25eth0],[::2]/d",
    "postgresql:///d?host=/run/postgresql": "postgresql:///d",
    "postgresql://u@%2Frun%2Fpg/d": "postgresql://u@%2Frun%2Fpg/d",
    "postgresql://u@/d?host=h&user=v": "postgresql://u@/d",
    "postgresql://first%40last@h/d": "postgresql://first@last@h/d",
}


@pytest.mark.parametrize(("url", "display"), VALID.items())
def test_a_valid_url_is_shown_without_its_options(url: str, display: str) -> None:
    check_database(url)
    conninfo_to_dict(url)
    assert (True, False, display) == (is_database(url), has_password(url), shown(url))


WITH_PASSWORD = [
    "postgresql://u:pass@h/d",
    "postgresql://u:@h/d",
    "postgresql://:pass@h/d",
    "postgresql://u@h/d?password=pass",
    "postgresql://u@h/d?sslmode=require&password=pass",
    "postgresql://u@h/d?sslpassword=pass",
    "postgresql://u@h/d?%70assword=pass",
]


@pytest.mark.parametrize("url", WITH_PASSWORD)
def test_a_password_is_found_and_not_shown(url: str) -> None:
    check_database(url)
    assert has_password(url)
    assert "pass" not in shown(url)


INVALID = [
    "",
    "h/d",
    "mysql://h/d",
    "sqlite:x",
    "postgresql:/h/d",
    "postgresql+psycopg://h/d",
    "postgresql://u:pa@ss@h/d",
    "postgresql://u:pa/ss@h/d",
    "postgresql://u:pa?ss@h/d",
    "postgresql://u:pa#ss@h/d",
    "postgresql://u:12?34@h/d",
    "postgresql://u:12/34@h/d",
    "postgresql://u@h:port/d",
    "postgresql://u@h/d?password",
    "postgresql://u@h/d#part",
    "postgresql://u@h/a b",
    "postgresql://u@h/d\n",
    "postgresql://u@h/d\x7f",
]


@pytest.mark.parametrize("url", INVALID)
def test_an_invalid_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"^is not .*; write postgresql://USER@HOST/NAME") as raised:
        check_database(url)
    assert not url or url not in str(raised.value)
    assert not any(piece in shown(url) for piece in ("pa", "ss", "12", "34"))


NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
MARK = "7zq"


@given(
    before=st.text(st.characters(codec="utf-8"), max_size=8), after=st.text(st.characters(codec="utf-8"), max_size=8)
)
def test_no_piece_of_a_password_is_shown_however_it_is_written(before: str, after: str) -> None:
    """A password that is not quoted may look like any other part of a URL."""
    for password in (f"{before}{MARK}{after}", f"{MARK}{after}", f"{before}{MARK}"):
        for url in (f"postgresql://user:{password}@host:5432/name", f"postgresql://user@host/name?password={password}"):
            assert MARK not in shown(url)
            assert MARK not in problem_of(url)
            assert problem_of(url) or has_password(url)


def problem_of(url: str) -> str:
    try:
        check_database(url)
    except ValueError as problem:
        return str(problem)
    return ""


@given(user=NAME, password=NAME, name=NAME)
def test_a_url_with_quoted_parts_is_valid_and_means_these_parts(user: str, password: str, name: str) -> None:
    user, password, name = (quote(part, safe="") for part in (user, password, name))
    url = f"postgresql://{user}:{password}@host/{name}"
    check_database(url)
    assert has_password(url)
    meant = conninfo_to_dict(url)
    assert [user, password, name] == [quote(str(meant[key]), safe="") for key in ("user", "password", "dbname")]
    assert shown(url).endswith(f"@host/{name}")


@pytest.mark.parametrize("option", ["--database", "--log"])
def test_a_password_is_not_taken_from_the_command_line(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["why", "a1b2c3d4", option, "postgresql://gates:hunter2@db/gates"])
    said = capsys.readouterr().err
    assert f"argument {option}: the URL contains a password" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("name", ["password.jsonl", "a:b@c/*.jsonl", "sqlite:password", "database"])
def test_other_names_of_logs_are_taken_as_they_are(name: str) -> None:
    assert name == log_name(name)
