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
from typing import NoReturn, TypeAlias

from samplegate import __version__

INTERRUPTED = 130  # what a shell reports for a process that ended by SIGINT

EXIT_CODES = """\
exit codes:
  0  it worked; for run: we ended the server after the client's end of input
  1  what was looked at failed: a problem in a policy, a failing case, a malformed request, a demo that went wrong,
     a decision that changed, for replay --fail-on-change; a verdict that is refused or comes too late, for reviews
  2  wrong usage, or a file that cannot be read or written; for run: anything that keeps it from starting the server,
     or no answer of the server to its first request
  3  run --strict: a request ended denied or unanswered, a call got no answer, or a batch was refused
  run gives the server's own code where the server ended by itself
"""

HEADER_FROM = "a header of every request to --url, such as Authorization, with the file that holds its value; may be given again"

PROTOCOLS = ("auto", "legacy", "modern")
PROTOCOL = "protocol version for the server of the command line: 2025-11-25 and older (legacy), 2026-07-28 (modern), or detected (auto, the default)"

Subparsers: TypeAlias = "argparse._SubParsersAction[_Parser]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code (``EXIT_CODES``); wrong usage leaves by SystemExit(2), as argparse does."""
    return _call(parse(sys.argv[1:] if argv is None else argv))


class _WrongUsage(Exception):
    """The message of a wrong command line, and the parser that has its usage."""

    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(message)
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    """Its parsers of commands are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Raises _WrongUsage."""
        raise _WrongUsage(self, message)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line as values; for run, ``command`` is everything behind ``--``. Wrong usage is also the answer to the client of a run."""
    try:
        return _parsed(argv)
    except _WrongUsage as wrong:
        try:
            argparse.ArgumentParser.error(wrong.parser, str(wrong))
        finally:
            if list(argv[:1]) == ["run"]:
                from samplegate.app import answer_wrong_usage

                answer_wrong_usage(str(wrong))


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    if list(argv[:1]) not in (["run"], ["serve"]):
        return parser.parse_args(argv)
    ours, command = _split(list(argv))
    args = parser.parse_args(ours)
    if args.name == "run" and not command and args.url is None:
        parser.error("run: no command to wrap; put the server's command behind --, as in: samplegate run --policy FILE -- python server.py")
    if command and args.url is not None:
        parser.error(f"{args.name}: a command and --url; give one of them")
    if args.header_from and args.url is None:
        parser.error(f"{args.name}: --header-from without --url; it is for a server at a URL")
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
        code = target(args)
        if sys.stdout is not None:  # None: the caller closed it
            sys.stdout.flush()  # here, because a failure while the interpreter ends cannot be caught
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as problem:
        if problem.filename is not None or problem.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        if problem.errno != errno.EPIPE:
            print(f"samplegate: stdout: cannot be written: {(problem.strerror or str(problem)).lower()}", file=sys.stderr)
        # `samplegate schema | head`, a full disk; the interpreter would complain again when it flushes stdout at its end
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="samplegate",
        allow_abbrev=False,
        description="Answers, by policy, what MCP servers ask of their clients: sampling and elicitation.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"samplegate {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    for add in (_run, _serve, _demo, _check, _test, _explain, _replay, _report, _reviews, _token, _schema, _init):
        add(commands)
    return parser


def _add(commands: Subparsers, name: str, target: str, summary: str, usage: str | None = None) -> _Parser:
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
        "                      [--start-timeout SECONDS] [--call-timeout SECONDS] [--end-of-input-timeout SECONDS]\n"
        "                      [--protocol auto|legacy|modern] [--record FILE] [--strict] (--url URL [--header-from NAME=FILE]... | -- CMD ARGS...)"
    )
    run = _add(commands, "run", "samplegate.app:run_command", "wrap one stdio server", usage)
    run.add_argument("--policy", type=Path, required=True, metavar="FILE", help="the rules")
    run.add_argument("--server", metavar="NAME", help="what the rules call this server (default: that of the settings, else default)")
    run.add_argument("--settings", type=Path, metavar="FILE", help="settings of the process: folders, records, secrets")
    run.add_argument("--env-file", type=Path, metavar="FILE", help="NAME=value lines: keys for the models, values for ${VAR} in the policy")
    run.add_argument("--state", type=Path, metavar="DIR", help="what outlives the process: limits shared by several, reviews, the decision log")
    run.add_argument("--decision-log", metavar="PATH|sqlite:PATH|none", help="where the decisions are recorded (default: a file in the state folder)")
    run.add_argument("--metrics-file", metavar="PATH", help="write Prometheus metrics here now and then; {server} and {pid} are filled in")
    run.add_argument("--metrics-port", metavar="PORT", help="let Prometheus ask for the metrics at this port of 127.0.0.1 (0: any free one)")
    run.add_argument("--url", metavar="URL", help="wrap the server at this URL, over Streamable HTTP, in place of a command")
    run.add_argument("--header-from", action="append", default=[], metavar="NAME=FILE", help=HEADER_FROM)
    run.add_argument("--start-timeout", metavar="SECONDS", help="how long the server may take to answer its first request (default: 30)")
    run.add_argument("--call-timeout", metavar="SECONDS", help="how long it may take to answer any other request (default: 0, no limit)")
    run.add_argument("--end-of-input-timeout", metavar="SECONDS", help="how long to wait for answers after the end of input (default: 60)")
    run.add_argument("--protocol", choices=PROTOCOLS, help=PROTOCOL)
    run.add_argument("--record", type=Path, metavar="FILE", help="write what models and clients answer as scripted cases, contents and all")
    run.add_argument("--strict", action="store_true", help="leave with 3, and list them, where requests ended denied or unanswered")


def _serve(commands: Subparsers) -> None:
    usage = (
        "samplegate serve [--settings FILE] [--policy FILE] [--listen HOST:PORT] [--admin-listen HOST:PORT] [--server NAME]\n"
        "                        [--env-file FILE] [--state DIR] [--decision-log PATH|sqlite:PATH|none]\n"
        "                        [--protocol auto|legacy|modern] [--url URL [--header-from NAME=FILE]... | -- CMD ARGS...]"
    )
    serve = _add(commands, "serve", "samplegate.daemon.serving:serve_command", "serve many servers to many clients over HTTP", usage)
    serve.add_argument("--settings", type=Path, metavar="FILE", help="settings of the process: servers, callers, listeners, bounds")
    serve.add_argument("--policy", type=Path, metavar="FILE", help="the rules (default: that of the settings)")
    serve.add_argument("--listen", metavar="HOST:PORT", help="where clients find it (default: 127.0.0.1:8080)")
    serve.add_argument("--admin-listen", metavar="HOST:PORT", help="where operators find metrics, health and reload (default: nowhere)")
    serve.add_argument("--server", metavar="NAME", help="what the rules and the URL call the server of the command line (default: default)")
    serve.add_argument("--url", metavar="URL", help="one server, at this URL, in place of the settings' servers")
    serve.add_argument("--header-from", action="append", default=[], metavar="NAME=FILE", help=HEADER_FROM)
    serve.add_argument("--protocol", choices=PROTOCOLS, help=PROTOCOL)
    serve.add_argument("--env-file", type=Path, metavar="FILE", help="NAME=value lines: keys for the models, values for ${VAR}")
    serve.add_argument("--state", type=Path, metavar="DIR", help="what outlives the process: limits, reviews, the decision log")
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


def _reviews(commands: Subparsers) -> None:
    reviews = _add(commands, "reviews", "samplegate.commands.reviews:command", "look at what waits for a person, and decide it")
    whats = reviews.add_subparsers(dest="what", metavar="WHAT", required=True)
    _review_list(_review(whats, "list", "list what waits"))
    show = _review(whats, "show", "show one review with all that was asked", id=True)
    show.add_argument("--json", action="store_true", help="print one JSON object")
    _review_approve(_review_verdict(whats, "approve", "let a model be asked, or its answer be released"))
    reject = _review_verdict(whats, "reject", "refuse it")
    reject.add_argument("--reason", default="", metavar="TEXT", help="why, for the record")
    reject.add_argument("--tell-server", action="store_true", help="the server is told the reason")
    _review_answer(_review_verdict(whats, "answer", "answer it yourself"))
    watch = _review(whats, "watch", "print reviews as they come and change, until interrupted")
    watch.add_argument("--reviewer", metavar="NAME", help="only those for this reviewer of the policy")
    watch.add_argument("--json", action="store_true", help="print a line of JSON for each")


def _review(whats: Subparsers, name: str, summary: str, *, id: bool = False) -> argparse.ArgumentParser:
    what = whats.add_parser(
        name,
        allow_abbrev=False,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if id:
        what.add_argument("id", metavar="ID", help="of the review, or as much of its beginning as no other has")
    what.add_argument("--store", metavar="sqlite:PATH", help="where the gate keeps its reviews (default: in the state folder)")
    what.add_argument("--state", type=Path, metavar="DIR", help="the state folder of the gate")
    what.add_argument("--settings", type=Path, metavar="FILE", help="the settings of the gate, which say where its store is")
    return what


def _review_list(listing: argparse.ArgumentParser) -> None:
    some = listing.add_mutually_exclusive_group()
    some.add_argument("--all", action="store_true", help="also those that ended")
    states = ("pending", "approved", "rejected", "answered", "expired", "withdrawn")
    some.add_argument("--state-of", action="append", choices=states, metavar="STATE", help=f"{', '.join(states)}; may be given again")
    listing.add_argument("--reviewer", metavar="NAME", help="only those for this reviewer of the policy")
    listing.add_argument("--server", metavar="NAME", help="only what this server asked")
    which = "how many: of what waits the oldest, else the newest (default: %(default)s)"
    listing.add_argument("--limit", type=_some, default=50, metavar="N", help=which)
    listing.add_argument("--json", action="store_true", help="print one JSON array, without content")


def _some(text: str) -> int:
    """1 to 999. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or not 1 <= int(text[:4]) <= 999:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 999")
    return int(text)


