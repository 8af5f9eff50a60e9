"""Fakes for a relay: a link to a peer, and ports that reach the client through the relay."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from samplegate.protocol.rounds import ClientReply, Round
from samplegate.runtime.relay import Relay
from samplegate.transport.lines import Backlog
from tests.fakes.gate_ports import FakePorts


class FakeLink:
    """A link to a peer that reads nothing until ``take``."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.sent: list[bytes] = []
        self.reading = True
        self.changed = changed
        self.backlog = Backlog()

    @property
    def pressure(self) -> Callable[[bool], None]:
        return self.backlog.pressure

    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None:
        self.backlog.pressure = call

    def send(self, line: bytes) -> None:
        self.sent.append(line)
        self.backlog.add(len(line) + 1)
        self.changed()

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def take(self) -> None:
        """The peer reads everything."""
        self.backlog.remove(self.backlog.size)

    @property
    def frames(self) -> list[Any]:
        return [json.loads(line) for line in self.sent]


class RelayPorts(FakePorts):
    """The gate's ports. Forwarded requests reach the client through the relay."""

    relay: Relay

    async def ask_client(self, round: Round) -> ClientReply:
        return await self.relay.ask_client(round)
