"""Credentials that change: headers of every request, one repetition after 401 and 403, and errors with the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from samplegate.errors import Unavailable
from tests.fakes.scripted_http_server import REVISION, Asked, connected_server

pytestmark = pytest.mark.anyio


@dataclass
class Numbered:
    """Credentials with a new token for each renewal, up to ``most``."""

    most: int = 1
    number: int = 0
    fails: str = ""
    seen: list[tuple[int, list[str], str]] = field(default_factory=list)

    async def headers(self) -> Mapping[str, str]:
        if self.fails == "headers":
            raise Unavailable("it has no login; run: samplegate login docs")
        return {"Authorization": f"Bearer {self.number}"}

    async def renew(self, status: int, challenges: Sequence[str], sent: Mapping[str, str]) -> bool:
        self.seen.append((status, list(challenges), sent["Authorization"]))
        if self.fails == "renew":
            raise Unavailable("it needs a login; run: samplegate login docs")
        if self.number >= self.most:
            return False
        self.number += 1
        return True

    async def settle(self) -> None:
        """Nothing is renewed in the background."""


def only_for(number: int, status: int = 401) -> object:
    """A handler that accepts one token."""

    async def handler(asked: Asked) -> None:
        if asked.header("Authorization") == f"Bearer {number}":
            await asked.result({"did": asked.method})
        else:
            await asked.answer(status, b"secret text of the server", "text/plain", WWW_Authenticate='Bearer scope="a"')

    return handler


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_request_is_repeated_once_with_new_headers(era: str, status: int) -> None:
    credentials = Numbered()
    async with connected_server(credentials=credentials) as w:
        w.server.on["POST prompts/get"] = only_for(1, status)  # type: ignore[assignment]
        w.modern(7, "prompts/get", name="p") if era == "modern" else w.request(7, "prompts/get", name="p")
        assert {"did": "prompts/get"} == (await w.heard.of(7))[0]["result"]
        first, second = w.server.of("POST prompts/get")
        assert first.body == second.body
        assert [(status, ['Bearer scope="a"'], "Bearer 0")] == credentials.seen


async def test_a_second_refusal_is_the_answer() -> None:
    async with connected_server(credentials=Numbered(most=9)) as w:
        w.server.on["POST prompts/get"] = only_for(99)  # type: ignore[assignment]
        w.request(7, "prompts/get")
        error = (await w.heard.of(7))[0]["error"]
        assert "HTTP 401: it rejected the gate's credentials" in error["message"]
        assert 2 == len(w.server.of("POST prompts/get"))


async def test_without_new_headers_the_refusal_is_the_answer() -> None:
    async with connected_server(credentials=Numbered(most=0)) as w:
        w.server.on["POST prompts/get"] = only_for(99, 403)  # type: ignore[assignment]
        w.request(7, "prompts/get")
        assert "HTTP 403: it denied the gate access" in (await w.heard.of(7))[0]["error"]["message"]
        assert 1 == len(w.server.of("POST prompts/get"))


@pytest.mark.parametrize(
    ("fails", "message", "data"),
    [
        ("headers", "it has no login; run: samplegate login docs", {"transport": "credentials"}),
        ("renew", "HTTP 401: it needs a login; run: samplegate login docs", {"httpStatus": 401}),
    ],
)
async def test_the_error_has_the_remedy(fails: str, message: str, data: dict[str, object]) -> None:
    async with connected_server(credentials=Numbered(fails=fails)) as w:
        w.server.on["POST prompts/get"] = only_for(99)  # type: ignore[assignment]
        w.request(7, "prompts/get")
        error = (await w.heard.of(7))[0]["error"]
        assert (f"the request to the remote server failed: {message}", data) == (error["message"], error["data"])


async def test_streams_and_the_end_of_a_session_have_the_headers() -> None:
    async with connected_server(credentials=Numbered()) as w:
        await w.begin()
        await w.server.until(1, "GET")
        await w.remote.aclose()
        await w.server.until(1, "DELETE")
        assert {"Bearer 0"} == {asked.header("Authorization") for asked in w.server.asked}
        assert [REVISION] == [asked.header("Mcp-Protocol-Version") for asked in w.server.of("DELETE")]


async def test_the_headers_do_not_follow_a_redirect_to_another_origin() -> None:
    async def elsewhere(asked: Asked) -> None:
        await asked.answer(307, Location=f"http://127.0.0.1:{w.server.port + 1}/mcp")

    async with connected_server(credentials=Numbered()) as w:
        w.server.on["POST prompts/get"] = elsewhere
        w.request(7, "prompts/get")
        assert "it redirected to another origin" in (await w.heard.of(7))[0]["error"]["message"]
