"""Sign-in by a proxy's signed assertion: read with every request, never beside other credentials, and with the forms'
protection of a session."""

from __future__ import annotations

import re
from typing import Any, Final

import httpx2
import pytest

from samplegate.errors import Unavailable
from samplegate.reviews.web.app import ReviewsApp
from samplegate.reviews.web.context import Asserted, AssertionHeader, Person
from samplegate.reviews.web.security import error_response
from tests.fakes.reviewers_listener import ID, OPS, URL, ReviewersListener, Streamed, client
from tests.fakes.reviews import NOW

pytestmark = pytest.mark.anyio

HEADER: Final = "x-goog-iap-jwt-assertion"
ANN: Final = Person("ann@example.com", "reviewer", ("ops",), subject="1")
BEN: Final = Person("ben@example.com", "reviewer", ("ops",), subject="2")
VIEWER: Final = Person("cleo@example.com", "viewer", subject="3")
OURS: Final = {"origin": URL}
VERDICT: Final = f"/v1/reviews/{ID}/verdict"


class Proxied(ReviewersListener):
    """A listener behind a proxy: its people by assertion, and the reasons of refusals."""

    def __init__(self) -> None:
        self.asserted: dict[str, Person | str | Exception] = {
            "ann": ANN, "ben": BEN, "cleo": VIEWER, "old": "expired", "eve": "no_role", "forged": "signature",
            "down": Unavailable("the issuer's keys are not available"),
        }  # fmt: skip
        self.counted: list[str] = []
        self.one: ReviewsApp | None = None
        """The application of all requests, which counts what it logged."""
        self.header: AssertionHeader | None = AssertionHeader(HEADER, self._person)
        super().__init__(assertion=lambda: self.header, count=self._count)

    async def _person(self, text: str) -> Asserted | str:
        found = self.asserted.get(text, "malformed")
        if isinstance(found, Exception):
            raise found
        return Asserted(found, self.now + 300) if isinstance(found, Person) else found

    def _count(self, name: str, *, reason: str) -> None:
        assert "samplegate_assertions_refused_total" == name
        self.counted.append(reason)


@pytest.fixture
def listener() -> Proxied:
    return Proxied()


def by(listener: Proxied, assertion: str = "ann", **headers: str) -> httpx2.AsyncClient:
    listener.one = listener.one or listener.app()
    found = client(listener.one)
    found.headers.update({HEADER: assertion, **headers})
    return found


async def say(listener: Proxied, assertion: str, **headers: str) -> httpx2.Response:
    body = {"verdict": "approve", "digest": listener.store.reviews[ID].digest}
    return await by(listener, assertion, **headers).post(VERDICT, json=body)


def token_in(page: httpx2.Response) -> str:
    found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page.text)
    assert found is not None, page.text
    return found[1]


async def test_the_person_of_the_assertion_sees_and_decides_through_the_api(listener: Proxied) -> None:
    await listener.open_review()
    assert [ID] == [each["id"] for each in (await by(listener).get("/v1/reviews")).json()["reviews"]]
    assert 403 == (await say(listener, "cleo")).status_code
    done = await say(listener, "ann")
    assert (200, "approved", "ann@example.com") == (done.status_code, done.json()["state"], done.json()["who"])


async def test_the_page_needs_no_sign_in_sets_no_cookie_and_offers_no_sign_out(listener: Proxied) -> None:
    await listener.open_review()
    page = await by(listener).get(f"/reviews/{ID}")
    assert (200, True, False) == (page.status_code, "ann@example.com" in page.text, "Sign out</button>" in page.text)
    assert "set-cookie" not in page.headers
    for ask in (by(listener).get("/reviews/sign-in"), by(listener).post("/reviews/sign-in", headers=OURS)):
        assert (303, "/reviews") == ((found := await ask).status_code, found.headers["location"])
    out = await by(listener).post("/reviews/sign-out", data={"form_token": token_in(page)}, headers=OURS)
    assert (303, "/reviews") == (out.status_code, out.headers["location"])


