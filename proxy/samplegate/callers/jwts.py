"""JWTs of one issuer (RFC 7519, 9068): a verifier of the SDK's kind. Not where the keys come from, and no token is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import jwt
from mcp.server.auth.provider import AccessToken

from samplegate.callers.jwks import MAX_KID, Key
from samplegate.callers.keys import Keys
from samplegate.callers.knowing import NotEnough, NotTaken
from samplegate.settings.identities import JwtSettings

PREFIX: Final = "jwt:"
"""What a caller's name begins with here: no static token's name has a colon, so neither kind can pass for the other."""

MOST_KEYS: Final = 4  # of one name and kind that are tried: an issuer has one, while it changes two
_principal: Final = re.compile(r"[\x21-\x7e]{1,256}\Z")  # what a log shows as it is and a person reads as it is
_LATEST: Final = 2**53  # Unix seconds; what a float holds exactly
_types: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})  # not `logout+jwt` and other tokens of the issuer's
_REASONS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.ExpiredSignatureError, "expired"),
    (jwt.ImmatureSignatureError, "not_yet"),
    (jwt.InvalidIssuerError, "issuer"),
    (jwt.InvalidSignatureError, "signature"),
    (jwt.MissingRequiredClaimError, "claims"),
)


class JwtTokens:
    """Takes what the issuer signed, for us, now. Headers that name a key or a place of keys (jwk, jku, x5u) are not looked at."""

    def __init__(self, settings: JwtSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys

    async def verify_token(self, token: str) -> AccessToken | None:
        """As the SDK's verifiers do, the token itself left out: None for what is no JWT. Raises NotTaken, and Unavailable without keys.

        ``client_id`` is the caller's name. Where no audience is set, ``claims`` has the token's, and whoever knows the resource compares.
        """
        if token.count(".") != 2:
            return None
        algorithm, kid = self._header(token)
        keys = await self._keys.fitting(kid, algorithm)
        if not keys:
            raise NotTaken("unknown_key")
        claims = self._claims(token, algorithm, keys)
        audiences = _texts(claims.get("aud"))
        if not audiences or (self._settings.audience and not audiences & set(self._settings.audience)):
            raise NotTaken("audience")
        if not _scopes(claims) >= set(self._settings.scopes):
            raise NotEnough("scope")
        known = {} if self._settings.audience else {"aud": sorted(audiences)}
        return AccessToken(token="", client_id=self._principal(claims), scopes=[], expires_at=min(int(claims["exp"]), _LATEST), claims=known)

    def _header(self, token: str) -> tuple[str, str | None]:
        """The algorithm and the key's name. Raises NotTaken for what we do not allow, before anything is computed."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise NotTaken("malformed") from None
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if algorithm not in self._settings.algorithms:  # `none` and HS256 are in no settings
            raise NotTaken("algorithm")
        if "crit" in header or "b64" in header or not (kind is None or (isinstance(kind, str) and kind.lower() in _types)):
            raise NotTaken("malformed")
        if kid is not None and (not isinstance(kid, str) or len(kid) > MAX_KID):
            raise NotTaken("unknown_key")
        return str(algorithm), kid

    def _claims(self, token: str, algorithm: str, keys: list[Key]) -> Mapping[str, Any]:
        failed = "signature"
        for key in keys[:MOST_KEYS]:
            try:
                claims = jwt.decode(
                    token,
                    key.key,
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
                if "cnf" in claims:  # bound to a key that only its holder has: whoever merely bears it may have stolen it (RFC 7800, 9449)
                    raise NotTaken("bound")
                return claims
        raise NotTaken(failed)

    def _principal(self, claims: Mapping[str, Any]) -> str:
        value = claims.get(self._settings.principal)
        if not isinstance(value, str) or _principal.match(value) is None:
            raise NotTaken("principal")
        return PREFIX + value


def _texts(value: object) -> set[str]:
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return {item for item in items if isinstance(item, str) and item}


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """Scopes as RFC 8693 writes them, a text with blanks in ``scope``, and as others do, also a list, in ``scp``."""
    said = [claims.get("scope"), claims.get("scp")]
    return {word for value in said for text in _texts(value) for word in text.split(" ") if word}
