"""Apply seeded faults to copies of the tree, one at a time, and check that the tests notice each: ``python -m
tests.faults.run --help``."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import yaml

from tests.faults.faults import LIST, MOST_NAMES, ROOT, Fault, load

Verdict: TypeAlias = Literal["caught", "NOT CAUGHT", "DOES NOT APPLY", "NO TESTS RAN", "TOOK TOO LONG"]
LINKED: Final = (".venv", "tests/acceptance/sdk/.envs", "tests/acceptance/sdk/node_modules")
"""Folders that git ignores and tests may need; each copy links to them."""
SHOWN: Final = 3  # failing tests per fault that run again without it; a run stops at these without --all
OUTPUT: Final = 3_000  # characters of pytest's output that are shown if no test ran
_running: Final[set[subprocess.Popen[bytes]]] = set()
_interrupted: Final = threading.Event()


class Result(msgspec.Struct, frozen=True):
    """The result of one fault. ``failed`` has the ids of the failing tests in the order in which they failed."""

    verdict: Verdict
    failed: tuple[str, ...] = ()
    detail: str = ""
    seconds: float = 0.0


def main() -> int:
    """Run the faults; the exit code is 0 if every fault is caught."""
    options = _parser().parse_args()
    faults = [fault for fault in load() if not options.numbers or fault.number in options.numbers]
    if unknown := set(options.numbers) - {fault.number for fault in faults}:
        print(f"faults: no fault has the number {', '.join(map(str, sorted(unknown)))}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            results = list(pool.map(lambda fault: _reported(fault, options), faults))
        except KeyboardInterrupt:
            _interrupted.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for run in list(_running):
                _kill(run)
            print("faults: interrupted", file=sys.stderr)
            return 130
    bad = [fault.number for fault, result in zip(faults, results, strict=True) if result.verdict != "caught"]
    void = _fail_without(sorted({test for result in results for test in result.failed[:SHOWN]}), options)
    for test in void:
        print(f"VOID: {test} fails without a fault too")
    if options.record:
        _record(
            {fault.number: result for fault, result in zip(faults, results, strict=True) if result.verdict == "caught"}
        )
    summary = f"{len(faults) - len(bad)} of {len(faults)} faults caught in {time.monotonic() - began:.0f} s"
    print(summary + (f"; not caught: {', '.join(map(str, bad))}" if bad else ""))
    return 1 if bad or void else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.run", description="Check that the tests notice the seeded faults."
    )
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="faults to run (default: all)")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="run these tests instead of those in faults.yaml")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="faults at the same time (default: %(default)s)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="time limit for each fault (default: %(default)g)",
    )
    parser.add_argument("--all", action="store_true", help="run every test instead of stopping at the third failure")
    parser.add_argument("--record", action="store_true", help="as --all, and write which tests fail to faults.yaml")
    return parser


def _reported(fault: Fault, options: argparse.Namespace) -> Result:
    began = time.monotonic()
    result = msgspec.structs.replace(_run(fault, options), seconds=time.monotonic() - began)
    lines = [f"{fault.number:02} {fault.name}: {result.verdict} ({result.seconds:.0f} s)"]
    lines += [f"     {test}" for test in result.failed[:MOST_NAMES]]
    lines += [f"     and {len(result.failed) - MOST_NAMES} more"] if len(result.failed) > MOST_NAMES else []
    print("\n".join([*lines, *([result.detail] if result.detail else [])]), flush=True)
    return result


def _run(fault: Fault, options: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="seeded-fault-", ignore_cleanup_errors=True) as name:
        tree = _copy(Path(name) / "tree")
        alone = {**os.environ, "GIT_CEILING_DIRECTORIES": name}  # within another repository git would skip the patch
        applied = subprocess.run(
            ["git", "apply", fault.patch], cwd=tree, env=alone, capture_output=True, text=True, check=False, timeout=60
        )
        if applied.returncode:
            return Result("DOES NOT APPLY", detail=applied.stderr.strip())
        most = [] if options.all or options.record else [f"--maxfail={SHOWN}"]
        return _tested(tree, [*most, *(options.tests or fault.tests)], options.timeout)


def _fail_without(tests: Sequence[str], options: argparse.Namespace) -> Sequence[str]:
    """The tests that fail without any fault: they prove nothing."""
    if not tests:
        return ()
    with tempfile.TemporaryDirectory(prefix="seeded-fault-", ignore_cleanup_errors=True) as name:
        result = _tested(_copy(Path(name) / "tree"), tests, options.timeout * 2)
    return (
        () if result.verdict == "NOT CAUGHT" else result.failed or (f"one of them ({result.verdict}: {result.detail})",)
    )


def _copy(tree: Path) -> Path:
    """Copy the working tree in its present state, without ignored files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    for name in LINKED:
        if (ROOT / name).is_dir():
            (tree / name).symlink_to((ROOT / name).resolve(), target_is_directory=True)
    return tree


def _tested(tree: Path, arguments: Iterable[str], seconds: float) -> Result:
    failures = tree.parent / "failed"
    environment = {
        **os.environ,
        "HYPOTHESIS_PROFILE": os.environ.get("HYPOTHESIS_PROFILE", "ci"),  # the profile that runs on each push
        "SEEDED_FAULTS_FAILED": str(failures),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # takes precedence over the installed package, also in programs that tests start
    environment["PYTHONPATH"] = os.pathsep.join([str(tree / "proxy"), str(tree)])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.faults.failures",
        *arguments,
    ]
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as run:
        _running.add(run)
        try:
            output, _ = run.communicate(timeout=0 if _interrupted.is_set() else seconds)
        except subprocess.TimeoutExpired:
            return Result("TOOK TOO LONG")
        finally:
            _kill(run)
            _running.discard(run)
    failed = tuple(dict.fromkeys(failures.read_text("utf-8").splitlines())) if failures.exists() else ()
    if run.returncode == 1 and failed:
        return Result("caught", failed)
    return (
        Result("NOT CAUGHT")
        if run.returncode == 0
        else Result("NO TESTS RAN", failed, output.decode(errors="replace")[-OUTPUT:].strip())
    )


def _kill(run: subprocess.Popen[bytes]) -> None:
    """Kill a test run and all programs that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)


def _record(results: dict[int, Result]) -> None:
    faults = load()
    for fault in faults:
        if fault.number in results:
            failed = results[fault.number].failed
            fault.failing, fault.caught_by = len(failed), list(failed[:MOST_NAMES])
    built = [{**msgspec.to_builtins(fault), "description": _Folded(fault.description)} for fault in faults]
    LIST.write_text(yaml.dump(built, Dumper=_Dumper, sort_keys=False, width=140, allow_unicode=True), "utf-8")


class _Folded(str):
    """Text that is dumped as a folded block."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Dumps the list in a readable style."""


_Dumper.add_representer(
    _Folded, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=">")
)


if __name__ == "__main__":
    sys.exit(main())
