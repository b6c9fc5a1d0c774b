"""Histories of the bus from seeds: every invariant holds; bugs put in on purpose are caught."""

import os

import pytest

from penstock.bus import redelivery
from penstock.bus.store import dead_letter_writes, deliveries
from tests.harness.bus_simulation import BusSimulationFailed, run_bus_seed
from tests.simulation.test_seeded_bugs import patched

SHORT = 20
"""Seeds per test; `make simulate` runs thousands, of full length."""


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = run_bus_seed(7), run_bus_seed(7)
    assert first == second
    assert first.digest != run_bus_seed(8).digest


@pytest.mark.parametrize("block", range(5))
def test_histories_with_every_fault(block: int) -> None:
    reports = [run_bus_seed(seed, steps=200) for seed in range(block * SHORT, (block + 1) * SHORT)]
    assert sum(report.dead for report in reports) > 10
    assert sum(report.messages for report in reports) > 200
    assert sum(report.faults.total() for report in reports) > 100


def test_a_history_without_faults_is_quiet() -> None:
    report = run_bus_seed(3, fault_odds=0.0)
    assert not report.faults
    assert report.messages


def test_one_seed() -> None:
    """`PENSTOCK_SEED=n pytest tests/simulation/test_bus.py -k one_seed` shows a seed again."""
    run_bus_seed(int(os.environ.get("PENSTOCK_SEED", "1")))


def caught(*invariants: str) -> int:
    """The first seed that notices, for the right reason."""
    for seed in range(40):
        try:
            run_bus_seed(seed)
        except BusSimulationFailed as error:
            if error.invariant not in invariants:
                raise
            return seed
    pytest.fail("not caught within 40 seeds")


class TestSeededBugs:
    """What the simulation must notice."""

    def test_an_ack_of_any_epoch(self) -> None:
        """A late consumer settles what somebody else holds."""
        with patched("bus_settle", "d.epoch = batch.epoch AND", ""):
            assert caught("I4", "I1") >= 0

    def test_a_nack_of_what_is_not_held(self) -> None:
        """What was given back or lapsed is refused once more: counted twice, buried twice."""
        with patched("bus_hold", "d.state = 1", "TRUE"):
            assert caught("I4", "I1", "unexpected") >= 0

    def test_ready_before_its_time(self) -> None:
        """A courier that does not look at the clock."""
        with patched("bus_due", "due_at <= :now", "TRUE"):
            assert caught("I8") >= 0

    def test_keys_that_are_not_freed(self) -> None:
        """A settled head that nobody replaces."""
        with patched("bus_move_up", "THEN 2 ELSE 0 END", "THEN 2 ELSE 3 END"):
            assert caught("I9") >= 0

    def test_attempts_that_are_not_counted(self) -> None:
        """A poison loop for ever."""
        with patched("bus_pull", "attempt = attempt + 1", "attempt = attempt + 0"):
            assert caught("I4") >= 0

    def test_a_release_that_costs_an_attempt(self) -> None:
        """A worker that is stopped often enough buries what nobody tried."""
        with patched("bus_release", "attempt = deliveries.attempt - 1", "due_at = 0"):
            assert caught("I6") >= 0

    def test_no_backoff(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hot loop."""
        monkeypatch.setattr(redelivery, "delay", lambda *_: 1_000)
        assert caught("I8") >= 0

    def test_dead_letters_without_their_attributes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A copy that forgot what it was."""
        real = dead_letter_writes._copy
        monkeypatch.setattr(
            dead_letter_writes,
            "_copy",
            lambda *given: real(*given)._replace(attributes={"lost": "all"}),
        )
        assert caught("I7", "unexpected") >= 0

    def test_burying_without_settling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A dead letter whose source lives on is buried again."""
        real = deliveries.settle
        monkeypatch.setattr(
            deliveries,
            "settle",
            lambda tx, sub, tickets, outcome: (
                set() if outcome == "dead_lettered" else real(tx, sub, tickets, outcome)
            ),
        )
        assert caught("I7", "unexpected", "liveness") >= 0
