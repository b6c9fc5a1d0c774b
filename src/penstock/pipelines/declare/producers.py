"""Tables that processors produce, and needs that look like one of them misspelt.

A table that no processor produces is valid: it may be raw data from outside. If its name is close
to that of a table that the pipeline produces, it is probably a typing error, which would keep a
gate waiting. The functions read the JSON of a definition.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

_SIMILARITY = 0.8


def produced_tables(definition: Mapping[str, Any]) -> frozenset[str]:
    """Return the tables that the processors of a pipeline produce."""
    return frozenset(
        table
        for phase in definition["phases"]
        for processor in phase["processors"]
        for table in processor.get("produces", ())
    )


def spelling_hint(table: str, produced: Collection[str]) -> str | None:
    """Return a sentence with the produced table whose name is closest; None if none is close."""
    near = difflib.get_close_matches(table, sorted(produced), n=1, cutoff=_SIMILARITY)
    return f"No processor produces {table}; did you mean {near[0]}?" if near else None


def misspelt_needs(definition: Mapping[str, Any], elsewhere: Collection[str]) -> list[str]:
    """Return a sentence for each needed table that is probably misspelt.

    elsewhere: tables that other pipelines produce; they are not reported.
    """
    own = produced_tables(definition)
    hints: dict[str, str] = {}
    for phase in definition["phases"]:
        for processor in phase["processors"]:
            path = f"{definition['name']}/{phase['name']}/{processor['name']}"
            for table in dict.fromkeys(need["table"] for need in processor.get("needs", ())):
                hint = None if table in own or table in elsewhere else spelling_hint(table, own)
                if hint is not None:
                    hints.setdefault(table, f"{path} needs {table}. {hint}")
    return list(hints.values())
