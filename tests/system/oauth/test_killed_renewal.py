"""Gates that are killed while they renew a login, a login that gets 100 MB, and what a gate's own processes see."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from samplegate.oauth.login_file import Login
from tests.fakes.oauth_gate import logged_in, login_file
from tests.fakes.oauth_world import MARK, huge, oauth_world
from tests.fakes.run_process import call, opening, running
from tests.paths import PROXY

STATE: Final = Path(".local/state/samplegate")
MEMORY: Final = 170 * 1024  # KiB of a login: 80 MiB without any answer, and 100 MiB more if it kept one of 100 MB
MEASURES: Final = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""  # started as a small process: a child's peak begins with the memory of the process that forks it
WRITES: Final = """
import os, sys
from pathlib import Path
from samplegate.oauth import login_file
step, number = sys.argv[2], int(sys.argv[3])
if step != "never":
    setattr(login_file, step, lambda *_: os.kill(os.getpid(), 9))
login_file.LoginFile(Path(sys.argv[1]), "docs").write(login_file.Login(
    url="https://a.example", grant="authorization_code", issuer="https://b.example", client_id="c",
    access_token=f"{number}" * 9000, obtained_at=number))
"""
DECIDES: Final = """
import json, os, sys
review = json.load(sys.stdin)
with open("environment", "w") as file:
    file.write(json.dumps(dict(os.environ)))
print(json.dumps({"verdict": "answer", "digest": review["digest"], "action": "accept", "content": {"confirm": True}}))
"""


@pytest.mark.parametrize("rotates", [False, True])
def test_a_gate_that_is_killed_while_it_refreshes_leaves_the_old_login_and_no_lock(
    rotates: bool, tmp_path: Path
) -> None:
    with oauth_world(rotates=rotates) as world:
        asyncio.run(logged_in(world, tmp_path / STATE))
        file = login_file(tmp_path / STATE)
        before = file.read_bytes()
        options = ("--server", "docs", "--url", world.url)
        with running(tmp_path, *options, command=()) as gate:
            gate.write(*opening())
            assert "result" in gate.read()
            world.expire_tokens()
            world.token_delay = 60.0
            gate.write(call(1))
            world.until(1, "token", grant_type="refresh_token")
            gate.process.kill()
            gate.process.wait()
        assert before == file.read_bytes()
        world.token_delay = 0.0
        with running(tmp_path, *options, command=()) as gate:
            gate.write(*opening())
            answer = gate.read()
        assert 2 == len(world.of("token", grant_type="refresh_token")), answer
        if rotates:  # the authorization server has replaced the refresh token, and nobody has the new one
            assert f"run: samplegate login docs --url {world.url}" in answer["error"]["message"]
            assert before == file.read_bytes()
        else:
            assert "result" in answer
            assert msgspec.json.decode(file.read_bytes(), type=Login).access_token in world.access


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_login_or_the_new_one(tmp_path: Path) -> None:
    file = login_file(tmp_path)
    kept: list[Login] = []
    for number, step in enumerate(("never", "make_file", "sync_file", "sync_folder", "never"), 1):
        old = file.open("rb") if kept else None
        words = [sys.executable, "-c", WRITES, str(tmp_path), step, str(number)]
        ended = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(PROXY)}, timeout=50, check=False)
        assert (0 if step == "never" else -signal.SIGKILL) == ended.returncode
        kept.append(msgspec.json.decode(file.read_bytes(), type=Login))
        if old is not None:  # it is never written in place
            with old:
                assert kept[-2] == msgspec.json.decode(old.read(), type=Login)
    assert [1, 1, 1, 4, 5] == [login.obtained_at for login in kept]
    assert [f"{login.obtained_at:.0f}" * 9000 for login in kept] == [login.access_token for login in kept]
    assert ["docs.json"] == [path.name for path in file.parent.iterdir()]


def test_a_login_does_not_keep_an_answer_of_100_mb(tmp_path: Path) -> None:
    with oauth_world(faults={"metadata": huge}) as world:
        login = [sys.executable, "-m", "samplegate", "login", "docs", "--url", world.url, "--state", str(tmp_path)]
        words = [sys.executable, "-S", "-c", MEASURES, *login]
        environment = {"PYTHONPATH": str(PROXY), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        ended = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=50, check=False)
        assert 1 == ended.returncode
        assert "is larger than 1048576 bytes" in ended.stderr
        assert int(ended.stdout) < MEMORY
        assert not login_file(tmp_path).exists()


def test_a_reviewers_command_sees_no_secret_of_the_gate(tmp_path: Path) -> None:
    """The gate gets the client's secret from a variable, and answers a form of the server by a command."""
    (tmp_path / "decide.py").write_text(DECIDES)
    policy = {
        "version": 1,
        "reviewers": {"ops": {"command": [sys.executable, "decide.py"]}},
        "rules": [{"name": "forms", "match": {"kind": "elicitation"}, "effect": "escalate", "reviewer": "ops"}],
    }
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    with oauth_world() as world:
        world.register("ci", secret=f"{MARK}client", method="client_secret_basic")
        options = ["--oauth-client-id", "ci", "--oauth-issuer", world.issuer, "--oauth-client-secret-env", "CI_SECRET"]
        options += ["--server", "docs", "--url", world.url]
        with running(tmp_path, *options, command=(), environment={"CI_SECRET": f"{MARK}client"}) as gate:
            gate.write(*opening())
            assert "result" in gate.read()
            gate.write(call(1, "ask"))
            answer = json.loads(gate.read()["result"]["content"][0]["text"])["content"]
            code, _, said = gate.end()
        assert {"confirm": True} == answer
        assert 0 == code
        assert "CI_SECRET" not in json.loads((tmp_path / "environment").read_text())
        written = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "oauth"]
        assert [] == [str(path) for path in written if MARK.encode() in path.read_bytes()]
        assert MARK not in said


def test_a_login_that_is_interrupted_leaves_the_old_login(tmp_path: Path) -> None:
    with oauth_world() as world:
        asyncio.run(logged_in(world, tmp_path))
        before = login_file(tmp_path).read_bytes()
        words = [sys.executable, "-m", "samplegate", "login", "docs", "--url", world.url, "--state", str(tmp_path)]
        environment = {"PYTHONPATH": str(PROXY), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, env=environment) as process:
            world.until(2, "register")
            assert process.stdout is not None
            while not process.stdout.readline().startswith(b"http"):
                pass
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=50)
        assert before == login_file(tmp_path).read_bytes()
        assert 130 == process.returncode
        assert b"Traceback" not in said
