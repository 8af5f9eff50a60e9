"""Connections to a real server: what an operator reads if one is refused, and what happens to lost ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psycopg
import pytest

from samplegate.postgres import connection
from samplegate.postgres.connection import PostgresConnection
from samplegate.postgres.faults import PostgresFault
from tests.fakes import postgresql
from tests.fakes.database_proxy import DatabaseProxy, database_proxy

PASSWORD = "heart0fgold"
SETUP = f"""
CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}';
CREATE ROLE nobody LOGIN;
CREATE ROLE silent NOLOGIN;
CREATE ROLE lonely LOGIN CONNECTION LIMIT 1;
CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';
CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
CREATE DATABASE closed;
REVOKE CONNECT ON DATABASE closed FROM PUBLIC;
CREATE DATABASE fixed;
ALTER DATABASE fixed SET default_transaction_read_only = on;
CREATE DATABASE bare
"""


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    with postgresql.server("fsync = off") as server:
        with psycopg.connect(server.place, autocommit=True) as db:
            for statement in SETUP.strip().split(";\n"):
                db.execute(statement.encode())
        hba = server.data / "pg_hba.conf"
        hba.write_text("local all guarded scram-sha-256\nlocal all all trust\n")
        with psycopg.connect(server.place, autocommit=True) as db:
            db.execute("SELECT pg_reload_conf()")
        until = time.monotonic() + 20
        while "password" not in failure(f"host={server.folder} user=guarded dbname=postgres password=wrong"):
            assert time.monotonic() < until
            time.sleep(0.02)
        yield server


@pytest.fixture(scope="module")
def proxy(server: postgresql.Server) -> Iterator[DatabaseProxy]:
    with database_proxy(server.socket) as proxy:
        yield proxy


def failure(place: str) -> str:
    try:
        psycopg.connect(place).close()
    except psycopg.OperationalError as problem:
        return str(problem)
    return ""


def fault(url: str, *, make: bool = True) -> PostgresFault:
    connection = PostgresConnection(url, make=make)
    with pytest.raises(PostgresFault) as raised, connection.transaction(lambda: 5.0):
        pass
    connection.close()
    assert raised.value.undone
    return raised.value


CASES = {
    "wrong password": ("guarded:wr0ng@", "postgres", "refused", "it refuses this user or password"),
    "no password": ("guarded@", "postgres", "refused", "it refuses this user or password"),
    "no such role": ("stranger@", "postgres", "refused", "it refuses this user or password"),
    "may not log in": ("silent@", "postgres", "refused", "it refuses this user or password"),
    "no such database": ("postgres@", "missing", "refused", "it has no such database"),
    "may not connect": ("nobody@", "closed", "read_only", "this role may not connect to it"),
    "bytes": ("postgres@", "ascii", "refused", "its encoding is SQL_ASCII"),
    "latin": ("postgres@", "latin", "refused", "its encoding is LATIN1"),
    "read-only": ("postgres@", "fixed", "read_only", "it is read-only"),
    "may not create": ("nobody@", "bare", "read_only", "it has no tables of samplegate, and this role may not create"),
}


@pytest.mark.parametrize(("user", "name", "kind", "words"), CASES.values(), ids=CASES)
def test_a_refusal_names_the_problem_and_the_remedy(
    server: postgresql.Server, user: str, name: str, kind: str, words: str
) -> None:
    found = fault(f"postgresql://{user}/{name}?host={server.folder}")
    assert (kind, True) == (found.kind, found.problem.startswith(words))
    assert found.remedy
    assert not any(word in str(found) for word in ("wr0ng", "stranger", str(server.folder), "guarded"))


def test_the_right_password_is_accepted(server: postgresql.Server) -> None:
    found = fault(f"postgresql://guarded:{PASSWORD}@/bare?host={server.folder}", make=False)
    assert ("unreachable", "it has no tables of samplegate") == (found.kind, found.problem)
    assert "samplegate database migrate" in found.remedy


def test_a_server_without_tls_is_named(server: postgresql.Server, proxy: DatabaseProxy) -> None:
    found = fault(f"{postgresql.tcp_url(proxy.port)}?sslmode=require")
    assert ("refused", "a connection with TLS is not possible") == (found.kind, found.problem)


def test_a_server_that_is_not_there_is_named(server: postgresql.Server) -> None:
    assert "it cannot be reached" == fault(f"postgresql://u@/d?host={server.folder}&port=1").problem


def test_too_many_connections_are_named(server: postgresql.Server) -> None:
    with psycopg.connect(f"host={server.folder} user=lonely dbname=postgres"):
        assert "it has no free connection" == fault(f"postgresql://lonely@/postgres?host={server.folder}").problem


def test_the_last_connections_are_kept_for_superusers(server: postgresql.Server) -> None:
    """The server then has other words than if no connection at all is free."""
    with postgresql.server("fsync = off", "max_connections = 8", "max_wal_senders = 0") as small:
        with psycopg.connect(small.place, autocommit=True) as db:
            db.execute("CREATE ROLE usual LOGIN")
        place = f"host={small.folder} user=usual dbname=postgres"
        with contextlib.ExitStack() as held:
            for _ in range(5):
                held.enter_context(psycopg.connect(place))
            assert "reserved" in failure(place)
            assert "it has no free connection" == fault(f"postgresql://usual@/postgres?host={small.folder}").problem


def test_a_role_without_rights_is_told_how_it_gets_them(server: postgresql.Server) -> None:
    url = f"postgresql://postgres@/postgres?host={server.folder}"
    owner = PostgresConnection(url)
    with owner.transaction(lambda: 30.0):
        pass
    owner.close()
    found = fault(f"postgresql://nobody@/postgres?host={server.folder}")
    assert ("read_only", "this role lacks a right (42501)") == (found.kind, found.problem)
    assert "--gates" in found.remedy


def test_the_pooler_has_words_of_its_own(server: postgresql.Server) -> None:
    with postgresql.pgbouncer(server.place, "max_db_connections = 1", "query_wait_timeout = 1") as pooled:
        url = postgresql.url(pooled)
        held = PostgresConnection(url)
        with held.transaction(lambda: 30.0):
            found = fault(url)
        assert ("unreachable", "busy")[found.kind == "busy"] == found.kind
        assert found.remedy
        with held.transaction(lambda: 5.0) as db:
            assert (1,) == db.execute("SELECT 1").fetchone()
        held.close()


# -- lost connections
# ----------------------------------------------------------------------------------------------------------------------


def connected(proxy: DatabaseProxy, *, core: bool = False) -> PostgresConnection:
    connection = PostgresConnection(postgresql.tcp_url(proxy.port), core=core)
    with connection.transaction(lambda: 30.0):
        pass
    return connection


@pytest.mark.parametrize("core", [False, True], ids=["driver", "core"])
def test_a_lost_connection_is_replaced_at_the_beginning_of_a_transaction(proxy: DatabaseProxy, core: bool) -> None:
    connection, before = connected(proxy, core=core), proxy.accepted
    proxy.cut()
    for _ in range(2):
        if core:
            with connection.core(lambda: 5.0) as through:
                assert 1 == through.exec_driver_sql("SELECT 1").scalar_one()
        else:
            with connection.transaction(lambda: 5.0) as db:
                assert (1,) == db.execute("SELECT 1").fetchone()
    assert before + 1 == proxy.accepted
    connection.close()


@pytest.mark.parametrize("core", [False, True], ids=["driver", "core"])
def test_a_backend_that_the_operator_has_ended_is_replaced(
    server: postgresql.Server, proxy: DatabaseProxy, core: bool
) -> None:
    connection = connected(proxy, core=core)
    with psycopg.connect(server.place, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'samplegate'")
    with connection.core(lambda: 5.0) if core else connection.transaction(lambda: 5.0):
        pass
    connection.close()


def test_a_connection_that_is_lost_within_a_transaction_is_a_fault_and_nothing_has_happened(
    proxy: DatabaseProxy,
) -> None:
    connection = connected(proxy)

    def cut_within(db: psycopg.Connection) -> None:
        db.execute("SELECT 1")
        proxy.cut()
        db.execute("SELECT pg_sleep(4)")

    with pytest.raises(PostgresFault) as raised, connection.transaction(lambda: 5.0) as db:
        cut_within(db)
    assert (True, "unreachable") == (raised.value.undone, raised.value.kind)
    with connection.transaction(lambda: 5.0):
        pass
    connection.close()


@pytest.mark.parametrize("how", ["lost", "unsent"])
def test_a_commit_without_an_answer_is_a_fault_of_unknown_outcome(proxy: DatabaseProxy, how: str) -> None:
    connection = connected(proxy)
    proxy.commits = "lost" if how == "lost" else "unsent"
    with pytest.raises(PostgresFault) as raised, connection.transaction(lambda: 5.0):
        pass
    assert not raised.value.undone
    connection.close()


def test_every_cut_within_a_connections_beginning_is_a_fault_or_is_repeated(proxy: DatabaseProxy) -> None:
    """Whatever byte of the server's answers is the last, nothing hangs, and the next connection works."""
    kinds = set[str]()
    for bytes in (*range(0, 60, 7), *range(60, 900, 61)):
        proxy.cut_after = bytes
        connection = PostgresConnection(postgresql.tcp_url(proxy.port))
        try:
            with connection.transaction(lambda: 2.0) as db:
                db.execute("SELECT 1")
        except PostgresFault as problem:
            kinds.add(problem.kind)
        connection.close()
        proxy.cut_after = -1
        with connection.transaction(lambda: 5.0) as db:
            assert (1,) == db.execute("SELECT 1").fetchone()
        connection.close()
    assert {"unreachable"} == kinds


