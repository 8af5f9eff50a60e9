"""A stdio server of both protocol versions that never answers calls of the tool ``hold``, and answers all other
requests at once."""

from __future__ import annotations

import json
import re
import sys
from typing import Final

HEAD: Final = 1000
ID: Final = re.compile(rb'"id":\s*("[^"]*"|\d+)')
METHOD: Final = re.compile(rb'"method":\s*"([^"]*)"')
HELLO: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "holding", "version": "1"},
}
FOUND: Final = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}
OK: Final = {"content": [], "resultType": "complete"}

for line in sys.stdin.buffer:
    head = line[:HEAD]
    id, method = ID.search(head), METHOD.search(head)
    if id is None or method is None or b'"name":"hold"' in head:
        continue
    result = {b"initialize": HELLO, b"server/discover": FOUND}.get(method[1], OK)
    sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id[1], json.dumps(result).encode()))
    sys.stdout.buffer.flush()
