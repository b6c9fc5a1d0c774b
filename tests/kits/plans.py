"""How the database executes a named statement: which indexes it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.db.statements import load
from penstock.db.store import Store


def plan_of(store: Store, name: str, **values: Any) -> str:
    """Return the plan of a statement's last text; parameters that are not given are null.

    PostgreSQL reads a small table without its index unless it must: here it must.
    """
    engine = store.capabilities.engine
    statement = load(engine)[name]
    given = {key: values.get(key) for key in statement.all_params}

    def body(tx: Any) -> str:
        connection = tx._connection
        if engine == "postgres":
            connection.execute("SET LOCAL enable_seqscan = off")
            rows = connection.execute(f"EXPLAIN {statement.texts[-1]}", given)
            return "\n".join(row[0] for row in rows)
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement.texts[-1]}", given)
        return "\n".join(row[3] for row in rows)

    return store.write(body)


def generic_plan(store: Store, name: str, types: Mapping[str, str]) -> str:
    """Return PostgreSQL's plan of a statement whose parameters it does not know, by their types."""
    names = list(types)
    text = re.sub(
        r"%\((\w+)\)s", lambda m: f"${names.index(m[1]) + 1}", load("postgres")[name].texts[-1]
    )

    def body(tx: Any) -> str:
        connection = tx._connection
        connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE examined ({', '.join(types.values())}) AS {text}")
        rows = connection.execute(f"EXPLAIN EXECUTE examined ({', '.join(['NULL'] * len(names))})")
        plan = "\n".join(row[0] for row in rows)
        connection.execute("DEALLOCATE examined")
        return plan

    return store.write(body)
