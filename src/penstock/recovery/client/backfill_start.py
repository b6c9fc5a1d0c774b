"""The start of a backfill: its partitions, its blast radius, and its rows.

Functions over a transaction; a dry run and the start itself make the same choices.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.access.store.names import NameResolver, PipelineInfo, check_sole_customer
from penstock.access.store.registry import customer_get
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import new_correlation_id
from penstock.core.naming import DEFAULT_CUSTOMER, CustomerKey
from penstock.db.store import Tx
from penstock.flows.client.requests import check_request, request_parameters
from penstock.flows.client.target import config_of
from penstock.flows.plan import planned_of
from penstock.flows.records import FlowRequest
from penstock.flows.rows import BACKFILL
from penstock.pipelines.partition import partition_rule_of, range_text
from penstock.pipelines.plan import Plan, mode_and_partition
from penstock.recovery.blast_radius import (
    affected_by,
    blast_radius,
    listed_effect,
    plural,
    slo_effects,
    work_effects,
)
from penstock.recovery.estimate import (
    SAMPLES,
    PhaseDuration,
    repeated,
    weekday_estimate,
    weekday_of,
)
from penstock.recovery.fates import (
    COMPLETE,
    BackfillState,
    PartitionState,
    final_phases,
    phases_run,
    skip_reason,
)
from penstock.recovery.partition_range import partitions_between, partitions_listed
from penstock.recovery.records import BackfillRequest, BlastRadius
from penstock.recovery.rows import NewBackfill, NewPartition
from penstock.recovery.store.backfills import (
    backfill_insert,
    backfill_partition_insert_many,
    partition_work,
    phase_durations,
)
from penstock.schedules.rows import ConfigRow

WORK_BATCH: Final = 1_000
HOW_TO_CHOOSE: Final = "Name a range (--from … --to …), or partitions (--partition …)."


class ChosenPartitions(NamedTuple):
    """A resolved request to start a backfill."""

    info: PipelineInfo
    customer_id: str
    customer_key: CustomerKey | None
    """None for a customer that does not exist yet."""
    config: ConfigRow | None
    mode: str
    plan: Plan
    partitions: list[str]
    skipped: dict[str, str]
    """Reason for each skipped partition, by name."""

    @property
    def config_id(self) -> int:
        """Key of the config; 0 if there is none."""
        return 0 if self.config is None else self.config.config_id

    @property
    def starts(self) -> list[str]:
        """The partitions that are processed."""
        return [name for name in self.partitions if name not in self.skipped]


def backfill_choose(tx: Tx, names: NameResolver, request: BackfillRequest) -> ChosenPartitions:
    """Check a request and resolve it."""
    info = names.pipeline(request.pipeline, "pipeline", tx)
    wanted = _flow_request(request)
    check_request(info, wanted)
    rule = partition_rule_of(info.definition)
    has_range = request.first is not None or request.last is not None
    if bool(request.partitions) == has_range:
        given = "both" if has_range else None
        raise InvalidInput("first", "a range or a list of partitions", given, HOW_TO_CHOOSE)
    if request.partitions:
        partitions = partitions_listed(rule, request.partitions)
    elif request.first is None or request.last is None:
        name, end = ("first", "start") if request.first is None else ("last", "end")
        raise InvalidInput(name, f"the {end} of the range, too", None, HOW_TO_CHOOSE)
    else:
        partitions = partitions_between(rule, request.first, request.last)
        if request.order == "newest":
            partitions.reverse()
    customer_id = names.customer_or_default(request.customer)
    key = customer_key_of(tx, names, customer_id)
    check_sole_customer(tx, info, customer_get(tx, customer_id))
    config = config_of(tx, info, wanted, key)
    mode, _ = mode_and_partition(
        info.definition, tx.now(), mode=request.mode, backfill=True, source=BACKFILL
    )
    request_parameters(info, wanted, config)
    plan = planned_of(info.definition, mode).plan
    skipped: dict[str, str] = {}
    if key is not None:
        series = (key, info.pipeline_key, 0 if config is None else config.config_id)
        finals = final_phases(plan, request.phases, no_downstream=request.no_downstream)
        for n in range(0, len(partitions), WORK_BATCH):
            part = partitions[n : n + WORK_BATCH]
            work = partition_work(tx, series, part, finals)
            reasons = {name: skip_reason(work[name], request.existing) for name in part}
            skipped |= {name: why for name, why in reasons.items() if why is not None}
    if request.one_pass:
        if request.first is None or request.last is None:
            raise InvalidInput("one_pass", "a range with from and to", "a list of partitions")
        busy = [f"{name} ({why})" for name, why in skipped.items() if why != COMPLETE]
        if busy and request.existing != "missing":
            raise Conflict(
                f"a single flow over the range would repeat work in progress: {busy[0]}. "
                "Cancel it, or wait for it."
            )
        partitions, skipped = [range_text(request.first, request.last)], {}
    return ChosenPartitions(info, customer_id, key, config, mode, plan, partitions, skipped)


def backfill_impact(tx: Tx, request: BackfillRequest, chosen: ChosenPartitions) -> BlastRadius:
    """Return the blast radius of a backfill."""
    plan, starts = chosen.plan, chosen.starts
    phases = phases_run(plan, request.phases, no_downstream=request.no_downstream)
    affected = affected_by(chosen.info.definition, plan, phases)
    samples: dict[str, Sequence[PhaseDuration]] = {}
    if chosen.customer_key is not None:
        about = (chosen.customer_key, chosen.info.pipeline_key)
        samples = {name: phase_durations(tx, *about, name, SAMPLES) for name in phases}
    weekdays = Counter(weekday_of(partition) for partition in starts)
    each = [(weekday_estimate(plan, phases, samples, day), n) for day, n in weekdays.items()]
    estimate = repeated(each, request.parallelism)
    one = max((found for found, _ in each if found is not None), default=None)
    many = len(chosen.partitions)
    sla_us = None if chosen.config is None else chosen.config.sla_us
    where = f"{chosen.info.name} {chosen.partitions[0]} to {chosen.partitions[-1]}"
    skipped = many - len(starts)
    start = "starts" if len(starts) == 1 else "start"
    verb = "is" if skipped == 1 else "are"
    text = (
        f"{where}: {len(starts):,} of {plural(many, 'partition')} {start} in mode {chosen.mode}, "
        f"{min(request.parallelism, max(1, len(starts)))} at a time, "
        f"{skipped:,} {verb} skipped."
    )
    effects = [
        *work_effects(affected, len(starts), estimate),
        *listed_effect(
            "skips",
            f"{plural(skipped, 'partition')} {verb} skipped: complete or in progress.",
            list(chosen.skipped),
        ),
        *slo_effects(plan.mode.slo_us, sla_us, chosen.mode, one),
        *listed_effect(
            "undo",
            "Can be paused, resumed and cancelled; written data is kept.",
            [],
            count=1 if starts else 0,
        ),
    ]
    return blast_radius(
        text,
        _command(request),
        effects,
        affected=affected,
        flows=len(starts),
        estimate=estimate,
    )


def backfill_create(
    tx: Tx, names: NameResolver, request: BackfillRequest, chosen: ChosenPartitions, who: str
) -> int:
    """Store a backfill and its partitions; return its id."""
    key = names.ensure_customer_keys(tx, [chosen.customer_id])[chosen.customer_id]
    info = chosen.info
    names.use_pipeline(tx, info, key)
    parts = chosen.partitions
    new = NewBackfill(
        customer=key,
        pipeline=info.pipeline_key,
        config_id=chosen.config_id,
        mode=chosen.mode,
        first_partition=parts[0],
        last_partition=parts[-1],
        parallelism=request.parallelism,
        is_backward=request.order == "newest",
        existing=request.existing,
        failures_max=request.failures_max,
        start_phases=",".join(request.phases),
        no_downstream=request.no_downstream,
        one_pass=request.one_pass,
        parameters=request_parameters(info, _flow_request(request), chosen.config),
        priority=request.priority,
        correlation_id=new_correlation_id(),
        reason=request.reason,
        opened_by=who,
    )
    number = backfill_insert(tx, new)
    backfill_partition_insert_many(
        tx,
        [
            NewPartition(
                number,
                position,
                key,
                name,
                (PartitionState.SKIPPED if name in chosen.skipped else PartitionState.PENDING),
                chosen.skipped.get(name),
            )
            for position, name in enumerate(parts, 1)
        ],
    )
    entry = Entry("backfill", number, key, "opened", who, None,
                  BackfillState.RUNNING.value, None, request.reason or None)  # fmt: skip
    journal_append_many(tx, [entry])
    tx.wake([BACKFILL])
    return number


def customer_key_of(tx: Tx, names: NameResolver, customer: str) -> CustomerKey | None:
    """Return the key of a customer; None if its first flow will create it."""
    try:
        return names.customer_key(tx, customer)
    except NotFound:
        if names.customer_id is not None:
            raise
        return None


def _flow_request(request: BackfillRequest) -> FlowRequest:
    return FlowRequest(
        pipeline=request.pipeline,
        customer=request.customer,
        mode=request.mode,
        phases=request.phases,
        backfill=True,
        config=request.config,
        no_downstream=request.no_downstream,
        parameters=request.parameters,
        priority=request.priority,
    )


def _command(request: BackfillRequest) -> str:
    """Return the command that starts a backfill."""
    parts = ["backfill", request.pipeline]
    if request.first is not None and request.last is not None:
        parts += ["--from", request.first, "--to", request.last]
    for name in request.partitions:
        parts += ["--partition", name]
    if request.customer not in (None, DEFAULT_CUSTOMER):
        parts += ["--customer", str(request.customer)]
    for option, value, default in (
        ("--config-id", request.config, None),
        ("--mode", request.mode, None),
        ("--phases", ",".join(request.phases), ""),
        ("--parallelism", request.parallelism, 4),
        ("--order", request.order, "oldest"),
        ("--existing", request.existing, "incomplete"),
        ("--max-failures", request.failures_max, None),
    ):
        if value != default:
            parts += [option, str(value)]
    parts += ["--no-downstream"] if request.no_downstream else []
    parts += ["--one-pass"] if request.one_pass else []
    return " ".join(["penstock", *(shlex.quote(part) for part in parts)])
