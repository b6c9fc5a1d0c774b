"""Test support for your pipelines: flows on virtual time, simulation and PostgreSQL servers.

    from penstock.testing import FlowTest

No other package imports this one. Names are loaded on first use, so that a missing optional
dependency (such as a PostgreSQL driver) affects only the tests that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.exports import lazy_exports

if TYPE_CHECKING:
    from penstock.testing.clock import VirtualClock
    from penstock.testing.drive import FlowStuck
    from penstock.testing.flow import FlowTest
    from penstock.testing.memory import memory_store
    from penstock.testing.postgres.binaries import PostgresUnavailable
    from penstock.testing.postgres.server import PostgresServer
    from penstock.testing.simulate.histories import SimulationFailed, run_seed

__all__ = [
    "FlowStuck",
    "FlowTest",
    "PostgresServer",
    "PostgresUnavailable",
    "SimulationFailed",
    "VirtualClock",
    "memory_store",
    "run_seed",
]

_HOMES = {
    "FlowStuck": "penstock.testing.drive",
    "FlowTest": "penstock.testing.flow",
    "PostgresServer": "penstock.testing.postgres.server",
    "PostgresUnavailable": "penstock.testing.postgres.binaries",
    "SimulationFailed": "penstock.testing.simulate.histories",
    "VirtualClock": "penstock.testing.clock",
    "memory_store": "penstock.testing.memory",
    "run_seed": "penstock.testing.simulate.histories",
}
"""Module that defines each public name."""

if not TYPE_CHECKING:  # type checkers see the imports above instead
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
