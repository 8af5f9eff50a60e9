"""What the tests of the commands share: how a command ended, and the types of the fixtures that run one and write its
files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ended]
Write: TypeAlias = Callable[[str, str], None]
