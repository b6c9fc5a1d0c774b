"""The season's DuckDB file, and the SQL that works on it, by name.

Processors and the season's generator come through here. A file is opened for one piece of work and
closed again: whoever holds it open keeps every other process out. Statements live in `schema.sql`
and `work.sql`; `{source}` and `{table}` stand for names of `SOURCES`, never for input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock import Result, RunContext, TransientError
from penstock.core.clock import SystemClock

if TYPE_CHECKING:
    import duckdb

FILE: Final = "season.duckdb"
BUSY_SECONDS: Final = 10.0
ADDRESS: Final = f"duckdb:{FILE}"
SOURCES: Final[Mapping[str, str]] = {
    "nbac_schedule": "schedule",
    "nbac_player_list": "rosters",
    "nbac_injury_report": "injury_report",
    "bdl_player_boxscores": "player_boxscores",
    "nbac_team_boxscores": "team_boxscores",
    "nbac_play_by_play": "play_by_play",
    "odds_api_game_lines": "odds_api_game_lines",
    "odds_api_player_points_props": "odds_api_player_points_props",
    "bettingpros_player_points_props": "bettingpros_player_points_props",
}
"""Who publishes, and the table of `nba_raw` that it becomes."""


class SourceLate(TransientError):
    """A source has not published the day yet; asking again later helps."""


@dataclass(slots=True)
class Season:
    """Where the file is, and what goes wrong on purpose.

    broken: processors that fail, and how many more times.
    """

    path: Path = Path(FILE)
    broken: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection in a transaction that commits at the end."""
        with self._connect() as connection:
            connection.begin()
            yield connection
            connection.commit()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """Open the file; who is just closing it, in another thread or process, is waited for."""
        # Optional: only those who look into DuckDB files install its library.
        import duckdb

        clock = SystemClock()
        until = clock.monotonic() + BUSY_SECONDS
        while True:
            try:
                return duckdb.connect(str(self.path))
            except duckdb.OperationalError:  # a lock, or a handle that is not free yet
                if clock.monotonic() > until:
                    raise
            clock.sleep(0.02)


SEASON: Final = Season()


def scraped(run: RunContext, source: str) -> Result:
    """Copy what a source published for the day; SourceLate while there is nothing."""
    with SEASON.opened() as connection:
        found, games = _one(connection, "published", {"day": run.partition}, source=source)
        if games and not found:
            raise SourceLate(f"{source} has published nothing for {run.partition} yet")
        table = f"nba_landing.{source}"
        return _done(run, fill(connection, table, run.partition, run.partition))


def cleaned(run: RunContext, source: str) -> Result:
    """Bring what was scraped into its raw table."""
    return made(run, f"nba_raw.{SOURCES[source]}")


def made(run: RunContext, table: str) -> Result:
    """Fill a table for the day of the run."""
    if SEASON.broken.get(run.processor, 0) > 0:
        SEASON.broken[run.processor] -= 1
        raise ConnectionError("the warehouse closed the connection")
    with SEASON.opened() as connection:
        at = run.scheduled_time.replace(tzinfo=None).isoformat()
        return _done(run, fill(connection, table, run.partition, run.partition, at))


def fill(
    connection: duckdb.DuckDBPyConnection, table: str, first: str, last: str, at: str | None = None
) -> int:
    """Fill a table anew for these days, return its rows there; `at` is when that happened."""
    days = {"first": first, "last": last}
    schema, _, name = table.partition(".")
    connection.execute(sql("delete", table=table), days)
    if schema == "nba_landing":
        text = sql("scrape", source=name)
    elif schema == "nba_raw":
        source = next(source for source, raw in SOURCES.items() if raw == name)
        text, days = sql("clean", table=name, source=source), {**days, "at": at or f"{last} 12:00"}
    else:
        text = sql(table)
    row = connection.execute(text, days).fetchone()
    return int(row[0]) if row else 0


@cache
def statements() -> Mapping[str, str]:
    """Return every statement by name."""
    found: dict[str, str] = {}
    for file in ("schema.sql", "work.sql"):
        text = (files("penstock.demo.nba") / file).read_text("utf-8")
        parts = re.split(r"^-- name: (\S+)\n", text, flags=re.MULTILINE)[1:]
        found.update(zip(parts[::2], (body.strip() for body in parts[1::2]), strict=True))
    return found


def sql(name: str, **names: str) -> str:
    """Return a statement, its places for names filled."""
    text = statements()[name]
    for word, given in names.items():
        text = text.replace(f"{{{word}}}", given)
    return text


def _done(run: RunContext, rows: int) -> Result:
    run.progress(100, "loaded", loaded=rows)
    return Result(summary={"rows": rows}, records=rows)


def _one(
    connection: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Any], **names: str
) -> tuple[Any, ...]:
    row = connection.execute(sql(name, **names), dict(values)).fetchone()
    assert row is not None, name
    return row
