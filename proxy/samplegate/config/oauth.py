"""OAuth of servers at a URL: the keys of `oauth` in the settings, and the options of the command line.

This module validates them and opens no connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from samplegate.config.sources import Section, secret_text
from samplegate.urls import url_error

_scope: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*\Z")
_visible: Final = re.compile(r"[\x20-\x7e]{1,4096}\Z")


class OAuthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the gate gets tokens for a server. ``repr`` shows no secret."""

    grant: Annotated[
        Literal["authorization_code", "client_credentials"],
        Meta(
            description=(
                "`authorization_code`: a user logs in once with `samplegate login NAME`; `client_credentials`: the gate"
                " gets tokens by itself."
            )
        ),
    ] = "authorization_code"
    client_id: Annotated[
        str | None,
        Meta(
            description="ID of a client that is registered at the authorization server. Default: registered by itself."
        ),
    ] = None
    client_secret: Annotated[
        str | None,
        Meta(description="The client's secret, from a variable: `${VAR}`. No other process gets the variable."),
    ] = None
    client_secret_file: Annotated[Path | None, Meta(description="A file with the client's secret.")] = None
    private_key_file: Annotated[
        Path | None,
        Meta(description="A PEM file with the client's private key, for `private_key_jwt` in place of a secret."),
    ] = None
    auth_method: Annotated[
        Literal["client_secret_basic", "client_secret_post"],
        Meta(
            description=(
                "How the secret is sent: in the header (`client_secret_basic`) or body (`client_secret_post`). If the"
                " authorization server accepts it only in the body, it is sent there."
            )
        ),
    ] = "client_secret_basic"
    issuer: Annotated[
        str | None,
        Meta(
            description=(
                "The issuer URL of the authorization server. A secret or key is only used there, so it is required with"
                " one."
            )
        ),
    ] = None
    scope: Annotated[
        str | None,
        Meta(description="Scopes to request, separated by spaces. Default: those that the server asks for."),
    ] = None
    client_metadata_url: Annotated[
        str | None,
        Meta(
            description=(
                "The https URL of a client ID metadata document, which authorization servers accept in place of a"
                " registration."
            )
        ),
    ] = None

    def __repr__(self) -> str:
        return f"OAuthSettings(grant={self.grant!r}, client_id={self.client_id!r})"

    @property
    def key(self) -> str:
        """Identifies the configuration, without secrets."""
        return msgspec.json.encode([self.grant, self.client_id, self.issuer, self.scope]).decode()


def secret_in(path: Path) -> str:
    """The secret in a file, read on each use, so that a rotated one is used at once. Raises ValueError, whose text
    contains no value."""
    value = secret_text(path).strip()
    if _visible.match(value) is None:
        raise ValueError(f"{path}: contains no valid secret; write one line of ASCII into it")
    return value


def key_in(path: Path) -> str:
    """The private key in a PEM file. Raises ValueError, whose text contains no value."""
    text = secret_text(path)
    if "PRIVATE KEY-----" not in text or "ENCRYPTED" in text:
        raise ValueError(f"{path}: contains no private key in PEM format without a password")
    return text


def oauth_errors(settings: OAuthSettings, names: Mapping[str, str] = {}) -> dict[str, str]:
    """What is wrong with the values, by key. The texts contain no values. ``names`` are the keys as the user wrote
    them."""
    return {**_value_errors(settings), **_combination_errors(settings, names)}


