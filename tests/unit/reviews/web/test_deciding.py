"""Deciding on the page without JavaScript, from sign-in to decision: the store keeps what the user submitted."""

from __future__ import annotations

import pytest

from samplegate.reviews.review import Review, Verdict
from tests.fakes import page_reviews as shown
from tests.fakes.page_reviews import FILLED
from tests.fakes.reviewers_listener import ID, OPS, VIEWER, ReviewersListener
from tests.fakes.reviews import text
from tests.fakes.visitor import Visitor

pytestmark = pytest.mark.anyio


@pytest.fixture
def listener() -> ReviewersListener:
    return ReviewersListener()


async def at(listener: ReviewersListener, review: Review | None = None, token: str = OPS) -> Visitor:
    """A signed-in visitor on the page of a pending review."""
    visitor = await Visitor(listener.app()).sign_in(token)
    if review is not None:
        await listener.open_review(review)
        await visitor.open(f"/reviews/{review.id}")
    return visitor


def verdict(listener: ReviewersListener, review: Review) -> Verdict:
    found = listener.store.reviews[review.id].verdict
    assert found is not None
    return found


def pending(listener: ReviewersListener, review: Review) -> bool:
    return "pending" == listener.store.reviews[review.id].state


async def test_signing_in_leads_back_to_the_review_that_was_asked_for(listener: ReviewersListener) -> None:
    await listener.open_review(shown.sampling())
    ann = await Visitor(listener.app()).open(f"/reviews/{shown.sampling().id}")
    assert "Sign in to samplegate reviews" == ann.heading
    await ann.fill("Token", "wrong").press("Sign in")
    assert "Unknown token" in ann.alert
    assert "Problem: Sign in - samplegate" == ann.title
    await ann.fill("Token", OPS).press("Sign in")
    assert "Sampling request from tickets" == ann.heading
    await ann.press("Sign out")
    assert "Sign in to samplegate reviews" == ann.heading
    assert "Sign in to samplegate reviews" == (await ann.open(f"/reviews/{shown.sampling().id}")).heading


async def test_a_request_is_found_in_the_list_and_approved_as_it_is(listener: ReviewersListener) -> None:
    review = shown.sampling()
    ann = await at(listener)
    assert "No pending reviews." in ann.page.text
    await listener.open_review(review)
    await ann.follow("Refresh")
    assert "(1) Pending reviews - samplegate" == ann.title
    await ann.follow("Sampling request from tickets")
    assert ["three sentences"] == [node.text for node in ann.page.all("strong") if "sentences" in node.text]
    assert ["Attached image 1"] == [node.attrs["alt"] for node in ann.page.all("img")]
    assert "$0.013" in [node.text for node in ann.page.all("dd")]
    await ann.press("Approve")
    assert "Approved by ann" in ann.standing
    assert "Approved without edits." in ann.page.text
    kept = listener.store.reviews[review.id]
    assert ("approved", None, "ann", "page") == (kept.state, verdict(listener, review).edits, kept.who, kept.door)


async def test_edits_are_shown_before_they_are_approved_and_never_dropped(listener: ReviewersListener) -> None:
    review = shown.sampling()
    ann = await at(listener, review)
    ann.fill("Message 1 (user)", "Summarise it in one line.").fill("Max tokens", "5000").choose("Model", "quick")
    await ann.press("Show changes")
    assert any("quick" in node.text for node in ann.changes.all("ins"))
    assert "must be from 1 to 500" in ann.changes.text
    await ann.press("Approve")
    assert 'Your edits would be lost (Messages, Model, Max tokens). Choose "Approve with edits"' in ann.alert
    assert any("line" in node.text for node in ann.changes.all("ins"))
    await ann.press("Approve with edits")
    assert "Not submitted" in ann.alert
    assert "Max tokens must be from 1 to 500" in ann.alert
    assert ("5000", "quick") == (ann.value("Max tokens"), ann.value("Model"))
    assert "Summarise it in one line." == ann.value("Message 1 (user)")
    assert pending(listener, review)
    await ann.fill("Max tokens", "300").press("Approve with edits")
    assert "Approved by ann" in ann.standing
    assert any("line" in node.text for node in ann.page.all("ins"))
    edits = verdict(listener, review).edits
    assert edits is not None
    assert ("quick", 300, None, None) == (edits.model, edits.max_tokens, edits.temperature, edits.system_prompt)
    assert edits.messages is not None
    assert [text("Summarise it in one line."), {"type": "image", "data": shown.png(), "mimeType": "image/png"}] == (
        edits.messages[0]["content"]
    )


