"""Preflight checks of what a policy names outside of itself: keys, models that litellm knows, files and variables of
webhooks, their addresses, and commands.

A gate starts without them, so the findings are warnings. Nothing is started, opened for writing or resolved, and no
message contains a secret. Paths and keys are read by the code that reads them in a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from samplegate.files import missing_hint
from samplegate.policy.catalogue import SCRIPTED
from samplegate.policy.conditions import short_value
from samplegate.policy.file.load import LoadedPolicy, Problem
from samplegate.policy.file.reviewer_checks import is_inside
from samplegate.policy.schema import EscalateRule, Model, Policy, Webhook
from samplegate.sampler import keys, litellm_prices
from samplegate.transport.subprocess import unresolved
from samplegate.urls import split
from samplegate.yamlfile.tree import Mark, compose, dotted, find
from samplegate.yamlfile.tree import Path as Place

Finding: TypeAlias = tuple[Place, str]

NETWORKS: Final = "add `webhook_networks: [{network}]` to the settings of the gate, or use a public address"


def preflight(
    loaded: LoadedPolicy, text: str, *, file: Path, environment: Mapping[str, str], networks: Sequence[str] = ()
) -> tuple[Problem, ...]:
    """Warnings about the surroundings of a policy, in file order. ``networks`` is the setting ``webhook_networks``."""
    policy, folder = loaded.policy, file.parent
    found: list[Finding] = []
    for index, model in enumerate(policy.models):
        if model.model != SCRIPTED:
            found += _model(("models", index), model, folder, environment)
    for name, reviewer in policy.reviewers.items():
        place: Place = ("reviewers", name)
        if reviewer.command is not None:
            found += _command((*place, "command", 0), reviewer.command, folder, environment)
        if reviewer.webhook is not None:
            found += _webhook((*place, "webhook"), reviewer.webhook, folder, environment, networks)
    root = compose(text)[0] if found else None
    problems = []
    for place, what in found:
        nearest = place
        while (node := None if root is None else find(root, nearest)) is None and nearest:
            nearest = nearest[:-1]
        mark = Mark(1, 1) if node is None else node.mark
        problems.append(Problem(str(file), mark.line, mark.column, dotted(place), what))
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))


def webhook_warnings(
    policy: Policy, folder: Path, environment: Mapping[str, str], networks: Sequence[str] = ()
) -> list[str]:
    """Warnings about webhooks to which no review can be sent, for the log of a gate that starts."""
    return [
        f"{dotted(place)}: {what}"
        for name, reviewer in policy.reviewers.items()
        if reviewer.webhook is not None
        for place, what in _webhook(("reviewers", name, "webhook"), reviewer.webhook, folder, environment, networks)
    ]


def ui_warnings(policy: Policy, page: str | None) -> list[str]:
    """Warnings about rules that show a server's own UI although reviewers have no page, or from the page's own host.

    ``page``: where it is.
    """
    shows = [rule for rule in policy.rules if isinstance(rule, EscalateRule) and rule.ui == "show"]
    if page is None:
        return [
            f"rules: {short_value(rule.name)} shows no server's UI, because reviewers have no page; set reviews_listen"
            " or reviews_url"
            for rule in shows
        ]
    own = urlsplit(page if "://" in page else f"//{page}").hostname
    return [
        f"rules: {short_value(rule.name)} shows no server's UI from {origin}, because the review page has the same"
        " host; serve the UI from another host"
        for rule in shows
        for origin in rule.ui_origins
        if urlsplit(origin).hostname == own
    ]


def _model(place: Place, model: Model, folder: Path, environment: Mapping[str, str]) -> Iterator[Finding]:
    why = litellm_prices.unknown_name(model, litellm_prices.known_names())
    if why is not None:
        yield (*place, "model"), why
    why = keys.problem(model, folder=folder, environment=environment)
    if why is not None:
        key = next((name for name in ("api_key_env", "api_key_file") if getattr(model, name) is not None), None)
        yield (place if key is None else (*place, key)), why


def _command(place: Place, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Finding]:
    from samplegate.reviews.notify.command import environment_of

    why = unresolved(command, env=environment_of(environment), cwd=folder)
    if why is None:
        return
    hint = why.remedy
    if why.fault == "does not exist":
        hint = missing_hint(why.value, folder, "paths in a policy are")
    yield place, f"{why.value!r} {why.fault}; {hint}"


def _webhook(
    place: Place, webhook: Webhook, folder: Path, environment: Mapping[str, str], networks: Sequence[str]
) -> Iterator[Finding]:
    from samplegate.reviews.notify.endpoint import SecretSources, WebhookNotReady, keys_of, url_of

    sources = SecretSources(folder, environment)
    url = url_of(webhook, sources)
    if isinstance(url, WebhookNotReady):
        yield _in_webhook(place, url.what), _unread(url.what, webhook.url_file, folder)
    else:
        source = next((key for key in ("url_file", "url_env") if getattr(webhook, key) is not None), "url")
        why = _address(url, networks, shown=source == "url")
        if why is not None:
            yield (*place, source), why
    if webhook.format == "standard":
        signing = keys_of(webhook, sources)
        if isinstance(signing, WebhookNotReady):
            file = webhook.old_secret_file if signing.what.startswith("old_") else webhook.secret_file
            yield _in_webhook(place, signing.what), _unread(signing.what, file, folder)
    if webhook.format == "json":
        for name in ("secret", "authorization"):
            file, variable = getattr(webhook, f"{name}_file"), getattr(webhook, f"{name}_env")
            read = sources.read(name, file, variable)
            if isinstance(read, WebhookNotReady):
                yield _in_webhook(place, read.what), _unread(read.what, file, folder)


def _in_webhook(place: Place, what: str) -> Place:
    """The place of a key of the webhook that a message begins with; the webhook's otherwise."""
    key = what.partition(" ")[0]
    known = {f"{name}_{kind}" for name in ("url", "secret", "old_secret", "authorization") for kind in ("file", "env")}
    return (*place, key) if key in known else place


