"""The command line: which arguments there are and which module a command lives in. Not what a command does.

Nothing but argparse is imported here, and a command only once it is called: `samplegate run` starts with every session of a client.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from samplegate import __version__

INTERRUPTED = 130  # what a shell reports for a process that ended by SIGINT

EXIT_CODES = """\
exit codes:
  0  it worked; for run: we ended the server after the client's end of input
  1  what was looked at failed: a problem in a policy, a failing case, a malformed request, a demo that went wrong,
     a decision that changed, for replay --fail-on-change
  2  wrong usage, or a file that cannot be read or written; for run: anything that keeps it from starting the server
  3  run --strict: a request ended denied or unanswered
  run gives the server's own code where the server ended by itself
"""

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code (``EXIT_CODES``); wrong usage leaves by SystemExit(2), as argparse does."""
    return _call(parse(sys.argv[1:] if argv is None else argv))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line as values; for run, ``command`` is everything behind ``--``."""
    parser = _parser()
    if list(argv[:1]) not in (["run"], ["serve"]):
        return parser.parse_args(argv)
    ours, command = _split(list(argv))
    args = parser.parse_args(ours)
    if args.name == "run" and not command and args.url is None:
        parser.error("run: no command to wrap; put the server's command behind --, as in: samplegate run --policy FILE -- python server.py")
    if command and args.url is not None:
        parser.error(f"{args.name}: a command and --url; give one of them")
    args.command = command
    return args


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first ``--`` and what behind it: the wrapped command's own options are none of ours."""
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], argv[cut + 1 :]


