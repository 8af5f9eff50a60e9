"""The argument ``--database`` of several commands, and the URLs that ``--log`` takes."""

from __future__ import annotations

import argparse


def database_argument(parser: argparse.ArgumentParser, text: str = "shared database of the gates") -> None:
    """Add ``--database``."""
    parser.add_argument(
        "--database",
        type=_url,
        metavar="URL",
        help=f"{text}, without a password: postgresql://USER@HOST/NAME (default: that of the settings)",
    )


def log_name(text: str) -> str:
    """A value of ``--log``. Raises argparse.ArgumentTypeError for the URL of a database with a password."""
    from samplegate.postgres.url import is_database

    return _url(text) if is_database(text) else text


def _url(text: str) -> str:
    """Raises argparse.ArgumentTypeError for a URL with a password, which other users of the machine could read. The
    URL itself is checked with the settings."""
    from samplegate.postgres.url import has_password  # every session of a client starts with the arguments of `run`

    if has_password(text):
        raise argparse.ArgumentTypeError(
            "the URL contains a password, which others can read in the list of processes; put it in"
            " SAMPLEGATE_DATABASE, the settings file, or libpq's password file (passfile)"
        )
    return text
