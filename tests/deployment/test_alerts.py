"""The alerting rules in Debian's promtool: each fires when it should, names its subject, and is silent otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from tests.fakes.system_programs import DEPLOY, program, run

pytestmark = pytest.mark.real
FOLDER: Final = DEPLOY / "prometheus"
GATE: Final = 'job="samplegate",instance="a:1"'
UP: Final = {f"up{{{GATE}}}": "1x120"}


class Case(msgspec.Struct, frozen=True):
    """Series by name, as promtool writes values a minute apart; what fires at a minute: the labels besides severity,
    and the summary. Without labels, nothing fires."""

    alert: str
    series: dict[str, str]
    at: int
    labels: dict[str, str] | None = None
    summary: str = ""

    @property
    def all(self) -> dict[str, str]:
        return self.series if self.alert in ("SamplegateDown", "SamplegateAbsent") else {**UP, **self.series}


OF_GATE: Final = {"job": "samplegate", "instance": "a:1"}
OF_SERVER: Final = {**OF_GATE, "server": "s"}
CALLS: Final = f'{GATE},server="s",era="modern",method="call"'
OF_CALLS: Final = {"instance": "a:1", "server": "s"}


def metric(name: str, **labels: str) -> str:
    said = ",".join([GATE, *(f'{key}="{value}"' for key, value in labels.items())])
    return f"samplegate_{name}{{{said}}}"


def often(name: str, good: dict[str, str], bad: dict[str, str], share: int, **labels: str) -> dict[str, str]:
    """``share`` of 100 events a minute are bad."""
    return {metric(name, **labels, **good): f"0+{100 - share}x120", metric(name, **labels, **bad): f"0+{share}x120"}


def statuses(share: int) -> dict[str, str]:
    return often(
        "http_requests_total", {"status": "2xx"}, {"status": "5xx"}, share, server="s", era="modern", method="call"
    )


def outcomes(share: int) -> dict[str, str]:
    return often(
        "requests_total", {"outcome": "answered"}, {"outcome": "unanswered"}, share, server="s", kind="sampling"
    )


def denied(share: int) -> dict[str, str]:
    return often("requests_total", {"outcome": "answered"}, {"outcome": "denied"}, share, server="s", kind="sampling")


def reserved(share: int) -> dict[str, str]:
    return often("limit_reservations_total", {"result": "granted"}, {"result": "refused"}, share, limit="l")


def files(used: int) -> dict[str, str]:
    return {f"process_open_fds{{{GATE}}}": f"{used}x120", f"process_max_fds{{{GATE}}}": "1000x120"}


def calls(share: int, failure: str = "refused") -> dict[str, str]:
    return often("model_calls_total", {"result": "ok"}, {"result": failure}, share, model="m")


def lag(late: int) -> dict[str, str]:
    """Of 100 wake-ups a minute, the number that were more than 0.1 s late."""
    return {
        metric("event_loop_lag_seconds_bucket", le="0.1"): f"0+{100 - late}x120",
        metric("event_loop_lag_seconds_bucket", le="0.25"): "0+100x120",
        metric("event_loop_lag_seconds_bucket", le="+Inf"): "0+100x120",
    }


FIRST: Final = "_x60 1x60"  # a counter that comes up at the first event, after an hour without it
AGAIN: Final = "5x60 6x60"
FAILED: Final = metric("children_exited_total", server="s", how="failed")
KEYS: Final = metric("issuer_key_fetches_total", result="failed")
GONE: Final = metric("limit_reservations_total", limit="l", result="unavailable")
REFUSED: Final = metric("limit_reservations_total", limit="l", result="refused")
UNPRICED: Final = metric("unpriced_calls_total", server="s", model="m", rule="r")
BRAKES: Final = metric("brakes_total", server="s", brake="repeats")
OVERSIZED: Final = metric("frames_dropped_total", server="s", side="server", reason="oversized")
INVALID: Final = metric("frames_refused_total", server="s", side="server", reason="refused")
UNSOLICITED: Final = metric("frames_dropped_total", server="s", side="client", reason="unasked")
LOST: Final = metric("calls_lost_total", server="s", reason="died")
EXPIRED: Final = metric("reviews_total", reviewer="r", door="gate", outcome="expired")
GIVEN_UP: Final = metric("review_deliveries_total", reviewer="r", result="failed")
RETRIED: Final = metric("review_deliveries_total", reviewer="r", result="again")
DELIVERED: Final = metric("review_deliveries_total", reviewer="r", result="delivered")
STORE: Final = metric("review_store_failures_total")
OLDEST: Final = metric("review_oldest_seconds", reviewer="r")
TO_REVIEWER: Final = {**OF_GATE, "reviewer": "r"}
FIRING: Final = [
    Case("SamplegateDown", {f"up{{{GATE}}}": "1x10 0x10"}, 13, OF_GATE, "a:1 cannot be scraped"),
    Case("SamplegateAbsent", {}, 6, {"job": "samplegate"}, "no gate is scraped"),
    Case(
        "SamplegateDecisionLogFailing",
        {metric("decision_log_failing"): "0x5 1x5"},
        8,
        OF_GATE,
        "a:1 cannot record decisions",
    ),
    Case(
        "SamplegateDatabaseFailing",
        {metric("database_failing"): "0x5 1x5"},
        8,
        OF_GATE,
        "a:1 cannot use the shared database",
    ),
    Case(
        "SamplegateStandbyAsynchronous",
        {metric("database_standby_asynchronous"): "1x30"},
        20,
        OF_GATE,
        "a failover of the database of a:1 may lose what was confirmed",
    ),
    Case(
        "SamplegateRecordsLost",
        {metric("records_failed_total", server="s"): FIRST},
        63,
        OF_SERVER,
        "records of s could not be written to the decision log",
    ),
    Case(
        "SamplegateReloadRefused",
        {metric("reload_last_success"): "1x5 0x20"},
        9,
        OF_GATE,
        "a:1 runs with an older policy or older settings than those in its files",
    ),
    Case(
        "SamplegatePoliciesDiffer",
        {
            metric("policy_info", hash="1"): "1x120",
            'samplegate_policy_info{job="samplegate",instance="b:1",hash="2"}': "1x120",
        },
        20,
        {"job": "samplegate"},
        "2 policies are in force in one job",
    ),
    Case(
        "SamplegateFault",
        {metric("rounds_failed_total", server="s", door="push"): FIRST},
        63,
        {**OF_SERVER, "door": "push"},
        "an internal error left a request of s unanswered",
    ),
    Case("SamplegateServerNotStarting", {FAILED: FIRST}, 63, {**OF_SERVER, "how": "failed"}, "server s does not start"),
    Case("SamplegateServerNotStarting", {FAILED: AGAIN}, 63, {**OF_SERVER, "how": "failed"}, "server s does not start"),
    Case(
        "SamplegateServerDying",
        {metric("children_restarted_total", server="s"): "0x10 1 2 3 4x100"},
        20,
        OF_SERVER,
        "server s dies repeatedly",
    ),
    Case("SamplegateServerErrors", statuses(6), 20, OF_CALLS, "6% of requests to s fail"),
    Case(
        "SamplegateBusy",
        {metric("http_refused_total", server="s", reason="busy"): "0+1x120"},
        20,
        {"instance": "a:1"},
        "a:1 rejects clients",
    ),
    Case(
        "SamplegateCallersRefused",
        {metric("http_refused_total", server="s", reason="auth"): "0+66x120"},
        20,
        {"instance": "a:1"},
        "a:1 rejects more than one request per second for its token",
    ),
    Case(
        "SamplegateIssuerKeys",
        {KEYS: FIRST},
        70,
        {**OF_GATE, "result": "failed"},
        "a:1 cannot fetch the keys that verify callers' tokens",
    ),
    Case("SamplegateUnanswered", outcomes(22), 40, OF_CALLS, "22% of the requests of s are not answered"),
    Case("SamplegateModelFailing", calls(32), 20, {"instance": "a:1", "model": "m"}, "32% of calls of model m fail"),
    Case(
        "SamplegateUnpriced",
        {UNPRICED: FIRST},
        63,
        {**OF_SERVER, "model": "m", "rule": "r"},
        "the price of model m is unknown",
    ),
    Case(
        "SamplegateLimitNearlyUsed",
        {metric("limit_warnings_total", limit="l"): FIRST},
        63,
        {**OF_GATE, "limit": "l"},
        "limit l exceeded its warn_at",
    ),
    Case(
        "SamplegateLimitsUnavailable",
        {GONE: FIRST},
        63,
        {**OF_GATE, "limit": "l", "result": "unavailable"},
        "limit l is unavailable",
    ),
    Case("SamplegateEventLoopLate", lag(10), 30, {"instance": "a:1"}, "a:1 has an event-loop lag of 235ms"),
    Case(
        "SamplegateLimitUsedUp",
        {REFUSED: "0+1x120", metric("limit_reservations_total", limit="l", result="granted"): "0+1x20 20x100"},
        37,
        {"instance": "a:1", "limit": "l"},
        "limit l admits no request",
    ),
    Case(
        "SamplegateLimitRefusing",
        reserved(12),
        40,
        {"instance": "a:1", "limit": "l"},
        "limit l refuses 12% of its requests",
    ),
    Case("SamplegateDenied", denied(52), 40, OF_CALLS, "52% of the requests of s are denied"),
    Case(
        "SamplegateLoopDetected",
        {BRAKES: FIRST},
        63,
        {**OF_SERVER, "brake": "repeats"},
        "loop detection stopped server s",
    ),
    Case(
        "SamplegateMessagesDropped",
        {OVERSIZED: FIRST},
        63,
        {**OF_SERVER, "side": "server", "reason": "oversized"},
        "messages of the server of s are dropped",
    ),
    Case(
        "SamplegateMessagesDropped",
        {INVALID: "0x10 11x100"},
        20,
        {**OF_SERVER, "side": "server", "reason": "refused"},
        "messages of the server of s are dropped",
    ),
    Case("SamplegateCallsLost", {LOST: "0x10 6x100"}, 15, OF_CALLS, "6 calls to s failed in ten minutes"),
    Case(
        "SamplegateReviewWaiting",
        {OLDEST: "0+60x120"},
        7,
        {"job": "samplegate", "reviewer": "r"},
        "a review for r has waited for 7m 0s",
    ),
    Case(
        "SamplegateReviewsExpired",
        {EXPIRED: FIRST},
        63,
        {**TO_REVIEWER, "door": "gate", "outcome": "expired"},
        "a review for r expired undecided",
    ),
    Case(
        "SamplegateReviewDeliveryFailing",
        {GIVEN_UP: FIRST},
        63,
        {**TO_REVIEWER, "result": "failed"},
        "reviewer r cannot be notified",
    ),
    Case(
        "SamplegateReviewDeliveryFailing",
        {RETRIED: "0x10 4x100", DELIVERED: "7x120"},
        20,
        TO_REVIEWER,
        "reviewer r cannot be notified",
    ),
    Case("SamplegateReviewStoreFailing", {STORE: FIRST}, 63, OF_GATE, "the review store of a:1 fails"),
    Case("SamplegateReviewStoreFailing", {STORE: AGAIN}, 63, OF_GATE, "the review store of a:1 fails"),
    Case("SamplegateOpenFiles", files(810), 6, OF_GATE, "a:1 uses 81% of its file descriptors"),
]
SILENT: Final = [
    Case("SamplegateDown", {f"up{{{GATE}}}": "1x10 0 1x10"}, 12),
    Case("SamplegateAbsent", {f"up{{{GATE}}}": "0x120"}, 60),
    Case("SamplegateAbsent", {}, 4),
    Case("SamplegateDecisionLogFailing", {metric("decision_log_failing"): "0x120"}, 60),
    Case("SamplegateDecisionLogFailing", {metric("decision_log_failing"): "0x5 1x5"}, 6),
    Case("SamplegateDatabaseFailing", {metric("database_failing"): "0x5 1x5"}, 6),
    Case("SamplegateStandbyAsynchronous", {metric("database_standby_asynchronous"): "0x5 1x30"}, 19),
    Case("SamplegateRecordsLost", {metric("records_failed_total", server="s"): "3x120"}, 60),
    Case("SamplegateReloadRefused", {metric("reload_last_success"): "0x5 1x20"}, 9),
    Case("SamplegateReloadRefused", {metric("reload_last_success"): "1x5 0x20"}, 6),
    Case(
        "SamplegatePoliciesDiffer",
        {metric("policy_info", hash="1"): "1x10 _x110", metric("policy_info", hash="2"): "_x11 1x100"},
        20,
    ),
    Case(
        "SamplegatePoliciesDiffer",
        {metric("policy_info", hash="1"): "1x120", metric("policy_info", hash="2"): "1x120"},
        14,
    ),
    Case("SamplegateFault", {metric("rounds_failed_total", server="s", door="push"): FIRST}, 90),
    Case("SamplegateServerNotStarting", {metric("children_exited_total", server="s", how="asked"): "0+1x120"}, 60),
    Case("SamplegateServerNotStarting", {FAILED: FIRST}, 80),
    Case("SamplegateServerDying", {metric("children_restarted_total", server="s"): "0x10 1 2 3x100"}, 20),
    Case("SamplegateServerErrors", statuses(4), 20),
    Case("SamplegateBusy", {metric("http_refused_total", server="s", reason="session"): "0+9x120"}, 20),
    Case("SamplegateBusy", {metric("http_refused_total", server="s", reason="busy"): "0x10 1x4 2x100"}, 14),
    Case("SamplegateCallersRefused", {metric("http_refused_total", server="s", reason="auth"): "0+54x120"}, 20),
    Case("SamplegateIssuerKeys", {metric("issuer_key_fetches_total", result="ok"): "0+1x120"}, 70),
    Case("SamplegateIssuerKeys", {KEYS: FIRST}, 64),
    Case("SamplegateUnanswered", outcomes(18), 40),
    Case("SamplegateDenied", denied(48), 40),
    Case("SamplegateDenied", denied(52), 14),
    Case("SamplegateLoopDetected", {BRAKES: FIRST}, 80),
    Case("SamplegateMessagesDropped", {OVERSIZED: "3x120", INVALID: "0x10 10x100", UNSOLICITED: "0+9x120"}, 20),
    Case("SamplegateCallsLost", {LOST: "0x10 5x100"}, 15),
    Case("SamplegateCallsLost", {metric("calls_lost_total", server="s", reason="removed"): "0+9x120"}, 15),
    Case("SamplegateModelFailing", calls(28), 20),
    Case("SamplegateModelFailing", calls(80, "cancelled"), 20),
    Case("SamplegateUnpriced", {UNPRICED: "4x120"}, 100),
    Case("SamplegateLimitNearlyUsed", {metric("limit_warnings_total", limit="l"): "2x120"}, 100),
    Case("SamplegateLimitUsedUp", reserved(99), 60),
    Case("SamplegateLimitUsedUp", {REFUSED: "0x10 1+1x100"}, 14),
    Case("SamplegateLimitRefusing", reserved(8), 40),
    Case("SamplegateLimitsUnavailable", {REFUSED: "0+1x120"}, 63),
    Case("SamplegateReviewWaiting", {OLDEST: "300x120"}, 60),
    Case("SamplegateReviewWaiting", {OLDEST: "0+60x120"}, 6),
    Case("SamplegateReviewsExpired", {EXPIRED: FIRST}, 80),
    Case(
        "SamplegateReviewsExpired",
        {metric("reviews_total", reviewer="r", door="page", outcome="approved"): "0+1x120"},
        60,
    ),
    Case("SamplegateReviewDeliveryFailing", {RETRIED: "0x10 3x100"}, 20),
    Case("SamplegateReviewDeliveryFailing", {RETRIED: "0x10 9x100", DELIVERED: "0x15 1x100"}, 20),
    Case("SamplegateReviewDeliveryFailing", {GIVEN_UP: FIRST}, 80),
    Case("SamplegateReviewStoreFailing", {STORE: FIRST}, 70),
    Case("SamplegateOpenFiles", files(800), 60),
    Case("SamplegateOpenFiles", files(810), 4),
    Case("SamplegateEventLoopLate", lag(0), 30),
    Case("SamplegateEventLoopLate", lag(1), 9),
]


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def asked(case: Case) -> dict[str, Any]:
    """A case in promtool's format."""
    rule = rules()[case.alert]
    fires = {
        "exp_labels": {**(case.labels or {}), **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.all.items()],
        "alert_rule_test": [
            {"eval_time": f"{case.at}m", "alertname": case.alert, "exp_alerts": [] if case.labels is None else [fires]}
        ],
    }


@pytest.mark.parametrize("cases", [FIRING, SILENT], ids=["fires", "is silent"])
def test_each_alert_fires_where_it_should_and_only_there(cases: list[Case], tmp_path: Path) -> None:
    at = tmp_path / "tests.yml"
    at.write_text(
        yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yml")], "tests": [asked(case) for case in cases]})
    )
    code, said = run(program("promtool"), "test", "rules", at)
    assert 0 == code, said
    assert {case.alert for case in cases} == rules().keys()


def test_promtool_takes_the_configuration_and_the_alerts() -> None:
    code, said = run(program("promtool"), "check", "config", "--lint=all", "--lint-fatal", FOLDER / "prometheus.yml")
    assert 0 == code, said
    assert f"{len(rules())} rules found" in said


@pytest.mark.parametrize("alert", rules())
def test_an_alert_has_its_urgency_a_remedy_and_a_runbook(alert: str) -> None:
    rule = rules()[alert]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert {"summary", "description", "runbook"} == rule["annotations"].keys()
    assert rule["annotations"]["description"].endswith(".")