async def test_undone_edits_are_no_edits(listener: ReviewersListener) -> None:
    review = shown.sampling()
    ann = await at(listener, review)
    await ann.fill("Temperature", "0.9").press("Show changes")
    assert ["[added: 0.9]"] == [node.text for node in ann.changes.all("ins")]
    await ann.fill("Temperature", "0.2").press("Approve")
    assert "Approved by ann" in ann.standing
    assert None is verdict(listener, review).edits


async def test_a_models_answer_is_released_as_it_is(listener: ReviewersListener) -> None:
    ann = await at(listener, shown.answer())
    await ann.press("Release")
    assert "Approved by ann" in ann.standing
    assert None is verdict(listener, shown.answer()).result


async def test_an_edited_answer_is_shown_and_never_dropped_by_release(listener: ReviewersListener) -> None:
    review = shown.answer()
    ann = await at(listener, review)
    await ann.fill("Answer", "The export job on db-7 fails for want of disk.").press("Show changes")
    assert any("A restart did not help." in node.text for node in ann.changes.all("del"))
    await ann.press("Release")
    assert 'Your edits would be lost (Answer). Choose "Release with edits"' in ann.alert
    assert pending(listener, review)
    await ann.press("Release with edits")
    assert "Answered by ann" in ann.standing
    result = verdict(listener, review).result
    assert result is not None
    assert text("The export job on db-7 fails for want of disk.") == result["content"]


async def test_edits_and_an_answer_of_ones_own_are_not_both_used(listener: ReviewersListener) -> None:
    review = shown.sampling()
    ann = await at(listener, review)
    ann.fill("Your answer", "Forty-two").fill("Temperature", "0.9")
    for name in ("Approve", "Approve with edits", "Send this answer"):
        await ann.press(name)
        assert "You edited the request and also wrote an answer (Temperature, Your answer)" in ann.alert
    assert pending(listener, review)
    await ann.fill("Temperature", "0.2").press("Send this answer")
    assert "Answered by ann" in ann.standing


async def test_a_person_answers_in_place_of_a_model(listener: ReviewersListener) -> None:
    review = shown.sampling(bounds=None, why="no model fits: it brings a picture")
    ann = await at(listener, review)
    assert "This request cannot be approved: no model fits" in ann.page.text
    assert not {"Approve", "Approve with edits"} & set(ann.buttons)
    await ann.fill("Your answer", "The disk of db-7 is full.\nFree some.").press("Send this answer")
    assert "Answered by ann" in ann.standing
    result = verdict(listener, review).result
    assert result is not None
    assert text("The disk of db-7 is full.\nFree some.") == result["content"]


@pytest.mark.parametrize("label", ["Temperature", "Show the reason to the server"])
async def test_the_enter_key_in_a_field_decides_nothing(label: str, listener: ReviewersListener) -> None:
    ann = await at(listener, shown.sampling())
    await ann.enter(label)
    assert ann.url.endswith("/verdict")
    assert "Reject" in ann.buttons
    assert pending(listener, shown.sampling())


@pytest.mark.parametrize(
    ("told", "said"), [(True, "The server sees this reason."), (False, "The server does not see this reason.")]
)
async def test_a_request_is_rejected_with_a_reason(told: bool, said: str, listener: ReviewersListener) -> None:
    review = shown.sampling()
    ann = await at(listener, review)
    ann.fill("Reason", "Not with customer data").check("Show the reason to the server", on=told)
    await ann.press("Reject")
    assert "Rejected by ann" in ann.standing
    assert said in ann.page.text
    found = verdict(listener, review)
    assert ("reject", "Not with customer data", told) == (found.word, found.reason, found.tell_server)


async def test_a_reason_that_is_to_be_seen_must_be_there(listener: ReviewersListener) -> None:
    review = shown.sampling()
    ann = await at(listener, review)
    await ann.check("Show the reason to the server").press("Reject")
    assert "true" == ann.field("Reason").attrs["aria-invalid"]
    assert "checked" in ann.field("Show the reason to the server").attrs
    assert pending(listener, review)
    assert "Sampling request from tickets" == (await ann.open(f"/reviews/{review.id}/verdict")).heading
    assert ann.url.endswith(review.id)


