"""The command lines of `samplegate login` and `logout` that begin no login."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from samplegate.cli.main import main
from samplegate.oauth.login_file import Login, LoginFile

LOGIN = Login(
    url="https://mcp.example.com/mcp?key=s3cret",
    grant="authorization_code",
    issuer="https://login.example.com",
    client_id="gate",
    access_token="s3cret-1",
    refresh_token="s3cret-2",
    scope="read write",
    obtained_at=0.0,
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAMPLEGATE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["login"], 2, "no server named"),
        (["login", "../x", "--url", "https://x/mcp"], 2, "'../x' is not a server name"),
        (["login", "docs"], 2, "docs has no URL; pass its URL with --url, or --settings FILE"),
        (["login", "docs", "--url", "http://x/mcp"], 2, "--url: is plain http to another machine"),
        (["login", "docs", "--url", "https://x/mcp", "--timeout", "0"], 2, "--timeout: 0 is not a number of seconds"),
        (["login", "docs", "--url", "https://x/", "--client-secret-from", "none"], 2, "--client-id: is not set"),
        (["login", "docs", "--status"], 1, "there is no login 'docs'"),
        (["logout", "docs"], 1, "there is no login docs"),
    ],
)
def test_a_wrong_command_line_is_reported(
    words: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code == main(words)
    assert why in capsys.readouterr().err


def test_a_server_of_the_settings_has_its_url_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "servers:\n  local: {command: x}\n  ci: {url: 'https://x/mcp', oauth: {grant: client_credentials, client_id: c,"
        " client_secret: '${HOME}', issuer: 'https://i'}}\n"
    )
    for name, why in (
        ("local", "login: local is a command, and only servers at a URL use OAuth"),
        ("locale", "login: locale is not in the settings; did you mean 'local'?"),
        ("ci", "login: ci uses client credentials, so the gate gets its tokens without a login"),
    ):
        assert 2 == main(["login", name, "--settings", str(file)])
        assert why in capsys.readouterr().err


def test_the_status_of_logins_shows_no_token(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["login", "--status"])
    assert f"no logins in {state}\n" == capsys.readouterr().out
    now = time.time()
    LoginFile(state, "a").write(msgspec.structs.replace(LOGIN, expires_at=now + 7200.5))
    LoginFile(state, "b").write(msgspec.structs.replace(LOGIN, expires_at=now - 1, refresh_token=None))
    LoginFile(state, "c").write(msgspec.structs.replace(LOGIN, expires_at=now - 1))
    LoginFile(state, "d").write(msgspec.structs.replace(LOGIN, scope=None))
    (state / "oauth" / "e.json").write_text("{")
    assert 0 == main(["login", "--status"])
    out = capsys.readouterr().out
    url = "https://mcp.example.com/mcp"
    assert [
        f"a: {url}, token expires in 2h and is then renewed, scopes: read write",
        f"b: {url}, token has expired; log in again, scopes: read write",
        f"c: {url}, token has expired and is renewed when it is used, scopes: read write",
        f"d: {url}, token without an expiry",
        (
            f"e: {state}/oauth/e.json: is not a login; log in again, which replaces it, or delete it with samplegate"
            " logout"
        ),
    ] == out.splitlines()
    assert "s3cret" not in out
    assert 0 == main(["login", "b", "--status"])
    assert capsys.readouterr().out.startswith("b: ")


def test_a_damaged_login_is_deleted_by_logout(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "oauth").mkdir(parents=True)
    (state / "oauth" / "docs.json").write_text("{")
    assert 0 == main(["logout", "docs"])
    assert "Logged out of docs: its tokens are deleted, but may still be valid: " in capsys.readouterr().out
    assert not (state / "oauth" / "docs.json").exists()
