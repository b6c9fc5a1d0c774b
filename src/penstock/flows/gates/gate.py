"""The gate decision before a phase or processor starts: PROCEED, PROCEED_DEGRADED, WAIT or FAIL.

`decide` is pure and total: any `GateInput` yields exactly one `Decision`, and equal inputs yield
equal decisions. Four rules apply in order: required data and cycles, absent same-day data, too
little history, thresholds. A critical dependency below its floor counts as absent, so that an
average cannot hide it. Within a mode, the verdict never gets worse when completeness or quality
increases. The decision depends on nothing but its input, which names the version of the rules. The
orchestrator, `gate check` and the backtest call `decide`; `flows.gates.messages` builds the texts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.core.clock import HOUR, MINUTE, Micros
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.gate_score import (
    EPSILON,
    GateScore,
    degraded_by,
    gate_score,
    is_below_floor,
    is_below_proceed_at,
    is_critical_absent,
    is_lacking,
    is_optional_missing,
    weakest,
)
from penstock.flows.gates.messages import (
    decision_warnings,
    describe_dependencies,
    describe_gaps,
    describe_quality,
    describe_scores,
    override_messages,
    waiting_text,
)
from penstock.flows.gates.override import Override, covering_overrides
from penstock.flows.gates.verdict import (
    LOG_LEVELS,
    Acknowledgement,
    AlertLevel,
    BreakerEffect,
    Decision,
    GateInput,
    GateStatus,
    Verdict,
)
from penstock.pipelines.mode import RECHECK_DEFAULT, ModeOptions

QUALITY_MIN: Final = 0.5
ESCALATE_AT: Final = 50.0
"""Completeness from which work starts degraded after the maximum wait."""
CRITICAL_BELOW: Final = 20.0
ALERT_QUALITY: Final = 0.80
LONG_WAIT: Final = 2 * HOUR
HISTORICAL_TRIES: Final = 3
HISTORICAL_DELAY: Final = 5 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The outcome of a rule, before alerts and times are added."""

    verdict: Verdict
    status: GateStatus
    rule: int
    reason: str
    nack: bool = False
    intervention: bool = False
    escalated: bool = False
    failure_type: str | None = None
    alert: AlertLevel | None = None
    """Minimum alert level, regardless of the mode's alert settings."""


def decide(given: GateInput) -> Decision:
    """Return the decision for an input; equal inputs yield equal decisions."""
    view = gate_score(given, spare=False)
    outcome = _required(given) or _same_day(given) or _historical(given)
    if outcome is None:
        outcome = _above_floors(given, _thresholds(given, view), spare=False)
        if not outcome.verdict.starts:
            # An override for partially available data applies only if it is needed, because it
            # makes the start degraded; data that is complete enough needs no override.
            with_overrides = gate_score(given, spare=True)
            better = _above_floors(given, _thresholds(given, with_overrides), spare=True)
            if better.verdict.starts:
                outcome, view = better, with_overrides
    if given.fallback and outcome.verdict is Verdict.WAIT:
        outcome = replace(
            outcome,
            verdict=Verdict.PROCEED_DEGRADED,
            status=GateStatus.READY_DEGRADED,
            reason=f"The fallback time has passed, so the gate no longer waits. {outcome.reason}",
            nack=False,
            escalated=True,
            alert=AlertLevel.WARNING,
        )
    return _decision(given, view, outcome)


def what_if(given: GateInput, changes: ModeOptions, override: Override | None = None) -> Decision:
    """Return the decision for the same evidence under changed settings, or with an override."""
    changed = replace(given, mode=given.mode.with_options(**changes))
    if override is not None and override.phase in (None, given.phase):
        changed = replace(changed, overrides=(*given.overrides, override))
    return decide(changed)


def _required(given: GateInput) -> _Outcome | None:
    """Apply rule 1: required data is absent, or processors wait for each other."""
    absent = [
        a for a in given.assessments if a.fail_if_missing and (a.absent or is_below_floor(given, a))
    ]
    if absent:
        return _Outcome(
            verdict=Verdict.FAIL,
            status=GateStatus.MISSING_REQUIRED,
            rule=1,
            reason=(
                f"Required data is {_absent_word(absent)}: {describe_dependencies(absent)}. "
                "Overrides do not apply."
            ),
            failure_type=str(absent[0].kind),
        )
    if given.cycle:
        cycle = " → ".join(given.cycle)
        return _Outcome(
            verdict=Verdict.FAIL,
            status=GateStatus.CYCLE,
            rule=1,
            reason=f"These processors wait for each other and can never start: {cycle}.",
            failure_type="same_day",
        )
    return None


def _absent_word(absent: list[Assessment]) -> str:
    return "absent" if all(a.absent for a in absent) else "absent or below its floor"


def _same_day(given: GateInput) -> _Outcome | None:
    """Apply rule 2: a critical same-day dependency is absent, but may still arrive."""
    absent = [
        a
        for a in given.assessments
        if is_critical_absent(a) and not covering_overrides(a, given.overrides, given.now)
    ]
    return _until_max_wait(given, absent, "Absent", rule=2) if absent else None


