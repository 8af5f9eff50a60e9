"""`samplegate status`: shows what the gates do now, from their state folder or a daemon's operators' listener."""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from json import dumps
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from samplegate.audit.record import timestamp
from samplegate.cli import OK, UNREADABLE
from samplegate.cli.color import has_color
from samplegate.cli.database_argument import database_argument
from samplegate.cli.files import json_text, print_error
from samplegate.config.serve_settings import SERVE_SETTINGS
from samplegate.config.settings import SETTINGS, ProcessSettings
from samplegate.config.sources import NO_STATE, gather
from samplegate.config.values import address
from samplegate.errors import InputError, Unavailable
from samplegate.postgres.url import is_database
from samplegate.postgres.url import shown as shown_url
from samplegate.printable import printable, without_hashes
from samplegate.runtime.status_socket import StatusFolder, ask
from samplegate.status.snapshot import MAX_BYTES, MAX_LISTED, GateStatus, Listed, Overview, plain, read_gate
from samplegate.status.table import WIDTH, lines
from samplegate.urls import url_error

INTERVAL: Final = 2.0  # seconds between two snapshots of --watch
TIMEOUT: Final = 5.0  # seconds for a daemon's answer
PROCESS_TIMEOUT: Final = 5.0  # seconds for the answer of a process of the state folder
MAX_GATES: Final = 200
ROWS: Final = 24  # of a terminal whose size is not known
THREADS: Final = 16
WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
BEGIN: Final = "\x1b[?1049h\x1b[?25l"
"""Codes of a terminal: another screen, without the cursor."""
END: Final = "\x1b[?25h\x1b[?1049l"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--state", type=Path, metavar="DIR", help="state folder that the gates share")
    database_argument(parser)
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings file of the gate, to find its state and its listener"
    )
    parser.add_argument(
        "--admin", metavar="URL", help="ask only the daemon whose operators' listener (admin_listen) has this URL"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token of the operators' listener (default: admin_token_file in the settings)",
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_interval,
        const=INTERVAL,
        metavar="SECONDS",
        help=f"repeat until interrupted (default: every {INTERVAL:g} seconds)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; with --watch, one line for each snapshot")


def _interval(text: str) -> float:
    """Seconds from 0.2 to 3600. Raises argparse.ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0.2 to 3600, got {text!r}")
    return seconds


def command(args: argparse.Namespace) -> int:
    """Print the status, once or repeatedly. Returns 2 if a gate or its state cannot be asked."""
    try:
        places = _places(args)
        if args.watch is None:
            return _once(places, json=args.json)
        return _watch(places, args.watch, json=args.json)
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE


class Places(msgspec.Struct, frozen=True):
    """Where to ask."""

    state: Path | None
    """The state folder; None if only a daemon is asked."""
    store: str
    database: str | None
    admin: str | None
    """The URL of an operators' listener."""
    token_file: Path | None


def _places(args: argparse.Namespace) -> Places:
    """What to ask, by the arguments, the variables and the settings. Raises InputError."""
    problems: list[str] = []
    named = {"state": args.state, "database": args.database}
    values, _ = gather({**SERVE_SETTINGS, **SETTINGS}, os.environ, args.settings, named, problems)
    if args.admin is not None and (fault := _url_fault(args.admin)) is not None:
        problems.append(f"--admin: {printable(args.admin[:200])!r} {fault}")
    if "state" not in values and args.admin is None:
        problems.append(NO_STATE)
    if problems:
        raise InputError("\nsamplegate: ".join(problems))
    listen = values.get("admin_listen")
    state = values.get("state", Path())
    return Places(
        None if args.admin is not None else state,
        ProcessSettings(state=state, store=values.get("store"), database=values.get("database")).reviews,
        values.get("database"),
        args.admin if args.admin is not None else None if listen is None else _url(listen),
        args.token_file or values.get("admin_token_file"),
    )


def _url_fault(text: str) -> str | None:
    why = url_error(text)
    return None if why is None else f"{why}; write it as http://127.0.0.1:9090"


def _url(listen: str) -> str | None:
    """The URL of a listen address on this machine; None for any free port."""
    at = address(listen)
    host = WILDCARDS.get(at.host, at.host)
    return None if not at.port else f"http://{f'[{host}]' if ':' in host else host}:{at.port}"


