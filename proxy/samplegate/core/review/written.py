"""What a person wrote as the answer: text or blocks for sampling, a filled-in form, a word for a URL -> the whole result. Never a guess, no defaults.

The result is in the newest shape, as ``answers.py`` makes it of an operator's words; ``answers.fits`` judges both.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

from samplegate.core import answers
from samplegate.core.matching.forms import NotFlat, read_form
from samplegate.core.matching.misfits import misfits
from samplegate.core.parsing.strictjson import told
from samplegate.core.requests import Origin, SamplingRequest
from samplegate.core.review.problems import Problem, unknown
from samplegate.core.review.review import Review
from samplegate.core.session import shapes

MOST_BLOCKS: Final = 100
ACTIONS: Final = ("accept", "decline", "cancel")

_MEMBERS: Final = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "data", "mimeType"}),
    "audio": frozenset({"type", "data", "mimeType"}),
    "tool_use": frozenset({"type", "id", "name", "input", "_meta"}),
}
_mime: Final = re.compile(r"(?:image|audio)/[A-Za-z0-9.+-]{1,100}\Z")


def answered(given: Mapping[str, Any], review: Review) -> Mapping[str, Any] | list[Problem]:
    """The result that the members ``action`` and ``content`` of a verdict make, or all that is wrong with them."""
    return _sampled(given, review) if review.kind == "sampling" else _elicited(given, review)


def _elicited(given: Mapping[str, Any], review: Review) -> Mapping[str, Any] | list[Problem]:
    action, content = given.get("action"), given.get("content")
    if action not in ACTIONS:
        return [Problem("action", "must be accept, decline or cancel")]
    if action != "accept" or review.mode == "url":
        what = "the acceptance of an address" if action == "accept" else f"{action!r}"
        return {"action": action} if content is None else [Problem("content", f"does not belong to {what}")]
    if content is not None and not isinstance(content, dict):
        return [Problem("content", "must be an object with the fields of the form")]
    found = _form_problems(content or {}, review)
    return found or {"action": "accept", "content": content or {}}


def _form_problems(content: Mapping[str, Any], review: Review) -> list[Problem]:
    """R36: what does not fit is never sent as accepted."""
    form = read_form(review.params.get("requestedSchema"), review.revision)
    if isinstance(form, NotFlat):  # T16
        return [Problem("content", f"cannot be checked, as the form is not flat: {form.why}")]
    own = form.schema.get("properties", {})
    return [Problem(_field(name, name in own), what) for name, what in misfits(form, content).items()]


def _field(name: str, own: bool) -> str:
    """The server's own names whole, so that a page finds its field."""
    if not name:
        return "content"
    return f"content.{name if own else told(name)}"


def _sampled(given: Mapping[str, Any], review: Review) -> Mapping[str, Any] | list[Problem]:
    content = given.get("content")
    if content is None:
        return [Problem("content", "is missing: the answer as a text or as content blocks")]
    blocks: Any = {"type": "text", "text": content} if isinstance(content, str) else content
    listed = blocks if isinstance(blocks, list) else [blocks]
    if not 0 < len(listed) <= MOST_BLOCKS:
        return [Problem("content", f"must be a text or 1 to {MOST_BLOCKS} content blocks")]
    at = [f"content.{index}" if isinstance(blocks, list) else "content" for index in range(len(listed))]
    found = [problem for place, block in zip(at, listed, strict=True) for problem in _block_problems(block, place, review)]
    return found or _fitting(blocks, listed, review)


def _fitting(blocks: Any, listed: list[dict[str, Any]], review: Review) -> Mapping[str, Any] | list[Problem]:
    """The result if the server's revision has a form for it (R6) and it uses tools as they were offered (R9)."""
    uses = any(block["type"] == "tool_use" for block in listed)
    result = {"role": "assistant", "content": blocks, "model": f"human/{review.reviewer}", "stopReason": "toolUse" if uses else "endTurn"}
    shaped = shapes.sampling_result(result, review.revision)
    if shaped is None:
        return [Problem("content", f"has no form in revision {told(review.revision)}, which takes one block of text, image or audio")]
    origin = Origin(review.server, review.caller, review.era, review.revision, review.calls)
    why = answers.fits(SamplingRequest(origin, review.params, 0), shaped)
    return result if why is None else [Problem("content", f"is no answer to this: {why}")]


def _block_problems(block: Any, at: str, review: Review) -> list[Problem]:
    if not isinstance(block, dict) or not isinstance(type_ := block.get("type"), str) or type_ not in _MEMBERS:
        return [Problem(at, "must be a content block of type text, image or audio")]
    found = unknown(block, _MEMBERS[type_], f"{at}.")
    if type_ == "text":
        good = isinstance(block.get("text"), str) and block["text"] != ""
        return found if good else [*found, Problem(f"{at}.text" if at != "content" else at, "must be a text that is not empty")]
    return found + (_use_problems(block, at, review) if type_ == "tool_use" else _media_problems(block, type_, at))


def _media_problems(block: Mapping[str, Any], type_: str, at: str) -> list[Problem]:
    found = [] if _is_base64(block.get("data")) else [Problem(f"{at}.data", "must be base64")]
    mime = block.get("mimeType")
    if not isinstance(mime, str) or not _mime.match(mime) or not mime.startswith(f"{type_}/"):
        found.append(Problem(f"{at}.mimeType", f"must be a media type such as {'image/png' if type_ == 'image' else 'audio/wav'}"))
    return found


def _is_base64(data: Any) -> bool:
    try:
        return isinstance(data, str) and bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


def _use_problems(block: Mapping[str, Any], at: str, review: Review) -> list[Problem]:
    """A person may edit or drop the uses of tools in a model's answer, and make up none: ids are the model's."""
    content = (review.answer or {}).get("content")
    own = [each for each in (content if isinstance(content, list) else [content]) if isinstance(each, dict) and each.get("type") == "tool_use"]
    if not any((each.get("id"), each.get("name"), each.get("_meta")) == (block.get("id"), block.get("name"), block.get("_meta")) for each in own):
        return [Problem(at, "uses a tool that the model's answer does not use")]
    return [] if isinstance(block.get("input"), dict) else [Problem(f"{at}.input", "must be an object")]
