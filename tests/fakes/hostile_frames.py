"""Frames that are cheap for a peer to write and expensive to parse, by name, for tests and ``make bench``.

    for name, make in CALLS.items():
        line = make(7, SIZE)

Each function gives one whole line (no line end) of about ``size`` bytes. CALLS are requests of a client's to a server
that answers anything, ANSWERS a server's answers, NOTICES notifications of either side. ``modern_call`` is a request
with the envelope of 2026-07-28, for HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

MIB: Final = 1024 * 1024
SIZE: Final = 16 * MIB - 4096
"""Bytes: as much as a large picture has."""
TOLERATED: Final = 8 * MIB - 4096
"""Bytes: just within the bound for a text that is not quite JSON, which is the most work for its size."""
SIZES: Final = (SIZE, TOLERATED)
NUMBERS: Final = 499_999
"""Just within the bound for each of the numbers that JSON does not have."""
Value = Callable[[int], bytes]
Make = Callable[[int, int], bytes]
"""id, size in bytes -> line"""

_VERSION: Final = b'"io.modelcontextprotocol/protocolVersion":"2026-07-28"'
_CAPABILITIES: Final = b'"io.modelcontextprotocol/clientCapabilities":'


def _repeated(first: bytes, unit: bytes, last: bytes) -> Value:
    return lambda size: first + unit * max(0, (size - len(first) - len(last)) // len(unit)) + last


def _many_members(size: int, value: bytes = b"1", last: bytes = b'"z":1}') -> bytes:
    return b"{" + b"".join([b'"%x":%b,' % (each, value) for each in range(size // (8 + len(value)))]) + last


def _bounded(unit: bytes, filling: bytes) -> Value:
    """A list of the largest allowed number of units, followed by other values."""

    def make(size: int) -> bytes:
        units = unit * min(NUMBERS, size // len(unit))
        return b"[" + units + filling * max(0, (size - len(units)) // len(filling)) + b"1]"

    return make


VALUES: Final[Mapping[str, Value]] = {
    "a lone surrogate and millions of escapes": _repeated(b'"\\ud800 ', b"\\n", b'"'),
    "millions of escapes and a lone surrogate": _repeated(b'"', b"\\\\", b'\\ud800"'),
    "lone surrogates": _repeated(b'"', b"\\ud800", b'"'),
    "lone surrogates of both cases": _repeated(b'"', b"\\ud800 \\uDFFF ", b'"'),
    "pairs of surrogates and a lone one": _repeated(b'"\\udc00', b"\\ud83d\\ude00", b'"'),
    "NaN": _repeated(b"[", b"NaN,", b"1]"),
    "-Infinity": _repeated(b"[", b"-Infinity,", b"1]"),
    "as many NaN as may be, and strings": _bounded(b"NaN,", b'"",'),
    "as many -Infinity as may be, and objects": _bounded(b"-Infinity,", b"{},"),
    "as many of each number as may be": _bounded(b"NaN,Infinity,-Infinity,", b"1,"),
    "a NaN and empty objects": _repeated(b"[NaN,", b"{},", b"1]"),
    "a lone surrogate and empty objects": _repeated(b'["\\ud800",', b"{},", b"1]"),
    "a NaN and millions of strings": _repeated(b"[NaN,", b'"",', b"1]"),
    "strings between NaN": _repeated(b"[", b'"",NaN,', b"1]"),
    "a million members": _many_members,
    "a million members and a NaN": lambda size: _many_members(size, last=b'"z":NaN}'),
    "a million members and a lone surrogate": lambda size: _many_members(size, last=b'"z":"\\ud800"}'),
    "a million twins": _repeated(b"{", b'"a":1,', b'"a":1}'),
    "a million twins and a NaN": _repeated(b"{", b'"a":1,', b'"a":NaN}'),
    "empty objects": _repeated(b"[", b"{},", b"{}]"),
    "objects of one member": _repeated(b"[", b'{"a":1},', b"{}]"),
    "open lists": _repeated(b"", b"[", b""),
    "deep lists": lambda size: b"[" * 900 + b"1" + b"]" * 900,
    "backslashes": _repeated(b'"', b"\\\\", b'"'),
    "spaces": _repeated(b"[1,", b" ", b"1]"),
    "numbers": _repeated(b"[", b"1e5,", b"1]"),
    "one long name": lambda size: b'{"' + b"x" * size + b'":1}',
    "a long name of lone surrogates": lambda size: b'{"' + b"\\ud800" * (size // 6) + b'":1}',
    "words of the protocol": _repeated(
        b'"', b"input_required task requestState -32042 progressToken traceparent \\u0041", b'"'
    ),
    "bytes that are not UTF-8": _repeated(b'"', b"\xff\xfe", b'"'),
}
"""JSON values, or what looks like one, of about that size in bytes."""


def _request(method: bytes, params: bytes, number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (number, method, params)


def _call(value: Value) -> Make:
    return lambda number, size: _request(
        b"tools/call", b'{"name":"echo","arguments":{"text":%b}}' % value(size), number
    )


def _beside(value: Value) -> Make:
    """The value in a member that the JSON-RPC envelope does not have."""
    return lambda number, size: (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{}},"more":%b}'
        % (number, value(size))
    )


def _params(value: Value) -> Make:
    return lambda number, size: _request(b"tools/call", value(size), number)


def _meta(value: Value) -> Make:
    return lambda number, size: _request(
        b"tools/call", b'{"name":"echo","arguments":{},"_meta":{"progressToken":1,"x":%b}}' % value(size), number
    )


def _names(number: int, size: int) -> bytes:
    """Many members in the envelope itself."""
    names = _many_members(size - 100)[1:]
    return b'{"jsonrpc":"2.0","id":%d,"method":"ping",' % number + names


def _spaced_names(number: int, size: int) -> bytes:
    return _names(number, size).replace(b"{", b"{ ", 1)


def _twins(number: int, size: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"ping"%b}' % (number, b',"a":1' * (size // 6))


def _spaces(number: int, size: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"ping"%b}' % (number, b" " * size)


CALLS: Final[Mapping[str, Make]] = {
    **{f"{name}, in an argument": _call(value) for name, value in VALUES.items()},
    **{f"{name}, in the envelope": _beside(value) for name, value in VALUES.items()},
    **{f"{name}, in _meta": _meta(value) for name, value in VALUES.items()},
    **{
        f"{name}, as params": _params(VALUES[name])
        for name in VALUES
        if "members" in name or "twins" in name or "name" in name
    },
    "a million members of the envelope": _names,
    "a million members of the envelope and spaces": _spaced_names,
    "a million twins in the envelope": _twins,
    "spaces in the envelope": _spaces,
}
"""A client's requests, legacy. Some are no JSON: those are refused."""


