"""Conformance: every kind of warehouse gives the same results for the same probes."""

import dataclasses
from datetime import UTC, date, datetime, timedelta
from typing import Any

from penstock.core.clock import from_datetime
from penstock.flows.gates.evidence import assess
from penstock.pipelines.declare.needs import historical, optional, per, same_day
from penstock.pipelines.dependency import ConsistencyCheck, Expect, ExpectKind
from penstock.probes.protocol import ProbeRequest
from penstock.probes.runner import ProbeRunner
from penstock.testing.clock import VirtualClock
from tests.probes.kit import DAY, DuckDbSite, ParquetSite, Site, probe_one


class TestOwnership:
    """Rows of one customer, and conditions of the author, on every kind of warehouse."""

    def test_rows_units_and_days_of_a_customer(self, probes: ProbeRunner, site: Site) -> None:
        """The customer's column filters rows, the counted table and the days of history."""
        need = same_day("boxscores", customer_column="player", expect=per(1, "schedule"))
        assert probe_one(probes, site, need).error, "the schedule has no such column"
        hostile = same_day("boxscores", customer_column="player")
        assert probe_one(probes, site, hostile, customer="x' OR 'a' = 'a").rows == 0
        own = same_day(
            "schedule", customer_column="arena", expect=per(2, "schedule", customer_column="arena")
        )
        found = probe_one(probes, site, own, customer="arena 1")
        assert (found.rows, found.units, found.expected, found.error) == (2, 2, 4, None)
        other = probe_one(probes, site, own, customer="arena 9")
        assert (other.rows, other.units, other.error) == (0, 0, None)
        past = historical("schedule", days=3, customer_column="arena")
        assert probe_one(probes, site, past, customer="arena 1").days_present == 1
        assert probe_one(probes, site, past, customer="arena 9").days_present == 0

    def test_conditions(self, probes: ProbeRunner, site: Site) -> None:
        """`where` applies to rows, units and days; its parameters are bound."""
        need = same_day(
            "boxscores",
            where="game_id = :game OR 1 = 2 -- a comment",
            expect=per(20, "schedule", where="game_id = :game"),
        )
        found = probe_one(probes, site, need, parameters={"game": 1})
        assert (found.rows, found.units, found.expected, found.error) == (20, 1, 20, None)
        past = historical("schedule", days=3, where="game_id = :game")
        for game, days in ((3, 1), (4, 0)):
            found = probe_one(probes, site, past, parameters={"game": game})
            assert (found.days_present, found.error) == (days, None)
        unknown = same_day("boxscores", expect=per(1, "schedule", where="points > 0"))
        assert probe_one(probes, site, unknown).error, "a column of the other table"

    def test_results_are_not_shared_between_customers(
        self, probes: ProbeRunner, site: Site
    ) -> None:
        """A function of the customer is asked for each; shared data is probed once."""
        need = same_day("boxscores", expect=lambda _, customer: len(customer))
        expected = [probe_one(probes, site, need, customer=c).expected for c in ("a", "acme")]
        assert expected == [1, 4]


