"""Time-outs of rules against the patience of the peers (policies/README.md, "Client and servers"). Not a clock."""

from __future__ import annotations

import math
from typing import Final

from samplegate.core.matching.conditions import globs, is_glob
from samplegate.core.patience import DEFAULT, within
from samplegate.core.policy import Match, Peer, seconds
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.tree import Path, quoted

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


def left(peer: Peer) -> float:
    """Seconds that a peer's time-out leaves for a round; infinity where it has none or progress resets it."""
    if peer.peer_timeout == "none" or peer.extends_on_progress:
        return math.inf
    return within(seconds(peer.peer_timeout))


def _most_patient(draft: Draft, match: Match) -> float:
    """What the most patient of the servers that the match can hold for leaves; one without settings of its own counts as the default."""
    servers = draft.policy.servers
    if match.server is None:
        return max(left(peer) for peer in (DEFAULT, *servers.values()))
    named = [match.server] if isinstance(match.server, str) else match.server
    test, _ = globs(named)
    peers: list[Peer] = [peer for name, peer in servers.items() if test(name)]
    if any(is_glob(name) or name not in servers for name in named):
        peers.append(DEFAULT)
    return max((left(peer) for peer in peers), default=math.inf)


def _said(span: float) -> str:
    return f"{span:g}s"


def span(draft: Draft, path: Path, duration: str) -> None:
    """That a duration is one that can pass: more than nothing, and no typing error."""
    if not 0 < seconds(duration) <= LONGEST:
        draft.problem(path, f"{quoted(duration)} is not a time that can be waited for; give more than 0s and at most 8784h")
