"""The current day on the overview page: flows as pipes, cohorts of scheduled runs as bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.flows.records import Flow
from penstock.monitoring.today.records import Cohort, Today
from penstock.web.charts import Bar, stacked
from penstock.web.pages.flows.parts import line_of
from penstock.web.parts import Button, Empty, FlowLine, FlowsPanel
from penstock.web.visit import Visit
from penstock.web.words import number, plural

FLOWS: Final = 4
COHORTS: Final = 5
READ: Final = 10
"""Maximum number of flows and cohorts that are read; fewer are shown."""


def today_panel(visit: Visit) -> FlowsPanel:
    """Return the panel of the flows and cohorts of today; without any, of the latest flows."""
    seen = visit.client.views.today(customer=visit.customer, limit=READ)
    flows, note = seen.flows[:FLOWS], _note(seen)
    if not flows:
        flows = visit.client.flows.list(customer=visit.customer, phases=True, limit=FLOWS).items
        note = note or ("nothing is due; the latest flows" if flows else "")
    return FlowsPanel(
        title="Today",
        note=note,
        lines=[
            *_flow_lines(visit, flows),
            *(_line(visit, one) for one in seen.cohorts[:COHORTS]),
        ],
        foot=_foot(seen),
        actions=[
            Button(label="Grid", href=visit.link("grid"), css="bare sm"),
            Button(label="All flows", href=visit.link("flows"), css="bare sm"),
        ],
        empty=Empty(
            title="Nothing is due today",
            text="Flows appear here, and the runs that a schedule starts; you can open a flow "
            "manually.",
            icon="n-flows",
            command="penstock trigger PIPELINE PARTITION --dry-run",
        ),
    )


def _flow_lines(visit: Visit, flows: Sequence[Flow]) -> Iterator[FlowLine]:
    """Return the lines of flows; those of one partition are told apart by their generation."""
    counts = Counter(map(_partition_of, flows))
    for flow in flows:
        line = line_of(visit, flow)
        if counts[_partition_of(flow)] > 1:
            line = replace(line, title=f"{line.title} · generation {flow.generation}")
        yield line


def _partition_of(flow: Flow) -> tuple[str, ...]:
    return flow.customer, flow.pipeline, flow.partition, flow.mode


def _note(seen: Today) -> str:
    if seen.due_done_percentage is None:
        return ""
    # 99.9 % is shown as 99 %, not as 100 %.
    phrase = f"{int(seen.due_done_percentage)} % of what is due is done"
    return f"{phrase}, counted in part" if seen.is_partial else phrase


def _foot(seen: Today) -> str:
    """Return how many flows and cohorts are not shown."""
    flows, cohorts = len(seen.flows) - FLOWS, len(seen.cohorts) - COHORTS
    parts = []
    if flows > 0:
        more = "+" if seen.has_more_flows else ""
        parts.append(f"{number(flows)}{more} more {'flow' if flows == 1 and not more else 'flows'}")
    if cohorts > 0:
        more = "+" if seen.has_more_cohorts else ""
        word = "cohort" if cohorts == 1 and not more else "cohorts"
        parts.append(f"{number(cohorts)}{more} more {word} of scheduled runs: penstock today")
    return " · ".join(parts)


def _line(visit: Visit, one: Cohort) -> FlowLine:
    style, word = _state(one)
    page = "dead-letters" if one.dead and not one.open else "runs"
    return FlowLine(
        title=f"{one.pipeline} · due {visit.minute(one.occurrence_at)}",
        href=visit.link(page, pipeline=one.pipeline),
        state=style,
        word=word,
        note=" · ".join([*_counts(one, is_short=True), *_end(visit, one)]),
        bars=_bars(one),
        bar_label=", ".join(_counts(one)),
    )


def _state(one: Cohort) -> tuple[str, str]:
    """Return the style and the label of a cohort."""
    if one.open:
        is_moving = one.running or one.completed or one.dead
        return ("running", "running") if is_moving else ("waiting", "waiting")
    if one.dead:
        return "failed", "failed"
    if one.completed:
        return "complete", "complete"
    return ("cancelled", "cancelled") if one.cancelled else ("skipped", "skipped")


def _counts(one: Cohort, *, is_short: bool = False) -> list[str]:
    """Return the counts of a cohort as text without zeros; short: skipped starts only if nothing is
    expected.
    """
    found = [f"{number(one.completed)} of {plural(one.expected, 'run')}"] if one.expected else []
    rest = {"running": one.running, "queued": one.queued, "to retry": one.retrying,
            "dead": one.dead, "cancelled": one.cancelled, "skipped": one.skipped}  # fmt: skip
    if is_short and one.expected:
        del rest["skipped"]
    return [*found, *(f"{number(count)} {word}" for word, count in rest.items() if count)]


def _end(visit: Visit, one: Cohort) -> list[str]:
    if one.ended_at is not None:
        return [f"ended {visit.minute(one.ended_at)}"]
    return [] if one.eta_at is None else [f"done about {visit.minute(one.eta_at)}"]


def _bars(one: Cohort) -> list[Bar]:
    """Return the bar of a cohort: completed, running, waiting, to retry, dead, cancelled."""
    return stacked(
        [
            ("ok", one.completed, "completed"),
            ("run", one.running, "running"),
            ("hat", one.queued, "queued"),
            ("soft", one.retrying, "to retry"),
            ("mut", one.cancelled, "cancelled"),
            ("fail", one.dead, "dead"),
        ]
    )
