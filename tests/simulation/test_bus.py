"""Histories of the bus from seeds: every invariant holds, and planted bugs are detected."""

import os

import pytest

from penstock.bus import redelivery
from penstock.bus.store import dead_letter_writes, deliveries
from tests.harness.bus_simulation import BusSimulationFailed, run_bus_seed
from tests.kits.effort import effort
from tests.simulation.test_seeded_bugs import patched

SHORT = 8
"""Seeds per test; `make simulate` runs thousands, of full length."""


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = run_bus_seed(7), run_bus_seed(7)
    assert first == second
    assert first.digest != run_bus_seed(8).digest


@pytest.mark.parametrize("block", range(effort(1, 5)))
def test_histories_with_every_fault(block: int) -> None:
    reports = [run_bus_seed(seed, steps=200) for seed in range(block * SHORT, (block + 1) * SHORT)]
    assert sum(report.dead for report in reports) > 4
    assert sum(report.messages for report in reports) > 80
    assert sum(report.faults.total() for report in reports) > 40


def test_a_history_without_faults_is_quiet() -> None:
    report = run_bus_seed(3, fault_odds=0.0)
    assert not report.faults
    assert report.messages


def test_one_seed() -> None:
    """Run one seed: `PENSTOCK_SEED=n pytest tests/simulation/test_bus.py -k one_seed`."""
    run_bus_seed(int(os.environ.get("PENSTOCK_SEED", "1")))


def detecting_seed(*invariants: str) -> int:
    """Return the first seed that detects the bug, for the right reason."""
    for seed in range(40):
        try:
            run_bus_seed(seed)
        except BusSimulationFailed as error:
            if error.invariant not in invariants:
                raise
            return seed
    pytest.fail("not detected within 40 seeds")


@pytest.mark.seeded
class TestSeededBugs:
    """Bugs that the simulation must detect."""

    def test_an_ack_of_any_epoch(self) -> None:
        """A late consumer settles a delivery that another one holds."""
        with patched("bus_settle", "d.epoch = batch.epoch AND", ""):
            assert detecting_seed("I4", "I1") >= 0

    def test_a_nack_of_what_is_not_held(self) -> None:
        """A released or lapsed delivery is nacked again: two attempts, two dead letters."""
        with patched("bus_lock_leased", "d.state = 1", "TRUE"):
            assert detecting_seed("I4", "I1", "unexpected") >= 0

    def test_ready_before_its_time(self) -> None:
        """A sweeper ignores the due time."""
        with patched("bus_due", "due_at <= :now", "TRUE"):
            assert detecting_seed("I8") >= 0

    def test_keys_that_stay_blocked(self) -> None:
        """A settled head is not replaced."""
        with patched("bus_move_up", "THEN 2 ELSE 0 END", "THEN 2 ELSE 3 END"):
            assert detecting_seed("I9") >= 0

    def test_attempts_that_are_not_counted(self) -> None:
        """A poison message is retried forever."""
        with patched("bus_pull", "attempt = attempt + 1", "attempt = attempt + 0"):
            assert detecting_seed("I4") >= 0

    def test_a_release_that_costs_an_attempt(self) -> None:
        """A consumer that is stopped often creates dead letters of untried messages."""
        with patched("bus_release", "attempt = deliveries.attempt - 1", "due_at = 0"):
            assert detecting_seed("I6") >= 0

    def test_no_backoff(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A failing message is retried in a tight loop."""
        monkeypatch.setattr(redelivery, "redelivery_delay", lambda *_: 1_000)
        assert detecting_seed("I8") >= 0

    def test_dead_letters_without_their_attributes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The copy in the dead-letter topic lacks the original attributes."""
        real = dead_letter_writes._copy
        monkeypatch.setattr(
            dead_letter_writes,
            "_copy",
            lambda *given: real(*given)._replace(attributes={"lost": "all"}),
        )
        assert detecting_seed("I7", "unexpected") >= 0

    def test_dead_letters_without_settling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A dead letter is written again because its source was not settled."""
        real = deliveries.settle
        monkeypatch.setattr(
            deliveries,
            "settle",
            lambda tx, sub, tickets, outcome: (
                set() if outcome == "dead_lettered" else real(tx, sub, tickets, outcome)
            ),
        )
        assert detecting_seed("I7", "unexpected", "liveness") >= 0
