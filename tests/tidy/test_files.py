"""The rules on files, each proved on a snippet that breaks it."""

from pathlib import Path

import pytest

from tests.tidy import files as tidy

SRC = "src/penstock/worker/worker.py"


class TestSizes:
    """Limits bite one past the limit and not before."""

    def test_modules(self) -> None:
        """A module may have 500 lines, a test file 600."""
        assert tidy.size_faults(SRC, "x = 1\n" * 500) == []
        assert len(tidy.size_faults(SRC, "x = 1\n" * 501)) == 1
        assert tidy.size_faults("tests/test_x.py", "x = 1\n" * 600) == []
        assert len(tidy.size_faults("tests/test_x.py", "x = 1\n" * 601)) == 1

    @pytest.mark.parametrize("opening", ["def f():\n", "async def f():\n"])
    def test_functions(self, opening: str) -> None:
        """A function may have 70 lines, its first included."""
        assert tidy.size_faults(SRC, opening + "    x = 1\n" * 69) == []
        assert len(tidy.size_faults(SRC, opening + "    x = 1\n" * 70)) == 1

    def test_classes(self) -> None:
        """A class may have 250 lines, its first included."""
        assert tidy.size_faults(SRC, "class C:\n" + "    x = 1\n" * 249) == []
        assert len(tidy.size_faults(SRC, "class C:\n" + "    x = 1\n" * 250)) == 1

    @pytest.mark.parametrize(
        ("signature", "faults"),
        [
            ("a, b, c, d, e, f", 0),
            ("self, a, b, c, d, e, f", 0),
            ("a, b, c, d, e, f, g", 1),
            ("a, /, b, c, d, e, f, g", 1),
            ("a, b, *, c, d, e, f, g, h", 0),
            ("*, a, b, c, d, e, f, g, h", 0),
            ("*, a, b, c, d, e, f, g, h, i", 1),
        ],
    )
    def test_parameters(self, signature: str, faults: int) -> None:
        """Six by position, eight in all, the instance not counted."""
        assert len(tidy.size_faults(SRC, f"def f({signature}): ...")) == faults

    def test_the_warning_comes_before_the_fault(self) -> None:
        """A module past 450 lines is named, a test file is not."""
        long = [
            tidy.Source(path=path, text="x = 1\n" * lines)
            for path, lines in ((SRC, 451), ("src/a.py", 450), ("tests/test_x.py", 500))
        ]
        assert tidy.nearly_too_long(long) == [f"{SRC}: 451 lines"]


class TestCalls:
    """Uses of clock, sleep and chance are seen through every way of importing them."""

    @pytest.mark.parametrize(
        "text",
        [
            "import time\ntime.time()",
            "import time as t\nt.monotonic()",
            "from time import sleep\nsleep(1)",
            "from time import perf_counter as pc\nf(clock=pc)",
            "import datetime\ndatetime.datetime.now()",
            "import datetime as dt\ndt.date.today()",
            "from datetime import datetime\ndatetime.now(UTC)",
            "from datetime import datetime\ndatetime.utcnow()",
            "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
            "def f():\n    import time\n    time.sleep(1)",
            "import random\nrandom.random()",
            "from random import choice\nchoice([1])",
            "import uuid\nuuid.uuid4()",
            "import os\nos.urandom(8)",
            "import secrets\nsecrets.token_hex()",
        ],
    )
    def test_seen_in_source_and_tests(self, text: str) -> None:
        """The use is reported, in the package and in tests alike."""
        assert len(tidy.call_faults(SRC, text)) == 1
        assert len(tidy.call_faults("tests/test_x.py", text)) == 1

    @pytest.mark.parametrize(
        "text",
        [
            "import random\nrandom.Random(7).random()",
            "from random import Random\nRandom(7)",
            "import datetime\ndatetime.datetime(2026, 1, 1)",
            "def f(clock, time):\n    clock.sleep(time.time)",
            "import secrets\nsecrets.compare_digest(a, b)",
            "import threading\nthreading.Event().wait(1)",
        ],
    )
    def test_innocent(self, text: str) -> None:
        """Seeded generators, injected clocks and bounded waits are fine."""
        assert tidy.call_faults(SRC, text) == []

    def test_owners(self) -> None:
        """Each owner may do its own thing and not the other's."""
        clock, chance = "import time\ntime.time()", "import uuid\nuuid.uuid4()"
        assert tidy.call_faults("src/penstock/core/clock.py", clock) == []
        assert tidy.call_faults("src/penstock/core/ids.py", chance) == []
        assert len(tidy.call_faults("src/penstock/core/clock.py", chance)) == 1
        assert len(tidy.call_faults("src/penstock/core/ids.py", clock)) == 1

    def test_benchmarks_may_measure_but_not_gamble(self) -> None:
        """A benchmark reads the clock; its data are seeded all the same."""
        assert tidy.call_faults("benchmarks/queue.py", "import time\ntime.perf_counter()") == []
        assert len(tidy.call_faults("benchmarks/queue.py", "import random\nrandom.seed(1)")) == 1


