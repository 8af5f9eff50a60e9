"""URLs in the settings: what is wrong with one. Pure: no name is looked up, nothing is asked."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from samplegate.settings.addresses import is_loopback

_unseen: Final = re.compile(r"[^\x21-\x7e]")
MAX_LENGTH: Final = 2_000


def why_no_url(text: str, *, query: bool = False, secure: bool = False) -> str | None:
    """Why a text is no http(s) URL that can be used, None if it is one; its value is not in the words, since parts of it may be secret.

    ``query``: whether it may have one. ``secure``: whether plain http is only taken to this machine.
    """
    if len(text) > MAX_LENGTH or _unseen.search(text):
        return f"is no URL: it is longer than {MAX_LENGTH} characters, or holds blanks or letters beyond ASCII; write them as %XX"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no URL; write one like https://mcp.example.com/mcp"
    if parts.scheme not in ("http", "https") or not host:
        return "is no http or https URL with a host; write one like https://mcp.example.com/mcp"
    if parts.username is not None or parts.password is not None:
        return "holds a user or a password; put credentials into a header"
    if "#" in text or ("?" in text and not query):
        return f"holds a {'fragment' if '#' in text else 'query'}; remove it"
    if secure and parts.scheme == "http" and not is_loopback(host):
        return "is plain http to another machine, where anybody on the way can change it; write https"
    return None


def is_open(text: str) -> bool:
    """Whether what is sent to a URL travels unencrypted to another machine."""
    parts = urlsplit(text)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
