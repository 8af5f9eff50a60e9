"""Time-outs of rules against the patience of the peers (policies/README.md, "Client and servers"). Not a clock."""

from __future__ import annotations

from typing import Final

from samplegate.core.policy import Match, seconds
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.tree import Path, quoted
from samplegate.core.policyfile.waits import left, peers

LONGEST: Final = 366 * 24 * 3600.0  # a longer time-out is a typing error


def check(draft: Draft, rule: Path, match: Match, timeout: str | None, path: Path) -> None:
    """That a rule's time-out can pass and can be reached before the peers give up."""
    if timeout is None or not draft.sound(*path):
        return
    before = len(draft.problems)
    span(draft, path, timeout)
    if len(draft.problems) > before or not draft.sound("client") or not draft.sound("servers") or not draft.sound(*rule, "match"):
        return
    wanted = seconds(timeout)
    client, server = left(draft.policy.client), _most_patient(draft, match)
    if wanted > client:
        draft.warn(path, f"{timeout} cannot be reached: the client's peer_timeout leaves {_said(client)}; shorten it or raise client.peer_timeout")
    elif wanted > server and match.era != "modern":
        draft.warn(
            path, f"{timeout} cannot be reached in the legacy eras: the server's peer_timeout leaves {_said(server)}; shorten it or raise that"
        )


def _most_patient(draft: Draft, match: Match) -> float:
    """What the most patient of the servers that the match can hold for leaves."""
    return max(left(peer) for peer in peers(draft.policy, match))


def _said(span: float) -> str:
    return f"{span:g}s"


def span(draft: Draft, path: Path, duration: str) -> None:
    """That a duration is one that can pass: more than nothing, and no typing error."""
    if not 0 < seconds(duration) <= LONGEST:
        draft.problem(path, f"{quoted(duration)} is not a time that can be waited for; give more than 0s and at most 8784h")
