"""Playback of a cassette: ``run --record FILE --record-mode replay`` answers from the file in place of models and the
client.

Cases are chosen as the ``scripted`` model chooses them: a fingerprint's cases take turns, and the last one repeats. A
request without a case is not answered. The file is read once and is not locked, so several gates may play it at once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from samplegate.audit.cassette import read_text, withheld_values
from samplegate.errors import Unavailable
from samplegate.policy.prompt import SampleFailed, SampleRequest, SampleResult
from samplegate.policy.script import Compiled, Script, fingerprint, parse, pick, reply_case, reply_of
from samplegate.protocol.requests import Request
from samplegate.yamlfile.tree import PolicyError

SHOWN: Final = 20  # unused cases in the summary


class Playback:
    """A cassette that is played. ``fails_if_unused``: whether cases that were not played fail the run."""

    def __init__(self, path: Path, script: Script, *, fails_if_unused: bool = False) -> None:
        self.path = path
        self.fails_if_unused: Final = fails_if_unused
        self.unused = script.size
        """The number of cases that were not played so far."""
        self.answers = 0
        """The number of answers and failures played."""
        self.missed = 0
        """The number of requests without a case."""
        self._script = script
        self._cases = script.cases
        self._turns: Counter[str] = Counter()
        self._played: set[int] = set()

    @classmethod
    def open(cls, path: Path, *, fails_if_unused: bool = False) -> Playback:
        """Read a cassette. Raises Unavailable if there is none, or if it has no cases."""
        remedy = "record one with --record-mode once"
        try:
            # a pipe without a writer would block
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            fd = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            raise Unavailable(f"record: there is no cassette {path} to replay; {remedy}") from None
        except OSError as problem:
            raise Unavailable(
                f"record: {path} cannot be read: {(problem.strerror or str(problem)).lower()}"
            ) from problem
        try:
            text = read_text(path, fd)
        finally:
            os.close(fd)
        if not text.strip():
            raise Unavailable(f"record: {path} has no cases to replay; {remedy}")
        try:
            script = parse(text, file=str(path))
        except PolicyError as error:
            first = error.problems[0]
            where = f"line {first.line}: {first.what}"
            raise Unavailable(f"record: {path} is not a case file ({where}); correct it, or use another file") from None
        return cls(path, script, fails_if_unused=fails_if_unused)

    async def sample(self, request: SampleRequest, _on_progress: Callable[[int], None]) -> SampleResult:
        """The recorded answer or failure of a model. It ends the request: no other model is tried, as its answer would
        be another case."""
        picked = pick(self._script, request.model, request.params, self._turns)
        if picked.index is None:
            return SampleFailed(
                "no_case", f"model {request.model}: {self._missing(request.params)}", started=True, free=True
            )
        self._play(self._cases[picked.index])
        with anyio.move_on_after(request.timeout):
            await anyio.sleep(picked.delay)
            if isinstance(picked.result, SampleFailed):
                return msgspec.structs.replace(picked.result, started=True)
            return picked.result
        late = f"model {request.model}: its case in the cassette has a delay longer than the timeout"
        return SampleFailed("timeout", late, started=True, free=True)

    async def answer_forwarded(self, request: Request, params: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """The recorded answer of the client, or the reason for none. ``params`` are those that a record would have."""
        if request.kind == "elicitation":
            return self._elicited(params)
        # a client counts tokens in its own way, so its answer is not cut
        uncut = {name: value for name, value in params.items() if name != "maxTokens"}
        picked = pick(self._script, "client", uncut, self._turns)
        if picked.index is None:
            return self._missing(params)
        self._play(self._cases[picked.index])
        await anyio.sleep(picked.delay)
        result = picked.result
        if isinstance(result, SampleFailed):
            return f"its case in the cassette has fail: {result.failure}, which answers no forwarded request"
        content = result.content[0] if len(result.content) == 1 else list(result.content)
        stop = {} if result.stop_reason is None else {"stopReason": result.stop_reason}
        return {"role": "assistant", "content": content, "model": result.model, **stop}

    def _elicited(self, params: Mapping[str, Any]) -> Mapping[str, Any] | str:
        found = reply_case(self._script, params, self._turns)
        if found is None:
            return self._missing(params)
        said = reply_of(found)
        if said.action != "accept":
            self._play(found)
            return {"action": said.action}
        withheld = withheld_values(params, said.values)
        if withheld is not None:
            return f"its case in the cassette is not played: {withheld}"
        self._play(found)
        return {"action": said.action, "content": dict(said.values)}

    def finish(self, _folder: Path) -> list[str]:
        """The summary of the run: the number of answers, and the cases that were not played if they fail the run."""
        parts = [f"replayed {_count(self.answers, 'answer')} from {self.path}"]
        if self.missed:
            parts.append(f"{_count(self.missed, 'request')} without a case")
        if self.unused:
            parts.append(f"{self.unused} of {_count(self._script.size, 'case')} not used")
        lines = ["; ".join(parts)]
        if self.unused and self.fails_if_unused:
            unused = [one for one in self._cases if one.index not in self._played]
            lines += [f"  {self.path}:{one.line}: not used: {_called(one)}" for one in unused[:SHOWN]]
            if len(unused) > SHOWN:
                lines.append(f"  and {len(unused) - SHOWN} more")
        return lines

    def close(self) -> None:
        """Nothing is open."""

    def _play(self, found: Compiled) -> None:
        """Count the case, and the next turn of its fingerprint."""
        self.answers += 1
        if found.case.fingerprint is not None:
            self._turns[found.case.fingerprint] += 1
        if found.index not in self._played:
            self._played.add(found.index)
            self.unused -= 1

    def _missing(self, params: Mapping[str, Any]) -> str:
        """The reason why a request is not answered."""
        self.missed += 1
        return (
            f"the cassette has no case with fingerprint {fingerprint(params)} (--record-mode replay); record it with"
            " --record-mode once"
        )


def _called(compiled: Compiled) -> str:
    fingerprint = compiled.case.fingerprint
    return compiled.called if fingerprint is None else f"fingerprint {fingerprint}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
