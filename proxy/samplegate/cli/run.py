"""`samplegate run`: its arguments. They are parsed before the gate is imported, because every session of a client
starts here."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from samplegate.cli.database_argument import database_argument

HEADER_FROM = "header for every request to --url, such as Authorization, and the file with its value; repeatable"
HEADER_ENV = (
    "the same with the environment variable that has the value, which is withheld from all other processes; repeatable"
)

OAUTH = {
    "--oauth-client-id": ("ID", "get tokens for --url by client credentials (OAuth) with this client"),
    "--oauth-client-secret-from": ("FILE", "file with the client's secret"),
    "--oauth-client-secret-env": (
        "VARIABLE",
        "environment variable with the client's secret, which is withheld from all other processes",
    ),
    "--oauth-private-key": ("FILE", "PEM file with the client's private key, in place of a secret"),
    "--oauth-issuer": ("URL", "issuer URL of the client's authorization server; the secret is sent only there"),
    "--oauth-scope": ("SCOPES", "scopes to request, separated by spaces (default: those that the server asks for)"),
}

RECORD_MODES = ("once", "replay", "all")
RECORD_MODE = (
    "once: record requests that are not in the file (the default); replay: answer from the file, and ask no model and"
    " no client (the default if the environment has CI); all: record all requests, and replace the file at the end"
)

RUN = "ID of the run, for limits per run and `report --run` (default: the ID of the CI job)"

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_LEVEL = "lowest level of events that are logged on stderr (default: info)"

PROTOCOLS = ("auto", "legacy", "modern")
PROTOCOL = (
    "protocol version of the server on the command line: 2025-11-25 and older (legacy), 2026-07-28 (modern), or"
    " detected (auto, the default)"
)


USAGE = """\
samplegate run --policy FILE [--server NAME] [--settings FILE] [--env-file FILE] [--state DIR]
                      [--database URL]
                      [--decision-log PATH|sqlite:PATH|database|none] [--metrics-file PATH] [--metrics-port PORT]
                      [--log-level debug|info|warning|error]
                      [--reviews-listen HOST:PORT]
                      [--start-timeout SECONDS] [--call-timeout SECONDS] [--end-of-input-timeout SECONDS]
                      [--protocol auto|legacy|modern]
                      [--record FILE [--record-mode once|replay|all] [--unused fail|ignore]]
                      [--run ID] [--strict | --fail-on WORDS]
                      (--url URL [--header-from NAME=FILE]... [--header-env NAME=VARIABLE]...
                       [--oauth-client-id ID --oauth-issuer URL
                        (--oauth-client-secret-from FILE | --oauth-client-secret-env VARIABLE |
                         --oauth-private-key FILE) [--oauth-scope SCOPES]]
                      | -- CMD ARGS...)"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = USAGE
    parser.add_argument("--policy", type=Path, required=True, metavar="FILE", help="policy file")
    parser.add_argument(
        "--server",
        metavar="NAME",
        help="name of this server in the policy (default: the name in the settings, or `default`)",
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings file")
    parser.add_argument(
        "--env-file",
        type=Path,
        metavar="FILE",
        help="file of NAME=value lines: API keys, and values for ${VAR} in the policy",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="folder for persistent state: shared limits, reviews, the decision log",
    )
    database_argument(parser, "database for shared limits and reviews, which gates on several machines share")
    parser.add_argument("--log-level", choices=LOG_LEVELS, help=LOG_LEVEL)
    parser.add_argument(
        "--decision-log",
        metavar="PATH|sqlite:PATH|database|none",
        help="where decisions are recorded (default: a file in the state folder)",
    )
    parser.add_argument(
        "--metrics-file",
        metavar="PATH",
        help="write Prometheus metrics here periodically; {server} and {pid} are replaced",
    )
    parser.add_argument(
        "--metrics-port",
        metavar="PORT",
        help="serve Prometheus metrics on 127.0.0.1 at this port (0: any free port, -1: none, the default)",
    )
    parser.add_argument(
        "--reviews-listen",
        metavar="HOST:PORT",
        help="serve the reviewers' page at this address, such as 127.0.0.1:0 (any free port); `samplegate reviews open`"
        " signs you in",
    )
    parser.add_argument("--url", metavar="URL", help="wrap the Streamable HTTP server at this URL instead of a command")
    parser.add_argument("--header-from", action="append", default=[], metavar="NAME=FILE", help=HEADER_FROM)
    parser.add_argument("--header-env", action="append", default=[], metavar="NAME=VARIABLE", help=HEADER_ENV)
    add_oauth_arguments(parser)
    parser.add_argument(
        "--start-timeout",
        metavar="SECONDS",
        help="timeout for the server's answer to its first request (default: 30)",
    )
    parser.add_argument(
        "--call-timeout",
        metavar="SECONDS",
        help="timeout for the server's answer to any other request (default: 0, no limit)",
    )
    parser.add_argument(
        "--end-of-input-timeout",
        metavar="SECONDS",
        help="how long to wait for pending answers after the client's input ends (default: 60)",
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, help=PROTOCOL)
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="cassette: a file in which the answers of models and clients are recorded, with their content, as scripted"
        " cases, or from which they are replayed",
    )
    parser.add_argument("--record-mode", choices=RECORD_MODES, help=RECORD_MODE)
    parser.add_argument(
        "--unused",
        choices=("fail", "ignore"),
        help="with --record-mode replay: if cases were not used, exit with 3 and list them (fail), or only count them"
        " (ignore, the default)",
    )
    parser.add_argument("--run", metavar="ID", help=RUN)
    failing = parser.add_mutually_exclusive_group()
    failing.add_argument(
        "--strict", action="store_true", help="exit with 3 and list the requests if any were denied or not answered"
    )
    failing.add_argument(
        "--fail-on",
        type=_words,
        default=(),
        metavar="WORDS",
        help="exit with 3 and list the requests if any were one of these, separated by commas: denied, unanswered,"
        " escalated, limit, unpriced, no_requests, dropped",
    )


def add_oauth_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of client credentials, which `run` and `serve` share."""
    for option, (value, text) in OAUTH.items():
        parser.add_argument(option, type=Path if value == "FILE" else str, metavar=value, help=text)


def _words(text: str) -> tuple[str, ...]:
    """The words of `--fail-on`. Raises argparse.ArgumentTypeError."""
    from samplegate.audit.verdict import fail_on_words

    try:
        return fail_on_words(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def resolve_record_mode(args: argparse.Namespace, environment: Mapping[str, str]) -> str | None:
    """Set the record mode if the command line does not give it: ``replay`` in CI, else ``once``. Returns why the
    arguments contradict each other, or None."""
    args.replays_in_ci = False
    if args.record is None:
        wrong = "--record-mode" if args.record_mode is not None else "--unused" if args.unused is not None else None
        return None if wrong is None else f"{wrong} needs --record FILE"
    if args.record_mode is None:
        args.replays_in_ci = environment.get("CI", "").strip().lower() not in ("", "0", "false")
        args.record_mode = "replay" if args.replays_in_ci else "once"
    if args.unused is not None and args.record_mode != "replay":
        return f"--unused needs --record-mode replay, but the mode is {args.record_mode}"
    return None


def command(args: argparse.Namespace) -> int:
    """Wrap one server."""
    from samplegate.runtime.run import run_command

    return run_command(args)
