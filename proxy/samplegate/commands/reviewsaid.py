"""What somebody typed -> a verdict in the one form that all doors share. Values get the types that the form asks for; whether they fit is not judged.

`core.review.verdicts` judges it: what cannot be read as its type stays the text that it is, and is refused there at its field.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from samplegate.commands.files import Unreadable, read
from samplegate.core.matching.conditions import shown
from samplegate.core.matching.forms import Field, NotFlat, read_form
from samplegate.core.parsing.strictjson import Fault, decode
from samplegate.core.review.fieldwords import choices
from samplegate.core.review.review import Review
from samplegate.core.review.verdicts import MAX_DEPTH, MOST_BYTES

_whole: Final = re.compile(r"[+-]?[0-9]{1,18}\Z", re.ASCII)
_words: Final = {"true": True, "yes": True, "false": False, "no": False}


def approval(args: argparse.Namespace) -> dict[str, Any]:
    """Of `approve`. Raises Unreadable."""
    edits = {
        "model": args.model,
        "maxTokens": args.max_tokens,
        "temperature": args.temperature,
        "systemPrompt": args.system_prompt,
        "messages": None if args.messages is None else _json_of("--messages", args.messages),
    }
    given = {name: value for name, value in edits.items() if value is not None}
    return {"verdict": "approve", **({"edits": given} if given else {})}


def rejection(args: argparse.Namespace) -> dict[str, Any]:
    """Of `reject`."""
    return {"verdict": "reject", "reason": args.reason, **({"tell_server": True} if args.tell_server else {})}


def answer(args: argparse.Namespace, review: Review) -> dict[str, Any]:
    """Of `answer`. Raises Unreadable."""
    if args.decline or args.cancel:
        return {"verdict": "answer", "action": "decline" if args.decline else "cancel"}
    content = _content(args, review)
    if review.kind == "sampling":
        return {"verdict": "answer", "content": content}
    return {"verdict": "answer", "action": "accept", **({} if content is None else {"content": content})}


def _content(args: argparse.Namespace, review: Review) -> Any:
    if args.text is not None:
        return args.text
    if args.json is not None:
        return _json_of("--json", args.json)
    if review.kind == "sampling":
        raise Unreadable("--accept: is for elicitations; answer sampling with --text or --json")
    return None if review.mode == "url" and not args.accept else fields(args.accept, review)


def fields(pairs: Sequence[str], review: Review) -> dict[str, Any]:
    """``name=value`` in the types of the form; a list is ``name=a,b``, or the name again. Raises Unreadable."""
    form = read_form(review.params.get("requestedSchema"), review.revision)
    known: Mapping[str, Field] = {} if isinstance(form, NotFlat) else {field.name: field for field in form.fields}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise Unreadable(f"--accept: {shown(pair)} is no name=value")
        field = known.get(name)
        if field is not None and field.type == "multi_enum":
            found.setdefault(name, []).extend(listed(text, field))
        elif name in found:
            raise Unreadable(f"--accept: {shown(name)} is given twice")
        else:
            found[name] = typed(text, "string" if field is None else field.type)
    return found


def listed(text: str, field: Field) -> list[str]:
    """The values of a list: between commas, but for a choice that has commas in it."""
    values = {value for value, _ in choices(field.schema)}
    if not text or text in values:
        return [text] if text else []
    return [part if part in values else part.strip() for part in text.split(",")]


def typed(text: str, kind: str) -> Any:
    """The value that a text says, as a field of that type takes it; the text where it says none."""
    if kind == "boolean":
        return _words.get(text.lower(), text)
    if kind in ("integer", "number") and _whole.match(text):
        return int(text)
    if kind in ("integer", "number"):
        try:
            number = float(text)
        except ValueError:
            return text
        return number if math.isfinite(number) else text
    return text


def _json_of(option: str, name: str) -> Any:
    """The JSON in a file or on stdin. Raises Unreadable."""
    text = sys.stdin.buffer.read(MOST_BYTES + 1) if name == "-" else read(Path(name)).encode()
    try:
        return decode(text, max_bytes=MOST_BYTES, max_depth=MAX_DEPTH)
    except (Fault, json.JSONDecodeError) as fault:
        raise Unreadable(f"{option}: {'stdin' if name == '-' else name}: {fault}") from None
