"""Actions of runs: checked when a processor requests them, performed when its run completes.

Functions over a transaction; built-in and external workers call them. The transaction that ends a
run performs its actions, so a crash neither loses nor repeats one: either the run has ended and all
are performed, or the next attempt requests them again. Messages and runs are written in sets for
all runs of a batch; flows are opened one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.access.store.names import NameResolver
from penstock.core.errors import InvalidInput
from penstock.core.fields import check_text
from penstock.core.ids import encode
from penstock.core.redact import redact_text
from penstock.core.tracing.trace_context import TRACEPARENT, run_context
from penstock.db.store import Transactions, Tx
from penstock.runs.action_records import (
    ACTION_BYTES_MAX,
    ACTIONS_MAX,
    NewArtifact,
    RunActions,
    RunMessage,
    RunSubmission,
    RunTrigger,
)
from penstock.runs.client.submission import CheckedSubmission, check_many, insert
from penstock.runs.hooks import check_messages, check_trigger, open_flow, publish_messages
from penstock.runs.records import Submission
from penstock.runs.rows import ActionOwner, HeldRun
from penstock.runs.store.actions import (
    ActionRow,
    ArtifactRow,
    action_add_many,
    action_found,
    action_made_many,
    action_reserve_many,
)

SOURCE = "run"
"""Trigger source of runs and flows that a run created."""

Work: TypeAlias = RunMessage | CheckedSubmission | RunTrigger


class CheckedAction(NamedTuple):
    """A valid action, and its stored form."""

    kind: str
    target: str
    partition: str | None
    key: str | None
    work: Work
    size: int


class OwnedActions(NamedTuple):
    """The actions of one run, in order."""

    owner: ActionOwner
    actions: Sequence[CheckedAction]


def owner_of(held: HeldRun) -> ActionOwner:
    """Return the run that performs the actions."""
    root = encode("run", held.root_run_id or held.run_id)
    return ActionOwner(
        held.run_id,
        held.customer_key,
        held.customer_id,
        held.processor_key,
        held.correlation_id or root,
        held.priority,
    )


def artifact_row(held: HeldRun, made: NewArtifact) -> ArtifactRow:
    """Return the stored form of an artifact; credentials in its address are masked."""
    return ArtifactRow(
        held.run_id,
        made.name,
        held.customer_key,
        redact_text(made.uri),
        made.size,
        made.checksum,
        made.media_type,
    )


def check_actions(
    tx: Tx, names: NameResolver, owner: ActionOwner, actions: RunActions
) -> list[CheckedAction]:
    """Validate actions against the current registrations; raise an error that names the field."""
    for key in (
        *(one.key for one in actions.publish),
        *(one.key for one in actions.submit),
        *(one.key for one in actions.trigger),
    ):
        if key is not None:
            check_text("key", key)
    messages = [_with_origin(message, owner) for message in actions.publish]
    if messages:
        check_messages(tx, owner.customer_key, messages)
    made = [CheckedAction("publish", one.topic, None, one.key, one, _size(one)) for one in messages]
    submissions = [_submission(wanted, owner) for wanted in actions.submit]
    for wanted, checked in zip(actions.submit, check_many(names, submissions, tx), strict=True):
        row = checked.row
        path = f"{row.pipeline}/{row.phase}/{row.name}"
        work = checked._replace(source=SOURCE)
        made.append(
            CheckedAction("submit", path, wanted.partition, wanted.key, work, _size(wanted))
        )
    for trigger in actions.trigger:
        check_trigger(tx, names, owner, trigger)
        made.append(
            CheckedAction(
                "trigger", trigger.pipeline, trigger.partition, trigger.key, trigger, _size(trigger)
            )
        )
    return made


def check_bounds(actions: Sequence[CheckedAction]) -> None:
    """Raise InvalidInput if a run has too many actions."""
    if len(actions) > ACTIONS_MAX:
        fix = "Declare a processor with each=, or submit from several runs."
        raise InvalidInput("actions", f"at most {ACTIONS_MAX:,} per run", len(actions), fix)
    size = sum(one.size for one in actions)
    if size > ACTION_BYTES_MAX:
        fix = "Store the data elsewhere and pass a reference to it."
        expected = f"at most {ACTION_BYTES_MAX:,} bytes per run"
        raise InvalidInput("actions", expected, f"{size:,} bytes", fix)


def perform_many(
    tx: Tx, store: Transactions, names: NameResolver, runs: Sequence[OwnedActions]
) -> None:
    """Perform the actions of runs that this transaction completed, and record their results.

    An action whose key was used before is not performed; it is recorded as a repeat.
    """
    rows: dict[tuple[int, int], tuple[ActionOwner, CheckedAction, ActionRow]] = {}
    for owner, actions in runs:
        for n, one in enumerate(actions):
            row = ActionRow(
                owner.run_id, n, owner.customer_key, owner.processor_key,
                one.kind, one.target, one.partition, one.key,
            )  # fmt: skip
            rows[owner.run_id, n] = owner, one, row
    keyed = [row for _, _, row in rows.values() if row.action_key is not None]
    fresh = action_reserve_many(tx, keyed) if keyed else set()
    repeats = [row for row in keyed if (row.run_id, row.n) not in fresh]
    for row in repeats:
        del rows[row.run_id, row.n]
    subjects = _performed(tx, store, names, [(owner, one) for owner, one, _ in rows.values()])
    done = [
        row._replace(subject=subject)
        for (_, _, row), subject in zip(rows.values(), subjects, strict=True)
    ]
    made = [(r.run_id, r.n, s) for r, s in zip(done, subjects, strict=True) if r.action_key]
    action_made_many(tx, made)
    action_add_many(tx, [row for row in done if row.action_key is None])
    if repeats:
        found = action_found(tx, repeats)
        action_add_many(
            tx,
            [
                row._replace(
                    action_key=None,
                    is_repeat=True,
                    subject=found.get(
                        (row.customer_key, row.processor_key, row.kind, row.action_key or "")
                    ),
                )
                for row in repeats
            ],
        )


def _performed(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    actions: Sequence[tuple[ActionOwner, CheckedAction]],
) -> list[int]:
    """Perform actions; return the ids of the created messages, runs and flows, in order."""
    made: dict[int, int] = {}
    messages, submissions = [], []
    for index, (owner, one) in enumerate(actions):
        if isinstance(one.work, RunMessage):
            messages.append((index, (owner.customer_key, one.work)))
        elif isinstance(one.work, CheckedSubmission):
            submissions.append((index, one.work))
        else:
            made[index] = open_flow(tx, store, names, owner, one.work)
    if messages:
        ids = publish_messages(tx, [message for _, message in messages])
        made |= dict(zip([index for index, _ in messages], ids, strict=True))
    if submissions:
        ids = insert(tx, store, names, [work for _, work in submissions], SOURCE)
        made |= dict(zip([index for index, _ in submissions], ids, strict=True))
    return [made[index] for index in range(len(actions))]


def _with_origin(message: RunMessage, owner: ActionOwner) -> RunMessage:
    run_id = encode("run", owner.run_id)
    context = run_context(owner.correlation_id, owner.run_id)
    own = {
        "run_id": run_id,
        "correlation_id": owner.correlation_id,
        "causation_id": run_id,
        TRACEPARENT: context.header,
    }
    return msgspec.structs.replace(message, attributes={**own, **message.attributes})


def _submission(wanted: RunSubmission, owner: ActionOwner) -> Submission:
    return Submission(
        pipeline=wanted.pipeline,
        customer=owner.customer_id,
        processor=wanted.processor,
        partition=wanted.partition,
        parameters=wanted.parameters,
        priority=owner.priority if wanted.priority is None else wanted.priority,
        at=wanted.at,
        ordering_key=wanted.ordering_key,
        mode=wanted.mode,
        correlation_id=owner.correlation_id,
    )


def _size(record: RunMessage | RunSubmission | RunTrigger) -> int:
    try:
        return len(msgspec.json.encode(record))
    except (TypeError, ValueError) as error:
        fix = "Pass plain JSON values."
        raise InvalidInput("parameters", "a JSON object", str(error), fix) from None
