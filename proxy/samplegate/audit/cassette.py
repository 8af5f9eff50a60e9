"""The tape of ``run --record FILE``: what models and clients really answered, appended as cases of a script, for the
next run to answer from.

Not the decision log: nothing depends on it, and a case that could not be written is only told. The file has contents
and is its owner's alone (mode 0600). After every case it is a whole script again.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from samplegate.audit.record import Record
from samplegate.errors import Unavailable
from samplegate.files import lock, make_folder, unlock
from samplegate.policy.conditions import listed
from samplegate.policy.prompt import Failure
from samplegate.policy.script import BLOCKS, MAX_BYTES, Script, fingerprint, parse
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.secret_names import looks_secret, secret_fields
from samplegate.yamlfile.tree import PolicyError

# From a request and what was really answered to a case of a script, as YAML, so that the next run needs nobody.

#
# A case holds what was answered, of what was asked only the fingerprint and, as a comment, the first characters. A form
# in which a person filled in a field that looks like a secret has no case: no machine fills that in again (R39).

HEADER: Final = "cases:\n"
EXCERPT: Final = 60

# What YAML takes only as an escape, and halves of characters, which it does not take at all.
_unseen: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]")
_halves: Final = re.compile("[\ud800-\udfff]")
_harmful: Final = re.compile(r"[^\w .,;:?!()/-]+")


class Taped(msgspec.Struct, frozen=True):
    """A case, as it is written."""

    fingerprint: str
    text: str


def taped_answer(
    params: Mapping[str, Any], result: Any, *, input_tokens: int | None = None, output_tokens: int | None = None
) -> Taped | None:
    """The case for a result as it was released (decoded); None where a script can say no such thing."""
    if not isinstance(result, Mapping):
        return None
    if "action" in result:
        return _taped(params, _form(params, result))
    blocks = [_block(block) for block in listed(result.get("content"))]
    said = {"content": blocks, "model": result.get("model"), "stop_reason": result.get("stopReason")}
    return _taped(params, {**said, "input_tokens": input_tokens, "output_tokens": output_tokens})


def taped_failure(
    params: Mapping[str, Any], failure: str, *, input_tokens: int | None = None, output_tokens: int | None = None
) -> Taped | None:
    """The case for a model that failed; None where the failure is none of a model's."""
    if failure not in get_args(Failure):
        return None
    return _taped(params, {"fail": failure, "input_tokens": input_tokens, "output_tokens": output_tokens})


