"""A server's own UI beside a form under review: it is read while the review is open, a verdict is bound to what its
reviewer was shown, and a retry has to find the same bytes."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import anyio
import pytest
from msgspec.structs import replace

from samplegate.errors import Unavailable
from samplegate.gate import server_ui
from samplegate.gate.request import PendingRequest, ReadUi
from samplegate.policy.capabilities import SessionRules
from samplegate.policy.match import compile_policy
from samplegate.protocol.outcomes import Answered, Outcome, Reason, Unanswered
from samplegate.protocol.rounds import ForwardRound, Open, Release, Settled
from samplegate.protocol.ui_resources import UiResource
from samplegate.reviews import create
from samplegate.reviews.review import Conflict, Review, Verdict, VoteRefused, lookup_with_ui
from samplegate.reviews.service import LEASE
from samplegate.reviews.votes import version
from tests.fakes.dialogue import Dialogue, form, one, policy, request
from tests.fakes.gate_ports import pushed
from tests.fakes.reviewed_gate import ASK, POLICY, START, ReviewedGate, Reviewer
from tests.fakes.virtual_time import VIRTUAL
from tests.unit.gate.test_reviews_put_off import Call

pytestmark = pytest.mark.anyio
SHOW: Final[dict[str, Any]] = {**ASK, "ui": "show"}
URI: Final = "ui://deployer/picker"
CONTEXT: Final = {"theme": "light"}
NAMED: Final[dict[str, Any]] = form() | {"ui": {"uri": URI, "context": CONTEXT}}
HTML: Final = b"<!doctype html><title>a</title>"
OTHER: Final = b"<!doctype html><title>b</title>"
ACCEPT: Final[dict[str, Any]] = {"action": "accept", "content": {"confirm": True}}
OURS: Final = "o" * 56
QUICK: Final[dict[str, Any]] = {**POLICY, "client": {"peer_timeout": "20s"}}
"""Each try waits for 20 s. A late verdict counts."""


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


def sha(html: bytes) -> str:
    return hashlib.sha256(html).hexdigest()


class Ui:
    """A server's UI: what each read gives, and after how many seconds. The last one repeats."""

    def __init__(self, *gives: bytes | str | UiResource, after: float = 0.0) -> None:
        self.gives = list(gives or [HTML])
        self.after = after
        self.reads: list[tuple[str, str]] = []
        self.cancelled = 0
        self.origins: tuple[str, ...] = ()

    async def __call__(self, round: str, uri: str, origins: tuple[str, ...]) -> UiResource:
        self.reads.append((round, uri))
        self.origins = origins
        given = self.gives.pop(0) if len(self.gives) > 1 else self.gives[0]
        try:
            await anyio.sleep(self.after)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        if isinstance(given, str):
            raise Unavailable(given)
        return given if isinstance(given, UiResource) else UiResource(given)


async def until(gate: ReviewedGate, holds: Callable[[Review], bool]) -> Review:
    """Wait for a review of which this holds."""
    changed = anyio.Event()
    end = gate.store.watch(lambda: changed.set())
    try:
        while not (found := [review for review in gate.store.reviews.values() if holds(review)]):
            await changed.wait()
            changed = anyio.Event()
    finally:
        end()
    return found[0]


def is_ready(review: Review) -> bool:
    return review.state == "pending" and review.ui is not None and review.ui.state == "ready"


def decides(gate: ReviewedGate, holds: Callable[[Review], bool] = is_ready, ui: str | None = "") -> Reviewer:
    """A reviewer who answers the form. ``ui``: the hash that they were shown; "" for that of the review."""

    async def decide() -> None:
        review = await until(gate, holds)
        shown = create.shown(review) if ui == "" else ui or ""
        said = gate.store.decide(
            review.id, Verdict(word="answer", result=ACCEPT, ui=shown), who="ana", door="page", seen=review.digest
        )
        assert isinstance(said, Review), said

    return decide


def fresh(rule: Mapping[str, Any] = SHOW, params: Any = NAMED, **more: Any) -> Any:
    return pushed(rule, method="elicitation/create", params=params, policy=more.pop("policy", POLICY), **more)


def in_sep_3118(rule: Mapping[str, Any]) -> Any:
    """As ``fresh``, but the form names its UI in the other dialect."""
    d = Dialogue(rule, **POLICY)
    d.session.state.policy = SessionRules(d.compiled, page=True)
    d.open_legacy()
    named = form() | {"_meta": {"ui": {"resourceUri": URI}}}
    return d, one(d.server(request(7, "elicitation/create", **named)), Open).round


def reviews(gate: ReviewedGate) -> list[Review]:
    return sorted(gate.store.reviews.values(), key=lambda review: review.id)


def told(gate: ReviewedGate, review: Review) -> list[tuple[str, str]]:
    return [(event.what, event.detail) for event in gate.store.history(review.id)]


async def run(gate: ReviewedGate, asked: Any, *people: Reviewer, seconds: float = 2000) -> Outcome:
    conclusion = await gate.run(*asked, *people, seconds=seconds)
    assert isinstance(conclusion, Settled), conclusion
    (release,) = conclusion.releases.values()
    return release.outcome


