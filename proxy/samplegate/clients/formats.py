"""Pure. Reading a client's file by its format."""

from __future__ import annotations

from typing import Final

from samplegate.clients.document import Document, Format
from samplegate.clients.faults import FileFault
from samplegate.clients.json_file import JsonDocument

MAX_BYTES: Final = 32 * 1024 * 1024


def read(data: bytes, format: Format) -> Document:
    """Read a file. Raises FileFault."""
    if len(data) > MAX_BYTES:
        raise FileFault(f"the file has {len(data)} bytes; the most is {MAX_BYTES}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise FileFault(f"byte {problem.start} is not UTF-8; save the file as UTF-8 text") from None
    if format == "json":
        return JsonDocument(text)
    from samplegate.clients.toml_file import TomlDocument  # tomlkit takes 30 ms to import

    return TomlDocument(text)