async def test_without_an_assertion_tokens_and_sessions_work_as_before(listener: Proxied) -> None:
    await listener.open_review()
    assert 200 == (await client(listener.app(), OPS).get(f"/v1/reviews/{ID}")).status_code
    assert 401 == (await client(listener.app()).get(f"/v1/reviews/{ID}")).status_code
    page = await client(listener.app()).get("/reviews")
    assert (303, "/reviews/sign-in") == (page.status_code, page.headers["location"])
    assert "open this page through it" in (await client(listener.app()).get("/reviews/sign-in")).text


async def test_a_form_needs_the_token_of_the_person_and_our_origin(listener: Proxied) -> None:
    await listener.open_review()
    page, other = await by(listener).get(f"/reviews/{ID}"), await by(listener, "ben").get(f"/reviews/{ID}")
    fields = {"digest": listener.store.reviews[ID].digest, "do": "reject"}

    async def post(token: str, **headers: str) -> int:
        form = {**fields, "form_token": token}
        return (await by(listener, **headers).post(f"/reviews/{ID}/verdict", data=form)).status_code

    assert [403, 403, 403] == [await post(token, **OURS) for token in ("", "0" * 64, token_in(other))]
    forged: list[dict[str, str]] = [
        {},
        {"origin": "https://evil.example.net"},
        {"origin": "null"},
        {**OURS, "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ]
    assert [403] * 5 == [await post(token_in(page), **headers) for headers in forged]
    assert "pending" == listener.store.reviews[ID].state
    assert 303 == await post(token_in(page), **OURS)
    assert ("rejected", "ann@example.com") == (listener.store.reviews[ID].state, listener.store.reviews[ID].who)


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example.net"}, {"sec-fetch-site": "cross-site"}])
async def test_no_other_site_decides_through_the_api(listener: Proxied, headers: dict[str, str]) -> None:
    await listener.open_review()
    assert 403 == (await say(listener, "ann", **headers)).status_code
    assert "pending" == listener.store.reviews[ID].state
    assert 200 == (await say(listener, "ann", **OURS)).status_code


async def test_each_verdict_needs_an_assertion_and_the_role_of_that_moment(listener: Proxied) -> None:
    await listener.open_review(approvals=2)
    assert 200 == (await say(listener, "ann")).status_code
    listener.asserted["ben"] = "no_role"
    assert 403 == (await say(listener, "ben")).status_code
    listener.asserted["ben"] = Person("ben@example.com", "reviewer", ("legal",), subject="2")
    assert 404 == (await say(listener, "ben")).status_code, "it is not for the reviewers of this group"
    listener.asserted["ben"] = BEN
    assert "approved" == (await say(listener, "ben")).json()["state"]


REJECTED: Final = "the proxy's assertion was rejected: "
REFUSED: Final[list[tuple[str, int, str, str]]] = [
    ("", 403, "malformed", f"{REJECTED}malformed; the gate's log has the reason, too"),
    ("x" * 16_385, 403, "malformed", f"{REJECTED}malformed; the gate's log has the reason, too"),
    ("forged", 403, "signature", f"{REJECTED}signature; the gate's log has the reason, too"),
    ("old", 403, "expired", f"{REJECTED}expired; reload the page, or sign in at the proxy again"),
    (
        "eve",
        403,
        "no_role",
        "the proxy's assertion is valid, but the settings give this person no role; ask the gate's operator",
    ),
    (
        "down",
        503,
        "no_keys",
        "the issuer's keys are not available, so the proxy's assertion cannot be verified; try again",
    ),
]


@pytest.mark.parametrize(("assertion", "status", "reason", "detail"), REFUSED)
async def test_a_refusal_has_a_reason_in_the_response_the_log_and_the_count(
    listener: Proxied, assertion: str, status: int, reason: str, detail: str
) -> None:
    found, page = await by(listener, assertion).get("/v1/reviews"), await by(listener, assertion).get("/reviews")
    assert (status, detail) == (found.status_code, found.json()["detail"])
    assert (status, True) == (page.status_code, page.text.endswith(f": {detail}\n"))
    assert [reason] * 2 == listener.counted
    logged = ("assertion.refused", {"reason": reason, "status": status, "address": "10.0.0.9"})
    assert [logged] == listener.log.events, "and the second one within ten seconds is only counted"
    listener.now += 11
    await by(listener, assertion).get("/v1/reviews")
    assert 1 == listener.log.events[1][1]["more"]


@pytest.mark.parametrize(
    ("headers", "reason", "detail"),
    [
        ([(HEADER, "ann"), (HEADER, "ann")], "repeated", "appears more than once"),
        ([(HEADER, "ann"), (HEADER.upper(), "ben")], "repeated", "appears more than once"),
        ([(HEADER, "ann"), ("X_Goog_Iap_Jwt_Assertion", "ben")], "underscore", "also appears with _ in place of -"),
        ([("x-goog_iap-jwt-assertion", "ann")], "underscore", "also appears with _ in place of -"),
    ],
)
async def test_a_header_with_another_spelling_or_twice_is_400(
    listener: Proxied, headers: list[tuple[str, str]], reason: str, detail: str
) -> None:
    found = await client(listener.app(), OPS).get("/v1/reviews", headers=headers)
    said = f"the header {HEADER} {detail}; the proxy must remove what clients send in its place"
    assert (400, said, [reason]) == (found.status_code, found.json()["detail"], listener.counted)


async def test_two_kinds_of_credentials_are_400_and_a_session_ends(listener: Proxied) -> None:
    token = await by(listener, authorization=f"Bearer {OPS}").get("/v1/reviews")
    assert (400, "the request has an assertion and an Authorization header; send one of them") == (
        token.status_code,
        token.json()["detail"],
    )
    visitor = client(listener.app())
    await visitor.post("/reviews/sign-in", data={"token": OPS}, headers=OURS)
    assert 200 == (await visitor.get("/reviews")).status_code
    both = await visitor.get("/reviews", headers={HEADER: "ann"})
    assert (400, True) == (both.status_code, "the session has ended now, so reload" in both.text)
    assert 200 == (await visitor.get("/reviews", headers={HEADER: "ann"})).status_code
    assert ["two_kinds"] * 2 == listener.counted


async def test_plain_user_headers_say_nothing(listener: Proxied) -> None:
    plain = {"x-forwarded-user": "ann@example.com", "x-goog-authenticated-user-email": "ann@example.com"}
    assert 401 == (await client(listener.app()).get("/v1/reviews", headers=plain)).status_code
    listener.header = None
    assert 401 == (await by(listener).get("/v1/reviews")).status_code, "nor the header without settings"


async def test_a_stream_ends_with_its_assertion_and_at_a_reload(listener: Proxied) -> None:
    for path in ("/v1/reviews/events", "/reviews/events"):
        for end in ("time", "reload"):
            stream = Streamed(listener.app(poll=0.01), path, {HEADER: "ann"})
            assert 200 == await stream.begun()
            assert "retry" in await stream.part()
            if end == "time":
                listener.now += 301
            else:
                listener.header = AssertionHeader(HEADER, listener._person)
            await stream.ended()
    assert listener.now > NOW


async def test_static_files_need_no_assertion(listener: Proxied) -> None:
    found = await by(listener, "forged").get("/reviews/static/page.css")
    assert (200, []) == (found.status_code, listener.counted)
    assert error_response({"path": "/reviews"}, 400, "x").status_code == 400


async def test_the_name_of_a_static_token_is_the_same_person(listener: Proxied) -> None:
    """Fail closed: one person with a token and an assertion is not two."""
    await listener.open_review(approvals=2)
    listener.people["sg_too"] = Person("Ann@example.com", "reviewer", ("ops",))
    body: dict[str, Any] = {"verdict": "approve", "digest": listener.store.reviews[ID].digest}
    assert 200 == (await client(listener.app(), "sg_too").post(VERDICT, json=body)).status_code
    assert 409 == (await say(listener, "ann")).status_code
    assert "pending" == listener.store.reviews[ID].state


async def test_a_subject_with_another_email_is_the_same_person(listener: Proxied) -> None:
    await listener.open_review(approvals=2)
    listener.asserted["renamed"] = Person("ann.new@example.com", "reviewer", ("ops",), subject="1")
    assert 200 == (await say(listener, "ann")).status_code
    again = await say(listener, "renamed")
    assert (409, "pending") == (again.status_code, listener.store.reviews[ID].state)
    assert "ann.new@example.com has approved it already" in again.json()["detail"]
    assert "approved" == (await say(listener, "ben")).json()["state"]
    assert "ann@example.com, ben@example.com" == listener.store.reviews[ID].who
