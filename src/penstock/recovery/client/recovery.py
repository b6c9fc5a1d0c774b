"""Use cases of recovery: replay a part of a flow, cancel by filter, find slow processors."""

from __future__ import annotations

import shlex
from typing import Annotated, Final

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import PageLimit
from penstock.core.clock import DAY, request_time
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.records.parameters import CustomerFilter, PipelineFilter
from penstock.core.records.record import Meta, Page, Time, seconds
from penstock.db.store import Transactions, Tx
from penstock.flows.client.closing import flow_close
from penstock.flows.from_rows import flow_record
from penstock.flows.store.flows import phase_states
from penstock.recovery.blast_radius import blast_radius, listed_effect
from penstock.recovery.client.approvals import approval_impact
from penstock.recovery.client.config_edits import config_edit
from penstock.recovery.client.replays import replay_choose, replay_impact, replay_open
from penstock.recovery.records import (
    BlastRadius,
    CancelRequest,
    CancelStep,
    ConfigEdit,
    ConfigEditStep,
    FlowReplay,
    ReplayedFlow,
    SlowProcessor,
)
from penstock.recovery.store.matching import (
    MatchingWork,
    WorkFilter,
    flows_matching,
    processor_durations,
    runs_matching,
    work_count,
)
from penstock.runs.client.stop import run_stop_if_live

__all__ = ["Recovery"]

SAMPLES_MAX: Final = 100_000
"""Number of newest successful runs from which durations of processors are computed."""

SinceEnd = Annotated[
    Time | None,
    Meta(
        description="Count only runs that ended at or after this time; the last 7 days if omitted."
    ),
]


