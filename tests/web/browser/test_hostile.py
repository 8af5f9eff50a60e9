"""A peer's texts in Chromium: no script of theirs runs, nothing is asked of anybody, no policy is even tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from tests.core.review.made import text
from tests.web.browser import shown
from tests.web.browser.conftest import Site, Watched
from tests.web.listener import ID, OPS
from tests.web.test_pages import hostile

pytestmark = pytest.mark.timeout(180)
CANARY = "window.ran = true"
TRIED = (
    f"<script>{CANARY}</script>",
    f"<img src=x onerror='{CANARY}'>",
    f"</textarea><svg onload='{CANARY}'>",
    f"\"><iframe srcdoc='<script>parent.{CANARY}</script>'></iframe>",
    f"[x](javascript:{CANARY})",
    "![x](https://evil.example/leak.png) <https://evil.example/> <link rel=stylesheet href=https://evil.example/a.css>",
    "<base href=https://evil.example/><meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example/><button>Approve</button></form>",
    "<style>@import 'https://evil.example/a.css'; body { display: none }</style>",
)


def everywhere(payload: str) -> list[Any]:
    """Reviews with the payload in every field that a peer writes."""
    block = [text(payload), {"type": "tool_use", "id": payload, "name": payload, "input": {payload: payload}}]
    fields = {
        payload: {"type": "string", "title": payload, "description": payload, "default": payload},
        "pick": {
            "type": "string",
            "title": payload,
            "oneOf": [{"const": f"{payload}{n}", "title": payload} for n in range(9)],
        },
    }
    params = {
        "messages": [{"role": "user", "content": block}],
        "systemPrompt": payload,
        "maxTokens": 5,
        "tools": [{"name": payload, "inputSchema": {}}],
    }
    names = {"server": payload, "caller": payload, "rule": payload, "arguments": {payload: payload}}
    return [
        shown.sampling(**names, params=params),
        shown.form(
            fields,
            (payload,),
            **{**names, "params": {"message": payload, "requestedSchema": {"type": "object", "properties": fields}}},
        ),
        shown.url(f"https://login.example.com/?{payload}", **names),
        shown.answer(**names, params=params, answer={"role": "assistant", "content": block, "model": payload}),
    ]


@pytest.fixture
def watched(page_of: Callable[..., Page], site: Site) -> tuple[Page, Watched]:
    page = page_of(OPS)
    found = Watched(page.context, site.url)
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective}"
        " ${e.blockedURI}`))"
    )
    return page, found


@pytest.mark.parametrize("payload", TRIED)
def test_nothing_that_a_peer_writes_does_anything(payload: str, watched: tuple[Page, Watched], site: Site) -> None:
    page, found = watched
    reviews = everywhere(payload)
    site.open(*reviews)
    for path in ["/reviews", "/reviews/history", *(f"/reviews/{review.id}" for review in reviews)]:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert not page.evaluate("'ran' in window")
        assert 1 == page.evaluate("document.querySelectorAll('script').length")
        assert 0 == page.evaluate(
            "document.querySelectorAll('iframe, base, meta[http-equiv], style, svg, object, embed').length"
        )
    assert [] == found.elsewhere
    assert [] == found.said


def test_what_was_typed_and_comes_back_does_nothing_either(watched: tuple[Page, Watched], site: Site) -> None:
    page, found = watched
    site.open(shown.form())
    page.goto(f"/reviews/{shown.form().id}")
    for label in ("Service name", "Port", "Notes", "Restart at"):
        page.get_by_label(label).fill(f"</textarea>\"'><script>{CANARY}</script>")
    page.get_by_role("button", name="Accept and send").click()
    expect(page.get_by_role("alert")).to_contain_text("Not submitted")
    assert not page.evaluate("'ran' in window")
    assert [] == [said for said in found.said if "422" not in said]


@pytest.mark.parametrize("number", range(8))
def test_every_field_of_a_review_may_hold_the_worst(number: int, watched: tuple[Page, Watched], site: Site) -> None:
    page, found = watched
    review = hostile()[number]
    site.open(replace(review, state="pending"))
    site.house.store.reviews[ID] = review
    for path in (f"/reviews/{ID}", "/reviews", "/reviews/history"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert ([], []) == (found.elsewhere, found.said)


def test_a_page_that_was_taken_over_could_still_run_and_reach_nothing(
    watched: tuple[Page, Watched], site: Site
) -> None:
    """The second wall, tried by hand: markup that got into the page after all."""
    page, found = watched
    page.goto("/reviews")
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = true\"><img"
        " src=https://evil.example/leak.png>')"
    )
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = true' }))"
    )
    expect.set_options(timeout=5_000)
    page.wait_for_function("document.querySelectorAll('img').length === 2")
    assert not page.evaluate("'ran' in window")
    assert any("script-src" in said for said in found.said)
    assert any("img-src" in said for said in found.said)


def test_a_huge_review_is_laid_out(watched: tuple[Page, Watched], site: Site) -> None:
    page, found = watched
    messages = [{"role": "user", "content": text(f"{n} " + "word\u200b " * 40_000)} for n in range(40)]
    site.open(shown.sampling(params={"messages": messages, "maxTokens": 5}))
    page.goto(f"/reviews/{shown.sampling().id}")
    expect(page.get_by_text("Not all of it is shown here")).to_be_visible()
    assert [] == found.said


def test_a_long_text_shows_its_beginning_and_opens(watched: tuple[Page, Watched], site: Site) -> None:
    page, _ = watched
    site.open(
        shown.sampling(
            params={
                "messages": [{"role": "user", "content": text("begin " + "word " * 2_000 + "the end")}],
                "maxTokens": 5,
            }
        )
    )
    page.goto(f"/reviews/{shown.sampling().id}")
    end = page.locator(".message.user details").get_by_text("the end")
    expect(end).to_be_hidden()
    page.get_by_text("Show all 10,013 characters of the text").click()
    expect(end).to_be_visible()
