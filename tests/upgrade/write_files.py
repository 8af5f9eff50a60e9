"""Writes the files of a release for the tests: drives its real gates, and notes in ``manifest.json`` what its own
commands and SQL say of them.

    python -m tests.upgrade.write_files PYTHON tests/upgrade/vX.Y.Z

PYTHON is an interpreter in which that release is installed. In the folder lie the inputs already (policy, cases,
settings, keys); all else in it is written anew. Only the clock is ours: the gates believe that it is a day in November
2026, so the same script gives the same windows.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.paths import ROOT
from tests.upgrade.driving import (
    ASKED,
    DECIDED,
    Conversation,
    Hook,
    Samplegate,
    form,
    lasting,
    modern_call,
    outcome,
    room,
    rows,
    sample,
    text_of,
    until,
)

INPUTS: Final = ("policy.yaml", "cases.yaml", "settings.yaml", "hook.key", "seal.key")
FIRST_DAY: Final = "2026-11-20T09:00:00Z"
SECOND_DAY: Final = "2026-11-21T09:00:00Z"
LEFT: Final = "2026-11-21T10:00:00Z"
"""When the files are looked at: an hour later."""
TABLES: Final = {
    "limits.sqlite3": ("accounts", "slots"),
    "reviews.db": ("reviews", "review_events", "review_deliveries", "review_version"),
    "decisions.db": ("decisions", "samplegate_versions"),
}


def main() -> None:
    python, folder = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        gate = Samplegate(Path(scratch), python=python, path=None)
        for name in INPUTS:
            shutil.copy(folder / name, scratch)
        manifest: dict[str, Any] = {"version": gate.command("--version").out.split()[-1], "now": LEFT}
        days(gate)
        reviews(gate, manifest)
        webhooks(gate, manifest)
        logs(gate)
        tape(gate)
        sealed(gate, manifest)
        killed(gate)
        tidy(gate.folder)
        with tempfile.TemporaryDirectory() as others:  # looking changes files too
            copies = [
                Samplegate(shutil.copytree(scratch, Path(others, str(number))), python=python, path=None)
                for number in range(3)
            ]
            for copy in copies:
                copy.at(LEFT)
            look(copies[0], copies[1], copies[2], manifest)
        for old in folder.iterdir():
            if old.name not in INPUTS:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copytree(scratch, folder, dirs_exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8")
        check_traces(folder, Path(scratch))


# -- the state of gates that ended well
# --------------------------------------------------------------------------------------------------------


def days(gate: Samplegate) -> None:
    """Accounts of every kind of limit, in the state and the daily files of two days; a review that expires on the
    second."""
    gate.at(FIRST_DAY)
    with gate.run() as client:
        for text in (
            "counted by the month, first",
            "counted by words, yesterday",
            "denied, of course",
            "fails for the month? no: counted by the month",
        ):
            client.ask(sample(text))
        assert "answered" not in client.ask(ASKED["expired"]), "its request does not wait for a person"
        client.end()
    gate.at(SECOND_DAY)
    with gate.run() as client:
        asked = [
            "counted by the month, third",
            *(f"drawn from the bucket {number}" for number in range(3)),
            *(f"counted by words {number}" for number in range(2)),
            "read too much",
            "paid for",
            "for a slot",
        ]
        for text in asked:
            client.ask(sample(text))
        assert "error" in client.ask(sample("read too much, again")), "the limit is overdrawn"
        client.end()
    with gate.run(server="other") as client:
        client.ask(sample("counted by the month, of another server"))
        client.end()


def reviews(gate: Samplegate, manifest: dict[str, Any]) -> None:
    """One review in each state, of each kind. The manifest has their results by the text of the request."""
    named: dict[str, str] = manifest.setdefault("reviews", {})

    def opened(client: Conversation, name: str, *, waits: bool = False) -> str:
        """The review of this request. The request has ended, unless it still ``waits``."""
        if not waits:
            client.ask(ASKED[name])
        named[name] = until(
            lambda: next((one["id"] for one in gate.listed() if one["id"] not in named.values()), None), name
        )
        return named[name]

    def say(*words: str) -> None:
        assert 0 == gate.verdicts(words)[0].code

    with gate.run() as client:
        until(
            lambda: next((one for one in gate.listed() if one["state"] == "expired"), None),
            "the first day's review expires",
        )
        named["expired"] = gate.listed()[0]["id"]
        opened(client, "pending sampling")
        opened(client, "pending form")
        opened(client, "pending link")
        opened(client, "pending answer")
        say("approve", opened(client, "approved"))
        edited = opened(client, "approved with edits")
        say(
            "approve",
            edited,
            "--model",
            "large",
            "--max-tokens",
            "50",
            "--temperature",
            "0.5",
            "--system-prompt",
            "Be brief.",
        )
        say("answer", opened(client, "answered form"), "--accept", "confirm=yes", "reason=because")
        say("answer", opened(client, "answered sampling"), "--text", "written by ann")
        say("reject", opened(client, "rejected"), "--reason", "not today", "--tell-server")
        say("answer", opened(client, "accepted link"), "--accept")
        say("approve", opened(client, "released answer"))
        say("answer", opened(client, "used"), "--accept", "confirm=yes", "password=correct horse")
        assert "correct horse" == client.ask(ASKED["used"])["result"]["content"]["password"]
        client.end()
    with gate.run(server="patient") as client:
        client.begin_to_ask(ASKED["used while it waited"])
        say("approve", opened(client, "used while it waited", waits=True))
        assert "fine" == text_of(client.answer())
        client.begin_to_ask(ASKED["withdrawn"])
        id = opened(client, "withdrawn", waits=True)
        client.cancel()
        until(
            lambda: next((one for one in gate.listed() if one["id"] == id and one["state"] == "withdrawn"), None),
            "it is withdrawn",
        )
        client.process.terminate()
        client.end()


def webhooks(gate: Samplegate, manifest: dict[str, Any]) -> None:
    """The outbox: a message that was delivered, and one that will be retried."""
    hook = Hook()
    gate.more = {"HOOK_URL": hook.url}
    with gate.run() as client:
        client.ask(form("reviewers are told, and it arrives"))
        hook.messages(1)
        until(lambda: settled(gate, "done"), "it is noted as delivered")
        hook.status = 503
        client.ask(form("reviewers are told, and it does not arrive"))
        hook.messages(2)
        until(lambda: settled(gate, "waiting", tries=1), "it is noted as to be tried again")
        client.process.kill()  # it would be retried once more meanwhile
        client.end()
    hook.close()
    gate.more = {}
    manifest["deliveries"] = [headers["webhook-id"] for headers in hook.came[:2]]
    with gate.run() as client:  # so that the end is a clean one
        client.end()


def settled(gate: Samplegate, state: str, *, tries: int = 0) -> tuple[Any, ...] | None:
    with contextlib.closing(sqlite3.connect(gate.folder / "state" / "reviews.db")) as db:
        found: tuple[Any, ...] | None = db.execute(
            "SELECT id FROM review_deliveries WHERE state = ? AND tries >= ? AND event = 'review.opened' AND"
            " held_until = 0",
            (state, tries),
        ).fetchone()
        return found


# -- logs, a tape, a call that was put off
# -------------------------------------------------------------------------------------------------------


def logs(gate: Samplegate) -> None:
    """A log with contents, rotated by size, and one in SQLite."""
    gate.at(SECOND_DAY)
    for log, more in (
        ("logs/audit.jsonl", {"SAMPLEGATE_DECISION_LOG_MAX_BYTES": "4000"}),
        ("sqlite:logs/decisions.db", {}),
    ):
        gate.more = {"SAMPLEGATE_RECORD_CONTENT": "full", **more}
        with gate.run("--decision-log", log, state="scratch") as client:
            say_something(client)
            client.end()
    gate.more = {}


def say_something(client: Conversation) -> None:
    """Make requests of each outcome."""
    for number in range(3):
        client.ask(sample(f"counted by the month, {number} — 面"))
        client.ask(sample(f"paid for, {number}"))
    client.ask(sample("fails, for it is on the tape"))
    client.ask(sample("denied"))
    client.ask(sample("nothing fits this"))
    client.ask(form("the client fills in this"))
    client.ask(form("a person fills in this, but not soon"))


def tape(gate: Samplegate) -> None:
    """The cassette: answers of models and of a client."""
    with gate.run("--record", "tape.yaml", "--decision-log", "none", state="scratch") as client:
        for text in ("on the tape, first", "on the tape, second", "fails, on the tape"):
            client.ask(sample(text))
        client.ask(form("the client fills in what is recorded"))
        client.end()


def sealed(gate: Samplegate, manifest: dict[str, Any]) -> None:
    """A modern client's call that is at its client. Its request state is sealed with the key of the settings."""
    asked = {"name": "do", "arguments": {"ask": form("the client fills in what is sealed")}}
    manifest["sealed"] = {"call": asked, "result": asyncio.run(modern_call(gate, asked))["result"]}