class TestShown:
    async def test_the_review_is_open_at_once_and_the_ui_is_added_when_it_arrives(self) -> None:
        ui = Ui(after=5.0)
        gate = ReviewedGate(read_ui=ui)
        seen: list[Any] = []

        async def looks() -> None:
            first = await gate.pending()
            seen.append((first.ui, first.created - START, first.lookup == first.digest))
            second = await until(gate, is_ready)
            by_ui = second.ui is not None and second.lookup == lookup_with_ui(first.digest, second.ui)
            seen.append((second.ui, gate.store.wall() - START, by_ui))
            await decides(gate)()

        d, round = fresh()
        assert isinstance(await run(gate, (d, round), looks), Answered)
        (loading, at, by_digest), (ready, later, by_ui) = seen
        assert ("loading", URI, "rich", CONTEXT, 0.0, True) == (
            loading.state, loading.uri, loading.dialect, loading.context, at, by_digest,
        )  # fmt: skip
        assert ("ready", sha(HTML), len(HTML), CONTEXT, 5.0, True) == (
            ready.state, ready.sha256, ready.size, ready.context, later, by_ui,
        )  # fmt: skip
        assert [(round.id, URI)] == ui.reads
        (review,) = reviews(gate)
        assert HTML == gate.store.uis[review.id]
        assert ["opened", "ui ready", "answered", "used"] == [what for what, _ in told(gate, review)]
        (record,) = gate.ports.records
        assert (sha(HTML), "ana") == (record.review_ui, record.reviewed_by)

    async def test_a_server_to_which_it_was_declared_may_use_sep_3118(self) -> None:
        ui = Ui()
        gate = ReviewedGate(read_ui=ui)
        d, round = in_sep_3118(SHOW)
        assert isinstance(await run(gate, (d, round), decides(gate)), Answered)
        (review,) = reviews(gate)
        assert review.ui is not None
        assert ("sep-3118", None) == (review.ui.dialect, review.ui.context)

    async def test_a_ui_that_cannot_be_read_leaves_the_form(self) -> None:
        gate = ReviewedGate(read_ui=Ui("the server answered with error -32002", after=1.0))
        failed = lambda review: review.ui.state == "failed"  # noqa: E731
        assert isinstance(await run(gate, fresh(), decides(gate, failed)), Answered)
        (review,) = reviews(gate)
        assert review.lookup == review.digest
        assert ("ui failed", "the server answered with error -32002") in told(gate, review)
        assert {} == gate.store.uis
        assert [None] == [record.review_ui for record in gate.ports.records]

    @pytest.mark.parametrize("gives", [HTML, "no"])
    async def test_a_verdict_before_it_arrives_is_bound_to_none_and_none_is_added(self, gives: bytes | str) -> None:
        ui = Ui(gives, after=5.0)
        gate = ReviewedGate(read_ui=ui)
        assert isinstance(await run(gate, fresh(), decides(gate, lambda review: True)), Answered)
        (review,) = reviews(gate)
        assert review.ui is not None
        assert ("loading", "", True, 1) == (
            review.ui.state,
            review.ui.sha256,
            review.lookup == review.digest,
            ui.cancelled,
        )
        assert ["opened", "answered", "used"] == [what for what, _ in told(gate, review)]
        assert [None] == [record.review_ui for record in gate.ports.records]
        assert {} == gate.store.uis

    async def test_a_verdict_on_the_form_alone_has_no_ui_though_one_was_there(self) -> None:
        gate = ReviewedGate(read_ui=Ui())
        assert isinstance(await run(gate, fresh(), decides(gate, ui=None)), Answered)
        (review,) = reviews(gate)
        assert review.lookup == review.digest
        assert [None] == [record.review_ui for record in gate.ports.records]

    @pytest.mark.parametrize("ui", [sha(OTHER), "x"])
    async def test_a_verdict_that_names_another_ui_is_refused(self, ui: str) -> None:
        gate = ReviewedGate(read_ui=Ui(after=3.0))
        refused: list[Any] = []

        async def tries() -> None:
            for review in (await gate.pending(), await until(gate, is_ready)):
                verdict = Verdict(word="answer", result=ACCEPT, ui=ui)
                refused.append(gate.store.decide(review.id, verdict, who="ana", door="page"))
            await decides(gate)()

        await run(gate, fresh(), tries)
        assert ["stale", "stale"] == [said.reason for said in refused if isinstance(said, VoteRefused)]

    async def test_a_read_that_takes_longer_than_the_review_ends_with_it(self) -> None:
        ui = Ui(after=60.0)
        gate = ReviewedGate(read_ui=ui)
        outcome = await run(gate, fresh(policy={**POLICY, "reviewers": {"ops": {"timeout": "5s"}}}))
        assert isinstance(outcome, Unanswered)
        assert (Reason.TIMEOUT, 1) == (outcome.reason, ui.cancelled)
        (review,) = reviews(gate)
        assert review.ui is not None
        assert ("expired", "loading") == (review.state, review.ui.state)

    async def test_a_round_that_is_withdrawn_meanwhile_ends_the_read(self) -> None:
        ui = Ui(after=60.0)
        gate = ReviewedGate(read_ui=ui)
        with anyio.CancelScope() as scope:

            async def withdraw() -> None:
                await gate.pending()
                await anyio.sleep(1)
                scope.cancel()

            await gate.run(*fresh(), withdraw)
        (review,) = reviews(gate)
        assert ("withdrawn", 1) == (review.state, ui.cancelled)

    async def test_a_store_that_cannot_take_it_leaves_the_form(self) -> None:
        gate = ReviewedGate(read_ui=Ui(after=1.0))

        async def breaks() -> None:
            await gate.pending()
            gate.store.fault = "disk full"
            await anyio.sleep(2.0)
            gate.store.fault = None

        assert isinstance(await run(gate, fresh(), breaks, _later(gate, 5.0)), Answered)
        assert ["review.ui_failed"] == [event for event, _ in gate.ports.log.events if event == "review.ui_failed"]

    @pytest.mark.parametrize("shadow", [False, True])
    async def test_nothing_is_read_if_the_rule_hides_it_or_there_is_no_page(self, shadow: bool) -> None:
        ui = Ui()
        gate = ReviewedGate(read_ui=None if shadow else ui)
        rule = SHOW if shadow else {**ASK, "ui": "hide"}
        assert isinstance(await run(gate, fresh(rule), decides(gate, lambda review: True)), Answered)
        (review,) = reviews(gate)
        assert (None, [], True) == (review.ui, ui.reads, review.digest == review.lookup)

    @pytest.mark.parametrize("params", [form(), form() | {"ui": {"uri": "https://a.example"}}])
    async def test_a_form_that_names_none_has_none(self, params: Any) -> None:
        ui = Ui()
        gate = ReviewedGate(read_ui=ui)
        assert isinstance(await run(gate, fresh(params=params), decides(gate, lambda review: True)), Answered)
        assert ([], None) == (ui.reads, reviews(gate)[0].ui)

    async def test_its_bytes_are_not_kept_while_the_request_waits(self) -> None:
        """A review may be pending for days, and the store has the bytes."""
        gate = ReviewedGate(read_ui=Ui())
        d, round = fresh()
        held: list[bytes] = []

        async def looks() -> None:
            await until(gate, is_ready)
            await anyio.sleep(1)
            (requests,) = [one for one in gc.get_objects() if isinstance(one, PendingRequest) and one.round is round]
            held.append(b"" if requests.ui is None else requests.ui.body)
            await decides(gate)()

        assert isinstance(await run(gate, (d, round), looks), Answered)
        assert [b""] == held

    @pytest.mark.parametrize(("gives", "state"), [(HTML, "ready"), ("no", "failed")])
    async def test_a_second_rule_of_a_try_shows_what_was_read(self, gives: bytes | str, state: str) -> None:
        ui = Ui(gives, OTHER)
        gate = ReviewedGate(read_ui=ui)
        rules = [{**SHOW, "timeout": "5s", "on_timeout": "next"}, {**SHOW, "name": "second", "reviewer": "lead"}]
        asked = pushed(
            *rules,
            method="elicitation/create",
            params=NAMED,
            policy={**POLICY, "reviewers": {"ops": {"timeout": "15m"}, "lead": {"timeout": "15m"}}},
        )
        leads = lambda review: review.ui.state == state and review.reviewer == "lead"  # noqa: E731
        assert isinstance(await run(gate, asked, decides(gate, leads)), Answered)
        assert 1 == len(ui.reads)
        first, second = reviews(gate)
        assert gate.store.ui_body(first.id) == gate.store.ui_body(second.id) == (HTML if gives == HTML else None)

    async def test_a_second_rule_with_other_origins_reads_it_again(self) -> None:
        ui = Ui("the rule names no ui_origins", at(f"{PLACE}/a"))
        gate = ReviewedGate(read_ui=ui)
        rules = [{**SHOW, "timeout": "5s", "on_timeout": "next"}, {**BY_URL, "name": "second", "reviewer": "lead"}]
        asked = pushed(
            *rules,
            method="elicitation/create",
            params=NAMED,
            policy={**POLICY, "reviewers": {"ops": {"timeout": "15m"}, "lead": {"timeout": "15m"}}},
        )
        assert isinstance(await run(gate, asked, decides(gate)), Answered)
        assert 2 == len(ui.reads)


