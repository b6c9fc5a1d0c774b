"""Which names of Penstock a piece of user code takes, and which of them are private.

Functions take the text of a Python module or of a Markdown page, so that a test can feed them an
offending snippet.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from penstock.exports import PUBLIC_MODULES

PACKAGE = "penstock"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Used(NamedTuple):
    """A name that user code takes from a module; the name is empty for `import module`."""

    module: str
    name: str
    line: int


def page_faults(page: str, text: str) -> list[str]:
    """Return the private names that the Python blocks of a Markdown page use.

    Blocks of a page share their names, as they do when the page is executed.
    """
    lines = [""] * (text.count("\n") + 1)
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    return code_faults(page, "\n".join(lines))


def code_faults(path: str, text: str) -> list[str]:
    """Return the private names that a Python module uses."""
    return [
        f"{path}:{used.line} uses {'.'.join(part for part in used[:2] if part)}, which is private"
        for used in used_names(text)
        if not is_public(used.module, used.name)
    ]


def used_names(text: str) -> list[Used]:
    """Return what a module imports from Penstock, and the attributes of modules that it reads."""
    tree = ast.parse(text)
    found = list(_imported(tree))
    bound = dict(_bound_modules(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = bound.get(node.value.id)
            if module is not None:
                found.append(Used(module, node.attr, node.lineno))
    return found


def is_public(module: str, name: str) -> bool:
    """Return whether user code may take `name` from `module`, or import `module` itself."""
    if not name:
        return module in PUBLIC_MODULES
    if f"{module}.{name}" in PUBLIC_MODULES:
        return True
    return module in PUBLIC_MODULES and name in importlib.import_module(module).__all__


def _imported(tree: ast.Module) -> Iterator[Used]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module or ""):
            for alias in node.names:
                yield Used(node.module or "", alias.name, node.lineno)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name):
                    yield Used(alias.name, "", node.lineno)


def _bound_modules(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each local name that stands for a module of Penstock, and the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module or ""):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in PUBLIC_MODULES:
                    yield alias.asname or alias.name, full
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name):
                    full = alias.name if alias.asname else PACKAGE
                    yield alias.asname or PACKAGE, full


def _is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")
