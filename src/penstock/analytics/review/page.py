"""The weekly report as one self-contained HTML file with inline charts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from penstock.analytics.review.markdown import NOTHING, counted, percent, span, summary_of, title_of
from penstock.analytics.review.records import WeeklyReview
from penstock.analytics.review.svg import Series, heat_map, named_bars, stacked_bars

_STYLE: Final = """
:root{--bg:#f6f7f9;--card:#fff;--text:#1c2430;--dim:#5b6675;--line:#e1e5ea;--good:#2f7d5b;--bad:#b3403a;
--warn:#b7791f;--idle:#8a94a3;--blue:#3566a8;--low0:#e8f1ec}
@media (prefers-color-scheme:dark){:root{--bg:#11161d;--card:#1a212b;--text:#e4e9f0;--dim:#98a4b3;
--line:#2c3541;--good:#4cae86;--bad:#e0736c;--warn:#d9a441;--idle:#77828f;--blue:#6c9bdc;--low0:#20302a}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:25px;margin:0 0 4px}h2{font-size:16px;margin:0 0 12px}
.sum{color:var(--dim);margin:0 0 22px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;
margin:0 0 20px}
.card,section{background:var(--card);border:1px solid var(--line);border-radius:10px}
.card{padding:12px 16px}.card b{display:block;font-size:21px;white-space:nowrap;
font-variant-numeric:tabular-nums}
.card span{color:var(--dim);font-size:13px}.card.warn b{color:var(--bad)}
section{padding:18px 20px;margin:0 0 16px;overflow-x:auto}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(430px,1fr));gap:16px}
.two section{margin:0}.two{margin:0 0 16px}
svg{width:100%;max-width:760px;height:auto;display:block;font-size:12.5px}
svg text.label{fill:var(--dim)}svg text.on{fill:#fff;font-size:11.5px}
svg .grid{stroke:var(--line)}svg .mark{stroke:var(--text);stroke-width:2;opacity:.6}
svg .good{fill:var(--good)}svg .bad{fill:var(--bad)}svg .warn{fill:var(--warn)}
svg .idle{fill:var(--idle)}
svg .blue{fill:var(--blue)}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{text-align:left;color:var(--dim);font-weight:500;border-bottom:1px solid var(--line);
padding:4px 10px 6px 0}
td{border-bottom:1px solid var(--line);padding:6px 10px 6px 0;vertical-align:top}
tr:last-child td{border-bottom:0}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums;padding-right:26px}td.zero{color:var(--idle);opacity:.7}
code{font:12.5px ui-monospace,Menlo,monospace;background:var(--bg);border:1px solid var(--line);
border-radius:5px;padding:1px 6px;overflow-wrap:anywhere}
.acts{margin:0;padding:0;list-style:none}.acts li{border-left:3px solid var(--bad);padding:2px 0 2px
12px;margin:0 0 12px}.acts li:last-child{margin:0}.none{color:var(--dim);margin:0}
.legend{color:var(--dim);font-size:12.5px;margin:6px 0 0}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin:0 5px 0 12px;
vertical-align:-1px}
.legend i:first-child{margin-left:0}
.i-good{background:var(--good)}.i-bad{background:var(--bad)}.i-warn{background:var(--warn)}
.i-idle{background:var(--idle)}footer{color:var(--dim);font-size:12.5px}
@media print{body{background:#fff}section,.card{break-inside:avoid}}
"""


def html_page(review: WeeklyReview) -> str:
    """Return the report as one self-contained HTML document."""
    title = escape(title_of(review))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{title}</h1><p class="sum">{escape(summary_of(review))}</p>'
        f"{_cards(review)}{_actions(review)}{_charts(review)}{_tables(review)}"
        f"<footer>As of {review.as_of:%Y-%m-%d %H:%M} UTC; days are UTC. Source: penstock report."
        "</footer>"
        "</main></body></html>\n"
    )


def _cards(review: WeeklyReview) -> str:
    completed = sum(one.completed for one in review.runs)
    failed = sum(one.failed for one in review.runs)
    flows = sum(one.flows for one in review.end_to_end)
    done = sum(one.completed for one in review.end_to_end)
    checks = sum(one.checks for one in review.kinds)
    missing = sum(one.failures for one in review.kinds)
    rate = failed / (completed + failed) if completed + failed else 0.0
    figures = [
        (f"{completed:,}", "runs completed", False),
        (f"{failed:,}", f"runs failed, {rate:.1%}", rate >= 0.05),
        (f"{done:,} of {flows:,}", "flows completed", flows > 0 and done / flows < 0.95),
        (f"{missing:,} of {checks:,}", "checks found a table missing", False),
        (
            f"{sum(one.executions for one in review.overrides):,}",
            "executions under overrides",
            False,
        ),
        (f"{sum(one.started_late for one in review.runs):,}", "runs started late", False),
    ]
    cards = "".join(
        f'<div class="card{" warn" if is_bad else ""}"><b>{value}</b><span>{name}</span></div>'
        for value, name, is_bad in figures
    )
    return f'<div class="cards">{cards}</div>'


def _actions(review: WeeklyReview) -> str:
    if not review.actions:
        return _section("What to do", f'<p class="none">{NOTHING}</p>')
    items = "".join(
        f"<li><b>{escape(f'{one.pipeline}/{one.name}')}</b>: {counted(one)}, "
        f"threshold {one.threshold}. {escape(one.text)}<br><code>{escape(one.command)}</code></li>"
        for one in review.actions
    )
    return _section("What to do", f'<ul class="acts">{items}</ul>')


def _charts(review: WeeklyReview) -> str:
    days = [f"{one.at:%Y-%m-%d}" for one in review.runs]
    runs = stacked_bars(
        days,
        [
            Series("completed", "good", [one.completed for one in review.runs]),
            Series("failed", "bad", [one.failed for one in review.runs]),
            Series("cancelled", "idle", [one.cancelled for one in review.runs]),
        ],
    ) + _legend(("good", "completed"), ("bad", "failed"), ("idle", "cancelled"))
    missing = {(f"{one.day:%Y-%m-%d}", one.kind): one.failures for one in review.kind_days}
    styles = {"same_day": "bad", "historical": "warn", "optional": "idle"}
    kinds = sorted({one.kind for one in review.kind_days}, key=lambda k: list(styles).index(k)
                   if k in styles else 9)  # fmt: skip
    checks = stacked_bars(
        days,
        [
            Series(kind, styles.get(kind, "blue"), [missing.get((day, kind), 0) for day in days])
            for kind in kinds
        ],
    ) + _legend(*((styles.get(kind, "idle"), kind.replace("_", "-")) for kind in kinds))
    reasons = named_bars(
        [
            (f"{one.reason}{' (gate)' if one.source == 'gate' else ''}", one.count,
             one.count_before) for one in review.reasons[:10]
        ]
    ) + '<p class="legend">The mark shows the period before.</p>'  # fmt: skip
    modes = named_bars(
        [
            (f"{one.pipeline} {one.mode}", one.p95.total_seconds() / 60, None)
            for one in review.end_to_end
            if one.p95 is not None
        ][:10],
        css="blue",
        unit=" min",
    )
    return (
        '<div class="two">'
        + _section("Runs by day", runs)
        + _section("Tables found missing, by day", checks if kinds else _none())
        + _section("Why things failed", reasons if review.reasons else _none())
        + _section("End to end, 95th percentile", modes if review.end_to_end else _none())
        + "</div>"
        + _section("Were the tables complete?", _completeness(review))
    )


def _completeness(review: WeeklyReview) -> str:
    if not review.tables:
        return _none()
    days = sorted({f"{one.day:%Y-%m-%d}" for one in review.tables})[-14:]
    cells = {(one.table, f"{one.day:%Y-%m-%d}"): one for one in review.tables}
    names = sorted({one.table for one in review.tables})[:40]
    css = {"complete": "good", "usable": "warn", "low": "bad"}
    rows = [
        (
            name,
            [
                None if found is None else (
                    css[found.band], f"{found.completeness:.0f}",
                    f"{name}, {day}: {found.completeness:.1f} % at {found.gates} gates")
                for day in days for found in [cells.get((name, day))]
            ],
        )
        for name in names
    ]  # fmt: skip
    legend = _legend(("good", "100 %"), ("warn", "80 to 99 %"), ("bad", "under 80 %"))
    return heat_map([day[5:] for day in days], rows) + legend


def _tables(review: WeeklyReview) -> str:
    return "".join(
        [
            _section("Failures by processor", _table(
                ("processor", "pipeline", "same-day", "historical", "optional", "overrides",
                 "runs", "failed"),
                [(one.name, one.pipeline, one.same_day_failures, one.historical_failures,
                  one.optional_failures, one.overrides, one.runs, one.failures)
                 for one in review.processors])),
            _section("Most problematic dependencies", _table(
                ("table", "kind", "missing", "blocked", "gates"),
                [(one.table, one.kind, one.failures, span(one.blocked), ", ".join(one.processors))
                 for one in review.problems])),
            _section("Optional dependencies", _table(
                ("table", "gate", "checks", "missing", "rate"),
                [(one.table, one.processor or one.phase, one.checks, one.misses,
                  percent(one.miss_rate)) for one in review.optional])),
            _section("Overrides", _table(
                ("processor", "pipeline", "executions", "partitions", "reason"),
                [(f"{one.phase}.{one.processor}", one.pipeline, one.executions, one.partitions,
                  one.reason or "") for one in review.overrides])),
            _section("Processors that fail most", _table(
                ("processor", "pipeline", "runs", "failed", "rate", "rate before"),
                [(f"{one.phase}.{one.processor}", one.pipeline, one.runs, one.failures,
                  percent(one.failure_rate), percent(one.failure_rate_before))
                 for one in review.failing])),
            _section("Phases", _table(
                ("phase", "pipeline", "ended", "completion", "quality", "average"),
                [(one.phase, one.pipeline, one.ended, percent(one.completion_rate),
                  "" if one.quality is None else f"{one.quality:.2f}", span(one.average_duration))
                 for one in review.phases])),
            _section("End to end", _table(
                ("pipeline", "mode", "flows", "degraded", "failed", "median", "p95", "longest"),
                [(one.pipeline, one.mode, one.flows, one.degraded, one.failed, span(one.p50),
                  span(one.p95), span(one.longest)) for one in review.end_to_end])),
            _section("Slow executions, over 5 minutes", _table(
                ("run", "processor", "customer", "took", "p95 of its processor"),
                [(one.run_id, f"{one.phase}.{one.processor}", one.customer, span(one.duration),
                  span(one.p95)) for one in review.slow])),
        ]
    )  # fmt: skip


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>"


def _none() -> str:
    return '<p class="none">None.</p>'


def _legend(*entries: tuple[str, str]) -> str:
    inner = "".join(f'<i class="i-{css}"></i>{escape(name)}' for css, name in entries)
    return f'<p class="legend">{inner}</p>'


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    found = list(rows)
    if not found:
        return _none()
    numeric = [_is_number(value) for value in found[0]]
    titles = "".join(
        f"<th{_css(is_n)}>{name}</th>" for name, is_n in zip(head, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_css(is_n, value)}>{escape(_shown(value))}</td>"
            for value, is_n in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in found
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _is_number(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.endswith("%"))


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _css(is_number: bool, value: object = None) -> str:
    zero = " zero" if value == 0 and is_number else ""
    return f' class="n{zero}"' if is_number else ""
