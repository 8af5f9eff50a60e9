"""Random configuration files of MCP clients, as people and programs write them: JSON with comments, and TOML. A
number gives the same file each time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

NAMES: Final = (
    "docs",
    "a",
    "A",
    "1",
    "with space",
    "d.o.t",
    'qu"ote',
    "sl/ash~",
    "--",
    "-x",
    "naïve",
    "🦊",
    "b\\s",
    "*",
)
WORDS: Final = (
    *("npx", "-y", "", "a b", "--", "run", "C:\\tools\\x.exe", 'q"uote', "it's", "naïve", "🦊", "${A:-b}", "{env:X}"),
    *("tab\there", "new\nline", "--key=value", "#", "//", "/*", "\u2028", "x" * 200, "\x7f", "\\u0041"),
)
HEADERS: Final = ("Authorization", "X-Key", "x_key", "X.Key", "X-Region")
JUNK: Final[tuple[Any, ...]] = (
    *(1, -0.5, 1e30, 123456789012345678901234567890, True, False, "", "text", 'a "quote" // no comment', [], {}),
    *([1, [2, {"a": None}]], {"mcpServers": {"x": {"command": "not a server"}}}, ["/* no comment */", "# no comment"]),
)


@dataclass
class ClientFile:
    """A generated file."""

    text: str
    plain: dict[str, Any]
    """What it means."""
    comments: list[str] = field(default_factory=list)


def entry(random: Random, *, toml: bool) -> dict[str, Any]:
    """A server of any kind, or something else in its place."""
    words = [random.choice(WORDS) for _ in range(random.randrange(5))]
    env = {name: random.choice(WORDS) for name in random.sample(("A", "TOKEN", "B_C"), random.randrange(3))}
    headers = {name: random.choice(WORDS[:12]) for name in random.sample(HEADERS, random.randrange(1, 4))}
    kind = random.randrange(8)
    found: dict[str, Any]
    if kind < 4:
        found = {"command": random.choice(WORDS)}
        found |= {"args": words} if random.random() < 0.8 else {}
        found |= {"env": env} if random.random() < 0.5 else {}
        found |= {"type": "stdio"} if random.random() < 0.3 else {}
    elif kind < 7:
        found = {"url": random.choice(("https://x.example/mcp", "http://[::1]:8/a%20b", "https://x.example/mcp?a=1"))}
        found |= {"http_headers" if toml else "headers": headers} if random.random() < 0.8 else {"env": env}
        found |= {"type": random.choice(("http", "streamable-http"))} if random.random() < 0.5 else {}
    else:
        found = random.choice(({}, {"command": 1}, {"command": "x", "args": "y"}, {"command": "x", "url": "https://x"}))
    for name in random.sample(("timeout", "disabled", "tools", "x y", "cwd"), random.randrange(3)):
        found[name] = random.choice(JUNK)
    members = list(found.items())
    random.shuffle(members)
    return dict(members)


def servers(random: Random, *, toml: bool, size: int) -> dict[str, Any]:
    """Servers by their names."""
    return {name: entry(random, toml=toml) for name in random.sample(NAMES, random.randrange(size + 1))}


def json_file(seed: int, size: int = 4) -> ClientFile:
    """A file of JSON with comments, with servers below ``mcpServers``."""
    random = Random(seed)
    rest = [
        (name, random.choice(JUNK)) for name in random.sample(("$schema", "inputs", "a b", "é"), random.randrange(4))
    ]
    members = [*rest, ("mcpServers", servers(random, toml=False, size=size))]
    random.shuffle(members)
    written = _Json(random)
    text = written.gap() + written.value(dict(members), 0) + written.gap()
    text = ("\ufeff" if random.random() < 0.1 else "") + text
    return ClientFile(text, dict(members), written.comments)


class _Json:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.end = random.choice(("\n", "\n", "\r\n"))
        self.indent = random.choice(("", "  ", "\t", "    "))
        self.comment_rate = random.choice((0, 0, 0.1, 0.5))
        self.spaces = random.random() < 0.3
        self.trailing = random.random() < 0.3
        self.escapes = random.random() < 0.2
        self.comments: list[str] = []

    def gap(self) -> str:
        """What may stand between two tokens."""
        random, text = self.random, ""
        if self.spaces:
            text += random.choice(("", " ", "  ", "\t", self.end))
        if random.random() < self.comment_rate:
            words = random.choice(("a", "", '"command": "x",', "}", "* *", "é", "/ /"))
            number = len(self.comments)
            line = random.random() < 0.5
            comment = f"//{number} {words}" if line else f"/*{number} {words}*/"
            self.comments.append(comment)
            text += comment + (self.end if line else random.choice(("", " ")))
        return text

    def string(self, value: str) -> str:
        if self.escapes:
            return '"' + "".join(self._escaped(one) for one in value) + '"'
        return json.dumps(value, ensure_ascii=self.random.random() < 0.3)

    def _escaped(self, one: str) -> str:
        if ord(one) < 0x10000 and self.random.random() < 0.3:
            return f"\\u{ord(one):04X}"
        return json.dumps(one, ensure_ascii=False)[1:-1]

    def value(self, value: Any, depth: int) -> str:
        if isinstance(value, dict):
            parts = [
                f"{self.string(k)}{self.gap()}:{self.gap() or ' '}{self.value(v, depth + 1)}" for k, v in value.items()
            ]
            return self._container("{", parts, "}", depth)
        if isinstance(value, list):
            return self._container("[", [self.value(one, depth + 1) for one in value], "]", depth)
        return self.string(value) if isinstance(value, str) else json.dumps(value)

    def _container(self, start: str, parts: list[str], end: str, depth: int) -> str:
        line = self.end + self.indent * (depth + 1) if self.indent and self.random.random() < 0.8 else ""
        after = self.end + self.indent * depth if line else ""
        text = start
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            comma = "," if not last or (self.trailing and self.random.random() < 0.7) else ""
            text += f"{line}{self.gap()}{part}{self.gap()}{comma}"
        return f"{text}{self.gap()}{after if parts else ''}{end}"


def toml_file(seed: int, size: int = 4) -> ClientFile:
    """A TOML file with servers below ``mcp_servers``."""
    random = Random(seed)
    written = _Toml(random)
    plain: dict[str, Any] = {}
    for name in random.sample(("model", "approval policy", "n"), random.randrange(3)):
        plain[name] = random.choice(("x", 1, True, ["a", "b"], 1.5))
        written.pair((name,), plain[name])
    tables = [("mcp_servers", name, value) for name, value in servers(random, toml=True, size=size).items()]
    tables += [
        ("projects", path, {"trust": "trusted"}) for path in random.sample(("/a", "/b c", "/d.e"), random.randrange(3))
    ]
    random.shuffle(tables)
    for first, name, value in tables:
        # TOML has no null, so members with one are left out
        plain.setdefault(first, {})[name] = {key: one for key, one in value.items() if _has_no_null(one)}
        written.table((first, name), value)
    return ClientFile("".join(written.parts), plain, written.comments)


class _Toml:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.end = random.choice(("\n", "\n", "\r\n"))
        self.comment_rate = random.choice((0, 0.1, 0.4))
        self.comments: list[str] = []
        self.parts: list[str] = []

    def comment(self) -> str:
        if self.random.random() >= self.comment_rate:
            return ""
        words = self.random.choice(("a", 'command = "x"', "[mcp_servers.y]", "é", '"""'))
        self.comments.append(f"#{len(self.comments)} {words}")
        return self.random.choice((" ", "", "\t")) + self.comments[-1]

    def line(self, text: str) -> None:
        comment = self.comment()
        blank = self.end if self.random.random() < 0.1 else ""
        self.parts.append(f"{text}{comment}{self.end}{blank}")

    def key(self, name: str) -> str:
        bare = name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()
        kinds = [
            "basic",
            *(["bare"] * 3 if bare else []),
            *(["literal"] if "'" not in name and name.isprintable() else []),
        ]
        match self.random.choice(kinds):
            case "bare":
                return name
            case "literal":
                return f"'{name}'"
            case _:
                return self.basic(name)

    def basic(self, value: str) -> str:
        return json.dumps(value, ensure_ascii=self.random.random() < 0.3 and value.isascii()).replace("\x7f", "\\u007f")

    def string(self, value: str) -> str:
        kinds = ["basic", "basic"]
        if value.isprintable() and "'" not in value:
            kinds += ["literal", "long literal"]
        if value.isprintable() and '"' not in value and "\\" not in value:
            kinds.append("long")
        match self.random.choice(kinds):
            case "literal":
                return f"'{value}'"
            case "long literal":
                return f"'''{value}'''"
            case "long":
                return f'"""{self.random.choice(("", self.end))}{value}"""'
            case _:
                return self.basic(value)

    def value(self, value: Any) -> str:
        gap = self.random.choice(("", " "))
        match value:
            case bool():
                return "true" if value else "false"
            case str():
                return self.string(value)
            case list():
                if value and self.random.random() < 0.3:
                    lines = [f"  {self.value(one)},{self.comment()}" for one in value]
                    return self.end.join(("[" + self.comment(), *lines, "]"))
                return f"[{gap}{', '.join(self.value(one) for one in value)}{gap}]"
            case dict():
                pairs = ", ".join(f"{self.key(name)}{gap}={gap}{self.value(one)}" for name, one in value.items())
                return f"{{{gap}{pairs}{gap}}}"
            case _:
                return repr(value)

    def pair(self, keys: tuple[str, ...], value: Any) -> None:
        gap = self.random.choice(("", " ", "  "))
        dot = self.random.choice((".", ".", " . "))
        self.line(f"{self.random.choice(('', '', '  '))}{dot.join(map(self.key, keys))}{gap}={gap}{self.value(value)}")

    def table(self, keys: tuple[str, ...], members: dict[str, Any]) -> None:
        """A table, whose inner tables are inline, dotted or tables with heads of their own."""
        gap = self.random.choice(("", "", " "))
        self.line(f"[{gap}{f'{gap}.{gap}'.join(map(self.key, keys))}{gap}]")
        later: list[tuple[str, dict[str, Any]]] = []
        for name, value in members.items():
            how = self.random.randrange(3) if isinstance(value, dict) and value and _has_no_null(value) else 0
            if how == 1:
                for inner, one in value.items():
                    self.pair((name, inner), one)
            elif how == 2:
                later.append((name, value))
            elif _has_no_null(value):
                self.pair((name,), value)
        for name, value in later:
            self.table((*keys, name), value)


def _has_no_null(value: Any) -> bool:
    match value:
        case None:
            return False
        case dict():
            return all(map(_has_no_null, value.values()))
        case list():
            return all(map(_has_no_null, value))
        case _:
            return True
