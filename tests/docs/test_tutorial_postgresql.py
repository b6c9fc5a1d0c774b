"""The tutorial on PostgreSQL, executed as written: its commands, its files and what it promises.

Installation and the choice of a server are left out; the addresses on the page are replaced by
those of a real server, and ports by free ones.
"""

import os
import re
import shlex
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import chdir
from http.cookiejar import CookieJar
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from penstock import connect
from penstock.cli import cli
from penstock.testing.postgres.databases import DatabaseServer
from tests.examples.test_workers import Process
from tests.kits.databases import database_name

pytestmark = pytest.mark.postgres
PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "on-postgresql.md"
STATE = "postgresql://penstock:trial@localhost/penstock"
DEPOTS = "postgresql://penstock:trial@localhost/depots"
LONG_RUNNING = ("scheduler", "worker", "api")
PATIENCE = 60
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    """Return the blocks of one language."""
    return [found[2] for found in _FENCED.finditer(PAGE.read_text("utf-8")) if found[1] == kind]


def lines(block: str) -> list[str]:
    """Return the commands of a block, without comments."""
    return [re.sub(r"\s+# .*$", "", line) for line in block.splitlines()]


class Newcomer:
    """A user who types the commands of the page; each process has a terminal of its own."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        self.env |= {"PENSTOCK_API_PORT": "0", "PYTHONUNBUFFERED": "1"}
        self.processes: list[Process] = []
        self._addresses = addresses

    def types(self, block: str) -> str:
        """Type the lines of a block; return the output of the last one."""
        return [self.type(line) for line in lines(block)][-1]

    def type(self, line: str) -> str:
        """Type one line; return its output, which is empty for a process that keeps running."""
        for shown, real in self._addresses.items():
            line = line.replace(shown, real)
        program, *rest = shlex.split(re.sub(r"\$(\w+)", lambda name: self.env[name[1]], line))
        if program == "cd":
            self.folder = (self.folder / rest[0]).resolve()
        elif program == "export":
            name, _, value = rest[0].partition("=")
            self.env[name] = value
        elif program == "penstock" and rest[0] in LONG_RUNNING:
            self._start(rest)
        elif program == "penstock":
            return self._run(rest)
        else:
            assert program == "python", line
            done = subprocess.run(
                [sys.executable, *rest], cwd=self.folder, env=self.env, capture_output=True,
                text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            return done.stdout
        return ""

    def _start(self, words: list[str]) -> None:
        made = Process(sys.executable, "-m", "penstock", *words, cwd=self.folder, **self.env)
        self.processes.append(made)

    def _run(self, words: list[str]) -> str:
        """Run a command to its end, in this process: it takes a tenth of the time."""
        others = dict.fromkeys(k for k in os.environ if k.startswith("PENSTOCK_"))
        ours = {k: v for k, v in self.env.items() if k.startswith(("PENSTOCK_", "DEPOTS_"))}
        with chdir(self.folder):
            done = CliRunner().invoke(cli, words, env={**others, **ours})
        assert done.exit_code == 0, f"{words}\n{done.output}"
        return done.stdout

    def are_up(self) -> None:
        """Wait until every process has printed what it serves."""
        for process in self.processes:
            process.wait_for(lambda line: " is up (process " in line)

    def close(self) -> list[int]:
        """Stop every process as Ctrl-C does; return the exit codes."""
        stopping, self.processes = self.processes, []
        return [process.terminate() for process in stopping]

    def waits(self, day: str, generation: int = 1, **phases: str) -> None:
        """Poll until the phases of a day's newest flow, at least this one, are in these states."""
        pause, found = threading.Event(), {}
        with connect(self.env["PENSTOCK_DATABASE_URL"]) as client:
            for _ in range(PATIENCE * 20):
                flows = [one for one in client.flows.list().items if one.partition == day]
                newest = max(flows, key=lambda one: one.generation)
                shown = client.flows.get(newest.flow_id).phases
                found = {one.phase: str(one.state) for one in shown}
                if newest.generation >= generation and phases.items() <= found.items():
                    return
                pause.wait(0.05)
        raise AssertionError(f"{day}: {found} instead of {phases}")


@pytest.fixture
def depots(pg_server: DatabaseServer) -> Iterator[str]:
    """The URL of the database that the page creates; it is dropped after the test."""
    name = f"{database_name()}_depots"
    yield pg_server.dsn(name)
    pg_server.drop_database(name)


