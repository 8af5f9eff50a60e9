"""A posted form -> the verdict as JSON that every door speaks (``core/review/verdicts.py``). Not its check: what does not fit is a problem there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from samplegate.core.matching.forms import NotFlat, read_form
from samplegate.core.review.review import Review
from samplegate.web import filled
from samplegate.web.fields import drawable
from samplegate.web.typed import Posted, first, kept, same, unbroken

PREVIEW: Final = "preview"


class Said(msgspec.Struct, frozen=True):
    """What a person said at the page."""

    verdict: dict[str, Any]
    problems: dict[str, str]
    """By the paths that ``verdicts.Problem`` has: what could not even be put into a verdict."""
    form: str
    """Which form it was: ``approve``, ``edit``, ``answer`` or ``refuse``."""
    preview: bool
    """Nothing is decided: what it would come to is shown."""


def said(review: Review, posted: Posted) -> Said:
    """The verdict of a form. ``do`` names the button, ``form`` the form that it belongs to (``preview`` is in two)."""
    do, form = first(posted, "do") or "", first(posted, "form") or ""
    verdict: dict[str, Any] = {"digest": first(posted, "digest") or ""}
    if reason := unbroken(first(posted, "reason") or "").strip():
        verdict["reason"] = reason
    problems: dict[str, str] = {}
    word = form if do == PREVIEW else do
    match word:
        case "approve":
            verdict["verdict"] = "approve"
        case "edit":
            verdict["verdict"] = "approve"
            verdict["edits"], problems = edits(review, posted)
        case "answer" if review.kind == "sampling":
            verdict |= {"verdict": "answer", "content": _answer(review, posted)}
        case "answer" | "accept":
            verdict |= {"verdict": "answer", "action": "accept"}
            if review.mode != "url":
                verdict["content"], problems = _content(review, posted)
        case "decline" | "cancel":
            verdict |= {"verdict": "answer", "action": word}
        case "reject":
            verdict |= {"verdict": "reject", "tell_server": first(posted, "tell_server") == "yes"}
        case _:
            problems[""] = "the button that was pressed is none of this page"
    return Said(verdict, problems, form, do == PREVIEW)


def edits(review: Review, posted: Posted) -> tuple[dict[str, Any], dict[str, str]]:
    """What was changed of a sampling request; fields that were left alone are left out."""
    params, found, problems = review.params, dict[str, Any](), dict[str, str]()
    prompt = first(posted, "edit.system")
    if prompt is not None and not same(params.get("systemPrompt") or "", prompt):
        found["systemPrompt"] = unbroken(prompt)
    model = first(posted, "edit.model")
    if model and review.bounds is not None and model != next(iter(review.bounds.models), None):
        found["model"] = model
    for name, field, whole in (("maxTokens", "edit.max_tokens", True), ("temperature", "edit.temperature", False)):
        value = _number(params.get(name), first(posted, field), whole=whole)
        if isinstance(value, filled.Problem):
            problems[f"edits.{name}"] = str(value)
        elif value != params.get(name):
            found[name] = value
    messages = list(_messages(params, posted))
    if messages != list(params.get("messages", ())):
        found["messages"] = messages
    return found, problems


def _number(now: Any, typed: str | None, *, whole: bool) -> Any:
    if typed is None or (not typed.strip() and now is None):
        return now
    return filled.number(typed, whole=whole) if typed.strip() else filled.Problem("cannot be taken out, only changed")


def _messages(params: Mapping[str, Any], posted: Posted) -> Iterator[Any]:
    for m, message in enumerate(params.get("messages", ())):
        content = _texts(message.get("content"), posted, f"edit.text.{m}")
        yield message if content == message.get("content") else {**message, "content": content}


def _texts(content: Any, posted: Posted, place: str) -> Any:
    """The content with the texts that were typed; whatever is no text stays."""
    if isinstance(content, list | tuple):
        return [_text(block, first(posted, f"{place}.{b}")) for b, block in enumerate(content)]
    return _text(content, first(posted, f"{place}.0"))


def _text(block: Any, typed: str | None) -> Any:
    if typed is None or not isinstance(block, Mapping) or block.get("type") != "text":
        return block
    return {**block, "text": kept(str(block.get("text", "")), typed)}


def texts(content: Any) -> Iterator[tuple[int, str]]:
    """The texts of a content that can be edited, with their places."""
    for b, block in enumerate(content if isinstance(content, list | tuple) else [content]):
        if isinstance(block, Mapping) and block.get("type") == "text":
            yield b, str(block.get("text", ""))


def _answer(review: Review, posted: Posted) -> Any:
    """A text, or the model's answer with its texts edited."""
    if review.answer is None:
        return unbroken(first(posted, "answer.0") or "")
    return _texts(review.answer.get("content"), posted, "answer")


def _content(review: Review, posted: Posted) -> tuple[Any, dict[str, str]]:
    form = read_form(review.params.get("requestedSchema"), review.revision)
    if isinstance(form, NotFlat):
        return {}, {"content": f"cannot be filled in here: {form.why}"}
    if not drawable(form):
        written = filled.as_json(posted)
        return ({}, {"content": written}) if isinstance(written, str) else (written, {})
    values, problems = filled.content(form, posted)
    return values, {f"content.{name}": what for name, what in problems.items()}