# -- the state of gates that were killed
# -----------------------------------------------------------------------------------------------------------


def killed(gate: Samplegate) -> None:
    """A process that holds a slot and a reservation at its upper bound, one with a pending review and a message in
    delivery, and one with a log in SQLite."""
    gate.at(SECOND_DAY)
    hook = Hook()
    hook.status = None
    gate.more = {"HOOK_URL": hook.url}
    with gate.run(server="patient", state="killed") as first, gate.run(server="patient", state="killed") as second:
        for text in ("counted by the month", "paid for", "drawn from the bucket"):
            first.ask(sample(text))
        first.begin_to_ask(sample("for a slot until it is killed"))
        until(lambda: rows(gate.folder / "killed" / "limits.sqlite3", "slots") or None, "it has its slot")
        second.begin_to_ask(form("reviewers are told, and it was killed meanwhile"))
        hook.messages(1)
        second.kill()
        first.kill()
    hook.close()
    gate.more = {"SAMPLEGATE_RECORD_CONTENT": "full"}
    with gate.run("--decision-log", "sqlite:logs/killed.db", state="scratch") as client:
        client.ask(sample("counted by the month, before it was killed — 面"))
        client.ask(sample("denied"))
        client.kill()
    gate.more = {}


def tidy(folder: Path) -> None:
    """Remove the scratch state, and the -shm files that SQLite recreates."""
    shutil.rmtree(folder / "scratch")
    shutil.rmtree(folder / "daemon", ignore_errors=True)
    for path in folder.rglob("*-shm"):
        path.unlink()


