"""Imports follow the order of subjects and the roles of modules; rules are pure; nothing is unused.

Each rule is applied to the real package and proved on a small package that breaks it: a rule that
cannot fail protects nothing.
"""

from pathlib import Path

import pytest

from penstock.cli.root import COMMANDS
from penstock.exports import PUBLIC_MODULES
from tests.tidy import imports as rules

SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def package() -> dict[str, str]:
    return rules.modules_read(SRC)


def small(**files: str) -> dict[str, str]:
    """Build modules from names such as `runs__a` (penstock/runs/a.py) and their text."""
    modules = {"penstock/__init__.py": ""}
    for name, text in files.items():
        path = name if name.startswith("__") else name.replace("__", "/")
        modules[f"penstock/{path}.py"] = text
    return modules


class TestPackage:
    """The rules, applied to the package."""

    def test_the_package_is_read(self, package: dict[str, str]) -> None:
        assert {"penstock/__init__.py", "penstock/testing/postgres/server.py"} <= set(package)

    def test_subjects_import_in_one_order(self, package: dict[str, str]) -> None:
        assert rules.order_faults(package) == []

    def test_roles(self, package: dict[str, str]) -> None:
        assert rules.role_faults(package) == []

    def test_rules_are_pure(self, package: dict[str, str]) -> None:
        assert rules.purity_faults(package) == []

    def test_no_cycles(self, package: dict[str, str]) -> None:
        assert rules.cycles(package) == []

    def test_lazy_imports_are_explained(self, package: dict[str, str]) -> None:
        assert rules.unexplained_lazy_imports(package) == []

    def test_packages_are_small(self, package: dict[str, str]) -> None:
        assert rules.crowded_packages(package) == []

    def test_every_module_is_used(self, package: dict[str, str]) -> None:
        commands = {f"penstock.{module}" for module, _ in COMMANDS.values()}
        assert rules.orphans(package, commands | set(PUBLIC_MODULES)) == []

    def test_class_names_have_one_meaning(self, package: dict[str, str]) -> None:
        assert rules.double_classes(package) == []


class TestOrder:
    """An import of a later subject is reported, wherever it stands; an earlier one is not."""

    @pytest.mark.parametrize(
        ("importer", "target"),
        [
            ("core__a", "db.store"),
            ("db__a", "audit.telemetry"),
            ("pipelines__a", "limits.rules"),
            ("runs__a", "schedules.rows"),
            ("runs__a", "flows.store.completions"),
            ("schedules__a", "flows.cascade"),
            ("bus__a", "dead_letters.store"),
            ("runs__client", "client"),
            ("limits__slots__registry", "assembly.process"),
            ("server__app", "runs.api"),
            ("runs__api", "assembly.routes"),
            ("assembly__process", "cli.root"),
            ("assembly__process", "runs.cli"),
            ("assembly__process", "testing.clock"),
            ("runs__sweeper", "db.sqlite.store"),
            ("db__sqlite__store", "db.postgres.store"),
            ("cli__root", "db.postgres.store"),
            ("runs__a", ""),
            ("unknown__a", "core.clock"),
        ],
    )
    def test_wrong_way(self, importer: str, target: str) -> None:
        module = f"penstock.{target}" if target else "penstock"
        plain = small(**{importer: f"import {module}"})
        assert len(rules.order_faults(plain)) == 1
        lazy = small(**{importer: f"def f():\n    import {module}  # why"})
        assert len(rules.order_faults(lazy)) == 1
        typed = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {module}"
        assert len(rules.order_faults(small(**{importer: typed}))) == 1
        named = f'import importlib\nimportlib.import_module("{module}")'
        assert len(rules.order_faults(small(**{importer: named}))) == 1

    @pytest.mark.parametrize(
        ("importer", "target"),
        [
            ("runs__a", "core.clock"),
            ("flows__a", "runs.rows"),
            ("runs__api", "server.params"),
            ("runs__cli", "cli.output"),
            ("assembly__routes", "runs.api"),
            ("assembly__process", "db.sqlite.store"),
            ("testing__postgres__server", "db.postgres.store"),
            ("demo__nba__pipeline", "client"),
            ("db__sqlite__store", "db.sqlite.transaction"),
        ],
    )
    def test_right_way(self, importer: str, target: str) -> None:
        assert rules.order_faults(small(**{importer: f"import penstock.{target}"})) == []


