"""Who may look at reviews and decide them: `people:` of the settings. Only values and what is wrong with them: the daemon finds a person by them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from samplegate.core.policyfile.tree import quoted
from samplegate.settings.callers import MAX_TOKENS, MAX_TOKENS_FILE, Token
from samplegate.settings.trees import Part

Role: TypeAlias = Literal["viewer", "reviewer", "admin"]

NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}\Z")
"""A person's name, as it stands in histories and decision logs."""

_name_words: Final = "is no name of a person; use at most 64 letters, digits and . _ @ -"
_digest: Final = re.compile(r"[0-9a-f]{64}\Z")
_digest_words: Final = "is no SHA-256 of a token; write the 64 digits 0-9 a-f that `samplegate token` prints"
_all_words: Final = "stands beside the role admin, which is for all reviewers; leave it out, or write another role"
_none_words: Final = "names nobody; write names of the policy's reviewers, or leave it out for all"


class PersonEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One person's token as it is written. What the keys mean is in ``descriptions``."""

    name: str
    role: Role
    sha256: str
    reviewers: list[str] | None = None


class PeopleEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section as it is written."""

    tokens: list[PersonEntry] = []
    tokens_file: str | None = None


@dataclass(frozen=True, slots=True)
class PersonToken:
    """A person's token, by its hash. ``reviewers``: those of the policy in whose name they act; None: all."""

    name: str
    role: Role
    sha256: bytes = field(repr=False)
    reviewers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PeopleSettings:
    """Who may sign in. ``given``: whether the settings say anything of people; ``files`` are those that were read."""

    given: bool = False
    tokens: tuple[PersonToken, ...] = ()
    files: tuple[Path, ...] = ()


def people_of(part: Part) -> PeopleSettings:
    """The section, with every problem told."""
    entry: PeopleEntry | None = part.value(PeopleEntry)
    if entry is None:
        return PeopleSettings(given=True)
    if not entry.tokens and entry.tokens_file is None:
        part.problem((), "names nobody; give tokens or tokens_file")
    tokens = [_token(part, index, token) for index, token in enumerate(entry.tokens)]
    file = _path(part, entry.tokens_file)
    found = [token for token in tokens if token is not None] + ([] if file is None else _tokens_in(file, part.problems))
    _check(part, found)
    return PeopleSettings(True, tuple(found), () if file is None else (file,))


def shared_with(people: PeopleSettings, callers: tuple[Token, ...]) -> list[str]:
    """What is wrong where a caller and a person have one token: whoever calls could approve what their own calls set off."""
    names = {token.sha256: token.name for token in callers}
    both = [(names[token.sha256], token.name) for token in people.tokens if token.sha256 in names]
    return [
        f"people: {person} has the token of the caller {caller}, who could approve what is asked of themselves; make another"
        for caller, person in both
    ]


def _path(part: Part, text: str | None) -> Path | None:
    try:
        return None if text is None else part.path_of(text)
    except RuntimeError:
        part.problem(("tokens_file",), "begins with ~ though no such home folder is known; write the folder out")
        return None


def _token(part: Part, index: int, token: PersonEntry) -> PersonToken | None:
    digest = token.sha256.lower()
    reviewers = None if token.reviewers is None else tuple(token.reviewers)
    if NAME.match(token.name) is None:
        part.problem(("tokens", index, "name"), _name_words)
    why = _bad_reviewers(token.role, reviewers)
    if why is not None:
        part.problem(("tokens", index, "reviewers"), why)
    if _digest.match(digest) is None:
        part.problem(("tokens", index, "sha256"), _digest_words)
        return None
    return PersonToken(token.name, token.role, bytes.fromhex(digest), reviewers)


def _bad_reviewers(role: Role, reviewers: tuple[str, ...] | None) -> str | None:
    if reviewers is None:
        return None
    if role == "admin":
        return _all_words
    return None if reviewers and all(reviewers) else _none_words


def _tokens_in(file: Path, problems: list[str]) -> list[PersonToken]:
    """The lines ``name role sha256 [reviewer,reviewer]`` of a file; empty ones and those that begin with # say nothing."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_TOKENS_FILE + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}")
        return []
    if len(data) > MAX_TOKENS_FILE:
        problems.append(f"{file}: is larger than {MAX_TOKENS_FILE} bytes; keep only tokens in it")
        return []
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token = _line(words)
        if isinstance(token, PersonToken):
            found.append(token)
        else:
            problems.append(f"{file}:{number}: {token}")
    return found


def _line(words: list[str]) -> PersonToken | str:
    """The token of a line, or what is wrong with it; what stands there may be a token, so it is not shown."""
    if len(words) not in (3, 4):
        return "is no name, role and SHA-256; write these with blanks between them, and perhaps reviewers, separated by commas"
    name, role, digest = words[0], words[1], words[2].lower()
    reviewers = tuple(words[3].split(",")) if len(words) == 4 else None
    if NAME.match(name) is None:
        return _name_words
    known = [word for word in get_args(Role) if word == role]
    if not known:
        return f"has no role behind the name; write one of {', '.join(get_args(Role))}"
    if _digest.match(digest) is None:
        return _digest_words
    return _bad_reviewers(known[0], reviewers) or PersonToken(name, known[0], bytes.fromhex(digest), reviewers)


def _check(part: Part, tokens: list[PersonToken]) -> None:
    """One token is one person's, and one name is one person, however many tokens they have."""
    if len(tokens) > MAX_TOKENS:
        part.problem((), f"has more than {MAX_TOKENS} tokens; leave those out that nobody uses")
    owners: dict[bytes, str] = {}
    rights: dict[str, tuple[Role, tuple[str, ...] | None]] = {}
    for token in tokens:
        if owners.setdefault(token.sha256, token.name) != token.name:
            part.problem((), f"{owners[token.sha256]} and {token.name} have the same token; give each one of their own")
        if rights.setdefault(token.name, (token.role, token.reviewers)) != (token.role, token.reviewers):
            part.problem((), f"{quoted(token.name)} has tokens with different rights; give all of them one role and the same reviewers")
