"""A server's own UI in a form: how the form names it, who declares it, and what a forwarded form keeps of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.policy.capabilities import SessionRules
from samplegate.protocol import capabilities, server_requests
from samplegate.protocol.bridge.modern_client import ModernClient
from samplegate.protocol.frames import MODERN
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import (
    ELICITATION,
    MAX_UI_URI,
    SAMPLING,
    ClientCapabilities,
    Offer,
    Origin,
    UiRef,
    ui_of,
)
from samplegate.protocol.rounds import Open
from tests.fakes.bridged import Bridge
from tests.fakes.dialogue import (
    CAPABILITIES,
    FORWARD,
    Dialogue,
    ask,
    form,
    modern,
    one,
    request,
    result,
    sample,
    to_client,
    to_server,
)
from tests.fakes.streams import Streams, asks, sent
from tests.fakes.task_dialogue import TaskDialogue

UI = "io.modelcontextprotocol/ui"
TASKS = "io.modelcontextprotocol/tasks"
MIME = "text/html;profile=mcp-app"
URI = "ui://deployer/picker"
DECLARED: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {UI: {"mimeTypes": [MIME], "elicitation": {}}}}
PLAIN: dict[str, Any] = {"elicitation": {"form": {}}}
CUT: dict[str, Any] = {"default": {"ui_forward": "cut"}}


def sep(uri: Any = URI, **more: Any) -> dict[str, Any]:
    return {"_meta": {"ui": {"resourceUri": uri}, **more}}


def rich(uri: Any = URI, **more: Any) -> dict[str, Any]:
    return {"ui": {"uri": uri, **more}}


class TestNames:
    @pytest.mark.parametrize(
        ("params", "wanted"),
        [
            (sep(), UiRef(URI, "sep-3118")),
            (rich(), UiRef(URI, "rich")),
            (sep() | rich("ui://other/x", context={"a": 1}), UiRef(URI, "sep-3118")),
            (sep("https://a.example") | rich(), UiRef(URI, "rich")),
            (
                {"_meta": {"ui": None}} | rich(mode="modal", context=[1, {"a": None}]),
                UiRef(URI, "rich", [1, {"a": None}]),
            ),
            (rich(context="</script>"), UiRef(URI, "rich", "</script>")),
            (rich(context=0), UiRef(URI, "rich", 0)),
            ({}, None),
            ({"_meta": {"ui/resourceUri": URI}}, None),
            ({"_meta": {"ui": URI}}, None),
            ({"_meta": {"ui": [URI]}}, None),
            ({"_meta": [{"ui": {"resourceUri": URI}}]}, None),
            ({"_meta": None, "ui": None}, None),
            ({"ui": URI}, None),
            ({"ui": {"resourceUri": URI}}, None),
            ({"metadata": {"elicitation": rich()}}, None),
        ],
    )
    def test_a_form_names_its_ui_in_one_of_two_dialects(self, params: dict[str, Any], wanted: UiRef | None) -> None:
        """SEP-3118 goes first. The context of RICH stays as it is."""
        assert wanted == ui_of(params)

    @pytest.mark.parametrize(
        "uri",
        [
            "ui://a",
            "ui://a/",
            "ui://a/b/c.html?d=e#f",
            "ui://a?b",
            "ui://A-b_c~d.e%20/x",
            "ui://a/" + "x" * (MAX_UI_URI - 7),
        ],
    )
    def test_a_uri_has_the_scheme_ui_and_a_host(self, uri: str) -> None:
        assert UiRef(uri, "sep-3118") == ui_of(sep(uri))
        assert UiRef(uri, "rich") == ui_of(rich(uri))

    @pytest.mark.parametrize(
        "uri",
        [
            "",
            "ui:",
            "ui://",
            "ui:///x",
            "ui:/a/x",
            "ui:a",
            "ui://?x",
            "UI://a/x",
            " ui://a/x",
            "ui://a/x ",
            "ui://a/x\n",
            "\nui://a/x",
            "ui://a/x\r\nX: y",
            "ui://a/\0",
            "ui://a\t/x",
            "ui://a/\x7f",
            "ui://a/ä",
            "ui://ä/x",
            "ui://a b/x",
            "ui://user@a/x",
            "ui://a:80/x",
            "ui://[::1]/x",
            "ui://a\\b",
            "ui://a#x",
            "http://a/x",
            "https://a/x",
            "file:///etc/passwd",
            "ui.example://a",
            "xui://a/x",
            "ui://a/" + "x" * (MAX_UI_URI - 6),
            None,
            True,
            5,
            1.5,
            [URI],
            {"uri": URI},
            b"ui://a/x",
        ],
    )
    def test_what_is_no_such_uri_is_no_ui(self, uri: Any) -> None:
        assert ui_of(sep(uri)) is None
        assert ui_of(rich(uri)) is None


class TestItems:
    @pytest.mark.parametrize(
        ("params", "offered", "wanted"),
        [
            (form() | sep(), True, UiRef(URI, "sep-3118")),
            (form() | sep(), False, None),
            (form() | rich(), True, UiRef(URI, "rich")),
            (form() | rich(), False, UiRef(URI, "rich")),
            (form() | sep() | rich(), False, UiRef(URI, "rich")),
            (form(), True, None),
            ({"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "1"} | sep(), True, None),
            ({"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "1"} | rich(), True, None),
            ({"message": 5} | sep(), True, None),
        ],
    )
    def test_only_a_form_has_a_ui_and_of_sep_3118_only_if_that_was_declared(
        self, params: dict[str, Any], offered: bool, wanted: UiRef | None
    ) -> None:
        origin = Origin("s", "local", "legacy", "2025-11-25")
        offer = Offer(form=True, url=True, ui=offered)
        assert wanted == server_requests.item(ELICITATION, json.dumps(params).encode(), origin, offer).ui

    def test_only_forms_lose_a_ui_on_their_way_to_the_client(self) -> None:
        raw = json.dumps({"method": SAMPLING, "params": sample() | sep() | rich()}).encode()
        assert raw == server_requests.entry_for_client(raw, ClientCapabilities(), cut=True)

    def test_a_sampling_request_has_no_ui(self) -> None:
        origin = Origin("s", "local", "legacy", "2025-11-25")
        params = json.dumps(sample() | sep() | rich()).encode()
        assert server_requests.item(SAMPLING, params, origin, Offer(sampling=True, ui=True)).ui is None


def declares(value: Any) -> bool:
    return capabilities.declared_by(json.dumps(value).encode()).ui


class TestDeclared:
    @pytest.mark.parametrize(
        ("ui", "wanted"),
        [
            ({"elicitation": {}}, True),
            ({"mimeTypes": [MIME], "elicitation": {"later": 1}}, True),
            ({"mimeTypes": [MIME]}, False),
            ({}, False),
            ({"elicitation": True}, False),
            ({"elicitation": None}, False),
            ({"elicitation": []}, False),
            ({"elicitation": "yes"}, False),
            (None, False),
            (True, False),
            ([{"elicitation": {}}], False),
        ],
    )
    def test_a_client_declares_it_by_an_object_in_the_ui_extension(self, ui: Any, wanted: bool) -> None:
        assert wanted is declares({"elicitation": {}, "extensions": {UI: ui}})

    @pytest.mark.parametrize(
        "value",
        [
            {"elicitation": {"ui": {}, "elicitation": {}}},
            {"extensions": {"elicitation": {}}},
            {"extensions": [{UI: {"elicitation": {}}}]},
            {"experimental": {UI: {"elicitation": {}}}},
            {UI: {"elicitation": {}}},
            {"extensions": {UI + "-elicitation": {"elicitation": {}}}},
        ],
    )
    def test_elsewhere_it_declares_nothing(self, value: Any) -> None:
        assert declares(value) is False

    @pytest.mark.parametrize(
        "text",
        [
            b'{"extensions":{"%s":{"elicitation":{},"elicitation":{}}}}' % UI.encode(),
            b'{"extensions":{"%s":{"elicitation":{},"e\\u006cicitation":1}}}' % UI.encode(),
            b'{"extensions":{"%s":{"Elicitation":{}}}}' % UI.encode(),
            b'{"extensions":{"%s":{"MimeTypes":[]}}}' % UI.encode(),
            b'{"extensions":{"%s":{},"%s":{"elicitation":{}}}}' % (UI.encode(), UI.encode()),
            b'{"extensions":{"%s":{"elicitation":{}}}}' % UI.upper().encode(),
        ],
    )
    def test_what_another_parser_could_read_as_it_is_refused(self, text: bytes) -> None:
        with pytest.raises(Malformed):
            capabilities.declared_by(text)


OFFERED = Offer(form=True, ui=True)
WITHOUT = Offer(form=True)


def rewritten(value: Any, offer: Offer, **more: Any) -> Any:
    text = json.dumps(value).encode()
    return json.loads(capabilities.rewrite(text, capabilities.declared_by(text), offer, MODERN[0], **more))


class TestRewritten:
    @pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", MODERN[0]])
    @pytest.mark.parametrize("client", [{}, {"form": None}, {"form": {"own": 1}}])
    def test_forms_are_declared_by_name_where_a_ui_is(self, revision: str, client: dict[str, Any]) -> None:
        """Servers of SEP-3118 look for ``elicitation.form``; many clients declare ``elicitation: {}``."""
        text = json.dumps({"elicitation": client}).encode()
        seen = capabilities.rewrite(text, capabilities.declared_by(text), OFFERED, revision)
        assert (client if client.get("form") else {"form": {}}) == json.loads(seen)["elicitation"]
        assert text == capabilities.rewrite(text, capabilities.declared_by(text), WITHOUT, revision)

    @pytest.mark.parametrize(
        ("client", "wanted"),
        [
            ({}, {UI: {"mimeTypes": [MIME], "elicitation": {}}}),
            ({"extensions": None}, {UI: {"mimeTypes": [MIME], "elicitation": {}}}),
            ({"extensions": {"v": 1}}, {"v": 1, UI: {"mimeTypes": [MIME], "elicitation": {}}}),
            ({"extensions": {UI: True}}, {UI: {"mimeTypes": [MIME], "elicitation": {}}}),
            (
                {"extensions": {UI: {"mimeTypes": [MIME, "text/x"], "own": 1}}},
                {UI: {"mimeTypes": [MIME, "text/x"], "own": 1, "elicitation": {}}},
            ),
            (
                {"extensions": {UI: {"mimeTypes": [MIME], "elicitation": False}}},
                {UI: {"mimeTypes": [MIME], "elicitation": {}}},
            ),
        ],
    )
    def test_what_is_offered_is_added_to_the_clients_own(self, client: Any, wanted: Any) -> None:
        assert {"elicitation": {"form": {}}, "extensions": wanted} == rewritten({"elicitation": {}, **client}, OFFERED)

    def test_the_tasks_extension_goes_and_the_ui_stays(self) -> None:
        client = {"elicitation": {}, "extensions": {TASKS: {}, UI: {"mimeTypes": [MIME]}}}
        assert {UI: {"mimeTypes": [MIME], "elicitation": {}}} == rewritten(client, OFFERED)["extensions"]
        assert {TASKS: {}, UI: {"mimeTypes": [MIME], "elicitation": {}}} == rewritten(client, OFFERED, tasks=True)[
            "extensions"
        ]

    def test_what_is_not_offered_is_removed_and_the_rest_of_the_extension_stays(self) -> None:
        text = (
            b'{"elicitation":{"form":{}}, "extensions": {"v":1.0 ,"%s": {"mimeTypes":[ "a"],"elicitation":{} , "w":1}}}'
            % UI.encode()
        )
        assert (
            b'{"elicitation":{"form":{}}, "extensions": {"v":1.0 ,"%s": {"mimeTypes":[ "a"] , "w":1}}}' % UI.encode()
        ) == capabilities.rewrite(text, capabilities.declared_by(text), WITHOUT, MODERN[0])

    def test_an_escaped_name_is_removed_too(self) -> None:
        text = (json.dumps(DECLARED).replace(UI, "io.modelcontextprotocol\\/\\u0075i")).encode()
        text = text.replace(b'"elicitation": {}}', b'"e\\u006cicitation": {}}')
        assert DECLARED["extensions"] == json.loads(text)["extensions"]
        assert {UI: {"mimeTypes": [MIME]}} == json.loads(
            capabilities.rewrite(text, capabilities.declared_by(text), WITHOUT, MODERN[0])
        )["extensions"]

    @pytest.mark.parametrize(
        ("text", "offer"),
        [
            (
                b'{"elicitation": {"form" :{}} , "extensions":{"%s":{ "mimeTypes":[] , "elicitation": {"x":1.0}}}}',
                OFFERED,
            ),
            (b'{"elicitation": {} , "extensions":{"%s":{ "mimeTypes":[] }}}', WITHOUT),
            (b'{"elicitation": {} , "extensions":{"%s": true }}', WITHOUT),
        ],
    )
    def test_where_nothing_differs_the_bytes_stay(self, text: bytes, offer: Offer) -> None:
        raw = text % UI.encode()
        assert raw == capabilities.rewrite(raw, capabilities.declared_by(raw), offer, MODERN[0])

    @pytest.mark.parametrize("offer", [OFFERED, WITHOUT])
    @pytest.mark.parametrize("ui", [None, True, {}, {"elicitation": {}}, {"elicitation": 1}, {"mimeTypes": []}])
    def test_what_the_server_reads_is_what_was_offered(self, offer: Offer, ui: Any) -> None:
        seen = rewritten({"elicitation": {}, "extensions": {UI: ui}}, offer)
        assert offer.ui is declares(seen)


SHOWS: dict[str, Any] = {"name": "people", "effect": "escalate", "reviewer": "ops", "ui": "show"}
REVIEWERS: dict[str, Any] = {"reviewers": {"ops": {}}}
ADDED = {"mimeTypes": [MIME], "elicitation": {}}


def with_page(d: Any) -> Any:
    state = d.state if isinstance(d, Streams) else d.session.state
    state.policy = SessionRules(Dialogue(SHOWS, **REVIEWERS).compiled, page=True)
    return d


class TestDeclaredToTheServer:
    """A reviewer has a page, and the client declares nothing of it."""

    def test_in_initialize(self) -> None:
        seen = with_page(Dialogue()).open_legacy(elicitation={}, extensions={"v": 1})
        assert {"v": 1, UI: ADDED} == seen["extensions"]

    def test_in_each_modern_request(self) -> None:
        d = with_page(Dialogue())
        (seen,) = to_server(d.client(modern(1, "tools/call", {"elicitation": {}}, name="x")))
        assert {UI: ADDED} == seen["params"]["_meta"][CAPABILITIES]["extensions"]

    def test_for_an_older_client(self) -> None:
        d = with_page(Bridge())
        d.open({"elicitation": {}})
        assert {UI: ADDED} == d.call()["params"]["_meta"][CAPABILITIES]["extensions"]

    def test_to_an_older_server(self) -> None:
        d = with_page(Streams(ModernClient))
        (hello,) = sent(d.client(1, asks(1, "tools/list")))
        assert {UI: ADDED} == hello["params"]["capabilities"]["extensions"]

    def test_without_a_page_it_is_removed_and_a_form_has_none(self) -> None:
        d = Dialogue(SHOWS, **REVIEWERS)
        seen = d.open_legacy(**DECLARED)
        assert {UI: {"mimeTypes": [MIME]}} == seen["extensions"]
        opened = one(d.server(request(7, ELICITATION, **form(), **sep())), Open)
        assert opened.round.items[""].ui is None

    def test_a_form_of_a_modern_call_has_one_if_the_call_declared_it(self) -> None:
        d = with_page(Dialogue())
        d.client(modern(1, "tools/call", {"elicitation": {}}, name="x"))
        asked = result(1, resultType="input_required", inputRequests={"k": ask(form() | sep())})
        assert UiRef(URI, "sep-3118") == one(d.server(asked), Open).round.items["k"].ui


NAMED = form() | sep() | rich()
"""A form that names a UI in both dialects."""


def shown(effects: list[Any]) -> Any:
    """The params of the one form that the client gets: pushed, or in an ``input_required`` result."""
    (frame,) = [one for one in to_client(effects) if "method" in one or "inputRequests" in one.get("result", {})]
    return frame["params"] if "method" in frame else frame["result"]["inputRequests"]["k"]["params"]


def pushed_form(client: Any, params: Any, **policy: Any) -> Any:
    d = Dialogue(FORWARD, **policy)
    d.open_legacy(**client)
    line = params if isinstance(params, bytes) else json.dumps(request(7, ELICITATION, **params)).encode()
    return shown(d.take(d.session.forward(one(d.server(line), Open).round.id)))


def asked_form(client: Any, params: Any, **policy: Any) -> Any:
    d = Dialogue(FORWARD, **policy)
    d.client(modern(1, "tools/call", client, name="x"))
    return shown(d.hand_on(d.server(result(1, resultType="input_required", inputRequests={"k": ask(params)})), "k"))


def task_form(client: Any, params: Any, **policy: Any) -> Any:
    d = TaskDialogue(FORWARD, **policy)
    declared = {**client, "extensions": {**client.get("extensions", {}), TASKS: {}}}
    d.client(modern(1, "tools/call", declared, name="x", arguments={"n": 1}))
    working = {"taskId": "task-1", "status": "working", "createdAt": "2026-11-28T12:00:00Z", "ttlMs": 3_600_000,
               "lastUpdatedAt": "2026-11-28T12:00:00Z", "pollIntervalMs": 1000}  # fmt: skip
    d.server(result(1, resultType="task", **working))
    d.hand_on(d.poll(asks={"k": ask(params)}, capabilities=declared), "k")
    return shown(d.poll(asks={"k": ask(params)}, id=4, capabilities=declared))


def legacy_bridged_form(client: Any, params: Any, **policy: Any) -> Any:
    """A legacy client before a modern server."""
    d = Bridge(FORWARD)
    d.session.state.policy = SessionRules(Dialogue(FORWARD, **policy).compiled)
    d.open(client)
    sent_on = d.call()
    return shown(d.hand_on(d.asks(sent_on["id"], {"k": ask(params)}, requestState="s"), "k"))


WAYS = [pushed_form, asked_form, task_form, legacy_bridged_form]


class TestForwarded:
    @pytest.mark.parametrize("way", WAYS)
    def test_only_a_client_that_declared_it_sees_the_ui_of_sep_3118(self, way: Any) -> None:
        assert NAMED == way(DECLARED, NAMED)
        assert form() | rich() | {"_meta": {}} == way(PLAIN, NAMED)
        mime_types_only = {**PLAIN, "extensions": {UI: {"mimeTypes": [MIME]}}}
        kept = form() | sep(trace="t")
        assert form() | {"_meta": {"trace": "t"}} == way(mime_types_only, kept)

    @pytest.mark.parametrize("way", WAYS)
    def test_params_ui_is_cut_for_one_server_only(self, way: Any) -> None:
        assert form() | {"_meta": {}} == way(PLAIN, NAMED, servers=CUT)
        assert rich()["ui"] == way(PLAIN, NAMED, servers={"another": {"ui_forward": "cut"}})["ui"]
        assert rich()["ui"] == way(PLAIN, NAMED, servers={"default": {"ui_forward": "pass"}})["ui"]
        assert form() | sep() == way(DECLARED, NAMED, servers=CUT)

    @pytest.mark.parametrize(
        ("spelled", "plain"),
        [
            (b'"_meta":{"\\u0075i":{"resourceUri":"ui://a/x"}}', b'"_meta":{"ui":{"resourceUri":"ui://a/x"}}'),
            (b'"_meta":{"ui":{"resource\\u0055ri":"ui:\\/\\/a\\/x"}}', b'"_meta":{"ui":{"resourceUri":"ui://a/x"}}'),
            (
                b'"\\u005fmeta":{ "u\\u0069" : {"resourceUri":"ui://a/x"} }',
                b'"_meta":{"ui":{"resourceUri":"ui://a/x"}}',
            ),
            (b'"_meta":{"ui":{"resourceUri":5}}', b""),
        ],
    )
    def test_escapes_hide_no_ui(self, spelled: bytes, plain: bytes) -> None:
        head = json.dumps(request(7, ELICITATION, **form())).encode()[:-2] + b","
        seen = pushed_form(PLAIN, head + spelled + b"}}")
        assert form() | {"_meta": {}} == seen
        if plain:
            assert json.loads(b"{" + plain + b"}") == json.loads(b"{" + spelled + b"}")

    def test_escapes_hide_no_rich_ui(self) -> None:
        head = json.dumps(request(7, ELICITATION, **form())).encode()[:-2]
        assert form() == pushed_form(PLAIN, head + b',"\\u0075i":{"uri":"ui://a/x"}}}', servers=CUT)

    @pytest.mark.parametrize(
        "more",
        [
            b"",
            b', "_meta" : {"vendor":1.0}',
            b', "_meta":{"ui":{"prefersBorder": true}}',
            b',"ui" : {"uri":"ui://a", "x":1.0}',
        ],
    )
    def test_without_a_ui_of_sep_3118_the_params_stay_byte_for_byte(self, more: bytes) -> None:
        params = json.dumps(form()).encode()[:-1] + more + b" }"
        assert server_requests.for_client(params, ClientCapabilities()) is params
        entry = b'{ "method":"elicitation/create", "params": %s}' % params
        assert server_requests.entry_for_client(entry, ClientCapabilities()) is entry

    def test_a_client_that_declared_it_gets_the_params_byte_for_byte(self) -> None:
        params = json.dumps(NAMED, indent=1).encode()
        assert server_requests.for_client(params, ClientCapabilities(ui=True)) is params

    def test_a_request_without_params_stays(self) -> None:
        assert server_requests.for_client(None, ClientCapabilities(), cut=True) is None
        entry = b'{"method":"roots/list"}'
        assert server_requests.entry_for_client(entry, ClientCapabilities(), cut=True) is entry
