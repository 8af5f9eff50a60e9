from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samplegate.policy.schema import Webhook
from samplegate.reviews.notify.endpoint import MAX_BYTES, SecretSources, WebhookNotReady, keys_of, url_of
from samplegate.reviews.notify.formats import ReviewView
from samplegate.reviews.notify.webhook import message
from samplegate.reviews.review import Delivery
from tests.fakes.reviews import NOW, review


@pytest.fixture
def sources(tmp_path: Path) -> SecretSources:
    (tmp_path / "key").write_text("whsec_a2V5\n")
    (tmp_path / "old").write_text("dGhlIG9sZCBvbmU=")
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "large").write_text("x" * (MAX_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "url").write_text("https://hooks.example/T1\n")
    (tmp_path / "urls").write_text("https://hooks.example/T1\nhttps://hooks.example/T2\n")
    return SecretSources(tmp_path, {"KEY": "ZnJvbSBhIHZhcmlhYmxl", "NONE": " ", "HOOK": "https://hooks.example/T3"})


@pytest.mark.parametrize(
    ("webhook", "keys"),
    [
        ({"secret_file": "key"}, (b"key",)),
        ({"secret_env": "KEY"}, (b"from a variable",)),
        ({"secret_file": "key", "old_secret_file": "old"}, (b"key", b"the old one")),
        ({"secret_file": "key", "old_secret_env": "KEY"}, (b"key", b"from a variable")),
    ],
)
def test_the_newest_key_comes_first(sources: SecretSources, webhook: dict[str, Any], keys: tuple[bytes, ...]) -> None:
    assert keys == keys_of(Webhook(**webhook), sources)


@pytest.mark.parametrize(
    ("webhook", "why"),
    [
        ({}, "the webhook has no secret_file or secret_env"),
        ({"secret_file": "nowhere"}, "secret_file nowhere cannot be read: No such file or directory"),
        ({"secret_file": "empty"}, "secret_file empty is empty"),
        ({"secret_file": "large"}, f"secret_file large is larger than {MAX_BYTES} bytes"),
        ({"secret_file": "binary"}, "secret_file binary is not UTF-8"),
        ({"secret_file": "."}, "secret_file . cannot be read: Is a directory"),
        ({"secret_env": "UNSET"}, "secret_env UNSET is not set or empty"),
        ({"secret_env": "NONE"}, "secret_env NONE is not set or empty"),
        (
            {"secret_file": "key", "old_secret_file": "nowhere"},
            "old_secret_file nowhere cannot be read: No such file or directory",
        ),
    ],
)
def test_a_key_that_cannot_be_read_is_said_and_never_shown(
    sources: SecretSources, webhook: dict[str, Any], why: str
) -> None:
    assert WebhookNotReady(why) == keys_of(Webhook(**webhook), sources)


def test_a_key_that_is_no_base64_is_none(tmp_path: Path) -> None:
    assert WebhookNotReady("secret is not valid base64, with or without the prefix whsec_") == keys_of(
        Webhook(secret_env="K"), SecretSources(tmp_path, {"K": "whsec_!!"})
    )


@pytest.mark.parametrize(
    ("webhook", "url"),
    [
        ({"url": "https://a.example/"}, "https://a.example/"),
        ({"url_file": "url"}, "https://hooks.example/T1"),
        ({"url_env": "HOOK"}, "https://hooks.example/T3"),
        (
            {"url_file": "urls"},
            WebhookNotReady("the webhook's url contains line breaks, spaces or non-ASCII characters"),
        ),
        ({"url_env": "UNSET"}, WebhookNotReady("url_env UNSET is not set or empty")),
        ({}, WebhookNotReady("the webhook has no url")),
    ],
)
def test_the_address_is_read_from_where_it_stands(sources: SecretSources, webhook: dict[str, Any], url: object) -> None:
    assert url == url_of(Webhook(**webhook), sources)


@pytest.mark.parametrize(
    "webhook",
    [{"url": "https://a.example/"}, {"url": "https://a.example/", "secret_env": "UNSET"}, {"secret_file": "key"}],
)
def test_there_is_no_message_without_a_key_and_an_address(sources: SecretSources, webhook: dict[str, Any]) -> None:
    delivery = Delivery(id="msg_1", review="rv_1", reviewer="ops", event="review.opened", created=NOW, due=NOW)
    view = ReviewView(now=NOW, url=None, clean=None, key=bytes(32))
    assert isinstance(message(delivery, review(), Webhook(**webhook), view=view, sources=sources), WebhookNotReady)
