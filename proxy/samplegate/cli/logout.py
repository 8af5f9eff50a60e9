"""`samplegate logout`: revokes the tokens of a login, if the authorization server offers that, and deletes them."""

from __future__ import annotations

import argparse
import sys

from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.files import print_error, print_lines
from samplegate.cli.login import Place, add_place
from samplegate.config.servers import NAME
from samplegate.errors import InputError, Unavailable
from samplegate.yamlfile.tree import quoted


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("server", metavar="NAME", help="name of the server")
    add_place(parser)


def command(args: argparse.Namespace) -> int:
    """Log out."""
    try:
        place = Place.of(args)
        if NAME.match(args.server) is None:
            raise InputError(f"logout: {quoted(args.server)} is not a server name")
        import anyio

        from samplegate.oauth.login import log_out

        revoked, why = anyio.run(log_out, args.server, place.state)
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    except Unavailable as problem:
        print_lines([f"samplegate: {problem}"], file=sys.stderr)
        return FAILED
    if revoked:
        print_lines([f"Logged out of {args.server}: its tokens are revoked and deleted."])
    else:
        print_lines([f"Logged out of {args.server}: its tokens are deleted, but may still be valid: {why}."])
    return OK
