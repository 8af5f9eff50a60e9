"""A client's answer that parsers could read differently. Pure. Not whether it fits what was asked: that is ``answers.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from samplegate.core import names
from samplegate.core.parsing.strictjson import named

_MEMBERS: Final = frozenset({"action", "content", "role", "model", "stopReason", "_meta"})
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})
_OF_BLOCKS: Final = frozenset({"type", "text", "data", "mimeType", "id", "name", "input", "annotations", "_meta"})


def second_reading(result: Mapping[str, Any], fields: frozenset[str] = frozenset()) -> str | None:
    """Why a result of sampling or elicitation is not read alike by all parsers, None if it is. ``fields``: those of the form that it answers."""
    twin = names.second_reading(result, _MEMBERS)
    if twin is None:
        content = result.get("content")
        if "role" in result:
            blocks = [block for block in (content if isinstance(content, list) else [content]) if isinstance(block, dict)]
            if sum(len(name) for block in blocks for name in block if not name.isascii()) > names.MAX_FOLDED:
                return f"its content has more than {names.MAX_FOLDED} characters in names that are not ASCII"
            found = (names.second_reading(block, _OF_BLOCKS) for block in blocks)
            twin = next((name for name in found if name is not None), None)
        elif isinstance(content, dict):
            twin = names.resembling_field(content, fields)
    if twin is not None:
        return f"{named(twin)} could be read as another member"
    return "its action is not read alike by all parsers" if "action" in result and not _is_plain(result["action"]) else None


def _is_plain(action: object) -> bool:
    """Whether no parser takes an action for one of the three that it is not: enums are read in any case, and other types become texts."""
    return isinstance(action, str) and (action in _ACTIONS or names.fold(action).strip() not in _ACTIONS)
