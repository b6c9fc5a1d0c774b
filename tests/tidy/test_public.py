"""The public surface: explicit, complete, cheap to import, and all that docs and examples use."""

import ast
import dataclasses
import importlib
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock
from penstock import Client
from penstock.exports import PUBLIC_MODULES, lazy_exports
from penstock.testing.memory import memory_store
from tests.tidy import public

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
LAZY = [name for name in PUBLIC_MODULES if hasattr(importlib.import_module(name), "_HOMES")]
HEAVY = (
    "click", "duckdb", "httptools", "msgspec", "prometheus_client", "psycopg",
    "pysqlite3", "rich", "sqlite3", "starlette", "uvicorn", "penstock.assembly", "penstock.client",
)  # fmt: skip
INTERNAL_USE_CASES = {"work"}
"""Use cases that only the API calls: external workers and programs that page over HTTP use it."""


def by_path(path: Path) -> str:
    """Return the name of a test case."""
    return str(path.relative_to(ROOT))


class TestUsers:
    """Documentation and examples import public names only."""

    @pytest.mark.parametrize("page", PAGES, ids=by_path)
    def test_pages(self, page: Path) -> None:
        assert public.page_faults(by_path(page), page.read_text("utf-8")) == []

    @pytest.mark.parametrize("example", EXAMPLES, ids=by_path)
    def test_examples(self, example: Path) -> None:
        assert public.code_faults(by_path(example), example.read_text("utf-8")) == []

    def test_something_is_checked(self) -> None:
        used = [name for path in EXAMPLES for name in public.used_names(path.read_text("utf-8"))]
        assert len(used) > 20

    @pytest.mark.parametrize(
        "code",
        [
            "from penstock.runs.store.runs import RunFilter",
            "from penstock import exports",
            "from penstock import nonsense",
            "from penstock.bus import message",
            "import penstock.core.ids",
            "from penstock.core.ids import encode",
            "def f():\n    from penstock.testing.flow import FlowTest",
            "import penstock\nx: penstock.core",
            "from penstock import limits\nlimits.slots",
            "import penstock.limits as bounds\nbounds.broker_here",
        ],
    )
    def test_private_names_are_reported(self, code: str) -> None:
        assert len(public.code_faults("a.py", code)) == 1
        page = f"# A page\n\n```python\nimport json\n```\n\n```python\n{code}\n```\n"
        assert len(public.page_faults("a.md", page)) == 1

    @pytest.mark.parametrize(
        "code",
        [
            "from penstock import Submission, limits\nlimits.slot(Submission)",
            "import penstock\npenstock.connect()",
            "import penstock.limits as bounds\nbounds.slot",
            "from penstock.limits import bigquery\nbigquery.dml",
            "import json\njson.penstock",
        ],
    )
    def test_public_names_are_not(self, code: str) -> None:
        assert public.code_faults("a.py", code) == []

    def test_lines_are_those_of_the_page(self) -> None:
        page = "# A\n\n```python\nimport json\n```\ntext\n```python\nimport penstock.core\n```\n"
        assert public.page_faults("a.md", page) == ["a.md:8 uses penstock.core, which is private"]


class TestModules:
    """Each public module lists its names, and every name exists and is documented."""

    @pytest.mark.parametrize("name", PUBLIC_MODULES)
    def test_every_name_loads(self, name: str) -> None:
        module = importlib.import_module(name)
        assert module.__doc__
        assert len(set(module.__all__)) == len(module.__all__)
        for item in module.__all__:
            assert getattr(module, item) is not None, item

    @pytest.mark.parametrize("name", LAZY)
    def test_dir_lists_exactly_the_public_names(self, name: str) -> None:
        module = importlib.import_module(name)
        assert dir(module) == sorted(module.__all__)

    @pytest.mark.parametrize("name", LAZY)
    def test_type_checkers_see_the_same_names(self, name: str) -> None:
        """The imports for type checkers, the lazy loader and `__all__` agree."""
        module = importlib.import_module(name)
        assert dict(typed_imports(module)) == {
            item: home if ":" in home else f"{home}:{item}" for item, home in module._HOMES.items()
        }
        assert set(module._HOMES) == set(module.__all__) - {"__version__"}

    def test_an_unknown_name(self) -> None:
        with pytest.raises(AttributeError, match="nonsense"):
            penstock.nonsense  # type: ignore[attr-defined]  # noqa: B018
        load, names = lazy_exports("penstock.bus", {"Nack": "penstock.bus.message"})
        assert names() == ["Nack"]
        with pytest.raises(AttributeError, match=r"module 'penstock\.bus' has no attribute 'Mack'"):
            load("Mack")

    def test_client_takes_public_types_only(self) -> None:
        """A program can build every argument of every use case from public names."""
        known = {
            getattr(module, item)
            for module in map(importlib.import_module, PUBLIC_MODULES)
            for item in module.__all__
            if isinstance(getattr(module, item), type)
        }
        mentioned = list(mentioned_types(Client(memory_store())))
        known |= {kind for _, is_returned, kind in mentioned if is_returned}
        private = {
            f"{call}: {kind.__module__}.{kind.__qualname__}"
            for call, _, kind in mentioned
            if kind.__module__.startswith("penstock") and kind not in known
        }
        assert private == set()


class TestCost:
    """Importing Penstock is cheap, and its types ship."""

    @pytest.mark.parametrize("name", ["penstock", "penstock.bus", "penstock.sinks"])
    def test_no_driver_and_no_framework_is_loaded(self, name: str) -> None:
        code = f"import sys, {name}\nprint([m for m in {HEAVY!r} if m in sys.modules])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.stdout, done.stderr) == ("[]\n", "")

    def test_types_ship(self) -> None:
        assert files("penstock").joinpath("py.typed").is_file()

    def test_dir(self) -> None:
        assert dir(penstock) == sorted(penstock.__all__)


def typed_imports(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield each name that a module imports for type checkers, and `module:name` of its origin."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for item in node.body:
                if isinstance(item, ast.ImportFrom):
                    for alias in item.names:
                        yield alias.asname or alias.name, f"{item.module}:{alias.name}"


def mentioned_types(client: Client) -> Iterator[tuple[str, bool, type]]:
    """Yield (use case, whether it is returned, class) for the classes in a client's signatures."""
    for group, use_cases in vars(client).items():
        if group.startswith("_") or group in {"store", "actor"}:
            continue
        for name, method in inspect.getmembers(use_cases, inspect.ismethod):
            call = f"{group}.{name}"
            if not name.startswith("_") and not {group, call} & INTERNAL_USE_CASES:
                for argument, hint in typing.get_type_hints(method).items():
                    is_returned = argument == "return"
                    for kind in classes_in(hint, with_fields=not is_returned):
                        yield call, is_returned, kind


def classes_in(hint: Any, *, with_fields: bool) -> Iterator[type]:
    """Yield the classes inside a type hint and, if asked, those of a record's fields."""
    if isinstance(hint, type):
        yield hint
        if with_fields and dataclasses.is_dataclass(hint):
            for inner in typing.get_type_hints(hint).values():
                yield from classes_in(inner, with_fields=True)
    for part in typing.get_args(hint):
        yield from classes_in(part, with_fields=with_fields)
