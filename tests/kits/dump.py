"""Every column of every table, for tests that look for what must be nowhere."""

from __future__ import annotations

from typing import Any

from penstock.db.store import StoreView


def tables(store: StoreView) -> list[str]:
    """The names of all tables; on PostgreSQL without partitions, which their parent covers."""
    if store.capabilities.engine == "postgres":
        text = (
            "SELECT c.relname::text FROM pg_class c WHERE c.relkind IN ('r', 'p') "
            "AND c.relnamespace = current_schema()::regnamespace AND NOT c.relispartition "
            "ORDER BY 1"
        )
    else:
        text = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [row[0] for row in raw(store, text)]


def raw(store: StoreView, text: str) -> list[Any]:
    """Run raw SQL in a transaction of the store, confined or not."""

    def body(tx: Any) -> list[Any]:
        cursor = tx._connection.execute(text)
        return list(cursor.fetchall()) if cursor.description else []

    return store.write(body)


def columns_holding(store: StoreView, needle: str) -> list[tuple[str, int]]:
    """(table, place of the column) of every stored value that contains the needle."""
    return [
        (table, place)
        for table in tables(store)
        for row in raw(store, f'SELECT * FROM "{table}"')
        for place, value in enumerate(row)
        if needle in str(value)
    ]
