"""The credentials of a server: when a token is renewed, by whom, and what an error tells."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from samplegate.config.oauth import OAuthSettings
from samplegate.errors import Unavailable
from samplegate.oauth import credentials
from samplegate.oauth.challenge import Challenge
from samplegate.oauth.credentials import OAuthCredentials, credentials_for
from samplegate.oauth.login_file import Login, LoginFile
from tests.fakes.guarded import Journal

pytestmark = pytest.mark.anyio

URL = "https://mcp.example.com/mcp"
NOW = 1000.0
LATER = NOW + 100_000
LOGIN = Login(
    url=URL,
    grant="authorization_code",
    issuer="https://login.example.com",
    client_id="gate",
    access_token="token-0",
    refresh_token="refresh-0",
    scope="read",
    obtained_at=NOW,
    expires_at=NOW + 3600,
)
CLIENT = OAuthSettings(
    grant="client_credentials", client_id="gate", client_secret="s", issuer="https://login.example.com"
)
ASKS = ['Bearer error="insufficient_scope", scope="write"']


class Renewal:
    """Counts renewals, and numbers the tokens."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fails: Exception | None = None
        self.begun = asyncio.Event()
        self.before = asyncio.Event()
        self.before.set()

    async def refresh(self, login: Login) -> Login:
        return await self._next(login, login.refresh_token)

    async def client_credentials(
        self, url: str, settings: OAuthSettings, challenge: Challenge, before: Login | None
    ) -> Login:
        first = msgspec.structs.replace(LOGIN, grant="client_credentials", key=settings.key, refresh_token=None)
        return await self._next(msgspec.structs.replace(first, scope=challenge.scope), challenge)

    async def _next(self, login: Login, what: object) -> Login:
        self.asked.append(what)
        self.begun.set()
        await self.before.wait()
        if self.fails is not None:
            raise self.fails
        number = len(self.asked)
        refresh = None if login.refresh_token is None else f"refresh-{number}"
        return msgspec.structs.replace(login, access_token=f"token-{number}", refresh_token=refresh, expires_at=LATER)


class Gate:
    """The credentials of one gate, with a clock."""

    def __init__(self, state: Path, settings: OAuthSettings | None = None, renewal: Renewal | None = None) -> None:
        self.now = NOW
        self.renewal = renewal or Renewal()
        self.log = Journal()
        self.credentials = OAuthCredentials(
            "docs",
            URL,
            settings,
            state=state,
            log=self.log,
            renews=self.renewal,
            clock=lambda: self.now,
            timer=lambda: self.now,
        )

    async def token(self) -> str | None:
        return (await self.credentials.headers()).get("Authorization")


def gate_with(state: Path, login: Login = LOGIN) -> Gate:
    LoginFile(state, "docs").write(login)
    return Gate(state)


def test_a_server_with_the_header_needs_no_other_credentials(tmp_path: Path) -> None:
    assert credentials_for("docs", URL, None, headers=["authorization"], state=tmp_path, log=Journal()) is None
    assert credentials_for("docs", URL, None, headers=["x-key"], state=tmp_path, log=Journal()) is not None


