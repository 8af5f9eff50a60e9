"""Import rules: which module may import which. Reads the imports of the whole source and runs none of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from tests.paths import PROXY, TESTS

SOURCE: Final = PROXY
PACKAGE: Final = "samplegate"

GROUND: Final = frozenset(
    "durations errors files key_file money postgres printable process_locks regex request_headers secret_names sqlite"
    " text urls yamlfile".split()
)
"""Modules and packages that all others may import. They import nothing of ours but each other."""
PURE: Final = frozenset({"ci", "policy", "protocol", "status", "yamlfile"})
"""Packages of pure modules only."""

# The first name below the package -> the first names it may import, besides the ground and any pure module. A package
# of pure modules imports only the ground and the listed names. Remove an arrow that nothing uses.
_EDGES: Final = frozenset("audit config limits oauth reviews sampler tasks telemetry transport".split())
ARROWS: Final = {
    name: frozenset[str]()
    for name in {*GROUND, "__init__", "ci", "clients", "protocol", "status", *_EDGES, "gate", "demo"}
} | {
    "__main__": frozenset({"cli"}),
    "auth": frozenset({"config"}),
    "cli": frozenset({"audit", "clients", "config", "oauth", "policytest", "reviews", "runtime", "server"}),
    "oauth": frozenset({"config"}),
    "policy": frozenset({"protocol"}),
    "policytest": frozenset({"gate", "limits"}),
    "runtime": _EDGES | {"gate"},
    "server": _EDGES - {"limits", "tasks"} | {"auth", "runtime"},
}

ENDINGS: Final = ("ing", "utils", "helpers", "manager", "common", "misc")
"""Module names are nouns of the field: no participles, and nothing that could hold anything."""
NAMES: Final = frozenset({"sampling", "session_wiring"})
"""Nouns of the field that have such an ending."""

IMPURE: Final = frozenset(
    "anyio asyncio concurrent http httpx httpx2 io logging multiprocessing os pathlib random secrets select selectors"
    " shutil signal socket structlog subprocess tempfile threading time urllib.request uuid uvloop".split()
)
IMPURE_CALLS: Final = frozenset({"open", "print", "input", "breakpoint"})
UNIX_ONLY: Final = frozenset("crypt fcntl grp posix pty pwd resource syslog termios tty uvloop".split())
SLOW: Final = frozenset(
    "aiohttp alembic cryptography detect_secrets httpx2 jinja2 jsonschema jwt litellm markdown_it markupsafe mcp "
    "mcp_types nh3 opentelemetry prometheus_client psycopg pydantic pydantic_settings rich sqlalchemy starlette "
    "tomlkit uvicorn watchfiles".split()
)
"""Most cost tens of milliseconds or of MiB: a wrapped server that needs none of them must not wait for them."""
PYDANTIC: Final = frozenset({"pydantic", "pydantic_settings"})
SERVING: Final = PYDANTIC | {"uvicorn"}
"""Those of them that `serve` needs whatever its settings are."""
STARTS: Final = ("__main__", "cli.main", "cli.run", "runtime.run")
"""What wrapping a server imports first."""
MCP: Final = frozenset({"auth", "demo", "oauth"})
DAEMONS: Final = frozenset(
    {"auth", "server", *(f"{PACKAGE}.config.{name}" for name in ("serve", "serve_settings", "servers", "identities"))}
)
"""What `run` never needs, by part or module."""


@dataclass(frozen=True)
class Import:
    """One imported module, where the import is, and whether it runs as soon as the importing module does."""

    importer: str
    line: int
    name: str
    at_once: bool
    guarded: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.name}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


@cache
def modules() -> dict[str, ast.Module]:
    """Our modules by name. Parsed by the first test that needs them, because every worker imports this file."""
    return {
        module_name(path): ast.parse(path.read_text("utf-8"), str(path))
        for path in sorted((SOURCE / PACKAGE).rglob("*.py"))
    }


def walk(
    node: ast.AST, at_once: bool = True, guarded: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Every import below a node. Imports under TYPE_CHECKING never run; those under any `if` or `try` are guarded."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_once, guarded
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from walk(child, False, guarded)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from walk(child, False, True)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # no expression has an import in it
            yield from walk(child, at_once, guarded or isinstance(child, ast.If | ast.Try))


def names_of(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that a statement imports; `from package import module` imports the module."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    assert not statement.level, "relative imports are not used here"
    base = statement.module or ""
    below = [f"{base}.{alias.name}" for alias in statement.names if f"{base}.{alias.name}" in modules()]
    yield from below or [base]


@cache
def imports() -> list[Import]:
    return [
        Import(importer, statement.lineno, name, at_once, guarded)
        for importer, tree in modules().items()
        for statement, at_once, guarded in walk(tree)
        for name in names_of(statement)
    ]


def part(module: str) -> str:
    """`protocol` for `samplegate.protocol.frames`, `__init__` for the package itself."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else "__init__"


