"""JWTs of one issuer (RFC 7519, RFC 9068): verification, and the cache of the issuer's keys (RFC 7517).

Keys come from a file, from a configured URL, or from the URL in the issuer's metadata. They are bounded in size, count
and age.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from samplegate.auth.tokens import Caller, InsufficientScope, Unauthenticated
from samplegate.config.identities import JwtSettings
from samplegate.errors import Unavailable
from samplegate.protocol.identity import MAX_GROUP, MAX_GROUPS, Identity
from samplegate.urls import url_error

PREFIX: Final = "jwt:"
"""Prefix of the names of JWT callers. Names of static tokens have no colon, so neither kind can imitate the other."""
MAX_KEYS_TRIED: Final = 4  # keys with the token's key id and algorithm: an issuer has one, or two during a rotation
_principal: Final = re.compile(r"[\x21-\x7e]{1,256}\Z")  # printable ASCII, which logs show unchanged
_LATEST: Final = 2**53  # Unix seconds; a float represents integers up to this value exactly
_types: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})  # without `logout+jwt` and the issuer's other tokens
_REASONS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.ExpiredSignatureError, "expired"),
    (jwt.ImmatureSignatureError, "not_yet"),
    (jwt.InvalidIssuerError, "issuer"),
    (jwt.InvalidSignatureError, "signature"),
    (jwt.MissingRequiredClaimError, "claims"),
)

MAX_BYTES: Final = 256 * 1024  # issuers' key sets have some KiB
MAX_KEYS: Final = 100
MAX_KID: Final = 256
_RSA_BITS: Final = range(2_048, 8_193)  # smaller keys can be broken; larger ones need milliseconds for each signature
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}

FRESH: Final = 600.0
"""Seconds after which keys are fetched again in the background: a withdrawn key stays valid at most this much
longer."""
GRACE: Final = 3_600.0
"""Seconds for which keys stay valid after their last fetch while the issuer does not answer.

