"""Addresses, redaction, times, query parameters and timeouts of probes."""

import sys
import threading

import pytest

from penstock.core.errors import InvalidInput
from penstock.probes.binding import bind_parameters
from penstock.probes.duckdb import DuckDbWarehouse
from penstock.probes.postgres import PostgresWarehouse
from penstock.probes.protocol import Dialect, ProbeFailed
from penstock.probes.redaction import TEXT_MAX, redacted
from penstock.probes.sqlite import SqliteWarehouse
from penstock.probes.timeout import ProbeTimeout
from penstock.probes.timestamps import parse_timestamp
from penstock.probes.warehouses import open_warehouse

DOLLAR = Dialect(mark=lambda name: f"${name}")
PERCENT = Dialect(mark=lambda name: f"%({name})s", literal_percent="%%")
VALUES = {"partition": "2025-12-31", "customer": "acme", "n": 3}


@pytest.mark.parametrize(
    "text", ["a." * 50_000, "a" * 100_000, "passwd" * 20_000, "x://" * 25_000, "x://a:b" * 15_000]
)
def test_redaction_takes_linear_time(text: str) -> None:
    """A long text of any form is read once: twice the length takes no more steps per character."""
    assert len(redacted(text)) <= TEXT_MAX


def test_redaction_of_unencoded_passwords() -> None:
    """A password with # or ? is masked where a message quotes it."""
    for mark in "#?":
        url = f"postgresql://me:pa{mark}cnry@db/x"
        assert "cnry" not in redacted(f'invalid "pa{mark}cnry" for {url}', url)


class TestAddresses:
    """Finding the adapter of an address."""

    @pytest.mark.parametrize(
        ("address", "adapter"),
        [
            ("duckdb:season.duckdb", DuckDbWarehouse),
            ("duckdb:lake/", DuckDbWarehouse),
            ("sqlite:season.db", SqliteWarehouse),
            ("postgresql://reader@db/season", PostgresWarehouse),
            ("postgres://reader@db/season", PostgresWarehouse),
        ],
    )
    def test_known(self, address: str, adapter: type) -> None:
        """Opening an address by name connects to nothing yet."""
        assert isinstance(open_warehouse(address), adapter)

    @pytest.mark.parametrize(
        "address", ["", "season.duckdb", "duckdb:", "mysql://u:pw@h/d", "postgresql:season"]
    )
    def test_unknown(self, address: str) -> None:
        """The error names the field and the expected forms."""
        with pytest.raises(InvalidInput, match=r"needs\[0\]\.warehouse: expected duckdb:FILE") as e:
            open_warehouse(address, "needs[0].warehouse")
        assert "pw" not in e.value.message

    @pytest.mark.parametrize(
        ("address", "library", "extra"),
        [
            ("duckdb:season.duckdb", "duckdb", "duckdb"),
            ("postgresql://u:pw@h/d", "psycopg", "postgres"),
        ],
    )
    def test_missing_library(
        self, address: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error names the extra to install."""
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(InvalidInput) as caught:
            open_warehouse(address)
        assert f"pip install 'penstock-engine[{extra}]'" in caught.value.message
        assert "pw" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot reach postgresql://u:s3cret@db/x", "cannot reach postgresql://u:***@db/x"),
        ("bad: postgres://u:p@ss:w@db/x now", "bad: postgres://u:***@db/x now"),
        ("host=db password=s3cret user=u", "host=db password=*** user=u"),
        ("password='s3 cret' x", "password=*** x"),
        ("?user=u&password=s3cret&sslmode=off", "?user=u&password=***&sslmode=off"),
        ("sslpassword=k PGPASSWORD: k", "sslpassword=*** PGPASSWORD: ***"),
        ("two\n  lines", "two lines"),
        ("no secret at all", "no secret at all"),
    ],
)
def test_redaction_by_pattern(text: str, expected: str) -> None:
    """Anything that looks like a password is hidden, whatever was configured."""
    assert redacted(text) == expected


def test_redaction_by_value() -> None:
    """The address's password is hidden as written and decoded; long texts are truncated."""
    url = "postgresql://u:a%2Fb%20c@db/x"
    assert redacted("saw a/b c and a%2Fb%20c", url) == "saw *** and ***"
    assert len(redacted("x" * 9_999)) == TEXT_MAX
    assert redacted("x", "postgresql://[broken") == "x"


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01 00:00:01+00", 1_000_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000),
        ("1970-01-01 00:00:01", 1_000_000),
        ("1970-01-02", 86_400_000_000),
        ("1763337600", 1_763_337_600_000_000),
        ("1763337600.5", 1_763_337_600_500_000),
        ("1763337600000", 1_763_337_600_000_000),
        ("1763337600000000", 1_763_337_600_000_000),
        (None, None),
    ],
)
def test_times(text: str | None, micros: int | None) -> None:
    """ISO times, dates and numbers since the epoch; a time without an offset is UTC."""
    assert parse_timestamp(text, "updated_at") == micros


