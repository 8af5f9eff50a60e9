"""Forms on the page of a review: their fields, the input as a verdict, and problems beside the fields.

Inputs have names of ours (``f.0``), because a peer's names would control autofill. Fields that look like secrets are
never prefilled (R39).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from samplegate.protocol.elicitation_schema import MISSING, Field, Form, NotFlat, read_form
from samplegate.protocol.requests import Kind
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.reviews.edits import apply
from samplegate.reviews.review import Edits, Review
from samplegate.reviews.views import constraint
from samplegate.reviews.web.context import Posted, first_value, kept, same, unbroken
from samplegate.secret_names import secret_fields

MAX_FIELDS: Final = 200
MAX_OPTIONS: Final = 3_000  # of all fields: beyond, the reviewer writes the form as JSON
MAX_RADIOS: Final = 6
MAX_LABEL: Final = 300
MAX_TITLE: Final = 150  # of an option that has another value, which its label shows, too
MAX_DESCRIPTION: Final = 4_000
LONG: Final = 200  # characters up to which a text has a one-line input

Draws: TypeAlias = Literal["line", "lines", "number", "date", "email", "url", "radios", "select", "checkboxes"]
NONE: Final = "none"
"""The value of the option for no answer."""


class Option(msgspec.Struct, frozen=True):
    """One option; ``value`` is its number, because a peer's values may be any text."""

    value: str
    label: str
    chosen: bool


class FormEntry(msgspec.Struct, frozen=True):
    """One field of a form."""

    name: str
    """The name of the HTML input."""
    key: str
    """The peer's name of the field."""
    label: str
    description: str
    draws: Draws
    required: bool
    hints: tuple[str, ...]
    secret: bool
    value: str = ""
    options: tuple[Option, ...] = ()
    problem: str = ""


def drawable(form: Form) -> bool:
    """Whether the form is small enough for HTML inputs."""
    return len(form.fields) <= MAX_FIELDS and sum(len(choices(field)) for field in form.fields) <= MAX_OPTIONS


def entries(form: Form, posted: Posted | None, problems: Mapping[str, str]) -> tuple[FormEntry, ...]:
    """Every field with its default or the posted input. ``problems`` are by the peer's names."""
    secrets = secret_fields(form.schema)
    return tuple(
        _entry(n, field, field.name in secrets, posted, problems.get(field.name, ""))
        for n, field in enumerate(form.fields)
    )


def _entry(n: int, field: Field, secret: bool, posted: Posted | None, problem: str) -> FormEntry:
    name, draws = f"f.{n}", _draws(field)
    default = None if secret or field.default is MISSING else field.default
    value = _initial(default) if posted is None else first_value(posted, name) or ""
    if draws == "line" and "\n" in value:
        draws = "lines"  # a one-line input would drop the line ends
    chosen = _selected(field, default) if posted is None else set(posted.get(name, ()))
    chooses = draws in ("radios", "select", "checkboxes")
    description = field.schema.get("description")
    return FormEntry(
        name, field.name, (field.title or field.name)[:MAX_LABEL],
        description[:MAX_DESCRIPTION] if isinstance(description, str) else "",
        draws, field.required, tuple(_hints(field)), secret, "" if chooses else value,
        tuple(_options(field, draws, chosen)) if chooses else (), problem,
    )  # fmt: skip


def choices(field: Field) -> list[tuple[str, str]]:
    """The values of an enum with their labels."""
    source = (
        field.schema.get("items", {}) if field.type == "multi_enum" else field.schema if field.type == "enum" else {}
    )
    for name in ("oneOf", "anyOf"):
        if name in source:
            return [(each["const"], str(each.get("title", each["const"]))) for each in source[name]]
    values = source.get("enum", [])
    names = source.get("enumNames")
    if isinstance(names, list) and len(names) == len(values) and all(isinstance(name, str) for name in names):
        return list(zip(values, names, strict=True))
    return [(value, value) for value in values]


