"""`samplegate status`: where it asks, what it says if a gate cannot be asked, and `--watch` without a terminal."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from samplegate.cli import status
from samplegate.cli.main import main
from samplegate.runtime.status_socket import StatusFolder
from samplegate.status.snapshot import GateStatus, as_json
from tests.fakes.admin_app import STATUS

TOKEN: Final = "the token"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the machine, and a wide terminal."""
    for name in [name for name in os.environ if name.startswith("SAMPLEGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.chdir(tmp_path)


@contextmanager
def daemon(answer: bytes = as_json(STATUS), code: int = 200) -> Iterator[str]:
    """An operators' listener that answers once with this, if it is asked for the status with the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            right = (self.path, self.headers["Authorization"]) == ("/status", f"Bearer {TOKEN}")
            self.send_response(code if right else 401)
            self.end_headers()
            self.wfile.write(answer if right else b"status: no token; send it\n")

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 20
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        thread.join(20)


@contextmanager
def gate(state: Path, *answers: bytes | None) -> Iterator[None]:
    """A process that answers so on its socket, one connection after the other; None: it does not answer."""
    with StatusFolder.open(state, make=True) as folder:
        listening, name = folder.listen()
        listening.settimeout(20)

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(20)
                    if answer is None:
                        connection.recv(1)
                    else:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(20)
        listening.close()
        folder.remove(name)


def named(instance: str, **more: Any) -> GateStatus:
    return msgspec.structs.replace(STATUS, instance=instance, **more)


def token_file(folder: Path) -> str:
    (folder / "token").write_text(f"{TOKEN}\n")
    return str(folder / "token")


def test_gates_of_the_state_folder_are_shown_and_daemons_come_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gate(tmp_path, as_json(named("a", command="run", uptime=9.0))), gate(tmp_path, as_json(named("b"))):
        assert 0 == main(["status", "--state", str(tmp_path)])
    said = capsys.readouterr()
    assert ["run 1.2.3: ready, pid 1, up 9s", "serve 1.2.3: ready, pid 1, up 3s"] == sorted(
        line for line in said.out.splitlines() if " 1.2.3: " in line
    )
    assert said.out.startswith("serve ")
    assert "" == said.err


def test_answers_are_parsed_in_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """msgspec 0.22 crashes the process if two threads use a struct for the first time at once."""
    threads: list[threading.Thread] = []

    def read_gate(text: bytes) -> GateStatus:
        threads.append(threading.current_thread())
        return msgspec.json.decode(text, type=GateStatus)

    monkeypatch.setattr(status, "read_gate", read_gate)
    with gate(tmp_path, as_json(named("a"))), gate(tmp_path, as_json(named("b"))):
        assert 0 == main(["status", "--state", str(tmp_path)])
    assert [threading.main_thread()] * 2 == threads


def test_json_has_all_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gate(tmp_path, as_json(STATUS)):
        assert 0 == main(["status", "--state", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [json.loads(as_json(STATUS))] == found["gates"]
    assert {"time", "gates", "state", "limits", "reviews", "problems"} == found.keys()


def test_without_any_gate_nothing_is_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["status", "--state", str(tmp_path / "state")])
    assert "no gate is running\n" == capsys.readouterr().out
    assert [] == list(tmp_path.iterdir())


def test_a_process_that_does_not_answer_or_answers_nonsense_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "PROCESS_TIMEOUT", 0.1)
    with gate(tmp_path, None), gate(tmp_path, b'{"command": "\x1b[2J"}'):
        assert 0 == main(["status", "--state", str(tmp_path)])
    said = capsys.readouterr()
    assert {
        f"samplegate: process {os.getpid()}: it does not answer within 0.1 s; it may be stopped or overloaded",
        f"samplegate: process {os.getpid()}: its answer has another format; use the same version of samplegate",
    } == set(said.err.splitlines())


def test_a_daemon_is_asked_over_http(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon() as url:
        assert 0 == main(["status", "--admin", url, "--token-file", token_file(tmp_path)])
    assert capsys.readouterr().out.startswith("serve 1.2.3: ready, pid 1, up 3s\n")


def test_settings_name_the_daemon_and_its_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token_file(tmp_path)
    with daemon() as url:
        at = url.removeprefix("http://127.0.0.1")
        (tmp_path / "serve.yaml").write_text(
            f"policy: p.yaml\nstate: state\nadmin_listen: 0.0.0.0{at}\nadmin_token_file: token\n"
        )
        assert 0 == main(["status", "--settings", "serve.yaml"])
    assert capsys.readouterr().out.startswith("serve 1.2.3: ready, pid 1, up 3s\n")


def test_a_daemon_that_answers_on_its_socket_is_not_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve.yaml").write_text("policy: p.yaml\nstate: state\nadmin_listen: 127.0.0.1:1\n")
    with gate(tmp_path / "state", as_json(STATUS)):
        assert 0 == main(["status", "--settings", "serve.yaml"])
    assert 1 == capsys.readouterr().out.count("serve 1.2.3")


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("listener", "token", "says"),
    [
        (
            lambda: None,
            None,
            "no answer: connection refused; check that the daemon runs and that admin_listen has this address",
        ),
        (daemon, None, "401: status: no token; send it; set --token-file to a file with the token of"),
        (lambda: daemon(b"not found\n", 404), TOKEN, "404: not found; check the URL, and the version of the daemon"),
        (lambda: daemon(b"\x1b[2Jboom\n", 500), TOKEN, r"500: \x1b[2Jboom; see the log of the daemon"),
        (lambda: daemon(b"{}"), TOKEN, "its answer is not the status of this version; check the URL, and use the same"),
        (lambda: daemon(b" " * 5_000_000), TOKEN, "its answer is not the status of this version"),
    ],
)
def test_a_daemon_that_cannot_be_asked_is_an_error_with_its_place(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    listener: Callable[[], Any],
    token: str | None,
    says: str,
) -> None:
    more = [] if token is None else ["--token-file", token_file(tmp_path)]
    found = listener()
    if found is None:
        url = f"http://127.0.0.1:{closed_port()}"
        code = main(["status", "--admin", url, *more])
    else:
        with found as url:
            code = main(["status", "--admin", url, *more])
    said = capsys.readouterr().err
    assert 2 == code
    assert said.startswith(f"samplegate: {url}: {says}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--admin", "127.0.0.1:9090"], "samplegate: --admin: '127.0.0.1:9090' "),
        (["--admin", "ftp://x"], "samplegate: --admin: 'ftp://x' "),
        (["--settings", "none.yaml"], "samplegate: none.yaml: cannot be read: no such file"),
        (["--admin", "http://127.0.0.1:1", "--token-file", "none"], "samplegate: none: cannot be read: no such file"),
    ],
)
def test_wrong_arguments_name_the_place_and_a_remedy(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["status", *arguments])
    assert capsys.readouterr().err.startswith(says)


@pytest.mark.parametrize("seconds", ["0", "0.1", "nan", "3601", "soon"])
def test_an_interval_has_bounds(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["status", "--watch", seconds])
    assert f"expected seconds from 0.2 to 3600, got '{seconds}'" in capsys.readouterr().err


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_watch_without_a_terminal_prints_one_snapshot_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], json_lines: bool
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    places = status.Places(tmp_path, f"sqlite:{tmp_path / 'reviews.db'}", None, None, None)
    with gate(tmp_path, *[as_json(STATUS)] * 3):
        assert 0 == status._watch(places, 0.5, json=json_lines, pause=pause)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [0.5] * 3 == pauses
    if json_lines:
        assert [1, 1, 1] == [len(json.loads(line)["gates"]) for line in out.splitlines()]
    else:
        assert 3 == out.count("status at ") == out.count("serve 1.2.3: ready")


def test_a_watch_ends_at_once_if_the_gate_cannot_be_asked_at_first_and_goes_on_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "TIMEOUT", 0.3)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    with daemon() as url:
        places = status.Places(None, "", None, url, Path(token_file(tmp_path)))
        assert 0 == status._watch(places, 0.5, json=False, pause=pause)
    said = capsys.readouterr().out
    assert "serve 1.2.3: ready" in said
    assert f"problem: {url}: no answer" in said
    assert 2 == status._watch(places, 0.5, json=False, pause=pause)
    assert capsys.readouterr().err.startswith(f"samplegate: {url}: no answer")


def test_a_damaged_ledger_is_told_beside_the_gates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "limits.sqlite3").write_bytes(b"")
    with gate(tmp_path, as_json(STATUS)):
        assert 2 == main(["status", "--state", str(tmp_path)])
    said = capsys.readouterr()
    assert "serve 1.2.3: ready" in said.out
    assert said.err.startswith(f"samplegate: limits: {tmp_path / 'limits.sqlite3'}: it is empty")


def test_an_answer_that_never_ends_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "TIMEOUT", 0.2)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                connection.settimeout(0.02)
                while not ended.is_set():
                    try:
                        if connection.recv(65_536) == b"":
                            return
                    except TimeoutError:
                        connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert 2 == main(["status", "--admin", f"http://127.0.0.1:{listening.getsockname()[1]}"])
        finally:
            ended.set()
            thread.join(20)
    out, err = capsys.readouterr()
    assert ("", True) == (out, "no answer: nothing complete within 0.2 s; check that the daemon runs" in err)
