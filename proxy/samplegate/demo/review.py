"""`samplegate demo --review`: servers ask a model and a user, two forms with a UI of the server's own, and you decide
the requests on the page or the command line.

All processes are real. The demo prints where to decide, and the answers that the server got. It decides nothing itself,
except with --answer-by-itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, TextIO

from samplegate.demo.client import CallReport, Era
from samplegate.demo.color_server import BANNER, LABEL
from samplegate.demo.output import indented, own_command
from samplegate.demo.review_server import RESTART, SUMMARIZE
from samplegate.durations import duration_text

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class DemoFailed(Exception):
    """The demo failed: the gate did not start, or its API answered with an error. The message is for the user."""


class SignalScope:
    """Signal handlers for the duration of a ``with`` block. Signals that the parent process ignores (nohup) stay
    ignored."""

    def __init__(self) -> None:
        self._asked = False
        self._open = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalScope:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._leave)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def may_leave(self) -> Iterator[None]:
        """Allow an interrupt: only in this block, the first signal raises KeyboardInterrupt, even if it came earlier.
        The second is ignored, because shutdown has begun."""
        self._open = True
        try:
            if self._asked:
                self._leave(signal.SIGINT, None)
            yield
        finally:
            self._open = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was a signal. Loops that wait call it, because an interrupt may get lost: if
        it is raised in a finalizer, or if the signal arrives right before a system call that waits."""
        if self._asked:
            raise KeyboardInterrupt

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True
        if self._open:
            self._open = False
            raise KeyboardInterrupt


TIMEOUT: Final = 30.0

DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener without proxies, because the gate is on this machine."""


class ReviewApiClient:
    """Client of one gate's review API, for one reviewer."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def waiting(self) -> list[dict[str, Any]]:
        """Pending reviews, without their content."""
        found: list[dict[str, Any]] = self._ask("/v1/reviews?state=pending")["reviews"]
        return found

    def review(self, id: str) -> dict[str, Any]:
        """One review with its content."""
        return self._ask(f"/v1/reviews/{id}")

    def decide(self, review: Mapping[str, Any], **verdict: Any) -> dict[str, Any]:
        """Give a verdict on the review as shown."""
        return self._ask(f"/v1/reviews/{review['id']}/verdict", {"digest": review["digest"], **verdict})

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers)
        try:
            with DIRECT.open(request, timeout=TIMEOUT) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as problem:
            with problem:
                said = problem.read(2000).decode("utf-8", "replace")
            raise DemoFailed(f"{path.partition('?')[0]}: {problem.code}: {said}") from None
        except (OSError, ValueError) as problem:
            raise DemoFailed(f"{path.partition('?')[0]}: {problem}") from None


POLICY: Final = Path(__file__).with_name("review.yaml")
SERVERS: Final = {"incidents": "samplegate.demo.review_server", "colors": "samplegate.demo.color_server"}
"""The module of each server."""
PERSON: Final = "ada"
START_TIMEOUT: Final = 60.0
"""Seconds: a cold start on a slow disk."""
STOP_TIMEOUT: Final = 15.0

_listening: Final = re.compile(r"listening on (http://[^\s\"/]+)/servers/")


class RunningGate:
    """A running daemon.

    ``token`` is the reviewer's, ``page`` the URL of the review page, and ``endpoint`` the URL of the listener for
    clients ("" until the daemon listens).
    """

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.log = folder / "gate.log"
        self.settings = folder / "serve.yaml"
        self.token = f"sg_{secrets.token_urlsafe(32)}"
        self.page = f"http://127.0.0.1:{_free_port()}"
        self.endpoint = ""
        self._started = threading.Event()
        self.settings.write_text(self._settings(), "utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "samplegate", "serve", "--settings", str(self.settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"SAMPLEGATE_STATE": str(self.state)},
            start_new_session=True,  # Ctrl-C is for the demo, which then ends the gate
        )
        assert self.process.stderr is not None
        self._reading = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reading.start()

    def _settings(self) -> str:
        """The settings file, in JSON, which is also YAML."""
        person = {
            "name": PERSON,
            "role": "reviewer",
            "reviewers": ["ops"],
            "sha256": hashlib.sha256(self.token.encode()).hexdigest(),
        }
        return json.dumps(
            {
                "policy": str(POLICY),
                "listen": "127.0.0.1:0",
                "reviews_listen": self.page.removeprefix("http://"),
                "reviews_url": self.page,
                "servers": {
                    name: {"command": sys.executable, "args": ["-m", module]} for name, module in SERVERS.items()
                },
                "people": {"tokens": [person]},
                "drain_delay": 0,  # no load balancer in front needs the delay
            },
            indent=2,
        )

    def _read(self, stderr: TextIO) -> None:
        """Write the gate's stderr to its log, and find the endpoint in it."""
        with stderr, self.log.open("w", encoding="utf-8") as log:
            for line in stderr:
                log.write(line)
                log.flush()
                if (found := _listening.search(line)) is not None and not self.endpoint:
                    self.endpoint = found[1]
                    self._started.set()
        self._started.set()

    def wait(self) -> None:
        """Wait until the gate listens. Raises DemoFailed."""
        self._started.wait(START_TIMEOUT)
        if not self.endpoint:
            raise DemoFailed(f"the gate did not start: {self.log_tail()}")

    def log_tail(self) -> str:
        """The end of the gate's log."""
        said = self.log.read_text("utf-8").strip() if self.log.is_file() else ""
        return said[-2000:] or "nothing"

    def end(self) -> None:
        """Ask the gate to drain, and kill it after ``STOP_TIMEOUT`` seconds."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # its own group, by start_new_session
            self.process.wait(STOP_TIMEOUT)
        self._reading.join(STOP_TIMEOUT)


def _free_port() -> int:
    """A port that is free now. Links contain it before the gate listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