def _unread(what: str, file: str | None, folder: Path) -> str:
    """A message about a file or variable, with a remedy."""
    if file is not None and not (folder / file).exists():
        return f"{what}; {missing_hint(file, folder, 'paths in a policy are')}"
    return f"{what}; reviews are not sent to this webhook until it is corrected"


def _address(url: str, networks: Sequence[str], *, shown: bool) -> str | None:
    """Why no connection to a webhook's host is permitted, as far as its URL tells without a DNS lookup. None if it may
    be. ``shown``: the URL is no secret, so its host may be named."""
    import ipaddress

    from samplegate.reviews.notify.endpoint import is_permitted, literal_addresses, networks_of

    parts = split(url)
    if parts is None or not parts.hostname or parts.scheme not in ("http", "https"):
        return "is not an http or https URL; use a URL such as https://reviews.example.com/hook"
    host = parts.hostname
    permitted, plain = networks_of(networks), urlsplit(url).scheme == "http"
    literals = literal_addresses(host) or (("127.0.0.1", "::1") if host.rstrip(".").lower() == "localhost" else ())
    found = [ipaddress.ip_address(text.partition("%")[0]) for text in literals]
    name = repr(host) if shown else "its host"
    if any(is_permitted(address, permitted, plain=plain) for address in found):
        return None
    if found:
        network = str(ipaddress.ip_network(found[0])) if shown else "NETWORK"
        what = "is reached over plain http" if plain and found[0].is_global else "is not a public address"
        return f"{name} {what}, and webhook_networks does not permit it; {NETWORKS.format(network=network)}"
    if is_inside(host) and not permitted:
        what = "is a name in a private network, which webhooks do not reach"
        return f"{name} {what}; {NETWORKS.format(network='NETWORK')}"
    return None