def modern_call(value: Value, place: str = "argument") -> Make:
    """A tools/call of 2026-07-28. ``place`` is where the value goes: argument, meta or capabilities."""

    def make(number: int, size: int) -> bytes:
        big = value(size)
        capabilities = b'{"x":%b}' % big if place == "capabilities" else b"{}"
        more = b',"x":' + big if place == "meta" else b""
        argument = big if place == "argument" else b"1"
        meta = b"{" + _VERSION + b"," + _CAPABILITIES + capabilities + more + b"}"
        return _request(b"tools/call", b'{"name":"echo","arguments":{"text":%b},"_meta":%b}' % (argument, meta), number)

    return make


MODERN_CALLS: Final[Mapping[str, Make]] = {
    f"{name}, in {place}": modern_call(value, place)
    for place in ("argument", "meta", "capabilities")
    for name, value in VALUES.items()
}
"""The same with the modern envelope."""


def _result(form: bytes) -> Callable[[Value], Make]:
    return lambda value: lambda number, size: b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (number, form % value(size))


_in_content, _bare, _asking = (
    _result(b'{"content":[{"type":"text","text":%b}]}'),
    _result(b"%b"),
    _result(b'{"resultType":"input_required","x":%b}'),
)


def _error(value: Value) -> Make:
    return lambda number, size: (
        b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32042,"message":"","data":%b}}' % (number, value(size))
    )