This is a common lifetime of tokens, so a longer time would help few callers.
"""
UNKNOWN: Final = 60.0
"""Minimum seconds between two fetches for an unknown key, because any caller can name one."""
RETRY: Final = 10.0
"""Minimum seconds between two attempts after a failure."""
RESPONSE_TIMEOUT: Final = 5.0
"""Timeout in seconds for one response of an issuer, from the DNS lookup to the last byte."""
MISSING: Final = "the issuer's keys are not available"

KeySet: TypeAlias = tuple[jwt.PyJWK, ...]
"""Public keys, each for one name and one algorithm."""
Source: TypeAlias = Callable[[], Awaitable[KeySet]]
"""Fetches the keys. Raises Unavailable."""


class JwtTokens:
    """JWT verifier: accepts tokens that the issuer signed for us and that are valid now.

    It ignores headers that contain or locate a key (jwk, jku, x5u).
    """

    def __init__(self, settings: JwtSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys

    async def caller_of(self, token: str) -> Caller | None:
        """The caller of a token; None if it is not a JWT. Raises Unauthenticated, and Unavailable without keys.

        If no audience is configured, the caller has the token's audiences, and ``guard.py`` compares them with the
        resource.
        """
        if token.count(".") != 2:
            return None
        claims = await self.verified(token)
        if not _scopes(claims) >= set(self._settings.scopes):
            raise InsufficientScope("scope")
        principal = claims.get(self._settings.principal)
        if not isinstance(principal, str) or _principal.match(principal) is None:
            raise Unauthenticated("principal")
        audiences = None if self._settings.audience else frozenset(each.rstrip("/") for each in _strings(claims["aud"]))
        identity = Identity(PREFIX + principal, self.groups(claims), _payload(token))
        return Caller(identity, audiences, min(int(claims["exp"]), _LATEST))

    async def verified(self, token: str) -> Mapping[str, Any]:
        """The claims of a JWT of the issuer for one of the configured audiences. Raises Unauthenticated, and
        Unavailable without keys."""
        algorithm, kid = self._header(token)
        keys = await self._keys.fitting(kid, algorithm)
        if not keys:
            raise Unauthenticated("unknown_key")
        claims = self._claims(token, algorithm, keys)
        audiences = _strings(claims.get("aud"))
        if not audiences or (self._settings.audience and not audiences & set(self._settings.audience)):
            raise Unauthenticated("audience")
        return claims

    def groups(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """The groups in the configured claim; None if it is absent, too large or of another type. Issuers leave the
        claim out for users with many groups, so an absent one is not an empty one."""
        if self._settings.groups is None:
            return frozenset()
        value = claims.get(self._settings.groups)
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or len(found) > MAX_GROUPS:
            return None
        if not all(isinstance(one, str) and 0 < len(one) <= MAX_GROUP for one in found):
            return None
        return frozenset(found)

    def _header(self, token: str) -> tuple[str, str | None]:
        """The algorithm and the key id of a token. Raises Unauthenticated for a disallowed header before any
        cryptography."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise Unauthenticated("malformed") from None
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if algorithm not in self._settings.algorithms:  # no settings allow `none` or HS256
            raise Unauthenticated("algorithm")
        if (
            "crit" in header
            or "b64" in header
            or not (kind is None or (isinstance(kind, str) and kind.lower() in _types))
        ):
            raise Unauthenticated("malformed")
        if kid is not None and (not isinstance(kid, str) or len(kid) > MAX_KID):
            raise Unauthenticated("unknown_key")
        return str(algorithm), kid

    def _claims(self, token: str, algorithm: str, keys: Sequence[jwt.PyJWK]) -> Mapping[str, Any]:
        failed = "signature"
        for key in keys[:MAX_KEYS_TRIED]:
            try:
                claims = jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    issuer=self._settings.issuer,
                    leeway=self._settings.leeway,
                    options={"verify_aud": False, "require": ["exp", "iss", "aud"]},
                )
            except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError) as problem:
                failed = next((reason for kind, reason in _REASONS if isinstance(problem, kind)), "malformed")
                if failed != "signature":
                    break
            else:
                # bound to the holder's key: without proof of that key, the token may be stolen (RFC 7800, RFC 9449)
                if "cnf" in claims:
                    raise Unauthenticated("bound")
                return claims
        raise Unauthenticated(failed)


def _payload(token: str) -> bytes:
    """The claims of a verified token as the issuer wrote them. ``MAX_TOKEN`` bounds their size."""
    payload = token.split(".")[1]
    return base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))


def _strings(value: object) -> set[str]:
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return {item for item in items if isinstance(item, str) and item}


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """Scopes from ``scope``, a space-separated string (RFC 8693), and from ``scp``, which some issuers use and which
    may be a list."""
    values = [claims.get("scope"), claims.get("scp")]
    return {word for value in values for text in _strings(value) for word in text.split(" ") if word}


