"""`samplegate demo`: runs the trials and tells what happened. Decides nothing and checks nothing itself: ``trial.py`` does."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from samplegate.demo.client import TOOL, Era
from samplegate.demo.trial import POLICY, TICKET, Trial, through_gate, without_gate

OK, FAILED = 0, 1
ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")
WIDTH: Final = 110

INTRODUCTION: Final = f"""\
A server of user accounts has a tool, {TOOL}. On its way it asks a model how risky that is, a person to
confirm it by a form, and a model for an audit entry. Its client, a real MCP client, declares neither sampling nor elicitation.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command line takes."""
    parser.add_argument("--era", choices=("legacy", "modern"), help="of the protocol (default: both, one after the other)")


def command(args: argparse.Namespace) -> int:
    """Run the demo, in ``args.era`` (legacy, modern) or in both. Returns 0, or 1 with a message on stderr where anything went otherwise."""
    era: Era | None = getattr(args, "era", None)
    folder = Path(tempfile.mkdtemp(prefix="samplegate-demo-"))
    print(INTRODUCTION)
    alone = without_gate(folder)
    _tell_alone(alone)
    trials = [alone]
    for one in ERAS if era is None else (era,):
        trial = through_gate(folder, one)
        _tell(trial)
        trials.append(trial)
    failed = [trial for trial in trials if trial.problems]
    for trial in failed:
        _complain(trial)
    if failed:
        return FAILED
    _tell_where(trials[1:])
    _tell_wrapping()
    return OK


def _tell_alone(trial: Trial) -> None:
    print(f"Without the gate, protocol {trial.seen.revision or 'unknown'}")
    print(_indented(f"{TOOL}(ticket={TICKET}) failed: {trial.seen.failure}\n"))


def _tell(trial: Trial) -> None:
    print(f"Behind the gate, {trial.era} era, protocol {trial.seen.revision or 'unknown'}")
    for number, record in enumerate(trial.records, 1):
        print(_indented(f"{number}. {_asked(record)}"))
        print(_indented(_decided(record), 5))
        if answer := _answer(record.get("result")):
            print(_indented(f"-> {answer}", 5))
    if trial.seen.failure is not None:
        print(_indented(f"The call failed: {trial.seen.failure}"))
    if trial.seen.structured is not None:
        print(_indented(f"The tool's result: {json.dumps(trial.seen.structured)}"))
    if not trial.problems:
        print(_indented("In the database file the inactive accounts are gone, and the audit entry is there."))
    print()


def _asked(record: dict[str, Any]) -> str:
    """What the server asked; its words, where the log keeps content."""
    method = "sampling/createMessage" if record.get("kind") == "sampling" else "elicitation/create"
    words = _words(record.get("request"))
    during = ", ".join(call.get("tool") or call.get("method", "") for call in record.get("calls", [])) or "no call"
    return f"{method} during {during}" + (f": {words}" if words else "")


def _words(request: object) -> str:
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
    return str(content["text"]) if isinstance(content, dict) and "text" in content else json.dumps(content) if content else ""


def _decided(record: dict[str, Any]) -> str:
    by = record.get("rule")
    said = f"{record.get('effect')}, by the rule '{by}'" if by else f"{record.get('effect')}: {record.get('reason')}"
    how = [str(record.get("outcome"))]
    how += [f"with {record['action']}"] if "action" in record else []
    how += [f"by {record['model']}"] if "model" in record else []
    cost = f", for {record['cost_usd']:.6f} USD" if record.get("cost_usd") else ""
    return f"{said}; {' '.join(how)} in {record.get('duration_ms', 0):.0f} ms{cost}"


def _tell_where(trials: Sequence[Trial]) -> None:
    print("Where to look")
    for trial in trials:
        print(f"  decision log  {trial.log}")
        print(f"  database      {trial.database}")
    print(f"  policy        {POLICY}\n")


def _tell_wrapping() -> None:
    command = _own_command()
    print("To wrap a server of your own, write a policy and put the gate before the server's command:")
    print(f"  {' '.join(command)} init")
    print(f"  {' '.join(command)} run --policy samplegate.yaml -- SERVER ARGS...")
    print("In a client's configuration, with the policy's whole path:")
    wrapped = [*command[1:], "run", "--policy", "/path/to/samplegate.yaml", "--", "SERVER", "ARGS"]
    print(textwrap.indent(json.dumps({"mcpServers": {"NAME": {"command": command[0], "args": wrapped}}}, indent=2), "  "))


def _own_command() -> list[str]:
    """How this installation is started from anywhere: clients have a path of their own."""
    beside = shutil.which("samplegate", path=str(Path(sys.executable).parent))
    return [sys.executable, "-m", "samplegate"] if beside is None else [beside]


def _complain(trial: Trial) -> None:
    for problem in trial.problems:
        print(f"samplegate demo: {trial.era} era: {problem}", file=sys.stderr)
    if trial.stderr.is_file() and (said := trial.stderr.read_text("utf-8", "replace").strip()):
        print(f"what was said on stderr, at its end ({trial.stderr}):\n{textwrap.indent(said[-3000:], '  ')}", file=sys.stderr)


def _indented(text: str, by: int = 2) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * by, subsequent_indent=" " * (by + 3), break_on_hyphens=False)
