"""`samplegate check --live` with the sampler's worker and a provider on loopback: every failure in words, no secret,
and an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.openai_endpoint import Endpoint
from tests.paths import PROXY

TAIL = "rules: [{name: r, match: {kind: sampling}, effect: allow}]\n"
SECRET = "sk-a-key-that-nobody-may-see"
LIMIT = 120.0  # seconds; ends a hang


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as running:
        yield running


def command(folder: Path, *models: str) -> tuple[list[str], dict[str, str]]:
    (folder / "p.yaml").write_text("version: 1\nmodels:\n" + "".join(f"  - {one}\n" for one in models) + TAIL)
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT", "TEMP", "TMPDIR") if name in os.environ}
    nowhere = "http://127.0.0.1:9"
    proxies = {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1"}
    line = [sys.executable, "-m", "samplegate", "check", "--live", "--json"]
    return line, {**bare, **proxies, "PYTHONPATH": str(PROXY), "KEY": SECRET}


def test_each_model_is_asked_and_every_failure_is_told_in_words(endpoint: Endpoint, tmp_path: Path) -> None:
    def model(name: str, more: str = "") -> str:
        return f"{{name: {name}, model: openai/{name}, api_base: '{endpoint.url}', api_key_env: KEY{more}}}"

    line, environment = command(
        tmp_path,
        model("words", ", price: {input: 1, output: 5}"),
        model("length"),
        model("empty"),
        model("leak-401"),
        model("retry-after"),
        model("leak-400"),
        model("leak-500"),
        "{name: gone, model: openai/words, api_base: 'http://127.0.0.1:9/v1'}",
        "{name: no-key, model: openai/words, api_key_file: nope}",
        "{name: no-provider, model: openi/gpt-5-mini}",
    )
    ended = subprocess.run(
        [*line, "p.yaml"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (1, "") == (ended.returncode, ended.stderr)
    assert SECRET not in ended.stdout
    probes: dict[str, dict[str, Any]] = {one["model"]: one for one in json.loads(ended.stdout)["files"][0]["live"]}
    assert {
        "words": None,
        "length": None,
        "empty": None,
        "leak-401": "bad_key",
        "retry-after": "rate_limited",
        "leak-400": "bad_request",
        "leak-500": "error",
        "gone": "unreachable",
        "no-key": "no_key",
        "no-provider": "unknown_model",
    } == {name: one["failure"] for name, one in probes.items()}
    assert (7, 4, 0.000027) == tuple(probes["words"][key] for key in ("input_tokens", "output_tokens", "cost_usd"))
    assert probes["length"]["cost_usd"] is None
    assert probes["retry-after"]["message"].endswith("; retry after 17s")
    assert probes["no-key"]["message"].startswith("file nope (api_key_file) does not exist; paths in a policy are")
    asked = [endpoint.next().body for _ in range(8)]  # the rejected request is repeated with more tokens
    of_rejected = [body for body in asked if body["model"] == "leak-400"]
    assert [1, 16] == [body.get("max_tokens", body.get("max_completion_tokens")) for body in of_rejected]


def test_an_interrupt_ends_the_calls_without_a_traceback(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.forget()
    line, environment = command(tmp_path, f"{{name: hang, model: openai/hang, api_base: '{endpoint.url}'}}")
    with subprocess.Popen(
        [*line, "p.yaml"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert "hang" == endpoint.next().body["model"]
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=LIMIT)
    assert (130, "", "") == (running.returncode, out, err)
    assert "hang" == endpoint.next_hang_up()


def test_a_model_that_does_not_answer_ends_at_the_timeout(endpoint: Endpoint, tmp_path: Path) -> None:
    line, environment = command(tmp_path, f"{{name: hang, model: openai/hang, api_base: '{endpoint.url}'}}")
    ended = subprocess.run(
        [*line, "--live-timeout", "1", "p.yaml"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    (probe,) = json.loads(ended.stdout)["files"][0]["live"]
    message = "no answer within 1s; check api_base, the network and the provider"
    assert (1, "timeout", message) == (ended.returncode, probe["failure"], probe["message"])
