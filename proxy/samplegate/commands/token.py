"""`samplegate token`: make a token for a caller of the daemon. The settings keep its hash only; the token itself is shown once and kept nowhere."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys
from typing import Final

from samplegate.settings.callers import NAME

BYTES: Final = 32  # of randomness: nobody guesses it, so a plain hash of it is enough


def command(args: argparse.Namespace) -> int:
    """The token on stdout, and on stderr the line that the settings need."""
    if NAME.match(args.caller) is None:
        print(
            f"samplegate: token: {args.caller!r} is no name of a caller; use at most 64 letters, digits and . _ @ -, but not local", file=sys.stderr
        )
        return 2
    token = f"sg_{secrets.token_urlsafe(BYTES)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    print(token)
    print(f"{args.caller} {digest}", file=sys.stderr)
    print("the first line is the caller's, and is shown only now; put the second into callers.tokens_file of the settings", file=sys.stderr)
    return 0
