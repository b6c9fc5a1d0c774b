"""The SQL of the sink, one text for both engines: `{p}` is the table prefix, `:x` a parameter.

The prefix is validated against a pattern before it is inserted; all other values are bound.
`{lock}` is FOR UPDATE on PostgreSQL and empty on SQLite, where a write transaction locks the file.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.core.errors import SettingsError

PREFIX_DEFAULT: Final = "penstock_"
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,30}")
_PARAM = re.compile(r"(?<![:\w]):([a-z_]\w*)")

SCHEMA: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE {p}documents (path text PRIMARY KEY, fields text NOT NULL, version bigint, "
        "token bigint, message_id text, updated_at bigint NOT NULL)",
        "CREATE TABLE {p}marks (subscription text NOT NULL, message_id text NOT NULL, "
        "fate text NOT NULL CHECK (fate IN ('applied', 'stale_ignored', 'poison')), "
        "at bigint NOT NULL, PRIMARY KEY (subscription, message_id))",
        "CREATE INDEX {p}marks_by_age ON {p}marks (at)",
        "CREATE TABLE {p}counters (subscription text NOT NULL, name text NOT NULL, "
        "shard integer NOT NULL, value bigint NOT NULL, PRIMARY KEY (subscription, name, shard))",
        "CREATE TABLE {p}audit (subscription text NOT NULL, message_id text NOT NULL, topic text, "
        "error_type text NOT NULL, error text NOT NULL, data {bytes} NOT NULL, "
        "data_size bigint NOT NULL, data_sha256 text NOT NULL, attributes text NOT NULL, "
        "publish_time bigint, attempt integer, times integer NOT NULL, first_at bigint NOT NULL, "
        "last_at bigint NOT NULL, PRIMARY KEY (subscription, message_id))",
        "CREATE INDEX {p}audit_by_age ON {p}audit (last_at)",
    ),
    (
        "CREATE TABLE {p}arrivals (subscription text NOT NULL, message_id text NOT NULL, "
        "topic text, attributes text NOT NULL, data_size bigint NOT NULL, publish_time bigint, "
        "attempt integer, deliveries integer NOT NULL, first_at bigint NOT NULL, "
        "last_at bigint NOT NULL, PRIMARY KEY (subscription, message_id))",
        "CREATE INDEX {p}arrivals_by_age ON {p}arrivals (last_at)",
    ),
)
"""One entry per schema version; a released entry never changes."""
SCHEMA_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS {p}schema (number integer PRIMARY KEY, applied_at bigint NOT NULL)"
)
APPLIED: Final = "SELECT coalesce(max(number), 0) FROM {p}schema"
RECORD: Final = "INSERT INTO {p}schema (number, applied_at) VALUES (:number, :now)"

DOCUMENT: Final = (
    "SELECT path, fields, version, token, message_id, updated_at FROM {p}documents "
    "WHERE path = :path"
)
DOCUMENT_LOCKED: Final = DOCUMENT + "{lock}"
DOCUMENT_MAKE: Final = (
    "INSERT INTO {p}documents (path, fields, version, token, message_id, updated_at) "
    "VALUES (:path, :fields, :version, :token, :message_id, :now) ON CONFLICT DO NOTHING "
    "RETURNING path"
)
DOCUMENT_CHANGE: Final = (
    "UPDATE {p}documents SET fields = :fields, version = :version, token = :token, "
    "message_id = :message_id, updated_at = :now WHERE path = :path"
)

FATE: Final = (
    "SELECT fate FROM {p}marks WHERE subscription = :subscription AND message_id = :message_id"
)
FATE_LOCKED: Final = FATE + "{lock}"
MARK_MAKE: Final = (
    "INSERT INTO {p}marks (subscription, message_id, fate, at) "
    "VALUES (:subscription, :message_id, :fate, :now) ON CONFLICT DO NOTHING RETURNING fate"
)
MARK_CHANGE: Final = (
    "UPDATE {p}marks SET fate = :fate, at = :now "
    "WHERE subscription = :subscription AND message_id = :message_id"
)
MARK_REMOVE: Final = (
    "DELETE FROM {p}marks WHERE subscription = :subscription AND message_id = :message_id "
    "RETURNING fate"
)

COUNT: Final = (
    "INSERT INTO {p}counters (subscription, name, shard, value) "
    "VALUES (:subscription, :name, :shard, :by) ON CONFLICT (subscription, name, shard) "
    "DO UPDATE SET value = {p}counters.value + excluded.value"
)
COUNTERS: Final = (
    "SELECT name, CAST(sum(value) AS bigint) FROM {p}counters "
    "WHERE subscription = :subscription GROUP BY name ORDER BY name"
)

AUDIT: Final = (
    "INSERT INTO {p}audit (subscription, message_id, topic, error_type, error, data, data_size, "
    "data_sha256, attributes, publish_time, attempt, times, first_at, last_at) "
    "VALUES (:subscription, :message_id, :topic, :error_type, :error, :data, :data_size, "
    ":data_sha256, :attributes, :publish_time, :attempt, 1, :now, :now) "
    "ON CONFLICT (subscription, message_id) DO UPDATE SET times = {p}audit.times + 1, "
    "last_at = excluded.last_at, error_type = excluded.error_type, error = excluded.error, "
    "attempt = excluded.attempt"
)
AUDITS: Final = (
    "SELECT subscription, message_id, topic, error_type, error, data, data_size, data_sha256, "
    "attributes, publish_time, attempt, times, first_at, last_at FROM {p}audit "
    "WHERE subscription = :subscription ORDER BY last_at DESC, message_id LIMIT :n"
)

ARRIVE: Final = (
    "INSERT INTO {p}arrivals (subscription, message_id, topic, attributes, data_size, "
    "publish_time, attempt, deliveries, first_at, last_at) VALUES (:subscription, :message_id, "
    ":topic, :attributes, :data_size, :publish_time, :attempt, 1, :now, :now) "
    "ON CONFLICT (subscription, message_id) DO UPDATE SET "
    "deliveries = {p}arrivals.deliveries + 1, last_at = excluded.last_at, "
    "attempt = excluded.attempt RETURNING deliveries"
)
ARRIVALS: Final = (
    "SELECT subscription, message_id, topic, attributes, data_size, publish_time, attempt, "
    "deliveries, first_at, last_at FROM {p}arrivals "
    "WHERE subscription = :subscription ORDER BY last_at DESC, message_id LIMIT :n"
)

PRUNE: Final = (
    "DELETE FROM {p}marks WHERE (subscription, message_id) IN (SELECT subscription, message_id "
    "FROM {p}marks WHERE at < :before ORDER BY at LIMIT :n) RETURNING 1",
    "DELETE FROM {p}audit WHERE (subscription, message_id) IN (SELECT subscription, message_id "
    "FROM {p}audit WHERE last_at < :before ORDER BY last_at LIMIT :n) RETURNING 1",
    "DELETE FROM {p}arrivals WHERE (subscription, message_id) IN (SELECT subscription, message_id "
    "FROM {p}arrivals WHERE last_at < :before ORDER BY last_at LIMIT :n) RETURNING 1",
)


def check_prefix(prefix: str) -> str:
    """Return the table prefix; raise SettingsError if it is invalid."""
    if not _PREFIX.fullmatch(prefix):
        expected = "1 to 31 lower-case letters, digits or underscores, starting with a letter"
        raise SettingsError("prefix", expected, prefix)
    return prefix


def for_sqlite(template: str, prefix: str) -> str:
    """Render a statement for SQLite."""
    return template.format(p=prefix, lock="", bytes="blob")


def for_postgres(template: str, prefix: str) -> str:
    """Render a statement for PostgreSQL."""
    return pyformat(template.format(p=prefix, lock=" FOR UPDATE", bytes="bytea"))


def pyformat(sql: str) -> str:
    """Convert `:name` parameters to the form that psycopg expects."""
    return _PARAM.sub(r"%(\1)s", sql.replace("%", "%%"))
