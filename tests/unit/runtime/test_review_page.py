"""Who may sign in at the page of `run`: people by their tokens, and its user by links that work once."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final

import pytest

from samplegate.config.identities import PeopleSettings, PersonToken
from samplegate.reviews.sign_in_links import VALID, OneUseCodes, make_code
from samplegate.reviews.web.app import ReviewsApp, reviews_app
from samplegate.runtime.review_page import MAX_SESSIONS, People, Visitors, user_name
from tests.fakes.reviewers_listener import URL, ReviewersListener, client
from tests.fakes.reviews import NOW
from tests.fakes.visitor import Visitor

pytestmark = pytest.mark.anyio
SECRET: Final = b"s" * 32
TOKEN: Final = "sg_ann"
PEOPLE: Final = PeopleSettings((PersonToken("ann", "viewer", hashlib.sha256(TOKEN.encode()).hexdigest()),))


class Page:
    """The page of one process with its visitors."""

    def __init__(self, settings: PeopleSettings = PEOPLE) -> None:
        self.listener = ReviewersListener()
        self.people = People(settings)
        self.visitors = Visitors(self.people, OneUseCodes(SECRET), user="olga", wall=lambda: self.listener.now)
        self._made = 0

    def app(self) -> ReviewsApp:
        from msgspec.structs import replace

        who: dict[str, Any] = {
            "person": self.people.person,
            "known": self.visitors.known,
            "one_use": self.visitors.one_use,
            "cookie": "samplegate-8099",
        }
        return reviews_app(replace(self.listener.web, **who))

    def code(self) -> str:
        self._made += 1
        return make_code(SECRET, now=self.listener.now, random=lambda size: self._made.to_bytes(size, "big"))


async def test_a_link_signs_its_user_in_as_admin() -> None:
    page = Page()
    visitor = await Visitor(page.app()).sign_in(page.code())
    assert "Pending reviews" == visitor.heading
    assert "olga admin" in visitor.page.one(class_="who").text
    assert ("person.signed_in", {"person": "olga"}) in page.listener.log.events
    assert "once1." not in repr(page.listener.log.events)


async def test_two_requests_at_once_with_one_code_are_one_session() -> None:
    page = Page()
    app, code = page.app(), page.code()
    asking = [client(app).post("/reviews/sign-in", data={"token": code}, headers={"origin": URL}) for _ in range(20)]
    found = await asyncio.gather(*asking)
    assert [303, *[403] * 9] == sorted(each.status_code for each in found)[:10]
    assert 1 == sum(each.status_code == 303 for each in found)
    assert 1 == sum("set-cookie" in each.headers for each in found)


async def test_a_code_that_was_used_or_has_expired_is_told_how_to_get_another() -> None:
    page = Page()
    code, late = page.code(), page.code()
    await Visitor(page.app()).sign_in(code)
    again = await Visitor(page.app()).sign_in(code)
    page.listener.now = NOW + VALID
    expired = await Visitor(page.app()).sign_in(late)
    for visitor in (again, expired):
        assert 403 == visitor.status
        assert "Get a new one with `samplegate reviews open`" in visitor.alert
    wrong = await Visitor(page.app()).sign_in("sg_wrong")
    assert "Unknown token" in wrong.alert


async def test_a_code_is_no_token_of_the_api_before_or_after_its_use() -> None:
    page = Page()
    app, code = page.app(), page.code()
    assert 401 == (await client(app, code).get("/v1/reviews")).status_code
    await Visitor(app).sign_in(code)
    assert 401 == (await client(app, code).get("/v1/reviews")).status_code


async def test_people_sign_in_beside_with_their_roles() -> None:
    page = Page()
    visitor = await Visitor(page.app()).sign_in(TOKEN)
    assert "ann viewer" in visitor.page.one(class_="who").text
    page.people.put(PeopleSettings())
    assert "Sign in to samplegate reviews" == (await visitor.open("/reviews")).heading


async def test_a_session_ends_by_sign_out_and_its_code_does_not_bring_it_back() -> None:
    page = Page()
    app, code = page.app(), page.code()
    visitor = await Visitor(app).sign_in(code)
    await visitor.press("Sign out")
    assert "Sign in to samplegate reviews" == (await visitor.open("/reviews")).heading
    assert 403 == (await visitor.sign_in(code)).status


async def test_the_cookie_has_a_name_for_each_port() -> None:
    page = Page()
    found = await client(page.app()).post("/reviews/sign-in", data={"token": page.code()}, headers={"origin": URL})
    assert found.headers["set-cookie"].startswith("samplegate-8099=")


def test_sessions_by_links_are_bounded_and_the_oldest_one_ends() -> None:
    page = Page()
    codes = [page.code() for _ in range(MAX_SESSIONS + 1)]
    assert all(page.visitors.one_use(code) is not None for code in codes)
    known = [page.visitors.known(hashlib.sha256(code.encode()).digest()) is not None for code in codes]
    assert [False, *[True] * MAX_SESSIONS] == known


def test_the_user_has_a_name_that_fits_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("no such user")

    for name, shown in (("ann", "ann"), ("A B\x1b[2J", "A-B--2J"), ("", "local"), ("x" * 100, "x" * 64)):
        monkeypatch.setattr("getpass.getuser", lambda name=name: name)
        assert shown == user_name()
    monkeypatch.setattr("getpass.getuser", nobody)
    assert "local" == user_name()
