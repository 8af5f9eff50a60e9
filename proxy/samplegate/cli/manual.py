"""Pure. The documentation by topics: pages, their sections and files, as Markdown whose links name topics."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from samplegate.yamlfile.validate import did_you_mean

MAX_SUGGESTIONS: Final = 5
_FENCE: Final = re.compile(r"^(?:```|~~~)")
_HEADING: Final = re.compile(r"^(#+) (.+)$")
_ANCHOR: Final = re.compile(r'<a id="([\w-]+)"></a>')
_COMMENT: Final = re.compile(r"^<!--.*?-->\n*", re.DOTALL | re.MULTILINE)
_PICTURE: Final = re.compile(r'<picture>.*?alt="([^"]*)".*?</picture>', re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with everything below it, or an anchor with its paragraph. Lines are counted from 0."""

    page: str
    slug: str
    title: str
    level: int
    start: int
    end: int

    @property
    def topic(self) -> str:
        """The full name of the section."""
        return f"{self.page}/{self.slug}"


@dataclass(frozen=True)
class Found:
    """A topic's text, and the other topics that its name may mean."""

    text: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manual:
    """Pages and files by their paths in the repository. ``pages`` has the path of each page, by its name."""

    pages: Mapping[str, str]
    texts: Mapping[str, str]
    sections: Mapping[str, tuple[Section, ...]] = field(init=False)

    def __post_init__(self) -> None:
        found = {name: tuple(_sections(name, self.texts[path])) for name, path in self.pages.items()}
        object.__setattr__(self, "sections", found)

    def find(self, topic: str) -> Found | None:
        """The text of a page (``policies``), a section (``limits``, ``deploy/limits``), a command (``wrap``) or a file
        (``ci.yaml``). A path or a link of the repository is a topic, too. None for an unknown topic."""
        page, _, slug = topic.strip().rstrip("/").partition("#")
        named = {path: name for name, path in self.pages.items()}.get(page)
        if named is not None:
            topic = f"{named}/{slug}" if slug else named
        elif slug:
            topic = f"{page}/{slug}"
        topic = topic.strip().lower().rstrip("/")
        if topic in self.pages:
            return Found(self._rendered(topic, self.texts[self.pages[topic]]))
        if files := [(name, path) for name, path in self._files().items() if f"/{path}".endswith(f"/{topic}")]:
            return Found(self.texts[files[0][1]], tuple(name for name, _ in files[1:]))
        page, _, slug = topic.rpartition("/")
        slug = slug_of(slug)
        named_so = [each for each in self._all() if each.slug == slug]
        several = [each for each in named_so if page in ("", each.page)]
        if not several and page in self.pages:  # the section has moved to another page
            several = named_so
        if not several and not page:  # a command without the program's name
            several = [each for each in self._all() if each.slug == f"samplegate-{slug}"]
        if not several:
            return None
        text = "\n".join(self.texts[self.pages[several[0].page]].split("\n")[several[0].start : several[0].end])
        return Found(self._rendered(several[0].page, text), tuple(each.topic for each in several[1:]))

    def topics(self) -> Iterator[str]:
        """Lines that list the topics: each page with its title, below it its headings, and at the end the files."""
        for name in self.pages:
            for section in self.sections[name]:
                if section.level == 1:
                    yield f"{name:44}{section.title}"
                elif section.level:
                    yield f"  {self._short(section):42}{'  ' * (section.level - 2)}{section.title}"
        for name, path in self._files().items():
            yield f"{name:44}{path}"

    def suggestion(self, topic: str) -> str:
        """``; did you mean 'x'?`` or the topics that contain the word; otherwise how to list all of them."""
        slug = slug_of(topic[:60])
        names = [*self.pages, *self._files(), *dict.fromkeys(self._short(each) for each in self._all() if each.level)]
        if near := did_you_mean(slug, names):
            return near
        containing = [name for name in names if slug and slug in name]
        if containing:
            return f"; topics with that word: {', '.join(containing[:MAX_SUGGESTIONS])}"
        return "; list the topics with: samplegate docs --list"

    def _all(self) -> Iterator[Section]:
        for sections in self.sections.values():
            yield from sections

    def _files(self) -> dict[str, str]:
        """The files by name, and by folder and name where several have the name."""
        paths = [path for path in self.texts if path not in self.pages.values()]
        same = Counter(map(posixpath.basename, paths))
        return {"/".join(path.split("/")[-1 if same[posixpath.basename(path)] == 1 else -2 :]): path for path in paths}

    def _short(self, section: Section) -> str:
        """The shortest name of a section that means only this one."""
        first = next(each for each in self._all() if each.slug == section.slug)
        return section.slug if first == section and section.slug not in self.pages else section.topic

    def _rendered(self, page: str, text: str) -> str:
        """Markdown without HTML, in which links name topics. Examples stay as they are."""
        parts: list[str] = []
        for example, part in _fenced(text):
            parts.append(part if example else self._plain(page, part))
        return "\n".join(parts).strip("\n") + "\n"

    def _plain(self, page: str, text: str) -> str:
        text = _ANCHOR.sub("", _COMMENT.sub("", text))
        text = _PICTURE.sub(lambda found: f"[Image: {' '.join(found[1].split())}]", text)
        return re.sub(r"\n{3,}", "\n\n", _LINK.sub(lambda found: self._link(page, found), text))

    def _link(self, page: str, link: re.Match[str]) -> str:
        image, text, target = link.groups()
        if image:
            return f"[Image: {text}]"
        if _ADDRESS.match(target):
            return link[0]
        path, _, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(self.pages[page]), path)) if path else ""
        topic = self._topic_of(place or self.pages[page], anchor)
        if topic is not None:
            return f"[{text}]({topic})"
        return (
            f"`{place}`" if posixpath.basename(place) == posixpath.basename(text.strip("`/")) else f"{text} (`{place}`)"
        )

    def _topic_of(self, place: str, anchor: str) -> str | None:
        """The topic of a link's target; None for a file that is not bundled."""
        for name, path in self.pages.items():
            index = posixpath.basename(path) == "README.md" and place == posixpath.dirname(path)
            if place == path or index:
                section = next((each for each in self.sections[name] if each.slug == anchor), None)
                return name if section is None else self._short(section)
        return next((name for name, path in self._files().items() if path == place), None)