def is_pure(module: str) -> bool:
    """Whether the module's docstring begins with "Pure."; the `__init__` of a package without code counts as its
    package."""
    return (ast.get_docstring(modules()[module]) or "").startswith("Pure.") or (
        part(module) in PURE and not modules()[module].body
    )


def is_any(name: str, of: frozenset[str]) -> bool:
    return any(name == other or name.startswith(f"{other}.") for other in of)


def ours(found: Import) -> bool:
    return found.name.split(".")[0] == PACKAGE


def reached_at_once(start: str) -> set[str]:
    """Our modules that are imported as soon as ``start`` is, including the packages they are in."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        todo += [".".join(module.split(".")[:n]) for n in range(2, len(module.split(".")))]
        todo += [
            found.name for found in imports() if found.importer == module and found.at_once and found.name in modules()
        ]
    return seen


@pytest.mark.cpu(4)  # the first one reads all modules
def test_imports_follow_the_arrows() -> None:
    wrong = [
        str(found)
        for found in imports()
        if ours(found)
        and part(found.name)
        not in {part(found.importer), "__init__"} | GROUND | ARROWS.get(part(found.importer), frozenset())
        and not (found.name in modules() and is_pure(found.name) and part(found.importer) not in GROUND | PURE)
    ]
    assert [] == wrong, "move what both need into the ground or protocol, or pass it in"


def test_packages_of_pure_modules_are_pure() -> None:
    wrong = [module for module in modules() if part(module) in PURE and not is_pure(module)]
    assert [] == wrong, 'its docstring begins with "Pure."'


def test_module_names_are_nouns_of_the_field() -> None:
    wrong = [
        module for module in modules() if (name := module.rpartition(".")[2]).endswith(ENDINGS) and name not in NAMES
    ]
    assert [] == wrong, "name it after the thing that it has, or enter a noun of the field in NAMES"


def test_every_arrow_is_used() -> None:
    used = {(part(found.importer), part(found.name)) for found in imports() if ours(found)}
    assert [] == sorted({(name, other) for name, others in ARROWS.items() for other in others} - used)


def test_every_part_has_its_arrows() -> None:
    assert set() == {part(module) for module in modules()} - ARROWS.keys(), (
        "enter the new part in ARROWS, with what it may import"
    )


def test_pure_modules_import_nothing_with_effects() -> None:
    wrong = [str(found) for found in imports() if is_pure(found.importer) and is_any(found.name, IMPURE)]
    wrong += [
        str(found)
        for found in imports()
        if is_pure(found.importer) and found.name in modules() and not is_pure(found.name)
    ]
    assert [] == wrong, "pure modules take time, randomness and text as arguments, and import pure modules only"


def test_pure_modules_call_nothing_with_effects() -> None:
    calls = [
        f"{module}:{node.lineno} calls {node.func.id}"
        for module, tree in modules().items()
        if is_pure(module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
    ]
    assert [] == calls


def test_pure_modules_await_nothing() -> None:
    awaits = [
        f"{module}:{node.lineno}"
        for module, tree in modules().items()
        if is_pure(module)
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    ]
    assert [] == awaits


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Every import counts: at the top, in a function, or only for types, because a reader follows all of them."""
    graph = {
        module: {found.name for found in imports() if found.importer == module and found.name in modules()} - {module}
        for module in modules()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        raise AssertionError(
            f"{' <- '.join(cycle.args[1])}; move what two of these need into a module below both"
        ) from None


def test_mcp_is_imported_only_where_http_is_spoken_and_in_the_demo() -> None:
    wrong = [
        str(found)
        for found in imports()
        if is_any(found.name, frozenset({"mcp", "mcp_types"})) and part(found.importer) not in MCP
    ]
    assert [] == wrong, "frames pass as they came: the SDK's models would drop what they do not know"


def test_litellm_is_imported_in_the_worker_process_only() -> None:
    workers = {f"{PACKAGE}.sampler.worker.__main__"}
    for _ in modules():  # what only the worker's own files import belongs to the worker
        importers = {
            name: {found.importer for found in imports() if found.name == name}
            for name in modules()
            if part(name) == "sampler"
        }
        workers |= {name for name, by in importers.items() if by and by <= workers}
    wrong = [
        str(found)
        for found in imports()
        if is_any(found.name, frozenset({"litellm"})) and found.importer not in workers
    ]
    assert [] == wrong, "litellm takes 3 s and 170 MB and prints to stdout: it lives in the worker"


def test_what_only_unix_has_is_imported_where_it_is_used() -> None:
    wrong = [str(found) for found in imports() if is_any(found.name, UNIX_ONLY) and found.at_once and not found.guarded]
    assert [] == wrong, "import it in the function, or under `if sys.platform != 'win32'`"


def test_wrapping_a_server_imports_nothing_slow_at_once() -> None:
    on_the_way = {module for start in STARTS for module in reached_at_once(f"{PACKAGE}.{start}")}
    wrong = [
        str(found) for found in imports() if found.importer in on_the_way and found.at_once and is_any(found.name, SLOW)
    ]
    assert [] == wrong, "import it in the function that needs it"


def test_wrapping_a_server_imports_nothing_of_the_daemon_at_once() -> None:
    on_the_way = {module for start in STARTS for module in reached_at_once(f"{PACKAGE}.{start}")}
    assert set() == {module for module in on_the_way if module in DAEMONS or part(module) in DAEMONS}, (
        "import it in the function that needs it"
    )


def test_reviews_reads_the_settings_of_serve_without_pydantic() -> None:
    on_the_way = reached_at_once(f"{PACKAGE}.cli.reviews")
    assert f"{PACKAGE}.config.serve_settings" in on_the_way
    assert [] == [
        str(found)
        for found in imports()
        if found.importer in on_the_way and found.at_once and is_any(found.name, PYDANTIC)
    ]


def test_serving_imports_nothing_at_once_that_only_some_settings_need() -> None:
    """The page, models, servers over HTTP, JWTs and webhooks. `tests/system/serve/test_start.py` starts the process."""
    on_the_way = reached_at_once(f"{PACKAGE}.server.daemon")
    at_once = [found for found in imports() if found.importer in on_the_way and found.at_once and not found.guarded]
    wrong = [str(found) for found in at_once if is_any(found.name, SLOW - SERVING)]
    assert [] == wrong, "import it in the function that needs it"


def test_warning_of_a_webhook_at_the_start_of_run_imports_no_http_client() -> None:
    on_the_way = reached_at_once(f"{PACKAGE}.reviews.notify.endpoint")
    found = [one for one in imports() if one.importer in on_the_way and one.at_once and is_any(one.name, SLOW)]
    assert [] == [str(one) for one in found]


def test_nothing_imports_the_demo() -> None:
    assert [] == [
        str(found)
        for found in imports()
        if ours(found) and part(found.name) == "demo" and part(found.importer) != "demo"
    ]


PRIVATE: Final = re.compile(
    r"(?<!\bself)(?<!\bcls)\._[a-z]|\b(?:from|import) [^\n]*\b_[a-z]|\bimport \([^)]*\b_[a-z]", re.IGNORECASE
)
"""What the text of a file that uses a private name of another has in it. Most have not, and need not be parsed."""


INSTALLED: Final = {".envs", "node_modules"}


def python_files(folder: Path, without: Set[str]) -> Iterator[Path]:
    """The Python files of a folder, except those installed there."""
    for path in folder.iterdir():
        if path.suffix == ".py":
            yield path
        elif path.is_dir() and path.name not in without:
            yield from python_files(path, without)


def private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def library_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """The imports of libraries in a module: the line, the local name, and the library's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.asname or alias.name.split(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (node.lineno, alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names
            )


@pytest.mark.cpu(4)
def test_no_private_name_of_a_library_is_used() -> None:
    """Private names are not used in tests either. ruff (SLF001) finds private attributes of values in the source."""
    wrong: list[str] = []
    texts = {path: path.read_text("utf-8") for top in (SOURCE, TESTS) for path in python_files(top, INSTALLED)}
    trees = {path.relative_to(TESTS.parent): ast.parse(text) for path, text in texts.items() if PRIVATE.search(text)}
    for where, tree in trees.items():
        found = [one for one in library_names(tree) if one[2].split(".")[0] not in (PACKAGE, "tests", "bench")]
        wrong += [f"{where}:{line} imports {name}" for line, _, name in found if private(name)]
        known = {here for _, here, _ in found} - {"os"}  # os._exit has no public name
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and private(node.attr):
                base: ast.expr = node
                while isinstance(base, ast.Attribute):
                    base = base.value
                if isinstance(base, ast.Name) and base.id in known:
                    wrong.append(f"{where}:{node.lineno} uses {ast.unparse(node)}")
    assert [] == wrong, "use what the library offers; the next release may change the rest"
