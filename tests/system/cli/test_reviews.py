"""`samplegate reviews` on a real store that another connection holds open, as a gate does. Some tests start the command
as a process."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from samplegate.cli.main import main
from samplegate.cli.reviews import watch
from samplegate.reviews.review import Conflict, Edits, Filter, Review, Verdict
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes import reviews as made
from tests.fakes.review_store import TimedReviews
from tests.fakes.shell import Ended
from tests.paths import ROOT

ENVIRONMENT: Final = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT / "proxy"),
    "USER": "ann",
    "HOME": "/nowhere",
    "PYTHONUTF8": "1",
}
Command = Callable[..., Ended]


@pytest.fixture
def store(tmp_path: Path, empty_store: Callable[[Path], str]) -> Iterator[TimedReviews]:
    kept = TimedReviews(empty_store(tmp_path))
    kept.last_change()
    yield kept
    kept.close()


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in process, because starting one takes a second."""

    def run(*arguments: str, stdin: str = "", **environment: str) -> Ended:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            for name, value in {"USER": "ann", "SAMPLEGATE_STATE": str(tmp_path), **environment}.items():
                patch.setenv(name, value)
            try:
                code: Any = main(["reviews", *arguments])
            except SystemExit as left:
                code = left.code
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def process(tmp_path: Path) -> Command:
    """The command as a process."""

    def run(*arguments: str, stdin: str = "", **environment: str) -> Ended:
        line = [sys.executable, "-m", "samplegate", "reviews", *arguments]
        settings = {**ENVIRONMENT, "SAMPLEGATE_STATE": str(tmp_path), **environment}
        done = subprocess.run(
            line,
            cwd=tmp_path,
            env=settings,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=50,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


def put(store: TimedReviews, review: Review, id: str = "aaa", **values: Any) -> str:
    """Open a review that has been pending since a moment, and expires after a quarter of an hour."""
    now = time.time()
    whole = replace(review, **{"id": f"rv_{id}".ljust(27, "x"), "created": now - 5, "expires": now + 900, **values})
    assert store.at(whole.created).open(whole, announce=False, most=99)
    store.at(time.time())
    return whole.id


def verdict(store: TimedReviews, id: str) -> Verdict | None:
    found = store.get(id)
    assert found is not None
    return found.verdict


FORM: Final = made.form(
    ["port"],
    port={"type": "integer", "minimum": 1, "maximum": 65535, "title": "Port"},
    ratio="number",
    sure="boolean",
    color={"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
    tags={
        "type": "array",
        "items": {"anyOf": [{"const": "a", "title": "Ay"}, {"const": "b", "title": "Be"}]},
        "minItems": 1,
    },
    password="string",
)


def test_what_waits_is_listed_oldest_first(store: TimedReviews, reviews: Command) -> None:
    put(store, made.review(), "aaa")
    put(store, made.form(a="string"), "bbb", created=time.time())
    put(store, made.review(), "ccc", expires=time.time() - 1)
    put(store, made.review(), "ddd")
    store.decide("rv_ddd".ljust(27, "x"), Verdict(word="approve"), who="bob", door="page")
    ended = reviews("list")
    head, *rows = ended.out.splitlines()
    assert (0, "") == (ended.code, ended.err)
    assert ["id", "age", "request expires", "review expires", "reviewer", "server", "kind", "request"] == re.split(
        " {2,}", head
    )
    assert ["rv_aaaxxxxx", "rv_bbbxxxxx"] == [row.split()[0] for row in rows]
    assert rows[0].endswith("sampling  purge: Classify this")
    assert rows[1].endswith("form      purge: Really delete?")


def test_a_list_says_how_long_the_request_waits_beside_how_long_a_verdict_is_taken(
    store: TimedReviews, reviews: Command
) -> None:
    now = time.time()
    put(store, made.review(), "aaa", created=now - 9, answers_until=now + 600)
    put(store, made.review(), "bbb", created=now - 8, answers_until=now - 1)
    put(store, made.review(), "ccc", created=now - 7)
    put(store, made.review(), "ddd", created=now - 6, answers_until=now + 600)
    store.decide("rv_ddd".ljust(27, "x"), Verdict(word="approve"), who="bob", door="page")
    rows = [[cell.strip() for cell in re.split(r"  +", row)] for row in reviews("list", "--all").out.splitlines()[1:]]
    assert {
        "rv_aaaxxxxx": ["9 min", "14 min"],
        "rv_bbbxxxxx": ["-", "14 min"],
        "rv_cccxxxxx": ["14 min"] * 2,
        "rv_dddxxxxx": ["-", "approved"],
    } == {row[0]: row[2:4] for row in rows}


def test_what_has_run_out_hides_nothing_that_waits(store: TimedReviews, reviews: Command) -> None:
    for n in range(7):
        put(store, made.review(), f"a{n}", created=time.time() - 90 + n, expires=time.time() - 1)
    for n in range(3):
        put(store, made.review(), f"b{n}", created=time.time() - 20 + n)
    lines = reviews("list", "--limit", "2").out.splitlines()
    assert ["rv_b0xxxxxx", "rv_b1xxxxxx", "only"] == [line.split()[0] for line in lines[1:]]
    assert "only the oldest 2 are shown; use --limit to show more" == lines[-1]


def test_lists_take_filters_and_are_json_for_programs(store: TimedReviews, reviews: Command) -> None:
    for id in ("aaa", "bbb"):
        put(store, made.review(reviewer="ops" if id == "aaa" else "dba"), id)
    put(store, made.review(), "ccc", expires=time.time() - 1)
    found = json.loads(reviews("list", "--all", "--reviewer", "ops", "--json").out)
    assert {"rv_aaa": "pending", "rv_ccc": "expired"} == {one["id"].rstrip("x"): one["state"] for one in found}
    assert not any("request" in one for one in found)
    assert [] == json.loads(reviews("list", "--state-of", "withdrawn", "--json").out)
    assert reviews("list", "--all", "--limit", "1").out.endswith(
        "only the newest 1 are shown; use --limit to show more\n"
    )
    assert "no pending reviews\n" == reviews("list", "--server", "other").out


def test_a_sampling_request_is_shown_with_all_that_a_person_needs(store: TimedReviews, reviews: Command) -> None:
    picture = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
    params = {
        "messages": [made.said("Classify this"), made.said("Sure", "assistant"), {"role": "user", "content": picture}],
        "maxTokens": 200,
    }
    until = time.time() + 60
    put(store, made.review(params=params, worst_usd=2 * 10**12, waiter="w"), answers_until=until, held_until=until)
    shown = reviews("show", "aaa").out
    for text in (
        "from       server docs, for caller local, during tools/call purge",
        "reviewer   ops (rule a person decides)",
        "expires    in 14 min, at ",
        "applies to the waiting request for ",
        "after that, the next identical request, once, within 60 min of the decision",
        "digest     " + made.DIGEST,
        '  |     "ticket": "T-1"',
        "message 2 of 3 (assistant):\n  | Sure",
        '  |   "bytes": 5',
        "settings: maxTokens 200",
        "model smart (up to 500 tokens)",
    ):
        assert text in shown
    assert "aGVsbG8=" not in shown
    assert params == json.loads(reviews("show", "rv_aaa", "--json").out)["request"]


def test_a_form_is_shown_with_its_constraints(store: TimedReviews, reviews: Command) -> None:
    put(store, FORM)
    shown = reviews("show", "aaa").out
    for text in (
        "port (integer, required)",
        "constraints: at least 1, at most 65535",
        "- g: Green",
        "- b: Be",
        "password (string, looks like a secret)",
    ):
        assert f"  | {text}" in shown or f"  |     {text}" in shown


def test_a_field_is_shown_with_all_that_a_person_needs_to_fill_it_in(store: TimedReviews, reviews: Command) -> None:
    many = [f"c{n}" for n in range(45)]
    put(
        store,
        made.form(
            ["e"],
            e={"type": "string", "enum": many, "title": "Which", "description": "One of many", "default": "c1"},
            m={"type": "array", "items": {"type": "string", "enum": ["p", "q"]}, "default": ["p", "q"]},
            b={"type": "boolean", "default": True},
            s={"type": "string", "format": "email", "pattern": "^a", "minLength": 2, "maxLength": 9},
            token={"type": "string", "default": "hunter2"},
        ),
    )
    shown = reviews("show", "aaa").out
    for text in (
        (
            "e (single choice, required)\n  |     title: Which\n  |     description: One of many\n  |     default: c1\n"
            "  |     - c0\n"
        ),
        "    - c29\n  |     and 15 more\n",
        "m (multiple choice)\n  |     default: p, q\n  |     - p\n  |     - q\n",
        "b (boolean)\n  |     default: true\n",
        "s (string)\n  |     constraints: min length 2, max length 9, format email, pattern ^a\n",
        "token (string, looks like a secret)\n",
    ):
        assert f"  | {text}" in shown
    assert "c30" not in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("pairs", "tags"),
    [
        (["m=p,q"], ["p", "q"]),
        (["m=p, q"], ["p", "q"]),
        (["m=x,y"], ["x,y"]),
        (["m=p,q", "m=x,y"], ["p", "q", "x,y"]),
        (["m="], []),
    ],
)
def test_a_list_is_typed_with_commas_or_again(
    store: TimedReviews, reviews: Command, pairs: list[str], tags: list[str]
) -> None:
    id = put(store, made.form([], m={"type": "array", "items": {"type": "string", "enum": ["p", "q", "x,y"]}}))
    assert 0 == reviews("answer", "aaa", "--accept", *pairs).code
    assert Verdict(word="answer", result={"action": "accept", "content": {"m": tags}}) == verdict(store, id)


def test_how_lists_and_booleans_are_written_is_told(reviews: Command) -> None:
    told = " ".join(reviews("answer", "--help").out.split())
    assert "list: m=p,q or m=p m=q" in told
    assert "boolean: b=yes or b=no" in told


def test_an_address_is_shown_with_its_host_apart_and_what_to_beware_of(store: TimedReviews, reviews: Command) -> None:
    put(store, made.address("https://xn--pypal-4ve.com/in?state=xyz"))
    shown = reviews("show", "aaa").out
    assert "host: xn--pypal-4ve.com\n  displayed as: pаypal.com\n  WARNING: " in shown
    assert "  | https://xn--pypal-4ve.com/in?state=xyz\n" in shown
    assert 1 == shown.count("reviewers are not that user")


@pytest.mark.parametrize(
    "hostile", ["\x1b]0;owned\x07\x1b[2J", "\u202etxt.exe", "a\rreview rv_b: approved", "\ud800", "\x9b31m", "\u2028x"]
)
def test_nothing_that_a_server_says_drives_the_terminal(store: TimedReviews, reviews: Command, hostile: str) -> None:
    put(
        store,
        made.form(
            None,
            **{
                hostile: {
                    "type": "string",
                    "title": hostile,
                    "description": hostile,
                    "default": hostile,
                    "enum": [hostile],
                }
            },
        ),
        "aaa",
    )
    put(
        store,
        made.review(
            params={"messages": [made.said(hostile)], "systemPrompt": hostile, "x": hostile},
            arguments={hostile: hostile},
        ),
        "bbb",
    )
    put(
        store,
        made.address(f"https://e.com/{hostile}"),
        "ccc",
        server=hostile,
        reviewer=hostile,
        caller=hostile,
        rule=hostile,
    )
    ended = [reviews("show", id) for id in ("aaa", "bbb", "ccc")] + [reviews("list")]
    assert [0] * 4 == [one.code for one in ended]
    text = "".join(one.out + one.err for one in ended).replace("\n", "")
    assert text.isprintable()


def test_lines_of_a_server_never_pass_for_lines_of_ours(store: TimedReviews, process: Command) -> None:
    put(store, made.review(params={"messages": [made.said("hello\nreview rv_b: approved\r\n  digest     sha256:0")]}))
    assert {"  | review rv_b: approved", "  |   digest     sha256:0"} <= set(process("show", "aaa").out.splitlines())


def test_an_approval_is_recorded_with_its_edits_and_who_and_by_what_door(
    store: TimedReviews, process: Command, tmp_path: Path
) -> None:
    id = put(store, made.review())
    (tmp_path / "messages.json").write_text(json.dumps([made.said("Classify that")]), "utf-8")
    ended = process(
        "approve",
        "aaa",
        "--model",
        "cheap",
        "--max-tokens",
        "90",
        "--temperature",
        "0.1",
        "--messages",
        "messages.json",
    )
    assert (0, "") == (ended.code, ended.err)
    assert ended.out.startswith(
        f"approved {id}: docs, purge: Classify this\nno request is waiting; the next identical request gets this"
        " decision"
    )
    found = store.get(id)
    assert found is not None
    assert ("approved", "ann", "cli") == (found.state, found.who, found.door)
    edits = Edits(messages=(made.said("Classify that"),), model="cheap", max_tokens=90, temperature=0.1)
    assert Verdict(word="approve", edits=edits) == found.verdict


def test_who_waits_gets_it(store: TimedReviews, reviews: Command) -> None:
    id = put(store, made.review(), waiter="w", held_until=time.time() + 60)
    ended = reviews("approve", "aaa", "--as", "bob")
    assert ended.out.endswith("the waiting request now gets this decision\n")
    found = store.seek(made.DIGEST, stage="request", waiter="w", seconds=5)
    assert found is not None
    assert (id, "bob", Verdict(word="approve")) == (found.id, found.who, found.verdict)


def test_a_second_verdict_is_told_of_the_first_and_changes_nothing(store: TimedReviews, process: Command) -> None:
    id = put(store, made.review())
    assert 0 == process("reject", "aaa", "--reason", "not now", "--tell-server").code
    ended = process("approve", "aaa", "--as", "bob")
    assert (1, "") == (ended.code, ended.out)
    assert f"{id}: already rejected by ann (cli) at " in ended.err
    assert Verdict(word="reject", reason="not now", tell_server=True) == verdict(store, id)


def test_a_verdict_after_its_time_is_refused(store: TimedReviews, reviews: Command) -> None:
    id = put(store, made.review(), expires=time.time() - 1)
    ended = reviews("approve", "aaa")
    assert 1 == ended.code
    assert f"{id}: already expired at " in ended.err
    assert None is verdict(store, id)


def test_edits_beyond_a_bound_are_problems_at_their_fields(store: TimedReviews, reviews: Command) -> None:
    id = put(store, made.review())
    ended = reviews("approve", "aaa", "--model", "huge", "--max-tokens", "501")
    assert 1 == ended.code
    assert [
        f"samplegate: {id}: edits.model: must be one of smart, cheap",
        f"samplegate: {id}: edits.maxTokens: must be from 1 to 500, the limit of model smart",
    ] == ended.err.splitlines()
    assert None is verdict(store, id)


def test_another_digest_than_was_seen_is_refused(store: TimedReviews, reviews: Command) -> None:
    id = put(store, made.review())
    ended = reviews("approve", "aaa", "--digest", "sha256:" + "cd" * 32)
    assert (1, None) == (ended.code, verdict(store, id))
    assert "digest: does not match this review" in ended.err
    assert 0 == reviews("approve", "aaa", "--digest", made.DIGEST).code


def test_a_form_is_filled_in_with_the_types_that_it_asks_for(store: TimedReviews, reviews: Command) -> None:
    id = put(store, FORM)
    pairs = ["port=443", "ratio=0.5", "sure=yes", "color=g", "tags=a", "tags=b", "password=a=b"]
    assert 0 == reviews("answer", "aaa", "--accept", *pairs).code
    content = {"port": 443, "ratio": 0.5, "sure": True, "color": "g", "tags": ["a", "b"], "password": "a=b"}
    assert Verdict(word="answer", result={"action": "accept", "content": content}) == verdict(store, id)
    assert '"password": "[secret]"' in reviews("show", "aaa").out


def test_what_does_not_fit_the_form_is_told_at_its_field_and_can_be_mended(
    store: TimedReviews, reviews: Command
) -> None:
    id = put(store, FORM)
    ended = reviews("answer", "aaa", "--accept", "port=http", "color=blue", "colour=r", "sure=maybe")
    assert (1, None) == (ended.code, verdict(store, id))
    for field in ("content.port", "content.color", "content.colour", "content.sure"):
        assert f"samplegate: {id}: {field}: " in ended.err.replace("'colour'", "colour")
    assert 0 == reviews("answer", "aaa", "--json", "-", stdin='{"port": 80}').code
    assert Verdict(word="answer", result={"action": "accept", "content": {"port": 80}}) == verdict(store, id)


@pytest.mark.parametrize(
    ("review", "arguments", "result"),
    [
        (FORM, ["--decline"], {"action": "decline"}),
        (FORM, ["--cancel"], {"action": "cancel"}),
        (made.address(), ["--accept"], {"action": "accept"}),
    ],
)
def test_an_elicitation_may_be_declined_cancelled_or_accepted(
    store: TimedReviews, reviews: Command, review: Review, arguments: list[str], result: dict[str, Any]
) -> None:
    id = put(store, review)
    assert 0 == reviews("answer", "aaa", *arguments).code
    assert Verdict(word="answer", result=result) == verdict(store, id)


def test_sampling_is_answered_with_a_text(store: TimedReviews, reviews: Command) -> None:
    id = put(store, made.review())
    assert 0 == reviews("answer", "aaa", "--text", "It is spam").code
    found = verdict(store, id)
    assert found is not None
    assert found.result is not None
    assert ("assistant", made.text("It is spam")) == (found.result["role"], found.result["content"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["approve", "zzz"], "reviews: no review matches 'zzz'; list all with: samplegate reviews list --all"),
        (
            ["approve", "a"],
            "reviews: 'a' matches rv_aaaxxxxxxxxxxxxxxxxxxxxx, rv_abbxxxxxxxxxxxxxxxxxxxxx; use a longer prefix",
        ),
        (
            ["answer", "aaa", "--accept", "port=1"],
            "--accept: not allowed for a sampling request; answer it with --text or --json",
        ),
        (["answer", "abb", "--accept", "port"], "--accept: expected name=value, got 'port'"),
        (["answer", "abb", "--accept", "port=1", "port=2"], "--accept: field 'port' is repeated; pass it once"),
        (["answer", "abb", "--json", "missing.json"], "missing.json: cannot be read: no such file or directory"),
        (["answer", "abb", "--json", "-"], "--json: stdin: "),
        (["answer", "abb"], "one of the arguments --accept --json --text --decline --cancel is required"),
        (
            ["show", "aaa", "--store", "sqlite:gone.db"],
            "review store gone.db: it does not exist; pass the gate's store with --store",
        ),
        (["list", "--store", "postgresql://u:hunter2@h/d"], "--store: "),
        (["list", "--settings", "gone.yaml"], "gone.yaml"),
        (["list", "--limit", "0"], "argument --limit: expected a number from 1 to 999, got '0'"),
    ],
)
def test_wrong_usage_leaves_with_two_and_says_why(
    store: TimedReviews, reviews: Command, arguments: list[str], says: str
) -> None:
    put(store, made.review(), "aaa")
    put(store, FORM, "abb")
    ended = reviews(*arguments)
    assert (2, "") == (ended.code, ended.out)
    assert says in ended.err
    assert "hunter2" not in ended.err
    assert ["pending", "pending"] == [one.state for one in store.list(Filter())]


