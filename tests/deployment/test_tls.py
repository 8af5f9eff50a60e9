"""nginx with the configuration of the TLS recipe: it starts, and passes requests and streams on unchanged."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.system_programs import program
from tests.paths import ROOT

CONF: Final = ROOT / "policies" / "recipes" / "nginx.conf"
SECONDS: Final = 30.0


class Upstream(ThreadingHTTPServer):
    """A listener in the place of the gate. It streams one event, and the second only when the client has the first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.headers: dict[str, str] = {}
        self.first_has_arrived = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, Upstream)
        self.rfile.read(int(self.headers["content-length"]))
        self.server.headers = dict(self.headers.items())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in (b"data: 1\n\n", b"data: 2\n\n"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
            self.server.first_has_arrived.wait(SECONDS)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.first_has_arrived.set()
        server.shutdown()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture
def port(upstream: Upstream, tmp_path: Path) -> Iterator[int]:
    """The port of nginx, with a certificate of its own and the recipe's settings otherwise."""
    made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mcp.example.com")
    files = ("-keyout", tmp_path / "mcp.key", "-out", tmp_path / "mcp.pem")
    name = ("-addext", "subjectAltName=DNS:mcp.example.com")
    subprocess.run([program("openssl"), *made, *name, *files], check=True, capture_output=True, timeout=60)
    listens = free_port()
    server = CONF.read_text("utf-8")
    for written, used in {
        "listen 443 ssl": f"listen 127.0.0.1:{listens} ssl",
        "/etc/ssl/mcp.pem": str(tmp_path / "mcp.pem"),
        "/etc/ssl/private/mcp.key": str(tmp_path / "mcp.key"),
        "127.0.0.1:8080": f"127.0.0.1:{upstream.server_address[1]}",
    }.items():
        assert written in server
        server = server.replace(written, used)
    temporary = "".join(f"{kind}_temp_path {tmp_path / kind};\n" for kind in _TEMPORARY)
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"daemon off;\npid {tmp_path / 'pid'};\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n"
        f"{temporary}{server}}}\n"
    )
    command = [program("nginx"), "-p", str(tmp_path), "-c", str(conf)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert 0 == checked.returncode, checked.stderr
    assert "[warn]" not in checked.stderr.replace('the "user" directive', "")
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _await(listens)
        yield listens
    finally:
        process.terminate()
        process.wait(SECONDS)


_TEMPORARY: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def _await(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), SECONDS).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline


@pytest.mark.timeout(180)
def test_a_call_passes_with_its_headers_and_its_stream_is_not_held_back(
    port: int, upstream: Upstream, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=tmp_path / "mcp.pem")
    raw = context.wrap_socket(socket.create_connection(("127.0.0.1", port), SECONDS), server_hostname="mcp.example.com")
    client = http.client.HTTPConnection("mcp.example.com", timeout=SECONDS)
    client.sock = raw
    sent = {"Authorization": "Bearer t", "Mcp-Session-Id": "s", "Mcp-Method": "tools/call"}
    client.request("POST", "/servers/import/mcp", body=b"{}", headers=sent)
    answer = client.getresponse()
    assert b"data: 1\n" == answer.readline()
    upstream.first_has_arrived.set()
    assert b"data: 2" in answer.read()
    raw.close()
    got = {name.lower(): value for name, value in upstream.headers.items()}
    assert {"host": "mcp.example.com"} | {name.lower(): value for name, value in sent.items()} == {
        name: got.get(name) for name in ("host", *map(str.lower, sent))
    }
