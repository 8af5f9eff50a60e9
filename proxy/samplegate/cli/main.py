"""The command line: its commands, their dispatch and exit codes. Each command's module defines its arguments.

Only argparse is imported here, and a command's module only when it is called, because `samplegate run` starts with
every session of a client.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn

from samplegate import __version__

INTERRUPTED = 130  # a shell's code for a process that ended by SIGINT

EXIT_CODES = """\
exit codes:
  0  success; for run: the client closed its input and the server was stopped
  1  a check failed: a problem in a policy, a failing case, a malformed request or a failed demo;
     replay --fail-on-change: a decision changed; report --run: the run meets a word of --fail-on;
     reviews: a decision was refused or came too late; why: no record was found;
     login, logout: the login failed, or does not exist; wrap --check: a server is not wrapped;
     unwrap: a server cannot be unwrapped
  2  usage error, or a file that cannot be read or written; for run and serve: also a problem in the
     policy or the settings; for run: the server could not be started or did not answer its first request;
     for report --run: the verdict is unknown; for status: a gate did not answer
  3  run --strict: a request was denied or not answered, a call got no answer, or a batch was refused;
     run --fail-on: a word was met; run --unused fail: a recorded case was not used
  If the server exits on its own, run exits with the server's code.
"""
_RUN_EXIT_CODES: Final = """\
exit codes:
  0  the client closed its input and the server was stopped
  1  the HTTP server ended its session
  2  usage error, a problem in the policy or the settings, a file that cannot be read or written, or a
     server that could not be started or did not answer its first request
  3  with --strict: a request was denied or not answered, a call got no answer, or a batch was refused;
     with --fail-on: a word was met; with --unused fail: a recorded case was not used
  If the server exits on its own, run exits with the server's code.
"""
_FAILURES: Final = {
    "serve": "an internal error ended the gate",
    "demo": "the demo failed",
    "check": "a problem in a file; with --live: a model that did not answer",
    "test": "a problem in a file, a failing case, or missing tests or coverage",
    "explain": "a problem in the policy, or a malformed request",
    "report": "with --run: the run meets a word of --fail-on",
    "replay": "a problem in the policy; with --fail-on-change: a decision changed",
    "why": "no record of the decision was found",
    "reviews": "a decision was refused or came too late",
    "login": "the login failed; with --status: there is no such login",
    "logout": "there is no such login",
    "wrap": "with --check: a server is not wrapped",
    "unwrap": "a server cannot be unwrapped; with --check: a server is wrapped",
    "init": "a file already exists",
}
"""The meaning of exit code 1, for the commands that have one."""
_USAGE_ERRORS: Final = {
    "serve": "usage error, a problem in the policy or the settings, or a file that cannot be read or written",
    "report": "usage error, or a file that cannot be read or written; with --run: the verdict is unknown",
    "reviews": "usage error, no such review or store, or a file that cannot be read or written",
    "status": "usage error, a gate that does not answer, or a state folder that cannot be read",
    "database": "usage error, or a database or file that cannot be used",
    "docs": "usage error, or an unknown topic",
}
"""The meaning of exit code 2, where it is not the usual one."""

_OVERVIEW: Final = """\
to begin:
  samplegate demo            see the gate at work, offline
  samplegate COMMAND --help  arguments, examples and exit codes
  samplegate docs            documentation
"""

COMMANDS: Final = {
    "run": ("samplegate.cli.run", "wrap one MCP server for one client over stdio"),
    "serve": ("samplegate.cli.serve", "serve many servers to many clients over HTTP"),
    "demo": ("samplegate.demo.main", "run a demo with a bundled server, offline and without an API key"),
    "check": ("samplegate.cli.check", "validate policies and show which capabilities each server sees"),
    "test": ("samplegate.cli.test", "run the cases in NAME_test.yaml beside each policy NAME.yaml"),
    "explain": ("samplegate.cli.explain", "show which rule a request matches, and why earlier rules do not match"),
    "replay": ("samplegate.cli.replay", "run recorded requests against another policy and show what changes"),
    "report": ("samplegate.cli.report", "summarize requests, outcomes and costs from the decision log"),
    "why": ("samplegate.cli.why", "explain a recorded decision, by the ID in an error or a log line"),
    "status": ("samplegate.cli.status", "show sessions, calls, open requests, limits and reviews of running gates"),
    "reviews": ("samplegate.cli.reviews", "list pending reviews and decide them"),
    "database": ("samplegate.cli.database", "create, migrate or fill the database that gates share"),
    "login": ("samplegate.cli.login", "log in to a server at a URL that requires OAuth"),
    "logout": ("samplegate.cli.logout", "revoke and delete the tokens of a login"),
    "token": ("samplegate.cli.token", "create a token for a caller or a user, and its hash for the settings"),
    "schema": ("samplegate.cli.schema", "print the JSON Schema of the policy file, for editors"),
    "wrap": ("samplegate.cli.wrap", "put the gate before the servers in the configuration of MCP clients"),
    "unwrap": ("samplegate.cli.unwrap", "remove the gate from the servers in the configuration of MCP clients"),
    "clients": ("samplegate.cli.clients", "list the configuration files of MCP clients, and which servers are wrapped"),
    "init": ("samplegate.cli.init", "write a starter policy or a shipped one, with its tests"),
    "docs": ("samplegate.cli.docs", "print a page or a section of the documentation"),
    "completion": ("samplegate.cli.completion", "print the completion script of a shell"),
}
"""Module and help line of each command. A module has ``arguments``, which adds them to a parser, and ``command``, which
runs it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (``EXIT_CODES``). Wrong usage raises SystemExit(2), as in argparse."""
    try:
        return _call(parse(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return INTERRUPTED


def _exit_codes(command: str) -> str:
    """The exit codes in a command's help."""
    if command == "run":
        return _RUN_EXIT_CODES
    failed = f"  1  {_FAILURES[command]}\n" if command in _FAILURES else ""
    wrong = _USAGE_ERRORS.get(command, "usage error, or a file that cannot be read or written")
    return f"exit codes:\n  0  success\n{failed}  2  {wrong}\n"


