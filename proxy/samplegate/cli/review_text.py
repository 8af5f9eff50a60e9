"""Text of reviews for a terminal: the list, and one review with everything a reviewer needs.

Content of servers and models is made harmless: it cannot control the terminal, hide, or pass for a line of ours. Every
user who can read the store sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from samplegate.money import dollars
from samplegate.protocol.elicitation_schema import Field, NotFlat, read_form
from samplegate.reviews import views
from samplegate.reviews.edits import changes
from samplegate.reviews.review import EditBounds, Review, ReviewEvent, ReviewUi, expired, scrub_verdict
from samplegate.reviews.views import EVENT_MEANINGS, all_without_media, note_text, notes, span, verdict_json
from samplegate.reviews.votes import progress, version
from samplegate.secret_names import secret_fields
from samplegate.urls import shown_url

MARK: Final = "  | "
"""Prefix of each line with untrusted content."""
MAX_CHARACTERS: Final = 200_000  # characters of one text; a line tells how many were cut off
ID_WIDTH: Final = 11  # characters of an id: 8 random ones, so that a collision in a list is very unlikely
MAX_NAME_WIDTH: Final = 24
HEAD: Final = ("id", "age", "request expires", "review expires", "reviewer", "server", "kind", "request")
"""A verdict after the request has expired answers the next identical request."""
_SHOWN_PARAMS: Final = frozenset({"messages", "systemPrompt", "maxTokens", "temperature"})


def harmless(text: str) -> str:
    """Text as one line, with invisible characters (control, escape sequences, bidi, surrogates) escaped."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def short(text: str, most: int) -> str:
    """Harmless text with collapsed white space, cut to ``most`` characters."""
    text = harmless(" ".join(text[: most * 20].split()))
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str) -> Iterator[str]:
    """The lines of an untrusted text, each with MARK."""
    for line in text[:MAX_CHARACTERS].replace("\r\n", "\n").split("\n"):
        yield MARK + harmless(line)
    if len(text) > MAX_CHARACTERS:
        yield f"  [cut: {len(text) - MAX_CHARACTERS} more characters; use --json to see them]"


def as_json(value: Any) -> Iterator[str]:
    """A decoded value as indented JSON, with media replaced by their size."""
    yield from quoted(json.dumps(all_without_media(value), indent=2, ensure_ascii=False))


def content(found: Any) -> Iterator[str]:
    """Content of a message, one block or several: text as it is, other blocks as JSON."""
    for one in found if isinstance(found, list) else [found]:
        if (
            isinstance(one, dict)
            and one.get("type") == "text"
            and isinstance(one.get("text"), str)
            and one.keys() <= {"type", "text"}
        ):
            yield from quoted(one["text"])
        else:
            yield from as_json(one)


def moment(seconds: float) -> str:
    """Unix seconds as a UTC time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def current_state(review: Review, now: float) -> Review:
    """The review's state at ``now``. The gate records an expiry with a short delay."""
    return expired(review, now) or review


def table(reviews: Sequence[Review], now: float) -> Iterator[str]:
    """A table of reviews with a header."""
    rows = [HEAD, *(_row(review, now) for review in reviews)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD) - 1)]
    for row in rows:
        yield "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]))


def line(review: Review, now: float) -> str:
    """One review as a line, for `watch`."""
    id, age, _waits, *rest = _row(review, now)  # without a header, two times would confuse
    return "  ".join((id, age, *rest))


def _row(review: Review, now: float) -> tuple[str, ...]:
    left = span(review.expires - now) if review.state == "pending" else review.state
    kind = {"form": "form", "url": "URL"}.get(review.mode or "", "answer" if review.stage == "answer" else "sampling")
    names = (short(name, MAX_NAME_WIDTH) for name in (review.reviewer, review.server))
    return (
        harmless(review.id)[:ID_WIDTH],
        span(now - review.created),
        _waits(review, now),
        left,
        *names,
        kind,
        summary(review),
    )


def _waits(review: Review, now: float) -> str:
    until = review.expires if review.answers_until is None else min(review.answers_until, review.expires)
    return span(until - now) if review.state == "pending" and now < until else "-"


def summary(review: Review) -> str:
    """Summary of the request in one line."""
    tools = ", ".join(call.tool or call.method for call in review.calls)
    if review.mode == "url":
        text = f"opens {shown_url(str(review.params.get('url', ''))).host or 'a URL without a clear host'}"
    elif review.kind == "elicitation":
        text = str(review.params.get("message", ""))
    else:
        messages = review.params.get("messages")
        text = _text(
            review.answer
            if review.answer is not None
            else messages[-1]
            if isinstance(messages, list) and messages
            else {}
        )
    return short(f"{tools}: {text}" if tools else text, 60)