def _draws(field: Field) -> Draws:
    match field.type:
        case "boolean":
            return "radios"
        case "enum":
            return "radios" if len(choices(field)) <= MAX_RADIOS else "select"
        case "multi_enum":
            return "checkboxes"
        case "number" | "integer":
            return "number"
        case _:
            return _text_draws(field)


def _text_draws(field: Field) -> Draws:
    formats: dict[Any, Draws] = {"date": "date", "email": "email", "uri": "url"}
    if (found := formats.get(field.schema.get("format"))) is not None:
        return found
    return (
        "lines"
        if field.schema.get("maxLength", 0) > LONG or (isinstance(field.default, str) and "\n" in field.default)
        else "line"
    )


def _options(field: Field, draws: Draws, chosen: set[str]) -> Iterator[Option]:
    if draws == "select" or (draws == "radios" and not field.required):
        yield Option(NONE, "Choose one" if field.required else "No answer", not chosen or NONE in chosen)
    if field.type == "boolean":
        yield from (Option(value, label, value in chosen) for value, label in (("true", "Yes"), ("false", "No")))
        return
    for n, (value, title) in enumerate(choices(field)):
        short = title if len(title) <= MAX_TITLE else f"{title[:MAX_TITLE]}..."
        label = title if title == value else f"{short} ({value})"
        yield Option(str(n), label[:MAX_LABEL], str(n) in chosen)


def _selected(field: Field, default: Any) -> set[str]:
    if field.type == "boolean":
        return {json.dumps(default)} if isinstance(default, bool) else set()
    defaults = {each for each in (default if isinstance(default, list) else [default]) if isinstance(each, str)}
    return {str(n) for n, (value, _) in enumerate(choices(field)) if value in defaults}


def _initial(default: Any) -> str:
    return (
        default
        if isinstance(default, str)
        else ""
        if default is None or isinstance(default, bool | list | dict)
        else json.dumps(default)
    )


def _hints(field: Field) -> Iterator[str]:
    """The schema's constraints in words."""
    schema = field.schema
    if field.type in ("integer", "number"):
        yield "a whole number" if field.type == "integer" else "a number"
    formats = {
        "email": "an email address",
        "uri": "an absolute URL, such as https://example.com/",
        "date": "a date, such as 2026-11-22",
    }
    formats["date-time"] = "a date and time with a time zone, such as 2026-11-22T10:03:00Z or 2026-11-22T11:03:00+01:00"
    if field.type == "string" and (words := formats.get(str(schema.get("format")))):
        yield words
    for name in _CONSTRAINTS:
        if name in schema:
            yield constraint(name, json.dumps(schema[name]))
    if field.type == "string" and schema.get("pattern"):
        yield f"matches the pattern {str(schema['pattern'])[:MAX_LABEL]}"


_CONSTRAINTS: Final = (
    "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems",
)  # fmt: skip

_to_number: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?\Z")
MAX_INTEGER: Final = 2**63 - 1


class Unfilled:
    """No input: the field is left out."""


UNFILLED: Final = Unfilled()