class _UsageError(Exception):
    """A wrong command line: the message, and the parser with the usage to print."""

    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(message)
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    """Parser that raises _UsageError instead of exiting. Subparsers have the same class."""

    def error(self, message: str) -> NoReturn:
        """Raises _UsageError."""
        raise _UsageError(self, message)

    def format_help(self) -> str:
        """The help, which ends with examples and exit codes."""
        if self.epilog is None:
            self.epilog = _closing(self.prog.partition(" ")[2])
        return super().format_help()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; for run and serve, ``command`` is everything after ``--``. Wrong usage of run is also
    reported to the client. Without a word, the commands are listed."""
    try:
        return _parsed(argv)
    except _UsageError as wrong:
        from samplegate.cli.help_text import suggestion
        from samplegate.text import escaped

        if not argv:
            _print_overview()
        message = str(wrong)
        message += suggestion(message, wrong.parser.format_usage(), _own_words(argv))
        try:
            argparse.ArgumentParser.error(wrong.parser, escaped(message))
        finally:
            if list(argv[:1]) == ["run"]:
                from samplegate.runtime.run import answer_wrong_usage

                answer_wrong_usage(message)


def _own_words(argv: Sequence[str]) -> Sequence[str]:
    """The words before ``--``: options of a wrapped command are not ours."""
    return argv[: argv.index("--")] if "--" in argv else argv


def _print_overview() -> NoReturn:
    """Print what samplegate is and its commands, without exit codes, for a call without any word."""
    parser, _ = _parser("")
    parser.epilog = _OVERVIEW
    parser.print_help(sys.stderr)
    raise SystemExit(2)


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    name = next((word for word in argv if not word.startswith("-")), "")
    parser, chosen = _parser(name)
    if argv and argv[0] == name and name not in COMMANDS:
        from samplegate.yamlfile.tree import quoted
        from samplegate.yamlfile.validate import did_you_mean

        near = did_you_mean(name, COMMANDS)
        parser.error(f"unknown command {quoted(name)}{near or '; list the commands with: samplegate --help'}")
    if list(argv[:1]) not in (["run"], ["serve"]):
        return _known_arguments(parser, chosen, argv)
    own = _own_words(argv)
    args, command = _known_arguments(parser, chosen, own), list(argv[len(own) + 1 :])
    if args.name == "run" and not command and args.url is None:
        parser.error(
            "run: no command to wrap; put the server's command after --, for example: samplegate run --policy FILE --"
            " python server.py"
        )
    if command and args.url is not None:
        parser.error(f"{args.name}: a command cannot be combined with --url; remove one of them")
    from samplegate.cli.run import OAUTH

    for option in ("--header-from", "--header-env", *OAUTH):
        if vars(args)[option[2:].replace("-", "_")] and args.url is None:
            parser.error(f"{args.name}: {option} needs --url; it applies only to a server at a URL")
    if args.name == "run":
        from samplegate.cli.run import resolve_record_mode

        if (wrong := resolve_record_mode(args, os.environ)) is not None:
            parser.error(f"run: {wrong}")
    args.command = command
    return args


def _known_arguments(parser: _Parser, chosen: _Parser, argv: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments. Unknown ones are reported with the usage of the chosen command."""
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        (parser if argv[0].startswith("-") else chosen).error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _call(args: argparse.Namespace) -> int:
    if args.name != "run" and isinstance(sys.stdout, io.TextIOWrapper):  # stdout of run belongs to the protocol
        with suppress(OSError):
            # names may have characters that a terminal's encoding lacks
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = import_module(COMMANDS[args.name][0]).command(args)
        if sys.stdout is not None:  # None if the caller closed it
            sys.stdout.flush()  # here, because an error while the interpreter ends cannot be caught
        return code
    except OSError as problem:
        if problem.filename is not None or problem.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        if problem.errno != errno.EPIPE:
            print(
                f"samplegate: stdout: cannot be written: {(problem.strerror or str(problem)).lower()}", file=sys.stderr
            )
        # stdout is a closed pipe (`samplegate schema | head`) or a full disk; without this, the interpreter would
        # report an error again when it flushes stdout at exit
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2 if args.name == "report" else 1  # 1 would be a verdict of `report --run`


def _parser(chosen: str) -> tuple[_Parser, _Parser]:
    """The command-line parser, and the chosen command's. Only the chosen command gets its arguments."""
    parser = found = _Parser(
        prog="samplegate",
        allow_abbrev=False,
        description="Answers the sampling and elicitation requests of MCP servers by policy.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"samplegate {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        description = f"{summary[0].upper()}{summary[1:]}."
        command = commands.add_parser(
            name,
            allow_abbrev=False,
            help=summary,
            description=description,
            formatter_class=parser.formatter_class,
        )
        if name == chosen:
            import_module(module).arguments(command)
            found = command
    return parser, found


def _closing(command: str) -> str:
    """Examples and exit codes: the help's end of a command, an action (``reviews list``) or samplegate (``""``)."""
    from samplegate.cli.help_text import examples

    return examples(command) + (_exit_codes(command.partition(" ")[0]) if command else EXIT_CODES)
