"""Hostile names and values: refused or quoted, never executed."""

import dataclasses
from pathlib import Path

import pytest

from penstock.pipelines.declare.needs import historical, per, same_day
from penstock.pipelines.dependency import Dependency, Expect, ExpectKind
from penstock.probes.runner import ProbeRunner
from tests.probes.kit import DAY, Site, probe_one

NAMES = [
    "boxscores; DROP TABLE boxscores",
    "boxscores; DROP TABLE boxscores --",
    'boxscores" ; DROP TABLE boxscores; --',
    "boxscores WHERE 1=1 OR (1",
    "(SELECT 1) x --",
    "boxscores/**/",
    "boxscores\n",
    "boxscores\0",
    "box scores",
    "'boxscores'",
    "boxscores%s",
    "%(partition)s",
    ":partition",
    "$partition",
    "?",
    "a.b.c.d",
    ".boxscores",
    "boxscores.",
    "..",
    "../season",
    "/etc/passwd",
    "https://example.org/x.parquet",
    "read_csv('/etc/passwd')",
    "bоxscores",  # a Cyrillic letter
    "box\u200bscores",
    "\u202eserocsxob",
    "__proto__'",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "=cmd|' /C calc'!A0",
    "<!channel>",
    "x" * 10_000,
    "",
]
# Valid names that are not tables; they must not be read as anything else.
PLAIN_BUT_WRONG = [
    "select",
    "passwd",
    "etc.passwd",
    "data.csv",
    "data.json",
    "data.parquet",
    "site",
]

PARTITIONS = [
    "' OR '1'='1",
    "' OR 1=1 --",
    "'; DROP TABLE boxscores; --",
    "2025-12-31'; DELETE FROM boxscores; --",
    "2025-12-31' OR game_date <> '",
    '" OR "1"="1',
    "\\' OR 1=1 --",
    "$$; DROP TABLE boxscores; $$",
    "%",
    "%%",
    "%s",
    "%(customer)s",
    ":customer",
    "$customer",
    "_",
    "2025-12-31\0",
    "\0",
    "\ud800",
    "\u202e13-21-5202",
    "__proto__",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "=cmd|' /C calc'!A0",
    "9" * 10_000,
    "",
]


def untouched(site: Site) -> bool:
    return (site.count("boxscores"), site.count("schedule")) == (50, 3)


def with_name(name: str) -> list[Dependency]:
    """Return dependencies with the name in every position that takes one."""
    plain, past = same_day("boxscores"), historical("boxscores", days=1)
    return [
        dataclasses.replace(plain, table=name),
        dataclasses.replace(plain, partition=name or "x y"),
        dataclasses.replace(plain, not_null=("points", name)),
        dataclasses.replace(plain, max_age_us=1, age_column=name),
        dataclasses.replace(plain, expect=Expect(kind=ExpectKind.PER, each=1, table=name)),
        dataclasses.replace(plain, expect=dataclasses.replace(per(1, "schedule"), of=name)),
        dataclasses.replace(past, table=name),
        dataclasses.replace(past, partition=name or "x y"),
    ]


def test_hostile_names_are_refused(probes: ProbeRunner, site: Site) -> None:
    """An invalid name gets into no query, in any position."""
    for need in (need for name in NAMES for need in with_name(name)):
        found = probe_one(probes, site, need)
        assert "is not a" in (found.error or ""), need
        assert (found.rows, found.days_present) == (None, None), need
    assert untouched(site)


def test_plain_names_name_tables_only(
    probes: ProbeRunner, site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A quoted keyword is a name; a file in the working folder is not a table."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for file in ("data.csv", "data.json", "data.parquet", "passwd"):
        (folder / file).write_text("game_date\n2025-12-31\n")
    monkeypatch.chdir(folder)
    for name in PLAIN_BUT_WRONG:
        assert probe_one(probes, site, dataclasses.replace(same_day("x"), table=name)).error, name
    assert untouched(site)


def test_hostile_partitions_are_values(probes: ProbeRunner, site: Site) -> None:
    """A partition matches equal values, or the column's type refuses it; it is never SQL."""
    query = f"SELECT count(*) FROM {site.named('schedule')} WHERE game_date = :partition"
    for partition in PARTITIONS:
        for need in (
            same_day("boxscores"),
            same_day("boxscores", expect=per(20, "schedule")),
            same_day("boxscores", expect=query, checks=[query.replace("count(*)", "1")]),
        ):
            found = probe_one(probes, site, need, partition)
            assert found.error or (found.rows, found.checks_failed) == (0, ()), (partition, need)
        assert probe_one(probes, site, historical("boxscores", days=2), partition).error
    assert untouched(site)
    assert probe_one(probes, site, same_day("boxscores"), DAY).rows == 40


def test_hostile_customers_and_parameters_are_values(probes: ProbeRunner, site: Site) -> None:
    """Both are bound in the author's queries like the partition."""
    table = site.named("boxscores")
    query = f"SELECT count(*) FROM {table} WHERE player = :customer OR player = :team"
    need = same_day("boxscores", expect=query)
    for value in PARTITIONS:
        found = probe_one(probes, site, need, customer=value, parameters={"team": value})
        assert found.error or found.expected == 0, value
    assert untouched(site)


def test_a_parameter_cannot_replace_the_partition(probes: ProbeRunner, site: Site) -> None:
    """Reserved names win over a customer's parameters."""
    query = f"SELECT count(*) FROM {site.named('schedule')} WHERE game_date = :partition"
    found = probe_one(
        probes, site, same_day("boxscores", expect=query), parameters={"partition": "2025-12-30"}
    )
    assert found.expected == 2


def test_only_scalar_values_are_bound(probes: ProbeRunner, site: Site) -> None:
    """A list or a mapping is refused with an error message."""
    need = same_day("boxscores", expect="SELECT :x")
    for value in ([1], {"a": 1}, object(), b"x"):
        found = probe_one(probes, site, need, parameters={"x": value})
        assert "expected a scalar value for :x" in (found.error or "")


def test_names_keep_their_case_and_keywords(probes: ProbeRunner, site: Site) -> None:
    """A quoted keyword is an ordinary table name."""
    site.run('CREATE TABLE "order" AS SELECT game_date, game_id AS "select" FROM schedule')
    found = probe_one(probes, site, same_day("order", not_null=["select"]))
    assert (found.rows, found.not_null_share, found.error) == (2, 1.0, None)
