"""The metrics and their file."""

from __future__ import annotations

import io
import os
import re
import stat
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.outcomes import Reason
from samplegate.telemetry.definitions import METRICS, Metric
from samplegate.telemetry.log import EventLog
from samplegate.telemetry.metrics import Metrics, MetricsFile, metrics_file
from tests.fakes.metrics import value

STREAMS = "samplegate_lanes_open"
REQUEST: dict[str, Any] = {
    "server": "db",
    "kind": "sampling",
    "rule": "r",
    "effect": "allow",
    "outcome": "answered",
    "reason": Reason.RULE,
    "decided_by": None,
}
ENDINGS = {
    "counter": "total",
    "gauge": "ratio|seconds|info|open|pending|success|failing|draining|asynchronous",
    "histogram": "seconds",
}


def test_a_counter_counts_by_its_labels() -> None:
    metrics = Metrics()
    metrics.count("samplegate_requests_total", **REQUEST)
    metrics.count("samplegate_requests_total", **{**REQUEST, "outcome": "denied"})
    metrics.count("samplegate_requests_total", 2, **REQUEST)
    by_outcome = [
        value(metrics, "samplegate_requests_total", outcome=outcome) for outcome in ("answered", "denied", "unanswered")
    ]
    assert ([3, 1, 0], 4) == (by_outcome, value(metrics, "samplegate_requests_total", reason="rule", decided_by=None))


def test_a_gauge_says_the_latest() -> None:
    metrics = Metrics()
    for ratio in (0.2, 1.1, 0.9):
        metrics.set("samplegate_limit_used_ratio", ratio, limit="team-day")
    metrics.set("samplegate_limit_used_ratio", 0.5, limit="other")
    assert 0.9 == value(metrics, "samplegate_limit_used_ratio", limit="team-day")


def test_every_series_of_a_removed_server_goes_and_no_other() -> None:
    metrics = Metrics()
    for server in ("db", "docs"):
        metrics.count("samplegate_rounds_total", server=server, door="push")
        metrics.set(STREAMS, 1, server=server)
        metrics.observe("samplegate_request_duration_seconds", 1, server=server, kind="sampling", effect="allow")
    metrics.count("samplegate_limit_overruns_total", limit="db")
    metrics.forget(server="db")
    metrics.forget()
    assert [] == [
        sample
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.labels.get("server") == "db"
    ]
    assert (1, 1, 1) == tuple(
        value(metrics, name, server="docs")
        for name in ("samplegate_rounds_total", STREAMS, "samplegate_request_duration_seconds")
    )
    assert 1 == value(metrics, "samplegate_limit_overruns_total", limit="db")


def test_an_info_says_the_latest_alone() -> None:
    metrics = Metrics()
    for hash in ("aaa", "bbb"):
        metrics.only("samplegate_policy_info", hash=hash)
    assert (0, 1) == tuple(value(metrics, "samplegate_policy_info", hash=hash) for hash in ("aaa", "bbb"))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("samplegate_nothing_total", {}),
        ("samplegate_rounds_total", {}),
        ("samplegate_rounds_total", {"server": "db"}),
        ("samplegate_requests_total", {"x": 1}),
    ],
)
def test_a_counter_that_is_not_in_the_table_with_these_labels_is_a_fault(name: str, labels: dict[str, object]) -> None:
    metrics = Metrics()
    with pytest.raises((KeyError, ValueError)):
        metrics.count(name, **labels)
    assert 0 == value(metrics, name)


def test_the_file_is_prometheus_text_with_cumulative_buckets(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.count("samplegate_rounds_total", server="db", door="push")
    for seconds in (0.2, 0.3, 2000):
        metrics.observe("samplegate_model_call_duration_seconds", seconds, model="cheap")
    file, path = (
        metrics_file(metrics, str(tmp_path / "new" / "{server}-{pid}-{x}.prom"), "a/b"),
        tmp_path / "new" / f"a_b-{os.getpid()}-{{x}}.prom",
    )
    assert file is not None
    file.write()
    content = path.read_text()
    assert [path] == list(path.parent.iterdir())
    assert 'samplegate_rounds_total{door="push",server="db"} 1.0' in content
    buckets = re.findall(r'bucket\{le="(0\.1|0\.5|900\.0|\+Inf)",model="cheap"\} (\S+)', content)
    assert [("0.1", "0.0"), ("0.5", "2.0"), ("900.0", "2.0"), ("+Inf", "3.0")] == buckets
    assert "_created" not in content


@pytest.mark.parametrize(("name", "shown"), [("a\udcffb", r"a\\udcffb"), ('a"b\n', r"a\"b\n"), ("été", "été")])
def test_no_name_breaks_the_file(tmp_path: Path, name: str, shown: str) -> None:
    metrics = Metrics()
    metrics.count("samplegate_records_failed_total", server=name)
    MetricsFile(metrics, tmp_path / "x.prom").write()
    assert (
        f'samplegate_records_failed_total{{server="{shown}"}} 1.0'
        in (tmp_path / "x.prom").read_text("utf-8").splitlines()
    )


def test_a_place_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"metrics file: .* cannot be written"):
        MetricsFile(Metrics(), tmp_path / "file" / "x.prom").write()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_name_says_what_and_in_which_unit(metric: Metric) -> None:
    assert re.fullmatch(rf"samplegate(_[a-z]+)*_({ENDINGS[metric.type]})", metric.name)


