"""The servers of the daemon: `servers:` in the shape of clients' `mcpServers`, with what is ours beside it. Starts and asks nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from samplegate.core.eras import Protocol
from samplegate.core.policyfile import variables
from samplegate.core.policyfile.tree import Scalar, find, quoted
from samplegate.settings.trees import Part
from samplegate.urls import is_open, url_error

NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}\Z")
"""What a server can be called: it is a part of a URL's path, where `.` and `..` mean something else."""

MAX_SECRET: Final = 64 * 1024  # bytes of a file that holds a header's value
_header_name: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_header_value: Final = re.compile(r"[\x20-\x7e\t]{0,16384}\Z")
_ours: Final = re.compile(
    r"(host|content-length|content-type|transfer-encoding|connection|accept|mcp-(protocol-version|session-id|method|name|param-.*))\Z", re.IGNORECASE
)
_SECRET: Final = frozenset({"env", "url", "headers"})
"""Keys whose variables may be credentials of the one server."""
_variable_name: Final = re.compile(r"[^=\x00]+\Z")


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server as it is written. What the keys mean is in ``descriptions``."""

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: str | None = None
    args: list[str] = []
    env: dict[str, Any] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, Any] = {}
    headers_from: dict[str, str] = {}
    share: Literal["caller", "all"] = "caller"
    callers: list[str] | None = None
    protocol: Protocol = "auto"
    start_timeout: Annotated[int, Meta(ge=1, le=3_600)] = 30
    call_timeout: Annotated[int, Meta(ge=0, le=86_400)] = 0
    end_of_input_timeout: Annotated[int, Meta(ge=0, le=86_400)] | None = None
    disabled: bool = False


@dataclass(frozen=True)
class ServerSettings:
    """One server, ready to be started or asked. Two are equal if and only if nothing was changed between two readings of the settings.

    Either ``command`` (the program and its arguments) or ``url``. Secrets may be in any of them, so ``repr`` shows none.
    """

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By name in small letters."""
    headers_from: Mapping[str, Path] = field(default_factory=dict)
    """The same, with files that hold the values."""
    share: Literal["caller", "all"] = "caller"
    callers: tuple[str, ...] | None = None
    """Names or globs; None is every caller."""
    protocol: Protocol = "auto"
    start_timeout: int = 30
    call_timeout: int = 0
    end_of_input_timeout: int | None = None
    """None is as long as the shutdown may take."""


def headers_of(server: ServerSettings) -> dict[str, str]:
    """All headers for the server, those from files read now, so that a rotated secret is used at once. Raises ValueError, with no value in it."""
    return {**server.headers, **{name: _secret(path, name) for name, path in server.headers_from.items()}}


def _secret(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            value = file.read(MAX_SECRET + 1).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}") from None
    if not value or _header_value.match(value) is None:
        raise ValueError(f"{path}: holds no value for the header {name}; write one line of ASCII into it")
    return value


def server_of(part: Part, environment: Mapping[str, str], warnings: list[str], named: set[str]) -> ServerSettings | None:
    """One entry of the map; None where it is disabled, or wrong and every problem told.

    ``named`` takes the variables of its ``env``, ``url`` and ``headers``, which are this server's alone.
    """
    before = len(part.problems)
    name = str(part.path[-1])
    if NAME.match(name) is None:
        part.problem((), "is no name of a server; use at most 64 letters, digits and . _ -, since it stands in the server's URL")
    if _is_sse(part):
        warnings.append(
            f"{part.place(('type',))}: 'sse', the transport of 2024-11-05, is not supported, so this server is left out; "
            "give the url of its Streamable HTTP endpoint with type: http"
        )
        return None
    entry: ServerEntry | None = part.value(ServerEntry)
    if entry is None:
        return None
    filled = _Filled(part, environment, named)
    _check_kind(part, entry)
    server = ServerSettings(
        name=name,
        command=tuple(
            filled.text(("args", index - 1) if index else ("command",), text) for index, text in enumerate([entry.command or "", *entry.args])
        )
        if entry.command
        else (),
        env={key: filled.text(("env", key), value) for key, value in entry.env.items()},
        cwd=None if entry.cwd is None else filled.path(("cwd",), entry.cwd),
        url=None if entry.url is None else filled.text(("url",), entry.url),
        headers={key.lower(): filled.text(("headers", key), value) for key, value in entry.headers.items()},
        headers_from={key.lower(): filled.path(("headers_from", key), value) for key, value in entry.headers_from.items()},
        share=entry.share,
        callers=None if entry.callers is None else tuple(entry.callers),
        protocol=entry.protocol,
        start_timeout=entry.start_timeout,
        call_timeout=entry.call_timeout,
        end_of_input_timeout=entry.end_of_input_timeout,
    )
    if len(part.problems) == before:
        _check(part, server, entry, warnings)
    return None if entry.disabled or len(part.problems) != before else server