PLACE: Final = "https://ui.example.com"
BY_URL: Final[dict[str, Any]] = {**SHOW, "ui_origins": [PLACE, "https://other.example"]}


def at(url: str) -> UiResource:
    return UiResource(url.encode(), is_url=True)


class TestUrl:
    """A UI from a URL: the URL is bound in place of the bytes."""

    async def test_the_rule_names_its_origins_and_the_verdict_its_url(self) -> None:
        ui = Ui(at(f"{PLACE}/app?a"))
        gate = ReviewedGate(read_ui=ui)
        assert isinstance(await run(gate, fresh(BY_URL), decides(gate)), Answered)
        (review,) = reviews(gate)
        assert review.ui is not None
        assert ((PLACE, "https://other.example"), f"{PLACE}/app?a", PLACE) == (
            ui.origins, review.ui.url, review.ui.origin,
        )  # fmt: skip
        assert (
            review.lookup
            == lookup_with_ui(review.digest, review.ui)
            != (lookup_with_ui(review.digest, replace(review.ui, url="")))
        )
        assert [sha(f"{PLACE}/app?a".encode())] == [record.review_ui for record in gate.ports.records]

    async def test_a_ui_of_sep_3118_is_no_url_because_its_mime_type_is_negotiated(self) -> None:
        ui = Ui()
        gate = ReviewedGate(read_ui=ui)
        d, round = in_sep_3118(BY_URL)
        assert isinstance(await run(gate, (d, round), decides(gate)), Answered)
        assert ((), 1) == (ui.origins, len(ui.reads))

    @pytest.mark.parametrize("again", [at(f"{PLACE}/b"), UiResource(f"{PLACE}/a".encode()), HTML])
    async def test_another_url_and_html_of_the_same_bytes_open_another_review(self, again: UiResource | bytes) -> None:
        gate = ReviewedGate(read_ui=Ui(at(f"{PLACE}/a"), again))
        call = Call(gate, BY_URL, policy=QUICK, k=NAMED)
        await TestPutOff().defer(call)
        await decides(gate)()
        await TestPutOff().defer(call)
        first, second = reviews(gate)
        assert ("answered", None, "pending") == (first.state, first.used_by, second.state)

    async def test_with_the_same_url_a_verdict_between_two_tries_counts(self) -> None:
        gate = ReviewedGate(read_ui=Ui(at(f"{PLACE}/a")))
        call = Call(gate, BY_URL, policy=QUICK, k=NAMED)
        await TestPutOff().defer(call)
        await decides(gate)()
        assert isinstance((await TestPutOff().end(call)).outcome, Answered)

    @pytest.mark.parametrize("origins", [["https://other.example"], []])
    @pytest.mark.parametrize("gives", [at(f"{PLACE}/a"), HTML])
    async def test_a_rule_that_now_names_other_origins_withdraws_the_review(
        self, origins: list[str], gives: UiResource | bytes
    ) -> None:
        gate = ReviewedGate(read_ui=Ui(gives))
        d, round = fresh(BY_URL)
        policies = [d.compiled]
        gate.ports.in_force = lambda: policies[-1]

        async def reload() -> None:
            review = await until(gate, is_ready)
            policies.append(compile_policy(policy({**BY_URL, "ui_origins": origins}, **POLICY), {}))
            assert "now has other ui_origins" in (create.gone(policies[-1].policy, review) or "")
            await gate.service.reloaded(lambda review: create.gone(policies[-1].policy, review))

        outcome = await run(gate, (d, round), reload)
        assert isinstance(outcome, Unanswered)
        assert "the policy has changed" in outcome.detail
        assert "withdrawn" == reviews(gate)[0].state


