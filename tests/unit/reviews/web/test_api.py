"""The REST API: who sees what, who decides, and the response to any input."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from samplegate.reviews.async_store import AsyncReviewStore
from samplegate.reviews.notify import formats
from samplegate.reviews.review import Review, Verdict
from samplegate.reviews.web.app import reviews_app
from tests.fakes.reviewers_listener import ADMIN, ID, OPS, OTHER, VIEWER, ReviewersListener, client, plain
from tests.fakes.reviews import NOW, form, review

pytestmark = pytest.mark.anyio
OTHER_ID = "rv_" + "b" * 24
JSON = {"content-type": "application/json"}
WRONG = "missing or unknown token; send `Authorization: Bearer` with a token of `people` in the settings"


def verdict_body(of: Review, **more: Any) -> dict[str, Any]:
    return {"verdict": "reject", "digest": of.digest, **more}


async def test_a_person_of_its_reviewer_sees_it_whole_and_others_do_not_see_it_at_all() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review(reviewer="ops")
    app = listener.app()
    for token in (OPS, VIEWER, ADMIN):
        found = await client(app, token).get(f"/v1/reviews/{ID}")
        assert (200, ID, "full") == (found.status_code, found.json()["id"], found.json()["show"])
        assert asked.params == found.json()["request"]
        assert 1 == len((await client(app, token).get("/v1/reviews")).json()["reviews"])
    for path in (
        f"/v1/reviews/{ID}",
        f"/v1/reviews/{ID}/history",
        f"/v1/reviews/{OTHER_ID}",
        "/v1/reviews/x",
        "/v1/reviews/rv_%0a",
    ):
        assert (404, "there is no such review, or you may not see it") == plain(await client(app, OTHER).get(path))
    assert [] == (await client(app, OTHER).get("/v1/reviews")).json()["reviews"]
    assert [] == (await client(app, OTHER).get("/v1/reviews", params={"reviewer": "ops"})).json()["reviews"]


async def test_the_list_has_no_contents_and_goes_on_page_by_page() -> None:
    listener = ReviewersListener()
    for number in range(5):
        await listener.open_review(review(id=f"rv_{number:024d}", created=NOW - number))
    ask = client(listener.app(), OPS)
    first = (await ask.get("/v1/reviews", params={"limit": 3})).json()
    assert [f"rv_{number:024d}" for number in range(3)] == [each["id"] for each in first["reviews"]]
    assert all("request" not in each and "arguments" not in each for each in first["reviews"])
    rest = (await ask.get("/v1/reviews", params={"limit": 3, "before": first["next"]})).json()
    assert ([f"rv_{number:024d}" for number in (3, 4)], None) == (
        [each["id"] for each in rest["reviews"]],
        rest["next"],
    )


async def test_the_list_is_of_the_states_servers_and_kinds_that_are_asked_for() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    await listener.open_review(msgspec.structs.replace(form(name="string"), id=OTHER_ID))
    ask = client(listener.app(), OPS)

    async def kinds(**params: Any) -> list[str]:
        return [each["kind"] for each in (await ask.get("/v1/reviews", params=params)).json()["reviews"]]

    assert {"sampling", "elicitation"} == set(await kinds())
    assert ["elicitation"] == await kinds(kind="elicitation", state=["pending", "approved"], reviewer="ops")
    assert [] == await kinds(state="rejected")
    assert [] == await kinds(server="nobody")


@pytest.mark.parametrize(
    ("query", "path", "what"),
    [
        ("limit=0", "limit", "must be a whole number from 1 to 200"),
        ("limit=201", "limit", "must be a whole number from 1 to 200"),
        ("limit=x", "limit", "must be a whole number from 1 to 200"),
        ("limit=1&limit=2", "limit", "is given more than once"),
        ("state=open", "state", "is not one of pending, approved, rejected, answered, expired, withdrawn"),
        ("kind=", "kind", "is not one of sampling, elicitation"),
        ("before=rv_x", "before", "is not a review ID"),
        ("server=", "server", "must have 1 to 200 characters"),
        (f"reviewer={'r' * 201}", "reviewer", "must have 1 to 200 characters"),
        ("&".join(["reviewer=r"] * 51), "reviewer", "is given more than 50 times"),
        ("stat=pending", "stat", "is not one of reviewer, state, server, kind, limit, before"),
    ],
)
async def test_a_query_that_is_not_understood_is_refused_at_its_place(query: str, path: str, what: str) -> None:
    found = await client(ReviewersListener().app(), OPS).get(f"/v1/reviews?{query}")
    assert (422, [{"path": path, "what": what}]) == (found.status_code, found.json()["problems"])


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer",
        "Bearer ",
        "Bearer nobody",
        "Basic c2dfb3Bz",
        f"Token {OPS}",
        f"Bearer {OPS} {OPS}",
        "Bearer \xe9",
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/reviews", f"/v1/reviews/{ID}", f"/v1/reviews/{ID}/history", "/v1/reviews/events"]
)
async def test_nobody_is_known_but_by_a_token(header: str | None, path: str) -> None:
    headers = {} if header is None else {b"authorization": header.encode("latin-1")}
    found = await client(ReviewersListener().app()).get(path, headers=headers)
    assert (401, WRONG) == plain(found)
    assert 'Bearer realm="samplegate reviews"' == found.headers["www-authenticate"]
    assert "application/problem+json" == found.headers["content-type"]


async def test_a_verdict_counts_and_says_who_gave_it_by_what_door() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    ask = client(listener.app(), OPS)
    found = await ask.post(
        f"/v1/reviews/{ID}/verdict", json=verdict_body(asked, verdict="approve", edits={"maxTokens": 50})
    )
    assert (200, "approved", "ann", "api") == (
        found.status_code,
        *(found.json()[name] for name in ("state", "who", "door")),
    )
    assert 50 == listener.store.reviews[ID].verdict.edits.max_tokens  # type: ignore[union-attr]
    lines = (await ask.get(f"/v1/reviews/{ID}/history")).json()["events"]
    assert [("opened", "", "gate"), ("approved", "ann", "api")] == [
        (line["what"], line["who"], line["door"]) for line in lines
    ]
    assert ("verdict.given", {"review": ID, "verdict": "approve", "who": "ann", "door": "api"}) in listener.log.events


@pytest.mark.parametrize(
    "misplaced",
    [
        {"maxTokens": 50},
        {"Edits": {"maxTokens": 50}},
        {"content": "Forty-two"},
        {"edits": {"max_tokens": 50}},
        {"edits": "maxTokens"},
    ],
)
async def test_an_approval_never_drops_an_edit_that_it_cannot_read(misplaced: dict[str, Any]) -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    async with client(listener.app(), OPS) as ask:
        found = await ask.post(f"/v1/reviews/{ID}/verdict", json=verdict_body(asked, verdict="approve", **misplaced))
    assert 422 == found.status_code
    assert "pending" == listener.store.reviews[ID].state


async def test_one_of_twenty_verdicts_at_once_counts_and_the_others_are_told_which() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    app = listener.app()
    given = [verdict_body(asked), verdict_body(asked, verdict="approve")] * 10
    found = await asyncio.gather(
        *(
            client(app, ADMIN if index % 3 else OPS).post(f"/v1/reviews/{ID}/verdict", json=each)
            for index, each in enumerate(given)
        )
    )
    (winner,) = [each.json() for each in found if each.status_code == 200]
    losers = [each.json() for each in found if each.status_code == 409]
    assert 19 == len(losers)
    assert [(winner["state"], winner["who"])] * 19 == [
        (each["review"]["state"], each["review"]["who"]) for each in losers
    ]


async def test_one_of_twenty_counts_over_two_stores_on_one_file_too(tmp_path: Path) -> None:
    listener, asked = ReviewersListener(), review(id=ID)
    stores = [AsyncReviewStore(f"sqlite:{tmp_path / 'reviews.db'}") for _ in range(2)]
    try:
        assert await stores[0].write(lambda store: store.open(asked, announce=False, most=1))
        apps = [reviews_app(msgspec.structs.replace(listener.web, store=store)) for store in stores]
        found = await asyncio.gather(
            *(
                client(apps[number % 2], OPS).post(f"/v1/reviews/{ID}/verdict", json=verdict_body(asked))
                for number in range(20)
            )
        )
        assert [200] + [409] * 19 == sorted(each.status_code for each in found)
        assert {"rejected"} == {each.json()["review"]["state"] for each in found if each.status_code == 409}
    finally:
        for store in stores:
            store.close()


async def test_who_may_only_look_decides_nothing_and_others_do_not_learn_of_it() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    app = listener.app()
    path = f"/v1/reviews/{ID}/verdict"
    assert (403, "you can view reviews but not decide them") == plain(
        await client(app, VIEWER).post(path, json=verdict_body(asked))
    )
    assert (404, "there is no such review, or you may not see it") == plain(
        await client(app, OTHER).post(path, json=verdict_body(asked))
    )
    assert (401, WRONG) == plain(await client(app).post(path, json=verdict_body(asked)))
    assert (401, WRONG) == plain(await client(app, "nobody").post(path, json=verdict_body(asked)))
    assert "pending" == listener.store.reviews[ID].state


async def test_no_get_decides_and_no_cookie_is_looked_at() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    ask = client(listener.app(), OPS)
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"):
        found = await ask.request(method, f"/v1/reviews/{ID}/verdict", params={"verdict": "approve"})
        assert (405, "POST") == (found.status_code, found.headers["allow"])
    assert 401 == (await client(listener.app()).get("/v1/reviews", headers={"cookie": f"samplegate={OPS}"})).status_code
    assert "pending" == listener.store.reviews[ID].state


async def test_a_verdict_on_something_else_is_none() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    found = await client(listener.app(), OPS).post(
        f"/v1/reviews/{ID}/verdict", json={"verdict": "approve", "digest": "sha256:" + "cd" * 32}
    )
    assert (422, ["digest"]) == (found.status_code, [each["path"] for each in found.json()["problems"]])
    assert "pending" == listener.store.reviews[ID].state


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 422),
        (b"", JSON, 422),
        (b"[]", JSON, 422),
        (b'{"verdict": "reject", "verdict": "approve"}', JSON, 422),
        (b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON, 422),
        (b'{"content": [' + b"1," * 400_000 + b"1]}", JSON, 422),
        (b"\xff\xfe", JSON, 422),
        (b'{"verdict": NaN}', JSON, 422),
        (b"verdict=approve", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/json; charset=utf-16"}, 415),
        (b"{}", {}, 415),
        (b" " * (1024 * 1024 + 1), JSON, 413),
    ],
)
async def test_a_body_that_is_no_verdict_changes_nothing(body: bytes, headers: dict[str, str], status: int) -> None:
    listener = ReviewersListener()
    await listener.open_review()
    found = await client(listener.app(), OPS).post(f"/v1/reviews/{ID}/verdict", content=body, headers=headers)
    assert (status, "application/problem+json") == (found.status_code, found.headers["content-type"])
    assert "pending" == listener.store.reviews[ID].state


async def test_a_body_that_announces_nothing_is_counted_as_it_comes() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    taken = 0

    async def chunks() -> Any:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b" " * 100_000

    found = await client(listener.app(), OPS).post(f"/v1/reviews/{ID}/verdict", content=chunks(), headers=JSON)
    assert (413, "close") == (found.status_code, found.headers["connection"])
    assert taken < 100


async def test_content_that_breaks_the_form_is_told_at_its_field() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review(form(port={"type": "integer", "minimum": 1}))
    ask, path = client(listener.app(), OPS), f"/v1/reviews/{asked.id}/verdict"
    found = await ask.post(
        path, json={"verdict": "answer", "digest": asked.digest, "action": "accept", "content": {"port": 0}}
    )
    assert (422, ["content.port"]) == (found.status_code, [each["path"] for each in found.json()["problems"]])
    fits = await ask.post(
        path, json={"verdict": "answer", "digest": asked.digest, "action": "accept", "content": {"port": 7}}
    )
    assert (200, "answered") == (fits.status_code, fits.json()["state"])


async def token_for(listener: ReviewersListener, of: Review, **changed: Any) -> str:
    values: dict[str, Any] = {"review_id": of.id, "digest": of.digest, "expires": NOW + 60, **changed}
    return formats.callback_token(listener.store.key(), **values)


async def test_a_callbacks_token_decides_its_own_review_once() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    app = listener.app()
    ask, path = client(app, await token_for(listener, asked)), f"/v1/reviews/{ID}/verdict"
    found = await ask.post(path, json=verdict_body(asked))
    assert (200, "rejected", "callback", "callback") == (
        found.status_code,
        *(found.json()[name] for name in ("state", "who", "door")),
    )
    again = await ask.post(path, json=verdict_body(asked, verdict="approve"))
    assert (409, "the review is no longer pending: rejected") == plain(again)
    assert all("request" not in each for each in (found.json(), again.json()["review"]))
    assert "rejected" == listener.store.reviews[ID].state


@pytest.mark.parametrize("ahead", [-7_200.0, 7_200.0])
async def test_a_wrong_clock_of_the_gate_changes_nothing_of_a_review(ahead: float) -> None:
    listener = ReviewersListener(ahead=ahead)
    asked = await listener.open_review()
    path = f"/v1/reviews/{ID}"
    shown = (await client(listener.app(), OPS).get(path)).json()
    assert ("pending", asked.expires - NOW) == (shown["state"], shown["seconds_left"])
    ask = client(listener.app(), await token_for(listener, asked, expires=asked.expires))
    assert 200 == (await ask.post(f"{path}/verdict", json=verdict_body(asked))).status_code
    listener.now = asked.expires
    assert 401 == (await ask.post(f"{path}/verdict", json=verdict_body(asked))).status_code


async def test_a_callbacks_token_opens_nothing_else() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    other = await listener.open_review(id=OTHER_ID)
    app = listener.app()
    token = await token_for(listener, asked)
    for method, path in [
        ("GET", f"/v1/reviews/{ID}"),
        ("GET", "/v1/reviews"),
        ("GET", f"/v1/reviews/{ID}/history"),
        ("GET", "/v1/reviews/events"),
    ]:
        assert 401 == (await client(app, token).request(method, path)).status_code
    answer = await client(app, token).post(f"/v1/reviews/{OTHER_ID}/verdict", json=verdict_body(other))
    assert (401, "the token is not the callback token of this review") == plain(answer)
    assert (401, "the token is not the callback token of this review") == plain(
        await client(app, token).post(f"/v1/reviews/rv_{'z' * 24}/verdict", json=verdict_body(other))
    )
    assert {"pending"} == {each.state for each in listener.store.reviews.values()}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"expires": NOW}, "has expired"),
        ({"digest": "sha256:" + "cd" * 32}, "is not the callback token of this review"),
        ({"key": b"k" * 32}, "is not the callback token of this review"),
    ],
)
async def test_a_callbacks_token_that_was_not_made_for_this_is_refused(changed: dict[str, Any], why: str) -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    values = {"key": listener.store.key(), "review_id": ID, "digest": asked.digest, "expires": NOW + 60, **changed}
    found = await client(listener.app(), formats.callback_token(**values)).post(
        f"/v1/reviews/{ID}/verdict", json=verdict_body(asked)
    )
    assert (401, f"the token {why}") == plain(found)
    assert "pending" == listener.store.reviews[ID].state


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.replace(".1", ".2", 1),
        lambda _: "cb1.",
    ],
)
async def test_a_callbacks_token_that_was_changed_is_refused(change: Any) -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    found = await client(listener.app(), change(await token_for(listener, asked))).post(
        f"/v1/reviews/{ID}/verdict", json=verdict_body(asked)
    )
    assert 401 == found.status_code
    assert "pending" == listener.store.reviews[ID].state


async def test_a_verdict_after_its_time_is_told_that_it_expired() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    listener.now = asked.expires
    ask = client(listener.app(), OPS)
    assert "expired" == (await ask.get(f"/v1/reviews/{ID}")).json()["state"]
    found = await ask.post(f"/v1/reviews/{ID}/verdict", json=verdict_body(asked))
    assert (409, "expired") == (found.status_code, found.json()["review"]["state"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/reviews",
        f"/v1/reviews/{ID}",
        f"/v1/reviews/{ID}/history",
        f"/v1/reviews/{ID}/verdict",
        "/v1/reviews/events",
    ],
)
async def test_without_its_store_it_says_so_and_nothing_of_where_it_is(path: str) -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    app = listener.app()
    for token in (OPS, await token_for(listener, asked)):
        listener.store.fault = "/srv/secret/reviews.db: cannot be opened"
        method = "POST" if path.endswith("verdict") else "GET"
        if method == "GET" and token != OPS:
            continue
        found = await client(app, token).request(method, path, json=verdict_body(asked) if method == "POST" else None)
        assert (503, "the review store is unavailable; try again") == plain(found)
        assert "5" == found.headers["retry-after"]
        listener.store.fault = None
    assert "web.unavailable" in {event for event, _ in listener.log.events}


async def test_a_fault_of_ours_is_told_in_one_sentence_and_logged_whole() -> None:
    listener = ReviewersListener()

    def broken(_id: str) -> Review | None:
        raise RuntimeError("s3cret")

    listener.store.get = broken  # type: ignore[method-assign,assignment]
    found = await client(listener.app(), OPS).get(f"/v1/reviews/{ID}")
    assert (500, "internal error in the gate; see the log") == plain(found)
    ((event, fields),) = listener.log.events
    assert ("web.failed", f"/v1/reviews/{ID}", "s3cret") == (event, fields["path"], str(fields["exc_info"]))


async def test_wrong_tokens_are_slowed_down_and_only_where_they_come_from() -> None:
    listener = ReviewersListener()
    app = listener.app()
    found = [(await client(app, f"sg_{number}").get("/v1/reviews")).status_code for number in range(101)]
    assert [401] * 100 + [429] == found
    refused = await client(app, "sg_x").get("/v1/reviews")
    assert (429, "1") == (refused.status_code, refused.headers["retry-after"])
    assert 200 == (await client(app, OPS).get("/v1/reviews")).status_code, (
        "a valid token is let in, whatever others sent from there"
    )
    assert 401 == (await client(app, "sg_x", address="10.0.0.10").get("/v1/reviews")).status_code
    listener.now += 1
    assert 401 == (await client(app, "sg_x").get("/v1/reviews")).status_code


async def test_the_verdict_of_a_store_that_forgot_the_review_meanwhile_is_none() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()

    def gone(*_: Any, **__: Any) -> None:
        return None

    listener.store.decide = gone  # type: ignore[method-assign]
    assert (
        404
        == (await client(listener.app(), OPS).post(f"/v1/reviews/{ID}/verdict", json=verdict_body(asked))).status_code
    )


async def test_what_was_said_is_shown_in_the_form_in_which_it_is_given() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    listener.store.decide(ID, Verdict(word="reject", reason="too long", tell_server=True), who="ann", door="page")
    found = (await client(listener.app(), OPS).get(f"/v1/reviews/{ID}")).json()
    assert {"verdict": "reject", "reason": "too long", "tell_server": True} == found["verdict"]
    assert json.dumps(asked.params) == json.dumps(found["request"])
