"""New tokens by the SDK, for ``credentials``, which imports this module with the first one."""

from __future__ import annotations

from collections.abc import Awaitable

from samplegate.config.oauth import OAuthSettings
from samplegate.errors import Unavailable
from samplegate.oauth import flow
from samplegate.oauth.challenge import Challenge
from samplegate.oauth.endpoints import OAuthFault
from samplegate.oauth.login_file import Login


class SdkRenewal:
    """Gets tokens by ``flow``. ``remedy`` ends an error that only the operator can solve."""

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy

    async def refresh(self, login: Login) -> Login:
        """The login with a new token. Raises Unavailable."""
        return await self._told(flow.refresh(login))

    async def client_credentials(
        self, url: str, settings: OAuthSettings, challenge: Challenge, before: Login | None
    ) -> Login:
        """A new token by client credentials. Raises Unavailable."""
        return await self._told(flow.client_credentials(url, settings, challenge, before))

    async def _told(self, login: Awaitable[Login]) -> Login:
        try:
            return await login
        except OAuthFault as fault:
            remedy = "try again later" if fault.transient else fault.remedy or self._remedy
            if fault.code == "invalid_grant":
                raise Unavailable(f"its login has expired or was revoked (invalid_grant); {remedy}") from None
            raise Unavailable(f"cannot get a token for it: {fault.reason}; {remedy}") from None
