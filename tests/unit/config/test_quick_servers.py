"""A single server given as a URL on the command line: its headers from files and variables, and every problem with
them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.config.serve import load_serve
from samplegate.config.servers import ServerSettings, headers_of, server_at_url

URL = "https://search.example.com/mcp"


def read(folder: Path, *headers_from: str, url: str = URL) -> tuple[dict[str, str], list[str], list[str]]:
    """Headers, problems (without the folder) and warnings."""
    problems: list[str] = []
    warnings: list[str] = []
    files = [text.replace("=", f"={folder}/", 1) for text in headers_from]
    _, headers = server_at_url("default", url, files, [], {}, problems=problems, warnings=warnings)
    return headers, [problem.replace(f"{folder}/", "") for problem in problems], warnings


def test_a_header_is_what_its_file_holds_without_the_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer s3cret=\n")
    (tmp_path / "key").write_text("k\n")
    assert ({"authorization": "Bearer s3cret=", "x-key": "k"}, [], []) == read(
        tmp_path, "Authorization=token", "X-Key=key"
    )


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    server, _ = server_at_url("default", URL, [f"X={tmp_path / 'token'}"], [], {}, problems=[], warnings=[])
    (tmp_path / "token").write_text("new")
    assert {"x": "new"} == headers_of(server)


def test_without_headers_it_is_a_server_at_a_url(tmp_path: Path) -> None:
    assert (ServerSettings(name="docs", url=URL, from_options=True), {}) == server_at_url(
        "docs", URL, [], [], {}, problems=[], warnings=[]
    )


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
        ("A=gone", "--header-from: gone: cannot be read: no such file or directory; correct the path"),
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
    server_at_url("default", URL, ["s3cret"], [], {}, problems=problems, warnings=[])
    assert 1 == len(problems)
    assert "s3cret" not in problems[0]


@pytest.mark.parametrize(
    ("url", "count"), [("http://search.example.com/mcp", 1), ("http://127.0.0.1:8080/mcp", 0), (URL, 0)]
)
def test_headers_over_plain_http_to_another_machine_are_warned_of(url: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    assert count == len(read(tmp_path, "X=token", url=url)[2])
    assert [] == read(tmp_path, url=url)[2]


ENVIRONMENT: Final = {
    "AUTH": " Bearer s3cret=\t",
    "KEY_2": "k",
    "EMPTY": "",
    "BLANK": " \t ",
    "LINES": "s3cret\r\nX: s3cret",
    "LF": "s3cret\n",
    "UMLAUT": "s3cret\u00e4",
    "EURO": "s3cret\u20ac",
    "BYTES": "s3cret\udcff",
    "NUL": "s3cret\0",
    "LONG": "s3cret" * 4096,
}


def from_environment(*headers_env: str, headers_from: Sequence[str] = (), url: str = URL) -> tuple[Any, ...]:
    """Headers, problems and warnings."""
    problems: list[str] = []
    warnings: list[str] = []
    _, headers = server_at_url(
        "default", url, headers_from, headers_env, ENVIRONMENT, problems=problems, warnings=warnings
    )
    return headers, problems, warnings


def test_a_header_is_the_value_of_its_variable_without_the_space_around_it() -> None:
    expected = {"authorization": "Bearer s3cret=", "x-key": "k"}
    assert (expected, [], []) == from_environment("Authorization=AUTH", "X-Key=KEY_2")


def test_headers_come_from_files_and_variables_together(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    assert {"x-token": "t", "x-key": "k"} == from_environment(
        "X-Key=KEY_2", headers_from=[f"X-Token={tmp_path}/token"]
    )[0]


NO_PAIR: Final = (
    "--header-env: is not NAME=VARIABLE; write the header's name, = and the environment variable with its value"
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Authorization", NO_PAIR),
        ("Authorization=", NO_PAIR),
        ("Authorization=Bearer s3cret", NO_PAIR),
        ("Authorization=s3cret-1", NO_PAIR),
        ("Authorization=${AUTH}", NO_PAIR),
        ("Authorization=1A", NO_PAIR),
        ("Authorization=\u00c4", NO_PAIR),
        ("=AUTH", "--header-env: '' is not a valid header name; use letters, digits and -"),
        ("A B=AUTH", "--header-env: 'A B' is not a valid header name; use letters, digits and -"),
        ("Host=AUTH", "--header-env: 'Host' is a header that the gate sets itself; remove it"),
        ("Mcp-Param-X=AUTH", "--header-env: 'Mcp-Param-X' is a header that the gate sets itself; remove it"),
        ("A=GONE", "--header-env: variable GONE is not set; set it to the header's value"),
        ("A=EMPTY", "--header-env: variable EMPTY is empty; set it to the header's value"),
        ("A=BLANK", "--header-env: variable BLANK is empty; set it to the header's value"),
        *(
            (
                f"A={name}",
                f"--header-env: variable {name} contains no valid value for the header a; set it to one line of ASCII",
            )
            for name in ("LINES", "LF", "UMLAUT", "EURO", "BYTES", "NUL", "LONG")
        ),
    ],
)
def test_a_problem_with_a_variable_is_told_without_its_value(given: str, expected: str) -> None:
    problems = from_environment(given)[1]
    assert [expected] == problems
    assert "s3cret" not in problems[0]


def test_every_problem_with_variables_is_told() -> None:
    assert 3 == len(from_environment("A=GONE", "B=EMPTY", "C")[1])


def test_a_header_from_a_file_and_a_variable_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    twice = "is listed twice (case is ignored); remove one"
    assert [f"--header-from: 'X-A' {twice}", f"--header-env: 'x-a' {twice}"] == from_environment(
        "x-a=AUTH", headers_from=[f"X-A={tmp_path}/token"]
    )[1]


def test_variables_over_plain_http_to_another_machine_are_warned_of() -> None:
    assert ["--header-env: its headers travel over plain http to another machine; use https"] == from_environment(
        "X=AUTH", url="http://search.example.com/mcp"
    )[2]


def test_serve_gives_the_variable_to_no_model_and_no_server() -> None:
    environ = {"HOME": "/h", "AUTH": "s3cret", "OTHER": "o"}
    loaded = load_serve(environ, flags={"policy": "p"}, url=URL, headers_env=["Authorization=AUTH"])
    assert {"authorization": "s3cret"} == headers_of(loaded.settings.servers["default"])
    assert {"HOME": "/h", "OTHER": "o"} == loaded.environment
    assert "AUTH" in loaded.named
    assert "s3cret" not in repr(loaded)
