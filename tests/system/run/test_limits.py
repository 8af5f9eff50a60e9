"""`samplegate run` with a ledger that does not respond: it does not delay the end of a run."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import anyio
import pytest

from samplegate.limits import async_ledger as state_module
from samplegate.limits.sqlite_ledger import FILE
from tests.fakes.ledger_faults import locked
from tests.fakes.limits import Desk, all_blocked, daily, one, slot, slots
from tests.fakes.run_command import SAMPLE, RunCommand
from tests.paths import PROXY

POLICY = """\
version: 1
limits: {day: {requests: 5, per: day, tz: UTC}, room: {concurrent: 2}}
rules: [{name: person, match: {kind: sampling}, effect: forward, limits: [day, room]}]
"""


def _asks(id: int) -> dict[str, object]:
    return {
        "id": id,
        "method": "tools/call",
        "params": {"name": "t", "arguments": {"ask": {"method": "sampling/createMessage", "params": SAMPLE}}},
    }


def _patient(folder: Path) -> dict[str, str]:
    """An environment in which the gate waits ten minutes for the ledger."""
    (folder / "patient").mkdir()
    (folder / "patient" / "sitecustomize.py").write_text(
        "from samplegate.limits import async_ledger\nasync_ledger.PATIENCE = 600.0\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder / "patient"), str(PROXY)])}


@pytest.mark.skipif(sys.platform == "win32", reason="locks")
@pytest.mark.parametrize("while_", ["the client is asked", "it is reserved"])
def test_a_state_that_another_process_holds_delays_no_end(run: RunCommand, while_: str) -> None:
    (run.folder / "policy.yaml").write_text(POLICY)
    state: Path = run.folder / "state"
    # calls in flight are not awaited, but the lock of the file would be for ten minutes, so a delay is a hang
    client = run("--state", str(state), "--end-of-input-timeout", "0", environment=_patient(run.folder))
    client.initialize(sampling={})
    client.write(**_asks(1))
    asked = client.read()
    assert "sampling/createMessage" == asked["method"]
    if while_ == "it is reserved":
        client.write(id=asked["id"], error={"code": -1, "message": "no"})
        assert 1 == client.read()["id"]
    assert (state / FILE).exists()
    with locked(state):
        if while_ == "it is reserved":
            client.write(**_asks(2))
        code, said = client.end()
    assert 0 == code, said


@pytest.mark.anyio
async def test_however_many_are_open_when_the_end_begins_a_held_state_keeps_neither_them_nor_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "PATIENCE", 600.0)  # so that a wait without the hurry is a hang
    ours = Desk(daily("d", 500, shared=True), slots("s", 500, shared=True), state=tmp_path)
    held = [await ours.taken(one("d"), slot("s")) for _ in range(200)]
    with locked(tmp_path):
        async with anyio.create_task_group() as group:
            for reserved in held:
                group.start_soon(ours.settle, reserved)
            group.start_soon(ours.reserve, one("d"))
            await all_blocked()
            ours.admission.set_shutdown_deadline(0.3)
        await ours.admission.aclose()
        for thread in threading.enumerate():
            if thread.name.startswith("samplegate-limits"):
                thread.join(40)  # the interpreter also waits for it
                assert not thread.is_alive()
    other = Desk(daily("d", 500, shared=True), slots("s", 500, shared=True), state=tmp_path)
    assert (300, 500) == (await other.room(one("d")), await other.room(slot("s")))
    await other.admission.aclose()


@pytest.mark.anyio
async def test_what_is_settled_after_the_end_has_begun_is_still_corrected_where_the_state_is_free(
    tmp_path: Path,
) -> None:
    ours = Desk(daily("d", 5, shared=True), state=tmp_path)
    reserved = await ours.taken(one("d"))
    ours.admission.set_shutdown_deadline(0.0)
    await ours.settle(reserved)
    await ours.admission.aclose()
    other = Desk(daily("d", 5, shared=True), state=tmp_path)
    assert 5 == await other.room(one("d"))
    await other.admission.aclose()
