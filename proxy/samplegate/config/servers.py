"""The MCP servers of the daemon: `servers:` in the format of clients' `mcpServers`, with additional keys.

This module validates the entries and starts no server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from samplegate.config.oauth import OAuthSettings, check_section, oauth_of_options
from samplegate.config.settings import CALL_TIMEOUT, START_TIMEOUT
from samplegate.config.sources import GatheredSettings, Section, secret_text, tree_of
from samplegate.protocol.frames import Protocol
from samplegate.urls import is_open, url_error
from samplegate.yamlfile import envfile
from samplegate.yamlfile.tree import Mapping as Tree
from samplegate.yamlfile.tree import Path as Steps
from samplegate.yamlfile.tree import Scalar, find, quoted

NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}\Z")
"""A server's name. It is a part of a URL's path, where `.` and `..` have another meaning."""
NAME_ERROR: Final = (
    "is not a valid server name; use at most 64 letters, digits and . _ -, because it is part of the server's URL"
)

_header_name: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_header_value: Final = re.compile(r"[\x20-\x7e\t]{0,16384}\Z")
_reserved_header: Final = re.compile(
    r"(host|content-length|content-type|transfer-encoding|connection|accept|mcp-(protocol-version|session-id|method|name|param-.*))\Z",
    re.IGNORECASE,
)
_SECRET: Final = frozenset({"env", "url", "headers", "oauth"})
"""Keys whose variables may be credentials for that server."""
_variable_name: Final = re.compile(r"[^=\x00]+\Z")
_shell_variable: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}\Z")
"""The variables of `--header-env`. A secret in their place rarely looks like one of them."""


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server, in the format of clients' `mcpServers`."""

    type: Annotated[
        Literal["stdio", "http", "streamable-http"] | None,
        Meta(
            description=(
                "`stdio`, `http` or `streamable-http`, as in clients' files; optional. A server of type `sse` is"
                " skipped with a warning."
            )
        ),
    ] = None
    command: Annotated[
        str | None, Meta(description="The program of a server that communicates over its stdin and stdout.")
    ] = None
    args: Annotated[tuple[str, ...], Meta(description="The program's arguments.")] = ()
    env: Annotated[dict[str, Any], Meta(description="The program's environment variables.")] = {}
    cwd: Annotated[Path | None, Meta(description="The program's working directory.")] = None
    url: Annotated[str | None, Meta(description="The endpoint of a server with Streamable HTTP.")] = None
    headers: Annotated[dict[str, Any], Meta(description="Headers of every request to the server.")] = {}
    headers_from: Annotated[
        dict[str, Path],
        Meta(
            description=(
                "Headers whose values are in files. Each conversation reads the files, so a rotated secret needs no"
                " restart."
            )
        ),
    ] = {}
    oauth: Annotated[
        OAuthSettings | None,
        Meta(
            description=(
                "How the gate gets tokens for a server behind OAuth. Default: by a user's login, if there is one."
            )
        ),
    ] = None
    share: Annotated[
        Literal["caller", "all"],
        Meta(
            description="Which requests in 2026-07-28 share a process or session: those of one `caller`, or of `all`."
        ),
    ] = "caller"
    callers: Annotated[
        tuple[str, ...] | None,
        Meta(description="Names or globs of the callers that may use the server. Default: all authenticated callers."),
    ] = None
    protocol: Annotated[
        Protocol,
        Meta(
            description=(
                "The protocol version for the server: `auto` detects it, `legacy` is 2025-11-25 and older, `modern` is"
                " 2026-07-28."
            )
        ),
    ] = "auto"
    start_timeout: Annotated[int, Meta(ge=1, le=3_600, description=START_TIMEOUT)] = 30
    call_timeout: Annotated[int, Meta(ge=0, le=86_400, description=CALL_TIMEOUT)] = 0
    end_of_input_timeout: Annotated[
        Annotated[int, Meta(ge=0, le=86_400)] | None,
        Meta(
            description=(
                "Seconds at shutdown to wait for answers to calls in flight, at most and by default `drain_timeout`; 0:"
                " none. After that the clients get an error."
            ),
        ),
    ] = None
    disabled: Annotated[bool, Meta(description="Skip this server.")] = False


