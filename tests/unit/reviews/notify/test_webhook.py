from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from yarl import URL

from samplegate.reviews.notify.endpoint import networks_of
from samplegate.reviews.notify.webhook import (
    Delivered,
    DeliveryRefused,
    DeliveryResult,
    EndpointGone,
    NetworkAccess,
    RetryLater,
    VerdictReceived,
    WebhookBounds,
    WebhookMessage,
    holds_verdict,
    proxy_of,
    send,
)
from tests.fakes.webhook_endpoint import LOOPBACK, Behave, answer, connect_proxy, contexts, endpoint, ok

pytestmark = pytest.mark.anyio

NOW: Final = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
REACHABLE: Final = networks_of([LOOPBACK])
APPROVED: Final = b'{"verdict":"approve"}'


def way(**values: Any) -> NetworkAccess:
    given: dict[str, Any] = {"networks": REACHABLE, "bounds": WebhookBounds(connect=5, total=10, body=64 * 1024)}
    return NetworkAccess(**(given | values))


async def post(url: str, **values: Any) -> DeliveryResult:
    return await send(
        WebhookMessage(url, {"Content-Type": "application/json", "webhook-id": "msg_1"}, b'{"a":1}'),
        way(**values),
        now=NOW,
    )


async def said_to(says: bytes, **values: Any) -> DeliveryResult:
    async with endpoint(says) as hook:
        return await post(hook.url, **values)


async def behaving(behave: Behave, **values: Any) -> DeliveryResult:
    async with endpoint() as hook:
        hook.behave = behave
        return await post(hook.url, **values)


async def test_the_message_is_posted_as_it_is_without_cookies_or_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with endpoint(answer("204 No Content", Set_Cookie="a=b")) as hook:
        assert [Delivered("204"), Delivered("204")] == [await post(hook.url), await post(hook.url)]
    first, second = hook.seen
    assert (b'{"a":1}', "POST /hook?key=1 HTTP/1.1") == (first.body, first.head.split("\r\n")[0])
    assert ("application/json", "msg_1", "identity") == tuple(
        first.headers[name] for name in ("content-type", "webhook-id", "accept-encoding")
    )
    assert not {"cookie", "authorization"} & (first.headers.keys() | second.headers.keys())


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted"])
async def test_a_verdict_in_the_answer_is_handed_on_as_it_came(status: str) -> None:
    assert VerdictReceived(APPROVED, status[:3]) == await said_to(answer(status, APPROVED))


@pytest.mark.parametrize(
    "says",
    [
        answer("200 OK"),
        answer("202 Accepted"),
        answer("204 No Content"),
        ok(b"ok"),
        ok(b"<html><body>verdict</body></html>", Content_Type="text/html"),
        ok(b'{"ok":true}'),
        ok(b'{"verdict":null}'),
        ok(b'[{"verdict":"approve"}]'),
        ok(b"\xff\xfe"),
        ok(gzip.compress(APPROVED), Content_Encoding="gzip"),
        ok(b"x" * 70_000),
    ],
)
async def test_any_other_success_is_a_delivery(says: bytes) -> None:
    assert isinstance(await said_to(says), Delivered)


@pytest.mark.parametrize(
    ("says", "odd"),
    [
        (ok(b"<html>Sign in", Content_Type="text/html; charset=utf-8"), "text/html"),
        (ok(b"<html>Sign in"), "none"),
        (ok(b"hello", Content_Type="TEXT/Plain"), "text/plain"),
        (ok(b"hello", Content_Type="hunter2 is the word"), "not a media type"),
        (ok(b"hello", Content_Type="a/" + "b" * 4_000), "not a media type"),
        (ok(b"[" * 60_000, Content_Type="application/json"), "application/json"),
        (ok(gzip.compress(APPROVED), Content_Type="application/json", Content_Encoding="gzip"), "application/json"),
        (answer("202 Accepted", b"<html>later", Content_Type="text/html"), None),
        (answer("204 No Content"), None),
        (ok(b""), None),
        (ok(b" \r\n", Content_Type="text/html"), None),
        (ok(b"ok", Content_Type="text/html"), None),
        (ok(b'{"ok":true}', Content_Type="text/plain"), None),
        (ok(b'"fine"'), None),
    ],
)
async def test_a_success_that_may_come_from_no_receiver_is_odd(says: bytes, odd: str | None) -> None:
    found = await said_to(says)
    assert isinstance(found, Delivered)
    assert odd == found.odd


@pytest.mark.parametrize(
    "raw",
    [b'{"verdict":"approve","verdict":"reject"}', b' {"verdict": NaN}', b'{"verdict":"approve"', b'{"verdict": 1e999}'],
)
def test_what_means_to_be_a_verdict_and_has_two_readings_is_one_to_be_refused(raw: bytes) -> None:
    assert holds_verdict(raw)


