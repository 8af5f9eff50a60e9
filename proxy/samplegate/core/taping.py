"""From a request and what was really answered to a case of a script, as YAML, so that the next run needs nobody. Not
the file: ``records/tape.py``.

A case holds what was answered, of what was asked only the fingerprint and, as a comment, the first characters. A form
in which a person filled in a field that looks like a secret has no case: no machine fills that in again (R39).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from samplegate.policy.conditions import listed
from samplegate.policy.prompt import Failure
from samplegate.policy.script import BLOCKS, fingerprint, parse
from samplegate.secret_names import looks_secret, secret_fields
from samplegate.yamlfile.tree import PolicyError

HEADER: Final = "cases:\n"
EXCERPT: Final = 60

# What YAML takes only as an escape, and halves of characters, which it does not take at all.
_unseen: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]")
_halves: Final = re.compile("[\ud800-\udfff]")
_harmful: Final = re.compile(r"[^\w .,;:?!()/-]+")


class Taped(msgspec.Struct, frozen=True):
    """A case, as it is written."""

    fingerprint: str
    text: str


def answered(
    params: Mapping[str, Any], result: Any, *, input_tokens: int | None = None, output_tokens: int | None = None
) -> Taped | None:
    """The case for a result as it was released (decoded); None where a script can say no such thing."""
    if not isinstance(result, Mapping):
        return None
    if "action" in result:
        return _taped(params, _form(params, result))
    blocks = [_block(block) for block in listed(result.get("content"))]
    said = {"content": blocks, "model": result.get("model"), "stop_reason": result.get("stopReason")}
    return _taped(params, {**said, "input_tokens": input_tokens, "output_tokens": output_tokens})


def failed(
    params: Mapping[str, Any], failure: str, *, input_tokens: int | None = None, output_tokens: int | None = None
) -> Taped | None:
    """The case for a model that failed; None where the failure is none of a model's."""
    if failure not in get_args(Failure):
        return None
    return _taped(params, {"fail": failure, "input_tokens": input_tokens, "output_tokens": output_tokens})


def _form(params: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """What a form was answered, empty where no machine may answer it so: an accepted url (R41), a secret filled in."""
    action, values = result.get("action"), result.get("content") or {}
    if action != "accept":
        return {"action": action}
    if params.get("mode") == "url" or not isinstance(values, Mapping):
        return {}
    secret = secret_fields(params.get("requestedSchema"))
    if any((name in secret or looks_secret(name)) and not isinstance(value, bool) for name, value in values.items()):
        return {}
    return {"action": action, "values": dict(values)}


def _block(block: Any) -> Any:
    """A content block without what a script does not say: annotations, ``_meta``."""
    if not isinstance(block, Mapping):
        return block
    known = {"type", *BLOCKS.get(str(block.get("type")), ())}
    return {name: value for name, value in block.items() if name in known}


def _taped(params: Mapping[str, Any], case: Mapping[str, Any]) -> Taped | None:
    """The case as text, once it is sure that it reads as what it is."""
    key = fingerprint(params)
    lines = [
        f"- fingerprint: {_yaml(key)}",
        *(f"  {name}: {_yaml(value)}" for name, value in case.items() if value is not None),
    ]
    text = f"# {_excerpt(params)}\n" + "\n".join(lines) + "\n"
    try:
        parse(HEADER + text, file="")
    except PolicyError:
        return None
    return Taped(key, text)


def _yaml(value: Any) -> str:
    """JSON, which is YAML too but for some characters."""
    text = json.dumps(value, ensure_ascii=False)
    return _unseen.sub(lambda found: f"\\u{ord(found[0]):04x}", _halves.sub("\ufffd", text))


def _excerpt(params: Mapping[str, Any]) -> str:
    """The first harmless characters of the newest text, for whoever looks for a case in the file."""
    text = next((text for text in _texts(params) if text.strip()), "")
    return " ".join(_harmful.sub(" ", text[: 4 * EXCERPT]).split())[:EXCERPT].strip()


def _texts(params: Mapping[str, Any]) -> Iterator[str]:
    message = params.get("message")
    if isinstance(message, str):
        yield message
    for one in reversed(listed(params.get("messages"))):
        for block in listed(one.get("content") if isinstance(one, Mapping) else None):
            if isinstance(block, Mapping) and isinstance(block.get("text"), str):
                yield block["text"]