async def test_a_form_of_every_kind_of_field_is_corrected_and_sent(listener: ReviewersListener) -> None:
    review = shown.form()
    ann = await at(listener, review)
    assert "A decision now answers the next identical request" in ann.page.text
    assert "This field seems to ask for a secret" in ann.page.text
    assert "" == ann.value("API key")
    assert "Form with 13 fields from deployer - samplegate" == ann.title
    assert ["main"] == [node.attrs["id"] for node in ann.page.all("main")]
    assert (1, 1, 1) == tuple(len(ann.page.all(tag)) for tag in ("h1", "nav", "main"))
    assert 1 == len([node for node in ann.page.all("header") if node.parent is not None and node.parent.tag == "body"])
    await ann.fill("Port", "99999").fill("Contact", "nobody").press("Accept and send")
    assert "Not submitted" in ann.alert
    assert ann.title.startswith("Problem: ")
    summary = ann.page.one(role="alert")
    wrong = {node.one("strong").text for node in summary.all("li")}
    assert {"Service name", "Contact", "Port", "Region"} == wrong
    fields = {node.one("strong").text: node.attrs["href"] for node in summary.all("a")}
    assert wrong == set(fields)
    for label, href in fields.items():
        assert ("true", href) == (ann.field(label).attrs["aria-invalid"], f"#{ann.field(label).attrs['id']}")
    assert "99999" == ann.value("Port")
    assert "f.0-hint f.0-problem" == ann.field("Service name").attrs["aria-describedby"]
    await ann.press("Check")
    assert ("Not valid yet", "") == (
        ann.alert.partition("Service")[0].strip(),
        ann.page.one(role="group", aria_label="Values to send").text,
    )
    ann.fill("Port", "8443").fill("Service name", "export").fill("Contact", "ops@example.com")
    ann.fill("Status page", "https://status.example.com/").fill("Since", "2026-11-20")
    ann.fill("Restart at", "2026-11-22T10:00:00Z").fill("Share of traffic", "0.25")
    ann.check("Yes", "Restart now").check("Large (l)", "Size").choose("Region", "Region 3 (r3)").check("edge", "Tags")
    await ann.fill("Notes", "one\ntwo").press("Check")
    assert '"port": 8443' in ann.page.one(role="group", aria_label="Values to send").text
    assert pending(listener, review)
    await ann.press("Accept and send")
    assert "Answered by ann" in ann.standing
    assert {"action": "accept", "content": FILLED} == verdict(listener, review).result


async def test_a_note_comes_with_the_acceptance_of_a_form(listener: ReviewersListener) -> None:
    review = shown.form({"port": {"type": "integer"}})
    ann = await at(listener, review)
    await ann.fill("port", "80").fill("Note", "agreed by phone").press("Accept and send")
    assert "Answered by ann" in ann.standing
    assert "agreed by phone" == verdict(listener, review).reason


@pytest.mark.parametrize(("button", "action"), [("Decline", "decline"), ("Dismiss", "cancel")])
async def test_a_form_is_declined_or_cancelled(button: str, action: str, listener: ReviewersListener) -> None:
    ann = await at(listener, shown.form())
    await ann.press(button)
    assert f"Action: {action}." in ann.page.text
    assert {"action": action} == verdict(listener, shown.form()).result


@pytest.mark.parametrize(("button", "action"), [("Accept", "accept"), ("Decline", "decline"), ("Dismiss", "cancel")])
async def test_an_address_is_text_with_its_host_apart_and_is_answered_without_being_opened(
    button: str, action: str, listener: ReviewersListener
) -> None:
    review = shown.url()
    ann = await at(listener, review)
    assert "login.xn--pypal-4ve.com" == ann.page.all(class_="host")[0].text
    address = ann.page.one(class_="url")
    assert "https://login.xn--pypal-4ve.com/consent?client=night-shift&state=81f2" == address.text
    assert ([], None) == (address.all("a"), address.around("a"))
    assert "punycode" in ann.page.text
    assert "The server wants its own user to open this URL. You are not that user." in ann.page.text
    await ann.press(button)
    assert "Answered by ann" in ann.standing
    assert {"action": action} == verdict(listener, review).result


async def test_who_only_looks_has_nothing_to_press(listener: ReviewersListener) -> None:
    cleo = await at(listener, shown.sampling(), VIEWER)
    assert "You can view this review but not decide it (role: viewer)." in cleo.page.text
    assert ["Sign out"] == cleo.buttons


async def test_the_list_is_filtered_by_its_form(listener: ReviewersListener) -> None:
    await listener.open_review(shown.sampling(id=ID))
    await listener.open_review(shown.url())
    ann = await at(listener)
    await ann.fill("Server", "calendar").press("Filter")
    assert ["URL request from calendar"] == [node.text for node in ann.page.all("h2")]
    assert "calendar" == ann.value("Server")
    await (await ann.follow("Clear filter")).fill("Server", "mail").press("Filter")
    assert "No pending reviews match the filter" in ann.page.text