def content(form: Form, posted: Posted) -> tuple[dict[str, Any], dict[str, str]]:
    """The values and the problems, both by the peer's names. Empty fields are left out, never filled with defaults."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for n, field in enumerate(form.fields):
        value = _value(field, posted, f"f.{n}")
        if isinstance(value, FormProblem):
            problems[field.name] = str(value)
        elif value is not UNFILLED:
            values[field.name] = value
        elif field.required:
            problems[field.name] = "is required"
    return values, problems


class FormProblem(str):
    """A problem with an input, as a text."""

    __slots__ = ()


def _value(field: Field, posted: Posted, name: str) -> Any:
    if field.type == "multi_enum":
        return _picked(field, posted.get(name, ()))
    typed = first_value(posted, name)
    if not typed or (typed == NONE and field.type in ("boolean", "enum")):
        return UNFILLED
    match field.type:
        case "boolean":
            return {"true": True, "false": False}.get(typed, FormProblem("must be yes or no"))
        case "enum":
            values = dict(_numbered(field))
            return values.get(typed, FormProblem("must be one of the choices"))
        case "number" | "integer":
            return number(typed, whole=field.type == "integer")
        case _:
            return kept(field.default, typed) if isinstance(field.default, str) else kept("", typed)


def _numbered(field: Field) -> list[tuple[str, str]]:
    return [(str(n), value) for n, (value, _) in enumerate(choices(field))]


def _picked(field: Field, numbers: Any) -> Any:
    """The selected values in the enum's order.

    No selection is no answer, or the empty list if the field is required and may be empty.
    """
    values = dict(_numbered(field))
    if not set(numbers) <= values.keys():
        return FormProblem("must be among the choices")
    picked = [value for number, value in values.items() if number in numbers]
    return picked if picked or (field.required and not field.schema.get("minItems")) else UNFILLED


def number(typed: str, *, whole: bool) -> Any:
    """The input as a number, or the problem with it."""
    text = typed.strip().replace("\u2212", "-")
    found = _to_number.match(text)
    if found is None or (whole and (found[1] or found[2])):
        return FormProblem(
            "must be a whole number" if whole else "must be a number, with a decimal point for fractions"
        )
    value: int | float = json.loads(text)
    too_large = math.isinf(value) if isinstance(value, float) else abs(value) > MAX_INTEGER
    return FormProblem("is too large") if too_large else value


def as_json(posted: Posted) -> Mapping[str, Any] | str:
    """A form's content that was written as JSON because the form is too large for inputs; or the problem with it."""
    try:
        value = decode((first_value(posted, "content") or "").encode("utf-8", "replace"), max_bytes=1 << 20)
    except JsonFault as fault:
        return f"is not JSON: {fault}"
    return value if isinstance(value, dict) else "must be an object with the form's fields"


_NAMES: Final = {
    "edits.systemPrompt": ("edit.system", "System prompt"),
    "edits.model": ("edit.model", "Model"),
    "edits.maxTokens": ("edit.max_tokens", "Max tokens"),
    "edits.temperature": ("edit.temperature", "Temperature"),
    "reason": ("reason", "Reason"),
    "tell_server": ("reason", "Reason"),
    "digest": ("", "Digest"),
    "action": ("", "Answer"),
    "edits": ("", "Edits"),
}
_message: Final = re.compile(r"edits\.messages\.(\d+)(?:\.content)?(?:\.(\d+))?")
_part: Final = re.compile(r"content(?:\.(\d+))?(?:\.|\Z)")


class ErrorSummaryLine(msgspec.Struct, frozen=True):
    """One line of the error summary."""

    anchor: str
    """The ID of the field; "" if there is none."""
    label: str
    what: str


def summary(problems: Mapping[str, str], kind: Kind, entries: Sequence[FormEntry]) -> tuple[ErrorSummaryLine, ...]:
    """All problems, in the order in which they were found."""
    by_key = {f"content.{entry.key}": entry for entry in entries}
    return tuple(_summary_line(path, what, kind, by_key) for path, what in problems.items())


def _summary_line(path: str, what: str, kind: Kind, by_key: Mapping[str, FormEntry]) -> ErrorSummaryLine:
    if (entry := by_key.get(path)) is not None:
        return ErrorSummaryLine(entry.name, entry.label, what)
    label = (
        _NAMES[path][1]
        if path in _NAMES
        else path.removeprefix("content.")
        if path.startswith("content") and kind == "elicitation"
        else ""
    )
    return ErrorSummaryLine(field_of(path, kind), label, what)


def problems_by_field(problems: Mapping[str, str], kind: Kind) -> dict[str, str]:
    """The problems by the ID of their field; several of one field are joined."""
    found: dict[str, str] = {}
    for path, what in problems.items():
        name = field_of(path, kind)
        found[name] = f"{found[name]}; {what}" if name in found else what
    return found


def field_of(path: str, kind: Kind) -> str:
    """The ID of the field that a problem belongs to; "" if there is none."""
    if path in _NAMES:
        return _NAMES[path][0]
    if found := _message.match(path):
        return f"edit.text.{found[1]}.{found[2] or 0}"
    if (found := _part.match(path)) is None:
        return ""
    return "content" if kind == "elicitation" else f"answer.{found[1] or 0}"


