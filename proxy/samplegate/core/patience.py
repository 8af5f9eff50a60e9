"""How long a round may take: the rule's own limit, and what the peers' patience leaves. Seconds in, seconds out; no clock."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core.policy import Peer, Policy, seconds
from samplegate.core.rounds import Round

MARGIN: Final = 5.0  # seconds kept back so that our answer arrives before the peer's time is up (DESIGN 3)
MARGIN_SHARE: Final = 0.25  # but never more than this share of a short patience


class Patience(msgspec.Struct, frozen=True):
    """When each peer stops waiting, in the session's time; None where it does not."""

    server: float | None
    client: float | None

    @classmethod
    def of(cls, policy: Policy, round: Round) -> Patience:
        """The server's time runs from its request (legacy only), the client's from the originating call."""
        return cls(_until(policy.servers.get(round.origin.server, DEFAULT), round.asked), _until(policy.client, round.called))

    def limit(self, rule: float | None, now: float) -> float | None:
        """Seconds that an act begun now may take, None for no end. Zero or less: the time is up already."""
        left = [until - now for until in (self.server, self.client) if until is not None]
        return min([*left, *([] if rule is None else [rule])], default=None)


DEFAULT: Final = Peer()


def within(peer_timeout: float) -> float:
    """What of a peer's patience is ours to use."""
    return peer_timeout - min(MARGIN, peer_timeout * MARGIN_SHARE)


def _until(peer: Peer, start: float | None) -> float | None:
    if start is None or peer.peer_timeout == "none" or peer.extends_on_progress:
        return None
    return start + within(seconds(peer.peer_timeout))