def _above_floors(given: GateInput, outcome: _Outcome, *, spare: bool) -> _Outcome:
    """Return the outcome of rule 4 unless it would start with a dependency below its floor.

    Such a dependency counts as absent, however good the average is. spare: except where an
    override covers it.
    """
    if not outcome.verdict.starts:
        return outcome
    below = [a for a in given.assessments if is_below_floor(given, a)]
    if spare:
        below = [a for a in below if not covering_overrides(a, given.overrides, given.now)]
    return _until_max_wait(given, below, "Below its floor", rule=4) if below else outcome


def _until_max_wait(
    given: GateInput, absent: list[Assessment], word: str, *, rule: int
) -> _Outcome:
    """Return WAIT for absent data until the maximum wait has passed, then FAIL."""
    mode = given.mode
    if mode.max_wait_us is None:
        reason = f"{word}: {describe_dependencies(absent)}. Mode {mode.name} does not wait."
    elif _is_timed_out(given):
        reason = f"{word}: {describe_dependencies(absent)}. {waiting_text(given)}"
    else:
        return _Outcome(
            verdict=Verdict.WAIT,
            status=GateStatus.WAITING_SAME_DAY,
            rule=rule,
            reason=f"Waiting for {describe_dependencies(absent)}. {waiting_text(given)}",
            failure_type="same_day",
        )
    return _Outcome(
        verdict=Verdict.FAIL,
        status=GateStatus.MISSING_SAME_DAY,
        rule=rule,
        reason=reason,
        failure_type="same_day",
    )


def _historical(given: GateInput) -> _Outcome | None:
    """Apply rule 3: there are too few days of history, which only a backfill can add."""
    short = [
        a
        for a in given.assessments
        if a.is_below_degraded_days and not covering_overrides(a, given.overrides, given.now)
    ]
    if not short:
        return None
    tries = max(0, given.historical_tries) + 1
    if given.mode.max_wait_us is not None and tries <= HISTORICAL_TRIES:
        return _Outcome(
            verdict=Verdict.WAIT,
            status=GateStatus.MISSING_HISTORICAL,
            rule=3,
            reason=(
                f"Too little history: {describe_dependencies(short)}. Attempt {tries} "
                f"of {HISTORICAL_TRIES}."
            ),
            nack=True,
            failure_type="historical",
            alert=AlertLevel.WARNING if tries == HISTORICAL_TRIES else None,
        )
    return _Outcome(
        verdict=Verdict.FAIL,
        status=GateStatus.MISSING_HISTORICAL,
        rule=3,
        reason=(
            f"Too little history: {describe_dependencies(short)}. "
            "Backfill the missing days or approve an override."
        ),
        intervention=True,
        failure_type="historical",
    )


def _thresholds(given: GateInput, view: GateScore) -> _Outcome:
    """Apply rule 4: compare completeness and quality with the thresholds of the mode."""
    mode, completeness, quality = given.mode, view.completeness + EPSILON, view.quality + EPSILON
    timed_out, words = _is_timed_out(given), _scores(given, view)
    if completeness >= mode.proceed_at and quality >= mode.min_quality:
        gap = degraded_by(given, view)
        short = [a for a in given.assessments if is_below_proceed_at(given, a)]
        if gap is None and short:
            gap = "same_day"
        if gap is None:
            return _proceed(words)
        gaps = words if given.rules < 3 else _gaps(given, view, short)
        return _degraded(f"Enough data, but not all of it: {gaps}.", gap)
    if quality < QUALITY_MIN:
        if mode.waits and not timed_out:
            return _wait(f"The data quality is too low: {words}. {waiting_text(given)}")
        return _fail(f"The data quality is too low: {words}.")
    if mode.degraded_at is not None and completeness >= mode.degraded_at:
        return _degraded(f"Enough data for a degraded start: {words}.", degraded_by(given, view))
    if mode.waits and not timed_out:
        return _wait(f"Not enough data yet: {words}. {waiting_text(given)}")
    if mode.waits and completeness >= ESCALATE_AT:
        reason = f"{waiting_text(given)} Starting degraded with the available data: {words}."
        return replace(_degraded(reason, degraded_by(given, view)), escalated=True)
    return _fail(f"Not enough data for mode {mode.name}: {words}.")


def _scores(given: GateInput, view: GateScore) -> str:
    """Return the scores that explain a verdict, and the dependency that lowers them most."""
    mode, overridden = given.mode, view.overridden if given.rules >= 3 else ()
    words = describe_scores(mode, view.completeness, view.quality)
    only_quality_is_low = (
        view.completeness + EPSILON >= mode.proceed_at and view.quality + EPSILON < mode.min_quality
    )
    if given.rules >= 3 and only_quality_is_low:
        words = describe_quality(mode, view.quality)
    least = weakest(given, overridden) if given.rules >= 2 else None
    if least is not None:
        words = f"{words}; weakest is {describe_dependencies([least])}"
    return f"{words}; {describe_gaps(overridden=overridden)}" if overridden else words


