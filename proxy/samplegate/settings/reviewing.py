"""What is wrong with the values of settings about reviews. Pure: no name is looked up, nothing is opened. Imported by `run` too, so it is light."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from samplegate.core.policyfile.tree import quoted

STORE: Final = "sqlite:"
"""What the one kind of store begins with; another kind would be another word."""


def why_no_store(text: str) -> str | None:
    """Why a text names no store, None if it does. It is not shown: in addresses of databases stand passwords."""
    return None if text.startswith(STORE) else f"names no store that is known; write {STORE}PATH"


def why_no_page(text: str) -> str | None:
    """Why people cannot reach a page by a text, None if they can."""
    from urllib.parse import urlsplit

    from samplegate.urls import url_error

    why = url_error(text)
    if why is not None:
        return why
    if urlsplit(text).path:
        return "holds a path; write scheme and host only, such as https://reviews.example.com, for the page is at /reviews there"
    return None


def why_no_networks(values: Sequence[str]) -> str | None:
    """The first of several texts that is no network, None if all are."""
    from ipaddress import ip_network

    for value in values:
        try:
            ip_network(value)
        except ValueError as problem:
            bits = "host bits" in str(problem)
            what = "has bits set behind its prefix; write the network itself" if bits else "is no network; write it like 10.1.0.0/16 or fd00::/8"
            return f"{quoted(value)} {what}"
    return None
