"""Cassettes: ``run --record FILE`` writes the answers of models and clients as cases of a script. ``playback.py`` and
the ``scripted`` model play them back.

Mode ``once`` appends the requests that the file does not have. Mode ``all`` writes a new file beside it, which replaces
it at the end of the run; until then, the old file stays as it is.

A case has the answer, the fingerprint of the request and, as a comment, the request's first characters. A form with a
value in a field that looks like a secret gets no case, because no program may fill it in again (R39). The file has
content, so only its owner can read it (mode 0600). It is a complete script after every case. Nothing depends on it: if
a case cannot be written, that is only logged.
"""

from __future__ import annotations

import contextlib
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
from samplegate.files import identity, identity_of, lock, make_folder, sync_file, sync_folder, unlock
from samplegate.policy.conditions import listed
from samplegate.policy.prompt import Failure
from samplegate.policy.script import BLOCKS, MAX_BYTES, Script, fingerprint, parse
from samplegate.protocol.strictjson import JsonFault, decode, quoted_name
from samplegate.secret_names import looks_secret, secret_fields
from samplegate.yamlfile.tree import PolicyError

HEADER: Final = "cases:\n"
EXCERPT: Final = 60

# Characters that YAML allows only as escapes, and unpaired surrogates, which it does not allow at all.
_unseen: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]")
_halves: Final = re.compile("[\ud800-\udfff]")
_harmful: Final = re.compile(r"[^\w .,;:?!()/-]+")


class CassetteCase(msgspec.Struct, frozen=True):
    """A case in its written form."""

    fingerprint: str
    text: str


def answer_case(
    params: Mapping[str, Any], result: Any, *, input_tokens: int | None = None, output_tokens: int | None = None
) -> CassetteCase | None:
    """The case for a released (decoded) result; None if a script cannot express it."""
    if not isinstance(result, Mapping):
        return None
    if "action" in result:
        return _recorded_case(params, _form(params, result))
    blocks = [_block(block) for block in listed(result.get("content"))]
    case = {"content": blocks, "model": result.get("model"), "stop_reason": result.get("stopReason")}
    return _recorded_case(params, {**case, "input_tokens": input_tokens, "output_tokens": output_tokens})


def failure_case(
    params: Mapping[str, Any], failure: str, *, input_tokens: int | None = None, output_tokens: int | None = None
) -> CassetteCase | None:
    """The case for a failed model; None if the failure is not a model's."""
    if failure not in get_args(Failure):
        return None
    return _recorded_case(params, {"fail": failure, "input_tokens": input_tokens, "output_tokens": output_tokens})


