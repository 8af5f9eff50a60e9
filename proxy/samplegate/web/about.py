"""What a review is about in one short line, for who looks through a list. The words are a peer's: they are escaped where they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from samplegate.core.review.review import Review
from samplegate.urls import shown_url
from samplegate.web.forms import texts

LENGTH: Final = 120  # characters
_LOOKED_AT: Final = 20 * LENGTH
_CUT: Final = " ..."
_BLANKS: Final = " \t\r\n\f\v"
_blank: Final = re.compile(f"[{_BLANKS}]+")


class About(NamedTuple):
    """``words`` is "" where there are none."""

    label: str
    words: str


def about(review: Review) -> About:
    """What a person would look at first. Never raises: what is of no known shape has no words."""
    if review.stage == "answer":
        return About("answer", first_words(next(_texts(review.answer or {}), "")))
    if review.kind == "sampling":
        return About("last user text", first_words(_last(review.params)))
    if review.mode == "url":
        return About("host", _host(str(review.params.get("url", ""))))
    return About("message", first_words(str(review.params.get("message", ""))))


def first_words(text: str) -> str:
    """The beginning of a text as one line. Only plain blanks and line ends are joined: what else is not seen is written out where it is shown."""
    text = text.lstrip(_BLANKS)
    line = _blank.sub(" ", text[:_LOOKED_AT]).rstrip(" ")
    if len(line) <= LENGTH and len(text) <= _LOOKED_AT:
        return line
    return line[: LENGTH - len(_CUT)].rstrip(" ") + _CUT


def _last(params: Mapping[str, Any]) -> str:
    """The last text of the user that says something."""
    messages = params.get("messages")
    for message in reversed(messages if isinstance(messages, list | tuple) else ()):
        if isinstance(message, Mapping) and message.get("role") == "user":
            for text in reversed(list(_texts(message))):
                if text.strip(_BLANKS):
                    return text
    return ""


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    return (text for _, text in texts(message.get("content")))


def _host(url: str) -> str:
    """As the network sees it, and in its letters; a host that readers disagree on is none."""
    address = shown_url(url)
    if address.host:
        return address.host if address.host_unicode == address.host else f"{address.host} ({address.host_unicode})"
    return "none that all programs read alike" if "//" in url else "none"
