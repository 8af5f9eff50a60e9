"""Requests to authorization servers: which URLs are allowed, which redirects are followed, and what an error tells."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from samplegate.oauth.endpoints import Endpoints, OAuthFault, same_origin

pytestmark = pytest.mark.anyio

SERVER = "https://mcp.example.com/mcp"
LOGIN = "https://login.example.com"


def endpoints(
    handler: Callable[[httpx2.Request], httpx2.Response], server: str = SERVER, *, terminal: bool = False
) -> Endpoints:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    return Endpoints(server, http, shows_descriptions=terminal)


def answer(status: int, body: bytes = b"", **headers: str) -> httpx2.Response:
    """A response whose body is still to be read, as from a connection."""
    return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(body))


def no(_request: httpx2.Request) -> httpx2.Response:
    raise AssertionError("nothing is sent")


@pytest.mark.parametrize(
    ("server", "url", "why"),
    [
        (SERVER, f"{LOGIN}/token?x=1", None),
        (SERVER, "http://login.example.com/token", "is not https"),
        (SERVER, "http://127.0.0.1:8080/token", "is on this machine, but the server is not"),
        (SERVER, "http://localhost/token", "is on this machine, but the server is not"),
        (SERVER, "http://169.254.169.254/latest", "is not https"),
        (SERVER, "file:///etc/passwd", "is not an http or https URL with a host"),
        (SERVER, "https://user:pass@login.example.com/token", "contains a user name or a password"),
        (SERVER, f"{LOGIN}/#x", "contains a fragment"),
        (SERVER, f"{LOGIN}/\n", "is not a valid URL"),
        ("http://localhost:1/mcp", "http://127.0.0.1:8080/token", None),
        ("http://127.0.0.1:1/mcp", "http://login.example.com/token", "is not https"),
    ],
)
def test_which_urls_are_allowed(server: str, url: str, why: str | None) -> None:
    found = endpoints(no, server).url_fault(url)
    assert found is None if why is None else found is not None and why in found


async def test_a_redirect_within_the_origin_is_followed_and_keeps_a_post() -> None:
    seen: list[tuple[str, str, bytes]] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.method, request.url.path, request.content))
        return answer(307, Location="/b") if request.url.path == "/a" else answer(200)

    found = await endpoints(handler).send(httpx2.Request("POST", f"{LOGIN}/a", data={"code": "c"}), "token request")
    assert 200 == found.status_code
    assert [("POST", "/a", b"code=c"), ("POST", "/b", b"code=c")] == seen


@pytest.mark.parametrize(
    ("method", "status", "location"),
    [
        ("GET", 302, "https://evil.example.com/"),
        ("GET", 302, "http://login.example.com/"),
        ("GET", 302, "https://login.example.com:8443/"),
        ("GET", 302, "//evil.example.com/"),
        ("GET", 302, "https://[/"),
        ("POST", 302, "/b"),
        ("POST", 303, "/b"),
    ],
)
async def test_other_redirects_are_returned_as_they_are(method: str, status: int, location: str) -> None:
    sent: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(str(request.url))
        return answer(status, Location=location)

    found = endpoints(handler)
    response = await found.send(httpx2.Request(method, f"{LOGIN}/a"), "token request")
    assert (status, [f"{LOGIN}/a"]) == (response.status_code, sent)
    fault = found.refusal(response, "token request").reason
    assert fault == f"{LOGIN} redirected the token request elsewhere (HTTP {status}), which the gate does not follow"


async def test_redirects_in_a_circle_end() -> None:
    found = endpoints(lambda _request: answer(307, Location="/a"))
    with pytest.raises(OAuthFault, match="redirected the token request more than 3 times"):
        await found.send(httpx2.Request("POST", f"{LOGIN}/a"), "token request")


async def test_nothing_is_sent_to_a_url_that_is_not_allowed() -> None:
    with pytest.raises(OAuthFault, match="the token request of the authorization server is not https: http://x"):
        await endpoints(no).send(httpx2.Request("POST", "http://x/token"), "token request")


async def test_a_refusal_has_the_code_and_at_a_terminal_the_description() -> None:
    body = b'{"error": "invalid_client", "error_description": "no\\u001b[2J"}'

    def handler(_request: httpx2.Request) -> httpx2.Response:
        return answer(401, body)

    for terminal, text in ((False, ""), (True, r" (no\x1b[2J)")):
        found = endpoints(handler, terminal=terminal)
        response = await found.send(httpx2.Request("POST", f"{LOGIN}/token"), "token request")
        fault = found.refusal(response, "token request")
        assert (f"{LOGIN} refused the token request: invalid_client{text}", "invalid_client") == (
            fault.reason,
            fault.code,
        )


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": "a b\\n"}', b'{"error": 5}', b"[" * 10_000, b"\xff"])
async def test_a_refusal_without_a_valid_code_has_the_status(body: bytes) -> None:
    found = endpoints(lambda _request: answer(503, body))
    response = await found.send(httpx2.Request("POST", f"{LOGIN}/token"), "token request")
    fault = found.refusal(response, "token request")
    assert (f"{LOGIN} answered the token request with HTTP 503", True) == (fault.reason, fault.transient)


def test_origins_are_compared_with_their_default_ports() -> None:
    assert same_origin("https://a.example/x", "https://A.example:443/y")
    assert not same_origin("https://a.example/", "http://a.example/")
    assert not same_origin("https://a.example/", "https://a.example:8443/")
