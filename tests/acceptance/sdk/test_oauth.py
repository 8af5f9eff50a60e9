"""`samplegate login`, `run` and `logout` with an authorization server and a protected server that the Python SDK's own
server side runs: it checks PKCE, the redirect, the client and the token's resource."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.acceptance.sdk import peers
from tests.conformance.listening import gate, listening
from tests.fakes.run_process import call, opening, running

PROGRAM: Final = str(peers.PROGRAMS / "oauth_sdk2.py")
POLICY: Final = """
version: 1
rules:
  - {name: forms, match: {kind: elicitation, fields: [confirm]}, effect: answer, content: {confirm: true}}
"""
BOUND: Final = 60.0
OPTIONS: Final = ("--server", "sdk", "--state", "state")


def log_in(folder: Path, url: str) -> None:
    """The command, with a browser that opens the printed URL."""
    words = gate("login", "sdk", "--url", url, "--state", str(folder / "state"), "--no-browser")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("http"):
                with urllib.request.urlopen(line.strip(), timeout=BOUND) as page:
                    page.read()
    assert 0 == process.returncode


def test_a_server_of_the_sdk_behind_its_authorization_server(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    with listening((peers.sdk(2), PROGRAM, "4")) as server:
        log_in(tmp_path, server.url)
        with running(tmp_path, *OPTIONS, "--url", server.url, command=()) as client:
            client.write(*opening(elicitation={}))
            assert "protected" == client.read()["result"]["serverInfo"]["name"]
            numbers, until = count(1), time.monotonic() + BOUND
            while "token by refresh" not in server.said() and time.monotonic() < until:
                assert "accept: True" == called(client, next(numbers))
            assert "accept: True" == called(client, next(numbers))
            code, _, log = client.end()
        assert 0 == code
        left = subprocess.run(
            gate("logout", "sdk", "--state", str(tmp_path / "state")), capture_output=True, text=True, check=True
        )
        # the SDK's endpoint requires a `client_secret`, also from a client that has none, and the user is told
        assert "its tokens are deleted, but may still be valid" in left.stdout
        assert "refused the revocation: invalid_request" in left.stdout
        assert not (tmp_path / "state" / "oauth" / "sdk.json").exists()
        with running(tmp_path, *OPTIONS, "--url", server.url, command=()) as client:
            client.write(*opening())
            assert "run: samplegate login sdk --url" in client.read()["error"]["message"]
        tokens = re.findall(r"^token .*", server.said(), re.MULTILINE)
    assert f"token by login for {server.url}" == tokens[0]
    assert {f"token by refresh for {server.url}"} == set(tokens[1:])
    assert "Bearer" not in log


def called(client: Any, number: int) -> str:
    """The text of one call, whose form the policy answers."""
    client.write(call(number, "confirm"))
    answer = client.read()
    assert number == answer["id"], json.dumps(answer)
    return str(answer["result"]["content"][0]["text"])
