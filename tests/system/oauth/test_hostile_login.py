"""Logins at authorization servers that fail, lie or attack: the message, the file, and who is asked, in the process of
the test."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from samplegate.config.oauth import OAuthSettings
from samplegate.errors import Unavailable
from samplegate.oauth import endpoints
from tests.fakes.oauth_gate import logged_in, login_file
from tests.fakes.oauth_world import MARK, Fault, World, body, drip, huge, never, redirect

pytestmark = pytest.mark.anyio

Change: TypeAlias = "Callable[[World], object]"
EVIL: Final = "https://evil.example"
METADATA: Final = "http://169.254.169.254"
OLD: Final = "the login that was there before\n"
REMEDIES: Final = (
    "; report this to the server's operator",
    "; check the network, and try again",
    "; register a client there, and pass its ID with --client-id",
    "; log in again",
    "; run the command again",
)
REQUESTS: Final = 12  # a login makes six to eight


def edit(name: str, **members: Any) -> Change:
    """Members of a document or response: ``World.edits``."""
    return lambda world: world.edits.update({name: members})


def fault(name: str, answer: Fault) -> Change:
    return lambda world: world.faults.update({name: answer})


def world_with(**members: Any) -> Change:
    """Members of the ``World`` itself."""
    return lambda world: vars(world).update(members)


def challenges(*values: str) -> Change:
    return world_with(challenges=list(values))


def both(*changes: Change) -> Change:
    def change(world: World) -> None:
        for each in changes:
            each(world)

    return change


MASKED: Final = world_with(path="/.well-known/oauth-protected-resource")
"""An issuer whose metadata has a URL like that of resource metadata."""

REFUSED: Final[Mapping[str, tuple[Change, str]]] = {
    # what the server does: the change, and what the message says, where {issuer} and {mcp} are their origins
    "metadata is missing": (
        world_with(resource_at=(), metadata_at=()),
        "the metadata of its authorization server was not found: {mcp}/.well-known/oauth-protected-resource answered",
    ),
    "metadata of another issuer": (
        edit("metadata", issuer=EVIL),
        "{issuer} claims to be another issuer (https://evil.example, not {issuer})",
    ),
    "metadata of another path": (
        edit("metadata", issuer="http://127.0.0.1:1/other"),
        "{issuer} claims to be another issuer (http://127.0.0.1:1/other, not {issuer})",
    ),
    "metadata without issuer": (edit("metadata", issuer=None), "sent metadata without a valid issuer"),
    "metadata redirects elsewhere": (
        fault("metadata", redirect(f"{EVIL}/m")),
        "{issuer}/.well-known/oauth-authorization-server redirected elsewhere (HTTP 307)",
    ),
    "metadata redirects for ever": (
        fault("metadata", redirect("/.well-known/oauth-authorization-server")),
        "{issuer} redirected the metadata request more than 3 times",
    ),
    "metadata is HTML": (fault("metadata", body(b"<html>")), "did not answer with a JSON object"),
    "metadata is nested 100,000 times": (fault("metadata", body(b"[" * 100_000)), "did not answer with a JSON object"),
    "metadata is compressed": (
        fault("metadata", body(b"x", Content_Encoding="gzip")),
        "{issuer} sent a compressed answer to the metadata request",
    ),
    "metadata fails": (fault("metadata", body(b"", 503)), "answered with HTTP 503"),
    "metadata is 100 MB": (
        fault("metadata", huge),
        "the answer of {issuer} to the metadata request is larger than 1048576 bytes",
    ),
    "metadata never comes": (fault("metadata", never), "{issuer} did not answer the metadata request within 1 s"),
    "metadata drips": (fault("metadata", drip), "{issuer} did not answer the metadata request within 1 s"),
    "resource metadata never comes": (
        fault("resource", never),
        "{mcp} did not answer the metadata request within 1 s",
    ),
    "resource metadata is 100 MB": (
        fault("resource", huge),
        "the answer of {mcp} to the metadata request is larger than 1048576 bytes",
    ),
    "resource metadata fails": (fault("resource", body(b"", 500)), "the server's resource metadata cannot be read now"),
    "resource metadata redirects elsewhere": (
        fault("resource", redirect(EVIL)),
        "{mcp}/.well-known/oauth-protected-resource/mcp redirected elsewhere (HTTP 307)",
    ),
    "resource metadata is not JSON": (fault("resource", body(b"{")), "did not answer with a JSON object"),
    "resource metadata of another server": (
        edit("resource", resource=f"{EVIL}/mcp"),
        "the server's resource metadata is for another server",
    ),
    "resource metadata without an authorization server": (
        edit("resource", authorization_servers=[]),
        "the metadata of its authorization server was not found",
    ),
    "authorization server without TLS": (
        edit("resource", authorization_servers=["http://evil.example"]),
        "is not https: http://evil.example",
    ),
    "authorization server in a private network": (
        edit("resource", authorization_servers=[METADATA]),
        "is not https: http://169.254.169.254",
    ),
    "authorization server is a file": (
        edit("resource", authorization_servers=["file:///etc/passwd"]),
        "the metadata of its authorization server was not found",
    ),
    "authorization endpoint without TLS": (
        edit("metadata", authorization_endpoint="http://evil.example/a"),
        "the authorization_endpoint of the authorization server is not https: http://evil.example",
    ),
    "authorization endpoint is a script": (
        edit("metadata", authorization_endpoint="javascript:alert(1)"),
        "sent metadata without a valid issuer, authorization_endpoint or token_endpoint",
    ),
    "token endpoint without TLS": (
        edit("metadata", token_endpoint="http://evil.example/t"),
        "the token_endpoint of the authorization server is not https: http://evil.example",
    ),
    "token endpoint in a private network": (
        edit("metadata", token_endpoint=f"{METADATA}/t"),
        "the token_endpoint of the authorization server is not https: http://169.254.169.254",
    ),
    "token endpoint is down": (
        edit("metadata", token_endpoint="http://127.0.0.1:1/t"),
        "http://127.0.0.1:1 cannot be reached for the token request",
    ),
    "PKCE without S256": (
        edit("metadata", code_challenge_methods_supported=["plain"]),
        "{issuer} does not support PKCE with S256",
    ),
    "PKCE is not declared": (
        edit("metadata", code_challenge_methods_supported=None),
        "{issuer} does not support PKCE with S256",
    ),
    "PKCE without S256 at an issuer that looks like resource metadata": (
        both(MASKED, edit("metadata", code_challenge_methods_supported=["plain"])),
        "{issuer} does not support PKCE with S256",
    ),
    "authorization endpoint without TLS at an issuer that looks like resource metadata": (
        both(MASKED, edit("metadata", authorization_endpoint="http://evil.example/a")),
        "the authorization_endpoint of the authorization server is not https: http://evil.example",
    ),
    "no registration": (
        world_with(registers=False),
        "{issuer} does not register clients by itself; register a client there, and pass its ID with --client-id",
    ),
    "registration without TLS": (
        edit("metadata", registration_endpoint="http://evil.example/r"),
        "is not https: http://evil.example",
    ),
    "registration is refused": (
        fault("register", body(b'{"error": "invalid_client_metadata", "error_description": "no\\u001b[2J"}', 400)),
        r"{issuer} refused the client registration: invalid_client_metadata (no\x1b[2J)",
    ),
    "registration is not JSON": (fault("register", body(b"{", 201)), "sent an invalid registration"),
    "registration without an ID": (edit("register", client_id=None), "sent an invalid registration"),
    "registration with an unknown method": (
        edit("register", token_endpoint_auth_method="tls_client_auth"),
        "registered the gate with a method of authentication that it cannot use",
    ),
    "registration with a method without its secret": (
        edit("register", token_endpoint_auth_method="client_secret_basic"),
        "registered the gate with a method of authentication that it cannot use",
    ),
    "registration of another redirect URI": (
        edit("register", redirect_uris=[f"{EVIL}/callback"]),
        "{issuer} registered the gate with another redirect URI",
    ),
    "the user refuses": (
        edit("redirect", code=None, error="access_denied", error_description="no\x1b[2J\u202e" + "x" * 5_000),
        r"the authorization server refused the login: access_denied (no\x1b[2J\u202exxx",
    ),
    "answer without a code": (edit("redirect", code=None), "sent the browser back without a code"),
    "answer of another issuer": (edit("redirect", iss=EVIL), "came from another authorization server (iss)"),
    "answer without its issuer": (edit("redirect", iss=None), "does not name its authorization server (iss)"),
    "answer to another login": (
        edit("redirect", state="another"),
        "the login timed out after 1s (ignored 1 answer to another login); run",
    ),
    "token request redirects elsewhere": (
        fault("token", redirect(EVIL, 307)),
        "{issuer} redirected the token request elsewhere (HTTP 307), which the gate does not follow",
    ),
    "token request is refused": (
        fault("token", body(b'{"error": "invalid_grant", "error_description": "expired"}', 400)),
        "{issuer} refused the token request: invalid_grant (expired)",
    ),
    "token request never ends": (fault("token", never), "{issuer} did not answer the token request within 1 s"),
    "token answer is 100 MB": (
        fault("token", huge),
        "the answer of {issuer} to the token request is larger than 1048576 bytes",
    ),
    "token answer is HTML": (
        fault("token", body(b"<html>" + MARK.encode())),
        "the answer of {issuer} to the token request is not a JSON object",
    ),
    "token error is HTML": (
        fault("token", body(b"<html>" + MARK.encode(), 500)),
        "{issuer} answered the token request with HTTP 500",
    ),
    "token error is not text": (fault("token", body(b"\xff\xfe", 400)), "{issuer} answered the token request with"),
    "no token": (edit("token", access_token=None), "has no valid access_token"),
    "token with a line break": (edit("token", access_token=f"{MARK}\r\nX-Evil: 1"), "has no valid access_token"),
    "token that is not ASCII": (edit("token", access_token=f"{MARK}é"), "has no valid access_token"),
    "token that is no text": (edit("token", access_token={"a": 1}), "has no valid access_token"),
    "token of 100 kB": (edit("token", access_token=MARK + "x" * 100_000), "has no valid access_token"),
    "refresh token with a line break": (edit("token", refresh_token=f"{MARK}\n"), "has an invalid refresh_token"),
    "token of another type": (edit("token", token_type="DPoP"), "{issuer} issued a token of another type than Bearer"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_login_fails_with_its_reason_and_the_old_login_stays(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = REFUSED[case]
    monkeypatch.setattr(endpoints, "TIME", 1.0 if "did not answer" in said and "within 1 s" in said else 20.0)
    file = login_file(tmp_path)
    file.parent.mkdir()
    file.write_text(OLD)
    async with World().serving() as world:
        change(world)
        with pytest.raises(Unavailable) as problem:
            await logged_in(world, tmp_path, waits=1.0 if "timed out" in said else 20.0)
    message = str(problem.value)
    assert said.format(issuer=world.origin, mcp=world.mcp_origin) in message
    assert message.startswith("login docs: ")
    assert any(remedy in message for remedy in REMEDIES)
    assert MARK not in message
    assert len(message) < 1_200
    assert message.isprintable()
    assert OLD == file.read_text()
    assert ["docs.json"] == [path.name for path in file.parent.iterdir() if path.suffix != ".lock"]
    assert len(world.seen) <= REQUESTS
    assert world.streamed < 20_000_000  # what the kernel's and the server's buffers hold


def redirected_once(world: World) -> None:
    """The first request for the resource's metadata is redirected within its origin."""

    async def answer(_world: World, request: Any) -> Any:
        del world.faults["resource"]
        return await redirect(f"{world.mcp_origin}/.well-known/oauth-protected-resource", 302)(world, request)

    world.faults["resource"] = answer