def _later(gate: ReviewedGate, seconds: float) -> Reviewer:
    async def decide() -> None:
        await anyio.sleep(seconds)
        await decides(gate, lambda review: review.state == "pending", ui=None)()

    return decide


class TestPutOff:
    """The call is put off while the review is pending, and each retry reads the UI again."""

    def call(self, gate: ReviewedGate, **keys: Any) -> Call:
        return Call(gate, SHOW, policy=QUICK, **(keys or {"k": NAMED}))

    async def defer(self, call: Call, *people: Reviewer) -> None:
        conclusion = await call.gate.run(call.d, call.round, *people, seconds=100)
        assert isinstance(conclusion, ForwardRound), conclusion
        (shown,) = call.d.take(call.d.session.round_done(call.round.id, conclusion, call.d.now))
        call.state = json.loads(shown.line)["result"]["requestState"]
        call.retry()

    async def end(self, call: Call, *people: Reviewer) -> Release:
        conclusion = await call.gate.run(call.d, call.round, *people, seconds=100)
        assert isinstance(conclusion, Settled), conclusion
        (release,) = conclusion.releases.values()
        return release

    async def test_with_the_same_bytes_the_review_goes_on(self) -> None:
        ui = Ui()
        gate = ReviewedGate(read_ui=ui)
        call = self.call(gate)
        await self.defer(call)
        await self.defer(call)
        release = await self.end(call, decides(gate))
        assert isinstance(release.outcome, Answered)
        (review,) = reviews(gate)
        assert (3, sha(HTML)) == (len(ui.reads), gate.ports.records[-1].review_ui)
        assert release.decision_id == review.used_by
        assert 1 == [what for what, _ in told(gate, review)].count("ui ready")

    async def test_with_other_bytes_another_review_opens_each_time(self) -> None:
        """So ``one request is not reviewed twice`` does not hold for them."""
        third = b"<!doctype html>c"
        gate = ReviewedGate(read_ui=Ui(HTML, OTHER, third))
        call = self.call(gate)
        await self.defer(call)
        await self.defer(call)
        release = await self.end(call, decides(gate, lambda one: is_ready(one) and create.shown(one) == sha(third)))
        assert isinstance(release.outcome, Answered)
        first, second, last = reviews(gate)
        assert ["withdrawn", "withdrawn", "answered"] == [one.state for one in (first, second, last)]
        for one_ in (first, second):
            assert ("withdrawn", "the server's UI has changed") == told(gate, one_)[-1]
        assert sha(third) == gate.ports.records[-1].review_ui

    async def test_a_ui_that_can_no_longer_be_read_ends_its_review_with_that_reason(self) -> None:
        gate = ReviewedGate(read_ui=Ui(HTML, "the server answered with error -1", "no"))
        call = self.call(gate)
        await self.defer(call)
        await self.defer(call)
        first, second = reviews(gate)
        assert ("withdrawn", "the server's UI can no longer be read: the server answered with error -1") == (
            told(gate, first)[-1]
        )
        assert second.ui is not None
        assert ("pending", "failed") == (second.state, second.ui.state)
        release = await self.end(call, decides(gate, lambda one: one.state == "pending", ui=None))
        assert isinstance(release.outcome, Answered)
        assert 2 == len(reviews(gate))

    @pytest.mark.parametrize("again", [HTML, OTHER, "gone"])
    async def test_a_verdict_between_two_tries_counts_for_its_bytes(self, again: bytes | str) -> None:
        gate = ReviewedGate(read_ui=Ui(HTML, again))
        call = self.call(gate)
        await self.defer(call)
        await decides(gate)()
        if again == HTML:
            release = await self.end(call)
            assert isinstance(release.outcome, Answered)
            assert sha(HTML) == gate.ports.records[-1].review_ui
            assert 1 == len(reviews(gate))
        else:
            await self.defer(call)
            first, second = reviews(gate)
            assert ("answered", None, "pending") == (first.state, first.used_by, second.state)

    @pytest.mark.parametrize("again", [HTML, OTHER, "gone"])
    async def test_a_verdict_on_the_form_alone_counts_whatever_the_ui(self, again: bytes | str) -> None:
        ui = Ui(HTML, again)
        gate = ReviewedGate(read_ui=ui)
        call = self.call(gate)
        await self.defer(call)
        await decides(gate, ui=None)()
        assert isinstance((await self.end(call)).outcome, Answered)
        assert (1, 1) == (len(ui.reads), len(reviews(gate)))

    @pytest.mark.parametrize("again", [HTML, OTHER, "gone"])
    async def test_a_review_that_never_had_its_ui_is_joined(self, again: bytes | str) -> None:
        ui = Ui(again, after=30.0)
        gate = ReviewedGate(read_ui=ui)
        call = self.call(gate)
        await self.defer(call)
        ui.after = 1.0
        await self.defer(call)
        (review,) = reviews(gate)
        assert review.ui is not None
        assert (2, "failed" if again == "gone" else "ready") == (len(ui.reads), review.ui.state)

    @pytest.mark.parametrize("again", [HTML, OTHER, "gone"])
    async def test_a_slow_read_does_not_make_the_client_wait_longer(self, again: bytes | str) -> None:
        ui = Ui(HTML, again)
        gate = ReviewedGate(read_ui=ui)
        call = self.call(gate)
        began = anyio.current_time()
        await self.defer(call)
        usual, ui.after = anyio.current_time() - began, 9.0
        began = anyio.current_time()
        await self.defer(call)
        assert usual == pytest.approx(anyio.current_time() - began, abs=0.2)

    @pytest.mark.parametrize("again", [HTML, OTHER, "gone"])
    async def test_another_request_that_has_joined_the_review_keeps_it(self, again: bytes | str) -> None:
        """Two identical calls: the second joins the review of the first, which comes back meanwhile. With other bytes,
        another review opens for the first."""
        ui = Ui(HTML)
        gate = ReviewedGate(read_ui=ui)
        first, second = self.call(gate), self.call(gate)
        await self.defer(first)
        outcomes: list[Any] = []

        async def comes_back() -> None:
            await until(gate, lambda one: one.state == "withdrawn")  # that of the second, which joins the other
            ui.gives = [again]
            async with anyio.create_task_group() as group:
                group.start_soon(retries)
                if again != HTML:
                    await decides(
                        gate, lambda one: getattr(one.ui, "state", "") != "loading" and create.shown(one) != sha(HTML)
                    )()
            await decides(gate, lambda one: one.state == "pending" and create.shown(one) == sha(HTML))()

        async def retries() -> None:
            outcomes.append(await gate.ports.gate(first.d).run(first.round))

        release = await self.end(second, comes_back)
        assert isinstance(release.outcome, Answered), told(gate, reviews(gate)[0])
        assert "answered" == reviews(gate)[0].state
        (retried,) = outcomes[0].releases.values()
        assert (Unanswered if again == HTML else Answered) is type(retried.outcome)

    @pytest.mark.parametrize("again", [HTML, OTHER, "gone"])
    async def test_a_verdict_on_the_form_alone_counts_while_the_retry_reads(self, again: bytes | str) -> None:
        ui = Ui(HTML, again)
        gate = ReviewedGate(read_ui=ui)
        call = self.call(gate)
        await self.defer(call)
        ui.after = 5.0

        async def decide() -> None:
            await anyio.sleep(2)
            await decides(gate, ui=None)()

        assert isinstance((await self.end(call, decide)).outcome, Answered)
        assert ["answered"] == [one.state for one in reviews(gate)]

    async def test_a_process_that_takes_over_reads_it_too(self) -> None:
        ui = Ui()
        gate = ReviewedGate(read_ui=ui)
        call = self.call(gate)

        async def ends() -> None:
            await until(gate, is_ready)
            gate.service.end()

        await self.defer(call, ends)
        gate.service = gate.new_service()
        release = await self.end(call, decides(gate))
        assert isinstance(release.outcome, Answered)
        assert (2, 1, sha(HTML)) == (len(ui.reads), len(reviews(gate)), gate.ports.records[-1].review_ui)

    async def test_two_forms_of_a_round_have_a_review_each(self) -> None:
        ui = Ui()
        gate = ReviewedGate(read_ui=ui)
        call = self.call(gate, a=NAMED, b=NAMED)
        await self.defer(call)
        await decides(gate)()
        await self.defer(call)
        await decides(gate)()
        conclusion = await gate.run(call.d, call.round, seconds=100)
        assert isinstance(conclusion, Settled)
        assert [Answered, Answered] == [type(release.outcome) for release in conclusion.releases.values()]
        assert ["answered", "answered"] == [one.state for one in reviews(gate)]
        assert None not in {one.used_by for one in reviews(gate)}
        assert {one.id for one in reviews(gate)} == {record.review for record in gate.ports.records}

    async def test_a_used_verdict_opens_no_other_review(self) -> None:
        gate = ReviewedGate(read_ui=Ui(HTML, HTML, OTHER))
        call = self.call(gate)
        await self.defer(call)
        state = call.state
        await decides(gate)()
        assert isinstance((await self.end(call)).outcome, Answered)
        call.state = state
        call.retry()
        outcome = (await self.end(call)).outcome
        assert isinstance(outcome, Unanswered)
        assert 1 == len(reviews(gate))

    @pytest.mark.parametrize("over", ["expired", "withdrawn"])
    async def test_a_review_that_has_ended_is_not_opened_again(self, over: str) -> None:
        gate = ReviewedGate(read_ui=Ui(HTML, OTHER))
        call = self.call(gate)
        await self.defer(call)
        if over == "expired":
            (review,) = reviews(gate)
            gate.store.reviews[review.id] = _expires(review, gate.store.wall() - 1)
            gate.store.expire()
        else:
            gate.store.withdraw(reviews(gate)[0].id, waiter="", why="the policy was reloaded")
        outcome = (await self.end(call)).outcome
        assert isinstance(outcome, Unanswered)
        assert (Reason.TIMEOUT, 1) == (outcome.reason, len(reviews(gate)))


