"""The examples of docs/operations/capacity.md follow from its formulas, those from benchmarks."""

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from penstock import Pipeline, RunContext, Submission, connect, run_pending
from penstock.assembly.settings import load
from penstock.client import Client
from penstock.db.postgres.store import PostgresStore
from penstock.testing import PostgresServer
from tests.docs.test_truth import measured

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "capacity.md").read_text("utf-8")
TEXT = " ".join(PAGE.split())
FORMULAS: Mapping[str, str] = dict(
    line.split(" = ", 1)
    for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
)
OTHERS = 4
"""Processes of scheduler and API: two of each."""
WORKER_POOL = 4
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")


class Platform(NamedTuple):
    """A column of the table of example platforms."""

    customers: float
    in_progress: float
    rows: Mapping[str, str]

    def cell(self, begins: str) -> str:
        """Return the cell of the row whose name begins with these words."""
        (found,) = [text for name, text in self.rows.items() if name.startswith(begins)]
        return found


def evaluated(name: str, values: Mapping[str, float]) -> float:
    """Return what a formula of the page yields for the values of its words; KB is the unit."""
    text = _THOUSANDS.sub("", FORMULAS[name]).replace("×", "*").replace(" KB", "")
    for words in sorted(values, key=len, reverse=True):
        assert words in text, (words, text)
        text = text.replace(words, str(values[words]))
    assert re.fullmatch(r"(?:min|[\d.*/+(), ])+", text), text
    return float(eval(text, {"min": min, "__builtins__": {}}))


def numbers(text: str) -> list[float]:
    """Return the numbers in a text, in order."""
    return [float(one) for one in re.findall(r"\d+(?:\.\d+)?", _THOUSANDS.sub("", text))]


