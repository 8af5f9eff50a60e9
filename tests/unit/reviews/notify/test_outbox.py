from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from samplegate.errors import Unavailable
from samplegate.policy.schema import Reviewer
from samplegate.reviews.notify.outbox import LEASE, MAX_CONCURRENT, OBSOLETE
from samplegate.reviews.review import Also, Delivery, Edits, Review, Verdict
from tests.fakes.outbox import DAY, KEY, Outside, Store, is_signed, running
from tests.fakes.reviews import NOW, review
from tests.fakes.webhook_endpoint import answer, endpoint, ok

pytestmark = pytest.mark.anyio

DOWN: Final = answer("503 Unavailable")


@pytest.fixture
async def out(tmp_path: Path) -> Outside:
    return Outside(tmp_path)


async def test_a_review_is_told_signed_and_once(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook)
        async with running(out.outbox()):
            asked = await out.ask()
            await out.store.until(lambda: out.store.one.state == "done")
            out.clock.move(DAY)
            await out.store.until(lambda: len(out.store.deliveries) == 2)
    told, body = hook.seen[0], json.loads(hook.seen[0].body)
    assert is_signed(KEY, told.headers, told.body, NOW)
    assert ("review.opened", asked.id, asked.digest) == (body["type"], body["data"]["id"], body["data"]["digest"])
    assert ("msg_" + "1".zfill(24), "application/json") == (told.headers["webhook-id"], told.headers["content-type"])
    assert ["told"] == [event.what for event in out.store.events if event.what == "told"][:1]
    assert ("ops", "delivered") == out.counted[0]


async def test_a_clock_that_is_set_back_delays_nothing(out: Outside) -> None:
    async with endpoint(DOWN) as hook:
        out.tell(hook)
        await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            out.ahead = -7_200.0
            hook.says = answer()
            out.clock.move(5)
            await out.store.until(lambda: out.store.one.state == "done")


@pytest.mark.parametrize("ahead", [-7_200.0, 7_200.0])
async def test_a_wrong_clock_of_the_gate_changes_nothing_of_a_message(tmp_path: Path, ahead: float) -> None:
    out = Outside(tmp_path, ahead=ahead)
    async with endpoint(DOWN) as hook:
        out.tell(hook)
        await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            assert NOW + 1 == out.store.one.due
            hook.says = answer()
            out.clock.move(1)
            await out.store.until(lambda: out.store.one.state == "done")
    body = json.loads(hook.seen[1].body)
    assert ("pending", 899) == (body["data"]["state"], body["data"]["seconds_left"])
    assert is_signed(KEY, hook.seen[1].headers, hook.seen[1].body, NOW + 1)


async def test_a_message_is_repeated_when_it_is_due_though_its_failure_was_written_late(tmp_path: Path) -> None:
    class Slow(Store):
        def postpone(self, delivery: Delivery, **values: Any) -> None:
            outside.clock.now += 0.3  # until it has the lock
            super().postpone(delivery, **values)

    outside = Outside(tmp_path, Slow())
    async with endpoint(DOWN) as hook:
        outside.tell(hook)
        await outside.ask()
        async with running(outside.outbox()):
            await outside.store.until(lambda: outside.store.one.tries == 1)
            for _ in range(13):
                await _turns()
                outside.clock.move(0.1)
            await hook.requests(2)


async def test_what_waited_before_the_start_is_told_at_it(out: Outside) -> None:
    await out.ask()
    async with endpoint() as hook:
        out.tell(hook)
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")


async def test_a_reviewer_that_a_reload_added_is_told_at_once(out: Outside) -> None:
    """The lease of those before is not due to be renewed: the clock stands still."""
    async with endpoint() as before, endpoint() as added:
        out.tell(before)
        async with running(out.outbox()):
            await out.ask(1)
            await out.store.until(lambda: out.store.one.state == "done")
            out.tell(added, "added")
            await out.ask(2, reviewer="added")
            await added.requests(1)
    assert (1, 1) == (len(before.seen), len(added.seen))


