"""Logins on the disk: mode, replacement, damage, locks."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import msgspec
import pytest

from samplegate.errors import Unavailable
from samplegate.oauth.login_file import MAX_FILE, Login, LoginFile, is_token, names

URL = "https://mcp.example.com/mcp"
LOGIN = Login(
    url=URL,
    grant="authorization_code",
    issuer="https://login.example.com",
    client_id="gate",
    access_token="access",
    refresh_token="refresh",
    obtained_at=1000.0,
    expires_at=4600.0,
)


def test_a_login_is_a_file_for_the_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        LoginFile(tmp_path / "state", "docs").write(LOGIN)
    finally:
        os.umask(before)
    path = tmp_path / "state" / "oauth" / "docs.json"
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)
    assert [path] == list(path.parent.iterdir())
    assert LOGIN == LoginFile(tmp_path / "state", "docs").read()
    assert ["docs"] == names(tmp_path / "state")


def test_a_login_that_another_process_replaced_is_read_again(tmp_path: Path) -> None:
    file = LoginFile(tmp_path, "docs")
    assert file.read() is None
    LoginFile(tmp_path, "docs").write(LOGIN)
    first = file.read()
    assert first is not None
    assert first is file.read()
    LoginFile(tmp_path, "docs").write(msgspec.structs.replace(LOGIN, access_token="second"))
    assert "second" == getattr(file.read(), "access_token", None)
    assert LoginFile(tmp_path, "docs").remove()
    assert file.read() is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is not a login; log in again, which replaces it, or delete it with samplegate logout"),
        (b"\xff\xfe", "is not a login"),
        (b"[" * 100_000, "is not a login"),
        (b"{}", "is not a login"),
        (msgspec.json.encode(msgspec.structs.replace(LOGIN, version=2)), "was written by another version"),
        (msgspec.json.encode(msgspec.structs.replace(LOGIN, access_token="a\nb")), "contains an invalid token"),
        (b" " * (MAX_FILE + 1), f"is larger than {MAX_FILE} bytes"),
    ],
)
def test_a_damaged_file_is_reported_without_its_content(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "oauth").mkdir()
    (tmp_path / "oauth" / "docs.json").write_bytes(text)
    with pytest.raises(Unavailable, match=why) as failed:
        LoginFile(tmp_path, "docs").read()
    assert "access" not in str(failed.value).replace(str(tmp_path), "")


def test_a_login_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    LoginFile(tmp_path, "docs").write(LOGIN)
    huge = msgspec.structs.replace(LOGIN, client={"client_name": "x" * MAX_FILE})
    with pytest.raises(Unavailable, match=f"the login is larger than {MAX_FILE} bytes"):
        LoginFile(tmp_path, "docs").write(huge)
    assert LOGIN == LoginFile(tmp_path, "docs").read()


@pytest.mark.parametrize("then", ["write", "remove"])
def test_the_draft_of_a_killed_process_goes_with_the_next_write_or_the_login(then: str, tmp_path: Path) -> None:
    file = LoginFile(tmp_path, "docs")
    file.write(LOGIN)
    draft = tmp_path / "oauth" / ".docs.json.draft"
    draft.write_text("access token")
    if then == "write":
        file.write(LOGIN)
    else:
        file.remove()
    assert not draft.exists()


def test_a_failed_write_leaves_the_old_login_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LoginFile(tmp_path, "docs").write(LOGIN)

    def full(fd: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("samplegate.oauth.login_file.sync_file", full)
    with pytest.raises(Unavailable, match="cannot be written: no space left on device"):
        LoginFile(tmp_path, "docs").write(msgspec.structs.replace(LOGIN, access_token="second"))
    assert LOGIN == LoginFile(tmp_path, "docs").read()
    assert ["docs.json"] == [path.name for path in (tmp_path / "oauth").iterdir()]


@pytest.mark.anyio
async def test_a_lock_is_exclusive_until_it_is_released(tmp_path: Path) -> None:
    first, second = LoginFile(tmp_path, "docs"), LoginFile(tmp_path, "docs")
    lock = await first.lock(1.0)
    with pytest.raises(Unavailable, match="another process has held the lock for 0 s; try again"):
        await second.lock(0.0)
    lock.release()
    lock.release()
    (await second.lock(0.0)).release()
    lock = await first.lock(0.0)
    (tmp_path / "oauth" / "docs.lock").unlink()
    (await second.lock(0.0)).release()
    lock.release()


def test_without_a_state_folder_or_a_valid_name_a_login_is_kept_in_memory(tmp_path: Path) -> None:
    for file in (LoginFile(Path(), "docs"), LoginFile(tmp_path, "../docs")):
        file.write(LOGIN)
        assert LOGIN == file.read()
        asyncio.run(file.lock(0.0)).release()
    assert [] == list(tmp_path.iterdir())


def test_a_login_shows_no_secret() -> None:
    assert f"Login(url='{URL}')" == repr(LOGIN)


def test_a_token_is_renewed_ahead_of_its_expiry() -> None:
    assert LOGIN.is_valid(4570.1)
    assert not LOGIN.is_valid(4570.1, margin=True)
    assert LOGIN.is_valid(4569.0, margin=True)
    assert not LOGIN.is_valid(4600.0)
    short = msgspec.structs.replace(LOGIN, expires_at=1010.0)
    assert short.is_valid(1008.9, margin=True)
    assert not short.is_valid(1009.1, margin=True)
    assert msgspec.structs.replace(LOGIN, expires_at=None).is_valid(1e12, margin=True)


def test_tokens_are_visible_ascii() -> None:
    assert is_token("abc-._~+/=")
    assert not any(is_token(text) for text in ("", "a b", "a\r\nX: y", "\u00fc", "a" * 16_385, None, 5))


@pytest.mark.anyio
async def test_a_folder_without_a_lock_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "oauth").write_text("no folder")
    with pytest.raises(Unavailable, match=r"docs.lock: cannot be locked: .*; make the folder writable, or set another"):
        await LoginFile(tmp_path, "docs").lock(0.0)
