"""Clients' files for `wrap`, `unwrap` and `clients`: which files a command line means, and how the gate is started."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from samplegate.cli.files import STATE, state_of
from samplegate.clients import store
from samplegate.clients.document import Format, Key
from samplegate.clients.faults import FileFault
from samplegate.clients.gate_call import NAME, Gate
from samplegate.clients.journal import Journal
from samplegate.clients.known import CLIENTS, locations
from samplegate.clients.plan import Source
from samplegate.clients.shapes import SHAPES
from samplegate.clients.store import Snapshot
from samplegate.clients.wrapper import Rules
from samplegate.config.servers import header_error
from samplegate.errors import InputError
from samplegate.files import SQLITE

_TEMPORARY: Final = re.compile(r"(archive|environments|builds)-v\d+|\.cache")
"""Folders of uv and pipx with environments that they may remove."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One file of a client."""

    client: str
    """Name in CLIENTS; empty for a file that the user named."""
    path: Path
    source: Source
    root: str = ""
    """The folder that the client looks in."""
    scope: str = "file"
    fixed: str = ""
    """Why it is never edited."""

    def read(self) -> Snapshot:
        """Read the file. Raises FileFault, also for a link that leads away from where the client's files are."""
        if self.client:
            roots = (self.root, _home(os.environ), *(os.environ.get(name, "") for name in _FOLDERS))
            folders = [folder for folder in map(Path, roots) if folder.is_absolute()]
            out = store.leads_out(self.path, (Path.cwd(), *folders))
            if out is not None and not self.fixed:
                raise FileFault(f"it is a link that leads out of your home folder, to {out}; name it with --file")
        return store.snapshot(self.path)


_FOLDERS: Final = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA")


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("USERPROFILE" if sys.platform == "win32" else "HOME", "")


def file_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose files."""
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--client", choices=CLIENTS, help="edit the files of this client (default: those of all clients that are found)"
    )
    chosen.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="edit this file of any client: JSON (comments are allowed) or TOML",
    )
    parser.add_argument(
        "--key",
        metavar="KEY",
        help="with --file: the key of the servers, or a JSON pointer such as /mcp/servers (default: mcpServers, in TOML"
        " mcp_servers)",
    )
    parser.add_argument(
        "--shape",
        choices=SHAPES,
        help="with --file: how the client writes a server (default: command-args, in TOML codex)",
    )


def edit_arguments(parser: argparse.ArgumentParser, word: str) -> None:
    """Add the arguments that say what happens to the files."""
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help=f"{word} only servers with such a name; repeatable",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="write the files (default: print the changes)")
    what.add_argument("--out", type=Path, metavar="FILE", help="write the changed file here, and leave the original")
    what.add_argument(
        "--check",
        action="store_true",
        help=f"write nothing, and exit with 1 if a server is {'not ' * (word == 'wrap')}wrapped",
    )
    state_argument(parser)


def state_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the state folder."""
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="state folder with the journal and the backups (default: that of `samplegate run`)",
    )


def journal_of(args: argparse.Namespace) -> Journal:
    """The journal in the state folder. Raises InputError."""
    state = state_of(args.state, os.environ)
    if state is None:
        raise InputError(f"--state: the home folder is unknown; pass --state, or set {STATE}")
    return Journal(state.absolute())


def targets(args: argparse.Namespace, *, remote: bool = False) -> list[Target]:
    """The existing files that a command line means. Raises InputError."""
    if args.file is not None:
        return [_named(args, remote)]
    if (option := next((name for name in ("key", "shape") if getattr(args, name) is not None), None)) is not None:
        raise InputError(f"--{option} needs --file PATH")
    return [target for client in ([args.client] if args.client else CLIENTS) for target in of_client(client, remote)]


