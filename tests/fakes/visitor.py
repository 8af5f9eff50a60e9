"""A browser without scripts at the reviewers' page, in process. It parses pages as HTML, finds fields by their labels,
and posts forms as browsers do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode, urljoin

import httpx2

from tests.fakes.reviewers_listener import URL, client

VOID: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


class Node:
    """An element, or a document."""

    def __init__(self, tag: str, attrs: dict[str, str], parent: Node | None) -> None:
        self.tag = tag
        self.attrs = attrs
        self.parent = parent
        self.children: list[Node | str] = []

    @property
    def text(self) -> str:
        """The text of the element on one line."""
        return " ".join(self.raw.split())

    @property
    def raw(self) -> str:
        return "".join(child if isinstance(child, str) else child.raw for child in self.children)

    def all(self, *tags: str, **attrs: str) -> list[Node]:
        """Elements with any of these tags and with these attributes. ``class_`` and ``aria_label`` are spelled as in
        Python."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attrs.items()}
        return [
            node
            for node in self._below()
            if (not tags or node.tag in tags) and all(_has(node, name, value) for name, value in wanted.items())
        ]

    def one(self, *tags: str, **attrs: str) -> Node:
        (found,) = self.all(*tags, **attrs)
        return found

    def around(self, tag: str) -> Node | None:
        node = self.parent
        while node is not None and node.tag != tag:
            node = node.parent
        return node

    def _below(self) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node):
                yield child
                yield from child._below()


