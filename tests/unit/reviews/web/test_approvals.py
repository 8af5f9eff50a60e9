"""Reviews that need several people, on the page and through the API: their progress, one version for all, and clear
refusals."""

from __future__ import annotations

from typing import Any, Final

import httpx2
import pytest

from samplegate.reviews.review import Also, Edits, Verdict
from samplegate.reviews.votes import version
from samplegate.reviews.web.context import Person
from tests.fakes import page_reviews as shown
from tests.fakes.reviewers_listener import ADMIN, ID, OPS, VIEWER, ReviewersListener, client, plain
from tests.fakes.reviews import NOW, review
from tests.fakes.visitor import Visitor

pytestmark = pytest.mark.anyio

ANN_TOO, BEN, EVE, LEA = "sg_ann_2", "sg_ben", "sg_eve", "sg_lea"
FORM: Final = {"host": {"type": "string"}, "port": {"type": "integer"}, "password": {"type": "string"}}


@pytest.fixture
def listener() -> ReviewersListener:
    found = ReviewersListener()
    found.people |= {
        ANN_TOO: Person("ann", "reviewer", ("ops",)),
        BEN: Person("ben", "reviewer", ("ops",), frozenset({"leads"})),
        EVE: Person("eve", "reviewer", ("ops",), frozenset({"night"}), frozenset({"laptop"})),
        LEA: Person("lea", "reviewer", ("lead",)),
    }
    return found


async def say(listener: ReviewersListener, token: str, **body: Any) -> httpx2.Response:
    found = listener.store.reviews[ID]
    return await client(listener.app(), token).post(
        f"/v1/reviews/{ID}/verdict", json={"verdict": "approve", "digest": version(found), **body}
    )


async def visits(listener: ReviewersListener, token: str) -> Visitor:
    visitor = await Visitor(listener.app()).sign_in(token)
    return await visitor.open(f"/reviews/{ID}")


async def test_two_tokens_of_one_person_are_one_person_and_the_client_is_told(listener: ReviewersListener) -> None:
    await listener.open_review(approvals=2)
    first = await say(listener, OPS)
    assert (200, "pending", 1) == (first.status_code, first.json()["state"], first.json()["approvals_given"])
    again = await say(listener, ANN_TOO)
    assert (409, "ann has approved it already, so another person must approve it") == plain(again)
    assert "pending" == again.json()["review"]["state"]
    done = (await say(listener, BEN)).json()
    assert ("approved", "ann, ben", 2) == (done["state"], done["who"], done["approvals_given"])
    assert [("ann", "api", "approve", True, False), ("ben", "api", "approve", True, False)] == [
        tuple(vote[name] for name in ("by", "how", "verdict", "proven", "void")) for vote in done["votes"]
    ]


async def test_an_admin_is_a_person_and_a_viewer_is_none(listener: ReviewersListener) -> None:
    await listener.open_review(approvals=2)
    assert [200, 403, 200] == [(await say(listener, token)).status_code for token in (ADMIN, VIEWER, OPS)]
    assert "approved" == listener.store.reviews[ID].state


async def test_an_approval_without_edits_is_for_the_version_that_it_states(listener: ReviewersListener) -> None:
    asked = await listener.open_review(approvals=2)
    edited = (await say(listener, OPS, edits={"maxTokens": 7})).json()
    assert ({"verdict": "approve", "edits": {"maxTokens": 7}}, 1) == (edited["proposal"], edited["approvals_given"])
    assert edited["digest"] != asked.digest
    stale = await say(listener, BEN, digest=asked.digest)
    assert 422 == stale.status_code
    assert [
        {"path": "digest", "what": "somebody edited it meanwhile; read the review again, then decide"}
    ] == stale.json()["problems"]
    done = (await say(listener, BEN)).json()
    assert ("approved", {"maxTokens": 7}) == (done["state"], done["verdict"]["edits"])


async def test_empty_edits_are_for_the_original_and_void_the_version_before(listener: ReviewersListener) -> None:
    asked = await listener.open_review(approvals=2)
    await say(listener, OPS, edits={"maxTokens": 7})
    back = (await say(listener, BEN, edits={})).json()
    assert ("pending", None, asked.digest, 1) == tuple(
        back[name] for name in ("state", "proposal", "digest", "approvals_given")
    )
    assert [True, False] == [vote["void"] for vote in back["votes"]]


