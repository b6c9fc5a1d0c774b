"""The forecast of a flow, as a line from its opening to its probable end."""

from __future__ import annotations

from datetime import datetime

from penstock.detection.records import FlowRisk
from penstock.flows.records import Flow
from penstock.web.charts import RiskMark, RiskPanel, anchored
from penstock.web.pages.flows.parts import due_text
from penstock.web.visit import Visit

TITLE = "Will it be in time?"


def risk_panel(visit: Visit, flow: Flow, seen: FlowRisk) -> RiskPanel:
    """Return the forecast of an open flow."""
    known = [at for at in (seen.eta_p50_at, seen.eta_p90_at, seen.slo_at) if at is not None]
    if not known:
        return RiskPanel(title=TITLE, finding=seen.text, text=seen.text)
    first, last = flow.created_at, max([visit.now, *known])
    span = max((last - first).total_seconds(), 1.0) * 1.06

    def at(when: datetime) -> float:
        return min(100.0, max(0.0, 100 * (when - first).total_seconds() / span))

    marks = [RiskMark(x=0, text=visit.minute(first), css="", anchor="start")]
    now = at(visit.now)
    if now > 14:
        marks.append(RiskMark(x=now, text="now", css="", anchor=anchored(now)))
    likely = None
    if seen.eta_p50_at is not None:
        half = at(seen.eta_p50_at)
        marks.append(_above(half, f"{visit.minute(seen.eta_p50_at)} likely", "em"))
        likely = (now, half)
        if seen.eta_p90_at is not None:
            worst = at(seen.eta_p90_at)
            likely = (now, worst)
            if worst - half > 30:
                text = f"{visit.minute(seen.eta_p90_at)} nine of ten"
                marks.append(_above(worst, text, "p90"))
    slo = None
    if seen.slo_at is not None:
        slo = at(seen.slo_at)
        text = due_text(visit, flow, seen.slo_at)
        marks.append(RiskMark(x=slo, text=text, css="red", anchor=anchored(slo)))
    return RiskPanel(
        title=TITLE,
        finding=seen.text,
        text=seen.text,
        note=_chance(seen),
        now=now,
        likely=likely,
        slo=slo,
        marks=marks,
    )


def _above(x: float, text: str, css: str) -> RiskMark:
    return RiskMark(x=x, text=text, css=css, anchor=anchored(x), is_above=True)


def _chance(seen: FlowRisk) -> str:
    if seen.slo_miss_probability is None:
        return ""
    share = 100 * seen.slo_miss_probability
    if share < 1:
        return "under 1 % chance to miss"
    return f"{share:.0f} % chance to miss"