class Recovery:
    """Use cases of recovery."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def replay(self, request: FlowReplay) -> ReplayedFlow:
        """Run a part of a flow again, in a new generation that inherits earlier phases.

        Without `force`, a replay is rejected if everything has completed, or is in progress. A dry
        run returns what would run, what would be written again and how long it will probably take.
        """

        def body(tx: Tx) -> ReplayedFlow:
            chosen = replay_choose(tx, self._names, request)
            impact = replay_impact(tx, request, chosen)
            if request.is_dry_run:
                older = [encode("flow", one.flow_id) for one in chosen.target.superseded]
                return ReplayedFlow(
                    is_dry_run=True, impact=impact, flow=None, run_ids=[], superseded=older
                )
            made = replay_open(tx, self._store, self._names, request, chosen, self._actor)
            held_up = phase_states(tx, [made.flow.flow_id])
            return ReplayedFlow(
                is_dry_run=False,
                impact=impact,
                flow=flow_record(made.flow, held_up.get(made.flow.flow_id)),
                run_ids=[encode("run", run_id) for run_id in made.run_ids],
                superseded=[encode("flow", number) for number in made.superseded],
            )

        return self._store.write(body)

    def approval_impact(
        self,
        intervention_id: Annotated[str, Meta(description="Id of the intervention (`int_…`).")],
    ) -> BlastRadius:
        """Return the blast radius of approving an intervention, without approving it."""
        return self._store.read(lambda tx: approval_impact(tx, self._names, intervention_id))

    def cancel(self, request: CancelRequest) -> CancelStep:
        """Cancel open flows and single runs that match a filter, in bounded steps.

        Runs in progress are asked to stop. Repeat the request until `left` is 0; what ends in the
        meantime is skipped. Backfills that opened such flows continue with their next partitions:
        pause or cancel them first.
        """

        def body(tx: Tx) -> CancelStep:
            wanted = self._filter(tx, request)
            found = work_count(tx, wanted)
            impact = _cancel_impact(request, found)
            flows: list[int] = []
            runs: list[int] = []
            stopped = ended = 0
            if not request.is_dry_run:
                flows = flows_matching(tx, wanted, request.limit)
                reason = request.reason or "cancelled by filter"
                closed = {one: flow_close(tx, one, self._actor, reason) for one in flows}
                runs = runs_matching(tx, wanted, request.limit)
                asked = {
                    one: run_stop_if_live(
                        tx, self._store, one, customer_key=wanted.customer, actor=self._actor,
                        reason=reason, force=False,
                    )
                    for one in runs
                }  # fmt: skip
                # What ended since it was read needs no cancelling.
                ended = [*closed.values(), *asked.values()].count(None)
                flows = [one for one in flows if closed[one] is not None]
                runs = [one for one in runs if asked[one] is not None]
                stopped = sum(n for n in closed.values() if n is not None)
                tx.wake(["cancel", "flows"])
            return CancelStep(
                is_dry_run=request.is_dry_run,
                impact=impact,
                flows=[encode("flow", one) for one in flows],
                runs=[encode("run", one) for one in runs],
                stopped=stopped,
                ended=ended,
                left=max(0, found.flows + found.runs - len(flows) - len(runs) - ended),
            )

        return self._store.write(body)

    def edit_configs(self, request: ConfigEdit) -> ConfigEditStep:
        """Change all configs that match a filter, in bounded steps; each change is audited.

        A config to which the change cannot be applied is reported; the others are changed. Pass the
        result's `next_after` to the next step.
        """
        done = self._store.write(
            lambda tx: config_edit(tx, self._store, self._names, request, self._actor)
        )
        self._store.wake(["schedule"])
        return done

    def slowest(
        self,
        *,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        since: SinceEnd = None,
        limit: PageLimit = 20,
    ) -> Page[SlowProcessor]:
        """List processors by how long their runs take, slowest first.

        Ordered by the 95th percentile of the duration of successful runs, over at most the newest
        100,000 runs.
        """

        def body(tx: Tx) -> Page[SlowProcessor]:
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            began = tx.now() - 7 * DAY if since is None else request_time(since, "since")
            rows = processor_durations(
                tx,
                customer_key=self._names.customer_key(tx, customer),
                pipeline_key=None if info is None else info.pipeline_key,
                since=began,
                samples=SAMPLES_MAX,
                limit=limit,
            )
            return Page(
                items=[
                    SlowProcessor(
                        pipeline=row.pipeline,
                        phase=row.phase,
                        processor=row.processor,
                        runs=int(row.runs),
                        p50=seconds(int(row.p50_us)),
                        p95=seconds(int(row.p95_us)),
                        longest=seconds(int(row.max_us)),
                        total=seconds(int(row.total_us)),
                    )
                    for row in rows
                ]
            )

        return self._store.read(body)

    def _filter(self, tx: Tx, request: CancelRequest) -> WorkFilter:
        given = (request.customer, request.pipeline, request.first, request.last)
        if all(value is None for value in given):
            raise InvalidInput(
                "customer", "at least one of customer, pipeline, from and to", None,
                "To stop everything from starting: penstock pause all",
            )  # fmt: skip
        info = None
        if request.pipeline is not None:
            info = self._names.pipeline(request.pipeline, "pipeline", tx)
        return WorkFilter(
            self._names.customer_key(tx, request.customer),
            None if info is None else info.pipeline_key,
            request.first,
            request.last,
        )


def _cancel_impact(request: CancelRequest, found: MatchingWork) -> BlastRadius:
    parts = ["cancel"]
    for option, value in (
        ("--customer", request.customer),
        ("--pipeline", request.pipeline),
        ("--from", request.first),
        ("--to", request.last),
    ):
        parts += [option, value] if value is not None else []
    command = " ".join(["penstock", *(shlex.quote(part) for part in parts)])
    text = (
        f"{found.flows} open flows with {found.runs_of_flows} runs, and {found.runs} single runs "
        "match."
    )
    effects = [
        *listed_effect(
            "cancels", f"{found.flows} flows start no more phases.", [], count=found.flows
        ),
        *listed_effect(
            "cancels",
            f"{found.runs_of_flows + found.runs} runs are cancelled, or asked to stop if they are "
            "in progress.",
            [],
            count=found.runs_of_flows + found.runs,
        ),
        *listed_effect(
            "undo",
            "Each flow can be replayed and each run retried.",
            [],
            count=found.flows + found.runs,
        ),
    ]
    return blast_radius(text, command, effects)
