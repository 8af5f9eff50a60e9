"""What a verdict is bound to: a digest of who asked what during what, and of exactly what will be acted on (T13)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from samplegate.core.requests import Call
from samplegate.core.session.seal import params_digest


def digest(
    *,
    server: str,
    caller: str,
    realm: str = "",
    method: str,
    calls: Sequence[Call],
    during: str = "",
    reviewer: str,
    params: Mapping[str, Any],
    models: Sequence[str] = (),
    answer: Mapping[str, Any] | None = None,
) -> str:
    """``sha256:`` and the hex of SHA-256 over canonical JSON (sorted keys, no blanks, ASCII). ``_meta`` and ``task`` differ from try to try.

    ``realm`` tells apart servers of one name (``ports.Ports``). ``during``: what the client's call was made with (``call_digest``): "Really delete?"
    is another question for another thing that is deleted.
    """
    bound = {
        "server": server,
        "caller": caller,
        "realm": realm,
        "method": method,
        "calls": [[call.method, call.tool] for call in calls],
        "during": during,
        "reviewer": reviewer,
        "params": {name: value for name, value in params.items() if name not in ("_meta", "task")},
        "models": list(models),
        "answer": answer,
    }
    text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def call_digest(params: bytes | None) -> str:
    """What stands for the params of a call, the same from try to try; "" where it is not known which call it is."""
    if params is None:
        return ""
    try:
        return params_digest(params)
    except (ValueError, RecursionError):  # no canonical form: as it stands, so that it is bound all the same
        return hashlib.sha256(params).hexdigest()