# characters of one form: URL-encoded they have up to twelve bytes each, and the listener accepts 4 MiB
MAX_EDITED: Final = 150_000
MAX_EDITORS: Final = 200


class Editor(msgspec.Struct, frozen=True):
    """An editable text."""

    name: str
    label: str
    text: str


def editors(review: Review) -> tuple[Editor, ...]:
    """The editable texts of the messages, as far as they fit into a form."""
    if review.bounds is None:
        return ()
    found = [
        Editor(f"edit.text.{m}.{b}", f"Message {m + 1}{f', part {b + 1}' if b else ''} ({message.get('role')})", text)
        for m, message in enumerate(review.params.get("messages", ()))
        for b, text in texts(message.get("content"))
    ]
    return _fitting(found)


def answers(review: Review) -> tuple[Editor, ...]:
    """The editable texts of a model's answer, or an empty one for the reviewer's own answer."""
    if review.answer is None:
        return (Editor("answer.0", "Your answer", ""),)
    found = list(texts(review.answer.get("content")))
    return _fitting([Editor(f"answer.{b}", f"Part {b + 1}" if len(found) > 1 else "Answer", text) for b, text in found])


def _fitting(found: list[Editor]) -> tuple[Editor, ...]:
    kept: list[Editor] = []
    left = MAX_EDITED
    for editor in found[:MAX_EDITORS]:
        left -= len(editor.text)
        if left >= 0:
            kept.append(editor)
    return tuple(kept)


PREVIEW: Final = "preview"


def prefilled(review: Review) -> Posted | None:
    """The decision form filled in with what the approvals so far are for, as far as its inputs can show it; None if
    that is the request as it is. Secrets are left out (R39)."""
    proposal = review.proposal
    if proposal is None:
        return None
    result = proposal.result or {}
    if review.kind == "elicitation":
        return filled_form(review, result.get("content"))
    if review.answer is not None:
        return {f"answer.{b}": [text] for b, text in texts(result.get("content", review.answer.get("content")))}
    params = apply(review.params, proposal.edits or Edits())
    model = None if proposal.edits is None else proposal.edits.model
    values: dict[str, Any] = {
        "edit.system": params.get("systemPrompt"),
        "edit.model": model or (review.bounds.models[0] if review.bounds and review.bounds.models else None),
        "edit.max_tokens": params.get("maxTokens"),
        "edit.temperature": params.get("temperature"),
    }
    for m, message in enumerate(params.get("messages", ())):
        values |= {f"edit.text.{m}.{b}": text for b, text in texts(message.get("content"))}
    values["answer.0"] = next((text for _, text in texts(result.get("content"))), "")
    return {name: [_initial(value)] for name, value in values.items()}


def filled_form(review: Review, content: Any) -> Posted:
    """The inputs of a form with these values, as far as they can show them. Secrets are left out (R39)."""
    form = read_form(review.params.get("requestedSchema"), review.revision)
    if isinstance(form, NotFlat) or not isinstance(content, dict):
        return {}
    secrets = secret_fields(form.schema)
    shown = {name: value for name, value in content.items() if name not in secrets}
    if not drawable(form):
        return {"content": [json.dumps(shown, indent=2, ensure_ascii=False)]}
    found: dict[str, list[str]] = {}
    for n, field in enumerate(form.fields):
        if field.name in shown:
            value = shown[field.name]
            chooses = field.type in ("boolean", "enum", "multi_enum")
            found[f"f.{n}"] = sorted(_selected(field, value), key=len) if chooses else [_initial(value)]
    return found


Touched: TypeAlias = Literal["untouched", "edited", "written", "both"]
"""The reviewer's input in the decision form.

``edited``: the request or the model's answer; ``written``: an answer of their own; ``both``: edits and an own answer.
"""


class TypedForm(msgspec.Struct, frozen=True):
    """The input of the decision form, independent of the button."""

    touched: Touched
    edits: dict[str, Any]
    """The changed params of a sampling request."""
    answer: Any
    """The reviewer's answer: a text, a model's answer as edited, or the values of a form."""
    problems: dict[str, str]
    labels: tuple[str, ...]
    """The labels of the changed fields."""


