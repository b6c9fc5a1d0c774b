"""PostgreSQL connections: reused, replaced when stale, closed on timeout; passwords are hidden."""

import socket
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from penstock.pipelines.declare.needs import same_day
from penstock.probes.postgres import PostgresWarehouse
from penstock.probes.protocol import ProbeBudget, ProbeFailed, ProbeStatement
from penstock.probes.runner import ProbeRunner
from tests.probes.kit import PostgresSite, fill, probe_one

pytestmark = pytest.mark.postgres

BOX = same_day("boxscores")
BACKEND = [ProbeStatement(text="SELECT pg_backend_pid()")]


@pytest.fixture
def season(pg_dsn: str) -> PostgresSite:
    made = PostgresSite(pg_dsn)
    fill(made)
    return made


@pytest.fixture
def warehouse(pg_dsn: str) -> PostgresWarehouse:
    return PostgresWarehouse(pg_dsn, psycopg)


def backend(warehouse: PostgresWarehouse) -> int:
    return int(warehouse.read(BACKEND, ProbeBudget()).results[0][0][0])


def test_connections_are_kept_and_replaced(warehouse: PostgresWarehouse, pg_dsn: str) -> None:
    """The next probe uses the same connection; a terminated one is replaced."""
    first = backend(warehouse)
    assert backend(warehouse) == first
    with psycopg.connect(pg_dsn, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 30000)", [first])
    assert backend(warehouse) != first
    warehouse.close()
    assert backend(warehouse) != first
    warehouse.close()


def test_a_failed_probe_closes_its_connection(warehouse: PostgresWarehouse) -> None:
    """After an error the connection is not reused, so no broken transaction remains."""
    first = backend(warehouse)
    with pytest.raises(ProbeFailed) as caught:
        warehouse.read([ProbeStatement(text="SELECT * FROM nothing")], ProbeBudget())
    assert str(caught.value) == (
        'relation "nothing" does not exist; create it, or correct its name in the need'
    )
    assert backend(warehouse) != first
    warehouse.close()


def test_transactions_are_read_only_and_bounded(warehouse: PostgresWarehouse) -> None:
    """The settings of the transaction."""
    statements = [
        ProbeStatement(text=f"SELECT current_setting('{name}')")
        for name in ("transaction_read_only", "statement_timeout", "TimeZone")
    ]
    response = warehouse.read(statements, ProbeBudget(dependency_timeout_s=2.5))
    assert [rows[0][0] for rows in response.results] == ["on", "2500ms", "UTC"]
    warehouse.close()


def test_a_server_that_stops_responding(warehouse: PostgresWarehouse, pg_dsn: str) -> None:
    """The alarm closes the connection when the server does not enforce its timeout."""
    endless = [
        ProbeStatement(text="SELECT set_config('statement_timeout', '0', true)"),
        ProbeStatement(text="SELECT pg_sleep(3600)"),
    ]
    with pytest.raises(ProbeFailed, match="no response within"):
        warehouse.read(endless, ProbeBudget(dependency_timeout_s=0.1))
    with psycopg.connect(pg_dsn, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            "WHERE application_name = 'penstock-probe'"
        )


def test_a_port_that_never_responds(probes: ProbeRunner) -> None:
    """Connecting is bounded in time too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        site = PostgresSite(f"postgresql://reader:s3cret@127.0.0.1:{port}/season")
        found = probe_one(probes, site, BOX, dependency_timeout_s=0.1)
    assert found.error
    assert "s3cret" not in found.error


def test_passwords_are_not_shown(probes: ProbeRunner, pg_dsn: str) -> None:
    """Not if the server refuses, not if the port is closed, not if the address is invalid."""
    parts = urlsplit(pg_dsn)
    host = parts.netloc.rpartition("@")[2]
    refused = urlunsplit(parts._replace(netloc=f"unknown:s3cret@{host}"))
    for address in (
        refused,
        "postgresql://u:s3cret@127.0.0.1:1/season",
        "postgresql://u:s3cret@127.0.0.1:port/season",
        "postgresql://127.0.0.1:1/season?password=s3cret&nonsense=1",
    ):
        found = probe_one(probes, PostgresSite(address), BOX)
        assert found.error, address
        assert "s3cret" not in found.error, address


def test_names_that_the_server_would_truncate(probes: ProbeRunner, season: PostgresSite) -> None:
    """PostgreSQL truncates names to 63 bytes, so a longer one could name a different table."""
    season.run(f"CREATE TABLE {'x' * 63} (game_date DATE)")
    assert probe_one(probes, season, same_day("x" * 63)).rows == 0
    assert "longer than 63" in (probe_one(probes, season, same_day("x" * 64)).error or "")


def test_infinite_times(probes: ProbeRunner, season: PostgresSite) -> None:
    """An infinite time is not a time."""
    season.run("UPDATE boxscores SET updated_at = 'infinity'")
    found = probe_one(probes, season, same_day("boxscores", max_age="1h"))
    assert "'infinity', which is not a time" in (found.error or "")
