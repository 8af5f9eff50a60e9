"""What each key of the sections says, in a sentence: for the documentation and the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from samplegate.settings.definition import CALL_TIMEOUT, START_TIMEOUT

KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "ServerEntry": {
        "type": "`stdio`, `http` or `streamable-http`, as clients write it; it may be left out. A server of type `sse` is left out with a warning.",
        "command": "The program of a server that speaks over its stdin and stdout.",
        "args": "Its arguments.",
        "env": "Its variables.",
        "cwd": "Its working folder.",
        "url": "The endpoint of a server that speaks Streamable HTTP.",
        "headers": "Headers of every request to it.",
        "headers_from": "The same, by files that hold the values; each conversation reads them, so a rotated secret needs no restart.",
        "share": "Whose requests share one process or session in the modern era: those of one `caller`, or of `all`.",
        "callers": "Names or globs of the callers that may use it; without it all who are known.",
        "protocol": "The protocol version for it: `auto` finds it out, `legacy` is 2025-11-25 and older, `modern` is 2026-07-28.",
        "start_timeout": START_TIMEOUT,
        "call_timeout": CALL_TIMEOUT,
        "end_of_input_timeout": "Seconds at a shutdown to wait for answers to calls in flight, at most and by default `drain_timeout`; 0: none. "
        "Then the clients get an error.",
        "disabled": "It is left out.",
    },
    "CallersEntry": {
        "tokens": "Static tokens.",
        "tokens_file": "A file with more: lines of a name, a blank and a SHA-256.",
        "jwt": "Tokens of an issuer.",
        "resource": "The URL at which clients reach the daemon, without a server's path.",
    },
    "TokenEntry": {
        "name": "Whose it is: what the policy's `caller` and the limits go by. A name may have several, while they are rotated.",
        "sha256": "The SHA-256 of the token in hex; the token itself is kept nowhere.",
    },
    "PeopleEntry": {
        "tokens": "People and their tokens.",
        "tokens_file": "A file with more: lines of a name, a role, a SHA-256 and, if need be, reviewers with commas between them.",
    },
    "PersonEntry": {
        "name": "Who it is, as histories and the decision log say it. A name may have several tokens, while they are rotated.",
        "role": "A `viewer` looks, a `reviewer` decides too, both for their `reviewers`; an `admin` sees and decides all.",
        "sha256": "The SHA-256 of the token in hex; the token itself is kept nowhere.",
        "reviewers": "The policy's reviewers in whose name they look and decide; without it all.",
    },
    "JwtEntry": {
        "issuer": "Who issues the tokens: the URL in their `iss`.",
        "audience": "What their `aud` must name one of; by default `resource`, or the URL of the server that is called.",
        "jwks_url": "Where the issuer's keys are; by default where its metadata says.",
        "jwks_file": "A file with the issuer's keys instead.",
        "algorithms": "How they may be signed: `RS256`, `ES256` and `EdDSA` by default.",
        "scopes": "Scopes that a token must have, all of them.",
        "principal": "The claim that says who calls, `sub` by default; the caller is `jwt:` and its value.",
        "leeway": "Seconds by which the clocks may differ, 30 by default.",
    },
}
"""By struct and key."""
