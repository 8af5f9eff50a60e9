"""The cost of a frame: no frame of 16 MiB blocks the thread that reads it for 250 ms, whatever it contains."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping

import pytest

from samplegate.protocol import frames
from samplegate.protocol.rawjson import MAX_MEMBERS, MAX_NAMES, Malformed
from tests.fakes.dialogue import ALLOW, ANSWER, FORWARD, Dialogue, request, result, to_server
from tests.fakes.hostile_frames import (
    ANSWERS,
    CALLS,
    MIB,
    MODERN_CALLS,
    NAMED_ANSWERS,
    NAMED_CALLS,
    SIZE,
    Make,
    modern_call,
)

MOST = 0.25  # seconds of the thread's CPU time
WORST = [
    "a lone surrogate and millions of escapes",
    "millions of escapes and a lone surrogate",
    "lone surrogates",
    "NaN",
    "a NaN and millions of strings",
    "a million members",
    "a million twins and a NaN",
    "empty objects",
]


def legacy() -> Dialogue:
    """A session of 2025-11-25 with one call in flight."""
    d = Dialogue(FORWARD, ANSWER, ALLOW)
    d.open_legacy(elicitation={}, sampling={})
    d.client(request(7, "tools/call", name="echo", arguments={}))
    return d


def cheapest(step: Callable[[], Callable[[], object]]) -> float:
    """The CPU time of a step: the least of three tries, because other load on the machine costs time too."""
    took = []
    for _ in range(3):
        run = step()
        before = time.thread_time()
        run()
        took.append(time.thread_time() - before)
        if took[-1] < MOST:
            break
    return min(took)


def a_call(line: bytes) -> Callable[[], object]:
    d = legacy()
    return lambda: d.client(line)


def a_modern_call(line: bytes) -> Callable[[], object]:
    d = Dialogue(FORWARD, ANSWER, ALLOW)
    return lambda: d.client(line)


def an_answer(line: bytes) -> Callable[[], object]:
    d = legacy()
    return lambda: d.server(line)


def a_modern_answer(line: bytes) -> Callable[[], object]:
    d = Dialogue(FORWARD, ANSWER, ALLOW)
    d.client(modern_call(lambda _: b"1")(7, 0))
    return lambda: d.server(line)


CASES: list[tuple[Mapping[str, Make], str, Callable[[bytes], Callable[[], object]]]] = [
    *((CALLS, f"{name}, in an argument", a_call) for name in WORST),
    *((MODERN_CALLS, f"{name}, in capabilities", a_modern_call) for name in WORST[1:4]),
    *((ANSWERS, f"{name}, where input is required", an_answer) for name in WORST[1:4]),
    (CALLS, "a million members of the envelope", a_call),
    *((NAMED_CALLS, name, a_modern_call) for name in NAMED_CALLS),
    *((NAMED_ANSWERS, name, a_modern_answer) for name in NAMED_ANSWERS),
]


@pytest.mark.parametrize(
    ("make", "begin"), [pytest.param(of[name], begin, id=f"{begin.__name__}: {name}") for of, name, begin in CASES]
)
def test_no_frame_costs_much(make: Make, begin: Callable[[bytes], Callable[[], object]]) -> None:
    line = make(8 if begin is a_call else 7, SIZE)
    assert MOST > cheapest(lambda: begin(line))


@pytest.mark.parametrize(
    "text",
    [
        rb'{"name":"echo","arguments":{"a":"\ud83d","b":"\\ud800"}}',
        b'{"name":"echo","arguments":{"a":NaN,"b":-Infinity,"c":"NaN"}}',
    ],
    ids=["half a character", "numbers that are none"],
)
def test_what_is_not_quite_json_still_passes_as_it_came(text: bytes) -> None:
    d = legacy()
    line = b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":' + text + b"}"
    assert [line] == [effect.line for effect in d.client(line) if hasattr(effect, "line")]


@pytest.mark.parametrize(
    "text", [b"1NaN", b"NaN1", b"NaNNaN", b"-NaN", b"+Infinity", b"xNaN", b"Infinity.0", b"1d", rb'"\udXYZ"', b"[NaN"]
)
def test_what_is_no_json_at_all_is_refused(text: bytes) -> None:
    with pytest.raises(Malformed):
        frames.read(b'{"jsonrpc":"2.0","id":8,"method":"ping","params":{"a":' + text + b"}}")


def test_a_name_keeps_its_letters_where_the_text_is_not_quite_json() -> None:
    frame = frames.read(
        rb'{"jsonrpc":"2.0","id":8,"method":"ping","params":{"d":1,"c":2,"\ud83d\ude00":3,"NaN":4,"x":NaN}}'
    )
    assert {"d": b"1", "c": b"2", "\U0001f600": b"3", "NaN": b"4", "x": b"NaN"} == {
        name: bytes(raw) for name, raw in frame.object.members.items()
    }


@pytest.mark.parametrize(
    "twins",
    [rb'"a":1,"\u0061":NaN', rb'"a":1,"a":"\ud800"', rb'"\ud83d\ude00":1,"' + "\U0001f600".encode() + rb'":NaN'],
)
def test_twins_are_found_where_the_text_is_not_quite_json(twins: bytes) -> None:
    frame = frames.read(b'{"jsonrpc":"2.0","id":8,"method":"ping","params":{' + twins + b"}}")
    with pytest.raises(Malformed, match="duplicate member"):
        _ = frame.object


@pytest.mark.parametrize("more", [b"", b" ", b',"z":NaN'], ids=["plain", "spaced", "not quite JSON"])
def test_an_object_with_too_many_members_is_refused(more: bytes) -> None:
    names = b",".join(b'"%d":1' % number for number in range(MAX_MEMBERS + 1))
    with pytest.raises(Malformed, match="more than"):
        frames.read(b'{"jsonrpc":"2.0","id":8,"method":"ping",' + names + more + b"}")


def test_an_object_with_too_long_names_is_refused() -> None:
    with pytest.raises(Malformed, match="names of more than"):
        frames.read(b'{"jsonrpc":"2.0","id":8,"method":"ping","' + b"x" * MAX_NAMES + b'":1}')


def test_a_change_needs_no_second_reading() -> None:
    line = (
        rb'{ "jsonrpc":"2.0" , "id":8,"method":"tools/call","params":{"name":"echo", "a":"\ud800",'
        rb' "_meta":{"progressToken":1}},"more":NaN}'
    )
    params = frames.read(line).object
    changed = frames.read(line).changed(id="x", payload=params.changed({"a": None, "b": b"2"}))
    assert (
        rb'{ "jsonrpc":"2.0" , "id":"x","method":"tools/call","params":{"name":"echo",'
        rb' "_meta":{"progressToken":1},"b":2},"more":NaN}' == changed.raw
    )
    assert (changed.object.members.keys(), changed.lookup("b")) == (
        frames.read(changed.raw).object.members.keys(),
        b"2",
    )


def test_a_call_whose_capabilities_are_too_large_is_refused() -> None:
    d = Dialogue(FORWARD, ANSWER, ALLOW)
    out = d.client(MODERN_CALLS["one long name, in capabilities"](7, 70_000))
    assert [] == to_server(out)
    assert b"capabilities is larger than" in b"".join(effect.line for effect in out if hasattr(effect, "line"))


def test_what_a_session_remembers_of_declared_capabilities_is_bounded_in_bytes() -> None:
    d = Dialogue(FORWARD, ANSWER, ALLOW)
    tracemalloc.start()
    try:
        for number in range(200):
            call = MODERN_CALLS["one long name, in capabilities"](number, 50_000).replace(
                b"xxxxxx", b"%06d" % number, 1
            )
            assert 1 == len(to_server(d.client(call)))
            d.server(result(number, content=[]))
            d.log.clear()
        assert 4 * MIB > tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("long", ["method", "tool"])
def test_a_name_that_is_kept_while_a_call_is_in_flight_is_bounded(long: str) -> None:
    d = legacy()
    out = d.client(
        request(8, "x" * 2000) if long == "method" else request(8, "tools/call", name="x" * 2000, arguments={})
    )
    assert [] == to_server(out)
