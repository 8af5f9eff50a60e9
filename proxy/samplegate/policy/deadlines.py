"""Pure. Time limits of a round: the rule's own timeout, and the time that the peers' timeouts leave. All values are
seconds."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.policy.schema import Peer, Policy, seconds
from samplegate.protocol.rounds import PARKS, Round

MARGIN: Final = 5.0  # seconds reserved so that the answer arrives before the peer's timeout
MARGIN_SHARE: Final = 0.25  # but at most this share of a short timeout (decision 8)
MAX_TRIES: Final = PARKS + 1
"""Tries that a call can wait for: those whose round is put off, and the last one, which runs to its own end."""
# seconds for a model, or for room under a limit, if neither the rule nor a peer sets an end: nothing may hang
FALLBACK_TIMEOUT: Final = 600.0


class Patience(msgspec.Struct, frozen=True):
    """The time at which each peer gives up, on the session's clock; None if it never does."""

    server: float | None
    client: float | None

    def limit(self, rule: float | None, now: float) -> float | None:
        """Seconds that an action may take if it begins now; None for no limit. Zero or less: no time is left."""
        left = [until - now for until in (self.server, self.client) if until is not None]
        return min([*left, *([] if rule is None else [rule])], default=None)


DEFAULT_PEER: Final = Peer()


def usable_time(peer_timeout: float) -> float:
    """The part of a peer's timeout that the gate may use."""
    return peer_timeout - min(MARGIN, peer_timeout * MARGIN_SHARE)


def give_up_time(peer: Peer, start: float | None, *, has_token: bool) -> float | None:
    """When a peer whose timeout begins at ``start`` gives up, on the same clock; None if it never does.

    ``has_token``: whether the peer gave a progress token. Progress extends its timeout only then (R102).
    """
    if start is None or peer.peer_timeout == "none" or (peer.extends_on_progress and has_token):
        return None
    return start + usable_time(seconds(peer.peer_timeout))


def max_hold(policy: Policy, *, has_token: bool = False) -> float | None:
    """Seconds that one try of a modern client may be held before its round is put off; None if the client has no
    timeout.

    The first try has less, by the time that its call took before the server asked. ``has_token``: as for
    ``give_up_time``.
    """
    return give_up_time(policy.client, 0.0, has_token=has_token)


def time_left(policy: Policy, round: Round, rule: float | None, now: float) -> float | None:
    """Seconds that an action on a request of ``round`` may take if it begins now; None for no limit. ``rule`` is the
    rule's own timeout."""
    server = policy.servers.get(round.origin.server, DEFAULT_PEER)
    ends = (
        give_up_time(server, round.asked, has_token=round.server_has_token),
        give_up_time(policy.client, round.called, has_token=round.client_has_token),
    )
    left = None if round.until is None else round.until - now
    return min((each for each in (Patience(*ends).limit(rule, now), left) if each is not None), default=None)
