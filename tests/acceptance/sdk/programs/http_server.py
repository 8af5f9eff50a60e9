"""Serves a counterpart over Streamable HTTP and says where on stderr: `http_server.py server_sdk1|server_sdk2
[--modern-only] [--stdio]`.

Runs in the environment of the SDK that the named server is written on. `--modern-only` (SDK 2 only) refuses the
handshake, as a server of 2026-07-28 that speaks nothing older; `--stdio` serves that one over stdio.
"""

import importlib
import json
import os
import socket
import sys
import threading

import uvicorn

server = importlib.import_module(sys.argv[1]).server


def refusal(params):
    asked = (params or {}).get("protocolVersion")
    return {
        "code": -32022,
        "message": "unsupported protocol version",
        "data": {"supported": ["2026-07-28"], "requested": asked},
    }


async def refuse_handshake(context, call_next):
    """Middleware: `initialize` belongs to no revision that this server speaks."""
    from mcp.shared.exceptions import MCPError

    if context.method == "initialize":
        raise MCPError(**refusal(context.params))
    return await call_next(context)


def refuse_handshake_on_stdio():
    """The same before the SDK reads: its stdio server takes no modern request any more once it has seen an
    `initialize`."""
    read, write = os.pipe()
    source = os.fdopen(os.dup(0), "rb")
    os.dup2(read, 0)

    def pump():
        for line in source:
            frame = json.loads(line)
            if frame.get("method") == "initialize":
                reply = {"jsonrpc": "2.0", "id": frame["id"], "error": refusal(frame.get("params"))}
                print(json.dumps(reply), flush=True)
            else:
                os.write(write, line)
        os.close(write)

    threading.Thread(target=pump, daemon=True).start()


if __name__ == "__main__":
    if "--modern-only" in sys.argv:
        server.middleware.append(refuse_handshake)
    if "--stdio" in sys.argv:
        refuse_handshake_on_stdio()
        server.run("stdio")
        sys.exit()
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