@pytest.mark.parametrize(
    "status",
    ["500 Internal Server Error", "502 Bad Gateway", "503 Unavailable", "408 Timeout", "425 Early", "429 Too Many"],
)
async def test_a_peer_that_cannot_now_is_tried_again(status: str) -> None:
    assert RetryLater(status[:3]) == await said_to(answer(status, APPROVED))


@pytest.mark.parametrize(
    ("header", "after"),
    [("30", 30.0), ("Fri, 15 Jan 2027 08:01:00 GMT", 60.0), ("999999", 3600.0), ("later", None), ("-1", None)],
)
@pytest.mark.parametrize("status", ["429 Too Many", "503 Unavailable"])
async def test_retry_after_is_taken_along(status: str, header: str, after: float | None) -> None:
    assert RetryLater(status[:3], after) == await said_to(answer(status, Retry_After=header))


async def test_410_is_the_end() -> None:
    assert EndpointGone("410") == await said_to(answer("410 Gone"))


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "413 Too Large"]
)
async def test_a_peer_that_does_not_want_it_has_refused(status: str) -> None:
    assert DeliveryRefused(status[:3]) == await said_to(answer(status, APPROVED))


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_a_fault_and_is_not_followed(status: str) -> None:
    async with endpoint() as inside:
        assert DeliveryRefused(f"{status[:3]}, redirect not followed") == await said_to(
            answer(status, Location=inside.url)
        )
        assert 0 == inside.connections


async def _silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    await writer.drain()
    await reader.read()


async def _half_a_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    await writer.drain()
    await reader.read()


@pytest.mark.parametrize("behave", [_silence, _dribble, _half_a_head])
async def test_a_peer_that_is_slow_is_left_when_its_time_is_over(behave: Behave) -> None:
    assert RetryLater("timed out") == await behaving(behave, bounds=WebhookBounds(total=0.3))


async def test_a_look_up_that_hangs_is_left_too() -> None:
    async def hang(_host: str, _port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    assert RetryLater("timed out") == await post("https://hooks.example/", lookup=hang, bounds=WebhookBounds(total=0.1))


async def test_a_peer_that_never_greets_is_left_when_the_time_to_connect_is_over(tmp_path: Path) -> None:
    _, client = contexts("hooks.example", tmp_path)
    async with endpoint() as deaf:  # waits for the end of an HTTP head, which TLS never sends
        said = await post(f"https://127.0.0.1:{deaf.port}/", tls=client, bounds=WebhookBounds(connect=0.2, total=10))
    assert RetryLater("timed out") == said


async def _reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _cut_off(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + APPROVED)


async def _gibberish(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\x01 no HTTP at all\r\n\r\n")


async def _huge_head(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("behave", [_reset, _cut_off, _gibberish, _huge_head])
async def test_a_connection_that_fails_is_tried_again_without_a_word_of_the_peer_s(behave: Behave) -> None:
    said = await behaving(behave)
    assert isinstance(said, RetryLater)
    assert said.said.startswith("connection failed: ")
    assert said.said.removeprefix("connection failed: ").isidentifier()


async def test_a_refused_connection_is_tried_again() -> None:
    async with endpoint() as hook:
        pass
    assert RetryLater("connection refused") == await post(hook.url)


async def test_a_huge_body_is_not_read_to_its_end() -> None:
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    assert Delivered("200, response of more than 65536 bytes not read", odd="none") == await behaving(flood)
    assert sent < 64 * 1024 * 1024


async def test_an_https_hook_with_a_good_certificate_is_told(tmp_path: Path) -> None:
    server, client = contexts("127.0.0.1", tmp_path)
    async with endpoint(ok(APPROVED), tls=server) as hook:
        assert VerdictReceived(APPROVED, "200") == await post(hook.url, tls=client)


async def test_a_certificate_that_is_another_s_or_nobody_s_gets_nothing_to_read(tmp_path: Path) -> None:
    server, client = contexts("other.example", tmp_path)
    async with endpoint(ok(APPROVED), tls=server) as hook:
        assert [RetryLater("invalid TLS certificate")] * 2 == [
            await post(hook.url, tls=client),
            await post(hook.url),
        ]
        assert [] == hook.seen


async def test_https_to_a_plain_port_is_no_tls() -> None:
    async with endpoint(b"HTTP/1.1 200 OK\r\n\r\n") as hook:
        hook.behave = _gibberish
        said = await post(f"https://127.0.0.1:{hook.port}/", bounds=WebhookBounds(connect=0.5, total=5))
    assert isinstance(said, RetryLater)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}/", "http://localhost:{}/", "http://[::ffff:127.0.0.1]:{}/", "http://hooks.example:{}/"]
)
async def test_no_connection_is_made_to_an_address_that_is_not_listed(url: str) -> None:
    async def lookup(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with endpoint(ok(APPROVED)) as hook:
        assert isinstance(await post(url.format(hook.port), networks=(), lookup=lookup), DeliveryRefused)
        assert 0 == hook.connections


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1"])
async def test_an_odd_literal_address_leads_nowhere(host: str) -> None:
    async with endpoint(ok(APPROVED)) as hook:
        assert not isinstance(
            await post(f"http://{host}:{hook.port}/", networks=networks_of(["10.0.0.0/8"])), VerdictReceived | Delivered
        )
        assert 0 == hook.connections


async def test_a_name_that_changes_its_mind_leads_to_what_was_checked() -> None:
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]])

    async def rebinding(_host: str, _port: int) -> Sequence[str]:
        return next(answers)

    async with endpoint(ok(b"trap")) as trap, endpoint(ok(APPROVED), host="127.0.0.2", port=trap.port) as hook:
        listed = networks_of(["127.0.0.2/32"])
        assert VerdictReceived(APPROVED, "200") == await post(
            f"http://hooks.example:{trap.port}/", networks=listed, lookup=rebinding
        )
        assert isinstance(
            await post(f"http://hooks.example:{trap.port}/", networks=listed, lookup=rebinding), DeliveryRefused
        )
        assert (0, 1) == (trap.connections, hook.connections)
        assert "hooks.example" in hook.seen[0].headers["host"]


