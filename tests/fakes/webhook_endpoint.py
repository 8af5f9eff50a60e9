"""A scripted TCP server for webhooks, byte by byte, with certificates and a proxy."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

Behave: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LOOPBACK: Final = "127.0.0.0/8"


class Seen(msgspec.Struct):
    """A request that arrived."""

    head: str
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


class Endpoint:
    """``says`` is written as it is; ``behave`` runs in place of that. ``came`` is set with each request."""

    def __init__(self, says: bytes) -> None:
        self.says = says
        self.behave: Behave | None = None
        self.seen: list[Seen] = []
        self.connections = 0
        self.came = asyncio.Event()
        self.port = 0
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook?key=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.seen.append(await request(reader))
            self.came.set()
            if self.behave is not None:
                await self.behave(reader, writer)
            else:
                writer.write(self.says)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def requests(self, number: int, seconds: float = 10.0) -> None:
        """Wait for this many requests, at most so long."""
        async with asyncio.timeout(seconds):
            while len(self.seen) < number:
                self.came.clear()
                await self.came.wait()


async def request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    seen = Seen(head.strip(), b"")
    seen.body = await reader.readexactly(int(seen.headers.get("content-length", 0)))
    return seen


def answer(status: str = "204 No Content", body: bytes = b"", **headers: str) -> bytes:
    """An HTTP response. ``Retry_After`` is the header Retry-After."""
    lines = [
        f"HTTP/1.1 {status}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


def ok(body: bytes, **headers: str) -> bytes:
    return answer("200 OK", body, **headers)


@asynccontextmanager
async def endpoint(
    says: bytes = b"", *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Endpoint]:
    """A listening endpoint."""
    one = Endpoint(says or answer())
    server = await asyncio.start_server(one.serve, host, port, ssl=tls)
    one.port = server.sockets[0].getsockname()[1]
    one.scheme = "http" if tls is None else "https"
    try:
        yield one
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def connect_proxy(target: int) -> AsyncIterator[Endpoint]:
    """An HTTP proxy. Every CONNECT leads to this port of 127.0.0.1, as a proxy's own resolver might do."""

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    async with endpoint() as one:
        one.behave = tunnel
        yield one


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@cache
def certificate(name: str) -> tuple[bytes, bytes]:
    """A self-signed certificate for a name or an address, and its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    alternative: x509.GeneralName = (
        x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
    )
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), private


def contexts(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context with a certificate for that name, and the client's context that trusts it."""
    public, private = certificate(name)
    file = folder / "both.pem"
    file.write_bytes(public + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=public.decode())
