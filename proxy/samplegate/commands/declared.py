"""What ``--client`` says that the client had declared."""

from __future__ import annotations

from typing import get_args

from samplegate.commands.files import Unreadable
from samplegate.core.trials.scenes import Declared


def declared(said: str) -> list[Declared]:
    """The capabilities of a list with commas. Raises Unreadable for one that there is not."""
    names = [name for name in said.split(",") if name]
    known: tuple[Declared, ...] = get_args(Declared)
    if unknown := [name for name in names if name not in known]:
        raise Unreadable(f"--client: {unknown[0]!r} is not one of {', '.join(known)}")
    return [name for name in known if name in names]