# -- asking
# ----------------------------------------------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True):
    """What was found, and whether a place that was named could not be asked."""

    overview: Overview
    failed: bool


def look(places: Places) -> Answer:
    """Ask all gates once. Never raises."""
    gates: list[GateStatus] = []
    problems: list[str] = []
    failed = False
    if places.state is not None:
        gates += _gates_of(places.state, problems)
    if places.admin is not None and not any(gate.command == "serve" for gate in gates):
        try:
            gates.append(_daemon(places.admin, places.token_file))
        except Unavailable as problem:
            problems.append(str(problem))
            failed = True
    overview = Overview(time=timestamp(time.time()), gates=tuple(gates), problems=tuple(problems))
    return Answer(overview, failed) if places.state is None else _with_state(places, places.state, overview, failed)


def _with_state(places: Places, state: Path, overview: Overview, failed: bool) -> Answer:
    """The overview with what only the state folder has."""
    from samplegate.runtime.status import state_limits, state_reviews

    now, problems = time.time(), list(overview.problems)
    limits: Listed[Any] = Listed()
    try:
        known = {(one.limit, one.quantity, one.per) for gate in overview.gates for one in gate.limits.items}
        limits = state_limits(state, places.database, now, known)
    except Unavailable as problem:
        problems.append(str(problem))
        failed = True
    reviews = None
    shown = {gate.reviews.store for gate in overview.gates if gate.reviews is not None}
    if is_database(places.store):
        place, exists = shown_url(places.store), True
    else:
        place, exists = places.store, Path(places.store.partition(":")[2]).exists()
    if place not in shown and exists:
        reviews = state_reviews(places.store, now)
        failed = failed or reviews.problem is not None
    changed = msgspec.structs.replace(
        overview, state=str(state.absolute()), limits=limits, reviews=reviews, problems=tuple(problems)
    )
    return Answer(changed, failed)


def _gates_of(state: Path, problems: list[str]) -> list[GateStatus]:
    """The gates whose state folder this is."""
    if not hasattr(socket, "AF_UNIX"):
        return []
    try:
        folder = StatusFolder.open(state, make=False)
    except FileNotFoundError:
        return []
    except OSError as problem:
        problems.append(f"{state / 'status'}: {(problem.strerror or str(problem)).lower()}")
        return []
    with folder, ThreadPoolExecutor(THREADS) as threads:
        named = list(folder.sockets())
        if len(named) > MAX_GATES:
            problems.append(f"{state / 'status'}: {len(named)} sockets; only {MAX_GATES} are asked")
        answers = list(threads.map(lambda each: _ask(folder, *each), named[:MAX_GATES]))
    found = [_read(pid, answer) for answer, (_, pid) in zip(answers, named, strict=False)]
    problems += [one for one in found if isinstance(one, str)]
    gates = {one.instance: one for one in found if isinstance(one, GateStatus)}
    return sorted(gates.values(), key=lambda gate: (gate.command != "serve", -gate.uptime))


def _ask(folder: StatusFolder, name: str, pid: int) -> bytes | str | None:
    """The answer of a process, a problem, or None if the process has ended.

    It is not parsed in this thread: msgspec crashes if two threads use a struct for the first time at once.
    """
    try:
        return ask(folder, name, PROCESS_TIMEOUT, MAX_BYTES)
    except Unavailable as problem:
        return f"process {pid}: {problem}"


def _read(pid: int, answer: bytes | str | None) -> GateStatus | str | None:
    """The status that a process answered, a problem, or None if the process has ended."""
    if not isinstance(answer, bytes):
        return answer
    try:
        return read_gate(answer)
    except ValueError:
        return f"process {pid}: its answer has another format; use the same version of samplegate"