def test_no_metric_stands_there_twice() -> None:
    names = [metric.name for metric in METRICS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_reaches_the_file(tmp_path: Path, metric: Metric) -> None:
    metrics = Metrics()
    tell = {"counter": metrics.count, "gauge": metrics.set, "histogram": metrics.observe}[metric.type]
    tell(metric.name, 0.5, **dict.fromkeys(metric.labels, "x"))
    MetricsFile(metrics, tmp_path / "x.prom").write()
    labels = ",".join(f'{label}="x"' for label in sorted(metric.labels))
    content = (tmp_path / "x.prom").read_text()
    sample = metric.name + ("_sum" if metric.type == "histogram" else "")
    assert f"{sample}{{{labels}}} 0.5\n".replace("{}", "") in content
    assert f"# TYPE {metric.name} {metric.type}\n" in content


class ManualSleep:
    """Sleeps that end when the test lets them."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._asleep, self._wake = anyio.Event(), anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._asleep.set()
        await self._wake.wait()
        self._wake = anyio.Event()

    async def next(self) -> None:
        """Wait for a sleep, end it, and wait for the next sleep."""
        with anyio.fail_after(10):
            await self._asleep.wait()
            self._asleep = anyio.Event()
            self._wake.set()
            await self._asleep.wait()


@pytest.mark.anyio
async def test_the_file_is_written_now_and_then_and_a_fault_is_told_once(tmp_path: Path) -> None:
    metrics, turns, told = Metrics(), ManualSleep(), io.StringIO()
    path = tmp_path / "folder" / "x.prom"
    async with anyio.create_task_group() as group:
        group.start_soon(MetricsFile(metrics, path).keep, 15.0, EventLog(stream=told), turns.sleep)
        metrics.count("samplegate_records_failed_total", server="a")
        await turns.next()
        assert 'samplegate_records_failed_total{server="a"} 1.0' in path.read_text()
        path.unlink()
        path.parent.rmdir()
        path.parent.write_text("in the way")
        for _ in range(3):
            await turns.next()
        assert 1 == told.getvalue().count('"metrics.unwritten"')
        path.parent.unlink()
        metrics.count("samplegate_records_failed_total", server="a")
        await turns.next()
        assert 'samplegate_records_failed_total{server="a"} 2.0' in path.read_text()
        group.cancel_scope.cancel()
    assert {15.0} == set(turns.slept)


@pytest.mark.anyio
async def test_of_several_writings_at_once_the_latest_counts_are_left(tmp_path: Path) -> None:
    metrics, path = Metrics(), tmp_path / "x.prom"
    file = MetricsFile(metrics, path)

    async def counted() -> None:
        metrics.count("samplegate_records_failed_total", server="a")
        await anyio.to_thread.run_sync(file.write)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(counted)
    assert 'samplegate_records_failed_total{server="a"} 20.0' in path.read_text()


def test_every_user_may_read_the_file_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        MetricsFile(Metrics(), tmp_path / "x.prom").write()
    finally:
        os.umask(before)
    assert 0o644 == stat.S_IMODE((tmp_path / "x.prom").stat().st_mode)


def test_a_metric_without_labels_reads_nothing_until_it_is_measured(tmp_path: Path) -> None:
    metrics = Metrics()
    MetricsFile(metrics, tmp_path / "x.prom").write()
    assert "samplegate_reload_last_success" not in (tmp_path / "x.prom").read_text()
    metrics.set("samplegate_reload_last_success", 0)
    MetricsFile(metrics, tmp_path / "x.prom").write()
    assert "\nsamplegate_reload_last_success 0.0\n" in (tmp_path / "x.prom").read_text()
