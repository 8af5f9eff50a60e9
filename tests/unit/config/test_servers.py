"""Settings of one of the daemon's servers: what can be set, which values are secret, and what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samplegate.config import SettingsError
from samplegate.config.serve import LoadedServe, load_serve
from samplegate.config.servers import ServerSettings, headers_of

ENVIRON = {"HOME": "/srv/u", "TOKEN": "s3cret", "ROOT": "/srv/docs", "CRLF": "a\r\nX-Evil: b"}


def loaded(entry: str, folder: Path) -> LoadedServe:
    (folder / "s.yaml").write_text(f"policy: p\nservers:\n  docs: {entry}\n")
    return load_serve(ENVIRON, file=folder / "s.yaml")


def server(entry: str, folder: Path) -> ServerSettings:
    return loaded(entry, folder).settings.servers["docs"]


def problems(entry: str, folder: Path) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        loaded(entry, folder)
    return [problem.replace(f"{folder}/", "").removeprefix("s.yaml:3:") for problem in refused.value.problems]


def test_variables_are_filled_in(tmp_path: Path) -> None:
    found = server(
        '{command: "${ROOT}/run", args: ["${ROOT}", "$${ROOT}"], env: {T: "x-${TOKEN}"}, cwd: "."}', tmp_path
    )
    expected = ServerSettings(
        name="docs", command="/srv/docs/run", args=("/srv/docs", "${ROOT}"), env={"T": "x-s3cret"}, cwd=tmp_path
    )
    assert expected == found


def test_a_remote_server_has_headers_and_secrets_from_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("Bearer abc\n")
    found = server(
        '{type: http, url: "https://x/mcp?a=${TOKEN}", headers: {X-Key: "${TOKEN}"}, headers_from: {Authorization:'
        " key}}",
        tmp_path,
    )
    assert ("https://x/mcp?a=s3cret", {"x-key": "s3cret"}) == (found.url, found.headers)
    assert {"x-key": "s3cret", "authorization": "Bearer abc"} == headers_of(found)
    (tmp_path / "key").write_text("Bearer def")
    assert "Bearer def" == headers_of(found)["authorization"]
    (tmp_path / "key").unlink()
    with pytest.raises(ValueError, match="key: cannot be read: no such file"):
        headers_of(found)


def test_what_may_be_secret_is_not_shown(tmp_path: Path) -> None:
    one = server('{command: x, env: {A: "${TOKEN}"}}', tmp_path)
    other = server('{url: "https://x/?k=${TOKEN}", headers: {A: "${TOKEN}"}}', tmp_path)
    assert "s3cret" not in repr(one) + repr(other)


@pytest.mark.parametrize(
    "change",
    ["env: {A: c}", "args: [b]", "share: all", "callers: [a]", "start_timeout: 5", "end_of_input_timeout: 5", "cwd: /"],
)
def test_whatever_changes_makes_another_server(change: str, tmp_path: Path) -> None:
    same = "{command: x}"
    assert server(same, tmp_path) == server(same, tmp_path)
    assert server(same, tmp_path) != server(f"{{command: x, {change}}}", tmp_path)


def test_nobody_and_everybody_are_two_things(tmp_path: Path) -> None:
    assert server("{command: x}", tmp_path).callers is None
    assert () == server("{command: x, callers: []}", tmp_path).callers


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('{command: x, url: "https://x"}', "9: servers.docs: has both command and url; give exactly one of them"),
        ("{args: [a]}", "9: servers.docs: has neither command nor url; give exactly one of them"),
        ("{command: ''}", "19: servers.docs.command: is empty; write the program to start"),
        (
            "{command: x, headers: {a: b}}",
            "31: servers.docs.headers: is for servers with url, and this one has command; remove one of them",
        ),
        (
            '{url: "https://x", env: {a: b}}',
            "33: servers.docs.env: is for servers with command, and this one has url; remove one of them",
        ),
        ("{command: x, type: http}", "28: servers.docs.type: 'http' cannot be combined with command; remove it"),
        ("{command: x, type: sse}", "28: servers.docs.type: 'sse' is not one of http, stdio, streamable-http"),
        (
            "{command: x, type: stdo}",
            "28: servers.docs.type: 'stdo' is not one of http, stdio, streamable-http; did you mean 'stdio'?",
        ),
        ("{command: x, args: [5]}", "29: servers.docs.args.0: 5 is not a string; quote it"),
        ("{command: x, env: {PORT: 8080}}", "34: servers.docs.env.PORT: is not a string; put it in quotes"),
        (
            '{command: x, env: {"A=B": c}}',
            (
                "35: servers.docs.env.'A=B': is not a valid environment variable; use letters, digits and _ in"
                " its name, and no NUL in its value"
            ),
        ),
        (
            "{command: x, env: {A: '${NONE}'}}",
            "31: servers.docs.env.A: ${NONE} is not set in the environment; set it, or write $${ for a literal ${",
        ),
        ("{command: x, cwd: none-such}", "27: servers.docs.cwd: is not a folder; create it, or remove the key"),
        (
            "{command: x, start_timeout: 0}",
            "37: servers.docs.start_timeout: 0 is not a whole number from 1 to 3600",
        ),
        (
            "{url: 'ftp://x'}",
            "15: servers.docs.url: is not an http or https URL with a host; use a URL such as https://mcp.example.com/mcp",
        ),
        (
            "{url: 'https://u:s3cret@x'}",
            "15: servers.docs.url: contains a user name or a password; put credentials in a header",
        ),
        ("{url: 'https://x#y'}", "15: servers.docs.url: contains a fragment; remove it"),
        (
            "{url: 'https://x:99999'}",
            "15: servers.docs.url: is not a URL; use a URL such as https://mcp.example.com/mcp",
        ),
        (
            "{url: 'https://x', headers: {A: '${CRLF}'}}",
            "41: servers.docs.headers.A: has an invalid value; write ASCII without line breaks",
        ),
        (
            "{url: 'https://x', headers: {Host: a}}",
            "44: servers.docs.headers.Host: is a header that the gate sets itself; remove it",
        ),
        (
            "{url: 'https://x', headers: {mcp-session-id: a}}",
            "54: servers.docs.headers.mcp-session-id: is a header that the gate sets itself; remove it",
        ),
        (
            "{url: 'https://x', headers: {'a b': c}}",
            "45: servers.docs.headers.'a b': is not a valid header name; use letters, digits and -",
        ),
        (
            "{url: 'https://x', headers: {a: b}, headers_from: {A: k}}",
            "41: servers.docs.headers.a: is listed twice (case is ignored); remove one",
        ),
        (
            "{url: 'https://x', headers: {Authorization: 5}}",
            "53: servers.docs.headers.Authorization: is not a string; put it in quotes",
        ),
        (
            "{url: 'https://x', headers_from: {A: none-such}}",
            "42: servers.docs.headers_from: none-such: cannot be read: no such file or directory; correct the path",
        ),
        (
            "{command: x, cwd: ~no-such-user-here/x}",
            "27: servers.docs.cwd: begins with ~, but that home folder is unknown; write the full path",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_place(entry: str, expected: str, tmp_path: Path) -> None:
    told = problems(entry, tmp_path)
    assert not any("s3cret" in line or "X-Evil" in line for line in told)
    assert expected == told[0]


@pytest.mark.parametrize("name", [".", "..", "a/b", "a b", "%2e", "a" * 65, "\u00e4", "a\\b", "", "a:b"])
def test_a_name_that_no_url_can_hold_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"policy: p\nservers: {{'{name}': {{command: x}}}}\n")
    with pytest.raises(SettingsError, match="is not a valid server name"):
        load_serve(ENVIRON, file=tmp_path / "s.yaml")


def test_headers_over_plain_http_are_warned_of(tmp_path: Path) -> None:
    entry = "{{url: 'http://{}/mcp', headers: {{A: b}}}}"
    (warned,) = loaded(entry.format("10.0.0.1"), tmp_path).warnings
    assert "servers.docs: its headers travel over plain http to another machine; use https" in warned
    assert () == loaded(entry.format("127.0.0.1"), tmp_path).warnings


@pytest.mark.parametrize("size", [65_537, 10_000_000])
def test_a_huge_secret_is_not_read(size: int, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a" * size)
    found = ServerSettings(name="docs", url="https://x", headers_from={"a": tmp_path / "key"})
    with pytest.raises(ValueError, match="is larger than 65536 bytes"):
        headers_of(found)


def test_a_rotated_secret_is_read_for_the_next_conversation(tmp_path: Path) -> None:
    found = ServerSettings(name="docs", url="https://x", headers_from={"a": tmp_path / "key"})
    for secret in ("old", "new"):
        (tmp_path / "key").write_text(f"{secret}\n")
        assert {"a": secret} == headers_of(found)


def test_an_entry_of_any_shape_is_told_and_never_breaks_anything(tmp_path: Path) -> None:
    values: list[Any] = [
        "5",
        "[]",
        "null",
        "text",
        "{command: [x]}",
        "{command: {a: b}}",
        "{env: [a]}",
        "{callers: x}",
        "{headers: 5, url: 7}",
    ]
    for value in values:
        assert problems(value, tmp_path)
