"""`samplegate demo`: calls a server's tool without and through the real gate, checks every record, and prints the
result."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from samplegate.demo import client, server
from samplegate.demo.client import TOOL, CallReport, Era
from samplegate.demo.output import indented, own_command
from samplegate.money import UNITS, dollars

POLICY: Final = Path(__file__).with_name("demo.yaml")
"""A copy of policies/demo.yaml, which is for readers, because an installed package has no repository. A test keeps the
two equal."""

TICKET: Final = "OPS-7"
EXPECTED: Final = (("sampling", "allow"), ("elicitation", "answer"), ("sampling", "allow"))
"""Kind and effect of the three requests, in order."""


@dataclass(slots=True)
class DemoPass:
    """One pass of the demo: its files, results and problems (empty if everything went as expected)."""

    era: Era
    database: Path
    log: Path
    stderr: Path
    report: CallReport = field(default_factory=CallReport)
    records: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def server_command(path: Path) -> list[str]:
    """Command of the server for one database file, as a client would start it."""
    return [sys.executable, "-m", "samplegate.demo.server", str(path)]


def gate_command(log: Path, command: list[str]) -> list[str]:
    """The server's command, wrapped by the gate."""
    run = [
        sys.executable,
        "-m",
        "samplegate",
        "run",
        "--policy",
        str(POLICY),
        "--server",
        "users",
        "--decision-log",
        str(log),
    ]
    return [*run, "--", *command]


def without_gate(folder: Path) -> DemoPass:
    """Call the tool without the gate. The call must fail; otherwise the demo shows nothing."""
    demo_pass = _start(folder, "legacy", "alone")
    demo_pass.report = client.call(
        server_command(demo_pass.database), _environment(), demo_pass.era, TICKET, demo_pass.stderr
    )
    if demo_pass.report.failure is None:
        demo_pass.problems.append("the call succeeded without the gate, so the demo shows nothing")
    return demo_pass


def through_gate(folder: Path, era: Era) -> DemoPass:
    """Call the tool through `samplegate run`, and check the result, the database file and the decision log."""
    demo_pass = _start(folder, era, era)
    command = gate_command(demo_pass.log, server_command(demo_pass.database))
    demo_pass.report = client.call(command, _environment() | _settings(folder), era, TICKET, demo_pass.stderr)
    demo_pass.records, unread = read_log(demo_pass.log)
    demo_pass.problems += [
        *_result_problems(demo_pass.report),
        *unread,
        *_database_problems(demo_pass),
        *_record_problems(demo_pass.records),
    ]
    return demo_pass


def read_log(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The decision log's records, and problems of the file."""
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()], []
    except (OSError, ValueError) as problem:
        return [], [f"decision log: cannot be read: {problem}"]


def _start(folder: Path, era: Era, name: str) -> DemoPass:
    demo_pass = DemoPass(
        era, folder / f"users-{name}.db", folder / f"decisions-{name}.jsonl", folder / f"stderr-{name}.txt"
    )
    server.create(demo_pass.database)
    return demo_pass


def _environment() -> dict[str, str]:
    """Environment besides the variables that MCP clients pass on: the path of a source tree, so that the demo runs
    uninstalled."""
    return {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}


def _settings(folder: Path) -> dict[str, str]:
    """The gate's settings: the log keeps content for the demo to show, and the user's state folder is not used."""
    return {"SAMPLEGATE_RECORD_CONTENT": "full", "SAMPLEGATE_STATE": str(folder / "state")}


def _inactive() -> int:
    return sum(not active for _, _, active in server.USERS)


def _result_problems(report: CallReport) -> list[str]:
    if report.failure is not None or report.structured is None:
        return [f"the tool call failed: {report.failure}"]
    expected = {"found": _inactive(), "deleted": _inactive(), "remaining": len(server.USERS) - _inactive()}
    return [
        f"result: {name} is {report.structured.get(name)} instead of {value}"
        for name, value in expected.items()
        if report.structured.get(name) != value
    ]


def _database_problems(demo_pass: DemoPass) -> list[str]:
    """Check in the file, rather than with the server, that the rows are gone."""
    left, kept = server.names(demo_pass.database), [name for name, _, active in server.USERS if active]
    out = [] if left == kept else [f"database: it contains {', '.join(left)} instead of {', '.join(kept)}"]
    purge = server.purge(demo_pass.database, TICKET)
    if purge is None or not purge.audit:
        out.append("database: the purge has no audit entry")
    return out


def _record_problems(records: list[dict[str, Any]]) -> list[str]:
    found = [(record.get("kind"), record.get("effect")) for record in records]
    out = [] if found == list(EXPECTED) else [f"decision log: it contains {found} instead of {list(EXPECTED)}"]
    return out + [
        f"decision log: a request under rule {record.get('rule')!r} has the outcome {record.get('outcome')}"
        for record in records
        if not _answered(record)
    ]


def _answered(record: dict[str, Any]) -> bool:
    return record.get("outcome") == "answered"


OK, FAILED, WRONG_USAGE = 0, 1, 2
MAX_SECONDS: Final = 86_400
"""A day: the longest wait of `--review`."""
ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")

