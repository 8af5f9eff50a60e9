"""Signing in on the page: a token in exchange for an unforgeable cookie, forms that only our pages can post, and slow
responses to mistakes."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from samplegate.reviews.review import Verdict
from samplegate.reviews.web import sign_in as sessions
from samplegate.reviews.web import sign_in as signin
from samplegate.reviews.web.context import Person
from tests.fakes.reviewers_listener import ID, OPS, URL, VIEWER, ReviewersListener, Streamed, client
from tests.fakes.reviews import NOW

pytestmark = pytest.mark.anyio
OURS = {"origin": URL}
EVIL = "https://evil.example.net"


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> ReviewersListener:
    """A listener whose pages show only the signed-in user and accept one form."""

    def routes(web: Any) -> list[Route]:
        async def who(request: Request) -> Response:
            person = signin.person_of(web, request)
            if person is None:
                return signin.redirect_to_sign_in(request)
            return JSONResponse({"name": person.name, "form_token": signin.form_token(web, request)})

        async def post(request: Request) -> Response:
            form = await signin.read_form(web, request)
            return form if isinstance(form, Response) else JSONResponse(dict(form))

        return [
            Route("/reviews", who),
            Route("/reviews/{id}", who),
            Route("/reviews/{id}/verdict", post, methods=["POST"]),
        ]

    monkeypatch.setattr("samplegate.reviews.web.pages.routes", routes)

    def page(
        web: Any, request: Request, template: str, *, status: int = 200, person: Person | None = None, **values: Any
    ) -> Response:
        return JSONResponse({"template": template, **values}, status)

    monkeypatch.setattr("samplegate.reviews.web.render.page", page)
    return ReviewersListener()


async def sign_in(ask: httpx2.AsyncClient, token: str = OPS, headers: Any = OURS, **fields: str) -> httpx2.Response:
    return await ask.post("/reviews/sign-in", data={"token": token, **fields}, headers=headers)


async def test_a_token_becomes_a_session_and_the_token_is_not_in_it(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    assert {"template": "sign_in.html", "next": f"/reviews/{ID}", "problem": ""} == (
        await ask.get(f"/reviews/sign-in?next=/reviews/{ID}")
    ).json()
    found = await sign_in(ask, f" {OPS}\n", next=f"/reviews/{ID}")
    assert (303, f"/reviews/{ID}") == (found.status_code, found.headers["location"])
    cookie = found.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= {part.strip() for part in cookie.split(";")}
    assert OPS not in cookie + base64.urlsafe_b64decode(cookie.partition("=")[2].partition(".")[0] + "==").decode()
    assert "ann" == (await ask.get("/reviews")).json()["name"]
    assert ("person.signed_in", {"person": "ann"}) in listener.log.events


@pytest.mark.parametrize(
    ("url", "expected"), [(URL, ("samplegate", False)), (URL.replace("http:", "https:"), ("__Host-samplegate", True))]
)
async def test_behind_tls_the_cookie_is_for_tls_and_this_host_alone(
    url: str, expected: tuple[str, bool], listener: ReviewersListener
) -> None:
    app = ReviewersListener(url=url).app()
    found = await sign_in(client(app), headers={"origin": url})
    cookie = found.headers["set-cookie"]
    assert expected == (cookie.partition("=")[0], "secure" in cookie.lower())


async def test_a_page_follows_a_stranger_to_the_sign_in_and_back(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    found = await ask.get(f"/reviews/{ID}", params={"raw": "1"})
    assert (303, f"/reviews/sign-in?next=/reviews/{ID}%3Fraw%3D1") == (found.status_code, found.headers["location"])
    assert "/reviews/sign-in" == (await ask.get("/reviews")).headers["location"]


async def test_a_link_from_elsewhere_is_asked_again_by_our_own_page_once(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    found = await ask.get(f"/reviews/{ID}", headers={"sec-fetch-site": "cross-site"})
    assert 200 == found.status_code
    assert f'content="0;url=/reviews/{ID}?again=1"' in found.text
    again = await ask.get(f"/reviews/{ID}?again=1", headers={"sec-fetch-site": "cross-site"})
    assert 303 == again.status_code


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example.net",
        "https://evil.example.net/reviews",
        "/\\evil.example.net",
        "/reviews/../v1",
        "/reviews//evil",
        "javascript:alert(1)",
        "/reviews\r\nset-cookie: a=b",
        "/reviewsevil",
        "/reviews/sign-out",
        "/reviews?a=<script>",
        "",
    ],
)
async def test_nobody_is_led_elsewhere_after_signing_in(place: str, listener: ReviewersListener) -> None:
    found = await sign_in(client(listener.app()), next=place)
    assert (303, "/reviews") == (found.status_code, found.headers["location"])
    assert "/reviews" == (await client(listener.app()).get("/reviews/sign-in", params={"next": place})).json()["next"]


async def test_a_wrong_token_is_no_session_and_is_nowhere_in_the_log(listener: ReviewersListener) -> None:
    found = await sign_in(client(listener.app()), "sg_gues5")
    assert (403, "Unknown token. Check that you copied all of it.") == (found.status_code, found.json()["problem"])
    assert "set-cookie" not in found.headers
    assert [("person.refused", {"address": "10.0.0.9"})] == listener.log.events


async def test_who_guesses_is_slowed_down_and_others_are_not(listener: ReviewersListener) -> None:
    app = listener.app()
    assert [403] * 10 + [429] == [(await sign_in(client(app), f"sg_{number}")).status_code for number in range(11)]
    refused = await sign_in(client(app), "sg_x")
    assert (429, "5") == (refused.status_code, refused.headers["retry-after"])
    assert 303 == (await sign_in(client(app), OPS)).status_code, (
        "a valid token is let in, whatever others sent from there"
    )
    assert 403 == (await sign_in(client(app, address="10.0.0.10"), "sg_x")).status_code
    listener.now += 5
    assert 403 == (await sign_in(client(app), "sg_x")).status_code


async def test_many_who_guess_together_are_slowed_down_together(listener: ReviewersListener) -> None:
    app = listener.app()
    for number in range(200):
        assert 403 == (await sign_in(client(app, address=f"10.0.{number}.1"), "sg_x")).status_code
    assert 429 == (await sign_in(client(app, address="10.9.9.9"), "sg_x")).status_code
    assert 303 == (await sign_in(client(app, address="10.9.9.9"))).status_code
    listener.now += 1
    assert 403 == (await sign_in(client(app, address="10.9.9.9"), "sg_x")).status_code


async def test_the_addresses_of_one_ipv6_network_are_one(listener: ReviewersListener) -> None:
    app = listener.app()
    for number in range(10):
        await sign_in(client(app, address=f"2001:db8::{number}"), "sg_x")
    assert 429 == (await sign_in(client(app, address="2001:db8::ffff:1"), "sg_x")).status_code
    assert 403 == (await sign_in(client(app, address="2001:db8:0:1::1"), "sg_x")).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": EVIL},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {**OURS, "sec-fetch-site": "same-site"},
    ],
)
async def test_no_page_of_others_signs_anybody_in(headers: dict[str, str], listener: ReviewersListener) -> None:
    found = await sign_in(client(listener.app()), headers=headers)
    assert 403 == found.status_code
    assert "set-cookie" not in found.headers


async def test_a_session_has_an_id_of_its_own_whatever_was_brought_along(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    seen = set()
    for _ in range(3):
        await sign_in(ask)
        seen.add((await ask.get("/reviews")).json()["form_token"])
    assert 3 == len(seen)


async def test_a_token_that_is_taken_away_ends_its_sessions_at_once(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    await sign_in(ask)
    person = listener.people.pop(OPS)
    assert 303 == (await ask.get("/reviews")).status_code
    listener.people[OPS] = Person("somebody else", person.role)
    assert 303 == (await ask.get("/reviews")).status_code
    listener.people[OPS] = Person(person.name, "viewer")
    assert 200 == (await ask.get("/reviews")).status_code


async def test_a_session_ends_by_time(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    await sign_in(ask)
    listener.now = NOW + 43_199
    assert 200 == (await ask.get("/reviews")).status_code
    listener.now = NOW + 43_200
    assert 303 == (await ask.get("/reviews")).status_code


def cookie_of(ask: httpx2.AsyncClient) -> str:
    return str(ask.cookies["samplegate"])


def forged(cookie: str, **changed: Any) -> str:
    text, _, signature = cookie.rpartition(".")
    claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))) | changed
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode() + "." + signature


@pytest.mark.parametrize(
    "change",
    [
        lambda cookie: forged(cookie, name="dora"),
        lambda cookie: forged(cookie, until=NOW + 10**9),
        lambda cookie: forged(cookie, token=hashlib.sha256(VIEWER.encode()).hexdigest()),
        lambda cookie: cookie[:-1] + ("A" if cookie[-1] != "A" else "E"),
        lambda cookie: cookie.rpartition(".")[0] + ".",
        lambda cookie: cookie.rpartition(".")[0],
        lambda cookie: "." + cookie.rpartition(".")[2],
        lambda cookie: cookie + "\xe9",
        lambda _: "x" * 5000,
        lambda _: ".",
        lambda _: sessions.write_cookie(
            sessions.CookieClaims("1", "ann", hashlib.sha256(OPS.encode()).hexdigest(), int(NOW) + 60), b"k" * 32
        ),
    ],
)
async def test_a_cookie_that_we_did_not_make_is_nobodys(change: Any, listener: ReviewersListener) -> None:
    app = listener.app()
    ask = client(app)
    await sign_in(ask)
    headers = {b"cookie": b"samplegate=" + change(cookie_of(ask)).encode("latin-1")}
    assert 303 == (await client(app).get("/reviews", headers=headers)).status_code


async def test_signing_out_ends_the_session_for_whoever_has_its_cookie(listener: ReviewersListener) -> None:
    app = listener.app()
    ask = client(app)
    await sign_in(ask)
    cookie = cookie_of(ask)
    form = (await ask.get("/reviews")).json()["form_token"]
    assert 403 == (await ask.post("/reviews/sign-out", data={"a": "b"}, headers=OURS)).status_code
    found = await ask.post("/reviews/sign-out", data={"form_token": form}, headers=OURS)
    assert (303, "/reviews/sign-in") == (found.status_code, found.headers["location"])
    assert "Max-Age=0" in found.headers["set-cookie"]
    assert 303 == (await client(app).get("/reviews", headers={"cookie": f"samplegate={cookie}"})).status_code


async def test_no_sign_out_is_lost_when_more_were_signed_out_than_are_remembered(
    listener: ReviewersListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samplegate.reviews.web.sign_in.MAX_ENDED", 3)
    app = listener.app()
    other = client(app)
    await sign_in(other, VIEWER)
    ended = []
    for _ in range(5):
        listener.now += 1
        ask = client(app)
        await sign_in(ask, OPS)
        ended.append(cookie_of(ask))
        form = (await ask.get("/reviews")).json()["form_token"]
        assert 303 == (await ask.post("/reviews/sign-out", data={"form_token": form}, headers=OURS)).status_code
    for cookie in ended:
        found = await client(app).get("/reviews", headers={"cookie": f"samplegate={cookie}"})
        assert (303, "/reviews/sign-in") == (found.status_code, found.headers["location"])
    assert 200 == (await other.get("/reviews")).status_code, "nobody else is signed out for it"
    assert ["person.sessions_ended"] == [event for event, _ in listener.log.events if event == "person.sessions_ended"]


async def posted(ask: httpx2.AsyncClient, text: str, headers: dict[str, str]) -> httpx2.Response:
    headers = {"content-type": "application/x-www-form-urlencoded", **headers}
    return await ask.post(f"/reviews/{ID}/verdict", content=text, headers=headers)


async def test_a_form_of_the_session_is_read_with_all_its_values(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    await sign_in(ask)
    token = (await ask.get("/reviews")).json()["form_token"]
    found = await posted(
        ask, f"form_token={token}&a=1&a=2&b=&c=%C3%A9+%E2%82%AC", {**OURS, "sec-fetch-site": "same-origin"}
    )
    assert {"a": ["1", "2"], "b": [""], "c": ["\xe9 \u20ac"]} == found.json()
    # an old browser does not say where a request comes from
    assert 200 == (await posted(ask, f"form_token={token}", {})).status_code


@pytest.mark.parametrize(
    ("text", "headers", "status"),
    [
        ("a=1", OURS, 403),
        ("form_token=&a=1", OURS, 403),
        ("form_token=" + "0" * 64, OURS, 403),
        ("form_token=\u20ac".encode().decode("latin-1"), OURS, 400),
        ("form_token=OK&form_token=OK", OURS, 403),
        ("form_token=OK", {"origin": EVIL}, 403),
        ("form_token=OK", {"origin": "null"}, 403),
        ("form_token=OK", {"sec-fetch-site": "cross-site"}, 403),
        ("form_token=OK", {"content-type": "text/plain"}, 415),
        ("form_token=OK", {"content-type": "multipart/form-data; boundary=x"}, 415),
        ("form_token=OK&a=%ff", OURS, 400),
        ("form_token=OK" + "&a=1" * 2_000, OURS, 400),
        ("form_token=OK&a=" + "1" * 5_000_000, OURS, 413),
    ],
)
async def test_a_form_that_no_page_of_this_session_posted_does_nothing(
    text: str, headers: dict[str, str], status: int, listener: ReviewersListener
) -> None:
    ask = client(listener.app())
    await sign_in(ask)
    token = (await ask.get("/reviews")).json()["form_token"]
    assert status == (await posted(ask, text.replace("OK", token), headers)).status_code


async def test_a_form_of_another_session_does_nothing(listener: ReviewersListener) -> None:
    app = listener.app()
    ann, cleo = client(app), client(app)
    await sign_in(ann)
    await sign_in(cleo, VIEWER)
    token = (await cleo.get("/reviews")).json()["form_token"]
    assert 403 == (await posted(ann, f"form_token={token}", OURS)).status_code
    assert 403 == (await posted(client(app), f"form_token={token}", OURS)).status_code


async def test_without_the_store_nobody_is_signed_in_and_nothing_is_told_of_it(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    await sign_in(ask)
    listener.store.fault = "/srv/secret"
    found = await ask.get("/reviews")
    assert (503, False) == (found.status_code, "secret" in found.text)


async def test_the_page_is_told_of_changes_by_its_session(listener: ReviewersListener) -> None:
    app = listener.app(poll=3600.0)
    await listener.open_review()
    ask = client(app)
    await sign_in(ask)
    assert 303 == (await client(app).get("/reviews/events")).status_code
    stream = Streamed(app, "/reviews/events", {"cookie": f"samplegate={cookie_of(ask)}"})
    assert 200 == await stream.begun()
    listener.store.decide(ID, Verdict(word="reject"), who="ann", door="page")
    assert ID in await stream.parts_until("data:")
    del listener.people[OPS]
    await listener.open_review(id="rv_" + "c" * 24)
    assert "" == await stream.part()
    await stream.ended()


def test_signed_out_sessions_that_are_over_make_room_before_a_token_loses_all_of_its_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_ENDED", 2)
    now = 0.0
    ended = sessions.EndedSessions(lambda: now)
    made = [sessions.CookieClaims(str(number), "ann", "", until) for number, until in enumerate((10, 11, 20, 21, 22))]
    assert [False, False] == [ended.add(claims) for claims in made[:2]]
    now = 10.0
    assert [False, True] == [ended.add(claims) for claims in made[2:4]]
    assert [True, True, True, False] == [claims in ended for claims in made[1:]]


def test_what_is_signed_and_is_no_session_is_none() -> None:
    key = bytes(32)
    made = sessions.write_cookie(sessions.CookieClaims("1", "ann", "", 10), key)
    assert "ann" == sessions.read_cookie(made, key, 9.0).name  # type: ignore[union-attr]
    for text in ("", "x", base64.urlsafe_b64encode(b'{"id": 1}').decode()):
        signature = sessions._signature(text.encode(), key)
        assert sessions.read_cookie(f"{text}.{signature}", key, 9.0) is None
