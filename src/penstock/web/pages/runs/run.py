"""The page of one run, with its progress and earlier failures."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from penstock.core.records.record import to_json_value
from penstock.runs.records import Run, RunDetail, SimilarRuns
from penstock.web.charts import Bar, TimelinePanel, TimelineRow
from penstock.web.detail_parts import ErrorPanel, LogLine, LogPanel, ProgressPanel
from penstock.web.links import page_of
from penstock.web.pages.data import as_text, error_panel, journal_text
from penstock.web.pages.flows.neighbours import run_neighbours
from penstock.web.pages.flows.parts import tree_of
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Empty,
    FactsPanel,
    FeedPanel,
    Figure,
    Happening,
    TableColumn,
    TablePanel,
    TextPanel,
    Way,
    WaysPanel,
    WebPage,
    address,
    state_cell,
    text,
    time_cell,
)
from penstock.web.visit import Visit
from penstock.web.words import WAITS, appearance, duration, number, plural, size, word

ENDED: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "EXPIRED"})
LOG_LINES: Final = 200
"""Number of log lines on one page."""
LEVELS: Final = {
    "all": ("DEBUG", "INFO", "WARN", "ERROR"), "warnings": ("WARN", "ERROR"), "errors": ("ERROR",),
}  # fmt: skip
FILL: Final = {"complete": "ok", "running": "run", "failed": "fail", "timeout": "fail"}


def run_state(run: Run) -> Cell:
    """Return the state of a run; for a pending run, the reason it waits."""
    if run.state == "PENDING" and run.waits:
        style, phrase = WAITS.get(run.waits, ("pending", run.waits))
        return Cell(text=phrase, state=style)
    return state_cell(run.state, small="dead letter" if run.is_dead else "")


def run(visit: Visit) -> WebPage:
    """Show one run."""
    detail = visit.client.runs.detail(visit.path_values["run_id"])
    one = detail.run
    cell = run_state(one)
    parts: list[Any] = []
    if one.state not in ENDED:
        parts.append(
            visit.panel("Why", lambda: tree_of(visit, visit.client.diagnostics.why_run(one.run_id)))
        )
    if detail.progress is not None:
        parts.insert(0, _progress(visit, detail))
    over_time = _tries(visit, detail)
    parts += [] if over_time is None else [over_time]
    parts.append(_attempts(detail))
    if one.error_type is not None:
        parts.append(_error(one))
    if detail.similar is not None and detail.similar.runs > 1:
        parts.append(_similar(visit, one, detail.similar))
    parts.append(visit.panel("Log", lambda: _log(visit, one)))
    return WebPage(
        title=one.run_id,
        nav="runs",
        heading=f"{one.processor} of {one.customer}",
        crumbs=[("/runs", "Runs")],
        state=cell.state,
        word=cell.text,
        sentence=_sentence(visit, detail),
        actions=_actions(visit, one),
        neighbours=run_neighbours(visit, one),
        main=parts,
        side=[
            _ways(visit, one),
            _facts(one),
            TextPanel(title="Parameters", text=as_text(one.parameters)),
            *([TextPanel(title="Result", text=as_text(one.result))] if one.result else []),
            *_artifacts(detail),
            FeedPanel(
                title="Journal",
                rows=[
                    Happening(
                        at=entry.at,
                        icon=appearance(entry.to_state) if entry.to_state else "info",
                        text=journal_text(entry),
                        small=entry.actor,
                    )
                    for entry in detail.journal
                ],
            ),
        ],
        is_live=one.state not in ENDED,
    )


def _similar(visit: Visit, one: Run, found: SimilarRuns) -> FactsPanel:
    """Return how many other runs failed the same way, with a link to replay them all."""
    count = "1,000+ runs" if found.runs >= 1_000 else plural(found.runs, "run")
    href = address(
        "dead-letters", kind="run", pipeline=one.pipeline, processor=one.processor,
        error_type=one.error_type, customer=visit.customer,
    )  # fmt: skip
    of = "" if visit.is_bound else f" of {plural(found.customers, 'customer')}"
    return FactsPanel(
        title="Failed the same way",
        facts=[
            ("last 24 hours", Cell(text=f"{count}{of}", href=href, small="this one included")),
            ("first", time_cell(found.first_at, css="", small=f"{visit.age(found.first_at)} ago")),
            ("fingerprint", Cell(text=found.fingerprint, is_mono=True)),
        ],
    )


def _sentence(visit: Visit, detail: RunDetail) -> str:
    one = detail.run
    phrase = attempt_text(one)
    if one.claimed_by:
        phrase += f", on {one.claimed_by}"
    if one.finished_at is not None:
        phrase += f", ended at {visit.clock(one.finished_at)} after {duration(one.duration)}."
    elif one.started_at is not None:
        phrase += f", running for {visit.age(one.started_at)}."
    else:
        phrase += f", scheduled for {visit.clock(one.scheduled_time)}."
    if one.is_dead:
        phrase += " Its attempts are used up: it is kept as a dead letter and can be replayed."
    elif one.was_retried:
        phrase += " It was retried: a newer run took over."
    if detail.still_kept_until is not None:
        phrase += f" Kept until {detail.still_kept_until:%Y-%m-%d}."
    return phrase


def _ways(visit: Visit, one: Run) -> WaysPanel:
    def button(label: str, action: str) -> Button | None:
        href = address("do", action, run_id=one.run_id)
        return Button(label=label, href=href) if visit.may_operate else None

    if one.state not in ENDED:
        return WaysPanel(
            title="What you can do",
            ways=[
                Way(
                    title="Stop it",
                    text="The worker learns of it with its next heartbeat.",
                    command=f"penstock runs cancel {one.run_id} --reason …",
                    button=button("Cancel…", "cancel-run"),
                ),
                Way(text="Why is it not done?", command=f"penstock why {one.run_id}"),
            ],
        )
    again = Way(
        title="Run it again",
        text="A new attempt with the same parameters; this one stays on record.",
        command=f"penstock runs retry {one.run_id}",
        button=None if one.was_retried else button("Retry…", "retry-run"),
    )
    if one.state == "COMPLETED":
        return WaysPanel(title="What you can do", ways=[Way(text="Nothing is needed.", command="")])
    return WaysPanel(title="What you can do", ways=[again])


def attempt_text(one: Run) -> str:
    """Return the number of a run's attempt and the maximum number of attempts."""
    return f"Attempt {one.attempt}" + (
        "" if one.max_attempts is None else f" of {one.max_attempts}"
    )


