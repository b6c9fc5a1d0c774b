"""Loading declared pipelines: by module, by module and attribute, or by file.

The command line and `assembly` call this. Importing a user's module runs the user's code, so every
failure is reported with the target's name and the original error; none is swallowed.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from penstock.core.errors import DeclarationError, InvalidInput
from penstock.pipelines.declare.pipeline import Pipeline

FIELD = "pipelines"


def load_pipelines(targets: Sequence[str]) -> list[Pipeline]:
    """Return the pipelines of `package.module`, `package.module:attribute` or `path/to/file.py`.

    A file is imported under its own name with its folder on sys.path, so that child processes
    find it too. Raises InvalidInput (bad target, failed import, no pipeline, duplicate name) and
    DeclarationError (a pipeline is inconsistent).
    """
    found: dict[str, tuple[Pipeline, str]] = {}
    for target in targets:
        for pipeline in _pipelines_of(target):
            try:
                pipeline.check()
            except DeclarationError as error:
                raise DeclarationError(f"{target}: {error.message}") from None
            earlier = found.get(pipeline.name)
            if earlier is not None and earlier[0] is not pipeline:
                fix = f"It is declared in {earlier[1]} and in {target}: rename one."
                raise InvalidInput(FIELD, "pipelines with different names", pipeline.name, fix)
            found.setdefault(pipeline.name, (pipeline, target))
    return [pipeline for pipeline, _ in found.values()]


def load_module(target: str) -> ModuleType:
    """Import `package.module` or `path/to/file.py`; raise InvalidInput if it cannot be imported."""
    where = target.partition(":")[0]
    if not where or (where.startswith(".") and not where.endswith(".py")):
        expected = "a file such as pipeline.py or a module such as shop.pipeline"
        raise InvalidInput(FIELD, expected, target)
    if where.endswith(".py"):
        return _import_file(target, Path(where))
    return _import_module(target, where)


def _pipelines_of(target: str) -> list[Pipeline]:
    where, _, attribute = target.partition(":")
    module = load_module(target)
    if not attribute:
        inside = [value for value in vars(module).values() if isinstance(value, Pipeline)]
        if not inside:
            fix = 'Declare one at the top level: name = Pipeline("name").'
            raise InvalidInput(FIELD, "a module that defines a Pipeline", target, fix)
        return list(dict.fromkeys(inside))
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise InvalidInput(FIELD, f"an attribute of {where}", attribute, "Check its spelling.")
        value = getattr(value, part)
    if not isinstance(value, Pipeline):
        raise InvalidInput(FIELD, f"{target} to be a Pipeline", type(value).__name__)
    return [value]


def _import_file(target: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidInput(FIELD, "an existing file", str(path), "Check the path.")
    path = path.resolve()
    if not path.stem.isidentifier():
        fix = "Rename it to letters, digits and underscores."
        raise InvalidInput(FIELD, "a file name that can be imported", path.name, fix)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = _import_module(target, path.stem)
    origin = getattr(module, "__file__", None)
    if origin is None or Path(origin).resolve() != path:
        fix = f"Another module is called {path.stem!r} ({origin}): rename the file."
        raise InvalidInput(FIELD, "a file name that no other module has", str(path), fix)
    return module


def _import_module(target: str, name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            fix = f"There is no module {missing!r} on the path; run where Python can import it."
            raise InvalidInput(FIELD, "a module that can be imported", target, fix) from error
        fix = f"It imports {missing!r}, which is not installed{_position(error)}."
        raise InvalidInput(FIELD, "a module that can be imported", target, fix) from error
    except Exception as error:
        position = "" if isinstance(error, SyntaxError) else _position(error)  # it has its own
        fix = f"Its import failed: {type(error).__name__}: {str(error).removesuffix('.')}{position}"
        raise InvalidInput(FIELD, "a module that can be imported", target, fix) from error


def _position(error: Exception) -> str:
    """Return the file and line of the innermost frame in the user's code; empty if it has none."""
    installed = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))
    standard = f"{Path(os.__file__).parent}{os.sep}"
    skipped = ("<", f"{Path(__file__).parents[1]}{os.sep}")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(skipped)
        and (frame.filename.startswith(installed) or not frame.filename.startswith(standard))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(installed)]
    found = (own or frames)[-1:]
    return "".join(f" ({Path(one.filename).name}, line {one.lineno})" for one in found)