def _review_verdict(whats: Subparsers, name: str, summary: str) -> argparse.ArgumentParser:
    verdict = _review(whats, name, summary, id=True)
    verdict.add_argument("--digest", metavar="sha256:HEX", help="decide only if this is what was asked, as shown before")
    verdict.add_argument("--as", dest="as_", metavar="NAME", help="who decides, for the record (default: the user of this session)")
    return verdict


def _review_approve(approve: argparse.ArgumentParser) -> None:
    approve.add_argument("--model", metavar="M", help="ask this model of the rule's instead")
    approve.add_argument("--max-tokens", type=int, metavar="N", help="let it write so many tokens at most")
    approve.add_argument("--temperature", type=float, metavar="T", help="at this temperature")
    approve.add_argument("--system-prompt", metavar="TEXT", help="with this system prompt; an empty one takes it away")
    approve.add_argument("--messages", metavar="FILE", help="with these messages, a JSON array; - for stdin")


def _review_answer(answer: argparse.ArgumentParser) -> None:
    one = answer.add_mutually_exclusive_group(required=True)
    filled = "a form, filled in (a list as m=p,q or m=p m=q, a boolean as b=yes or b=no); or an address, accepted"
    one.add_argument("--accept", nargs="*", action="extend", metavar="name=value", help=filled)
    one.add_argument("--json", metavar="FILE", help="the content of a form, or the content blocks of a message, as JSON; - for stdin")
    one.add_argument("--text", metavar="TEXT", help="the text of a message, for sampling")
    one.add_argument("--decline", action="store_true", help="say no to a form or an address")
    one.add_argument("--cancel", action="store_true", help="leave a form or an address without an answer")


