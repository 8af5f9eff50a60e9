"""OAuth of servers in the settings and on the command line: what is accepted, and what is reported without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.config import SettingsError
from samplegate.config.oauth import OAuthSettings, key_in, oauth_of_options, secret_in
from samplegate.config.serve import LoadedServe, load_serve
from samplegate.config.servers import server_at_url
from samplegate.config.settings import settings_hash

URL = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"
FULL = "grant: client_credentials, client_id: gate, client_secret: '${SECRET}', issuer: 'https://login.example.com'"


def loaded(folder: Path, oauth: str, url: str = URL, more: str = "") -> LoadedServe:
    file = folder / "serve.yaml"
    file.write_text(f"policy: p.yaml\nservers:\n  docs: {{url: '{url}', oauth: {{{oauth}}}{more}}}\n")
    return load_serve({"SECRET": "s3cret", "HOME": str(folder)}, file=file)


def test_the_keys_of_a_server_are_read_with_variables_and_paths(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    found = loaded(tmp_path, FULL.replace("client_secret: '${SECRET}'", "client_secret_file: secret"))
    oauth = found.settings.servers["docs"].oauth
    assert oauth is not None
    assert (tmp_path / "secret", "gate") == (oauth.client_secret_file, oauth.client_id)
    (tmp_path / "s3cret").write_text("s3cret\n")
    oauth = (
        loaded(
            tmp_path,
            FULL.replace("client_secret: '${SECRET}'", "client_secret_file: '${SECRET}', scope: 'a ${SECRET}'"),
        )
        .settings.servers["docs"]
        .oauth
    )
    assert oauth is not None
    assert (tmp_path / "s3cret", "a s3cret") == (oauth.client_secret_file, oauth.scope)
    filled = loaded(tmp_path, FULL)
    assert "s3cret" == getattr(filled.settings.servers["docs"].oauth, "client_secret", None)
    assert {"SECRET"} == filled.named, "no process of a server inherits it"
    assert "s3cret" not in repr(filled.settings.servers["docs"].oauth)


def test_a_secret_does_not_change_the_hash_of_the_settings(tmp_path: Path) -> None:
    one = loaded(tmp_path, FULL).settings
    file = tmp_path / "serve.yaml"
    two = load_serve({"SECRET": "other", "HOME": str(tmp_path)}, file=file).settings
    assert settings_hash(one) == settings_hash(two)
    assert settings_hash(one) != settings_hash(loaded(tmp_path, FULL.replace("gate", "other")).settings)


@pytest.mark.parametrize(
    ("oauth", "why"),
    [
        ("grant: client_credentials", "oauth.grant: needs the client's secret or key; set client_secret_file"),
        ("grant: password", "oauth.grant: "),
        (FULL.replace("'${SECRET}'", "plain"), "oauth.client_secret: is written into the settings; put it into a file"),
        (FULL.replace("'${SECRET}'", "'${NONE}'"), "oauth.client_secret: ${NONE} is not set"),
        (f"{FULL}, client_secret_file: x", "oauth.client_secret: cannot be combined with client_secret_file"),
        (FULL.partition(", issuer")[0], "oauth.issuer: is not set"),
        (FULL.replace("https://login", "http://login"), "oauth.issuer: is plain http to another machine"),
        (FULL.replace("client_id: gate, ", ""), "oauth.client_id: is not set; set the ID of the client that is"),
        (f"{FULL}, scope: '${{NONE}}'", "oauth.scope: ${NONE} is not set"),
        (f"{FULL}, scope: 'a  b'", "oauth.scope: is not a list of scopes"),
        ("client_id: gate, client_secret_file: none, issuer: 'https://x'", "oauth.client_secret_file: "),
        ("client_metadata_url: 'https://x'", "client_metadata_url: is not an https URL with a path"),
        (
            "client_id: gate, private_key_file: k, issuer: 'https://x'",
            "private_key_file: is for the client_credentials",
        ),
        ("clientId: x", "oauth.clientId: unknown key"),
    ],
)
def test_every_problem_is_told_at_its_place(tmp_path: Path, oauth: str, why: str) -> None:
    with pytest.raises(SettingsError) as failed:
        loaded(tmp_path, oauth)
    assert why in str(failed.value)
    assert "s3cret" not in str(failed.value)


def test_a_server_cannot_have_two_kinds_of_credentials_or_send_tokens_in_the_open(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"oauth: cannot be combined with the header Authorization"):
        loaded(tmp_path, "scope: a", more=", headers: {authorization: x}")
    with pytest.raises(SettingsError, match=r"url: is plain http to another machine, but tokens are only sent over"):
        loaded(tmp_path, "scope: a", url="http://mcp.example.com/mcp")
    (tmp_path / "x.yaml").write_text("policy: p\nservers: {docs: {command: x, oauth: {scope: a}}}\n")
    with pytest.raises(SettingsError, match=r"oauth: is for servers with url"):
        load_serve({"HOME": str(tmp_path)}, file=tmp_path / "x.yaml")


def options(**given: str) -> tuple[OAuthSettings | None, list[str]]:
    problems: list[str] = []
    names = {f"oauth_{name}": value for name, value in given.items()}
    return oauth_of_options(names, {"SECRET": "s3cret", "EMPTY": ""}, problems), problems


def test_the_options_of_the_command_line_are_client_credentials() -> None:
    found, problems = options(client_id="gate", client_secret_env="SECRET", issuer=ISSUER, scope="a b")
    assert [] == problems
    expected = OAuthSettings(
        grant="client_credentials", client_id="gate", client_secret="s3cret", issuer=ISSUER, scope="a b"
    )
    assert expected == found
    assert (None, []) == options()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"client_id": "gate", "issuer": ISSUER},
            "--oauth-client-id: needs the client's secret or key; set --oauth-client-secret-from, --oauth-client-",
        ),
        ({"client_secret_env": "SECRET", "issuer": ISSUER}, "--oauth-client-id: is not set"),
        ({"client_id": "gate", "client_secret_env": "SECRET"}, "--oauth-issuer: is not set"),
        ({"client_id": "gate", "client_secret_env": "EMPTY"}, "--oauth-client-secret-env: the variable is not set"),
        ({"client_id": "gate", "client_secret_env": "s3cret"}, "--oauth-client-secret-env: the variable is not set"),
        ({"scope": "a"}, "--oauth-client-id: is not set"),
    ],
)
def test_wrong_options_are_reported(given: dict[str, str], why: str) -> None:
    _, problems = options(**given)
    assert [why] == [problem[: len(why)] for problem in problems if problem.startswith(why)]
    assert "s3cret" not in "".join(problems)


def test_the_options_exclude_a_header_and_plain_http(tmp_path: Path) -> None:
    given = {"oauth_client_id": "gate", "oauth_client_secret_env": "S", "oauth_issuer": ISSUER}
    problems: list[str] = []
    server_at_url(
        "docs", "http://x/mcp", [], ["Authorization=S"], {"S": "s"}, oauth=given, problems=problems, warnings=[]
    )
    assert "--oauth-client-id: cannot be combined with the header Authorization; remove one of them" in problems
    assert any(problem.startswith("--url: is plain http to another machine, but tokens") for problem in problems)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "contains no valid secret"),
        (b"a\nb", "contains no valid secret"),
        (b"\xff", "cannot be read: it is not UTF-8 text"),
        (b"a" * 65_537, "is larger than 65536 bytes"),
    ],
)
def test_a_wrong_secret_file_is_reported_without_its_content(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "secret").write_bytes(text)
    with pytest.raises(ValueError, match=why):
        secret_in(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"cannot be read|is larger|contains no private key in PEM format"):
        key_in(tmp_path / "secret")
