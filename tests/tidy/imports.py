"""Who may import whom, by subject and by role, read from the syntax tree.

Every function takes modules as a mapping of path below `src` to text, so that a test can feed it a
small package that breaks one rule. Imports inside functions, conditions and `import_module("…")`
count like any other. Imports under TYPE_CHECKING count for the order, because a type is a
dependency of the reader, but not for cycles, because they never run.
"""

import ast
import functools
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "penstock"

SUBJECTS = (
    "exports",
    "core",
    "egress",
    "db",
    "audit",
    "telemetry",
    "access",
    "shipping",
    "pipelines",
    "limits",
    "entities",
    "runs",
    "schedules",
    "tracking",
    "flows",
    "bus",
    "dead_letters",
    "recovery",
    "worker",
    "detection",
    "analytics",
    "slos",
    "usage",
    "monitoring",
    "alerts",
    "wiring",
    "client",
    "assets",
    "services",
    "probes",
    "sinks",
    "consumer",
    "server",
    "pubsub_wire",
    "routes",
    "web",
    "remote",
    "assembly",
    "cli",
    "commands",
    "scaffold",
    "demo",
    "testing",
)
"""Every package in import order: a module imports its own package and those before it.

`routes` and `commands` stand for the `api.py` and `cli.py` of every subject: they are edges over
the plumbing of the server and the command line, and only assembly imports them.
"""
EDGES = frozenset(
    {
        *("server", "pubsub_wire", "routes", "web", "remote", "assembly"),
        *("cli", "commands", "scaffold", "demo", "testing"),
    }
)
"""Packages outside the roles: they build, serve, print or test."""
ADAPTERS = frozenset({"egress", "db", "telemetry", "probes", "sinks", "consumer"})
"""Packages that talk to the world outside; roles inside them are their own business."""
NAMES_DRIVERS = frozenset({"assembly", "testing", "demo", "db"})
DRIVERS = ("penstock.db.sqlite", "penstock.db.postgres")
MODULES_MAX = 15

ROLE_MAY_USE: Mapping[str, frozenset[str]] = {
    "rules": frozenset({"rules"}),
    "store": frozenset({"rules", "store", "adapter"}),
    "service": frozenset({"rules", "store", "client", "service", "adapter"}),
    "client": frozenset({"rules", "store", "client", "adapter"}),
    "api": frozenset({"rules", "client", "api", "edge"}),
    "cli": frozenset({"rules", "client", "cli", "edge"}),
}
"""Which roles a module of a role may import, in its own subject and in those below it."""

PURE_EXTRA = {
    "penstock.schedules.cadence": frozenset({"cronsim"}),
    "penstock.core.exception_families": frozenset({"socket"}),  # for its exception types only
}
IMPURE = frozenset(
    {"asyncio", "http", "multiprocessing", "selectors", "socket", "sqlite3", "subprocess", "urllib"}
)
"""Standard modules that do input or output: rules do not import them."""
SERVICES = frozenset(
    {
        "penstock.alerts.channels.delivery",
        "penstock.bus.push.attempt",
        "penstock.bus.push.sender",
        "penstock.bus.push.signing_keys",
    }
)
"""Modules that are part of a service without defining `run_once`."""
CLIENTS = frozenset({"penstock.client", "penstock.wiring", "penstock.limits", "penstock.bus"})
CLIENT_KITS = ("penstock.limits.slots", "penstock.limits.bigquery", "penstock.bus.transports")
"""What user code calls beside `Client`: it takes a store and starts transactions."""
PURE_ADAPTERS = frozenset(
    {
        "penstock.egress.policy",
        "penstock.egress.oidc",
        "penstock.egress.addresses",
        "penstock.telemetry.catalog",
    }
)
"""Rules that lie with the adapter they are about."""
OPENS_FILES = frozenset({"penstock.access.secrets", "penstock.pipelines.loading"})
"""Small adapters that lie with their subject: they read files, the environment or modules."""

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


def subject_of(module: str) -> str:
    """Return the place of a module in the import order: its package, `routes` or `commands`."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "root"
    if parts[1] in EDGES - {"assembly", "testing"}:
        return parts[1]
    return {"api": "routes", "cli": "commands"}.get(_edge_of(parts), parts[1])


def _edge_of(parts: Sequence[str]) -> str:
    """Return `api` or `cli` for the edges of a subject."""
    for part in parts[2:]:
        if part == "cli" or (parts[1] != "assembly" and part == "api"):
            return part
        if part.startswith("api_") and part not in {"api_keys", "api_reference"}:
            return "api"
    return ""


def role_of(module: str, text: str = "") -> str:
    """Return the role of a module, by its name and, for services, by what it defines."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "edge"
    edge = _edge_of(parts)
    if edge and parts[1] not in EDGES - {"assembly", "testing"}:
        return edge
    if parts[1] in EDGES:
        return "edge"
    if parts[1] in ADAPTERS or module in OPENS_FILES:
        return "rules" if module in PURE_ADAPTERS else "adapter"
    if module in CLIENTS or module.startswith(CLIENT_KITS):
        return "client"
    for part in parts[2:]:
        if part in {"client", "from_rows"}:
            return "client"
        if part in {"store", "load", "write", "hooks"}:
            return "store"
    if module in SERVICES or parts[1] in {"worker", "services"} or "def run_once" in text:
        return "service"
    return "rules"


