"""Faults of PostgreSQL, worded for operators."""

from __future__ import annotations

import inspect

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from samplegate.postgres import faults
from samplegate.postgres.faults import PostgresFault, fault_of

KNOWN = sorted(
    {
        error.sqlstate: error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, psycopg.Error) and error.sqlstate
    }.items()
)
SECRET = 'user "marvin" on host zaphod with password heart0fgold'


@pytest.mark.parametrize(("state", "error"), KNOWN, ids=[state for state, _ in KNOWN])
def test_every_sqlstate_has_a_problem_and_a_remedy_without_the_servers_words(
    state: str, error: type[psycopg.Error]
) -> None:
    found = fault_of(error(SECRET))
    assert found.problem.endswith(state) or found.problem.endswith(f"({state})")
    assert found.remedy
    assert not any(word in str(found) for word in ("marvin", "zaphod", "heart0fgold"))


REFUSED = {
    'FATAL:  password authentication failed for user "u"': "refuses this user or password",
    "fe_sendauth: no password supplied": "refuses this user or password",
    'FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "u", database "d", no encryption': "refuses this user",
    'FATAL:  role "u" does not exist': "refuses this user or password",
    'FATAL:  role "u" is not permitted to log in': "refuses this user or password",
    'FATAL:  database "d" does not exist': "no such database",
    "FATAL:  no such database: d": "no such database",
    "FATAL:  no such user: u": "refuses this user",
    'FATAL:  permission denied for database "d"': "may not connect",
    "FATAL:  sorry, too many clients already": "no free connection",
    'FATAL:  too many connections for role "u"': "no free connection",
    'FATAL:  too many connections for database "d"': "no free connection",
    "FATAL:  remaining connection slots are reserved for non-replication superuser connections": "no free connection",
    "FATAL:  no more connections allowed (max_client_conn)": "no free connection",
    "session is read-only": "is read-only",
    "server is in hot standby mode": "is read-only",
    "server does not support SSL, but SSL was required": "TLS",
    "SSL error: certificate verify failed": "TLS",
    'could not translate host name "zaphod" to address: Name or service not known': "cannot be reached",
    "Connection refused": "cannot be reached",
    "connection timeout expired": "cannot be reached",
    "FATAL:  the database system is starting up": "cannot be reached",
}


@pytest.mark.parametrize(("text", "words"), REFUSED.items())
def test_a_refused_connection_is_told_by_its_words(text: str, words: str) -> None:
    found = fault_of(psycopg.OperationalError(f'connection to server at "zaphod", port 5432 failed: {text}'))
    assert words in found.problem
    assert found.remedy
    assert not any(word in str(found) for word in ("zaphod", '"u"', '"d"', "1.2.3.4"))


@given(st.text())
def test_no_words_of_a_server_are_repeated(text: str) -> None:
    rows = [row for _, row in faults._TEXTS] + [faults._UNREACHABLE]
    found = fault_of(psycopg.OperationalError(text))
    assert (found.kind, found.problem, found.remedy) in rows


def test_a_fault_stays_as_it_is() -> None:
    fault = PostgresFault("newer", "problem", "remedy")
    assert fault is fault_of(fault)
    assert "problem; remedy" == str(fault)
