"""A legacy client's subscriptions and list changes, combined in one ``subscriptions/listen`` request of ours."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.protocol.bridge.subscriptions import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_SUBSCRIBED,
    MAX_SUBSCRIBED_SIZE,
    PATIENCE,
)
from samplegate.protocol.rounds import Effect, Later, Note, Over, ToClient
from tests.fakes.bridged import LEVEL, SUBSCRIPTION, Bridge, cancel, notification
from tests.fakes.dialogue import error, request, result, to_client, to_server

LISTS = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": False},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
}
QUIET = {"resources": {"subscribe": True}}


def subscribe(id: Any, uri: Any = "a:1", method: str = "resources/subscribe") -> dict[str, Any]:
    return request(id, method, uri=uri)


def tagged(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return notification(method, **params, _meta={SUBSCRIPTION: id})


def acknowledged(d: Bridge, listen: Any) -> list[Effect]:
    return d.server(
        tagged(
            listen["id"], "notifications/subscriptions/acknowledged", notifications=listen["params"]["notifications"]
        )
    )


def subscribed(*uris: str, server: Any = None) -> tuple[Bridge, Any]:
    """A bridge that is subscribed to these URIs, and the listen request that the server acknowledged."""
    d = Bridge()
    d.open(server=QUIET if server is None else server)
    listen = d.opened[0] if d.opened else None
    for number, uri in enumerate(uris):
        if listen is not None:
            acknowledged(d, listen)
        listen = to_server(d.client(subscribe(f"s{number}", uri)))[0]
    acknowledged(d, listen)
    return d, listen


def laters(effects: list[Effect]) -> list[Later]:
    return [effect for effect in effects if isinstance(effect, Later)]


def test_the_gate_listens_for_the_lists_that_the_server_says_may_change() -> None:
    d = Bridge()
    d.open(server=LISTS)
    (listen,) = d.opened
    assert "subscriptions/listen" == listen["method"]
    assert {"toolsListChanged": True, "resourcesListChanged": True} == listen["params"]["notifications"]
    assert [] == to_client(acknowledged(d, listen))


def test_a_server_without_changing_lists_is_not_listened_to() -> None:
    d = Bridge()
    d.open(server={"tools": {}})
    assert [] == d.opened


def test_nothing_is_listened_for_before_the_client_is_ready() -> None:
    d = Bridge()
    (asked,) = to_server(d.initialize())
    out = d.server(result(asked["id"], supportedVersions=["2026-07-28"], capabilities=LISTS))
    assert [] == to_server(out)


def test_changes_reach_the_client_on_the_standalone_stream_and_without_a_subscription() -> None:
    d, listen = subscribed(server=LISTS)
    out = d.server(tagged(listen["id"], "notifications/tools/list_changed"))
    assert [notification("notifications/tools/list_changed")] == to_client(out)
    out = d.server(
        notification("notifications/resources/updated", uri="a:1", _meta={SUBSCRIPTION: listen["id"], "v": 1})
    )
    assert [notification("notifications/resources/updated", uri="a:1", _meta={"v": 1})] == to_client(out)
    assert {0} == {effect.stream for effect in d.log if isinstance(effect, ToClient)}


def test_over_http_they_come_on_the_stream_of_the_listen() -> None:
    d = Bridge(streams=True)
    d.open(server=LISTS)
    listen = next(
        pending for pending in d.session.state.inflight.asked.values() if pending.method == "subscriptions/listen"
    )
    out = d.on(listen.number, notification("notifications/tools/list_changed"), "server")
    assert [0] == [effect.stream for effect in out if isinstance(effect, ToClient)]


def test_a_subscription_is_answered_when_the_server_listens_for_it() -> None:
    d = Bridge()
    d.open(server=QUIET)
    out = d.client(subscribe(5))
    (listen,) = to_server(out)
    assert {"resourceSubscriptions": ["a:1"]} == listen["params"]["notifications"]
    assert LEVEL not in listen["params"]["_meta"]
    assert [] == to_client(out)
    assert [{"jsonrpc": "2.0", "id": 5, "result": {}}] == to_client(acknowledged(d, listen))


def test_the_new_listen_is_opened_before_the_old_one_ends() -> None:
    d, first = subscribed("a:1")
    second, end = to_server(d.client(subscribe(6, "a:2")))
    assert ["a:1", "a:2"] == second["params"]["notifications"]["resourceSubscriptions"]
    assert cancel(first["id"]) == end
    assert [6] == [line["id"] for line in to_client(acknowledged(d, second))]
    out = d.client(subscribe(7, "a:1", "resources/unsubscribe"))
    third, end = to_server(out)
    assert (["a:2"], cancel(second["id"])) == (third["params"]["notifications"]["resourceSubscriptions"], end)
    assert [7] == [line["id"] for line in to_client(out)]


def test_the_last_subscription_taken_back_ends_the_listen() -> None:
    d, listen = subscribed("a:1")
    assert [cancel(listen["id"])] == to_server(d.client(subscribe(7, "a:1", "resources/unsubscribe")))


def test_changes_while_the_server_has_not_answered_are_one_change() -> None:
    d = Bridge()
    d.open(server=QUIET)
    (first,) = to_server(d.client(subscribe(1, "a:1")))
    for number in range(2, 50):
        assert [] == d.client(subscribe(number, f"a:{number}"))
    out = acknowledged(d, first)
    assert [1] == [line["id"] for line in to_client(out)]
    second, _ = to_server(out)
    assert 49 == len(second["params"]["notifications"]["resourceSubscriptions"])
    assert list(range(2, 50)) == [line["id"] for line in to_client(acknowledged(d, second))]


def test_what_is_subscribed_already_needs_no_new_listen() -> None:
    d, _ = subscribed("a:1")
    out = d.client(subscribe(9))
    assert ([9], []) == ([line["id"] for line in to_client(out)], to_server(out))
    assert [] == to_server(d.client(subscribe(10, "a:99", "resources/unsubscribe")))


@pytest.mark.parametrize("opened", [True, False])
def test_a_server_without_subscriptions_offers_none(opened: bool) -> None:
    d = Bridge()
    if opened:
        d.open()
    out = d.client(subscribe(1))
    assert ([-32601], []) == ([line["error"]["code"] for line in to_client(out)], to_server(out))


@pytest.mark.parametrize("uri", [None, 5, {}])
def test_a_subscription_to_no_uri_is_refused(uri: Any) -> None:
    d = Bridge()
    d.open(server=QUIET)
    assert [-32602] == [line["error"]["code"] for line in to_client(d.client(subscribe(1, uri)))]


@pytest.mark.parametrize("end", ["result", "cancelled"])
def test_a_listen_that_the_server_ends_is_opened_again_after_a_pause_that_grows(end: str) -> None:
    d, listen = subscribed("a:1")
    pauses = []
    for _ in range(8):
        out = d.server(result(listen["id"], resultType="complete") if end == "result" else cancel(listen["id"]))
        assert [] == to_client(out)
        (later,) = laters(out)
        pauses.append(later.delay)
        (listen,) = to_server(d.session.due(later.token))
        acknowledged(d, listen)
    assert [FIRST_PAUSE, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_PAUSE, LONGEST_PAUSE] == pauses
    d.now += LONGEST_PAUSE
    assert [FIRST_PAUSE] == [later.delay for later in laters(d.server(result(listen["id"])))]


def test_a_server_that_cannot_listen_is_not_asked_again_until_something_changes() -> None:
    d = Bridge()
    d.open(server=LISTS)
    out = d.server(error(d.opened[0]["id"], -32601))
    assert ([], []) == (to_server(out), laters(out))
    (listen,) = to_server(d.client(subscribe(1)))
    out = d.server(error(listen["id"], -32601))
    assert [(1, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]


def test_a_server_that_does_not_say_that_it_listens_is_not_waited_for_without_end() -> None:
    d = Bridge()
    d.open(server=QUIET)
    out = d.client(subscribe(1))
    d.client(subscribe(2, "a:2"))
    (later,) = laters(out)
    assert PATIENCE == later.delay
    out = d.session.due(later.token)
    assert [(1, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]
    second, _ = to_server(out)
    assert ["a:2"] == second["params"]["notifications"]["resourceSubscriptions"]


def test_a_subscription_taken_back_is_not_answered() -> None:
    d = Bridge()
    d.open(server=QUIET)
    (listen,) = to_server(d.client(subscribe(1)))
    assert [Over(0)] == d.client(cancel(1))
    assert [] == to_client(acknowledged(d, listen))


def test_a_client_that_opens_again_has_no_subscriptions() -> None:
    d = Bridge()
    d.open(server=QUIET)
    d.client(subscribe(1))
    (asked,) = to_server(d.initialize(id=2))
    out = d.server(result(asked["id"], supportedVersions=["2026-07-28"], capabilities=QUIET))
    assert [(2, True), (1, False)] == [(line["id"], "result" in line) for line in to_client(out)]


def test_a_listen_is_opened_again_at_a_server_that_was_started_again() -> None:
    d, listen = subscribed("a:1")
    d.session.state.outlived = True
    (later,) = laters(d.session.eof("server"))
    (again,) = to_server(d.session.due(later.token))
    assert again["id"] != listen["id"]


def test_an_acknowledgement_of_another_listen_is_none_of_ours() -> None:
    d = Bridge()
    d.open(server=QUIET)
    d.client(subscribe(1))
    for id in ("x", 1, None):
        out = d.server(tagged(id, "notifications/subscriptions/acknowledged", notifications={}))
        assert [] == to_client(out)
    assert [1] == [
        line["id"]
        for line in to_client(d.server(notification("notifications/subscriptions/acknowledged", notifications={})))
    ]


def test_subscriptions_are_bounded_in_number_and_size() -> None:
    d, listen = subscribed("a:0")
    refused = 0
    for number in range(1, MAX_SUBSCRIBED + 5):
        out = d.client(subscribe(number, f"a:{number}"))
        refused += sum("error" in line for line in to_client(out))
        for line in to_server(out)[:1]:
            acknowledged(d, line)
    assert 5 == refused
    d, listen = subscribed("a:0")
    assert [-32602] == [
        line["error"]["code"] for line in to_client(d.client(subscribe(1, "a:" + "x" * MAX_SUBSCRIBED_SIZE)))
    ]
    assert listen is not None


def test_subscribing_and_taking_it_back_without_end_keeps_nothing() -> None:
    d = Bridge()
    d.open(server=QUIET)
    for number in range(2000):
        d.client(subscribe(number, "a:1"))
        d.client(cancel(number))
    assert ({}, {}) == (d.session._calls.by_id, d.session._subscriptions._waiters)
    assert 1 == len([line for line in to_server(d.log) if line.get("method") == "subscriptions/listen"])
    assert not [effect for effect in d.log if isinstance(effect, Note) and effect.warn]


def test_a_listen_that_ends_after_the_client_has_gone_is_nothing_to_tell() -> None:
    d, listen = subscribed("a:1")
    d.session.eof("client")
    assert [] == d.server(result(listen["id"], resultType="complete"))
