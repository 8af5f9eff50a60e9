"""Failures of peers during a measurement: the failure becomes a cell of the table, and the run continues without the
peer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.variants import Name

LONGEST: Final = 200
"""Characters of a reason in the table."""
FAILURES: Final = (RuntimeError, OSError, TimeoutError)
"""Exceptions that a program's failure raises."""


class Faults:
    """The peers that failed in one measurement, each with its reason. A failure of the gate, the floor or the bare
    server is raised."""

    def __init__(self) -> None:
        self.why: dict[Name, str] = {}

    @contextmanager
    def guard(self, name: Name) -> Iterator[None]:
        """Context for one step of one program. Check ``why`` to see whether it failed."""
        try:
            yield
        except FAILURES as problem:
            if name not in ("peer", "base"):
                raise
            self.why[name] = short(problem)


def short(problem: BaseException) -> str:
    """The end of a failure's message, as one cell of a Markdown table."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text[-LONGEST:].replace("|", "/")