def _expires(review: Review, at: float) -> Review:
    return replace(review, expires=at)


class TestLate:
    """A verdict that arrives after its request has ended."""

    async def ended(self, gate: ReviewedGate, *people: Reviewer) -> Review:
        """The first request ends before its verdict."""
        outcome = await run(gate, fresh(policy={**POLICY, "servers": {"default": {"peer_timeout": "5s"}}}), *people)
        assert isinstance(outcome, Unanswered)
        (review,) = reviews(gate)
        return review

    async def test_it_answers_the_next_same_request_with_the_same_ui(self) -> None:
        ui = Ui(HTML, HTML)
        gate = ReviewedGate(read_ui=ui)
        first = await self.ended(gate)
        await decides(gate)()
        assert isinstance(await run(gate, fresh()), Answered)
        assert [("answered", True), ("withdrawn", False)] == [
            (one.state, one.used_by is not None) for one in reviews(gate)
        ]
        why = f"replaced by review {first.id}, which shows the same UI"
        assert ("withdrawn", why) == told(gate, reviews(gate)[1])[-1]
        assert (2, first.id, sha(HTML)) == (
            len(ui.reads),
            gate.ports.records[-1].review,
            gate.ports.records[-1].review_ui,
        )

    @pytest.mark.parametrize("again", [OTHER, "no"])
    async def test_it_answers_no_request_with_another_ui(self, again: bytes | str) -> None:
        gate = ReviewedGate(read_ui=Ui(HTML, again))
        first = await self.ended(gate)
        await decides(gate)()
        outcome = await run(gate, fresh(policy={**POLICY, "servers": {"default": {"peer_timeout": "5s"}}}))
        assert isinstance(outcome, Unanswered)
        assert [("answered", None), ("pending", None)] == [(one.state, one.used_by) for one in reviews(gate)]
        assert first.id == reviews(gate)[0].id

    @pytest.mark.parametrize("again", [HTML, OTHER, "no"])
    async def test_on_the_form_alone_it_answers_whatever_the_ui(self, again: bytes | str) -> None:
        ui = Ui(HTML, again)
        gate = ReviewedGate(read_ui=ui)
        await self.ended(gate)
        await decides(gate, ui=None)()
        assert isinstance(await run(gate, fresh()), Answered)
        assert (1, 1) == (len(ui.reads), len(reviews(gate)))

    async def test_a_pending_review_with_the_same_ui_is_joined(self) -> None:
        gate = ReviewedGate(read_ui=Ui(HTML, HTML))
        first = await self.ended(gate)
        assert isinstance(await run(gate, fresh(), _joined(gate, first)), Answered)
        assert ["answered", "withdrawn"] == [one.state for one in reviews(gate)]
        assert first.id == gate.ports.records[-1].review
        assert f"replaced by review {first.id}, which shows the same UI" == told(gate, reviews(gate)[1])[-1][1]

    async def test_another_ui_of_the_same_form_is_another_request(self) -> None:
        gate = ReviewedGate(read_ui=Ui())
        await self.ended(gate)
        await decides(gate, ui=None)()
        params = form() | {"ui": {"uri": "ui://deployer/other", "context": CONTEXT}}
        soon = {**POLICY, "servers": {"default": {"peer_timeout": "5s"}}}
        assert isinstance(await run(gate, fresh(params=params, policy=soon)), Unanswered)
        assert 2 == len({one.digest for one in reviews(gate)})

    async def test_without_a_page_it_is_another_request(self) -> None:
        """Nobody was shown a form that says it has a UI."""
        gate = ReviewedGate(read_ui=Ui())
        await self.ended(gate)
        gate.ports.read_ui = None
        soon = {**POLICY, "servers": {"default": {"peer_timeout": "5s"}}}
        assert isinstance(await run(gate, fresh(policy=soon)), Unanswered)
        assert 2 == len({one.digest for one in reviews(gate)})

    async def test_two_verdicts_in_one_turn_of_the_loop_leave_one_to_the_next_request(self) -> None:
        """The earlier review is found just when the new one is decided."""
        gate = ReviewedGate(read_ui=Ui())
        await self.ended(gate)
        await decides(gate)()
        (earlier,) = reviews(gate)
        assert earlier.ui is not None
        own = replace(earlier, id="rv_own", ui=replace(earlier.ui, state="loading", sha256=""))
        held = replace(earlier, waiter="w")
        gate.store.reviews[held.id] = held
        pending: Any = SimpleNamespace(ui=ReadUi(earlier.ui, HTML), ports=gate.ports, held=[own, held])
        came = anyio.Event()

        async def find(lookup: str) -> Review | None:
            await anyio.sleep(1)
            came.set()
            return held

        async def wait() -> Review:
            await came.wait()
            return own

        assert (own, False) == await server_ui.wait_showing(pending, gate.service, own, wait, find)
        assert ([own], None) == (pending.held, gate.store.reviews[held.id].waiter)

    async def test_a_wait_that_ends_as_the_earlier_verdict_is_found_leaves_its_review(self) -> None:
        gate = ReviewedGate(read_ui=Ui())
        await self.ended(gate)
        (pending_one,) = reviews(gate)
        assert pending_one.ui is not None
        earlier = replace(pending_one, id="rv_earlier", state="answered")
        own = replace(pending_one, waiter="w", ui=replace(pending_one.ui, state="loading", sha256=""))
        gate.store.reviews[own.id] = own
        pending: Any = SimpleNamespace(ui=ReadUi(pending_one.ui, HTML), ports=gate.ports, held=[own, earlier])
        came = anyio.Event()

        async def find(lookup: str) -> Review | None:
            await anyio.sleep(1)
            came.set()
            return earlier

        async def wait() -> Review:
            await came.wait()
            return own

        async def supersede(id: str, why: str, *, waiter: str | None) -> bool:
            await anyio.sleep_forever()
            raise AssertionError

        port: Any = SimpleNamespace(supersede=supersede, give_back=gate.service.give_back)
        assert (earlier, True) == await server_ui.wait_showing(pending, port, own, wait, find)
        assert ("pending", None) == (gate.store.reviews[own.id].state, gate.store.reviews[own.id].waiter)

    async def test_a_store_that_fails_when_the_earlier_verdict_is_found_does_not_lose_it(self) -> None:
        gate = ReviewedGate(read_ui=Ui(HTML, HTML))
        first = await self.ended(gate)
        await decides(gate)()

        async def fails(id: str, why: str, *, waiter: str | None = None, now: str = "") -> bool:
            raise Unavailable("disk full")

        gate.service.supersede = fails  # type: ignore[method-assign]
        assert isinstance(await run(gate, fresh()), Answered)
        assert first.id == gate.ports.records[-1].review