OK, FAILED = 0, 1


class Call(NamedTuple):
    """One call of a client."""

    server: str
    tool: str
    arguments: dict[str, str]


CALLS: Final = (
    Call("incidents", SUMMARIZE, {"incident": "INC-7"}),
    Call("incidents", RESTART, {"service": "checkout"}),
    Call("colors", BANNER, {}),
    Call("colors", LABEL, {}),
)
REVIEWS_TIMEOUT: Final = 60.0
"""Seconds until all reviews are pending: four clients and their servers start cold."""
POLL_INTERVAL: Final = 0.2
SECONDS: Final = 900.0
"""How long to wait for the decisions."""

FORM: Final[dict[str, Any]] = {
    "confirm": True,
    "strategy": "rolling",
    "zones": ["eu-1", "eu-2"],
    "replicas": 3,
    "error_budget": 0.5,
    "on_call": "ops@example.com",
    "reason": "the demo answers automatically",
}
"""Content of the form for ``--answer-by-itself``."""
COLOR: Final[dict[str, Any]] = {"color": "#3b82f6", "name": "blue"}
"""Content of the forms for colors."""

_FORM_ARGUMENTS: Final = (
    "confirm=true strategy=rolling zones=eu-1 replicas=3 error_budget=0.5 on_call=ops@example.com reason='a trial'"
)


def command(args: argparse.Namespace) -> int:
    """Run the demo and remove everything it created. Returns 0, or 1 with a message on stderr after a failure."""
    era: Era = args.era or "modern"
    with SignalScope() as leaving:
        folder = Path(tempfile.mkdtemp(prefix="samplegate-review-"))
        code, last = OK, ""
        try:
            with _gate(folder, leaving) as gate, _clients(gate, era) as clients, leaving.may_leave():
                code = _run(gate, clients, args, leaving)
        except KeyboardInterrupt:
            last = "\nInterrupted before all were decided; pending requests are withdrawn."
        except DemoFailed as problem:
            code = FAILED
            print(f"samplegate demo --review: {problem}", file=sys.stderr)
        finally:
            if not args.keep:
                shutil.rmtree(folder, ignore_errors=True)
        _print_last([last, f"The gate's state and log are kept in {folder}" if args.keep else ""])
        return code


def _print_last(lines: Sequence[str]) -> None:
    """Print the last lines, unless the terminal is gone."""
    with suppress(OSError):
        for line in filter(None, lines):
            print(line, flush=True)


@contextmanager
def _gate(folder: Path, leaving: SignalScope) -> Iterator[RunningGate]:
    gate = RunningGate(folder)
    try:
        with leaving.may_leave():
            gate.wait()
        yield gate
    finally:
        gate.end()


@contextmanager
def _clients(gate: RunningGate, era: Era) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a client process for each call, and end them."""
    started: list[subprocess.Popen[str]] = []
    try:
        for call in CALLS:
            started.append(_client(gate, era, call))  # noqa: PERF401 - what was started ends, whatever fails
        yield started
    finally:
        for client in started:
            client.kill()
            client.communicate()


def _client(gate: RunningGate, era: Era, call: Call) -> subprocess.Popen[str]:
    url = f"{gate.endpoint}/servers/{call.server}/mcp"
    command = [sys.executable, "-m", "samplegate.demo.client", url, era, call.tool, json.dumps(call.arguments)]
    direct = os.environ | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=direct, start_new_session=True
    )


def _run(
    gate: RunningGate, clients: Sequence[subprocess.Popen[str]], args: argparse.Namespace, leaving: SignalScope
) -> int:
    api = ReviewApiClient(gate.page, gate.token)
    until = time.monotonic() + (SECONDS if args.seconds is None else args.seconds)
    waiting = _wait_for_reviews(gate, api, clients, leaving)
    _print_reviews(gate, waiting)
    if args.answer_by_itself:
        _decide(api, waiting)
    reports = [_client_report(client, until, leaving) for client in clients]
    _print_answers(reports)
    return (
        FAILED
        if args.answer_by_itself and not all(report is not None and report.failure is None for report in reports)
        else OK
    )


def _wait_for_reviews(
    gate: RunningGate, api: ReviewApiClient, clients: Sequence[subprocess.Popen[str]], leaving: SignalScope
) -> list[dict[str, Any]]:
    """The reviews in the order of the calls, once all are pending and the gate has read the server's UIs."""
    until = time.monotonic() + REVIEWS_TIMEOUT
    while len(found := api.waiting()) < len(CALLS) or any(_is_loading(review) for review in found):
        leaving.check()
        ended = [_client_report(client, until, leaving) for client in clients if client.poll() is not None]
        if ended or time.monotonic() > until:
            raise DemoFailed(
                f"{len(found)} of {len(CALLS)} reviews are pending; ended calls: {ended}; the gate's log:"
                f" {gate.log_tail()}"
            )
        time.sleep(POLL_INTERVAL)
    tools = [call.tool for call in CALLS]
    return sorted((api.review(review["id"]) for review in found), key=lambda review: tools.index(_tool(review)))


