"""The status as text: what it shows, its width, and text of peers in it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from samplegate.status.snapshot import (
    MAX_LISTED,
    MAX_TEXT,
    CallStatus,
    GateStatus,
    LimitStatus,
    LogStatus,
    Overview,
    ReloadStatus,
    RequestStatus,
    ReviewerStatus,
    ReviewsStatus,
    ServerStatus,
    SessionStatus,
    WorkerStatus,
    as_json,
    listed,
    read_gate,
    shown,
)
from samplegate.status.table import _width, amount, gate_lines, lines, span

HOSTILE: Final = "\x1b[2J\u202eevil\nline ##[error] 数据库 " + "x" * 300


def gate(name: str = "docs", **more: Any) -> GateStatus:
    """A gate with one of everything, whose names are all ``name``."""
    text = shown(name)
    plain: dict[str, Any] = {
        "command": "serve",
        "instance": "i1",
        "pid": 4711,
        "version": "1.2.3",
        "uptime": 11_520.0,
        "state": "/var/lib/samplegate",
        "policy": "/etc/samplegate/policy.yaml",
        "policy_hash": "314aded0c5b7",
        "settings_hash": "4f646348499f",
        "servers": listed(
            [
                ServerStatus(name=text, state="backoff", restart_in=4.0, problem="its process died 3 times in a row"),
                ServerStatus(name="users", state="ready", protocol="2025-11-25", sessions=1, calls=2, requests=1),
            ]
        ),
        "sessions": listed(
            [
                SessionStatus(
                    id="350fcf43", server=text, caller=text, client=text, protocol="2025-11-25", age=70.0, calls=2,
                    requests=1,
                )
            ]
        ),
        "calls": listed(
            [CallStatus(server=text, caller=text, session="350fcf43", method="tools/call", tool=text, age=61.0)],
            300,
        ),
        "requests": listed(
            [
                RequestStatus(
                    decision_id="853a98b873bb698308bf8ac6",
                    server=text,
                    caller=text,
                    session="350fcf43",
                    tool=text,
                    kind="sampling",
                    rule="ask",
                    effect="escalate",
                    waits_for="reviewer",
                    name="ops",
                    age=6.0,
                    expires_in=49.0,
                )
            ]
        ),
        "limits": listed(
            [
                LimitStatus(
                    limit="daily", quantity="usd", per="day", key={"caller": text}, max=5.0, used=3.2, left=1.8,
                    resets_in=35_280.0, waiting=2, shared=True,
                )
            ]
        ),
        "reviews": ReviewsStatus(
            store="sqlite:/s/reviews.db",
            reviewers=(ReviewerStatus(reviewer="ops", pending=2, oldest_age=90.0, next_expires_in=810.0),),
        ),
        "workers": (
            WorkerStatus(state="ready", pid=77, calls=3),
            WorkerStatus(state="failed", problem="the worker exited with code 1", retry_in=8.0),
        ),
        "decision_log": LogStatus(path="/s/decisions/serve.jsonl", waiting=3, problem="the disk is full"),
        "reload": ReloadStatus(age=120.0, result="refused", problems=2),
    }  # fmt: skip
    return GateStatus(**{**plain, **more})


def overview(*gates: GateStatus, **more: Any) -> Overview:
    return Overview(time="2026-11-27T02:00:00.000Z", gates=gates, **more)


def test_everything_that_goes_on_is_there() -> None:
    assert [
        "serve 1.2.3: ready, pid 4711, up 3h12m",
        "  policy    /etc/samplegate/policy.yaml (314aded0c5b7)",
        "  state     /var/lib/samplegate",
        "  settings  4f646348499f",
        "  log       /s/decisions/serve.jsonl, 3 waiting",
        "  worker    ready, pid 77, 3 calls",
        "  worker    failed, the worker exited with code 1, next start in 8s",
        "  reload    refused 2m ago, 2 problems",
        "  problem: the disk is full",
        "  servers: 2",
        "    server  state    sessions  calls  requests  protocol",
        "    docs    backoff  0         0      0         -",
        "    users   ready    1         2      1         2025-11-25",
        "    problem: docs: its process died 3 times in a row; restarts in 4s",
        "  open requests: 1",
        "    waits for     age  expires  decision      kind      rule  effect    during  caller  server",
        "    reviewer ops  6s   49s      853a98b873bb  sampling  ask   escalate  docs    docs    docs",
        "  calls in flight: 300",
        "    tool or method  age   caller  server  session",
        "    docs            1m1s  docs    docs    350fcf43",
        "    and 299 more",
        "  limits: 1",
        "    limit  used   of     left   per  resets  waiting  for",
        "    daily  $3.20  $5.00  $1.80  day  9h48m   2        caller docs",
        "  pending reviews: 1",
        "    reviewer  pending  oldest  next expires",
        "    ops       2        1m30s   13m30s",
        "  sessions: 1",
        "    caller  age    server  calls  requests  session   client  protocol",
        "    docs    1m10s  docs    2      1         350fcf43  docs    2025-11-25",
    ] == gate_lines(gate(), 200)


@pytest.mark.parametrize("width", [1, 40, 57, 80, 120, 200])
@pytest.mark.parametrize("name", ["docs", HOSTILE, "数据库" * 40, "e\u0301" * 60])
def test_no_line_is_wider_than_the_terminal_and_none_controls_it(width: int, name: str) -> None:
    found = lines(overview(gate(name), problems=(name,)), width)
    assert [] == [line for line in found if _width(line) > max(width, 40)]
    assert [] == [line for line in found if not line.isprintable() or "##" in line]


def test_at_forty_columns_the_first_columns_are_still_there() -> None:
    found = gate_lines(gate(), 40)
    for line in (
        "    server  state    sessions  calls",
        "    docs    backoff  0         0",
        "    problem: docs: its process died 3",
        "      times in a row; restarts in 4s",
        "    waits for     age  expires",
        "    reviewer ops  6s   49s",
        "    daily  $3.20  $5.00  $1.80  day",
        "    ops       2        1m30s",
    ):
        assert line in found


def test_states_have_colors_only_where_they_are_wanted() -> None:
    plain, painted = lines(overview(gate("failed")), 200), lines(overview(gate("failed")), 200, color=True)
    assert "\x1b" not in "".join(plain)
    assert "serve 1.2.3: \x1b[32mready\x1b[0m, pid 4711, up 3h12m" == painted[0]
    colored = [line for line in painted if "\x1b" in line]
    # the names of peers, here "failed", have no color
    assert ["failed  \x1b[33mbackoff\x1b[0m", "users   \x1b[32mready  \x1b[0m"] == [
        line.strip()[: line.strip().index("\x1b[0m") + 4] for line in colored if line.startswith("    ")
    ][:2]
    assert ["\x1b[32mready", "\x1b[31mproblem", "\x1b[33mbackoff", "\x1b[32mready", "\x1b[31mproblem"] == [
        line[line.index("\x1b") :].split(" ")[0].split("\x1b[0m")[0].rstrip(",:") for line in colored
    ]


def test_what_is_not_there_takes_one_line_or_none() -> None:
    empty = gate(
        servers=listed([]), sessions=listed([]), calls=listed([]), requests=listed([]), limits=listed([]),
        reviews=None, workers=(), reload=None, decision_log=LogStatus(path=None), state="", settings_hash="",
    )  # fmt: skip
    assert [
        "serve 1.2.3: ready, pid 4711, up 3h12m",
        "  policy    /etc/samplegate/policy.yaml (314aded0c5b7)",
        "  log       none",
        "  servers: none",
        "  open requests: none",
        "  calls in flight: none",
        "  limits: none",
        "  sessions: none",
    ] == gate_lines(empty)


def test_without_a_gate_the_state_is_shown() -> None:
    found = lines(overview(state="/s", limits=gate().limits, reviews=gate().reviews, problems=("it is locked",)))
    assert ["no gate is running", "", "state /s", "  limits: 1"] == found[:4]
    assert "problem: it is locked" == found[-1]
    assert ["no gate is running"] == lines(overview(state="/s"))


def test_an_unknown_maximum_is_a_question_mark() -> None:
    unknown = LimitStatus(limit="d", quantity="requests", per="1h", key={}, max=None, used=3.0, left=None)
    assert (
        "    d      3     ?   ?     requests  1h" == gate_lines(gate(limits=listed([unknown]), reviews=None), 200)[-4]
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0s"), (1.234, "1.23s"), (70.0, "1m10s"), (3600.4, "1h"), (93_784.0, "26h3m")],
)
def test_durations_have_the_units_of_a_policy(seconds: float | None, text: str) -> None:
    assert text == span(seconds)


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        ("usd", 12.5, "$12.50"),
        ("usd", 0.00131, "$0.0014"),
        ("requests", 3000.0, "3,000"),
        ("input_tokens", 0.5, "0.5"),
        ("concurrent", 0.0, "0"),
        ("usd", None, "?"),
    ],
)
def test_amounts_are_written_as_everywhere(quantity: str, value: float | None, text: str) -> None:
    assert text == amount(quantity, value)


def test_the_json_of_a_gate_is_read_back() -> None:
    assert gate() == read_gate(as_json(gate()))
    with pytest.raises(ValueError, match="instance"):
        read_gate(b'{"command": "run"}')


def test_lists_and_texts_are_bounded() -> None:
    found = listed(range(1000))
    assert (1000, MAX_LISTED) == (found.total, len(found.items))
    assert MAX_TEXT == len(shown("x" * 5000))
    assert r"a\x1b[2J\u202e\ud800\n" == shown("a\x1b[2J\u202e\ud800\n")
