"""The gate's counters: one small port, kept in memory, written as Prometheus text on demand (``exposition.py``). Not a server, and no push to one.

Every metric stands in METRICS; labels come from finite sets that the operator controls, never from a peer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from samplegate.records.daemonmetrics import OF_THE_DAEMON
from samplegate.records.metrictable import GATE, Metric
from samplegate.records.reviewmetrics import OF_REVIEWS

__all__ = ["METRICS", "NONE", "Metric", "Metrics", "Number", "Spread"]

METRICS: Final = (*GATE, *OF_REVIEWS, *OF_THE_DAEMON)
"""Every metric there is. A rename is a change that the changelog names."""

NONE: Final = "none"  # what a label says where there is nothing to say
_TABLE: Final = {metric.name: (metric, frozenset(metric.labels)) for metric in METRICS}


class Number(msgspec.Struct, eq=False):
    """One series of a counter or a gauge. ``labels``: as the text shows them, ``a="x",b="y"``, made once."""

    labels: str
    amount: float = 0


class Spread(msgspec.Struct, eq=False):
    """One series of a histogram: how many values fell in each bucket (the last: above every bound), and their sum."""

    labels: str
    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    def add(self, value: float) -> None:
        """Put a value in."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """The counters of one process. Not locked: it is used from the event loop's thread only."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[tuple[str, ...], Number]] = {}
        self._spreads: dict[str, dict[tuple[str, ...], Spread]] = {}
        self.forgets = 0
        """How often series were dropped: those that somebody keeps are to be asked for anew once it has changed."""

    def count(self, name: str, amount: float = 1, /, **labels: object) -> None:
        """Add to a counter. Labels are the metric's own, all of them; None reads ``none``. Raises ValueError for a metric that is not in METRICS."""
        self._number(name, "counter", labels).amount += amount

    def set(self, name: str, value: float, /, **labels: object) -> None:
        """Say how high a gauge is; otherwise as count."""
        self._number(name, "gauge", labels).amount = value

    def only(self, name: str, /, **labels: object) -> None:
        """Have a gauge that says something by its labels say this and nothing else: the one series is 1, the others are gone."""
        self._numbers.pop(name, None)
        self.set(name, 1, **labels)

    def hold(self, name: str, /, **labels: object) -> Callable[[], None]:
        """Raise a gauge by one until what is returned is called (again: nothing happens).

        Not a plain ``dec``: what is let go after its series was forgotten must not pull a later series of the same name below zero.
        """
        number = self._number(name, "gauge", labels)
        number.amount += 1
        held = [number]

        def let_go() -> None:
            while held:
                held.pop().amount -= 1

        return let_go

    def observe(self, name: str, value: float, /, **labels: object) -> None:
        """Put a value, in seconds, into a histogram; otherwise as count."""
        self.histogram(name, **labels).add(value)

    def counter(self, name: str, /, **labels: object) -> Number:
        """The series that ``count`` adds to, for what counts with every call. See ``forgets``."""
        return self._number(name, "counter", labels)

    def histogram(self, name: str, /, **labels: object) -> Spread:
        """The series that ``observe`` puts values into, likewise."""
        metric, values = _known(name, "histogram", labels)
        series = self._spreads.setdefault(name, {})
        found = series.get(values)
        if found is None:
            found = series[values] = Spread(_shown(metric, values), metric.bounds, [0] * (len(metric.bounds) + 1))
        return found

    def forget(self, **labels: object) -> None:
        """Drop every series, of whatever metric, that has these labels: a server or a limit that a reload removed. None given: nothing is dropped."""
        self.forgets += 1
        for metric in METRICS if labels else ():
            if labels.keys() <= set(metric.labels):
                for kept in (self._numbers.get(metric.name, {}), self._spreads.get(metric.name, {})):
                    for values in _having(metric, kept, labels):
                        del kept[values]

    def value(self, name: str, **labels: object) -> float:
        """How far a counter or gauge is, or how many values a histogram holds, over every series with these labels, summed."""
        metric, _ = _TABLE[name]
        numbers, spreads = self._numbers.get(name, {}), self._spreads.get(name, {})
        return sum(numbers[values].amount for values in _having(metric, numbers, labels)) + sum(
            sum(spreads[values].counts) for values in _having(metric, spreads, labels)
        )

    def numbers(self, name: str) -> Iterator[Number]:
        """The series of a counter or gauge, in the order in which they came up."""
        yield from self._numbers.get(name, {}).values()

    def spreads(self, name: str) -> Iterator[Spread]:
        """The series of a histogram, likewise."""
        yield from self._spreads.get(name, {}).values()

    def _number(self, name: str, type: str, labels: dict[str, object]) -> Number:
        metric, values = _known(name, type, labels)
        series = self._numbers.setdefault(name, {})
        found = series.get(values)
        if found is None:
            found = series[values] = Number(_shown(metric, values))
        return found


def _known(name: str, type: str, labels: dict[str, object]) -> tuple[Metric, tuple[str, ...]]:
    metric, names = _TABLE.get(name, (None, None))
    if metric is None or metric.type != type or labels.keys() != names:
        raise ValueError(f"metric {name}: no {type} of METRICS with labels {sorted(labels)}")
    return metric, tuple([_text(labels[label]) for label in metric.labels])


def _text(value: object) -> str:
    """Halves of characters, as a command line may hold them, are written out: the text is UTF-8."""
    text = NONE if value is None else str(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _shown(metric: Metric, values: tuple[str, ...]) -> str:
    """Labels as the text format has them, sorted by name; backslash, quote and line feed are the three it wants escaped."""
    pairs = sorted(zip(metric.labels, values, strict=True))
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _having(
    metric: Metric, series: dict[tuple[str, ...], Number] | dict[tuple[str, ...], Spread], labels: dict[str, object]
) -> list[tuple[str, ...]]:
    wanted = [(metric.labels.index(label), _text(value)) for label, value in labels.items()]
    return [values for values in series if all(values[index] == text for index, text in wanted)]
