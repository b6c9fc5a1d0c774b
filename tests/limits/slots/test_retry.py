"""Quota errors: their classification, retries in place, and adaptive capacity."""

import asyncio
from typing import Any

import pytest

from penstock import limits
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import InvalidInput, LimitTimeout, TransientError
from penstock.db.store import Store
from penstock.limits.bigquery import DmlOptions, dml, run_dml, statement_of, table_slot
from penstock.limits.slots.retry import QuotaRetry
from penstock.testing.clock import VirtualClock
from tests.limits.slots.kit import StoredLimit


class Forbidden(Exception):
    """Google's 403, as in google-api-core."""

    __module__ = "google.api_core.exceptions"
    code = 403

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.errors = [{"reason": reason}]


class Status(Exception):
    """An HTTP client's error."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.headers = headers or {}


class Serialization(Exception):
    """A serialization conflict of a database."""

    sqlstate = "40001"


QUOTA = Forbidden("403 Quota exceeded: too many DML jobs", "quotaExceeded")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (QUOTA, "quota"),
        (Forbidden("slow down", "rateLimitExceeded"), "quota"),
        (Forbidden("Access Denied", "accessDenied"), None),
        (Status(429), "quota"),
        (Status(500), None),
        (Status(403), None),
        (Serialization(), "conflict"),
        (Status(400), None),
        (
            RuntimeError("Could not serialize access to table x due to concurrent update"),
            "conflict",
        ),
        (TransientError("full", error_type="QUOTA_EXCEEDED"), "quota"),
        (LimitTimeout(), None),
        (ValueError("quota"), None),
    ],
)
def test_quota_kind(error: BaseException, kind: str | None) -> None:
    """Quota and rate errors, conflicts, and other errors are told apart."""
    assert limits.quota_kind(error) == kind


def test_user_predicates() -> None:
    """Registered predicates are tried first; one that raises is ignored."""
    unregister = limits.register_quota_error(lambda e: isinstance(e, KeyError))
    unregister_broken = limits.register_quota_error(lambda e: bool(e.nonsense))  # type: ignore[attr-defined]
    try:
        assert limits.quota_kind(KeyError("x")) == "quota"
        assert limits.quota_kind(QUOTA) == "quota"
    finally:
        unregister()
        unregister_broken()
    assert limits.quota_kind(KeyError("x")) is None


class Resource:
    """A callable that raises the given errors in order, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, *_: Any) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture
def policy(clock: VirtualClock) -> QuotaRetry:
    return QuotaRetry(clock=clock, random=lambda: 0.0)


