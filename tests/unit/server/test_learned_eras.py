"""What later sessions know of a server's eras, and that many settled sessions are not looked at again."""

from __future__ import annotations

from typing import Any

from samplegate.protocol.bridge.era_detection import Eras
from samplegate.server.servers import LearnedEras

LEGACY, MODERN = Eras(legacy=True, modern=False), Eras(legacy=False, modern=True)


class Negotiator:
    """A session, with the part that is looked at."""

    def __init__(self, eras: Eras = Eras(), *, phase: str = "new", died_probing: bool = False) -> None:  # noqa: B008
        self.looks = 0
        self._eras = eras
        self.phase, self.died_probing = phase, died_probing

    @property
    def eras(self) -> Eras:
        self.looks += 1
        return self._eras

    def settle(self, eras: Eras) -> None:
        self._eras, self.phase = eras, "settled"


def learned(*sessions: Any) -> LearnedEras:
    found = LearnedEras(lambda: 7.0)
    for session in sessions:
        found.follow(session)
    return found


def test_what_a_session_finds_out_later_is_known_to_the_next_one() -> None:
    session = Negotiator()
    found = learned(session)
    found.look()
    assert Eras() == found.known
    session.settle(LEGACY)
    found.look()
    assert (LEGACY, 7.0) == (found.known, found.at)


def test_a_session_that_has_settled_is_not_looked_at_again() -> None:
    """So that the thousandth session begins as fast as the first."""
    sessions = [Negotiator(LEGACY, phase="settled") for _ in range(100)]
    found = learned(*sessions)
    for _ in range(100):
        found.look()
    assert {True} == {session.looks <= 2 for session in sessions}


def test_a_server_that_died_at_the_probe_is_legacy() -> None:
    found = learned(Negotiator(died_probing=True))
    found.look()
    assert LEGACY == found.known


def test_what_is_forgotten_is_learned_from_a_new_session() -> None:
    old, new = Negotiator(LEGACY, phase="settled"), Negotiator()
    found = learned(old)
    found.look()
    found.forget()
    found.look()
    assert found.known is None
    found.follow(new)  # type: ignore[arg-type]
    new.settle(MODERN)
    found.look()
    assert MODERN == found.known
