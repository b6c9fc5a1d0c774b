"""Histories from seeds: every invariant holds, and the same seed produces the same history."""

import os

import pytest

from tests.harness.simulation import Options, run_seed
from tests.kits.effort import effort

SHORT = 7
"""Seeds per test; `make simulate` runs thousands, of full length."""


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first == second
    assert first.digest != run_seed(8).digest


@pytest.mark.parametrize("block", range(effort(1, 7)))
def test_histories_with_every_fault(block: int) -> None:
    for seed in range(block * SHORT, (block + 1) * SHORT):
        run_seed(seed, Options(steps=200))


def test_histories_with_recovery() -> None:
    """The ladder, the monitor and the backfiller take part; users start backfills."""
    for seed in range(effort(3, 7)):
        run_seed(seed, Options(steps=200, recovers=True))


def test_a_history_without_faults_is_quiet() -> None:
    for seed in range(effort(1, 5)):
        report = run_seed(seed, Options(faults=frozenset()))
        assert not report.faults
        assert report.runs


def test_one_seed() -> None:
    """Run one seed: `PENSTOCK_SEED=n pytest tests/simulation -k one_seed`."""
    steps = int(os.environ.get("PENSTOCK_STEPS", "400"))
    run_seed(int(os.environ.get("PENSTOCK_SEED", "1")), Options(steps=steps))