def _joined(gate: ReviewedGate, first: Review) -> Reviewer:
    async def decide() -> None:
        await until(gate, lambda one: one.state == "withdrawn")
        await decides(gate, lambda one: one.id == first.id)()

    return decide


class TestReloaded:
    @pytest.mark.parametrize("ready", [True, False])
    async def test_a_rule_that_now_hides_the_ui_withdraws_the_review(self, ready: bool) -> None:
        gate = ReviewedGate(read_ui=Ui(after=0.0 if ready else 60.0))
        d, round = fresh()
        policies = [d.compiled]
        gate.ports.in_force = lambda: policies[-1]

        async def reload() -> None:
            await (until(gate, is_ready) if ready else gate.pending())
            await anyio.sleep(1)
            policies.append(compile_policy(policy({**SHOW, "ui": "hide"}, **POLICY), {}))
            await gate.service.reloaded(lambda review: create.gone(policies[-1].policy, review))

        outcome = await run(gate, (d, round), reload)
        assert isinstance(outcome, Unanswered)
        (review,) = reviews(gate)
        assert ("withdrawn", Reason.REVIEW) == (review.state, outcome.reason)
        assert "the policy has changed" in outcome.detail
        said = gate.store.decide(review.id, Verdict(word="answer", result=ACCEPT), who="ana", door="page")
        assert isinstance(said, Conflict)

    async def test_a_review_that_shows_it_outlives_a_reload_to_the_same_rule(self) -> None:
        gate = ReviewedGate(read_ui=Ui())
        d, round = fresh()
        policies = [d.compiled]
        gate.ports.in_force = lambda: policies[-1]

        async def reload() -> None:
            await until(gate, is_ready)
            policies.append(compile_policy(policy(SHOW, {"name": "new", "effect": "deny"}, **POLICY), {}))
            await gate.service.reloaded(lambda review: create.gone(policies[-1].policy, review))
            await decides(gate)()

        assert isinstance(await run(gate, (d, round), reload), Answered)

    async def test_a_verdict_is_not_used_after_the_rule_hides_the_ui(self) -> None:
        gate = ReviewedGate(read_ui=Ui())
        d, round = fresh()
        hidden = compile_policy(policy({**SHOW, "ui": "hide"}, **POLICY), {})
        policies = [d.compiled]
        gate.ports.in_force = lambda: policies[-1]

        async def decide() -> None:
            await decides(gate)()
            policies.append(hidden)

        outcome = await run(gate, (d, round), decide)
        assert isinstance(outcome, Unanswered)
        assert Reason.REVIEW is outcome.reason
        assert reviews(gate)[0].used_by is None

    @pytest.mark.parametrize(
        ("rule", "why"),
        [
            (SHOW, None),
            ({**SHOW, "ui": "hide"}, "the policy was reloaded, and rule 'people' no longer shows the server's own UI"),
        ],
    )
    async def test_a_review_that_no_request_waits_for(self, rule: Mapping[str, Any], why: str | None) -> None:
        gate = ReviewedGate(read_ui=Ui())
        await run(gate, fresh(policy={**POLICY, "servers": {"default": {"peer_timeout": "5s"}}}))
        (review,) = reviews(gate)
        assert why == create.gone(policy(rule, **POLICY), review)