class TestRows:
    """Rows of the partition, and the expected number of rows."""

    def test_a_range_of_partitions(self, probes: ProbeRunner, site: Site) -> None:
        """A one-pass backfill counts the rows, and what they are counted by, of the whole range."""
        need = same_day("boxscores", expect=per(10, "schedule"))
        found = probe_one(probes, site, need, f"2025-12-30..{DAY}")
        assert (found.rows, found.units, found.expected, found.error) == (50, 3, 30, None)
        assert probe_one(probes, site, need, "2025-12-01..2025-12-30").rows == 10

    def test_only_rows_of_the_partition_count(self, probes: ProbeRunner, site: Site) -> None:
        """Other partitions do not count; at least one row is expected."""
        found = probe_one(probes, site, same_day("boxscores"))
        assert (found.rows, found.expected, found.error) == (40, 1, None)
        assert probe_one(probes, site, same_day("boxscores"), "2025-12-30").rows == 10

    def test_an_empty_partition(self, probes: ProbeRunner, site: Site) -> None:
        """An empty partition has zero rows, and neither a share nor a time."""
        found = probe_one(
            probes, site, same_day("boxscores", not_null=["points"], max_age="1h"), "2026-01-01"
        )
        assert (found.rows, found.not_null_share, found.newest_us) == (0, None, None)
        assert found.error is None

    def test_without_a_partition_column_the_whole_table_counts(
        self, probes: ProbeRunner, site: Site
    ) -> None:
        """A table without partitions is probed as a whole."""
        whole = dataclasses.replace(same_day("boxscores"), warehouse=site.address)
        (found,) = probes.probe(ProbeRequest(dependencies=[whole], partition=DAY))
        assert found.rows == 50

    def test_results_are_in_order_with_their_keys(self, probes: ProbeRunner, site: Site) -> None:
        """One result per dependency; the same rows may be probed under two keys."""
        needs = [
            need.with_defaults("game_date", site.address)
            for need in (same_day("boxscores"), optional("schedule"), optional("boxscores"))
        ]
        found = probes.probe(ProbeRequest(dependencies=needs, partition=DAY))
        assert [(s.key, s.rows) for s in found] == [
            ("same_day:boxscores", 40),
            ("optional:schedule", 2),
            ("optional:boxscores", 40),
        ]

    def test_expected_number_and_function(self, probes: ProbeRunner, site: Site) -> None:
        """A number is used unchanged; a function receives the partition."""
        assert probe_one(probes, site, same_day("boxscores", expect=60)).expected == 60
        counted = same_day("boxscores", expect=lambda partition: int(partition[-2:]))
        assert probe_one(probes, site, counted).expected == 31

    def test_expected_by_query(self, probes: ProbeRunner, site: Site) -> None:
        """Partition, customer and parameters are bound in the author's query."""
        query = (
            f"SELECT count(*) * :each FROM {site.named('schedule')} "
            "WHERE game_date = :partition AND :customer = 'acme' -- not :this"
        )
        need = same_day("boxscores", expect=query)
        found = probe_one(probes, site, need, customer="acme", parameters={"each": 20})
        assert (found.expected, found.error) == (40, None)
        other = probe_one(probes, site, need, customer="o'neil", parameters={"each": 20})
        assert (other.expected, other.error) == (0, None)

    def test_expected_per_unit(self, probes: ProbeRunner, site: Site) -> None:
        """Units are the rows of another table in the partition, or its distinct values."""
        assert (
            probe_one(probes, site, same_day("boxscores", expect=per(20, "schedule"))).expected
            == 40
        )
        arenas = same_day("boxscores", expect=per(25, "schedule", of="arena"))
        assert probe_one(probes, site, arenas).expected == 25
        off_day = probe_one(
            probes, site, same_day("boxscores", expect=per(20, "schedule")), "2026-07-01"
        )
        assert (off_day.rows, off_day.expected) == (0, 0)

    def test_a_query_with_an_invalid_count(self, probes: ProbeRunner, site: Site) -> None:
        """An invalid count is an error, never an expectation of zero."""
        for query in (
            "SELECT NULL",
            "SELECT 'forty'",
            "SELECT -1",
            "SELECT 1 UNION ALL SELECT 2",
            "SELECT 1, 2",
            "SELECT 1 WHERE 1 = 0",
            "SELECT :nothing",
            "SELEC 1",
        ):
            found = probe_one(probes, site, same_day("boxscores", expect=query))
            assert found.error
            assert found.rows is None

    def test_a_function_with_an_invalid_count(self, probes: ProbeRunner, site: Site) -> None:
        """The same holds for functions."""
        wrong: tuple[Any, ...] = (None, True, -1, "40", float("nan"))
        for returned in wrong:
            need = same_day("boxscores", expect={DAY: returned}.__getitem__)
            assert "a number of at least 0" in (probe_one(probes, site, need).error or ""), returned

    def test_a_function_that_raises_or_was_not_loaded(
        self, probes: ProbeRunner, site: Site
    ) -> None:
        """Its error becomes the error of the result."""
        found = probe_one(probes, site, same_day("boxscores", expect=lambda _: 1 // 0))
        assert found.error is not None
        assert "ZeroDivisionError" in found.error
        unloaded = Expect(kind=ExpectKind.CALLABLE, reference="season:games")
        need = dataclasses.replace(same_day("boxscores"), expect=unloaded)
        assert "season:games is not loaded" in (probe_one(probes, site, need).error or "")


class TestQuality:
    """Freshness, filled cells and consistency."""

    def test_newest_time(self, probes: ProbeRunner, site: Site) -> None:
        """The newest time of the partition, in UTC; queried only when a maximum age is declared."""
        found = probe_one(probes, site, same_day("boxscores", max_age="1h"))
        assert found.newest_us == from_datetime(datetime(2025, 12, 31, 2, tzinfo=UTC))
        assert probe_one(probes, site, same_day("boxscores")).newest_us is None
        assert probe_one(probes, site, same_day("schedule")).error is None

    def test_a_date_as_time(self, probes: ProbeRunner, site: Site) -> None:
        """A date means its midnight."""
        found = probe_one(probes, site, same_day("schedule", max_age="1d", age_column="game_date"))
        assert found.newest_us == from_datetime(datetime(2025, 12, 31, tzinfo=UTC))

    def test_a_column_without_times(self, probes: ProbeRunner, site: Site) -> None:
        """A column without times is an error, never fresh."""
        found = probe_one(probes, site, same_day("schedule", max_age="1d", age_column="arena"))
        assert "'arena 1', which is not a time" in (found.error or "")

    def test_filled_cells(self, probes: ProbeRunner, site: Site) -> None:
        """The share covers all required columns; four of forty points are missing."""
        found = probe_one(probes, site, same_day("boxscores", not_null=["points"]))
        assert found.not_null_share == 0.9
        both = probe_one(probes, site, same_day("boxscores", not_null=["points", "player"]))
        assert both.not_null_share == 0.95

    def test_checks(self, probes: ProbeRunner, site: Site) -> None:
        """A check fails when its query returns rows; comments, strings and semicolons are kept."""
        table = site.named("boxscores")
        need = same_day(
            "boxscores",
            checks={
                "no negative points": f"SELECT * FROM {table} WHERE points < 0;",
                "points known": f"SELECT player, player FROM {table} "
                "WHERE game_date = :partition AND points IS NULL -- why",
                "percent": f"SELECT 1 FROM {table} WHERE player LIKE '%:partition%' /* :x */",
                "per customer": f"SELECT 1 FROM {table} WHERE :customer <> 'acme'",
            }
            | {"cast": "SELECT CAST(:partition AS VARCHAR(40)) WHERE 1 = 0"},
        )
        found = probe_one(probes, site, need, customer="acme")
        assert found.error is None
        assert (found.checks_total, found.checks_failed) == (5, ("points known",))
        assert probe_one(probes, site, need).checks_failed == ("points known", "per customer")

    def test_a_check_that_cannot_run(self, probes: ProbeRunner, site: Site) -> None:
        """A check that cannot run fails the whole probe, because its result is unknown."""
        need = same_day("boxscores", checks=["SELECT 1 FROM nowhere_at_all"])
        assert probe_one(probes, site, need).error


class TestDays:
    """Days of a lookback window."""

    def test_days_present_and_missing(self, probes: ProbeRunner, site: Site) -> None:
        """The window ends the day before the partition; missing days are named in order."""
        found = probe_one(probes, site, historical("boxscores", days=3), "2026-01-01")
        assert (found.days_present, found.days_missing) == (2, ("2025-12-29",))
        found = probe_one(probes, site, historical("boxscores", days=2), "2025-12-31T06:00:00Z")
        assert (found.days_present, found.days_missing) == (1, ("2025-12-29",))

    def test_none_and_all(self, probes: ProbeRunner, site: Site) -> None:
        """No day present, and every day present."""
        none = probe_one(probes, site, historical("boxscores", days=2), "2025-06-01")
        assert (none.days_present, none.days_missing) == (0, ("2025-05-30", "2025-05-31"))
        every = probe_one(probes, site, historical("boxscores", days=1), DAY)
        assert (every.days_present, every.days_missing) == (1, ())

    def test_years_of_days(self, probes: ProbeRunner, site: Site) -> None:
        """A window too wide for one statement."""
        first = date(2025, 12, 31) - timedelta(days=1_000)
        site.run(f"INSERT INTO schedule VALUES ('{first.isoformat()}', 9, 'a')")
        found = probe_one(probes, site, historical("schedule", days=1_000))
        assert (found.days_present, len(found.days_missing)) == (2, 998)
        assert first.isoformat() not in found.days_missing

    def test_partitions_that_are_not_a_day(self, probes: ProbeRunner, site: Site) -> None:
        """A partition that is not a day has no window."""
        for partition in ("week 3", "2025-12-32", "", "0001-01-01", "2025-W01-1"):
            found = probe_one(probes, site, historical("boxscores", days=2), partition)
            assert "cannot be counted" in (found.error or "")

    def test_days_need_a_partition_column(self, probes: ProbeRunner, site: Site) -> None:
        """The days of a table without a partition column are unknown."""
        need = dataclasses.replace(historical("boxscores", days=2), warehouse=site.address)
        (found,) = probes.probe(ProbeRequest(dependencies=[need], partition=DAY))
        assert "no partition column" in (found.error or "")


class TestFailures:
    """A failed probe returns an error, and the dependency counts as missing."""

    def test_missing_table(self, probes: ProbeRunner, site: Site, clock: VirtualClock) -> None:
        """The error names the table; the assessment is absent."""
        need = same_day("no_such_table")
        found = probe_one(probes, site, need)
        assert "no_such_table" in (found.error or "")
        assert found.looked_at == clock.now()
        assert assess(need, found, judged_at=clock.now()).absent

    def test_missing_column(self, probes: ProbeRunner, site: Site) -> None:
        """A missing column never counts as filled (SQLite would count it without the prefix)."""
        for need in (
            same_day("boxscores", not_null=["ponits"]),
            same_day("boxscores", max_age="1h", age_column="ponits"),
            same_day("boxscores", partition="ponits"),
        ):
            assert "ponits" in (probe_one(probes, site, need).error or "")

    def test_a_slow_query_is_ended(self, probes: ProbeRunner, site: Site) -> None:
        """A probe ends at its time limit, and the next one works."""
        found = probe_one(
            probes, site, same_day("boxscores", expect=site.slow), dependency_timeout_s=0.2
        )
        assert found.error == "no response within 0.2 s"
        assert probe_one(probes, site, same_day("boxscores")).rows == 40

    def test_nothing_is_written(self, probes: ProbeRunner, site: Site) -> None:
        """An author's query cannot write: connections are read-only."""
        for attempt in (
            "DELETE FROM boxscores",
            "UPDATE boxscores SET points = 0",
            "DROP TABLE boxscores",
            "CREATE TABLE mine AS SELECT 1 AS x",
        ):
            assert probe_one(probes, site, same_day("boxscores", expect=attempt)).error
            check = dataclasses.replace(
                same_day("boxscores"), checks=(ConsistencyCheck(name="x", sql=attempt),)
            )
            assert probe_one(probes, site, check).error
        assert site.count("boxscores") == 50
        assert probe_one(probes, site, same_day("mine")).error


def test_schemas(probes: ProbeRunner, site: Site) -> None:
    """`schema.table` is a table of a schema, or a file in a folder."""
    if site.engine == "sqlite":
        assert probe_one(probes, site, same_day("main.boxscores")).rows == 40
        assert probe_one(probes, site, same_day("raw.boxscores")).error
        return
    if isinstance(site, ParquetSite):
        (site.folder / "raw" / "games").mkdir(parents=True)
        target = f"'{site.quoted}/raw/games' (FORMAT parquet, PARTITION_BY (game_date))"
        DuckDbSite.run(site, f"COPY schedule TO {target}")
    else:
        site.run("CREATE SCHEMA raw", "CREATE TABLE raw.games AS SELECT * FROM schedule")
    assert probe_one(probes, site, same_day("raw.games")).rows == 2
    assert probe_one(probes, site, historical("raw.games", days=2)).days_present == 1
