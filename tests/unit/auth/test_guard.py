"""The guard of the public listener: which requests get through, as which caller, and the response to the others."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any

import httpx2
import pytest
from mcp.client.auth import utils as sdk

from samplegate.auth.guard import LOG_INTERVAL
from samplegate.auth.jwt import GRACE
from samplegate.auth.tokens import allowed
from samplegate.config.identities import CallerSettings, JwtSettings, Token
from samplegate.config.servers import ServerSettings
from samplegate.telemetry.metrics import Metrics
from tests.fakes.guarded import HOST, GuardedApp
from tests.fakes.issuer import Endpoint, key_set, mint, public

pytestmark = pytest.mark.anyio

CI, OPS = "c" * 40, "o" * 40
STATIC = CallerSettings(
    tokens=tuple(Token(name, hashlib.sha256(text.encode()).hexdigest()) for name, text in (("ci", CI), ("ops", OPS)))
)
GATE = "https://gate.example.com"


def jwt_callers(endpoint: Endpoint, **more: Any) -> CallerSettings:
    settings = JwtSettings("https://login.example.com", jwks_url=f"{endpoint.url}/keys", **more)
    return CallerSettings(tokens=STATIC.tokens, jwt=settings, resource=GATE)


async def test_without_tokens_in_the_settings_whoever_reaches_us_is_local() -> None:
    answer = await GuardedApp().ask()
    assert (200, "local") == (answer.status, answer.caller)


async def test_a_token_says_who_calls_and_goes_no_further() -> None:
    guarded = GuardedApp(STATIC)
    answer = await guarded.ask([HOST, (b"accept", b"*/*"), (b"proxy-authorization", b"Basic x")], token=CI)
    assert (200, "ci") == (answer.status, answer.caller)
    assert answer.scope is not None
    assert [HOST, (b"accept", b"*/*")] == answer.scope["headers"]
    assert CI not in repr(answer.scope)


@pytest.mark.parametrize("callers", [None, STATIC], ids=["open", "tokens"])
@pytest.mark.parametrize("path", ["/servers/docs/mcp", "/servers/none/mcp"])
@pytest.mark.parametrize("name", [b"authorization", b"proxy-authorization"])
@pytest.mark.parametrize("value", [f"Bearer {CI}".encode(), b"Basic dTpw", b"Bearer not@a@token", b""])
async def test_what_a_caller_shows_goes_no_further_whatever_it_is_and_whether_it_is_wanted(
    callers: CallerSettings | None, path: str, name: bytes, value: bytes
) -> None:
    guarded = GuardedApp(callers)
    token = CI if name != b"authorization" and callers is not None else None
    for _ in range(2):  # the second time, the Host is cached
        await guarded.ask([HOST, (name, value), (b"accept", b"*/*")], token=token, path=path)
    for scope in guarded.scopes:
        assert [HOST, (b"accept", b"*/*")] == scope["headers"]
        assert CI not in repr(scope)


async def test_that_one_host_was_let_in_lets_no_other_in() -> None:
    guarded, page = GuardedApp(), (b"origin", b"http://localhost")
    statuses = [
        (await guarded.ask([host, *more])).status
        for host in (HOST, HOST, (b"host", b"evil.example.com"))
        for more in ([], [page])
    ]
    assert [200, 200, 200, 200, 421, 421] == statuses
    assert [403, 200] == [
        (await guarded.ask([HOST, (b"origin", origin)])).status for origin in (b"http://evil.example.com", page[1])
    ]


async def test_each_caller_is_who_its_own_request_says_it_is() -> None:
    guarded = GuardedApp(STATIC)
    asked = [await guarded.ask(token=token) for token in (CI, OPS, None, CI)]
    assert ["ci", "ops", None, "ci"] == [answer.caller for answer in asked]


@pytest.mark.parametrize("token", [None, "x" * 40, CI[:-1], CI.upper(), hashlib.sha256(CI.encode()).hexdigest()])
async def test_without_a_good_token_nothing_comes_through(token: str | None) -> None:
    guarded = GuardedApp(STATIC)
    answer = await guarded.ask(token=token)
    assert (401, None) == (answer.status, answer.scope)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert [{"server": "docs", "reason": "auth"}] == guarded.refusals()


@pytest.mark.parametrize(
    "headers",
    [
        [HOST, (b"authorization", f"Bearer {CI}".encode()), (b"authorization", f"Bearer {OPS}".encode())],
        [HOST, (b"authorization", f"Bearer {CI}".encode()), (b"authorization", f"Bearer {CI}".encode())],
        [HOST, HOST],
        [HOST, (b"host", b"evil.example.com")],
        [HOST, (b"origin", b"http://localhost"), (b"origin", b"http://evil.example.com")],
    ],
    ids=lambda headers: headers[-1][1].decode(),
)
async def test_a_header_with_two_readings_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    guarded = GuardedApp(STATIC)
    answer = await guarded.ask(headers)
    assert (400, None) == (answer.status, answer.scope)
    assert [{"server": "docs", "reason": "headers"}] == guarded.refusals()


@pytest.mark.parametrize(
    "value", [b"Basic " + CI.encode(), CI.encode(), b"Bearer " + b"a" * 100_000, b"Bearer \xff", b"Bearer"]
)
async def test_what_is_no_bearer_token_is_none(value: bytes) -> None:
    answer = await GuardedApp(STATIC).ask([HOST, (b"authorization", value)])
    assert (401, None) == (answer.status, answer.scope)


@pytest.mark.parametrize(
    ("header", "status", "reason"),
    [
        ((b"host", b"evil.example.com"), 421, "host"),
        ((b"host", b"127.0.0.1.evil.example.com:8080"), 421, "host"),
        ((b"origin", b"http://evil.example.com"), 403, "origin"),
        ((b"origin", b"null"), 403, "origin"),
    ],
)
@pytest.mark.parametrize("callers", [None, STATIC], ids=["open", "tokens"])
@pytest.mark.parametrize("path", ["/servers/docs/mcp", "/.well-known/oauth-protected-resource"])
async def test_a_forged_host_or_origin_is_refused_before_anything_else(
    header: tuple[bytes, bytes], status: int, reason: str, callers: CallerSettings | None, path: str
) -> None:
    guarded = GuardedApp(callers)
    answer = await guarded.ask([header] if header[0] == b"host" else [HOST, header], token=CI, path=path)
    assert (status, None) == (answer.status, answer.scope)
    assert [reason] == [refusal["reason"] for refusal in guarded.refusals()]


async def test_a_path_without_a_server_comes_through_for_nobody() -> None:
    for path in (
        "/",
        "/servers/none/mcp",
        "/servers/docs/mcp/",
        "/servers/docs/../db/mcp",
        "//servers/docs/mcp",
        "/mcp",
    ):
        answer = await GuardedApp().ask(path=path)
        assert (404, None) == (answer.status, answer.scope)
        assert 401 == (await GuardedApp(STATIC).ask(path=path)).status


async def test_a_server_takes_only_the_callers_that_it_names() -> None:
    guarded = GuardedApp(STATIC)
    assert 200 == (await guarded.ask(token=OPS, path="/servers/db/mcp")).status
    refused = await guarded.ask(token=CI, path="/servers/db/mcp")
    assert (403, None) == (refused.status, refused.scope)
    assert "db" in refused.json["error_description"]
    assert 403 == (await GuardedApp().ask(path="/servers/db/mcp")).status


@pytest.mark.parametrize(
    ("names", "caller", "expected"),
    [
        (None, "anybody", True),
        ((), "anybody", False),
        (("ops",), "ops", True),
        (("ops",), "Ops", False),
        (("ci-*",), "ci-7", True),
        (("ci-*",), "jwt:ci-7", False),
        (("jwt:*@example.com",), "jwt:a@example.com", True),
        (("jwt:*@example.com",), "jwt:a@example.com.evil", False),
    ],
)
def test_names_and_globs_say_who_may_use_a_server(names: tuple[str, ...] | None, caller: str, expected: bool) -> None:
    assert expected is allowed(ServerSettings(name="s", command="x", callers=names), caller)


async def test_a_jwt_says_who_calls() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded = GuardedApp(jwt_callers(endpoint))
        for _ in range(3):
            assert "jwt:alice" == (await guarded.ask(token=mint(aud=GATE))).caller
        assert "ci" == (await guarded.ask(token=CI)).caller
        assert ["/keys"] == endpoint.asked


async def test_no_subject_of_an_issuer_can_be_a_static_tokens_name() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded = GuardedApp(jwt_callers(endpoint))
        guarded.servers["db"] = ServerSettings(name="db", command="x", callers=("ops", "local"))
        for name in ("ops", "local"):
            assert 403 == (await guarded.ask(token=mint(aud=GATE, sub=name), path="/servers/db/mcp")).status


async def test_a_token_for_one_server_is_none_for_another() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded = GuardedApp(jwt_callers(endpoint))
        token = mint(aud=f"{GATE}/servers/docs/mcp")
        assert 200 == (await guarded.ask(token=token)).status
        refused = await guarded.ask(token=token, path="/servers/db/mcp")
        assert (401, None) == (refused.status, refused.scope)
        assert 401 == (await guarded.ask(token=mint(aud="https://other.example.com"))).status
        assert 200 == (await guarded.ask(token=mint(aud=f"{GATE}/"))).status


async def test_a_client_without_a_token_is_led_to_the_issuer() -> None:
    async with Endpoint().serving() as endpoint:
        guarded = GuardedApp(jwt_callers(endpoint, scopes=("mcp", "tools")))
        answer = await guarded.ask()
        wanted = (
            'Bearer scope="mcp tools",'
            f' resource_metadata="{GATE}/.well-known/oauth-protected-resource/servers/docs/mcp"'
        )
        assert (401, wanted) == (answer.status, answer.headers["www-authenticate"])
        metadata = await guarded.ask(path="/.well-known/oauth-protected-resource/servers/docs/mcp", method="GET")
        assert 200 == metadata.status
        expected = {
            "resource": f"{GATE}/servers/docs/mcp",
            "authorization_servers": ["https://login.example.com"],
            "scopes_supported": ["mcp", "tools"],
            "bearer_methods_supported": ["header"],
        }
        assert expected == metadata.json
        assert GATE == (await guarded.ask(path="/.well-known/oauth-protected-resource", method="GET")).json["resource"]
        assert (
            401
            == (await guarded.ask(path="/.well-known/oauth-protected-resource/servers/none/mcp", method="GET")).status
        )
        assert 401 == (await guarded.ask(path="/.well-known/openid-configuration", method="GET")).status


async def test_a_client_of_the_sdk_finds_its_way_to_the_issuer() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded = GuardedApp(jwt_callers(endpoint, scopes=("mcp",)))
        for token in (None, "x" * 40, mint("stranger")):
            told = await guarded.ask(token=token)
            refusal = httpx2.Response(told.status, headers=told.headers)
            where = sdk.extract_resource_metadata_from_www_auth(refusal) or ""
            assert "mcp" == sdk.extract_scope_from_www_auth(refusal)
            answer = await guarded.ask(path=where.removeprefix(GATE), method="GET")
            found = await sdk.handle_protected_resource_response(httpx2.Response(answer.status, content=answer.body))
            assert found is not None
            assert (f"{GATE}/servers/docs/mcp", ["https://login.example.com"]) == (
                str(found.resource),
                [str(url) for url in found.authorization_servers],
            )


async def test_a_daemon_below_a_path_names_its_resources_with_it() -> None:
    async with Endpoint().serving() as endpoint:
        callers = jwt_callers(endpoint)
        guarded = GuardedApp(CallerSettings((), None, callers.jwt, f"{GATE}/gate"))
        where = re.findall(
            r'resource_metadata="https://gate.example.com(.*?)"', (await guarded.ask()).headers["www-authenticate"]
        )
        assert ["/.well-known/oauth-protected-resource/gate/servers/docs/mcp"] == where
        assert f"{GATE}/gate/servers/docs/mcp" == (await guarded.ask(path=where[0], method="GET")).json["resource"]


async def test_without_an_issuer_there_is_no_metadata() -> None:
    guarded = GuardedApp(CallerSettings(STATIC.tokens, None, None, GATE))
    assert "Bearer" == (await guarded.ask()).headers["www-authenticate"]
    assert 401 == (await guarded.ask(path="/.well-known/oauth-protected-resource", method="GET")).status


async def test_a_token_without_a_scope_is_told_which_it_needs() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded = GuardedApp(jwt_callers(endpoint, scopes=("mcp",)))
        answer = await guarded.ask(token=mint(aud=GATE, scope="other"))
        assert (403, None) == (answer.status, answer.scope)
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
        assert 'scope="mcp"' in answer.headers["www-authenticate"]
        assert 200 == (await guarded.ask(token=mint(aud=GATE, scope="other mcp"))).status
        assert 200 == (await guarded.ask(token=CI)).status


async def test_an_expired_token_is_refused_also_when_it_was_good_before() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        wall = time.time()
        guarded = GuardedApp(jwt_callers(endpoint, leeway=0))
        token = mint(aud=GATE, exp=int(wall) + 30)
        assert 200 == (await guarded.ask(token=token)).status
        refused = await guarded.ask(token=mint(aud=GATE, exp=int(wall) - 1))
        assert (401, None) == (refused.status, refused.scope)
        assert "expired" in refused.headers["www-authenticate"]


async def test_while_the_issuer_is_silent_known_keys_hold_and_static_tokens_always_do() -> None:
    async with Endpoint().serving() as endpoint:
        now = [0.0]
        guarded = GuardedApp(jwt_callers(endpoint), clock=lambda: now[0])
        refused = await guarded.ask(token=mint(aud=GATE))
        assert (503, None, "10") == (refused.status, refused.scope, refused.headers["retry-after"])
        assert 200 == (await guarded.ask(token=CI)).status
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        now[0] += 60
        assert 200 == (await guarded.ask(token=mint(aud=GATE))).status
        endpoint.answers["/keys"] = 500, b""
        now[0] += GRACE - 1
        assert 200 == (await guarded.ask(token=mint(aud=GATE, sub="bob"))).status
        now[0] += 1
        await guarded.guard.aclose()
        assert 503 == (await guarded.ask(token=mint(aud=GATE, sub="carol"))).status
        results = [
            labels["result"]
            for name, labels in guarded.journal.counted
            if name == "samplegate_issuer_key_fetches_total"
        ]
        assert ["failed", "ok"] == results[:2]


async def test_only_who_has_no_other_callers_is_unready_without_an_issuer() -> None:
    async with Endpoint().serving() as endpoint:
        both = GuardedApp(jwt_callers(endpoint))
        alone = GuardedApp(CallerSettings((), None, jwt_callers(endpoint).jwt, GATE))
        for guarded, expected in (
            (GuardedApp(), None),
            (GuardedApp(STATIC), None),
            (both, None),
            (alone, "the issuer's keys are not available"),
        ):
            await guarded.guard.warm()
            assert expected == guarded.guard.unready()
            await guarded.guard.aclose()


async def test_no_message_and_no_line_holds_what_was_sent() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded = GuardedApp(jwt_callers(endpoint))
        bad = mint("stranger", header={"kid": "k"}, sub="mallory")
        answers = [
            await guarded.ask(token=bad),
            await guarded.ask(token="s3cret" * 8),
            await guarded.ask([(b"host", b"evil.example.com")]),
        ]
        said = repr([(answer.headers, answer.body) for answer in answers]) + repr(guarded.journal.lines)
        assert not any(word in said for word in (bad, "mallory", "s3cret", "evil.example.com"))


async def test_a_flood_of_refusals_is_a_line_now_and_then_and_a_count_each_time() -> None:
    now = [0.0]
    guarded = GuardedApp(STATIC, clock=lambda: now[0])
    for _ in range(500):
        await guarded.ask()
    now[0] = LOG_INTERVAL
    await guarded.ask()
    assert 501 == len(guarded.refusals())
    assert [
        ("caller.refused", {"server": "docs", "reason": "no_token", "status": 401, "peer": "192.0.2.7"})
    ] == guarded.journal.lines[:1]
    assert [499] == [fields["more"] for _, fields in guarded.journal.lines[1:]]


async def test_what_is_counted_are_metrics_that_there_are() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded, metrics = GuardedApp(jwt_callers(endpoint)), Metrics()
        await guarded.ask(token=mint(aud=GATE), path="/servers/none/mcp")
        await guarded.ask(token="x" * 40)
        await guarded.ask([(b"host", b"a b")])
        for name, labels in guarded.journal.counted:
            metrics.count(name, **labels)
        assert ["ok", "path", "auth", "host"] == [
            labels.get("result") or labels["reason"] for _, labels in guarded.journal.counted
        ]


async def test_other_settings_hold_from_the_next_request_on_and_the_issuers_keys_stay() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        callers = jwt_callers(endpoint)
        guarded = GuardedApp(callers)
        assert 200 == (await guarded.ask(token=mint(aud=GATE))).status
        endpoint.answers["/keys"] = 500, b""
        guarded.guard.change(guarded.settings(CallerSettings(STATIC.tokens[1:], None, callers.jwt, GATE)))
        assert 200 == (await guarded.ask(token=mint(aud=GATE))).status
        assert 401 == (await guarded.ask(token=CI)).status
        assert 200 == (await guarded.ask(token=OPS)).status
        guarded.guard.change(guarded.settings(STATIC))
        assert 401 == (await guarded.ask(token=mint(aud=GATE))).status
        await guarded.guard.aclose()


async def test_a_token_of_a_key_that_is_gone_is_not_taken_after_a_change_though_it_was_a_moment_ago() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"), public("new", "ES256"))
        callers = jwt_callers(endpoint)
        guarded, token = GuardedApp(callers), mint(aud=GATE)
        assert 200 == (await guarded.ask(token=token)).status
        endpoint.answers["/keys"] = 200, key_set(public("new", "ES256"))
        guarded.guard.change(guarded.settings(callers))
        assert [401, 401, 200] == [
            (await guarded.ask(token=each)).status for each in (token, mint(aud=GATE, sub="b"), mint("new", aud=GATE))
        ]
        await guarded.guard.aclose()


async def test_settings_that_are_prepared_and_not_put_in_force_change_nothing() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        guarded = GuardedApp(jwt_callers(endpoint))
        assert 200 == (await guarded.ask(token=mint(aud=GATE))).status
        guarded.guard.prepared(guarded.settings(jwt_callers(endpoint)))
        guarded.guard.prepared(guarded.settings(STATIC))
        assert 200 == (await guarded.ask(token=mint(aud=GATE, sub="b"))).status
        assert ["/keys"] == endpoint.asked
        await guarded.guard.aclose()


async def test_pages_that_are_named_may_read_answers_and_no_others() -> None:
    page = (b"origin", b"https://app.example.com")
    guarded = GuardedApp(STATIC, allowed_origins=("https://app.example.com",))
    asked = [
        HOST,
        page,
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"authorization"),
    ]
    answer = await guarded.ask(asked, method="OPTIONS")
    assert (204, None) == (answer.status, answer.scope)
    assert ("https://app.example.com", "authorization") == tuple(
        answer.headers[f"access-control-allow-{name}"] for name in ("origin", "headers")
    )
    forged = await guarded.ask(
        [HOST, page, (b"access-control-request-headers", b"x\r\nset-cookie: a=b")], method="OPTIONS"
    )
    assert (204, None) == (forged.status, forged.headers.get("access-control-allow-headers"))
    assert (
        "https://app.example.com" == (await guarded.ask([HOST, page], token=CI)).headers["access-control-allow-origin"]
    )
    assert "WWW-Authenticate" in (await guarded.ask([HOST, page])).headers["access-control-expose-headers"]
    assert 403 == (await guarded.ask([HOST, (b"origin", b"https://evil.example.com")], method="OPTIONS")).status
    assert 401 == (await guarded.ask([HOST], method="OPTIONS")).status
    plain = await GuardedApp().ask([HOST, (b"origin", b"http://localhost:3000")])
    assert (200, {}) == (plain.status, plain.headers)


async def test_a_page_that_is_named_may_read_where_to_get_a_token() -> None:
    async with Endpoint().serving() as endpoint:
        guarded = GuardedApp(jwt_callers(endpoint), allowed_origins=("https://app.example.com",))
        answer = await guarded.ask(
            [HOST, (b"origin", b"https://app.example.com")],
            path="/.well-known/oauth-protected-resource/servers/docs/mcp",
            method="GET",
        )
        assert (200, "*") == (answer.status, answer.headers["access-control-allow-origin"])
        assert 1 == answer.names.count("access-control-allow-origin")


async def test_a_web_socket_is_closed_and_the_lifespan_goes_to_the_app() -> None:
    guarded = GuardedApp()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await guarded.guard({"type": "websocket", "headers": [], "path": "/"}, receive, send)
    assert [{"type": "websocket.close", "code": 1008}] == sent
    assert [] == guarded.scopes
    await guarded.guard({"type": "lifespan"}, receive, send)
    assert [{"type": "lifespan"}] == guarded.scopes