def test_the_store_is_named_by_the_line_the_variable_or_the_settings_of_serve(
    store: TimedReviews, reviews: Command, tmp_path: Path
) -> None:
    put(store, made.review())
    url = f"sqlite:{tmp_path / 'reviews.db'}"
    (tmp_path / "serve.yaml").write_text(
        f"store: {url}\nlisten: 127.0.0.1:8080\nservers:\n  db: {{command: [x]}}\n", "utf-8"
    )
    elsewhere = {"SAMPLEGATE_STATE": "/nowhere"}
    for given, variables in (
        (["--store", url], elsewhere),
        (["--state", str(tmp_path)], elsewhere),
        ([], {**elsewhere, "SAMPLEGATE_STORE": url}),
        (["--settings", "serve.yaml"], elsewhere),
    ):
        ended = reviews("list", *given, **variables)
        assert (0, 2) == (ended.code, len(ended.out.splitlines())), ended.err


def test_no_content_reaches_stderr(store: TimedReviews, reviews: Command) -> None:
    put(store, made.form(a={"type": "integer"}, b={"type": "string", "format": "email"}))
    ended = reviews("answer", "aaa", "--accept", "a=hunter2", "b=hunter2")
    assert 1 == ended.code
    assert "hunter2" not in ended.err


def test_a_terminal_without_unicode_is_shown_all_the_same(store: TimedReviews, process: Command) -> None:
    put(store, made.review(params={"messages": [made.said("naïve 日本")]}))
    ended = process("show", "aaa", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert 0 == ended.code
    assert "na\\xefve \\u65e5\\u672c" in ended.out


def test_a_watcher_sees_what_waits_what_comes_and_what_becomes_of_it(store: TimedReviews, tmp_path: Path) -> None:
    first = put(store, made.review(), "aaa")
    put(store, made.review(reviewer="dba"), "ddd")
    line = [sys.executable, "-u", "-m", "samplegate", "reviews", "watch", "--reviewer", "ops", "--json"]
    environment = {**ENVIRONMENT, "SAMPLEGATE_STATE": str(tmp_path)}
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, encoding="utf-8") as watcher:
        alarm = threading.Timer(40, watcher.kill)
        alarm.start()
        assert watcher.stdout is not None

        def seen() -> tuple[str, str]:
            assert watcher.stdout is not None
            told = json.loads(watcher.stdout.readline())
            return (told["event"] or {"what": "pending"})["what"], told["review"]["id"][:11]

        assert ("pending", first[:11]) == seen()
        second = put(store, made.form(a="string"), "bbb")
        assert ("opened", second[:11]) == seen()
        store.decide(second, Verdict(word="reject"), who="bob", door="page")
        assert ("rejected", second[:11]) == seen()
        watcher.send_signal(signal.SIGINT)
        assert 130 == watcher.wait(20)
        alarm.cancel()