def imports_of(modules: Modules) -> list[Import]:
    """Return every import of every module, targets resolved to modules where they are ours."""
    names = frozenset(module_name(path) for path in modules)
    return [item for path, text in modules.items() for item in _read(path, text, names)[0]]


@functools.cache
def _read(path: str, text: str, names: frozenset[str]) -> tuple[list[Import], list[str]]:
    """Return the imports of a module, and the public classes at its top."""
    walker = _Walker(path, text, names)
    tree = ast.parse(text, filename=path)
    walker.visit(tree)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return walker.found, [name for name in classes if not name.startswith("_")]


def order_faults(modules: Modules) -> list[str]:
    """Return imports of a package that comes later in the order, and drivers named too low."""
    rank = {subject: place for place, subject in enumerate(SUBJECTS)}
    faults = []
    for item in imports_of(modules):
        subject = subject_of(item.importer)
        if not _is_ours(item.target) or subject == "root":
            continue
        if subject not in rank:
            faults.append(f"{item.importer}: package {subject!r} is not in SUBJECTS")
            continue
        target = subject_of(item.target)
        if (target == "root" and subject != "demo") or target not in {*rank, "root"}:
            faults.append(f"{item}: import the module that defines it")
        elif target in rank and rank[target] > rank[subject]:
            faults.append(f"{item}: {subject} comes before {target}")
        driver, own = _driver_of(item.target), _driver_of(item.importer)
        if driver and driver != own and (own or subject not in NAMES_DRIVERS):
            faults.append(f"{item}: {own or subject} may not name a driver")
    return faults


def role_faults(modules: Modules) -> list[str]:
    """Return imports that a module's role forbids."""
    texts = {module_name(path): text for path, text in modules.items()}
    roles = {name: role_of(name, text) for name, text in texts.items()}
    faults = []
    for item in imports_of(modules):
        role = roles[item.importer]
        target = roles.get(item.target)
        if target is None or role not in ROLE_MAY_USE:
            continue
        if target not in ROLE_MAY_USE[role]:
            faults.append(f"{item}: {role} may not import {target}")
    return faults


def purity_faults(modules: Modules) -> list[str]:
    """Return imports of rules that are neither pure standard library nor rules themselves."""
    faults = []
    names = frozenset(module_name(path) for path in modules)
    for path, text in modules.items():
        name = module_name(path)
        if role_of(name, text) != "rules" or path.endswith("__init__.py"):
            continue
        for item in _read(path, text, names)[0]:
            top = item.target.split(".")[0]
            if _is_ours(item.target) or top in PURE_EXTRA.get(name, frozenset()) | {"msgspec"}:
                continue
            if top not in sys.stdlib_module_names:
                faults.append(f"{item}: rules use the standard library only")
            elif top in IMPURE:
                faults.append(f"{item}: rules do no input or output")
    return faults


def crowded_packages(modules: Modules) -> list[str]:
    """Return packages with more than the allowed number of modules."""
    counts = Counter(
        path.rpartition("/")[0] for path in modules if not path.endswith("__init__.py")
    )
    return [f"{name}: {n} modules" for name, n in sorted(counts.items()) if n > MODULES_MAX]


def orphans(modules: Modules, loaded: Collection[str]) -> list[str]:
    """Return modules that nothing imports, that are not loaded by name, and that are no program."""
    imported = {item.target for item in imports_of(modules)}
    return [
        name
        for path, text in modules.items()
        if not path.endswith(("__init__.py", "__main__.py"))
        and (name := module_name(path)) not in imported
        and name not in loaded
        and '__name__ == "__main__"' not in text
    ]


def double_classes(modules: Modules) -> list[str]:
    """Return class names that two modules give to different things."""
    homes: dict[str, list[str]] = {}
    names = frozenset(module_name(path) for path in modules)
    for path, text in modules.items():
        name = module_name(path)
        if subject_of(name) in {"remote", "demo"} or role_of(name) == "api":
            continue
        for defined in _read(path, text, names)[1]:
            homes.setdefault(defined, []).append(name)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(homes.items()) if found[1:]]


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
        if module == driver or module.startswith(f"{driver}."):
            return driver
    return None


def _dotted(node: ast.expr) -> str:
    """Return `name` or `module.name`; nothing for other expressions."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


class _Walker(ast.NodeVisitor):
    """Collects the imports of one module, knowing where in it each stands."""

    def __init__(self, path: str, text: str, names: frozenset[str]) -> None:
        self.found: list[Import] = []
        self._module = module_name(path)
        self._is_package = path.endswith("__init__.py")
        self._lines = text.splitlines()
        self._names = names
        self._functions = 0
        self._types_only = 0
        self._has_calls = "import_module" in text or "__import__" in text

    def visit(self, node: ast.AST) -> None:
        """Visit a node; an expression only where a call may import."""
        if self._has_calls or not isinstance(node, ast.expr):
            super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_If(self, node: ast.If) -> None:
        if _dotted(node.test) not in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
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
        name = _dotted(node.func)
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
