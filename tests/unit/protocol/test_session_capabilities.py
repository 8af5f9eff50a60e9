"""Capabilities on the wire: read in the detail that requests need, and rewritten only where the gate differs from the
client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import capabilities
from samplegate.protocol.frames import LEGACY, MODERN
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import ClientCapabilities, Offer

NEWEST = MODERN[0]
TASKS = "io.modelcontextprotocol/tasks"


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def rewritten(text: bytes | None, offer: Offer, revision: str = NEWEST) -> Any:
    return json.loads(capabilities.rewrite(text, capabilities.declared_by(text), offer, revision))


class TestRead:
    @pytest.mark.parametrize(
        ("value", "wanted"),
        [
            ({}, ClientCapabilities()),
            ({"sampling": {}}, ClientCapabilities(sampling=True)),
            (
                {"sampling": {"tools": {}, "context": {}}},
                ClientCapabilities(sampling=True, sampling_tools=True, sampling_context=True),
            ),
            ({"elicitation": {}}, ClientCapabilities(form=True)),
            ({"elicitation": {"form": {}}}, ClientCapabilities(form=True)),
            ({"elicitation": {"url": {}}}, ClientCapabilities(url=True)),
            ({"elicitation": {"form": {}, "url": {}}}, ClientCapabilities(form=True, url=True)),
            ({"elicitation": {"vendor": {}}}, ClientCapabilities(form=True)),
            ({"roots": {"listChanged": True}}, ClientCapabilities(roots=True)),
            ({"sampling": None, "elicitation": True}, ClientCapabilities()),
            ({"tools": {}, "url": {}, "form": {}, "vendor": {"sampling": {}}}, ClientCapabilities()),
        ],
    )
    def test_what_a_client_declares(self, value: Any, wanted: ClientCapabilities) -> None:
        """T24: ``elicitation: {}`` means form only."""
        assert wanted == capabilities.declared_by(raw(value))

    @pytest.mark.parametrize("text", [None, b"null", b"[]", b'"sampling"', b"5"])
    def test_what_is_no_object_declares_nothing(self, text: bytes | None) -> None:
        assert ClientCapabilities() == capabilities.declared_by(text)

    @pytest.mark.parametrize(
        "text",
        [
            b'{"sampling":1,"sampling":{}}',
            b'{"elicitation":{"url":{},"url":{}}}',
            b'{"sampling":{"tools":{},"t\\u006fols":{}}}',
        ],
    )
    def test_twins_are_refused(self, text: bytes) -> None:
        with pytest.raises(Malformed):
            capabilities.declared_by(text)


class TestRewrite:
    @pytest.mark.parametrize(
        ("text", "offer"),
        [
            (b"{}", Offer()),
            (b'{ "roots" : {} , "vendor":1.0 }', Offer()),
            (b'{"sampling":{ "vendor":1.0 }}', Offer(sampling=True)),
            (b'{"elicitation": {} }', Offer(form=True)),
            (
                b'{"elicitation":{"form":{"x":1.0},"url":{}}, "sampling":{"tools":{}}}',
                Offer(sampling=True, sampling_tools=True, form=True, url=True),
            ),
        ],
    )
    def test_where_the_gate_offers_the_same_the_bytes_stay(self, text: bytes, offer: Offer) -> None:
        assert text == capabilities.rewrite(text, capabilities.declared_by(text), offer, NEWEST)

    def test_nothing_offered_removes_both_and_nothing_else(self) -> None:
        text = b'{"sampling":{"tools":{}}, "roots":{ },"elicitation":{"url":{}} ,"experimental":{"sampling":1.0}}'
        assert b'{ "roots":{ } ,"experimental":{"sampling":1.0}}' == capabilities.rewrite(
            text, capabilities.declared_by(text), Offer(), NEWEST
        )

    @pytest.mark.parametrize("text", [None, b"null", b"[1]", b"{}"])
    def test_what_is_offered_is_added_to_nothing(self, text: bytes | None) -> None:
        offer = Offer(sampling=True, sampling_tools=True, sampling_context=True, form=True, url=True)
        assert {"sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}} == rewritten(
            text, offer
        )

    def test_each_revision_gets_what_it_has(self) -> None:
        """R29, R114."""
        offer = Offer(sampling=True, sampling_tools=True, sampling_context=True, form=True, url=True)
        bare: dict[str, Any] = {"sampling": {}}
        full: dict[str, Any] = {"sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}}
        assert [bare, bare, {**bare, "elicitation": {}}, full, full] == [
            rewritten(b"{}", offer, revision) for revision in (*LEGACY, *MODERN)
        ]
        assert {} == rewritten(b'{"elicitation":{"url":{}}}', Offer(url=True), "2025-06-18")

    def test_url_alone_is_never_said_as_an_empty_object(self) -> None:
        """T24: an empty object would mean form."""
        assert {"elicitation": {"url": {}}} == rewritten(b'{"elicitation":{"form":{},"url":{}}}', Offer(url=True))

    def test_requests_borne_by_tasks_and_the_tasks_extension_go(self) -> None:
        """R106, R108."""
        text = raw(
            {
                "tasks": {
                    "cancel": {},
                    "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}, "tools": {}},
                },
                "extensions": {TASKS: {}, "v": 1},
            }
        )
        assert {"tasks": {"cancel": {}, "requests": {"tools": {}}}, "extensions": {"v": 1}} == rewritten(text, Offer())
        escaped = text.replace(b"sampling", b"s\\u0061mpling").replace(
            TASKS.encode(), b"io.modelcontextprotocol\\/tasks"
        )
        assert {"tasks": {"cancel": {}, "requests": {"tools": {}}}, "extensions": {"v": 1}} == rewritten(
            escaped, Offer()
        )

    @given(
        st.fixed_dictionaries(
            {},
            optional={
                "sampling": st.sampled_from(
                    [{}, {"tools": {}}, {"context": {}}, {"tools": {}, "context": {}}, None, 5]
                ),
                "elicitation": st.sampled_from([{}, {"form": {}}, {"url": {}}, {"form": {}, "url": {}}, None, []]),
                "roots": st.just({"listChanged": True}),
                "extensions": st.sampled_from([{}, {TASKS: {}}, {TASKS: {}, "v": {}}, 5]),
                "tasks": st.sampled_from([{}, {"requests": {"sampling": {}}}, {"requests": 5}, 5]),
                "vendor": st.just({"deep": [1.5]}),
            },
        ),
        st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans()),
        st.sampled_from([*LEGACY, *MODERN, "", "2999-01-01"]),
    )
    def test_the_server_never_sees_more_than_is_offered(
        self, value: dict[str, Any], flags: tuple[bool, ...], revision: str
    ) -> None:
        offer = Offer(flags[0], flags[0] and flags[1], flags[0] and flags[2], flags[3], flags[4])
        after = rewritten(raw(value), offer, revision)
        seen = capabilities.declared_by(raw(after))
        allowed = (offer.sampling, offer.sampling_tools, offer.sampling_context, offer.form, offer.url)
        got = (seen.sampling, seen.sampling_tools, seen.sampling_context, seen.form, seen.url)
        assert all(may or not has for may, has in zip(allowed, got, strict=True))
        if revision >= "2025-11-25":
            assert allowed == got
        assert {n: value[n] for n in ("roots", "vendor") if n in value} == {
            n: after[n] for n in ("roots", "vendor") if n in after
        }
        assert not isinstance(after.get("extensions"), dict) or TASKS not in after["extensions"]


def test_what_is_withheld_is_named() -> None:
    client = ClientCapabilities(True, True, True, True, True)
    every = ["sampling", "sampling.tools", "sampling.context", "elicitation.form", "elicitation.url"]
    assert every == capabilities.withheld_from(client, Offer(), "2025-11-25")
    assert ["sampling.tools", "elicitation.url"] == capabilities.withheld_from(
        client, Offer(True, False, True, True, False), "2025-11-25"
    )
    assert [] == capabilities.withheld_from(ClientCapabilities(), Offer(True, True, True, True, True), "2025-11-25")
    assert ["sampling", "elicitation.form"] == capabilities.withheld_from(client, Offer(), "2025-06-18"), (
        "the revision has no more"
    )