class Keys:
    """The keys of one issuer: fetched on demand, refreshed in the background, and kept through short outages.

    ``source`` fetches them, and ``clock`` is in monotonic seconds. ``on_fetch`` is called after each fetch, with None
    or the problem. The first use waits for the first fetch. ``before`` are older keys of this issuer, which stay valid
    if that fetch fails.
    """

    def __init__(
        self,
        source: Source,
        *,
        clock: Callable[[], float],
        on_fetch: Callable[[str | None], None],
        before: Keys | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._on_fetch = on_fetch
        self._set: KeySet = () if before is None else before._set  # noqa: SLF001 # of this class
        # of this class
        self._holds_until: float = float("-inf") if before is None else before._holds_until  # noqa: SLF001
        self._failed: bool = before is None or before._failed  # noqa: SLF001 # of this class
        self._fresh_until = self._asked = self._asked_for_unknown = float("-inf")
        self._tried = False
        self._task: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """True if there are keys that are still valid."""
        return self._clock() < self._holds_until

    def problem(self) -> str | None:
        """Why tokens cannot be verified, or None. A call also refreshes the keys, because requests may depend on this
        answer."""
        self._refresh()
        return MISSING if self._failed and not self.usable else None

    async def fitting(self, kid: str | None, algorithm: str) -> list[jwt.PyJWK]:
        """The keys that may have signed a token with this header. Raises Unavailable without valid keys.

        Keys that are only due for a refresh are fetched in the background.
        """
        self._refresh()
        if not (self._tried and self.usable):
            await self.fetched()
        if not self.usable:
            raise Unavailable(MISSING)
        found = fitting(self._set, kid, algorithm)
        if not found and self._clock() - self._asked_for_unknown >= UNKNOWN:
            self._asked_for_unknown = self._clock()
            self._begin()
        if not found and self._task is not None:  # other calls may wait for the same fetch
            await self.fetched()
            found = fitting(self._set, kid, algorithm)
        return found

    async def fetched(self) -> None:
        """Wait for a running fetch. A cancelled wait does not stop the fetch for others."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def warm(self) -> None:
        """Fetch the keys if there are none. A failure is reported but does not prevent the start."""
        if not self.usable:
            self._begin()
            await self.fetched()

    def stop(self) -> None:
        """Cancel a running fetch. Its waiters continue without it."""
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Cancel a running fetch, and wait for its end."""
        self.stop()
        await self.fetched()

    def _refresh(self) -> None:
        """Start a fetch if one is due."""
        now = self._clock()
        if now >= self._fresh_until and now - self._asked >= RETRY:
            self._begin()

    def _begin(self) -> None:
        """Start a fetch unless one is running."""
        if self._task is None:
            self._asked = self._clock()
            self._task = asyncio.get_running_loop().create_task(self._fetch(), name="issuer keys")

    async def _fetch(self) -> None:
        try:
            self._set = await self._source()
        except Exception as problem:  # foreign data can fail in any way; the old keys stay
            self._failed = True
            known = isinstance(problem, Unavailable)
            self._on_fetch(str(problem) if known else f"the issuer's keys cannot be read: {type(problem).__name__}")
        else:
            now = self._clock()
            self._failed, self._fresh_until, self._holds_until = False, now + FRESH, now + GRACE
            self._on_fetch(None)
        finally:
            self._task, self._tried = None, True


def fitting(keys: KeySet, kid: str | None, algorithm: str) -> list[jwt.PyJWK]:
    """The keys that may have signed a token with this header. Without a key id, there must be only one key of its
    kind."""
    fit = [key for key in keys if key.algorithm_name == algorithm]
    return [key for key in fit if key.key_id == kid] if kid is not None else fit if len(fit) == 1 else []


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse(text: bytes) -> KeySet:
    """The usable keys of a JSON Web Key Set, without weak or unknown keys and those for other uses. Raises ValueError
    if there are none.

    PyJWT's own parser accepts a key for one algorithm only, and rejects the whole set for one unreadable key.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"the key set is larger than {MAX_BYTES} bytes")
    try:
        found = msgspec.json.decode(text, type=_Set).keys
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("not a JSON Web Key Set; expected an object with a list of keys") from None
    if len(found) > MAX_KEYS:
        raise ValueError(f"the key set has more than {MAX_KEYS} keys")
    keys = tuple(key for each in found for name in _algorithms(each) if (key := _public_key(each, name)) is not None)
    if not keys:
        raise ValueError(
            "the key set has no usable public signing key; supported are RSA with 2048 to 8192 bits, P-256, P-384,"
            " P-521, Ed25519 and Ed448"
        )
    return keys


def _algorithms(written: Mapping[str, Any]) -> list[str]:
    """The algorithms of a key; empty for a private or symmetric key, because a published key is not secret."""
    kid, operations = written.get("kid"), written.get("key_ops", ["verify"])
    if "d" in written or "k" in written or not (kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID)):
        return []
    if written.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return []
    kind, curve = written.get("kty"), written.get("crv")
    names = _RSA if kind == "RSA" else _CURVES.get((str(kind), str(curve)), ())
    return [name for name in names if written.get("alg") in (None, name)]


def _public_key(written: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    try:
        key = jwt.PyJWK(dict(written), algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return None if isinstance(key.key, RSAPublicKey) and key.key.key_size not in _RSA_BITS else key


class _Missing(Unavailable):
    """There is nothing at a URL."""


class _Metadata(msgspec.Struct):
    issuer: str
    jwks_uri: str


def source_of(settings: JwtSettings, *, seconds: float = RESPONSE_TIMEOUT) -> Source:
    """The source of an issuer's keys. ``seconds`` bounds each response."""
    return (
        partial(_keys_from_issuer, settings, seconds)
        if settings.jwks_file is None
        else partial(_keys_from_file, settings.jwks_file)
    )


async def _keys_from_file(file: Path) -> KeySet:
    def read() -> bytes:
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)

    try:
        return parse(await asyncio.to_thread(read))
    except OSError as problem:
        raise Unavailable(f"{file}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise Unavailable(f"{file}: {problem}") from None


async def _keys_from_issuer(settings: JwtSettings, seconds: float) -> KeySet:
    timeout = aiohttp.ClientTimeout(total=seconds)
    # plain http is allowed for this machine only, where a proxy would not work
    proxied = (settings.jwks_url or settings.issuer).startswith("https:")
    async with aiohttp.ClientSession(timeout=timeout, trust_env=proxied, cookie_jar=aiohttp.DummyCookieJar()) as http:
        url = settings.jwks_url or await _jwks_url(http, settings.issuer)
        text = await _get(http, url)
    try:
        return parse(text)
    except ValueError as problem:
        raise Unavailable(f"{_without_query(url)}: {problem}") from None


async def _jwks_url(http: aiohttp.ClientSession, issuer: str) -> str:
    """The URL of the keys from the issuer's metadata: OpenID's location first, then that of RFC 8414."""
    openid, oauth = metadata_urls(issuer)
    try:
        text = await _get(http, openid)
    except _Missing:
        text = await _get(http, oauth)
    try:
        found = msgspec.json.decode(text, type=_Metadata)
    except (msgspec.DecodeError, RecursionError):
        raise Unavailable(f"{_without_query(issuer)}: its metadata lacks issuer or jwks_uri; set jwks_url") from None
    if found.issuer != issuer:
        raise Unavailable(
            f"{_without_query(issuer)}: its metadata names another issuer; set issuer to the exact value in the"
            " metadata"
        )
    why = url_error(found.jwks_uri, query=True, secure=True)
    if why is not None:
        raise Unavailable(f"{_without_query(issuer)}: its jwks_uri {why}")
    return found.jwks_uri


def metadata_urls(issuer: str) -> tuple[str, str]:
    """The URLs of an issuer's metadata (OpenID Connect Discovery 4, RFC 8414 3), the more common one first."""
    parts = urlsplit(issuer)
    host, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return f"{host}{path}/.well-known/openid-configuration", f"{host}/.well-known/oauth-authorization-server{path}"


async def _get(http: aiohttp.ClientSession, url: str) -> bytes:
    """GET a body of at most MAX_BYTES after decompression. Redirects, which could lead anywhere, are refused. Raises
    Unavailable."""
    try:
        async with http.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as answer:
            if answer.status != 200:
                raise (_Missing if answer.status in (404, 410) else Unavailable)(
                    f"{_without_query(url)}: answered HTTP {answer.status}; set jwks_url or jwks_file"
                )
            body = bytearray()
            async for piece in answer.content.iter_chunked(16 * 1024):
                body += piece
                if len(body) > MAX_BYTES:
                    raise Unavailable(f"{_without_query(url)}: its response is larger than {MAX_BYTES} bytes")
            return bytes(body)
    except TimeoutError:
        raise Unavailable(f"{_without_query(url)}: did not answer in time") from None
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        raise Unavailable(f"{_without_query(url)}: the request failed: {type(problem).__name__}") from None


def _without_query(url: str) -> str:
    """A URL without its query, for messages."""
    return url.partition("?")[0]
