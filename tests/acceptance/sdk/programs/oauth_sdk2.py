"""An authorization server and the MCP server that it protects, both of the Python SDK 2.3, in one process:
`oauth_sdk2.py SECONDS` (of an access token). Says where on stderr, and a line for each token. Runs in the environment
sdk2.

The user consents at once. A refresh token is replaced at each use, and its reuse revokes the grant.
"""

import secrets
import socket
import sys
import time
import warnings

import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, TokenError, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthToken
from pydantic import BaseModel

warnings.simplefilter("ignore")


class Confirmation(BaseModel):
    confirm: bool


class Grants:
    """The SDK's provider protocol, in memory."""

    def __init__(self, issuer, seconds):
        self.issuer = issuer
        self.seconds = seconds
        self.clients, self.codes, self.access, self.refresh, self.spent = {}, {}, {}, {}, set()

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or ["read"],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, iss=self.issuer)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self.issued("login", client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        if refresh_token in self.spent:
            self.access.clear()
            self.refresh.clear()
            print("token reused", file=sys.stderr, flush=True)
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.spent.add(refresh_token.token)
        return self.issued("refresh", client, scopes, refresh_token.resource)

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        self.access.clear()
        self.refresh.clear()
        print("token revoked", file=sys.stderr, flush=True)

    def issued(self, why, client, scopes, resource):
        kept = {"client_id": client.client_id, "scopes": scopes, "resource": resource}
        access = AccessToken(token=secrets.token_urlsafe(32), expires_at=int(time.time() + self.seconds), **kept)
        refresh = RefreshToken(token=secrets.token_urlsafe(32), **kept)
        self.access[access.token], self.refresh[refresh.token] = access, refresh
        print(f"token by {why} for {resource}", file=sys.stderr, flush=True)
        return OAuthToken(
            access_token=access.token,
            refresh_token=refresh.token,
            expires_in=self.seconds,
            scope=" ".join(scopes),
        )


async def confirm(ctx: Context) -> str:
    """Asks for a form during the call."""
    result = await ctx.elicit("sure?", Confirmation)
    return f"{result.action}: {result.data.confirm}" if result.action == "accept" else result.action


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = MCPServer(
        "protected",
        log_level="CRITICAL",
        auth_server_provider=Grants(origin, int(sys.argv[1])),
        auth=AuthSettings(
            issuer_url=origin,
            resource_server_url=f"{origin}/mcp",
            validate_token_resource=True,
            required_scopes=["read"],
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["read"], default_scopes=["read"]
            ),
            revocation_options=RevocationOptions(enabled=True),
        ),
    )
    server.tool()(confirm)
    print(f"listening on {origin}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
