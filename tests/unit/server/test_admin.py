"""The operators' listener, called like an ASGI application and, once, over a real socket."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
import uvicorn

from samplegate.errors import Unavailable
from samplegate.server.admin import MAX_BODY, AdminApp, ReloadReport
from samplegate.server.reload import SingleFlight
from samplegate.status.snapshot import read_gate
from tests.fakes.admin_app import STATUS, TOKEN, UNCHANGED, Events, app_of

pytestmark = pytest.mark.anyio

BEARER = {"authorization": f"Bearer {TOKEN.decode()}"}
PROBLEMS = (
    "policy.yaml:12:5: rules.2.effect: 'alow' is not one of allow, answer",
    "policy.yaml:14:1: rules.3: no effect",
)


class Response(msgspec.Struct):
    """One response."""

    status: int
    headers: dict[str, str]
    body: str


def answering(report: ReloadReport) -> Callable[[], Any]:
    async def reload() -> ReloadReport:
        return report

    return reload


async def ask(
    app: AdminApp,
    method: str,
    path: str,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    local: str | None = "127.0.0.1",
) -> Response:
    """Send a request. The application must never call ``receive``."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        pytest.fail("a body was waited for")

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
        "server": None if local is None else (local, 9464),
    }
    with anyio.fail_after(10):
        await app(scope, receive, send)
    start, body = sent
    return Response(
        start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"].decode()
    )


# --- what it tells


async def test_metrics_are_what_was_handed_in_for_what_the_scrape_accepts() -> None:
    response = await ask(app_of(), "GET", "/metrics", [("accept", "application/openmetrics-text"), ("accept", "*/*")])
    assert (200, "text/plain; version=0.0.4", "# application/openmetrics-text,*/*\n") == (
        response.status,
        response.headers["content-type"],
        response.body,
    )


async def test_a_loop_that_turns_is_alive_though_nothing_is_ready() -> None:
    response = await ask(app_of(ready=lambda: ["server db: it does not start"]), "GET", "/healthz")
    assert (200, "alive\n") == (response.status, response.body)


@pytest.mark.parametrize(
    ("missing", "status", "text", "value"),
    [
        ([], 200, "ready\n", {"ready": True, "missing": [], "unavailable": []}),
        (
            ["decision log: the disk is full", "draining"],
            503,
            "decision log: the disk is full\ndraining\n",
            {"ready": False, "missing": ["decision log: the disk is full", "draining"], "unavailable": []},
        ),
    ],
)
async def test_readiness_names_each_thing_that_is_not_ready(
    missing: list[str], status: int, text: str, value: object
) -> None:
    app = app_of(ready=lambda: missing)
    plain = await ask(app, "GET", "/readyz")
    assert (status, text, "text/plain; charset=utf-8") == (plain.status, plain.body, plain.headers["content-type"])
    program = await ask(app, "GET", "/readyz", {"accept": "application/json"})
    assert (status, value, "application/json") == (
        program.status,
        json.loads(program.body),
        program.headers["content-type"],
    )


@pytest.mark.parametrize("path", ["/", "/version"])
async def test_what_runs_is_told_as_json(path: str) -> None:
    assert {"version": "1.2.3", "policy": "aaaaaaaaaaaa", "servers": ["db"]} == json.loads(
        (await ask(app_of(), "GET", path)).body
    )


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/version", "/"])
async def test_head_is_get_without_the_body(path: str) -> None:
    got, head = await ask(app_of(), "GET", path), await ask(app_of(), "HEAD", path)
    assert (got.status, got.headers, "") == (head.status, head.headers, head.body)
    assert str(len(got.body)) == head.headers["content-length"]


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/json", True),
        ("text/html, application/json;q=0.9", True),
        ("APPLICATION/JSON; q=1", True),
        ("*/*", False),
        ("", False),
        ("application/json;q=0", False),
        ("application/json;q=no", False),
        ("text/plain, application/json;q=0.5", False),
        ("text/plain;q=0.5, application/json", True),
    ],
)
async def test_json_is_for_who_asks_for_it(accept: str, wanted: bool) -> None:
    response = await ask(app_of(), "GET", "/healthz", {"accept": accept})
    assert ("application/json" if wanted else "text/plain; charset=utf-8") == response.headers["content-type"]


