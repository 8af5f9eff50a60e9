"""A server's own UI at the reviewers' listener: its frame's headers and one-use links, what the page's script gets, and
what an app submits. tests/acceptance/browser/test_server_ui.py has it in Chromium."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import httpx2
import pytest
from msgspec.structs import replace
from starlette.requests import Request

from samplegate.protocol.elicitation_schema import Form, read_form
from samplegate.reviews.review import Review, ReviewUi, Verdict
from samplegate.reviews.web.forms import entries
from samplegate.reviews.web.ui import proposal_of
from samplegate.reviews.web.ui_frame import FEATURES, UiLink, page_policy, read_link, write_link
from tests.fakes import server_uis
from tests.fakes.reviewers_listener import ADMIN, OPS, OTHER, URL, VIEWER, ReviewersListener, client
from tests.fakes.server_uis import PICKER, ready, ready_at
from tests.fakes.visitor import Visitor

pytestmark = pytest.mark.anyio
KEY: Final = bytes(32)
PLACE: Final = "https://ui.example.com"
LOADING: Final = ReviewUi(uri="ui://a/x", dialect="rich")
LINK: Final = UiLink("ab" * 16, 1_000)
OWN: Final = {"sec-fetch-dest": "iframe", "sec-fetch-site": "same-origin"}


@pytest.fixture
def listener() -> ReviewersListener:
    return ReviewersListener()


async def shown(listener: ReviewersListener, review: Review | None = None) -> Review:
    """A pending review with its UI."""
    review = await listener.open_review(review or server_uis.review())
    assert listener.store.attach_ui(review.id, ready(review, PICKER), PICKER)
    return review


async def visitor(listener: ReviewersListener, token: str = OPS) -> Visitor:
    return await Visitor(listener.app()).sign_in(token)


async def source(listener: ReviewersListener, review: Review) -> str:
    found = await (await visitor(listener)).get(f"/reviews/{review.id}/ui/description")
    assert 200 == found.status_code
    return str(found.json()["src"])


async def frame(listener: ReviewersListener, address: str, **headers: str) -> httpx2.Response:
    """The frame's request: without a cookie."""
    async with client(listener.app()) as browser:
        return await browser.get(
            address, headers=OWN | {name.replace("_", "-"): each for name, each in headers.items()}
        )


async def test_the_frame_has_the_bytes_once_and_no_rights(listener: ReviewersListener) -> None:
    address = await source(listener, await shown(listener))
    found = await frame(listener, address)
    assert (200, PICKER, "text/html; charset=utf-8") == (
        found.status_code,
        found.content,
        found.headers["content-type"],
    )
    policy = [each.strip() for each in found.headers["content-security-policy"].split(";")]
    assert "sandbox allow-scripts allow-forms" == policy[0]
    assert {"default-src 'none'", "connect-src 'none'", "form-action 'none'", "base-uri 'none'", "frame-src 'none'"} < {
        *policy
    }
    assert {
        "connection-allowlist": "()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-dns-prefetch-control": "off",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }.items() <= dict(found.headers).items()
    assert [f"{name}=()" for name in FEATURES] == found.headers["permissions-policy"].split(", ")
    assert "set-cookie" not in found.headers
    again = await frame(listener, address)
    assert (404, b"", found.headers["content-security-policy"]) == (
        again.status_code,
        again.content,
        again.headers["content-security-policy"],
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec_fetch_dest": "document", "sec_fetch_site": "none"}, 404),
        ({"sec_fetch_site": "cross-site"}, 404),
        ({"sec_fetch_dest": "empty"}, 404),
    ],
)
async def test_only_the_pages_frame_gets_it_from_a_browser_and_a_refusal_uses_nothing_up(
    listener: ReviewersListener, headers: dict[str, str], status: int
) -> None:
    address = await source(listener, await shown(listener))
    assert status == (await frame(listener, address, **headers)).status_code
    assert (404 if status == 200 else 200) == (await frame(listener, address)).status_code