def _token(commands: Subparsers) -> None:
    token = _add(commands, "token", "samplegate.commands.token:command", "make a token for a caller, or for a person, and the hash for the settings")
    token.add_argument("caller", metavar="NAME", help="what the rules and the limits call the caller, or histories the person")
    token.add_argument("--role", choices=["viewer", "reviewer", "admin"], help="for a person of the reviews: what they may do there")
    token.add_argument("--reviewers", metavar="NAME,NAME", help="the policy's reviewers in whose name the person acts; all by default")


def _schema(commands: Subparsers) -> None:
    schema = _add(commands, "schema", "samplegate.commands.schema:command", "print the JSON Schema of the policy file, for editors")
    schema.add_argument("--tests", action="store_true", help="of the *_test.yaml file instead")
    schema.add_argument("--settings", action="store_true", help="of the settings of serve instead")


def _init(commands: Subparsers) -> None:
    init = _add(commands, "init", "samplegate.commands.init:command", "write a starter policy and its test")
    init.add_argument("path", type=Path, nargs="?", default=Path(), metavar="DIR|FILE", help="where (default: samplegate.yaml in this folder)")
    init.add_argument("--model", metavar="M", help="the model that answers sampling, as litellm names it, such as openai/gpt-5-mini")
    init.add_argument("--api-key-file", metavar="F", help="the file that holds its key")
    init.add_argument("--headless", action="store_true", help="for clients without a person: escalate forms to a reviewer, never forward them")