def _error(one: Run) -> ErrorPanel:
    return error_panel(
        one,
        title="Last error",
        state="timeout" if one.state == "TIMEOUT" else "failed",
    )


def _actions(visit: Visit, one: Run) -> list[Button]:
    if not visit.may_operate:
        return []
    if one.state in ENDED:
        if one.was_retried:
            return []
        href = address("do", "retry-run", run_id=one.run_id)
        return [Button(label="Retry…", href=href, icon="retry", css="go")]
    return [Button(label="Cancel…", href=address("do", "cancel-run", run_id=one.run_id))]


def _progress(visit: Visit, detail: RunDetail) -> ProgressPanel:
    seen = detail.progress
    assert seen is not None
    heartbeat = "" if seen.last_heartbeat_at is None else visit.age(seen.last_heartbeat_at)
    left = seen.estimated_completion_at
    return ProgressPanel(
        title="Progress",
        note=" · ".join(filter(None, (word(seen.current_state), seen.stage))),
        heartbeat=f"heartbeat {heartbeat} ago" if heartbeat else "",
        share=None if seen.percent is None else min(1.0, max(0.0, seen.percent / 100)),
        text="–" if seen.percent is None else f"{seen.percent:g} %",
        left=""
        if left is None or left <= visit.now
        else f"about {duration(left - visit.now)} left",
        figures=[
            Figure(label="extracted", value=number(seen.records_extracted)),
            Figure(label="transformed", value=number(seen.records_transformed)),
            Figure(label="loaded", value=number(seen.records_loaded)),
            Figure(label="bytes", value=size(seen.bytes_processed)),
        ],
    )


def _tries(visit: Visit, detail: RunDetail) -> TimelinePanel | None:
    """Return the attempts of a run over time; None for a single attempt that has not failed."""
    known = {one.run_id: one for one in (*detail.attempts, detail.run)}
    tries = sorted(known.values(), key=lambda one: one.attempt)
    begun = [one for one in tries if one.started_at is not None]
    if len(begun) < 2:
        return None
    start = min(one.started_at for one in begun if one.started_at)
    end = max([one.finished_at or visit.now for one in begun])
    span = max((end - start).total_seconds(), 1.0)

    def at(when: datetime) -> float:
        return min(100.0, max(0.0, 100 * (when - start).total_seconds() / span))

    rows = []
    for one in begun:
        assert one.started_at is not None
        left, right = at(one.started_at), at(one.finished_at or visit.now)
        width = max(0.8, right - left)
        style = run_state(one).state
        rows.append(
            TimelineRow(
                name=f"attempt {one.attempt}",
                state=style,
                word=one.error_type or word(one.state),
                bars=[
                    Bar(
                        left=min(left, 100 - width),
                        width=width,
                        css=FILL.get(style, "mut"),
                        label=f"attempt {one.attempt}: {word(one.state)}, {duration(one.duration)}",
                    )
                ],
                href=address("runs", one.run_id),
            )
        )
    return TimelinePanel(
        title="Attempts over time",
        caption=f"{visit.minute(start)} to {visit.minute(end)}",
        ticks=[],
        rows=rows,
        is_plain=True,
    )


