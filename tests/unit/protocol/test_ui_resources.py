"""The gate's own ``resources/read`` of a server's UI: on the wire in both eras and through both bridges, and the HTML
in its result."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import rawjson
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import (
    Close,
    Effect,
    Note,
    Open,
    Over,
    ResourceRead,
    Round,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.protocol.session_state import ENTRY, MAX_CALL_BYTES
from samplegate.protocol.ui_resources import MAX_CONTENTS, MAX_READS, MAX_RESULT, MAX_UI, UiResource, ui_in
from tests.fakes.bridged import Bridge, cancel
from tests.fakes.dialogue import (
    CAPABILITIES,
    FORWARD,
    Dialogue,
    ask,
    error,
    form,
    modern,
    one,
    request,
    result,
    to_client,
    to_server,
)
from tests.fakes.streams import CLIENT, Streams, asks, bridge, notes
from tests.fakes.task_dialogue import TaskDialogue, task
from tests.unit.protocol.test_session_fuzz import PIECES

URI = "ui://deployer/picker"
MIME = "text/html;profile=mcp-app"
HTML = "<!doctype html><title>ä</title>"
VERSION = "io.modelcontextprotocol/protocolVersion"
UI = {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME], "elicitation": {}}}
CLIENTS: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "extensions": UI}
NAMED = form() | {"_meta": {"ui": {"resourceUri": URI}}}
READ: dict[str, Any] = {"uri": URI}


def content(**more: Any) -> dict[str, Any]:
    return {"uri": URI, "mimeType": MIME, "text": HTML, **more}


class Asked:
    """A conversation in which the server has asked with a form, and the gate reads its UI."""

    def __init__(self, d: Any, opened: list[Effect]) -> None:
        self.d = d
        self.round: Round = one(opened, Open).round

    def read(self, token: str = "r1", round: str | None = None) -> list[Effect]:
        return list(self.d.take(self.d.session.read_resource(token, round or self.round.id, URI, self.d.now)))

    def line(self, token: str = "r1") -> dict[str, Any]:
        """Begin a read, and return the server's line."""
        (seen,) = to_server(self.read(token))
        frame: dict[str, Any] = seen
        return frame

    def stop(self, token: str = "r1") -> list[Effect]:
        return list(self.d.take(self.d.session.stop_reading(token)))

    def server(self, line: Any) -> list[Effect]:
        return list(self.d.server(line))

    @property
    def inflight(self) -> Any:
        return self.d.session.state.inflight if hasattr(self.d.session, "state") else self.d.state.inflight


def legacy(**more: Any) -> Asked:
    d = Dialogue(FORWARD)
    d.open_legacy(**CLIENTS)
    for name, value in more.items():
        setattr(d.session.state, name, value)
    d.client(request(1, "tools/call", name="x"))
    return Asked(d, d.server(request(7, "elicitation/create", **NAMED)))


def modern_(**more: Any) -> Asked:
    d = Dialogue(FORWARD)
    for name, value in more.items():
        setattr(d.session.state, name, value)
    call = modern(1, "tools/call", CLIENTS, name="x", arguments={"a": 1})
    call["params"]["_meta"] |= {"progressToken": "p", "vendor/x": 1.5, CLIENT: {"name": "c", "version": "1"}}
    (sent,) = to_server(d.client(call))
    return Asked(d, d.server(result(sent["id"], resultType="input_required", inputRequests={"k": ask(NAMED)})))


def task_() -> Asked:
    d = TaskDialogue(FORWARD)
    declared = {**CLIENTS, "extensions": {**UI, "io.modelcontextprotocol/tasks": {}}}
    d.client(modern(1, "tools/call", declared, name="x", arguments={"n": 1}))
    d.server(result(1, **task("task-1", "working", resultType="task")))
    return Asked(d, d.poll(asks={"k": ask(NAMED)}, capabilities=declared))


def legacy_client() -> Asked:
    d = Bridge(FORWARD)
    d.open(CLIENTS)
    return Asked(d, d.asks(d.call()["id"], {"k": ask(NAMED)}, requestState="s"))