async def test_nothing_is_kept_by_caches() -> None:
    assert "no-store" == (await ask(app_of(), "GET", "/readyz")).headers["cache-control"]


# --- what it refuses


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/metrics", "GET, HEAD"),
        ("OPTIONS", "/readyz", "GET, HEAD"),
        ("GET", "/reload", "POST"),
        ("HEAD", "/reload", "POST"),
        ("PUT", "/reload", "POST"),
    ],
)
async def test_another_method_is_told_which_there_is(method: str, path: str, allow: str) -> None:
    response = await ask(app_of(), method, path, BEARER)
    assert (405, allow) == (response.status, response.headers["allow"])


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/servers/db/mcp", "//reload", "/reload/../metrics"])
async def test_what_is_not_here_is_not_found(path: str) -> None:
    response = await ask(app_of(), "GET", path)
    assert (404, "not found; available paths: /, /healthz, /metrics, /readyz, /reload, /status, /version\n") == (
        response.status,
        response.body,
    )


@pytest.mark.parametrize("length", [str(MAX_BODY + 1), "9" * 30, "-1", "1e9", "²"])
async def test_a_body_that_is_large_or_has_no_length_is_refused_unread(length: str) -> None:
    assert 413 == (await ask(app_of(), "POST", "/reload", {**BEARER, "content-length": length})).status


@pytest.mark.parametrize("body", [{"content-length": "2"}, {"transfer-encoding": "chunked"}])
async def test_a_small_body_is_not_read_and_its_connection_is_not_used_again(body: dict[str, str]) -> None:
    response = await ask(app_of(), "POST", "/reload", {**BEARER, **body})
    assert (200, "close") == (response.status, response.headers["connection"])


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:9464",
        "LOCALHOST.:80",
        "127.0.0.1:9464",
        "[::1]:9464",
        "[::1]",
        "10.0.0.7",
        "gate.internal:1",
    ],
)
async def test_a_listener_on_loopback_is_called_by_an_address_or_a_name_of_its_own(host: str) -> None:
    assert 200 == (await ask(app_of(hosts=["gate.internal"]), "GET", "/metrics", {"host": host})).status


@pytest.mark.parametrize("local", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[evil]",
        "[::1].evil.example",
    ],
)
async def test_a_web_page_whose_name_was_made_to_lead_here_gets_nothing(host: str, local: str) -> None:
    for method, path in (("GET", "/metrics"), ("POST", "/reload"), ("GET", "/nothing")):
        assert 403 == (await ask(app_of(), method, path, {"host": host, **BEARER}, local)).status


async def test_two_hosts_are_none() -> None:
    assert 403 == (await ask(app_of(), "GET", "/metrics", [("host", "localhost"), ("host", "localhost")])).status


@pytest.mark.parametrize("local", ["10.0.0.7", "2001:db8::1", None])
async def test_a_listener_for_other_machines_has_whatever_name_they_know(local: str | None) -> None:
    assert 200 == (await ask(app_of(), "GET", "/metrics", {"host": "samplegate:9464"}, local)).status


async def test_a_client_without_a_host_is_no_browser() -> None:
    assert 200 == (await ask(app_of(), "GET", "/metrics")).status


async def test_a_fault_is_logged_whole_and_told_by_a_fixed_sentence() -> None:
    log = Events()

    async def metrics(accept: str) -> tuple[bytes, str]:
        raise KeyError("a secret")

    response = await ask(app_of(metrics=metrics, log=log), "GET", "/metrics")
    assert (500, "/metrics: internal error in the gate; see the log\n") == (response.status, response.body)
    assert [("admin.failed", {"path": "/metrics", "exc_info": True})] == log.seen


async def test_a_line_stays_one_line_and_there_are_not_too_many() -> None:
    response = await ask(app_of(ready=lambda: ["a\nb\x1b[2J\u202e\ud800", "x" * 9999, *["y"] * 500]), "GET", "/readyz")
    found = response.body.splitlines()
    assert [r"a\nb\x1b[2J\u202e\ud800", "x" * 1999 + "…"] == found[:2]
    assert (201, "and 302 more") == (len(found), found[-1])


