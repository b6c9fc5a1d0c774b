"""The texts of gate decisions: missing data, required values, waiting times.

Nothing here decides; `flows.gates.gate` is the only caller. Decisions are stored and may be read a
year later, so the texts contain durations but no times of day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.core.clock import MINUTE, SECOND, format_duration
from penstock.core.formatting import format_percent
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.override import Override
from penstock.flows.gates.verdict import GateInput, Upstream
from penstock.pipelines.dependency import DependencyKind
from penstock.pipelines.mode import Mode


def describe_dependencies(assessments: Iterable[Assessment]) -> str:
    """Return dependencies with their issues: "nba_raw.odds (0/1 rows (0 %))"."""
    return ", ".join(
        f"{a.table} ({'; '.join(a.issues)})" if a.issues else a.table for a in assessments
    )


def describe_scores(mode: Mode, completeness: float, quality: float) -> str:
    """Return overall completeness and quality with the values that the mode requires."""
    return (
        f"completeness {format_percent(completeness)} (needs {format_percent(mode.proceed_at)}), "
        f"{describe_quality(mode, quality)}"
    )


def describe_quality(mode: Mode, quality: float) -> str:
    """Return the overall quality with the value that the mode requires."""
    return f"quality {_floor(quality):.2f} (needs {mode.min_quality:.2f})"


def describe_gaps(
    *,
    overridden: Sequence[Assessment] = (),
    historical: Sequence[Assessment] = (),
    short: Sequence[Assessment] = (),
    proceed_at: float = 100.0,
    optional: Sequence[Assessment] = (),
) -> str:
    """Return what is missing although the thresholds are met.

    short: critical dependencies below `proceed_at`, which the mean hides.
    """
    parts = []
    if overridden:
        parts.append(f"override in force for {describe_dependencies(overridden)}")
    if historical:
        parts.append(f"too little history in {describe_dependencies(historical)}")
    if short:
        least = format_percent(proceed_at)
        parts.append(f"{describe_dependencies(short)} below the {least} that each table needs")
    for a in optional:
        # One cause, such as a warehouse that cannot be reached, is stated once for all tables.
        is_stated = bool(a.error) and any(a.issues[0] in part for part in parts)
        parts.append(f"{a.table} missing (optional)" if is_stated else _warning(a))
    return "; ".join(parts)


def override_messages(overrides: Sequence[Override]) -> tuple[str, ...]:
    """Return a sentence for each override that was used."""
    return tuple(
        f"Proceeding without {given.dependency or 'missing dependencies'}: approved by "
        f"{given.approved_by} ({given.reason})."
        for given in overrides
    )


def waiting_text(given: GateInput) -> str:
    """Return how long the gate has waited, if it has, and the maximum wait of the mode."""
    waited_us, longest = max(0, given.waited_us), given.mode.max_wait_us
    unit = MINUTE if waited_us >= MINUTE else SECOND
    waited = format_duration(waited_us // unit * unit)
    if longest is None:
        return f"Waited {waited}."
    if given.waited_us >= longest:
        return f"Waited {waited}; the maximum is {format_duration(longest)}."
    if waited_us < SECOND:
        return f"The maximum wait is {format_duration(longest)}."
    return f"Waited {waited} of at most {format_duration(longest)}."


def decision_warnings(
    short: Iterable[Assessment], stale: Iterable[Assessment], upstream: Upstream | None
) -> tuple[str, ...]:
    """Return a warning for each incomplete or stale dependency and for missing processors."""
    lines = [_warning(a) for a in short]
    lines += [f"{a.table}: {issue}" for a in stale for issue in a.issues if "old" in issue]
    if upstream is not None and upstream.completed < upstream.expected:
        line = f"{upstream.completed}/{upstream.expected} upstream processors"
        absent = [*upstream.outstanding, *upstream.failed]
        lines.append(f"{line}, without {', '.join(absent)}" if absent else line)
    return tuple(dict.fromkeys(lines))


def warnings_beside(reason: str, warnings: Iterable[str]) -> list[str]:
    """Return the warnings that a reason does not already state."""
    return [warning for warning in warnings if not _is_stated(warning, reason)]


def _is_stated(warning: str, reason: str) -> bool:
    subject, _, issues = warning.partition(": ")
    if subject.endswith("(optional)"):
        return subject in reason and issues in reason
    return warning in reason or f"{subject} ({issues})" in reason


def _warning(a: Assessment) -> str:
    if a.kind is DependencyKind.OPTIONAL:
        failed = f": {a.issues[0]}" if a.error and a.issues else ""
        return f"{a.table} missing (optional){failed}"
    issues = "; ".join(a.issues) or "missing"
    return f"{a.table}: {issues}"


def _floor(quality: float) -> float:
    """Round down to two digits, so that 0.949 is not shown as a passing 0.95."""
    return int(quality * 100 + 1e-9) / 100
