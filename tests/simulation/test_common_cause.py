"""Histories in which configs keep failing: own causes disable them, common causes do not.

In ordinary histories a config hardly ever fails five times in a row, so that the invariant would
have nothing to check.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from penstock.schedules.store import config_health
from penstock.testing.simulate.snapshots import EndedRunRow
from penstock.testing.simulate.workers import SimWorker
from penstock.worker.outcome import AttemptOutcome
from tests.harness import invariants, sim_actors, simulation
from tests.harness.invariants import Commit, has_common_cause
from tests.harness.sim_actors import new_config
from tests.harness.simulation import Options, SimulationFailed, run_seed

SEEDS = range(2, 12)
"""Histories to run until one has what a test is about: which one does depends on the order of all
transactions, which a change of any service alters.
"""
SMALL = Options(workers=4, externals=0, schedulers=1, sweepers=1, steps=700)
FEW, MANY = replace(SMALL, configs=3), replace(SMALL, configs=8)


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let all runs fail permanently; collect whether causes were common, of active configs."""
    found: list[bool] = []

    def frequent(rng: random.Random) -> dict[str, Any]:
        return {
            **new_config(rng),
            "pipeline_template": "single",
            "schedule_type": "INTERVAL",
            "schedule_interval_minutes": 1,
            "schedule_cron": None,
            "timezone": "UTC",
            "jitter_seconds": 0,
            "overlap": "allow",
            "catch_up": "one",
            "retry_config": {"max_attempts": 1},
        }

    def judge(commit: Commit, end: EndedRunRow) -> bool:
        is_common = has_common_cause(commit, end)
        if commit.before.configs[end.config_id or 0].is_active:
            found.append(is_common)
        return is_common

    failed = AttemptOutcome(error_type="VALIDATION_ERROR")
    for module in (simulation, sim_actors):
        monkeypatch.setattr(module, "new_config", frequent)
    monkeypatch.setattr(SimWorker, "_outcome", lambda _worker, _run: failed)
    monkeypatch.setattr(invariants, "has_common_cause", judge)
    return found


def test_few_configs_are_disabled(judged: list[bool]) -> None:
    for seed in SEEDS:
        run_seed(seed, FEW)
        if judged:
            break
    assert judged
    assert not any(judged)


def test_many_configs_stay_enabled(judged: list[bool]) -> None:
    for seed in SEEDS:
        run_seed(seed, MANY)
        if any(judged):
            break
    assert any(judged)


@pytest.mark.seeded
def test_an_engine_that_disables_in_spite_of_a_common_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config_health, "is_common_cause", lambda _: False)
    assert detected(MANY) == "failures"


@pytest.mark.seeded
@pytest.mark.parametrize("options", [FEW, MANY])
def test_an_engine_that_never_disables(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_health, "is_common_cause", lambda _: True)
    assert detected(options) == "failures"


def detected(options: Options) -> str | None:
    """Return the invariant that the first failing seed breaks."""
    for seed in SEEDS:
        try:
            run_seed(seed, options)
        except SimulationFailed as error:
            return error.invariant
    return None
