"""Setup for all tests: asyncio as the only event loop, a hypothesis profile, and a time limit. Fixtures of a part are
with its tests."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Final

import pytest

from samplegate.ci.run_id import CI_VARIABLES
from tests import profiles
from tests.speed import slowness

DEFAULT_SECONDS: Final = 60.0  # a unit test takes milliseconds; this is for a machine that does nine other things
LAST_FRAMES: Final = 12
OVER_BUDGET: Final = "make its case smaller, or let it be a system test (tests/README.md)"

profiles.load()

# the tests may run in a CI job, but the gates that they start belong to no run
for name in ("SAMPLEGATE_RUN", *(names[0] for names in CI_VARIABLES)):
    os.environ.pop(name, None)

# argparse, and the programs that the tests start, speak English whatever the user's language is
os.environ["LANGUAGE"] = "C"

# started in the background of a script: programs would not hear of Ctrl-C either
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# started by nohup: the tests go on, but the programs that they start are not under nohup
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture
def anyio_backend() -> str:
    """The gate runs on asyncio only, so the tests do."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-budget", type=float, metavar="SECONDS", help="fail each test that takes more CPU time of its process"
    )


def pytest_collection(session: pytest.Session) -> None:
    """Collect no garbage while the tests are collected: nearly everything stays, and each collection would read it."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Check the time limits. Then exclude the collected modules from later garbage collections: each would take most of
    a second, and would count for some test."""
    last = float(session.config.getini("faulthandler_timeout"))
    if late := [item.nodeid for item in session.items if time_limit(item) >= last]:
        raise pytest.UsageError(
            f"{late[0]} and {len(late) - 1} more: pytest would kill the process before the time limit of the test;"
            f" set faulthandler_timeout (now {last:g} s) above it"
        )
    gc.enable()
    gc.collect()
    gc.freeze()


def time_limit(item: pytest.Item) -> float:
    """Seconds that a test may take by the clock on the wall."""
    marker = item.get_closest_marker("timeout")
    return (float(marker.args[0]) if marker else DEFAULT_SECONDS) * profiles.slowdown()


class FullCollections:
    """The CPU time of full garbage collections, whose cost depends on the tests before."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0
        gc.callbacks.append(self._count)

    def _count(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                self._begun = time.process_time()
            else:
                self.seconds += time.process_time() - self._begun


full_collections: Final = FullCollections()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Keep a test within its CPU budget if the run has one. Fixtures, full garbage collections and started
    programs do not count. The budget is that of a quiet machine: a test over it is compared with the machine's speed at
    that moment."""
    budget: float | None = item.config.getoption("--cpu-budget")
    if budget is not None and (marker := item.get_closest_marker("cpu")):
        budget = float(marker.args[0])
    before = time.process_time() - full_collections.seconds
    yield
    taken = time.process_time() - full_collections.seconds - before
    if budget is not None and taken > budget and (taken := taken / slowness()) > budget:
        pytest.fail(f"took {taken:.2f} s of CPU time, of {budget:g} s: {OVER_BUDGET}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End a test that hangs, including its setup and teardown. If SIGALRM is missing, or cannot end it, pytest's own
    `faulthandler_timeout` ends the process."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        return (yield)
    seconds = time_limit(item)

    def ring(_number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 5.0)  # again, should something swallow this one
        where = "".join(traceback.format_stack(frame, LAST_FRAMES))
        # pytest's own traceback fails, and ends the whole run, where the interrupted instruction has no line
        pytest.fail(
            f"{item.name}: ran longer than {seconds:g} s; bound its waits, or mark it timeout(seconds)\n{where}",
            pytrace=False,
        )

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
