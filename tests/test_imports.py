"""The arrows between rooms hold, the core is pure, and no modules import each other in a circle.

Each rule is applied to the real package and proved on a tiny house that breaks it: a rule that
cannot fail protects nothing.
"""

from pathlib import Path

import pytest

from tests.rules import imports as rules

SRC = Path(__file__).parents[1] / "src"


@pytest.fixture(scope="module")
def package() -> dict[str, str]:
    return rules.modules_read(SRC)


def house(**files: str) -> dict[str, str]:
    """Build modules from names such as `core__a` (penstock/core/a.py) and their text."""
    modules = {"penstock/__init__.py": ""}
    for name, text in files.items():
        path = name if name.startswith("__") else name.replace("__", "/", 1)
        modules[f"penstock/{path}.py"] = text
    return modules


class TestPackage:
    """The rules, applied to the package."""

    def test_the_package_is_read(self, package: dict[str, str]) -> None:
        """The rules look at real modules, not at an empty folder."""
        assert "penstock/__init__.py" in package
        assert "penstock/testing/postgres.py" in package

    def test_arrows(self, package: dict[str, str]) -> None:
        """Every import between rooms follows an arrow."""
        assert rules.arrow_faults(package) == []

    def test_core_is_pure(self, package: dict[str, str]) -> None:
        """The core imports the standard library and itself, and no input or output."""
        assert rules.purity_faults(package) == []

    def test_no_cycles(self, package: dict[str, str]) -> None:
        """No module reaches itself through imports, function-level ones counted."""
        assert rules.cycles(package) == []

    def test_lazy_imports_are_explained(self, package: dict[str, str]) -> None:
        """An import inside a function carries its reason."""
        assert rules.unexplained_lazy_imports(package) == []


class TestArrows:
    """Each forbidden arrow is seen; each allowed one is not."""

    @pytest.mark.parametrize(
        ("importer", "target"),
        [
            ("core__a", "store.api"),
            ("core__a", "config"),
            ("store__runs", "bus.publish"),
            ("store__runs", "events"),
            ("config", "client"),
            ("events", "store.api"),
            ("bus__publish", "engine.worker"),
            ("bus__publish", "config"),
            ("bus__publish", "store.sqlite"),
            ("engine__worker", "client"),
            ("engine__worker", "store.postgres"),
            ("engine__worker", "store.postgres_pool"),
            ("engine__worker", "probes.duckdb"),
            ("client", "engine.worker"),
            ("client", "store.sqlite"),
            ("http__app", "store.api"),
            ("http__app", "assembly"),
            ("http__app", "web.pages"),
            ("web__pages", "engine.worker"),
            ("cli__runs", "engine.worker"),
            ("cli__runs", "store.sqlite"),
            ("cli__demo", "testing.postgres"),
            ("assembly", "testing.postgres"),
            ("assembly", "cli.runs"),
            ("engine__worker", "assembly"),
            ("probes__duckdb", "sinks.audit"),
            ("sinks__audit", "store.api"),
            ("notify__webhook", "config"),
            ("store__sqlite", "store.postgres"),
            ("store__postgres", "store.sqlite"),
            ("store__sqlite", "store.postgres.pool"),
            ("__main__", "client"),
        ],
    )
    def test_wrong_way(self, importer: str, target: str) -> None:
        """The import is reported, at module level and inside a function alike."""
        plain = house(**{importer: f"import penstock.{target}"})
        assert len(rules.arrow_faults(plain)) == 1
        lazy = house(**{importer: f"def f():\n    from penstock.{target} import x  # why"})
        assert len(rules.arrow_faults(lazy)) == 1

    @pytest.mark.parametrize(
        ("importer", "target"),
        [
            ("store__runs", "core.states"),
            ("store__sqlite", "store.runs"),
            ("bus__publish", "store.messages"),
            ("bus__publish", "events"),
            ("engine__worker", "store.runs"),
            ("engine__worker", "bus.publish"),
            ("client", "config"),
            ("http__app", "client"),
            ("cli__up", "assembly"),
            ("cli__runs", "client"),
            ("__main__", "cli"),
            ("assembly", "store.postgres"),
            ("assembly", "probes.duckdb"),
            ("testing__harness", "assembly"),
            ("testing__harness", "store.sqlite"),
            ("probes__duckdb", "core.gate"),
        ],
    )
    def test_right_way(self, importer: str, target: str) -> None:
        """The import is allowed."""
        assert rules.arrow_faults(house(**{importer: f"import penstock.{target}"})) == []

    def test_root_never_offers_the_store(self) -> None:
        """`penstock/__init__.py` offers what users need, never a driver or a topic."""
        fine = {"penstock/__init__.py": "from penstock.client import Client"}
        assert rules.arrow_faults(fine) == []
        wrong = {"penstock/__init__.py": "from penstock.db.sqlite.store import SqliteStore"}
        assert len(rules.arrow_faults(wrong)) == 1

    def test_transports_are_adapters_although_they_live_in_the_bus(self) -> None:
        """A transport knows the core and its library, not the store."""
        wrong = {"penstock/bus/transports/nats.py": "import penstock.db.store"}
        assert len(rules.arrow_faults(wrong)) == 1

    def test_from_package_import_module_names_the_module(self) -> None:
        """`from penstock.store import sqlite` is seen as naming the driver."""
        wrong = house(store__sqlite="", engine__worker="from penstock.store import sqlite")
        assert len(rules.arrow_faults(wrong)) == 1

    def test_relative_imports_are_resolved(self) -> None:
        """Dots do not hide an arrow."""
        wrong = house(core__a="from ..store import api", store__api="")
        assert rules.arrow_faults(wrong) == [
            "penstock.core.a:1 imports penstock.db.store: core may not import store"
        ]

    def test_types_only_and_dynamic_imports_count(self) -> None:
        """Neither TYPE_CHECKING nor import_module is a way round the arrows."""
        typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import penstock.db.store"
        assert len(rules.arrow_faults(house(core__a=typed))) == 1
        dynamic = "import importlib\nimportlib.import_module('penstock.db.store')"
        assert len(rules.arrow_faults(house(core__a=dynamic))) == 1

    def test_an_unknown_room_must_declare_itself(self) -> None:
        """A new room is refused until it has arrows."""
        faults = rules.arrow_faults(house(attic__box="import os"))
        assert faults == [
            "penstock.attic.box: room 'attic' has no arrows yet; add it to MAY_IMPORT"
        ]


