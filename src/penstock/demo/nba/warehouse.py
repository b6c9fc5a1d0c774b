"""Access to the season's DuckDB file, and its named SQL statements.

Processors and the data generator use this module. The file is opened for one unit of work and then
closed, because an open file locks out all other processes. Statements are in `schema.sql` and
`work.sql`; `{source}` and `{table}` are replaced by names from `SOURCES`, never by input.
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
"""Source → table of `nba_raw` with its cleaned data."""


class SourceLate(TransientError):
    """A source has not published the day yet; a later retry can succeed."""


@dataclass(slots=True)
class Season:
    """The location of the file, and injected failures.

    broken: processors that fail, with the number of failures left.
    """

    path: Path = Path(FILE)
    broken: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection with a transaction that commits at the end of the block."""
        with self._connect() as connection:
            connection.begin()
            yield connection
            connection.commit()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """Open the file; wait up to BUSY_SECONDS for another thread or process to close it."""
        # Imported here because duckdb is an optional dependency.
        import duckdb

        clock = SystemClock()
        until = clock.monotonic() + BUSY_SECONDS
        while True:
            try:
                return duckdb.connect(str(self.path))
            except duckdb.OperationalError:  # locked by another process, or not closed yet
                if clock.monotonic() > until:
                    raise
            clock.sleep(0.02)


STAMPED: Final = "* EXCLUDE (updated_at)"
"""All columns of a raw table except the time of its load."""
ENTITIES: Final[Mapping[str, str]] = {"players": "player_id", "teams": "team"}
"""Columns that identify the entities whose changes processors report."""
SEASON: Final = Season()
"""Season that the processors use: the file `season.duckdb` in the current folder."""


def scrape_source(run: RunContext, source: str) -> Result:
    """Copy what a source published for the day; raise SourceLate if it has nothing yet."""
    with SEASON.opened() as connection:
        found, games = _one(connection, "published", {"day": run.partition}, source=source)
        run.log.info("%s has published %d rows for %d games", source, found, games)
        if games and not found:
            raise SourceLate(f"{source} has published nothing for {run.partition} yet")
        table = f"nba_landing.{source}"
        return _done(run, fill(connection, table, run.partition, run.partition))


def clean(run: RunContext, source: str) -> Result:
    """Clean a source's scraped rows into its raw table."""
    return fill_for_run(run, f"nba_raw.{SOURCES[source]}")


def clean_game(run: RunContext, source: str) -> Result:
    """Clean a source's scraped rows of one game, the run's item, into its raw table."""
    table = SOURCES[source]
    of_game = {"day": run.partition, "game": run.item}
    with SEASON.opened() as connection:
        at = run.scheduled_time.replace(tzinfo=None).isoformat()
        days = {"first": run.partition, "last": run.partition}
        connection.execute(sql("remember", table=f"nba_raw.{table}", columns=STAMPED), days)
        connection.execute(sql("delete_game", table=table), of_game)
        row = connection.execute(
            sql("clean_game", table=table, source=source), {**of_game, "at": at}
        ).fetchone()
        _report(run, connection, f"nba_raw.{table}", STAMPED)
        return _done(run, int(row[0]) if row else 0)


def fill_for_run(run: RunContext, table: str) -> Result:
    """Fill a table for the run's partition, or fail if `SEASON.broken` says so."""
    if SEASON.broken.get(run.processor, 0) > 0:
        SEASON.broken[run.processor] -= 1
        raise ConnectionError("the warehouse closed the connection")
    with SEASON.opened() as connection:
        at = run.scheduled_time.replace(tzinfo=None).isoformat()
        days = {"first": run.partition, "last": run.partition}
        columns = STAMPED if table.startswith("nba_raw.") else "*"
        connection.execute(sql("remember", table=table, columns=columns), days)
        rows = fill(connection, table, run.partition, run.partition, at)
        _report(run, connection, table, columns)
        return _done(run, rows)


def _report(
    run: RunContext, connection: duckdb.DuckDBPyConnection, table: str, columns: str
) -> None:
    """Report the entities whose rows differ from the earlier ones."""
    days = {"first": run.partition, "last": run.partition}
    for kind in run.declared.terms.entities:
        text = sql("changed", table=table, columns=columns, column=ENTITIES[kind])
        run.entities(kind, [found[0] for found in connection.execute(text, days).fetchall()])


def fill(
    connection: duckdb.DuckDBPyConnection, table: str, first: str, last: str, at: str | None = None
) -> int:
    """Replace a table's rows of these days and return their number; `at` is the load time."""
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
    """Return a statement with its placeholders for names replaced."""
    text = statements()[name]
    for word, given in names.items():
        text = text.replace(f"{{{word}}}", given)
    return text


def _done(run: RunContext, rows: int) -> Result:
    run.progress(100, "loaded", loaded=rows)
    run.log.info("loaded %d rows of %s", rows, run.partition)
    return Result(summary={"rows": rows}, records=rows)


def _one(
    connection: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Any], **names: str
) -> tuple[Any, ...]:
    row = connection.execute(sql(name, **names), dict(values)).fetchone()
    assert row is not None, name
    return row
