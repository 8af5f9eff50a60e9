"""Playback of a cassette: cases take turns, a request without a case gets no answer, and the file may be hostile."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit.cassette import Cassette
from samplegate.audit.playback import SHOWN, Playback
from samplegate.errors import Unavailable
from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.script import MAX_BYTES, fingerprint
from samplegate.protocol.requests import Request
from tests.fakes.requests import form, sampling, text, url

pytestmark = pytest.mark.anyio

SAMPLING, ELICITATION = "sampling/createMessage", "elicitation/create"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.yaml"


def said(what: str) -> bytes:
    return json.dumps({"role": "assistant", "content": text(what), "model": "gpt-5", "stopReason": "endTurn"}).encode()


def recorded(path: Path, *answers: tuple[Request, Any]) -> None:
    """Record these answers: a text of a model, the failure of a model (in a list), or the result of a client."""
    tape = Cassette.open(path)
    for request, answer in answers:
        if isinstance(answer, str):
            tape.add(SAMPLING, request.params, effect="allow", decided_by="policy", result=said(answer))
        elif isinstance(answer, list):
            tape.add(SAMPLING, request.params, effect="allow", decided_by="policy", failure=answer[0])
        else:
            result = json.dumps(answer).encode()
            tape.add(ELICITATION, request.params, effect="forward", decided_by="client", result=result)
    tape.close()


def written(path: Path, cases: Any) -> Playback:
    """A cassette that was written by hand."""
    path.write_text(json.dumps({"cases": cases}, indent=1))
    return Playback.open(path)


async def asked(playback: Playback, request: Request, timeout: float = 5.0) -> SampleResult:
    return await playback.sample(SampleRequest("real", request.params, timeout), lambda _: None)


async def words(playback: Playback, request: Request) -> str:
    result = await asked(playback, request)
    assert isinstance(result, Sampled)
    return str(result.content[0]["text"])


async def test_the_answers_to_one_request_come_in_their_order_and_the_last_one_repeats(path: Path) -> None:
    recorded(path, (sampling("a"), "one"), (sampling("b"), "other"), (sampling("a"), "two"), (sampling("a"), "three"))
    playback = Playback.open(path)
    assert ["one", "two", "other", "three", "three"] == [await words(playback, sampling(what)) for what in "aabaa"]
    assert (5, 0, 0) == (playback.answers, playback.missed, playback.unused)


async def test_forms_take_turns_too(path: Path) -> None:
    asked = form(confirm="boolean")
    results: list[dict[str, Any]] = [
        {"action": "decline"},
        {"action": "accept", "content": {"confirm": True}},
        {"action": "cancel"},
    ]
    recorded(path, *((asked, result) for result in results))
    playback = Playback.open(path)
    assert [*results, results[-1]] == [await playback.answer_forwarded(asked, asked.params) for _ in range(4)]


async def test_a_failure_is_played_and_no_other_model_is_tried_after_it(path: Path) -> None:
    recorded(path, (sampling("a"), ["rate_limited"]), (sampling("a"), "one"))
    playback = Playback.open(path)
    failed = await asked(playback, sampling("a"))
    assert isinstance(failed, SampleFailed)
    assert ("rate_limited", True) == (failed.failure, failed.started)
    assert "one" == await words(playback, sampling("a"))


async def test_a_request_without_a_case_is_not_answered_and_the_reason_has_mode_and_fingerprint(path: Path) -> None:
    recorded(path, (sampling("a"), "one"))
    playback = Playback.open(path)
    failed = await asked(playback, sampling("b"))
    assert isinstance(failed, SampleFailed)
    assert ("no_case", True, True) == (failed.failure, failed.started, failed.free)
    unknown = form(confirm="boolean")
    why = await playback.answer_forwarded(unknown, unknown.params)
    forwarded = await playback.answer_forwarded(sampling("b"), sampling("b").params)
    for detail, request in ((failed.message, sampling("b")), (why, unknown), (forwarded, sampling("b"))):
        assert isinstance(detail, str)
        assert f"no case with fingerprint {fingerprint(request.params)} (--record-mode replay)" in detail
    assert (0, 3, 1) == (playback.answers, playback.missed, playback.unused)


async def test_a_forwarded_sampling_request_gets_the_recorded_answer_and_never_a_failure(path: Path) -> None:
    recorded(path, (sampling("a"), "one"), (sampling("b"), ["refused"]))
    playback = Playback.open(path)
    answered = await playback.answer_forwarded(sampling("a"), sampling("a").params)
    assert json.loads(said("one")) == answered
    failed = await playback.answer_forwarded(sampling("b"), sampling("b").params)
    assert "its case in the cassette has fail: refused, which answers no forwarded request" == failed


async def test_no_secret_is_filled_in_and_no_link_accepted_whatever_the_file_says(path: Path) -> None:
    secret, link = form(password="string"), url("https://example.com")
    cases = [
        {"fingerprint": fingerprint(secret.params), "action": "accept", "values": {"password": "hunter2"}},
        {"fingerprint": fingerprint(link.params), "action": "accept"},
    ]
    playback = written(path, cases)
    filled, opened = [await playback.answer_forwarded(one, one.params) for one in (secret, link)]
    assert isinstance(filled, str)
    assert isinstance(opened, str)
    assert "the gate never fills in secrets" in filled
    assert "the gate never accepts a URL" in opened
    assert (0, 2) == (playback.answers, playback.unused)


async def test_an_answer_that_is_delayed_beyond_the_timeout_is_a_timeout(path: Path) -> None:
    failed = await asked(written(path, [{"text": "a", "answer": "late", "delay": "1h"}]), sampling("a"), timeout=0.001)
    assert isinstance(failed, SampleFailed)
    assert ("timeout", True) == (failed.failure, failed.started)


async def test_unused_cases_are_counted_and_listed_only_if_they_fail_the_run(path: Path) -> None:
    recorded(path, (sampling("a"), "one"), (sampling("b"), "two"), (sampling("b"), "three"))
    quiet, strict = Playback.open(path), Playback.open(path, fails_if_unused=True)
    for playback in (quiet, strict):
        await words(playback, sampling("b"))
    summary = f"replayed 1 answer from {path}; 2 of 3 cases not used"
    assert ([summary], 2, False) == (quiet.finish(path.parent), quiet.unused, quiet.fails_if_unused)
    a, b = fingerprint(sampling("a").params), fingerprint(sampling("b").params)
    assert [
        summary,
        f"  {path}:3: not used: fingerprint {a}",
        f"  {path}:13: not used: fingerprint {b}",
    ] == strict.finish(path.parent)
    assert (2, True) == (strict.unused, strict.fails_if_unused)


def test_many_unused_cases_are_listed_in_part_and_by_name(path: Path) -> None:
    path.write_text("cases:\n" + "".join(f"- {{name: mine {n}, text: q{n}, answer: a}}\n" for n in range(SHOWN + 5)))
    lines = Playback.open(path, fails_if_unused=True).finish(path.parent)
    assert (SHOWN + 2, f"  {path}:2: not used: case 'mine 0'", "  and 5 more") == (len(lines), lines[1], lines[-1])


async def test_a_run_in_which_all_was_played_says_only_that(path: Path) -> None:
    recorded(path, (sampling("a"), "one"))
    playback = Playback.open(path, fails_if_unused=True)
    await words(playback, sampling("a"))
    await asked(playback, sampling("b"))
    assert [f"replayed 1 answer from {path}; 1 request without a case"] == playback.finish(path.parent)


def test_the_file_is_not_locked(path: Path) -> None:
    recorded(path, (sampling("a"), "one"))
    recording = Cassette.open(path)
    assert [1, 1] == [Playback.open(path).unused for _ in range(2)]
    recording.close()


@pytest.mark.parametrize(
    ("there", "what"),
    [
        (b"", "has no cases to replay"),
        (b" \n", "has no cases to replay"),
        (b"cases: []\n", "is not a case file"),
        (b"cases:\n- {text: a, answer: b}\ncases:\n- {text: a, answer: c}\n", "is not a case file"),
        (b"cases:\n- {text: a, answer: b, answer: c}\n", "is not a case file .line 2"),
        (b"cases:\n- {text: \xff, answer: b}\n", "is not UTF-8"),
        (b"root:x:0:0:root:/root:/bin/sh\n", "is not a case file"),
        (b"#" * (MAX_BYTES + 1), "is larger than"),
    ],
)
def test_a_file_that_is_no_cassette_is_an_error(path: Path, there: bytes, what: str) -> None:
    path.write_bytes(there)
    with pytest.raises(Unavailable, match=what):
        Playback.open(path)


def test_a_missing_file_a_folder_and_a_pipe_are_errors(path: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"there is no cassette .*record one with --record-mode once"):
        Playback.open(path)
    with pytest.raises(Unavailable, match="not a regular file"):
        Playback.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be read: not a directory"):
        Playback.open(tmp_path / "file" / "tape.yaml")
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(Unavailable, match="there is no cassette"):
        Playback.open(path)
    assert not (tmp_path / "nowhere").exists()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(Unavailable, match="not a regular file"):
            Playback.open(tmp_path / "pipe")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="modes")
def test_a_file_that_may_not_be_read_is_an_error(path: Path) -> None:
    recorded(path, (sampling("a"), "one"))
    path.chmod(0)
    with pytest.raises(Unavailable, match="cannot be read: permission denied"):
        Playback.open(path)


async def test_a_clients_answer_is_not_cut_to_the_tokens_of_the_request(path: Path) -> None:
    short = sampling("a", maxTokens=2)
    long = said("five words of an answer")
    tape = Cassette.open(path)
    tape.add(SAMPLING, short.params, effect="forward", decided_by="client", result=long)
    tape.close()
    assert json.loads(long) == await Playback.open(path).answer_forwarded(short, short.params)