class TestPurity:
    """The core's own restrictions."""

    @pytest.mark.parametrize("library", ["msgspec", "psycopg", "cronsim", "sqlite3", "subprocess"])
    def test_libraries_and_input_output_are_refused(self, library: str) -> None:
        """A third-party library or a module that does I/O is reported."""
        assert len(rules.purity_faults(house(core__a=f"import {library}"))) == 1

    def test_cadence_may_use_cronsim(self) -> None:
        """The one exception is the cron library, in the cadence module only."""
        assert rules.purity_faults(house(core__cadence="from cronsim import CronSim")) == []

    def test_other_rooms_may_use_libraries(self) -> None:
        """The restriction is the core's."""
        assert rules.purity_faults(house(store__postgres="import psycopg")) == []


class TestCycles:
    """Circles are found however they are closed."""

    def test_a_circle_of_three(self) -> None:
        """The chain is reported once, starting at its least name."""
        circle = house(
            core__b="import penstock.core.c",
            core__c="from penstock.core import a",
            core__a="from penstock.core.b import x",
        )
        assert rules.cycles(circle) == [
            "penstock.core.a → penstock.core.b → penstock.core.c → penstock.core.a"
        ]

    def test_a_function_level_import_closes_a_circle(self) -> None:
        """Hiding an import in a function does not open the circle."""
        circle = house(
            core__a="import penstock.core.b", core__b="def f():\n    import penstock.core.a"
        )
        assert len(rules.cycles(circle)) == 1

    def test_types_only_imports_close_none(self) -> None:
        """An import under TYPE_CHECKING never runs; its else branch does."""
        typed = "if TYPE_CHECKING:\n    import penstock.core.a\nelse:\n    import {}"
        open_chain = house(core__a="import penstock.core.b", core__b=typed.format("os"))
        assert rules.cycles(open_chain) == []
        circle = house(core__a="import penstock.core.b", core__b=typed.format("penstock.core.a"))
        assert len(rules.cycles(circle)) == 1


class TestLazyImports:
    """A function-level import says why."""

    def test_without_a_comment(self) -> None:
        """It is reported, in sync and async functions and in methods."""
        for opening in ("def f():", "async def f():", "class C:\n  def m(self):"):
            text = f"{opening}\n    import os"
            assert len(rules.unexplained_lazy_imports(house(core__a=text))) == 1

    def test_with_a_comment_on_the_line_or_above(self) -> None:
        """Either place will do."""
        same = "def f():\n    import os  # optional"
        above = "def f():\n    # optional\n    import os"
        assert rules.unexplained_lazy_imports(house(core__a=same, core__b=above)) == []

    def test_module_level_needs_none(self) -> None:
        """The rule is about functions."""
        assert rules.unexplained_lazy_imports(house(core__a="import os")) == []
