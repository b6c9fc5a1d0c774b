"""Use cases of dead letters: one inbox of runs and deliveries that will not be retried.

Callers list them individually or in groups, replay them (unchanged or edited), or discard them with
a reason. A bulk replay selects by filter and proceeds in bounded steps: each step is one
transaction, and a rate spreads the replays over future time, so that the caller need not throttle
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, Unpack

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.paging import Cursor, PageLimit, paged_part
from penstock.audit.store.journal import journal_for
from penstock.audit.store.kept import HISTORY, RESOLVED, kept_until
from penstock.core.clock import from_datetime, request_time
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.formatting import id_or_none
from penstock.core.ids import decode, encode
from penstock.core.records.parameters import (
    CorrelationFilter,
    CustomerFilter,
    PartitionFilter,
    PipelineFilter,
    Since,
    Until,
)
from penstock.core.records.record import Meta, Page, time_or_none
from penstock.db.store import Transactions, Tx
from penstock.dead_letters.client.deliveries import message_of
from penstock.dead_letters.client.group_checks import with_checks
from penstock.dead_letters.client.replays import (
    DeadLetterReplays,
    ReplayOutcome,
    journal_note,
    step_rows,
)
from penstock.dead_letters.from_rows import (
    attempt_record,
    dead_letter_record,
    dead_message_record,
    group_records,
    run_attempt_records,
)
from penstock.dead_letters.group_name import parse_group
from penstock.dead_letters.records import (
    GROUP_NAME_MAX,
    DeadLetter,
    DeadLetterAttempt,
    DeadLetterDetail,
    DeadLetterEdit,
    DeadLetterGroup,
    DeadLetterKind,
    DeadLetterSelection,
    DiscardRequest,
    DiscardStep,
    RefusedReplay,
    ReplayedDeadLetter,
    ReplayRequest,
    ReplayStep,
    SingleReplay,
)
from penstock.dead_letters.store import (
    ATTEMPTS_MAX,
    FAR,
    DeadLetterRow,
    DeadLetterRowFilter,
    dead_letter_attempts,
    dead_letter_count,
    dead_letter_get,
    dead_letter_groups,
    dead_letter_page,
    dead_letter_resolve_many,
)
from penstock.runs.from_rows import run_record
from penstock.runs.rows import RunRow
from penstock.runs.store.runs import run_chain, run_get

__all__ = ["DeadLetters"]

STATUSES = ("open", "replayed", "discarded", "all")
KINDS = ("run", "delivery")
STEP_MAX = 500
RATE_MIN, RATE_MAX = 0.001, 10_000.0

_Text: TypeAlias = Annotated[str, Meta(max_length=255)]
Status: TypeAlias = Annotated[
    Literal["open", "replayed", "discarded", "all"],
    Meta(description="Return only dead letters of this status."),
]
KindFilter: TypeAlias = Annotated[
    DeadLetterKind | None, Meta(description="Return only runs, or only deliveries.")
]
SubscriptionFilter: TypeAlias = Annotated[
    _Text | None, Meta(description="Return only deliveries of this subscription.")
]
TopicFilter: TypeAlias = Annotated[
    _Text | None, Meta(description="Return only messages of this topic.")
]
ProcessorFilter: TypeAlias = Annotated[
    _Text | None, Meta(description="Return only runs of this processor.")
]
ErrorFilter: TypeAlias = Annotated[
    _Text | None, Meta(description="Return only dead letters with this error type.")
]
GroupFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=GROUP_NAME_MAX)] | None,
    Meta(description="Return only dead letters of the group with this name."),
]
Check: TypeAlias = Annotated[
    bool, Meta(description="Whether to check how many dead letters a replay would accept.")
]
DeadLetterId: TypeAlias = Annotated[
    str,
    Meta(
        description="Id of the dead letter (`dl_…`) or of its run (`run_…`).",
        examples=["dl_5m7t0c2d"],
        max_length=64,
    ),
]
DiscardReason: TypeAlias = Annotated[
    str,
    Meta(
        description="Reason for discarding it, stored as its resolution.",
        min_length=1,
        max_length=500,
    ),
]
Groups: TypeAlias = Annotated[list[DeadLetterGroup], Meta(description="Groups, largest first.")]


class DeadLetterFilters(TypedDict, total=False):
    """Filters of dead letters; one that is omitted or None matches all."""

    kind: KindFilter
    customer: CustomerFilter
    subscription: SubscriptionFilter
    topic: TopicFilter
    pipeline: PipelineFilter
    processor: ProcessorFilter
    partition: PartitionFilter
    correlation_id: CorrelationFilter
    error_type: ErrorFilter
    group: GroupFilter
    since: Since
    until: Until


class DeadLetters:
    """Use cases of dead letters."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor
        self._replays = DeadLetterReplays(store, names, actor)

    def list(
        self,
        *,
        status: Status = "open",
        limit: PageLimit = 50,
        cursor: Cursor = None,
        **filters: Unpack[DeadLetterFilters],
    ) -> Page[DeadLetter]:
        """List dead letters, newest first.

        A page may have fewer than `limit` items if few of many examined rows match; `next_cursor`
        continues the search.
        """
        check_limit(limit)
        given = {"status": status, **filters}

        def read(after: Sequence[Any] | None) -> tuple[Sequence[DeadLetter], Sequence[Any] | None]:
            before = after[0] if after else FAR
            part = self._store.read(
                lambda tx: dead_letter_page(tx, self._wanted(tx, given), before=before, limit=limit)
            )
            following = None if part.following is None else [part.following]
            return [dead_letter_record(row) for row in part.rows], following

        return paged_part(self._names, "dead_letters", read, cursor=cursor, filters=given)

    def groups(
        self,
        *,
        status: Status = "open",
        limit: PageLimit = 50,
        check: Check = True,
        **filters: Unpack[DeadLetterFilters],
    ) -> Groups:
        """Count dead letters by origin and error type, the largest group first.

        The newest 5,000 matching dead letters are counted; if a filter has no index, only the
        newest 10,000 are examined. At most 50 per group, and 500 in total, are checked for a
        replay.
        """
        check_limit(limit)
        given = {"status": status, **filters}

        def body(tx: Tx) -> Groups:
            wanted = self._wanted(tx, given)
            rows = dead_letter_groups(tx, wanted, with_ids=check)
            groups = group_records(rows, tx.now(), limit)
            if not check:
                return groups
            is_open = wanted.status == "open"
            return with_checks(tx, self._names, rows, groups, is_open=is_open)

        return self._store.read(body)

    def count(self, *, status: Status = "open", **filters: Unpack[DeadLetterFilters]) -> int:
        """Return the number of dead letters that match; 10,000 if there are more.

        With filters that have no index, only the newest 10,000 are examined.
        """
        given = {"status": status, **filters}
        return self._store.read(
            lambda tx: dead_letter_count(tx, self._wanted(tx, given), is_bounded=True)
        )

    def get(self, dead_letter_id: DeadLetterId) -> DeadLetterDetail:
        """Return a dead letter with its failed attempts, and its run or its message and payload."""

        def body(tx: Tx) -> DeadLetterDetail:
            row = self._must(tx, dead_letter_id)
            found = dead_letter_record(row)
            if row.kind == "run":
                run = run_get(tx, row.subject, None)
                shown = None if run is None else run_record(run)
                entries = [one for one in journal_for(tx, "run", row.subject) if one.why]
                whys = [one.why for one in entries if one.action == "ended"]
                return DeadLetterDetail(
                    dead_letter=found,
                    run=shown,
                    message=None,
                    not_retried=whys[-1] if whys else None,
                    still_kept_until=_kept_until(tx, row),
                    attempts=[] if run is None else _run_attempts(tx, row, run),
                )
            message = message_of(tx, row)
            return DeadLetterDetail(
                dead_letter=found,
                run=None,
                message=None if message is None else dead_message_record(message),
                still_kept_until=None if message is None else _kept_until(tx, row),
                attempts=[attempt_record(one) for one in dead_letter_attempts(tx, row)],
            )

        return self._store.read(body)

    def replay(
        self, dead_letter_id: DeadLetterId, edit: DeadLetterEdit | None = None
    ) -> SingleReplay:
        """Replay one dead letter, unchanged or edited."""
        changed = None if edit == DeadLetterEdit() else edit

        def body(tx: Tx) -> SingleReplay:
            row = self._must(tx, dead_letter_id)
            name = encode("dl", row.dead_letter_id)
            if row.status != "open":
                raise Conflict(f"{name} is not open: it was {row.status}.")
            return SingleReplay(
                dead_letter_id=name, replayed_as=self._replays.one(tx, row, changed)
            )

        return self._store.write(body)

    def replay_matching(self, request: ReplayRequest) -> ReplayStep:
        """Replay matching dead letters, newest first, in bounded steps. Use `dry_run` first.

        Pass the result's `next_before` and `next_at` to the next step.
        """
        limit, rate = _step_limit(request), request.rate
        if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
            raise InvalidInput("rate", f"{RATE_MIN:g} to {RATE_MAX:,.0f} a second", rate)
        given, before = _selected(request), _step_before(request)
        start_at = None if request.start_at is None else request_time(request.start_at, "start_at")
        is_dry = request.is_dry_run

        def body(tx: Tx) -> ReplayStep:
            outcome = self._replays.step(
                tx, self._wanted(tx, given), limit=limit, before=before, rate=rate,
                start_at=start_at, is_dry=is_dry,
            )  # fmt: skip
            return _step_record(outcome, is_dry=is_dry)

        return self._store.read(body) if is_dry else self._store.write(body)

    def discard(self, dead_letter_id: DeadLetterId, reason: DiscardReason) -> None:
        """Discard a dead letter without replaying it."""
        if not reason:
            raise InvalidInput("reason", "a reason for discarding it", reason)

        def body(tx: Tx) -> None:
            row = self._must(tx, dead_letter_id)
            closed = [(row.dead_letter_id, reason)]
            if not dead_letter_resolve_many(tx, closed, status="discarded", actor=self._actor):
                raise Conflict(f"{encode('dl', row.dead_letter_id)} is not an open dead letter.")
            journal_note(tx, [row], "discarded", self._actor, reason)

        self._store.write(body)

    def discard_matching(self, request: DiscardRequest) -> DiscardStep:
        """Discard matching dead letters, newest first, in bounded steps. Use `dry_run` first.

        Pass the result's `next_before` to the next step.
        """
        limit, reason, is_dry = _step_limit(request), request.reason, request.is_dry_run
        if not reason:
            raise InvalidInput("reason", "a reason for discarding them", reason)
        given, before = _selected(request), _step_before(request)

        def body(tx: Tx) -> DiscardStep:
            wanted = self._wanted(tx, given)
            rows, matched, left = step_rows(tx, wanted, before=before, limit=limit)
            last = rows[-1].dead_letter_id if left else None
            if not is_dry:
                closed = [(row.dead_letter_id, reason) for row in rows]
                done = dead_letter_resolve_many(tx, closed, status="discarded", actor=self._actor)
                rows = [row for row in rows if row.dead_letter_id in done]
                journal_note(tx, rows, "discarded", self._actor, reason)
            return DiscardStep(
                matched=matched,
                discarded=[encode("dl", row.dead_letter_id) for row in rows],
                left=left,
                is_dry_run=is_dry,
                next_before=id_or_none("dl", last),
            )

        return self._store.read(body) if is_dry else self._store.write(body)

    def _must(self, tx: Tx, dead_letter_id: str) -> DeadLetterRow:
        """Return the dead letter with this id, or of the run with this id."""
        customer = self._names.customer_key(tx, None)
        is_run = dead_letter_id.lower().startswith("run_")
        try:
            number = decode("run" if is_run else "dl", dead_letter_id)
        except InvalidInput:
            raise NotFound("dead letter", dead_letter_id) from None
        if is_run:
            found = dead_letter_get(tx, run_id=number, customer_key=customer)
        else:
            found = dead_letter_get(tx, dead_letter_id=number, customer_key=customer)
        if found is None:
            raise NotFound("dead letter", dead_letter_id)
        return found

    def _wanted(self, tx: Tx, given: Mapping[str, Any]) -> DeadLetterRowFilter:
        """Return the filter of rows for the filters of a request."""
        wanted = dict(given)
        status, kind = wanted.pop("status", "open"), wanted.get("kind")
        if status not in STATUSES:
            raise InvalidInput("status", f"one of {', '.join(STATUSES)}", status)
        if kind not in (None, *KINDS):
            raise InvalidInput("kind", f"one of {', '.join(KINDS)}", kind)
        since, until = wanted.pop("since", None), wanted.pop("until", None)
        group = wanted.pop("group", None)
        return DeadLetterRowFilter(
            **{**wanted, "customer": self._names.customer_key(tx, wanted.get("customer"))},
            status=None if status == "all" else status,
            group=None if group is None else parse_group(group),
            since=0 if since is None else from_datetime(since),
            until=FAR if until is None else from_datetime(until),
        )


