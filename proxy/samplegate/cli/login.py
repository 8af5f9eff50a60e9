"""`samplegate login`: a user's login to a server at a URL that requires OAuth, and a list of the logins.

The URL to open is printed on stdout. A browser is opened only at a terminal. No token is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.files import print_error, print_lines
from samplegate.config.oauth import OAuthSettings, oauth_errors
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.config.servers import NAME, ServerSettings, headers_of, servers_of
from samplegate.config.settings import SETTINGS
from samplegate.config.sources import NO_STATE, plain_values, read_layers
from samplegate.durations import duration_text
from samplegate.errors import InputError, Unavailable
from samplegate.oauth.login_file import Login, LoginFile, names
from samplegate.printable import printable
from samplegate.urls import is_open, is_web, url_error
from samplegate.yamlfile.tree import quoted
from samplegate.yamlfile.validate import did_you_mean

TIMEOUT: Final = 300
MAX_TIMEOUT: Final = 3_600
_OPTIONS: Final = {
    "client_id": "--client-id",
    "client_secret_file": "--client-secret-from",
    "client_metadata_url": "--client-metadata-url",
    "issuer": "--issuer",
    "scope": "--scope",
}
"""The options that replace keys of `oauth` in the settings."""


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where logins are."""
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings file of `serve`, with the servers and the state folder"
    )
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="folder for persistent state, where logins are stored"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "server", nargs="?", metavar="NAME", help="name of the server, as in the settings or in `run --server NAME`"
    )
    parser.add_argument("--url", metavar="URL", help="URL of the server (default: the one in the settings)")
    add_place(parser)
    parser.add_argument(
        "--scope",
        metavar="SCOPES",
        help="scopes to request, separated by spaces (default: those that the server asks for)",
    )
    parser.add_argument(
        "--client-id",
        metavar="ID",
        help="ID of a client that is registered at the authorization server (default: register one)",
    )
    parser.add_argument("--client-secret-from", type=Path, metavar="FILE", help="file with this client's secret")
    parser.add_argument(
        "--client-metadata-url",
        metavar="URL",
        help="https URL of a client ID metadata document, for authorization servers that accept one",
    )
    parser.add_argument(
        "--issuer", metavar="URL", help="the only authorization server to accept; required with a secret"
    )
    parser.add_argument(
        "--redirect-port",
        type=int,
        default=0,
        metavar="PORT",
        help="port on 127.0.0.1 for the browser's answer, if the client has a registered one (default: any)",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the URL, but do not open a browser")
    parser.add_argument(
        "--timeout", type=int, default=TIMEOUT, metavar="SECONDS", help=f"time for the login (default: {TIMEOUT})"
    )
    parser.add_argument("--status", action="store_true", help="list the logins and when they expire, and exit")


def command(args: argparse.Namespace) -> int:
    """Log in, or list the logins (``--status``)."""
    try:
        place = Place.of(args)
        return _status(place, args.server) if args.status else _log_in(place, args)
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    except Unavailable as problem:
        print_lines([f"samplegate: {problem}"], file=sys.stderr)
        return FAILED


class Place(msgspec.Struct, frozen=True):
    """The state folder, and the servers of the settings."""

    state: Path
    servers: dict[str, ServerSettings]

    @classmethod
    def of(cls, args: argparse.Namespace) -> Place:
        """Read the settings. Raises InputError with every problem."""
        problems: list[str] = []
        table = {**SETTINGS, **SERVE_SETTINGS}
        found = read_layers(table, os.environ, args.settings, {"state": args.state}, problems)
        values = plain_values(table, found)
        servers: dict[str, ServerSettings] = {}
        if "servers" in found.effective or "servers_file" in found.effective:
            part = found.effective.get("servers")
            servers = servers_of(None if part is None else found.section(part), values.get("servers_file"), found)
        if "state" not in values and not problems:
            problems.append(NO_STATE)
        if problems:
            raise InputError("\n".join(problems))
        return cls(values["state"].absolute(), servers)


def _log_in(place: Place, args: argparse.Namespace) -> int:
    server = _server(place, args)
    assert server.url is not None
    settings = _settings(server, args)
    if not 1 <= args.timeout <= MAX_TIMEOUT:
        raise InputError(f"--timeout: {args.timeout} is not a number of seconds from 1 to {MAX_TIMEOUT}")
    if not 0 <= args.redirect_port <= 65_535:
        raise InputError(f"--redirect-port: {args.redirect_port} is not a port from 0 to 65535")
    import anyio

    from samplegate.oauth.login import log_in

    async def run() -> Login:
        assert server.url is not None
        return await log_in(
            server.name,
            server.url,
            settings,
            headers=_headers(server),
            state=place.state,
            show=lambda url: _show(server.name, url, not args.no_browser, args.timeout),
            port=args.redirect_port,
            waits=args.timeout,
        )

    login = anyio.run(run)
    print_lines(
        [f"Logged in to {server.name}: {_described(login)}. The token is in {LoginFile(place.state, server.name).path}"]
    )
    return OK


def _server(place: Place, args: argparse.Namespace) -> ServerSettings:
    """The server of the command line or the settings. Raises InputError."""
    name = args.server
    if name is None:
        raise InputError("login: no server named; write samplegate login NAME, or list the logins with --status")
    if NAME.match(name) is None:
        raise InputError(f"login: {quoted(name)} is not a server name; use at most 64 letters, digits and . _ -")
    server = place.servers.get(name)
    if args.url is not None:
        why = url_error(args.url, query=True)
        if why is None and is_open(args.url):
            why = "is plain http to another machine, but tokens are only sent over https; use https"
        if why is not None:
            raise InputError(f"--url: {why}")
        return ServerSettings(name=name, url=args.url, oauth=None if server is None else server.oauth)
    if server is None:
        near = did_you_mean(name, place.servers)
        where = "is not in the settings" if place.servers else "has no URL"
        raise InputError(f"login: {name} {where}{near or '; pass its URL with --url, or --settings FILE'}")
    if server.url is None:
        raise InputError(f"login: {name} is a command, and only servers at a URL use OAuth")
    return server


def _headers(server: ServerSettings) -> dict[str, str]:
    try:
        return headers_of(server)
    except ValueError as problem:
        raise InputError(str(problem)) from None


def _settings(server: ServerSettings, args: argparse.Namespace) -> OAuthSettings:
    """The settings of the server with the options of the command line. Raises InputError."""
    settings = server.oauth or OAuthSettings()
    if settings.grant == "client_credentials":
        raise InputError(f"login: {server.name} uses client credentials, so the gate gets its tokens without a login")
    given = {
        "client_id": args.client_id,
        "client_secret_file": args.client_secret_from,
        "client_metadata_url": args.client_metadata_url,
        "issuer": args.issuer,
        "scope": args.scope,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    if "client_secret_file" in changed:
        changed["client_secret"] = None
    settings = msgspec.structs.replace(settings, **changed)
    problems = [f"{_OPTIONS.get(name, name)}: {why}" for name, why in oauth_errors(settings, _OPTIONS).items()]
    if problems:
        raise InputError("\n".join(problems))
    return settings


def _show(name: str, url: str, browser: bool, seconds: float) -> None:
    """Print the URL where the user logs in, and open it in a browser at a terminal."""
    print(f"Log in to {name} in a browser:\n\n{printable(url)}\n", flush=True)
    print(f"Waiting for the browser, at most {duration_text(seconds)}. Ctrl-C ends the login.", file=sys.stderr)
    if browser and is_web(url) and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        import webbrowser

        # some browsers only return when they are closed, and the login waits in this thread
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _status(place: Place, name: str | None) -> int:
    found = names(place.state)
    if name is not None and name not in found:
        hint = did_you_mean(name, found) or "; log in with: samplegate login NAME"
        print_error(f"login: there is no login {quoted(name)}{hint}")
        return FAILED
    shown = found if name is None else [name]
    lines = []
    for each in shown:
        try:
            login = LoginFile(place.state, each).read()
        except Unavailable as problem:
            lines.append(f"{each}: {problem}")
            continue
        if login is not None:
            lines.append(f"{each}: {login.url.partition('?')[0]}, {_described(login)}")
    print_lines(lines or [f"no logins in {place.state}"])
    return OK


def _described(login: Login) -> str:
    """Grant, expiry and scopes of a login, without secrets."""
    parts = ["client credentials"] if login.grant == "client_credentials" else []
    left = None if login.expires_at is None else login.expires_at - time.time()
    renewable = login.refresh_token is not None or login.grant == "client_credentials"
    if left is None:
        parts.append("token without an expiry")
    elif left > 0:
        parts.append(f"token expires in {duration_text(left)}{' and is then renewed' if renewable else ''}")
    else:
        parts.append(
            "token has expired and is renewed when it is used" if renewable else "token has expired; log in again"
        )
    if login.scope:
        parts.append(f"scopes: {login.scope}")
    return ", ".join(parts)