def _combination_errors(settings: OAuthSettings, names: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    keys = ("client_secret_file", "client_secret", "private_key_file")
    secrets = [name for name in keys if getattr(settings, name) is not None]
    if len(secrets) > 1:
        found[secrets[1]] = f"cannot be combined with {names.get(secrets[0], secrets[0])}; remove one of them"
    if settings.grant == "client_credentials":
        if not secrets:
            ways = [names.get(name, name) for name in keys]
            found["grant"] = f"needs the client's secret or key; set {', '.join(ways[:2])} or {ways[2]}"
        if settings.client_metadata_url is not None:
            found["client_metadata_url"] = "is for the authorization_code grant; remove it"
    elif settings.private_key_file is not None:
        found["private_key_file"] = "is for the client_credentials grant; set the grant, or use client_secret_file"
    if settings.client_id is None and (secrets or settings.grant == "client_credentials"):
        found["client_id"] = "is not set; set the ID of the client that is registered at the authorization server"
    if settings.issuer is None and (secrets or settings.grant == "client_credentials"):
        found["issuer"] = "is not set; set the authorization server's issuer URL, which alone gets the client's secret"
    return found


def _value_errors(settings: OAuthSettings) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("issuer", "client_metadata_url"):
        url = getattr(settings, name)
        if url is not None and (why := url_error(url, secure=True)) is not None:
            found[name] = why
    url = settings.client_metadata_url
    if url is not None and "client_metadata_url" not in found and not _is_document(url):
        found["client_metadata_url"] = "is not an https URL with a path, such as https://example.com/client.json"
    for name in ("client_id", "client_secret"):
        value = getattr(settings, name)
        if value is not None and _visible.match(value) is None:
            found[name] = "is not one line of ASCII; correct it"
    if settings.scope is not None and _scope.match(settings.scope) is None:
        found["scope"] = "is not a list of scopes; write ASCII without quotes, separated by single spaces"
    for name, read in (("client_secret_file", secret_in), ("private_key_file", key_in)):
        path = getattr(settings, name)
        try:
            _ = None if path is None else read(path)
        except ValueError as problem:
            found[name] = str(problem)
    return found


def _is_document(url: str) -> bool:
    scheme, _, rest = url.partition("://")
    return scheme == "https" and rest.partition("/")[2] != ""


def check_section(part: Section, settings: OAuthSettings) -> None:
    """Report what is wrong with ``oauth`` of a server at its place in the settings."""
    for name, why in oauth_errors(settings).items():
        part.problem(("oauth", name), why)


def oauth_of_options(
    options: Mapping[str, object], environment: Mapping[str, str], problems: list[str]
) -> OAuthSettings | None:
    """The client credentials of the command line's server; None if no option is given. Every problem is reported.

    ``options`` has the options by name, such as ``oauth_client_id``.
    """
    given = {name: value for name in OPTIONS if (value := options.get(name)) is not None}
    if not given:
        return None
    variable = given.get("oauth_client_secret_env")
    secret = None if variable is None else environment.get(str(variable), "").strip()
    if secret == "":
        problems.append("--oauth-client-secret-env: the variable is not set or is empty; set it to the client's secret")
        return None
    files = {name: None if given.get(name) is None else Path(str(given[name])) for name in _FILES}
    settings = OAuthSettings(
        grant="client_credentials",
        client_id=_text(given.get("oauth_client_id")),
        client_secret=secret,
        client_secret_file=files["oauth_client_secret_from"],
        private_key_file=files["oauth_private_key"],
        issuer=_text(given.get("oauth_issuer")),
        scope=_text(given.get("oauth_scope")),
    )
    problems += [f"{_OPTION_OF.get(name, name)}: {why}" for name, why in oauth_errors(settings, _OPTION_OF).items()]
    return settings


def _text(value: object) -> str | None:
    return None if value is None else str(value)


OPTIONS: Final = (
    "oauth_client_id",
    "oauth_client_secret_from",
    "oauth_client_secret_env",
    "oauth_private_key",
    "oauth_issuer",
    "oauth_scope",
)
"""The options of `run` and `serve` for the client credentials grant, as argparse names them."""
_FILES: Final = ("oauth_client_secret_from", "oauth_private_key")
_OPTION_OF: Final = {
    "client_id": "--oauth-client-id",
    "client_secret": "--oauth-client-secret-env",
    "client_secret_file": "--oauth-client-secret-from",
    "private_key_file": "--oauth-private-key",
    "issuer": "--oauth-issuer",
    "scope": "--oauth-scope",
    "grant": "--oauth-client-id",
}
