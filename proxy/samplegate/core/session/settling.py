"""What a modern round comes to once every key has its outcome: answers for a retry, or the one that ends the call (R70). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from samplegate.core import jsontext
from samplegate.core.decisions import Answered, Reason, Unanswered, Withdrawn
from samplegate.core.session import shapes
from samplegate.core.session.rounds import Release, Round, Settled


def is_withdrawn(settled: Settled) -> bool:
    """Whether whoever asked or called took it back, and nothing else ended it."""
    outcomes = [release.outcome for release in settled.releases.values()]
    return any(isinstance(one, Withdrawn) for one in outcomes) and all(isinstance(one, Withdrawn | Answered) for one in outcomes)


def responses(round: Round, settled: Settled) -> bytes | tuple[str, Release]:
    """``inputResponses`` as raw JSON; or the kind and the release of the key that can only end the call."""
    entries: dict[str, bytes] = {}
    for key, item in round.items.items():
        release = settled.releases[key]
        entry = None if isinstance(release.outcome, Withdrawn) else shapes.nested(item.kind, release)
        if entry is None:
            return _blocking(round, settled)
        entries[key] = entry
    for key in round.roots:
        reply = None if round.returned is None else round.returned.replies.get(key)
        if reply is None:
            return "roots", Release(Unanswered(Reason.CLIENT), "")
        entries[key] = reply
    return _object(entries)


def _blocking(round: Round, settled: Settled) -> tuple[str, Release]:
    """The key that ends the call: the first that is neither answered nor withdrawn and has no form in ``inputResponses``."""
    for key, item in round.items.items():
        release = settled.releases[key]
        if not isinstance(release.outcome, Withdrawn) and shapes.nested(item.kind, release) is None:
            return item.kind, release
    return "input", Release(Unanswered(Reason.ERROR), "")


def _object(entries: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(jsontext.dump(key) + b":" + raw for key, raw in entries.items()) + b"}"
