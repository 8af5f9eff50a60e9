"""A single server given as a URL on the command line: its headers from files, and every problem with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.config.servers import ServerSettings, headers_of, server_at_url

URL = "https://search.example.com/mcp"


def read(folder: Path, *headers_from: str, url: str = URL) -> tuple[dict[str, str], list[str], list[str]]:
    """Headers, problems (without the folder) and warnings."""
    problems: list[str] = []
    warnings: list[str] = []
    _, headers = server_at_url(
        "default", url, [text.replace("=", f"={folder}/", 1) for text in headers_from], problems, warnings
    )
    return headers, [problem.replace(f"{folder}/", "") for problem in problems], warnings


def test_a_header_is_what_its_file_holds_without_the_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer s3cret=\n")
    (tmp_path / "key").write_text("k\n")
    assert ({"authorization": "Bearer s3cret=", "x-key": "k"}, [], []) == read(
        tmp_path, "Authorization=token", "X-Key=key"
    )


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    server, _ = server_at_url("default", URL, [f"X={tmp_path / 'token'}"], [], [])
    (tmp_path / "token").write_text("new")
    assert {"x": "new"} == headers_of(server)


def test_without_headers_it_is_a_server_at_a_url(tmp_path: Path) -> None:
    assert (ServerSettings(name="docs", url=URL), {}) == server_at_url("docs", URL, [], [], [])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "Authorization",
            "--header-from: is not NAME=FILE; write the header's name, = and the file with its value",
        ),
        ("=token", "--header-from: '' is not a valid header name; use letters, digits and -"),
        ("Mcp-Session-Id=token", "--header-from: 'Mcp-Session-Id' is a header that the gate sets itself; remove it"),
        ("content-length=token", "--header-from: 'content-length' is a header that the gate sets itself; remove it"),
        ("A B=token", "--header-from: 'A B' is not a valid header name; use letters, digits and -"),
        ("A=gone", "--header-from: gone: cannot be read: no such file or directory"),
        ("A=empty", "--header-from: empty: contains no valid value for the header a; write one line of ASCII into it"),
        ("A=lines", "--header-from: lines: contains no valid value for the header a; write one line of ASCII into it"),
    ],
)
def test_what_can_be_no_header_is_told_and_its_value_is_not(given: str, expected: str, tmp_path: Path) -> None:
    for name, text in (("token", "s3cret"), ("empty", " \n"), ("lines", "s3cret\r\nX: s3cret")):
        (tmp_path / name).write_text(text)
    assert [expected] == read(tmp_path, given)[1]


def test_a_header_that_is_given_twice_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    twice = "is listed twice (case is ignored); remove one"
    assert [f"--header-from: 'X-A' {twice}", f"--header-from: 'x-a' {twice}"] == read(
        tmp_path, "X-A=token", "x-a=token"
    )[1]


def test_a_secret_in_the_place_of_the_file_is_not_shown() -> None:
    problems: list[str] = []
    server_at_url("default", URL, ["s3cret"], problems, [])
    assert 1 == len(problems)
    assert "s3cret" not in problems[0]


@pytest.mark.parametrize(
    ("url", "count"), [("http://search.example.com/mcp", 1), ("http://127.0.0.1:8080/mcp", 0), (URL, 0)]
)
def test_headers_over_plain_http_to_another_machine_are_warned_of(url: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    assert count == len(read(tmp_path, "X=token", url=url)[2])
    assert [] == read(tmp_path, url=url)[2]
