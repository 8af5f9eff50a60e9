"""A verdict that has served keeps no secret: what a form was filled in with is taken out where it looks like one. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from samplegate.core.matching.secrecy import secret_fields, without_secrets
from samplegate.core.review.review import Review


def cleared(review: Review) -> Review:
    """The review without the values that a person gave for secret-looking fields of a form (R39). That a field was filled in stays."""
    verdict = review.verdict
    content = None if verdict is None or verdict.result is None else verdict.result.get("content")
    if verdict is None or verdict.result is None or review.kind != "elicitation" or not isinstance(content, dict):
        return review
    clean = without_secrets(content, secret_fields(review.params.get("requestedSchema")))
    return replace(review, verdict=replace(verdict, result={**verdict.result, "content": clean}))