def test_a_network_that_passes_nothing_on_is_cut_at_the_deadline(proxy: DatabaseProxy) -> None:
    connection = connected(proxy)
    proxy.stall()
    begun = time.monotonic()
    try:
        with pytest.raises(PostgresFault) as raised, connection.transaction(lambda: 0.3):
            pass
    finally:
        proxy.resume()
    assert ("busy", True) == (raised.value.kind, raised.value.undone)
    assert 10 > time.monotonic() - begun
    with connection.transaction(lambda: 5.0):
        pass
    connection.close()


def test_a_network_that_stops_after_the_handshake_is_cut_at_the_deadline(proxy: DatabaseProxy) -> None:
    """The check of the tables, which is the first statement of a connection, has no more time than its transaction."""
    connection = PostgresConnection(postgresql.tcp_url(proxy.port))
    proxy.delay = 1.3  # the handshake passes slowly, and the check even more so
    begun = time.monotonic()
    try:
        with pytest.raises(PostgresFault), connection.transaction(lambda: begun + 0.2 - time.monotonic()):
            pass
    finally:
        proxy.delay = 0.0
    assert 10 > time.monotonic() - begun
    connection.close()


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        ("postgresql://db/gates", "3"),
        ("postgresql://a,b,c/gates", "2"),
        ("postgresql://a,b/gates?connect_timeout=9", "9"),
        ("postgresql:///gates?host=a,b", "2"),
    ],
)
def test_of_several_hosts_each_is_waited_for_less_long(url: str, seconds: str) -> None:
    assert seconds == connection.options(url)["connect_timeout"]
