"""A pipeline with incremental processors, and its runs, ended one by one by the test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock import Pipeline, day
from penstock.access.store import registry
from penstock.db.store import Store
from penstock.entities.changed import ChangedEntities
from penstock.entities.store import changed_of
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.rows import HeldRun
from penstock.runs.states import RunStatus
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.runs import Claim, run_claim
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work

Ids = Mapping[str, Sequence[str | int]]
UP, DOWN = ("rosters", "games"), ("everyone", "players", "by_day")


def incremental_pipeline(**options: Any) -> Pipeline:
    """Two processors that report, and three incremental ones after them."""
    made = Pipeline("inc", partition=day("d", repeats=True), warehouse="w", **options)
    raw = made.phase("raw", stragglers="10m")
    raw.processor("rosters", entities=["players"])(work)
    raw.processor("games", entities=["teams"])(work)
    features = made.phase("features", after=raw)
    features.processor("everyone", incremental=True)(work)
    features.processor("players", incremental=["players"])(work)
    features.processor("by_day", incremental=["players"], incremental_per="partition")(work)
    return made


class Held(NamedTuple):
    """A claimed run and the name of its processor."""

    run: HeldRun
    name: str


class Scene:
    """Flows of one customer on the stage of an engine."""

    def __init__(
        self, store: Store, clock: VirtualClock, made: Pipeline | None = None, customer: str = "c"
    ) -> None:
        self.stage = Stage(store, clock, made or incremental_pipeline())
        self.customer = customer
        self.held: list[Held] = []
        self.left: set[str] = set()
        """Processors whose runs are not claimed here."""

    def open(self, partition: str = "2025-11-16", **fields: Any) -> int:
        """Open a flow as the scheduler does; return its id."""
        given = {"mode": "daily", "force": True, "keep_older": True, "source": "scheduler"}
        more = {"customer": self.customer, "partition": partition, **given, **fields}
        flow = self.stage.open("inc", **more).flow
        self.claim()
        return flow.flow_id

    def claim(self) -> None:
        """Claim every run that is ready."""
        self.stage.admitter.run_once()
        every = self.stage.store.read(registry.processor_list)
        rows = {row.processor_key: row for row in every if row.name not in self.left}
        for pool in sorted({row.pool_key for row in rows.values()}):
            claim = Claim(pool_key=pool, processors=list(rows), n=1000, start=True, claimed_by="t")
            for run in self.stage.write(lambda tx, c=claim: run_claim(tx, c)):  # type: ignore[misc]
                if run.customer_id == self.customer:
                    self.held.append(Held(run, rows[run.processor_key].name))

    def step(self) -> None:
        """Let the orchestrator act and claim what it started."""
        self.stage.step()
        self.claim()

    def take(self, name: str, flow_id: int | None = None) -> HeldRun:
        """Remove and return a claimed run of a processor, of any flow or of one."""
        for one in self.held:
            if one.name == name and flow_id in (None, one.run.flow_id):
                self.held.remove(one)
                return one.run
        raise AssertionError(f"no run of {name} is held: {self.held}")

    def end(
        self,
        run: HeldRun,
        ids: Ids | None = None,
        status: RunStatus = RunStatus.SUCCESS,
        **more: Any,
    ) -> None:
        """Complete a run with a report, or without one."""
        given = {**more} if ids is None else {"entities_changed": dict(ids), **more}
        text = json.dumps(given) if given else None
        done = attempt_result.completed_result(run, status=status, result=text)
        self.stage.write(lambda tx: run_end_many(tx, [done]))

    def kill(self, run: HeldRun, error: str = "VALIDATION_ERROR") -> None:
        """Fail a run; by default permanently."""
        failure = AttemptFailure(error_type=error)
        done = attempt_result.failed(run, failure, jitter=0.0)
        self.stage.write(lambda tx: run_end_many(tx, [done]))

    def changed(self, run: HeldRun) -> ChangedEntities:
        """Return what a claimed run receives."""
        key = (run.flow_id or 0, int(run.processor_key))
        return self.stage.store.read(lambda tx: changed_of(tx, [key]))[key]

    def upstream(self, rosters: Ids | None, games: Ids | None = None) -> None:
        """Complete both processors of the first phase and start the second."""
        self.end(self.take("rosters"), rosters)
        self.end(self.take("games"), {} if games is None else games)
        self.step()

    def downstream(self) -> dict[str, ChangedEntities]:
        """Complete the second phase; return what its processors received."""
        found = {}
        for name in DOWN:
            run = self.take(name)
            found[name] = self.changed(run)
            self.end(run)
        self.step()
        return found