async def test_a_link_expires_and_ends_with_the_review(listener: ReviewersListener) -> None:
    review = await shown(listener)
    first, second, third = [await source(listener, review) for _ in range(3)]
    listener.now += 59
    assert 200 == (await frame(listener, first)).status_code
    listener.now += 1
    assert 404 == (await frame(listener, second)).status_code
    third = await source(listener, review)
    listener.store.decide(review.id, Verdict(word="reject"), who="ann", door="page")
    assert 404 == (await frame(listener, third)).status_code


async def test_a_link_is_for_one_ui_of_one_review(listener: ReviewersListener) -> None:
    review, other = await shown(listener), await shown(listener, server_uis.review("rv_other"))
    address = await source(listener, review)
    for wrong in (
        address.replace(review.id, other.id),
        address.replace(review.id, "rv_none"),
        address.partition("?")[0],
        f"{address}x",
        address.replace("t=", "t=0"),
    ):
        assert (404, b"") == ((await frame(listener, wrong)).status_code, (await frame(listener, wrong)).content)
    assert 200 == (await frame(listener, address)).status_code


async def test_a_store_that_fails_shows_nothing(listener: ReviewersListener) -> None:
    address = await source(listener, await shown(listener))
    listener.store.fault = "locked"
    found = await frame(listener, address)
    assert (503, b"") == (found.status_code, found.content)
    assert found.headers["content-security-policy"].startswith("sandbox")


def test_a_link_is_signed_for_its_review_its_hash_its_end_and_its_key() -> None:
    text = write_link(KEY, "rv_a", "aa", LINK)
    assert LINK == read_link(KEY, "rv_a", "aa", text, 999.0)
    assert [None] * 6 == [
        read_link(KEY, "rv_a", "aa", text, 1_000.0),
        read_link(KEY, "rv_b", "aa", text, 999.0),
        read_link(KEY, "rv_a", "ab", text, 999.0),
        read_link(bytes([1]) * 32, "rv_a", "aa", text, 999.0),
        read_link(KEY, "rv_a", "aa", text.replace("1000.", "1001.", 1), 999.0),
        read_link(KEY, "rv_a", "aa", text.replace("ab", "ac", 1), 999.0),
    ]


async def test_the_page_allows_only_this_frame(listener: ReviewersListener) -> None:
    review, other = await shown(listener), await listener.open_review(server_uis.review("rv_other", ui=None))
    ann = await visitor(listener)
    policy = (await ann.get(f"/reviews/{review.id}")).headers["content-security-policy"]
    assert policy.endswith(f"; frame-src reviews.example.com/reviews/{review.id}/ui {URL}/reviews/{review.id}/ui")
    assert "frame-src" not in (await ann.get(f"/reviews/{other.id}")).headers["content-security-policy"]
    cleo = await visitor(listener, VIEWER)
    seen = await cleo.get(f"/reviews/{review.id}")
    assert ("frame-src" in seen.headers["content-security-policy"], "ui.js" in seen.text) == (False, False)


@pytest.mark.parametrize("host", ["[::1]:8080", "a;script-src *", "x y", ""])
def test_a_name_that_no_policy_can_contain_is_left_out(listener: ReviewersListener, host: str) -> None:
    request = Request({"type": "http", "headers": [(b"host", host.encode())]})
    assert page_policy(listener.web, request, "rv_a", LOADING).endswith(f"; frame-src {URL}/reviews/rv_a/ui")
    bare = replace(listener.web, url="http://[::1]:8080")
    assert page_policy(bare, request, "rv_a", LOADING).endswith("; frame-src 'none'")


async def at_url(listener: ReviewersListener, url: str, *origins: str) -> Review:
    """A pending review whose UI is a URL."""
    review = await listener.open_review(server_uis.review(dialect="rich", origins=origins))
    assert listener.store.attach_ui(review.id, ready_at(review, url), url.encode())
    return review