def test_commands_and_a_gate_that_race_have_one_winner(store: TimedReviews, process: Command) -> None:
    id = put(store, made.review())
    codes: list[int] = []
    racers = [threading.Thread(target=lambda: codes.append(process("approve", "aaa").code)) for _ in range(4)]
    for racer in racers:
        racer.start()
    mine = store.decide(id, Verdict(word="reject"), who="bob", door="page")
    for racer in racers:
        racer.join(50)
    assert sorted([isinstance(mine, Conflict), *map(bool, codes)]) == [False, True, True, True, True]


def test_a_watcher_goes_on_when_the_store_comes_back(
    store: TimedReviews, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, made.review(), "aaa")
    path = tmp_path / "reviews.db"
    steps: list[Callable[[], object]] = [
        lambda: path.rename(tmp_path / "away.db"),
        lambda: None,
        lambda: (tmp_path / "away.db").rename(path),
        lambda: put(store, made.review(), "bbb"),
    ]

    def pause(_seconds: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    watched = SqlReviewStore(f"sqlite:{path}", make=False)
    with pytest.raises(KeyboardInterrupt):
        watch(watched, None, json_lines=False, pause=pause)
    watched.close()
    out, err = capsys.readouterr()
    assert [["pending", "rv_aaaxxxxx"], ["opened", "rv_bbbxxxxx"]] == [line.split()[:2] for line in out.splitlines()]
    assert 1 == len(err.splitlines())
    assert "retrying" in err


def test_a_store_is_found_without_a_home_folder(store: TimedReviews, process: Command, tmp_path: Path) -> None:
    put(store, made.review())
    ended = process("list", "--store", f"sqlite:{tmp_path / 'reviews.db'}", SAMPLEGATE_STATE="", HOME="")
    assert (0, "") == (ended.code, ended.err)


def test_what_was_said_of_it_so_far_is_shown_with_who_said_it(store: TimedReviews, reviews: Command) -> None:
    put(store, made.review())
    assert 0 == reviews("reject", "aaa", "--as", "ann").code
    shown = reviews("show", "aaa").out.split("history:\n")[1]
    assert [" opened", " rejected by ann (cli)"] == [
        line[len("  2027-01-15 08:00:00 UTC ") :] for line in shown.splitlines()
    ]
