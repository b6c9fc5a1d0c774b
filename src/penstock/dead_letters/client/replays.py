"""Replays dead letters inside a transaction: a single one, or the next ones that match a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.access.store.names import NameResolver
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import SECOND
from penstock.core.errors import Conflict, InvalidInput, NotFound, PenstockError
from penstock.core.ids import encode
from penstock.db.store import Transactions, Tx
from penstock.dead_letters.client.deliveries import delivery_check, delivery_redeliver
from penstock.dead_letters.client.reports import is_report, report_check, report_replay
from penstock.dead_letters.records import DeadLetterEdit
from penstock.dead_letters.store import (
    COUNT_MAX,
    FAR,
    DeadLetterRow,
    DeadLetterRowFilter,
    dead_letter_count,
    dead_letter_find,
    dead_letter_hold,
    dead_letter_resolve_many,
    run_replays,
)
from penstock.runs.client.retry import retry_plan, run_retry
from penstock.runs.client.submission import checked_parameters
from penstock.runs.store.runs import run_get, run_retry_lock

REPLAYS_MAX = 3
"""Maximum number of replays of a run by filter; retries of a single run are not limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """Result of one step of a replay, or of its dry run.

    `matched` counts all dead letters that match the filter, `left` those that the next steps reach.
    `replayed` contains pairs of dead letter and new id, `refused` pairs of dead letter and reason.
    """

    matched: int
    replayed: list[tuple[int, str]]
    refused: list[tuple[int, str]]
    left: int
    next_before: int | None
    next_at: int | None


class DeadLetterReplays:
    """Replays dead letters in the caller's transaction."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def step(
        self,
        tx: Tx,
        wanted: DeadLetterRowFilter,
        *,
        limit: int,
        before: int = FAR,
        rate: float | None = None,
        start_at: int | None = None,
        is_dry: bool = False,
    ) -> ReplayOutcome:
        """Replay the next dead letters that match, newest first: at most `limit`.

        `rate` (per second) spreads the replays over time from `start_at`; pass the result's
        `next_before` and `next_at` to the next step. Dead letters that may not be replayed are
        skipped and listed in `refused`. A dry run only returns what would be done.
        """
        found, matched, left = step_rows(tx, wanted, before=before, limit=limit)
        at = max(tx.now(), start_at or 0)
        done: list[tuple[int, str]] = []
        refused: list[tuple[int, str]] = []
        for row in found:
            why = _refusal(tx, row)
            new_id = ""
            if why is None:
                try:
                    if is_dry:
                        self._check(tx, row)
                    else:
                        new_id = self.one(tx, row, at=at)
                except PenstockError as error:
                    why = error.message
            if why is not None:
                refused.append((row.dead_letter_id, why))
                continue
            done.append((row.dead_letter_id, new_id))
            at += 0 if rate is None else int(SECOND / rate)
        return ReplayOutcome(
            matched=matched,
            replayed=done,
            refused=refused,
            left=left,
            next_before=found[-1].dead_letter_id if left else None,
            next_at=None if is_dry else at,
        )

    def _check(self, tx: Tx, row: DeadLetterRow) -> None:
        """Raise the error that a replay of the dead letter would raise now."""
        if row.kind == "run":
            retry_plan(tx, self._names, row.subject, customer_key=None)
        elif is_report(row):
            report_check(tx, self._names, row.error_details, row.customer_id)
        else:
            delivery_check(tx, row)

    def one(
        self, tx: Tx, row: DeadLetterRow, edit: DeadLetterEdit | None = None, at: int | None = None
    ) -> str:
        """Replay one open dead letter and close it; errors are raised before any write. Return the
        new id.
        """
        if row.kind == "run":
            run_retry_lock(tx, row.subject)
        if not dead_letter_hold(tx, row.dead_letter_id):
            raise Conflict(f"{encode('dl', row.dead_letter_id)} is no longer open.")
        if row.kind == "run":
            text = None
            if edit is not None:
                if edit.parameters is None:
                    raise InvalidInput("parameters", "the new parameters of a run", None)
                text = self._parameters(tx, row.subject, edit.parameters)
            run_id = run_retry(
                tx, self._store, self._names, row.subject,
                customer_key=None, actor=self._actor, at=at, parameters=text,
            )  # fmt: skip
            new_id = encode("run", run_id)
        else:
            if is_report(row):
                if edit is not None:
                    expected = "no edit, because the dead letter is a report"
                    raise InvalidInput("edit", expected, "an edit", "Send a new report.")
                new_id = report_replay(tx, self._store, self._names, row, self._actor)
            else:
                new_id = delivery_redeliver(tx, self._store, row, edit, actor=self._actor, at=at)
            closed = [(row.dead_letter_id, f"replayed as {new_id}")]
            dead_letter_resolve_many(tx, closed, status="replayed", actor=self._actor)
        journal_note(tx, [row], "replayed", self._actor, new_id)
        return new_id

    def _parameters(self, tx: Tx, run_id: int, given: object) -> str:
        """Return the new parameters of a run as JSON; raise InvalidInput unless they fit."""
        old = run_get(tx, run_id)
        if old is None:
            raise NotFound("run", encode("run", run_id))
        return checked_parameters(self._names.pipeline(old.pipeline, "pipeline", tx), given)


def step_rows(
    tx: Tx, wanted: DeadLetterRowFilter, *, before: int, limit: int
) -> tuple[list[DeadLetterRow], int, int]:
    """Return the dead letters of a step, how many match in all, and how many are left after it."""
    found = dead_letter_find(tx, wanted, before=before, limit=limit)
    left = 0
    if len(found) == limit:
        left = dead_letter_count(tx, wanted, before=found[-1].dead_letter_id)
    if before == FAR:
        return found, min(COUNT_MAX, len(found) + left), left
    return found, dead_letter_count(tx, wanted), left


def journal_note(tx: Tx, rows: Sequence[DeadLetterRow], action: str, actor: str, why: str) -> None:
    """Append an action on dead letters to the journal."""
    journal_append_many(
        tx,
        [
            Entry(kind="dead_letter", subject=one.dead_letter_id, customer_key=one.customer_key,
                  action=action, actor=actor, why=why[:500])
            for one in rows
        ],
    )  # fmt: skip


def _refusal(tx: Tx, row: DeadLetterRow) -> str | None:
    """Return why a dead letter is not replayed by filter; None if it may be."""
    if row.kind == "run" and run_replays(tx, row.subject) >= REPLAYS_MAX:
        name = encode("run", row.subject)
        return f"already replayed {REPLAYS_MAX} times; to retry it: penstock runs retry {name}"
    return None