class TestSuperseded:
    @pytest.mark.parametrize(
        ("case", "wanted"),
        [
            ("pending", True),
            ("pending, lease over", True),
            ("pending, of another", True),
            ("pending, of another with the same UI", False),
            ("decided", True),
            ("decided, of another", True),
            ("decided, of another with the same UI", False),
            ("pending, of this one", True),
            ("used", False),
            ("expired", False),
            ("withdrawn", False),
            ("unknown", False),
        ],
    )
    async def test_only_a_free_review_without_an_end_gives_way(self, case: str, wanted: bool) -> None:
        gate = ReviewedGate(read_ui=Ui())
        await run(gate, fresh(policy={**POLICY, "servers": {"default": {"peer_timeout": "5s"}}}))
        (review,) = reviews(gate)
        _put(gate, review, case)
        before = gate.store.reviews[review.id]
        id = "rv_none" if case == "unknown" else review.id
        waiter = OURS if case.endswith("of this one") else None
        now = before.lookup if case.endswith("same UI") else "sha256:other"
        assert wanted is await gate.service.supersede(id, "why", waiter=waiter, now=now)
        after = gate.store.reviews[review.id]
        if wanted and case.startswith("pending") and "another" not in case:
            assert ("withdrawn", ("withdrawn", "why")) == (after.state, told(gate, review)[-1])
        else:
            assert before == after

    async def test_a_store_that_fails_leaves_the_request_unanswered(self) -> None:
        gate = ReviewedGate(read_ui=Ui())
        gate.store.fault = "disk full"
        with pytest.raises(Unavailable):
            await gate.service.supersede("rv_1", "why")