TOLERATED: Final[Mapping[str, Change]] = {
    "challenge is missing": challenges(),
    "challenge is broken": challenges('Bearer scope="a', 'Basic realm="x', "Bearer =,=,,", 'Bearer scope="b \\"c"'),
    "challenge is huge": challenges("Bearer " + ", ".join(f'a{number}="{"x" * 90}"' for number in range(60))),
    "resource metadata in a file": challenges('Bearer resource_metadata="file:///etc/passwd"'),
    "resource metadata in a private network": challenges(f'Bearer resource_metadata="{METADATA}/latest"'),
    "token without a type": edit("token", token_type=None),
    "token without a lifetime": edit("token", expires_in=None),
    "lifetime is no number": edit("token", expires_in="soon"),
    "lifetime is negative": edit("token", expires_in=-5),
    "lifetime is huge": edit("token", expires_in=10**30),
    "scope is no text": edit("token", scope={"a": 1}),
    "no refresh token": edit("token", refresh_token=None),
    "unknown members": edit("metadata", jwks_uri={"a": [1]}, **{"x" * 1_000: "y"}),
    "redirect within the origin": redirected_once,
}


@pytest.mark.parametrize("case", TOLERATED)
async def test_what_is_odd_but_harmless_does_not_prevent_a_login(case: str, tmp_path: Path) -> None:
    async with World(resource_at=("/mcp", "")).serving() as world:
        TOLERATED[case](world)
        login = await logged_in(world, tmp_path)
        assert login.access_token in world.access
    assert 0o600 == login_file(tmp_path).stat().st_mode & 0o777


