"""Pure. What the latest request to a remote server came to, for the status. Connections to one server share it."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, eq=False):
    """The health of one remote server."""

    problem: str | None = None
    """Why the server did not take the latest request; None if it did, or before the first one."""

    def shown_problem(self) -> str | None:
        """The problem for an operator."""
        return None if self.problem is None else f"the latest request failed: {self.problem}"
