"""The relay reads a server's own UI for a round: bounded, cancelled with the round, and seen by the server only."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.outcomes import Reason, Unanswered
from samplegate.protocol.rounds import Conclusion, Release, Round, Settled
from samplegate.runtime.relay import READ_TIMEOUT
from tests.fakes.bridged import cancel
from tests.fakes.dialogue import error, form, request, result
from tests.fakes.virtual_time import VIRTUAL
from tests.unit.runtime.test_relay import ConnectedRelay

pytestmark = pytest.mark.anyio
URI = "ui://deployer/picker"
PUSH = request(7, "elicitation/create", **form(), ui={"uri": URI})
CONTENT = {"uri": URI, "mimeType": "text/html;profile=mcp-app", "text": "<p>"}


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


class Reading(ConnectedRelay):
    """A relay whose round reads a UI, as often as ``times`` says, at the same time."""

    def __init__(self, times: int = 1) -> None:
        super().__init__(self.round)
        self.times = times
        self.read: list[bytes | str] = []
        self.ended = 0

    async def round(self, round: Round) -> Conclusion:
        try:
            async with anyio.create_task_group() as group:
                for _ in range(self.times):
                    group.start_soon(self._read, round)
        finally:
            self.ended += 1
            self._change()
        return Settled({key: Release(Unanswered(Reason.TIMEOUT), "d") for key in round.items})

    async def _read(self, round: Round) -> None:
        try:
            self.read.append((await self.relay.read_ui(round.id, URI, ())).body)
        except Unavailable as problem:
            self.read.append(str(problem))

    async def asked(self) -> list[Any]:
        """The server asks, and gets the requests of the gate."""
        self.says("server", PUSH)
        await self.until(lambda: len(self.server.sent) >= self.times)
        return self.server.frames[: self.times]

    async def over(self) -> None:
        await self.until(lambda: self.ended)

    @property
    def cancelled(self) -> list[Any]:
        """The ids of the requests that were cancelled at the server."""
        sent = self.server.frames
        return [line["params"]["requestId"] for line in sent if line.get("method") == "notifications/cancelled"]

    def is_clean(self) -> bool:
        """Whether no read is left, and neither the client nor the log was told anything."""
        return not (self.session.state.inflight.asked or self.client.sent or self.notes)


async def test_the_round_gets_the_html_and_the_client_sees_nothing() -> None:
    relay = Reading()

    async def conversation() -> None:
        (read,) = await relay.asked()
        assert ("resources/read", {"uri": URI}) == (read["method"], read["params"])
        relay.says("server", result(read["id"], contents=[CONTENT]))
        await relay.over()

    await relay.run(conversation)
    assert [b"<p>"] == relay.read
    assert [] == relay.cancelled
    assert relay.is_clean()


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({"error": {"code": -32002, "message": "secret"}}, "the server answered with error -32002"),
        ({"result": {"contents": []}}, "the result has 0 contents, not one"),
        ({"result": {"contents": [{**CONTENT, "mimeType": "text/html"}]}}, "the content's MIME type is not"),
        ({"result": {"contents": [CONTENT], "resultType": "input_required"}}, "the result asks for input"),
    ],
)
async def test_the_round_gets_a_reason_without_content(answer: dict[str, Any], wanted: str) -> None:
    relay = Reading()

    async def conversation() -> None:
        (read,) = await relay.asked()
        relay.says("server", {"jsonrpc": "2.0", "id": read["id"], **answer})
        await relay.over()

    await relay.run(conversation)
    (why,) = relay.read
    assert isinstance(why, str)
    assert why.startswith(wanted)
    assert "secret" not in why
    assert relay.is_clean()


async def test_a_server_that_does_not_answer_is_waited_for_ten_seconds() -> None:
    relay = Reading()

    async def conversation() -> None:
        began = anyio.current_time()
        (read,) = await relay.asked()
        await relay.over()
        assert READ_TIMEOUT == pytest.approx(anyio.current_time() - began)
        assert [read["id"]] == relay.cancelled
        relay.says("server", result(read["id"], contents=[CONTENT]))  # too late
        assert relay.is_clean()

    await relay.run(conversation)
    assert 10.0 == READ_TIMEOUT
    assert ["the server did not answer within 10 s"] == relay.read


async def test_a_round_that_is_withdrawn_while_it_reads_leaves_nothing_behind() -> None:
    relay = Reading(times=2)

    async def conversation() -> None:
        first, second = await relay.asked()
        relay.says("server", cancel(7))
        await relay.over()
        assert {first["id"], second["id"]} == set(relay.cancelled)
        relay.says("server", result(first["id"], contents=[CONTENT]))
        relay.says("server", error(second["id"], -32800))
        assert relay.is_clean()

    await relay.run(conversation)
    assert [] == relay.read


async def test_two_reads_of_a_round_get_their_own_answers() -> None:
    relay = Reading(times=2)

    async def conversation() -> None:
        first, second = await relay.asked()
        relay.says("server", result(second["id"], contents=[{**CONTENT, "text": "<b>"}]))
        await relay.until(lambda: not relay.server.frames[2:])
        relay.says("server", result(first["id"], contents=[{**CONTENT, "text": "<a>"}]))
        await relay.over()

    await relay.run(conversation)
    assert {b"<a>", b"<b>"} == set(relay.read)
    assert relay.is_clean()


async def test_the_end_of_the_server_ends_the_read() -> None:
    relay = Reading()
    began: list[float] = []

    async def conversation() -> None:
        await relay.asked()
        began.append(anyio.current_time())
        relay.relay.ended("server")
        await relay.over()
        assert began == [anyio.current_time()]

    await relay.run(conversation)
    assert [] == relay.cancelled


async def test_a_round_that_has_ended_reads_nothing() -> None:
    relay = Reading()

    async def conversation() -> None:
        with pytest.raises(Unavailable, match="the request has ended"):
            await relay.relay.read_ui("t-99", URI, ())

    await relay.run(conversation)
    assert [] == relay.server.sent
    assert relay.is_clean()