def _step_limit(request: DeadLetterSelection) -> int:
    """Return the limit of a step; raise InvalidInput if it is out of range."""
    if not 1 <= request.limit <= STEP_MAX:
        raise InvalidInput("limit", f"1 to {STEP_MAX}", request.limit)
    return request.limit


def _step_before(request: DeadLetterSelection) -> int:
    return FAR if request.before is None else decode("dl", request.before, "before")


def _selected(request: DeadLetterSelection) -> dict[str, Any]:
    """Return the filters of a bulk action."""
    return {name: getattr(request, name) for name in DeadLetterFilters.__annotations__}


def _run_attempts(tx: Tx, row: DeadLetterRow, run: RunRow) -> list[DeadLetterAttempt]:
    """Return the failed attempts up to the dead letter of a run, oldest first."""
    chain = run_chain(tx, run, row.customer_key)
    earlier = [one for one in chain if (one.finished_at or 0) <= row.dead_at]
    return run_attempt_records(earlier[-ATTEMPTS_MAX:])


def _kept_until(tx: Tx, row: DeadLetterRow) -> datetime | None:
    """Return the time until which a dead letter is kept: an open one is kept as long as history."""
    if row.status == "open":
        return time_or_none(kept_until(tx, HISTORY, row.dead_at))
    return time_or_none(kept_until(tx, RESOLVED, row.resolved_at))


def _step_record(outcome: ReplayOutcome, *, is_dry: bool) -> ReplayStep:
    return ReplayStep(
        matched=outcome.matched,
        replayed=[
            ReplayedDeadLetter(dead_letter_id=encode("dl", number), replayed_as=new_id or None)
            for number, new_id in outcome.replayed
        ],
        refused=[
            RefusedReplay(dead_letter_id=encode("dl", number), why=why)
            for number, why in outcome.refused
        ],
        left=outcome.left,
        is_dry_run=is_dry,
        next_before=id_or_none("dl", outcome.next_before),
        next_at=time_or_none(outcome.next_at),
    )
