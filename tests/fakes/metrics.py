"""Values of a process's metrics, summed over their series."""

from __future__ import annotations

from samplegate.telemetry.metrics import NONE, Metrics


def value(metrics: Metrics, name: str, **labels: object) -> float:
    """The value of a counter or gauge, or the count of a histogram, summed over every series with these labels."""
    wanted = {label: NONE if given is None else str(given) for label, given in labels.items()}
    samples = [
        sample
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name in (name, f"{name}_count")
    ]
    return sum(sample.value for sample in samples if wanted.items() <= sample.labels.items())
