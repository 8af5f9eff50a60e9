"""`make docs`: write the tables of the Markdown pages from the descriptions in the code, recipes from their files, and
what the Helm chart repeats: the names of settings, and copies of files, because Helm reads no file outside of a chart.

A table is between two comments, ``<!-- table: NAME -->`` and ``<!-- end -->``; everything between them is replaced. To
change a sentence of a table, change the description in the code and run ``make docs``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import yaml

import samplegate
from samplegate import __version__
from samplegate.audit.record import CONTENTS, MEMBERS
from samplegate.cli import bundled
from samplegate.cli import main as cli
from samplegate.cli.manual import slug_of
from samplegate.config import ProcessSettings, RunSettings
from samplegate.config.assertions import AssertionSettings, GroupRole, ListedPerson
from samplegate.config.identities import CallerSettings, JwtSettings, PeopleSettings, PersonToken, Token
from samplegate.config.oauth import OAuthSettings
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.servers import ServerEntry
from samplegate.config.settings import settings_of
from samplegate.policy import schema as policy
from samplegate.policy import script
from samplegate.policytest import suite
from samplegate.reviews.web.api import openapi_document
from samplegate.server.admin import ROUTES
from samplegate.telemetry.definitions import METRICS

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = tuple(ROOT / name for name in sorted({*bundled.PAGES.values()} - {"CHANGELOG.md"}))
TABLE: Final = re.compile(r"(<!-- table: ([\w. -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

CHART: Final = ROOT / "deploy" / "helm" / "samplegate"
COPIES: Final = {
    CHART / "files" / "alerts.yml": ROOT / "deploy" / "prometheus" / "alerts.yml",
    CHART / "files" / "samplegate.json": ROOT / "deploy" / "grafana" / "samplegate.json",
}
"""The chart's copies of files, and the originals."""
CHART_SCHEMA: Final = CHART / "values.schema.json"
LISTENERS: Final = {"listen", "admin_listen", "reviews_listen", "state"}
"""Settings that the chart sets by variables, which take precedence over the settings file."""

