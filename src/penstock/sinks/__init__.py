"""Sinks store the effects of handled messages in one transaction with mark, version and counters.

A sink stores documents, marks, counters and audit records; it does not depend on messages,
transports or HTTP. `consumer` writes through `protocol`. Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.exports import lazy_exports

if TYPE_CHECKING:
    from penstock.sinks.opening import open_sink
    from penstock.sinks.protocol import Document, Sink, SinkTx, StaleFence, Upsert, doc_path

__all__ = [
    "Document",
    "Sink",
    "SinkTx",
    "StaleFence",
    "Upsert",
    "doc_path",
    "open_sink",
]

_HOMES = {
    "Document": "penstock.sinks.protocol",
    "Sink": "penstock.sinks.protocol",
    "SinkTx": "penstock.sinks.protocol",
    "StaleFence": "penstock.sinks.protocol",
    "Upsert": "penstock.sinks.protocol",
    "doc_path": "penstock.sinks.protocol",
    "open_sink": "penstock.sinks.opening",
}
"""Module that defines each public name."""

if not TYPE_CHECKING:  # type checkers see the imports above instead
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
