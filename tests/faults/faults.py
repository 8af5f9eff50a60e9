"""The seeded faults: ``faults.yaml`` and the patch of each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
LIST: Final = HERE / "faults.yaml"
SUBJECTS: Final = ("gate", "limits", "reviews", "session", "bridge", "front")
MOST_NAMES: Final = 10


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """A change of behavior that the tests must notice."""

    number: int
    name: str
    subject: str
    description: str
    """What is broken, in words that still hold when the code moves."""
    tests: list[str]
    """Test files and folders that are run with the patch applied."""
    failing: int = 0
    """How many of these tests fail."""
    caught_by: list[str] = []
    """The first of them, at most MOST_NAMES."""

    @property
    def patch(self) -> Path:
        """The path of its unified diff against the root of the repository."""
        return HERE / f"{self.number:02}-{self.name}.patch"


def load() -> list[Fault]:
    """All faults, by number."""
    return msgspec.yaml.decode(LIST.read_bytes(), type=list[Fault])
