"""What a Python client does in a storm, whichever SDK it is written on. Runs in the environments sdk1 and sdk2."""

import itertools
from collections.abc import Iterable
from typing import Any

import anyio


class Lines(list[Any]):
    """Log lines, with an event for each that comes."""

    def __init__(self, lines: Iterable[Any]) -> None:
        super().__init__(lines)
        self.news = anyio.Event()

    def append(self, line: Any) -> None:
        super().append(line)
        self.news.set()
        self.news = anyio.Event()


class Storm:
    """Many calls at once for some seconds; every answer must carry its own mark, and every log line must come once."""

    def __init__(
        self, call: Any, plain: Any, error: type[Exception], seen: dict[str, Any], step: dict[str, Any]
    ) -> None:
        """``call`` and ``plain``: the SDK's call of a tool, and its result in a form that both SDKs share; ``error``:
        what an error answer raises."""
        self.call, self.plain, self.error, self.seen, self.step = call, plain, error, seen, step
        self.calls = 0
        self.wrong: list[str] = []
        self.marks: list[str] = []
        self.numbers = itertools.count()

    def fail(self, what: str) -> None:
        if len(self.wrong) < 20:
            self.wrong.append(what)

    async def one(self, which: int, number: int) -> None:
        mark = f"{self.step['mark']}-{number}"
        match which:
            case 0:
                await self.expect("add", {"a": number, "b": 1}, str(number + 1))
            case 1 | 2:
                await self.expect("classify", {"text": mark}, f"seen {mark}.")
            case 3:
                await self.expect("confirm", {}, "accept|True|from the client")
            case 4:
                steps: list[float] = []

                async def progress(value: float, _total: float | None, _message: str | None) -> None:
                    steps.append(value)

                await self.expect("count", {"to": 3}, "3", progress)
                if [value for value in steps if value == int(value)] != [1, 2, 3] or steps != sorted(set(steps)):
                    self.fail(f"{mark}: progress {steps}")  # in between may come steps of the gate, of less than one
            case _:
                await self.expect("tell", {"mark": mark, "times": 3}, mark)
                self.marks.append(mark)

    async def expect(self, name: str, arguments: dict[str, Any], says: str, progress: Any = None) -> None:
        result = self.plain(await self.call(name, arguments, progress_callback=progress))
        self.calls += 1
        if result["error"] or says not in result["text"]:
            self.fail(f"{name} {arguments}: {result}")

    async def worker(self, until: float) -> None:
        while anyio.current_time() < until:
            number = next(self.numbers)
            try:
                with anyio.fail_after(self.step["patience"]):
                    await self.one(number % 6, number)
            except TimeoutError:
                self.fail(f"call {number} of kind {number % 6} was not answered within {self.step['patience']} s")
            except self.error as error:
                self.fail(f"call {number} of kind {number % 6}: {error}")

    def told(self, before: int) -> list[str]:
        """The log lines of this storm."""
        return [str(line) for line in self.seen["logs"][before:] if str(line).startswith(self.step["mark"])]

    async def run(self) -> dict[str, Any]:
        lines = self.seen["logs"] = Lines(self.seen["logs"])
        before = len(lines)
        async with anyio.create_task_group() as group:
            for _ in range(self.step["at_once"]):
                group.start_soon(self.worker, anyio.current_time() + self.step["seconds"])
        if self.step["tells"]:
            # log lines may come after the answer of their call, on a stream of their own
            with anyio.move_on_after(self.step["patience"]):
                while len(self.told(before)) < 3 * len(self.marks):
                    await lines.news.wait()
        told = self.told(before)
        turns: dict[str, list[int]] = {mark: [] for mark in self.marks} if self.step["tells"] else {}
        for line in told:
            mark, _, n = line.rpartition(":")
            turns.setdefault(mark, []).append(int(n))
        for mark, order in turns.items():
            if (order if self.step["in_order"] else sorted(order)) != [0, 1, 2]:
                self.fail(f"{mark}: log lines {order}")
        for key in ("logs", "asked", "notifications"):
            self.seen[key].clear()
        return {"calls": self.calls, "told": len(told), "wrong": self.wrong}
