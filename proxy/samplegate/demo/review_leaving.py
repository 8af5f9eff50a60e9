"""One way out of a program that has children: Ctrl-C, SIGTERM and a closed terminal (SIGHUP) alike, and never amid a start or an end of a child."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Leaving:
    """Between ``with`` and its end the signals are ours, but those that whoever started us had ignored (nohup)."""

    def __init__(self) -> None:
        self._asked = False
        self._open = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Leaving:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._leave)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def may_leave(self) -> Iterator[None]:
        """Only in here is the first signal a KeyboardInterrupt, also one that came before; the second is none, since the first is on its way."""
        self._open = True
        try:
            if self._asked:
                self._leave(signal.SIGINT, None)
            yield
        finally:
            self._open = False

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True
        if self._open:
            self._open = False
            raise KeyboardInterrupt
