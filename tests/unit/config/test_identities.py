"""Token files: problems are reported in the same way for callers and people, with the line and without its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.config import SettingsError
from samplegate.config.serve import load_serve

A = "ab" * 32
LIMIT = 2 * 1024 * 1024
HASH = "is not a SHA-256 hash; write the 64 digits 0-9 a-f that `samplegate token` prints"
LARGE = f"t: is larger than {LIMIT} bytes; keep only tokens in it"
NOT_UTF8 = "t: cannot be read: it is not UTF-8 text"


def answers(section: str, folder: Path, data: bytes | None) -> list[str]:
    """The names of the tokens in the file, or the problems with it."""
    if data is not None:
        (folder / "t").write_bytes(data)
    (folder / "s.yaml").write_text(f"policy: p\nservers: {{docs: {{command: x}}}}\n{section}: {{tokens_file: t}}\n")
    try:
        settings = load_serve({"HOME": "/srv/u"}, file=folder / "s.yaml").settings
    except SettingsError as refused:
        return [problem.replace(f"{folder}/", "") for problem in refused.problems]
    return [token.name for token in (settings.callers.tokens if section == "callers" else settings.people.tokens)]


@pytest.mark.parametrize(("section", "role"), [("callers", ""), ("people", "viewer ")])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ["t: cannot be read: no such file or directory; correct the path"]),
        ("", []),
        ("\n  \n# a b c d e f\n#\n", []),
        (f"ann ROLE{A}\nben ROLE{'0' * 64}", ["ann", "ben"]),
        (f"ann ROLE{A.upper()}\r\n\tben   ROLE\t{'0' * 64}  \r", ["ann", "ben"]),
        (f"ann ROLE{A}\x0bben ROLE{'0' * 64}\u2028cleo ROLE{'1' * 64}", ["ann", "ben", "cleo"]),
        (f"ann ROLE{A} # mine", ["t:1: COUNT"]),
        (f"\ufeffann ROLE{A}", ["t:1: NAME"]),
        (f"ann:x ROLE{A}", ["t:1: NAME"]),
        (f"änn ROLE{A}", ["t:1: NAME"]),
        (f"ann ROLE{A[1:]}\n\nann ROLE{A}0\nann ROLEs3cret", [f"t:1: {HASH}", f"t:3: {HASH}", f"t:4: {HASH}"]),
        ("#" * LIMIT, []),
        ("#" * (LIMIT + 1), [LARGE]),
        (f"ann ROLE{A}\n" + "#" * LIMIT, [LARGE]),
    ],
)
def test_a_file_of_tokens_is_read_alike(
    section: str, role: str, text: str | None, expected: list[str], tmp_path: Path
) -> None:
    count, name = {
        "callers": (
            "expected a name and a SHA-256 hash, separated by a space. Groups may follow, separated by commas",
            "is not a valid caller name; use at most 64 letters, digits and . _ @ -, and not local",
        ),
        "people": (
            (
                "expected a name, a role and a SHA-256 hash, separated by spaces. Reviewers (or *) and groups may"
                " follow, each separated by commas"
            ),
            "is not a valid user name; use at most 64 letters, digits and . _ @ -",
        ),
    }[section]
    data = None if text is None else text.replace("ROLE", role).encode()
    assert [each.replace("COUNT", count).replace("NAME", name) for each in expected] == answers(section, tmp_path, data)


@pytest.mark.parametrize("section", ["callers", "people"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xfe", NOT_UTF8),
        (b"#" + "é".encode() * (LIMIT // 2), LARGE),
        ("é".encode() * (LIMIT // 2 + 1), LARGE),
        (b"#" * LIMIT + b"\xff\xff", LARGE),
    ],
)
def test_bytes_that_are_no_tokens_are_told(section: str, data: bytes, expected: str, tmp_path: Path) -> None:
    assert [expected] == answers(section, tmp_path, data)