def modern_client() -> Asked:
    d = bridge(FORWARD)
    d.client(1, asks(1, "tools/call", name="x"))
    return Asked(d, d.server(request(7, "elicitation/create", **NAMED)))


WAYS: list[Callable[..., Asked]] = [legacy, modern_, task_, legacy_client, modern_client]
MODERN: list[Callable[..., Asked]] = [modern_, task_, legacy_client]
ways = pytest.mark.parametrize("way", WAYS)


def answered(effects: list[Effect]) -> tuple[str, Any, str]:
    """The only effect is the answer to a read: its token, result and fault."""
    (read,) = effects
    assert isinstance(read, ResourceRead)
    return read.token, None if read.result is None else json.loads(bytes(read.result.text)), read.fault


class TestOnTheWire:
    @pytest.mark.parametrize("way", [legacy, modern_client])
    def test_an_older_server_gets_the_uri_alone(self, way: Callable[..., Asked]) -> None:
        seen = way().line()
        assert ("resources/read", READ) == (seen["method"], seen["params"])

    @pytest.mark.parametrize("way", MODERN)
    def test_a_modern_server_gets_the_calls_envelope_without_capabilities(self, way: Callable[..., Asked]) -> None:
        """Without capabilities, it may not ask back. Progress would go to the client's token."""
        seen = way().line()
        meta = seen["params"].pop("_meta")
        assert ("resources/read", READ) == (seen["method"], seen["params"])
        assert ("2026-07-28", {}) == (meta[VERSION], meta[CAPABILITIES])
        assert "progressToken" not in meta

    def test_what_else_the_call_says_is_said_again(self) -> None:
        meta = modern_().line()["params"]["_meta"]
        assert {
            VERSION: "2026-07-28",
            CAPABILITIES: {},
            "vendor/x": 1.5,
            CLIENT: {"name": "c", "version": "1"},
        } == meta

    @ways
    def test_its_id_is_the_gates_own(self, way: Callable[..., Asked]) -> None:
        asked = way()
        first, second = asked.line(), asked.line("r2")
        assert first["id"] != second["id"]
        assert all(one["id"].startswith("sg:t:") for one in (first, second))

    @pytest.mark.parametrize("way", [legacy, modern_])
    def test_over_http_it_has_a_stream_of_its_own(self, way: Callable[..., Asked]) -> None:
        asked = way(streams=True)
        effect = one(asked.read(), ToServer)
        (call,) = [pending for pending in asked.inflight.asked.values() if pending.method == "tools/call"]
        assert effect.stream not in {0, call.number}

    @pytest.mark.parametrize("way", [legacy, modern_])
    def test_on_stdio_there_is_one_stream(self, way: Callable[..., Asked]) -> None:
        assert 0 == one(way().read(), ToServer).stream

    def test_the_uri_is_dumped_as_json(self) -> None:
        asked = legacy()
        uri = 'ui://a/"},"x":{"'
        (seen,) = to_server(asked.d.session.read_resource("r", asked.round.id, uri, 0.0))
        assert {"uri": uri} == seen["params"]

    @ways
    def test_a_round_that_has_ended_reads_nothing(self, way: Callable[..., Asked]) -> None:
        asked = way()
        assert ("r1", None, "the request has ended") == answered(asked.read(round="t-999"))
        assert 0 == sum(bool(pending.read) for pending in asked.inflight.asked.values())

    def test_with_its_caller(self) -> None:
        asked = legacy()
        asked.line()
        (pending,) = [one for one in asked.inflight.asked.values() if one.read]
        (call,) = [one for one in asked.inflight.asked.values() if not one.read]
        assert call.identity == pending.identity


