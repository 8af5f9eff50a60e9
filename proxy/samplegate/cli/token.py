"""`samplegate token`: creates a token for a caller or a reviewer, and its hash for the settings. The token is shown
only once."""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import sys
from pathlib import Path
from typing import Final, get_args

from samplegate.config.assertions import Role
from samplegate.config.identities import PersonToken, Token

BYTES: Final = 32  # random bytes: enough that a plain hash is safe
_NO_HASH: Final = "0" * 64


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("caller", metavar="NAME", help="name used in rules, limits and audit history")
    parser.add_argument("--role", choices=get_args(Role), help="create a token for a reviews user with this role")
    parser.add_argument(
        "--reviewers", metavar="NAME,NAME", help="reviewers (in the policy) that the user can decide for (default: all)"
    )
    parser.add_argument(
        "--groups", metavar="NAME,NAME", help="groups of the caller, for `groups` in rules (default: none)"
    )
    parser.add_argument(
        "--append", type=Path, metavar="FILE", help="append the hash to this tokens file, and print only the token"
    )


def command(args: argparse.Namespace) -> int:
    """Print the token to stdout, and the line for the settings to stderr or to the end of a file."""
    why = _argument_error(args.caller, args.role, args.reviewers, args.groups)
    if why is not None:
        print(f"samplegate: token: {why}", file=sys.stderr)
        return 2
    token = f"sg_{secrets.token_urlsafe(BYTES)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    words = (
        [args.caller, digest, *([args.groups] if args.groups else [])]
        if args.role is None
        else [args.caller, args.role, digest, *([args.reviewers] if args.reviewers else [])]
    )
    whose, section = ("caller", "callers") if args.role is None else ("user", "people")
    if args.append is not None:
        try:
            _append(args.append, " ".join(words))
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            print(f"samplegate: token: --append: {args.append} cannot be written: {reason}", file=sys.stderr)
            return 2
        print(token)
        return 0
    print(token)
    print(" ".join(words), file=sys.stderr)
    print(
        f"The first line is the {whose}'s token, which is not shown again. Add the second line to the file named by"
        f" {section}.tokens_file in the settings.",
        file=sys.stderr,
    )
    return 0


def _append(path: Path, line: str) -> None:
    """Append a line to a file, which is new with mode 0600. Raises OSError."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())


def _argument_error(name: str, role: str | None, reviewers: str | None, groups: str | None) -> str | None:
    """Why the arguments are invalid; None if they are valid."""
    if role is None and reviewers is not None:
        return "--reviewers needs --role; add it"
    if role is not None and groups is not None:
        return "--groups are for callers, --role is for users; remove one of the two"
    for _, why in (Token(name, _NO_HASH) if role is None else PersonToken(name, "viewer", _NO_HASH)).faults():
        return f"{name!r} {why}"
    if groups is not None:
        for _, why in Token(name, _NO_HASH, tuple(groups.split(","))).faults():
            return f"--groups {groups!r} {why}"
    if reviewers is not None and role == "admin":
        return (
            "--reviewers cannot be combined with --role admin, which covers all reviewers; remove it, or"
            " choose another role"
        )
    if reviewers is not None and (not all(reviewers.split(",")) or reviewers.split() != [reviewers]):
        return f"--reviewers {reviewers!r} is not a list of names; separate names with commas, without spaces"
    return None
