"""The weekly report as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from penstock.analytics.review.records import ReviewAction, WeeklyReview

NOTHING: Final = (
    "Nothing: no count is above its threshold (same-day 100, historical 10, optional 50, "
    "overrides 5)."
)


def markdown(review: WeeklyReview) -> str:
    """Return the report as Markdown."""
    parts = [f"# {title_of(review)}", summary_of(review), "## What to do", _actions(review)]
    parts += ["## Runs by day", _table(
        ("day", "completed", "failed", "cancelled", "started late"),
        [(f"{one.at:%a %Y-%m-%d}", one.completed, one.failed, one.cancelled, one.started_late)
         for one in review.runs],
    )]  # fmt: skip
    parts += ["## Failures by processor", _table(
        ("processor", "pipeline", "same-day", "historical", "optional", "overrides", "runs failed"),
        [(one.name, one.pipeline, one.same_day_failures, one.historical_failures,
          one.optional_failures, one.overrides, one.failures) for one in review.processors],
    )]  # fmt: skip
    parts += ["## Dependencies by kind", _table(
        ("kind", "checks", "missing", "rate"),
        [(one.kind, one.checks, one.failures, percent(one.failure_rate)) for one in review.kinds],
    )]  # fmt: skip
    parts += ["## Most problematic dependencies", _table(
        ("table", "kind", "missing", "blocked", "gates"),
        [(one.table, one.kind, one.failures, span(one.blocked), ", ".join(one.processors))
         for one in review.problems],
    )]  # fmt: skip
    parts += ["## Overrides", _table(
        ("processor", "pipeline", "executions", "partitions", "reason"),
        [(f"{one.phase}.{one.processor}", one.pipeline, one.executions, one.partitions,
          one.reason or "") for one in review.overrides],
    )]  # fmt: skip
    parts += ["## Why things failed", _table(
        ("reason", "source", "count", "before"),
        [(one.reason, one.source, one.count, one.count_before) for one in review.reasons],
    )]  # fmt: skip
    parts += ["## End to end", _table(
        ("pipeline", "mode", "flows", "degraded", "failed", "median", "p95", "longest"),
        [(one.pipeline, one.mode, one.flows, one.degraded, one.failed, span(one.p50),
          span(one.p95), span(one.longest)) for one in review.end_to_end],
    )]  # fmt: skip
    parts += ["## Phases", _table(
        ("phase", "pipeline", "ended", "completion", "quality", "average"),
        [(one.phase, one.pipeline, one.ended, percent(one.completion_rate),
          "" if one.quality is None else f"{one.quality:.2f}", span(one.average_duration))
         for one in review.phases],
    )]  # fmt: skip
    parts += ["## Slow executions", _table(
        ("run", "processor", "customer", "took", "p95"),
        [(one.run_id, f"{one.phase}.{one.processor}", one.customer, span(one.duration),
          span(one.p95)) for one in review.slow],
    )]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def title_of(review: WeeklyReview) -> str:
    """Return the heading of a report."""
    last = review.since + timedelta(days=review.days - 1)
    scope = " · ".join(one for one in (review.pipeline, review.customer) if one)
    what = "Weekly report" if review.days == 7 else f"Report for {review.days} days"
    return f"{what}{f' · {scope}' if scope else ''}, {review.since:%d %b} to {last:%d %b %Y}"


def summary_of(review: WeeklyReview) -> str:
    """Summarize the week in two sentences."""
    completed = sum(one.completed for one in review.runs)
    failed = sum(one.failed for one in review.runs)
    share = f" ({failed / (completed + failed):.1%})" if completed + failed else ""
    flows = sum(one.flows for one in review.end_to_end)
    done = sum(one.completed for one in review.end_to_end)
    need = len(review.actions)
    todo = "Nothing exceeds its threshold." if not need else (
        f"{need} {'threshold is' if need == 1 else 'thresholds are'} exceeded.")  # fmt: skip
    return (
        f"{completed:,} runs completed and {failed:,} failed{share}; {done:,} of {flows:,} flows "
        f"completed. {todo}"
    )


def counted(action: ReviewAction) -> str:
    """Return the count as text: "27 historical failures"."""
    if action.kind == "overrides":
        return f"{action.count:,} executions under overrides"
    return f"{action.count:,} {action.kind.replace('_', '-')} failures"


def _actions(review: WeeklyReview) -> str:
    if not review.actions:
        return NOTHING
    return "\n".join(
        f"- **{one.pipeline}/{one.name}**: {counted(one)} (threshold {one.threshold}). "
        f"{one.text} `{one.command}`"
        for one in review.actions
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [_line(row) for row in rows]
    if not lines:
        return "None."
    return "\n".join([_line(head), "|" + " --- |" * len(head), *lines])


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(_cell(one) for one in cells) + " |"


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def percent(share: float | None) -> str:
    """Return a share as a percentage; empty for None."""
    return "" if share is None else f"{share:.1%}"


def span(value: timedelta | None) -> str:
    """Return a duration in its two largest units; empty for None."""
    if value is None:
        return ""
    seconds = round(value.total_seconds())
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