async def test_a_form_is_confirmed_without_its_secrets_being_told(listener: ReviewersListener) -> None:
    await listener.open_review(shown.form(FORM, id=ID, approvals=2))
    content = {"host": "db", "port": 80, "password": "hunter2"}
    first = await say(listener, OPS, verdict="answer", action="accept", content=content)
    assert 200 == first.status_code
    ben = await visits(listener, BEN)
    for text in (first.text, ben.page.text, (await client(listener.app(), BEN).get(f"/v1/reviews/{ID}")).text):
        assert "hunter2" not in text
    done = await say(listener, BEN)
    assert "answered" == done.json()["state"]
    assert content == listener.store.reviews[ID].verdict.result["content"]  # type: ignore[union-attr,index]


async def test_a_vote_between_reading_and_writing_makes_a_verdict_stale(listener: ReviewersListener) -> None:
    await listener.open_review(approvals=2)
    decide = listener.store.decide

    def beaten(id: str, verdict: Verdict, **values: Any) -> Any:
        decide(id, Verdict(word="approve", edits=Edits(max_tokens=9)), who="eve", door="page")
        return decide(id, verdict, **values)

    listener.store.decide = beaten  # type: ignore[method-assign]
    found = await say(listener, OPS)
    assert (409, "somebody edited it meanwhile; read the review again, then decide") == plain(found)
    assert [("eve", False)] == [(vote.by, vote.void) for vote in listener.store.reviews[ID].votes]


async def test_the_person_who_made_the_call_may_only_reject(listener: ReviewersListener) -> None:
    await listener.open_review(not_caller=True, caller="laptop")
    refused = await say(listener, EVE)
    assert (403, "you made the call, so another person must approve it; you may only reject it") == plain(refused)
    eve = await visits(listener, EVE)
    assert "You made the call, so another person must approve it" in eve.page.text
    assert 200 == (await say(listener, EVE, verdict="reject")).status_code


async def test_only_people_of_a_reviewers_groups_decide(listener: ReviewersListener) -> None:
    await listener.open_review(groups=("leads", "board"))
    assert (403, "only people in the groups leads, board may decide it") == plain(await say(listener, EVE))
    eve = await visits(listener, EVE)
    assert "only people in the groups leads, board may decide it" in eve.page.text
    assert "Approve" not in eve.buttons
    assert 200 == (await say(listener, BEN)).status_code


async def test_others_decide_what_is_pending_for_long(listener: ReviewersListener) -> None:
    await listener.open_review(also=(Also("lead"),), also_from=NOW + 60)
    lea = client(listener.app(), LEA)
    assert (404, []) == ((await say(listener, LEA)).status_code, (await lea.get("/v1/reviews")).json()["reviews"])
    listener.now = NOW + 60
    assert [ID] == [one["id"] for one in (await lea.get("/v1/reviews")).json()["reviews"]]
    done = (await say(listener, LEA)).json()
    assert ("approved", "lea") == (done["state"], done["who"])


async def test_groups_of_the_other_reviewer_count_for_its_people(listener: ReviewersListener) -> None:
    await listener.open_review(groups=("leads",), also=(Also("lead", ("board",)),), also_from=NOW)
    assert (403, "only people in the groups board may decide it") == plain(await say(listener, LEA))


async def test_the_page_shows_the_version_and_one_button_approves_exactly_it(listener: ReviewersListener) -> None:
    await listener.open_review(shown.form(FORM, id=ID, approvals=2))
    ann = await visits(listener, OPS)
    assert "0 of 2 approvals" in ann.page.text
    ann.fill("host", "db").fill("port", "80").fill("password", "hunter2")
    await ann.press("Accept and send")
    assert "1 of 2 approvals: ann" in ann.page.text
    await ann.press("Approve this version")
    assert (409, True) == (ann.status, "ann has approved it already" in ann.alert)
    ben = await visits(listener, BEN)
    assert ("db", "80", "") == (ben.value("host"), ben.value("port"), ben.value("password"))
    ben.fill("port", "81")
    await ben.press("Approve this version")
    assert (422, True) == (ben.status, "Your changes would be lost" in ben.alert)
    ben = await visits(listener, BEN)
    await ben.press("Approve this version")
    assert "Answered by ann, ben" in ben.standing
    assert 80 == listener.store.reviews[ID].verdict.result["content"]["port"]  # type: ignore[union-attr,index]


