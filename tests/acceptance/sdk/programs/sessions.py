"""How a Python client is told what to do, whichever SDK it is written on. Runs in the environments sdk1 and sdk2.

`client.py SCENARIO COMMAND...|URL` has one session. `client.py` alone has one after the other: each line on stdin is
`[SCENARIO, [COMMAND...|URL]]`. Each session prints one JSON line of what it saw.
"""

import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

END = "-- end of the session --"


def run(session: Callable[[dict[str, Any], list[str]], Awaitable[dict[str, Any]]]) -> None:
    if len(sys.argv) > 1:
        print(json.dumps(anyio.run(session, json.loads(sys.argv[1]), sys.argv[2:])), flush=True)
        return
    for line in iter(sys.stdin.readline, ""):  # a step may read a line too
        scenario, at = json.loads(line)
        try:
            seen = anyio.run(session, scenario, at)
        except Exception:
            seen = {"broken": traceback.format_exc()}
        print(END, file=sys.stderr, flush=True)
        print(json.dumps(seen), flush=True)
