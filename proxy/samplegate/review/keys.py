"""What a webhook's sending needs of files and variables, read at each message, so that a change holds without a restart. Nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from samplegate.core.policy import Webhook
from samplegate.core.review.signing import key_of

MAX_BYTES: Final = 16 * 1024  # a key has 24 to 64 bytes, an address some hundred


class Unready(msgspec.Struct, frozen=True):
    """Why nothing is sent: ``what`` names the file or variable, never what is in it."""

    what: str


class Place(msgspec.Struct, frozen=True):
    """Where files and variables of the policy are."""

    folder: Path
    environment: Mapping[str, str]

    def read(self, name: str, file: str | None, variable: str | None) -> str | Unready | None:
        """The text in the file or variable, bare of blanks around it; None where neither is named. ``name``: its key in the policy."""
        if file is not None:
            return self._file(f"{name}_file {file}", self.folder / file)
        if variable is not None:
            found = self.environment.get(variable, "").strip()
            return found or Unready(f"{name}_env {variable} is not set or empty")
        return None

    def _file(self, what: str, path: Path) -> str | Unready:
        try:
            with path.open("rb") as opened:
                raw = opened.read(MAX_BYTES + 1)
        except (OSError, ValueError) as problem:
            return Unready(f"{what} cannot be read: {getattr(problem, 'strerror', None) or type(problem).__name__}")
        if len(raw) > MAX_BYTES:
            return Unready(f"{what} is larger than {MAX_BYTES} bytes")
        try:
            return raw.decode().strip() or Unready(f"{what} is empty")
        except UnicodeDecodeError:
            return Unready(f"{what} is not UTF-8")


def url_of(webhook: Webhook, place: Place) -> str | Unready:
    """Where it is told."""
    found = webhook.url or place.read("url", webhook.url_file, webhook.url_env)
    if found is None:
        return Unready("there is no url")
    if isinstance(found, str) and (not found.isascii() or not found.isprintable() or " " in found):
        return Unready("its url holds more than one line, blanks or characters that are not ASCII")
    return found


def keys_of(webhook: Webhook, place: Place) -> tuple[bytes, ...] | Unready:
    """The keys that sign, the newest first. All that the policy names must be there: else a receiver might know none of them."""
    keys: list[bytes] = []
    for name, file, variable in (
        ("secret", webhook.secret_file, webhook.secret_env),
        ("old_secret", webhook.old_secret_file, webhook.old_secret_env),
    ):
        found = place.read(name, file, variable)
        if isinstance(found, Unready):
            return found
        if found is None:
            continue
        key = key_of(found)
        if key is None:
            return Unready(f"{name} is no base64 behind whsec_")
        keys.append(key)
    return tuple(keys) or Unready("there is no secret_file or secret_env")
