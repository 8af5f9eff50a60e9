"""``samplegate clients``: lists the configuration files of MCP clients, their servers, and which are wrapped."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import assert_never

import msgspec

from samplegate.cli import OK, UNREADABLE
from samplegate.cli.client_files import Target, file_arguments, targets
from samplegate.cli.files import STDOUT, print_error, print_lines, write_json
from samplegate.cli.wrap import shown
from samplegate.clients.faults import FileFault
from samplegate.clients.known import CLIENTS, locations
from samplegate.clients.plan import Row, survey
from samplegate.clients.wrapper import Open, Skipped, Wrapped
from samplegate.errors import InputError


class ClientServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server in a client's file, for ``--json``."""

    name: str
    pointer: str
    state: str
    """wrapped, open (it can be wrapped) or skipped."""
    policy: str | None = None
    reason: str | None = None


class ClientFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a client, for ``--json``."""

    client: str
    """Name of the client; empty for a file that the user named."""
    path: str
    scope: str
    fixed: str | None = None
    """Why `wrap` never edits it."""
    problem: str | None = None
    """Why it cannot be read."""
    servers: tuple[ClientServer, ...] = ()


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    file_arguments(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="also list the files that do not exist")
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="print one JSON object, or write it to this file"
    )


def command(args: argparse.Namespace) -> int:
    """List files and servers. Returns 2 if a file cannot be read."""
    try:
        found = [_file(target) for target in targets(args)]
        missing = _missing(args, found) if args.verbose else []
        if args.json is not None:
            shown = {"files": [msgspec.to_builtins(file) for file in found]}
            write_json(args.json, shown | ({"missing": missing} if args.verbose else {}))
        else:
            print_lines(line for file in found for line in _lines(file))
            print_lines(f"not found: {path}" for path in missing)
            if not found:
                print_lines(["no file of a client was found; name one with --file PATH"])
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    return UNREADABLE if any(file.problem for file in found) else OK


def _file(target: Target) -> ClientFile:
    servers: tuple[ClientServer, ...] = ()
    fault: str | None = None
    try:
        servers = tuple(map(_server, survey(target.read().data, target.source)))
    except FileFault as problem:
        fault = str(problem)
    return ClientFile(
        client=target.client,
        path=str(target.path),
        scope=target.scope,
        fixed=target.fixed or None,
        problem=fault,
        servers=servers,
    )


def _server(row: Row) -> ClientServer:
    name, pointer = shown(row.entry.key, row.entry.name), row.entry.pointer
    match row.state:
        case Wrapped():
            return ClientServer(name=name, pointer=pointer, state="wrapped", policy=row.state.call.policy)
        case Open():
            return ClientServer(name=name, pointer=pointer, state="open")
        case Skipped():
            return ClientServer(name=name, pointer=pointer, state="skipped", reason=row.state.reason)
        case _:
            assert_never(row.state)


def _lines(file: ClientFile) -> Iterator[str]:
    title = CLIENTS[file.client].title if file.client else "file"
    yield f"{title}: {file.path}" + (f" (never edited: {file.fixed})" if file.fixed else "")
    if file.problem is not None:
        yield f"  cannot be read: {file.problem}"
    elif not file.servers:
        yield "  no servers"
    for server in file.servers:
        told = {
            "wrapped": f"wrapped, policy {server.policy or 'unknown'}",
            "open": "not wrapped",
            "skipped": f"skipped: {server.reason}",
        }[server.state]
        yield f"  {server.name}: {told}"


def _missing(args: argparse.Namespace, found: list[ClientFile]) -> list[str]:
    """The files that were looked for and do not exist. Raises InputError."""
    if args.file is not None:
        return []
    there = {file.path for file in found}
    return [
        location.path
        for client in ([args.client] if args.client else CLIENTS)
        for location in locations(client, platform=sys.platform, environ=os.environ, cwd=str(Path.cwd()))
        if location.path not in there and "*" not in location.path
    ]
