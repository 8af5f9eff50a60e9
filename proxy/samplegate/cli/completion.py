"""`samplegate completion`: prints the completion script of a shell, which shtab writes from the arguments of all
commands."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from samplegate.cli import OK
from samplegate.cli.main import COMMANDS

SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = frozenset({"PATH", "LOG", "POLICY", "NAME=FILE", "PATH|sqlite:PATH|none"})
"""Metavariables of arguments that are files, besides those of the type Path."""


class _Parser(argparse.ArgumentParser):
    """Parser that marks files for shtab. Subparsers have the same class."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument, and complete files where its value is one."""
        action = super().add_argument(*names, **options)
        if action.type is Path or action.metavar in _FILES:
            action.complete = import_module("shtab").FILE  # type: ignore[attr-defined]  # shtab reads this attribute
        return action


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def command(args: argparse.Namespace) -> int:
    """Print the script."""
    print(import_module("shtab").complete(_all_arguments(), args.shell))
    return OK


def _all_arguments() -> argparse.ArgumentParser:
    """A parser with the arguments of every command."""
    parser = _Parser(prog="samplegate", allow_abbrev=False)
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND")
    for name, (module, summary) in COMMANDS.items():
        import_module(module).arguments(commands.add_parser(name, allow_abbrev=False, help=summary))
    return parser