class TestSql:
    """Statements are told from sentences."""

    @pytest.mark.parametrize(
        "literal",
        [
            "'SELECT id FROM runs'",
            "'select id from runs where x = 1'",
            "'SELECT 1'",
            "f'SELECT {columns} FROM {table}'",
            "f'INSERT INTO {table} VALUES (1)'",
            "'''\n  -- a comment\n  INSERT INTO runs (id) VALUES (1)'''",
            "'INSERT OR IGNORE INTO runs VALUES (1)'",
            "'UPDATE runs SET state = 1'",
            "'update runs set state = 1'",
            "'DELETE FROM runs'",
            "'CREATE TABLE runs (id int)'",
            "'CREATE UNIQUE INDEX runs_by_id ON runs (id)'",
            "'WITH due AS (SELECT 1) SELECT 2'",
            "'PRAGMA journal_mode = wal'",
            "'BEGIN IMMEDIATE'",
            "'LISTEN wake'",
        ],
    )
    def test_statements(self, literal: str) -> None:
        """A statement in another module or in an example is reported once; a store may have it."""
        text = f"x = {literal}"
        assert len(tidy.sql_faults(SRC, text)) == 1
        assert len(tidy.sql_faults("examples/saas/app.py", text)) == 1
        assert tidy.sql_faults("src/penstock/runs/store/runs.py", text) == []
        assert tidy.sql_faults("src/penstock/probes/sqlite.py", text) == []

    @pytest.mark.parametrize(
        "literal",
        [
            "'Select a customer from the list'",
            "'Update the config and set its state'",
            "'delete from the queue what is old'",
            "'notify failed'",
            "'WITH love'",
            "'create'",
            "'The statement SELECT 1 is quoted here'",
        ],
    )
    def test_sentences(self, literal: str) -> None:
        """Prose with the same words is no statement."""
        assert tidy.sql_faults(SRC, f"x = {literal}") == []

    def test_docstrings_may_quote_sql(self) -> None:
        """A docstring explains; it is not run."""
        assert tidy.sql_faults(SRC, '"""SELECT 1 FROM runs explains."""') == []


class TestText:
    """What no file may contain."""

    @pytest.mark.parametrize("folder", ["work", "root", "home", "farm"])
    def test_machine_paths(self, folder: str) -> None:
        """A path of one machine is reported, quoted or at the end of a line."""
        for text in (f"see /{folder}/x/y", f'p = "/{folder}"', f"a\ncd /{folder}\n"):
            assert len(tidy.text_faults("docs/a.md", text)) == 1

    @pytest.mark.parametrize(
        "text",
        ["https://example.com/" + "home/x", "src/work/a", "/homepage", "~/work", "/usr/bin"],
    )
    def test_other_paths(self, text: str) -> None:
        """Addresses, relative paths and system folders are fine."""
        assert tidy.text_faults("docs/a.md", text) == []

    @pytest.mark.parametrize(
        "text",
        [
            "https://pypi" + ".org/simple",
            "https://files.python" + "hosted.org/x",
            "pip install --index" + "-url x",
            "pip install --extra-index" + "-url x",
            "a @ file" + ":///x.whl",
            "https://registry.npm" + "js.org/htmx",
        ],
    )
    def test_registries(self, text: str) -> None:
        """A package registry's address is reported, wherever it stands."""
        assert len(tidy.text_faults("Makefile", text)) == 1

    @pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X"])
    def test_unfinished(self, word: str) -> None:
        """Unfinished business is reported with its line."""
        (fault,) = tidy.text_faults(SRC, f"x = 1\n# {word}: later")
        assert fault.startswith(f"{SRC}:2 ")

    def test_module_docstrings(self) -> None:
        """A module of the package without a docstring is reported, a test is not."""
        assert len(tidy.docstring_faults(SRC, "x = 1")) == 1
        assert len(tidy.docstring_faults("src/penstock/a/__init__.py", "")) == 1
        assert tidy.docstring_faults(SRC, '"""What it is for."""') == []
        assert tidy.docstring_faults("tests/test_x.py", "x = 1") == []

    @pytest.mark.parametrize(
        ("text", "faults"),
        [
            ("# One\n\n## Two\n", 0),
            ("No title\n", 1),
            ("# One\n\n# Two\n", 1),
            ("## Two\n\n# One\n", 1),
            ("# One\n\n```sh\n# a comment\n```\n", 0),
        ],
    )
    def test_titles(self, text: str, faults: int) -> None:
        """Exactly one title, first; comments in code blocks are no titles."""
        assert len(tidy.title_faults("docs/a.md", text)) == faults


def test_without_git_the_folders_are_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unpacked archive is checked like a clone, environments and caches left out."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("a.py", ".venv/b.py", ".mypy_cache/c.py", "docs/d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    assert [source.path for source in tidy.sources_read(tmp_path)] == ["a.py", "docs/d.md"]