def _gaps(given: GateInput, view: GateScore, short: list[Assessment]) -> str:
    """Return why a start is degraded although both thresholds are met."""
    rest = [a for a in given.assessments if a not in view.overridden]
    return describe_gaps(
        overridden=view.overridden,
        historical=[a for a in rest if a.is_below_min_days],
        short=[a for a in short if a in rest],
        proceed_at=given.mode.proceed_at,
        optional=[a for a in rest if is_optional_missing(a)],
    )


def _proceed(words: str) -> _Outcome:
    return _Outcome(
        verdict=Verdict.PROCEED, status=GateStatus.READY, rule=4, reason=f"Complete: {words}."
    )


def _degraded(reason: str, failure_type: str | None) -> _Outcome:
    return _Outcome(
        verdict=Verdict.PROCEED_DEGRADED,
        status=GateStatus.READY_DEGRADED,
        rule=4,
        reason=reason,
        failure_type=failure_type or "same_day",
    )


def _wait(reason: str) -> _Outcome:
    return _Outcome(
        verdict=Verdict.WAIT,
        status=GateStatus.WAITING,
        rule=4,
        reason=reason,
        failure_type="same_day",
    )


def _fail(reason: str) -> _Outcome:
    return _Outcome(
        verdict=Verdict.FAIL,
        status=GateStatus.INSUFFICIENT,
        rule=4,
        reason=reason,
        failure_type="same_day",
    )


def _is_timed_out(given: GateInput) -> bool:
    """Return whether the maximum wait has passed."""
    longest = given.mode.max_wait_us
    return longest is not None and given.waited_us >= longest


def _decision(given: GateInput, view: GateScore, outcome: _Outcome) -> Decision:
    waits = outcome.verdict is Verdict.WAIT
    short = [a for a in given.assessments if is_lacking(a)]
    stale = [a for a in given.assessments if a.freshness is not None and a.freshness < 1]
    settled = given.set_complete or given.stragglers_passed
    effect = BreakerEffect.SUCCESS if outcome.verdict.starts else BreakerEffect.NEUTRAL
    if outcome.verdict is Verdict.FAIL and settled:
        effect = BreakerEffect.FAILURE
    return Decision(
        verdict=outcome.verdict,
        status=outcome.status,
        rule=outcome.rule,
        acknowledgement=Acknowledgement.NACK if outcome.nack else Acknowledgement.ACK,
        completeness=view.completeness,
        quality=view.quality,
        reasons=(outcome.reason, *override_messages(view.overrides)),
        alert=_alert(given, view, outcome),
        log_level=LOG_LEVELS[outcome.verdict],
        warnings=decision_warnings(short, stale, given.upstream),
        missing=tuple(dict.fromkeys(a.table for a in short)),
        stale=tuple(dict.fromkeys(a.table for a in stale)),
        failure_type=outcome.failure_type,
        recheck_at=_recheck_at(given, outcome) if waits else None,
        waits_until=_waits_until(given) if waits and not outcome.nack else None,
        intervention=outcome.intervention,
        escalated=outcome.escalated,
        overrides_used=tuple(override.id for override in view.overrides),
        effect=effect,
    )


def _alert(given: GateInput, view: GateScore, outcome: _Outcome) -> AlertLevel | None:
    """Return the alert level if the mode's settings or the rule require an alert, else None."""
    mode = given.mode
    if outcome.verdict is Verdict.FAIL:
        critical = view.completeness < CRITICAL_BELOW
        level, wanted = AlertLevel.CRITICAL if critical else AlertLevel.ERROR, mode.alert_fail
    elif outcome.verdict is Verdict.PROCEED_DEGRADED:
        level = AlertLevel.WARNING if view.quality < ALERT_QUALITY else AlertLevel.INFO
        below = mode.alert_degraded_below
        wanted = outcome.escalated or (below is not None and view.completeness < below)
    elif outcome.verdict is Verdict.WAIT:
        level = AlertLevel.WARNING if given.waited_us > LONG_WAIT else AlertLevel.INFO
        wanted = mode.alert_wait_us is not None and given.waited_us > mode.alert_wait_us
    else:
        return None
    if outcome.alert is not None and (not wanted or outcome.alert.rank > level.rank):
        return outcome.alert
    return level if wanted else None


def _recheck_at(given: GateInput, outcome: _Outcome) -> Micros:
    if outcome.nack:
        doubled = HISTORICAL_DELAY << min(max(0, given.historical_tries), HISTORICAL_TRIES)
        delay = doubled if given.retry_delay_us is None else given.retry_delay_us
        return given.now + max(1, delay)
    every = given.mode.recheck_us or RECHECK_DEFAULT
    # The last evaluation is at the end of the maximum wait, not at the next regular interval.
    left = (given.mode.max_wait_us or every) - given.waited_us
    return given.now + max(1, min(every, left))


def _waits_until(given: GateInput) -> Micros | None:
    longest = given.mode.max_wait_us
    return None if longest is None else given.now + max(0, longest - given.waited_us)
