"""The recipe chat-notifications at a real daemon: the JSON that Teams, Discord, ntfy and PagerDuty get about a review,
at a local receiver in their place."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import BOUND, Client, asking, client, serving
from tests.fakes.daemon_reviews import ACCEPTED, form, people, said, settings, timed
from tests.fakes.webhook_endpoint import Endpoint, Seen, endpoint
from tests.paths import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
RECIPE: Final = ROOT / "policies" / "recipes" / "chat-notifications.yaml"
PAGE: Final = "https://reviews.example.com"
SERVERS: Final = {"deploy": "teams", "crm": "discord", "home": "ntfy", "billing": "pagerduty"}
FILES: Final = {"ntfy-authorization": "Bearer tk_test", "pagerduty-routing-key": "R0UT1NG"}
MESSAGE: Final = "Is the code word heron?"
"""The server's text."""


def policy(folder: Path, hook: Endpoint) -> str:
    """The recipe, with files of this test, and with the receiver in place of the services."""
    at = f"http://127.0.0.1:{hook.port}"
    files = {**FILES, **{f"{name}-url": f"{at}/{name}" for name in ("teams", "discord")}}
    for name, content in files.items():
        (folder / name).write_text(content + "\n")
    services = {"https://ntfy.example.com/": f"{at}/ntfy", "https://events.pagerduty.com/v2/enqueue": f"{at}/pagerduty"}
    text = RECIPE.read_text("utf-8")
    for old, new in {**services, **{f"/run/secrets/{name}": name for name in files}}.items():
        assert 1 == text.count(old), old
        text = text.replace(old, new)
    return text


def opening(name: str, review: dict[str, Any]) -> dict[str, Any]:
    """The message to a service at the opening of a review."""
    title, link = f"Form from {review['server']}", f"{PAGE}/reviews/{review['id']}"
    called = json.dumps({"name": "do", "arguments": form(MESSAGE)})
    text = f"Message: {MESSAGE}\n\nFields: confirm (boolean, required)\n\nCall arguments: {called}"
    match name:
        case "teams":
            card = {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [
                    {"type": "TextBlock", "text": title, "weight": "bolder", "wrap": True},
                    {"type": "TextBlock", "text": text, "wrap": True},
                    {"type": "TextBlock", "text": f"Until {review['expires']}", "isSubtle": True},
                ],
                "actions": [{"type": "Action.OpenUrl", "title": "Open review", "url": link}],
            }
            attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
            return {"type": "message", "attachments": [attachment]}
        case "discord":
            return {"content": f"**{title}**\n{text}\n{link}", "allowed_mentions": {"parse": []}}
        case "ntfy":
            return {"topic": "reviews", "title": title, "message": text, "click": link, "priority": 4}
        case _:
            return {
                "routing_key": "R0UT1NG",
                "event_action": "trigger",
                "dedup_key": review["id"],
                "payload": {
                    "summary": title,
                    "source": review["server"],
                    "severity": "warning",
                    "custom_details": {"request": "The request is not shown here. Open the review to see it."},
                },
                "links": [{"href": link, "text": "Open review"}],
            }


def service_of(seen: Seen) -> str:
    found = re.match(r"POST /(\w+) HTTP/1.1\r\n", seen.head)
    assert found is not None, seen.head
    return found[1]


async def ask(c: Client) -> Any:
    """The server's answer to a call that needs a review."""
    return said(await timed(c.call("modern", 1, **form(MESSAGE))))


async def test_each_service_gets_its_message_and_pagerduty_the_end(tmp_path: Path) -> None:
    async with endpoint() as hook, AsyncExitStack() as stack:
        told = policy(tmp_path, hook)
        command, *args = asking("modern")
        servers = {name: {"command": command, "args": args} for name in SERVERS}
        more: dict[str, Any] = {"webhook_networks": ["127.0.0.1/32"], "reviews_url": PAGE, "servers": servers}
        gate = await stack.enter_async_context(serving(tmp_path, *settings(tmp_path, policy=told, **more), forked=True))
        await gate.said("reviews on")
        ana = await stack.enter_async_context(people(gate))
        calls = []
        for name in SERVERS:
            c = await stack.enter_async_context(client(gate, f"/servers/{name}/mcp"))
            calls.append(asyncio.ensure_future(ask(c)))
        reviews = {name: await ana.pending(server=name) for name in SERVERS}
        await hook.requests(len(SERVERS), BOUND)
        opened = {service_of(seen): seen for seen in hook.seen}
        for name, review in reviews.items():
            service = SERVERS[name]
            seen, key = opened[service], FILES["ntfy-authorization"] if service == "ntfy" else None
            assert (opening(service, review), key) == (json.loads(seen.body), seen.headers.get("authorization"))
        assert [SERVERS["billing"]] == [name for name, seen in opened.items() if b"heron" not in seen.body]
        for review in reviews.values():  # PagerDuty's last, so that other messages would come before its
            assert 200 == (await ana.say(review, verdict="answer", **ACCEPTED))[0]
        assert [ACCEPTED] * len(SERVERS) == await asyncio.gather(*calls)
        await hook.requests(len(SERVERS) + 1, BOUND)
        assert 0 == await gate.end()
        (ended,) = hook.seen[len(SERVERS) :]
        resolved = {"routing_key": "R0UT1NG", "event_action": "resolve", "dedup_key": reviews["billing"]["id"]}
        assert ("pagerduty", resolved) == (service_of(ended), json.loads(ended.body))
        assert not [line for line in gate.lines if "R0UT1NG" in line or "tk_test" in line or "heron" in line]
