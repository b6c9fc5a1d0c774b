"""A stage for fan-out: item runs claimed and ended by the test, a result that lists items."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from penstock import Pipeline, game_day_modes, upstream
from penstock.access.store import registry
from penstock.db.store import Store
from penstock.flows.client.opening import TriggerResult
from penstock.flows.items.fan_in import ExpansionRow
from penstock.flows.items.sources import ItemQuery, no_queries
from penstock.flows.items.store.expansions import expansions_of
from penstock.flows.orchestrator import Orchestrator
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.rows import FinishedRun, HeldRun
from penstock.runs.states import RunStatus
from penstock.runs.store import runs
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work


def fanned(each: Any = None, *, stragglers: str | None = None, **options: Any) -> Pipeline:
    """`list_games`, then one run of `game` per item, then `report`."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    listing = made.phase("listing")
    listing.processor("list_games")(work)
    games = made.phase("games", after=listing, stragglers=stragglers)  # type: ignore[arg-type]
    games.processor("game", each=each or upstream("list_games"), **options)(work)
    made.phase("report", after=games).processor("report")(work)
    return made


class ItemStage(Stage):
    """A stage whose runs are claimed as a list."""

    flow_id: str
    """Id of the flow that a fixture opened."""

    def __init__(
        self, store: Store, clock: VirtualClock, pipeline: Pipeline, query: ItemQuery = no_queries
    ) -> None:
        super().__init__(store, clock, pipeline)
        self.orchestrator = Orchestrator(
            store, self.probe, holder="o1", query=query, pipelines=[pipeline]
        )

    def claim_items(self, name: str = "game", n: int = 100_000) -> list[HeldRun]:
        """Claim ready runs of a processor."""
        self.admitter.run_once()
        rows = {row.processor_key: row for row in self.store.read(registry.processor_list)}
        (wanted,) = [row for row in rows.values() if row.name == name and row.is_current]
        claim = runs.Claim(
            pool_key=wanted.pool_key, processors=[wanted.processor_key], n=n, start=True,
            claimed_by="t",
        )  # fmt: skip
        return self.write(lambda tx: runs.run_claim(tx, claim))

    def end_items(
        self, held: Sequence[HeldRun], fails: Callable[[HeldRun], bool] = lambda _: False
    ) -> list[FinishedRun]:
        """End runs in one transaction; those that `fails` picks fail permanently."""
        failure = AttemptFailure(error_type="VALIDATION_ERROR")
        ends = [
            attempt_result.failed(h, failure, jitter=0.0)
            if fails(h)
            else attempt_result.completed_result(h, status=RunStatus.SUCCESS, records=2)
            for h in held
        ]
        return self.write(lambda tx: run_end_many(tx, ends))

    def list_games(self, items: Any, field: str = "items") -> None:
        """Complete `list_games` with items as its result."""
        (held,) = self.claim_items("list_games")
        end = attempt_result.completed_result(
            held, status=RunStatus.SUCCESS, result=json.dumps({field: items})
        )
        self.write(lambda tx: run_end_many(tx, [end]))

    def expansion(self, flow: TriggerResult) -> ExpansionRow:
        """The only expansion of a flow."""
        flow_id = flow.flow.flow_id
        (row,) = self.store.read(lambda tx: expansions_of(tx, [flow_id]))[flow_id]
        return row

    def item_keys(self) -> list[str]:
        """Keys of all item runs, live and ended."""
        rows = self.sql(
            "SELECT item_key FROM runs WHERE item_key <> '' UNION ALL "
            "SELECT item_key FROM history WHERE item_key <> '' ORDER BY 1"
        )
        return [row[0] for row in rows]
