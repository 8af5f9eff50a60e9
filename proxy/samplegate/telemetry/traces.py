"""Whether requests are traced: OpenTelemetry's own environment variables decide.

OpenTelemetry is imported only if they turn traces on. A gate without traces is a safe gate, so nothing here prevents a
start: the log names the problem and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from samplegate.errors import Log
from samplegate.telemetry.metrics import Metrics
from samplegate.urls import without_url_secrets

if TYPE_CHECKING:
    from samplegate.telemetry.otlp import Traces

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTER: Final = "OTEL_TRACES_EXPORTER"
DISABLED: Final = "OTEL_SDK_DISABLED"
HTTP: Final = "http/protobuf"


def open_traces(environment: Mapping[str, str], metrics: Metrics, log: Log) -> Traces | None:
    """Open the export of spans if the environment turns it on. ``environment`` is that of the process, because the SDK
    reads it too."""
    on = next((name for name in ENDPOINTS if environment.get(name)), None)
    exporters = [name.strip() for name in (environment.get(EXPORTER) or "otlp").split(",")]
    if on is None or "otlp" not in exporters or environment.get(DISABLED, "").strip().lower() == "true":
        return None
    protocol = next((environment[name] for name in PROTOCOLS if environment.get(name)), HTTP)
    off = f"to run without traces, set {EXPORTER}=none"
    if protocol != HTTP:
        log.error(
            "traces.unavailable",
            problem=f"{on} is set, but the protocol {protocol!r} is not supported; set {PROTOCOLS[0]}={HTTP} and an"
            f" endpoint for it; {off}",
        )
        return None
    try:
        from samplegate.telemetry.otlp import Traces

        return Traces(environment, metrics, log)
    except ImportError as problem:
        log.error(
            "traces.unavailable",
            problem=f"{on} is set, but {problem.name or 'a package'} is not installed; install samplegate[otel]; {off}",
        )
    except Exception as problem:  # a value that the SDK refuses
        log.error(
            "traces.unavailable", problem=f"{without_url_secrets(str(problem))}; correct the OTEL_ variables; {off}"
        )
    return None
