"""Tokens that are renewed while a gate runs: at the real authorization server of the tests, in the process of the
test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from samplegate.config.oauth import OAuthSettings
from samplegate.oauth import credentials, endpoints
from tests.fakes.oauth_gate import gate_link, logged_in, login_file
from tests.fakes.oauth_world import MARK, Fault, Seen, World, body, drip, huge, never, redirect

pytestmark = pytest.mark.anyio

DID: Final = {"content": [{"type": "text", "text": "did work"}]}


def stored(state: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(login_file(state).read_text())
    return found


def refreshes(world: World) -> list[Seen]:
    return world.of("token", grant_type="refresh_token")


async def test_an_invalid_token_is_refreshed_once_for_all_requests_of_a_gate(tmp_path: Path) -> None:
    async with World().serving() as world:
        await logged_in(world, tmp_path)
        async with gate_link(world, tmp_path) as gate:
            assert await gate.ask() == DID
            for expiry in range(1, 4):
                world.expire_tokens()
                assert [DID] * 20 == await asyncio.gather(*(gate.ask() for _ in range(20)))
                assert expiry == len(refreshes(world))
        [refresh] = {seen.given["client_id"] for seen in refreshes(world)}
        assert world.clients[refresh].id == stored(tmp_path)["client_id"]
        assert {world.url} == {seen.given["resource"] for seen in refreshes(world)}
        assert 0 == world.reuses


async def test_gates_with_one_state_folder_share_each_refresh(tmp_path: Path) -> None:
    """A spent refresh token would end the login of all."""
    async with World().serving() as world:
        await logged_in(world, tmp_path)
        async with (
            gate_link(world, tmp_path) as a,
            gate_link(world, tmp_path) as b,
            gate_link(world, tmp_path) as c,
        ):
            for expiry in range(1, 6):
                world.expire_tokens()
                assert [DID] * 9 == await asyncio.gather(*(gate.ask() for gate in (a, b, c) for _ in range(3)))
                assert expiry == len(refreshes(world))
        assert 0 == world.reuses
        assert stored(tmp_path)["access_token"] in world.access


async def test_a_token_is_renewed_before_its_expiry(tmp_path: Path) -> None:
    async with World().serving() as world:
        login = await logged_in(world, tmp_path)
        late = {**stored(tmp_path), "obtained_at": login.obtained_at - 3_600, "expires_at": login.obtained_at + 25}
        login_file(tmp_path).write_text(json.dumps(late))
        async with gate_link(world, tmp_path) as gate:
            assert [DID] * 5 == await asyncio.gather(*(gate.ask() for _ in range(5)))
        assert 1 == len(refreshes(world))
        assert f"Bearer {login.access_token}" not in {seen.headers.get("Authorization") for seen in world.of("mcp")}


async def test_a_refresh_token_that_is_not_replaced_is_kept(tmp_path: Path) -> None:
    async with World(rotates=False).serving() as world:
        login = await logged_in(world, tmp_path)
        async with gate_link(world, tmp_path) as gate:
            for _ in range(3):
                world.expire_tokens()
                assert await gate.ask() == DID
    assert stored(tmp_path)["refresh_token"] == login.refresh_token


async def test_a_token_that_is_never_accepted_ends_each_request_after_one_refresh(tmp_path: Path) -> None:
    async with World(lifetime=-1.0).serving() as world:
        await logged_in(world, tmp_path)
        async with gate_link(world, tmp_path) as gate:
            before = len(world.seen)
            for _ in range(3):
                assert "HTTP 401" in (await gate.ask())["message"]
        assert len(world.seen) - before <= 3 * 4
        assert len(refreshes(world)) <= 3


async def test_a_server_that_accepts_no_token_does_not_cost_a_refresh_for_each_request(tmp_path: Path) -> None:
    async with World(lifetime=-1.0).serving() as world:
        await logged_in(world, tmp_path)
        async with gate_link(world, tmp_path) as gate:
            answers = [(await gate.ask())["message"] for _ in range(20)]
        assert len(refreshes(world)) == credentials.MAX_REJECTED
    assert all("HTTP 401" in answer for answer in answers)
    assert "it has refused 6 tokens within 60 s, so no more are requested now" in answers[-1]


async def test_a_request_that_is_always_forbidden_ends_at_once(tmp_path: Path) -> None:
    async with World(scopes={"tools/call admin": "admin"}).serving() as world:
        await logged_in(world, tmp_path)
        async with gate_link(world, tmp_path) as gate:
            before = len(world.seen)
            answer = await gate.ask(name="admin")
            assert DID == await gate.ask()
        assert "this request needs the scope 'admin'" in answer["message"]
        assert f"samplegate login docs --url {world.url} --scope admin --state {tmp_path}" in answer["message"]
        assert len(world.seen) - before <= 3


async def test_a_new_login_is_used_by_a_gate_that_runs(tmp_path: Path) -> None:
    async with World(scopes={"tools/call admin": "admin"}).serving() as world, gate_link(world, tmp_path) as gate:
        assert "it requires a login; run: samplegate login docs --url" in (await gate.ask())["message"]
        await logged_in(world, tmp_path)
        assert DID == await gate.ask()
        assert "needs the scope 'admin'" in (await gate.ask(name="admin"))["message"]
        await logged_in(world, tmp_path, OAuthSettings(scope="admin"))
        assert "content" in await gate.ask(name="admin")


FAULTS: Final[Mapping[str, tuple[Fault | Mapping[str, Any], str, bool]]] = {
    # the token endpoint's answer to a refresh; what the message says; whether only a new login helps
    "refused": (
        body(b'{"error": "invalid_grant", "error_description": "tst-secret-"}', 400),
        "its login has expired or was revoked (invalid_grant)",
        True,
    ),
    "HTML": (body(b"<html>tst-secret-", 200), "to the token request is not a JSON object", True),
    "error in HTML": (
        body(b"<html>tst-secret-", 502),
        "answered the token request with HTTP 502; try again later",
        False,
    ),
    "busy": (body(b"", 429), "answered the token request with HTTP 429; try again later", False),
    "elsewhere": (redirect("https://evil.example/t"), "redirected the token request elsewhere (HTTP 307)", True),
    "100 MB": (huge, "to the token request is larger than 1048576 bytes", True),
    "no answer": (never, "did not answer the token request within 1 s; try again later", False),
    "a drip": (drip, "did not answer the token request within 1 s; try again later", False),
    "another type": ({"token_type": "mac"}, "issued a token of another type than Bearer", True),
    "a line break": ({"access_token": f"{MARK}\r\nX-Evil: 1"}, "has no valid access_token", True),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_a_refresh_that_fails_keeps_the_login_and_says_what_to_do(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, said, login_helps = FAULTS[case]
    monkeypatch.setattr(endpoints, "TIME", 1.0 if "1 s" in said else 20.0)
    monkeypatch.setattr(credentials, "PAUSE", 0.0)
    async with World(rotates=False).serving() as world:
        await logged_in(world, tmp_path)
        before = login_file(tmp_path).read_bytes()
        async with gate_link(world, tmp_path) as gate:
            world.expire_tokens()
            if isinstance(answer, Mapping):
                world.edits["token"] = dict(answer)
            else:
                world.faults["token"] = answer
            message = (await gate.ask())["message"]
            assert said in message
            assert login_helps == (f"samplegate login docs --url {world.url}" in message)
            assert MARK not in message + repr(gate.log.lines)
            assert before == login_file(tmp_path).read_bytes()
            world.faults.clear()
            world.edits.clear()
            assert DID == await gate.ask()
    assert world.streamed < 20_000_000


async def test_an_authorization_server_that_is_down_is_not_asked_for_each_request(tmp_path: Path) -> None:
    async with World().serving() as world:
        await logged_in(world, tmp_path)
        async with gate_link(world, tmp_path) as gate:
            world.faults["token"] = body(b"", 503)
            world.expire_tokens()
            answers = await asyncio.gather(*(gate.ask() for _ in range(10)))
            answers += [await gate.ask()]
        assert all("HTTP 503; try again later" in answer["message"] for answer in answers)
        assert 1 == len(refreshes(world))
        assert ["oauth.renewal_failed"] == [event for event, _ in gate.log.lines]


async def test_a_token_never_follows_a_redirect_to_another_origin(tmp_path: Path) -> None:
    async with World().serving() as world, World().serving() as other:
        await logged_in(world, tmp_path)
        async with gate_link(world, tmp_path) as gate:
            assert DID == await gate.ask()
            world.faults["mcp"] = redirect(other.url)
            assert "message" in await gate.ask()
        assert not any(MARK in repr(seen.headers) for seen in other.seen)


async def test_a_login_is_used_for_its_own_url_only(tmp_path: Path) -> None:
    async with World().serving() as world, World().serving() as other:
        await logged_in(world, tmp_path)
        async with gate_link(other, tmp_path) as gate:
            assert "its login is for another URL; run: samplegate login docs" in (await gate.ask())["message"]
        assert not any(MARK in repr(seen.headers) for seen in other.seen)


# --- client credentials


def headless(world: World, folder: Path, method: str, **settings: Any) -> OAuthSettings:
    """A client that is registered with this method, and the gate's settings for it."""
    if method == "private_key_jwt":
        private = ec.generate_private_key(ec.SECP256R1())
        key = folder / "key.pem"
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        world.register("ci", method=method, key=private.public_key())
        settings = {"private_key_file": key, **settings}
    else:
        world.register("ci", method=method, secret=f"{MARK}of the client: &+%")
        settings = {"client_secret": f"{MARK}of the client: &+%", "auth_method": method, **settings}
    return OAuthSettings(grant="client_credentials", client_id="ci", issuer=world.issuer, **settings)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "private_key_jwt"])
