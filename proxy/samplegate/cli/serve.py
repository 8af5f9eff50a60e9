"""`samplegate serve`: its arguments. They are parsed before the daemon is imported."""

from __future__ import annotations

import argparse
from pathlib import Path

from samplegate.cli.run import HEADER_FROM, PROTOCOL, PROTOCOLS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = (
        "samplegate serve [--settings FILE] [--policy FILE] [--listen HOST:PORT] [--admin-listen HOST:PORT] [--server"
        " NAME]\n                        [--env-file FILE] [--state DIR] [--decision-log PATH|sqlite:PATH|none]\n      "
        "                  [--protocol auto|legacy|modern] [--url URL [--header-from NAME=FILE]... | -- CMD ARGS...]"
    )
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings of the process: servers, callers, listeners, bounds"
    )
    parser.add_argument("--policy", type=Path, metavar="FILE", help="the rules (default: that of the settings)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where clients find it (default: 127.0.0.1:8080)")
    parser.add_argument(
        "--admin-listen", metavar="HOST:PORT", help="where operators find metrics, health and reload (default: nowhere)"
    )
    parser.add_argument(
        "--server",
        metavar="NAME",
        help="what the rules and the URL call the server of the command line (default: default)",
    )
    parser.add_argument("--url", metavar="URL", help="one server, at this URL, in place of the settings' servers")
    parser.add_argument("--header-from", action="append", default=[], metavar="NAME=FILE", help=HEADER_FROM)
    parser.add_argument("--protocol", choices=PROTOCOLS, help=PROTOCOL)
    parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="NAME=value lines: keys for the models, values for ${VAR}"
    )
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="what outlives the process: limits, reviews, the decision log"
    )
    parser.add_argument("--decision-log", metavar="PATH|sqlite:PATH|none", help="where the decisions are recorded")


def command(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    from samplegate.server.daemon import serve_command

    return serve_command(args)