async def test_a_page_allows_the_rules_origins_until_a_ui_is_read_then_that_of_its_url(
    listener: ReviewersListener,
) -> None:
    two = (PLACE, "https://other.example")
    own = "{0}/reviews/{1}/ui {2}/reviews/{1}/ui".format("reviews.example.com", "rv_l", URL)
    ann = await visitor(listener)
    loading = await listener.open_review(server_uis.review("rv_l", "rich", origins=two))
    policy = (await ann.get(f"/reviews/{loading.id}")).headers["content-security-policy"]
    assert policy.endswith(f"; frame-src {own} {' '.join(two)}")
    assert listener.store.attach_ui(loading.id, ready(loading, PICKER), PICKER)
    policy = (await ann.get(f"/reviews/{loading.id}")).headers["content-security-policy"]
    assert policy.endswith(f"; frame-src {own}")
    review = await at_url(listener, f"{PLACE}/app?x", *two)
    page = await ann.get(f"/reviews/{review.id}")
    assert page.headers["content-security-policy"].endswith(f"; frame-src {PLACE}")
    assert f'data-origin="{PLACE}"' in page.text


async def test_a_url_is_described_and_not_served(listener: ReviewersListener) -> None:
    review = await at_url(listener, f"{PLACE}/app?x", PLACE)
    ann = await visitor(listener)
    described = (await ann.get(f"/reviews/{review.id}/ui/description")).json()
    assert review.ui is not None
    sha256 = hashlib.sha256(f"{PLACE}/app?x".encode()).hexdigest()
    assert (f"{PLACE}/app?x", sha256) == (described["src"], described["sha256"])
    key = listener.store.key()
    link = write_link(key, review.id, sha256, UiLink("ab" * 16, int(listener.store.wall()) + 30))
    assert (404, b"") == (
        (found := await frame(listener, f"/reviews/{review.id}/ui?t={link}")).status_code,
        found.content,
    )


@pytest.mark.parametrize("url", [URL, "http://reviews.example.com", f"{URL}:8443"])
async def test_a_url_at_the_pages_own_host_is_not_shown(listener: ReviewersListener, url: str) -> None:
    review = await at_url(listener, f"{url}/x", url)
    ann = await visitor(listener)
    assert 409 == (await ann.get(f"/reviews/{review.id}/ui/description")).status_code
    policy = (await ann.get(f"/reviews/{review.id}")).headers["content-security-policy"]
    assert policy.endswith("; frame-src 'none'")


async def test_the_script_gets_the_unchanged_request_and_a_new_link_each_time(listener: ReviewersListener) -> None:
    review = await shown(listener, server_uis.review(dialect="rich"))
    ann = await visitor(listener)
    first, second = [(await ann.get(f"/reviews/{review.id}/ui/description")).json() for _ in range(2)]
    assert (review.params, "rich", server_uis.CONTEXT) == (first["params"], first["dialect"], first["context"])
    assert first["src"] != second["src"]


@pytest.mark.parametrize(("token", "status"), [(OTHER, 404), (VIEWER, 403), (ADMIN, 200)])
async def test_only_those_who_may_decide_get_it(listener: ReviewersListener, token: str, status: int) -> None:
    review = await shown(listener)
    found = await (await visitor(listener, token)).get(f"/reviews/{review.id}/ui/description")
    assert status == found.status_code


async def test_no_ui_is_described_before_it_is_ready_or_after_the_end(listener: ReviewersListener) -> None:
    review = await listener.open_review(server_uis.review())
    ann = await visitor(listener)
    path = f"/reviews/{review.id}/ui/description"
    assert 409 == (await ann.get(path)).status_code
    listener.store.attach_ui(review.id, ready(review, PICKER), PICKER)
    assert 200 == (await ann.get(path)).status_code
    listener.store.decide(review.id, Verdict(word="reject"), who="ann", door="page")
    assert 409 == (await ann.get(path)).status_code


