"""PostgreSQL URLs: read as libpq reads them, and shown without user info."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from penstock.assembly import settings
from penstock.assembly.database import describe_database, open_store
from penstock.core.errors import SettingsError, StoreUnavailable
from penstock.db.postgres_url import connection_options, parse_postgres_url

CLEAR = [
    ("postgresql://me:pa#cnry@db:5432/penstock", "db:5432/penstock"),
    ("postgresql://me:pa?cnry@db/penstock?sslmode=require", "db/penstock"),
    ("postgres://me:pa%2Fcnry@db/penstock", "db/penstock"),
    ("postgres://me:pa:cnry@[::1]:5432/x", "[::1]:5432/x"),
    ("postgres://a:cnry@one:1,two:2/x", "one:1,two:2/x"),
    ("postgresql://a:cnry@one,two:2/x?target_session_attrs=primary", "one,two:2/x"),
    ("postgresql:///x?host=one,two&port=1,2&password=cn+cnry", "/x"),
    ("postgresql:///x?host=/run/pg&password=cnry", "/x"),
    ("postgresql://db", "db"),
    ("postgresql://me@%2Frun%2Fpg/x", "%2Frun%2Fpg/x"),
]
UNCLEAR = [
    "postgresql://me:pa/cnry@db/penstock", "postgresql://me:pa@cnry@db/penstock",
    "postgresql://me:12/cnry@db/penstock", "postgresql://me:cnry/@db:1/penstock",
    "postgresql://me:pa/cnry#x@db/penstock",
]  # fmt: skip


@pytest.mark.parametrize(("url", "shown"), CLEAR)
def test_clear(url: str, shown: str) -> None:
    """Host, port and database are shown; the password is that which libpq would use."""
    parsed = parse_postgres_url(url)
    assert (parsed.address, parsed.is_clear) == (shown, True)
    password = conninfo_to_dict(url).get("password")
    assert password is None or password in parsed.secrets
    assert "cnry" not in describe_database(url)
    assert "cnry" not in repr(parsed)
    assert settings.load({"PENSTOCK_DATABASE_URL": url}).database_url == url


@pytest.mark.parametrize("url", UNCLEAR)
def test_unclear(url: str) -> None:
    """A password that libpq would take for a part of the address is refused and not shown."""
    parsed = parse_postgres_url(url)
    assert not parsed.is_clear
    assert "cnry" not in describe_database(url)
    with pytest.raises(SettingsError, match="percent-encoded") as caught:
        settings.load({"PENSTOCK_DATABASE_URL": url})
    assert "cnry" not in str(caught.value)


def test_errors_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver quotes of a password is masked."""

    def connect(url: str, **_: object) -> None:
        raise psycopg.OperationalError(f"bad: {url} and p#cnry")

    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    chosen = settings.load({"PENSTOCK_DATABASE_URL": "postgresql://me:p#cnry@db/x"})
    with pytest.raises(StoreUnavailable) as caught:
        open_store(chosen)
    assert "cnry" not in str(caught.value)
    assert "db/x" in str(caught.value)


REFUSED = [
    ("postgresql://me:cnry@one,/x", "a host on each side of a comma"),
    ("postgresql://me:cnry@one:1,two:70000/x", "a port from 1 to 65535"),
    ("postgresql:///x?host=one,two&port=1,2,3&password=cnry", "3 ports for 2 hosts"),
    ("postgresql://me:cnry@one,two/x?target_session_attrs=writable", "a known target_session_attr"),
    ("postgresql://me:cnry@one,two/x?target_session_attrs=standby", "a server that accepts writes"),
]


@pytest.mark.parametrize(("url", "says"), REFUSED)
def test_refused(url: str, says: str) -> None:
    """A URL that cannot work is refused before anything connects, and says what is wrong."""
    with pytest.raises(SettingsError, match=says) as caught:
        settings.load({"PENSTOCK_DATABASE_URL": url})
    assert "cnry" not in str(caught.value)


def test_unknown_parameter() -> None:
    """A parameter that libpq does not know is a mistake in the setting, not an outage."""
    url = "postgresql://me:cnry@127.0.0.1:1/x?target_session_attr=any"
    with pytest.raises(SettingsError, match="target_session_attr") as caught:
        open_store(settings.load({"PENSTOCK_DATABASE_URL": url}))
    assert "cnry" not in str(caught.value)


def test_options() -> None:
    """Timeouts are set unless the URL sets them; one of several hosts must accept writes."""
    one = connection_options("postgresql://db/x", application_name="me")
    assert one["connect_timeout"] == 5
    assert one["application_name"] == "me"
    assert "target_session_attrs" not in one
    several = connection_options(
        "postgresql://a,b/x?connect_timeout=2&options=-c%20x%3D1", options="-c y=2"
    )
    assert "connect_timeout" not in several
    assert several["target_session_attrs"] == "read-write"
    assert several["options"] == "-c y=2 -c x=1"
    chosen = connection_options("postgresql://a,b/x?target_session_attrs=any")
    assert "target_session_attrs" not in chosen
    conninfo_to_dict("postgresql://a,b/x", **several)
