"""Where the files of the known clients are on each platform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from samplegate.clients.known import CLIENTS, locations

LINUX: Final = {"HOME": "/h/ada"}
MAC: Final = {"HOME": "/u/ada"}
WINDOWS: Final = {"USERPROFILE": r"C:\Users\ada", "ProgramFiles": r"C:\Program Files"}


def paths(client: str, platform: str, environ: Mapping[str, str], cwd: str) -> list[str]:
    return [one.path for one in locations(client, platform=platform, environ=environ, cwd=cwd)]


@pytest.mark.parametrize(
    ("client", "platform", "environ", "cwd", "expected"),
    [
        (
            *("claude-code", "linux", LINUX, "/src/app"),
            [
                "/h/ada/.claude.json",
                "/src/app/.mcp.json",
                "/src/.mcp.json",
                "/.mcp.json",
                "/h/ada/.claude/plugins/cache/**/.mcp.json",
                "/etc/claude-code/managed-mcp.json",
            ],
        ),
        (
            *("claude-code", "win32", WINDOWS, r"D:\app"),
            [
                r"C:\Users\ada\.claude.json",
                r"D:\app\.mcp.json",
                r"D:\.mcp.json",
                r"C:\Users\ada\.claude\plugins\cache\**\.mcp.json",
                r"C:\Program Files\ClaudeCode\managed-mcp.json",
            ],
        ),
        (
            *("claude-code", "linux", {**LINUX, "CLAUDE_CONFIG_DIR": "/conf"}, "/"),
            [
                "/conf/.claude.json",
                "/.mcp.json",
                "/conf/plugins/cache/**/.mcp.json",
                "/etc/claude-code/managed-mcp.json",
            ],
        ),
        (
            *("claude-desktop", "darwin", MAC, "/"),
            ["/u/ada/Library/Application Support/Claude/claude_desktop_config.json"],
        ),
        (
            *("claude-desktop", "win32", WINDOWS, "C:\\"),
            [
                r"C:\Users\ada\AppData\Roaming\Claude\claude_desktop_config.json",
                r"C:\Users\ada\AppData\Local\Packages\Claude_*\LocalCache\Roaming\Claude\claude_desktop_config.json",
            ],
        ),
        (*("claude-desktop", "linux", LINUX, "/"), ["/h/ada/.config/Claude/claude_desktop_config.json"]),
        (
            *("vscode", "darwin", MAC, "/w"),
            [
                "/u/ada/Library/Application Support/Code/User/mcp.json",
                "/u/ada/Library/Application Support/Code/User/profiles/*/mcp.json",
                "/u/ada/Library/Application Support/Code - Insiders/User/mcp.json",
                "/u/ada/Library/Application Support/Code - Insiders/User/profiles/*/mcp.json",
                "/u/ada/.vscode-server/data/User/mcp.json",
                "/w/.vscode/mcp.json",
            ],
        ),
        (
            *("vscode", "win32", {**WINDOWS, "APPDATA": r"D:\Roaming"}, "C:\\w"),
            [
                r"D:\Roaming\Code\User\mcp.json",
                r"D:\Roaming\Code\User\profiles\*\mcp.json",
                r"D:\Roaming\Code - Insiders\User\mcp.json",
                r"D:\Roaming\Code - Insiders\User\profiles\*\mcp.json",
                r"C:\Users\ada\.vscode-server\data\User\mcp.json",
                r"C:\w\.vscode\mcp.json",
            ],
        ),
        (*("cursor", "linux", LINUX, "/w"), ["/h/ada/.cursor/mcp.json", "/w/.cursor/mcp.json"]),
        (
            *("codex", "linux", {**LINUX, "CODEX_HOME": "/codex/"}, "/w"),
            [
                "/codex/config.toml",
                "/codex/*.config.toml",
                "/w/.codex/config.toml",
                "/etc/codex/config.toml",
            ],
        ),
    ],
)
def test_the_files_of_a_client(
    client: str, platform: str, environ: Mapping[str, str], cwd: str, expected: list[str]
) -> None:
    assert expected == paths(client, platform, environ, cwd)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_without_a_home_folder_no_path_is_relative(client: str, platform: str) -> None:
    cwd = "C:\\w" if platform == "win32" else "/w"
    assert all(path.startswith(("/", "C:\\")) for path in paths(client, platform, {}, cwd))