class TestBackoff:
    """Delays from 2 s, doubled up to 120 s, within 10 minutes."""

    def test_delays(self, policy: QuotaRetry, clock: VirtualClock) -> None:
        """The delays double up to the maximum."""
        resource = Resource(*[QUOTA] * 7)
        start = clock.now()
        assert policy.call(resource) == "done"
        assert clock.now() - start == (2 + 4 + 8 + 16 + 32 + 64 + 120) * SECOND
        assert resource.calls == 8

    def test_gives_up_within_ten_minutes(self, policy: QuotaRetry, clock: VirtualClock) -> None:
        """The last error is raised if the next delay would exceed ten minutes in total."""
        resource = Resource(*[QUOTA] * 100)
        start = clock.now()
        with pytest.raises(Forbidden):
            policy.call(resource)
        assert clock.now() - start <= 10 * MINUTE
        assert resource.calls == 10

    def test_retry_after_is_honoured(self, policy: QuotaRetry, clock: VirtualClock) -> None:
        """A Retry-After that is longer than the backoff replaces it."""
        start = clock.now()
        policy.call(Resource(Status(429, {"Retry-After": "45"}), Status(429, {"Retry-After": "1"})))
        assert clock.now() - start == (45 + 4) * SECOND

    def test_jitter(self, clock: VirtualClock) -> None:
        """Jitter lengthens a delay by at most a quarter."""
        policy = QuotaRetry(clock=clock, random=lambda: 1.0)
        start = clock.now()
        policy.call(Resource(QUOTA))
        assert clock.now() - start == 2.5 * SECOND

    def test_other_errors_are_raised(self, policy: QuotaRetry) -> None:
        """Errors that are neither quota errors nor conflicts are not retried."""
        resource = Resource(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            policy.call(resource)
        assert resource.calls == 1

    def test_async(self) -> None:
        """An async function is retried the same way."""
        policy = QuotaRetry(initial_us=1, maximum_us=1, random=lambda: 0.0)
        resource = Resource(QUOTA, Serialization())

        @limits.retry(policy=policy)
        async def work() -> str:
            return resource()

        assert asyncio.run(work()) == "done"
        assert resource.calls == 3


@pytest.mark.usefixtures("still")
class TestWithSlots:
    """Every attempt acquires its own slot, and quota errors are reported to the limit."""

    def test_quota_errors_lower_the_capacity(self, store: Store, policy: QuotaRetry) -> None:
        """Quota errors are reported and lower an adaptive capacity; conflicts are not."""
        slot = limits.slot("x", capacity=8, adaptive=True)
        policy.call(Resource(QUOTA, Serialization(), QUOTA), slot)
        sight = StoredLimit(store, "x")
        assert sight.outcomes.count("quota") == 2
        assert sight.learned == 2.0
        assert sight.holders == []

    def test_a_plain_slot_reports_too(self, store: Store) -> None:
        """A quota error raised in a `with` block is reported too."""
        with pytest.raises(Forbidden), limits.slot("x", capacity=8, adaptive=True):
            raise QUOTA
        assert StoredLimit(store, "x").learned == 4.0

    def test_the_slot_is_free_between_attempts(self, store: Store, clock: VirtualClock) -> None:
        """No slot is held during the delay before the next attempt."""
        held: list[int] = []

        class RecordingClock(VirtualClock):
            def wait(self, event: Any, timeout: float | None) -> bool:
                held.append(len(StoredLimit(store, "x").holders))
                return super().wait(event, timeout)

        policy = QuotaRetry(clock=RecordingClock(clock.now()), random=lambda: 0.0)
        assert policy.call(Resource(QUOTA, QUOTA), limits.slot("x", capacity=1)) == "done"
        assert held == [0, 0]


class FakeJob:
    """A job that records its timeouts and cancellations in its client."""

    def __init__(self, client: "FakeClient") -> None:
        self.client = client

    def result(self, *, timeout: float) -> str:
        self.client.timeouts.append(timeout)
        if self.client.errors:
            raise self.client.errors.pop(0)
        return "rows"

    def cancel(self) -> None:
        self.client.cancelled += 1


class FakeClient:
    """The part of google-cloud-bigquery's client that a DML job needs."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.timeouts: list[float] = []
        self.options: list[dict[str, Any]] = []
        self.cancelled = 0

    def query(self, query: str, **options: Any) -> FakeJob:
        self.options.append({"query": query, **options})
        return FakeJob(self)


@pytest.mark.usefixtures("still")
class TestBigQuery:
    """DML under the limits that Google documents."""

    @pytest.mark.parametrize(
        ("sql", "statement"),
        [
            ("INSERT INTO t VALUES (1)", "insert"),
            ("-- why\n merge t using s on true", "mutate"),
            ("/* a */ DELETE FROM t WHERE TRUE", "mutate"),
            ("UPDATE t SET a = 1 WHERE TRUE", "mutate"),
        ],
    )
    def test_statements(self, sql: str, statement: str) -> None:
        assert statement_of(sql) == statement

    @pytest.mark.parametrize("sql", ["SELECT 1", "", "CREATE TABLE x", "-- INSERT"])
    def test_no_dml(self, sql: str) -> None:
        with pytest.raises(InvalidInput, match="sql"):
            statement_of(sql)

    def test_presets(self) -> None:
        """10 inserts or 2 mutations at a time; up to 20 more may be queued in BigQuery."""
        assert table_slot("d.t", "insert").options.terms.capacity == 10
        assert table_slot("d.t").options.terms.capacity == 2
        more = table_slot("p-1.d.t", options=DmlOptions(queued=20)).options
        assert (more.name, more.terms.capacity, more.terms.is_adaptive) == ("bq:p-1.d.t", 22, True)
        for table in ("t", "d.t; DROP", "", "d.t.", 7):
            with pytest.raises(InvalidInput, match="table"):
                table_slot(table)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="queued"):
            table_slot("d.t", options=DmlOptions(queued=21))

    def test_a_job(self, store: Store, policy: QuotaRetry) -> None:
        """Quota errors and conflicts are retried, jobs have 120 s, and the limit is notified."""
        client = FakeClient(QUOTA, Serialization())
        options = DmlOptions(retry=policy)
        sql = "MERGE d.t USING s ON TRUE"
        assert dml(client, sql, table="d.t", options=options, location="EU") == "rows"
        assert client.timeouts == [120.0] * 3
        assert client.options[0] == {"query": sql, "location": "EU"}
        assert StoredLimit(store, "bq:d.t").outcomes.count("quota") == 1

    def test_a_job_that_takes_too_long_is_cancelled(self, policy: QuotaRetry) -> None:
        """The timeout is raised, and the job is cancelled."""
        client = FakeClient(TimeoutError("120 s"))
        with pytest.raises(TimeoutError):
            dml(client, "DELETE FROM d.t WHERE TRUE", table="d.t",
                options=DmlOptions(retry=policy))  # fmt: skip
        assert client.cancelled == 1

    def test_a_custom_callable(self, policy: QuotaRetry) -> None:
        """The callable receives the slot with its fencing token."""
        options = DmlOptions(retry=policy)
        assert run_dml(lambda slot: slot.token, table="d.t", options=options) > 0
