"""Pure. Checks of reviewers, of their webhooks, and of the rules that name them.

A webhook has one valid URL, and a key if its format is signed. Host names are resolved at each call, not here. Messages
do not show URLs, because these may be secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec

from samplegate.durations import duration_text
from samplegate.policy import message_template
from samplegate.policy.file import timeouts
from samplegate.policy.file.draft import Draft
from samplegate.policy.file.model_checks import VARIABLE_NAME
from samplegate.policy.file.timeouts import legacy_patience, modern_patience
from samplegate.policy.schema import AllowRule, EscalateRule, Match, ModelRule, Reviewer, Webhook, seconds
from samplegate.urls import has_user, is_open, origin_of, split
from samplegate.yamlfile.tree import INVISIBLE, Path, quoted
from samplegate.yamlfile.validate import did_you_mean


def check(draft: Draft) -> None:
    """Check every reviewer, and every rule that names one."""
    for name, reviewer in draft.policy.reviewers.items():
        if draft.sound("reviewers", name):
            _reviewer(draft, ("reviewers", name), reviewer)
    for index, rule in enumerate(draft.policy.rules):
        path: Path = ("rules", index)
        if isinstance(rule, AllowRule | EscalateRule) and draft.sound(*path, "effect"):
            _rule(draft, path, rule)
    _unused(draft)


def asks_no_model(match: Match) -> bool:
    """Whether a match is limited to elicitations, so that no model is called."""
    return match.kind == "elicitation" or (match.kind is None and match.mode is not None)


def _ui_origins(draft: Draft, path: Path, rule: EscalateRule) -> None:
    if not draft.has_value(*path) or not draft.sound(*path):
        return
    if rule.ui == "hide":
        draft.problem(path, "the rule shows no UI, so the key has no effect; add `ui: show`, or remove it", key=True)
    for index, text in enumerate(rule.ui_origins):
        origin, at = origin_of(text), (*path, index)
        if origin is None:
            draft.problem(at, f"{quoted(text)} is not an origin; write it as https://ui.example.com")
        elif text != origin:
            draft.problem(at, f"{quoted(text)} is not an origin; write it as {origin}")
        elif is_open(text):
            draft.problem(at, f"{quoted(text)} uses http, so others can change the UI; use https")
        elif text in rule.ui_origins[:index]:
            draft.problem(at, f"{quoted(text)} is named twice; remove one of them")


def _matches_no_form(match: Match) -> bool:
    """Whether a match is limited to sampling or URLs. Every such request can be shown to a reviewer; only a form that
    is not flat cannot (T16)."""
    return match.kind == "sampling" or match.mode in ("url", ["url"])


def _reviewer(draft: Draft, path: Path, reviewer: Reviewer) -> None:
    timeouts.check_span(draft, (*path, "timeout"), reviewer.timeout)
    if seconds(reviewer.late_verdict) > timeouts.MAX_DURATION:
        draft.problem(
            (*path, "late_verdict"),
            f"{quoted(reviewer.late_verdict)} is longer than a year; use at most 8784h, or 0s for never",
        )
    if reviewer.webhook is not None:
        check_webhook(draft, (*path, "webhook"), reviewer.webhook)
    if reviewer.command is not None:
        _command(draft, (*path, "command"), reviewer.command)
    for index, group in enumerate(reviewer.groups):
        if not group.strip():
            draft.problem((*path, "groups", index), "the group's name is empty; set one, or remove the entry")
    _also(draft, path, reviewer)
    if reviewer.approvals > 1 and not seconds(reviewer.late_verdict):
        draft.warn(
            (*path, "late_verdict"),
            f"with 0s, all {reviewer.approvals} approvals must be given while the request waits; raise it, so that the"
            " decision answers the next identical request",
        )


def _also(draft: Draft, path: Path, reviewer: Reviewer) -> None:
    """Check ``after`` and ``also``, which need each other."""
    for key, other in (("after", "also"), ("also", "after")):
        if getattr(reviewer, key) and not getattr(reviewer, other) and draft.sound(*path, other):
            draft.problem((*path, key), f"the key has no effect without `{other}`; add it or remove this key", key=True)
    for index, name in enumerate(reviewer.also):
        at: Path = (*path, "also", index)
        if name == path[-1]:
            draft.problem(at, "the reviewer names itself; name others, or remove the entry")
        elif name in reviewer.also[:index]:
            draft.problem(at, f"{quoted(name)} is named twice; remove one of them")
        else:
            _known(draft, at, name)
    if reviewer.after is None or not draft.sound(*path, "after"):
        return
    if not seconds(reviewer.after):
        draft.problem((*path, "after"), "0s is not a delay; list the people under this reviewer, or raise it")
    elif draft.sound(*path, "timeout") and seconds(reviewer.after) >= seconds(reviewer.timeout):
        draft.problem(
            (*path, "after"),
            f"{reviewer.after} is not shorter than the timeout {reviewer.timeout}, so the review ends before; lower it,"
            " or raise the timeout",
        )


def _command(draft: Draft, path: Path, command: list[str]) -> None:
    if not command:
        draft.problem(path, "the list is empty; add a program and its arguments, or remove the key")
    elif not command[0].strip():
        draft.problem((*path, 0), "the program name is empty; set one")


def _named(rule: ModelRule) -> Iterator[tuple[str, str]]:
    """The reviewers that a rule names, each with its key."""
    if isinstance(rule, EscalateRule):
        yield "reviewer", rule.reviewer
    if rule.review_answer is not None:
        yield "review_answer", rule.review_answer


def _rule(draft: Draft, path: Path, rule: ModelRule) -> None:
    for key, name in _named(rule):
        _known(draft, (*path, key), name)
    _show(draft, path, rule)
    if isinstance(rule, EscalateRule):
        _escalate(draft, path, rule)
    _too_late(draft, path, rule)


def _known(draft: Draft, path: Path, name: str) -> None:
    reviewers = draft.policy.reviewers
    if name in reviewers or not draft.sound(*path) or not draft.sound("reviewers"):
        return
    there = (
        f"; the policy's reviewers are {', '.join(map(quoted, list(reviewers)[:20]))}"
        if reviewers
        else "; add it under reviewers"
    )
    draft.problem(path, f"unknown reviewer {quoted(name)}{did_you_mean(name, reviewers) or there}")


def _show(draft: Draft, path: Path, rule: ModelRule) -> None:
    """Check ``show``, which has no effect without a webhook or command."""
    at: Path = (*path, "show")
    if not draft.has_value(*at) or not draft.sound("reviewers"):
        return
    if isinstance(rule, AllowRule) and rule.review_answer is None:
        if draft.sound(*path, "review_answer"):
            draft.problem(
                at, "the rule has no review_answer, so the key has no effect; add one or remove the key", key=True
            )
        return
    named = [draft.policy.reviewers.get(name) for _, name in _named(rule)]
    if all(reviewer is not None and reviewer.webhook is None and reviewer.command is None for reviewer in named):
        draft.warn(
            at,
            "no reviewer of this rule has a webhook or command, so the key has no effect; add one or remove the key",
            key=True,
        )


def _escalate(draft: Draft, path: Path, rule: EscalateRule) -> None:
    if rule.ui == "show" and _matches_no_form(rule.match):
        draft.warn((*path, "ui"), "the rule matches no form, so the key has no effect; remove it", key=True)
    _ui_origins(draft, (*path, "ui_origins"), rule)
    timeout: Path = (*path, "timeout")
    if rule.timeout is not None and draft.sound(*timeout):
        timeouts.check_span(draft, timeout, rule.timeout)
        reviewer = draft.policy.reviewers.get(rule.reviewer)
        after = None if reviewer is None or not draft.sound("reviewers", rule.reviewer) else reviewer.after
        if after is not None and seconds(after) >= seconds(rule.timeout):
            draft.problem(
                timeout,
                f"reviewer {quoted(rule.reviewer)} asks others after {after}, but the review ends before; raise the"
                " timeout, or lower `after`",
            )
    if asks_no_model(rule.match) and draft.sound(*path, "match"):
        for key in ("with", "review_answer"):
            if draft.has_value(*path, key):
                draft.problem(
                    (*path, key),
                    "the key is for sampling, but the rule matches only elicitations; remove one of the two",
                    key=True,
                )
    if draft.has_value(*path, "otherwise") and _matches_no_form(rule.match) and draft.sound(*path, "match"):
        draft.warn(
            (*path, "otherwise"),
            "reviewers can be shown every request except some forms, and the rule matches no forms, so the key has no"
            " effect; remove it",
            key=True,
        )
    modes = [rule.match.mode] if isinstance(rule.match.mode, str) else rule.match.mode or []
    if "url" in modes:
        draft.warn(  # R45
            (*path, "match", "mode"),
            "a URL is meant for the server's user, and a reviewer who accepts it acts in that user's place; forward"
            " URLs if the client can show them",
        )


def _too_late(draft: Draft, path: Path, rule: ModelRule) -> None:
    """Warn of a reviewer whose late verdicts are not used and who has more time than the peers wait (T10): the decision
    would be lost.

    With late verdicts this is fine, because the next identical request uses the verdict. ``check`` shows all times.
    """
    if not draft.sound("client") or not draft.sound("servers") or not draft.sound(*path, "match"):
        return
    for key, name in _named(rule):
        reviewer = draft.policy.reviewers.get(name)
        if reviewer is None or seconds(reviewer.late_verdict) or not draft.sound("reviewers", name):
            continue
        whole = (rule.timeout if isinstance(rule, EscalateRule) and key == "reviewer" else None) or reviewer.timeout
        who, most = _most(draft, rule.match)
        if seconds(whole) > most:
            what = (
                f"{quoted(name)} has {whole}, but {who} wait only {duration_text(most)}, and `late_verdict: 0s`"
                " discards later decisions"
            )
            draft.warn((*path, key), f"{what}; raise late_verdict or the peers' peer_timeout, or lower the timeout")


def _most(draft: Draft, match: Match) -> tuple[str, float]:
    """The peer that gives up first for requests of the match, and its maximum time in seconds."""
    if match.era == "modern":
        return "2026-07-28 clients", modern_patience(draft.policy)
    return "older clients and servers", legacy_patience(draft.policy, match)[1]


def _unused(draft: Draft) -> None:
    if not draft.sound("rules"):
        return
    used = {
        name for rule in draft.policy.rules if isinstance(rule, AllowRule | EscalateRule) for _, name in _named(rule)
    }
    used |= {also for name in used if (one := draft.policy.reviewers.get(name)) is not None for also in one.also}
    for name in draft.policy.reviewers:
        if name not in used and draft.sound("reviewers", name):
            draft.warn(
                ("reviewers", name),
                "no rule uses this reviewer; add it as the `reviewer` of an escalate rule or remove it",
                key=True,
            )


ADDRESSES: Final = ("url", "url_file", "url_env")
KEYS: Final = ("secret_file", "secret_env")
OLD_KEYS: Final = ("old_secret_file", "old_secret_env")
AUTHORIZATION: Final = ("authorization_file", "authorization_env")
BODIES: Final = ("body", "ended_body")
_PRIVATE: Final = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test")
"""Suffixes of host names that are never public."""
_SLACK: Final = ("slack.com", "slack-gov.com")
_SECRET_URLS: Final = (
    *_SLACK, "discord.com", "discordapp.com", "logic.azure.com", "api.powerplatform.com", "webhook.office.com"
)  # fmt: skip
"""Hosts whose webhooks have no credential but their URL."""


def check_webhook(draft: Draft, path: Path, webhook: Webhook) -> None:
    """Check that a webhook has one URL and the keys that its format needs."""
    _one_address(draft, path, webhook)
    for key in ("url_env", "secret_env", "old_secret_env", "authorization_env"):
        name = getattr(webhook, key)
        if name is not None and draft.sound(*path, key) and not VARIABLE_NAME.match(name):
            draft.problem(
                (*path, key),
                "this is not the name of an environment variable; write the variable's name, never the value itself",
            )
    for key in ("url_file", "secret_file", "old_secret_file", "authorization_file"):
        name = getattr(webhook, key)
        if name is not None and draft.sound(*path, key) and (not name.strip() or INVISIBLE.search(name)):
            draft.problem((*path, key), "this is not the name of a file; write the file's name, relative to this file")
    _signing(draft, path, webhook)
    _template(draft, path, webhook)
    if webhook.url is not None and draft.sound(*path, "url"):
        _url(draft, path, webhook, webhook.url)


def _given(webhook: Webhook, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if getattr(webhook, key) is not None]


def _one_address(draft: Draft, path: Path, webhook: Webhook) -> None:
    given = _given(webhook, ADDRESSES)
    if not given and all(draft.sound(*path, key) for key in ADDRESSES):
        draft.problem(path, f"the webhook has no URL; set one of {', '.join(ADDRESSES)}")
    for key in given[1:]:
        draft.problem((*path, key), f"{given[0]} is also set; keep one of the two", key=True)


def _signing(draft: Draft, path: Path, webhook: Webhook) -> None:
    """Check signing keys. ``standard`` is signed, so that receivers can verify the sender. A receiver in Slack relies
    on the secret URL."""
    if not draft.sound(*path, "format"):
        return
    if webhook.format == "json":
        for key in _given(webhook, OLD_KEYS):
            draft.problem((*path, key), "`format: json` is not signed; remove the key", key=True)
    if webhook.format == "slack":
        for key in _given(webhook, (*KEYS, *OLD_KEYS)):
            draft.problem(
                (*path, key),
                "`format: slack` does not support signing; remove the key, or use `format: standard`",
                key=True,
            )
    if webhook.format != "standard":
        return
    for first, second in (KEYS, OLD_KEYS):
        if getattr(webhook, first) is not None and getattr(webhook, second) is not None:
            draft.problem((*path, second), f"{first} is also set; keep one of the two", key=True)
    given, old = _given(webhook, KEYS), _given(webhook, OLD_KEYS)
    if not given and all(draft.sound(*path, key) for key in KEYS):
        what = (
            f"only the old key is set; set the new one as {KEYS[0]}"
            if old
            else f"the webhook has no signing key; add {KEYS[0]}: FILE or {KEYS[1]}: NAME"
        )
        draft.problem(path, f"{what}, so that the receiver can verify messages")
    for key in old:
        new = key.removeprefix("old_")
        if getattr(webhook, key) == getattr(webhook, new):
            draft.problem(
                (*path, key),
                f"same value as {new}; set this to the previous key, or remove it once the rotation is complete",
                key=True,
            )


def _template(draft: Draft, path: Path, webhook: Webhook) -> None:
    """Check the messages of ``json``, and that other formats have none."""
    if not draft.sound(*path, "format"):
        return
    if webhook.format != "json":
        for key in _given(webhook, (*BODIES, *AUTHORIZATION)):
            draft.problem((*path, key), f"only `format: json` has {key}; remove it, or set the format", key=True)
        return
    if webhook.body is None and draft.sound(*path, "body"):
        draft.problem(path, "`format: json` needs a message; add body: {...}")
    if len(_given(webhook, AUTHORIZATION)) > 1:
        draft.problem((*path, AUTHORIZATION[1]), f"{AUTHORIZATION[0]} is also set; keep one of the two", key=True)
    for key in _given(webhook, BODIES):
        _body(draft, (*path, key), getattr(webhook, key))
    named = any(message_template.names_field(getattr(webhook, key), "secret") for key in BODIES)
    if named and not _given(webhook, KEYS):
        draft.problem(path, f"the message names {{secret}}; add {KEYS[0]}: FILE or {KEYS[1]}: NAME")
    if not named:
        for key in _given(webhook, KEYS):
            draft.problem((*path, key), "the message does not name {secret}; name it, or remove the key", key=True)


def _body(draft: Draft, path: Path, body: object) -> None:
    if len(msgspec.json.encode(body)) > message_template.MAX_BODY:
        draft.problem(path, f"the message is larger than {message_template.MAX_BODY // 1024} KiB")
    found = list(message_template.faults(body))
    for at, why in found:
        draft.problem((*path, *at), why)
    if not found and (size := message_template.size(body)) > message_template.MAX_FILLED:
        draft.problem(
            path,
            f"the message can have {size:,} characters, more than {message_template.MAX_FILLED:,}; shorten it, or give"
            " its fields fewer characters, such as {summary:200}",
        )


def _url(draft: Draft, path: Path, webhook: Webhook, url: str) -> None:
    at: Path = (*path, "url")
    if (why := _bad_address(url)) is not None:
        draft.problem(at, why)
        return
    parts = urlsplit(url)
    is_slack = (parts.hostname or "").endswith(_SLACK)
    if webhook.format == "slack" or (parts.hostname or "").endswith(_SECRET_URLS):
        whose = "a Slack webhook URL" if webhook.format == "slack" or is_slack else "this URL"
        draft.warn(
            at,
            f"anyone who knows {whose} can post to it; put it in a file and set url_file",
            key=True,
        )
    elif parts.query:
        draft.warn(
            at,
            "the URL contains a query, which may be a secret; put the URL in a file and set url_file",
            key=True,
        )
    if is_slack and webhook.format != "slack" and draft.sound(*path, "format"):
        draft.warn(at, "Slack does not accept `format: standard`; use `format: slack`", key=True)


def _bad_address(url: str) -> str | None:
    """Why a URL cannot be called, None if it can."""
    parts = split(url)
    if parts is None:
        return "this is not a URL; use a URL such as https://reviews.example.com/hook"
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.port == 0
        or INVISIBLE.search(url)
        or " " in url
    ):
        return "this is not an http or https URL; use a URL such as https://reviews.example.com/hook"
    if has_user(parts):
        return "the URL contains a user name or password, which is not sent; remove it (messages are signed instead)"
    if parts.fragment:
        return "the URL contains a fragment, which is not sent; remove it"
    if parts.scheme == "http" and not is_inside(parts.hostname):
        return "http sends reviews unencrypted over public networks; use https"
    return None


def is_inside(host: str) -> bool:
    """Whether a host is certainly not in a public network: a private or local address, a name without a dot, or a
    reserved suffix."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").lower().endswith(_PRIVATE)
    return not address.is_global
