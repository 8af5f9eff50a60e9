"""Pure. How long a round may take: the rule's own limit, and what the peers' patience leaves. Seconds in, seconds out;
no clock."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.policy.schema import Peer, Policy, seconds
from samplegate.protocol.rounds import PARKS, Round

MARGIN: Final = 5.0  # seconds kept back so that our answer arrives before the peer's time is up
MARGIN_SHARE: Final = 0.25  # but never more than this share of a short patience (decision 8)
TRIES: Final = PARKS + 1
"""For how many tries a call that is put off can wait: those that end in being put off, and the last, which is held to
its own end."""
# seconds for a model, or for room under a limit, where neither the rule nor a peer sets an end: nothing may hang
LONGEST: Final = 600.0


class Patience(msgspec.Struct, frozen=True):
    """When each peer stops waiting, in the session's time; None where it does not."""

    server: float | None
    client: float | None

    def limit(self, rule: float | None, now: float) -> float | None:
        """Seconds that an act begun now may take, None for no end. Zero or less: the time is up already."""
        left = [until - now for until in (self.server, self.client) if until is not None]
        return min([*left, *([] if rule is None else [rule])], default=None)


DEFAULT: Final = Peer()


def within(peer_timeout: float) -> float:
    """What of a peer's patience is ours to use."""
    return peer_timeout - min(MARGIN, peer_timeout * MARGIN_SHARE)


def until(peer: Peer, start: float | None, *, told: bool) -> float | None:
    """When a peer whose clock runs from ``start`` stops waiting, in the same time; None if it does not. ``told``: it
    gave a progress token.

    Progress extends its patience only where it can be told of any (R102).
    """
    if start is None or peer.peer_timeout == "none" or (peer.extends_on_progress and told):
        return None
    return start + within(seconds(peer.peer_timeout))


def hold(policy: Policy, *, told: bool = False) -> float | None:
    """Seconds that one try of a modern client may be held before its round is put off; None where the client waits for
    ever.

    The first try has less: what its call took before the server asked. ``told``: whether it gives a progress token.
    """
    return until(policy.client, 0.0, told=told)


def left(policy: Policy, round: Round, rule: float | None, now: float) -> float | None:
    """Seconds that an act on a request of ``round`` may take, begun now; None for no end. ``rule`` is the rule's own
    limit."""
    server = policy.servers.get(round.origin.server, DEFAULT)
    told = (
        until(server, round.asked, told=round.server_told),
        until(policy.client, round.called, told=round.client_told),
    )
    return Patience(*told).limit(rule, now)
