"""Pure. Untrusted text made printable: invisible characters are escaped, and commands of CI systems."""

from __future__ import annotations

import re
from typing import Final

# Commands are compared by the rules of a language, which ignore some characters (U+034F, U+FE0F). So all characters
# outside of ASCII count as absent.
_HASHES: Final = re.compile(r"#([^!-~]*)#")


def printable(text: str, *, keep: str = "") -> str:
    """The text with every unprintable character (control, bidi, line end, surrogate) escaped, except those in ``keep``.

    It has no character that XML forbids, and can be encoded as UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def without_hashes(text: str, *, escape: str = r"\x23") -> str:
    """The text without ``##``, which starts a command in the logs of some CI systems, anywhere in a line."""
    return _HASHES.sub(lambda found: f"#{found[1]}{escape}", text)