def _is_sse(part: Part) -> bool:
    """Whether a client would reach this server by the transport that Streamable HTTP replaced. Clients' files have such servers among others."""
    kind = find(part.node, ("type",))
    return isinstance(kind, Scalar) and kind.value == "sse" and find(part.node, ("url",)) is not None


def _check_kind(part: Part, entry: ServerEntry) -> None:
    """Whether it is one of a command and a URL, and has nothing of the other."""
    if (entry.command is None) == (entry.url is None):
        part.problem((), f"has {'both command and' if entry.command is not None else 'neither command nor'} url; give one of them")
        return
    local = entry.command is not None
    for name in ("url", "headers", "headers_from") if local else ("args", "env", "cwd"):
        if getattr(entry, name):
            part.problem(
                (name,), f"goes with {'url' if local else 'command'}, and this server has {'command' if local else 'url'}; remove one of both"
            )
    if entry.type is not None and (entry.type == "stdio") != local:
        part.problem(("type",), f"{quoted(entry.type)} does not go with {'command' if local else 'url'}; leave it out")
    if entry.command == "":
        part.problem(("command",), "is empty; write the program that is to be started")


def _check(part: Part, server: ServerSettings, entry: ServerEntry, warnings: list[str]) -> None:
    """What can only be told of the values with the variables filled in."""
    why = None if server.url is None else url_error(server.url, query=True)
    if why is not None:
        part.problem(("url",), why)
    for key, value in entry.env.items():
        if _variable_name.match(key) is None or "\0" in str(value):
            part.problem(("env", key), "is no variable that a process can have; write letters, digits and _, and no NUL in its value")
    written = [("headers", key) for key in entry.headers] + [("headers_from", key) for key in entry.headers_from]
    for section, key in written:
        why = why_no_header(key, server.headers.get(key.lower(), ""), [other.lower() for _, other in written])
        if why is not None:
            part.problem((section, key), why)
    for key, path in server.headers_from.items():
        try:
            _secret(path, key)
        except ValueError as problem:
            part.problem(("headers_from",), str(problem))
    if server.cwd is not None and not server.cwd.is_dir():
        part.problem(("cwd",), "is no folder; make it, or leave it out")
    if server.url is not None and written and url_error(server.url, query=True) is None and is_open(server.url):
        warnings.append(f"{part.where}: servers.{server.name}: its headers travel over plain http to another machine; write https")


def why_no_header(name: str, value: str, all: Sequence[str]) -> str | None:
    """What is wrong with a header that somebody names, None where nothing is. ``all``: every name that is given, this one too, in small letters."""
    if _header_name.match(name) is None:
        return "is no name of a header; use letters, digits and -"
    if _ours.match(name) is not None:
        return "is a header that the gate writes itself; remove it"
    if all.count(name.lower()) > 1:
        return "stands twice, in whatever case; remove one"
    if _header_value.match(value) is None:
        return "has a value that no header can have; write ASCII without line ends"
    return None


class _Filled:
    """Texts of one entry with the variables put in, each problem at its place and without the value."""

    def __init__(self, part: Part, environment: Mapping[str, str], named: set[str]) -> None:
        self._part = part
        self._environment = environment
        self._named = named

    def text(self, below: tuple[str | int, ...], text: object) -> str:
        if not isinstance(text, str):
            self._part.problem(below, "is no text; put it in quotes")
            return ""
        if below[0] in _SECRET:
            self._named.update(variables.names(text))
        why = variables.fault(text)
        missing = [] if why else [name for name in variables.names(text) if name not in self._environment]
        if why is None and missing:
            why = f"${{{missing[0]}}} is not set in the environment; set it, or write $${{ for the text itself"
        if why is not None:
            self._part.problem(below, why)
            return ""
        return variables.fill(text, self._environment)

    def path(self, below: tuple[str | int, ...], text: str) -> Path:
        try:
            return self._part.path_of(self.text(below, text))
        except RuntimeError:
            self._part.problem(below, "begins with ~ though no such home folder is known; write the folder out")
            return Path()
