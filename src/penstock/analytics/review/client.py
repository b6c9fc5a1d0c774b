"""Use cases of reviews: the daily checks and the weekly report."""

from __future__ import annotations

from typing import Annotated

from penstock.access.store.names import NameResolver
from penstock.analytics.client import Analytics
from penstock.analytics.review import checks
from penstock.analytics.review.records import DailyHealth, WeeklyReview
from penstock.core.clock import DAY, HOUR, to_datetime
from penstock.core.records.parameters import CustomerFilter, PipelineFilter
from penstock.core.records.record import Meta, time
from penstock.db.store import Transactions
from penstock.dead_letters.client.dead_letters import DeadLetters
from penstock.detection.client import Detections

__all__ = ["Reviews"]

_DAYS = Meta(description="Number of days up to today, UTC.", ge=1, le=90)


class Reviews:
    """Reviews of an installation, or of one customer."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names
        self._figures = Analytics(store, names)

    def health(
        self, *, pipeline: PipelineFilter = None, customer: CustomerFilter = None
    ) -> DailyHealth:
        """Run the daily checks over the last day and the live work."""
        now = self._store.read(lambda tx: tx.now())
        figures = self._figures
        acks = figures.acknowledgments(pipeline=pipeline, customer=customer, hours=24)
        recent, today = (
            figures.dependency_health(pipeline=pipeline, customer=customer, days=days)
            for days in (2, 1)
        )
        week = figures.dependency_health(pipeline=pipeline, customer=customer, days=7)
        series = figures.run_series(
            bucket="1h", since=to_datetime(now - DAY), pipeline=pipeline, customer=customer
        )
        modes = figures.end_to_end(pipeline=pipeline, customer=customer, days=1)
        used = figures.overrides(pipeline=pipeline, customer=customer, days=1)
        found = [
            checks.nack_check(acks),
            checks.stuck_check(self._waiting(now, pipeline, customer)),
            checks.historical_check(recent, today),
            checks.override_check(used),
            checks.optional_check(week),
            checks.failure_check(series),
            checks.flow_check(modes),
            checks.late_check(series),
            checks.dead_letter_check(self._dead_letters(pipeline, customer)),
        ]
        return DailyHealth(
            as_of=time(now), is_healthy=all(one.verdict == "OK" for one in found), checks=found
        )

    def weekly(
        self,
        *,
        pipeline: PipelineFilter = None,
        customer: CustomerFilter = None,
        days: Annotated[int, _DAYS] = 7,
    ) -> WeeklyReview:
        """Return the weekly review: failures, trends and recommended actions."""
        figures = self._figures
        health = figures.dependency_health(pipeline=pipeline, customer=customer, days=days)
        trends = figures.trends(pipeline=pipeline, customer=customer, days=days)
        series = figures.run_series(
            bucket="1d", since=health.since, pipeline=pipeline, customer=customer
        )
        rows = checks.reviewed(health, trends.processors)
        return WeeklyReview(
            as_of=health.as_of,
            since=health.since,
            days=days,
            pipeline=pipeline,
            customer=customer,
            actions=checks.actions_of(rows),
            runs=series.points,
            processors=rows,
            kinds=health.kinds,
            kind_days=health.days,
            problems=health.problems[:20],
            optional=health.optional[:20],
            overrides=health.overrides[:20],
            reasons=trends.reasons[:20],
            failing=trends.processors[:20],
            slow=trends.slow[:20],
            phases=trends.phases,
            tables=trends.tables,
            end_to_end=trends.end_to_end,
        )

    def _waiting(
        self, now: int, pipeline: str | None, customer: str | None
    ) -> list[checks.Waiting]:
        detections = Detections(self._store, self._names)
        page = detections.list(customer=customer, pipeline=pipeline, limit=1_000)
        return [
            checks.Waiting(
                table=str(one.values.get("table", one.message.split(" ")[0])),
                hours=(now - round(one.since.timestamp() * 1_000_000)) / HOUR,
                command=one.command,
            )
            for one in page.items
            if one.rule in ("dependency_missing", "dependency_blocking")
        ]

    def _dead_letters(self, pipeline: str | None, customer: str | None) -> int:
        inbox = DeadLetters(self._store, self._names, "")
        limit = checks.DEAD_LETTERS + 1
        return len(inbox.list(pipeline=pipeline, customer=customer, limit=limit).items)
