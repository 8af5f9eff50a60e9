"""`samplegate demo --review` as a user starts it, with real processes, the real gate, and a reviewer who uses the REST
API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.cli.main import main
from samplegate.demo import review
from samplegate.demo.client import CallReport
from samplegate.demo.color_server import BANNER, LABEL
from samplegate.demo.review import SIGNALS, DemoFailed, ReviewApiClient, SignalScope
from tests.paths import ROOT

COMMAND: Final = [sys.executable, "-m", "samplegate", "demo", "--review"]
BOUND: Final = 220


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "proxy"), "TMPDIR": str(tmp_path)}


@pytest.mark.timeout(240)
def test_all_questions_wait_are_decided_and_reach_the_server(environment: Mapping[str, str]) -> None:
    command = [*COMMAND, "--era", "modern", "--answer-by-itself"]
    folder = Path(environment["TMPDIR"])
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=BOUND, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    lines = dict(line.strip().split(": ", 1) for line in done.stdout.splitlines() if "): " in line)
    summary = json.loads(lines["summarize_incident(INC-7)"])
    assert "scripted" == summary["model"]
    assert "INC-7" in summary["text"]
    assert {"action": "accept", "form": review.FORM} == json.loads(lines["restart_service(checkout)"])
    for tool in (BANNER, LABEL):
        assert {"action": "accept", "content": review.COLOR} == json.loads(lines[f"{tool}()"])
    assert 2 == done.stdout.count("with the server's own UI: ui://colors/picker.html, ")
    for told in ("/reviews/rv_", "sign in with       sg_", "samplegate reviews list --state ", "/reviews\n"):
        assert told in done.stdout
    assert [] == list(folder.glob("samplegate-review-*"))


def family(pid: int) -> set[tuple[int, str]]:
    """A process and all its descendants, by number and start time."""
    of: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            of.setdefault(int(fields[1]), []).append((int(path.parent.name), fields[19]))
    found: set[tuple[int, str]] = set()
    todo = [pid]
    while todo:
        children = of.get(todo.pop(), [])
        found.update(children)
        todo += [child for child, _ in children]
    return found


def runs(process: tuple[int, str]) -> bool:
    try:
        fields = Path(f"/proc/{process[0]}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == process[1] and fields[0] != "Z"


def until_it_waits(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    said = ""
    for line in started.stdout:
        said += line
        if line.startswith("Waiting for the decisions"):
            break
    return said


@pytest.mark.timeout(240)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="what runs is read from /proc")
def test_who_breaks_off_leaves_no_process_and_no_file(environment: Mapping[str, str], tmp_path: Path) -> None:
    """The end is that of `timeout`, which signals the program and then its process group. All reviews are pending,
    those of a legacy client's calls too."""
    with subprocess.Popen(
        [*COMMAND, "--era", "legacy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environment),
        start_new_session=True,
    ) as started:
        said = until_it_waits(started)
        children = family(started.pid)
        assert len(children) >= 6, said  # the daemon, a server or two, four clients
        started.send_signal(signal.SIGTERM)
        os.killpg(started.pid, signal.SIGINT)
        rest, errors = started.communicate(timeout=BOUND)
    assert (0, "") == (started.returncode, errors), said
    assert "Interrupted before all were decided" in rest
    assert [] == [child for child in children if runs(child)]
    assert [] == list(tmp_path.glob("samplegate-review-*"))


@pytest.mark.timeout(240)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="what runs is read from /proc")
def test_a_terminal_that_is_gone_keeps_nothing_alive(environment: Mapping[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(environment)
    ) as started:
        until_it_waits(started)
        children = family(started.pid)
        assert started.stdout is not None
        started.stdout.close()
        started.send_signal(signal.SIGHUP)
        started.wait(BOUND)
    assert children
    assert [] == [child for child in children if runs(child)]
    assert [] == list(tmp_path.glob("samplegate-review-*"))


def _hangs_up() -> None:
    try:
        signal.raise_signal(signal.SIGHUP)
    finally:
        signal.raise_signal(signal.SIGTERM)  # while it ends
        signal.raise_signal(signal.SIGINT)


def test_a_signal_leaves_only_where_it_may_and_once() -> None:
    with SignalScope() as leaving:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), leaving.may_leave():
            raise AssertionError("it may not begin")
        signal.raise_signal(signal.SIGINT)
    with SignalScope() as leaving, pytest.raises(KeyboardInterrupt), leaving.may_leave():
        _hangs_up()


def test_a_signal_whose_interrupt_got_lost_ends_the_wait_for_a_client() -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as it,
        SignalScope() as leaving,
    ):
        signal.raise_signal(signal.SIGTERM)  # where nothing is raised
        with pytest.raises(KeyboardInterrupt):
            review._client_report(it, time.monotonic() + 30, leaving)
        it.kill()


def test_a_signal_that_was_ignored_stays_so_and_all_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalScope() as leaving, leaving.may_leave():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, hangup)
    assert before == [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("keep", [False, True])
def test_what_the_gate_wrote_is_kept_on_request_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], keep: bool
) -> None:
    monkeypatch.setattr(review, "POLICY", tmp_path / "none.yaml")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "proxy"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    main(["demo", "--review", *(["--keep"] if keep else [])])
    left = [str(path) for path in tmp_path.glob("samplegate-review-*")]
    told = [line.rpartition(" ")[2] for line in capsys.readouterr().out.splitlines() if "are kept in" in line]
    assert (left, keep) == (told, bool(left))


def test_a_gate_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(review, "POLICY", tmp_path / "none.yaml")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "proxy"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert review.FAILED == main(["demo", "--review", "--answer-by-itself"])
    said = capsys.readouterr().err
    assert "samplegate demo --review: the gate did not start: " in said
    assert "none.yaml" in said


class Listener:
    """Answers every request alike, and keeps the requests."""

    def __init__(self, status: int, body: bytes) -> None:
        asked = self.asked = list[tuple[str, str, str | None, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                length = int(self.headers.get("content-length", 0))
                asked.append(
                    (
                        self.command,
                        self.path,
                        self.headers["authorization"],
                        json.loads(self.rfile.read(length) or b"null"),
                    )
                )
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()


@pytest.fixture
def listener(request: pytest.FixtureRequest) -> Iterator[Listener]:
    made = Listener(*request.param)
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join(10)


@pytest.mark.parametrize("listener", [(200, b'{"reviews": [], "next": null}')], indirect=True)
def test_a_verdict_is_given_with_the_digest_that_was_shown(listener: Listener) -> None:
    api = ReviewApiClient(listener.url, "sg_x")
    assert [] == api.waiting()
    api.decide({"id": "rv_1", "digest": "sha256:0"}, verdict="approve")
    assert [
        ("GET", "/v1/reviews?state=pending", "Bearer sg_x", None),
        ("POST", "/v1/reviews/rv_1/verdict", "Bearer sg_x", {"digest": "sha256:0", "verdict": "approve"}),
    ] == listener.asked


@pytest.mark.parametrize("listener", [(409, b'{"detail": "too late"}'), (200, b"<html>")], indirect=True)
def test_an_error_is_told_and_is_no_answer(listener: Listener) -> None:
    with pytest.raises(DemoFailed, match="/v1/reviews: "):
        ReviewApiClient(listener.url, "sg_x").waiting()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, "not decided in time"),
        (CallReport(failure="refused"), "the call failed: refused"),
        (CallReport(structured={"text": "hi"}), '{"text": "hi"}'),
    ],
)
def test_what_the_server_got_is_told_whatever_it_was(
    said: CallReport | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    review._print_answers([said] * 4)
    assert 4 == capsys.readouterr().out.count(told)
