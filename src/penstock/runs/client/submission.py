"""Submissions: validation, and conversion to rows of the run queue.

Parts that many submissions share (pipeline, processor, empty parameters) are validated only once,
so that a bulk submit costs little more than the insert itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from penstock.access.store.names import NameResolver, PipelineInfo
from penstock.access.store.registry import ProcessorRow
from penstock.core.clock import DAY, Duration, Micros, parse_duration, request_time
from penstock.core.errors import InvalidInput
from penstock.core.fields import check_text, parameters_json
from penstock.core.naming import CustomerKey, runs_channel
from penstock.core.tracing.trace_context import current_correlation
from penstock.db.store import Transactions, Tx
from penstock.pipelines.parameters import validate
from penstock.pipelines.partition import (
    PartitionKind,
    PartitionRule,
    check_partition,
    partition_at,
    partition_rule_of,
)
from penstock.runs.hooks import on_gate_forced
from penstock.runs.records import Submission
from penstock.runs.rows import NewRun, stored_ordering_key
from penstock.runs.store.gated import run_insert_mixed
from penstock.runs.store.runs import run_insert_many

WAIT_MAX: Final = 365 * DAY
"""Maximum delay of a submission, and maximum time that it may wait."""


class CheckedSubmission(NamedTuple):
    """A valid submission with its processor, its time, and its parameters as JSON text."""

    submission: Submission
    row: ProcessorRow
    parameters: str | None
    at: Micros | None
    message_id: str | None = None
    """Message that triggers the run; None for a run that a user submits."""
    has_gate: bool = False
    """Whether the processor has needs."""
    source: str | None = None
    """What triggers the run; None if a person or the message does."""
    delay_us: Micros | None = None
    """Time from now to the earliest start, instead of `at`."""
    expires_us: Micros | None = None
    """How long it may wait once it is due."""
    partition_of: tuple[PartitionRule, str] | None = None
    """Rule and time zone of the partition that the run gets; None if it has one or needs none."""

    @property
    def is_gated(self) -> bool:
        """Whether the run waits for its processor's gate."""
        return self.has_gate and not self.submission.force

    @property
    def needs_now(self) -> bool:
        """Whether the run cannot be described without the time of the database."""
        return self.delay_us is not None or (self.partition_of is not None and self.at is None)

    def described(self, now: Micros) -> tuple[Micros | None, str | None]:
        """Return the earliest start, None for at once, and the partition."""
        at = self.at if self.delay_us is None else now + self.delay_us
        if self.partition_of is None:
            return at, self.submission.partition
        rule, zone = self.partition_of
        return at, partition_at(rule, now if at is None else at, zone)


def with_customer(names: NameResolver, wanted: Submission) -> Submission:
    """Return the submission with its customer filled in."""
    if wanted.customer is not None:
        return wanted
    return replace(wanted, customer=names.default_customer)


def check_many(
    names: NameResolver, submissions: Sequence[Submission], tx: Tx | None = None
) -> list[CheckedSubmission]:
    """Validate submissions and find their processors; raise InvalidInput that names the field.

    Each declaration is read once, so all submissions are checked against the same version. Inside a
    transaction, pass it as `tx`.
    """
    infos: dict[str, PipelineInfo] = {}
    rows: dict[tuple[str, str | None], tuple[ProcessorRow, bool]] = {}
    bare: set[str] = set()
    rules: dict[str, tuple[PartitionRule, str] | None] = {}
    checked = []
    for wanted in submissions:
        target = (wanted.pipeline, wanted.processor)
        if not isinstance(target[0], str):
            raise InvalidInput("pipeline", "a name", target[0])
        if target[1] is not None and not isinstance(target[1], str):
            raise InvalidInput("processor", "a name", target[1])
        found = rows.get(target)
        if found is None:
            if wanted.pipeline not in infos:
                infos[wanted.pipeline] = names.pipeline(wanted.pipeline, "pipeline", tx)
            row = _pick(infos[wanted.pipeline], target[1])
            if infos[wanted.pipeline].fans_out(row):
                raise InvalidInput(
                    "processor",
                    "a processor with a single run",
                    row.name,
                    f"It has one run per item: penstock trigger {wanted.pipeline}",
                )
            found = rows[target] = row, infos[wanted.pipeline].is_gated(row)
        row, has_gate = found
        text = None
        if wanted.parameters is not None:
            text = checked_parameters(infos[wanted.pipeline], wanted.parameters)
        elif wanted.pipeline not in bare:
            checked_parameters(infos[wanted.pipeline], {})
            bare.add(wanted.pipeline)
        if wanted.pipeline not in rules:
            rules[wanted.pipeline] = _partition_rule(infos[wanted.pipeline].definition)
        rule = rules[wanted.pipeline]
        if wanted.partition is not None:
            check_partition(None if rule is None else rule[0], wanted.partition)
        at, delay_us, expires_us = _check(wanted)
        checked.append(
            CheckedSubmission(
                wanted,
                row,
                text,
                at,
                None,
                has_gate,
                delay_us=delay_us,
                expires_us=expires_us,
                partition_of=rule
                if wanted.partition is None and (wanted.force or not has_gate)
                else None,
            )
        )
    return checked


def _partition_rule(definition: Mapping[str, Any]) -> tuple[PartitionRule, str] | None:
    """Return the rule by which a time determines the partition, with the pipeline's zone."""
    rule = partition_rule_of(definition)
    if rule is None or rule.kind is PartitionKind.TEXT:
        return None
    return rule, definition["timezone"]


