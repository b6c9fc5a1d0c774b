"""Hooks that registration calls; connected in `penstock.wiring`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.naming import PipelineKey
from penstock.db.hooks import Hook
from penstock.db.store import Tx

check_change: Hook[[Tx, PipelineKey, Mapping[str, Any], Mapping[str, Any]]] = Hook(
    "pipelines.check_change"
)
"""Called with (tx, pipeline, stored definition, new one) before a changed declaration is stored.

A function raises Conflict to refuse it.
"""
on_changed: Hook[[Tx, PipelineKey, str]] = Hook("pipelines.on_changed")
"""Called with (tx, pipeline, digest) for a new declaration, in the registering transaction."""