class PostedForm(msgspec.Struct, frozen=True):
    """The reviewer's input as a verdict, with its problems."""

    verdict: dict[str, Any]
    problems: dict[str, str]
    """Problems that keep the input from becoming a verdict, by the paths of ``review.FieldProblem``."""
    preview: bool
    """True: decide nothing, and show the result of the decision."""
    typed: TypedForm


def parse_form(review: Review, posted: Posted) -> PostedForm:
    """The verdict of the decision form; ``do`` is the button.

    A page has one decision form, so every button submits all inputs. A button that would drop some of them is refused
    (``_dropped_input``). Only a refusal (reject, decline, cancel) may drop them, because it releases nothing.
    """
    do = first_value(posted, "do") or ""
    found = _read_typed(review, posted)
    verdict: dict[str, Any] = {"digest": first_value(posted, "digest") or ""}
    if reason := unbroken(first_value(posted, "reason") or "").strip():
        verdict["reason"] = reason
    word = do if do != PREVIEW else _button_for(review, found.touched)
    chosen = _verdict_of(word, review, found)
    verdict |= chosen or {}
    problems = dict(found.problems) if "edits" in verdict or "content" in verdict else {}
    if review.kind == "sampling" and do != PREVIEW and first_value(posted, "tell_server") == "yes":
        verdict["tell_server"] = True
    if chosen is None:
        problems[""] = "This button is not on the page."
    elif (dropped := _dropped_input(do, review, found)) is not None:
        problems = {"": dropped} | problems
    return PostedForm(verdict, problems, do == PREVIEW, found)


def _verdict_of(word: str, review: Review, found: TypedForm) -> dict[str, Any] | None:
    """The verdict of a button, with the inputs that belong to it. None: unknown button."""
    match word:
        case "edit" if review.stage == "answer" and found.touched == "edited":
            return {"verdict": "answer", "content": found.answer}
        case "edit" if found.touched in ("edited", "both"):
            return {"verdict": "approve", "edits": found.edits}
        case "approve" | "edit":
            return {"verdict": "approve"} | ({} if review.proposal is None else {"edits": {}})
        case "confirm" if review.proposal is not None:
            return {"verdict": "approve"}
        case "answer" if review.kind == "sampling" and review.stage == "request":
            return {"verdict": "answer", "content": found.answer}
        case "accept":
            return {"verdict": "answer", "action": "accept"} | (
                {} if review.mode == "url" else {"content": found.answer}
            )
        case "decline" | "cancel":
            return {"verdict": "answer", "action": word}
        case "reject":
            return {"verdict": "reject"}
        case _:
            return None


def _button_for(review: Review, touched: Touched) -> str:
    """The button that matches the input."""
    if review.kind == "elicitation":
        return "accept"
    return "answer" if touched == "written" else "edit"


def _dropped_input(do: str, review: Review, found: TypedForm) -> str | None:
    """Why this button would drop an input or has nothing to send; None if it fits the input."""
    labels = ", ".join(found.labels)
    if do == "confirm":
        before = prefilled(review)
        same_input = before is None or replace(found, problems={}) == replace(_read_typed(review, before), problems={})
        return None if same_input else "Your changes would be lost. Undo them, or approve your own version."
    match do, found.touched:
        case (("approve" | "edit" | "answer" | "preview"), "both"):
            return (
                f"You edited the request and also wrote an answer ({labels}). Only one of them can be used: undo the"
                " other."
            )
        case "approve", "edited":
            edit = "Release with edits" if review.stage == "answer" else "Approve with edits"
            return f'Your edits would be lost ({labels}). Choose "{edit}", or undo the edits.'
        case "edit", "untouched":
            button = "Release" if review.stage == "answer" else "Approve"
            return f'Nothing was edited. Choose "{button}" to send it unchanged.'
        case (("approve" | "edit"), "written"):
            return 'The answer that you wrote would be lost. Choose "Send this answer", or remove it.'
        case "answer", "edited":
            return (
                f"Your edits would be lost ({labels}): this button sends your own answer instead of calling the model."
                " Undo the edits."
            )
        case _:
            return None