def _form(params: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """A form's answer; empty if no program may give it: an accepted URL (R41), or a secret."""
    action, values = result.get("action"), result.get("content") or {}
    if action != "accept":
        return {"action": action}
    if not isinstance(values, Mapping) or withheld_values(params, values) is not None:
        return {}
    return {"action": action, "values": dict(values)}


def withheld_values(params: Mapping[str, Any], values: Mapping[str, Any]) -> str | None:
    """Why no program may accept an elicitation with these values, None if one may: it is a URL (R41), or a field looks
    like a secret (R39)."""
    if params.get("mode") == "url":
        return "the gate never accepts a URL"
    secret = secret_fields(params.get("requestedSchema"))
    for name, value in values.items():
        if (name in secret or looks_secret(name)) and not isinstance(value, bool):
            return f"field {quoted_name(name)} looks like a secret, and the gate never fills in secrets"
    return None


def _block(block: Any) -> Any:
    """A content block with the members that a script knows: without annotations and ``_meta``."""
    if not isinstance(block, Mapping):
        return block
    known = {"type", *BLOCKS.get(str(block.get("type")), ())}
    return {name: value for name, value in block.items() if name in known}


def _recorded_case(params: Mapping[str, Any], case: Mapping[str, Any]) -> CassetteCase | None:
    """The case as text; None if it cannot be read back."""
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
    return CassetteCase(key, text)


def _yaml(value: Any) -> str:
    """JSON, which is also YAML except for some characters."""
    text = json.dumps(value, ensure_ascii=False)
    return _unseen.sub(lambda found: f"\\u{ord(found[0]):04x}", _halves.sub("\ufffd", text))


def _excerpt(params: Mapping[str, Any]) -> str:
    """The first harmless characters of the newest text, to find a case in the file."""
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


MAX_REPEATS: Final = 100  # of one answer before a different one: a server may repeat a request endlessly
_RULES: Final = {
    (True, False): "in the `allow` rules",
    (False, True): "in an `allow` rule, in place of the rules that forward sampling",
    (True, True): "in the `allow` rules, and in one that replaces the rules that forward sampling",
}
"""Where a policy names the cassette's model: whether models answered, whether the client answered sampling."""
_PROBE: Final = '- fingerprint: "0000000000000000"\n  fail: error\n'


class Cassette:
    """An open cassette file, locked until it is closed. ``warn`` is a log's ``warning``; it is called once, for the
    first case that is left out."""

    unused: Final = 0
    """The number of cases that were not played, as in ``Playback``: recording plays none."""
    fails_if_unused: Final = False

    def __init__(
        self, path: Path, locked: int, known: Script | None, warn: Callable[..., object], draft: Draft | None = None
    ) -> None:
        """``known``: the cases of the file at the start. ``draft`` takes the cases if they replace the file's."""
        self.path = path
        self.cases = 0
        """The number of cases written."""
        self.left_out = 0
        """The number of answers left out: no case could express them, or the file could not be written."""
        self.sorts: set[tuple[str, str]] = set()
        """The kind and effect of the recorded answers."""
        self._locked = locked
        self._draft = draft
        self._fd = locked if draft is None else draft.fd
        self._size = os.fstat(self._fd).st_size
        self._before = 0 if known is None else known.size
        self._known = frozenset[str]() if known is None or draft is not None else known.prints
        self._fresh = known is None or draft is not None
        self._last: dict[str, str] = {}
        self._repeats: dict[str, int] = {}
        self._warn = warn
        self._warned = False
        self._unwritten = ""

    @classmethod
    def open(
        cls, path: Path, *, replace: bool = False, warn: Callable[..., object] = lambda _event, **_fields: None
    ) -> Cassette:
        """Open a cassette: a new or empty file, or a file of cases to which more can be appended. With ``replace``, the
        new cases replace the file's when it is finished. Raises Unavailable for any other file."""
        try:
            make_folder(path.parent)
            made = not path.exists()
            fd = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS | getattr(os, "O_NONBLOCK", 0), 0o600)
        except OSError as problem:
            raise Unavailable(
                f"record: {path} cannot be written: {(problem.strerror or str(problem)).lower()}"
            ) from problem
        try:
            text = _read_locked(path, fd)
            known = _script(path, text, appended=not replace)
            return cls(path, fd, known, warn, Draft.open(path, made=made, like=fd) if replace else None)
        except BaseException:
            os.close(fd)
            raise

    def add_record(self, record: Record) -> None:
        """Record the answer in a record of the decision log, if a model or the client gave it. Never raises."""
        params = record.request if record.asked is None else record.asked
        attempts = record.attempts
        failure = (
            attempts[-1].result if record.outcome == "unanswered" and attempts and attempts[-1].result != "ok" else None
        )
        method = "sampling/createMessage" if record.kind == "sampling" else "elicitation/create"
        self.add(
            method,
            params,
            effect=record.effect,
            decided_by=record.decided_by,
            result=record.result if record.outcome == "answered" else None,
            failure=failure,
            input_tokens=record.input_tokens,
            output_tokens=record.output_tokens,
        )

    def add(
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
        """Record one answer after it was logged: a model's (effect allow) or the client's (effect forward). Never
        raises.

        ``params`` are the model's params within the rule's constraints, as the ``scripted`` model will get them; for a
        forward, the server's params. ``result`` is the result's JSON as released, ``failure`` the model's failure
        (``policy.prompt.Failure``).
        """
        by_model = effect == "allow" and (failure is not None or decided_by == "policy")
        by_client = effect == "forward" and failure is None and decided_by == "client"
        if params is None or not (by_model or by_client) or (result is None and failure is None):
            return
        try:
            case = (
                failure_case(params, failure, input_tokens=input_tokens, output_tokens=output_tokens)
                if failure is not None
                else None
            )
            if failure is None:
                case = answer_case(
                    params, decode(result or b""), input_tokens=input_tokens, output_tokens=output_tokens
                )
            self._keep(case, method.partition("/")[0], effect)
        except JsonFault:
            self._leave_out("the answer is ambiguous JSON")
        except OSError as problem:
            self._unwritten = problem.strerror or type(problem).__name__
            self._leave_out(f"the file cannot be written: {self._unwritten}")
        except Exception as problem:  # a fault in recording must not fail the request
            self._leave_out(f"internal error while recording ({type(problem).__name__})")

    def finish(self, folder: Path) -> list[str]:
        """Close the file and put new cases in place. Returns the summary of the run: the number of cases, and the lines
        of a policy in ``folder`` that answer from them."""
        try:
            if self._draft is not None and self.cases and not self._unwritten:
                self._draft.replace()
        except OSError as problem:
            self._unwritten = problem.strerror or type(problem).__name__
        finally:
            self.close()
        return self.summary(folder)

    def summary(self, folder: Path) -> list[str]:
        """The lines of ``finish``."""
        missed = f", {self.left_out} left out" if self.left_out else ""
        if self._draft is not None and self._unwritten:
            return [
                f"recorded nothing; {self.path} is unchanged, because not all cases could be written: {self._unwritten}"
            ]
        if not self.cases:
            if self._draft is not None:
                return [f"recorded no cases{missed}; {self.path} is unchanged"]
            return [f"recorded no new cases in {self.path}{missed}"]
        file = json.dumps(_beside(self.path, folder), ensure_ascii=False)
        replaced = f", in place of {self._before}" if self._draft is not None and self._before else ""
        cases = f"{self.cases} case{'s' if self.cases > 1 else ''}"
        to_play = "to answer from it, add --record-mode replay, or to the policy:"
        lines = [f"recorded {cases} in {self.path}{replaced}{missed}; {to_play}"]
        if rules := _RULES.get((("sampling", "allow") in self.sorts, ("sampling", "forward") in self.sorts)):
            lines.append(
                f"  models:  - {{name: recorded, model: scripted, cases: {file}}}    # and `with: {{models:"
                f" [recorded]}}` {rules}"
            )
        if ("elicitation", "forward") in self.sorts:
            rule = (
                f"  rules:   - {{name: recorded answers, match: {{kind: elicitation}}, effect: answer, cases: {file}}}"
            )
            lines.append(f"{rule}    # in place of the rules that forward")
        return lines

    def close(self) -> None:
        """Unlock and close the file. Cases that were to replace it are dropped, unless ``finish`` has put them in
        place."""
        if self._draft is not None:
            self._draft.close()
        if self._locked >= 0:
            unlock(self._locked)
            os.close(self._locked)
            self._locked = self._fd = -1

    def _keep(self, case: CassetteCase | None, kind: str, effect: str) -> None:
        """Write a case, unless the file had its request at the start, or its fingerprint's last case is identical and
        stays the last."""
        if case is None:
            self._leave_out("a script cannot express the answer")
            return
        if case.fingerprint in self._known:
            return
        last = self._last.get(case.fingerprint)
        if last == case.text:
            self._repeats[case.fingerprint] = min(self._repeats.get(case.fingerprint, 0) + 1, MAX_REPEATS)
            return
        repeats = self._repeats.pop(case.fingerprint, 0)
        self._append((last or "") * repeats + case.text, repeats + 1)
        self._last[case.fingerprint] = case.text
        self.sorts.add((kind, effect))

    def _append(self, text: str, cases: int) -> None:
        """Append text, all or nothing."""
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


_FLAGS: Final = os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Draft:
    """The new file beside a cassette, which takes its place at the end. If the run is killed, it is left behind, and
    the next run in this mode removes it."""

    def __init__(self, path: Path, target: Path, fd: int, *, made: bool) -> None:
        """``made``: the target did not exist, and was created only to lock it."""
        self.path, self.target, self.fd, self._made = path, target, fd, made
        self._replaced = False

    @classmethod
    def open(cls, cassette: Path, *, made: bool, like: int) -> Draft:
        """Create the draft of a locked cassette, with the modes of the open file ``like``. Raises Unavailable."""
        target = cassette.resolve()  # a link stays a link
        path = target.with_name(f".{target.name}.new")
        try:
            path.unlink(missing_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
            try:
                if hasattr(os, "fchmod"):
                    os.fchmod(fd, stat.S_IMODE(os.fstat(like).st_mode))
            except BaseException:
                os.close(fd)
                raise
        except OSError as problem:
            raise Unavailable(
                f"record: {path}, the file for new cases, cannot be written:"
                f" {(problem.strerror or str(problem)).lower()}"
            ) from problem
        return cls(path, target, fd, made=made)

    def replace(self) -> None:
        """Put the draft in the cassette's place, as a whole. Raises OSError."""
        sync_file(self.fd)
        self.path.replace(self.target)
        self._replaced = True
        with contextlib.suppress(OSError):
            sync_folder(self.target.parent)

    def close(self) -> None:
        """Close the draft, and remove it unless it has taken the cassette's place. Idempotent."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        if not self._replaced:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
                if self._made and not self.target.stat().st_size:
                    self.target.unlink()


def read_text(path: Path, fd: int) -> str:
    """The text of an open cassette, read from its start. Raises Unavailable if it is not a regular file, too large or
    not UTF-8."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Unavailable(f"record: {path} is not a regular file; use a file")
    try:
        with os.fdopen(os.dup(fd), "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise Unavailable(f"record: {path} cannot be read: {(problem.strerror or str(problem)).lower()}") from problem
    if len(raw) > MAX_BYTES:
        raise Unavailable(f"record: {path} is larger than {MAX_BYTES} bytes; use another file, or fewer cases")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Unavailable(
            f"record: {path} is not UTF-8, so it is not a case file; use another file, or an empty one"
        ) from None


def _read_locked(path: Path, fd: int) -> str:
    """Lock the file and read its text."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Unavailable(f"record: {path} is not a regular file; use a file")
    try:
        lock(fd, lambda: 0.0)
        ours = identity(path) == identity_of(fd)  # or a run that recorded all anew has just replaced it
    except TimeoutError:
        ours = False
    if not ours:
        raise Unavailable(f"record: {path} is being recorded to by another process; use another file")
    return read_text(path, fd)


def _script(path: Path, text: str, *, appended: bool = True) -> Script | None:
    """The cases of the file, or None if it is empty. A file is a cassette if it can be read and (if ``appended``)
    appended to, whatever program wrote it."""
    if not text.strip():
        return None
    try:
        script = parse(text, file=str(path))
        if not appended:
            return script
        more = parse(text + _PROBE, file=str(path)) if text.endswith("\n") else None
    except PolicyError as error:
        problem = error.problems[0]
        where = f"line {problem.line}: {problem.what}"
        can = "is not a case file that can be appended to" if appended else "is not a case file"
        raise Unavailable(f"record: {path} {can} ({where}); use another file, or an empty one") from None
    if more is None or more.size != script.size + 1:
        raise Unavailable(
            f"record: {path} does not end with a list of cases, so nothing can be appended; use another"
            " file, or an empty one"
        )
    return script


def _beside(path: Path, folder: Path) -> str:
    """The path as a policy in ``folder`` refers to it."""
    here, there = path.resolve(), folder.resolve()
    return here.relative_to(there).as_posix() if here.is_relative_to(there) else here.as_posix()
