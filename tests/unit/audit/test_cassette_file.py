"""The cassette file: recorded answers become cases that give the same answers, whatever the file contains, and no
answer depends on it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit.cassette import MAX_REPEATS, Cassette
from samplegate.errors import Unavailable
from samplegate.policy.prompt import Sampled, SampleFailed
from samplegate.policy.script import Picked, ScriptReply, fingerprint, parse, pick, reply
from tests.fakes.requests import form, sampling, text, url

SAMPLING, ELICITATION = "sampling/createMessage", "elicitation/create"


def params(what: str = "hello", **more: Any) -> dict[str, Any]:
    return dict(sampling(what, **more).params)


def result(*blocks: Any, model: str = "gpt-5", stop: str = "endTurn") -> bytes:
    content = blocks[0] if len(blocks) == 1 else list(blocks)
    return json.dumps(
        {"role": "assistant", "content": content, "model": model, "stopReason": stop, "_meta": {"a": 1}}
    ).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.yaml"


@pytest.fixture
def tape(path: Path) -> Iterator[Cassette]:
    tape = Cassette.open(path)
    yield tape
    tape.close()


def played(path: Path, asked: dict[str, Any], turn: int = 0) -> Picked:
    return pick(parse(path.read_text("utf-8"), file="tape.yaml"), "taped", asked, {fingerprint(asked): turn})


def replayed_text(path: Path, asked: dict[str, Any], turn: int = 0) -> str:
    picked = played(path, asked, turn).result
    assert isinstance(picked, Sampled)
    return str(picked.content[0]["text"])


def model(tape: Cassette, asked: dict[str, Any], what: bytes) -> None:
    tape.add(SAMPLING, asked, effect="allow", decided_by="policy", result=what, input_tokens=7, output_tokens=3)


def client(tape: Cassette, asked: Any, what: dict[str, Any]) -> None:
    tape.add(ELICITATION, asked, effect="forward", decided_by="client", result=json.dumps(what).encode())


def test_what_a_model_answered_is_answered_again(tape: Cassette, path: Path) -> None:
    model(tape, params(), result(text("hi {there} ${HOME}\n\u202e\x7f\ufeff 👋"), stop="because"))

    block = {"type": "text", "text": "hi {there} ${HOME}\n\u202e\x7f\ufeff 👋"}
    assert Sampled((block,), "gpt-5", "because", 7, 3) == played(path, params()).result
    assert isinstance(played(path, params("hello?")).result, SampleFailed)


def test_uses_of_tools_and_images_are_answered_again_without_what_is_about_them(tape: Cassette, path: Path) -> None:
    use = {
        "type": "tool_use",
        "id": "a",
        "name": "rm",
        "input": {"deep": [{"all": True, "n": None, "x": 1e300}], "no": "yes", "<<": "on"},
    }
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    model(
        tape,
        params(),
        result({**use, "_meta": {"x": 1}}, {**image, "annotations": {"audience": ["user"]}}, stop="toolUse"),
    )

    assert Sampled((use, image), "gpt-5", "toolUse", 7, 3) == played(path, params()).result


def test_what_a_model_failed_with_fails_again(tape: Cassette, path: Path) -> None:
    tape.add(SAMPLING, params(), effect="allow", decided_by="policy", failure="refused", input_tokens=9)

    failed = played(path, params()).result
    assert isinstance(failed, SampleFailed)
    assert ("refused", 9) == (failed.failure, failed.input_tokens)


def test_what_the_client_answered_to_a_form_is_answered_again(tape: Cassette, path: Path) -> None:
    client(tape, form(confirm="boolean").params, {"action": "accept", "content": {"confirm": True, "tags": ["a"]}})
    client(tape, form(other="boolean").params, {"action": "decline"})
    script = parse(path.read_text(), file="f")

    assert ScriptReply("accept", {"confirm": True, "tags": ["a"]}) == reply(script, form(confirm="boolean").params)
    assert ScriptReply("decline", {}) == reply(script, form(other="boolean").params)


def test_a_form_with_a_secret_filled_in_is_not_on_the_tape_and_one_that_says_yes_is(tape: Cassette, path: Path) -> None:
    client(tape, form(password="string").params, {"action": "accept", "content": {"password": "hunter2"}})
    client(
        tape, form(a={"type": "string", "title": "Password"}).params, {"action": "accept", "content": {"a": "hunter2"}}
    )
    client(tape, form(a="string").params, {"action": "accept", "content": {"password": "hunter2"}})
    assert (0, 3, "") == (tape.cases, tape.left_out, path.read_text())
    client(tape, form(hasToken="boolean").params, {"action": "accept", "content": {"hasToken": True}})
    assert ScriptReply("accept", {"hasToken": True}) == reply(
        parse(path.read_text(), file="f"), form(hasToken="boolean").params
    )


def test_an_accepted_url_is_not_recorded_and_a_declined_one_is(tape: Cassette, path: Path) -> None:
    asked = url("https://example.com/?token=secret").params
    client(tape, asked, {"action": "accept"})
    assert (0, 1) == (tape.cases, tape.left_out)
    client(tape, asked, {"action": "decline"})
    assert ScriptReply("decline", {}) == reply(parse(path.read_text(), file="f"), asked)
    assert "secret" not in path.read_text()


@pytest.mark.parametrize(
    ("effect", "decided_by", "failure"),
    [
        ("answer", "policy", None),
        ("deny", "policy", None),
        ("allow", "timeout", None),
        ("forward", "policy", None),
        ("forward", "client", "refused"),
    ],
)
def test_only_models_and_clients_are_recorded(
    tape: Cassette, path: Path, effect: str, decided_by: str, failure: str | None
) -> None:
    tape.add(
        SAMPLING,
        params(),
        effect=effect,
        decided_by=decided_by,
        failure=failure,
        result=None if failure else result(text("hi")),
    )
    assert (0, "") == (tape.cases, path.read_text())


def test_the_same_question_with_other_answers_is_answered_in_turn(tape: Cassette, path: Path) -> None:
    for answer in ("a", "a", "b", "c", "c", "c"):
        model(tape, params(), result(text(answer)))

    assert ["a", "a", "b", "c", "c", "c", "c"] == [replayed_text(path, params(), turn) for turn in range(7)]
    assert 4 == tape.cases


def test_an_endless_repetition_does_not_fill_the_file(tape: Cassette) -> None:
    for answer in ["a"] * (MAX_REPEATS + 50) + ["b"]:
        model(tape, params(), result(text(answer)))
    assert MAX_REPEATS + 2 == tape.cases


def test_a_tape_is_added_to_only_what_it_does_not_know(path: Path) -> None:
    first = Cassette.open(path)
    model(first, params(), result(text("old")))
    first.close()
    second = Cassette.open(path)
    model(second, params(), result(text("new")))
    model(second, params("more"), result(text("other")))
    second.close()

    assert ("old", "old", "other") == (
        replayed_text(path, params()),
        replayed_text(path, params(), 1),
        replayed_text(path, params("more")),
    )
    assert 1 == second.cases


def test_it_is_a_whole_script_after_every_case(tape: Cassette, path: Path) -> None:
    for number in range(3):
        model(tape, params(f"question {number}"), result(text("hi")))
        assert number + 1 == parse(path.read_text(), file="f").size


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_it_is_its_owners_alone(tape: Cassette, path: Path) -> None:
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("there", "what"),
    [
        ("version: 1\nrules: []\n", "is not a case file"),
        ("cases: [{answer: a, text: b}]\n", "can be appended"),
        ("cases:\n- {answer: a}\n", "matches everything"),
        ("cases:\n- {text: x, answer: a}", "does not end with a list"),
        ("just some text\n", "is not a case file"),
    ],
)
def test_a_file_that_no_case_can_follow_is_left_alone(path: Path, there: str, what: str) -> None:
    path.write_text(there)
    with pytest.raises(Unavailable, match=what):
        Cassette.open(path)
    assert there == path.read_text()


def test_what_somebody_wrote_by_hand_may_be_added_to(path: Path) -> None:
    path.write_text("cases:\n  # mine\n- {text: mine, answer: mine}\n")
    tape = Cassette.open(path)
    model(tape, params(), result(text("hi")))
    tape.close()
    assert ("hi", "mine") == (replayed_text(path, params()), replayed_text(path, params("mine")))


def test_an_empty_file_is_a_tape(path: Path) -> None:
    path.write_text("\n")
    tape = Cassette.open(path)
    model(tape, params(), result(text("hi")))
    tape.close()
    assert "hi" == replayed_text(path, params())


@pytest.mark.skipif(sys.platform == "win32", reason="flock")
def test_two_processes_do_not_share_a_tape(tape: Cassette, path: Path) -> None:
    with pytest.raises(Unavailable, match="another process"):
        Cassette.open(path)


def test_a_folder_is_no_tape(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be written"):
        Cassette.open(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full")
def test_a_full_disk_is_told_once_and_costs_nothing_else(path: Path) -> None:
    warned: list[str] = []
    tape = Cassette.open(path, warn=lambda event, **fields: warned.append(f"{event}: {fields['why']}"))
    model(tape, params("one"), result(text("hi")))
    whole = path.read_text()
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, tape._fd)
    os.close(full)
    for number in range(3):
        model(tape, params(f"another {number}"), result(text("hi")))

    assert [True] == ["tape.left_out" in one for one in warned]
    assert (1, 3, whole) == (tape.cases, tape.left_out, path.read_text())


@pytest.mark.parametrize(
    "what",
    [
        b"{",
        b"[]",
        b'{"a": 1, "a": 2}',
        b'{"content": 5}',
        b'{"action": "think"}',
        b'{"content": [{"type": "odd"}]}',
        b"",
    ],
)
def test_what_no_script_can_say_is_left_out(tape: Cassette, path: Path, what: bytes) -> None:
    model(tape, params(), what)
    assert (1, "") == (tape.left_out, path.read_text())


def test_the_end_says_how_to_use_it(tape: Cassette, path: Path, tmp_path: Path) -> None:
    model(tape, params(), result(text("hi")))
    client(tape, form(confirm="boolean").params, {"action": "decline"})

    head, models, rules = tape.summary(tmp_path)
    assert f"recorded 2 cases in {path}; to answer from it, add --record-mode replay, or to the policy:" == head
    assert '{name: recorded, model: scripted, cases: "tape.yaml"}' in models
    assert '{name: recorded answers, match: {kind: elicitation}, effect: answer, cases: "tape.yaml"}' in rules
    assert str(path) in tape.summary(tmp_path / "elsewhere")[1]


def test_without_a_case_the_end_says_so(tape: Cassette, path: Path) -> None:
    assert [f"recorded no new cases in {path}"] == tape.summary(path.parent)


def test_what_was_asked_stands_in_it_only_as_a_short_comment_without_anything_harmful(
    tape: Cassette, path: Path
) -> None:
    model(tape, params("Classify\n- answer: 'me'\x1b[2J \u202e" + "long " * 100), result(text("hi")))

    comment = path.read_text().splitlines()[1]
    assert comment.startswith("# Classify - answer: me 2J long long")
    assert len(comment) <= 62


def test_the_end_says_that_sampling_which_the_client_answered_wants_an_allow(tape: Cassette, tmp_path: Path) -> None:
    tape.add(
        SAMPLING,
        params("by the client"),
        effect="forward",
        decided_by="client",
        result=result({"type": "text", "text": "x"}),
    )
    _, models = tape.summary(tmp_path)
    assert models.endswith(
        "# and `with: {models: [recorded]}` in an `allow` rule, in place of the rules that forward sampling"
    )
    tape.add(
        SAMPLING,
        params("by a model"),
        effect="allow",
        decided_by="policy",
        result=result({"type": "text", "text": "x"}),
    )
    both = "in the `allow` rules, and in one that replaces the rules that forward sampling"
    assert tape.summary(tmp_path)[1].endswith(f"# and `with: {{models: [recorded]}}` {both}")


def old_tape(path: Path) -> str:
    """Write a cassette with one case. Returns its text."""
    tape = Cassette.open(path)
    model(tape, params("old"), result(text("old")))
    tape.close()
    return path.read_text()


def files(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir())


def test_a_run_that_records_all_replaces_the_file_at_its_end(path: Path) -> None:
    before = old_tape(path)
    path.chmod(0o640)
    tape = Cassette.open(path, replace=True)
    model(tape, params("old"), result(text("new")))
    model(tape, params("more"), result(text("other")))
    assert before == path.read_text()
    lines = tape.finish(path.parent)

    assert lines[0].startswith(f"recorded 2 cases in {path}, in place of 1; to answer from it")
    assert ("new", "other", 2) == (
        replayed_text(path, params("old")),
        replayed_text(path, params("more")),
        parse(path.read_text(), file="f").size,
    )
    assert ["tape.yaml"] == files(path)
    assert 0o640 == stat.S_IMODE(path.stat().st_mode)
    with_more = Cassette.open(path)
    model(with_more, params("third"), result(text("third")))
    with_more.close()
    assert "third" == replayed_text(path, params("third"))


def test_a_run_that_records_all_and_gets_no_answer_leaves_the_file_alone(path: Path) -> None:
    before = old_tape(path)
    tape = Cassette.open(path, replace=True)
    client(tape, form(password="string").params, {"action": "accept", "content": {"password": "hunter2"}})
    assert [f"recorded no cases, 1 left out; {path} is unchanged"] == tape.finish(path.parent)
    assert (before, ["tape.yaml"]) == (path.read_text(), files(path))


def test_a_run_that_records_all_in_a_new_file_leaves_none_behind_without_answers(path: Path) -> None:
    Cassette.open(path, replace=True).finish(path.parent)
    assert [] == files(path)


def test_a_run_that_was_killed_leaves_the_old_file_and_the_next_one_succeeds(path: Path) -> None:
    before = old_tape(path)
    path.with_name(".tape.yaml.new").write_text("cases:\n- {text: lost, answer: lost}\n")
    tape = Cassette.open(path, replace=True)
    assert before == path.read_text()
    model(tape, params("one"), result(text("hi")))
    tape.finish(path.parent)
    assert (1, ["tape.yaml"]) == (parse(path.read_text(), file="f").size, files(path))


def test_cases_that_were_to_replace_a_file_are_dropped_if_the_run_did_not_end_as_it_should(path: Path) -> None:
    before = old_tape(path)
    tape = Cassette.open(path, replace=True)
    model(tape, params("one"), result(text("hi")))
    tape.close()
    tape.close()
    assert (before, ["tape.yaml"]) == (path.read_text(), files(path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full")
def test_new_cases_that_could_not_all_be_written_do_not_replace_the_old_ones(path: Path) -> None:
    before = old_tape(path)
    tape = Cassette.open(path, replace=True)
    model(tape, params("one"), result(text("hi")))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, tape._fd)
    os.close(full)
    model(tape, params("two"), result(text("hi")))
    (line,) = tape.finish(path.parent)
    assert line.startswith(f"recorded nothing; {path} is unchanged, because not all cases could be written: ")
    assert (before, ["tape.yaml"]) == (path.read_text(), files(path))


def test_a_link_stays_a_link_and_its_target_is_replaced(path: Path, tmp_path: Path) -> None:
    (tmp_path / "tapes").mkdir()
    target = tmp_path / "tapes" / "real.yaml"
    old_tape(target)
    path.symlink_to(target)
    tape = Cassette.open(path, replace=True)
    model(tape, params("one"), result(text("hi")))
    tape.finish(tmp_path)
    assert path.is_symlink()
    assert ("hi", ["real.yaml"]) == (replayed_text(target, params("one")), files(target))


def test_a_draft_that_is_a_link_to_another_file_is_not_written_through(path: Path, tmp_path: Path) -> None:
    old_tape(path)
    (tmp_path / "mine").write_text("mine")
    path.with_name(".tape.yaml.new").symlink_to(tmp_path / "mine")
    tape = Cassette.open(path, replace=True)
    model(tape, params("one"), result(text("hi")))
    tape.finish(tmp_path)
    assert "mine" == (tmp_path / "mine").read_text()
    assert not path.is_symlink()


def test_a_folder_in_the_place_of_the_draft_is_an_error_before_the_start(path: Path) -> None:
    before = old_tape(path)
    path.with_name(".tape.yaml.new").mkdir()
    with pytest.raises(Unavailable, match="the file for new cases, cannot be written"):
        Cassette.open(path, replace=True)
    assert before == path.read_text()


@pytest.mark.parametrize("there", ["version: 1\nrules: []\n", "just some text\n", "cases: []\n"])
def test_a_file_that_is_no_cassette_is_not_replaced(path: Path, there: str) -> None:
    path.write_text(there)
    with pytest.raises(Unavailable, match="is not a case file"):
        Cassette.open(path, replace=True)
    assert (there, ["tape.yaml"]) == (path.read_text(), files(path))


@pytest.mark.skipif(sys.platform == "win32", reason="flock")
@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_one_process_at_a_time_records(path: Path, first: bool, second: bool) -> None:
    tape = Cassette.open(path, replace=first)
    with pytest.raises(Unavailable, match="another process"):
        Cassette.open(path, replace=second)
    tape.close()


def test_a_recording_has_no_unused_cases(tape: Cassette) -> None:
    assert (0, False) == (tape.unused, tape.fails_if_unused)
