"""Who may import whom: the arrows of the house, read from the syntax tree.

Every function takes modules as a mapping of path below `src` to text, so that a test can feed it a
tiny house that breaks one rule. Imports inside functions, conditions and `import_module("…")` count
like any other. Imports under TYPE_CHECKING count for the arrows, because a type is a dependency of
the reader, but not for cycles, because they never run.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "penstock"

ADAPTERS = frozenset({"egress", "probes", "sinks", "notify", "transports"})
_ENGINE_MAY = frozenset({"bus", "store", "events", "config", "core"})
_EDGE_MAY = frozenset({"client", "config", "events", "core", "root"})
_EVERYTHING = frozenset(
    {
        "core",
        "store",
        "bus",
        "engine",
        "client",
        "config",
        "events",
        "http",
        "remote",
        "web",
        "consumer",
        "limits",
        "root",
    }
    | ADAPTERS
)
# A room may always import itself. `root` is `penstock/__init__.py`, `main` is `__main__.py`.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "core": frozenset(),
    "config": frozenset({"core"}),
    "events": frozenset({"core"}),
    "store": frozenset({"core"}),
    "bus": frozenset({"store", "core", "events"}),
    "engine": _ENGINE_MAY,
    "client": _ENGINE_MAY,
    # For a user's own service: messages by the transport's seam, sinks by theirs, never the store.
    "consumer": frozenset({"bus", "egress", "sinks", "events", "config", "core"}),
    # For user code inside and outside of runs: slots and rates; without a client of the user's it
    # opens the store that the settings name.
    "limits": frozenset({"client", "store", "events", "config", "core", "assembly"}),
    "http": _EDGE_MAY,
    "web": _EDGE_MAY,
    # The client of the API: what it knows of the server is the document it was written from.
    "remote": frozenset({"core"}),
    "cli": _EDGE_MAY | {"assembly", "remote"},
    "assembly": _EVERYTHING | {"pushwork", "serving"},
    # Parts of assembly: they name adapters, never a driver.
    "pushwork": _EVERYTHING,
    "serving": _EVERYTHING | {"pushwork"},
    "testing": _EVERYTHING | {"assembly", "cli"},
    # The public surface; it loads names on first use.
    "root": frozenset({"core", "client", "config", "engine", "assembly", "consumer", "limits"}),
    "main": frozenset({"cli"}),
    **dict.fromkeys(ADAPTERS, frozenset({"core"})),
}
DRIVERS = ("penstock.db.sqlite.store", "penstock.db.postgres.store")
# Rooms that know the store by its topics and protocols, never by a concrete driver.
DRIVER_BLIND = frozenset({"bus", "engine", "client"})
CORE_EXTRA = {
    "penstock.schedules.cadence": frozenset({"cronsim"}),
    "penstock.core.exception_families": frozenset({"socket"}),  # for its exception types only
}
# Standard modules that do input or output; the core is pure.
CORE_BANNED = frozenset(
    {"asyncio", "http", "multiprocessing", "selectors", "socket", "sqlite3", "subprocess", "urllib"}
)

Modules = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement (or `import_module` call) and what it names."""

    importer: str
    target: str
    line: int
    inside_function: bool
    for_types_only: bool
    explained: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def modules_read(src: Path) -> dict[str, str]:
    """Return the package's modules: path below `src` → text."""
    return {
        path.relative_to(src).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((src / PACKAGE).rglob("*.py"))
    }


