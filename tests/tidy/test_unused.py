"""Every definition of the package has a caller in the package: tests alone do not count.

The rule is applied to the real package and proved on small packages that break it.
"""

import importlib
from pathlib import Path

import pytest

from penstock.exports import PUBLIC_MODULES
from tests.tidy import imports, unused

SRC = Path(__file__).parents[2] / "src"
SEAMS = {
    "penstock.access.store.registry.topic_ensure",
    "penstock.audit.store.journal.outbox_put",
}
"""Statements that bring a store into a state for tests of drivers, outbox and services."""
PENDING = set[str]()
"""Rules written before their callers; empty when the work is done."""


def public_names() -> set[str]:
    """Return what users import, under the public name and under the module that defines it."""
    names = set()
    for module in PUBLIC_MODULES:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            home, _, other = getattr(loaded, "_HOMES", {}).get(name, module).partition(":")
            names |= {f"{module}.{name}", f"{home}.{other or name}"}
    return names


@pytest.fixture(scope="module")
def found() -> set[str]:
    names = unused.unused(imports.modules_read(SRC), public_names())
    return {name for name in names if not name.startswith("penstock.testing.")}  # the test kit


@pytest.mark.repository
def test_every_definition_is_used(found: set[str]) -> None:
    """The package uses what it defines; remove a rule that has no caller, or call it."""
    assert sorted(found - SEAMS - PENDING) == []


@pytest.mark.repository
def test_exemptions_are_needed(found: set[str]) -> None:
    """An exemption goes when its definition is used."""
    assert sorted((SEAMS | PENDING) - found) == []


RULE = "def rule():\n    return helper()\n\n\ndef helper():\n    return 1\n"


def small(**files: str) -> dict[str, str]:
    """Build modules from names such as `runs__a` (penstock/runs/a.py) and their text."""
    modules = {f"penstock/{name.replace('__', '/', 1)}.py": text for name, text in files.items()}
    return {"penstock/__init__.py": "", **modules}


@pytest.mark.parametrize(
    ("user", "is_used"),
    [
        ("", False),
        ("from penstock.runs.a import rule\n", False),  # importing is not calling
        ("from penstock.runs.a import rule\n__all__ = ['rule']\n", False),
        ("from penstock.runs.a import rule\nrule()\n", True),
        ("from penstock.runs.a import rule as other\nTABLE = [other]\nprint(TABLE)\n", True),
        ("from penstock.runs.a import rule\nTABLE = [rule]\n", False),  # nor is a table of its own
        ("from penstock.runs import a\na.rule()\n", True),
        ("from penstock.runs import a\na.other()\n", False),
        ("from penstock.runs.a import rule\n\n\n@group.command()\ndef c():\n    rule()\n", True),
        ("from penstock.runs.a import rule\n\n\ndef unused():\n    rule()\n", False),
        ("def rule():\n    return 2\n\n\nrule()\n", False),  # another function of that name
        ("thing.rule()\n", False),
        ("import_module('penstock.runs.a').rule()\n", True),
    ],
)
def test_rule(user: str, is_used: bool) -> None:
    """A definition is used if code that runs leads to it; what it calls is used with it."""
    found = unused.unused(small(runs__a=RULE, runs__b=user), ())
    own = {"penstock.runs.a.rule", "penstock.runs.a.helper"}
    assert own & set(found) == (set() if is_used else own)


def test_public_names_are_used() -> None:
    """What users import needs no caller of ours."""
    assert unused.unused(small(runs__a=RULE), {"penstock.runs.a.rule"}) == []


def test_exports_are_followed() -> None:
    """A name used through the package that exports it is the one that the module defines."""
    package = "from penstock.runs.a import rule\n"
    user = "from penstock.runs import rule\nrule()\n"
    assert unused.unused(small(runs____init__=package, runs__a=RULE, bus__b=user), ()) == []
