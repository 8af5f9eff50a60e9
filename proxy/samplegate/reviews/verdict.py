"""Pure. Verdicts as JSON: parsed to a Verdict, or to all problems, each at its field.

Webhooks, callbacks, the API, commands and the page share one format: ``{"verdict": "approve" | "reject" | "answer",
"digest", "edits", "action", "content", "reason", "tell_server"}``. An unknown member or value is refused: an error is
never an approval (T13). ``review.py`` checks whether a verdict is in time and the first.

An approval without ``edits`` is for the version whose digest it states, with its edits or its answer (``votes.py``).
With ``edits: {}``, it is for the request or the model's answer as it is.

A reviewer's answer (text or blocks for sampling, a filled-in form, accept or decline for a URL) becomes the whole
result in the newest shape, without guesses or defaults. ``answers.answer_error`` checks sampling answers like a
rule's fixed answer.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from samplegate.policy import answers
from samplegate.protocol import results
from samplegate.protocol.elicitation_schema import NotFlat, field_problems, read_form
from samplegate.protocol.requests import Origin, SamplingRequest
from samplegate.protocol.strictjson import JsonFault, decode, plain_name
from samplegate.reviews import edits as editing
from samplegate.reviews.review import Edits, FieldProblem, Review, Verdict, unknown
from samplegate.reviews.votes import STALE, is_older, version

MAX_BLOCKS: Final = 100
ACTIONS: Final = ("accept", "decline", "cancel")

_MEMBERS: Final = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "data", "mimeType"}),
    "audio": frozenset({"type", "data", "mimeType"}),
    "tool_use": frozenset({"type", "id", "name", "input", "_meta"}),
}
_mime: Final = re.compile(r"(?:image|audio)/[A-Za-z0-9.+-]{1,100}\Z")


def answer_result(given: Mapping[str, Any], review: Review) -> Mapping[str, Any] | list[FieldProblem]:
    """The result from a verdict's ``action`` and ``content``, or all problems with them."""
    return _sampled(given, review) if review.kind == "sampling" else _elicited(given, review)


def _elicited(given: Mapping[str, Any], review: Review) -> Mapping[str, Any] | list[FieldProblem]:
    action, content = given.get("action"), given.get("content")
    if action not in ACTIONS:
        return [FieldProblem("action", "must be accept, decline or cancel")]
    if action != "accept" or review.mode == "url":
        what = "an accepted URL" if action == "accept" else f"action {action!r}"
        return {"action": action} if content is None else [FieldProblem("content", f"is not allowed with {what}")]
    if content is not None and not isinstance(content, dict):
        return [FieldProblem("content", "must be an object with the form's fields")]
    found = _form_problems(content or {}, review)
    return found or {"action": "accept", "content": content or {}}


def _form_problems(content: Mapping[str, Any], review: Review) -> list[FieldProblem]:
    """The problems of a form's content (R36): content that does not fit is never sent as accepted."""
    form = read_form(review.params.get("requestedSchema"), review.revision)
    if isinstance(form, NotFlat):  # T16
        return [FieldProblem("content", f"cannot be checked, because the form is not flat: {form.why}")]
    own = form.schema.get("properties", {})
    return [FieldProblem(_field(name, name in own), what) for name, what in field_problems(form, content).items()]


def _field(name: str, own: bool) -> str:
    """The problem's path. The form's own field names stay whole, so that the page finds the field."""
    if not name:
        return "content"
    return f"content.{name if own else plain_name(name)}"


def _sampled(given: Mapping[str, Any], review: Review) -> Mapping[str, Any] | list[FieldProblem]:
    content = given.get("content")
    if content is None:
        return [FieldProblem("content", "is missing; give the answer as a string or as content blocks")]
    blocks: Any = {"type": "text", "text": content} if isinstance(content, str) else content
    listed = blocks if isinstance(blocks, list) else [blocks]
    if not 0 < len(listed) <= MAX_BLOCKS:
        return [FieldProblem("content", f"must be a string or 1 to {MAX_BLOCKS} content blocks")]
    at = [f"content.{index}" if isinstance(blocks, list) else "content" for index in range(len(listed))]
    found = [
        problem for place, block in zip(at, listed, strict=True) for problem in _block_problems(block, place, review)
    ]
    return found or _fitting(blocks, listed, review)


