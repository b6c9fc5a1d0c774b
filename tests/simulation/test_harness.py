"""The simulation's checks follow the product: every commit counts, and no table is read stale."""

import re

import pytest

from penstock.db.statements import load
from penstock.runs.records import Submission
from penstock.testing.simulate.snapshots import _GROUPS, _QUERIES
from penstock.testing.simulate.violation import Violation
from tests.harness.sim_actors import Operator
from tests.harness.sim_limits import resize_shared_limit
from tests.harness.simulation import Options, Simulation
from tests.simulation.test_seeded_bugs import patched

_WRITTEN = re.compile(r"\b(?:INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM)\s+(\w+)")


class _SharedLimit:
    """A history without faults, whose shared limit has a capacity of 3."""

    def __init__(self) -> None:
        self._simulation = Simulation(0, Options(configs=0, fault_odds=0.0, nest_odds=0.0))
        operator = self._simulation.actors["operator"]
        assert isinstance(operator, Operator)
        self._client = operator.client

    def admit(self, *pipelines: str) -> None:
        """Submit runs and admit those for which there is capacity."""
        for pipeline in pipelines:
            self._client.runs.submit(Submission(pipeline=pipeline))
        self._simulation.actors["admitter-0"].step()

    def resize(self, capacity: int) -> None:
        """Change the capacity."""
        self._client.store.write(lambda tx: resize_shared_limit(tx, capacity))


def test_a_capacity_lowered_below_what_runs_hold() -> None:
    """I29: runs that were admitted before may keep their limits (seeds 1049 and 1451)."""
    shared = _SharedLimit()
    shared.admit("narrow", "heavy")
    shared.resize(2)


def test_a_lowered_capacity_admits_no_more_runs() -> None:
    """I29: the commit that admits one more run is reported, not a later one."""
    shared = _SharedLimit()
    shared.admit("narrow", "heavy")
    shared.resize(2)
    with (
        patched("queue_capacity", "coalesce(sum(e.weight), 0)", "0"),
        pytest.raises(Violation, match="5 of shared are held, at most 3 may be"),
    ):
        shared.admit("heavy")


@pytest.mark.parametrize(("prefixes", "columns"), _GROUPS)
def test_snapshots_read_each_table_after_every_statement_that_writes_it(
    prefixes: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    tables = {_QUERIES[column].split(" FROM ")[1].split()[0] for column in columns}
    writers = {
        name
        for name, statement in load("sqlite").items()
        if not tables.isdisjoint(_WRITTEN.findall("\n".join(statement.texts)))
    }
    assert {name for name in writers if not name.startswith(prefixes)} == set()
    unused = {p for p in prefixes if not any(name.startswith(p) for name in writers)}
    assert unused == set()
