"""The worker process itself, without the gate's side: its output, and its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from samplegate.sampler.process import COMMAND, _importable
from tests.fakes.openai_endpoint import Endpoint

pytestmark = pytest.mark.timeout(120)

KEY = "sk-a-key-that-nobody-may-see-0123456789"
WAIT = 60.0


@contextmanager
def worker(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_importable(environment)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def frame(id: int, model: str, url: str) -> bytes:
    target = {"model": f"openai/{model}", "api_base": url, "api_key": KEY}
    messages = [{"role": "user", "content": "some private words"}]
    return (
        json.dumps(
            {
                "id": id,
                "name": model,
                "target": target,
                "hidden": [],
                "messages": messages,
                "max_tokens": 9,
                "timeout": WAIT,
            }
        ).encode()
        + b"\n"
    )


def test_it_says_nothing_but_its_protocol_and_ends_with_its_input_during_a_call(
    endpoint: Endpoint, environment: dict[str, str]
) -> None:
    loud = {**environment, "LITELLM_LOG": "DEBUG", "OPENAI_LOG": "debug", "OPENAI_API_KEY": KEY}
    models = ["normal", "leak-401", "own-word", "garbage"]
    with worker(loud) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = process.stdout.readline()
        if sys.platform != "win32":
            # Ctrl-C reaches every process of the terminal; the gate decides which to end
            process.send_signal(signal.SIGINT)
        process.stdin.write(b"".join(frame(id, model, endpoint.url) for id, model in enumerate([*models, "hang"])))
        process.stdin.flush()
        lines: list[bytes] = []
        while sum(b'"heard"' not in line for line in lines) < len(models):
            lines.append(process.stdout.readline())
        while endpoint.next().body["model"] != "hang":
            pass
        _, stderr = process.communicate(timeout=WAIT)
    answers: list[dict[str, Any]] = [answer for line in lines if "heard" not in (answer := json.loads(line))]

    assert {"ready": True} == json.loads(ready)
    assert {0, 1, 2, 3} == {answer["id"] for answer in answers}
    assert 0 == process.returncode
    assert "hang" == endpoint.next_hang_up()
    for written in (*lines, stderr):
        assert KEY.encode() not in written
    assert b"private words" not in stderr


def test_it_ends_with_its_input_whatever_it_is_doing(environment: dict[str, str]) -> None:
    with worker(environment) as process:
        assert process.stdin is not None
        process.stdin.close()  # while litellm is being imported
        assert 0 == process.wait(WAIT)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not keep to it")
def test_what_outgrows_its_memory_is_refused_to_it_and_not_taken_from_the_machine(environment: dict[str, str]) -> None:
    grow = (
        "from samplegate.sampler.worker.__main__ import MAX_MEMORY, _limit_memory\n"
        "_limit_memory()\n"
        "try:\n    bytearray(MAX_MEMORY)\n"
        "except MemoryError:\n    print('refused')"
    )
    grown = subprocess.run(
        [sys.executable, "-c", grow], capture_output=True, env=_importable(environment), timeout=WAIT, check=True
    )

    assert b"refused\n" == grown.stdout
