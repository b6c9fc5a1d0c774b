"""The strings below the fields of a class, from the source of its module, which is parsed once."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any


def texts_below_fields(kind: type[Any]) -> Mapping[str, str]:
    """Return the string below each field of a class, without those of its bases.

    A class without source, such as one created by `defstruct`, has none.
    """
    return _module_texts(kind.__module__).get(kind.__qualname__, {})


@lru_cache(maxsize=1024)
def _module_texts(module: str) -> Mapping[str, Mapping[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {name: dict(_texts(node.body)) for name, node in _classes(tree.body, "")}


def _classes(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes of a module with their qualified names."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node
            yield from _classes(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(node.body, f"{prefix}{node.name}.<locals>.")


def _texts(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign):
            target: ast.expr = node.target
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
        else:
            continue
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if is_text and isinstance(target, ast.Name):
            text = after.value.value  # type: ignore[attr-defined]
            if isinstance(text, str):
                yield target.id, " ".join(text.split())
