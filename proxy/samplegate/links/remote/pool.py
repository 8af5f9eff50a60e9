"""What all remote servers of a process are reached with: one pool of connections, without cookies, proxies from the environment or redirects."""

from __future__ import annotations

from typing import Final

import aiohttp

MAX_CONNECTIONS: Final = 2_000  # open streams hold one each; a process may mostly have 1,024 to 65,536 descriptors
IDLE: Final = 4.0  # seconds; common servers close after 5, and a call must not be sent into a connection that is being closed
MAX_HEADER: Final = 16_384  # bytes of one line of a response's head


def pool(*, connections: int = MAX_CONNECTIONS, per_host: int = 0, ssl: aiohttp.Fingerprint | bool = True) -> aiohttp.ClientSession:
    """A pool; whoever made it closes it. Only within a running loop."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, limit_per_host=per_host, keepalive_timeout=IDLE, ssl=ssl),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # a few bytes could become many; compressed answers are refused
        trust_env=False,
        max_line_size=MAX_HEADER,
        max_field_size=MAX_HEADER,
    )
