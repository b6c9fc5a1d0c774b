"""Checks of database URLs in the settings; a URL may contain a password, so it is not shown."""

from __future__ import annotations

from penstock.core.errors import SettingsError
from penstock.db.postgres_url import WRITABLE, parse_postgres_url, postgres_url_problem

_POSTGRES = ("postgresql://", "postgres://")


def check_database_url(url: str) -> None:
    """Raise SettingsError unless the URL names a database that Penstock can write to."""
    if not url.startswith(("sqlite:", *_POSTGRES)):
        raise SettingsError(
            "database_url",
            "sqlite:PATH or postgresql://user@host/name",
            url.partition(":")[0],  # the rest may contain a password
            "For a file in this folder: sqlite:penstock.db",
        )
    if url.startswith("sqlite:"):
        _check_sqlite_url(url)
        return
    check_postgres_url("database_url", url)
    attrs = parse_postgres_url(url).session_attrs
    if attrs not in WRITABLE:
        raise SettingsError(
            "database_url",
            f"a server that accepts writes (target_session_attrs {', '.join(WRITABLE)})",
            f"target_session_attrs={attrs}",
            "Use read-write, which finds the primary among several hosts.",
        )


def _check_sqlite_url(url: str) -> None:
    """Raise SettingsError for `sqlite://name` and `sqlite:///name`, whose folder is unclear.

    Other programs take the second for a file in this folder; as a path it is in the root folder.
    """
    slashes = len(url) - len(url.removeprefix("sqlite:").lstrip("/")) - len("sqlite:")
    if slashes in (2, 3):
        raise SettingsError(
            "database_url",
            "sqlite:FILE, for example sqlite:penstock.db (in this folder) or "
            "sqlite:/data/penstock.db",
            url,
        )


def check_pooler(url: str, pooler: str, direct_url: str) -> None:
    """Raise SettingsError for pooler settings without a pooler."""
    if pooler != "none" and not url.startswith(_POSTGRES):
        fix = "Omit it: SQLite has no connections to pool."
        raise SettingsError("database_pooler", "none with a SQLite database", pooler, fix)
    if direct_url and pooler == "none":
        fix = "Set database_pooler, or leave database_direct_url out."
        raise SettingsError("database_direct_url", "a pooler that it bypasses", "none", fix)
    if direct_url:
        check_postgres_url("database_direct_url", direct_url)


def check_read_url(url: str, read_url: str) -> None:
    """Raise SettingsError for a replica that cannot be used."""
    if read_url and not url.startswith(_POSTGRES):
        fix = "Omit it: SQLite has no replicas."
        raise SettingsError("database_read_url", "nothing with a SQLite database", "a URL", fix)
    if read_url:
        check_postgres_url("database_read_url", read_url)


def check_postgres_url(name: str, url: str) -> None:
    """Raise SettingsError unless the URL of a setting can be used."""
    if not url.startswith(_POSTGRES):
        raise SettingsError(name, "postgresql://user@host/name", url.partition(":")[0])
    if not parse_postgres_url(url).is_clear:
        raise SettingsError(
            name,
            "a URL whose user and password are percent-encoded",
            "another (not shown)",
            "Write / as %2F, @ as %40, : as %3A, # as %23 and ? as %3F.",
        )
    problem = postgres_url_problem(url)
    if problem is not None:
        raise SettingsError(name, *problem)