def _fitting(blocks: Any, listed: list[dict[str, Any]], review: Review) -> Mapping[str, Any] | list[FieldProblem]:
    """The result, if the server's revision can express it (R6) and it uses tools as they were offered (R9)."""
    uses = any(block["type"] == "tool_use" for block in listed)
    result = {
        "role": "assistant",
        "content": blocks,
        "model": f"human/{review.reviewer}",
        "stopReason": "toolUse" if uses else "endTurn",
    }
    shaped = results.sampling_result(result, review.revision)
    if shaped is None:
        return [
            FieldProblem(
                "content",
                f"does not fit protocol version {plain_name(review.revision)}, which allows one text, image or audio"
                " block",
            )
        ]
    origin = Origin(review.server, review.caller, review.era, review.revision, review.calls)
    why = answers.answer_error(SamplingRequest(origin, review.params, 0), shaped)
    return result if why is None else [FieldProblem("content", f"does not answer the request: {why}")]


def _block_problems(block: Any, at: str, review: Review) -> list[FieldProblem]:
    if not isinstance(block, dict) or not isinstance(type_ := block.get("type"), str) or type_ not in _MEMBERS:
        return [FieldProblem(at, "must be a content block of type text, image or audio")]
    found = unknown(block, _MEMBERS[type_], f"{at}.")
    if type_ == "text":
        good = isinstance(block.get("text"), str) and block["text"] != ""
        return (
            found
            if good
            else [*found, FieldProblem(f"{at}.text" if at != "content" else at, "must be a non-empty string")]
        )
    return found + (_use_problems(block, at, review) if type_ == "tool_use" else _media_problems(block, type_, at))


def _media_problems(block: Mapping[str, Any], type_: str, at: str) -> list[FieldProblem]:
    found = [] if _is_base64(block.get("data")) else [FieldProblem(f"{at}.data", "must be base64")]
    mime = block.get("mimeType")
    if not isinstance(mime, str) or not _mime.match(mime) or not mime.startswith(f"{type_}/"):
        found.append(
            FieldProblem(
                f"{at}.mimeType", f"must be a media type such as {'image/png' if type_ == 'image' else 'audio/wav'}"
            )
        )
    return found


def _is_base64(data: Any) -> bool:
    try:
        return isinstance(data, str) and bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


def _use_problems(block: Mapping[str, Any], at: str, review: Review) -> list[FieldProblem]:
    """Reviewers may edit or drop the tool uses in a model's answer, but add none, because the IDs are the model's."""
    content = (review.answer or {}).get("content")
    own = [
        each
        for each in (content if isinstance(content, list) else [content])
        if isinstance(each, dict) and each.get("type") == "tool_use"
    ]
    if not any(
        (each.get("id"), each.get("name"), each.get("_meta"))
        == (block.get("id"), block.get("name"), block.get("_meta"))
        for each in own
    ):
        return [FieldProblem(at, "adds a tool call that the model's answer does not have")]
    return [] if isinstance(block.get("input"), dict) else [FieldProblem(f"{at}.input", "must be an object")]


MAX_BYTES: Final = 1 << 20  # a long text with a small picture
MAX_DEPTH: Final = 64
MAX_REASON: Final = 1_000  # characters
MAX_PROBLEMS: Final = 100

MEMBERS: Final = frozenset({"verdict", "digest", "edits", "action", "content", "reason", "tell_server"})
_BELONG: Final = {
    "approve": frozenset({"edits"}),
    "reject": frozenset[str](),
    "answer": frozenset({"action", "content"}),
}
"""The members that belong to each word, in addition to digest, reason and tell_server."""
_control: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def read(
    raw: bytes | Mapping[str, Any], review: Review, *, digest: Literal["needed", "optional"]
) -> Verdict | tuple[FieldProblem, ...]:
    """Parse a verdict on ``review``. Never raises; without a verdict there is at least one problem.

    Bytes may be at most 1 MiB. A Mapping comes from fields that one of our own doors has already parsed. For sampling
    it may be larger by the size of the request, so that messages with pictures can be edited. A null member counts as
    absent, except within ``edits`` and ``content``.
    """
    try:
        given = _decoded(raw, review)
    except JsonFault as fault:
        return (FieldProblem("", str(fault)),)
    if not isinstance(given, dict):
        return (FieldProblem("", "must be an object"),)
    given = {name: value for name, value in given.items() if value is not None}
    read = _read(given, review, digest)
    return read if isinstance(read, Verdict) else tuple(read[:MAX_PROBLEMS])


