"""Decisions at the page in Chromium: from the sign-in to the decision, the store gets what was pressed.
tests/unit/reviews/web/test_deciding.py has each button and field without a browser."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from samplegate.reviews.review import Verdict
from samplegate.reviews.web.context import Person
from tests.acceptance.browser.conftest import Site
from tests.fakes import page_reviews as shown
from tests.fakes.page_reviews import FILLED
from tests.fakes.reviewers_listener import OPS

pytestmark = pytest.mark.timeout(180)
BOTH = pytest.mark.parametrize("script", [True, False], ids=["with script", "without script"])
Pages = Callable[..., Page]


def verdict(site: Site, id: str) -> Verdict:
    found = site.get(id).verdict
    assert found is not None
    return found


@BOTH
def test_signing_in_leads_back_to_the_review_that_was_asked_for_and_it_is_approved(
    context_of: Callable[..., BrowserContext], site: Site, script: bool
) -> None:
    review = shown.sampling()
    site.open(review)
    page = context_of(java_script_enabled=script).new_page()
    page.goto(f"/reviews/{review.id}")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Unknown token")
    page.get_by_label("Token").fill(OPS)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sampling request from tickets")
    expect(page.get_by_text("three sentences", exact=True)).to_be_visible()
    expect(page.get_by_role("img", name="Attached image 1")).to_be_visible()
    expect(page.get_by_text("$0.013", exact=True)).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
    kept = site.get(review.id)
    assert ("approved", None, "ann", "page") == (kept.state, verdict(site, review.id).edits, kept.who, kept.door)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to samplegate reviews")


def test_a_queue_is_worked_off_from_the_list_to_the_last_verdict(page: Page, site: Site) -> None:
    """Each kind of review is decided once, as it was asked. Two presses of a button are one verdict."""
    reviews = [shown.sampling(), shown.answer(), shown.form(), shown.url()]
    site.open(*reviews)
    posts: list[str] = []
    page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
    for review, link, button, said in zip(
        reviews,
        ["Sampling request from tickets", "Model's answer for tickets", "Form with", "URL request from calendar"],
        ["Approve", "Release", "Decline", "Accept"],
        ["Approved by ann", "Approved by ann", "Answered by ann", "Answered by ann"],
        strict=True,
    ):
        page.goto("/reviews")
        page.get_by_role("link", name=link).click()
        if review.mode == "url":
            expect(page.locator(".host").first).to_have_text("login.xn--pypal-4ve.com")
            expect(
                page.get_by_text("The server wants its own user to open this URL. You are not that user.")
            ).to_be_visible()
        page.get_by_role("button", name=button, exact=True).dblclick()
        expect(page.locator("#standing")).to_contain_text(said)
    assert [f"{site.url}/reviews/{review.id}/verdict" for review in reviews] == posts
    assert [None, None, {"action": "decline"}, {"action": "accept"}] == [
        verdict(site, review.id).result for review in reviews
    ]
    page.goto("/reviews")
    expect(page.get_by_text("No pending reviews.")).to_be_visible()


def test_edits_are_shown_while_they_are_typed_and_never_dropped(page: Page, site: Site) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_role("link", name="your edits").click()  # opens the form, which is folded
    approve, edit = (page.get_by_role("button", name=name, exact=True) for name in ("Approve", "Approve with edits"))
    changes = page.get_by_role("group", name="Changes")
    page.get_by_label("Temperature").fill("0.9")
    expect(changes.locator("ins")).to_contain_text("0.9")
    expect(approve).to_be_disabled()
    expect(edit).to_be_enabled()
    page.get_by_label("Temperature").fill("0.2")  # undone
    expect(approve).to_be_enabled()
    expect(edit).to_be_disabled()
    page.get_by_label("Message 1 (user)").fill("Summarise it in one line.")
    page.get_by_label("Max tokens").fill("5000")
    page.get_by_label("Model", exact=True).select_option("quick")
    expect(changes.locator("ins").filter(has_text="quick")).to_be_visible()
    expect(changes).to_contain_text("must be from 1 to 500")
    page.get_by_role("textbox", name="Reason").fill("shorter")
    expect(approve).to_be_disabled()
    assert "pending" == site.get(review.id).state
    edit.click()
    expect(page.get_by_role("alert").filter(has_text="Not submitted")).to_contain_text(
        "Max tokens must be from 1 to 500"
    )
    expect(page.get_by_label("Max tokens")).to_have_value("5000")
    expect(page.get_by_label("Message 1 (user)")).to_have_value("Summarise it in one line.")
    page.get_by_label("Max tokens").fill("300")
    edit.click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
    expect(page.locator("ins").filter(has_text="Summarise")).to_be_visible()
    edits = verdict(site, review.id).edits
    assert edits is not None
    assert ("quick", 300, None, None) == (edits.model, edits.max_tokens, edits.temperature, edits.system_prompt)
    assert edits.messages is not None
    assert ["Summarise it in one line.", shown.png()] == [
        block.get("text", block.get("data")) for block in edits.messages[0]["content"]
    ]


def test_without_script_the_server_refuses_what_would_drop_edits(page_of: Pages, site: Site) -> None:
    review = shown.sampling()
    site.open(review)
    page = page_of(java_script_enabled=False)
    page.goto(f"/reviews/{review.id}")
    page.locator("#edit summary").click()
    page.get_by_label("Message 1 (user)").fill("Summarise the ticket without its names.")
    page.get_by_role("button", name="Show changes").click()
    changes = page.get_by_role("group", name="Changes")
    expect(changes.locator("ins").filter(has_text="without")).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text(
        'Your edits would be lost (Messages). Choose "Approve with edits"'
    )
    assert "pending" == site.get(review.id).state
    page.get_by_role("button", name="Approve with edits").click()
    expect(page.locator("#standing")).to_contain_text("Approved by ann")
    edits = verdict(site, review.id).edits
    assert edits is not None
    assert edits.messages is not None
    assert "Summarise the ticket without its names." == edits.messages[0]["content"][0]["text"]


def test_a_models_answer_is_edited_and_released(page: Page, site: Site) -> None:
    review = shown.answer()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_role("link", name="your edits").click()
    page.get_by_label("Answer", exact=True).fill("The export job on db-7 fails for want of disk.")
    expect(page.get_by_role("button", name="Release", exact=True)).to_be_disabled()
    expect(page.get_by_role("group", name="Changes").locator("del")).to_contain_text("A restart did not help.")
    page.get_by_role("button", name="Release with edits").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    result = verdict(site, review.id).result
    assert result is not None
    assert "The export job on db-7 fails for want of disk." == result["content"]["text"]


def test_edits_and_an_answer_of_ones_own_are_not_both_used(page: Page, site: Site) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.get_by_role("link", name="you write").click()
    page.get_by_label("Your answer").fill("Forty-two")
    page.locator("#edit summary").click()
    page.get_by_label("Temperature").fill("0.9")
    for name in ("Approve", "Approve with edits", "Send this answer"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_role("button", name="Send this answer").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    result = verdict(site, review.id).result
    assert result is not None
    assert "Forty-two" == result["content"]["text"]


def test_the_enter_key_decides_nothing_and_a_rejection_is_told_with_its_reason(page: Page, site: Site) -> None:
    review = shown.sampling()
    site.open(review)
    page.goto(f"/reviews/{review.id}")
    page.locator("#edit summary").click()
    page.get_by_label("Temperature").press("Enter")
    expect(page).to_have_url(re.compile("/verdict$"))
    page.get_by_label("Show the reason to the server").press("Enter")
    expect(page.get_by_role("button", name="Reject")).to_be_visible()
    assert "pending" == site.get(review.id).state
    page.get_by_label("Show the reason to the server").check()
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("textbox", name="Reason")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Show the reason to the server")).to_be_checked()
    assert "pending" == site.get(review.id).state
    page.get_by_role("textbox", name="Reason").fill("Not with customer data")
    page.get_by_role("button", name="Reject").click()
    expect(page.locator("#standing")).to_contain_text("Rejected by ann")
    expect(page.get_by_text("The server sees this reason.")).to_be_visible()
    found = verdict(site, review.id)
    assert ("reject", "Not with customer data", True) == (found.word, found.reason, found.tell_server)


@BOTH
def test_a_form_of_every_kind_of_field_is_corrected_and_sent(page_of: Pages, site: Site, script: bool) -> None:
    review = shown.form()
    site.open(review)
    page = page_of(java_script_enabled=script)
    page.goto(f"/reviews/{review.id}")
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
    expect(page.get_by_role("group", name="Values to send")).to_contain_text('"port": 8443')
    page.get_by_role("button", name="Accept and send").click()
    expect(page.locator("#standing")).to_contain_text("Answered by ann")
    assert {"action": "accept", "content": FILLED} == verdict(site, review.id).result


@pytest.mark.parametrize("width", [1280, 400])
def test_a_second_person_approves_exactly_what_the_first_one_filled_in(
    page_of: Callable[..., Page], site: Site, width: int
) -> None:
    """The first person's page follows without a reload. On a phone, the version is in the bar."""
    site.listener.people["sg_ben"] = Person("ben", "reviewer", ("ops",))
    fields = {"host": {"type": "string"}, "port": {"type": "integer"}}
    review = shown.form(fields, approvals=2)
    site.open(review)
    ann, ben = page_of(), page_of("sg_ben", viewport={"width": width, "height": 800})
    ann.goto(f"/reviews/{review.id}")
    expect(ann.locator("#standing")).to_contain_text("0 of 2 approvals")
    ann.get_by_label("host").fill("db")
    ann.get_by_label("port").fill("80")
    ann.get_by_role("button", name="Accept and send").click()
    expect(ann.locator("#standing")).to_contain_text("1 of 2 approvals: ann")
    ben.goto(f"/reviews/{review.id}")
    expect(ben.get_by_label("host")).to_have_value("db")
    expect(ben.get_by_role("heading", name="Version to approve")).to_be_visible()
    ben.get_by_role("button", name="Approve this version").and_(ben.locator(":visible")).first.click()
    expect(ben.locator("#standing")).to_contain_text("Answered by ann, ben")
    expect(ann.locator("#standing")).to_contain_text("Answered by ann, ben")
    assert {"host": "db", "port": 80} == (verdict(site, review.id).result or {})["content"]


def test_edits_that_are_prefilled_enable_the_button_that_approves_them(
    page_of: Callable[..., Page], site: Site
) -> None:
    site.listener.people["sg_ben"] = Person("ben", "reviewer", ("ops",))
    review = shown.sampling(approvals=2)
    site.open(review)
    ann, ben = page_of(), page_of("sg_ben")
    ann.goto(f"/reviews/{review.id}")
    ann.locator("#edit summary").click()
    ann.get_by_label("Max tokens").fill("7")
    ann.get_by_role("button", name="Approve with edits").and_(ann.locator(":visible")).first.click()
    expect(ann.locator("#standing")).to_contain_text("1 of 2 approvals: ann")
    ben.goto(f"/reviews/{review.id}")
    expect(ben.get_by_label("Max tokens")).to_have_value("7")
    expect(ben.get_by_role("button", name="Approve", exact=True)).to_be_disabled()
    ben.get_by_role("button", name="Approve with edits").and_(ben.locator(":visible")).first.click()
    expect(ben.locator("#standing")).to_contain_text("Approved by ann, ben")
    edits = verdict(site, review.id).edits
    assert edits is not None
    assert 7 == edits.max_tokens
