"""The reviewers' pages without a browser: who gets what, with which status and headers, and that no text of a peer
becomes markup."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from msgspec.structs import replace

from samplegate.errors import Unavailable
from samplegate.reviews.review import Review, Verdict
from samplegate.urls import target as read_host
from tests.fakes import page_reviews as shown
from tests.fakes.hostile_reviews import TRIED, everywhere, hostile
from tests.fakes.reviewers_listener import ADMIN, ID, OPS, OTHER, URL, VIEWER, ReviewersListener, client
from tests.fakes.reviews import NOW, review, text
from tests.fakes.visitor import Visitor

pytestmark = pytest.mark.anyio


class ParsedPage(HTMLParser):
    """A page as a browser parses it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def hidden(self, name: str) -> str:
        return next(attrs["value"] for attrs in self.all("input") if attrs.get("name") == name)


@pytest.fixture
def listener() -> ReviewersListener:
    return ReviewersListener()


async def signed_in(listener: ReviewersListener, token: str = OPS) -> httpx2.AsyncClient:
    ask = client(listener.app())
    assert 303 == (await ask.post("/reviews/sign-in", data={"token": token}, headers={"origin": URL})).status_code
    return ask


async def post(ask: httpx2.AsyncClient, id: str = ID, **fields: Any) -> httpx2.Response:
    """Submit a form of the review's page as a browser does: its hidden fields and the typed values."""
    page = ParsedPage((await ask.get("/reviews/history")).text)
    digest = fields.pop("digest", "sha256:" + "ab" * 32)
    typed = {name.replace("__", "."): value for name, value in fields.items()}
    whole = {"form_token": page.hidden("form_token"), "digest": digest, **typed}
    head = {"origin": URL, "content-type": "application/x-www-form-urlencoded"}
    return await ask.post(f"/reviews/{id}/verdict", content=urlencode(whole, doseq=True), headers=head)