class ServerSettings(ServerEntry, frozen=True, kw_only=True):
    """A server, ready to use: variables are filled in, paths are resolved, and header names are in lower case.

    Two are equal if and only if nothing changed between two readings of the settings. A server may contain secrets, so
    ``repr`` shows only its name.
    """

    name: str
    from_options: bool = False
    """Whether it is a server at a URL that the command line names, not a settings file."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments; empty for a server at a URL."""
        return () if self.command is None else (self.command, *self.args)

    def __repr__(self) -> str:
        return f"ServerSettings(name={self.name!r})"


def headers_of(server: ServerSettings) -> dict[str, str]:
    """All headers for the server. Files are read on each call, so that a rotated secret is used at once. Raises
    ValueError, whose text contains no value."""
    return {**server.headers, **{name: _secret(path, name) for name, path in server.headers_from.items()}}


def _secret(path: Path, name: str) -> str:
    value = secret_text(path).strip()
    if not value or _header_value.match(value) is None:
        raise ValueError(f"{path}: contains no valid value for the header {name}; write one line of ASCII into it")
    return value


def secret_variables(headers_env: Sequence[str], secret_env: str | None = None) -> frozenset[str]:
    """The variables of NAME=VARIABLE entries, and the variable of a client's secret. Their values are for the server at
    the URL and its authorization server alone."""
    return frozenset([*(text.partition("=")[2] for text in headers_env), *([] if secret_env is None else [secret_env])])


def _variable_error(name: str, value: str, header: str, environment: Mapping[str, str]) -> str | None:
    """Why a variable's value cannot be that of a header, or None. Contains no value."""
    if name not in environment:
        return "is not set; set it to the header's value"
    if not value:
        return "is empty; set it to the header's value"
    if _header_value.match(value) is None:
        return f"contains no valid value for the header {header}; set it to one line of ASCII"
    return None


def servers_of(part: Section | None, clients_file: Path | None, reading: GatheredSettings) -> dict[str, ServerSettings]:
    """The servers of the section and of the client's file, if the settings name one."""
    servers: dict[str, ServerSettings] = {}
    for entries in (part, None if clients_file is None else _clients_file_servers(clients_file, reading.problems)):
        for name, entry in entries.entries().items() if entries is not None else ():
            server = _server(entry, reading)
            if name in reading.places:
                entry.problem((), "is also a server in the settings; rename one of them")
            reading.places[name] = entry.place(("command",))
            if server is not None:
                servers[name] = server
    if not servers and not reading.problems:
        reading.problems.append(
            "servers: none defined; put a command after --, use --url, or add `servers` to the settings file"
        )
    return servers


def _clients_file_servers(file: Path, problems: list[str]) -> Section | None:
    """The servers in a client's file. Its other content is ignored."""
    root = tree_of(file, problems)
    entry = root.entries.get("mcpServers") or root.entries.get("servers") if isinstance(root, Tree) else None
    if entry is not None:
        return Section(str(file), entry.node, ("mcpServers",), file.parent, problems)
    if root is not None:
        problems.append(f"{file}:1:1: has no mcpServers; use a client's configuration file with mcpServers")
    return None


