"""Static bearer tokens, by their hashes. A verifier of the SDK's kind. Not JWTs, and no token is kept."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from mcp.server.auth.provider import AccessToken

from samplegate.settings.identities import Token

_NOBODY: Final = bytes(32)  # no token's hash: somebody would have to find a text with it


class StaticTokens:
    """The tokens of the settings. A guess costs the same whether there is such a token or not: one hash, one look-up, one comparison."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._names = {token.sha256: token.name for token in tokens}

    def name_of(self, token: str) -> str | None:
        """Whose token it is.

        The look-up is by a digest, which nobody who does not know a token can bring near to a stored one step by step; the comparison is of
        constant time all the same.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = digest if digest in self._names else _NOBODY
        same = hmac.compare_digest(digest, known)
        return self._names.get(known) if same else None

    async def verify_token(self, token: str) -> AccessToken | None:
        """As the SDK's verifiers do; the token is not in what is returned."""
        name = self.name_of(token)
        return None if name is None else AccessToken(token="", client_id=name, scopes=[])