def _has(node: Node, name: str, value: str) -> bool:
    found = node.attrs.get(name)
    return found is not None and (value in found.split() if name == "class" else value == found)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.top = self._at = Node("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, self._at)
        self._at.children.append(node)
        if tag not in VOID:
            self._at = node

    def handle_endtag(self, tag: str) -> None:
        node: Node | None = self._at
        while node is not None and node.tag != tag:
            node = node.parent
        if node is not None and node.parent is not None:
            self._at = node.parent

    def handle_data(self, data: str) -> None:
        self._at.children.append(data)


def read(html: str) -> Node:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.top


class Visitor:
    """One person. ``page`` is the current page; ``status`` and ``url`` belong to its response."""

    def __init__(self, app: Any) -> None:
        self._ask = client(app, follow_redirects=True)
        self.page = Node("", {}, None)
        self.status = 0
        self.url = ""

    async def open(self, path: str) -> Visitor:
        self._seen(await self._ask.get(path))
        return self

    async def sign_in(self, token: str) -> Visitor:
        await self.open("/reviews/sign-in")
        self.fill("Token", token)
        return await self.press("Sign in")

    async def follow(self, name: str) -> Visitor:
        """Follow a link by its text."""
        (href,) = {node.attrs["href"] for node in self.page.all("a") if name == node.text}
        return await self.open(urljoin(self.url, href).removeprefix(URL))

    async def get(self, path: str) -> httpx2.Response:
        """A response that a script of the page would get."""
        return await self._ask.get(path, headers={"sec-fetch-site": "same-origin"})

    async def post(self, path: str, content: str, media_type: str) -> httpx2.Response:
        """The same for what it posts."""
        head = {"origin": URL, "sec-fetch-site": "same-origin", "content-type": media_type}
        return await self._ask.post(path, content=content, headers=head)

    # --- the current page

    @property
    def title(self) -> str:
        return self.page.one("title").text

    @property
    def heading(self) -> str:
        return self.page.one("h1").text

    @property
    def standing(self) -> str:
        return self.page.one(id="standing").text

    @property
    def alert(self) -> str:
        """The alert of the page."""
        return " ".join(node.text for node in self.page.all(role="alert"))

    @property
    def changes(self) -> Node:
        return self.page.one(role="group", aria_label="Changes")

    @property
    def buttons(self) -> list[str]:
        """The names of the visible buttons, in order."""
        return [node.text for node in self._buttons() if "hidden" not in node.attrs]

    def _buttons(self) -> list[Node]:
        """The buttons on a wide screen: without those of the bar that only narrow ones have."""
        narrow = [button for bar in self.page.all(class_="quick") for button in bar.all("button")]
        return [button for button in self.page.all("button") if button not in narrow]

    def field(self, label: str, group: str = "") -> Node:
        """The field with this label, or with a label that begins with it (``Port required``)."""
        within = self.page if not group else next(n for n in self.page.all("fieldset") if _named(n, "legend", group))
        found = [node for node in within.all("label") if node.text == label or node.text.startswith(f"{label} ")]
        node = next((node for node in found if node.text == label), found[0] if found else None)
        assert node is not None, f"no field is labelled {label!r}"
        if "for" in node.attrs:
            return self.page.one(id=node.attrs["for"])
        return node.one("input")

    def value(self, label: str) -> str:
        return _value(self.field(label))

    # --- actions

    def fill(self, label: str, value: str) -> Visitor:
        field = self.field(label)
        if field.tag == "textarea":
            field.children = ["\n", value]
        else:
            assert "input" == field.tag
            field.attrs["value"] = value
        return self

    def set_hidden(self, name: str, value: str) -> Visitor:
        """Set a hidden field, as a script of the page would."""
        self.page.one("input", name=name, type="hidden").attrs["value"] = value
        return self

    def choose(self, label: str, option: str) -> Visitor:
        for node in (select := self.field(label)).all("option"):
            node.attrs.pop("selected", None)
        next(node for node in select.all("option") if node.text.startswith(option)).attrs["selected"] = ""
        return self

    def check(self, label: str, group: str = "", *, on: bool = True) -> Visitor:
        field = self.field(label, group)
        if field.attrs["type"] == "radio":
            for other in self.page.all("input", name=field.attrs["name"]):
                other.attrs.pop("checked", None)
        field.attrs.pop("checked", None)
        if on:
            field.attrs["checked"] = ""
        return self

    async def press(self, name: str) -> Visitor:
        (button,) = [node for node in self._buttons() if node.text == name]
        return await self._submit(button.around("form"), button)

    async def enter(self, label: str) -> Visitor:
        """Press Enter in a field, which presses the first button of its form."""
        form = self.field(label).around("form")
        assert form is not None
        return await self._submit(form, form.all("button", type="submit")[0])

    async def _submit(self, form: Node | None, button: Node) -> Visitor:
        assert form is not None
        pairs = [pair for node in form.all("input", "textarea", "select", "button") for pair in _sent(node, button)]
        path = urljoin(self.url, form.attrs["action"]).removeprefix(URL)
        if form.attrs.get("method", "get") == "get":
            return await self.open(f"{path}?{urlencode(pairs)}")
        head = {"origin": URL, "sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
        self._seen(await self._ask.post(path, content=urlencode(pairs), headers=head))
        return self

    def _seen(self, answer: httpx2.Response) -> None:
        self.status, self.url, self.page = answer.status_code, str(answer.url), read(answer.text)


def _named(node: Node, tag: str, name: str) -> bool:
    return any(each.text == name or each.text.startswith(f"{name} ") for each in node.all(tag))


def _value(node: Node) -> str:
    match node.tag:
        case "textarea":  # the first line break belongs to the markup
            return node.raw.removeprefix("\n")
        case "select":
            options = node.all("option")
            return next((each for each in options if "selected" in each.attrs), options[0]).attrs["value"]
        case _:
            return node.attrs.get("value", "")


def _sent(node: Node, pressed: Node) -> list[tuple[str, str]]:
    """The name and value that a browser submits, with the line ends of forms."""
    if not node.attrs.get("name") or "disabled" in node.attrs or (node.tag == "button" and node is not pressed):
        return []
    if node.attrs.get("type") in ("checkbox", "radio") and "checked" not in node.attrs:
        return []
    return [(node.attrs["name"], re.sub("\r\n|\r|\n", "\r\n", _value(node)))]
