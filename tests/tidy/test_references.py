"""Docstrings, comments and documents name modules, files and names that exist.

Each rule is proved on a small repository that breaks it; `test_repository` applies them all.
"""

import pytest

from tests.tidy import references as rules


def small(page: str = "", docstring: str = "", sql: str = "") -> dict[str, str]:
    """Build a repository with two modules, a statement and a page."""
    return {
        "README.md": "# Read\n",
        "docs/a.md": page,
        "src/penstock/__init__.py": "",
        "src/penstock/client.py": "class Client:\n    def scoped(self): ...\n",
        "src/penstock/runs/__init__.py": "",
        "src/penstock/runs/states.py": f'"""{docstring}"""\nCODE = "store.busy"\nLIVE = 1\n',
        "src/penstock/runs/sql/runs.sql": f"-- name: run_end\n{sql}\nDELETE FROM runs;\n",
    }


class TestRules:
    """A stale reference is reported with its line; a true one, or an example, is not."""

    @pytest.mark.parametrize(
        "text", ["penstock.runs", "penstock.runs.states", "`penstock.runs.states.LIVE`"]
    )
    def test_dotted_names_that_exist(self, text: str) -> None:
        assert rules.dotted_faults(small(page=text, docstring=text)) == []

    @pytest.mark.parametrize("text", ["penstock.store.runs", "penstock.runs.states.DEAD"])
    def test_dotted_names_that_do_not(self, text: str) -> None:
        assert len(rules.dotted_faults(small(page=text))) == 1
        (fault,) = rules.dotted_faults(small(docstring=f"First.\n\nSee {text}."))
        assert fault.startswith("src/penstock/runs/states.py:3 ")

    def test_file_names_and_hosts_are_no_modules(self) -> None:
        text = "penstock.toml, penstock.example.com and the topic penstock.alerts"
        assert rules.dotted_faults(small(page=text)) == []

    @pytest.mark.parametrize(
        "text", ["`runs/states.py`", "src/penstock/runs/states.py", "../README.md", "mine.py"]
    )
    def test_paths_that_exist(self, text: str) -> None:
        assert rules.path_faults(small(page=text)) == []

    @pytest.mark.parametrize("text", ["core/states.py", "../docs/b.md", "docs/b.md"])
    def test_paths_that_do_not(self, text: str) -> None:
        assert len(rules.path_faults(small(page=f"See {text}."))) == 1

    def test_folders(self) -> None:
        text = "src/penstock/runs and src/penstock/runs/states exist."
        assert rules.folder_faults(small(page=text)) == []
        assert len(rules.folder_faults(small(page="See `tests/unit`."))) == 1
        assert len(rules.folder_faults({"Makefile": "pytest tests/unit -q"})) == 1

    @pytest.mark.parametrize(
        "text", ["`runs.states`", "`runs/sql`", "`runs.states.LIVE`", "`client.scoped`", "`a.b`"]
    )
    def test_modules_that_exist(self, text: str) -> None:
        assert rules.module_faults(small(page=text)) == []

    @pytest.mark.parametrize("text", ["`core/plan`", "`runs.ending`", "`client.shapes`"])
    def test_modules_that_do_not(self, text: str) -> None:
        assert len(rules.module_faults(small(page=text))) == 1

    def test_values_that_look_like_modules(self) -> None:
        assert rules.module_faults(small(page="The error `store.busy` is temporary.")) == []

    def test_names(self) -> None:
        """Names are checked in docstrings, comments and SQL comments, not in documents."""
        assert rules.name_faults(small(docstring="`LIVE`, `run_end`, `len` and `a phrase`")) == []
        assert len(rules.name_faults(small(docstring="`bury` it"))) == 1
        assert len(rules.name_faults(small(sql="-- after `line_lock`"))) == 1
        assert rules.name_faults(small(page="`orders`")) == []
