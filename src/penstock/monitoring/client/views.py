"""Read models: overview, a customer's metrics, live processes, table sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from penstock.access.store.paging import Cursor, PageLimit, paged, paged_part
from penstock.audit.from_rows import listed_record
from penstock.audit.records import ListedJournalEntry
from penstock.audit.rows import JournalFilter, Seal
from penstock.audit.store.journal import (
    journal_list,
    journal_names,
    outbox_count,
    seal_heads,
    seal_list,
    seal_list_newest,
    seals_verify,
)
from penstock.core.clock import DAY, from_datetime, parse_iso
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.records.parameters import Customer, CustomerFilter
from penstock.core.records.record import Meta, Page, Time, Wire, time_or_none
from penstock.db.store import Single, Tx
from penstock.db.tenant_isolation import TenantIsolation, tenant_isolation_get
from penstock.monitoring.from_rows import (
    metrics_record,
    overview_record,
    pipeline_record,
    session_record,
)
from penstock.monitoring.records import (
    CustomerMetrics,
    JournalVerification,
    OutboxBacklog,
    Overview,
    RegisteredPipeline,
    Session,
)
from penstock.monitoring.store import customer_metrics, last_failures, overview, store_sizes
from penstock.monitoring.system.client import SystemViews
from penstock.monitoring.verify.accounts import compare_heads
from penstock.monitoring.verify.client import JournalVerifier
from penstock.monitoring.verify.from_rows import (
    comparison_record,
    seal_record,
    verification_record,
)
from penstock.monitoring.verify.records import (
    HeadComparison,
    PublishedHead,
    SealedBlock,
    Verification,
)
from penstock.runs.from_rows import run_record
from penstock.runs.records import Run
from penstock.runs.store.leases import session_list
from penstock.runs.store.lists.pages import RunFilter, run_list_running
from penstock.runs.store.runs import run_get
from penstock.schedules.store.configs import audit_verify
from penstock.schedules.store.schedule import schedule_next_at

__all__ = ["Views"]

WINDOW_DAYS = 30
EARLIEST = parse_iso("0001-01-01T00:00:00Z")

_START = Meta(description="First scheduled time to count; 30 days before `end_date` when omitted.")
_END = Meta(description="Count only runs scheduled before this time; now when omitted.")
_KIND = Meta(description="Return only entries about this kind of subject, such as `flow`.")
_ACTION = Meta(description="Return only entries of this action, such as `ended`.")
_ACTOR = Meta(description="Return only entries of this key, user, worker or service.")
_NOTABLE = Meta(description="Omit created and completed runs, and gates that still wait.")
_LONGEST = Meta(description="Maximum number of runs.", ge=1, le=100)
Word = Annotated[str, Meta(max_length=200)]
HEADS_MAX = 5_000
Heads = Annotated[
    Sequence[PublishedHead],
    Meta(description="Heads as they were published.", min_length=1, max_length=HEADS_MAX),
]
SealOrder: TypeAlias = Annotated[
    Literal["oldest", "newest"], Meta(description="`oldest` or `newest` blocks first.")
]
_PIPELINE = Meta(description="Registered name of the pipeline.", max_length=64)


class Views(SystemViews):
    """Read-only use cases over several subjects."""

    def overview(self) -> Overview:
        """Return counts of active runs, and of runs that ended since midnight UTC.

        A client scoped to a customer gets no next scheduled time, because that covers all
        customers.
        """

        def body(tx: Tx) -> Overview:
            is_scoped = self._names.customer_id is not None
            next_at, now = (None, tx.now()) if is_scoped else schedule_next_at(tx)
            return overview_record(overview(tx, self._names.customer_key(tx, None)), now, next_at)

        return self._store.read(body)

    def metrics(
        self,
        customer: Customer,
        *,
        start_date: Annotated[Time | None, _START] = None,
        end_date: Annotated[Time | None, _END] = None,
    ) -> CustomerMetrics:
        """Return statistics of a customer's ended runs in a period, in total and by provider."""

        def body(tx: Tx) -> CustomerMetrics:
            end = tx.now() if end_date is None else from_datetime(end_date)
            if start_date is None:
                start = max(EARLIEST, end - WINDOW_DAYS * DAY)
            else:
                start = from_datetime(start_date)
            if start > end:
                raise InvalidInput("start_date", "a time before end_date", start_date)
            number = self._names.customer_key(tx, customer)
            assert number is not None
            return metrics_record(customer, start, end, customer_metrics(tx, number, start, end))

        return self._store.read(body)

    def longest_running(
        self, *, customer: CustomerFilter = None, limit: Annotated[int, _LONGEST] = 10
    ) -> list[Run]:
        """List the runs that have been executing longest, longest first."""

        def body(tx: Tx) -> list[Run]:
            wanted = RunFilter(customer=self._names.customer_key(tx, customer), limit=limit)
            return [run_record(row) for row in run_list_running(tx, wanted).rows]

        return self._store.read(body)

    def last_failures(
        self, *, customer: CustomerFilter = None, limit: Annotated[int, _LONGEST] = 10
    ) -> list[Run]:
        """List the last failed run of each processor and error type, newest first.

        It covers the last seven days and includes runs that timed out, expired or were retried.
        """

        def body(tx: Tx) -> list[Run]:
            number = self._names.customer_key(tx, customer)
            found = (run_get(tx, run_id, number) for run_id in last_failures(tx, number, limit))
            return [run_record(row) for row in found if row is not None]

        return self._store.read(body)

    def sessions(self) -> list[Session]:
        """List live processes: workers and services."""
        self._names.require_unscoped("live processes")
        return [session_record(row) for row in self._store.read(session_list)]

    def pipelines(self) -> list[RegisteredPipeline]:
        """List registered pipelines by name."""
        return [pipeline_record(info) for info in self._names.pipelines()]

    def pipeline(self, name: Annotated[str, Wire("pipeline"), _PIPELINE]) -> RegisteredPipeline:
        """Return one registered pipeline."""
        for info in self._names.pipelines():
            if info.name == name:
                return pipeline_record(info)
        raise NotFound("pipeline", name)

    def processor_paths(self) -> dict[int, tuple[str, str, str]]:
        """Return the pipeline, phase and name of each processor, by its key in events."""
        return {
            row.processor_key: (row.pipeline, row.phase, row.name)
            for info in self._names.pipelines()
            for row in info.processors
        }

    def now(self) -> int:
        """Return the store's current time in microseconds."""
        return self._store.read(lambda tx: tx.now())

    def ping(self) -> None:
        """Check that the store responds; raise StoreError if it does not."""
        self._store.read(lambda tx: tx.rows("store_ping"))

    def check_write(self) -> None:
        """Write a row; raise StoreError if the store is unreachable, full or read-only."""
        self._names.require_unscoped("the database")
        self._store.write(Single(lambda tx: tx.run("store_write_check")))

    def sizes(self) -> dict[str, int]:
        """Return approximate row counts by table."""
        self._names.require_unscoped("table sizes")
        return self._store.read(store_sizes)

    def outbox(self) -> OutboxBacklog:
        """Return the messages of the outbox that have not been published."""
        self._names.require_unscoped("the outbox")
        waiting, oldest_at = self._store.read(outbox_count)
        return OutboxBacklog(waiting=waiting, oldest_at=time_or_none(oldest_at))

    def verify_journal(self) -> JournalVerification:
        """Recompute the seals of the journal and all audit chains; return the first problem."""
        self._names.require_unscoped("the journal")

        def body(tx: Tx) -> JournalVerification:
            blocks, entries, problem = seals_verify(tx)
            audited, audit_problem = audit_verify(tx)
            return JournalVerification(
                blocks=blocks,
                entries=entries,
                audit_entries=audited,
                problem=problem or audit_problem,
            )

        return self._store.read(body)

    def verify(self) -> Verification:
        """Verify with the journal and audit chains that nothing was lost, repeated or changed.

        Recomputes every hash, and compares the journal with history, the queue, flows, dead letters
        and deliveries. It reads the whole journal and can run while the installation is in use.
        """
        self._names.require_unscoped("the journal")
        return verification_record(JournalVerifier(self._store).run())

    def seals(
        self, *, sort: SealOrder = "oldest", limit: PageLimit = 50, cursor: Cursor = None
    ) -> Page[SealedBlock]:
        """List the sealed blocks of the journal, oldest or newest first.

        A copy of their heads outside the database proves later that nothing was rewritten.
        """
        self._names.require_unscoped("the journal")

        def read(after: Sequence[Any] | None) -> list[Seal]:
            last = None if after is None else after[0]
            if sort == "newest":
                return self._store.read(lambda tx: seal_list_newest(tx, last, limit))
            return self._store.read(lambda tx: seal_list(tx, last or 0, limit))

        return paged(
            self._names,
            "seals",
            read,
            cursor=cursor,
            filters={"sort": sort},
            limit=limit,
            position=lambda seal: (seal.block,),
            record=seal_record,
        )

    def compare_heads(self, heads: Heads) -> HeadComparison:
        """Compare published heads with the sealed blocks of the journal.

        A head that differs, or whose block is gone, proves that the journal was rewritten after the
        head was published. Send longer lists in parts.
        """
        self._names.require_unscoped("the journal")
        published: dict[int, str] = {}
        for index, one in enumerate(heads):
            if published.setdefault(one.block, one.head) != one.head:
                raise InvalidInput(f"heads[{index}]", "one head for each block", one.block)
        stored = self._store.read(lambda tx: seal_heads(tx, sorted(published)))
        return comparison_record(len(published), compare_heads(published, stored))

    def journal(
        self,
        *,
        kind: Annotated[Word | None, _KIND] = None,
        action: Annotated[Word | None, _ACTION] = None,
        actor: Annotated[Word | None, _ACTOR] = None,
        customer: CustomerFilter = None,
        notable: Annotated[bool, _NOTABLE] = False,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[ListedJournalEntry]:
        """List journal entries as sentences, newest first.

        A page reads a bounded number of entries: with filters it may have few rows, or none, and
        still have a `next_cursor`.
        """

        def read(
            after: Sequence[Any] | None,
        ) -> tuple[Sequence[ListedJournalEntry], Sequence[Any] | None]:
            def body(tx: Tx) -> tuple[Sequence[ListedJournalEntry], Sequence[Any] | None]:
                number = self._names.customer_key(tx, customer)
                wanted = JournalFilter(kind, action, actor, number, notable)
                position = None if after is None else (after[0], after[1], after[2])
                rows, following = journal_list(tx, wanted, position, limit)
                names = journal_names(tx, [row.subject for row in rows if row.kind == "run"])
                return [listed_record(row, names.get(row.subject)) for row in rows], following

            return self._store.read(body)

        filters = {
            "kind": kind, "action": action, "actor": actor, "customer": customer,
            "notable": notable,
        }  # fmt: skip
        return paged_part(self._names, "journal", read, cursor=cursor, filters=filters)

    def tenant_isolation(self) -> TenantIsolation:
        """Return whether the database itself enforces tenant isolation."""
        self._names.require_unscoped("the database")
        return self._store.read(tenant_isolation_get)