def _attempts(detail: RunDetail) -> TablePanel:
    known = {one.run_id: one for one in (*detail.attempts, detail.run)}
    tries = sorted(known.values(), key=lambda one: one.attempt, reverse=True)
    most = detail.run.max_attempts
    return TablePanel(
        title="Attempts",
        note="" if most is None else f"at most {most}, then a dead letter",
        columns=[
            TableColumn(title="attempt"),
            TableColumn(title="started"),
            TableColumn(title="took", css="r"),
            TableColumn(title="worker", css="lo"),
            TableColumn(title="error"),
        ],
        rows=[
            [
                Cell(
                    text=f"attempt {one.attempt}",
                    state=run_state(one).state,
                    href=address("runs", one.run_id),
                ),
                time_cell(one.started_at),
                text(duration(one.duration)),
                text(one.claimed_by or ""),
                Cell(text=one.error_type or "–", is_mono=True),
            ]
            for one in tries
        ],
        chosen=next((n for n, one in enumerate(tries) if one.run_id == detail.run.run_id), None),
        empty=Empty(title="Not started", text="No attempt has started."),
    )


def _log(visit: Visit, one: Run) -> LogPanel:
    entries = visit.client.runs.logs(one.run_id).entries
    level = visit.choice("log", tuple(LEVELS), "all")
    wanted = (visit.get("q") or "").lower()
    numbered = [
        (number, line)
        for number, line in enumerate(entries, 1)
        if _level(line.level) in LEVELS[level] and wanted in line.message.lower()
    ]
    given = visit.get("before") or ""
    before = int(given) if given.isdecimal() and len(given) < 10 else None
    behind = [pair for pair in numbered if before is None or pair[0] < before]
    shown = behind[-LOG_LINES:]
    left = len(behind) - len(shown)
    is_tail = one.state not in ENDED and before is None
    counts = {
        name: sum(_level(line.level) in of for line in entries) for name, of in LEVELS.items()
    }
    return LogPanel(
        title="Log",
        note=_log_note(len(shown), len(numbered), is_tail=is_tail) if shown else "",
        lines=[
            LogLine(number=number, at=line.at, level=_level(line.level), text=line.message)
            for number, line in shown
        ],
        choices=[
            Choice(
                label=name if name == "all" else f"{name} {counts[name]:,}",
                href=visit.here(log=None if name == "all" else name, before=None),
                is_current=name == level,
            )
            for name in LEVELS
        ]
        if entries
        else (),
        search=wanted,
        total=len(entries),
        kept=level if level != "all" else "",
        older=visit.here(before=str(shown[0][0])) if left else None,
        newest=None if before is None else visit.here(before=None),
        is_tail=is_tail,
        empty=Empty(
            title="No line fits" if entries else "No log line",
            text="Nothing fits this level and search."
            if entries
            else "What a processor logs with the standard logging module appears here.",
            icon="table",
            command=f"penstock runs logs {one.run_id}",
        ),
    )


def _log_note(shown: int, total: int, *, is_tail: bool) -> str:
    part = plural(total, "line") if shown == total else f"{shown:,} of {plural(total, 'line')}"
    return f"{part}; new lines appear at the end" if is_tail else part


def _level(level: str) -> str:
    short = {"WARNING": "WARN", "CRITICAL": "ERROR"}.get(level.upper(), level.upper())
    return short if short in ("DEBUG", "INFO", "WARN", "ERROR") else "INFO"


def _facts(one: Run) -> FactsPanel:
    facts = [
        ("run", Cell(text=one.run_id, is_mono=True)),
        ("customer", text(one.customer)),
        ("pipeline", text(one.pipeline)),
        ("phase", text(one.phase)),
        ("scheduled", time_cell(one.scheduled_time, css="")),
        ("started", time_cell(one.started_at, css="")),
        ("priority", text(number(one.priority))),
        ("source", text(one.trigger_source)),
    ]
    for label, found in (
        ("flow", one.flow_id), ("config", one.config_id), ("retry of", one.parent_run_id),
    ):  # fmt: skip
        if found:
            facts.append((label, Cell(text=found, href=page_of(found), is_mono=True)))
    if one.partition:
        facts.append(("partition", text(one.partition)))
    if one.item_key:
        facts.append(("item", text(one.item_key)))
    if one.correlation_id:
        facts.append(
            (
                "correlation",
                Cell(
                    text=one.correlation_id,
                    href=address("trace", q=one.correlation_id),
                    is_mono=True,
                ),
            )
        )
    if one.trigger_message_id:
        facts.append(
            (
                "message",
                Cell(
                    text=one.trigger_message_id,
                    href=address("messages", one.trigger_message_id),
                    is_mono=True,
                ),
            )
        )
    if one.records is not None:
        facts.append(("records", text(number(one.records))))
    if one.is_sla_met is not None:
        facts.append(("started in time", text("yes" if one.is_sla_met else "no")))
    return FactsPanel(title="Facts", facts=facts)


def _artifacts(detail: RunDetail) -> list[TextPanel]:
    if not detail.artifacts and not detail.actions:
        return []
    kept = [to_json_value(one) for one in (*detail.artifacts, *detail.actions)]
    return [TextPanel(title="Artifacts and actions", text=as_text(kept))]