async def test_a_valid_login_is_used_without_a_renewal(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    assert "Bearer token-0" == await gate.token()
    assert [] == gate.renewal.asked


async def test_a_login_for_another_url_is_not_used(tmp_path: Path) -> None:
    gate = gate_with(tmp_path, msgspec.structs.replace(LOGIN, url="https://mcp.example.com/other"))
    assert await gate.token() is None
    with pytest.raises(Unavailable, match="its login is for another URL; run: samplegate login docs --url https://mcp"):
        await gate.credentials.renew(401, [], {})


async def test_without_a_login_the_error_has_the_command(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as failed:
        await Gate(tmp_path).credentials.renew(401, ['Bearer scope="a b"'], {})
    command = f"samplegate login docs --url {URL} --scope 'a b' --state {tmp_path}"
    assert f"it requires a login; run: {command}" == str(failed.value)


async def test_a_token_near_its_expiry_is_renewed_and_the_new_one_is_kept(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    gate.now = NOW + 3590
    assert "Bearer token-1" == await gate.token()
    assert ["refresh-0"] == gate.renewal.asked
    kept = LoginFile(tmp_path, "docs").read()
    assert kept is not None
    assert ("token-1", "refresh-1") == (kept.access_token, kept.refresh_token)
    assert [("oauth.token_renewed", {"server": "docs", "grant": "authorization_code"})] == gate.log.lines


async def test_if_a_renewal_fails_a_token_that_is_still_valid_is_used(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    gate.renewal.fails = Unavailable("down")
    gate.now = NOW + 3590
    assert "Bearer token-0" == await gate.token()
    gate.now = NOW + 3600
    with pytest.raises(Unavailable, match="down"):
        await gate.token()
    assert LOGIN == LoginFile(tmp_path, "docs").read()


async def test_a_failed_renewal_is_not_repeated_at_once(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    gate.renewal.fails = Unavailable("down")
    gate.now = NOW + 3600
    for later, attempts in ((0.0, 1), (4.9, 1), (5.1, 2)):
        gate.now = NOW + 3600 + later
        with pytest.raises(Unavailable, match="down"):
            await gate.token()
        assert attempts == len(gate.renewal.asked)
    LoginFile(tmp_path, "docs").write(msgspec.structs.replace(LOGIN, access_token="new", expires_at=NOW + 9999))
    assert "Bearer new" == await gate.token()


async def test_an_expired_login_without_a_refresh_token_names_the_command(tmp_path: Path) -> None:
    gate = gate_with(tmp_path, msgspec.structs.replace(LOGIN, refresh_token=None))
    gate.now = NOW + 3600
    with pytest.raises(Unavailable, match="its login has expired; run: samplegate login docs"):
        await gate.token()
    gate.now = NOW
    with pytest.raises(Unavailable, match="it rejected the token of its login, which has no refresh token; run:"):
        await gate.credentials.renew(401, [], await gate.credentials.headers())


async def test_a_401_is_repeated_after_one_renewal(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    sent = await gate.credentials.headers()
    assert await gate.credentials.renew(401, [], sent)
    assert "Bearer token-1" == await gate.token()
    assert await gate.credentials.renew(401, [], sent), "another request has renewed it"
    assert 1 == len(gate.renewal.asked)


async def test_many_requests_wait_for_one_renewal(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    gate.renewal.before.clear()
    sent = await gate.credentials.headers()
    requests = [asyncio.create_task(gate.credentials.renew(401, [], sent)) for _ in range(20)]
    await gate.renewal.begun.wait()
    gate.renewal.before.set()
    assert {True} == set(await asyncio.gather(*requests))
    assert ["refresh-0"] == gate.renewal.asked


async def test_a_cancelled_request_does_not_cancel_the_renewal(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    gate.renewal.before.clear()
    request = asyncio.create_task(gate.credentials.renew(401, [], await gate.credentials.headers()))
    await gate.renewal.begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    gate.renewal.before.set()
    await gate.credentials.settle()
    kept = LoginFile(tmp_path, "docs").read()
    assert kept is not None
    assert "refresh-1" == kept.refresh_token


async def test_gates_of_one_state_folder_use_a_refresh_token_once(tmp_path: Path) -> None:
    gate_with(tmp_path)
    renewal = Renewal()
    gates = [Gate(tmp_path, renewal=renewal) for _ in range(5)]
    for gate in gates:
        gate.now = NOW + 3600
    assert ["Bearer token-1"] * 5 == list(await asyncio.gather(*(gate.token() for gate in gates)))
    assert ["refresh-0"] == renewal.asked


async def test_a_missing_scope_of_a_login_is_named_with_the_command(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    with pytest.raises(Unavailable) as failed:
        await gate.credentials.renew(403, ASKS, await gate.credentials.headers())
    assert "this request needs the scope 'write', which its login does not have; run: " in str(failed.value)
    assert f"samplegate login docs --url {URL} --scope 'read write'" in str(failed.value)
    assert [] == gate.renewal.asked


async def test_another_403_is_the_servers_answer(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    assert not await gate.credentials.renew(403, ['Bearer error="invalid_token"'], await gate.credentials.headers())


async def test_client_credentials_get_a_token_after_the_first_401(tmp_path: Path) -> None:
    gate = Gate(tmp_path, CLIENT)
    assert await gate.token() is None
    assert await gate.credentials.renew(401, ['Bearer scope="read"'], {})
    assert "Bearer token-1" == await gate.token()
    assert [Challenge(status=401, scope="read")] == gate.renewal.asked
    assert "Bearer token-1" == await Gate(tmp_path, CLIENT).token(), "the next start uses the stored token"
    other = msgspec.structs.replace(CLIENT, scope="write")
    assert await Gate(tmp_path, other).token() is None, "another configuration does not"
    assert await Gate(tmp_path).token() is None, "and a user's login is another one"


async def test_client_credentials_request_more_scopes_once(tmp_path: Path) -> None:
    gate = Gate(tmp_path, CLIENT)
    await gate.credentials.renew(401, [], {})
    assert await gate.credentials.renew(403, ASKS, await gate.credentials.headers())
    assert "write" == gate.renewal.asked[-1].scope
    with pytest.raises(Unavailable, match="although the token has every scope"):
        await gate.credentials.renew(403, ASKS, await gate.credentials.headers())
    assert 2 == len(gate.renewal.asked)


async def test_an_unknown_error_is_not_quoted(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    gate.renewal.fails = RuntimeError("refresh-0")
    with pytest.raises(Unavailable, match="internal error in the gate; see the log"):
        await gate.credentials.renew(401, [], await gate.credentials.headers())
    assert [("oauth.renewal_failed", {"server": "docs", "fault": "RuntimeError"})] == gate.log.lines


async def test_a_refused_api_key_is_no_missing_login(tmp_path: Path) -> None:
    found = credentials_for("docs", URL, None, headers=["x-api-key"], state=tmp_path, log=Journal())
    assert found is not None
    assert not await found.renew(401, ["Bearer"], {})
    with pytest.raises(Unavailable, match="it requires a login"):
        await found.renew(401, [f'Bearer resource_metadata="{URL}/metadata"'], {})


async def test_without_a_home_folder_the_remedy_names_the_state_folder() -> None:
    with pytest.raises(Unavailable, match="logins need a state folder, but the home folder is unknown; set --state"):
        await Gate(Path()).credentials.renew(401, [], {})


async def test_a_url_with_a_query_is_not_repeated(tmp_path: Path) -> None:
    found = credentials_for("docs", f"{URL}?key=s3cret", None, headers=[], state=tmp_path, log=Journal())
    assert found is not None
    with pytest.raises(Unavailable, match="samplegate login docs --url URL") as failed:
        await found.renew(401, [], {})
    assert "s3cret" not in str(failed.value)


async def test_a_scope_cannot_change_the_command(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as failed:
        await Gate(tmp_path).credentials.renew(401, ['Bearer scope="$(id) \';x"'], {})
    assert "--scope '$(id) '\"'\"';x'" in str(failed.value)


async def test_tokens_that_are_refused_before_their_expiry_are_renewed_a_few_times_a_minute(tmp_path: Path) -> None:
    gate = gate_with(tmp_path)
    for _ in range(6):
        assert await gate.credentials.renew(401, [], await gate.credentials.headers())
    with pytest.raises(Unavailable, match="it has refused 6 tokens within 60 s, so no more are requested now; try"):
        await gate.credentials.renew(401, [], await gate.credentials.headers())
    assert 6 == len(gate.renewal.asked)
    gate.now += 60
    assert await gate.credentials.renew(401, [], await gate.credentials.headers())
    assert 7 == len(gate.renewal.asked)


async def test_changing_scopes_do_not_cost_a_token_for_each_request(tmp_path: Path) -> None:
    gate = Gate(tmp_path, CLIENT)
    await gate.credentials.renew(401, [], {})
    challenges = [[f'Bearer error="insufficient_scope", scope="scope-{number}"'] for number in range(7)]
    for asks in challenges[:6]:
        assert await gate.credentials.renew(403, asks, await gate.credentials.headers())
    sent = await gate.credentials.headers()
    with pytest.raises(Unavailable, match="it has refused 6 tokens"):
        await gate.credentials.renew(403, challenges[6], sent)
    assert 7 == len(gate.renewal.asked)


async def test_callers_of_serve_learn_neither_the_url_nor_a_folder(tmp_path: Path) -> None:
    found = credentials_for("docs", URL, None, headers=[], state=tmp_path, log=Journal(), in_file=True)
    assert found is not None
    with pytest.raises(Unavailable) as failed:
        await found.renew(401, ['Bearer scope="a b"'], {})
    assert "it requires a login; run: samplegate login docs --settings FILE --scope 'a b'" == str(failed.value)


async def test_a_lock_that_another_process_keeps_is_awaited_once_for_the_requests_of_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gate_with(tmp_path)
    sent = await gate.credentials.headers()
    lock = await LoginFile(tmp_path, "docs").lock(1.0)
    monkeypatch.setattr(credentials, "LOCK_TIME", 0.0)
    for _ in range(3):
        with pytest.raises(Unavailable, match="another process has held the lock"):
            await gate.credentials.renew(401, [], sent)
    assert ["oauth.renewal_failed"] == [event for event, _ in gate.log.lines]
    lock.release()
    gate.now += 6
    assert await gate.credentials.renew(401, [], sent)