async def test_a_hook_that_is_down_is_tried_ever_more_seldom_with_the_same_id(out: Outside) -> None:
    async with endpoint(DOWN) as hook:
        out.tell(hook)
        await out.ask()
        async with running(out.outbox()):
            dues = []
            for tries in (1, 2, 3, 4):
                await out.store.until(lambda tries=tries: out.store.one.tries == tries)  # type: ignore[misc]
                dues.append(out.store.one.due - out.clock.now)
                out.clock.move(dues[-1])
            hook.says = answer()
            await out.store.until(lambda: out.store.one.state == "done")
    assert [1.0, 2.0, 4.0, 8.0] == dues
    assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen})
    assert ["review.delivery_failed", "review.delivery_works"] == out.log.events()
    assert [("ops", "again")] * 4 + [("ops", "delivered")] == out.counted


async def test_each_try_is_signed_for_its_own_time(out: Outside) -> None:
    async with endpoint(DOWN) as hook:
        out.tell(hook)
        await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            out.clock.move(100)
            await out.store.until(lambda: out.store.one.tries == 2)
    assert [True, True] == [
        is_signed(KEY, seen.headers, seen.body, at) for seen, at in zip(hook.seen, (NOW, NOW + 100), strict=True)
    ]


@pytest.mark.parametrize("header", ["120", "Fri, 15 Jan 2027 08:02:00 GMT"])
async def test_retry_after_is_waited_for(out: Outside, header: str) -> None:
    async with endpoint(answer("429 Too Many", Retry_After=header)) as hook:
        out.tell(hook)
        await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            assert NOW + 120 == out.store.one.due
            await out.ask(2)  # nothing else is sent there either
            out.clock.move(119)
            await _turns()
            assert [("ops", 1)] == out.store.taken
            out.clock.move(1)
            await hook.requests(2)


