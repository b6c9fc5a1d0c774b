"""Hooks that registration calls; connected in `penstock.wiring`."""

from __future__ import annotations

from penstock.core.naming import PipelineKey
from penstock.db.hooks import Hook
from penstock.db.store import Tx

on_changed: Hook[[Tx, PipelineKey, str]] = Hook("pipelines.on_changed")
"""Called with (tx, pipeline, digest) for a new declaration, in the registering transaction."""