async def test_an_authorization_endpoint_keeps_its_query_but_cannot_choose_the_state(tmp_path: Path) -> None:
    async with World().serving() as world:
        world.edits["metadata"] = {"authorization_endpoint": f"{world.origin}/authorize?policy=sign-in"}
        login = await logged_in(world, tmp_path)
        [asked] = world.of("authorize")
        assert (True, "sign-in") == (login.access_token in world.access, asked.given["policy"])
        world.edits["metadata"] = {"authorization_endpoint": f"{world.origin}/authorize?state=chosen"}
        with pytest.raises(Unavailable, match="ignored 1 answer to another login"):
            await logged_in(world, tmp_path, waits=1.0)


async def test_metadata_that_a_challenge_names_at_another_origin_is_not_fetched(tmp_path: Path) -> None:
    async with World().serving() as world, World().serving() as other:
        world.challenges = [f'Bearer resource_metadata="{other.resource_metadata_url}", scope="all"']
        login = await logged_in(world, tmp_path)
    assert (world.issuer, "all") == (login.issuer, login.scope)
    assert [] == other.seen


async def test_a_login_at_another_issuer_than_the_configured_one_sends_it_no_secret(tmp_path: Path) -> None:
    """The MCP server decides which authorization server is asked, but not which one gets a secret."""
    secret = tmp_path / "secret"
    secret.write_text(f"{MARK}configured")
    async with World().serving() as world:
        settings = OAuthSettings(client_id="known", client_secret_file=secret, issuer=EVIL)
        with pytest.raises(Unavailable) as problem:
            await logged_in(world, tmp_path, settings)
        assert re.search(r"is registered at\s+https://evil.example, so no secret was sent", str(problem.value))
        assert [] == [*world.of("token"), *world.of("register"), *world.of("authorize")]
