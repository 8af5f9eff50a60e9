"""Pure. The URL of a PostgreSQL database, as libpq reads it: ``postgresql://USER@HOST[,HOST]/NAME?OPTION=VALUE``."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

SCHEMES: Final = ("postgresql://", "postgres://")
DATABASE: Final = "database"
"""What the setting ``decision_log`` and ``--log`` call the shared database."""
EXAMPLE: Final = "postgresql://USER@HOST/NAME"

_parts: Final = re.compile(
    r"(?P<scheme>[a-z]+://)(?:(?P<user>[^@/?#]*)@)?(?P<place>[^?#]*)(?:\?(?P<query>.*))?", re.DOTALL
)


def is_database(text: str) -> bool:
    """Whether a text names a PostgreSQL database."""
    return text.startswith(SCHEMES)


def check_database(text: str) -> None:
    """Raises ValueError if the text is no URL of a PostgreSQL database. The error does not show it, because it may
    contain a password."""
    if not is_database(text):
        raise ValueError(f"is not the URL of a PostgreSQL database; write {EXAMPLE}")
    if _parts.fullmatch(text) is None or any(ord(letter) <= 32 or ord(letter) == 127 for letter in text):
        raise ValueError(f"is not a valid URL; write {EXAMPLE}, with other characters as %XX")


def has_password(text: str) -> bool:
    """Whether the URL contains a password."""
    found = _parts.fullmatch(text)
    if found is None:
        return False
    return ":" in (found["user"] or "") or any(
        name in {"password", "sslpassword", "oauth_client_secret"} for name, _ in parse_qsl(found["query"] or "")
    )


def shown(text: str) -> str:
    """The URL without password and options, for display."""
    found = _parts.fullmatch(text)
    if found is None:
        return "postgresql://..."
    user = unquote((found["user"] or "").partition(":")[0])
    return f"postgresql://{user}@{found['place']}" if user else f"postgresql://{found['place']}"
