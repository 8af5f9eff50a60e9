"""The one server of a command line, `--url URL` with `--header-from NAME=FILE`: read and checked as one of the settings is. Asks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from samplegate.core.policyfile.tree import quoted
from samplegate.settings.servers import ServerSettings, headers_of, why_no_header
from samplegate.urls import is_open, url_error


def at_url(name: str, url: str, headers_from: Sequence[str], problems: list[str], warnings: list[str]) -> ServerSettings:
    """A server at a URL, with every problem told. ``headers_from``: NAME=FILE."""
    why = url_error(url, query=True)
    if why is not None:
        problems.append(f"--url: {why}")
    server = ServerSettings(name, url=url, headers_from=_headers(headers_from, problems))
    if why is None and server.headers_from and is_open(url):
        warnings.append("--header-from: its headers travel over plain http to another machine; write https")
    return server


def headers_at(server: ServerSettings, problems: list[str]) -> dict[str, str]:
    """All its headers, from files read now; none, and a problem, where one cannot be read."""
    try:
        return headers_of(server)
    except ValueError as problem:
        problems.append(f"--header-from: {problem}")
        return {}


def _headers(texts: Sequence[str], problems: list[str]) -> dict[str, Path]:
    pairs = [text.partition("=") for text in texts]
    names = [name.lower() for name, _, _ in pairs]
    found: dict[str, Path] = {}
    for name, _, file in pairs:
        if not file:  # what stands there may be the secret itself
            problems.append("--header-from: holds no NAME=FILE; write the header's name, = and the file that holds its value")
            continue
        why = why_no_header(name, "", names)
        if why is not None:
            problems.append(f"--header-from: {quoted(name)} {why}")
        else:
            found[name.lower()] = Path(file)
    return found