class TestRoles:
    """Rules, stores, services, use cases, routes and commands keep to what their role allows."""

    @pytest.mark.parametrize(
        ("importer", "target"),
        [
            ("runs__states", "runs__store__runs"),
            ("runs__states", "runs__client"),
            ("flows__advance__decide", "flows__advance__load"),
            ("runs__store__runs", "runs__client"),
            ("runs__client", "runs__api"),
            ("runs__api", "runs__store__runs"),
            ("runs__api_models", "runs__store__runs"),
            ("runs__cli", "runs__store__runs"),
            ("runs__cli", "runs__sweeper"),
            ("runs__states", "db__store"),
            ("runs__states", "egress__http_client"),
        ],
    )
    def test_forbidden(self, importer: str, target: str) -> None:
        text = f"import penstock.{target.replace('__', '.')}"
        modules = small(
            **{importer: text, target: "def run_once(): ..." if "swe" in target else ""}
        )
        assert len(rules.role_faults(modules)) == 1

    @pytest.mark.parametrize(
        ("importer", "target"),
        [
            ("runs__store__runs", "runs__states"),
            ("runs__store__runs", "db__store"),
            ("runs__client", "runs__store__runs"),
            ("runs__api", "runs__client"),
            ("runs__api", "server__params"),
            ("runs__cli", "cli__output"),
            ("bus__push__push_config", "egress__policy"),
        ],
    )
    def test_allowed(self, importer: str, target: str) -> None:
        text = f"import penstock.{target.replace('__', '.')}"
        assert rules.role_faults(small(**{importer: text, target: ""})) == []


class TestPurity:
    """Rules use the pure part of the standard library."""

    @pytest.mark.parametrize("module", ["psycopg", "click", "sqlite3", "socket", "urllib.request"])
    @pytest.mark.parametrize("importer", ["core__a", "runs__states", "flows__gates__gate"])
    def test_impure(self, importer: str, module: str) -> None:
        assert len(rules.purity_faults(small(**{importer: f"import {module}"}))) == 1

    @pytest.mark.parametrize("importer", ["runs__store__a", "runs__client", "db__a", "cli__a"])
    def test_other_roles(self, importer: str) -> None:
        assert rules.purity_faults(small(**{importer: "import socket, psycopg"})) == []

    def test_exceptions_are_by_module(self) -> None:
        assert rules.purity_faults(small(schedules__cadence="import cronsim")) == []
        assert len(rules.purity_faults(small(schedules__misfire="import cronsim"))) == 1


class TestCycles:
    """Cycles are found once each, function-level imports counted, types left out."""

    def test_two_and_three(self) -> None:
        two = small(core__a="import penstock.core.b", core__b="import penstock.core.a")
        assert rules.cycles(two) == ["penstock.core.a → penstock.core.b → penstock.core.a"]
        three = small(
            core__a="import penstock.core.b",
            core__b="def f():\n    import penstock.core.c",
            core__c="import penstock.core.a",
        )
        assert len(rules.cycles(three)) == 1

    def test_types_do_not_run(self) -> None:
        text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import penstock.core.a"
        typed = small(core__a="import penstock.core.b", core__b=text)
        assert rules.cycles(typed) == []


class TestLazyImports:
    """An import inside a function says why."""

    def test_explained(self) -> None:
        bare = small(core__a="def f():\n    import os")
        assert len(rules.unexplained_lazy_imports(bare)) == 1
        for text in ("def f():\n    import os  # rarely", "def f():\n    # rarely\n    import os"):
            assert rules.unexplained_lazy_imports(small(core__a=text)) == []
        assert rules.unexplained_lazy_imports(small(core__a="import os")) == []


class TestSizes:
    """A package has at most fifteen modules, and each is used."""

    def test_crowded(self) -> None:
        full = {f"runs__m{n}": "" for n in range(15)}
        assert rules.crowded_packages(small(**full)) == []
        assert rules.crowded_packages(small(**full, runs__m15="")) == ["penstock/runs: 16 modules"]

    def test_orphans(self) -> None:
        modules = small(
            core__a="import penstock.core.b",
            core__b="",
            core__c='if __name__ == "__main__": ...',
            runs__cli="",
        )
        assert rules.orphans(modules, {"penstock.runs.cli"}) == ["penstock.core.a"]

    def test_double_classes(self) -> None:
        modules = small(runs__a="class A: ...\nclass _P: ...", bus__b="class A: ...\nclass _P: ...")
        assert rules.double_classes(modules) == ["A: penstock.runs.a, penstock.bus.b"]