NAMES: Final = [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
"""The schema of a key that takes one name or a list of them."""
PLURALS: Final = {"string": "strings", "mapping": "mappings"}
"""Types that are counted: `list of strings`."""
LINKS: Final = {
    "ArgumentTest": "[test](#arguments)",
    "AssertionSettings": "[mapping](#assertions)",
    "Brakes": "[brakes](#brakes)",
    "Case": "[cases](#a-case)",
    "Edited": "[edits](#edits)",
    "Elicitation": "[mapping](#elicitation-in-short)",
    "Expect": "[mapping](#what-is-expected)",
    "GroupRole": "[role](#assertions)",
    "JwtSettings": "[mapping](#callers)",
    "Limit": "[limits](#limits)",
    "ListedPerson": "[person](#assertions)",
    "Match": "[conditions](#conditions)",
    "Model": "[models](#a-model)",
    "OAuthSettings": "[mapping](#oauth-of-a-server)",
    "Peer": "[peer](#client-and-servers)",
    "PersonToken": "[tokens](#people)",
    "Prepend": "`{prepend: TEXT}`",
    "Price": "[price](#prices-and-what-a-model-takes)",
    "Range": "range",
    "Raw": "[mapping](#a-request-as-written)",
    "Reviewer": "[reviewers](#reviewers)",
    "Said": "mapping",
    "Sampling": "[mapping](#sampling-in-short)",
    "Scene": "mapping",
    "Secrets": "[mapping](#secrets-in-prompts-and-answers)",
    "Server": "[servers](#client-and-servers)",
    "Step": "[steps](#steps)",
    "StopSequences": "[bounds](#bounds)",
    "Temperature": "[bounds](#bounds)",
    "Token": "[tokens](#callers)",
    "Usage": "mapping",
    "Webhook": "[webhook](#webhooks)",
    "Weights": "[weights](#which-model-is-asked)",
    "With": "[bounds](#with-how-a-model-is-asked)",
}
"""What a table calls the value of a struct, most with a link to its own table."""
VALUES: Final = {
    ("AllowRule", "limits"): "list of names of [limits](#limits)",
    ("AllowRule", "review_answer"): "name of a [reviewer](#reviewers)",
    ("AnswerRule", "content"): "see below",
    ("AnswerRule", "limits"): "list of names of [limits](#limits)",
    ("ArgumentTest", "max"): "number",
    ("ArgumentTest", "min"): "number",
    ("ArgumentTest", "under"): "string, or list of strings",
    ("Elicitation", "fields"): "mapping of names to a type or a schema",
    ("EscalateRule", "limits"): "list of names of [limits](#limits)",
    ("EscalateRule", "review_answer"): "name of a [reviewer](#reviewers)",
    ("EscalateRule", "reviewer"): "name of a [reviewer](#reviewers)",
    ("Expect", "content"): "as in the result",
    ("ForwardRule", "limits"): "list of names of [limits](#limits)",
    ("Limit", "tz"): "time zone",
    ("Model", "api_base"): "http(s) URL",
    ("Match", "arguments"): "mapping of paths, see [arguments](#arguments)",
    ("Match", "claims"): "mapping of paths, see [claims](#claims)",
    ("Policy", "hints"): "mapping, see [hints](#hints)",
    ("Policy", "rules"): "list of [rules](#a-rule), at most 1000",
    ("Policy", "secrets"): (
        "mapping of names to expressions, at most 100; see [secrets](#secrets-in-prompts-and-answers)"
    ),
    ("Range", "max"): "number from 0",
    ("Range", "min"): "number from 0",
    ("Sampling", "maxTokens"): "number",
    ("Said", "answer"): "string, content blocks or values",
    ("Webhook", "url"): "http(s) URL",
    ("With", "models"): "list of names",
}
"""Values of keys whose type alone does not show which values are valid."""
DEFAULTS: Final = {
    ("AllowRule", "with"): "no bounds",
    ("EscalateRule", "with"): "no bounds",
    ("EscalateRule", "timeout"): "the reviewer's",
    ("Policy", "client"): "the defaults below",
    ("ProcessSettings", "state"): "the platform's [folder](#the-state-folder)",
    ("RuleBase", "match"): "no condition",
    ("JwtSettings", "audience"): "–",
    ("ServeSettings", "allowed_hosts"): "–",
    ("ServeSettings", "allowed_origins"): "–",
}
"""Defaults of keys whose default value alone does not show what happens without the key."""


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    titles = list(headings)
    lines = [titles, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    rendered = [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join([rendered[0], "|" + "---|" * len(titles) + "\n", *rendered[1:]])


def keys(*structs: type[msgspec.Struct], without: type[msgspec.Struct] | None = None) -> str:
    """The table of the keys of structs, except those of ``without``."""
    rows: dict[str, tuple[str, str, str, str]] = {}
    left_out = () if without is None else without.__struct_encode_fields__
    for struct in structs:
        name = struct.__name__
        definition = _definition(struct)
        for key, schema in definition["properties"].items():
            if key not in left_out and key != struct.__struct_config__.tag_field and key not in rows:
                usual = (
                    "required" if key in definition.get("required", ()) else default_text(key, schema.get("default"))
                )
                usual = DEFAULTS.get((name, key)) or usual
                rows[key] = (f"`{key}`", VALUES.get((name, key)) or value_text(schema), usual, description_of(schema))
    return table(("key", "value", "default", "meaning"), rows.values())


def _definition(struct: type[msgspec.Struct]) -> dict[str, Any]:
    _, definitions = msgspec.json.schema_components([struct], schema_hook=lambda _: {"type": "string"})
    found: dict[str, Any] = definitions[struct.__name__]
    return found


def rule() -> str:
    """The table of the keys that every rule has."""
    effects = ", ".join(f"`{each.__struct_config__.tag}`" for each in get_args(policy.Rule))
    what = "What happens to a request that the rule matches."
    return keys(policy.RuleBase).replace(
        "|---|---|---|---|\n", f"|---|---|---|---|\n| `effect` | {effects} | required | {what} |\n"
    )


def description_of(schema: Mapping[str, Any]) -> str:
    """The description of a key; that of a key whose name is a keyword is one level down."""
    return str(schema.get("description") or schema["allOf"][0]["description"])


def value_text(schema: Mapping[str, Any]) -> str:
    """The values that a key can have, in words."""
    kinds = [each for each in schema.get("anyOf") or schema.get("allOf") or [schema] if each != {"type": "null"}]
    if kinds == NAMES:
        return "names"
    return ", or ".join(dict.fromkeys(map(_kind, kinds)))


def _kind(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema or "allOf" in schema:
        return value_text(schema)
    if "$ref" in schema:
        return LINKS[schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "(ms|s|m|h)" in schema.get("pattern", ""):
        words = re.findall(r"\|(\w+)", schema["pattern"].partition("(ms|s|m|h)")[2])
        return ", ".join(["duration", *(f"`{word}`" for word in words)])
    match schema.get("type"):
        case "boolean":
            return "true, false"
        case "integer" | "number":
            return _number(schema)
        case "array":
            items = _kind(schema.get("items", {}))
            return f"list of {PLURALS.get(items, items)}"
        case "object":
            named = schema.get("additionalProperties")
            if not isinstance(named, dict) or not named:
                return "mapping"
            text = value_text(named)
            return f"mapping of names to {PLURALS.get(text, text)}"
        case "string":
            return "expression" if schema.get("format") == "regex" else "string"
        case _:
            return "any"


def _number(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f"number above {schema['exclusiveMinimum']}" + ("" if most is None else f", at most {most}")
    if least is None:
        return "number"
    return f"number from {least}" + ("" if most is None else f" to {most}")


def default_text(key: str, value: object) -> str:
    """The default of a key, in words."""
    match value:
        case None:
            return "–"
        case bool():
            return str(value).lower()
        case int() if key.endswith("_bytes") and value >= 1024:
            return f"{value} ({value >> 20} MiB)" if value >= 1 << 20 else f"{value} ({value >> 10} KiB)"
        case int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case str():
            return f"`{value}`"
        case [*_] if value:
            return ", ".join(f"`{each}`" for each in value)
        case _:
            return "none"


def settings(struct: type[ProcessSettings], *, without: type[ProcessSettings] | None = None) -> str:
    """The table of the settings of a command, except those of ``without``."""
    rows = []
    left_out = () if without is None else without.__struct_fields__
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    for name, setting in settings_of(struct).items():
        if name in left_out:
            continue
        shown = "[mapping](#a-server)" if name == "servers" else f"[mapping](#{name})" if setting.section else None
        shown = shown or ("path" if setting.path and not setting.store and not setting.keywords else None)
        shown = shown or value_text(msgspec.json.schema(setting.type, schema_hook=lambda _: {"type": "string"}))
        field = fields[name]
        usual = "none" if field.default is msgspec.NODEFAULT or setting.section else default_text(name, field.default)
        usual = DEFAULTS.get((struct.__name__, name)) or usual
        rows.append((f"`{name}`", shown, usual, setting.meta.description or ""))
    return table(("setting", "value", "default", "meaning"), rows)


def metrics() -> str:
    """The table of all metrics."""
    rows = ((f"`{each.name}`", ", ".join(each.labels) or "none", each.help) for each in METRICS)
    return table(("metric", "labels", "meaning"), rows)


def record() -> str:
    """The table of the members of a line of the decision log."""
    return table(("field", "meaning"), ((f"`{name}`", text) for name, text in {**MEMBERS, **CONTENTS}.items()))


def admin_routes() -> str:
    """The table of the routes of the operators' listener."""
    return table(("request", "answer"), ((f"`{method} {path}`", text) for path, (method, text) in ROUTES.items()))


def review_routes() -> str:
    """The table of the routes of the reviewers' API."""
    return table(
        ("request", "answer"),
        (
            (f"`{method.upper()} {path}`", operation["summary"])
            for path, operations in openapi_document(__version__)["paths"].items()
            for method, operation in operations.items()
            if method in ("get", "post")
        ),
    )


def commands() -> str:
    """A section for each command: its usage, and its arguments as its help describes them."""
    sections = []
    for name in cli.COMMANDS:
        text = help_of([name])
        nested = re.findall(r"^    (\w+) {2,}\S", text, re.MULTILINE) if "ACTION" in text else []
        sections += [
            _section(f"samplegate {' '.join(words)}", help_of(words))
            for words in [[name], *([name, each] for each in nested)]
        ]
    return "\n".join(sections)


def help_of(command: Sequence[str]) -> str:
    """The help of a command, with each description on one line."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            cli.main([*command, "--help"])
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({} if before is None else {"COLUMNS": before})
    return out.getvalue()


def _section(title: str, text: str) -> str:
    usage, description, *_ = text.removeprefix("usage: ").split("\n\n")
    options, _, closing = text.partition("\nexamples:\n")
    examples = textwrap.dedent(closing.partition("\n\n")[0])
    found = re.findall(r"^ {2,4}(\S.*?)(?:(?: {2,}|\n {10,})(\S.*))?$", options, re.MULTILINE)
    rows = [(f"`{name}`", meaning) for name, meaning in found if name not in ("-h, --help", "ACTION")]
    usage = textwrap.fill(" ".join(usage.split()), 110, subsequent_indent="    ", break_on_hyphens=False)
    return (
        f"## {title}\n\n{description}\n\n```text\n{usage}\n```\n\n{table(('argument', 'meaning'), rows)}\n"
        f"```sh\n{examples}\n```\n"
    )


def published_command() -> str:
    """How to try the newest version of the package index; that there is none, while there is none."""
    if not samplegate.RELEASED:
        return "samplegate is not in a package index yet.\n"
    return f"```sh\nuvx samplegate@{samplegate.RELEASED} demo    # try it, from the package index\n```\n"


def exit_codes() -> str:
    """The exit codes of all commands, as their help has them."""
    return f"```text\n{cli.EXIT_CODES.partition(chr(10))[2]}```\n"


def shipped(path: str, language: str) -> str:
    """A shipped file, as an example."""
    return f"```{language}\n{(ROOT / path).read_text('utf-8')}```\n"


def chart_values() -> str:
    """The table of the chart's values: the defaults of values.yaml, and the descriptions of values.schema.json."""
    schema = json.loads(CHART_SCHEMA.read_text("utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return table(("value", "default", "meaning"), _chart_rows(schema, values, ""))


def _chart_rows(schema: Mapping[str, Any], values: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, ...]]:
    for name, value in values.items():
        described = schema["properties"][name]
        if described.get("additionalProperties") is False:
            yield from _chart_rows(described, value, f"{prefix}{name}.")
        else:
            text = json.dumps(value, ensure_ascii=False)
            default = "–" if value in ("", [], {}) else f"`{text}`" if len(text) <= 60 else "[values.yaml](values.yaml)"
            yield f"`{prefix}{name}`", default, described["description"]


def chart_schema() -> str:
    """The schema of the chart's values, with the names of all settings."""
    schema = json.loads(CHART_SCHEMA.read_text("utf-8"))
    names = sorted({*ServeSettings.__struct_fields__} - LISTENERS)
    schema["properties"]["settings"]["propertyNames"] = {"enum": names}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    **{
        f"policy {struct.__name__}": partial(keys, struct)
        for struct in (
            policy.Policy,
            policy.Range,
            policy.Model,
            policy.Price,
            policy.Weights,
            policy.Match,
            policy.ArgumentTest,
            policy.With,
            policy.Temperature,
            policy.StopSequences,
            policy.Prepend,
            policy.Secrets,
            policy.Reviewer,
            policy.Webhook,
            policy.Limit,
            policy.Brakes,
            policy.Server,
        )
    },
    "policy Rule": rule,
    **{f"policy {struct.__name__}": partial(keys, struct, without=policy.RuleBase) for struct in get_args(policy.Rule)},
    "script Case": partial(keys, script.ScriptCase),
    **{
        f"tests {struct.__name__}": partial(keys, struct)
        for struct in (
            suite.Suite,
            suite.Expect,
            suite.Said,
            suite.Edited,
            suite.Sampling,
            suite.Elicitation,
            suite.Raw,
        )
    },
    "tests Case": partial(keys, suite.Case, suite.Step),
    "settings": partial(settings, ProcessSettings),
    "settings run": partial(settings, RunSettings, without=ProcessSettings),
    "settings serve": partial(settings, ServeSettings, without=ProcessSettings),
    **{
        f"settings {struct.__name__}": partial(keys, struct)
        for struct in (
            ServerEntry,
            OAuthSettings,
            CallerSettings,
            Token,
            JwtSettings,
            PeopleSettings,
            PersonToken,
            AssertionSettings,
            GroupRole,
            ListedPerson,
        )
    },
    "metrics": metrics,
    "record": record,
    "admin routes": admin_routes,
    "review routes": review_routes,
    **{f"recipe {name}": partial(shipped, f"policies/recipes/{name}.yaml", "yaml policy") for name in bundled.RECIPES},
    "file nginx.conf": partial(shipped, "policies/recipes/nginx.conf", "nginx"),
    "file haproxy.cfg": partial(shipped, "deploy/balancers/haproxy.cfg", "text"),
    "file nginx.conf of gates": partial(shipped, "deploy/balancers/nginx.conf", "nginx"),
    "file envoy.yaml": partial(shipped, "deploy/balancers/envoy.yaml", "yaml envoy"),
    "chart values": chart_values,
    "commands": commands,
    "exit codes": exit_codes,
    "published command": published_command,
}
"""All tables by the names in the comments of the pages."""


def with_tables(page: Path) -> str:
    """A page with its tables as the code describes them."""
    text = page.read_text("utf-8")
    return TABLE.sub(lambda found: f"{found[1]}\n{_linked(TABLES[found[2]](), page)}\n{found[3]}", text)


def _linked(text: str, page: Path) -> str:
    """Text whose links to headings also name the page, where another page of the same folder has the heading."""
    return re.sub(r"\]\(#([\w-]+)\)", lambda link: f"]({_page_of(link[1], page)}#{link[1]})", text)


def _page_of(heading: str, page: Path) -> str:
    beside = sorted(page.parent.glob("*.md"))
    return (
        next((each.name for each in beside if each != page and heading in _headings(each)), "")
        if (heading not in _headings(page))
        else ""
    )


@cache
def _headings(page: Path) -> frozenset[str]:
    return frozenset(slug_of(heading) for heading in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files that differ and print their names. ``--check`` writes nothing and returns 1 if any differs."""
    parser = argparse.ArgumentParser(description="Write the tables of the documentation from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file would change")
    args = parser.parse_args(argv)
    wanted = {page: with_tables(page) for page in PAGES}
    wanted |= {copy: original.read_text("utf-8") for copy, original in COPIES.items()}
    wanted[CHART_SCHEMA] = chart_schema()
    changed = [(file, new) for file, new in wanted.items() if not file.exists() or new != file.read_text("utf-8")]
    for file, new in changed:
        print(file.relative_to(ROOT))
        if not args.check:
            file.write_text(new, "utf-8")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
