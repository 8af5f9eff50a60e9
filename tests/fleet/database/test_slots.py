"""Slots of concurrent requests whose gates die or are cut off: free after a lease, and given up before that."""

from __future__ import annotations

import signal

from tests.fakes import postgresql
from tests.fakes.database_proxy import database_proxy
from tests.fakes.postgresql import Database, Server
from tests.fleet.database.conftest import Start, until

LEASE = 6.0
RETRY = 5.0
"""Seconds between two tries of a request that waits (limiter.LONGEST_PAUSE)."""


def test_the_slots_of_a_killed_gate_are_free_after_its_lease(database: Database, start: Start) -> None:
    """Row 24, kill -9: not before the lease has ended, and not long after."""
    start("open", database.url).end()
    killed = start("hold", database.url, 100, 1, LEASE=str(LEASE))
    keeps = start("hold", database.url, 100, 1, LEASE=str(LEASE))
    held = [client.until("held")["at"] for client in (killed, keeps)]
    waits = start("hold", database.url, 0, 1, LEASE=str(LEASE))
    killed.send(signal.SIGKILL)
    killed.end()
    got = waits.until("held")["at"]
    assert LEASE <= got - held[0] < 2 * LEASE + RETRY + 4.0
    assert [] == keeps.all("lost")  # the one that lives has renewed its lease for longer than that
    assert 0 == waits.end()


def test_a_gate_that_is_cut_off_gives_its_slots_up_before_others_take_them(
    server: Server, database: Database, start: Start
) -> None:
    """Row 24, partition: it fences itself."""
    start("open", database.url).end()
    with database_proxy(server.socket) as proxy:
        cut = start(
            "hold", postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2]), 100, 1, LEASE=str(LEASE)
        )
        keeps = start("hold", database.url, 100, 1, LEASE=str(LEASE))
        for client in (cut, keeps):
            client.until("held")
        waits = start("hold", database.url, 0, 1, LEASE=str(LEASE))
        proxy.stall()
        lost, got = cut.until("lost")["at"], waits.until("held")["at"]
        assert lost < got
        proxy.resume()
        assert 0 == cut.end()
    assert [] == keeps.all("lost")
    assert 0 == waits.end()
    until(lambda: database.value("SELECT count(*) FROM slots") == 1)


def test_a_gate_that_was_frozen_beyond_its_lease_loses_its_slots_when_it_wakes(
    database: Database, start: Start
) -> None:
    """Row 24, SIGSTOP: another gate takes the slot meanwhile, and keeps it."""
    start("open", database.url).end()
    frozen = start("hold", database.url, 100, 1, LEASE=str(LEASE))
    keeps = start("hold", database.url, 100, 1, LEASE=str(LEASE))
    for client in (frozen, keeps):
        client.until("held")
    frozen.send(signal.SIGSTOP)
    takes = start("hold", database.url, 100, 1, LEASE=str(LEASE))
    takes.until("held")
    frozen.send(signal.SIGCONT)
    frozen.until("lost")
    assert 0 == frozen.end()
    assert 2 == database.value("SELECT count(*) FROM slots")
    assert [] == takes.all("lost") + keeps.all("lost")
