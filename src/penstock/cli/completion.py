"""Shell completion of ids and names: customers, pipelines, runs, configs, flows, topics, limits.

A completion reads the first 50 rows of the matching list. After any error, such as a missing
database, it returns no values: a completion must not print errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

ROWS: Final = 50


class Source(NamedTuple):
    """The list that a value is completed from, and the field that holds the value."""

    group: str
    field: str
    method: str = "list"


SOURCES: Final = {
    "bf": Source("backfills", "backfill_id"),
    "cfg": Source("configs", "config_id"),
    "customer": Source("configs", "customer"),
    "flow": Source("flows", "flow_id"),
    "key": Source("keys", "key_id"),
    "limit": Source("limits", "name"),
    "pipeline": Source("views", "pipeline", "pipelines"),
    "run": Source("runs", "run_id"),
    "subscription": Source("subscriptions", "name"),
    "topic": Source("topics", "name"),
}
PARAMETERS: Final = {
    "customer": "customer",
    "dead_letter_topic": "topic",
    "event_topic": "topic",
    "pipeline": "pipeline",
    "subscription": "subscription",
    "thing": "pipeline",
    "topic": "topic",
}
"""Kinds of text parameters by name, in any command."""
GROUPS: Final = {
    "limits": "limit",
    "pipelines": "pipeline",
    "subscriptions": "subscription",
    "topics": "topic",
}
"""Kind of NAME, by command group."""
SCOPES: Final = {"config": "cfg", "customer": "customer", "pipeline": "pipeline"}
"""Kind of a pause's subject, by scope."""
OF_CUSTOMERS: Final = frozenset({"bf", "cfg", "flow", "run", "subscription", "topic"})
"""Kinds whose values are limited to the customer in `--customer`, if it is given."""


class CompletedText(click.types.StringParamType):
    """Text that the shell completes from a list of the database or API."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the values that start with `incomplete`."""
        kind = PARAMETERS.get(param.name or "")
        if param.name == "name" and ctx.parent is not None:
            kind = GROUPS.get(ctx.parent.info_name or "")
        elif param.name == "subject":
            kind = SCOPES.get(str(ctx.params.get("scope")))
        return [] if kind is None else complete(ctx, kind, incomplete)


def add_completion(params: Iterable[click.Parameter]) -> None:
    """Complete the text parameters that are recognized by name."""
    for param in params:
        if param.type is click.STRING and param.name in {*PARAMETERS, "name", "subject"}:
            param.type = CompletedText()


def complete(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    """Return the values of a kind that start with `incomplete`; nothing after an error."""
    try:
        values = _read(ctx, kind)
    except Exception:
        return []
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


def _read(ctx: click.Context, kind: str) -> list[str]:
    source, wanted = SOURCES[kind], {}
    customer = ctx.params.get("customer")
    if customer is not None and kind in OF_CUSTOMERS:
        wanted["customer"] = customer
    if source.method == "list":
        wanted["limit"] = ROWS
    with ctx.obj.connect() as client:
        found: Any = getattr(getattr(client, source.group), source.method)(**wanted)
    rows = found if isinstance(found, list) else found.items
    return list(dict.fromkeys(getattr(row, source.field) for row in rows[:ROWS]))