def _form(params: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """What a form was answered, empty where no machine may answer it so: an accepted url (R41), a secret filled in."""
    action, values = result.get("action"), result.get("content") or {}
    if action != "accept":
        return {"action": action}
    if params.get("mode") == "url" or not isinstance(values, Mapping):
        return {}
    secret = secret_fields(params.get("requestedSchema"))
    if any((name in secret or looks_secret(name)) and not isinstance(value, bool) for name, value in values.items()):
        return {}
    return {"action": action, "values": dict(values)}


def _block(block: Any) -> Any:
    """A content block without what a script does not say: annotations, ``_meta``."""
    if not isinstance(block, Mapping):
        return block
    known = {"type", *BLOCKS.get(str(block.get("type")), ())}
    return {name: value for name, value in block.items() if name in known}


def _taped(params: Mapping[str, Any], case: Mapping[str, Any]) -> Taped | None:
    """The case as text, once it is sure that it reads as what it is."""
    key = fingerprint(params)
    lines = [
        f"- fingerprint: {_yaml(key)}",
        *(f"  {name}: {_yaml(value)}" for name, value in case.items() if value is not None),
    ]
    text = f"# {_excerpt(params)}\n" + "\n".join(lines) + "\n"
    try:
        parse(HEADER + text, file="")
    except PolicyError:
        return None
    return Taped(key, text)


def _yaml(value: Any) -> str:
    """JSON, which is YAML too but for some characters."""
    text = json.dumps(value, ensure_ascii=False)
    return _unseen.sub(lambda found: f"\\u{ord(found[0]):04x}", _halves.sub("\ufffd", text))


def _excerpt(params: Mapping[str, Any]) -> str:
    """The first harmless characters of the newest text, for whoever looks for a case in the file."""
    text = next((text for text in _texts(params) if text.strip()), "")
    return " ".join(_harmful.sub(" ", text[: 4 * EXCERPT]).split())[:EXCERPT].strip()


def _texts(params: Mapping[str, Any]) -> Iterator[str]:
    message = params.get("message")
    if isinstance(message, str):
        yield message
    for one in reversed(listed(params.get("messages"))):
        for block in listed(one.get("content") if isinstance(one, Mapping) else None):
            if isinstance(block, Mapping) and isinstance(block.get("text"), str):
                yield block["text"]


MAX_REPEATS: Final = 100  # of one answer, where another one follows: a server may ask the same for ever
_RULES: Final = {
    (True, False): "in the rules that allow",
    (False, True): "in an `allow`, in place of the rules that forward sampling",
    (True, True): "in the rules that allow, and in an `allow` in place of those that forward sampling",
}
"""Where the model of a tape belongs, by whether models and whether the client answered sampling."""
_PROBE: Final = '- fingerprint: "0000000000000000"\n  fail: error\n'


class Cassette:
    """An open file of cases, locked until it is closed. ``warn`` is a log's ``warning``; it is told once what could not
    be written."""

    def __init__(self, path: Path, fd: int, size: int, known: Script | None, warn: Callable[..., object]) -> None:
        self.path = path
        self.cases = 0
        """How many were written."""
        self.left_out = 0
        """How many answers no case could hold, or the file would not take."""
        self.sorts: set[tuple[str, str]] = set()
        """Of which kind and effect the recorded ones were."""
        self._fd = fd
        self._size = size
        self._known = frozenset[str]() if known is None else known.prints
        self._fresh = known is None
        self._last: dict[str, str] = {}
        self._repeats: dict[str, int] = {}
        self._warn = warn
        self._warned = False

    @classmethod
    def open(cls, path: Path, *, warn: Callable[..., object] = lambda _event, **_fields: None) -> Cassette:
        """A tape that does not exist, is empty, or is a file of cases that more can follow. Raises Unavailable for any
        other file."""
        try:
            make_folder(path.parent)
            fd = os.open(
                path,
                os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0),
                0o600,
            )
        except OSError as problem:
            raise Unavailable(
                f"record: {path} cannot be written: {(problem.strerror or str(problem)).lower()}"
            ) from problem
        try:
            text = _read(path, fd)
            return cls(path, fd, len(text.encode()), _script(path, text), warn)
        except BaseException:
            os.close(fd)
            raise

    def take_record(self, record: Record) -> None:
        """Take what stands in a record of the decision log, if it is a model's or the client's answer. Never raises."""
        params = record.request if record.asked is None else record.asked
        attempts = record.attempts
        failure = (
            attempts[-1].result if record.outcome == "unanswered" and attempts and attempts[-1].result != "ok" else None
        )
        method = "sampling/createMessage" if record.kind == "sampling" else "elicitation/create"
        self.take(
            method,
            params,
            effect=record.effect,
            decided_by=record.decided_by,
            result=record.result if record.outcome == "answered" else None,
            failure=failure,
            input_tokens=record.input_tokens,
            output_tokens=record.output_tokens,
        )

    def take(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        effect: str,
        decided_by: str | None,
        result: bytes | None = None,
        failure: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        """Take one answer, after its record stands. Only a model's (effect allow) and the client's (effect forward) are
        taken. Never raises.

        ``params`` are what a model was asked, within its rule's bounds, as the ``scripted`` model will be; for a
        forward what the server sent. ``result`` is the result's JSON as released, ``failure`` the model's
        (``core.prompt.Failure``).
        """
        by_model = effect == "allow" and (failure is not None or decided_by == "policy")
        by_client = effect == "forward" and failure is None and decided_by == "client"
        if params is None or not (by_model or by_client) or (result is None and failure is None):
            return
        try:
            said = (
                taped_failure(params, failure, input_tokens=input_tokens, output_tokens=output_tokens)
                if failure is not None
                else None
            )
            if failure is None:
                said = taped_answer(
                    params, decode(result or b""), input_tokens=input_tokens, output_tokens=output_tokens
                )
            self._keep(said, method.partition("/")[0], effect)
        except JsonFault:
            self._leave_out("an answer has more than one reading")
        except OSError as problem:
            self._leave_out(f"the file cannot be written: {problem.strerror or type(problem).__name__}")
        except Exception as problem:  # nobody's answer waits for this, and none is to be lost over it
            self._leave_out(f"a fault while recording ({type(problem).__name__})")

    def summary(self, folder: Path) -> list[str]:
        """For the end of a run: what was recorded, and the lines of a policy in ``folder`` that answer from it."""
        missed = f", {self.left_out} left out" if self.left_out else ""
        if not self.cases:
            return [f"recorded no new cases in {self.path}{missed}"]
        file = json.dumps(_beside(self.path, folder), ensure_ascii=False)
        lines = [
            f"recorded {self.cases} case{'s' if self.cases > 1 else ''} in {self.path}{missed}; to answer from it:"
        ]
        if rules := _RULES.get((("sampling", "allow") in self.sorts, ("sampling", "forward") in self.sorts)):
            lines.append(
                f"  models:  - {{name: taped, model: scripted, cases: {file}}}    # and `with: {{models: [taped]}}`"
                f" {rules}"
            )
        if ("elicitation", "forward") in self.sorts:
            rule = f"  rules:   - {{name: taped answers, match: {{kind: elicitation}}, effect: answer, cases: {file}}}"
            lines.append(f"{rule}    # in place of those that forward")
        return lines

    def close(self) -> None:
        """Give the file free."""
        if self._fd >= 0:
            unlock(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _keep(self, said: Taped | None, kind: str, effect: str) -> None:
        """Write a case, unless the file knew the request from the start, or the last case of its fingerprint says the
        same and stays."""
        if said is None:
            self._leave_out("a script cannot say what was answered")
            return
        if said.fingerprint in self._known:
            return
        last = self._last.get(said.fingerprint)
        if last == said.text:
            self._repeats[said.fingerprint] = min(self._repeats.get(said.fingerprint, 0) + 1, MAX_REPEATS)
            return
        repeats = self._repeats.pop(said.fingerprint, 0)
        self._append((last or "") * repeats + said.text, repeats + 1)
        self._last[said.fingerprint] = said.text
        self.sorts.add((kind, effect))

    def _append(self, text: str, cases: int) -> None:
        """Whole or not at all."""
        data = ((HEADER if self._fresh else "") + text).encode()
        if self._size + len(data) > MAX_BYTES:
            raise OSError(0, f"it would be larger than {MAX_BYTES} bytes")
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)
        self._fresh = False
        self.cases += cases

    def _leave_out(self, why: str) -> None:
        self.left_out += 1
        if not self._warned:
            self._warned = True
            self._warn("tape.left_out", path=str(self.path), why=why)


def _read(path: Path, fd: int) -> str:
    """All that stands in the file, once it is ours."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Unavailable(f"record: {path} is no file; name one")
    try:
        lock(fd, lambda: 0.0)
    except TimeoutError:
        raise Unavailable(f"record: {path} is being recorded to by another process; name another file") from None
    with os.fdopen(os.dup(fd), "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Unavailable(
            f"record: {path} is not UTF-8, so it is no file of cases; name another file, or an empty one"
        ) from None


def _script(path: Path, text: str) -> Script | None:
    """The cases of the file, None where there are none yet. What can be read and be added to is a tape, whoever wrote
    it."""
    if not text.strip():
        return None
    try:
        script = parse(text, file=str(path))
        more = parse(text + _PROBE, file=str(path)) if text.endswith("\n") else None
    except PolicyError as error:
        problem = error.problems[0]
        where = f"line {problem.line}: {problem.what}"
        raise Unavailable(
            f"record: {path} is no file of cases that more can follow ({where}); name another file, or an empty one"
        ) from None
    if more is None or more.size != script.size + 1:
        raise Unavailable(
            f"record: {path} does not end in a list of cases that more can follow; name another file, or an empty one"
        )
    return script


def _beside(path: Path, folder: Path) -> str:
    """The path as a policy in ``folder`` names it."""
    here, there = path.resolve(), folder.resolve()
    return here.relative_to(there).as_posix() if here.is_relative_to(there) else here.as_posix()
