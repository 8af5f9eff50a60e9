"""Fetching an issuer's keys over real HTTP on this machine."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from samplegate.auth.jwt import MAX_BYTES, metadata_urls, source_of
from samplegate.config.identities import JwtSettings
from samplegate.errors import Unavailable
from tests.fakes.issuer import Endpoint, key_set, public

pytestmark = pytest.mark.anyio

KEYS = key_set(public("k", "ES256"))
OPENID, OAUTH = "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"


async def why_not(settings: JwtSettings, *, seconds: float = 5.0) -> str:
    with pytest.raises(Unavailable) as problem:
        await source_of(settings, seconds=seconds)()
    return str(problem.value)


async def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(KEYS)
    settings = JwtSettings("https://x", jwks_file=file)
    assert 1 == len(await source_of(settings)())
    file.write_text("<html>")
    assert "keys.json: not a JSON Web Key Set" in await why_not(settings)
    file.unlink()
    assert "keys.json: cannot be read: No such file or directory" in await why_not(settings)


async def test_keys_are_fetched_from_a_url() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, KEYS
        settings = JwtSettings("https://x", jwks_url=f"{endpoint.url}/keys")
        assert 1 == len(await source_of(settings)())
        assert ["/keys"] == endpoint.asked


@pytest.mark.parametrize("place", [OPENID, OAUTH])
async def test_the_issuers_metadata_says_where_its_keys_are(place: str) -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, KEYS
        endpoint.answers[place] = 200, json.dumps({"issuer": endpoint.url, "jwks_uri": f"{endpoint.url}/keys"}).encode()
        assert 1 == len(await source_of(JwtSettings(endpoint.url))())


def test_an_issuer_with_a_path_has_its_metadata_where_the_standards_say() -> None:
    assert (
        "https://x/t/.well-known/openid-configuration",
        "https://x/.well-known/oauth-authorization-server/t",
    ) == metadata_urls("https://x/t/")


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"issuer": "https://evil.example.com", "jwks_uri": "https://evil.example.com/keys"}, "names another issuer"),
        ({"issuer": "SELF"}, "lacks issuer or jwks_uri"),
        ({"issuer": "SELF", "jwks_uri": "file:///etc/passwd"}, "is not an http or https URL"),
        ({"issuer": "SELF", "jwks_uri": "http://203.0.113.1/keys"}, "is plain http to another machine"),
        ([], "lacks issuer or jwks_uri"),
    ],
)
async def test_metadata_that_leads_astray_is_not_followed(metadata: object, why: str) -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers[OPENID] = 200, json.dumps(metadata).replace("SELF", endpoint.url).encode()
        assert why in await why_not(JwtSettings(endpoint.url))


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, b"", "answered HTTP 404"),
        (500, b"", "answered HTTP 500"),
        (302, b"", "answered HTTP 302"),
        (200, b"<html>", "not a JSON Web Key Set"),
        (200, b" " * (MAX_BYTES + 1), "its response is larger than"),
    ],
)
async def test_an_answer_that_is_no_key_set_is_told(status: int, body: bytes, why: str) -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = status, body
        endpoint.headers = {"Location": f"{endpoint.url}/other"}
        endpoint.answers["/other"] = 200, KEYS
        assert why in await why_not(JwtSettings("https://x", jwks_url=f"{endpoint.url}/keys?token=secret"))
        assert ["/keys"] == endpoint.asked


async def test_a_small_answer_that_unpacks_to_a_huge_one_is_cut_off() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, gzip.compress(b" " * 50_000_000)
        endpoint.headers = {"Content-Encoding": "gzip"}
        assert "its response is larger than" in await why_not(JwtSettings("https://x", jwks_url=f"{endpoint.url}/keys"))


async def test_nobody_at_the_other_end_is_told() -> None:
    async with Endpoint().serving() as endpoint:
        url = endpoint.url
    assert "the request failed" in await why_not(JwtSettings("https://x", jwks_url=f"{url}/keys?token=secret"))


async def test_an_issuer_that_never_answers_is_given_up() -> None:
    heard: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: heard.append(writer), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert "did not answer in time" in await why_not(
            JwtSettings("https://x", jwks_url=f"http://127.0.0.1:{port}/keys?token=x"), seconds=0.2
        )
        for writer in heard:
            writer.close()


async def test_no_message_holds_a_query() -> None:
    settings = JwtSettings("https://x", jwks_url="http://127.0.0.1:1/keys?token=secret")
    assert "secret" not in await why_not(settings)
    assert "secret" not in await why_not(replace(settings, jwks_url="http://127.0.0.1:1/?secret"))
