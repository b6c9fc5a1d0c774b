"""The functions of the product that read foreign input by their name, and those that need no proof.

A function belongs in the table if its name says that it parses, reads, decodes or loads, and a
parameter can carry text, bytes or a value; methods only if they parse or decode. Functions over a
transaction read what the store holds.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import penstock

SOURCE: Final = Path(penstock.__file__).parent
TABLE: Final = ("declared", "typed", "wire")

_FUNCTION: Final = re.compile(r"_?(parse|read|decode|loads?)(_|$)")
_METHOD: Final = re.compile(r"(parse|decode)(_|$)")
_INPUT: Final = re.compile(r"\b(str|bytes|object|Any|Path|Request)\b")
_OWN: Final = re.compile(r"\b(Tx|App|Context|UseCaseGroups)\b")
"""Parameters of functions that read the store, or run after the command line was parsed."""

STEPS: Final[dict[str, str]] = {
    "penstock.core.clock._parse_duration_text": "duration",
    "penstock.core.ids._read": "public id",
    "penstock.core.records.record.decode_custom": "subscription",
    "penstock.core.records.record.decode_record": "response of the API",
    "penstock.pipelines.declare.declaration_options._read": "options of a processor",
    "penstock.schedules.cadence._parse": "cron expression",
    "penstock.schedules.cadence.parse": "cron expression",
}
"""Steps of functions in the table, and the parser of the table that runs them."""

EXEMPT: Final[dict[str, str]] = {
    "penstock.bus.push.push_config.parse_stored_push": "reads what parse_push accepted and stored",
    "penstock.core.stored_json.loads": "reads records that Penstock wrote to its database",
    "penstock.db.statements.parse": "reads the SQL files of Penstock's own package",
    "penstock.worker.execution.call.load_function": (
        "imports a function by the name that Penstock took from a loaded pipeline"
    ),
}
"""Functions that read nothing foreign, and why."""


def functions_found(source: Path = SOURCE) -> set[str]:
    """Return the functions and methods that must be in the table or exempt, by dotted name."""
    return {
        f"{module}.{name}"
        for path in source.rglob("*.py")
        for module in [_module(path.relative_to(source))]
        for name in _functions(ast.parse(path.read_text("utf-8")))
    }


def functions_in_table() -> set[str]:
    """Return the functions of the product that the modules of the table name."""
    found = set()
    for part in TABLE:
        module = importlib.import_module(f"tests.prove.parsers.{part}")
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            value: object = None
            if isinstance(node, ast.Name):
                value = getattr(module, node.id, None)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                value = getattr(getattr(module, node.value.id, None), node.attr, None)
            value = inspect.unwrap(value) if callable(value) else None
            if inspect.isroutine(value):
                found.add(f"{value.__module__}.{value.__qualname__}")
    return found


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("penstock", *parts[: -1 if parts[-1] == "__init__" else None]))


def _functions(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if _FUNCTION.match(node.name) and _reads_input(node):
                yield node.name
        elif isinstance(node, ast.ClassDef):
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef))
            for method in methods:
                if _METHOD.match(method.name) and _reads_input(method):
                    yield f"{node.name}.{method.name}"


def _reads_input(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = node.args
    parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    kinds = " ".join(
        ast.unparse(one.annotation) for one in parameters if one is not None and one.annotation
    )
    return bool(_INPUT.search(kinds)) and not _OWN.search(kinds)
