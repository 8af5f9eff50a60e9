"""A request that asks for another protocol, which is not served: its head again without the asking, as HTTP lets a server ignore it.

llhttp, which uvicorn parses with, takes every such request for one without a body, and what follows its head for something else.
"""

from __future__ import annotations

from collections.abc import Iterable


def ignored(method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of the same request without ``Upgrade``, as bytes for a parser. Raises ValueError where a header holds a line end."""
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    lines += [b"%s: %s" % header for header in headers if header[0] != b"upgrade"]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise ValueError("a header that holds a line end")
    return b"\r\n".join([*lines, b"", b""])
