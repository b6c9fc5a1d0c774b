"""Use cases of dead letters: one inbox of runs and deliveries that will not be retried.

Callers list them singly or in groups, replay them (unchanged or edited), or discard them with a
reason. A bulk replay selects by filter and proceeds in bounded steps: each step is one transaction,
and a rate spreads the replays over future time, so that the caller need not throttle them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.access.store.names import NameResolver, check_limit
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import SECOND
from penstock.core.errors import Conflict, InvalidInput, NotFound, PenstockError
from penstock.core.fields import parameters_json
from penstock.core.ids import encode
from penstock.db.store import Transactions, Tx
from penstock.dead_letters.client.deliveries import Edit, delivery_redeliver, message_of
from penstock.dead_letters.store import (
    FAR,
    DeadLetter,
    DeadLetterGroup,
    DeadLetterRowFilter,
    dead_letter_count,
    dead_letter_find,
    dead_letter_get,
    dead_letter_groups,
    dead_letter_hold,
    dead_letter_resolve_many,
    run_replays,
)
from penstock.runs.client.retry import run_retry
from penstock.runs.rows import RunRow
from penstock.runs.store.runs import run_get, run_retry_lock

__all__ = [
    "FAR",
    "DeadLetterDetail",
    "DeadLetterFilter",
    "DeadLetters",
    "Edit",
    "RefusedReplay",
    "ReplayStep",
]

STATUSES = ("open", "replayed", "discarded")
KINDS = ("run", "delivery")
STEP_MAX = 500
RATE_MIN, RATE_MAX = 0.001, 10_000.0
REPLAYS_MAX = 3
"""Maximum number of replays of a run by filter; retries of a single run are not limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Filter over dead letters; None matches any. `since` and `until` are in microseconds.

    `subscription` is a name, which several customers may use; `subscription_number` is the key of
    one subscription.
    """

    status: str | None = "open"
    kind: str | None = None
    customer: str | None = None
    subscription: str | None = None
    subscription_number: int | None = None
    topic: str | None = None
    pipeline: str | None = None
    processor: str | None = None
    partition: str | None = None
    correlation_id: str | None = None
    error_type: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDetail:
    """A dead letter with its failed run, or with the bytes and attributes of its message."""

    dead_letter: DeadLetter
    run: RunRow | None = None
    data: bytes | None = None
    attributes: Mapping[str, str] | None = None
    ordering_key: str | None = None
    publish_time: int | None = None


@dataclass(frozen=True, slots=True)
class RefusedReplay:
    """A dead letter that was not replayed, and why."""

    dead_letter_id: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStep:
    """Result of one step of a replay, or of its dry run.

    `matched` counts all dead letters that match the filter, `left` those after this step.
    """

    matched: int
    replayed: list[tuple[int, str]] = field(default_factory=list)
    refused: list[RefusedReplay] = field(default_factory=list)
    left: int
    is_dry_run: bool = False
    next_before: int | None = None
    next_at: int | None = None


class DeadLetters:
    """Use cases of dead letters."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def find(
        self, asked: DeadLetterFilter | None = None, *, before: int = FAR, limit: int = 50
    ) -> list[DeadLetter]:
        """Return dead letters, newest first; `before` (an id) continues an earlier page."""
        check_limit(limit)
        asked = _checked(asked or DeadLetterFilter())
        return self._store.read(
            lambda tx: dead_letter_find(tx, self._wanted(tx, asked), before=before, limit=limit)
        )

    def groups(
        self, asked: DeadLetterFilter | None = None, *, limit: int = 50
    ) -> list[DeadLetterGroup]:
        """Return counts of dead letters by origin and error type, largest first."""
        check_limit(limit)
        asked = _checked(asked or DeadLetterFilter())
        return self._store.read(
            lambda tx: dead_letter_groups(tx, self._wanted(tx, asked), limit=limit)
        )

    def count(self, asked: DeadLetterFilter | None = None) -> int:
        """Return the number of matching dead letters."""
        asked = _checked(asked or DeadLetterFilter())
        return self._store.read(lambda tx: dead_letter_count(tx, self._wanted(tx, asked)))

    def get(self, dead_letter_id: int, *, customer: str | None = None) -> DeadLetterDetail:
        """Return one dead letter in full, in any status."""

        def body(tx: Tx) -> DeadLetterDetail:
            dead_letter = self._must(tx, dead_letter_id, customer)
            if dead_letter.kind == "run":
                return DeadLetterDetail(
                    dead_letter=dead_letter, run=run_get(tx, dead_letter.subject, None)
                )
            found = message_of(tx, dead_letter)
            if found is None:
                return DeadLetterDetail(dead_letter=dead_letter)
            return DeadLetterDetail(
                dead_letter=dead_letter,
                data=found.data,
                attributes=found.attributes,
                ordering_key=found.ordering_key,
                publish_time=found.published_at,
            )

        return self._store.read(body)

    def of_run(self, run_id: int, *, customer: str | None = None) -> DeadLetter | None:
        """Return the dead letter of a run, or None."""
        return self._store.read(
            lambda tx: dead_letter_get(
                tx, run_id=run_id, customer_key=self._names.customer_key(tx, customer)
            )
        )

    def replay(
        self,
        dead_letter_id: int,
        edit: Edit | None = None,
        *,
        customer: str | None = None,
        actor: str | None = None,
    ) -> str:
        """Replay one dead letter, unchanged or edited; return the id of the new run or message."""
        who = actor or self._actor

        def body(tx: Tx) -> str:
            dead_letter = self._must(tx, dead_letter_id, customer)
            if dead_letter.status != "open":
                raise Conflict(f"{_name(dead_letter)} is not open: it was {dead_letter.status}.")
            return self._again(tx, dead_letter, edit, who, None)

        return self._store.write(body)

    def replay_matching(
        self,
        asked: DeadLetterFilter,
        *,
        limit: int = 100,
        before: int = FAR,
        rate: float | None = None,
        start_at: int | None = None,
        is_dry: bool = False,
        actor: str | None = None,
    ) -> ReplayStep:
        """Run one step of a replay by filter, newest first: at most `limit`, in one transaction.

        `rate` (per second) spreads the replays over time from `start_at`; pass the result's
        `next_before` and `next_at` to the next step. Dead letters that may not be replayed are
        skipped and listed in `refused`. A dry run only returns what would be done.
        """
        asked = _checked(replace(asked, status="open"))
        if not 1 <= limit <= STEP_MAX:
            raise InvalidInput("limit", f"1 to {STEP_MAX}", limit)
        if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
            raise InvalidInput("rate", f"{RATE_MIN:g} to {RATE_MAX:,.0f} a second", rate)
        who = actor or self._actor

        def body(tx: Tx) -> ReplayStep:
            wanted = self._wanted(tx, asked)
            dead_letters = dead_letter_find(tx, wanted, before=before, limit=limit)
            matched = dead_letter_count(tx, wanted)
            at = max(tx.now(), start_at or 0)
            done: list[tuple[int, str]] = []
            refused: list[RefusedReplay] = []
            for dead_letter in dead_letters:
                why = self._refusal(tx, dead_letter)
                if why is None and not is_dry:
                    try:
                        done.append(
                            (
                                dead_letter.dead_letter_id,
                                self._again(tx, dead_letter, None, who, at),
                            )
                        )
                        at += 0 if rate is None else int(SECOND / rate)
                    except PenstockError as error:
                        why = error.message
                if why is not None:
                    refused.append(RefusedReplay(dead_letter.dead_letter_id, why))
                elif is_dry:
                    done.append((dead_letter.dead_letter_id, ""))
            return ReplayStep(
                matched=matched,
                replayed=done,
                refused=refused,
                left=matched - len(dead_letters),
                is_dry_run=is_dry,
                next_before=dead_letters[-1].dead_letter_id if len(dead_letters) == limit else None,
                next_at=None if is_dry else at,
            )

        return self._store.read(body) if is_dry else self._store.write(body)

    def discard(
        self,
        dead_letter_ids: Sequence[int],
        reason: str,
        *,
        customer: str | None = None,
        actor: str | None = None,
    ) -> int:
        """Close dead letters without replaying them; return their number."""
        if not reason:
            raise InvalidInput("reason", "why the dead letter is discarded", reason)
        who = actor or self._actor

        def body(tx: Tx) -> int:
            dead_letters = [self._must(tx, number, customer) for number in dead_letter_ids]
            closed = [(dead_letter.dead_letter_id, reason) for dead_letter in dead_letters]
            gone = dead_letter_resolve_many(tx, closed, status="discarded", actor=who)
            for dead_letter in dead_letters:
                if dead_letter.dead_letter_id not in gone:
                    raise Conflict(f"{_name(dead_letter)} is not an open dead letter.")
            _note(tx, dead_letters, "discarded", who, reason)
            return len(gone)

        return self._store.write(body)

    def _again(
        self, tx: Tx, dead_letter: DeadLetter, edit: Edit | None, who: str, at: int | None
    ) -> str:
        """Replay one open dead letter in this transaction and close it; refuse before any write."""
        if dead_letter.kind == "run":
            run_retry_lock(tx, dead_letter.subject)
        if not dead_letter_hold(tx, dead_letter.dead_letter_id):
            raise Conflict(f"{_name(dead_letter)} is no longer open.")
        if dead_letter.kind == "run":
            text = None
            if edit is not None:
                if edit.parameters is None:
                    raise InvalidInput("parameters", "the new parameters of a run", None)
                text = parameters_json(edit.parameters)
            run_id = run_retry(
                tx, self._store, self._names, dead_letter.subject,
                customer_key=None, actor=who, at=at, parameters=text,
            )  # fmt: skip
            new_id = encode("run", run_id)
        else:
            new_id = delivery_redeliver(tx, self._store, dead_letter, edit, actor=who, at=at)
            closed = [(dead_letter.dead_letter_id, f"replayed as {new_id}")]
            dead_letter_resolve_many(tx, closed, status="replayed", actor=who)
        _note(tx, [dead_letter], "replayed", who, new_id)
        return new_id

    def _refusal(self, tx: Tx, dead_letter: DeadLetter) -> str | None:
        """Return why a dead letter is not replayed by filter; None if it may be."""
        if dead_letter.kind == "run" and run_replays(tx, dead_letter.subject) >= REPLAYS_MAX:
            name = encode("run", dead_letter.subject)
            return f"already replayed {REPLAYS_MAX} times; to retry it: penstock runs retry {name}"
        return None

    def _must(self, tx: Tx, dead_letter_id: int, customer: str | None) -> DeadLetter:
        number = self._names.customer_key(tx, customer)
        dead_letter = dead_letter_get(tx, dead_letter_id=dead_letter_id, customer_key=number)
        if dead_letter is None:
            raise NotFound("dead letter", encode("dl", dead_letter_id))
        return dead_letter

    def _wanted(self, tx: Tx, asked: DeadLetterFilter) -> DeadLetterRowFilter:
        return DeadLetterRowFilter(
            status=asked.status,
            kind=asked.kind,
            customer=self._names.customer_key(tx, asked.customer),
            subscription=asked.subscription,
            subscription_number=asked.subscription_number,
            topic=asked.topic,
            pipeline=asked.pipeline,
            processor=asked.processor,
            partition=asked.partition,
            correlation_id=asked.correlation_id,
            error_type=asked.error_type,
            since=asked.since or 0,
            until=FAR if asked.until is None else asked.until,
        )


def _checked(asked: DeadLetterFilter) -> DeadLetterFilter:
    if asked.status not in (None, *STATUSES):
        raise InvalidInput("status", f"one of {', '.join(STATUSES)}", asked.status)
    if asked.kind not in (None, *KINDS):
        raise InvalidInput("kind", f"one of {', '.join(KINDS)}", asked.kind)
    return asked


def _name(dead_letter: DeadLetter) -> str:
    return encode("dl", dead_letter.dead_letter_id)


def _note(tx: Tx, dead_letters: Sequence[DeadLetter], action: str, who: str, why: Any) -> None:
    """Append an action on dead letters to the journal."""
    journal_append_many(
        tx,
        [
            Entry(kind="dead_letter", subject=one.dead_letter_id, customer_key=one.customer_key,
                  action=action, actor=who, why=str(why)[:500])
            for one in dead_letters
        ],
    )  # fmt: skip