@pytest.mark.parametrize("text", ["infinity", "yesterday", "", "12:00", "-1", "9" * 40])
def test_values_that_are_not_times(text: str) -> None:
    """A value that is not a time is refused."""
    with pytest.raises(ProbeFailed, match="updated_at holds"):
        parse_timestamp(text, "updated_at")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("d = :partition", "d = $partition"),
        ("(:partition,:n)", "($partition,$n)"),
        (":partition::date", "$partition::date"),
        ("x::text", "x::text"),
        ("xs[1:n]", "xs[1:n]"),
        ("':partition' || :n", "':partition' || $n"),
        ("'it''s :n'", "'it''s :n'"),
        (r"E'\' :n' || :n", r"E'\' :n' || $n"),
        ('":n" = :n', '":n" = $n'),
        ("1 -- :n\n + :n", "1 -- :n\n + $n"),
        ("/* :n */ :n", "/* :n */ $n"),
        ("$$ :n $$ || :n", "$$ :n $$ || $n"),
        ("$a$ :n $$ $a$ || :n", "$a$ :n $$ $a$ || $n"),
        ("'12:30:00'", "'12:30:00'"),
    ],
)
def test_parameters(sql: str, expected: str) -> None:
    """Parameters outside of strings, names and comments are replaced; the rest is unchanged."""
    made = bind_parameters(sql, VALUES, DOLLAR)
    assert made.text == expected
    assert set(dict(made.values)) == {name for name in VALUES if f"${name}" in expected}


def test_percent_signs() -> None:
    """For a driver that marks parameters with percent, every other percent sign is doubled."""
    made = bind_parameters("a LIKE '50%' AND b % 2 = :n", VALUES, PERCENT)
    assert made.text == "a LIKE '50%%' AND b %% 2 = %(n)s"
    assert made.values == (("n", 3),)


def test_a_parameter_without_a_value() -> None:
    """The error lists the available values."""
    with pytest.raises(ProbeFailed, match="among :customer, :n, :partition, got :day"):
        bind_parameters("d = :day", VALUES, DOLLAR)


def test_a_reference_to_a_secret_is_not_bound() -> None:
    """Statements and their values may be logged by the warehouse; the error has no value."""
    values = {**VALUES, "login": {"$secret": "warehouse_password"}}
    with pytest.raises(ProbeFailed, match="login refers to a secret, and secrets are not bound"):
        bind_parameters("login = :login", values, DOLLAR)


def test_an_alarm_repeats_until_it_is_off() -> None:
    """An interrupt without effect, or one that fails, is repeated; after `off` there is none."""
    interrupts = threading.Semaphore(0)

    def interrupt() -> None:
        interrupts.release()
        raise RuntimeError("nothing to interrupt")

    with ProbeTimeout(0.001) as alarm:
        alarm.on_expired(interrupt)
        for _ in range(3):
            assert interrupts.acquire(timeout=60)
        assert alarm.is_expired
        with pytest.raises(ProbeFailed, match=r"no response within 0\.001 s"):
            alarm.check()
    with ProbeTimeout(3_600) as alarm:
        alarm.on_expired(interrupt)
    assert not alarm.is_expired
