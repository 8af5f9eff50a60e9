"""Pure. The files of the clients that `wrap` knows by name: where they are, and where the servers are in them.

A path may contain ``*`` and ``**``. A folder that is not known on a platform leaves the path out.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from samplegate.clients.document import Format, Key

Scope: TypeAlias = Literal["user", "project", "plugin", "managed"]
MAX_PARENTS: Final = 30

PLUGIN: Final = "it belongs to a plugin, whose update overwrites it"
MANAGED: Final = "it is managed by the administrator of this machine"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file of a client."""

    path: str
    """With the names of folders in braces."""
    scope: Scope = "user"
    platforms: tuple[str, ...] = ("linux", "darwin", "win32")
    keys: tuple[Key, ...] = (("mcpServers",),)
    fixed: str = ""
    """Why the file is never edited."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client, with what its users must know."""

    title: str
    places: tuple[Place, ...]
    shape: str = "command-args"
    format: Format = "json"
    joins_words: bool = False
    """Whether it joins command and arguments to one string."""
    after: str
    """What to do after an edit."""


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a client's file is on this machine."""

    client: str
    path: str
    """May contain ``*`` and ``**`` below ``root``, which has none."""
    root: str
    scope: Scope
    keys: tuple[Key, ...]
    fixed: str = ""


_SERVERS: Final = (("servers",),)

CLIENTS: Final = {
    "claude-code": Client(
        title="Claude Code",
        places=(
            Place(path="{claude}/.claude.json", keys=(("mcpServers",), ("projects", "*", "mcpServers"))),
            Place(path="{above}/.mcp.json", scope="project", keys=(("mcpServers",), ())),
            Place(
                path="{claude_data}/plugins/cache/**/.mcp.json",
                scope="plugin",
                keys=(("mcpServers",), ()),
                fixed=PLUGIN,
            ),
            Place(path="/etc/claude-code/managed-mcp.json", scope="managed", platforms=("linux",), fixed=MANAGED),
            Place(
                path="/Library/Application Support/ClaudeCode/managed-mcp.json",
                scope="managed",
                platforms=("darwin",),
                fixed=MANAGED,
            ),
            Place(
                path="{program_files}/ClaudeCode/managed-mcp.json", scope="managed", platforms=("win32",), fixed=MANAGED
            ),
        ),
        after="Start a new session of Claude Code. It asks again before it starts servers of a .mcp.json.",
    ),
    "claude-desktop": Client(
        title="Claude Desktop",
        places=(
            Place(path="{support}/Claude/claude_desktop_config.json", platforms=("darwin",)),
            Place(path="{appdata}/Claude/claude_desktop_config.json", platforms=("win32",)),
            Place(
                path="{local}/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
                platforms=("win32",),
            ),
            Place(path="{config}/Claude/claude_desktop_config.json", platforms=("linux",)),
        ),
        after="Quit Claude Desktop and start it again.",
    ),
    "vscode": Client(
        title="VS Code",
        places=(
            *(
                Place(path=f"{folder}/{product}/User/{name}", platforms=platforms, keys=_SERVERS)
                for product in ("Code", "Code - Insiders")
                for folder, platforms in (
                    ("{config}", ("linux",)),
                    ("{support}", ("darwin",)),
                    ("{appdata}", ("win32",)),
                )
                for name in ("mcp.json", "profiles/*/mcp.json")
            ),
            Place(path="{home}/.vscode-server/data/User/mcp.json", keys=_SERVERS),
            Place(path="{cwd}/.vscode/mcp.json", scope="project", keys=_SERVERS),
        ),
        after="Restart the changed servers (command MCP: List Servers). VS Code asks again whether to trust them.",
    ),
    "cursor": Client(
        title="Cursor",
        places=(
            Place(path="{home}/.cursor/mcp.json"),
            Place(path="{cwd}/.cursor/mcp.json", scope="project"),
        ),
        joins_words=True,
        after="Turn each changed server off and on in Cursor's MCP settings, or restart Cursor.",
    ),
    "codex": Client(
        title="Codex",
        places=(
            Place(path="{codex}/config.toml", keys=(("mcp_servers",),)),
            Place(path="{codex}/*.config.toml", keys=(("mcp_servers",),)),
            Place(path="{cwd}/.codex/config.toml", scope="project", keys=(("mcp_servers",),)),
            Place(
                path="/etc/codex/config.toml",
                scope="managed",
                platforms=("linux", "darwin"),
                keys=(("mcp_servers",),),
                fixed=MANAGED,
            ),
        ),
        shape="codex",
        format="toml",
        after="Start a new session of Codex. It reads a project's .codex/config.toml only if the project is trusted.",
    ),
}
"""Every client by its name."""


def locations(client: str, *, platform: str, environ: Mapping[str, str], cwd: str) -> Iterator[Location]:
    """Where the files of a client may be on a platform (as ``sys.platform``)."""
    known = CLIENTS[client]
    folders = _folders(platform, environ, cwd)
    for place in known.places:
        if platform not in place.platforms and not (platform not in ("darwin", "win32") and "linux" in place.platforms):
            continue
        name, _, rest = place.path.removeprefix("{").partition("}")
        for folder in folders.get(name, ()) if place.path.startswith("{") else ("",):
            path = folder.rstrip("/\\") + rest if folder else place.path
            yield Location(
                client=client,
                path=path.replace("/", "\\") if platform == "win32" else path,
                root=folder,
                scope=place.scope,
                keys=place.keys,
                fixed=place.fixed,
            )


def _folders(platform: str, environ: Mapping[str, str], cwd: str) -> dict[str, tuple[str, ...]]:
    """The folders that paths begin with."""
    paths = ntpath if platform == "win32" else posixpath
    found = {"cwd": (cwd,), "above": tuple(_above(cwd, paths.dirname))}
    home = environ.get("USERPROFILE" if platform == "win32" else "HOME", "")

    def variable(name: str, default: str = "") -> tuple[str, ...]:
        value = environ.get(name, "")
        return (value,) if paths.isabs(value) else (default,) if default else ()

    found["claude"] = variable("CLAUDE_CONFIG_DIR", home)
    found["claude_data"] = variable("CLAUDE_CONFIG_DIR", home and paths.join(home, ".claude"))
    found["codex"] = variable("CODEX_HOME", home and paths.join(home, ".codex"))
    if home:
        found["home"] = (home,)
        found["support"] = (f"{home}/Library/Application Support",)
    found["config"] = variable("XDG_CONFIG_HOME", home and f"{home}/.config")
    found["appdata"] = variable("APPDATA", home and f"{home}\\AppData\\Roaming")
    found["local"] = variable("LOCALAPPDATA", home and f"{home}\\AppData\\Local")
    found["program_files"] = variable("ProgramFiles", "C:\\Program Files")
    return found


def _above(folder: str, parent: Callable[[str], str]) -> Iterator[str]:
    """A folder and those above it."""
    for _ in range(MAX_PARENTS):
        yield folder
        above = parent(folder)
        if above == folder:
            return
        folder = above
