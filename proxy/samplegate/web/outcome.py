"""What a person said, or is about to say, for the page: edits beside what was asked, an answer, a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from samplegate.core.review.cleared import cleared
from samplegate.core.review.review import Review
from samplegate.web import diff
from samplegate.web.blocks import Block, Reader
from samplegate.web.diff import Change
from samplegate.web.forms import Typed
from samplegate.web.texts import Shown, Space


class Outcome(msgspec.Struct, frozen=True):
    """A verdict as it is shown."""

    changes: tuple[Change, ...]
    blocks: tuple[Block, ...]
    """A written or edited answer to a sampling request."""
    action: str
    """Of an elicitation."""
    content: Shown | None


def outcome(review: Review, space: Space) -> Outcome | None:
    """What was said of a review that is decided; secrets that were filled in are not shown again (R39)."""
    verdict = cleared(review).verdict
    if verdict is None:
        return None
    edits = {} if verdict.edits is None else msgspec.to_builtins(verdict.edits)
    result = verdict.result or {}
    model = review.bounds.models[0] if review.bounds and review.bounds.models else ""
    if review.kind == "elicitation":
        content = result.get("content")
        return Outcome((), (), str(result.get("action", "")), None if not content else space.json(content))
    changed = [*diff.of_edits(review.params, model, edits)]
    if review.answer is not None and "content" in result:
        changed += diff.of_content(review.answer.get("content"), result["content"], "The answer")
    blocks = Reader(space).content(result["content"]) if "content" in result and review.answer is None else ()
    return Outcome(short(changed), blocks, "", None)


def changes(review: Review, typed: Typed) -> tuple[Change, ...]:
    """What the edits in the form change."""
    if review.answer is not None:
        return short(diff.of_content(review.answer.get("content"), typed.answer, "The answer"))
    model = review.bounds.models[0] if review.bounds and review.bounds.models else ""
    return short(diff.of_edits(review.params, model, typed.edits))


def sent(verdict: Mapping[str, Any]) -> str:
    """The values of a form as the server would get them, laid out; "" where there are none."""
    content = verdict.get("content")
    return json.dumps(content, indent=2, ensure_ascii=False) if isinstance(content, dict) and "action" in verdict else ""


def short(found: list[Change]) -> tuple[Change, ...]:
    """Without the middles of what stayed."""
    return tuple(Change(change.label, diff.shortened(change.pieces)) for change in found)
