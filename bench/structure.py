"""The shape of the code and its costs: modules, lines, files that a request enters, start-up, memory.

    python bench/structure.py                  this checkout
    python bench/structure.py --tree DIR       another checkout, with this interpreter's packages

Files entered: `samplegate run` under `sys.setprofile` counts the package's files whose functions run between a
request's first byte and its last: a ping, a tool call that samples (scripted model, one limit, a JSONL log), and a tool
call that elicits and is answered with `samplegate reviews`. Lines are non-blank lines after `ruff format --line-length
150` in a copy, so that figures of different line lengths can be compared.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "samplegate"
PATIENCE: Final = 60.0
STARTS: Final = 5
FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
POLICY: Final = """\
version: 1
models:
  - {name: fixed, model: scripted, cases: answers.yaml}
limits:
  samples: {requests: 100, per: process}
reviewers:
  desk: {}
rules:
  - {name: samples, match: {kind: sampling}, effect: allow, with: {models: [fixed]}, limits: [samples]}
  - {name: forms, match: {kind: elicitation}, effect: escalate, reviewer: desk}
"""
ANSWERS: Final = "cases: [{answer: a scripted answer}]\n"


def policy_in(folder: Path) -> Path:
    """The policy's file, written to the folder with the answers of its model."""
    (folder / "answers.yaml").write_text(ANSWERS, encoding="utf-8")
    path = folder / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


def shape(tree: Path) -> dict[str, Any]:
    """Modules with code, non-blank lines at 150 columns, the median and the largest module, modules at the package's
    root."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / PACKAGE
        shutil.copytree(tree / "proxy" / PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        ruff = ["ruff", "format", "--quiet", "--no-cache", "--isolated", "--line-length", "150", str(copy)]
        subprocess.run([sys.executable, "-m", *ruff], check=True)
        counted = {
            str(path.relative_to(copy)): sum(
                bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines()
            )
            for path in copy.rglob("*.py")
        }
    modules = {name: lines for name, lines in counted.items() if lines}
    largest = max(modules, key=lambda name: modules[name])
    return {
        "modules": len(modules),
        "lines": sum(modules.values()),
        "median module": median(modules.values()),
        "largest module": f"{largest}, {modules[largest]} lines",
        "modules at the root": sum("/" not in name for name in modules),
    }


@contextmanager
def compiled(tree: Path) -> Iterator[Path]:
    """A copy of the checkout's package with compiled modules, so that no start compiles them."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "proxy" / PACKAGE
        shutil.copytree(tree / "proxy" / PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(copy, quiet=2)
        yield Path(folder)


class Run:
    """A `samplegate run` around this file's server, whose files can be counted."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.environment = os.environ | {"PYTHONPATH": str(tree / "proxy"), "XDG_STATE_HOME": str(folder / "state")}
        self.folder, self.found = folder, folder / "files.json"
        self.state = ["--state", str(folder / "state")]
        gate = [
            "run",
            "--policy",
            str(policy_in(folder)),
            "--decision-log",
            str(folder / "decisions.jsonl"),
            *self.state,
        ]
        command = [
            sys.executable,
            __file__,
            "--probe",
            str(self.found),
            *gate,
            "--",
            sys.executable,
            __file__,
            "--server",
        ]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=self.environment, **pipes)
        self._id = 0

    def send(self, method: str, params: dict[str, Any], *, notification: bool = False) -> int:
        """The ID of a request or notification that was sent."""
        assert self.process.stdin is not None
        self._id += 1
        frame: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        _write(self.process.stdin, frame if notification else frame | {"id": self._id})
        return self._id

    def answer(self, id: int) -> dict[str, Any]:
        """The answer to a request. Raises RuntimeError if it is an error or if the gate ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            frame: dict[str, Any] = json.loads(line)
            if frame.get("id") == id and "method" not in frame:
                if "error" in frame or frame["result"].get("isError"):
                    raise RuntimeError(f"{frame}")
                return frame
        raise RuntimeError(f"the gate ended with {self.process.wait()}")

    def initialize(self) -> None:
        """The handshake of a client that can neither sample nor elicit."""
        client = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "structure", "version": "1"},
        }
        self.answer(self.send("initialize", client))
        self.send("notifications/initialized", {}, notification=True)

    def begin(self) -> None:
        """Forget the files counted so far."""
        self._signal(signal.SIGUSR1)

    def files(self) -> list[str]:
        """The package's files entered since :meth:`begin`, sorted."""
        self._signal(signal.SIGUSR2)
        found: list[str] = json.loads(self.found.read_text(encoding="utf-8"))
        return found

    def review(self) -> None:
        """Answer the one pending review on the command line."""
        reviews = [sys.executable, "-m", PACKAGE, "reviews"]
        for _ in range(200):
            listed = subprocess.run(
                [*reviews, "list", *self.state, "--json"], env=self.environment, capture_output=True, check=False
            ).stdout
            rows = json.loads(listed or "[]")
            if rows:
                answer = [*reviews, "answer", *self.state, rows[0]["id"], "--accept", "name=Ada"]
                subprocess.run(answer, env=self.environment, check=True, stdout=subprocess.DEVNULL)
                return
            time.sleep(0.1)
        raise RuntimeError("no review came up")

    def _signal(self, number: signal.Signals) -> None:
        self.found.unlink(missing_ok=True)
        os.kill(self.process.pid, number)
        for _ in range(int(PATIENCE / 0.02)):
            if self.found.exists():
                return
            time.sleep(0.02)
        raise RuntimeError("the gate does not write which files it entered")