def slug_of(heading: str) -> str:
    """The name of a heading in links, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def names_topics(text: str) -> bool:
    """Whether a rendered text has a link that names a topic."""
    return any(not _ADDRESS.match(link[3]) for link in _LINK.finditer(text))


def _fenced(text: str) -> Iterator[tuple[bool, str]]:
    """Parts of a page: whether each is an example between fences, and its text."""
    lines: list[str] = []
    example = False
    for line in text.split("\n"):
        fence = _FENCE.match(line) is not None
        if fence and not example:
            if lines:
                yield False, "\n".join(lines)
            lines, example = [line], True
            continue
        lines.append(line)
        if fence:
            yield True, "\n".join(lines)
            lines, example = [], False
    if lines:
        yield example, "\n".join(lines)


def _sections(page: str, text: str) -> Iterator[Section]:
    lines = text.split("\n")
    starts: list[tuple[int, str, str, int]] = []
    anchors: list[tuple[int, str]] = []
    seen: dict[str, int] = {}
    example = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            example = not example
        elif not example:
            if heading := _HEADING.match(line):
                slug = slug_of(heading[2])
                seen[slug] = seen.get(slug, -1) + 1
                starts.append((number, f"{slug}-{seen[slug]}" if seen[slug] else slug, heading[2], len(heading[1])))
            anchors += [(number, name) for name in _ANCHOR.findall(line)]
    for at, (number, slug, title, level) in enumerate(starts):
        end = next((later for later, _, _, other in starts[at + 1 :] if other <= level), len(lines))
        yield Section(page=page, slug=slug, title=title, level=level, start=number, end=end)
    ends = sorted([number for number, *_ in starts] + [number for number, _ in anchors])
    for number, name in anchors:
        end = next((each for each in ends if each > number), len(lines))
        yield Section(page=page, slug=name, title=name, level=0, start=number, end=end)