# --- status


@pytest.mark.parametrize(
    ("token", "headers", "local", "status", "says"),
    [
        (None, {}, "127.0.0.1", 200, "serve 1.2.3: ready"),
        (b"", {}, "::1", 200, "serve 1.2.3: ready"),
        (
            None,
            {},
            "10.0.0.7",
            403,
            "status: no token is configured; set admin_token_file, or send the request to a loopback",
        ),
        (None, BEARER, "2001:db8::1", 403, "status: no token is configured"),
        (None, {}, None, 403, "status: no token is configured"),
        (TOKEN, {}, "127.0.0.1", 401, "status: no token; send"),
        (TOKEN, {"authorization": "Bearer x"}, "10.0.0.7", 401, "status: wrong token; send"),
        (TOKEN, BEARER, "10.0.0.7", 200, "serve 1.2.3: ready"),
        (TOKEN, BEARER, "127.0.0.1", 200, "serve 1.2.3: ready"),
    ],
)
async def test_the_status_is_for_operators(
    token: bytes | None, headers: dict[str, str], local: str | None, status: int, says: str
) -> None:
    response = await ask(app_of(token=token), "GET", "/status", headers, local)
    assert status == response.status
    assert response.body.startswith(says)
    assert (status == 401) == ("www-authenticate" in response.headers)


async def test_a_web_page_gets_no_status_and_no_answer_lets_others_read_it() -> None:
    app = app_of(token=None)
    assert 403 == (await ask(app, "GET", "/status", {"host": "evil.example"})).status
    response = await ask(app, "GET", "/status", {"origin": "https://evil.example"})
    assert [] == [name for name in response.headers if name.startswith("access-control")]


async def test_the_status_is_json_for_programs() -> None:
    response = await ask(app_of(token=None), "GET", "/status", {"accept": "application/json"})
    assert ("application/json", STATUS) == (response.headers["content-type"], read_gate(response.body.encode()))


# --- reload


async def test_without_a_token_in_the_settings_nobody_reloads() -> None:
    for headers in ({}, BEARER, {"authorization": "Bearer "}):
        for token in (None, b""):
            response = await ask(app_of(token=token), "POST", "/reload", headers)
            assert (
                403,
                "reload: no token is configured; set admin_token_file, or send SIGHUP to the process\n",
            ) == (
                response.status,
                response.body,
            )


@pytest.mark.parametrize(
    ("authorization", "why"),
    [
        ([], "no token"),
        (["Basic " + TOKEN.decode()], "no token"),
        (["Bearer"], "no token"),
        ([TOKEN.decode()], "no token"),
        (["Bearer " + TOKEN.decode()] * 2, "no token"),
        (["Bearer another"], "wrong token"),
        (["Bearer " + TOKEN.decode() + "x"], "wrong token"),
        (["Bearer ÿ"], "wrong token"),
    ],
)
async def test_a_wrong_token_sets_nothing_off(authorization: list[str], why: str) -> None:
    async def reload() -> ReloadReport:
        pytest.fail("it was reloaded")

    log = Events()
    response = await ask(
        app_of(reload=reload, log=log), "POST", "/reload", [("authorization", value) for value in authorization]
    )
    assert (401, 'Bearer realm="samplegate admin"') == (response.status, response.headers["www-authenticate"])
    assert response.body.startswith(f"reload: {why}; send")
    assert TOKEN.decode() not in response.body + str(log.seen)
    assert [("admin.refused", {"path": "/reload", "status": 401})] == log.seen


@pytest.mark.parametrize("authorization", ["Bearer ", "bearer ", "BEARER   "])
async def test_the_right_token_does(authorization: str) -> None:
    response = await ask(app_of(), "POST", "/reload", {"authorization": authorization + TOKEN.decode()})
    assert (200, "unchanged\n") == (response.status, response.body)