def module_name(path: str) -> str:
    """Return the dotted name of a module's path."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    """Return the room of a dotted name inside the package."""
    parts = module.split(".")
    if len(parts) == 1:
        return "root"
    if parts[1] == "__main__":
        return "main"
    if parts[1:3] == ["bus", "transports"]:
        return "transports"
    return parts[1]


def imports_of(modules: Modules) -> list[Import]:
    """Return every import of every module, targets resolved to modules where they are ours."""
    names = {module_name(path) for path in modules}
    found: list[Import] = []
    for path, text in modules.items():
        walker = _Walker(path, text, names)
        walker.visit(ast.parse(text, filename=path))
        found.extend(walker.found)
    return found


def arrow_faults(modules: Modules) -> list[str]:
    """Return imports that point the wrong way between rooms, or at a driver."""
    faults = []
    for item in imports_of(modules):
        room = room_of(item.importer)
        if room not in MAY_IMPORT:
            faults.append(f"{item.importer}: room {room!r} has no arrows yet; add it to MAY_IMPORT")
            continue
        if not _is_ours(item.target):
            continue
        target_room = room_of(item.target)
        if target_room != room and target_room not in MAY_IMPORT[room]:
            faults.append(f"{item}: {room} may not import {target_room}")
        driver = _driver_of(item.target)
        if driver and room in DRIVER_BLIND:
            faults.append(f"{item}: {room} may not name a driver; only assembly and testing may")
        own = _driver_of(item.importer)
        if driver and own and driver != own:
            faults.append(f"{item}: drivers may not import each other")
    return faults


def purity_faults(modules: Modules) -> list[str]:
    """Return imports of the core that are neither pure standard library nor the core itself."""
    faults = []
    for item in imports_of(modules):
        top = item.target.split(".")[0]
        if room_of(item.importer) != "core" or _is_ours(item.target):
            continue
        if top in CORE_EXTRA.get(item.importer, frozenset()):
            continue
        if top not in sys.stdlib_module_names:
            faults.append(f"{item}: the core uses the standard library only")
        elif top in CORE_BANNED:
            faults.append(f"{item}: the core does no input or output")
    return faults


def unexplained_lazy_imports(modules: Modules) -> list[str]:
    """Return imports inside functions without a comment on their line or the line above."""
    return [
        f"{item}: an import inside a function needs a comment that says why"
        for item in imports_of(modules)
        if item.inside_function and not item.explained
    ]


def cycles(modules: Modules) -> list[str]:
    """Return import cycles between modules, one chain each, function-level imports counted."""
    graph: dict[str, set[str]] = {module_name(path): set() for path in modules}
    for item in imports_of(modules):
        if item.target in graph and item.target != item.importer and not item.for_types_only:
            graph[item.importer].add(item.target)
    chains = {_canonical(chain) for start in sorted(graph) if (chain := _way_back(graph, start))}
    return [" → ".join((*chain, chain[0])) for chain in sorted(chains)]


def _way_back(graph: Mapping[str, set[str]], start: str) -> tuple[str, ...] | None:
    """Return the shortest chain of imports that leads from `start` to itself, if there is one."""
    chains: list[tuple[str, ...]] = [(start,)]
    seen = set()
    for chain in chains:
        for target in sorted(graph[chain[-1]]):
            if target == start:
                return chain
            if target not in seen:
                seen.add(target)
                chains.append((*chain, target))
    return None


def _canonical(chain: tuple[str, ...]) -> tuple[str, ...]:
    least = chain.index(min(chain))
    return chain[least:] + chain[:least]


def _is_ours(target: str) -> bool:
    return target == PACKAGE or target.startswith(f"{PACKAGE}.")


def _driver_of(module: str) -> str | None:
    for driver in DRIVERS:
        if module == driver or module.startswith((f"{driver}.", f"{driver}_")):
            return driver
    return None


class _Walker(ast.NodeVisitor):
    """Collects the imports of one module, knowing where in it each stands."""

    def __init__(self, path: str, text: str, names: set[str]) -> None:
        self.found: list[Import] = []
        self._module = module_name(path)
        self._is_package = path.endswith("__init__.py")
        self._lines = text.splitlines()
        self._names = names
        self._functions = 0
        self._types_only = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) not in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            self.generic_visit(node)
            return
        self._types_only += 1
        for child in node.body:
            self.visit(child)
        self._types_only -= 1
        for child in node.orelse:
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parts = self._module.split(".")
            keep = len(parts) - node.level + (1 if self._is_package else 0)
            base = ".".join([*parts[:keep], *([base] if base else [])])
        for target in sorted(set(self._targets(base, node.names))):
            self._add(node, target)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if name in {"import_module", "importlib.import_module", "__import__"} and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self._add(node, argument.value)
        self.generic_visit(node)

    def _targets(self, base: str, aliases: list[ast.alias]) -> Iterator[str]:
        for alias in aliases:
            full = f"{base}.{alias.name}"
            yield full if full in self._names else base

    def _add(self, node: ast.stmt | ast.expr, target: str) -> None:
        above = self._lines[node.lineno - 2].strip() if node.lineno > 1 else ""
        own = self._lines[node.lineno - 1 : node.end_lineno]
        self.found.append(
            Import(
                importer=self._module,
                target=target,
                line=node.lineno,
                inside_function=self._functions > 0,
                for_types_only=self._types_only > 0,
                explained=above.startswith("#") or any("#" in line for line in own),
            )
        )