async def test_client_credentials_need_no_login(method: str, tmp_path: Path) -> None:
    async with World().serving() as world:
        async with gate_link(world, tmp_path, headless(world, tmp_path, method)) as gate:
            assert [DID] * 5 == await asyncio.gather(*(gate.ask() for _ in range(5)))
            world.expire_tokens()
            assert [DID] * 5 == await asyncio.gather(*(gate.ask() for _ in range(5)))
        assert 2 == len(world.of("token", grant_type="client_credentials"))
        assert {world.url} == {seen.given["resource"] for seen in world.of("token")}
        assert [] == [*world.of("authorize"), *world.of("register")]
        if method == "private_key_jwt":
            [first, second] = [seen.given["client_assertion"] for seen in world.of("token")]
            claims = jwt.decode(first, options={"verify_signature": False})
            assert claims["exp"] - claims["iat"] <= 600
            assert first != second


async def test_client_credentials_step_up_to_the_scopes_that_a_request_needs(tmp_path: Path) -> None:
    async with World(scopes={"tools/call work": "basic", "tools/call admin": "admin"}).serving() as world:
        async with gate_link(world, tmp_path, headless(world, tmp_path, "client_secret_basic")) as gate:
            assert DID == await gate.ask()
            assert "content" in await gate.ask(name="admin")
            assert DID == await gate.ask()
        assert ["basic", {"basic", "admin"}] == [
            world.of("token")[0].given["scope"],
            set(world.of("token")[1].given["scope"].split()),
        ]
        assert 2 == len(world.of("token"))


