"""A user's login to a server, and its end: what `samplegate login` and `samplegate logout` do. The SDK is imported
when there is something to do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from samplegate.config.oauth import OAuthSettings
from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.oauth.login_file import LOCK_TIME, Login, LoginFile


async def log_in(
    name: str,
    url: str,
    settings: OAuthSettings,
    *,
    headers: Mapping[str, str],
    state: Path,
    show: Callable[[str], None],
    port: int,
    waits: float,
) -> Login:
    """Log in and write the login's file, which is unchanged until then. ``show`` gets the URL where the user logs in;
    ``waits`` is the time in seconds for everything. Raises Unavailable."""
    from samplegate.oauth import flow
    from samplegate.oauth.endpoints import OAuthFault
    from samplegate.oauth.loopback import LoopbackReceiver

    file = LoginFile(state, name)
    try:
        challenge = await flow.challenge_of(url, headers)
        try:
            receiver = await LoopbackReceiver.open(port)
        except OSError as problem:
            why = (problem.strerror or str(problem)).lower()
            raise OAuthFault(
                f"127.0.0.1:{port} cannot be bound for the browser's redirect: {why}", remedy="use another port"
            ) from None
        try:
            login = await flow.log_in(url, settings, challenge, receiver, show=show, waits=waits)
        except TimeoutError:
            raise OAuthFault(
                f"the login timed out after {duration_text(waits)}{_ignored(receiver.ignored)}",
                remedy="run the command again",
            ) from None
        finally:
            await receiver.aclose()
    except OAuthFault as fault:
        usual = "check the network, and try again" if fault.transient else "report this to the server's operator"
        raise Unavailable(f"login {name}: {fault.reason}; {fault.remedy or usual}") from None
    lock = await file.lock(LOCK_TIME)
    try:
        file.write(login)
    finally:
        lock.release()
    return login


def _ignored(count: int) -> str:
    return f" (ignored {count} {'answer' if count == 1 else 'answers'} to another login)" if count else ""


async def log_out(name: str, state: Path) -> tuple[bool, str | None]:
    """Delete the login. Returns whether its tokens were revoked, and why not. Raises Unavailable, also if there is no
    login."""
    file = LoginFile(state, name)
    lock = await file.lock(LOCK_TIME)
    try:
        try:
            login = file.read()
        except Unavailable as problem:  # a damaged file is deleted, too
            file.remove()
            return False, str(problem)
        if login is None:
            raise Unavailable(f"logout: there is no login {name}; list them with: samplegate login --status")
        from samplegate.oauth import flow
        from samplegate.oauth.endpoints import OAuthFault

        try:
            why = None if await flow.revoke(login) else "the authorization server offers no revocation"
        except OAuthFault as fault:
            why = fault.reason
        file.remove()
        return why is None, why
    finally:
        lock.release()
