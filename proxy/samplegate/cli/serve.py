"""`samplegate serve`: its arguments. They are parsed before the daemon is imported."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from samplegate.cli.run import (
    HEADER_ENV,
    HEADER_FROM,
    LOG_LEVEL,
    LOG_LEVELS,
    PROTOCOL,
    PROTOCOLS,
    RUN,
    add_oauth_arguments,
)

USAGE = """\
samplegate serve [--settings FILE] [--policy FILE] [--listen HOST:PORT] [--admin-listen HOST:PORT] [--server NAME]
                        [--env-file FILE] [--state DIR] [--decision-log PATH|sqlite:PATH|none]
                        [--log-level debug|info|warning|error]
                        [--protocol auto|legacy|modern] [--run ID] [--check]
                        [--url URL [--header-from NAME=FILE]... [--header-env NAME=VARIABLE]...
                         [--oauth-client-id ID --oauth-issuer URL
                          (--oauth-client-secret-from FILE | --oauth-client-secret-env VARIABLE |
                           --oauth-private-key FILE) [--oauth-scope SCOPES]]
                        | -- CMD ARGS...]"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = USAGE
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings file: servers, callers, listeners, size limits"
    )
    parser.add_argument("--policy", type=Path, metavar="FILE", help="policy file (default: the one in the settings)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="listen address for clients (default: 127.0.0.1:8080)")
    parser.add_argument(
        "--admin-listen",
        metavar="HOST:PORT",
        help="listen address for metrics, health, status and reload (default: none)",
    )
    parser.add_argument(
        "--server",
        metavar="NAME",
        help="name of the command line's server in the policy and the URL (default: default)",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="wrap the Streamable HTTP server at this URL instead of the servers in the settings",
    )
    parser.add_argument("--header-from", action="append", default=[], metavar="NAME=FILE", help=HEADER_FROM)
    parser.add_argument("--header-env", action="append", default=[], metavar="NAME=VARIABLE", help=HEADER_ENV)
    add_oauth_arguments(parser)
    parser.add_argument("--protocol", choices=PROTOCOLS, help=PROTOCOL)
    parser.add_argument("--run", metavar="ID", help=RUN)
    parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="file of NAME=value lines: API keys, and values for ${VAR}"
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="folder for persistent state: shared limits, reviews, the decision log",
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, help=LOG_LEVEL)
    parser.add_argument(
        "--decision-log",
        metavar="PATH|sqlite:PATH|none",
        help="where decisions are recorded (default: a file in the state folder)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the settings and the policy as at the start, print every problem, and exit with 0 or 2; nothing is"
        " started, bound or created",
    )


def command(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, or only check the start."""
    if args.check:
        return _check(args)
    from samplegate.server.daemon import serve_command

    return serve_command(args)


def _check(args: argparse.Namespace) -> int:
    """Print every problem and warning of the command line. Returns 0 if `serve` can start, otherwise 2."""
    from samplegate.cli import OK, UNREADABLE
    from samplegate.cli.files import count, print_lines
    from samplegate.server.start_check import check_start

    found = check_start(args)
    problems = [*found.problems, *map(str, found.policy_problems)]
    warnings = [*found.warnings, *map(str, found.policy_warnings)]
    print_lines((f"samplegate: {problem}" for problem in problems), file=sys.stderr)
    print_lines((f"samplegate: warning: {warning}" for warning in warnings), file=sys.stderr)
    if problems:
        return UNREADABLE
    print_lines([f"ok, {count(len(found.settings.servers), 'server')}, policy {found.policy}"])
    return OK
