"""Deciding at the page, in Chromium, with script and without: what was pressed is what the store keeps."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.web.browser import shown
from tests.web.browser.conftest import Site
from tests.web.listener import OPS, VIEWER

pytestmark = pytest.mark.timeout(180)
BOTH = pytest.mark.parametrize("script", [True, False], ids=["with script", "without script"])
Pages = Callable[..., Page]


@pytest.fixture
def page(page_of: Pages, script: bool) -> Page:
    return page_of(java_script_enabled=script)


@BOTH
def test_signing_in_leads_back_to_the_review_that_was_asked_for(
    page_of: Pages, site: Site, script: bool, context_of: Callable[..., object]
) -> None:
    site.open(shown.sampling())
    context = context_of(java_script_enabled=script)
    page: Page = context.new_page()  # type: ignore[attr-defined]
    page.goto(f"/reviews/{shown.sampling().id}")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Nobody has this token")
    page.get_by_label("Token").fill(OPS)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tickets asks a model")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to the reviews")


def test_a_token_in_the_fragment_fills_the_field_and_is_gone_from_the_address(
    context_of: Callable[..., object], site: Site
) -> None:
    page: Page = context_of().new_page()  # type: ignore[attr-defined]
    page.goto(f"/reviews/sign-in#{OPS}")
    expect(page.get_by_label("Token")).to_have_value(OPS)
    assert f"{site.url}/reviews/sign-in" == page.url


@BOTH
def test_a_request_is_approved_as_it_is(page: Page, site: Site) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto("/reviews")
    page.get_by_role("link", name="tickets asks a model").click()
    expect(page.get_by_text("three sentences", exact=True)).to_be_visible()
    expect(page.get_by_role("img", name="Picture 1 that was sent along")).to_be_visible()
    expect(page.get_by_text("$0.013", exact=True)).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
    kept = site.get(review.id)
    assert kept.verdict is not None
    assert ("approved", None, "ann", "page") == (kept.state, kept.verdict.edits, kept.who, kept.door)


@BOTH
def test_edits_are_shown_before_they_are_approved(page: Page, site: Site, script: bool) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_role("link", name="edit", exact=True).click()
    page.get_by_label("Message 1 (user)").fill("Summarise it in one line.")
    page.get_by_label("Max tokens").fill("5000")
    page.get_by_label("Model", exact=True).select_option("quick")
    if not script:
        page.get_by_role("button", name="Show changes").click()
    changes = page.get_by_role("group", name="Changes")
    expect(changes.locator("ins").filter(has_text="quick")).to_be_visible()
    expect(changes).to_contain_text("must be 1 to 500")
    page.get_by_role("button", name="Approve with edits").click()
    expect(page.get_by_role("alert").filter(has_text="Not submitted")).to_contain_text("Max tokens: must be 1 to 500")
    expect(page.get_by_label("Max tokens")).to_have_value("5000")
    expect(page.get_by_label("Message 1 (user)")).to_have_value("Summarise it in one line.")
    page.get_by_label("Max tokens").fill("300")
    page.get_by_role("button", name="Approve with edits").click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
    expect(page.locator("ins").filter(has_text="Summarise")).to_be_visible()
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert verdict.edits is not None
    assert ("quick", 300, None, None) == (
        verdict.edits.model,
        verdict.edits.max_tokens,
        verdict.edits.temperature,
        verdict.edits.system_prompt,
    )
    assert verdict.edits.messages is not None
    assert ["Summarise it in one line.", shown.png()] == [
        block.get("text", block.get("data")) for block in verdict.edits.messages[0]["content"]
    ]


@BOTH
def test_typed_edits_are_never_dropped_by_approve(page: Page, site: Site, script: bool) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.locator("#edit summary").click()
    page.get_by_label("Message 1 (user)").fill("Summarise the ticket without its names.")
    approve = page.get_by_role("button", name="Approve", exact=True)
    if script:
        expect(approve).to_be_disabled()
        expect(page.get_by_role("button", name="Approve with edits")).to_be_enabled()
        page.get_by_role("textbox", name="Reason").fill("no names")
        expect(page.get_by_role("group", name="Changes").locator("ins").first).to_be_visible()
        expect(approve).to_be_disabled()
    else:
        approve.click()
        expect(page.get_by_role("alert")).to_contain_text(
            'Your edits would be lost (Messages). Choose "Approve with edits"'
        )
        expect(page.get_by_role("group", name="Changes").locator("ins").filter(has_text="without")).to_be_visible()
    assert "pending" == site.get(review.id).state
    expect(page.get_by_label("Message 1 (user)")).to_have_value("Summarise the ticket without its names.")
    page.get_by_role("button", name="Approve with edits").click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert verdict.edits is not None
    assert verdict.edits.messages is not None
    assert "Summarise the ticket without its names." == verdict.edits.messages[0]["content"][0]["text"]


@BOTH
def test_an_edited_answer_is_never_dropped_by_release(page: Page, site: Site, script: bool) -> None:
    review = shown.answer()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.locator("#by-hand summary").click()
    page.get_by_label("The answer", exact=True).fill("The export job fails.")
    release = page.get_by_role("button", name="Release", exact=True)
    if script:
        expect(release).to_be_disabled()
    else:
        release.click()
        expect(page.get_by_role("alert")).to_contain_text(
            'Your edits would be lost (Answer). Choose "Release with edits"'
        )
    assert "pending" == site.get(review.id).state
    page.get_by_role("button", name="Release with edits").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


@BOTH
def test_edits_and_an_answer_of_ones_own_are_not_both_used(page: Page, site: Site, script: bool) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.locator("#edit summary").click()
    page.locator("#by-hand summary").click()
    page.get_by_label("Your answer").fill("Forty-two")
    page.get_by_label("Temperature").fill("0.9")
    for name in ("Approve", "Approve with edits", "Send this answer"):
        button = page.get_by_role("button", name=name, exact=True)
        if script:
            expect(button).to_be_disabled()
            continue
        button.click()
        expect(page.get_by_role("alert")).to_contain_text(
            "You edited the request and also wrote an answer (Temperature, Your answer)"
        )
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_role("button", name="Send this answer").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")


def opened_edits(page: Page, site: Site) -> str:
    """The ID of a review whose page is open, with its form of edits."""
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.locator("#edit summary").click()
    return review.id


@BOTH
def test_undone_edits_are_no_edits(page: Page, site: Site) -> None:
    opened_edits(page, site)
    page.get_by_label("Temperature").fill("0.9")
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")


@BOTH
def test_the_enter_key_in_a_field_decides_nothing(page: Page, site: Site) -> None:
    review = opened_edits(page, site)
    page.get_by_label("Temperature").press("Enter")
    expect(page).to_have_url(re.compile("/verdict$"))
    page.get_by_label("The server sees the reason").press("Enter")
    expect(page.get_by_role("button", name="Reject")).to_be_visible()
    assert "pending" == site.get(review).state


@BOTH
def test_a_note_comes_with_the_acceptance_of_a_form(page: Page, site: Site) -> None:
    review = shown.form({"port": {"type": "integer"}})
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_label("port").fill("80")
    page.get_by_label("Note").fill("agreed by phone")
    page.get_by_role("button", name="Accept and send").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert "agreed by phone" == verdict.reason


@BOTH
@pytest.mark.parametrize("told", [True, False])
def test_a_request_is_rejected_with_a_reason(page: Page, site: Site, told: bool) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_role("textbox", name="Reason").fill("Not with customer data")
    page.get_by_label("The server sees the reason").set_checked(told)
    page.get_by_role("button", name="Reject").click()
    expect(page.locator("#standing")).to_contain_text("Rejected by ann")
    expect(page.get_by_text("The server is told it." if told else "The server is not told it.")).to_be_visible()
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert ("reject", "Not with customer data", told) == (verdict.word, verdict.reason, verdict.tell_server)


@BOTH
def test_a_reason_that_is_to_be_seen_must_be_there(page: Page, site: Site) -> None:
    site.open(shown.sampling())
    page.goto(f"/reviews/{shown.sampling().id}")
    page.get_by_label("The server sees the reason").check()
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("textbox", name="Reason")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("The server sees the reason")).to_be_checked()
    assert "pending" == site.get(shown.sampling().id).state


@BOTH
def test_a_person_answers_in_place_of_a_model(page: Page, site: Site) -> None:
    review = shown.sampling(bounds=None, why="no model fits: it brings a picture")
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    expect(page.get_by_text("It cannot be approved: no model fits")).to_be_visible()
    page.get_by_role("link", name="you write").click()
    page.get_by_label("Your answer").fill("The disk of db-7 is full.\nFree some.")
    page.get_by_role("button", name="Send this answer").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert verdict.result is not None
    assert "The disk of db-7 is full.\nFree some." == verdict.result["content"]["text"]


@BOTH
def test_a_models_answer_is_edited_and_released(page: Page, site: Site, script: bool) -> None:
    review = shown.answer()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_role("link", name="edit it").click()
    page.get_by_label("The answer", exact=True).fill("The export job on db-7 fails for want of disk.")
    if not script:
        page.get_by_role("button", name="Show changes").click()
    expect(page.get_by_role("group", name="Changes").locator("del")).to_contain_text("A restart did not help.")
    page.get_by_role("button", name="Release with edits").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert verdict.result is not None
    assert "The export job on db-7 fails for want of disk." == verdict.result["content"]["text"]


@BOTH
def test_a_models_answer_is_released_as_it_is(page: Page, site: Site) -> None:
    site.open(shown.answer())
    page.goto(f"/reviews/{shown.answer().id}")
    page.get_by_role("button", name="Release", exact=True).click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")


@BOTH
def test_a_form_of_every_kind_of_field_is_corrected_and_sent(page: Page, site: Site) -> None:
    review = shown.form()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    expect(page.get_by_text("A verdict now answers the next same request")).to_be_visible()
    expect(page.get_by_text("This looks like a secret")).to_be_visible()
    expect(page.get_by_label("API key")).to_have_value("")
    page.get_by_label("Port").fill("99999")
    page.get_by_label("Contact").fill("nobody")
    page.get_by_role("button", name="Accept and send").click()
    summary = page.get_by_role("alert").filter(has_text="Not submitted")
    expect(summary.get_by_role("listitem")).to_have_count(4)
    for field in ("Service name", "Region", "Port", "Contact"):
        expect(page.get_by_label(field)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Port")).to_have_value("99999")
    summary.get_by_role("link", name="Port").click()
    page.get_by_label("Port").fill("8443")
    page.get_by_label("Service name").fill("export")
    page.get_by_label("Contact").fill("ops@example.com")
    page.get_by_label("Status page").fill("https://status.example.com/")
    page.get_by_label("Since").fill("2026-11-20")
    page.get_by_label("Restart at").fill("2026-11-22T10:00:00Z")
    page.get_by_label("Share of traffic").fill("0.25")
    page.get_by_role("group", name="Restart now").get_by_label("Yes").check()
    page.get_by_role("group", name="Size").get_by_label("Large (l)").check()
    page.get_by_label("Region").select_option(label="Region 3 (r3)")
    page.get_by_role("group", name="Tags").get_by_label("edge").check()
    page.get_by_label("Notes").fill("one\ntwo")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("group", name="What would be sent")).to_contain_text('"port": 8443')
    page.get_by_role("button", name="Accept and send").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert verdict.result == {
        "action": "accept",
        "content": {
            "name": "export",
            "contact": "ops@example.com",
            "page": "https://status.example.com/",
            "since": "2026-11-20",
            "at": "2026-11-22T10:00:00Z",
            "port": 8443,
            "share": 0.25,
            "restart": True,
            "size": "l",
            "region": "r3",
            "tags": ["web", "edge"],
            "notes": "one\ntwo",
        },
    }


@BOTH
@pytest.mark.parametrize("action", ["Decline", "Cancel"])
def test_a_form_is_declined_or_cancelled(page: Page, site: Site, action: str) -> None:
    site.open(shown.form())
    page.goto(f"/reviews/{shown.form().id}")
    page.get_by_role("button", name=action).click()
    expect(page.get_by_text(f"The server's question was answered: {action.lower()}.")).to_be_visible()
    verdict = site.get(shown.form().id).verdict
    assert verdict is not None
    assert {"action": action.lower()} == verdict.result


@BOTH
@pytest.mark.parametrize("action", ["Accept", "Decline", "Cancel"])
def test_an_address_is_text_with_its_host_apart_and_is_answered_without_being_opened(
    page: Page, site: Site, action: str
) -> None:
    review = shown.url()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    expect(page.locator(".host").first).to_have_text("login.xn--pypal-4ve.com")
    expect(page.locator(".url")).to_have_text("https://login.xn--pypal-4ve.com/consent?client=night-shift&state=81f2")
    expect(page.get_by_text("punycode")).to_be_visible()
    expect(page.get_by_text("You are not the user whom the server meant to open it.")).to_be_visible()
    expect(page.locator(".url a, a .url")).to_have_count(0)
    page.get_by_role("button", name=action).click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    verdict = site.get(review.id).verdict
    assert verdict is not None
    assert {"action": action.lower()} == verdict.result


@BOTH
def test_who_only_looks_has_nothing_to_press(page_of: Pages, site: Site, script: bool) -> None:
    site.open(shown.sampling())
    page = page_of(VIEWER, java_script_enabled=script)
    page.goto(f"/reviews/{shown.sampling().id}")
    expect(page.get_by_text("You may only look")).to_be_visible()
    expect(page.get_by_role("button")).to_have_text(["Sign out"])
