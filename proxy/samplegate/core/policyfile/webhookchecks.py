"""What must hold of a reviewer's webhook: one address that can be called, and a key where its format signs. Resolves no name.

Addresses are never shown: they may be secrets themselves. What a name leads to is looked at when it is called.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from samplegate.core.policy import Webhook
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.modelchecks import VARIABLE_NAME
from samplegate.core.policyfile.tree import UNSEEN, Path
from samplegate.urls import has_user, split

ADDRESSES: Final = ("url", "url_file", "url_env")
KEYS: Final = ("secret_file", "secret_env")
OLD_KEYS: Final = ("old_secret_file", "old_secret_env")
_PRIVATE: Final = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test")
"""Ends of names that no public name has."""
_SLACK: Final = ("slack.com", "slack-gov.com")


def check(draft: Draft, path: Path, webhook: Webhook) -> None:
    """One address, and what its format needs."""
    _one_address(draft, path, webhook)
    for key in ("url_env", "secret_env", "old_secret_env"):
        name = getattr(webhook, key)
        if name is not None and draft.sound(*path, key) and not VARIABLE_NAME.match(name):
            draft.problem((*path, key), "this is not the name of an environment variable; give the variable's name, never the value itself")
    for key in ("url_file", "secret_file", "old_secret_file"):
        name = getattr(webhook, key)
        if name is not None and draft.sound(*path, key) and (not name.strip() or UNSEEN.search(name)):
            draft.problem((*path, key), "this is not the name of a file; give the file's name, relative to this file")
    _signing(draft, path, webhook)
    if webhook.url is not None and draft.sound(*path, "url"):
        _url(draft, path, webhook, webhook.url)


def _given(webhook: Webhook, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if getattr(webhook, key) is not None]


def _one_address(draft: Draft, path: Path, webhook: Webhook) -> None:
    given = _given(webhook, ADDRESSES)
    if not given and all(draft.sound(*path, key) for key in ADDRESSES):
        draft.problem(path, f"it has no address; give one of {', '.join(ADDRESSES)}")
    for key in given[1:]:
        draft.problem((*path, key), f"{given[0]} is given too; keep one of the two", key=True)


def _signing(draft: Draft, path: Path, webhook: Webhook) -> None:
    """``standard`` is signed, so that whoever gets it knows that it is ours; Slack's knows its sender by the address."""
    if not draft.sound(*path, "format"):
        return
    if webhook.format == "slack":
        for key in _given(webhook, (*KEYS, *OLD_KEYS)):
            draft.problem((*path, key), "format: slack is not signed; remove the key, or say format: standard", key=True)
        return
    for first, second in (KEYS, OLD_KEYS):
        if getattr(webhook, first) is not None and getattr(webhook, second) is not None:
            draft.problem((*path, second), f"{first} is given too; keep one of the two", key=True)
    given, old = _given(webhook, KEYS), _given(webhook, OLD_KEYS)
    if not given and all(draft.sound(*path, key) for key in KEYS):
        what = f"it has only the old key; name the new one as {KEYS[0]}" if old else f"nothing signs it; add {KEYS[0]}: FILE or {KEYS[1]}: NAME"
        draft.problem(path, f"{what}, so that the receiver can tell our messages from others'")
    for key in old:
        new = key.removeprefix("old_")
        if getattr(webhook, key) == getattr(webhook, new):
            draft.problem((*path, key), f"it is the same as {new}; name the key before it, or remove it once all know the new one", key=True)


def _url(draft: Draft, path: Path, webhook: Webhook, url: str) -> None:
    at: Path = (*path, "url")
    if (why := _bad_address(url)) is not None:
        draft.problem(at, why)
        return
    parts = urlsplit(url)
    is_slack = (parts.hostname or "").endswith(_SLACK)
    if webhook.format == "slack" or is_slack:
        draft.warn(at, "whoever knows an address of Slack's can post to it; put it into a file and name that as url_file", key=True)
    elif parts.query:
        draft.warn(at, "the URL carries a query, which may be a secret; put the URL into a file and name that as url_file", key=True)
    if is_slack and webhook.format != "slack" and draft.sound(*path, "format"):
        draft.warn(at, "Slack does not read format: standard; add `format: slack`", key=True)


def _bad_address(url: str) -> str | None:
    """Why a URL is none that can be called."""
    parts = split(url)
    if parts is None:
        return "this is not a URL; write it like https://reviews.example.com/hook"
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0 or UNSEEN.search(url) or " " in url:
        return "this is not an http or https URL; write it like https://reviews.example.com/hook"
    if has_user(parts):
        return "the URL carries a user or password, which is not sent; remove it: messages are signed instead"
    if parts.fragment:
        return "the URL carries a fragment, which is not sent; remove it"
    if parts.scheme == "http" and not is_inside(parts.hostname):
        return "http sends what is reviewed in the clear over public networks; use https"
    return None


def is_inside(host: str) -> bool:
    """Whether a host is surely not in a public network: a private or local address, a bare name, or one that is reserved for such networks."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").lower().endswith(_PRIVATE)
    return not address.is_global
