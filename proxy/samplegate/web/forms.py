"""A posted form -> the verdict as JSON that every door speaks (``core/review/verdicts.py``). Not its check: what does not fit is a problem there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.core.matching.forms import NotFlat, read_form
from samplegate.core.review.review import Review
from samplegate.web import filled
from samplegate.web.fields import drawable
from samplegate.web.typed import Posted, first, kept, same, unbroken

PREVIEW: Final = "preview"


Touched: TypeAlias = Literal["untouched", "edited", "written", "both"]
"""What the reviewer has typed into the decision form: nothing, edits of what was asked or answered, an answer of their own, or both of these."""


class Typed(msgspec.Struct, frozen=True):
    """What the decision form holds, whichever button was pressed."""

    touched: Touched
    edits: dict[str, Any]
    """Of a sampling request: the changed params."""
    answer: Any
    """The content that a person wrote: a text, a model's edited answer, or the values of a form."""
    problems: dict[str, str]
    labels: tuple[str, ...]
    """Of the fields that were changed."""


class Said(msgspec.Struct, frozen=True):
    """What a reviewer said on the page."""

    verdict: dict[str, Any]
    problems: dict[str, str]
    """By the paths that ``verdicts.Problem`` has: what cannot even be put into a verdict."""
    preview: bool
    """Nothing is decided: the page shows what the decision would be."""
    typed: Typed


def said(review: Review, posted: Posted) -> Said:
    """The verdict of the decision form; ``do`` names the button.

    A page has one decision form, so every button comes with everything that was typed. A button that would drop a part of it is refused
    (``_dropped``); only a refusal of the request may do so, because it releases nothing.
    """
    do = first(posted, "do") or ""
    found = _typed(review, posted)
    verdict: dict[str, Any] = {"digest": first(posted, "digest") or ""}
    if reason := unbroken(first(posted, "reason") or "").strip():
        verdict["reason"] = reason
    word = do if do != PREVIEW else _previewed(review, found.touched)
    chosen = _chosen(word, review, found)
    verdict |= chosen or {}
    problems = dict(found.problems) if "edits" in verdict or "content" in verdict else {}
    if review.kind == "sampling" and do != PREVIEW and first(posted, "tell_server") == "yes":
        verdict["tell_server"] = True
    if chosen is None:
        problems[""] = "This button is not on the page."
    elif (dropped := _dropped(do, review, found)) is not None:
        problems = {"": dropped} | problems
    return Said(verdict, problems, do == PREVIEW, found)


def _chosen(word: str, review: Review, found: Typed) -> dict[str, Any] | None:
    """What a button says, with everything of the form that belongs to it. None: no such button."""
    match word:
        case "edit" if review.stage == "answer" and found.touched == "edited":
            return {"verdict": "answer", "content": found.answer}
        case "edit" if found.touched in ("edited", "both"):
            return {"verdict": "approve", "edits": found.edits}
        case "approve" | "edit":
            return {"verdict": "approve"}
        case "answer" if review.kind == "sampling" and review.stage == "request":
            return {"verdict": "answer", "content": found.answer}
        case "accept":
            return {"verdict": "answer", "action": "accept"} | ({} if review.mode == "url" else {"content": found.answer})
        case "decline" | "cancel":
            return {"verdict": "answer", "action": word}
        case "reject":
            return {"verdict": "reject"}
        case _:
            return None


def _previewed(review: Review, touched: Touched) -> str:
    """The button that fits what was typed."""
    if review.kind == "elicitation":
        return "accept"
    return "answer" if touched == "written" else "edit"


def _dropped(do: str, review: Review, found: Typed) -> str | None:
    """Why this button would drop what was typed, or has nothing to send; None if it does what it says."""
    labels = ", ".join(found.labels)
    match do, found.touched:
        case (("approve" | "edit" | "answer" | "preview"), "both"):
            return f"You edited the request and also wrote an answer ({labels}). Only one of them can be used: undo the other."
        case "approve", "edited":
            edit = "Release with edits" if review.stage == "answer" else "Approve with edits"
            return f'Your edits would be lost ({labels}). Choose "{edit}", or undo the edits.'
        case "edit", "untouched":
            return f'Nothing is edited. Choose "{"Release" if review.stage == "answer" else "Approve"}" to let it pass as it is.'
        case (("approve" | "edit"), "written"):
            return 'The answer that you wrote would be lost. Choose "Send this answer", or remove it.'
        case "answer", "edited":
            return f"Your edits would be lost ({labels}): this button sends your own answer instead of asking the model. Undo the edits."
        case _:
            return None


def _typed(review: Review, posted: Posted) -> Typed:
    """What differs from the page as it was first shown. An absent field is untouched: browsers send every field that is there."""
    if review.kind == "elicitation":
        content, problems = ({}, {}) if review.mode == "url" else _content(review, posted)
        return Typed("untouched", {}, content, problems, ())
    answer = _answer(review, posted)
    if review.stage == "answer":
        edited = answer != (review.answer or {}).get("content")
        return Typed("edited" if edited else "untouched", {}, answer, {}, ("Answer",) if edited else ())
    found, problems = edits(review, posted) if review.bounds is not None else ({}, {})
    labels = tuple(label for name, label in _LABELS.items() if name in found or f"edits.{name}" in problems)
    if not answer.strip():
        return Typed("edited" if labels else "untouched", found, answer, problems, labels)
    return Typed("both" if labels else "written", found, answer, problems, (*labels, "Your answer"))


_LABELS: Final = {"messages": "Messages", "systemPrompt": "System prompt", "model": "Model", "maxTokens": "Max tokens", "temperature": "Temperature"}


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