class TestAnswered:
    @ways
    def test_the_result_is_the_gates_and_the_client_sees_nothing(self, way: Callable[..., Asked]) -> None:
        asked = way()
        payload = {"contents": [content()], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        told = answered(asked.server(result(asked.line()["id"], **payload)))
        assert ("r1", payload, "") == told
        assert HTML == ui_in(rawjson.read(json.dumps(payload).encode()), URI).body.decode()
        assert not any(pending.read for pending in asked.inflight.asked.values())

    @ways
    def test_an_error_fails_it_with_its_code(self, way: Callable[..., Asked]) -> None:
        asked = way()
        secret = error(asked.line()["id"], -32002, "secret", data={"secret": 1})
        assert ("r1", None, "the server answered with error -32002") == answered(asked.server(secret))

    @ways
    def test_a_url_error_asks_nothing(self, way: Callable[..., Asked]) -> None:
        """A -32042 error of a call would open a round."""
        asked = way()
        urls = {"elicitations": [{"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "e"}]}
        said = error(asked.line()["id"], -32042, "open", data=urls)
        assert ("r1", None, "the server answered with error -32042") == answered(asked.server(said))

    @ways
    @pytest.mark.parametrize("kind", ["input_required", "task", "vendor"])
    def test_a_result_that_asks_back_has_no_html(self, way: Callable[..., Asked], kind: str) -> None:
        asked = way()
        said = {
            "resultType": kind,
            "inputRequests": {"k": ask(form())},
            "contents": [content()],
            **task("u", "working"),
        }
        read = asked.server(result(asked.line()["id"], **said))
        token, _, fault = answered(read)
        assert ("r1", "") == (token, fault)
        assert isinstance(read[0], ResourceRead)
        assert read[0].result is not None
        with pytest.raises(Malformed, match="asks for input"):
            ui_in(read[0].result, URI)

    @ways
    @pytest.mark.parametrize("payload", ["[]", "5", '"text"', "null", '{"a":1,"a":2}'])
    def test_a_result_that_is_no_object_fails_it(self, way: Callable[..., Asked], payload: str) -> None:
        asked = way()
        said = f'{{"jsonrpc":"2.0","id":"{asked.line()["id"]}","result":{payload}}}'.encode()
        reads = [effect for effect in asked.server(said) if not isinstance(effect, Note)]
        (read,) = reads
        assert isinstance(read, ResourceRead)
        assert read.result is None or not read.result.members
        assert not any(pending.read for pending in asked.inflight.asked.values())

    @ways
    def test_an_answer_that_cannot_be_read_fails_it(self, way: Callable[..., Asked]) -> None:
        asked = way()
        said = f'{{"jsonrpc":"2.0","id":"{asked.line()["id"]}","result":{{}},"result":{{}}}}'.encode()
        effects = asked.server(said)
        assert [] == to_client(effects) + to_server(effects)
        (read,) = [effect for effect in effects if isinstance(effect, ResourceRead)]
        assert read.result is None
        assert read.fault

    @ways
    def test_an_answer_over_the_limit_fails_it(self, way: Callable[..., Asked]) -> None:
        asked = way()
        head = f'{{"jsonrpc":"2.0","id":"{asked.line()["id"]}","result":{{"contents":[{{"text":"'.encode()
        effects = list(asked.d.take(asked.d.session.lost("server", 0, head, "it has 64 MiB")))
        assert ("r1", None, "it has 64 MiB") == answered(effects)
        assert not any(pending.read for pending in asked.inflight.asked.values())

    @ways
    def test_a_second_answer_is_nobodys(self, way: Callable[..., Asked]) -> None:
        asked = way()
        said = result(asked.line()["id"], contents=[content()])
        asked.server(said)
        assert ["frame.unasked"] == notes(asked.server(said))

    @ways
    def test_two_reads_are_two(self, way: Callable[..., Asked]) -> None:
        asked = way()
        first, second = asked.line("a"), asked.line("b")
        assert ("b", {"n": 2}, "") == answered(asked.server(result(second["id"], n=2)))
        assert [] == asked.stop("b")
        assert ("a", {"n": 1}, "") == answered(asked.server(result(first["id"], n=1)))


class TestStopped:
    @ways
    def test_it_is_cancelled_at_the_server_and_nowhere_else(self, way: Callable[..., Asked]) -> None:
        asked = way()
        seen, other = asked.line("a"), asked.line("b")
        effects = asked.stop("a")
        assert [("notifications/cancelled", {"requestId": seen["id"]})] == [
            (frame["method"], frame["params"]) for frame in to_server(effects)
        ]
        assert [] == [effect for effect in effects if not isinstance(effect, ToServer)]
        assert [] == asked.stop("a")
        assert ("b", {}, "") == answered(asked.server(result(other["id"])))

    @ways
    def test_a_late_answer_is_dropped_without_a_warning(self, way: Callable[..., Asked]) -> None:
        """A verdict that arrives before the UI is usual."""
        asked = way()
        seen = asked.line()
        asked.stop()
        assert [] == asked.server(result(seen["id"], contents=[content()]))

    def test_over_http_a_modern_one_is_cancelled_by_the_end_of_its_stream(self) -> None:
        asked = modern_(streams=True)
        stream = one(asked.read(), ToServer).stream
        assert [Close(stream)] == asked.stop()

    def test_over_http_an_older_one_is_cancelled_by_a_notification(self) -> None:
        asked = legacy(streams=True)
        seen = asked.line()
        assert [seen["id"]] == [frame["params"]["requestId"] for frame in to_server(asked.stop())]

    @ways
    def test_a_stop_of_no_read_has_no_effect(self, way: Callable[..., Asked]) -> None:
        asked = way()
        assert [] == asked.stop()
        asked.server(result(asked.line()["id"]))
        assert [] == asked.stop()

    @ways
    @pytest.mark.parametrize("side", ["client", "server"])
    def test_the_end_of_a_side_fails_it(self, way: Callable[..., Asked], side: Any) -> None:
        asked = way()
        asked.line("a"), asked.line("b")
        effects = asked.d.session.eof(side)
        reads = [effect for effect in effects if isinstance(effect, ResourceRead)]
        assert [("a", None), ("b", None)] == [(read.token, read.result) for read in reads]
        assert {"the server has stopped"} == {read.fault for read in reads}
        assert [] == asked.stop("a")

    @pytest.mark.parametrize("way", [legacy, modern_])
    def test_a_server_that_ends_first_answers_the_clients_calls_only(self, way: Callable[..., Asked]) -> None:
        asked = way(outlived=True)
        asked.line()
        effects = asked.d.session.eof("server")
        assert [1] == [frame["id"] for frame in to_client(effects)]
        assert [asked.round.id] == [effect.round for effect in effects if isinstance(effect, Withdraw)]
        assert not asked.inflight.asked
        assert 0 == asked.inflight.size


class TestHidden:
    @ways
    def test_the_client_cannot_cancel_it(self, way: Callable[..., Asked]) -> None:
        asked = way()
        seen = asked.line()
        cancelling = cancel(seen["id"])
        effects = asked.d.client(5, cancelling) if isinstance(asked.d, Streams) else asked.d.client(cancelling)
        assert [] == [effect for effect in effects if isinstance(effect, (ToServer, Close, Over, ResourceRead))]
        assert ("r1", {}, "") == answered(asked.server(result(seen["id"])))

    @pytest.mark.parametrize("way", [legacy, modern_, legacy_client])
    def test_the_client_cannot_use_its_id(self, way: Callable[..., Asked]) -> None:
        asked = way()
        seen = asked.line()
        make = request if way is not modern_ else modern
        (refused,) = to_client(asked.d.client(make(seen["id"], "tools/call", name="y")))
        assert "already in flight" in refused["error"]["message"]
        assert ("r1", {}, "") == answered(asked.server(result(seen["id"])))

    @ways
    def test_the_client_cannot_answer_it(self, way: Callable[..., Asked]) -> None:
        asked = way()
        seen = asked.line()
        said = result(seen["id"], contents=[content(text="the client's")])
        effects = asked.d.client(5, said) if isinstance(asked.d, Streams) else asked.d.client(said)
        assert [] == [effect for effect in effects if not isinstance(effect, Note)]
        assert ("r1", {}, "") == answered(asked.server(result(seen["id"])))

    @ways
    def test_the_server_cannot_cancel_it(self, way: Callable[..., Asked]) -> None:
        asked = way()
        seen = asked.line()
        effects = asked.server(cancel(seen["id"]))
        assert [] == to_client(effects) + to_server(effects)
        assert ("r1", {}, "") == answered(asked.server(result(seen["id"])))

    @ways
    def test_it_is_no_call_of_a_client(self, way: Callable[..., Asked]) -> None:
        """Whatever waits for calls does not wait for it: drain, idle conversations, the status, timeouts."""
        asked = way()
        before, streams = asked.d.session.open_calls(), {n for n in asked.inflight.streams if n >= 0}
        asked.line()
        assert before == asked.d.session.open_calls()
        assert streams == {n for n in asked.inflight.streams if n >= 0}
        assert not asked.inflight.for_tasks
        assert not asked.inflight.at_server_for_tasks
        assert [] == [e for e in asked.d.session.overdue(1e9, 1.0) if isinstance(e, ToServer) and b"sg:t" in e.line]
        assert asked.inflight.oldest_wait() in {None, 0.0}
        assert [] == asked.d.session.questions()

    def test_a_request_of_the_server_on_its_stream_is_no_part_of_a_clients_call(self) -> None:
        """Over HTTP, an older server may ask on the stream of the read. The client gets it on no stream of a call."""
        asked = legacy(streams=True)
        stream = one(asked.read(), ToServer).stream
        frame = json.dumps(request("roots", "roots/list")).encode()
        (passed,) = asked.d.session.frame("server", stream, frame, 0.0)
        assert isinstance(passed, ToClient)
        assert passed.stream <= 0

    def test_another_form_on_its_stream_is_a_round_of_its_own(self) -> None:
        asked = legacy(streams=True)
        stream = one(asked.read(), ToServer).stream
        frame = json.dumps(request(8, "elicitation/create", **NAMED)).encode()
        (opened,) = asked.d.session.frame("server", stream, frame, 0.0)
        assert isinstance(opened, Open)
        assert opened.round.id != asked.round.id
        assert not any(pending.round for pending in asked.inflight.asked.values() if pending.read)


class TestBounds:
    @ways
    def test_many_reads_at_once_are_refused(self, way: Callable[..., Asked]) -> None:
        asked = way()
        lines = [asked.line(str(number)) for number in range(MAX_READS)]
        assert ("more", None, f"{MAX_READS} resources are being read already") == answered(asked.read("more"))
        asked.stop("0")
        asked.server(result(lines[1]["id"]))
        asked.line("more")
        asked.line("again")
        assert "" != answered(asked.read("and again"))[2]

    @ways
    def test_no_room_for_calls_is_no_room_for_reads(self, way: Callable[..., Asked]) -> None:
        asked = way()
        asked.inflight.size += MAX_CALL_BYTES
        before = len(asked.inflight.asked)
        token, found, fault = answered(asked.read())
        assert ("r1", None) == (token, found)
        assert fault
        assert before == len(asked.inflight.asked)

    @ways
    def test_its_bytes_are_counted_until_its_end(self, way: Callable[..., Asked]) -> None:
        asked = way()
        before = asked.inflight.size
        first, second = asked.line("a"), asked.line("b")
        lines = sum(len(json.dumps(line, separators=(",", ":"))) for line in (first, second))
        assert before + 2 * ENTRY + lines == asked.inflight.size
        asked.server(result(first["id"]))
        asked.stop("b")
        assert second["id"] not in asked.inflight.wire
        assert before == asked.inflight.size


def html(said: Any) -> bytes:
    return resource(said).body


def resource(said: Any, *origins: str) -> UiResource:
    return ui_in(rawjson.read(said if isinstance(said, bytes) else json.dumps(said).encode()), URI, origins)


def blob(raw: bytes) -> dict[str, Any]:
    return {"uri": URI, "mimeType": MIME, "blob": base64.b64encode(raw).decode()}


class TestHtml:
    @pytest.mark.parametrize(
        ("said", "wanted"),
        [
            ({"contents": [content()]}, HTML.encode()),
            ({"contents": [content(_meta={"ui": {"csp": {}}}, vendor=1)], "resultType": "complete"}, HTML.encode()),
            ({"contents": [blob(HTML.encode())]}, HTML.encode()),
            ({"contents": [content(blob=None)]}, HTML.encode()),
            ({"contents": [content(text="x" * MAX_UI)]}, b"x" * MAX_UI),
            ({"contents": [blob(b"x" * MAX_UI)]}, b"x" * MAX_UI),
            ({"contents": [content(text="\0\u2028\U0001f600")]}, "\0\u2028\U0001f600".encode()),
        ],
        ids=str,
    )
    def test_it_is_the_text_or_the_decoded_blob(self, said: Any, wanted: bytes) -> None:
        assert wanted == html(said)

    @pytest.mark.parametrize(
        ("said", "fault"),
        [
            ({}, "0 contents"),
            ({"contents": []}, "0 contents"),
            ({"contents": [content(), content()]}, "2 contents"),
            ({"contents": [content(), content(uri="ui://other/x")]}, "2 contents"),
            ({"contents": [content()] * (MAX_CONTENTS + 1)}, ""),
            ({"contents": content()}, ""),
            ({"contents": None}, ""),
            ({"contents": "x"}, ""),
            ({"contents": [None]}, ""),
            ({"contents": [[content()]]}, ""),
            ({"contents": [HTML]}, ""),
            ({"contents": [content(uri=URI + "/")]}, "another URI"),
            ({"contents": [content(uri=URI.upper())]}, "another URI"),
            ({"contents": [content(uri=None)]}, "another URI"),
            ({"contents": [{"mimeType": MIME, "text": HTML}]}, "another URI"),
            ({"contents": [content(mimeType="text/html")]}, "MIME type"),
            ({"contents": [content(mimeType="text/html; profile=mcp-app")]}, "MIME type"),
            ({"contents": [content(mimeType=MIME.upper())]}, "MIME type"),
            ({"contents": [content(mimeType=MIME + ";charset=utf-8")]}, "MIME type"),
            ({"contents": [content(mimeType=None)]}, "MIME type"),
            ({"contents": [{"uri": URI, "text": HTML}]}, "MIME type"),
            ({"contents": [{"uri": URI, "mimeType": MIME}]}, "neither"),
            ({"contents": [content(text=None)]}, "neither"),
            ({"contents": [content(text=5)]}, "neither"),
            ({"contents": [content(text=[HTML])]}, "neither"),
            ({"contents": [content(blob="aGk=")]}, "both"),
            ({"contents": [content() | {"blob": ""}]}, "both"),
            ({"contents": [content(text="")]}, "0 bytes"),
            ({"contents": [blob(b"")]}, "0 bytes"),
            ({"contents": [blob(b"x" * (MAX_UI + 1))]}, f"{MAX_UI + 1} bytes"),
            ({"contents": [content(text="x" * (MAX_UI + 1))]}, f"{MAX_UI + 1} bytes"),
            ({"contents": [content(text="ä" * (MAX_UI // 2) + "x")]}, f"{MAX_UI + 1} bytes"),
            ({"contents": [content(text="\\u0001" * MAX_UI)]}, ""),
            ({"contents": [blob(b"\xff\xfe<html>")]}, "UTF-8"),
            ({"contents": [blob("\ud800".encode("utf-8", "surrogatepass"))]}, "UTF-8"),
            ({"contents": [content(text="\ud800")]}, ""),
            ({"contents": [content() | {"text": None, "blob": "a"}]}, "UTF-8"),
            ({"contents": [content() | {"text": None, "blob": "aGk="[:-1]}]}, "UTF-8"),
            ({"contents": [content() | {"text": None, "blob": "aG\nk="}]}, "UTF-8"),
            ({"contents": [content() | {"text": None, "blob": "aGk_"}]}, "UTF-8"),
            ({"contents": [content() | {"text": None, "blob": "aGk=aGk="}]}, ""),
            ({"contents": [content() | {"text": None, "blob": "ä"}]}, ""),
            ({"contents": [content()], "resultType": "input_required"}, "asks for input"),
            ({"contents": [content()], "resultType": "Complete"}, "resultType"),
            ({"contents": [content()], "resultType": 5}, "resultType"),
        ],
        ids=lambda said: str(said)[:80],
    )
    def test_anything_else_is_refused(self, said: Any, fault: str) -> None:
        with pytest.raises(Malformed, match=fault or ".") as refused:
            html(said)
        assert "doctype" not in refused.value.fault

    @pytest.mark.parametrize(
        "twice",
        [
            b'{"contents":[],"contents":[%s]}',
            b'{"contents":[%s],"c\\u006fntents":[]}',
            b'{"contents":[%s],"resultType":"complete","resultType":"input_required"}',
        ],
    )
    def test_members_that_come_twice_are_refused(self, twice: bytes) -> None:
        with pytest.raises(Malformed):
            html(twice % json.dumps(content()).encode())

    @pytest.mark.parametrize(
        "more", [b'"text":"other"', b'"te\\u0078t":"other"', b'"uri":"ui://other/x"', b'"mimeType":"a"']
    )
    def test_members_of_the_content_that_come_twice_are_refused(self, more: bytes) -> None:
        with pytest.raises(Malformed):
            html(b'{"contents":[%s,%s}]}' % (json.dumps(content()).encode()[:-1], more))

    def test_a_result_is_bounded_before_it_is_read(self) -> None:
        with pytest.raises(Malformed, match=str(MAX_RESULT)):
            html(b'{"contents":[%s],"x":"%s"}' % (json.dumps(content()).encode(), b"x" * MAX_RESULT))


PLACE: Final = "https://ui.example.com"


def uri_list(text: str) -> dict[str, Any]:
    return {"contents": [content(mimeType="text/uri-list", text=text)]}


class TestUrl:
    @pytest.mark.parametrize(
        ("text", "url"),
        [
            (f"{PLACE}/app?a=1#b", f"{PLACE}/app?a=1#b"),
            (f"{PLACE}", PLACE),
            (f"# a comment\r\n\r\n{PLACE}/x\r\n", f"{PLACE}/x"),
            ("HTTPS://UI.example.com:443/x", "HTTPS://UI.example.com:443/x"),
            (f"{PLACE}/{'x' * (2047 - len(PLACE))}", f"{PLACE}/{'x' * (2047 - len(PLACE))}"),
        ],
    )
    def test_it_is_the_only_one_and_at_an_origin_of_the_rule(self, text: str, url: str) -> None:
        assert UiResource(url.encode(), is_url=True) == resource(uri_list(text), "https://other.example", PLACE)
        coded = {"uri": URI, "mimeType": "text/uri-list", "blob": base64.b64encode(text.encode()).decode()}
        assert UiResource(url.encode(), is_url=True) == resource({"contents": [coded]}, PLACE)
        with pytest.raises(Malformed, match="a URL, which needs RICH elicitation and ui_origins in the rule"):
            resource(uri_list(text))

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("# nothing", "0 URLs"),
            (f"{PLACE}/a\n{PLACE}/b", "2 URLs"),
            (f"{PLACE}/\u2028x", "2 URLs"),
            (f"{PLACE}/é", "not ASCII"),
            (f"{PLACE}/{'x' * (2048 - len(PLACE))}", "2048 characters"),
            ("http://ui.example.com/", "ui_origins"),
            (f"{PLACE}:8443/", "ui_origins"),
            (f"{PLACE}.evil.example/", "ui_origins"),
            (f"{PLACE}@evil.example/", "ui_origins"),
            (f"{PLACE}?@evil.example/", "ui_origins"),
            (f"{PLACE}\\@evil.example/", "ui_origins"),
            ("https://user@ui.example.com/", "ui_origins"),
            ("https://other.example/", "ui_origins"),
            ("//ui.example.com/", "ui_origins"),
            ("ui.example.com", "ui_origins"),
            ("javascript:alert(1)//https://ui.example.com", "ui_origins"),
            ("data:text/html,x", "ui_origins"),
            ("blob:https://ui.example.com/x", "ui_origins"),
            ("ui://host/x", "ui_origins"),
            (f"{PLACE}/a b", "ui_origins"),
            (f"{PLACE}/\ta", "ui_origins"),
        ],
    )
    def test_any_other_is_refused_without_being_repeated(self, text: str, fault: str) -> None:
        with pytest.raises(Malformed, match=fault) as refused:
            resource(uri_list(text), PLACE)
        assert "://" not in refused.value.fault

    @pytest.mark.parametrize("type", ["text/uri-list;charset=utf-8", "TEXT/URI-LIST", "text/html"])
    def test_the_mime_type_is_exact(self, type: str) -> None:
        with pytest.raises(Malformed, match="MIME type"):
            resource({"contents": [content(mimeType=type, text=PLACE)]}, PLACE)

    def test_html_is_html_whatever_the_rule_names(self) -> None:
        assert UiResource(PLACE.encode()) == resource({"contents": [content(text=PLACE)]}, PLACE)


MARK: Final = "only the gate sees this"
ANSWERS: Final = [
    result("ID", contents=[content(text=MARK)]),
    result("ID", contents=[content(text=MARK)], resultType="input_required", inputRequests={"k": ask(form())}),
    error("ID", -32042, MARK, data={"elicitations": [{"mode": "url", "message": MARK, "url": "https://a.example"}]}),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "ID", "reason": MARK}},
    request("ID", "elicitation/create", **form(), _meta={"ui": {"resourceUri": URI}}),
    request("ID", "roots/list"),
]


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A frame about a read, as it is or with pieces inserted or cut out. ``ID`` is the id of the read."""
    line = json.dumps(draw(st.sampled_from(ANSWERS)), separators=(",", ":")).encode()
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(line)))
        end = start + draw(st.sampled_from([0, 1, 7]))
        line = line[:start] + draw(st.sampled_from(PIECES)) + line[end:]
    return line


STEPS: Final = st.tuples(st.sampled_from(["read", "stop", "server", "server", "client", "lost"]), answers())


@given(st.sampled_from(WAYS), st.lists(STEPS, max_size=10), st.booleans())
def test_no_frame_about_a_read_raises_or_reaches_the_client(
    way: Callable[..., Asked], script: list[tuple[str, bytes]], last: bool
) -> None:
    asked = way()
    ids: list[str] = []
    begun, ended = 0, list[str]()
    for step, line in [("read", b""), *script]:
        said = line.replace(b"ID", ids[-1 if last else 0].encode() if ids else b"")
        effects: list[Effect] = []
        if step == "read":
            begun += 1
            effects = asked.read(str(begun))
            ids += [frame["id"] for frame in to_server(effects)]
        elif step == "stop":
            effects = asked.stop(str(begun))
        elif step == "server":
            effects = asked.server(said)
        elif step == "lost":
            effects = list(asked.d.session.lost("server", 0, said[:60], "too long"))
        else:
            asked.d.client(5, said) if isinstance(asked.d, Streams) else asked.d.client(said)
        ended += [effect.token for effect in effects if isinstance(effect, ResourceRead)]
        if step != "client":
            assert not any(b'"id":"sg:' in effect.line for effect in effects if isinstance(effect, ToClient))
    assert len(ended) == len(set(ended))
    ended += [effect.token for effect in asked.d.session.eof("server") if isinstance(effect, ResourceRead)]
    assert len(ended) == len(set(ended))
