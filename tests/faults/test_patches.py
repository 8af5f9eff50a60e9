"""Every seeded fault has a description, a patch that applies to the present code, and the tests that noticed it."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest

from tests.faults.faults import HERE, MOST_NAMES, ROOT, SUBJECTS, Fault, load


@pytest.mark.parametrize("fault", load(), ids=lambda fault: fault.name)
def test_the_patch_of_each_fault_applies(fault: Fault) -> None:
    applied = subprocess.run(
        ["git", "apply", "--check", fault.patch], cwd=ROOT, capture_output=True, text=True, check=False, timeout=20
    )
    assert "" == applied.stderr, f"port the patch of fault {fault.number} (tests/faults/README.md): {fault.description}"
    assert 0 == applied.returncode


def test_faults_and_patches_are_the_same() -> None:
    assert sorted(path.name for path in HERE.glob("*.patch")) == sorted(fault.patch.name for fault in load())
    assert [fault.number for fault in load()] == list(range(1, len(load()) + 1))


def test_there_are_forty_faults_in_six_subjects() -> None:
    assert 40 == len(load())
    assert set(SUBJECTS) == {fault.subject for fault in load()}
    assert 6 <= min(Counter(fault.subject for fault in load()).values())


@pytest.mark.parametrize("fault", load(), ids=lambda fault: fault.name)
def test_each_fault_was_caught_by_tests_that_are_still_there(fault: Fault) -> None:
    assert fault.description
    assert fault.caught_by
    assert len(fault.caught_by) == min(fault.failing, MOST_NAMES)
    files = {name.partition("::")[0] for name in (*fault.caught_by, *fault.tests)}
    assert [] == [name for name in files if not (ROOT / name).exists()], (
        "run `make faults ARGS=--record` after tests have moved"
    )
