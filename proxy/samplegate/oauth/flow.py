"""The SDK's OAuth client, driven without an MCP request: new tokens, refreshed tokens, and their revocation.

The SDK's provider authenticates a request in a flow of requests. Here the authenticated request is never sent: the
server's real challenge is the flow's first response, and the flow ends when it has a token. All other requests of the
flow go through ``Endpoints``, and their responses are checked before the SDK reads them. Only this module imports mcp,
which takes 0.7 s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from samplegate import __version__
from samplegate.config.oauth import OAuthSettings, key_in, secret_in
from samplegate.oauth.challenge import Challenge
from samplegate.oauth.endpoints import Endpoints, OAuthFault, http_client, json_object, origin_of_any, same_origin
from samplegate.oauth.login_file import Login, is_token
from samplegate.oauth.loopback import LoopbackReceiver
from samplegate.printable import printable

MAX_NOTES: Final = 10
FLOW_TIME: Final = 30.0  # seconds for all requests of a flow without a user
REVISION: Final = "2025-11-25"
"""Version of the request that is authenticated: from 2025-06-18 on, token requests name the resource (RFC 8707)."""
_METADATA_KEYS: Final = (
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "revocation_endpoint",
    "token_endpoint_auth_methods_supported",
    "code_challenge_methods_supported",
    "authorization_response_iss_parameter_supported",
    "client_id_metadata_document_supported",
)
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_SILENT: Final = logging.CRITICAL + 1
MAX_LIFETIME: Final = 10 * 365 * 86_400  # seconds


class _Storage:
    """Tokens and registration of one flow, in memory."""

    def __init__(self, tokens: OAuthToken | None, client: OAuthClientInformationFull | None) -> None:
        self.tokens = tokens
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class _Flow:
    """One flow of the SDK's provider."""

    def __init__(self, provider: OAuthClientProvider, endpoints: Endpoints, *, issuer: str | None, user: bool) -> None:
        self._provider = provider
        self._endpoints = endpoints
        self._issuer = issuer
        self._user = user
        self._asked_scope = False
        """Whether the server has named scopes."""
        self._metadata_urls: set[str] = set()

    async def run(self, challenge: Challenge | None) -> None:
        """Run the flow until it has a token. Without a challenge, only the held token is refreshed. Raises
        OAuthFault."""
        url = self._endpoints.server_url
        request = httpx2.Request("POST", url, headers={"mcp-protocol-version": REVISION})
        flow = self._provider.async_auth_flow(request)
        asked = False
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    response = await self._send(outgoing)
                elif asked or challenge is None:
                    return
                else:
                    asked = True
                    response = self._challenged(challenge, request)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except OAuthFlowError as problem:
            raise self._fault(problem) from None
        except (ValidationError, httpx2.InvalidURL, UnicodeDecodeError):
            raise OAuthFault("the authorization server sent an invalid answer") from None
        finally:
            await flow.aclose()

    def _challenged(self, challenge: Challenge, request: httpx2.Request) -> httpx2.Response:
        """The server's response as the SDK sees it."""
        self._asked_scope = challenge.scope is not None
        if challenge.answered not in (401, 403):
            self._endpoints.notes.append(f"without a token, the server answers with HTTP {challenge.answered}")
        url = challenge.resource_metadata
        if url is not None and (self._endpoints.url_fault(url) is not None or not same_origin(url, str(request.url))):
            self._endpoints.notes.append("the server's challenge names resource metadata at another origin")
            url = None
        if url is not None:
            self._metadata_urls.add(url)
        return httpx2.Response(
            challenge.status,
            headers={"WWW-Authenticate": challenge.header(resource_metadata=url)},
            request=request,
        )

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request of the flow, and check the response before the SDK reads it."""
        url = str(request.url)
        if request.method == "GET":
            response = await self._endpoints.send(request, "metadata request")
            if url in self._metadata_urls or "/.well-known/oauth-protected-resource" in urlsplit(url).path:
                return self._resource_metadata(response)
            return self._server_metadata(response)
        metadata = self.checked_metadata()
        if url == str(metadata.token_endpoint):
            response = await self._endpoints.send(request, "token request")
            if response.status_code not in (200, 201):
                raise self._endpoints.refusal(response, "token request")
            return _checked_token(response)
        if metadata.registration_endpoint is None:
            raise OAuthFault(
                f"{origin_of_any(str(metadata.issuer))} does not register clients by itself",
                remedy="register a client there, and pass its ID with --client-id",
            )
        response = await self._endpoints.send(request, "client registration")
        if response.status_code not in (200, 201):
            raise self._endpoints.refusal(response, "client registration")
        uris = (json_object(response.content) or {}).get("redirect_uris")
        wanted = [str(uri) for uri in self._provider.context.client_metadata.redirect_uris or []]
        if isinstance(uris, list) and uris and not set(wanted) <= set(map(str, uris)):
            raise OAuthFault(f"{origin_of_any(url)} registered the gate with another redirect URI")
        return response

    def _resource_metadata(self, response: httpx2.Response) -> httpx2.Response:
        if response.status_code == 200:
            found = json_object(response.content)
            if found is None:
                self._note(response, "did not answer with a JSON object")
            elif "scopes_supported" in found:
                self._asked_scope = True
        else:
            self._note(response, _status_of(response))
        return response

    def _server_metadata(self, response: httpx2.Response) -> httpx2.Response:
        """The authorization server's metadata, checked, without scopes that the MCP server did not ask for."""
        if response.status_code != 200:
            self._note(response, _status_of(response))
            return response
        found = json_object(response.content)
        if found is None:
            self._note(response, "did not answer with a JSON object")
            return response
        try:
            metadata = OAuthMetadata.model_validate(found)
        except ValidationError:
            self._note(response, "sent metadata without a valid issuer, authorization_endpoint or token_endpoint")
            return response
        self._check(metadata)
        if self._user:
            self._choose_auth_method(metadata)
        self._choose_secret_method(metadata)
        offline = self._user and self._asked_scope and "offline_access" in (metadata.scopes_supported or [])
        kept = {name: value for name, value in found.items() if name != "scopes_supported"}
        kept |= {"scopes_supported": ["offline_access"]} if offline else {}
        return httpx2.Response(200, content=msgspec.json.encode(kept), request=response.request)

    def checked_metadata(self) -> OAuthMetadata:
        """The authorization server's metadata that the SDK uses. It is checked again before each use, because the URL
        of a document does not prove which kind it is: the MCP server chooses both. Raises OAuthFault."""
        metadata = self._provider.context.oauth_metadata
        if metadata is None:
            raise self._no_metadata()
        self._check(metadata)
        return metadata

    def _check(self, metadata: OAuthMetadata) -> None:
        self._check_issuer(str(metadata.issuer))
        self._endpoints.check_url(str(metadata.token_endpoint), "token_endpoint")
        if not self._user:
            return
        self._endpoints.check_url(str(metadata.authorization_endpoint), "authorization_endpoint")
        if "S256" not in (metadata.code_challenge_methods_supported or []):
            raise OAuthFault(
                f"{origin_of_any(str(metadata.issuer))} does not support PKCE with S256"
                " (code_challenge_methods_supported), so a login would not be safe"
            )

    def _choose_auth_method(self, metadata: OAuthMetadata) -> None:
        """Ask for a registration without a secret, if the server accepts that."""
        supported = metadata.token_endpoint_auth_methods_supported
        client = self._provider.context.client_metadata
        if supported is None or "none" in supported:
            client.token_endpoint_auth_method = "none"
        elif "client_secret_basic" in supported:
            client.token_endpoint_auth_method = "client_secret_basic"
        elif "client_secret_post" in supported:
            client.token_endpoint_auth_method = "client_secret_post"

    def _choose_secret_method(self, metadata: OAuthMetadata) -> None:
        """Send the client's secret in the body, if the server accepts it only there (RFC 8414)."""
        supported = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        client = self._provider.context.client_info
        if (
            client is not None
            and client.token_endpoint_auth_method == "client_secret_basic"
            and "client_secret_basic" not in supported
            and "client_secret_post" in supported
        ):
            client.token_endpoint_auth_method = "client_secret_post"

    def _check_issuer(self, issuer: str) -> None:
        context = self._provider.context
        server = context.auth_server_url
        parts = urlsplit(context.server_url)
        expected = server or f"{parts.scheme}://{parts.netloc}"
        if not _same_issuer(issuer, expected):
            raise OAuthFault(
                f"the authorization server {origin_of_any(expected)} claims to be another issuer"
                f" ({_shown(issuer)}, not {_shown(expected)})"
            )
        if self._issuer is not None and not _same_issuer(issuer, self._issuer):
            raise OAuthFault(
                f"the server's authorization server is {_shown(issuer)}, but the client is registered at"
                f" {_shown(self._issuer)}, so no secret was sent",
                remedy="correct the issuer",
            )

    def _note(self, response: httpx2.Response, what: str) -> None:
        parts = urlsplit(str(response.request.url))
        note = f"{_shown(f'{parts.scheme}://{parts.netloc}{parts.path}')} {what}"
        if note not in self._endpoints.notes and len(self._endpoints.notes) < MAX_NOTES:
            self._endpoints.notes.append(note)

    def _no_metadata(self) -> OAuthFault:
        notes = "; ".join(self._endpoints.notes)
        return OAuthFault(f"the metadata of its authorization server was not found{notes and ': '}{notes}")

    def _fault(self, problem: OAuthFlowError) -> OAuthFault:
        """The fault for an error of the SDK, whose text may contain a response or the state."""
        text = str(problem)
        for known, reason in _SDK_FAULTS.items():
            if text.startswith(known):
                return OAuthFault(reason)
        if text.startswith("Protected resource ") and "does not match" in text:
            return OAuthFault(
                "the server's resource metadata is for another server (its resource does not match the URL)"
            )
        return (
            self._no_metadata()
            if self._provider.context.oauth_metadata is None
            else OAuthFault("the authorization server sent an invalid answer")
        )