# -- what is in them
# ----------------------------------------------------------------------------------------------------------------------


def look(gate: Samplegate, drawn: Samplegate, asked: Samplegate, manifest: dict[str, Any]) -> None:
    """The output of the release's own commands, and the rows of the tables. ``drawn`` also finds the room of the
    limits, and ``asked`` the answers of verdicts."""
    logs = {
        "daily": "state/decisions",
        "turned over": "logs/audit.jsonl",
        "sqlite": "sqlite:logs/decisions.db",
        "killed": "sqlite:logs/killed.db",
    }
    manifest["logs"] = logs
    manifest["report"] = dict(
        zip(logs, gate.told(*(["report", "--log", log, "--json"] for log in logs.values())), strict=True)
    )
    replays = (["replay", "--log", log, "--policy", "policy.yaml", "--json"] for log in logs.values())
    manifest["replay"] = dict(zip(logs, gate.told(*replays), strict=True))
    manifest["listed"] = {state: gate.listed(state) for state in ("state", "killed")}
    shown = (
        ["reviews", "show", one["id"], "--state", state, "--json"]
        for state, found in manifest["listed"].items()
        for one in found
    )
    manifest["shown"] = {one["id"]: lasting(one) for one in gate.told(*shown)}
    manifest["room"] = {"state": room(drawn, "state"), "killed": room(drawn, "killed", "patient")}
    with asked.run("--decision-log", "none") as client:
        manifest["answers"] = {name: outcome(client.ask(ASKED[name])) for name in DECIDED}
        client.end()
    manifest["tables"] = {
        path.relative_to(gate.folder).as_posix(): {table: rows(path, table) for table in tables_of(path)}
        for path in sorted(gate.folder.rglob("*"))
        if path.suffix in {".db", ".sqlite3"}
    }


def tables_of(path: Path) -> tuple[str, ...]:
    return TABLES.get(path.name, TABLES["decisions.db"])


def check_traces(folder: Path, scratch: Path) -> None:
    """Check that no file names the machine or the user that wrote it."""
    traces = {socket.gethostname(), getpass.getuser(), str(ROOT), str(scratch), str(Path.home()), sys.prefix}
    plain = {trace.encode() for trace in traces if len(trace) > 3}
    found = [
        (path.name, trace)
        for path in folder.rglob("*")
        if path.is_file()
        for trace in plain
        if trace in path.read_bytes()
    ]
    assert not found, found
    print(subprocess.run(["du", "-ab", str(folder)], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    os.umask(0o077)
    main()