async def test_a_dead_address_of_several_does_not_keep_from_the_next() -> None:
    async def two(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with endpoint(ok(APPROVED)) as hook:
        assert VerdictReceived(APPROVED, "200") == await post(f"http://hooks.example:{hook.port}/", lookup=two)


async def test_the_socket_itself_goes_to_checked_addresses_only() -> None:
    async def another(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.2"]  # the client would connect to the literal address

    async with endpoint(ok(APPROVED)) as hook:
        assert RetryLater("connection failed: PermissionError") == await post(hook.url, lookup=another)
        assert 0 == hook.connections


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/",
        "http://user:pw@127.0.0.1/",
        "http:///x",
        "nothing",
        "https://[::1",
        "http://127.0.0.1:99999/",
        "",
    ],
)
async def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    assert DeliveryRefused("invalid URL") == await post(url)


async def test_https_goes_by_the_environment_s_proxy_and_the_certificate_still_has_to_hold(tmp_path: Path) -> None:
    server, client = contexts("hooks.example", tmp_path)
    async with endpoint(ok(APPROVED), tls=server) as hook, connect_proxy(hook.port) as proxy:
        by = {"HTTPS_PROXY": f"http://me:pw@127.0.0.1:{proxy.port}"}
        assert VerdictReceived(APPROVED, "200") == await post("https://hooks.example/x", environment=by, tls=client)
        assert RetryLater("invalid TLS certificate") == await post(
            "https://other.example/x", environment=by, tls=client
        )
    assert ["CONNECT hooks.example:443 HTTP/1.1", "CONNECT other.example:443 HTTP/1.1"] == [
        seen.head.split("\r\n")[0] for seen in proxy.seen
    ]
    assert "Basic bWU6cHc=" == proxy.seen[0].headers["proxy-authorization"]
    assert "proxy-authorization" not in hook.seen[0].headers
    assert 1 == len(hook.seen)


async def test_neither_a_proxy_inside_nor_an_address_inside_behind_it_is_gone_to() -> None:
    async with endpoint() as hook, connect_proxy(hook.port) as proxy:
        by = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}
        assert isinstance(await post("https://hooks.example/", environment=by, networks=()), DeliveryRefused)
        for host in ("169.254.169.254", "10.0.0.1", "[fd00::1]", "2852039166"):
            assert isinstance(await post(f"https://{host}/", environment=by), DeliveryRefused), host
        assert 0 == proxy.connections


async def test_plain_http_never_goes_by_a_proxy() -> None:
    async with endpoint() as hook, connect_proxy(hook.port) as proxy:
        by = {"HTTP_PROXY": f"http://127.0.0.1:{proxy.port}", "ALL_PROXY": f"http://127.0.0.1:{proxy.port}"}
        assert Delivered("204") == await post(hook.url, environment=by)
        assert 0 == proxy.connections


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q:1"}, "http://p:1"),
        ({"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ({"all_proxy": "http://p:1"}, "http://p:1"),
        ({"https_proxy": "http://p:1", "no_proxy": "*"}, None),
        ({"https_proxy": "http://p:1", "NO_PROXY": "localhost, .hooks.example"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "example"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "ooks.example"}, "http://p:1"),
    ],
)
def test_the_environment_says_which_proxy(environment: Mapping[str, str], proxy: str | None) -> None:
    assert (None if proxy is None else URL(proxy)) == proxy_of(URL("https://a.hooks.example/"), environment)


async def test_a_cancelled_try_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gone.set()

    async with endpoint() as hook:
        hook.behave = wait
        trying = asyncio.create_task(post(hook.url))
        await hook.requests(1)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
        async with asyncio.timeout(10):
            await gone.wait()


async def test_two_messages_share_no_connection() -> None:
    async with endpoint() as hook:
        await post(hook.url)
        await post(hook.url)
        assert 2 == hook.connections