def _text(message: Any) -> str:
    found = message.get("content") if isinstance(message, dict) else None
    for block in found if isinstance(found, list) else [found]:
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            return text
    return "(no text)"


# -- one review in full
# ----------------------------------------------------------------------------------------------------------------------


def lines(review: Review, now: float) -> Iterator[str]:
    """A review in full, except for values of secret-looking fields. Lines with MARK are content of the server, the
    caller or a model."""
    review = scrub_verdict(review)
    yield f"review {review.id}: {review.state}"
    yield from _facts(review, now)
    for note in notes(review, now):
        yield f"  note       {note_text(note)}"
    if review.arguments is not None:
        yield "call arguments:"
        yield from as_json(review.arguments)
    yield from (
        _sampling(review) if review.kind == "sampling" else _url(review) if review.mode == "url" else _form(review)
    )
    if review.answer is not None:
        yield "the model's answer, sent to the server on approval:"
        yield from content(review.answer.get("content"))
    yield from _verdict(review)


def history(events: Iterable[ReviewEvent]) -> Iterator[str]:
    """The events of a review: when, what, by whom and through which channel."""
    yield "history:"
    for event in events:
        by = (
            f" by {harmless(event.who)} ({event.door})"
            if event.who
            else ""
            if event.door == "gate"
            else f" ({event.door})"
        )
        what = EVENT_MEANINGS.get(event.what, event.what)
        yield f"  {moment(event.at)}  {what}{by}{f': {harmless(event.detail)}' if event.detail else ''}"


def _facts(review: Review, now: float) -> Iterator[str]:
    what = (
        "the model's answer is reviewed before the server gets it"
        if review.stage == "answer"
        else "the request is reviewed before the gate acts on it"
    )
    yield f"  method     {review.method}: {what}"
    calls = " or ".join(f"{call.method} {call.tool}" if call.tool else call.method for call in review.calls)
    during = f"during {harmless(calls)}" if calls else "outside any call"
    yield f"  from       server {harmless(review.server)}, for caller {harmless(review.caller)}, {during}"
    yield f"  reviewer   {harmless(review.reviewer)} (rule {harmless(review.rule)})"
    yield f"  opened     {moment(review.created)}, {span(now - review.created)} ago"
    if review.state == "pending":
        yield f"  expires    in {span(review.expires - now)}, at {moment(review.expires)}"
        yield f"  applies to {_applies_to(review, now)}"
    if review.worst_usd is not None:
        yield f"  max cost   {dollars(review.worst_usd)}"
    if review.why:
        yield f"  warning    cannot be approved, only answered or rejected: {harmless(review.why)}"
    if review.changed:
        yield f"  changed    by the rule: {harmless(', '.join(review.changed))}"
    if review.ui is not None:
        yield f"  ui         {_ui(review.ui, review.state)}"
    yield from _votes(review)
    yield f"  digest     {harmless(version(review))}"


def _ui(ui: ReviewUi, state: str) -> str:
    """The server's own UI, which only the page shows."""
    what = f"the page at its URL {harmless(ui.url)}" if ui.url else f"it, {ui.size} bytes"
    about = {
        "ready": f"the page shows {what}, sha256:{harmless(ui.sha256)}",
        "failed": f"cannot be shown: {harmless(ui.problem)}",
        "loading": "being loaded" if state == "pending" else "not loaded",
    }
    return f"{harmless(ui.uri)} ({about[ui.state]})"


def _votes(review: Review) -> Iterator[str]:
    """The conditions of an approval, and the votes so far."""
    if review.approvals > 1:
        yield f"  approvals  {harmless(progress(review))}"
    for vote in review.votes:
        marks = [
            mark
            for mark, holds in (("void", vote.void), ("unproved name", not vote.proven), ("saw the UI", bool(vote.ui)))
            if holds
        ]
        reason = f": {harmless(vote.reason)}" if vote.reason else ""
        yield (
            f"  vote       {vote.verdict} by {harmless(vote.by)} ({', '.join([vote.how, *marks])}) at"
            f" {moment(vote.at)}{reason}"
        )
    if review.not_caller:
        yield f"  excluded   approvals by the caller, {harmless(review.caller)}"
    if review.groups:
        yield f"  groups     {harmless(', '.join(review.groups))}"
    if review.also:
        when = "" if review.also_from is None else f", from {moment(review.also_from)} on"
        yield f"  also       {harmless(', '.join(one.reviewer for one in review.also))}{when}"