def _read_typed(review: Review, posted: Posted) -> TypedForm:
    """The changes from the page as it was first shown.

    An absent field counts as unchanged, because browsers submit every field of a form.
    """
    if review.kind == "elicitation":
        content, problems = ({}, {}) if review.mode == "url" else _content(review, posted)
        return TypedForm("untouched", {}, content, problems, ())
    answer = _answer(review, posted)
    if review.stage == "answer":
        edited = answer != (review.answer or {}).get("content")
        return TypedForm("edited" if edited else "untouched", {}, answer, {}, ("Answer",) if edited else ())
    found, problems = edits(review, posted) if review.bounds is not None else ({}, {})
    labels = tuple(label for name, label in _LABELS.items() if name in found or f"edits.{name}" in problems)
    if not answer.strip():
        return TypedForm("edited" if labels else "untouched", found, answer, problems, labels)
    return TypedForm("both" if labels else "written", found, answer, problems, (*labels, "Your answer"))


_LABELS: Final = {
    "messages": "Messages",
    "systemPrompt": "System prompt",
    "model": "Model",
    "maxTokens": "Max tokens",
    "temperature": "Temperature",
}


def edits(review: Review, posted: Posted) -> tuple[dict[str, Any], dict[str, str]]:
    """The changed params of a sampling request, and the problems; unchanged fields are left out."""
    params, found, problems = review.params, dict[str, Any](), dict[str, str]()
    prompt = first_value(posted, "edit.system")
    if prompt is not None and not same(params.get("systemPrompt") or "", prompt):
        found["systemPrompt"] = unbroken(prompt)
    model = first_value(posted, "edit.model")
    if model and review.bounds is not None and model != next(iter(review.bounds.models), None):
        found["model"] = model
    for name, field, whole in (("maxTokens", "edit.max_tokens", True), ("temperature", "edit.temperature", False)):
        value = _number(params.get(name), first_value(posted, field), whole=whole)
        if isinstance(value, FormProblem):
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
    return number(typed, whole=whole) if typed.strip() else FormProblem("cannot be removed, only changed")


def _messages(params: Mapping[str, Any], posted: Posted) -> Iterator[Any]:
    for m, message in enumerate(params.get("messages", ())):
        content = _texts(message.get("content"), posted, f"edit.text.{m}")
        yield message if content == message.get("content") else {**message, "content": content}


def _texts(content: Any, posted: Posted, place: str) -> Any:
    """The content with the submitted texts; other blocks are unchanged."""
    if isinstance(content, list | tuple):
        return [_text(block, first_value(posted, f"{place}.{b}")) for b, block in enumerate(content)]
    return _text(content, first_value(posted, f"{place}.0"))


def _text(block: Any, typed: str | None) -> Any:
    if typed is None or not isinstance(block, Mapping) or block.get("type") != "text":
        return block
    return {**block, "text": kept(str(block.get("text", "")), typed)}


def texts(content: Any) -> Iterator[tuple[int, str]]:
    """The editable texts of a content, with their positions."""
    for b, block in enumerate(content if isinstance(content, list | tuple) else [content]):
        if isinstance(block, Mapping) and block.get("type") == "text":
            yield b, str(block.get("text", ""))


def _answer(review: Review, posted: Posted) -> Any:
    """The reviewer's own text, or the model's answer with its texts edited."""
    if review.answer is None:
        return unbroken(first_value(posted, "answer.0") or "")
    return _texts(review.answer.get("content"), posted, "answer")


def _content(review: Review, posted: Posted) -> tuple[Any, dict[str, str]]:
    form = read_form(review.params.get("requestedSchema"), review.revision)
    if isinstance(form, NotFlat):
        return {}, {"content": f"cannot be filled in here: {form.why}"}
    if not drawable(form):
        written = as_json(posted)
        return ({}, {"content": written}) if isinstance(written, str) else (written, {})
    values, problems = content(form, posted)
    return values, {f"content.{name}": what for name, what in problems.items()}