def _decoded(raw: bytes | Mapping[str, Any], review: Review) -> Any:
    """Decode bytes or a Mapping by the same rules: a Mapping is encoded first."""
    if isinstance(raw, bytes):
        return decode(raw, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    try:
        # typed text may contain a lone surrogate: replace it, as strictjson does
        text = (
            json.dumps(dict(raw), ensure_ascii=False, allow_nan=False)
            .encode("utf-16-le", "surrogatepass")
            .decode("utf-16-le", "replace")
        )
        size = len(json.dumps(review.params, ensure_ascii=False)) * 4 if review.kind == "sampling" else 0
    except (TypeError, ValueError, RecursionError):
        raise JsonFault("not valid JSON") from None
    return decode(text.encode(), max_bytes=MAX_BYTES + size, max_depth=MAX_DEPTH)


def _read(given: dict[str, Any], review: Review, digest: Literal["needed", "optional"]) -> Verdict | list[FieldProblem]:
    word = given.get("verdict")
    found = [*unknown(given, MEMBERS), *_digest_problems(given, review, digest), *_reason_problems(given, review)]
    if not isinstance(word, str) or word not in _BELONG:
        return [*found, FieldProblem("verdict", "must be approve, reject or answer")]
    found += _word_problems(word, given, review)
    edits: Edits | None = None
    result: Mapping[str, Any] | None = None
    if word == "approve" and "edits" not in given and review.proposal is not None:
        return found or msgspec.structs.replace(review.proposal, reason=given.get("reason", "").strip())
    if word == "approve" and given.get("edits", {}) != {} and not found_at(found, "verdict", "edits"):
        read = editing.parse_edits(given["edits"], review)
        edits, found = (None, [*found, *read]) if isinstance(read, tuple) else (read, found)
    if word == "answer" and not found_at(found, "verdict"):
        made = answer_result(given, review)
        result, found = (None, [*found, *made]) if isinstance(made, list) else (made, found)
    if found:
        return found
    return Verdict(
        word=word,  # type: ignore[arg-type]
        edits=edits,
        result=result,
        reason=given.get("reason", "").strip(),
        tell_server=given.get("tell_server", False),
    )


def found_at(found: list[FieldProblem], *paths: str) -> bool:
    """Whether one of these fields already has a problem."""
    return any(problem.path in paths for problem in found)


def _digest_problems(
    given: Mapping[str, Any], review: Review, digest: Literal["needed", "optional"]
) -> list[FieldProblem]:
    """T13: the digest identifies the content that the reviewer saw."""
    if "digest" not in given:
        return [] if digest == "optional" else [FieldProblem("digest", "is missing; send the digest that was shown")]
    if given["digest"] == version(review) or (given.get("verdict") == "reject" and is_older(review, given["digest"])):
        return []
    stale = is_older(review, given["digest"])
    return [
        FieldProblem("digest", STALE if stale else "does not match this review; read the review again, then decide")
    ]


def _reason_problems(given: Mapping[str, Any], review: Review) -> list[FieldProblem]:
    reason, tell = given.get("reason", ""), given.get("tell_server", False)
    if not isinstance(tell, bool):
        return [FieldProblem("tell_server", "must be true or false")]
    if not isinstance(reason, str) or len(reason) > MAX_REASON:
        return [FieldProblem("reason", f"must be a string of at most {MAX_REASON} characters")]
    if _control.search(reason.replace("\r\n", "\n")):
        return [FieldProblem("reason", "must not contain control characters")]
    if tell and given.get("verdict") != "reject":
        return [FieldProblem("tell_server", "only a rejection can send its reason to the server")]
    if tell and review.kind == "elicitation":
        return [
            FieldProblem(
                "tell_server", "is not allowed for an elicitation, because its answer has no field for a reason"
            )
        ]
    return (
        [FieldProblem("reason", "must not be empty if it is sent to the server")] if tell and not reason.strip() else []
    )


def _word_problems(word: str, given: Mapping[str, Any], review: Review) -> list[FieldProblem]:
    """Check that the review can be decided with this word, and that the other members belong to the word."""
    found = [
        FieldProblem(name, f"is not allowed with verdict {word!r}")
        for name in ("edits", "action", "content")
        if name in given.keys() - _BELONG[word]
    ]
    if word == "approve" and review.proposal is not None and "edits" not in given:
        return found
    if word == "approve" and review.kind == "elicitation":
        found.append(
            FieldProblem("verdict", "must be answer or reject, because forms and URLs are answered, not approved")
        )
    elif word == "approve" and review.stage == "request" and review.bounds is None:
        found.append(
            FieldProblem(
                "verdict",
                f"must be answer or reject, because no model can be called{f' ({review.why})' if review.why else ''}",
            )
        )
    if word == "approve" and review.stage == "answer" and given.get("edits", {}) != {}:
        found.append(
            FieldProblem("edits", "are not allowed for a model's answer; send the edited answer with verdict 'answer'")
        )
    if word == "answer" and review.kind == "sampling" and "action" in given:
        found.append(FieldProblem("action", "is only allowed for elicitations"))
    return found