def _status_of(response: httpx2.Response) -> str:
    if 300 <= response.status_code < 400:
        return f"redirected elsewhere (HTTP {response.status_code}), which the gate does not follow"
    return f"answered with HTTP {response.status_code}"


_SDK_FAULTS: Final = {
    "Protected resource metadata request failed": "the server's resource metadata cannot be read now",
    "State parameter mismatch": "the browser's answer belongs to another login",
    "Authorization response iss mismatch": "the browser's answer came from another authorization server (iss)",
    "Authorization response missing iss": (
        "the browser's answer does not name its authorization server (iss), although the server supports that"
    ),
    "Registration failed": "the authorization server did not register the gate",
    "Authorization server registered the client": "the authorization server registered the gate with a method of"
    " authentication that it cannot use",
    "Invalid registration response": "the authorization server sent an invalid registration",
}


def _shown(url: str) -> str:
    return printable(url.partition("?")[0])[:300]


def _same_issuer(a: str, b: str) -> bool:
    """Simple string comparison (RFC 8414), but a root URL may have its slash or not."""
    return a == b or (a.rstrip("/") == b.rstrip("/") and urlsplit(a).path in ("", "/"))


def _checked_token(response: httpx2.Response) -> httpx2.Response:
    """The response of a token endpoint, with nothing but valid members. Raises OAuthFault."""
    where = origin_of_any(str(response.request.url))
    found = json_object(response.content)
    if found is None:
        raise OAuthFault(f"the answer of {where} to the token request is not a JSON object")
    if not is_token(found.get("access_token")):
        raise OAuthFault(f"the answer of {where} to the token request has no valid access_token")
    kind = found.get("token_type", "Bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise OAuthFault(f"{where} issued a token of another type than Bearer, which the gate cannot use")
    kept: dict[str, Any] = {"access_token": found["access_token"], "token_type": "Bearer"}
    refresh, scope, lifetime = found.get("refresh_token"), found.get("scope"), found.get("expires_in")
    if refresh is not None:
        if not is_token(refresh):
            raise OAuthFault(f"the answer of {where} to the token request has an invalid refresh_token")
        kept["refresh_token"] = refresh
    if isinstance(scope, str):
        kept["scope"] = printable(scope)[:4096]
    if isinstance(lifetime, str) and lifetime.isdecimal() and lifetime.isascii() and len(lifetime) < 12:
        lifetime = int(lifetime)
    if isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and lifetime > 0:
        kept["expires_in"] = max(1, int(min(lifetime, MAX_LIFETIME)))
    return httpx2.Response(200, content=msgspec.json.encode(kept), request=response.request)


def silence_sdk() -> None:
    """Keep the SDK's and the HTTP client's log lines out of stderr: they may contain responses and URLs."""
    for name in ("mcp.client.auth", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(_SILENT)


async def log_in(
    url: str,
    settings: OAuthSettings,
    challenge: Challenge,
    receiver: LoopbackReceiver,
    *,
    show: Callable[[str], None],
    waits: float,
) -> Login:
    """A login by the user in a browser: authorization code with PKCE. ``show`` gets the URL where the user logs in.
    ``waits``: seconds for everything, the user included. Raises OAuthFault and TimeoutError."""
    silence_sdk()
    storage = _Storage(None, _registered(settings, receiver.redirect_uri))

    async def redirect(target: str) -> None:
        endpoint = str(flow.checked_metadata().authorization_endpoint)
        if "?" in endpoint:  # RFC 6749, 3.1: the endpoint keeps its query; the SDK adds a second question mark
            target = f"{endpoint}&{target.removeprefix(f'{endpoint}?')}"
        receiver.expect(target)
        show(target)

    async def callback() -> AuthorizationCodeResult:
        code, state, iss = await receiver.result()
        return AuthorizationCodeResult(code=code, state=state, iss=iss)

    metadata = OAuthClientMetadata(
        client_name="samplegate",
        redirect_uris=[AnyUrl(receiver.redirect_uri)],
        software_id="samplegate",
        software_version=__version__,
    )
    provider = OAuthClientProvider(
        url, metadata, storage, redirect, callback, client_metadata_url=settings.client_metadata_url
    )
    asked = challenge if settings.scope is None else msgspec.structs.replace(challenge, scope=settings.scope)
    async with http_client() as http:
        flow = _Flow(provider, Endpoints(url, http, shows_descriptions=True), issuer=settings.issuer, user=True)
        async with asyncio.timeout(waits):
            await flow.run(asked)
    return _login(provider, storage, url, "authorization_code", challenge, key="")


async def client_credentials(url: str, settings: OAuthSettings, challenge: Challenge, before: Login | None) -> Login:
    """A new token by client credentials. With a challenge of status 403, its scopes are added to the granted ones.
    Raises OAuthFault."""
    silence_sdk()
    held = None if before is None else _token_of(before)
    storage = _Storage(held, None)
    provider = _client_credentials_provider(url, settings, storage)
    asked = challenge
    if challenge.status == 401 and settings.scope is not None:
        asked = msgspec.structs.replace(challenge, scope=settings.scope)
    async with http_client() as http:
        await _bounded(_Flow(provider, Endpoints(url, http), issuer=settings.issuer, user=False).run(asked))
    return _login(provider, storage, url, "client_credentials", challenge, key=settings.key)


async def refresh(login: Login) -> Login:
    """The login with a new token by its refresh token. Raises OAuthFault."""
    silence_sdk()
    storage = _Storage(_token_of(login), _client_of(login))
    provider = OAuthClientProvider(login.url, OAuthClientMetadata(redirect_uris=None), storage)
    _restore(provider, login)
    provider.context.token_expiry_time = 1.0  # the provider refreshes only what has expired
    async with http_client() as http:
        endpoints = Endpoints(login.url, http)
        endpoints.check_url(str(login.metadata.get("token_endpoint")), "token_endpoint")
        await _bounded(_Flow(provider, endpoints, issuer=login.issuer, user=False).run(None))
    if storage.tokens is None or storage.tokens.access_token == login.access_token:
        raise OAuthFault("the authorization server sent the same token again")
    return _renewed(login, storage.tokens)


async def revoke(login: Login) -> bool:
    """Revoke the login's tokens (RFC 7009). Returns False if the authorization server offers no revocation. Raises
    OAuthFault."""
    silence_sdk()
    endpoint = login.metadata.get("revocation_endpoint")
    if not isinstance(endpoint, str):
        return False
    provider = OAuthClientProvider(login.url, OAuthClientMetadata(redirect_uris=None), _Storage(None, None))
    client = provider.context.client_info = _client_of(login)
    async with http_client() as http:
        endpoints = Endpoints(login.url, http)
        endpoints.check_url(endpoint, "revocation_endpoint")
        for kind, token in (("refresh_token", login.refresh_token), ("access_token", login.access_token)):
            if token is None:
                continue
            data = {"token": token, "token_type_hint": kind}
            data |= {} if client is None else {"client_id": client.client_id}
            data, headers = provider.context.prepare_token_auth(data, {})
            request = httpx2.Request("POST", endpoint, data=data, headers=headers)
            response = await endpoints.send(request, "revocation")
            if response.status_code not in (200, 204):
                raise endpoints.refusal(response, "revocation")
    return True


async def challenge_of(url: str, headers: Mapping[str, str]) -> Challenge:
    """How the server asks for a token: its answer to a request without one. Raises OAuthFault."""
    silence_sdk()
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    own = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    async with http_client() as http:
        endpoints = Endpoints(url, http)
        why = endpoints.url_fault(url)
        if why is not None:
            raise OAuthFault(f"the server's URL {why}", remedy="use https, because tokens are only sent over https")
        return await _first_challenge(endpoints, httpx2.Request("POST", url, headers=own, content=body))


async def _first_challenge(endpoints: Endpoints, request: httpx2.Request) -> Challenge:
    response = await endpoints.send_head(request, "request without a token")
    return Challenge.of(401, response.headers.get_list("WWW-Authenticate"), answered=response.status_code)


async def _bounded(flow: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(FLOW_TIME):
            await flow
    except TimeoutError:
        raise OAuthFault(f"the authorization server took longer than {FLOW_TIME:g} s", transient=True) from None


def _client_credentials_provider(url: str, settings: OAuthSettings, storage: _Storage) -> OAuthClientProvider:
    assert settings.client_id is not None
    if settings.private_key_file is not None:
        key = _read(key_in, settings.private_key_file)
        signs = SignedJWTParameters(
            issuer=settings.client_id,
            subject=settings.client_id,
            signing_key=key,
            signing_algorithm=_algorithm(settings.private_key_file, key),
        ).create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(
            url, storage, settings.client_id, signs, scope=settings.scope, issuer=settings.issuer
        )
    return ClientCredentialsOAuthProvider(
        url,
        storage,
        settings.client_id,
        _secret_of(settings) or "",
        token_endpoint_auth_method=settings.auth_method,
        scope=settings.scope,
        issuer=settings.issuer,
    )


def _algorithm(path: Path, key: str) -> str:
    """The algorithm of signatures with a private key (RFC 7518, RFC 8037)."""
    try:
        found = load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise OAuthFault(f"{path}: is not a private key in PEM format without a password") from None
    match found:
        case rsa.RSAPrivateKey():
            return "RS256"
        case ec.EllipticCurvePrivateKey() if found.curve.name in _CURVES:
            return _CURVES[found.curve.name]
        case ed25519.Ed25519PrivateKey() | ed448.Ed448PrivateKey():
            return "EdDSA"
        case _:
            raise OAuthFault(f"{path}: use an RSA, P-256, P-384, P-521 or Ed25519 key")


def _read(read: Callable[[Any], str], path: Any) -> str:
    try:
        return read(path)
    except ValueError as problem:
        raise OAuthFault(str(problem)) from None


def _secret_of(settings: OAuthSettings) -> str | None:
    if settings.client_secret_file is not None:
        return _read(secret_in, settings.client_secret_file)
    return settings.client_secret


def _registered(settings: OAuthSettings, redirect_uri: str) -> OAuthClientInformationFull | None:
    """The configured client; None if the gate registers itself."""
    if settings.client_id is None:
        return None
    secret = _secret_of(settings)
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=secret,
        redirect_uris=[AnyUrl(redirect_uri)],
        token_endpoint_auth_method="none" if secret is None else settings.auth_method,
        issuer=settings.issuer,
    )


def _login(
    provider: OAuthClientProvider, storage: _Storage, url: str, grant: Any, challenge: Challenge, *, key: str
) -> Login:
    """What the flow has obtained."""
    context = provider.context
    tokens, client, metadata = storage.tokens, context.client_info, context.oauth_metadata
    if tokens is None or client is None or metadata is None:
        raise OAuthFault("the authorization server issued no token")
    now = time.time()
    resource = context.protected_resource_metadata
    kept = metadata.model_dump(mode="json", exclude_none=True)
    is_user = grant == "authorization_code"
    return Login(
        url=url,
        grant=grant,
        issuer=str(metadata.issuer),
        client_id=client.client_id,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token if is_user else None,
        scope=tokens.scope,
        obtained_at=now,
        expires_at=None if tokens.expires_in is None else now + tokens.expires_in,
        key=key,
        challenge=challenge.resource_metadata or "",
        client=client.model_dump(mode="json", exclude_none=True) if is_user else {},
        metadata={name: kept[name] for name in _METADATA_KEYS if name in kept},
        resource={}
        if resource is None
        else {
            "resource": str(resource.resource),
            "authorization_servers": [str(server) for server in resource.authorization_servers[:1]],
        },
    )


def _renewed(login: Login, tokens: OAuthToken) -> Login:
    now = time.time()
    return msgspec.structs.replace(
        login,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or login.refresh_token,
        scope=tokens.scope or login.scope,
        obtained_at=now,
        expires_at=None if tokens.expires_in is None else now + tokens.expires_in,
    )


def _token_of(login: Login) -> OAuthToken:
    return OAuthToken(access_token=login.access_token, refresh_token=login.refresh_token, scope=login.scope)


def _client_of(login: Login) -> OAuthClientInformationFull | None:
    try:
        return OAuthClientInformationFull.model_validate(login.client) if login.client else None
    except ValidationError:
        raise OAuthFault("the stored registration is not valid") from None


def _restore(provider: OAuthClientProvider, login: Login) -> None:
    """What the provider knew when the login was obtained: without the endpoints, it would send the refresh token to the
    MCP server."""
    context = provider.context
    try:
        context.oauth_metadata = OAuthMetadata.model_validate(login.metadata)
        if login.resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(login.resource)
    except ValidationError:
        raise OAuthFault("the stored metadata is not valid") from None
    context.auth_server_url = login.issuer
