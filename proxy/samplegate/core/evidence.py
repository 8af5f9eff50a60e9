"""What the gate has seen of how a server asks its client, and which protocol version it prefers because of it. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

PUSHED: Final = "server.pushed"
ASKED: Final = "server.asked"
REFUSED: Final = "server.handshake_refused"


class Evidence(msgspec.Struct, frozen=True):
    """What was seen of one server, in any of its connections."""

    pushed: bool = False
    """A modern call failed because the server tried to send a request to the client, which only the legacy eras have (R89)."""
    asked: bool = False
    """It returned ``input_required`` or a task: it knows how to ask, and needs no older version."""
    refused: bool = False
    """It refused the handshake of the legacy eras."""

    @property
    def prefers_legacy(self) -> bool:
        """Whether the next connection of a server set to ``auto`` treats it as one that speaks only the legacy eras."""
        return self.pushed and not self.asked and not self.refused

    def or_(self, other: Evidence) -> Evidence:
        """Both together. Nothing that was seen is ever unseen."""
        return Evidence(self.pushed or other.pushed, self.asked or other.asked, self.refused or other.refused)


OF_EVENTS: Final = {PUSHED: Evidence(pushed=True), ASKED: Evidence(asked=True), REFUSED: Evidence(refused=True)}
"""What a session's note of each event is evidence of."""
