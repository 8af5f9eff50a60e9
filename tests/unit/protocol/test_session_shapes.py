"""Outcomes in the form of each protocol version: results, errors, and the end of a call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.protocol import results
from samplegate.protocol.frames import LEGACY, META_RELATED_TASK, MODERN, read
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason, Unanswered
from samplegate.protocol.rounds import Release

TEXT = {"type": "text", "text": "a"}
IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "", "mimeType": "audio/wav"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
OLD, NEW = LEGACY[:3], (*LEGACY[3:], *MODERN)
RESERVED = range(-32768, -31999)


def sampled(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}


def content(*blocks: Any, revision: str, alone: bool = False) -> Any:
    shaped = results.sampling_result(sampled(blocks[0] if alone else list(blocks)), revision)
    return None if shaped is None else shaped["content"]


def released(outcome: Outcome, explain: str = "") -> Release:
    return Release(outcome, "d1", explain)


def pushed(kind: str, outcome: Outcome, params: bytes | None = b"{}", explain: str = "") -> Any:
    return json.loads(results.pushed("i", kind, released(outcome, explain), params))


class TestSamplingResult:
    """R1, R6."""

    @pytest.mark.parametrize("revision", [*LEGACY, *MODERN])
    def test_one_block_is_a_block_in_every_revision_and_the_rest_stays(self, revision: str) -> None:
        assert (
            sampled(TEXT)
            == results.sampling_result(sampled(TEXT), revision)
            == results.sampling_result(sampled([TEXT]), revision)
        )

    @pytest.mark.parametrize("revision", OLD)
    def test_older_revisions_get_several_texts_as_one(self, revision: str) -> None:
        assert {"type": "text", "text": "a\nb"} == content(TEXT, {"type": "text", "text": "b"}, revision=revision)

    @pytest.mark.parametrize("revision", OLD)
    @pytest.mark.parametrize("blocks", [(TEXT, IMAGE), (USE,), (TEXT, USE), (), ({"type": "later"},)])
    def test_older_revisions_have_no_form_for_anything_else(self, revision: str, blocks: tuple[Any, ...]) -> None:
        assert content(*blocks, revision=revision) is None

    @pytest.mark.parametrize("revision", NEW)
    def test_newer_revisions_take_several_blocks(self, revision: str) -> None:
        assert [TEXT, IMAGE, USE] == content(TEXT, IMAGE, USE, revision=revision)

    def test_images_from_the_first_revision_on_and_audio_from_the_second(self) -> None:
        assert [IMAGE] * 5 == [content(IMAGE, revision=revision) for revision in (*LEGACY, *MODERN)]
        assert [None, *[AUDIO] * 4] == [content(AUDIO, revision=revision) for revision in (*LEGACY, *MODERN)]


class TestPushed:
    def test_what_a_client_said_is_released_verbatim(self) -> None:
        """R118."""
        line = results.pushed("i", "sampling", released(Answered(b'{"n": 1.0}', "client")), b'{"_meta":{}}')
        assert b'{"jsonrpc":"2.0","id":"i","result":{"n": 1.0}}' == line
        for outcome in (
            Denied(Reason.CLIENT, error=b'{"code": -1.0}'),
            Unanswered(Reason.CLIENT, error=b'{"code": -1.0}'),
        ):
            for kind in ("sampling", "elicitation"):
                line = results.pushed("i", kind, released(outcome), None)
                assert b'{"jsonrpc":"2.0","id":"i","error":{"code": -1.0}}' == line

    @pytest.mark.parametrize("by", ["policy", "human", "timeout"])
    def test_our_own_answers_say_who_decided(self, by: Any) -> None:
        answer = pushed("sampling", Answered(b'{"role":"assistant","_meta":{"v":1}}', by))
        assert {
            "role": "assistant",
            "_meta": {"v": 1, results.PROVENANCE: {"decided_by": by, "decision_id": "d1"}},
        } == answer["result"]

    @pytest.mark.parametrize("reason", list(Reason))
    def test_refused_sampling_is_error_minus_1_with_kind_reason_and_decision(self, reason: Reason) -> None:
        """R24."""
        for outcome in (Denied(reason), Unanswered(reason)):
            error = pushed("sampling", outcome)["error"]
            assert (-1, {"kind": "sampling", "reason": reason.value, "decision_id": "d1"}) == (
                error["code"],
                error["data"],
            )
            assert error["message"]

    @pytest.mark.parametrize("reason", list(Reason))
    def test_no_elicitation_is_ever_accepted_for_want_of_an_answer(self, reason: Reason) -> None:
        assert "cancel" == pushed("elicitation", Unanswered(reason))["result"]["action"]
        assert "cancel" == pushed("elicitation", Denied(reason))["result"]["action"]
        assert "decline" == pushed("elicitation", Denied(reason, "decline"))["result"]["action"]

    @pytest.mark.parametrize("kind", ["sampling", "elicitation"])
    @pytest.mark.parametrize("reason", [Reason.NOT_OFFERED, Reason.MALFORMED])
    def test_what_should_not_have_been_asked_is_bad_params(self, kind: str, reason: Reason) -> None:
        """R8, R12, R31."""
        error = pushed(kind, Unanswered(reason, detail="messages: has none", code=-32602))["error"]
        assert -32602 == error["code"]
        assert (reason is Reason.MALFORMED) == ("messages: has none" in error["message"])

    @pytest.mark.parametrize("outcome", [Denied(Reason.RULE, detail="hush"), Unanswered(Reason.MODEL, detail="hush")])
    def test_rule_and_detail_are_said_only_to_a_server_that_may_know(self, outcome: Outcome) -> None:
        assert "hush" not in json.dumps(pushed("sampling", outcome))
        assert "rule 'r': because" in pushed("sampling", outcome, explain="rule 'r': because")["error"]["message"]

    @pytest.mark.parametrize(
        ("outcome", "words"),
        [
            (Unanswered(Reason.TIMEOUT), "not answered in time"),
            (Denied(Reason.TIMEOUT), "refused: no answer in time"),
            (Denied(Reason.REVIEW), "refused by a reviewer"),
            (Denied(Reason.LIMIT), "refused: a limit was reached"),
            (Denied(Reason.RULE), "denied by policy"),
        ],
    )
    def test_a_refusal_and_the_want_of_an_answer_are_told_apart(self, outcome: Outcome, words: str) -> None:
        assert f"sampling request {words} [decision d1]" == pushed("sampling", outcome)["error"]["message"]

    @pytest.mark.parametrize("kind", ["sampling", "elicitation"])
    def test_our_answers_belong_to_the_task_of_their_request(self, kind: str) -> None:
        """R106."""
        params = b'{"_meta":{"' + META_RELATED_TASK.encode() + b'":{"taskId" : "t"}}}'
        outcome = Answered(b'{"action":"accept"}', "policy")
        assert {"taskId": "t"} == pushed(kind, outcome, params)["result"]["_meta"][META_RELATED_TASK]
        assert {"taskId": "t"} == pushed("elicitation", Unanswered(Reason.NO_RULE), params)["result"]["_meta"][
            META_RELATED_TASK
        ]
        assert META_RELATED_TASK not in pushed(kind, outcome, b'{"_meta":{}}')["result"]["_meta"]


class TestNested:
    @pytest.mark.parametrize(
        "outcome", [Denied(Reason.RULE), Unanswered(Reason.NO_RULE), Unanswered(Reason.MALFORMED, code=-32602)]
    )
    def test_sampling_has_no_form_for_no(self, outcome: Outcome) -> None:
        """R70, T5."""
        assert results.nested("sampling", released(outcome)) is None

    def test_an_elicitation_has(self) -> None:
        assert b'{"action":"cancel"}' == results.nested("elicitation", released(Unanswered(Reason.TIMEOUT)))
        assert b'{"action":"decline"}' == results.nested("elicitation", released(Denied(Reason.RULE, "decline")))
        assert results.nested("elicitation", released(Unanswered(Reason.MALFORMED, code=-32602))) is None

    def test_a_result_is_bare(self) -> None:
        entry = json.loads(results.nested("sampling", released(Answered(b'{"role":"assistant"}', "policy"))) or b"")
        assert {"role", "_meta"} == set(entry)
        assert b'{"action":"accept"}' == results.nested(
            "elicitation", released(Answered(b'{"action":"accept"}', "policy"))
        )
        assert b'{"n": 1.0}' == results.nested("sampling", released(Answered(b'{"n": 1.0}', "client")))


class TestEndedCall:
    def test_a_tool_says_it_in_its_result(self) -> None:
        end = json.loads(
            results.ended_call(1, "tools/call", "modern", "sampling", released(Denied(Reason.RULE, detail="hush")))
        )
        assert ("complete", True) == (end["result"]["resultType"], end["result"]["isError"])
        assert "d1" in end["result"]["content"][0]["text"]
        assert "hush" not in json.dumps(end)
        legacy = json.loads(
            results.ended_call(1, "tools/call", "legacy", "elicitation", released(Unanswered(Reason.CANNOT)))
        )
        assert "resultType" not in legacy["result"]

    @pytest.mark.parametrize("method", ["prompts/get", "resources/read", "vendor/x"])
    def test_everything_else_fails_outside_the_reserved_codes(self, method: str) -> None:
        """R56."""
        for outcome in (Denied(Reason.RULE), Unanswered(Reason.ROUNDS), Unanswered(Reason.NOT_OFFERED, code=-32602)):
            code = json.loads(results.ended_call(1, method, "modern", "sampling", released(outcome)))["error"]["code"]
            assert -1 == code
            assert code not in RESERVED


def test_an_input_required_result_carries_entries_as_they_are() -> None:
    line = results.input_required(1, {"é": b'{"n": 1.0}', 'q"': b"[ ]"}, 'st"ate')
    assert '{"é":{"n": 1.0},"q\\"":[ ]}'.encode() in line
    result = json.loads(read(line).payload or b"")
    assert ("input_required", 'st"ate') == (result["resultType"], result["requestState"])


def test_an_input_required_result_without_questions_has_no_member_for_them() -> None:
    """R60: the result means "retry"; an empty map of requests would need answers."""
    assert {"resultType": "input_required", "requestState": "s"} == json.loads(
        read(results.input_required(1, {}, "s")).payload or b""
    )