async def test_a_secret_is_sent_in_the_body_where_the_server_takes_it_only_there(tmp_path: Path) -> None:
    async with World().serving() as world:
        settings = msgspec.structs.replace(
            headless(world, tmp_path, "client_secret_post"), auth_method="client_secret_basic"
        )
        world.edits["metadata"] = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        async with gate_link(world, tmp_path, settings) as gate:
            assert DID == await gate.ask()


async def test_client_credentials_without_the_right_to_a_scope_end_with_an_error(tmp_path: Path) -> None:
    async with World().serving() as world:
        world.edits["token"] = {"scope": "basic"}
        world.faults["mcp"] = body(b"{}", 403, WWW_Authenticate='Bearer error="insufficient_scope", scope="admin"')
        async with gate_link(world, tmp_path, headless(world, tmp_path, "client_secret_post")) as gate:
            assert "HTTP 403" in (await gate.ask(name="admin"))["message"]
        assert (2, 1) == (len(world.of("mcp")), len(world.of("token")))


async def test_client_credentials_go_to_the_configured_issuer_only(tmp_path: Path) -> None:
    async with World().serving() as world, World().serving() as other:
        world.edits["resource"] = {"authorization_servers": [other.issuer]}
        async with gate_link(world, tmp_path, headless(world, tmp_path, "client_secret_basic")) as gate:
            message = (await gate.ask())["message"]
        assert f"is registered at {world.issuer}, so no secret was sent" in message
        assert [] == other.of("token")
        assert MARK not in repr(other.seen)
