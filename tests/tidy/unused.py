"""Which functions, classes and constants nothing in the package uses.

A rule that only a test calls is a promise that the product does not keep. Every definition at the
top of a module is a node, with an edge to each definition that its text names; whatever runs when a
module is imported, what users import and what a framework finds by its decorator are the roots. A
definition that no root leads to is reported, so two unused rules that call each other are found.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from tests.tidy.files import walk
from tests.tidy.imports import PACKAGE, Modules, module_name

Scope = Mapping[str, "Node"]
_CALLED = {"__getattr__", "__dir__"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Node(NamedTuple):
    """A definition at the top of a module."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Unit(NamedTuple):
    """A module's definitions, the code that runs on import, and what its names stand for."""

    definitions: Mapping[Node, ast.AST]
    on_import: list[ast.AST]
    scope: Scope
    packages: Mapping[str, str]
    """Names that stand for a module of the package: the name → the module."""


def unused(modules: Modules, public: Collection[str]) -> list[str]:
    """Return public definitions that no root leads to.

    public: what users import, as `module.name`; they are roots.
    """
    known = frozenset(module_name(path) for path in modules)
    units = {module_name(path): _unit(path, text, known) for path, text in modules.items()}
    exported = {
        node: target
        for name, unit in units.items()
        for alias, target in unit.scope.items()
        if (node := Node(name, alias)) not in unit.definitions
    }
    edges: dict[Node, set[Node]] = {}
    live = [Node(module, name) for module, _, name in (one.rpartition(".") for one in public)]
    for unit in units.values():
        for code in unit.on_import:
            live.extend(_named(code, unit))
        for node, code in unit.definitions.items():
            edges[node] = set(_named(code, unit)) - {node}
            if node.name in _CALLED or _is_found_by_decorator(code):
                live.append(node)
    seen: set[Node] = set()
    while live:
        node = live.pop()
        while node in exported:  # imported there from where it is defined
            node = exported[node]
        if node not in seen:
            seen.add(node)
            live.extend(edges.get(node, ()))
    return sorted(str(n) for n in edges if n not in seen and not n.name.startswith("_"))


def _unit(path: str, text: str, known: Collection[str]) -> Unit:
    tree = ast.parse(text, filename=path)
    module = module_name(path)
    definitions: dict[Node, ast.AST] = {}
    on_import: list[ast.AST] = []
    for statement in _flat(tree.body):
        names = _defined(statement)
        for name in names:
            definitions[Node(module, name)] = statement
        if not names and not isinstance(statement, ast.Import | ast.ImportFrom):
            on_import.append(statement)
    scope = {node.name: node for node in definitions}
    packages: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE):
            for alias in node.names:
                bound, full = alias.asname or alias.name, f"{node.module}.{alias.name}"
                if full in known:
                    packages[bound] = full
                else:
                    scope.setdefault(bound, Node(node.module, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(PACKAGE):
                    packages[alias.asname or alias.name] = alias.name
    return Unit(definitions, on_import, scope, packages)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at the top of a module, those in conditions included."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _flat([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            yield from _flat([*statement.body, *statement.orelse, *statement.finalbody])
            for handler in statement.handlers:
                yield from _flat(handler.body)
        else:
            yield statement


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, Definition):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    if isinstance(statement, ast.Assign):
        targets = [getattr(target, "elts", [target]) for target in statement.targets]
        return [one.id for found in targets for one in found if isinstance(one, ast.Name)]
    return []


def _named(code: ast.AST, unit: Unit) -> Iterator[Node]:
    """Yield the definitions that a piece of code names."""
    for node in walk(code):
        if isinstance(node, ast.Name) and node.id in unit.scope:
            yield unit.scope[node.id]
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in unit.packages:
                yield Node(unit.packages[node.value.id], node.attr)
            elif isinstance(node.value, ast.Call) and node.value.args:
                first = node.value.args[0]  # the name after import_module(…)
                if isinstance(first, ast.Constant) and str(first.value).startswith(PACKAGE):
                    yield Node(str(first.value), node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _spelled_out(node.value, unit)


def _spelled_out(text: str, unit: Unit) -> Iterator[Node]:
    """Yield what a string names: an annotation in quotes, or a module, a colon and a name."""
    if text in unit.scope:
        yield unit.scope[text]
    elif text.startswith(f"{PACKAGE}.") and ":" in text:
        module, _, name = text.partition(":")
        yield Node(module, name)


def _is_found_by_decorator(code: ast.AST) -> bool:
    """Return whether a framework holds the function: a command, a route, a hook."""
    if not isinstance(code, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    plain = {"lru_cache", "cache", "contextmanager", "overload", "functools.cache"}
    names = (ast.unparse(one).partition("(")[0] for one in code.decorator_list)
    return any(name.rpartition(".")[2] not in plain for name in names)