async def test_a_reload_says_what_changed() -> None:
    report = ReloadReport(
        "bbbbbbbbbbbb",
        "aaaaaaaaaaaa",
        added=("docs", "lint"),
        changed=("db",),
        removed=("old",),
        settings=("log_level",),
        restart=("listen",),
        warnings=("w",),
    )
    response = await ask(app_of(reload=answering(report)), "POST", "/reload", BEARER)
    assert [
        "changed",
        "policy aaaaaaaaaaaa -> bbbbbbbbbbbb",
        "servers added: docs, lint",
        "servers changed: db",
        "servers removed: old",
        "settings changed: log_level",
        "need a restart to take effect: listen",
        "warning: w",
    ] == response.body.splitlines()
    assert 200 == response.status


async def test_a_refused_reload_names_every_problem_and_what_stays_in_force() -> None:
    report = ReloadReport("aaaaaaaaaaaa", "aaaaaaaaaaaa", problems=PROBLEMS)
    app = app_of(reload=answering(report))
    plain = await ask(app, "POST", "/reload", BEARER)
    assert (422, ["refused: nothing changed; policy aaaaaaaaaaaa stays in force", *PROBLEMS]) == (
        plain.status,
        plain.body.splitlines(),
    )
    program = await ask(app, "POST", "/reload", {**BEARER, "accept": "application/json"})
    found = json.loads(program.body)
    assert (422, "refused", list(PROBLEMS), "aaaaaaaaaaaa") == (
        program.status,
        found["result"],
        found["problems"],
        found["policy"],
    )


async def test_where_there_can_be_no_reload_now_it_is_said() -> None:
    async def reload() -> ReloadReport:
        raise Unavailable("reload: the gate is draining; start it again instead")

    response = await ask(app_of(reload=reload), "POST", "/reload", BEARER)
    assert (503, "reload: the gate is draining; start it again instead\n") == (response.status, response.body)


async def test_those_who_ask_together_share_a_reload_and_the_others_are_answered_meanwhile() -> None:
    begun, started, go = 0, asyncio.Event(), asyncio.Event()

    async def reload() -> ReloadReport:
        nonlocal begun
        begun += 1
        started.set()
        await go.wait()
        return UNCHANGED

    app = app_of(reload=SingleFlight(reload))
    with anyio.fail_after(10):
        waiting = [asyncio.ensure_future(ask(app, "POST", "/reload", BEARER)) for _ in range(5)]
        await started.wait()
        assert 200 == (await ask(app, "GET", "/healthz")).status
        go.set()
        assert [200] * 5 == [response.status for response in await asyncio.gather(*waiting)]
    assert 1 == begun


@pytest.mark.parametrize(
    ("report", "result"),
    [
        (UNCHANGED, "unchanged"),
        (ReloadReport("b", "a"), "changed"),
        (ReloadReport("a", "a", removed=("x",)), "changed"),
        (ReloadReport("a", "a", restart=("listen",), warnings=("w",)), "unchanged"),
        (ReloadReport("a", "a", problems=("p",)), "refused"),
    ],
)
async def test_a_report_is_counted_as_one_of_three(report: ReloadReport, result: str) -> None:
    assert result == report.result


# --- as a program of ASGI


async def test_over_a_real_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(app_of(), lifespan="off", access_log=False, log_config=None, server_header=False)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listener])
            found = await anyio.to_thread.run_sync(_real, port)
            server.should_exit = True
    assert [
        (200, "alive\n"),
        (200, ""),
        (405, "/reload: method not allowed; use POST\n"),
        (200, "unchanged\n"),
        (413, found[4][1]),
        (403, found[5][1]),
    ] == found


def _real(port: int) -> list[tuple[int, str]]:
    asked: list[tuple[str, str, bytes | None, dict[str, str]]] = [
        ("GET", "/healthz", None, {}),
        ("HEAD", "/readyz", None, {}),
        ("GET", "/reload", None, {}),
        ("POST", "/reload", b"{}", BEARER),
        ("POST", "/reload", b"x" * (MAX_BODY + 1), BEARER),
        ("GET", "/metrics", None, {"Host": "evil.example"}),
    ]
    found = []
    for method, path, body, headers in asked:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        found.append((response.status, response.read().decode()))
        connection.close()
    return found
