"""The timeline of a flow: phases with their gates, and the runs of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from penstock.detection.records import FlowRisk
from penstock.flows.records import FlowDetail, FlowPhase
from penstock.web.charts import Bar, TimelinePanel, TimelineRow
from penstock.web.links import page_of
from penstock.web.pages.flows.parts import due_text
from penstock.web.visit import Visit
from penstock.web.words import appearance, duration, number, plural, word

TICKS: Final = 7
LABEL_GAP: Final = 14
"""Percent of the axis between the label of the SLO or of now and the next."""
DEADLINE_FAR: Final = 5
"""A deadline this many times as far away as the rest of the timeline is left out of it."""
PARTS_MAX: Final = 8
DECISIONS_MAX: Final = 60
FILL: Final = {"complete": "ok", "running": "run", "degraded": "deg", "failed": "fail",
               "blocked": "fail"}  # fmt: skip
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080)
"""Minutes between two labels of the time axis."""
Place = Callable[[datetime], float]


def timeline(
    visit: Visit, detail: FlowDetail, order: Sequence[str], risk: FlowRisk | None
) -> TimelinePanel:
    """Return the timeline of a flow, with expected spans and the service level of its forecast."""
    one = detail.flow
    start = one.created_at
    known = [p.ended_at for p in detail.phases if p.ended_at]
    end = one.ended_at or max([visit.now, *known])
    due = None if risk is None else risk.slo_at
    if risk is not None:
        end = max(end, risk.eta_p90_at or end)
        if (
            due is not None
            and due == one.deadline_at
            and due - start > DEADLINE_FAR * (end - start)
        ):
            due = None  # it would squeeze everything that happened into one pixel
        end = max(end, due or end) + timedelta(seconds=30)
    span = max((end - start).total_seconds(), 1.0)

    def at(when: datetime) -> float:
        return min(100.0, max(0.0, 100 * (when - start).total_seconds() / span))

    rows: list[TimelineRow] = []
    ranked = {name: index for index, name in enumerate(order)}
    expected_from = visit.now
    for phase in sorted(detail.phases, key=lambda p: ranked.get(p.phase, len(ranked))):
        if phase.processor is not None or phase.state == "SKIPPED":
            continue
        row, expected_from = _phase(visit, detail, phase, at, risk, expected_from)
        rows += [row, *_parts(detail, phase, at)]
    now = None if one.ended_at else at(visit.now)
    due_at = None if due is None else at(due)
    return TimelinePanel(
        title="What happened",
        caption=f"{visit.minute(start)} to {visit.minute(end)}",
        ticks=_ticks(start, end, span, at, [x for x in (now, due_at) if x is not None]),
        rows=rows,
        now=now,
        now_text=f"now {visit.minute(visit.now)}",
        slo=None if due is None or due_at is None else (due_at, due_text(visit, one, due)),
    )


def _ticks(
    start: datetime, end: datetime, span: float, at: Place, taken: Sequence[float]
) -> list[tuple[float, str]]:
    """Return round times of the axis that do not collide with the labels that are taken."""
    minutes = next((m for m in STEPS if span / 60 / m <= TICKS), STEPS[-1])
    form = "%d %b" if minutes >= 1_440 else "%H:%MZ"
    epoch = start.timestamp() // (60 * minutes) * 60 * minutes
    made, when = [], datetime.fromtimestamp(epoch, start.tzinfo)
    while when < end:
        x = at(when)
        # A label at the right edge ends there instead of being centred.
        if (
            when > start
            and x < 98
            and all(abs(x - other) > (LABEL_GAP if other <= 90 else 22) for other in taken)
        ):
            made.append((x, when.strftime(form)))
        when += timedelta(minutes=minutes)
    return made


def _phase(
    visit: Visit,
    detail: FlowDetail,
    phase: FlowPhase,
    at: Place,
    risk: FlowRisk | None,
    expected_from: datetime,
) -> tuple[TimelineRow, datetime]:
    end = phase.ended_at or (visit.now if detail.flow.ended_at is None else detail.flow.ended_at)
    bars: list[Bar] = []
    style = appearance(phase.state)
    if phase.waiting_since is not None:
        until = phase.started_at or end
        bars.append(_bar(at(phase.waiting_since), at(until), "hat", "waiting"))
    if phase.started_at is not None:
        took = duration(end - phase.started_at)
        label = f"{phase.phase}: {word(phase.state)}, {took}"
        bars.append(_bar(at(phase.started_at), at(end), FILL.get(style, "mut"), label))
    usual = _usual(risk, phase.phase)
    if phase.ended_at is None and usual is not None and detail.flow.ended_at is None:
        begun = max(expected_from, phase.started_at or expected_from)
        expected_from = begun + usual
        label = f"{phase.phase} usually takes {duration(usual)}"
        bars.append(_bar(at(begun), at(expected_from), "dash", label))
    decided = sorted(
        (d for d in detail.decisions if d.phase == phase.phase and d.processor is None),
        key=lambda d: d.decided_at,
    )
    waits = [at(d.decided_at) for d in decided[-DECISIONS_MAX:] if d.verdict == "WAIT"]
    row = TimelineRow(
        name=phase.phase,
        state=style,
        word=word(phase.state) if phase.state != "PENDING" else "not started",
        bars=bars,
        note=_count(detail, phase.phase),
        gates=_gates(phase, decided[0].decided_at if decided else None, at),
        ticks=waits[1:],
    )
    return row, expected_from


def _gates(phase: FlowPhase, first: datetime | None, at: Place) -> list[tuple[float, str, str]]:
    made = []
    if phase.waiting_since is not None and first is not None:
        made.append((at(first), "g-wait", f"first decision of the gate of {phase.phase}: WAIT"))
    if phase.started_at is not None:
        css = "g-deg" if phase.is_degraded else "g-ok"
        made.append((at(phase.started_at), css, f"its gate let {phase.phase} start"))
    if phase.state == "BLOCKED":
        made.append((at(phase.since), "g-fail", f"the gate of {phase.phase}: FAIL"))
    return made


def _usual(risk: FlowRisk | None, phase: str) -> timedelta | None:
    if risk is None:
        return None
    return next((one.expected_p50 for one in risk.phases if one.phase == phase), None)


def _count(detail: FlowDetail, phase: str) -> str:
    done = [one for one in detail.completions if one.phase == phase and one.status != "failed"]
    return f"{number(len(done))} done" if done else ""


def _parts(detail: FlowDetail, phase: FlowPhase, at: Place) -> list[TimelineRow]:
    """Return the processors of a phase: those that failed first, then the slowest."""
    done = [one for one in detail.completions if one.phase == phase.phase]
    worst = sorted(done, key=lambda one: (one.status == "success", -one.at.timestamp()))
    shown = sorted(worst[:PARTS_MAX], key=lambda one: one.at)
    made = []
    for one in shown:
        css = FILL.get(appearance(one.status), "mut")
        started = phase.started_at or one.at
        phrase = word(one.status) if one.records is None else plural(one.records, "record")
        if one.status == "success" and one.at > started:
            phrase = f"{phrase} · {duration(one.at - started)}"
        made.append(
            TimelineRow(
                name=one.processor,
                state=appearance(one.status),
                word=phrase,
                bars=[_bar(at(started), at(one.at), css, f"{one.processor}: {phrase}")],
                is_part=True,
                href=page_of(one.run_id),
            )
        )
    return made


def _bar(left: float, right: float, css: str, label: str) -> Bar:
    width = max(0.6, right - left)
    return Bar(left=min(left, 100 - width), width=width, css=css, label=label)