async def proposed(listener: ReviewersListener, review: Review, **given: Any) -> httpx2.Response:
    """Post what an app submitted, as the page's script does."""
    ann = await visitor(listener)
    page = await ann.open(f"/reviews/{review.id}")
    token = page.page.all("input", name="form_token")[-1].attrs["value"]
    body = {"form_token": token, "ui": ready(review, PICKER).sha256, "action": "accept"} | given
    text = json.dumps({name: value for name, value in body.items() if value is not ...})
    return await ann.post(f"/reviews/{review.id}/ui/proposal", text, "application/json")


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ({"color": "#3b82f6"}, []),
        ({"color": "#3b82f6", "name": "Blue"}, []),
        ({"color": "#gggggg"}, ["Color: "]),
        ({"color": "3b82f6"}, ["Color: "]),
        ({"color": 5}, ["Color: "]),
        ({"color": "#3b82f6", "extra": 1}, ["extra: "]),
        ({"name": "Blue"}, ["Color: "]),
        ({}, ["Color: "]),
        (None, ["Color: "]),
        ([1], ["content: "]),
        ("x" * 70_000, ["content: "]),
    ],
)
async def test_what_an_app_submits_is_checked_as_if_typed_and_decides_nothing(
    listener: ReviewersListener, content: Any, problems: list[str]
) -> None:
    review = await shown(listener)
    before = len(listener.store.events)
    found = await proposed(listener, review, content=content)
    said = found.json()
    assert 200 == found.status_code
    assert [True] * len(problems) == [
        each.startswith(begin) for each, begin in zip(said["problems"], problems, strict=True)
    ]
    assert said["form"].count('id="form"') == 1
    if isinstance(content, dict) and isinstance(content.get("color"), str):
        assert f'value="{content["color"]}"' in said["form"]
    assert ("pending", before) == (listener.store.reviews[review.id].state, len(listener.store.events))


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_of_the_app_changes_no_form(listener: ReviewersListener, action: str) -> None:
    found = await proposed(listener, await shown(listener), action=action, content={"color": 5})
    assert {"problems": [], "form": None} == found.json()


async def test_markup_in_what_an_app_submits_stays_text(listener: ReviewersListener) -> None:
    bad = "</textarea>\"'><script>alert(1)</script>"
    found = await proposed(listener, await shown(listener), content={"color": bad, "name": bad, bad: bad})
    assert "<script" not in found.json()["form"]


def test_secrets_that_an_app_fills_in_are_left_to_the_person() -> None:
    fields = {"user": {"type": "string"}, "password": {"type": "string"}}
    review = server_uis.review(params={"message": "?", "requestedSchema": {"type": "object", "properties": fields}})
    made = proposal_of(review, {"user": "ann", "password": "hunter2"})
    assert ((), ["content.password"]) == (made.problems, list(made.rejected.problems))
    assert "hunter2" not in repr(made)


@pytest.mark.parametrize(
    ("content", "sendable"),
    [
        ({"color": "#3b82f6"}, True),
        ({"color": "#3b82f6", "unknown": 1}, True),
        ({"color": "#3b82f6", "name": 5}, True),
        ({"color": "red"}, False),
        ({"name": "Blue"}, False),
        (None, False),
    ],
)
def test_the_page_learns_whether_the_filled_form_can_be_sent(content: Any, sendable: bool) -> None:
    assert sendable == proposal_of(server_uis.review(), content).sendable


def test_a_problem_shows_hidden_characters_of_a_title_and_its_beginning() -> None:
    fields = {"n": {"type": "number", "title": "\u202eevorppA" + "x" * 5_000}}
    review = server_uis.review(params={"message": "?", "requestedSchema": {"type": "object", "properties": fields}})
    (said,) = proposal_of(review, {"n": "x"}).problems
    assert ("[U+202E]evorppA", "x: must be a number") == (said[:15], said[-19:])
    assert len(said) < 400


def test_line_ends_that_an_app_fills_in_are_shown_and_sent() -> None:
    fields = {"name": {"type": "string"}}
    review = server_uis.review(params={"message": "?", "requestedSchema": {"type": "object", "properties": fields}})
    made = proposal_of(review, {"name": "a\nb"}).rejected
    form = read_form(review.params["requestedSchema"], review.revision)
    assert isinstance(form, Form)
    (entry,) = entries(form, made.posted, {})
    assert ("lines", "a\nb", {"name": "a\nb"}) == (entry.draws, entry.value, made.form.verdict["content"])


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"form_token": "0" * 64}, 403),
        ({"form_token": ...}, 403),
        ({"form_token": 7}, 403),
        ({"ui": "ab" * 32}, 409),
        ({"ui": ...}, 409),
        ({"action": "approve"}, 200),
        ({"action": {}}, 200),
    ],
)
async def test_a_submission_needs_the_sessions_token_and_the_ui_that_is_shown(
    listener: ReviewersListener, given: dict[str, Any], status: int
) -> None:
    found = await proposed(listener, await shown(listener), **given)
    assert status == found.status_code
    if "action" in given:
        assert {"problems": ["action: must be accept, decline or cancel"], "form": None} == found.json()


