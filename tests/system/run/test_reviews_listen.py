"""`run --reviews-listen` and `samplegate reviews open`, as processes: a form that waits is decided at the page."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.fakes.run_process import BOUND, Running, call, opening, running
from tests.fakes.visitor import read
from tests.paths import PROGRAMS, ROOT

pytestmark = pytest.mark.timeout(180)
ASKING: Final = (sys.executable, "-S", str(PROGRAMS / "asking.py"), "legacy")
POLICY: Final = """
version: 1
reviewers: {ops: {timeout: 5m}}
rules:
  - {name: ask, match: {kind: elicitation}, effect: escalate, reviewer: ops}
"""
SCHEMA: Final = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
FORM: Final = {"method": "elicitation/create", "params": {"message": "Which port?", "requestedSchema": SCHEMA}}


class Gate:
    """A running gate with its log."""

    def __init__(self, running: Running, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self.said = ""

    def event(self, name: str) -> dict[str, Any]:
        """Read the log up to the next event of this name."""
        assert self.running.process.stderr is not None
        for line in self.running.process.stderr:
            self.said += line.decode()
            if line.startswith(b"{") and (found := json.loads(line))["event"] == name:
                return dict(found)
        pytest.fail(f"no {name} in:\n{self.said}")

    def ask(self, id: int = 1) -> str:
        """Call a tool that asks for a form. Returns the ID of its review."""
        self.running.write(call(id, ask=FORM))
        return str(self.event("review.opened")["review"])


@contextmanager
def gate(folder: Path, *options: str, at: str = "127.0.0.1:0", environment: Any = None) -> Iterator[Gate]:
    (folder / "policy.yaml").write_text(POLICY)
    with running(folder, "--reviews-listen", at, *options, command=ASKING, environment=environment) as found:
        found.write(*opening(elicitation={}))
        yield Gate(found, folder)


def opened(folder: Path, *words: str, command: str = "open") -> subprocess.CompletedProcess[str]:
    """`samplegate reviews open` of the same user."""
    environment = {"PYTHONPATH": str(ROOT / "proxy"), "PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "samplegate", "reviews", command, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


def link_of(folder: Path, *words: str) -> tuple[str, str, str]:
    """A sign-in link: the base URL, the place it leads to, and its code."""
    done = opened(folder, *words)
    assert (0, "") == (done.returncode, done.stderr)
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/reviews/sign-in\?next=(\S+)#token=(once1\.\S+)\n", done.stdout)
    assert found is not None, done.stdout
    return found[1], found[2], found[3]


def sign_in(ask: httpx2.Client, url: str, code: str) -> httpx2.Response:
    return ask.post(f"{url}/reviews/sign-in", data={"token": code}, headers={"origin": url})


@pytest.fixture
def browser() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=BOUND, trust_env=False) as found:
        yield found


def decide(ask: httpx2.Client, url: str, review: str, **fields: str) -> httpx2.Response:
    page = read(ask.get(f"{url}/reviews/{review}").text)
    hidden = {each.attrs["name"]: each.attrs["value"] for each in page.one(id="decision").all("input", type="hidden")}
    return ask.post(f"{url}/reviews/{review}/verdict", data={**hidden, **fields}, headers={"origin": url})


def test_a_form_that_waits_is_answered_at_the_page_by_the_same_user(tmp_path: Path, browser: httpx2.Client) -> None:
    with gate(tmp_path) as g:
        address = g.event("listener.opened")["url"]
        review = g.ask()
        assert f"{address}/{review}" in g.said
        url, place, code = link_of(tmp_path, review)
        assert (address, f"/reviews/{review}") == (f"{url}/reviews", place)
        signed_in = sign_in(browser, url, code)
        assert 303 == signed_in.status_code
        cookie = signed_in.headers["set-cookie"]
        assert f"samplegate-{url.rpartition(':')[2]}=" in cookie
        assert all(word in cookie for word in ("HttpOnly", "SameSite=strict"))
        assert 303 == decide(browser, url, review, do="accept", **{"f.0": "8080"}).status_code
        _, frame = g.running.read(), g.running.read()
        answer = frame["result"]["structuredContent"]["result"]
        assert ("accept", {"port": 8080}) == (answer["action"], answer["content"])
        code_of_exit, _, said = g.running.end()
        assert 0 == code_of_exit
        assert "once1." not in g.said + said


def test_a_link_is_for_one_use_and_for_its_own_page(tmp_path: Path, browser: httpx2.Client) -> None:
    with gate(tmp_path) as first, gate(tmp_path, "--server", "other") as second:
        urls = [each.event("listener.opened")["url"].removesuffix("/reviews") for each in (first, second)]
        assert 2 == len(set(urls))
        url, _, code = link_of(tmp_path)
        (other,) = set(urls) - {url}
        assert 403 == sign_in(browser, other, code).status_code
        assert 303 == sign_in(browser, url, code).status_code
        with httpx2.Client(timeout=BOUND, trust_env=False) as another:
            again = sign_in(another, url, code)
        assert 403 == again.status_code
        assert "used before, has expired" in again.text
        assert 401 == httpx2.get(f"{url}/v1/reviews", headers={"authorization": f"Bearer {code}"}).status_code
        # both processes show the reviews of the store that they share
        review = second.ask()
        assert review in browser.get(f"{url}/reviews").text


def test_the_page_has_the_checks_of_a_listener_for_browsers(tmp_path: Path, browser: httpx2.Client) -> None:
    with gate(tmp_path) as g:
        url = g.event("listener.opened")["url"].removesuffix("/reviews")
        assert 403 == browser.get(f"{url}/reviews", headers={"host": "evil.example"}).status_code
        _, _, code = link_of(tmp_path)
        for headers in ({"origin": "https://evil.example"}, {"origin": url, "sec-fetch-site": "cross-site"}, {}):
            found = browser.post(f"{url}/reviews/sign-in", data={"token": code}, headers=headers)
            assert 403 == found.status_code
        assert 303 == sign_in(browser, url, code).status_code
        review = g.ask()
        page = browser.get(f"{url}/reviews/{review}")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        forged = browser.post(f"{url}/reviews/{review}/verdict", data={"do": "decline"}, headers={"origin": url})
        assert 403 == forged.status_code


def test_what_is_kept_for_the_command_line_is_for_the_owner_alone_and_goes_with_the_process(
    tmp_path: Path, browser: httpx2.Client
) -> None:
    with gate(tmp_path) as g:
        g.event("listener.opened")
        folder = tmp_path / ".local/state/samplegate/reviews.db-pages"
        (file,) = folder.iterdir()
        assert [0o700, 0o600] == [stat.S_IMODE(each.stat().st_mode) for each in (folder, file)]
        secret = json.loads(file.read_bytes())["secret"]
        for process in [g.running.process.pid, *children(g.running.process.pid)]:
            for name in ("cmdline", "environ"):
                assert secret not in Path(f"/proc/{process}/{name}").read_text("utf-8", "replace")
        g.running.process.kill()
        g.running.process.wait(BOUND)
    done = opened(tmp_path)
    assert 2 == done.returncode
    assert "no page is open" in done.stderr
    assert [] == list(folder.iterdir())


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in found.split()]


def test_a_process_ends_at_once_although_its_page_is_open(tmp_path: Path, browser: httpx2.Client) -> None:
    with gate(tmp_path) as g:
        g.event("listener.opened")
        url, _, code = link_of(tmp_path)
        assert 303 == sign_in(browser, url, code).status_code
        with browser.stream("GET", f"{url}/reviews/events") as stream:
            assert 200 == stream.status_code
            g.running.process.send_signal(signal.SIGTERM)
            assert 143 == g.running.process.wait(BOUND)
            with pytest.raises(httpx2.HTTPError):
                list(stream.iter_raw())
        assert [] == list((tmp_path / ".local/state/samplegate/reviews.db-pages").iterdir())


def test_an_address_that_is_taken_is_a_warning_and_the_server_works(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with gate(tmp_path, at=address) as g:
            found = g.event("listener.unavailable")
            assert ("warning", "reviews") == (found["level"], found["listener"])
            assert "already in use" in found["problem"]
            g.running.write(call(1))
            assert [0, 1] == [g.running.read()["id"] for _ in range(2)]
    assert 2 == opened(tmp_path).returncode


def test_an_address_that_others_can_reach_needs_people(tmp_path: Path, browser: httpx2.Client) -> None:
    with gate(tmp_path, at="0.0.0.0:0") as g:
        code, frames, said = g.running.end()
    assert (2, [0]) == (code, list(frames))
    assert "--reviews-listen: other machines can reach 0.0.0.0:0, so users need tokens; add `people`" in said
    token = subprocess.run(
        [sys.executable, "-m", "samplegate", "token", "ann", "--role", "reviewer"],
        env={"PYTHONPATH": str(ROOT / "proxy"), "PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=True,
    )
    line = next(each for each in token.stderr.splitlines() if each.startswith("ann "))
    (tmp_path / "people").write_text(f"{line}\n")
    (tmp_path / "settings.yaml").write_text("people: {tokens_file: people}\n")
    with gate(tmp_path, "--settings", "settings.yaml", at="0.0.0.0:0") as g:
        url = g.event("listener.opened")["url"].removesuffix("/reviews")
        assert url.startswith("http://127.0.0.1:")
        assert 303 == sign_in(browser, url, token.stdout.strip()).status_code
        assert "ann" in browser.get(f"{url}/reviews").text


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("8080", "is not an address; write HOST:PORT"),
        ("192.0.2.1:0", "other machines can reach 192.0.2.1:0"),
        ("127.0.0.1:99999", "has an invalid port"),
    ],
)
def test_a_wrong_address_is_an_error_at_the_start(at: str, said: str, tmp_path: Path) -> None:
    with gate(tmp_path, at=at) as g:
        code, _, stderr = g.running.end()
    assert 2 == code
    assert said in stderr


def test_without_reviewers_there_is_no_page_and_a_warning(tmp_path: Path) -> None:
    with running(tmp_path, "--reviews-listen", "127.0.0.1:0", command=ASKING) as found:
        found.write(*opening())
        code, _, said = found.end()
    assert 0 == code
    assert "reviews_listen: has no effect, because the policy has no reviewers" in said
    assert "listener.opened" not in said


def test_the_page_imports_nothing_before_its_first_visitor(tmp_path: Path, browser: httpx2.Client) -> None:
    with gate(tmp_path) as g:
        url = g.event("listener.opened")["url"]
        g.running.write(call(1))
        assert [0, 1] == [g.running.read()["id"] for _ in range(2)]
        maps = Path(f"/proc/{g.running.process.pid}/maps")
        assert "nh3" not in maps.read_text()
        assert 303 == browser.get(url).status_code
        assert "nh3" in maps.read_text()


def test_the_browser_is_started_without_the_link_on_its_command_line(tmp_path: Path, browser: httpx2.Client) -> None:
    """A terminal and a browser: a pseudo-terminal, and a program that notes its arguments."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\n')
    program.chmod(0o755)
    with gate(tmp_path) as g:
        g.event("listener.opened")
        review = g.ask()
        said = on_terminal(tmp_path, review, environment={"BROWSER": f"{program} %s"})
        assert re.search(rf"opened http://127\.0\.0\.1:\d+/reviews/{review} in the browser", said)
        assert "once1." not in said
        (argument,) = (tmp_path / "arguments").read_text().split()
        assert "once1." not in argument
        file = Path(argument.removeprefix("file://"))
        assert 0o600 == stat.S_IMODE(file.stat().st_mode)
        link = re.search(r'url=(http[^"]+)"', file.read_text())
        assert link is not None
        base, _, code = link[1].partition("#token=")
        assert 303 == sign_in(browser, base.partition("/reviews")[0], code).status_code
        printed = on_terminal(tmp_path, "--print", environment={"BROWSER": f"{program} %s"})
        assert "#token=once1." in printed
        assert "the link signs in once, within 60 s" in printed


def on_terminal(folder: Path, *words: str, environment: dict[str, str]) -> str:
    """The output of `samplegate reviews open` on a terminal."""
    ours, theirs = os.openpty()
    given = {"PYTHONPATH": str(ROOT / "proxy"), "PATH": os.environ["PATH"], "HOME": str(folder), **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "samplegate", "reviews", "open", *words],
        env=given,
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert 0 == process.wait(BOUND), said.decode()
    return said.decode()


def test_approvals_that_one_user_cannot_give_are_warned_of(tmp_path: Path) -> None:
    reviewers = "{ops: {approvals: 2, not: caller}}"
    rules = "[{name: x, effect: escalate, reviewer: ops, ui: show}]"
    (tmp_path / "policy.yaml").write_text(f"version: 1\nreviewers: {reviewers}\nrules: {rules}\n")
    with running(tmp_path, command=ASKING) as found:
        found.write(*opening())
        code, _, said = found.end()
    assert 0 == code
    assert "reviewers: ops needs 2 approvals, but only this user can give one" in said
    assert "`not: caller` of ops excludes nobody" in said
    assert "'x' shows no server's UI, because reviewers have no page" in said
