"""The built-in secret patterns. The samples are assembled here, so that no scanner reports this file as a leak."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import string
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.policy.file.checks import SECRET_NAME
from samplegate.policy.redaction import Redactor, clean_params, redactor
from samplegate.policy.schema import AllowRule, Policy, Secrets, With
from samplegate.runtime import secret_patterns
from tests.paths import ROOT

KNOWN: Final = secret_patterns.known()
LETTERS: Final = string.ascii_letters + string.digits


def made(of: str, size: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(of, k=size))


def cleaner() -> Redactor:
    found = redactor(Policy(version=1, rules=[AllowRule(name="r", with_=With(secrets=Secrets()))]), KNOWN)
    assert found is not None
    return found


REDACTOR: Final = cleaner()


def cleaned(text: str) -> tuple[str, dict[str, int]]:
    params, found = clean_params(REDACTOR, {"systemPrompt": text})
    return params["systemPrompt"], dict(found)


ALNUM40: Final = made(LETTERS, 40)
HEX64: Final = made("0123456789abcdef", 64)
SMALL: Final = string.ascii_lowercase + string.digits
SAMPLES: Final[dict[str, tuple[str, str]]] = {  # name: the text around the secret, and the secret
    "anthropic-key": ("%s", "sk-ant-" + "api03-" + made(LETTERS, 93) + "AA"),
    "artifactory-credentials": ("token%sx", "=AKC" + made(LETTERS, 40) + '"'),
    "artifactory-credentials-2": ('jfrog key="%s"', "AP5" + made(LETTERS, 40)),
    "aws-access-key": ("id: %s.", "AKIA" + made(string.ascii_uppercase, 16)),
    "aws-secret-key": ("aws_secret_access_key = %s ", ALNUM40),
    "azure-storage-key": ("AccountName=a;AccountKey=%s;", made(LETTERS, 86) + "=="),
    "basic-auth-credentials": ("postgres://me:%s@db/x", "hunter2"),
    "discord-bot-token": ("%s", "M" + made(LETTERS, 23) + "." + made(LETTERS, 6) + "." + made(LETTERS, 27)),
    "github-fine-grained-token": ("%s", "github_pat_" + made(LETTERS, 22) + "_" + made(LETTERS, 59)),
    "github-token": ("%s", "ghp_" + made(LETTERS, 36)),
    "gitlab-token": ("%s", "glpat-" + made(LETTERS, 20)),
    "google-key": ("key=%s&", "AIza" + made(LETTERS, 35)),
    "hugging-face-token": ("%s", "hf_" + made(string.ascii_letters, 34)),
    "json-web-token": ("Bearer %s", "eyJ" + made(LETTERS, 30) + ".eyJ" + made(LETTERS, 60) + "." + made(LETTERS, 43)),
    "mailchimp-access-key": ("%s", made(SMALL, 32) + "-us12"),
    "npm-tokens": ("%s", "npm_" + made(LETTERS, 36)),
    "openai-key": ("%s", "sk-" + "proj-" + made(LETTERS, 20) + "T3Blbk" + "FJ" + made(LETTERS, 20)),
    "pypi-token": ("%s", "pypi-" + "AgEIcHlwaS5vcmc" + made(LETTERS, 90)),
    "sendgrid-api-key": ("%s", "SG." + made(LETTERS, 22) + "." + made(LETTERS, 43)),
    "slack-token": ("%s", "xoxb-" + "123456789012-" + made(SMALL, 24)),
    "slack-webhook": ("%s", "https://hooks.slack.com/services/" + "T0000/B0000/" + made(LETTERS, 24)),
    "softlayer-credentials-2": ("https://api.softlayer.com/soap/v3/%s", HEX64),
    "square-oauth-secret": ("%s", "sq0csp-" + made(LETTERS, 43)),
    "stripe-access-key": ("%s", "sk_" + "live_" + made(LETTERS, 24)),
    "twilio-api-key": ("%s", "AC" + made(SMALL, 32)),
    "twilio-api-key-2": ("%s", "SK" + made(SMALL, 32)),
}


def test_the_known_patterns_are_these() -> None:
    """Fails if a release of the package changes the patterns: update the list, the reference and, for a new one, the
    samples."""
    assert {*SAMPLES, "private-key", "putty-private-key"} == KNOWN.keys()


def test_the_packages_patterns_that_re2_does_not_take_are_these() -> None:
    refused = (
        "cloudant-credentials cloudant-credentials-2 ibm-cloud-iam-key ibm-cos-hmac-credentials softlayer-credentials"
    )
    assert refused.split() == [
        name
        for name, expression in secret_patterns._package_patterns()
        if secret_patterns._as_re2(name, expression) is None
    ]


def test_nothing_is_left_out_replaced_or_narrowed_that_the_package_no_longer_has() -> None:
    theirs = {name for name, _ in secret_patterns._package_patterns()}
    assert theirs >= secret_patterns.LEFT_OUT | secret_patterns._NARROW | {*secret_patterns._NAMES.values()}
    assert all("(?P<secret>" in KNOWN[name] for name in secret_patterns._NARROW)


def test_every_name_may_stand_in_texts_and_labels_and_in_the_reference() -> None:
    reference = (ROOT / "policies" / "bounds.md").read_text()
    assert [] == [name for name in KNOWN if not SECRET_NAME.match(name) or f"`{name}`" not in reference]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_blotted_out_and_what_stands_around_it_is_not(name: str) -> None:
    around, secret = SAMPLES[name]
    assert (around % f"[secret:{name}]", {name: 1}) == cleaned(around % secret)


PEM: Final = "\n".join(made(LETTERS + "+/", 64, line) for line in range(26)) + "\n" + made(LETTERS, 30) + "=="
BEGIN, END = "-----BEGIN %sPRIVATE " + "KEY%s-----", "-----END %sPRIVATE " + "KEY%s-----"


@pytest.mark.parametrize(
    "sort", [("", ""), ("RSA ", ""), ("EC ", ""), ("OPENSSH ", ""), ("ENCRYPTED ", ""), ("PGP ", " BLOCK")]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n"])
def test_a_private_key_is_blotted_out_from_its_first_line_to_its_last(sort: tuple[str, str], newline: str) -> None:
    key = f"{BEGIN % sort}\n{PEM}\n{END % sort}".replace("\n", newline)
    assert ("a [secret:private-key] b", {"private-key": 1}) == cleaned(f"a {key} b")


def test_a_private_key_with_headers_of_its_own_is_blotted_out() -> None:
    key = f"{BEGIN % ('RSA ', '')}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123\n\n{PEM}\n{END % ('RSA ', '')}"
    assert ("[secret:private-key]", {"private-key": 1}) == cleaned(key)


@pytest.mark.parametrize("newline", ["\n", "\\n"])
def test_a_private_key_that_was_cut_off_is_blotted_out_as_far_as_it_goes(newline: str) -> None:
    key = f"{BEGIN % ('', '')}\n{PEM[:300]}".replace("\n", newline)
    assert ("[secret:private-key]", {"private-key": 1}) == cleaned(key)


def test_two_private_keys_are_two() -> None:
    key = f"{BEGIN % ('', '')}\n{PEM}\n{END % ('', '')}"
    assert ("[secret:private-key] and [secret:private-key]", {"private-key": 2}) == cleaned(f"{key} and {key}")


def test_a_putty_key_is_blotted_out_whole() -> None:
    head = "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nComment: me\n"
    key = f"{head}Public-Lines: 2\n{PEM[:129]}\nPrivate-Lines: 2\n{PEM[:129]}\nPrivate-MAC: {HEX64}"
    assert ("a [secret:putty-private-key]\nb", {"putty-private-key": 1}) == cleaned(f"a {key}\nb")


def sha512(number: int) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(b"%d" % number).digest()).decode()


ORDINARY: Final[dict[str, Any]] = {
    "prose": "To call AWS you need an access key and a token. A private key begins with a line that says so. " * 50,
    "a header named in prose": f"The file starts with {BEGIN % ('', '')} and ends likewise.",
    "a public key": f"-----BEGIN PUBLIC KEY-----\n{PEM}\n-----END PUBLIC KEY-----",
    "a certificate": f"-----BEGIN CERTIFICATE-----\n{PEM}\n-----END CERTIFICATE-----",
    "a package lock": "\n".join(f'"integrity": "{sha512(number)}",' for number in range(200)),
    "hashes": "\n".join(hashlib.sha256(b"%d" % number).hexdigest() for number in range(500)),
    "ids": "\n".join(f"{number:08x}-0000-4000-8000-{number:012x}" for number in range(500)),
    "base64": base64.b64encode(random.Random(1).randbytes(200_000)).decode(),
    "addresses": (
        "https://example.com:8080/a@b?c=d http://[::1]:80/ mailto:me@example.com git@host:a/b.git ssh://git@host:22/x"
    ),
    "names in code": (
        "import os\nNODE_AUTH_TOKEN = os.environ['NPM_TOKEN']\nkey = aws_secret_access_key\nsk-learn, hf_hub_download\n"
    ),
}


@pytest.mark.parametrize("text", ORDINARY.values(), ids=list(ORDINARY))
def test_ordinary_text_holds_no_secret(text: str) -> None:
    assert (text, {}) == cleaned(text)


@pytest.mark.parametrize("path", sorted((ROOT / "proxy" / "samplegate").rglob("*.py")), ids=lambda path: path.name)
def test_our_own_source_holds_none(path: Path) -> None:
    assert {} == cleaned(path.read_text())[1]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "unit",
    [
        "eyJ",
        "-----BEGIN PRIVATE " + "KEY-----",
        "ghp_",
        "://a:b@",
        "aws key token ",
        "artif",
        "NPM_TOKEN ",
        "sk-",
        "MNO",
    ],
)
def test_ten_mebibytes_of_beginnings_take_bounded_time(unit: str) -> None:
    size = 10 * 1024 * 1024
    cleaned((unit * (size // len(unit) + 1))[:size])


@pytest.mark.timeout(20)
def test_ten_mebibytes_of_base64_take_bounded_time() -> None:
    cleaned(base64.b64encode(random.Random(2).randbytes(7_500_000)).decode())


def test_the_package_is_imported_when_it_is_asked_and_not_before() -> None:
    script = (
        "import sys, samplegate.runtime.secret_patterns as d; was = 'detect_secrets' in sys.modules; d.known(); print(was,"  # noqa: E501
        " 'detect_secrets' in sys.modules)"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=50, env={"PYTHONPATH": "proxy"}, cwd=ROOT
    )
    assert ("False True\n", "") == (ran.stdout, ran.stderr)


def test_an_expression_with_flags_becomes_one_with_them_inside_or_none() -> None:
    assert "(?i)a" == secret_patterns._as_re2("x", re.compile("a", re.IGNORECASE))
    assert "a" == secret_patterns._as_re2("x", re.compile("a", re.VERBOSE))
    assert None is secret_patterns._as_re2("x", re.compile("a b", re.VERBOSE))
    assert None is secret_patterns._as_re2("x", re.compile("^a", re.MULTILINE))
    assert None is secret_patterns._as_re2("x", re.compile("a(?=b)"))
