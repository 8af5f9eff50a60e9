"""A peer's images: recognized by their bytes, addressed by number."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from samplegate.reviews.web.content import MAX_BYTES, Picture, all_of, picture
from tests.fakes.page_reviews import png, text
from tests.fakes.reviews import review

GIF = b"GIF89a" + (3).to_bytes(2, "little") + (4).to_bytes(2, "little") + bytes(20)
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x02" + b"\xff\xc0\x00\x11\x08" + (5).to_bytes(2, "big") + (6).to_bytes(2, "big") + bytes(20)
)
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(8) + (6).to_bytes(3, "little") + (7).to_bytes(3, "little") + bytes(8)
LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L" + bytes(5) + (8 | 9 << 14).to_bytes(4, "little") + bytes(8)
LOSSY = b"RIFF\x00\x00\x00\x00WEBPVP8 " + bytes(10) + (11).to_bytes(2, "little") + (12).to_bytes(2, "little") + bytes(8)


def image(data: bytes | str, type_: str = "text/html") -> dict[str, Any]:
    return {
        "type": "image",
        "data": data if isinstance(data, str) else base64.b64encode(data).decode(),
        "mimeType": type_,
    }


def huge(width: int) -> bytes:
    return base64.b64decode(png())[:16] + width.to_bytes(4, "big") * 2 + bytes(20)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (base64.b64decode(png(9, 8)), ("image/png", 9, 8)), (GIF, ("image/gif", 3, 4)), (JPEG, ("image/jpeg", 6, 5)),
        (WEBP, ("image/webp", 7, 8)), (LOSSLESS, ("image/webp", 9, 10)), (LOSSY, ("image/webp", 11, 12)),
    ],
)  # fmt: skip
def test_the_type_is_what_the_bytes_say_whatever_the_peer_says(data: bytes, found: tuple[str, int, int]) -> None:
    shown = picture(image(data))
    assert isinstance(shown, Picture)
    assert found == (shown.type, shown.width, shown.height)
    assert data == shown.data


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (image(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/svg+xml"), "not a PNG"),
        (image(b"<script>alert(1)</script>", "image/png"), "not a PNG"),
        (image(b"BM" + bytes(60), "image/bmp"), "not a PNG"),
        (image("not base64!"), "not base64"),
        (image(""), "not a PNG"),
        ({"type": "image", "mimeType": "image/png"}, "not base64"),
        (image(base64.b64decode(png()) + bytes(MAX_BYTES)), "larger than 16 MiB"),
        (image(huge(50_000)), "too many pixels"),
    ],
)
def test_what_is_not_shown_says_why(block: dict[str, Any], why: str) -> None:
    shown = picture(block)
    assert isinstance(shown, str)
    assert why in shown


def test_pictures_are_numbered_over_messages_results_of_tools_and_the_answer() -> None:
    blocks = [image(png(n, 1)) for n in range(1, 5)]
    messages = [
        {"role": "user", "content": [text("a"), blocks[0]]},
        {"role": "user", "content": [{"type": "tool_result", "toolUseId": "t", "content": [blocks[1], text("b")]}]},
        {"role": "user", "content": blocks[2]},
    ]
    assert blocks == list(
        all_of(review(params={"messages": messages}, answer={"role": "assistant", "content": blocks[3]}))
    )
