"""Pure. The URL of a PostgreSQL database, as libpq reads it: ``postgresql://USER@HOST[,HOST]/NAME?OPTION=VALUE``."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

SCHEMES: Final = ("postgresql://", "postgres://")
DATABASE: Final = "database"
"""What the setting ``decision_log`` and ``--log`` call the shared database."""
EXAMPLE: Final = "postgresql://USER@HOST/NAME"

_HOST: Final = r"(?:\[[0-9A-Za-z:.%_-]*\]|[^@/?#:\[\],]*)(?::\d*)?"
# A character of a password that has a meaning in URLs must be written as %XX, so that no other part has a piece of it.
_parts: Final = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^@/?#:]*)(?P<password>:[^@/?#]*)?@)?"
    rf"(?P<place>{_HOST}(?:,{_HOST})*(?:/[^@/?#:]*)?)(?:\?(?P<query>[^@?#]*))?"
)


def is_database(text: str) -> bool:
    """Whether a text names a PostgreSQL database."""
    return text.startswith(SCHEMES)


def check_database(text: str) -> None:
    """Raises ValueError if the text is no URL of a PostgreSQL database. The error does not show it, because it may
    contain a password."""
    if not is_database(text):
        raise ValueError(f"is not the URL of a PostgreSQL database; write {EXAMPLE}")
    found = _parts.fullmatch(text)
    options = (found["query"] or "").split("&") if found is not None else ()
    if (
        found is None
        or any(ord(letter) <= 32 or ord(letter) == 127 for letter in text)
        or any(option and "=" not in option for option in options)
    ):
        raise ValueError(f"is not a valid URL; write {EXAMPLE}, with other characters as %XX")


def has_password(text: str) -> bool:
    """Whether the URL contains a password."""
    found = _parts.fullmatch(text)
    if found is None:
        _, _, rest = text.partition("://")
        return ":" in rest.rpartition("@")[0] or "password" in text
    return found["password"] is not None or any(
        name in {"password", "sslpassword", "oauth_client_secret"} for name, _ in parse_qsl(found["query"] or "")
    )


def shown(text: str) -> str:
    """The URL without password and options, for display. An invalid URL is not shown at all, because any part of it may
    be a piece of a password."""
    found = _parts.fullmatch(text)
    if found is None:
        return "postgresql://..."
    user = unquote(found["user"] or "")
    return f"postgresql://{user}@{found['place']}" if user else f"postgresql://{found['place']}"
