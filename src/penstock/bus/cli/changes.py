"""What `create` changed about a topic or a subscription that already existed."""

from __future__ import annotations

import json
from typing import Any

from penstock.bus.records import StoredSubscription, StoredTopic
from penstock.cli import output
from penstock.core.records.record import to_json_value

UNDECLARED_FIELDS = frozenset({"version", "created_at", "created_by", "is_paused", "subscriptions"})
"""Fields of stored records that `create` does not set."""


def describe_changes(
    before: StoredSubscription | StoredTopic, made: StoredSubscription | StoredTopic
) -> str:
    """Describe the changed fields, including those that were reset to their defaults."""
    old, new = to_json_value(before), to_json_value(made)
    names = [name for name in new if name not in UNDECLARED_FIELDS and new[name] != old[name]]
    if not names:
        return "It already existed with these settings."
    changes = (f"{name} was {_value(old[name])}, is {_value(new[name])}" for name in names)
    return f"It already existed and was changed: {'; '.join(changes)}."


def _value(value: object) -> str:
    if value is None or isinstance(value, str | dict):
        return "none" if value is None else output.escape_control(_text(value))
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _text(value: str | dict[str, Any]) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
