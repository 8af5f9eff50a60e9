"""The output of `samplegate reviews` for one store at one moment, word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from msgspec.structs import replace

from samplegate.reviews.review import Edits, Review, ReviewUi, Unsent, Verdict
from tests.fakes import reviews as made
from tests.fakes.review_store import TimedReviews
from tests.fakes.reviews import NOW
from tests.fakes.shell import Run
from tests.fakes.stored_reviews import APP, READY

TABLE: Final[dict[str, str]] = yaml.safe_load(Path(__file__).with_name("reviews_printed.yaml").read_text("utf-8"))

PICTURE: Final = {
    "role": "user",
    "content": [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}, made.text("a\x1b[31m\u202eb")],
}
FORM: Final = made.form(
    ["port"],
    port={"type": "integer", "minimum": 1, "maximum": 65535, "title": "Port", "description": "Where\nit listens"},
    tags={"type": "array", "items": {"type": "string", "enum": ["p", "q, r"]}, "minItems": 1},
    password="string",
)
REVIEWS: Final[dict[str, Review]] = {
    "asks": made.review(worst_usd=2 * 10**12, waiter="f" * 32 + "1", held_until=NOW + 9, answers_until=NOW + 60),
    "picture": made.review(
        params={"messages": [PICTURE, made.said("Sure", "assistant")], "maxTokens": 9, "stopSequences": ["x"]},
        calls=(),
        arguments=None,
        why="no model can be called",
        changed=("maxTokens",),
        unsent=(Unsent("tools", [{"name": "t"}], "left out"),),
        bounds=replace(made.BOUNDS, temperature_min=0.1, prepended="Be"),
    ),
    "form": FORM,
    "address": made.address(),
    "answer": made.model_answer(made.text("It is\nblue."), temperature=1),
    "nested": replace(
        made.form(),
        params={"message": "", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}},
    ),
    "over": made.review(expires=NOW + 1, late=0.0),
}


@pytest.fixture
def store(
    tmp_path: Path, empty_store: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[TimedReviews]:
    """Each of the table's reviews, some of them decided; two minutes later."""
    kept = TimedReviews(empty_store(tmp_path))
    for number, (name, review) in enumerate(REVIEWS.items()):
        asked = replace(review, id=_id(name), created=NOW + number / 10)
        assert kept.at(asked.created).open(asked, announce=False, most=99)
    approved = Verdict(word="approve", edits=Edits(max_tokens=5, system_prompt="Be\nbrief"))
    rejected = Verdict(word="reject", reason="not\x07now", tell_server=True)
    for name, verdict in (("picture", approved), ("answer", rejected)):
        assert isinstance(kept.at(NOW + 30).decide(_id(name), verdict, who="bob", door="page"), Review)
    monkeypatch.setattr("time.time", lambda: NOW + 120)
    monkeypatch.setenv("SAMPLEGATE_STATE", str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    yield kept
    kept.close()


def _id(name: str) -> str:
    return f"rv_{name}".ljust(27, "x")


@pytest.mark.parametrize("line", TABLE)
def test_what_is_printed_reads_as_before(line: str, store: TimedReviews, run: Run) -> None:
    ended = run("reviews", *line.split())
    assert TABLE[line] == printed(ended.code, ended.out, ended.err)


def printed(code: int, out: str, err: str) -> str:
    err = err.replace(str(Path.cwd()), "FOLDER")
    return "".join([f"{out}", *(f"stderr: {line}\n" for line in err.splitlines()), f"exit code {code}\n"])


def test_the_servers_ui_is_named_with_its_state_and_whether_it_was_shown(
    tmp_path: Path, empty_store: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    kept = TimedReviews(empty_store(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW + 120)
    monkeypatch.setenv("SAMPLEGATE_STATE", str(tmp_path))
    asked = replace(FORM, id=_id("ui"), created=NOW, ui=ReviewUi(uri="ui://x/\x1b[31my", dialect="rich"))
    assert kept.at(NOW).open(asked, announce=False, most=9)

    def said() -> list[str]:
        return [line.strip() for line in run("reviews", "show", _id("ui")).out.splitlines() if "ui" in line.lower()]

    assert r"ui         ui://x/\x1b[31my (being loaded)" in said()
    kept.at(NOW + 1).attach_ui(_id("ui"), replace(READY, uri=r"ui://x/y"), APP)
    assert f"ui         ui://x/y (the page shows it, {len(APP)} bytes, sha256:{READY.sha256})" in said()
    verdict = Verdict(word="answer", result={"action": "decline"}, ui=READY.sha256)
    assert isinstance(kept.at(NOW + 2).decide(_id("ui"), verdict, who="bob", door="page"), Review)
    assert f"the server's UI was shown (sha256:{READY.sha256})" in said()
    kept.close()


def test_a_servers_ui_that_came_too_late_is_not_being_loaded(
    tmp_path: Path, empty_store: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    kept = TimedReviews(empty_store(tmp_path))
    monkeypatch.setenv("SAMPLEGATE_STATE", str(tmp_path))
    asked = replace(FORM, id=_id("ui"), created=NOW, ui=ReviewUi(uri="ui://x/y", dialect="rich"))
    assert kept.at(NOW).open(asked, announce=False, most=9)
    verdict = Verdict(word="answer", result={"action": "decline"})
    assert isinstance(kept.at(NOW + 1).decide(_id("ui"), verdict, who="bob", door="page"), Review)
    assert "  ui         ui://x/y (not loaded)\n" in run("reviews", "show", _id("ui")).out
    kept.close()