async def _turns() -> None:
    """Run everything that waits for nothing else."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_tries_end_with_the_review(out: Outside) -> None:
    async with endpoint(DOWN) as hook:
        out.tell(hook)
        await out.ask(expires=NOW + 5)
        async with running(out.outbox()):
            for _ in range(3):
                await out.store.until(lambda: out.store.one.due > out.clock.now or out.store.one.state == "failed")
                out.clock.move(max(0.0, out.store.one.due - out.clock.now))
            await out.store.until(lambda: out.store.one.state == "failed")
    assert ("ops", "failed") in out.counted
    assert "untold" in [event.what for event in out.store.events]


async def test_410_stops_this_reviewer_until_the_policy_is_loaded_anew(out: Outside) -> None:
    async with endpoint(answer("410 Gone")) as hook, endpoint() as other:
        out.tell(hook)
        out.tell(other, "second")
        await out.ask(1)
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            await out.ask(2)
            await out.ask(3, reviewer="second")
            out.clock.move(400)
            await other.requests(1)
            await _turns()
            assert [("ops", 1), ("second", 1)] == out.store.taken
            assert ["review.delivery_failed"] == out.log.events()
            hook.says = answer()
            out.reviewers = {name: replace(one) for name, one in out.reviewers.items()}  # as after a reload
            out.clock.move(20)
            await out.store.until(lambda: all(one.state == "done" for one in out.store.deliveries.values()))


async def test_without_a_readable_key_nothing_is_sent_and_with_one_it_goes_on_without_a_restart(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook, secret_env=None, secret_file="key")
        await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            assert [("warning", "review.delivery_failed")] == [line[:2] for line in out.log.lines]
            assert "secret_file key cannot be read: No such file or directory" == out.log.lines[0][2]["why"]
            assert 0 == hook.connections
            (out.folder / "key").write_text("whsec_bmV3IGtleQ==\n")
            out.clock.move(2)
            await out.store.until(lambda: out.store.one.state == "done")
    assert is_signed(b"new key", hook.seen[0].headers, hook.seen[0].body, out.clock.now)


async def test_keys_are_changed_without_a_restart_and_both_sign_meanwhile(out: Outside) -> None:
    async with endpoint() as hook:
        (out.folder / "new").write_text("Zmlyc3Q=")
        (out.folder / "old").write_text("emVyb3Ro")
        out.tell(hook, secret_env=None, secret_file="new", old_secret_file="old")
        async with running(out.outbox()):
            await out.ask(1)
            await hook.requests(1)
            (out.folder / "old").write_text("Zmlyc3Q=")
            (out.folder / "new").write_text("c2Vjb25k")
            await out.ask(2)
            await hook.requests(2)
    known = [
        [key for key in (b"zeroth", b"first", b"second") if is_signed(key, seen.headers, seen.body, NOW)]
        for seen in hook.seen
    ]
    assert [[b"zeroth", b"first"], [b"first", b"second"]] == known


async def test_nobody_is_asked_what_was_decided_before_and_what_became_of_it_is_told(out: Outside) -> None:
    asked = await out.ask()
    out.store.decide(asked.id, Verdict(word="approve"), who="ann", door="page")
    async with endpoint() as hook:
        out.tell(hook)
        async with running(out.outbox()):
            await out.store.until(lambda: all(one.state != "waiting" for one in out.store.deliveries.values()))
    assert ["review.decided"] == [json.loads(seen.body)["type"] for seen in hook.seen]
    assert OBSOLETE == out.store.one.said


async def test_withdrawn_reviews_are_told_of(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook)
        async with running(out.outbox()):
            asked = await out.ask()
            await hook.requests(1)
            out.store.withdraw(asked.id, waiter="w", why="the client cancelled")
            await hook.requests(2)
    assert ["review.opened", "review.withdrawn"] == [json.loads(seen.body)["type"] for seen in hook.seen]


async def test_reviews_expire_by_time_and_that_is_told(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook)
        async with running(out.outbox()):
            asked = await out.ask(expires=NOW + 10)
            await hook.requests(1)
            out.clock.move(11)
            await hook.requests(2)
    assert "expired" == out.store.reviews[asked.id].state
    assert "review.expired" == json.loads(hook.seen[1].body)["type"]


async def test_reviews_expire_where_nobody_is_told_by_webhook(out: Outside) -> None:
    out.reviewers = {"ops": Reviewer()}
    asked = await out.ask(expires=NOW + 10)
    async with running(out.outbox()):
        await _turns()
        out.clock.move(11)
        await out.store.until(lambda: out.store.reviews[asked.id].state == "expired")
    assert {"ops": (1, NOW)} == out.waiting[0]


async def test_ended_reviews_are_forgotten_after_their_time(out: Outside) -> None:
    asked = await out.ask()
    out.store.decide(asked.id, Verdict(word="approve"), who="ann", door="page")
    async with running(out.outbox()):
        await _turns()
        assert asked.id in out.store.reviews
        out.clock.move(31 * DAY)
        await _turns()
        assert asked.id not in out.store.reviews


async def test_what_a_stopped_process_had_taken_is_told_by_the_next_one(out: Outside) -> None:
    async with endpoint() as hook:
        silent = asyncio.Event()

        async def silence(reader: Any, _writer: Any) -> None:
            silent.set()
            await reader.read()

        hook.behave = silence
        out.tell(hook)
        await out.ask()
        async with running(out.outbox()):
            await silent.wait()
        hook.behave = None
        async with running(out.outbox(random=lambda n: b"\x01" * n)):
            await _turns()
            assert 1 == len(out.store.taken)
            out.clock.move(LEASE)
            await out.store.until(lambda: out.store.one.state == "done")
    assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen})
    assert 2 == hook.connections


async def test_two_processes_share_the_work(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook)
        for number in range(40):
            await out.ask(number)
        async with running(out.outbox()), running(out.outbox(random=lambda n: b"\x01" * n)):
            await out.store.until(lambda: all(one.state == "done" for one in out.store.deliveries.values()))
    assert 40 == len(hook.seen) == len({seen.headers["webhook-id"] for seen in hook.seen})


async def test_several_are_told_at_once_but_not_more_than_the_bound(out: Outside) -> None:
    async with endpoint() as hook:
        go, now, most = asyncio.Event(), 0, 0

        async def wait(_reader: Any, writer: Any) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await go.wait()
            now -= 1
            writer.write(answer())

        hook.behave = wait
        out.tell(hook)
        for number in range(30):
            await out.ask(number)
        async with running(out.outbox()):
            await hook.requests(MAX_CONCURRENT)
            await _turns()
            go.set()
            await out.store.until(lambda: all(one.state == "done" for one in out.store.deliveries.values()))
    assert MAX_CONCURRENT == most


async def test_a_dead_hook_is_tried_with_one_message_at_a_time_and_nobody_else_waits_for_it(out: Outside) -> None:
    async with endpoint(DOWN) as dead, endpoint() as well:
        out.tell(dead, "dead")
        out.tell(well, "well")
        await out.ask(0, reviewer="dead")
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            for number in range(1, 200):
                await out.ask(number, reviewer="dead")
            await out.ask(200, reviewer="well")
            await well.requests(1)
            for tries in range(2, 7):
                out.clock.move(100)
                await dead.requests(tries)
                await out.store.until(
                    lambda tries=tries: sum(one.tries for one in out.store.deliveries.values()) == tries + 1  # type: ignore[misc]
                )
    assert {1} == {number for name, number in out.store.taken if name == "dead"}
    assert 6 == len([name for name, _ in out.store.taken if name == "dead"]) == len(dead.seen)


async def test_a_store_that_fails_is_told_once_and_the_work_goes_on_when_it_is_back(out: Outside) -> None:
    async with endpoint() as hook:
        out.tell(hook)
        await out.ask()
        out.store.fault = "reviews.db: locked"
        async with running(out.outbox()):
            for _ in range(4):
                await _turns()
                out.clock.move(6)
            assert ["review.store_failed"] == out.log.events()
            out.store.fault = None
            out.clock.move(6)
            await out.store.until(lambda: out.store.one.state == "done")
    assert ["review.store_failed", "review.store_works"] == out.log.events()


async def test_a_delivery_whose_end_cannot_be_kept_is_made_again(tmp_path: Path) -> None:
    class Failing(Store):
        failures = 1

        def delivered(self, *args: Any, **values: Any) -> None:
            if self.failures:
                self.failures -= 1
                raise Unavailable("reviews.db: locked")
            super().delivered(*args, **values)

    out = Outside(tmp_path, Failing())
    async with endpoint() as hook:
        out.tell(hook)
        await out.ask()
        async with running(out.outbox()):
            await hook.requests(1)
            await _turns()
            out.clock.move(LEASE)
            await out.store.until(lambda: out.store.one.state == "done")
    assert 1 == len({seen.headers["webhook-id"] for seen in hook.seen})
    assert 2 == len(hook.seen)


async def test_a_fault_of_ours_in_one_delivery_ends_that_one_only(out: Outside) -> None:
    def clean(text: str) -> str:
        if "boom" in text:
            raise RuntimeError("a bug")
        return text

    out.clean = clean
    async with endpoint() as hook:
        out.tell(hook)
        await out.ask(
            1,
            rule="r",
            params={"messages": [{"role": "user", "content": {"type": "text", "text": "boom"}}], "maxTokens": 1},
        )
        await out.ask(2)
        async with running(out.outbox()):
            await hook.requests(1)
    assert "rv_2" == json.loads(hook.seen[0].body)["data"]["id"]
    assert ("error", "review.delivery_broke") == out.log.lines[0][:2]


async def test_a_fault_of_ours_in_a_look_ends_that_look_only(out: Outside) -> None:
    fails = True

    def waiting(_pending: Any, _now: float) -> None:
        if fails:
            raise RuntimeError("a bug")

    async with endpoint() as hook:
        out.tell(hook)
        asked = await out.ask(expires=NOW + 10)
        async with running(out.outbox(waiting=waiting)):
            await hook.requests(1)
            fails = False
            out.clock.move(11)
            await out.store.until(lambda: out.store.reviews[asked.id].state == "expired")
    assert ("error", "review.outbox_broke") == out.log.lines[0][:2]


async def test_others_are_told_once_though_two_processes_share_the_store_and_one_is_restarted(out: Outside) -> None:
    async with endpoint() as ops, endpoint() as lead:
        out.tell(ops)
        out.tell(lead, "lead")
        async with running(out.outbox()):
            asked = review(id="rv_1", created=NOW, expires=NOW + 900, also=(Also("lead"),), also_from=NOW + 600)
            assert out.store.open(asked, announce=True, most=9, also=["lead"])
            await ops.requests(1)
            out.clock.move(599)
            await _turns()
        assert (1, 0) == (len(ops.seen), len(lead.seen))
        async with running(out.outbox()), running(out.outbox(random=lambda size: b"2" * size)):
            out.clock.move(16)
            await lead.requests(1)
            out.clock.move(60)
            await _turns()
            out.store.decide("rv_1", Verdict(word="approve"), who="lea", door="page")
            await lead.requests(2)
            await ops.requests(2)
    assert [["review.opened", "review.decided"]] * 2 == [
        [json.loads(seen.body)["type"] for seen in hook.seen] for hook in (ops, lead)
    ]


YES_BY: Final = b'{"verdict": "approve", "by": "%s"}'


async def test_webhooks_give_one_approval_whatever_names_they_tell(out: Outside) -> None:
    async with endpoint(ok(YES_BY % b"ann")) as ops, endpoint(ok(YES_BY % b"ben")) as lead:
        out.tell(ops)
        out.tell(lead, "lead")
        async with running(out.outbox()):
            asked = review(
                id="rv_1", created=NOW, expires=NOW + 900, approvals=2, also=(Also("lead"),), also_from=NOW + 60
            )
            assert out.store.open(asked, announce=True, most=9, also=["lead"])
            await out.store.until(lambda: out.store.one.state == "done")
            out.clock.move(76)
            await out.store.until(lambda: all(one.state == "done" for one in out.store.deliveries.values()))
    found = out.store.reviews["rv_1"]
    assert ("pending", [("ann", "webhook", False)]) == (
        found.state,
        [(vote.by, vote.how, vote.proven) for vote in found.votes],
    )
    assert [
        "review.opened: 200, approve",
        "review.opened (lead): 200, approve, not counted: another person must approve it",
    ] == [event.detail for event in out.store.events if event.what == "told"]
    done = out.store.decide("rv_1", Verdict(word="approve"), who="cleo", door="page")
    assert isinstance(done, Review)
    assert ("approved", "ann, cleo") == (done.state, done.who)


async def test_a_webhook_that_answers_an_older_version_is_asked_again_about_the_new_one(out: Outside) -> None:
    edits = Edits(max_tokens=7)
    async with endpoint(ok(YES_BY % b"bot")) as hook:
        out.tell(hook)
        asked = await out.ask(approvals=3)
        decide, first = out.store.decide, [True]

        def beaten(*args: Any, **values: Any) -> Any:
            if first:
                first.clear()
                decide(asked.id, Verdict(word="approve", edits=edits), who="ann", door="page")
            return decide(*args, **values)

        out.store.decide = beaten  # type: ignore[method-assign]
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.tries == 1)
            out.clock.move(5)
            await out.store.until(lambda: out.store.one.state == "done")
    told = [json.loads(seen.body)["data"] for seen in hook.seen]
    assert [None, {"maxTokens": 7}] == [one["proposal"] and one["proposal"]["edits"] for one in told]
    assert [("ann", False), ("bot", False)] == [(vote.by, vote.void) for vote in out.store.reviews[asked.id].votes]
    assert 1 == len({vote.digest for vote in out.store.reviews[asked.id].votes})
