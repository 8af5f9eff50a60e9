"""Programs of others that fail while they are measured: the failure is a cell of the table, and the run goes on without
the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.variants import Name

LONGEST: Final = 200
"""Characters of a reason in the table."""
FAILURES: Final = (RuntimeError, OSError, TimeoutError)
"""What a program's failure raises here."""


class Faults:
    """The peers that failed in one measurement, each with its reason. A failure of the gate, the floor or the bare
    server is raised."""

    def __init__(self) -> None:
        self.why: dict[Name, str] = {}

    @contextmanager
    def of(self, name: Name) -> Iterator[None]:
        """A step of one program. Read ``why`` to see whether it failed."""
        try:
            yield
        except FAILURES as problem:
            if name not in ("peer", "base"):
                raise
            self.why[name] = short(problem)


def short(problem: BaseException) -> str:
    """The end of what a failure says, as one cell of a Markdown table."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text[-LONGEST:].replace("|", "/")