async def test_the_prefilled_form_is_another_approval_unless_it_is_changed(listener: ReviewersListener) -> None:
    fields = {**FORM, "zone": {"type": "string", "enum": ["a", "b"]}, "on": {"type": "boolean"}}
    del fields["password"]
    fields["tags"] = {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}
    content = {"host": "db", "port": 80, "zone": "b", "on": False, "tags": ["x", "y"]}
    await listener.open_review(shown.form(fields, id=ID, approvals=2))
    await say(listener, OPS, verdict="answer", action="accept", content=content)
    ben = await visits(listener, BEN)
    await ben.press("Accept and send")
    assert "Answered by ann, ben" in ben.standing
    assert content == listener.store.reviews[ID].verdict.result["content"]  # type: ignore[union-attr,index]


@pytest.mark.parametrize("confirms", ["Approve this version", "Approve with edits"])
async def test_edits_of_a_sampling_request_are_prefilled(listener: ReviewersListener, confirms: str) -> None:
    await listener.open_review(approvals=2)
    await say(listener, OPS, edits={"maxTokens": 7, "systemPrompt": "Be brief"})
    ben = await visits(listener, BEN)
    assert ("7", "Be brief") == (ben.value("Max tokens"), ben.value("System prompt"))
    await ben.press(confirms)
    assert "Approved by ann, ben" in ben.standing


async def test_undoing_the_edits_on_the_page_is_another_version(listener: ReviewersListener) -> None:
    asked = await listener.open_review(approvals=2)
    await say(listener, OPS, edits={"maxTokens": 7})
    ben = await visits(listener, BEN)
    ben.fill("Max tokens", str(asked.params["maxTokens"]))
    await ben.press("Approve")
    found = listener.store.reviews[ID]
    assert ("pending", None, [True, False]) == (found.state, found.proposal, [vote.void for vote in found.votes])
    assert "edited, so earlier approvals are void" in ben.page.text


async def test_an_answer_of_ones_own_is_prefilled(listener: ReviewersListener) -> None:
    await listener.open_review(approvals=2)
    await say(listener, OPS, verdict="answer", content="It is blue.")
    ben = await visits(listener, BEN)
    assert "It is blue." == ben.value("Your answer")
    await ben.press("Send this answer")
    assert "Answered by ann, ben" in ben.standing


async def test_an_edited_answer_of_a_model_is_prefilled_and_the_models_own_is_another_version(
    listener: ReviewersListener,
) -> None:
    asked = await listener.open_review(shown.answer(id=ID, approvals=2))
    await say(listener, OPS, verdict="answer", content="It is blue.")
    ben = await visits(listener, BEN)
    ben.fill("Answer", asked.answer["content"]["text"])  # type: ignore[index]
    await ben.press("Release")
    assert None is listener.store.reviews[ID].proposal
    assert [True, False] == [vote.void for vote in listener.store.reviews[ID].votes]


async def test_an_old_page_decides_nothing_and_shows_what_is_new(listener: ReviewersListener) -> None:
    await listener.open_review(approvals=2)
    ben = await visits(listener, BEN)
    await say(listener, OPS, edits={"maxTokens": 7})
    await ben.press("Approve")
    assert (422, True) == (ben.status, "somebody edited it meanwhile" in ben.alert)
    assert ["ann"] == [vote.by for vote in listener.store.reviews[ID].votes]


async def test_declining_ends_a_form_that_needs_two(listener: ReviewersListener) -> None:
    await listener.open_review(shown.form(FORM, id=ID, approvals=2))
    ann = await visits(listener, OPS)
    await ann.press("Decline")
    assert "answered" == listener.store.reviews[ID].state
    assert ["decline"] == [vote.verdict for vote in listener.store.reviews[ID].votes]


async def test_the_queue_tells_how_far_it_is(listener: ReviewersListener) -> None:
    await listener.open_review(approvals=2)
    await listener.open_review(review(id="rv_" + "b" * 24))
    await say(listener, OPS)
    ben = await Visitor(listener.app()).sign_in(BEN)
    assert 1 == ben.page.text.count("1 of 2 approvals: ann")
