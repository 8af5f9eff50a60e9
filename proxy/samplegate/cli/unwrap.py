"""``samplegate unwrap``: removes the gate from the servers in clients' files."""

from __future__ import annotations

import argparse

from samplegate.cli.client_files import edit_arguments, file_arguments
from samplegate.cli.wrap import unwrap_command


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    file_arguments(parser)
    edit_arguments(parser, "unwrap")


def command(args: argparse.Namespace) -> int:
    """Unwrap servers."""
    return unwrap_command(args)