@pytest.fixture
def newcomer(pg_dsn: str, depots: str, tmp_path: Path) -> Iterator[Newcomer]:
    """A user in an empty folder beside the clone, with a server."""
    (tmp_path / "penstock").mkdir()
    made = Newcomer(tmp_path / "penstock", {STATE: pg_dsn, DEPOTS: depots})
    yield made
    for process in made.processes:
        process.close()


def test_the_page_from_top_to_bottom(newcomer: Newcomer, pg_dsn: str, depots: str) -> None:
    """Every command works and has the result that the page describes."""
    install, create, server, start, watch, warehouse = blocks("console")
    assert [line.split()[0] for line in lines(install)] == ["git", "make", "source"]
    newcomer.types(create)
    newcomer.types(server)
    newcomer.types(start)
    newcomer.are_up()
    see_the_day(newcomer, watch)
    own_tables(newcomer, warehouse, pg_dsn, depots)


def see_the_day(newcomer: Newcomer, watch: str) -> None:
    """Step 5: the day ends; both workers, the dashboard and the proof are as described."""
    trigger, explain, status, key = lines(watch)
    newcomer.type(trigger)
    newcomer.waits("2026-01-30", load="COMPLETE", total="DEGRADED", report="DEGRADED")
    assert "weather" in newcomer.type(explain)
    assert newcomer.type(status).count("alive") == 2
    made = re.search(r"pnk_\S+", newcomer.type(key))
    assert made is not None
    api = newcomer.processes[-1]
    address = api.wait_for(lambda line: line.startswith("  dashboard ")).split()[1]
    assert "my_sales" in dashboard(address, made[0])
    newcomer.processes.pop(1).close()  # kills a worker
    again = re.search(r"`(penstock trigger my_sales \S+ load)`", PAGE.read_text("utf-8"))
    assert again is not None
    newcomer.type(again[1])
    newcomer.waits("2026-01-30", 2, load="COMPLETE", total="DEGRADED", report="DEGRADED")
    assert "Intact: nothing was lost" in newcomer.type("penstock verify")


def dashboard(address: str, key: str) -> str:
    """Log in with a key; return the page of flows."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    form = urllib.parse.urlencode({"key": key}).encode()
    browser.open(f"{address}login", form, timeout=PATIENCE).close()
    with browser.open(f"{address}flows", timeout=PATIENCE) as page:
        return str(page.read().decode())


def own_tables(newcomer: Newcomer, warehouse: str, pg_dsn: str, depots: str) -> None:
    """Step 6: gates check tables in PostgreSQL, and start a phase when they have enough rows."""
    (pipeline,) = blocks("python")
    (newcomer.folder / "stock.py").write_text(pipeline)
    (tables,) = blocks("sql")
    create, *statements = [one for one in re.sub(r"--.*", "", tables).split(";") if one.strip()]
    assert create.strip() == "CREATE DATABASE depots"
    with psycopg.connect(pg_dsn, autocommit=True) as db:
        db.execute(f"{create.replace('depots', depots.rpartition('/')[2])}".encode())
    execute(depots, *statements)
    first = [line for line in lines(warehouse) if line.startswith("export")]
    trigger, explain = [line for line in lines(warehouse) if not line.startswith("export")]
    assert newcomer.close() == [0, 0, 0]
    for line in first:
        newcomer.type(line)
    newcomer.types(blocks("console")[3])
    newcomer.are_up()
    newcomer.type(trigger)
    newcomer.waits("2026-05-04", count="COMPLETE", reorder="BLOCKED")
    assert "1/4 rows" in newcomer.type(explain)
    again = re.search(r"`(penstock trigger stock \S+ count)`", PAGE.read_text("utf-8"))
    assert again is not None
    execute(depots, "INSERT INTO scans VALUES ('2026-05-04', 'ghent', 'nut', 7)")
    newcomer.type(again[1])
    newcomer.waits("2026-05-04", count="COMPLETE", reorder="DEGRADED")
    execute(depots, "INSERT INTO scans SELECT day, 'lille', item, 2 FROM scans")
    newcomer.type(again[1])
    newcomer.waits("2026-05-04", count="COMPLETE", reorder="COMPLETE")
    assert newcomer.close() == [0, 0, 0, 0]


def execute(url: str, *statements: str) -> None:
    """Execute statements in a database, each in a transaction of its own."""
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement.encode())