def _server(part: Section, reading: GatheredSettings) -> ServerSettings | None:
    """One server; None if it is disabled, or invalid with every problem reported."""
    before = len(part.problems)
    name = str(part.path[-1])
    if NAME.match(name) is None:
        part.problem((), NAME_ERROR)
    if _is_sse(part):
        reading.warnings.append(
            f"{part.place(('type',))}: 'sse', the transport of 2024-11-05, is not supported, so this server is"
            " skipped; use the url of its Streamable HTTP endpoint with type: http"
        )
        return None
    entry = part.value(ServerEntry)
    if entry is None:
        return None

    def filled(below: Steps, text: object) -> str:
        """The text with its variables filled in. An unset variable is a problem, reported at its place without the
        value."""
        if isinstance(text, str) and below[0] in _SECRET:
            reading.named.update(envfile.names(text))
        why = envfile.fault(text) if isinstance(text, str) else "is not a string; put it in quotes"
        missing = [] if why else [name for name in envfile.names(str(text)) if name not in reading.environment]
        if missing:
            why = f"${{{missing[0]}}} is not set in the environment; set it, or write $${{ for a literal ${{"
        if why is not None:
            part.problem(below, why)
        return "" if why is not None else envfile.fill(str(text), reading.environment)

    _check_kind(part, entry)
    server = ServerSettings(
        **{
            **msgspec.structs.asdict(entry),
            "name": name,
            "type": None,
            "command": filled(("command",), entry.command) if entry.command else None,
            "args": tuple(filled(("args", index), text) for index, text in enumerate(entry.args)),
            "env": {key: filled(("env", key), value) for key, value in entry.env.items()},
            "cwd": part.file(("cwd",), entry.cwd and filled(("cwd",), str(entry.cwd))),
            "url": None if entry.url is None else filled(("url",), entry.url),
            "headers": {key.lower(): filled(("headers", key), value) for key, value in entry.headers.items()},
            "headers_from": {
                key.lower(): part.file(("headers_from", key), filled(("headers_from", key), str(path)))
                for key, path in entry.headers_from.items()
            },
            "oauth": None if entry.oauth is None else _oauth(part, entry.oauth, filled),
        }
    )
    if len(part.problems) == before:
        _check(part, server, entry, reading.warnings)
    return None if entry.disabled or len(part.problems) != before else server


def _oauth(part: Section, given: OAuthSettings, filled: Callable[[Steps, object], str]) -> OAuthSettings:
    """The OAuth settings with their variables filled in and their paths resolved."""
    below = ("oauth", "client_secret")
    if given.client_secret is not None and not any(envfile.names(given.client_secret)):
        part.problem(
            below, "is written into the settings; put it into a file and use client_secret_file, or a variable"
        )

    def text(name: str) -> str | None:
        value = getattr(given, name)
        return None if value is None else filled(("oauth", name), str(value))

    texts = ("client_id", "client_secret", "issuer", "scope", "client_metadata_url")
    paths = ("client_secret_file", "private_key_file")
    return msgspec.structs.replace(
        given,
        **{name: text(name) for name in texts},
        **{name: part.file(("oauth", name), text(name)) for name in paths},
    )


def _is_sse(part: Section) -> bool:
    """True if a server uses the HTTP+SSE transport that Streamable HTTP replaced. Clients' files still contain such
    servers."""
    kind = find(part.node, ("type",))
    return isinstance(kind, Scalar) and kind.value == "sse" and find(part.node, ("url",)) is not None


def _check_kind(part: Section, entry: ServerEntry) -> None:
    """Check that a server has either a command or a URL, and no keys of the other kind."""
    if (entry.command is None) == (entry.url is None):
        part.problem(
            (),
            f"has {'both command and' if entry.command is not None else 'neither command nor'} url; give"
            " exactly one of them",
        )
        return
    local = entry.command is not None
    for name in ("url", "headers", "headers_from", "oauth") if local else ("args", "env", "cwd"):
        if getattr(entry, name):
            part.problem(
                (name,),
                f"is for servers with {'url' if local else 'command'}, and this one has"
                f" {'command' if local else 'url'};"
                " remove one of them",
            )
    if entry.type is not None and (entry.type == "stdio") != local:
        part.problem(
            ("type",), f"{quoted(entry.type)} cannot be combined with {'command' if local else 'url'}; remove it"
        )
    if entry.command == "":
        part.problem(("command",), "is empty; write the program to start")


def _check(part: Section, server: ServerSettings, entry: ServerEntry, warnings: list[str]) -> None:
    """The checks that need values with the variables filled in."""
    why = None if server.url is None else url_error(server.url, query=True)
    if why is not None:
        part.problem(("url",), why)
    for key, value in entry.env.items():
        if _variable_name.match(key) is None or "\0" in str(value):
            part.problem(
                ("env", key),
                "is not a valid environment variable; use letters, digits and _ in its name, and no NUL in its value",
            )
    written = [("headers", key) for key in entry.headers] + [("headers_from", key) for key in entry.headers_from]
    for section, key in written:
        why = header_error(key, server.headers.get(key.lower(), ""), [other.lower() for _, other in written])
        if why is not None:
            part.problem((section, key), why)
    for key, path in server.headers_from.items():
        try:
            _secret(path, key)
        except ValueError as problem:
            part.problem(("headers_from",), str(problem))
    if server.oauth is not None:
        check_section(part, server.oauth)
        url = server.url if why is None else None
        for key, text in _oauth_conflicts(url, [name for _, name in written]):
            part.problem((key,), text)
    if server.cwd is not None and not server.cwd.is_dir():
        part.problem(("cwd",), "is not a folder; create it, or remove the key")
    if server.url is not None and written and url_error(server.url, query=True) is None and is_open(server.url):
        warnings.append(
            f"{part.where}: servers.{server.name}: its headers travel over plain http to another machine; use https"
        )