def is_one_statement(names: NameResolver, checked: Sequence[CheckedSubmission]) -> bool:
    """Return whether one statement suffices for `insert`: known customers, no ordering keys, no
    gates.

    A delay and the current partition need the time of the database; a pipeline whose needs do not
    distinguish customers may have to be claimed first.
    """
    if any(
        one.has_gate or one.submission.ordering_key is not None or one.needs_now for one in checked
    ):
        return False
    customers = {_customer(one.submission) for one in checked}
    pipelines = {one.row.pipeline for one in checked}
    return names.has_cached(customers) and all(names.is_in_use(p, customers) for p in pipelines)


def insert(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    checked: Sequence[CheckedSubmission],
    actor: str,
    *,
    is_single: bool = False,
) -> list[int]:
    """Create the runs and return their ids in order; workers are woken after the commit.

    is_single: result of `is_one_statement`; its cached data may be gone by now, so nothing is read.
    """
    customers = names.ensure_customer_keys(tx, {_customer(one.submission) for one in checked})
    used = set() if is_single else {(c.row.pipeline, _customer(c.submission)) for c in checked}
    for pipeline, customer_id in used:
        names.use_pipeline(tx, names.pipeline(pipeline, tx=tx), customers[customer_id])
    now = tx.now() if not is_single and any(one.needs_now for one in checked) else 0
    new_runs = [_new_run(one, customers, now) for one in checked]
    # A single statement implies that there are no gates, so a bulk submit skips the check per run.
    has_gates = not is_single and any(one.has_gate for one in checked)
    if not has_gates:
        ids = run_insert_many(tx, new_runs, actor)
    else:
        ids = run_insert_mixed(tx, new_runs, [one.is_gated for one in checked], actor)
        for made, one in zip(zip(ids, new_runs, strict=True), checked, strict=True):
            if one.has_gate and one.submission.force:
                on_gate_forced(tx, [made], actor, one.submission.force_reason)
    assert len(ids) == len(new_runs)
    channels = sorted({runs_channel(pool) for pool in {one.row.pool for one in checked}})
    if any(one.at is not None or one.delay_us is not None for one in checked):
        channels.append("admit")
    if has_gates and any(one.is_gated for one in checked):
        channels.append("flows")
    tx.after_commit(lambda: store.wake(channels))
    return ids


def _new_run(
    checked: CheckedSubmission, customers: Mapping[str, CustomerKey], now: Micros
) -> NewRun:
    wanted, message_id = checked.submission, checked.message_id
    at, partition = checked.described(now)
    customer = customers[_customer(wanted)]
    return NewRun(
        customer_key=customer,
        processor_key=checked.row.processor_key,
        partition=partition,
        mode=wanted.mode,
        scheduled_time=at,
        priority=wanted.priority,
        ordering_key=stored_ordering_key(customer, wanted.ordering_key),
        parameters=checked.parameters,
        correlation_id=wanted.correlation_id or current_correlation(),
        trigger_source=checked.source or ("manual" if message_id is None else "event"),
        trigger_message_id=message_id,
        expires_us=checked.expires_us,
    )


def fingerprint(checked: CheckedSubmission) -> bytes:
    """Return bytes that are equal for two equal submissions."""
    wanted = checked.submission
    names = (name for name in wanted.__struct_fields__ if name != "parameters")
    body = {name: getattr(wanted, name) for name in names} | {
        "at": checked.at,
        "trigger_source": "manual",
        "message_id": None,
    }
    return json.dumps([body, wanted.parameters], sort_keys=True, default=str).encode()


def _customer(wanted: Submission) -> str:
    assert wanted.customer is not None, "addressed before"
    return wanted.customer


def checked_parameters(info: PipelineInfo, given: object) -> str:
    """Return parameters as JSON; raise InvalidInput unless they fit the pipeline's schema."""
    text = parameters_json(given)
    validate(info.definition.get("parameters"), given)
    return text


def _pick(info: PipelineInfo, processor: str | None) -> ProcessorRow:
    rows = [row for row in info.processors if row.is_current]
    if processor is not None:
        rows = [row for row in rows if processor in (row.name, f"{row.phase}.{row.name}")]
    names = ", ".join(f"{row.phase}.{row.name}" for row in info.processors if row.is_current)
    if len(rows) != 1:
        raise InvalidInput("processor", f"one processor of {info.name} ({names})", processor)
    return rows[0]


def _check(wanted: Submission) -> tuple[Micros | None, Micros | None, Micros | None]:
    """Return the earliest start, the delay until it and how long the run may wait from then on.

    Raise InvalidInput for values that cannot be stored.
    """
    if not _is_whole(wanted.priority) or not 1 <= wanted.priority <= 10:
        raise InvalidInput("priority", "a whole number from 1 to 10", wanted.priority)
    if wanted.ordering_key is not None:
        check_text("ordering_key", wanted.ordering_key)
    if wanted.correlation_id is not None:
        check_text("correlation_id", wanted.correlation_id)
    if wanted.mode is not None:
        check_text("mode", wanted.mode)
    if wanted.force_reason and not wanted.force:
        raise InvalidInput("force_reason", "no reason without force", wanted.force_reason)
    delay_us = expires_us = None
    if wanted.delay is not None:
        if wanted.at is not None:
            raise InvalidInput("delay", "no delay together with a time", wanted.delay)
        delay_us = _bounded("delay", wanted.delay, 0)
    if wanted.expires_after is not None:
        expires_us = _bounded("expires_after", wanted.expires_after, 1)
    return None if wanted.at is None else _micros(wanted.at), delay_us, expires_us


def _bounded(field: str, value: Duration, least: Micros) -> Micros:
    us = parse_duration(value, field)
    if not least <= us <= WAIT_MAX:
        raise InvalidInput(field, f"a duration from {'0s' if not least else '1ms'} to 365d", value)
    return us


def _micros(at: object) -> Micros:
    us = request_time(at, "at")
    if us < 0:
        raise InvalidInput("at", "a time since 1970", at)
    return us


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