async def test_nobody_sees_anything_before_signing_in(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = client(listener.app())
    for path in ("/reviews", "/reviews/history", f"/reviews/{ID}", f"/reviews/{ID}/raw", f"/reviews/{ID}/content/0"):
        found = await ask.get(path)
        assert 303 == found.status_code
        assert found.headers["location"].startswith("/reviews/sign-in")


@pytest.mark.parametrize(
    "path", ["/reviews", "/reviews/history", f"/reviews/{ID}", "/reviews/sign-in", "/reviews/rv_nothing"]
)
async def test_every_page_has_the_headers_that_keep_texts_texts(path: str, listener: ReviewersListener) -> None:
    await listener.open_review()
    headers = (await (await signed_in(listener)).get(path)).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert "'none'" == policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"]
    assert "'self'" == policy["script-src"] == policy["style-src"] == policy["form-action"]
    assert ("nosniff", "no-store", "DENY") == (
        headers["x-content-type-options"],
        headers["cache-control"],
        headers["x-frame-options"],
    )


@pytest.mark.parametrize("path", ["/reviews", "/reviews/history", f"/reviews/{ID}", "/reviews/sign-in"])
async def test_no_page_has_a_script_or_style_inline_or_anything_from_elsewhere(
    path: str, listener: ReviewersListener
) -> None:
    await listener.open_review(shown.sampling(id=ID))
    page = ParsedPage((await (await signed_in(listener)).get(path)).text)
    for tag, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on") or name in ("style", "srcdoc", "ping")]
        assert "style" != tag
        for name in ("src", "href", "action"):
            assert re.match(r"/reviews|#|\Z", attrs.get(name, "")), (tag, attrs)
    assert [] == [attrs for attrs in page.all("script") if not attrs.get("src")]


async def test_static_files_may_be_kept_and_nothing_else_is_reached(listener: ReviewersListener) -> None:
    ask = client(listener.app())
    page = ParsedPage((await ask.get("/reviews/sign-in")).text)
    style = next(attrs["href"] for attrs in page.all("link") if attrs.get("rel") == "stylesheet")
    found = await ask.get(style)
    assert (200, "text/css; charset=utf-8") == (found.status_code, found.headers["content-type"])
    assert "immutable" in found.headers["cache-control"]
    assert "no-cache" == (await ask.get("/reviews/static/page.css?old")).headers["cache-control"]
    for name in ("nothing.js", "..%2frender.py", "%2e%2e/render.py", "page.html"):
        assert (await ask.get(f"/reviews/static/{name}")).status_code in (303, 404)


async def test_what_waits_is_listed_oldest_first(listener: ReviewersListener) -> None:
    for n, age in enumerate((5, 50, 20)):
        await listener.open_review(review(id=f"rv_{n}", server=f"server{n}", created=NOW - age))
    page = ParsedPage((await (await signed_in(listener)).get("/reviews")).text)
    assert ["rv_1", "rv_2", "rv_0"] == [attrs["data-id"] for attrs in page.all("li")]


async def test_a_row_says_what_it_is_about_by_which_rule_and_for_how_much(listener: ReviewersListener) -> None:
    await listener.open_review(
        shown.sampling(
            id=ID, params={"messages": [{"role": "user", "content": text("Sort\n\n\u202ethis <b>")}], "maxTokens": 5}
        )
    )
    page = ParsedPage((await (await signed_in(listener)).get("/reviews")).text)
    assert "last user message Sort U+202Ethis <b>" in page.text
    assert "rule tickets-need-a-person" in page.text
    assert "max cost $0.013" in page.text
    assert [] == page.all("b")


async def test_what_waits_is_filtered(listener: ReviewersListener) -> None:
    await listener.open_review(review(id="rv_1", server="a", created=NOW - 3))
    await listener.open_review(review(id="rv_2", server="b", reviewer="legal", created=NOW - 2))
    await listener.open_review(shown.url(id="rv_3", server="b", created=NOW - 1))
    ask = await signed_in(listener, ADMIN)

    async def ids(query: str) -> list[str]:
        return [attrs["data-id"] for attrs in ParsedPage((await ask.get(f"/reviews{query}")).text).all("li")]

    assert ["rv_1", "rv_2", "rv_3"] == await ids("?reviewer=&server=&kind=") == await ids("?kind=nonsense")
    assert ["rv_2", "rv_3"] == await ids("?server=b")
    assert ["rv_2"] == await ids("?reviewer=legal")
    assert ["rv_3"] == await ids("?kind=elicitation&server=b")
    assert "No pending reviews match the filter" in (await ask.get("/reviews?server=c")).text


async def test_a_filter_does_not_widen_what_somebody_sees(listener: ReviewersListener) -> None:
    await listener.open_review(review(id="rv_2", reviewer="legal"))
    assert [] == ParsedPage((await (await signed_in(listener)).get("/reviews?reviewer=legal")).text).all("li")


async def test_more_than_a_page_that_wait_have_a_next_page_with_the_same_filter(listener: ReviewersListener) -> None:
    for n in range(220):
        await listener.open_review(review(id=f"rv_{n:03}", created=NOW - 300 + n, server="b" if n % 11 else "a"))
    ask = await signed_in(listener)
    address, found = "/reviews?server=b", list[str]()
    for _ in range(2):
        page = ParsedPage((await ask.get(address)).text)
        (listed,) = [attrs for attrs in page.all("div") if attrs.get("id") == "list"]
        assert address == listed["data-at"]
        found += [attrs["data-id"] for attrs in page.all("li")]
        address = next(
            (attrs["href"] for attrs in page.all("a") if "after=" in attrs["href"] and attrs["href"] != address), ""
        )
    assert [f"rv_{n:03}" for n in range(220) if n % 11] == found
    assert "" == address


async def test_a_page_behind_the_last_says_so(listener: ReviewersListener) -> None:
    await listener.open_review()
    for after in (ID, "rv_forgotten", "<script>"):
        page = ParsedPage((await (await signed_in(listener)).get("/reviews", params={"after": after})).text)
        assert "No more pending reviews" in page.text
        assert "No pending reviews" not in page.text
        assert "/reviews" in [attrs["href"] for attrs in page.all("a") if attrs["href"].startswith("/reviews")]


@pytest.mark.parametrize("ahead", [-7_200.0, 7_200.0])
async def test_a_wrong_clock_of_the_gate_changes_nothing_of_a_page(ahead: float) -> None:
    pages = []
    for listener in (ReviewersListener(), ReviewersListener(ahead=ahead)):
        await listener.open_review(review(id=ID))
        await listener.open_review(review(id="rv_" + "b" * 24, created=NOW + 1))
        ask = await signed_in(listener)
        pages.append(
            [
                ParsedPage((await ask.get(f"/reviews{path}")).text).text
                for path in ("", f"/{ID}", "/history", f"/next?after={ID}")
            ]
        )
    assert pages[0] == pages[1]
    assert "Request expires in" in pages[0][1] or "Review expires in" in pages[0][1]


async def test_the_same_request_that_comes_again_and_again_is_one_line(listener: ReviewersListener) -> None:
    await listener.open_review()
    for n in range(3):
        listener.now = NOW + n
        listener.store.seek(review().lookup, stage="request", waiter=f"w{n}", seconds=0.5)
    found = ParsedPage((await (await signed_in(listener)).get(f"/reviews/{ID}")).text).text
    assert 0 == found.count("joined")
    assert 1 == found.count("the same request arrived again and is waiting (3 times)")


async def test_nobody_sees_what_is_not_for_them(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener, OTHER)
    assert "No pending reviews" in (await ask.get("/reviews")).text
    assert "No completed reviews yet" in (await ask.get("/reviews/history")).text
    assert [404, 404, 404] == [
        (await ask.get(f"/reviews/{ID}{rest}")).status_code for rest in ("", "/raw", "/content/0")
    ]
    assert 404 == (await post(ask, do="approve")).status_code


async def test_an_admin_sees_all(listener: ReviewersListener) -> None:
    await listener.open_review()
    listener.people[ADMIN] = replace(listener.people[ADMIN], reviewers=("legal",))
    assert f'data-id="{ID}"' in (await (await signed_in(listener, ADMIN)).get("/reviews")).text


async def test_a_viewer_looks_and_has_no_form(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener, VIEWER)
    page = ParsedPage((await ask.get(f"/reviews/{ID}")).text)
    assert ["/reviews/sign-out"] == [attrs["action"] for attrs in page.all("form")]
    assert 403 == (await post(ask, do="approve")).status_code
    assert "pending" == listener.store.reviews[ID].state


async def test_a_verdict_is_given_under_the_persons_name_at_the_page(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener)
    found = await post(ask, do="approve")
    assert (303, f"/reviews/{ID}#standing") == (found.status_code, found.headers["location"])
    kept = listener.store.reviews[ID]
    assert ("approved", "ann", "page", NOW) == (kept.state, kept.who, kept.door, kept.decided)


async def test_a_form_without_its_sessions_token_decides_nothing(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener)
    for token in ("", "f" * 64):
        assert 403 == (await post(ask, do="approve", form_token=token)).status_code
    assert "pending" == listener.store.reviews[ID].state


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_asking_for_the_verdict_decides_nothing(method: str, listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener)
    found = await ask.request(method, f"/reviews/{ID}/verdict?do=approve")
    assert (303, f"/reviews/{ID}") == (found.status_code, found.headers["location"])
    assert "pending" == listener.store.reviews[ID].state


@pytest.mark.parametrize("id", ["%2F%2Fevil.example", "%0d%0aset-cookie:a", "a%3Fb%23c"])
async def test_asking_for_a_verdict_leads_nowhere_but_to_a_review(id: str, listener: ReviewersListener) -> None:
    found = await (await signed_in(listener)).get(f"/reviews/{id}/verdict")
    assert found.status_code in (303, 404)
    assert re.fullmatch(r"/reviews/[^/?#]+|", found.headers.get("location", ""))
    assert "set-cookie" not in found.headers


async def test_a_refused_form_says_where_its_review_is(listener: ReviewersListener) -> None:
    await listener.open_review()
    found = await post(await signed_in(listener), do="approve", digest="sha256:" + "cd" * 32)
    assert [f"/reviews/{ID}"] == [attrs["data-at"] for attrs in ParsedPage(found.text).all("article")]


async def test_a_late_verdict_sees_how_it_stands(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask, other = await signed_in(listener), await signed_in(listener, ADMIN)
    await post(ask, do="reject", reason="no")
    found = await post(other, do="approve")
    assert 409 == found.status_code
    assert "Your decision was not recorded" in found.text
    assert "by ann" in ParsedPage(found.text).text
    assert "rejected" == listener.store.reviews[ID].state


async def test_a_verdict_after_its_time_is_late(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener)
    listener.now = NOW + 900
    found = await post(ask, do="approve")
    assert 409 == found.status_code
    assert "Expired without a decision" in found.text


async def test_a_verdict_on_something_else_than_what_was_shown_is_refused(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener)
    found = await post(ask, do="approve", digest="sha256:" + "cd" * 32)
    assert 422 == found.status_code
    assert "Digest does not match this review; read the review again, then decide" in ParsedPage(found.text).text
    assert "pending" == listener.store.reviews[ID].state


async def test_what_is_wrong_stands_at_its_field_and_all_that_was_typed_is_kept(listener: ReviewersListener) -> None:
    await listener.open_review(shown.form(id=ID))
    ask = await signed_in(listener)
    found = await post(
        ask, do="accept", f__0="ab", f__5="99999", f__7="true", f__9="3", f__10=["0", "2"], f__11="kept & <b>\r\nmore"
    )
    page = ParsedPage(found.text)
    assert 422 == found.status_code
    inputs = {attrs.get("name"): attrs for tag, attrs in page.tags if tag in ("input", "textarea", "select")}
    assert ("ab", "true") == (inputs["f.0"]["value"], inputs["f.0"]["aria-invalid"])
    assert ("99999", "true") == (inputs["f.5"]["value"], inputs["f.5"]["aria-invalid"])
    assert "f.5-problem" in inputs["f.5"]["aria-describedby"]
    assert {"#f.0", "#f.5"} == {attrs["href"] for attrs in page.all("a") if attrs.get("href", "").startswith("#f.")}
    assert {"0", "2"} == {
        attrs["value"] for attrs in page.all("input") if attrs.get("name") == "f.10" and "checked" in attrs
    }
    assert "kept &amp; &lt;b&gt;" in found.text
    assert "pending" == listener.store.reviews[ID].state


async def test_an_approval_that_would_drop_edits_is_refused_and_shows_them(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener)
    found = await post(ask, do="approve", edit__text__0__0="Classify that", edit__max_tokens="100")
    assert 422 == found.status_code
    assert (
        'Your edits would be lost (Messages, Max tokens). Choose "Approve with edits", or undo the edits.'
        in ParsedPage(found.text).text
    )
    assert re.search(r"<ins>.*that.*</ins>", found.text)
    assert "pending" == listener.store.reviews[ID].state
    assert 303 == (await post(ask, do="edit", edit__text__0__0="Classify that", edit__max_tokens="100")).status_code
    verdict = listener.store.reviews[ID].verdict
    assert verdict is not None
    assert verdict.edits is not None
    assert 100 == verdict.edits.max_tokens


@pytest.mark.parametrize("do", ["approve", "edit"])
async def test_an_approval_that_would_drop_a_written_answer_is_refused(do: str, listener: ReviewersListener) -> None:
    await listener.open_review()
    found = await post(await signed_in(listener), do=do, answer__0="Forty-two")
    assert 422 == found.status_code
    assert "The answer that you wrote would be lost" in ParsedPage(found.text).text
    assert "pending" == listener.store.reviews[ID].state


async def test_an_approval_with_edits_is_refused_where_nothing_is_edited(listener: ReviewersListener) -> None:
    await listener.open_review()
    found = await post(await signed_in(listener), do="edit")
    assert 422 == found.status_code
    assert 'Nothing was edited. Choose "Approve"' in ParsedPage(found.text).text
    assert "pending" == listener.store.reviews[ID].state


async def test_an_edit_that_is_not_valid_is_not_dropped_by_approve_either(listener: ReviewersListener) -> None:
    await listener.open_review()
    found = await post(await signed_in(listener), do="approve", edit__max_tokens="few")
    assert 422 == found.status_code
    assert "Your edits would be lost (Max tokens)" in ParsedPage(found.text).text
    assert "pending" == listener.store.reviews[ID].state


async def test_the_server_is_never_told_a_reason_by_an_approval(listener: ReviewersListener) -> None:
    await listener.open_review()
    found = await post(await signed_in(listener), do="approve", reason="looks fine", tell_server="yes")
    assert 422 == found.status_code
    assert "only a rejection can send its reason to the server" in ParsedPage(found.text).text
    assert "pending" == listener.store.reviews[ID].state


async def test_a_page_has_one_form_for_the_decision_and_its_first_button_decides_nothing(
    listener: ReviewersListener,
) -> None:
    for n, make in enumerate((shown.sampling, shown.answer, shown.form, shown.url)):
        id = f"rv_{n:024}"
        await listener.open_review(make(id=id))
        page = ParsedPage((await (await signed_in(listener)).get(f"/reviews/{id}")).text)
        assert 1 == len([form for form in page.all("form") if form["action"].endswith("/verdict")])
        assert "preview" == next(button["value"] for button in page.all("button") if button.get("name") == "do")


async def test_a_preview_shows_what_would_be_changed_and_decides_nothing(listener: ReviewersListener) -> None:
    await listener.open_review()
    ask = await signed_in(listener)
    found = await post(ask, do="preview", edit__text__0__0="Classify that")
    assert 200 == found.status_code
    assert re.search(r"<del>.*this.*</del>", found.text)
    assert re.search(r"<ins>.*that.*</ins>", found.text)
    assert "pending" == listener.store.reviews[ID].state


async def test_a_preview_of_a_form_says_what_would_be_sent(listener: ReviewersListener) -> None:
    await listener.open_review(shown.form({"port": {"type": "integer"}}, id=ID))
    found = await post(await signed_in(listener), do="preview", f__0="80")
    assert '{\n  "port": 80\n}' in unescape(found.text)
    assert "pending" == listener.store.reviews[ID].state


async def test_the_history_is_filtered_and_has_pages(listener: ReviewersListener) -> None:
    for n in range(60):
        found = review(id=f"rv_{n:03}", created=NOW + n, server="a" if n % 2 else "b")
        await listener.open_review(found)
        listener.now = NOW + n
        listener.store.decide(found.id, Verdict(word="reject"), who="ben", door="cli")
    await listener.open_review(review(id="rv_pending"))
    ask = await signed_in(listener)

    async def ids(query: str) -> tuple[list[str], ParsedPage]:
        page = ParsedPage((await ask.get(f"/reviews/history{query}")).text)
        return [attrs["href"].rpartition("/")[2] for attrs in page.all("a") if "/rv_" in attrs["href"]], page

    first, page = await ids("")
    assert [f"rv_{n:03}" for n in range(59, 9, -1)] == first
    older = next(attrs["href"] for attrs in page.all("a") if "before=" in attrs["href"])
    assert [f"rv_{n:03}" for n in range(9, -1, -1)] == (await ids(older.partition("/history")[2]))[0]
    assert [f"rv_{n:03}" for n in range(59, -1, -2)] == (await ids("?server=a"))[0]
    assert [] == (await ids("?state=approved"))[0]
    assert [] == (await ids("?reviewer=legal"))[0]
    assert 50 == len((await ids("?kind=nonsense&state=%3Cscript%3E"))[0])
    assert [50, 50] == [len((await ids(f"?state={state}"))[0]) for state in ("rejected", "pending")]


async def test_the_history_tells_who_decided_what_and_what_became_of_it(listener: ReviewersListener) -> None:
    asked = await listener.open_review(waiter="w", held_until=NOW + 30)
    listener.store.decide(asked.id, Verdict(word="approve"), who="ben", door="cli")
    ann = await Visitor(listener.app()).sign_in(OPS)
    await ann.open("/reviews/history")
    assert "Approved by ben being used" in ann.page.one("li").text
    listener.now = NOW + 1
    assert listener.store.use([(asked.id, "w", "d1")])
    await ann.open("/reviews/history")
    assert "Approved by ben used" in ann.page.one("li").text
    await listener.open_review(shown.url())
    await ann.open(f"/reviews/{shown.url().id}")
    await ann.press("Decline")
    await ann.open("/reviews/history?kind=elicitation")
    assert "Answered by ann declined not used yet" in ann.page.one("li").text


async def test_after_a_decision_the_next_pending_review_is_one_link_away(listener: ReviewersListener) -> None:
    for n in range(4):
        reviewer = "legal" if n == 2 else "ops"
        await listener.open_review(review(id=f"rv_{n:03}", created=NOW + n, reviewer=reviewer))
    ann = await Visitor(listener.app()).sign_in(OPS)
    await ann.open("/reviews/rv_001")
    assert [] == ann.page.all("a", class_="button primary")
    await ann.press("Reject")
    assert ("Next review 2 pending") == ann.page.one(class_="onward").text
    await ann.follow("Next review")
    assert ann.url.endswith("/reviews/rv_003")  # not that of another reviewer, and not an earlier one
    await ann.press("Reject")
    await ann.follow("Next review")
    assert ann.url.endswith("/reviews/rv_000")
    await ann.press("Reject")
    assert "Back to queue No pending reviews left" == ann.page.one(class_="onward").text
    await ann.open("/reviews/next?after=rv_000")
    assert ann.url.endswith("/reviews")


async def test_the_next_of_ten_thousand_reviews_is_found_from_any_place(listener: ReviewersListener) -> None:
    asked = review(id="rv_00000")
    listener.store.reviews |= {f"rv_{n:05}": replace(asked, id=f"rv_{n:05}", created=NOW + n) for n in range(10_000)}
    ann = await Visitor(listener.app()).sign_in(OPS)
    await ann.open("/reviews/next?after=rv_09998")
    assert ann.url.endswith("/reviews/rv_09999")
    await ann.follow("Next review (9999 more)")
    assert ann.url.endswith("/reviews/rv_00000")
    for unknown in ("", "?after=rv_nothing", "?after=%00%27"):
        await ann.open(f"/reviews/next{unknown}")
        assert ann.url.endswith("/reviews/rv_00000")


async def test_an_expired_review_is_not_the_next_one(listener: ReviewersListener) -> None:
    await listener.open_review(review(id="rv_old", created=NOW - 10, expires=NOW - 1))
    await listener.open_review(review(id="rv_new", created=NOW))
    ann = await Visitor(listener.app()).sign_in(OPS)
    await ann.open("/reviews/next")
    assert ann.url.endswith("/reviews/rv_new")


async def test_a_form_without_mistakes_is_checked_with_a_word(listener: ReviewersListener) -> None:
    await listener.open_review(shown.form({"port": {"type": "integer"}}, ("port",), id=ID))
    ann = await Visitor(listener.app()).sign_in(OPS)
    await ann.open(f"/reviews/{ID}")
    await ann.fill("port", "x").press("Check")
    assert [] == ann.page.all(class_="fine")
    await ann.fill("port", "80").press("Check")
    assert "No problems found. Nothing was sent yet." == ann.page.one(class_="fine").text


async def test_a_decision_after_its_requests_end_is_told_as_too_late(listener: ReviewersListener) -> None:
    await listener.open_review(answers_until=NOW + 5)
    listener.now = NOW + 6
    ann = await Visitor(listener.app()).sign_in(OPS)
    await ann.open(f"/reviews/{ID}")
    await ann.press("Approve")
    assert "came too late for the request" in ann.standing


async def test_the_bar_of_narrow_screens_never_approves_what_is_not_shown_or_not_read(
    listener: ReviewersListener,
) -> None:
    async def bar(asked: Review) -> list[str]:
        await listener.open_review(asked)
        await ann.open(f"/reviews/{asked.id}")
        buttons = ann.page.one(class_="quick").all("button")
        return [button.text for button in buttons if "hidden" not in button.attrs]

    ann = await Visitor(listener.app()).sign_in(OPS)
    assert ["Approve", "Reject"] == await bar(shown.sampling())
    assert ["Release", "Reject"] == await bar(shown.answer())
    assert ["Accept and send", "Decline"] == await bar(shown.form())
    assert ["Decline"] == await bar(shown.url())
    long = {"messages": [{"role": "user", "content": shown.text("x" * 200_000)}], "maxTokens": 5}
    assert ["Reject"] == await bar(shown.sampling(id="rv_long", params=long))


async def test_a_picture_is_sent_in_a_sandbox_with_the_type_of_its_bytes(listener: ReviewersListener) -> None:
    await listener.open_review(shown.sampling(id=ID))
    ask = await signed_in(listener)
    found = await ask.get(f"/reviews/{ID}/content/0")
    assert (200, "image/png") == (found.status_code, found.headers["content-type"])
    assert "sandbox" in found.headers["content-security-policy"]
    assert "nosniff" == found.headers["x-content-type-options"]
    assert [404, 404] == [
        (await ask.get(f"/reviews/{ID}/content/{n}")).status_code for n in ("1", "999999999999999999")
    ]


async def test_what_only_says_that_it_is_a_picture_is_not_sent(listener: ReviewersListener) -> None:
    bad = {"type": "image", "data": "PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==", "mimeType": "image/png"}
    await listener.open_review(shown.sampling(id=ID, params={"messages": [{"role": "user", "content": bad}]}))
    ask = await signed_in(listener)
    assert 404 == (await ask.get(f"/reviews/{ID}/content/0")).status_code
    assert "it is not a PNG" in (await ask.get(f"/reviews/{ID}")).text


async def test_all_of_it_is_there_as_text(listener: ReviewersListener) -> None:
    await listener.open_review(shown.sampling(id=ID))
    found = await (await signed_in(listener)).get(f"/reviews/{ID}/raw")
    assert "text/plain; charset=utf-8" == found.headers["content-type"]
    assert "sandbox" in found.headers["content-security-policy"]
    assert shown.png() in found.text


async def test_a_store_that_cannot_be_reached_is_said_so(listener: ReviewersListener) -> None:
    await listener.open_review()
    app = listener.app()
    ask = client(app)
    await ask.post("/reviews/sign-in", data={"token": OPS}, headers={"origin": URL})

    def gone(id: str) -> Any:
        raise Unavailable("the disk is gone")

    listener.store.get = gone  # type: ignore[method-assign]
    found = await ask.get(f"/reviews/{ID}")
    assert 503 == found.status_code
    assert "Reviews are unavailable" in found.text
    assert "the disk" not in found.text


# --- hostile texts


@pytest.mark.parametrize("number", range(8))
async def test_no_text_of_a_peer_becomes_markup(number: int, listener: ReviewersListener) -> None:
    found = hostile()[number]
    await listener.open_review(replace(found, state="pending"))
    listener.store.reviews[ID] = found
    ask = await signed_in(listener)
    for path in (f"/reviews/{ID}", "/reviews", "/reviews/history"):
        answer = await ask.get(path)
        assert 200 == answer.status_code
        page = ParsedPage(answer.text)
        assert [] == page.all("svg")
        assert {"/reviews"} == {attrs["src"][:8] for tag, attrs in page.tags if "src" in attrs}
        assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
        assert "49" not in re.sub(r"\{\{7\*7\}\}", "", page.text).replace("08:00:49", "")
        assert "\u202e" not in re.sub(r"<textarea.*?</textarea>|<input[^>]*>", "", answer.text, flags=re.DOTALL)


@pytest.mark.parametrize("payload", [*TRIED, "\n\n".join(TRIED)])
async def test_no_payload_is_markup_on_a_page_of_any_kind_of_review(payload: str, listener: ReviewersListener) -> None:
    drawn = {shown.sampling().id: "textarea", shown.answer().id: "textarea", shown.form().id: "select"}
    reviews = everywhere(payload)
    for each in reviews:
        await listener.open_review(each)
    ask = await signed_in(listener)
    for path in ("/reviews", "/reviews/history", *(f"/reviews/{each.id}" for each in reviews)):
        page = ParsedPage((await ask.get(path)).text)
        assert [True] == [attrs["src"].startswith("/reviews/static/page.js") for attrs in page.all("script")]
        for tag in ("iframe", "base", "style", "svg", "object", "embed", "img"):
            assert [] == page.all(tag)
        assert [] == [attrs for attrs in page.all("meta") if "http-equiv" in attrs]
        assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
        assert {"/reviews"} == {attrs["action"][:8] for attrs in page.all("form")}
        assert not [attrs for _, attrs in page.tags if not re.match(r"/reviews|#|\Z", attrs.get("href", ""))]
        assert page.all(drawn.get(path.removeprefix("/reviews/"), "h1"))


async def test_an_address_to_open_is_never_a_link(listener: ReviewersListener) -> None:
    url = "https://login.xn--pypal-4ve.com/consent"
    assert read_host(url) is not None
    await listener.open_review(shown.url(url, id=ID))
    page = ParsedPage((await (await signed_in(listener)).get(f"/reviews/{ID}")).text)
    assert [] == [attrs for _, attrs in page.tags for value in attrs.values() if "pypal" in value]
    assert "https://login.xn--pypal-4ve.com/consent" in page.text
    assert "The server wants its own user to open this URL. You are not that user." in page.text


async def test_huge_texts_are_cut_and_it_is_said_at_the_decision(listener: ReviewersListener) -> None:
    messages = [{"role": "user", "content": text("word " * 60_000)} for _ in range(30)]
    await listener.open_review(shown.sampling(id=ID, params={"messages": messages, "maxTokens": 5}))
    found = await (await signed_in(listener)).get(f"/reviews/{ID}")
    assert len(found.content) < 4_000_000
    assert "Not shown on this page" in found.text


async def test_ten_thousand_messages_make_a_page(listener: ReviewersListener) -> None:
    messages = [{"role": "user", "content": text(f"message {n}")} for n in range(10_000)]
    await listener.open_review(shown.sampling(id=ID, params={"messages": messages, "maxTokens": 5}))
    found = await (await signed_in(listener)).get(f"/reviews/{ID}")
    assert "9,800 messages or parts. Check the raw JSON first." in ParsedPage(found.text).text


async def test_pictures_keep_their_numbers_where_messages_have_no_room(listener: ReviewersListener) -> None:
    picture = {"type": "image", "data": shown.png(), "mimeType": "image/png"}
    messages: list[Any] = [{"role": "user", "content": picture}] * 300
    answer = {"role": "assistant", "content": picture, "model": "m"}
    await listener.open_review(shown.answer(id=ID, params={"messages": messages}, answer=answer))
    ask = await signed_in(listener)
    numbers = [
        attrs["src"].rpartition("/")[2] for attrs in ParsedPage((await ask.get(f"/reviews/{ID}")).text).all("img")
    ]
    assert len(numbers) == len(set(numbers)) == 201
    assert {200} == {(await ask.get(f"/reviews/{ID}/content/{n}")).status_code for n in (numbers[0], numbers[-1])}