def _oauth_conflicts(url: str | None, headers: Sequence[str]) -> list[tuple[str, str]]:
    """Why a server cannot use tokens of OAuth, with the key that is wrong. ``headers`` are the names of its headers."""
    found = []
    if "authorization" in [name.lower() for name in headers]:
        found.append(("oauth", "cannot be combined with the header Authorization; remove one of them"))
    if url is not None and is_open(url):
        found.append(("url", "is plain http to another machine, but tokens are only sent over https; use https"))
    return found


def header_error(name: str, value: str, all: Sequence[str]) -> str | None:
    """Why a configured header is invalid, or None. ``all`` has every configured name in lower case, this one
    included."""
    if _header_name.match(name) is None:
        return "is not a valid header name; use letters, digits and -"
    if _reserved_header.match(name) is not None:
        return "is a header that the gate sets itself; remove it"
    if all.count(name.lower()) > 1:
        return "is listed twice (case is ignored); remove one"
    if _header_value.match(value) is None:
        return "has an invalid value; write ASCII without line breaks"
    return None


def server_at_url(
    name: str,
    url: str,
    headers_from: Sequence[str],
    headers_env: Sequence[str],
    environment: Mapping[str, str],
    *,
    oauth: Mapping[str, object] = {},
    problems: list[str],
    warnings: list[str],
) -> tuple[ServerSettings, dict[str, str]]:
    """The command line's server at a URL, and its headers as read now. Every problem is reported.

    ``headers_from`` are NAME=FILE entries, ``headers_env`` are NAME=VARIABLE entries, ``oauth`` has the options of
    OAuth by name, and ``environment`` has the values of the variables.
    """
    why = url_error(url, query=True)
    if why is not None:
        problems.append(f"--url: {why}")
    names = [text.partition("=")[0].lower() for text in (*headers_from, *headers_env)]
    files: dict[str, Path] = {}
    for text in headers_from:
        header, _, file = text.partition("=")
        error = header_error(header, "", names)
        if not file:  # the text may be the secret itself
            problems.append("--header-from: is not NAME=FILE; write the header's name, = and the file with its value")
        elif error is not None:
            problems.append(f"--header-from: {quoted(header)} {error}")
        else:
            files[header.lower()] = Path(file)
    values: dict[str, str] = {}
    for text in headers_env:
        header, _, variable = text.partition("=")
        error = header_error(header, "", names)
        if _shell_variable.match(variable) is None:  # the text may be the secret itself
            problems.append(
                "--header-env: is not NAME=VARIABLE; write the header's name, = and the environment variable with its"
                " value"
            )
        elif error is not None:
            problems.append(f"--header-env: {quoted(header)} {error}")
        else:
            value = environment.get(variable, "").strip(" \t")
            wrong = _variable_error(variable, value, header.lower(), environment)
            if wrong is not None:
                problems.append(f"--header-env: variable {variable} {wrong}")
            values[header.lower()] = value
    tokens = oauth_of_options(oauth, environment, problems)
    if tokens is not None:
        conflicts = _oauth_conflicts(url if why is None else None, names)
        problems += [f"--{'url' if key == 'url' else 'oauth-client-id'}: {text}" for key, text in conflicts]
    server = ServerSettings(name=name, url=url, headers=values, headers_from=files, oauth=tokens, from_options=True)
    if why is None and names and is_open(url):
        option = "--header-from" if headers_from else "--header-env"
        warnings.append(f"{option}: its headers travel over plain http to another machine; use https")
    try:
        return server, headers_of(server)
    except ValueError as problem:
        problems.append(f"--header-from: {problem}")
        return server, {}
