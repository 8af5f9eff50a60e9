"""A review as a Slack message (Block Kit): who asks what during what, and a button that leads to the page. Pure; one URL in it, which is ours.

What a server wrote is text and nothing else: escaped, in plain text or preformatted, never a link, a mention or markup (T29). The address of a URL
elicitation is never in it, since chats fetch what they show (T12): its host stands apart, and the page has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from samplegate.core.review.asks import asks
from samplegate.core.review.chattext import line, preformatted

MOST_BLOCKS: Final = 50  # Slack's limits, here and below
HEADER: Final = 150
FIELD: Final = 2_000
TEXT: Final = 3_000
LINK: Final = 3_000
ALTOGETHER: Final = 12_000
"""Characters of what is asked: our bound, for a message that somebody still reads. The page has the whole."""
_SHORT: Final = 100  # of a name, so that the title's end is seen too
_TITLES: Final = {"sampling": "asks a model", "form": "asks for a form to be filled in", "url": "asks for an address to be opened"}


def message(event: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an incoming webhook. ``told``: of ``telling.told``."""
    text, blocks = _opened(told) if event == "review.opened" else _news(told)
    return {"text": text, "mrkdwn": False, "blocks": blocks[:MOST_BLOCKS], "unfurl_links": False, "unfurl_media": False}


def _opened(told: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    title = title_of(told)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(title, HEADER)},
        {"type": "section", "fields": [_plain(f"{name}: {value}", FIELD) for name, value in _facts(told)]},
        *_asked(told),
        *({"type": "section", "text": _plain(note, TEXT)} for note in told["notes"]),
        {"type": "context", "elements": [{"type": "mrkdwn", "text": _until(told), "verbatim": True}, _plain(told["id"], _SHORT)]},
        *_button(told),
    ]
    return line(title, TEXT), blocks


def _news(told: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """That nothing is to be done any more, in a line."""
    who = f" by {_short(told['who'])}" if told["who"] else ""
    door = f" ({told['door']})" if told["door"] not in (None, "gate") else ""
    what = f"{told['id']} for {_short(told['server'])}: {told['state']}{who}{door}"
    return line(what, TEXT), [{"type": "section", "text": _plain(what, TEXT)}, *_button(told)]


def title_of(told: Mapping[str, Any]) -> str:
    """What is to be decided, and for which server."""
    if told["stage"] == "answer":
        return f"{_short(told['server'])} is to be sent a model's answer"
    return f"{_short(told['server'])} {_TITLES[told['mode'] or 'sampling']}"


def _facts(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """At most ten fields stand in a section."""
    yield "Server", _short(told["server"])
    yield "Caller", _short(told["caller"])
    yield "During", ", ".join(_short(call["tool"] or call["method"]) for call in told["during"][:5]) or "no call"
    yield "Rule", _short(told["rule"])
    yield "Reviewer", _short(told["reviewer"])
    if told["worst_usd"] is not None:
        yield "Costs at most", f"${max(told['worst_usd'], 0.0001):.4f}"


def _asked(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if told["show"] == "none":
        yield {"type": "section", "text": _plain("What is asked is not told here: open the review.", TEXT)}
        return
    left = ALTOGETHER
    for name, text in asks(told):
        block = preformatted(name, text, min(TEXT, left))
        if block is None:
            yield {"type": "section", "text": _plain("There is more: open the review.", TEXT)}
            return
        left -= len(block)
        yield {"type": "section", "text": {"type": "mrkdwn", "text": block, "verbatim": True}}


def _until(told: Mapping[str, Any]) -> str:
    """Two ends: the request's, after which a verdict is for the next same one, and the review's."""
    ends, waits = told["expires"], told["answers_until"]
    if waits is None or datetime.fromisoformat(waits) >= datetime.fromisoformat(ends):
        return f"The request waits, and a verdict is taken, until {_time(ends)}"
    return f"The request waits until {_time(waits)}; a verdict is taken until {_time(ends)}"


def _time(moment: str) -> str:
    """In the reader's own time zone, where Slack knows it."""
    return f"<!date^{int(datetime.fromisoformat(moment).timestamp())}^{{date_short_pretty}} {{time}}|{moment}>"


def _button(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    link = told["link"]
    if link is None or len(link) > LINK:
        return []
    button = {"type": "button", "action_id": "open_review", "text": _plain("Open the review", 75), "url": link}
    return [{"type": "actions", "elements": [button]}]


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": line(text, most), "emoji": False}
