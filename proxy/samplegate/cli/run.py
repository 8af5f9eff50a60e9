"""`samplegate run`: its arguments. They are parsed before the gate is imported, because every session of a client
starts here."""

from __future__ import annotations

import argparse
from pathlib import Path

HEADER_FROM = (
    "a header of every request to --url, such as Authorization, with the file that holds its value; may be given again"
)

PROTOCOLS = ("auto", "legacy", "modern")
PROTOCOL = (
    "protocol version for the server of the command line: 2025-11-25 and older (legacy), 2026-07-28 (modern), or"
    " detected (auto, the default)"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = (
        "samplegate run --policy FILE [--server NAME] [--settings FILE] [--env-file FILE] [--state DIR]\n              "
        "        [--decision-log PATH|sqlite:PATH|none] [--metrics-file PATH] [--metrics-port PORT]\n                  "
        "    [--start-timeout SECONDS] [--call-timeout SECONDS] [--end-of-input-timeout SECONDS]\n                     "
        " [--protocol auto|legacy|modern] [--record FILE] [--strict] (--url URL [--header-from NAME=FILE]... | -- CMD"
        " ARGS...)"
    )
    parser.add_argument("--policy", type=Path, required=True, metavar="FILE", help="the rules")
    parser.add_argument(
        "--server", metavar="NAME", help="what the rules call this server (default: that of the settings, else default)"
    )
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings of the process: folders, records, secrets"
    )
    parser.add_argument(
        "--env-file",
        type=Path,
        metavar="FILE",
        help="NAME=value lines: keys for the models, values for ${VAR} in the policy",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="what outlives the process: limits shared by several, reviews, the decision log",
    )
    parser.add_argument(
        "--decision-log",
        metavar="PATH|sqlite:PATH|none",
        help="where the decisions are recorded (default: a file in the state folder)",
    )
    parser.add_argument(
        "--metrics-file",
        metavar="PATH",
        help="write Prometheus metrics here now and then; {server} and {pid} are filled in",
    )
    parser.add_argument(
        "--metrics-port",
        metavar="PORT",
        help="let Prometheus ask for the metrics at this port of 127.0.0.1 (0: any free one)",
    )
    parser.add_argument(
        "--url", metavar="URL", help="wrap the server at this URL, over Streamable HTTP, in place of a command"
    )
    parser.add_argument("--header-from", action="append", default=[], metavar="NAME=FILE", help=HEADER_FROM)
    parser.add_argument(
        "--start-timeout",
        metavar="SECONDS",
        help="how long the server may take to answer its first request (default: 30)",
    )
    parser.add_argument(
        "--call-timeout",
        metavar="SECONDS",
        help="how long it may take to answer any other request (default: 0, no limit)",
    )
    parser.add_argument(
        "--end-of-input-timeout",
        metavar="SECONDS",
        help="how long to wait for answers after the end of input (default: 60)",
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, help=PROTOCOL)
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write what models and clients answer as scripted cases, contents and all",
    )
    parser.add_argument(
        "--strict", action="store_true", help="leave with 3, and list them, where requests ended denied or unanswered"
    )


def command(args: argparse.Namespace) -> int:
    """Wrap one server."""
    from samplegate.runtime.run import run_command

    return run_command(args)