INTRODUCTION: Final = f"""\
A user-account server has a tool, {TOOL}. During the call, the tool asks a model to rate the risk,
a user to confirm in a form, and a model to write an audit entry. The client, a real MCP client, supports neither
sampling nor elicitation.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--era",
        choices=("legacy", "modern"),
        help="protocol version: 2025-11-25 and older (legacy) or 2026-07-28 (modern); default: both in turn, or modern"
        " with --review",
    )
    parser.add_argument(
        "--review",
        action="store_true",
        help="run servers whose requests you decide instead, on a page or the command line",
    )
    parser.add_argument(
        "--answer-by-itself",
        action="store_true",
        help="with --review: decide all requests over the REST API, without a user",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="SECONDS",
        help="with --review: how long to wait for the decisions (default: 900)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="with --review: keep the gate's state and log, and print their folder"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to {MAX_SECONDS}")
    return value


def command(args: argparse.Namespace) -> int:
    """Run the demo in ``args.era`` (legacy, modern) or in both, or the demo of reviews. Returns 0, 1 with a message on
    stderr after a problem, or 2 after wrong usage."""
    if args.review:
        from samplegate.demo import review

        return review.command(args)
    given = {"--answer-by-itself": args.answer_by_itself, "--seconds": args.seconds, "--keep": args.keep}
    for option, value in given.items():
        if value:
            print(f"samplegate: demo: {option} needs --review; add it", file=sys.stderr)
            return WRONG_USAGE
    era: Era | None = args.era
    folder = Path(tempfile.mkdtemp(prefix="samplegate-demo-"))
    print(INTRODUCTION)
    alone = without_gate(folder)
    _print_without_gate(alone)
    passes = [alone]
    for one in ERAS if era is None else (era,):
        demo_pass = through_gate(folder, one)
        _print_pass(demo_pass)
        passes.append(demo_pass)
    failed = [demo_pass for demo_pass in passes if demo_pass.problems]
    for demo_pass in failed:
        _print_problems(demo_pass)
    if failed:
        return FAILED
    _print_files(passes[1:])
    _print_next_steps()
    return OK


def _print_without_gate(demo_pass: DemoPass) -> None:
    print(f"Without the gate, protocol version {demo_pass.report.revision or 'unknown'}")
    print(indented(f"{TOOL}(ticket={TICKET}) failed: {demo_pass.report.failure}\n"))


def _print_pass(demo_pass: DemoPass) -> None:
    print(f"With the gate, protocol version {demo_pass.report.revision or f'unknown ({demo_pass.era})'}")
    for number, record in enumerate(demo_pass.records, 1):
        print(indented(f"{number}. {_request_text(record)}"))
        print(indented(_decision_text(record), 5))
        if answer := _answer(record.get("result")):
            print(indented(f"-> {answer}", 5))
    if demo_pass.report.failure is not None:
        print(indented(f"The call failed: {demo_pass.report.failure}"))
    if demo_pass.report.structured is not None:
        print(indented(f"Tool result: {json.dumps(demo_pass.report.structured)}"))
    if not demo_pass.problems:
        print(indented("The database file no longer contains the inactive accounts, and it contains the audit entry."))
    print()


def _request_text(record: dict[str, Any]) -> str:
    """The server's request, with its text if the log keeps content."""
    method = "sampling/createMessage" if record.get("kind") == "sampling" else "elicitation/create"
    words = _prompt_text(record.get("request"))
    during = ", ".join(call.get("tool") or call.get("method", "") for call in record.get("calls", [])) or "no call"
    return f"{method} during {during}" + (f": {words}" if words else "")


def _prompt_text(request: object) -> str:
    if not isinstance(request, dict):
        return ""
    if isinstance(message := request.get("message"), str):
        return message
    content = [message.get("content") for message in request.get("messages", ())]
    return " ".join(block["text"] for block in content if isinstance(block, dict) and "text" in block)


def _answer(result: object) -> str:
    if not isinstance(result, dict):
        return ""
    content = result.get("content", "")
    return (
        str(content["text"])
        if isinstance(content, dict) and "text" in content
        else json.dumps(content)
        if content
        else ""
    )


def _decision_text(record: dict[str, Any]) -> str:
    by = record.get("rule")
    effect = record.get("effect")
    decision = f"{effect} by rule '{by}'" if by else f"{effect}: {record.get('reason')}"
    how = [str(record.get("outcome"))]
    how += [f"with {record['action']}"] if "action" in record else []
    how += [f"by {record['model']}"] if "model" in record else []
    cost = f", for {dollars(round(record['cost_usd'] * UNITS))}" if record.get("cost_usd") else ""
    return f"{decision}; {' '.join(how)} in {record.get('duration_ms', 0):.0f} ms{cost}"


def _print_files(passes: Sequence[DemoPass]) -> None:
    print("Files")
    for demo_pass in passes:
        print(f"  decision log  {demo_pass.log}")
        print(f"  database      {demo_pass.database}")
    print(f"  policy        {POLICY}\n")


def _print_next_steps() -> None:
    command = own_command()
    print("To wrap your own server, write a policy and put the gate in front of the server's command:")
    print(f"  {' '.join(command)} init")
    print(f"  {' '.join(command)} run --policy samplegate.yaml -- SERVER ARGS...")
    print("In a client's configuration, with the full path of the policy:")
    wrapped = [*command[1:], "run", "--policy", "/path/to/samplegate.yaml", "--", "SERVER", "ARGS"]
    print(
        textwrap.indent(json.dumps({"mcpServers": {"NAME": {"command": command[0], "args": wrapped}}}, indent=2), "  ")
    )


def _print_problems(demo_pass: DemoPass) -> None:
    for problem in demo_pass.problems:
        print(f"samplegate demo: {demo_pass.era}: {problem}", file=sys.stderr)
    if demo_pass.stderr.is_file() and (text := demo_pass.stderr.read_text("utf-8", "replace").strip()):
        print(
            f"end of stderr ({demo_pass.stderr}):\n{textwrap.indent(text[-3000:], '  ')}",
            file=sys.stderr,
        )