def _put(gate: ReviewedGate, review: Review, case: str) -> None:
    now = gate.store.wall()
    if case.startswith(("decided", "used")):
        gate.store.decide(review.id, Verdict(word="answer", result=ACCEPT), who="ana", door="page")
    review = gate.store.reviews[review.id]
    if case == "used":
        review = replace(review, used_by="d", used=now)
    elif case.endswith("of this one"):
        review = replace(review, waiter=OURS, held_until=now + LEASE)
    elif "of another" in case:
        review = replace(review, waiter="w" * 56, held_until=now + LEASE)
    elif case.endswith("lease over"):
        review = replace(review, waiter="w" * 56, held_until=now - 1)
    elif case in {"expired", "withdrawn"}:
        review = replace(review, state=case, decided=now)
    gate.store.reviews[review.id] = review


class TestApprovals:
    POLICY: Final[dict[str, Any]] = {**POLICY, "reviewers": {"ops": {"timeout": "15m", "approvals": 2}}}

    @pytest.mark.parametrize(
        ("shown", "recorded"),
        [
            ((sha(HTML), sha(HTML)), sha(HTML)),
            ((None, sha(HTML)), sha(HTML)),
            ((sha(HTML), None), sha(HTML)),
            ((None, None), None),
        ],
    )
    async def test_each_vote_names_what_its_person_was_shown_and_one_binds_the_decision(
        self, shown: Sequence[str | None], recorded: str | None
    ) -> None:
        gate = ReviewedGate(read_ui=Ui())

        async def vote() -> None:
            review = await until(gate, is_ready)
            seen = review.digest
            for who, ui in zip(("ana", "ben"), shown, strict=True):
                verdict = Verdict(word="answer", result=ACCEPT, ui=ui or "")
                said = gate.store.decide(review.id, verdict, who=who, door="page", seen=seen)
                assert isinstance(said, Review), said
                seen = version(said)

        assert isinstance(await run(gate, fresh(policy=self.POLICY), vote), Answered)
        (record,) = gate.ports.records
        assert (recorded, "ana, ben") == (record.review_ui, record.reviewed_by)
        (review,) = reviews(gate)
        assert [ui or "" for ui in shown] == [vote.ui for vote in review.votes]
        assert review.ui is not None
        assert review.lookup == (review.digest if recorded is None else lookup_with_ui(review.digest, review.ui))

    async def test_a_vote_before_the_ui_arrives_stays(self) -> None:
        gate = ReviewedGate(read_ui=Ui(after=2.0))

        async def vote() -> None:
            review = await gate.pending()
            first = Verdict(word="answer", result=ACCEPT)
            said = gate.store.decide(review.id, first, who="ana", door="page", seen=review.digest)
            assert isinstance(said, Review)
            ready = await until(gate, is_ready)
            verdict = Verdict(word="answer", result=ACCEPT, ui=sha(HTML))
            said = gate.store.decide(review.id, verdict, who="ben", door="page", seen=version(ready))
            assert isinstance(said, Review)

        assert isinstance(await run(gate, fresh(policy=self.POLICY), vote), Answered)
        assert ["", sha(HTML)] == [vote.ui for vote in reviews(gate)[0].votes]