def _is_loading(review: Mapping[str, Any]) -> bool:
    return review["ui"] is not None and review["ui"]["state"] == "loading"


def _tool(review: Mapping[str, Any]) -> str:
    tool: str = review["during"][0]["tool"]
    return tool


def _decide(api: ReviewApiClient, waiting: Sequence[dict[str, Any]]) -> None:
    """Decide as a person would: shorten the model's answer, and fill in the forms."""
    sampling, form, *colors = waiting
    api.decide(sampling, verdict="approve", edits={"maxTokens": 80, "temperature": 0.1}, reason="shorter")
    print("Approved the sampling request with edits: maxTokens 80, temperature 0.1")
    api.decide(form, verdict="answer", action="accept", content=FORM)
    print(f"Answered the form: {json.dumps(FORM)}")
    for review in colors:
        api.decide(review, verdict="answer", action="accept", content=COLOR)
        print(f"Answered {_tool(review)} without the server's UI: {json.dumps(COLOR)}")
    print()


def _client_report(client: subprocess.Popen[str], until: float, leaving: SignalScope) -> CallReport | None:
    """The client's report; None after the deadline. Raises KeyboardInterrupt after a signal."""
    output = _output(client, until, leaving)
    if output is None:
        return None
    said, errors = output
    try:
        return CallReport(**json.loads(said))
    except ValueError:
        return CallReport(failure=f"the client failed: {errors.strip()[-500:]}")


def _output(client: subprocess.Popen[str], until: float, leaving: SignalScope) -> tuple[str, str] | None:
    while True:
        leaving.check()
        left = until - time.monotonic()
        try:
            return client.communicate(timeout=min(max(0.0, left), POLL_INTERVAL))
        except subprocess.TimeoutExpired:
            if left <= 0:
                return None


def _print_reviews(gate: RunningGate, waiting: Sequence[dict[str, Any]]) -> None:
    print("Two servers sent four requests that their clients cannot answer. The policy sends all to a reviewer.\n")
    for review in waiting:
        call = ", ".join(each["tool"] or each["method"] for each in review["during"])
        print(
            indented(
                f"{review['kind']} during {call}, by rule '{review['rule']}', for {review['reviewer']};"
                f" expires in {duration_text(review['seconds_left'])}"
            )
        )
        print(indented(review["link"], 5))
        if review["ui"] is not None:
            read = f"{review['ui']['size']} bytes" if review["ui"]["state"] == "ready" else "could not be read"
            print(indented(f"with the server's own UI: {review['ui']['uri']}, {read}", 5))
    reviews = f"{shlex.join(own_command())} reviews"
    where = f"--state {shlex.quote(str(gate.state))}"
    sampling, form, *_ = waiting
    print(
        '\nThe colors server has its own UI, a color picker: use it on the page, then press "Accept and send" in the'
        " gate's form."
    )
    print(f"\nOn the page          {gate.page}/reviews\n  sign in with       {gate.token}   (as {PERSON})")
    print(f"\nOn the command line  {reviews} list {where}")
    print(f"                     {reviews} show {sampling['id']} {where}")
    print(f"                     {reviews} approve {sampling['id']} {where}")
    print(
        f"                     {reviews} answer {form['id']} {where} \\\n                       --accept"
        f" {_FORM_ARGUMENTS}"
    )
    print(
        "\nWaiting for the decisions. Then the gate and its page stop; press Ctrl-C to stop earlier. The gate's log:"
        f" {gate.log}\n",
        flush=True,
    )


def _print_answers(reports: Sequence[CallReport | None]) -> None:
    print("Answers that the server got")
    for (_, tool, arguments), report in zip(CALLS, reports, strict=True):
        if report is None:
            said = "not decided in time"
        else:
            said = (
                f"the call failed: {report.failure}"
                if report.failure is not None
                else json.dumps(report.structured, ensure_ascii=False)
            )
        print(f"  {tool}({', '.join(arguments.values())}): {said}")
