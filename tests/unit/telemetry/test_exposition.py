"""The metrics' text format, read by prometheus-client's own parsers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import openmetrics
from prometheus_client.openmetrics import parser  # noqa: F401 # so that openmetrics.parser is there
from prometheus_client.parser import text_string_to_metric_families

from samplegate.telemetry.definitions import METRICS
from samplegate.telemetry.metrics import Metrics, MetricsFile

BEFORE: Final = Path(__file__).with_name("exposition.prom")
PLAIN, OPEN = "text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"


def touched() -> Metrics:
    """Two series of every metric with labels, one of every other."""
    metrics = Metrics()
    tell = {"counter": metrics.count, "gauge": metrics.set, "histogram": metrics.observe}
    for number, metric in enumerate(METRICS):
        tell[metric.type](metric.name, number / 8, **dict.fromkeys(metric.labels, "x"))
        tell[metric.type](metric.name, 12345678.25, **{label: f'{label}="é\\\n' for label in metric.labels})
    return metrics


def read_whole(found: Iterable[Any]) -> dict[str, Any]:
    """Names, types and samples, in any order."""
    return {
        family.name: (
            family.type,
            {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples},
        )
        for family in found
    }


def test_a_whole_exposition_says_what_that_of_the_first_release_said(tmp_path: Path) -> None:
    """``exposition.prom`` was written by 0.1.0: names, types, labels, buckets and values are public."""
    before = read_whole(text_string_to_metric_families(BEFORE.read_text("utf-8")))
    MetricsFile(touched(), tmp_path / "now.prom").write()
    now = read_whole(text_string_to_metric_families((tmp_path / "now.prom").read_text("utf-8")))
    assert before == {name: now[name] for name in before}


def families(found: Iterable[Any]) -> dict[str, Any]:
    return {family.name: family for family in found}


def both(metrics: Metrics) -> tuple[dict[str, Any], dict[str, Any]]:
    plain, strict = page(metrics, PLAIN)[0], page(metrics, OPEN)[0]
    read = families(text_string_to_metric_families(plain))
    return read, families(openmetrics.parser.text_string_to_metric_families(strict))  # type: ignore[no-untyped-call]


def page(metrics: Metrics, accept: str) -> tuple[str, str]:
    text, content_type = asyncio.run(metrics.page(accept))
    return text.decode(), content_type


def test_both_formats_say_every_metric_with_its_type_and_its_help() -> None:
    for read in both(touched()):
        assert {metric.name.removesuffix("_total"): (metric.type, metric.help) for metric in METRICS} == {
            name: (family.type, family.documentation)
            for name, family in read.items()
            if not name.startswith("process_")
        }


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_every_value_of_a_label_is_read_as_it_was(value: str) -> None:
    metrics = Metrics()
    metrics.count("samplegate_records_failed_total", server=value)
    for read in both(metrics):
        assert [{"server": value}] == [sample.labels for sample in read["samplegate_records_failed"].samples]


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("", "text/plain; version=0.0.4", text_string_to_metric_families),
        ("*/*", "text/plain; version=0.0.4", text_string_to_metric_families),
        (PLAIN, "text/plain; version=0.0.4", text_string_to_metric_families),
        (
            f"{OPEN};q=0.8,{PLAIN};q=0.5",
            "application/openmetrics-text; version=1.0.0",
            openmetrics.parser.text_string_to_metric_families,
        ),
    ],
)
def test_a_scrape_gets_the_format_that_it_asks_for(
    accept: str, content_type: str, parse: Callable[[str], Iterable[Any]]
) -> None:
    body, said = page(touched(), accept)
    assert said.startswith(content_type)
    assert "samplegate_requests" in families(parse(body))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="read from /proc")  # noqa: PTH110
def test_a_scrape_tells_memory_files_and_the_start_of_the_process() -> None:
    found = families(text_string_to_metric_families(page(Metrics(), "")[0]))
    wanted = {
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_cpu_seconds",
    }
    assert wanted <= {name for name, family in found.items() if family.samples and family.samples[0].value > 0}


def test_scrapes_are_made_one_at_a_time_in_a_thread_and_the_event_loop_goes_on_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first scrape ends only when the event loop lets it, with the other three waiting by then."""
    metrics, turned, before = Metrics(), threading.Event(), set(threading.enumerate())
    page = metrics._page

    async def scraped() -> list[tuple[bytes, str]]:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def slow(accept: str) -> tuple[bytes, str]:
            loop.call_soon_threadsafe(begun.set)
            assert turned.wait(10)
            return page(accept)

        monkeypatch.setattr(metrics, "_page", slow)
        scrapes = [asyncio.create_task(metrics.page(accept)) for accept in (PLAIN, OPEN, "", "*/*")]
        async with asyncio.timeout(10):
            await begun.wait()
        assert 1 == sum(thread.name.startswith("AnyIO") for thread in {*threading.enumerate()} - before)
        turned.set()
        return await asyncio.gather(*scrapes)

    assert 4 == len(asyncio.run(scraped()))


def test_exemplars_are_in_openmetrics_only() -> None:
    metrics, ids = Metrics(), {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
    metrics.observe("samplegate_model_call_duration_seconds", 0.3, ids, model="m")
    metrics.observe("samplegate_model_call_duration_seconds", 0.7, model="m")
    _, strict = both(metrics)
    samples = strict["samplegate_model_call_duration_seconds"].samples
    found = {sample.labels["le"]: sample.exemplar for sample in samples if sample.exemplar is not None}
    assert {"0.5": (ids, 0.3)} == {bound: (one.labels, one.value) for bound, one in found.items()}
    assert "trace_id" not in page(metrics, PLAIN)[0]
