"""One-use sign-in links: codes are valid once, for a minute, at one page; files are for their owner."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.errors import Unavailable
from samplegate.reviews import sign_in_links
from samplegate.reviews.sign_in_links import (
    MAX_USED,
    VALID,
    OneUseCodes,
    OpenPage,
    PageFile,
    folder_of,
    link,
    make_code,
    open_pages,
    remove_openers,
    write_opener,
)
from tests.fakes.reviews import NOW

SECRET: Final = b"s" * 32


def counted() -> Callable[[int], bytes]:
    made = iter(range(1, 1_000_000))
    return lambda size: next(made).to_bytes(size, "big")


def code_at(now: float, secret: bytes = SECRET) -> str:
    return make_code(secret, now=now, random=os.urandom)


def test_a_code_is_valid_once() -> None:
    codes, code = OneUseCodes(SECRET), code_at(NOW)
    assert [True, False] == [codes.use(code, NOW) for _ in range(2)]


@pytest.mark.parametrize(
    ("after", "valid"), [(0, True), (VALID - 1, True), (VALID, False), (VALID + 1, False), (-2, False)]
)
def test_a_code_is_valid_for_a_minute_by_the_clock(after: int, valid: bool) -> None:
    """A clock that was set back makes none last longer."""
    assert valid == OneUseCodes(SECRET).use(code_at(NOW), NOW + after)


def test_a_code_of_another_page_is_not_valid() -> None:
    assert not OneUseCodes(SECRET).use(code_at(NOW, b"t" * 32), NOW)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "once1.",
        "once1.1.2.3",
        "once1." + "9" * 1_000_000,
        "sg_ops",
        "once1.\u0661\u0662.00000000000000000000000000000000." + "a" * 43,
    ],
)
def test_anything_else_is_not_valid(wrong: str) -> None:
    assert not OneUseCodes(SECRET).use(wrong, NOW)


@given(st.integers(0, 200), st.characters())
def test_a_changed_code_is_not_valid(place: int, character: str) -> None:
    code = make_code(SECRET, now=NOW, random=counted())
    place %= len(code)
    changed = code[:place] + character + code[place + 1 :]
    assert (changed == code) == OneUseCodes(SECRET).use(changed, NOW)


def test_no_code_is_valid_twice_after_ten_thousand_others_or_a_clock_that_is_set_back() -> None:
    codes = OneUseCodes(SECRET)
    made = [make_code(SECRET, now=NOW + n // 200, random=counted_from(n)) for n in range(MAX_USED + 10)]
    assert [True] * len(made) == [codes.use(code, NOW + n // 200) for n, code in enumerate(made)]
    assert not any(codes.use(code, NOW + n // 200) for n, code in enumerate(made))


def counted_from(n: int) -> Callable[[int], bytes]:
    return lambda size: n.to_bytes(size, "big")


def test_a_link_has_its_code_in_the_fragment_only() -> None:
    page = OpenPage("http://127.0.0.1:8099", SECRET, NOW)
    found = link(page, "/reviews/rv_1", "once1.x")
    assert "http://127.0.0.1:8099/reviews/sign-in?next=/reviews/rv_1#token=once1.x" == found
    assert "sss" not in repr(page)


def test_a_page_is_found_while_its_process_runs_and_the_newest_is_first(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "reviews.db")
    assert [] == open_pages(folder)
    random = counted()
    files = [PageFile.create(folder, f"http://127.0.0.1:{n}", now=NOW + n, random=random) for n in range(1, 4)]
    assert [f"http://127.0.0.1:{n}" for n in (3, 2, 1)] == [page.url for page in open_pages(folder)]
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert 0o700 == stat.S_IMODE(folder.stat().st_mode)
    files[2].close()
    files[2].close()
    assert ["http://127.0.0.1:2", "http://127.0.0.1:1"] == [page.url for page in open_pages(folder)]
    for file in files:
        file.close()
    assert [] == list(folder.iterdir())


def test_the_file_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    dead = tmp_path / f"{'a' * 32}.json"
    dead.write_bytes(msgspec.json.encode(OpenPage("http://127.0.0.1:1", SECRET, NOW)))
    assert [] == open_pages(tmp_path)
    assert not dead.exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"url":"javascript:x","secret":"","opened":1}', b"x" * 10_000, b'{"url":1}']
)
def test_a_file_that_is_not_ours_is_no_page(content: bytes, tmp_path: Path) -> None:
    from samplegate.files import try_lock

    path = tmp_path / f"{'b' * 32}.json"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDWR)
    try:
        assert try_lock(fd)
        assert [] == open_pages(tmp_path)
    finally:
        os.close(fd)


def test_other_names_and_links_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / f"{'c' * 32}.json").symlink_to(tmp_path / "notes.json")
    assert [] == open_pages(tmp_path)
    assert {"notes.json", f"{'c' * 32}.json"} == {path.name for path in tmp_path.iterdir()}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"reviews: .*file/x: "):
        PageFile.create(tmp_path / "file/x", "http://127.0.0.1:1", now=NOW, random=os.urandom)


def test_the_page_for_a_browser_is_for_the_owner_and_goes_when_its_link_has_expired(tmp_path: Path) -> None:
    file = write_opener(
        tmp_path, 'http://127.0.0.1:1/reviews/sign-in?next=/reviews&x="#token=y', now=NOW, random=counted()
    )
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert "next=/reviews&amp;x=" in file.read_text()
    made = file.stat().st_mtime
    remove_openers(tmp_path, made + VALID)
    assert file.exists()
    remove_openers(tmp_path, made + VALID + 1)
    assert not file.exists()


def test_the_prefix_is_that_of_the_page_s_script() -> None:
    script = Path(sign_in_links.__file__).parent / "web/static/sign_in.js"
    assert f'"{sign_in_links.CODE_PREFIX}"' in script.read_text("utf-8")