def _daemon(url: str, token_file: Path | None) -> GateStatus:
    """The status of the daemon at an operators' listener. Raises Unavailable."""
    headers = {"accept": "application/json"}
    if token_file is not None:
        try:
            headers["authorization"] = f"Bearer {token_file.read_text('latin-1').strip()}"
        except OSError as problem:
            raise Unavailable(
                f"{token_file}: cannot be read: {(problem.strerror or str(problem)).lower()}; set --token-file to a"
                " file with the token of admin_token_file"
            ) from None
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT)
    deadline: threading.Timer | None = None
    late = threading.Event()
    try:
        connection.connect()
        # the timeout of a socket begins again with each byte
        deadline = threading.Timer(TIMEOUT, _cut, (connection.sock, late))
        deadline.daemon = True
        deadline.start()
        connection.request("GET", f"{parts.path.rstrip('/')}/status", headers=headers)
        response = connection.getresponse()
        text = response.read(MAX_BYTES + 1)
        if late.is_set():  # what was read may be cut
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or str(problem) or type(problem).__name__).lower()
        why = f"nothing complete within {TIMEOUT:g} s" if late.is_set() else why
        raise Unavailable(
            f"{url}: no answer: {printable(why)}; check that the daemon runs and that admin_listen has this address"
        ) from None
    finally:
        if deadline is not None:
            deadline.cancel()
        connection.close()
    if response.status == 200:
        try:
            return read_gate(text)
        except ValueError:
            raise Unavailable(
                f"{url}: its answer is not the status of this version; check the URL, and use the same version"
            ) from None
    said = printable(text[:300].decode("utf-8", "replace").strip().partition("\n")[0])
    remedy = {
        401: "set --token-file to a file with the token of admin_token_file",
        403: "set admin_token_file in the settings of the daemon, or ask on its own machine",
        404: "check the URL, and the version of the daemon",
    }.get(response.status, "see the log of the daemon")
    raise Unavailable(f"{url}: {response.status}: {said}; {remedy}")


def _cut(connection: socket.socket, late: threading.Event) -> None:
    """End what another thread reads or writes."""
    late.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# -- printing
# ----------------------------------------------------------------------------------------------------------------------


def _once(places: Places, *, json: bool) -> int:
    answer = look(places)
    overview = answer.overview
    if json:
        print(json_text(plain(overview)))
    else:
        if overview.gates or places.state is not None:  # a daemon that cannot be asked may run
            # problems are on stderr
            for line in _lines(msgspec.structs.replace(overview, problems=())):
                print(line)
        for problem in overview.problems:
            print_error(problem)
    return UNREADABLE if answer.failed else OK


def _lines(overview: Overview, *, most: int = MAX_LISTED, heading: str = "") -> list[str]:
    width = shutil.get_terminal_size((WIDTH, ROWS)).columns
    return lines(overview, width, color=has_color(sys.stdout), most=most, heading=heading)


def _watch(places: Places, seconds: float, *, json: bool, pause: Callable[[float], Any] = time.sleep) -> int:
    """Print snapshots until KeyboardInterrupt. A first snapshot that fails is the last; later failures are shown."""
    answer = look(places)
    if answer.failed:
        for problem in answer.overview.problems:
            print_error(problem)
        return UNREADABLE
    try:
        with _screen(wanted=sys.stdout.isatty() and not json) as screen:
            while True:
                _show(answer.overview, seconds, json=json, screen=screen)
                pause(seconds)
                answer = look(places)
    except KeyboardInterrupt:
        return OK


@contextmanager
def _screen(*, wanted: bool) -> Iterator[bool]:
    """Another screen of the terminal, which is left at the end, also by SIGTERM."""
    if not wanted:
        yield False
        return

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    sys.stdout.write(BEGIN)
    try:
        yield True
    finally:
        sys.stdout.write(END)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)


def _show(overview: Overview, seconds: float, *, json: bool, screen: bool) -> None:
    """Print one snapshot. On a terminal, it replaces the last in one write, so that nothing flickers."""
    if json:
        print(without_hashes(dumps(plain(overview)), escape=r"\u0023"), flush=True)
        return
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    heading = f"status at {now}, every {seconds:g} s"
    if not screen:
        print("\n".join([*_lines(overview, heading=heading), ""]), flush=True)
        return
    rows = shutil.get_terminal_size((WIDTH, ROWS)).lines
    found = _lines(overview, most=max(3, rows // 8), heading=heading)
    if len(found) > rows - 1:
        found = [*found[: rows - 2], f"and {len(found) - rows + 2} more lines"]
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in found) + "\x1b[J")
    sys.stdout.flush()
