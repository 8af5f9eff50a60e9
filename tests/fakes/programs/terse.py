"""A stdio server of both protocol versions with the shortest answers. It parses only the first bytes of a line.

A call with ``answer:SIZE:NAME`` as its name is answered by that frame of ``tests/fakes/hostile_frames.py`` (of ANSWERS
or NOTICES).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.fakes.hostile_frames import ANSWERS, NOTICES

HEAD = 1000
ID = re.compile(rb'"id":\s*("[^"]*"|\d+)')
METHOD = re.compile(rb'"method":\s*"([^"]*)"')
TOOL = re.compile(rb'"name":\s*"answer:(\d+):([^"]*)"')
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "terse", "version": "1"},
}
FOUND = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}
OK = {"content": [{"type": "text", "text": "ok"}], "resultType": "complete"}


def answer(line: bytes) -> None:
    head = line[:HEAD]
    id, method, tool = ID.search(head), METHOD.search(head), TOOL.search(head)
    if id is None or method is None:
        return
    if tool is not None:
        size, name = int(tool[1]), tool[2].decode()
        if name in NOTICES:
            write(NOTICES[name](1, size))
        else:
            write(ANSWERS[name](7, size).replace(b'"id":7', b'"id":' + id[1], 1))
            return
    result = {b"initialize": HELLO, b"server/discover": FOUND}.get(method[1], OK)
    write(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id[1], json.dumps(result).encode()))


def write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


for line in sys.stdin.buffer:
    answer(line)
