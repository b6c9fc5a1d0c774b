"""Probes query the data that gates depend on: DuckDB, files, SQLite, PostgreSQL and BigQuery.

    from penstock.probes import ProbeRequest, ProbeRunner

One adapter per warehouse implements `protocol`; all of them only read. Names are loaded on first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.exports import lazy_exports

if TYPE_CHECKING:
    from penstock.flows.gates.evidence import Observation
    from penstock.flows.gates.probe_request import ProbeBudget, ProbeRequest
    from penstock.probes.runner import ProbeRunner

__all__ = [
    "Observation",
    "ProbeBudget",
    "ProbeRequest",
    "ProbeRunner",
]

_HOMES = {
    "Observation": "penstock.flows.gates.evidence",
    "ProbeBudget": "penstock.flows.gates.probe_request",
    "ProbeRequest": "penstock.flows.gates.probe_request",
    "ProbeRunner": "penstock.probes.runner",
}
"""Module that defines each public name."""

if not TYPE_CHECKING:  # type checkers see the imports above instead
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