def entered(tree: Path) -> dict[str, list[str]]:
    """The files that a ping, a sampling request and an escalated form each enter in the process of `run`."""
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        run = Run(tree, Path(name))
        try:
            run.initialize()
            for label, method, params in (
                ("ping", "ping", {}),
                ("sampling", "tools/call", {"name": "sample", "arguments": {}}),
                ("escalated form", "tools/call", {"name": "elicit", "arguments": {}}),
            ):
                run.begin()
                id = run.send(method, params)
                if label == "escalated form":
                    run.review()
                run.answer(id)
                found[label] = run.files()
        finally:
            run.process.kill()
            run.process.wait()
    return found


def start_of_run(tree: Path) -> dict[str, float]:
    """CPU seconds and MiB of `run` alone, from its start to the answered `initialize`; medians."""
    figures = []
    for _ in range(STARTS + 1):
        with tempfile.TemporaryDirectory() as name:
            gate = ["run", "--policy", str(policy_in(Path(name))), "--state", name]
            command = [sys.executable, "-m", PACKAGE, *gate, "--", sys.executable, __file__, "--server"]
            with _started(command, tree) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                client = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "structure", "version": "1"},
                }
                _write(process.stdin, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client})
                process.stdout.readline()
                figures.append(_cost(process.pid))
    return _medians(figures)


def start_of_serve(tree: Path) -> dict[str, float]:
    """CPU seconds and MiB of `serve` with one stdio server, from its start to the first 200 of /readyz; medians."""
    figures = []
    for _ in range(STARTS + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            listen, admin = _free_port(), _free_port()
            config = {
                "policy": str(policy_in(folder)),
                "listen": f"127.0.0.1:{listen}",
                "admin_listen": f"127.0.0.1:{admin}",
                "state": str(folder / "state"),
                "servers": {"one": {"command": sys.executable, "args": [__file__, "--server"]}},
            }
            (folder / "settings.yaml").write_text(json.dumps(config), encoding="utf-8")
            with _started(
                [sys.executable, "-m", PACKAGE, "serve", "--settings", str(folder / "settings.yaml")], tree
            ) as process:
                _await(f"http://127.0.0.1:{admin}/readyz", process)
                figures.append(_cost(process.pid))
    return _medians(figures)


@contextmanager
def _started(command: Sequence[str], tree: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": str(tree / "proxy")}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=environment)
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(int(PATIENCE / 0.05)):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            if process.poll() is not None:
                raise RuntimeError(f"serve ended with {process.returncode}") from None
        time.sleep(0.05)
    raise RuntimeError(f"{url} is not ready")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _cost(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return cpu, memory


def _medians(figures: Sequence[tuple[float, float]]) -> dict[str, float]:
    cpu, memory = zip(*figures[1:], strict=True)
    return {"CPU s": round(median(cpu), 2), "MiB": round(median(memory), 1)}


def _write(pipe: IO[bytes], frame: dict[str, Any]) -> None:
    pipe.write(json.dumps(frame).encode() + b"\n")
    pipe.flush()


def probe(found: Path, arguments: Sequence[str]) -> None:
    """Run the gate with every entered file on record: SIGUSR1 forgets them, SIGUSR2 writes them to ``found``."""
    entered: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    def forget(*_: object) -> None:
        entered.clear()
        found.write_text("[]", encoding="utf-8")

    def write(*_: object) -> None:
        part = f"{os.sep}{PACKAGE}{os.sep}"
        names = sorted({name.rpartition(part)[2] for name in tuple(entered) if part in name})
        whole = found.with_suffix(".part")
        whole.write_text(json.dumps(names), encoding="utf-8")
        whole.rename(found)

    signal.signal(signal.SIGUSR1, forget)
    signal.signal(signal.SIGUSR2, write)
    threading.setprofile(note)
    sys.setprofile(note)
    from samplegate.cli.main import main

    sys.exit(main(list(arguments)))


def serve() -> None:
    """A stdio server with the tools `sample` and `elicit`, each of which asks the client once."""
    asked = {
        "sample": (
            "sampling/createMessage",
            {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 50},
        ),
        "elicit": ("elicitation/create", {"message": "Your name?", "requestedSchema": FORM}),
    }
    result: dict[str, Any]
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if "id" not in frame or "method" not in frame:
            continue
        match frame["method"]:
            case "initialize":
                result = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "structure", "version": "1"},
                }
            case "tools/call":
                method, params = asked[frame["params"]["name"]]
                _write(sys.stdout.buffer, {"jsonrpc": "2.0", "id": "q", "method": method, "params": params})
                answer = json.loads(sys.stdin.buffer.readline())
                result = {"content": [{"type": "text", "text": json.dumps(answer)}], "isError": "error" in answer}
            case _:
                result = {}
        _write(sys.stdout.buffer, {"jsonrpc": "2.0", "id": frame["id"], "result": result})


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Modules, lines, files entered, CPU time and memory at the start.")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout to measure (default: this one)")
    parser.add_argument("--json", action="store_true", help="print JSON, with the names of the files entered")
    given = parser.parse_args()
    tree = given.tree.resolve()
    files = entered(tree)
    with compiled(tree) as copy:
        figures: dict[str, Any] = {
            **shape(tree),
            **{f"files entered: {label}": names if given.json else len(names) for label, names in files.items()},
            "start of run": start_of_run(copy),
            "start of serve": start_of_serve(copy),
        }
    if given.json:
        print(json.dumps(figures, indent=1))
        return
    for label, figure in figures.items():
        print(f"{label:30} {figure}")


if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["--probe"]:
            probe(Path(sys.argv[2]), sys.argv[3:])
        case ["--server"]:
            serve()
        case _:
            main()
