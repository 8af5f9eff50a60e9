"""The text of the counters, read by prometheus-client's own parsers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import openmetrics
from prometheus_client.openmetrics import parser  # noqa: F401 # so that openmetrics.parser is there
from prometheus_client.parser import text_string_to_metric_families

from samplegate.records.exposition import page, text
from samplegate.records.metrics import METRICS, Metrics
from samplegate.records.metricsfile import MetricsFile

BEFORE: Final = Path(__file__).with_name("exposition.prom")
PLAIN, OPEN = "text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"


def full(label: str = "x") -> Metrics:
    """A series of every metric."""
    metrics = Metrics()
    tell = {"counter": metrics.count, "gauge": metrics.set, "histogram": metrics.observe}
    for metric in METRICS:
        tell[metric.type](metric.name, 0.5, **dict.fromkeys(metric.labels, label))
    return metrics


def touched() -> Metrics:
    """Two series of every metric that has labels, one of every other."""
    metrics = Metrics()
    tell = {"counter": metrics.count, "gauge": metrics.set, "histogram": metrics.observe}
    for number, metric in enumerate(METRICS):
        tell[metric.type](metric.name, number / 8, **dict.fromkeys(metric.labels, "x"))
        tell[metric.type](metric.name, 12345678.25, **{label: f'{label}="é\\\n' for label in metric.labels})
    return metrics


def read_whole(found: Iterable[Any]) -> dict[str, Any]:
    """Names, types, helps and samples, without an order."""
    return {
        family.name: (family.type, family.documentation, {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples})
        for family in found
    }


def test_a_whole_exposition_says_what_that_of_the_first_release_said(tmp_path: Path) -> None:
    """``exposition.prom`` was written by 0.1.0: names, types, helps, labels, buckets and values are public."""
    before = read_whole(text_string_to_metric_families(BEFORE.read_text("utf-8")))
    MetricsFile(touched(), tmp_path / "now.prom").write()
    assert before == read_whole(text_string_to_metric_families((tmp_path / "now.prom").read_text("utf-8")))


def families(found: Iterable[Any]) -> dict[str, Any]:
    return {family.name: family for family in found}


def both(metrics: Metrics) -> tuple[dict[str, Any], dict[str, Any]]:
    plain = text(metrics).decode()
    strict = text(metrics, openmetrics=True).decode() + "# EOF\n"
    read = families(text_string_to_metric_families(plain))
    return read, families(openmetrics.parser.text_string_to_metric_families(strict))  # type: ignore[no-untyped-call]


def test_both_formats_say_every_metric_with_its_type_and_its_help() -> None:
    for read in both(full()):
        assert {metric.name.removesuffix("_total"): (metric.type, metric.help) for metric in METRICS} == {
            name: (family.type, family.documentation) for name, family in read.items()
        }


def test_metrics_without_a_series_are_named_all_the_same() -> None:
    for read in both(Metrics()):
        assert {metric.name.removesuffix("_total") for metric in METRICS} == set(read)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_every_value_of_a_label_is_read_as_it_was(value: str) -> None:
    metrics = Metrics()
    metrics.count("samplegate_records_failed_total", server=value)
    for read in both(metrics):
        assert [{"server": value}] == [sample.labels for sample in read["samplegate_records_failed"].samples]


@pytest.mark.parametrize("value", [0, 1, 0.1, 12345678.25, 1e20, 1e-9, math.inf, -math.inf])
def test_every_number_is_read_as_it_was(value: float) -> None:
    metrics = Metrics()
    metrics.set("samplegate_limit_used_ratio", value, limit="x")
    for read in both(metrics):
        assert [value] == [sample.value for sample in read["samplegate_limit_used_ratio"].samples]


def test_no_number_is_told_as_none() -> None:
    metrics = Metrics()
    metrics.set("samplegate_limit_used_ratio", math.nan, limit="x")
    assert all(math.isnan(read["samplegate_limit_used_ratio"].samples[0].value) for read in both(metrics))


@pytest.mark.parametrize("labelled", [True, False])
def test_buckets_are_cumulative_and_end_with_all(labelled: bool) -> None:
    name, labels = ("samplegate_model_call_duration_seconds", {"model": "m"}) if labelled else ("samplegate_event_loop_lag_seconds", {})
    metrics = Metrics()
    for seconds in (0.0001, 0.4, 1000, 2000):
        metrics.observe(name, seconds, **labels)
    for read in both(metrics):
        samples = read[name].samples
        buckets = [sample.value for sample in samples if sample.name.endswith("_bucket")]
        assert (buckets, 1, 4) == (sorted(buckets), buckets[0], buckets[-1])
        assert [3000.4001, 4] == [sample.value for sample in samples if not sample.name.endswith("_bucket")]
        assert all(labels.items() <= sample.labels.items() for sample in samples)


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("", "text/plain; version=0.0.4", text_string_to_metric_families),
        ("*/*", "text/plain; version=0.0.4", text_string_to_metric_families),
        (PLAIN, "text/plain; version=0.0.4", text_string_to_metric_families),
        (f"{OPEN};q=0.8,{PLAIN};q=0.5", "application/openmetrics-text; version=1.0.0", openmetrics.parser.text_string_to_metric_families),
    ],
)
def test_a_scrape_gets_the_format_that_it_asks_for(accept: str, content_type: str, parse: Callable[[str], Iterable[Any]]) -> None:
    body, said = page(full(), accept)
    assert said.startswith(content_type)
    assert "samplegate_requests" in families(parse(body.decode()))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="read from /proc")  # noqa: PTH110
def test_a_scrape_tells_memory_files_and_the_start_of_the_process() -> None:
    found = families(text_string_to_metric_families(page(Metrics(), "")[0].decode()))
    wanted = {"process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_start_time_seconds", "process_cpu_seconds"}
    assert wanted <= {name for name, family in found.items() if family.samples and family.samples[0].value > 0}


def test_a_text_needs_no_prometheus_client() -> None:
    code = (
        "import sys; from samplegate.records.metrics import Metrics; from samplegate.records.exposition import text; text(Metrics());"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": "proxy"}, timeout=50, check=False).returncode
