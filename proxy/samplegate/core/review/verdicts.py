"""A verdict as JSON -> a Verdict, or all that is wrong with it, each at its field. One form for webhooks, callbacks, the API, commands, the page.

``{"verdict": "approve" | "reject" | "answer", "digest", "edits", "action", "content", "reason", "tell_server"}``. Not whether it is in time or the
first (``states.py``), nor who may give it. What is not understood is refused: an error is never an approval (T13).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from samplegate.core.parsing.strictjson import Fault, decode
from samplegate.core.review import edits as editing
from samplegate.core.review import written
from samplegate.core.review.problems import Problem, unknown
from samplegate.core.review.review import Edits, Review, Verdict

__all__ = ["MOST_BYTES", "MOST_REASON", "Problem", "read"]

MOST_BYTES: Final = 1 << 20  # a long text with a small picture; nobody types more
MAX_DEPTH: Final = 64
MOST_REASON: Final = 1_000  # characters
MOST_PROBLEMS: Final = 100

MEMBERS: Final = frozenset({"verdict", "digest", "edits", "action", "content", "reason", "tell_server"})
_BELONG: Final = {"approve": frozenset({"edits"}), "reject": frozenset[str](), "answer": frozenset({"action", "content"})}
"""What each word goes with, beside digest, reason and tell_server."""
_control: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def read(raw: bytes | Mapping[str, Any], review: Review, *, digest: Literal["needed", "optional"]) -> Verdict | tuple[Problem, ...]:
    """The verdict in ``raw`` if it is one on ``review``. Never raises, and never empty: at least one Problem where there is no verdict.

    Bytes are at most 1 MiB. A Mapping is what a door of ours made of fields, and may be larger by what the request itself is, so that messages
    with pictures can be edited. A member that is null is taken as absent, not so within ``edits`` and ``content``.
    """
    try:
        given = _decoded(raw, review)
    except Fault as fault:
        return (Problem("", str(fault)),)
    if not isinstance(given, dict):
        return (Problem("", "must be an object"),)
    given = {name: value for name, value in given.items() if value is not None}
    read = _read(given, review, digest)
    return read if isinstance(read, Verdict) else tuple(read[:MOST_PROBLEMS])


def _decoded(raw: bytes | Mapping[str, Any], review: Review) -> Any:
    """One reading whichever way it came: a Mapping goes through text too, and so meets the same law."""
    if isinstance(raw, bytes):
        return decode(raw, max_bytes=MOST_BYTES, max_depth=MAX_DEPTH)
    try:
        # what a person typed may hold half a character; replaced, as strictjson does
        text = json.dumps(dict(raw), ensure_ascii=False, allow_nan=False).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        size = len(json.dumps(review.params, ensure_ascii=False)) * 4 if review.kind == "sampling" else 0
    except (TypeError, ValueError, RecursionError):
        raise Fault("it is not JSON") from None
    return decode(text.encode(), max_bytes=MOST_BYTES + size, max_depth=MAX_DEPTH)


def _read(given: dict[str, Any], review: Review, digest: Literal["needed", "optional"]) -> Verdict | list[Problem]:
    word = given.get("verdict")
    found = [*unknown(given, MEMBERS), *_digest_problems(given, review, digest), *_reason_problems(given, review)]
    if not isinstance(word, str) or word not in _BELONG:
        return [*found, Problem("verdict", "must be approve, reject or answer")]
    found += _word_problems(word, given, review)
    edits: Edits | None = None
    result: Mapping[str, Any] | None = None
    if word == "approve" and "edits" in given and not found_at(found, "verdict", "edits"):
        read = editing.read(given["edits"], review)
        edits, found = (None, [*found, *read]) if isinstance(read, tuple) else (read, found)
    if word == "answer" and not found_at(found, "verdict"):
        made = written.answered(given, review)
        result, found = (None, [*found, *made]) if isinstance(made, list) else (made, found)
    if found:
        return found
    return Verdict(word=word, edits=edits, result=result, reason=given.get("reason", "").strip(), tell_server=given.get("tell_server", False))  # type: ignore[arg-type]


def found_at(found: list[Problem], *paths: str) -> bool:
    """Whether one of these fields has a problem already."""
    return any(problem.path in paths for problem in found)


def _digest_problems(given: Mapping[str, Any], review: Review, digest: Literal["needed", "optional"]) -> list[Problem]:
    """T13: it names what the person saw."""
    if "digest" not in given:
        return [] if digest == "optional" else [Problem("digest", "is missing: it names exactly what was shown")]
    return [] if given["digest"] == review.digest else [Problem("digest", "is not that of this review: something else was shown")]


def _reason_problems(given: Mapping[str, Any], review: Review) -> list[Problem]:
    reason, tell = given.get("reason", ""), given.get("tell_server", False)
    if not isinstance(tell, bool):
        return [Problem("tell_server", "must be true or false")]
    if not isinstance(reason, str) or len(reason) > MOST_REASON:
        return [Problem("reason", f"must be a text of at most {MOST_REASON} characters")]
    if _control.search(reason.replace("\r\n", "\n")):
        return [Problem("reason", "may not hold control characters")]
    if tell and given.get("verdict") != "reject":
        return [Problem("tell_server", "only a rejection tells the server its reason")]
    if tell and review.kind == "elicitation":
        return [Problem("tell_server", "an elicitation that is declined has no place for a reason")]
    return [Problem("reason", "is empty, and the server is to be told it")] if tell and not reason.strip() else []


def _word_problems(word: str, given: Mapping[str, Any], review: Review) -> list[Problem]:
    """Whether the review can be answered with this word, and what was said goes with it."""
    found = [Problem(name, f"does not belong to {word!r}") for name in ("edits", "action", "content") if name in given.keys() - _BELONG[word]]
    if word == "approve" and review.kind == "elicitation":
        found.append(Problem("verdict", "must be answer or reject: to approve a form or an address is to answer it"))
    elif word == "approve" and review.stage == "request" and review.bounds is None:
        found.append(Problem("verdict", f"must be answer or reject: no model can be asked{f' ({review.why})' if review.why else ''}"))
    if word == "approve" and review.stage == "answer" and "edits" in given:
        found.append(Problem("edits", "do not belong to a model's answer: give the edited one as `answer` with its content"))
    if word == "answer" and review.kind == "sampling" and "action" in given:
        found.append(Problem("action", "belongs to elicitations only"))
    return found