def of_client(name: str, remote: bool = False) -> Iterator[Target]:
    """The existing files of a client."""
    client = CLIENTS[name]
    seen = set[str]()
    for location in locations(name, platform=sys.platform, environ=os.environ, cwd=str(Path.cwd())):
        rules = Rules(
            shape=SHAPES[client.shape], remote=remote, joins_words=client.joins_words, header_fault=_header_fault
        )
        source = Source(format=client.format, keys=location.keys, rules=rules)
        for path in store.found(location):
            if str(path) not in seen:
                seen.add(str(path))
                yield Target(
                    client=name,
                    path=path,
                    source=source,
                    root=location.root,
                    scope=location.scope,
                    fixed=location.fixed,
                )


def _named(args: argparse.Namespace, remote: bool) -> Target:
    path: Path = args.file
    format: Format = "toml" if path.suffix.lower() == ".toml" else "json"
    key = args.key if args.key is not None else "mcp_servers" if format == "toml" else "mcpServers"
    shape = SHAPES[args.shape or ("codex" if format == "toml" else "command-args")]
    rules = Rules(shape=shape, remote=remote, header_fault=_header_fault)
    return Target(client="", path=path.absolute(), source=Source(format=format, keys=(key_of(key),), rules=rules))


def key_of(text: str) -> Key:
    """The keys that `--key` means: a JSON pointer if it begins with a slash, nothing for the whole file, else one
    key."""
    if not text.startswith("/"):
        return (text,) if text else ()
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def _header_fault(name: str, names: object) -> str | None:
    return header_error(name, "", names if isinstance(names, list) else [])


def gate_of(policy: Path, options: tuple[str, ...]) -> Gate:
    """How a client starts the gate: as this process was started. Raises InputError if that may not last."""
    started = Path(sys.argv[0] if sys.argv else "")
    beside = Path(sys.executable).with_name(started.name if started.name.startswith(NAME) else NAME)
    program = next(
        (
            path.absolute()
            for path in (started, beside)
            if path.name.lower().removesuffix(".exe") == NAME and path.is_file() and os.access(path, os.X_OK)
        ),
        None,
    )
    command, prefix = (str(program), ()) if program else (sys.executable, ("-m", NAME))
    if any(_TEMPORARY.fullmatch(part) for part in Path(os.path.realpath(command)).parts):
        raise InputError(
            f"wrap: this samplegate is in a temporary environment, {Path(command).parent}, which may be removed;"
            " install it with `uv tool install` or `pipx install`, and run that one"
        )
    return Gate(command=command, prefix=prefix, policy=str(_plain_path(policy)), options=_with_paths(options))


_FILES: Final = frozenset(
    "--settings --env-file --state --decision-log --metrics-file --record --header-from --oauth-client-secret-from"
    " --oauth-private-key".split()
)
"""Options of `run` with a path."""


def _with_paths(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options with absolute paths, because a client starts the gate in a folder of its own."""
    found: list[str] = []
    for before, word in zip(("", *options), options, strict=False):
        name, equals, value = word.partition("=")
        if before in _FILES:
            found.append(_absolute(before, word))
        elif name in _FILES and equals:
            found.append(f"{name}={_absolute(name, value)}")
        else:
            found.append(word)
    return tuple(found)


def _absolute(option: str, value: str) -> str:
    """The value of an option with an absolute path: PATH, NAME=PATH of a header, `sqlite:PATH`, or `none`."""
    start, path = "", value
    if option == "--header-from":
        name, equals, path = value.partition("=")
        start = f"{name}{equals}"
    elif option == "--decision-log" and value.startswith(SQLITE):
        start, path = SQLITE, value.removeprefix(SQLITE)
    elif option == "--decision-log" and value == "none":
        return value
    return f"{start}{_plain_path(Path(path))}"


def _plain_path(path: Path) -> Path:
    """The absolute path without ``..``, whose folder could disappear."""
    plain = Path(os.path.normpath(path.absolute()))
    with suppress(OSError):
        if not plain.samefile(path):  # a link came before the ..
            return path.resolve()
    return plain