async def test_a_submission_is_bounded_and_is_json(listener: ReviewersListener) -> None:
    review = await shown(listener)
    assert 413 == (await proposed(listener, review, content="x" * (1 << 20))).status_code
    ann = await visitor(listener)
    path = f"/reviews/{review.id}/ui/proposal"
    assert [415, 400, 400, 403] == [
        (await ann.post(path, "{}", "text/plain")).status_code,
        (await ann.post(path, "{", "application/json")).status_code,
        (await ann.post(path, "[" * 100, "application/json")).status_code,
        (await ann.post(path, "[]", "application/json")).status_code,
    ]
    async with client(listener.app()) as stranger:
        refused = await stranger.post(path, json={}, headers={"origin": URL})
    assert refused.status_code in (303, 403)


async def test_the_forms_hash_is_bound_to_the_verdict_and_another_is_stale(listener: ReviewersListener) -> None:
    review = await shown(listener)
    ann = await visitor(listener)
    await ann.open(f"/reviews/{review.id}")
    ann.fill("Color", "#3b82f6")
    await ann.set_hidden("ui", "ab" * 32).press("Accept and send")
    assert (409, "pending") == (ann.status, listener.store.reviews[review.id].state)
    assert "the server's UI that was shown is not that of the review" in ann.alert
    assert "#3b82f6" == ann.value("Color")
    assert "" == ann.page.one("input", name="ui").attrs["value"]
    await ann.set_hidden("ui", ready(review, PICKER).sha256).press("Accept and send")
    verdict = listener.store.reviews[review.id].verdict
    assert verdict is not None
    assert ready(review, PICKER).sha256 == verdict.ui
    assert f"The server's own UI was shown (sha256:{ready(review, PICKER).sha256})" in ann.page.text


async def test_without_a_hash_no_ui_was_shown(listener: ReviewersListener) -> None:
    review = await shown(listener)
    ann = await visitor(listener)
    await ann.open(f"/reviews/{review.id}")
    await ann.fill("Color", "#3b82f6").press("Accept and send")
    verdict = listener.store.reviews[review.id].verdict
    assert verdict is not None
    assert "" == verdict.ui
    assert "The server's own UI was not shown" in ann.page.text


async def test_a_ui_that_came_too_late_is_not_being_loaded(listener: ReviewersListener) -> None:
    review = server_uis.review()
    await listener.open_review(review)
    ann = await visitor(listener)
    await ann.open(f"/reviews/{review.id}")
    assert "(loading)" in ann.page.text
    await ann.fill("Color", "#3b82f6").press("Accept and send")
    assert "(not loaded)" in ann.page.text


async def test_a_form_that_comes_back_remembers_the_ui(listener: ReviewersListener) -> None:
    review = await shown(listener)
    ann = await visitor(listener)
    await ann.open(f"/reviews/{review.id}")
    ann.set_hidden("ui", ready(review, PICKER).sha256)
    await ann.fill("Color", "red").press("Accept and send")
    assert (422, ready(review, PICKER).sha256) == (ann.status, ann.page.one("input", name="ui").attrs["value"])


DEEP: Final = {"type": "object", "properties": {"deep": {"type": "object"}}}


@pytest.mark.parametrize(
    "more",
    [
        {"params": {"message": "?", "requestedSchema": DEEP}},
        {"params": {"message": "?"}},
        {"mode": "url", "params": {"message": "?", "url": "https://example.com/", "elicitationId": "1"}},
    ],
    ids=["not flat", "no schema", "a URL"],
)
async def test_what_the_gate_cannot_check_shows_no_ui(listener: ReviewersListener, more: dict[str, Any]) -> None:
    review = await shown(listener, server_uis.review(**more))
    ann = await visitor(listener)
    assert "ui.js" not in (await ann.get(f"/reviews/{review.id}")).text
    assert 409 == (await ann.get(f"/reviews/{review.id}/ui/description")).status_code