def platforms() -> list[Platform]:
    """Return the columns of the table."""
    table = PAGE[PAGE.index("| | 10,000 customers") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    found = []
    for column in (1, 2):
        customers, in_progress = numbers(rows[0][column])
        cells = {row[0]: row[column] for row in rows[2:]}
        found.append(Platform(customers, in_progress, cells))
    return found


def workers(in_progress: float, slots_each: float) -> float:
    """Return the number of workers for a number of runs in progress."""
    slots = evaluated("slots", {"runs in progress": in_progress})
    return evaluated("workers", {"slots per worker": slots_each, "slots": slots})


def connections(of_workers: float) -> float:
    """Return `max_connections`: pools of four in workers, of the default size in the others."""
    processes = [(OTHERS, load({}).pool_size), (of_workers, WORKER_POOL)]
    total = sum(
        evaluated("connections", {"processes": number, "pool_size": size})
        for number, size in processes
    )
    return evaluated("max_connections", {"connections of schedulers, API and workers": total})


def test_workers() -> None:
    """The example of the section, and the rows about workers of both platforms."""
    found = re.search(r"(\d+) starts a second of (\d+) s are ([\d,]+) runs in progress: "
                      r"([\d,]+) slots, or (\d+) workers with (\d+) slots", TEXT)  # fmt: skip
    assert found is not None
    starts, seconds, in_progress, slots, fleet, each = (numbers(one)[0] for one in found.groups())
    words = {"starts per second": starts, "seconds per run": seconds}
    assert evaluated("runs in progress", words) == in_progress
    assert evaluated("slots", {"runs in progress": in_progress}) == slots
    assert workers(in_progress, each) == fleet
    small, large = platforms()
    assert numbers(small.cell("workers with 20")) == [workers(small.in_progress, 20)]
    many, few = workers(large.in_progress, 20), workers(large.in_progress, 100)
    assert numbers(large.cell("workers with 20")) == [many, few, 100]
    assert numbers(small.cell("heartbeats")) == [workers(small.in_progress, 20) / 10]
    assert numbers(large.cell("heartbeats")) == [many / 10]


def test_connections() -> None:
    """Both platforms, and the setting of the server for the larger one, hold all connections."""
    small, large = platforms()
    assert numbers(small.cell("API and scheduler")) == [OTHERS / 2]
    assert numbers(small.cell("connections")) == [connections(workers(small.in_progress, 20))]
    many, few = workers(large.in_progress, 20), workers(large.in_progress, 100)
    shown = [connections(many), many, connections(few), few]
    assert numbers(large.cell("connections")) == shown
    setting = re.search(r"`max_connections = (\d+)`", PAGE)
    assert setting is not None
    assert connections(few) <= int(setting[1]) <= 1.1 * connections(few)
    command = re.search(r"PENSTOCK_POOL_SIZE=(\d+) penstock worker .*--slots (\d+)$", PAGE, re.M)
    assert command is not None
    assert [int(one) for one in command.groups()] == [WORKER_POOL, 100]
    assert f"The workers, {few:.0f} of them" in TEXT
    settings = load({})
    assert f"`pool_size` {settings.pool_size} and" in TEXT
    assert f"`catch_up_rate` {settings.catch_up_rate:.0f} (" in TEXT


def test_disk_and_log() -> None:
    """A million runs a day, and one start per customer and hour of both platforms."""
    found = re.search(
        r"A million runs a day are (\d+) a second on average: (\d+) % of a core, "
        r"(\d+) KB of log a second, and (\d+) GB of disk .*? of (\d+) days",
        TEXT,
    )
    assert found is not None
    rate, percent, log, disk, days = map(int, found.groups())
    assert rate == round(1_000_000 / 86_400)
    busy = {"runs per second": rate, "completions per second": 0}
    assert percent == round(100 * evaluated("busy cores", busy))
    assert log == evaluated("log shipped to a standby", {"runs per second": rate})
    per_day = {"runs per day": 1_000_000, "parameters and results": 0, "days of retention": days}
    assert disk == round(evaluated("disk", per_day) / 1e6)
    assert load({}).history_retention == days * 86_400 * 1_000_000
    for platform in platforms():
        hourly, rounded = numbers(platform.cell("configs, starts"))
        assert hourly == platform.customers
        assert rounded == pytest.approx(hourly / 3_600, rel=0.02)
        written, kept = numbers(platform.cell("write-ahead log, kept per day"))
        assert written == evaluated("log shipped to a standby", {"runs per second": rounded})
        assert kept == pytest.approx(24 * hourly * 0.75 / 1e6, rel=0.12)
    share = {"runs per second": 14, "completions per second": 0}
    assert f"are {100 * evaluated('busy cores', share):.0f} % of a core" in TEXT


def test_formula_against_the_benchmarks() -> None:
    """The rates in the formula were reached, and the measured cells are those of `scale`."""
    runs, completions = numbers(FORMULAS["busy cores"].partition(" + ")[2])
    assert runs <= numbers(measured("queue")[1])[0]
    shown = re.search(r"([\d,]+) completions/s", measured("cascade_throughput")[1])
    assert shown is not None
    assert completions <= numbers(shown[1])[0]
    scale = numbers(measured("scale")[1])
    for platform, row in zip(platforms(), (scale[:5], scale[5:]), strict=True):
        customers, starts, in_progress, late, cpu = row
        assert customers == platform.customers
        assert numbers(platform.cell("measured: starts"))[:2] == [starts, in_progress]
        assert f"{late:g} s" in platform.cell("measured: starts")
        assert numbers(platform.cell("measured: share"))[1] == cpu


def test_margin_of_the_formula() -> None:
    """The formula is never below what was measured, at most four times it, and the page says so."""
    found = re.search(
        r"(\d+) % of a core instead of (\d+) % at (\d+) starts a second, and "
        r"([\d.]+) % instead of (\d+) % at (\d+), ([\d.]+) and ([\d.]+) times",
        TEXT,
    )
    assert found is not None
    shown = [float(one) for one in found.groups()]
    for platform, by_formula, share, rate, times in zip(
        platforms(), shown[0:4:3], shown[1:5:3], shown[2:6:3], shown[6:], strict=True
    ):
        starts = numbers(platform.cell("measured: starts"))[0]
        cost = 100 * evaluated(
            "busy cores", {"runs per second": starts, "completions per second": 0}
        )
        part = numbers(platform.cell("measured: share"))[0]
        assert part <= cost <= 4 * part
        assert (starts, part) == (rate, share)
        assert cost == pytest.approx(by_formula, abs=0.1)
        assert cost / part == pytest.approx(times, abs=0.05)


def test_figures_of_benchmarks() -> None:
    """What the page takes from benchmarks is in them."""
    assert "(`api`: p95 of a claim 7.2 ms)" in TEXT
    assert measured("api")[1].startswith("7.2, ")
    assert "0.38 % of a core (`heartbeat`)" in TEXT
    assert "database 0.38 %" in measured("heartbeat")[1]
    rate = numbers(measured("sched_due")[1])[0]
    assert f"{50_000 / rate:.1f} s of scheduler time (`sched_due`: {rate:,.0f} a second)" in TEXT


@pytest.mark.postgres
def test_measurement_of_the_page() -> None:
    """The query of the page yields about what the table says, with a tenth of the runs."""
    (query,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    table = PAGE.partition("| per run | measured |\n")[2].partition("\n\n")[0]
    kept, log, transactions, _ = (numbers(row.split("|")[2])[0] for row in table.splitlines()[1:])
    empty = Pipeline("empty")

    @empty.processor
    def nothing(run: RunContext) -> None:
        """Do nothing."""

    def batch(client: Client, number: int) -> None:
        wanted = [Submission(pipeline="empty", customer=f"c{n % 50}") for n in range(number)]
        client.runs.submit_many(wanted)

    def figures(url: str) -> list[int]:
        with psycopg.connect(url, autocommit=True) as db:
            row = db.execute(query.encode()).fetchone()
        assert row is not None
        return [int(one) for one in row]

    with PostgresServer() as server:
        url = server.create_database("capacity")
        with closing(PostgresStore(url)) as store:
            store.migrate()
        with connect(url) as client:
            client.register([empty])
            batch(client, 50)
            run_pending(client, [empty])
            before = figures(url)
            batch(client, 1_000)
            batch(client, 1_000)
            run_pending(client, [empty])
        # The connections are closed: the server has added their transactions to its counters.
        after = figures(url)
    *grown, runs = (later - earlier for earlier, later in zip(before, after, strict=True))
    assert runs == 2_000
    assert grown[0] / runs == pytest.approx(1_000 * log, rel=0.3)
    assert grown[1] / runs <= 2 * transactions
    assert grown[2] / runs == pytest.approx(1_000 * kept, rel=0.3)
