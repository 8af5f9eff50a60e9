"""The gate as an OAuth client under the official client suite: `python -m tests.conformance.oauth_driver URL`.

It starts `samplegate run --url URL`, calls every tool, and does what the errors say: it runs the `samplegate login`
command that they name, follows the printed URL as a browser does, and makes the same request again. The scenario, the
protocol version and the clients' credentials come in the environment, from the suite. The exit code is 1 if a request
was not answered in the end.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.fakes.run_process import lines, modern, opening, request

GATE: Final = str(Path(sys.executable).with_name("samplegate.exe" if sys.platform == "win32" else "samplegate"))
SERVER: Final = "suite"
POLICY: Final = "version: 1\nrules: [{name: all, effect: forward}]\n"
WAIT: Final = 60.0  # seconds for a login
MOST_LOGINS: Final = 2  # a scenario that is never content allows three
LOGIN: Final = re.compile(r"run: samplegate (login .*)")
scenario: Final = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
era: Final = "modern" if os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "") >= "2026-07-28" else "legacy"
context: Final[dict[str, Any]] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


class NotLoggedIn(Exception):
    """A login failed, which ends the client."""


class GateClient:
    """A client of one gate that logs in where it is told to."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.logins = 0
        policy = folder / "policy.yaml"
        policy.write_text(POLICY)
        words = [GATE, "run", "--policy", str(policy), "--decision-log", "none", "--state", str(folder / "state")]
        words += ["--server", SERVER, "--url", url, *self._client_credentials()]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _client_credentials(self) -> list[str]:
        """The options of a gate that needs no login."""
        if not scenario.startswith("auth/client-credentials"):
            return []
        words = ["--oauth-client-id", context["client_id"], "--oauth-issuer", self._issuer()]
        if "private_key_pem" in context:
            return [*words, "--oauth-private-key", self._kept("key.pem", context["private_key_pem"])]
        return [*words, "--oauth-client-secret-from", self._kept("secret", context["client_secret"])]

    def _login_options(self) -> list[str]:
        """What the user of a login knows in advance."""
        if scenario == "auth/basic-cimd":
            return ["--client-metadata-url", "https://conformance-test.local/client-metadata.json"]
        if "client_id" in context:
            secret = self._kept("secret", context["client_secret"])
            return ["--client-id", context["client_id"], "--client-secret-from", secret, "--issuer", self._issuer()]
        return []

    def _issuer(self) -> str:
        """The authorization server where the client is registered, which the suite does not always name."""
        if "issuer" in context:
            return str(context["issuer"])
        at = self.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        with urllib.request.urlopen(at, timeout=WAIT) as answer:
            return str(json.load(answer)["authorization_servers"][0])

    def _kept(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def answer(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request, after as many logins as it needs. Raises NotLoggedIn."""
        while True:
            answer = self._once(frame)
            print(json.dumps(answer)[:600], file=sys.stderr)
            remedy = _login_in(answer.get("error"))
            if remedy is None or self.logins == MOST_LOGINS:
                return answer
            self.logins += 1
            self._log_in(shlex.split(remedy))

    def _once(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(lines(frame))
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == frame["id"] and "method" not in answer:
                return answer
        raise NotLoggedIn("the gate has ended")

    def _log_in(self, words: list[str]) -> None:
        """Run the command, and open what it prints."""
        words = [GATE, *words, "--no-browser", "--timeout", f"{WAIT:.0f}", *self._login_options()]
        print(shlex.join(words), file=sys.stderr)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if re.match(r"\s*https?://", line):
                    with urllib.request.urlopen(line.strip(), timeout=WAIT) as page:
                        page.read()
        if process.returncode:
            raise NotLoggedIn(f"the login ended with {process.returncode}")


def _login_in(error: object) -> str | None:
    """The arguments of the `samplegate` command that an error or its data names."""
    if isinstance(error, str):
        found = LOGIN.search(error)
        return None if found is None else found[1]
    inside = error.values() if isinstance(error, dict) else ()
    return next((found for found in map(_login_in, inside) if found is not None), None)


def main(url: str) -> int:
    """Call every tool. Returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        client = GateClient(url, Path(folder))
        try:
            return _called(client)
        except NotLoggedIn as problem:
            print(problem, file=sys.stderr)
            return 1
        finally:
            client.process.kill()
            client.process.communicate()


def _called(client: GateClient) -> int:
    answers = []
    for frame in opening(era):
        if "id" in frame:
            answers.append(client.answer(frame))
        else:
            assert client.process.stdin is not None
            client.process.stdin.write(lines(frame))
    listed = request(1, "tools/list")
    answers.append(client.answer(modern(listed) if era == "modern" else listed))
    for number, tool in enumerate(answers[-1].get("result", {}).get("tools", []), 2):
        asked = request(number, "tools/call", name=tool["name"], arguments={})
        answers.append(client.answer(modern(asked) if era == "modern" else asked))
    return 0 if all("result" in answer for answer in answers) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