def _applies_to(review: Review, now: float) -> str:
    late = (
        f"the next identical request, once, within {span(review.late)} of the decision" if review.late else "no request"
    )
    if review.answers_until is not None and now >= review.answers_until:
        return f"{late} (the original request has ended)"
    if review.waiter is None or now >= review.held_until:
        return f"{late} (no request is waiting right now)"
    until = "until the review expires" if review.answers_until is None else f"for {span(review.answers_until - now)}"
    return f"the waiting request {until}; after that, {late}"


def _sampling(review: Review) -> Iterator[str]:
    params = review.params
    if isinstance(params.get("systemPrompt"), str):
        yield "system prompt:"
        yield from quoted(params["systemPrompt"])
    messages = params.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else [], 1):
        role = "assistant" if message.get("role") == "assistant" else "user"
        yield f"message {number} of {len(messages or ())} ({role}):"
        yield from content(message.get("content"))
    rest = {
        name: value
        for name, value in params.items()
        if name not in _SHOWN_PARAMS | {each.param for each in review.unsent}
    }
    settings = [
        f"{name} {params[name]}" for name in ("maxTokens", "temperature") if isinstance(params.get(name), int | float)
    ]
    yield f"settings: {', '.join(settings) or 'none'}"
    if rest:
        yield "other params:"
        yield from as_json(rest)
    for each in review.unsent:
        yield f"the server also asked for {harmless(each.param)} ({harmless(each.effect)}):"
        yield from as_json(each.value)
    if review.bounds is not None:
        yield f"allowed edits: {'; '.join(_edits(review.bounds))}"


def _edits(bounds: EditBounds) -> Iterator[str]:
    yield "model " + " or ".join(
        f"{harmless(name)} ({f'up to {bounds.max_tokens[name]} tokens' if name in bounds.max_tokens else 'any length'})"
        for name in bounds.models
    )
    low, high = bounds.temperature_min, bounds.temperature_max
    if low is not None or high is not None:
        yield f"temperature {low or 0:g} {'or more' if high is None else f'to {high:g}'}"
    if bounds.prepended:
        yield "the system prompt must start with the text that the rule prepends"


def _url(review: Review) -> Iterator[str]:
    """R41: the whole address as text, its host separately, and no link."""
    url = str(review.params.get("url", ""))
    address = shown_url(url)
    yield "message:"
    yield from quoted(str(review.params.get("message", "")))
    yield f"host: {harmless(address.host) or 'none, or unclear because programs read this URL differently'}"
    if address.host_unicode != address.host:
        yield f"  displayed as: {harmless(address.host_unicode)}"
    for warning in address.warnings:
        yield f"  WARNING: {harmless(warning)}"
    yield "URL (reviewers must not open it):"
    yield from quoted(url)


def _form(review: Review) -> Iterator[str]:
    yield "message:"
    yield from quoted(str(review.params.get("message", "")))
    schema = review.params.get("requestedSchema")
    form = read_form(schema, review.revision)
    if isinstance(form, NotFlat):
        yield f"this form cannot be filled in ({harmless(form.why)}); use --decline or --cancel:"
        yield from as_json(schema)
        return
    yield "fields:" if form.fields else "no fields: the server only asks for consent"
    secret = secret_fields(schema)
    for field in form.fields:
        yield from _field(field, field.name in secret)


def _field(field: Field, secret: bool) -> Iterator[str]:
    marks = f"{', required' if field.required else ''}{', looks like a secret' if secret else ''}"
    yield f"{MARK}{harmless(field.name)} ({views.kind(field.schema)}{marks})"
    for name in ("title", "description"):
        if isinstance(field.schema.get(name), str):
            yield f"{MARK}    {name}: {harmless(field.schema[name])}"
    for line in views.lines(field.schema, secret=secret):
        yield f"{MARK}    {harmless(line)}"


def _verdict(review: Review) -> Iterator[str]:
    if review.decided is None:
        return
    by = f" by {harmless(review.who)}" if review.who else ""
    yield f"{review.state}{by} at {moment(review.decided)} ({review.door})"
    if review.verdict is None:
        return
    for change in changes(review, review.verdict.edits):
        yield f"  edited {harmless(change.path)}, new value:"
        yield from as_json(change.after)
    told = {
        name: value for name, value in verdict_json(review.verdict, review).items() if name not in ("verdict", "edits")
    }
    if told:
        yield from as_json(told)
    if review.ui is not None:
        shown = f"was shown (sha256:{harmless(review.verdict.ui)})" if review.verdict.ui else "was not shown"
        yield f"the server's UI {shown}"
    if review.used is not None:
        yield f"used at {moment(review.used)}"