ANSWERS: Final[Mapping[str, Make]] = {
    **{f"{name}, in content": _in_content(value) for name, value in VALUES.items()},
    **{f"{name}, as result": _bare(value) for name, value in VALUES.items()},
    **{f"{name}, where input is required": _asking(value) for name, value in VALUES.items()},
    **{f"{name}, in an error": _error(value) for name, value in VALUES.items()},
}
"""A server's answers."""


def _notice(value: Value) -> Make:
    return lambda number, size: (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1,"x":%b}}'
        % (
            number,
            value(size),
        )
    )


NOTICES: Final[Mapping[str, Make]] = {f"{name}, in a notification": _notice(value) for name, value in VALUES.items()}
"""Notifications."""


LIGATURE: Final = "\ufdfa".encode()
"""One character that becomes eighteen when it is normalized."""


def many_names(word: bytes) -> Value:
    """An object with the largest allowed number of names. The cost of folding them depends on ``word``, its length and
    their number."""
    count = min(9_000, 250_000 // (len(word.decode()) + 6))
    return lambda _size: b"{" + b",".join(b'"%b%06d":1' % (word, number) for number in range(count)) + b"}"


NAMES: Final[Mapping[str, Value]] = {
    "plain names": many_names(b"a_"),
    "accented names": many_names("\u00e9_".encode()),
    "full-width names": many_names("\uff4e\uff41\uff4d\uff45".encode()),
    "names of ligatures": many_names(LIGATURE * 95),
    "names of dots": many_names("\u0307".encode() * 90 + b"name"),
}
"""Objects whose names are costly to compare as lenient parsers do."""


def _in_place_of_params(value: Value) -> Make:
    meta = b'"_meta":{' + _VERSION + b"," + _CAPABILITIES + b"{}"
    return lambda number, size: _request(
        b"tools/call", b'{"name":"echo",%b,%b,%b}' % (value(size)[1:-1], meta, value(size)[1:]), number
    )


def _in_replies(number: int, size: int) -> bytes:
    """Answers without a request: 64 with as many blocks as fit, each with names that are expensive to compare."""
    names = b",".join(b'"%b%02d":1' % (LIGATURE * 85, each) for each in range(11))
    block = b'{"type":"text","text":"a",%b}' % names
    blocks = b",".join([block] * (size // 64 // (len(block) + 1)))
    answers = b",".join(b'"k%d":{"role":"assistant","content":[%b]}' % (each, blocks) for each in range(64))
    meta = _VERSION + b"," + _CAPABILITIES + b'{"sampling":{}}'
    return _request(b"tools/call", b'{"name":"echo","inputResponses":{%b},"_meta":{%b}}' % (answers, meta), number)


def _of_envelope(value: Value) -> Make:
    return lambda number, size: b'{"jsonrpc":"2.0","id":%d,"method":"ping",%b' % (number, value(size)[1:])


NAMED_CALLS: Final[Mapping[str, Make]] = {
    **{f"{name}, in params and _meta": _in_place_of_params(value) for name, value in NAMES.items()},
    **{f"{name}, of the envelope": _of_envelope(value) for name, value in NAMES.items()},
    "names of ligatures, in the blocks of replies": _in_replies,
}
"""A client's requests of 2026-07-28."""


def _in_entries(value: Value) -> Make:
    def make(number: int, size: int) -> bytes:
        entry = b'{"method":"roots/list",%b' % value(size)[1:]
        entries = b",".join(b'"%d":%b' % (key, entry) for key in range(min(25, size // len(entry))))
        return b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","inputRequests":{%b}}}' % (
            number,
            entries,
        )

    return make


def _in_error(value: Value) -> Make:
    return lambda number, size: b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32042,"message":"","data":%b,%b}' % (
        number, value(size), value(size)[1:],
    )  # fmt: skip


NAMED_ANSWERS: Final[Mapping[str, Make]] = {
    **{f"{name}, as result": _bare(value) for name, value in NAMES.items()},
    **{f"{name}, in entries": _in_entries(value) for name, value in NAMES.items()},
    **{f"{name}, in an error": _in_error(value) for name, value in NAMES.items()},
}
"""A server's answers."""
