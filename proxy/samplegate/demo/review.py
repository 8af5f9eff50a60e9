"""`make demo-review`: a server asks a model and a person, and somebody decides both, at the page or the command line. Real processes throughout.

Prints where, and what the server got in the end. Decides nothing itself, unless told to by ``--answer-by-itself``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from samplegate.demo.client import MODES, Era
from samplegate.demo.review_api import Api, Refused
from samplegate.demo.review_gate import PERSON, Gate, NotStarted
from samplegate.demo.review_leaving import Leaving
from samplegate.demo.review_server import RESTART, SUMMARIZE

OK, FAILED = 0, 1
CALLS: Final = ((SUMMARIZE, {"incident": "INC-7"}), (RESTART, {"service": "checkout"}))
ASKED_WITHIN: Final = 60.0
"""Seconds until both questions wait: two clients and two servers start cold."""
GLANCE: Final = 0.2
WIDTH: Final = 110

FORM: Final[dict[str, Any]] = {
    "confirm": True,
    "strategy": "rolling",
    "zones": ["eu-1", "eu-2"],
    "replicas": 3,
    "error_budget": 0.5,
    "on_call": "ops@example.com",
    "reason": "the demo answers by itself",
}
"""What ``--answer-by-itself`` fills in."""

_TYPED: Final = "confirm=true strategy=rolling zones=eu-1 replicas=3 error_budget=0.5 on_call=ops@example.com reason='a trial'"


class Failed(Exception):
    """The demo could not be shown; the message is for whoever started it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. Returns 0, or 1 with a message on stderr where something went otherwise than told. Nothing that it started or wrote is left."""
    args = _parser().parse_args(arguments)
    with Leaving() as leaving:
        folder = Path(tempfile.mkdtemp(prefix="samplegate-review-"))
        code, last = OK, ""
        try:
            with _gate(folder, leaving) as gate, _clients(gate, args.era) as clients, leaving.may_leave():
                code = _shown(gate, clients, args)
        except KeyboardInterrupt:
            last = "\nended before both were decided; whatever waited is withdrawn"
        except (Failed, Refused, NotStarted) as problem:
            code = FAILED
            print(f"samplegate demo-review: {problem}", file=sys.stderr)
        finally:
            if not args.keep:
                shutil.rmtree(folder, ignore_errors=True)
        _say_last([last, f"The gate's state and log are kept in {folder}" if args.keep else ""])
        return code


def _say_last(lines: Sequence[str]) -> None:
    """Unless the terminal is gone."""
    with suppress(OSError):
        for line in filter(None, lines):
            print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo-review", description=__doc__, allow_abbrev=False)
    parser.add_argument("--era", choices=tuple(MODES), default="modern", help="of the protocol (default: modern)")
    parser.add_argument("--answer-by-itself", action="store_true", help="decide both over the REST API, for trials without a person")
    parser.add_argument("--seconds", type=float, default=900.0, help="how long to wait for somebody (default: 900)")
    parser.add_argument("--keep", action="store_true", help="leave the gate's state and log where they are, and say where")
    return parser


@contextmanager
def _gate(folder: Path, leaving: Leaving) -> Iterator[Gate]:
    gate = Gate(folder)
    try:
        with leaving.may_leave():
            gate.wait()
        yield gate
    finally:
        gate.end()


@contextmanager
def _clients(gate: Gate, era: Era) -> Iterator[list[subprocess.Popen[str]]]:
    """A process for each call."""
    started: list[subprocess.Popen[str]] = []
    try:
        for tool, arguments in CALLS:
            started.append(_client(gate, era, tool, arguments))
        yield started
    finally:
        for client in started:
            client.kill()
            client.communicate()


def _client(gate: Gate, era: Era, tool: str, arguments: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "samplegate.demo.review_client", gate.endpoint, era, tool, json.dumps(arguments)]
    direct = os.environ | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=direct, start_new_session=True)


def _shown(gate: Gate, clients: Sequence[subprocess.Popen[str]], args: argparse.Namespace) -> int:
    api = Api(gate.page, gate.token)
    until = time.monotonic() + args.seconds
    waiting = _both(gate, api, clients)
    _tell_where(gate, waiting)
    if args.answer_by_itself:
        _decide(api, waiting)
    seen = [_seen(client, until) for client in clients]
    _tell_got(seen)
    return FAILED if args.answer_by_itself and not all(one and "result" in one for one in seen) else OK


def _both(gate: Gate, api: Api, clients: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """The two reviews, once both wait: the sampling first."""
    until = time.monotonic() + ASKED_WITHIN
    while len(found := api.waiting()) < len(CALLS):
        ended = [_seen(client, until) for client in clients if client.poll() is not None]
        if ended or time.monotonic() > until:
            raise Failed(f"{len(found)} of {len(CALLS)} questions came up; calls that ended: {ended}; the gate said: {gate.said()}")
        time.sleep(GLANCE)
    return sorted((api.review(one["id"]) for one in found), key=lambda one: str(one["kind"]), reverse=True)


def _decide(api: Api, waiting: Sequence[dict[str, Any]]) -> None:
    """As a person would: shorten what the model may write, and fill in the form."""
    sampling, form = waiting
    api.decide(sampling, verdict="approve", edits={"maxTokens": 80, "temperature": 0.1}, reason="shorter")
    print("Approved the sampling with edits: maxTokens 80, temperature 0.1")
    api.decide(form, verdict="answer", action="accept", content=FORM)
    print(f"Answered the form: {json.dumps(FORM)}\n")


def _seen(client: subprocess.Popen[str], until: float) -> dict[str, Any] | None:
    """What the client printed; None where time is up."""
    try:
        said, errors = client.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    try:
        found: dict[str, Any] = json.loads(said)
    except ValueError:
        return {"failure": f"the client broke off: {errors.strip()[-500:]}"}
    return found


def _tell_where(gate: Gate, waiting: Sequence[dict[str, Any]]) -> None:
    print("A server asked twice, its client can answer neither, and the policy says: a person decides.\n")
    for one in waiting:
        call = ", ".join(each["tool"] or each["method"] for each in one["during"])
        print(_indented(f"{one['kind']} during {call}, by the rule '{one['rule']}', for {one['reviewer']}; {one['seconds_left']} s left"))
        print(_indented(one["link"], 5))
    reviews = f"{_own_command()} reviews"
    where = f"--state {shlex.quote(str(gate.state))}"
    sampling, form = waiting
    print(f"\nAt the page          {gate.page}/reviews\n  sign in with       {gate.token}   (as {PERSON})")
    print(f"\nAt the command line  {reviews} list {where}")
    print(f"                     {reviews} show {sampling['id']} {where}")
    print(f"                     {reviews} approve {sampling['id']} {where}")
    print(f"                     {reviews} answer {form['id']} {where} \\\n                       --accept {_TYPED}")
    print(f"\nWaiting until both are decided; Ctrl-C ends it. The gate's log: {gate.log}\n", flush=True)


def _tell_got(seen: Sequence[dict[str, Any] | None]) -> None:
    print("What the server got")
    for (tool, arguments), one in zip(CALLS, seen, strict=True):
        if one is None:
            said = "nobody decided in time"
        else:
            said = f"the call failed: {one['failure']}" if "failure" in one else json.dumps(one["result"], ensure_ascii=False)
        print(f"  {tool}({', '.join(arguments.values())}): {said}")


def _own_command() -> str:
    beside = Path(sys.executable).with_name("samplegate")
    return str(beside) if beside.is_file() else f"{shlex.quote(sys.executable)} -m samplegate"


def _indented(text: str, by: int = 2) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * by, subsequent_indent=" " * (by + 3), break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    sys.exit(main())
