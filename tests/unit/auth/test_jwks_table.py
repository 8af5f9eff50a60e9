"""Authentication of callers with JWTs over the life of an issuer's keys, through the guard and over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ed448, rsa
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm
from msgspec.structs import replace

from samplegate.auth.jwt import MAX_BYTES, RESPONSE_TIMEOUT, parse, source_of
from samplegate.config.identities import CallerSettings, JwtSettings
from samplegate.errors import Unavailable
from tests.fakes.guarded import GuardedApp
from tests.fakes.issuer import ISSUER, Endpoint, key_set, mint, private, public

pytestmark = pytest.mark.anyio

GATE: Final = "https://gate.example.com"
ALL: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
NO_KEYS: Final = "503 the issuer's keys are not available; retry later"
UNKNOWN: Final = "401 unknown_key"
RELOAD: Final = "a reload of the same settings"
DOWN: Final = (500, b"")

Published = Sequence[Any]
"""The keys that the issuer publishes."""


class Late(list[Any]):
    """Keys that arrive only after the call was answered."""


def wanted(endpoint: Endpoint, path: str = "/keys", **more: Any) -> CallerSettings:
    return CallerSettings(jwt=JwtSettings(ISSUER, jwks_url=endpoint.url + path, algorithms=ALL, **more), resource=GATE)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 # what is waited for is seen from outside only
            await asyncio.sleep(0.001)


class GuardedIssuer:
    """A guard that trusts one issuer, and its clock."""

    def __init__(self, endpoint: Endpoint, callers: CallerSettings) -> None:
        self.endpoint = endpoint
        self.callers = callers
        self.now = 0.0
        self._count = 0
        self.guarded = GuardedApp(callers, clock=lambda: self.now)

    def publish(self, answer: Published | tuple[int, bytes], path: str = "/keys") -> None:
        self.endpoint.answers[path] = answer if isinstance(answer, tuple) else (200, key_set(*answer))

    async def call(self, name: str, algorithm: str = "ES256", **more: Any) -> str:
        """The response to a caller with a new token."""
        self._count += 1
        async with asyncio.timeout(10):
            answer = await self.guarded.ask(token=mint(name, algorithm, aud=GATE, jti=str(self._count), **more))
        return (
            "200" if answer.status == 200 else f"{answer.status} {answer.json['error_description'].rpartition(': ')[2]}"
        )

    async def fetches(self, expected: int) -> int:
        """How often the keys were fetched, once the expected fetches have ended."""
        await until(lambda: len(self._ended()) >= expected)
        return max(len(self._ended()), len(self.endpoint.asked))

    def _ended(self) -> list[object]:
        return [
            labels["result"]
            for name, labels in self.guarded.journal.counted
            if name == "samplegate_issuer_key_fetches_total"
        ]


@contextlib.asynccontextmanager
async def guarded_issuer(callers: CallerSettings | None = None, **more: Any) -> AsyncIterator[GuardedIssuer]:
    async with Endpoint().serving() as endpoint:
        found = GuardedIssuer(endpoint, callers or wanted(endpoint, **more))
        try:
            yield found
        finally:
            endpoint.open.set()
            await found.guarded.guard.aclose()


K, NEW = public("k", "ES256"), public("new", "ES256")

# at second, keys that the issuer publishes, key of the caller's token, response, fetches until then
TIMELINES: Final[dict[str, list[tuple[float, Any, str, str, int]]]] = {
    "fresh keys": [(0, [K], "k", "200", 1), (1, [NEW], "k", "200", 1), (599, DOWN, "k", "200", 1)],
    "renewal due": [
        (0, [K], "k", "200", 1),
        (600, Late([NEW]), "k", "200", 2),
        (600, [NEW], "new", "200", 2),
        (600, [NEW], "k", UNKNOWN, 3),
    ],
    "renewal due, long ago": [(0, [K], "k", "200", 1), (3_599, Late([NEW]), "k", "200", 2)],
    "nobody called for longer than the grace": [
        (0, [K], "k", "200", 1),
        (3_600, [K], "k", "200", 2),
        (7_200, [NEW], "new", "200", 3),
    ],
    "issuer down, within the grace and beyond": [
        (0, [K], "k", "200", 1),
        (600, DOWN, "k", "200", 2),
        (609, DOWN, "k", "200", 2),
        (610, DOWN, "k", "200", 3),
        (3_599, DOWN, "k", "200", 4),
        (3_600, DOWN, "k", NO_KEYS, 4),
        (3_608, [K], "k", NO_KEYS, 4),
        (3_609, [K], "k", "200", 5),
    ],
    "the grace counts from the last fetch that succeeded": [
        (0, [K], "k", "200", 1),
        (3_000, [K], "k", "200", 2),
        (6_599, DOWN, "k", "200", 3),
        (6_600, DOWN, "k", NO_KEYS, 3),
    ],
    "issuer down from the start": [
        (0, DOWN, "k", NO_KEYS, 1),
        (9, [K], "k", NO_KEYS, 1),
        (10, [K], "k", "200", 2),
    ],
    "rubbish in place of keys is like an issuer that is down": [
        (0, [K], "k", "200", 1),
        (600, (200, b"{}"), "k", "200", 2),
        (601, [K], "k", "200", 2),
    ],
    "a set without one usable key too": [
        (0, [K], "k", "200", 1),
        (600, [{"kty": "oct", "k": "AAAA"}], "k", "200", 2),
        (601, [K], "k", "200", 2),
    ],
    "unknown kid, again within the cooldown, and after it": [
        (0, [K], "k", "200", 1),
        (1, [K], "x", UNKNOWN, 2),
        (1, [K], "y", UNKNOWN, 2),
        (60, [K], "x", UNKNOWN, 2),
        (60, [K], "k", "200", 2),
        (61, [K], "x", UNKNOWN, 3),
    ],
    "unknown kid before any other": [(0, [K], "x", UNKNOWN, 2), (1, [K], "k", "200", 2)],
    "unknown kid while the issuer is down": [
        (0, [K], "k", "200", 1),
        (1, DOWN, "x", UNKNOWN, 2),
        (59, DOWN, "x", UNKNOWN, 2),
        (60, DOWN, "k", "200", 2),
        (61, DOWN, "x", UNKNOWN, 3),
    ],
    "rotation": [
        (0, [K], "k", "200", 1),
        (1, [K, NEW], "new", "200", 2),
        (2, [NEW], "k", "200", 2),
        (601, [NEW], "new", "200", 3),
        (601, [NEW], "k", UNKNOWN, 4),
    ],
    "rotation a moment after any fetch is seen at once": [(0, [K], "k", "200", 1), (0, [NEW], "new", "200", 2)],
    "rotation within the cooldown": [
        (0, [K], "k", "200", 1),
        (1, [K], "x", UNKNOWN, 2),
        (2, [NEW], "new", UNKNOWN, 2),
        (61, [NEW], "new", "200", 3),
    ],
    "a reload fetches before the next answer": [
        (0, [K], "k", "200", 1),
        (1, [NEW], RELOAD, "", 1),
        (1, [NEW], "k", UNKNOWN, 3),
        (1, [NEW], "new", "200", 3),
    ],
    "a reload inherits keys while the issuer is down": [
        (0, [K], "k", "200", 1),
        (1, DOWN, RELOAD, "", 1),
        (1, DOWN, "k", "200", 2),
        (10, DOWN, "k", "200", 2),
        (11, Late([NEW]), "k", "200", 3),
        (11, [NEW], "k", UNKNOWN, 4),
    ],
    "a reload inherits the end of the grace": [
        (0, [K], "k", "200", 1),
        (1, DOWN, RELOAD, "", 1),
        (3_599, DOWN, "k", "200", 2),
        (3_600, DOWN, "k", NO_KEYS, 2),
    ],
    "a reload of a reload inherits too": [
        (0, [K], "k", "200", 1),
        (1, DOWN, RELOAD, "", 1),
        (2, DOWN, RELOAD, "", 1),
        (3, DOWN, "k", "200", 2),
    ],
}


@pytest.mark.parametrize("steps", TIMELINES.values(), ids=TIMELINES.keys())
async def test_over_time_a_caller_gets(steps: list[tuple[float, Any, str, str, int]]) -> None:
    async with guarded_issuer() as here:
        for at, published, name, expected, fetches in steps:
            here.now = at
            here.publish(published)
            if name == RELOAD:
                here.guarded.guard.change(here.guarded.settings(here.callers))
                continue
            if isinstance(published, Late):
                here.endpoint.open.clear()
            assert expected == await here.call(name), (at, name)
            here.endpoint.open.set()
            assert fetches == await here.fetches(fetches), (at, name)


SHARED: Final = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "k"}
R: Final = public("r", "RS256")
SAME: Final = [public(f"same-{number}", "ES256", kid="same") for number in range(5)]
NAMELESS: Final = {key: value for key, value in K.items() if key != "kid"}
WEAK: Final = RSAAlgorithm.to_jwk(rsa.generate_private_key(65_537, 1_024).public_key(), as_dict=True)

# published keys, key and algorithm of the token, its kid (None: no kid), response
CHOICES: Final[dict[str, tuple[Published, str, str, str | None, str]]] = {
    "by its name": ([R, K, NEW], "k", "ES256", "k", "200"),
    "no kid, one key": ([K], "k", "ES256", None, "200"),
    "no kid, one key of its kind": ([R, K], "k", "ES256", None, "200"),
    "no kid, two keys of its kind": ([K, NEW], "k", "ES256", None, UNKNOWN),
    "no kid, RSA key without alg": ([R, K], "r", "PS256", None, "200"),
    "no kid on either side": ([NAMELESS, R], "k", "ES256", None, "200"),
    "no kid on the key alone": ([NAMELESS], "k", "ES256", "k", UNKNOWN),
    "an empty kid": ([K], "k", "ES256", "", UNKNOWN),
    "a kid in other letters": ([K], "k", "ES256", "K", UNKNOWN),
    **{f"RSA key without alg, {name}": ([R], "r", name, "r", "200") for name in ALL[:6]},
    **{
        f"RSA key with alg RS256, {name}": (
            [{**R, "alg": "RS256"}],
            "r",
            name,
            "r",
            "200" if name == "RS256" else UNKNOWN,
        )
        for name in ALL[:6]
    },
    **{f"key without alg, {name}": ([public("e", name)], "e", name, "e", "200") for name in ALL[6:]},
    "a curve is for one algorithm": ([public("e", "ES384")], "e", "ES256", "e", UNKNOWN),
    "two of one name, the second signs": (SAME[:2], "same-1", "ES256", "same", "200"),
    "four of one name, the last signs": (SAME[:4], "same-3", "ES256", "same", "200"),
    "five of one name, the last signs": (SAME, "same-4", "ES256", "same", "401 signature"),
    "one name, two kinds": ([{**R, "kid": "k"}, K], "k", "ES256", "k", "200"),
    "an oct key alone": ([SHARED], "k", "ES256", "k", NO_KEYS),
    "an oct key beside": ([SHARED, K], "k", "ES256", "k", "200"),
    "an oct key and no kid": ([SHARED, K], "k", "ES256", None, "200"),
    "use enc alone": ([{**K, "use": "enc"}], "k", "ES256", "k", NO_KEYS),
    "use enc beside": ([{**K, "use": "enc"}, NEW], "k", "ES256", "k", UNKNOWN),
    "use enc and no kid": ([{**NEW, "use": "enc"}, K], "k", "ES256", None, "200"),
    "no use": ([{key: value for key, value in K.items() if key != "use"}], "k", "ES256", "k", "200"),
    "key_ops to sign": ([{**K, "key_ops": ["sign"]}, NEW], "k", "ES256", "k", UNKNOWN),
    "key_ops to verify": ([{**K, "key_ops": ["verify"]}], "k", "ES256", "k", "200"),
    "a private key": (
        [RSAAlgorithm.to_jwk(private("r", "RS256"), as_dict=True) | {"kid": "r"}],
        "r",
        "RS256",
        "r",
        NO_KEYS,
    ),
    "a weak key": ([{**WEAK, "kid": "r"}, K], "r", "RS256", "r", UNKNOWN),
    "x5c, x5u and others are not looked at": (
        [{**K, "x5c": ["x"], "x5u": "https://evil.example.com", "x": K["x"]}],
        "k",
        "ES256",
        "k",
        "200",
    ),
    "what is no object beside": ([5, K], "k", "ES256", "k", NO_KEYS),
    **{
        f"{name} beside": ([wrong, K], "k", "ES256", "k", "200")
        for name, wrong in {
            "an empty key": {},
            "an unknown kind": {"kty": "LWE", "kid": "x"},
            "a kind that is no text": {**R, "kty": ["RSA"]},
            "a kid that is a number": {**R, "kid": 5},
            "a kid that is a list": {**R, "kid": ["k"]},
            "a long kid": {**R, "kid": "r" * 257},
            "an alg that is a list": {**R, "alg": ["RS256"]},
            "an alg that is an object": {**R, "alg": {}},
            "an alg none": {**R, "alg": "none"},
            "a use that is a list": {**R, "use": ["sig"]},
            "key_ops that is an object": {**R, "key_ops": {}},
            "a number that is none": {**R, "n": None},
            "a number that is a list": {**R, "n": [1]},
            "a number that is no base64": {**R, "n": "\u00e4"},
            "an empty number": {**R, "n": "", "e": ""},
            "an even exponent": {**R, "e": "AA"},
            "a huge number": {**R, "n": "f" * 100_000},
            "a huge exponent": {**R, "e": "f" * 100_000},
            "a curve that is a list": {**NEW, "crv": ["P-256"]},
            "an unknown curve": {**NEW, "crv": "P-999"},
            "a curve of money": {**NEW, "crv": "secp256k1"},
            "a point off the curve": {**NEW, "x": "A" * 43},
            "a short point": {**NEW, "x": "AAAA"},
            "a short Ed25519 key": {"kty": "OKP", "crv": "Ed25519", "x": "AAAA", "kid": "x"},
            "an X25519 key": {"kty": "OKP", "crv": "X25519", "x": "A" * 43, "kid": "x"},
        }.items()
    },
}


@pytest.mark.parametrize(("published", "name", "algorithm", "kid", "expected"), CHOICES.values(), ids=CHOICES.keys())
async def test_of_a_key_set_a_token_gets(
    published: Published, name: str, algorithm: str, kid: str | None, expected: str
) -> None:
    async with guarded_issuer() as here:
        here.publish(published)
        assert expected == await here.call(name, algorithm, header={"kid": kid})


# response of the issuer's server, log entry; URL stands for the server's URL
PROBLEMS: Final[dict[str, tuple[int, bytes, dict[str, str], str | None]]] = {
    "a key set": (200, key_set(K), {}, None),
    "a key set as HTML": (200, key_set(K), {"Content-Type": "text/html"}, None),
    "a key set with more in it": (200, b'{"a": 1, ' + key_set(K)[1:], {}, None),
    "as large as allowed": (200, key_set(K).ljust(MAX_BYTES), {}, None),
    "oversized": (200, key_set(K).ljust(MAX_BYTES + 1), {}, "URL/keys: its response is larger than 262144 bytes"),
    "a redirect": (302, b"", {"Location": "/other"}, "URL/keys: answered HTTP 302; set jwks_url or jwks_file"),
    "a permanent redirect": (
        308,
        key_set(K),
        {"Location": "/other"},
        "URL/keys: answered HTTP 308; set jwks_url or jwks_file",
    ),
    "not found": (404, b"", {}, "URL/keys: answered HTTP 404; set jwks_url or jwks_file"),
    "created": (201, key_set(K), {}, "URL/keys: answered HTTP 201; set jwks_url or jwks_file"),
    "no JSON": (200, b"<html>", {}, "URL/keys: not a JSON Web Key Set; expected an object with a list of keys"),
    "nothing": (200, b"", {}, "URL/keys: not a JSON Web Key Set; expected an object with a list of keys"),
    "deep JSON": (
        200,
        b"[" * 100_000,
        {},
        "URL/keys: not a JSON Web Key Set; expected an object with a list of keys",
    ),
    "a list": (200, b"[]", {}, "URL/keys: not a JSON Web Key Set; expected an object with a list of keys"),
    "keys that are no list": (
        200,
        b'{"keys": {}}',
        {},
        "URL/keys: not a JSON Web Key Set; expected an object with a list of keys",
    ),
    "no keys": (
        200,
        b'{"keys": []}',
        {},
        (
            "URL/keys: the key set has no usable public signing key; supported are RSA with 2048 to 8192 bits,"
            " P-256, P-384, P-521, Ed25519 and Ed448"
        ),
    ),
    "101 keys": (200, key_set(*[K] * 101), {}, "URL/keys: the key set has more than 100 keys"),
    "no gzip though it says so": (
        200,
        b"nothing that gzip has packed",
        {"Content-Encoding": "gzip"},
        "URL/keys: the request failed: ClientPayloadError",
    ),
}


def test_an_ed448_key_is_usable() -> None:
    key = OKPAlgorithm.to_jwk(ed448.Ed448PrivateKey.generate().public_key(), as_dict=True)
    assert ["EdDSA"] == [usable.algorithm_name for usable in parse(key_set(key))]


@pytest.mark.parametrize(("status", "body", "headers", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
async def test_of_an_answer_the_log_says(
    status: int, body: bytes, headers: dict[str, str], problem: str | None
) -> None:
    async with guarded_issuer() as here:
        here.endpoint.answers = {"/keys": (status, body), "/other": (200, key_set(K))}
        here.endpoint.headers = headers
        await here.guarded.guard.warm()
        said = [
            (event, str(fields["problem"]).replace(here.endpoint.url, "URL"))
            for event, fields in here.guarded.journal.lines
        ]
        assert ([] if problem is None else [("issuer_keys.failed", problem)]) == said
        assert ["/keys"] == here.endpoint.asked
        assert (NO_KEYS if problem else "200") == await here.call("k")


async def test_a_file_is_read_again_as_an_issuer_is_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    callers = CallerSettings(jwt=JwtSettings(ISSUER, jwks_file=file), resource=GATE)
    async with guarded_issuer(callers) as here:
        assert NO_KEYS == await here.call("k")
        file.write_bytes(key_set(K))
        here.now = 10
        assert "200" == await here.call("k")
        file.write_bytes(key_set(NEW))
        assert "200" == await here.call("new")
        assert UNKNOWN == await here.call("k")
        assert 3 == await here.fetches(3)


SECONDS: Final = 0.1


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 200 O", b"HTTP/1.1 200 OK\r\nX: ", b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"keys": ['],
    ids=["status", "headers", "body"],
)
@pytest.mark.parametrize("drips", [False, True], ids=["silent", "dripping"])
async def test_an_answer_is_bounded_as_a_whole(begin: bytes, drips: bool) -> None:
    assert 5.0 == RESPONSE_TIMEOUT

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        with contextlib.suppress(OSError):
            while not reader.at_eof():
                if drips:
                    writer.write(b" ")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), SECONDS / 10)
        writer.close()
        closed.set()

    closed = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    started = time.monotonic()
    try:
        with pytest.raises(Unavailable, match="/keys: did not answer in time"):
            await source_of(JwtSettings(ISSUER, jwks_url=url), seconds=SECONDS)()
        # below the default, so that `seconds` is in force
        assert SECONDS <= time.monotonic() - started < RESPONSE_TIMEOUT
    finally:
        await asyncio.wait_for(closed.wait(), 5)
        server.close()


async def test_a_burst_of_calls_is_one_fetch() -> None:
    async with guarded_issuer() as here:
        here.publish([K])
        assert ["200"] * 100 == await asyncio.gather(*(here.call("k") for _ in range(100)))
        assert 1 == await here.fetches(1)
        here.now = 600
        assert ["200"] * 100 == await asyncio.gather(*(here.call("k") for _ in range(100)))
        assert 2 == await here.fetches(2)
        assert [UNKNOWN] * 100 == await asyncio.gather(
            *(here.call("k", header={"kid": f"x{number}"}) for number in range(100))
        )
        assert 3 == await here.fetches(3)
        here.now = 10_000
        here.publish(DOWN)
        assert [NO_KEYS] * 100 == await asyncio.gather(*(here.call("k") for _ in range(100)))
        assert 4 == await here.fetches(4)


async def test_a_known_key_does_not_wait_for_one_that_is_looked_for() -> None:
    async with guarded_issuer() as here:
        here.publish([K])
        assert "200" == await here.call("k")
        here.endpoint.open.clear()
        here.publish([NEW])
        waiting = [asyncio.ensure_future(here.call(name)) for name in ("new", "new", "x")]
        await until(lambda: len(here.endpoint.asked) == 2)
        assert "200" == await here.call("k")
        here.endpoint.open.set()
        assert ["200", "200", UNKNOWN] == await asyncio.gather(*waiting)
        assert 2 == await here.fetches(2)


async def test_an_end_does_not_wait_for_the_issuer() -> None:
    async with guarded_issuer() as here:
        here.publish([K])
        here.endpoint.open.clear()
        waiting = asyncio.ensure_future(here.call("k"))
        await until(lambda: bool(here.endpoint.asked))
        async with asyncio.timeout(1):
            await here.guarded.guard.aclose()
            assert NO_KEYS == await waiting


def test_the_end_of_the_event_loop_does_not_wait_for_an_issuer_that_hangs() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    silent.setblocking(False)
    ended = []

    async def run() -> None:
        settings = JwtSettings(ISSUER, jwks_url=f"http://127.0.0.1:{silent.getsockname()[1]}/keys")
        guarded = GuardedApp(CallerSettings(jwt=settings, resource=GATE))
        call = asyncio.ensure_future(guarded.ask(token=mint(aud=GATE)))
        accepted, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(silent), 10)
        ended.append(time.monotonic())
        await guarded.guard.aclose()
        assert 503 == (await call).status
        accepted.close()

    with silent:
        asyncio.run(run())
    assert time.monotonic() - ended[0] < RESPONSE_TIMEOUT * 0.8  # a wait for the issuer takes nearly RESPONSE_TIMEOUT


async def test_of_two_issuers_each_has_its_own_keys() -> None:
    theirs = public("theirs", "ES256", kid="k")
    async with guarded_issuer() as here:
        here.publish([K])
        here.publish([theirs], "/theirs")
        assert ["200", "401 issuer"] == [await here.call("k", iss=iss) for iss in (ISSUER, "https://other.example.com")]
        assert "401 signature" == await here.call("theirs", header={"kid": "k"}, iss="https://other.example.com")
        other = wanted(here.endpoint, "/theirs")
        assert other.jwt is not None
        other = replace(other, jwt=replace(other.jwt, issuer="https://other.example.com"))
        here.guarded.guard.change(here.guarded.settings(other))
        assert "401 issuer" == await here.call("theirs", header={"kid": "k"})
        assert "401 signature" == await here.call("k", iss="https://other.example.com")
        assert "200" == await here.call("theirs", header={"kid": "k"}, iss="https://other.example.com")
        assert ["/keys", "/theirs"] == here.endpoint.asked
        here.publish(DOWN)
        here.guarded.guard.change(here.guarded.settings(here.callers))
        assert NO_KEYS == await here.call("k"), "what another issuer's keys replaced is not kept"


async def test_only_https_goes_by_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result(await reader.readline())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(answer, "127.0.0.1", 0)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
    async with guarded_issuer() as here:
        here.publish([K])
        assert "200" == await here.call("k")
    assert not heard.done()
    async with guarded_issuer(
        CallerSettings(jwt=JwtSettings(ISSUER, jwks_url="https://login.example.com/keys"), resource=GATE)
    ) as here:
        assert NO_KEYS == await here.call("k")
        assert b"CONNECT login.example.com:443 HTTP/1.1\r\n" == await asyncio.wait_for(heard, 5)
        problems = [fields["problem"] for event, fields in here.guarded.journal.lines if event == "issuer_keys.failed"]
        assert ["https://login.example.com/keys: the request failed: ClientHttpProxyError"] == problems
    proxy.close()


async def test_metadata_leads_to_the_keys_once_for_each_fetch() -> None:
    async with Endpoint().serving() as endpoint:
        here = GuardedIssuer(endpoint, CallerSettings(jwt=JwtSettings(endpoint.url), resource=GATE))
        where, metadata = (
            "/.well-known/openid-configuration",
            {"issuer": endpoint.url, "jwks_uri": f"{endpoint.url}/keys"},
        )
        endpoint.answers[where] = 200, json.dumps(metadata).encode()
        here.publish([K])
        assert "200" == await here.call("k", iss=endpoint.url)
        metadata["jwks_uri"] = f"{endpoint.url}/moved"
        endpoint.answers[where] = 200, json.dumps(metadata).encode()
        here.publish([NEW], "/moved")
        assert "200" == await here.call("new", iss=endpoint.url)
        assert [where, "/keys", where, "/moved"] == endpoint.asked
        await here.guarded.guard.aclose()