def _call(args: argparse.Namespace) -> int:
    module, function = args.target.split(":")
    try:
        target: Callable[[argparse.Namespace], int] = getattr(import_module(module), function)
        return target(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as problem:
        if problem.filename is not None or problem.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        if problem.errno != errno.EPIPE:
            print(f"samplegate: stdout: cannot be written: {(problem.strerror or str(problem)).lower()}", file=sys.stderr)
        # `samplegate schema | head`, a full disk; the interpreter would complain again when it flushes stdout at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="samplegate",
        allow_abbrev=False,
        description="Answers, by policy, what MCP servers ask of their clients: sampling and elicitation.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"samplegate {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    for add in (_run, _serve, _demo, _check, _test, _explain, _replay, _report, _token, _schema, _init):
        add(commands)
    return parser


def _add(commands: Subparsers, name: str, target: str, summary: str, usage: str | None = None) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        allow_abbrev=False,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        usage=usage,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(target=target)
    return command


def _run(commands: Subparsers) -> None:
    usage = (
        "samplegate run --policy FILE [--server NAME] [--settings FILE] [--env-file FILE] [--state DIR]\n"
        "                      [--decision-log PATH|sqlite:PATH|none] [--metrics-file PATH] [--metrics-port PORT]\n"
        "                      [--record FILE] [--strict] (--url URL | -- CMD ARGS...)"
    )
    run = _add(commands, "run", "samplegate.app:run_command", "wrap one stdio server", usage)
    run.add_argument("--policy", type=Path, required=True, metavar="FILE", help="the rules")
    run.add_argument("--server", metavar="NAME", help="what the rules call this server (default: that of the settings, else default)")
    run.add_argument("--settings", type=Path, metavar="FILE", help="settings of the process: folders, records, secrets")
    run.add_argument("--env-file", type=Path, metavar="FILE", help="NAME=value lines: keys for the models, values for ${VAR} in the policy")
    run.add_argument("--state", type=Path, metavar="DIR", help="what outlives the process: limits shared by several, the decision log")
    run.add_argument("--decision-log", metavar="PATH|sqlite:PATH|none", help="where the decisions are recorded (default: a file in the state folder)")
    run.add_argument("--metrics-file", metavar="PATH", help="write Prometheus metrics here now and then; {server} and {pid} are filled in")
    run.add_argument("--metrics-port", metavar="PORT", help="let Prometheus ask for the metrics at this port of 127.0.0.1 (0: any free one)")
    run.add_argument("--url", metavar="URL", help="wrap the server at this URL, over Streamable HTTP, in place of a command")
    run.add_argument("--record", type=Path, metavar="FILE", help="write what models and clients answer as scripted cases, contents and all")
    run.add_argument("--strict", action="store_true", help="leave with 3, and list them, where requests ended denied or unanswered")


def _serve(commands: Subparsers) -> None:
    usage = (
        "samplegate serve [--settings FILE] [--policy FILE] [--listen HOST:PORT] [--admin-listen HOST:PORT] [--server NAME]\n"
        "                        [--env-file FILE] [--state DIR] [--decision-log PATH|sqlite:PATH|none] [--url URL | -- CMD ARGS...]"
    )
    serve = _add(commands, "serve", "samplegate.daemon.serving:serve_command", "serve many servers to many clients over HTTP", usage)
    serve.add_argument("--settings", type=Path, metavar="FILE", help="settings of the process: servers, callers, listeners, bounds")
    serve.add_argument("--policy", type=Path, metavar="FILE", help="the rules (default: that of the settings)")
    serve.add_argument("--listen", metavar="HOST:PORT", help="where clients find it (default: 127.0.0.1:8080)")
    serve.add_argument("--admin-listen", metavar="HOST:PORT", help="where operators find metrics, health and reload (default: nowhere)")
    serve.add_argument("--server", metavar="NAME", help="what the rules and the URL call the server of the command line (default: default)")
    serve.add_argument("--url", metavar="URL", help="one server, at this URL, in place of the settings' servers")
    serve.add_argument("--env-file", type=Path, metavar="FILE", help="NAME=value lines: keys for the models, values for ${VAR}")
    serve.add_argument("--state", type=Path, metavar="DIR", help="what outlives the process: limits, the decision log")
    serve.add_argument("--decision-log", metavar="PATH|sqlite:PATH|none", help="where the decisions are recorded")


def _demo(commands: Subparsers) -> None:
    demo = _add(commands, "demo", "samplegate.demo.main:demo_command", "show the gate at work on a bundled server, offline and without a key")
    demo.add_argument("--era", choices=("legacy", "modern"), help="of the protocol (default: both, one after the other)")


def _check(commands: Subparsers) -> None:
    check = _add(commands, "check", "samplegate.commands.check:command", "say every problem of policies, and what each server is declared")
    check.add_argument("policies", type=Path, nargs="+", metavar="POLICY", help="a policy; a *_test.yaml is checked as what it is")
    check.add_argument("--env-file", type=Path, metavar="FILE", help="NAME=value lines: values for ${VAR} in the policy")
    check.add_argument("--json", action="store_true", help="print one JSON object")


def _test(commands: Subparsers) -> None:
    test = _add(commands, "test", "samplegate.commands.test:command", "run the cases in NAME_test.yaml beside each policy NAME.yaml")
    test.add_argument("policies", type=Path, nargs="+", metavar="POLICY", help="a policy, or a *_test.yaml itself")
    test.add_argument("--require-tests", action="store_true", help="a policy without a test file fails")
    test.add_argument("--coverage", action="store_true", help="name the rules of each policy, and the arms of them, that no case reaches")
    test.add_argument("--fail-under", type=_percent, metavar="PERCENT", help="fail if the cases of a policy reach less; with it comes --coverage")
    test.add_argument("--json", action="store_true", help="print one JSON object")


def _percent(text: str) -> float:
    """0 to 100. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage; give a number from 0 to 100")
    return value


def _explain(commands: Subparsers) -> None:
    explain = _add(commands, "explain", "samplegate.commands.explain:command", "say which rule takes a request, and why the earlier ones do not")
    explain.add_argument("request", metavar="REQUEST.json", help="the server's JSON-RPC request, or only its method and params; - for stdin")
    explain.add_argument("--policy", type=Path, required=True, metavar="FILE")
    explain.add_argument("--env-file", type=Path, metavar="FILE", help="NAME=value lines: values for ${VAR} in the policy")
    explain.add_argument("--server", default="default", metavar="NAME", help="who asks (default: %(default)s)")
    explain.add_argument("--caller", default="local", metavar="NAME", help="on whose behalf (default: %(default)s)")
    explain.add_argument("--tool", action="append", default=[], metavar="NAME", help="the tool being called; several are candidates; none by default")
    explain.add_argument("--method", action="append", default=[], metavar="METHOD", help="another call in flight: prompts/get or resources/read")
    explain.add_argument("--era", choices=("legacy", "modern"), help="of the session (default: legacy)")
    explain.add_argument("--revision", metavar="DATE", help="of the protocol (default: the newest of the era)")
    explain.add_argument(
        "--client",
        default="",
        metavar="LIST",
        help="what the client declared, by commas: sampling, sampling.tools, sampling.context, elicitation.form, elicitation.url, roots",
    )
    explain.add_argument("--json", action="store_true", help="print one JSON object")


def _replay(commands: Subparsers) -> None:
    replay = _add(commands, "replay", "samplegate.commands.replay:command", "put recorded requests to another policy, and say what changes")
    replay.add_argument("--log", nargs="+", required=True, metavar="LOG", help="decision logs: files, folders of them, globs")
    replay.add_argument("--policy", type=Path, required=True, metavar="FILE")
    replay.add_argument("--client", metavar="LIST", help="what the clients had declared, as for explain; without it that cannot always be told")
    replay.add_argument("--env-file", type=Path, metavar="FILE", help="NAME=value lines: values for ${VAR} in the policy")
    replay.add_argument("--fail-on-change", action="store_true", help="leave with 1 where a request is decided otherwise")
    replay.add_argument("--json", action="store_true", help="print one JSON object")


def _report(commands: Subparsers) -> None:
    report = _add(commands, "report", "samplegate.commands.report:command", "say who asked what, how often, and what it came to and cost")
    report.add_argument("--log", nargs="+", metavar="LOG", help="decision logs: files, folders of them, globs (default: those of the state folder)")
    report.add_argument("--since", metavar="DATE", help="leave out what is older: 2026-11-01, or 2026-11-01T08:00Z; without a zone UTC")
    report.add_argument("--json", action="store_true", help="print one JSON object")


def _token(commands: Subparsers) -> None:
    token = _add(commands, "token", "samplegate.commands.token:command", "make a token for a caller of serve, and the hash that its settings keep")
    token.add_argument("caller", metavar="NAME", help="what the rules and the limits call the caller")


def _schema(commands: Subparsers) -> None:
    schema = _add(commands, "schema", "samplegate.commands.schema:command", "print the JSON Schema of the policy file, for editors")
    schema.add_argument("--tests", action="store_true", help="of the *_test.yaml file instead")
    schema.add_argument("--settings", action="store_true", help="of the settings of serve instead")


def _init(commands: Subparsers) -> None:
    init = _add(commands, "init", "samplegate.commands.init:command", "write a starter policy and its test")
    init.add_argument("path", type=Path, nargs="?", default=Path(), metavar="DIR|FILE", help="where (default: samplegate.yaml in this folder)")
    init.add_argument("--model", metavar="M", help="the model that answers sampling, as litellm names it, such as openai/gpt-5-mini")
    init.add_argument("--api-key-file", metavar="F", help="the file that holds its key")
