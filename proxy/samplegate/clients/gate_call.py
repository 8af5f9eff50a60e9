"""Pure. The gate's command line in an entry: what `wrap` writes, and how it is recognized."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NAME: Final = "samplegate"
RUN: Final = "run"
END: Final = "--"
MAX_PREFIX: Final = 8
"""Arguments before ``run``, as of a launcher: ``uvx --from WHEEL samplegate run``."""
_INSTALLERS: Final = re.compile(r"(uvx?|pipx|pip-run|python[0-9.]*|pythonw|py|pypy[0-9.]*)\Z")
"""Programs that start samplegate in the same place as the server, by installing or importing it."""
_IN_A_SHELL: Final = re.compile(rf"\b{NAME}(\.exe)?[\"']?\s+{RUN}\b", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"[\\/]")


@dataclass(frozen=True, kw_only=True)
class Gate:
    """How a client starts the gate."""

    command: str
    """Absolute path of samplegate, or of the interpreter."""
    prefix: tuple[str, ...] = ()
    """Arguments before ``run``."""
    policy: str
    """Absolute path."""
    options: tuple[str, ...] = ()
    """Further options of ``run``."""

    def words(self, server: str) -> tuple[str, ...]:
        """The arguments up to the server's URL or command."""
        named = (f"--server={server}",) if server.startswith("-") else ("--server", server)
        return (*self.prefix, RUN, "--policy", self.policy, *named, *self.options)


@dataclass(frozen=True, kw_only=True)
class GateCall:
    """A gate's command line, as an entry has it. Indexes are those of the arguments."""

    policy: str | None
    wrapped: int | None = None
    """Index of the server's command, None for a server at a URL."""
    launcher: str | None = None
    """A program in which samplegate runs, such as docker: without the gate, the server would run elsewhere."""
    url: int | None = None
    header_variables: tuple[tuple[str, str], ...] = ()
    """Header and variable of each `--header-env`."""


def is_ours(word: str) -> bool:
    """Whether a command is samplegate, by its file name."""
    return _program(word) == NAME


def starts_in_a_shell(words: Sequence[str]) -> bool:
    """Whether an argument is a shell command that starts `samplegate run`."""
    return any(_IN_A_SHELL.search(word) for word in words)


def _program(word: str) -> str:
    return _SEPARATOR.split(word)[-1].lower().removesuffix(".exe")


def gate_call(command: str, args: Sequence[str]) -> GateCall | None:
    """The gate's command line in an entry; None if the entry does not start `samplegate run`."""
    words = (command, *args)
    at = next(
        (i for i in range(1, min(len(words), MAX_PREFIX)) if words[i] == RUN and is_ours(words[i - 1])),
        None,
    )
    if at is None:
        return None
    end = words.index(END, at) if END in words[at:] else len(words)
    policy: str | None = None
    at_url: int | None = None
    headers: list[tuple[str, str]] = []
    for i in range(at + 1, end):
        option, equals, value = words[i].partition("=")
        if not equals and i + 1 < end:
            value = words[i + 1]
        if option == "--policy":
            policy = value
        elif option == "--url" and not equals and i + 1 < end:
            at_url = i  # of the value, in args
        elif option == "--header-env":
            header, _, variable = value.partition("=")
            headers.append((header, variable))
    return GateCall(
        policy=policy,
        launcher=command if at > 1 and not _INSTALLERS.match(_program(command)) else None,
        wrapped=end if end + 1 < len(words) else None,
        url=at_url,
        header_variables=tuple(headers),
    )
