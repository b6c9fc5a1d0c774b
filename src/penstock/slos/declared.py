"""The setting `slos`: the window, objectives, and changed targets. Pure.

A declaration in code (`slo=` of a phase, the options of a mode) is the default of a target; an
entry of `targets` that matches replaces it, the most specific one if several do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from penstock.core.clock import DAY, Micros, parse_duration
from penstock.core.errors import InvalidInput, SettingsError
from penstock.core.records.record import Meta, Record, field
from penstock.core.records.validation import convert_input
from penstock.slos.objectives import LATENCY, MEASURES
from penstock.slos.records import Measure

WINDOW_MIN: Final = DAY
WINDOW_MAX: Final = 90 * DAY

_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
_Percent: TypeAlias = Annotated[float, Meta(ge=0, le=100)]


class TargetSpec(Record):
    """A target or an objective in the settings; a field that is omitted matches everything."""

    pipeline: _Text | None = None
    mode: _Text | None = None
    phase: _Text | None = None
    customer: _Text | None = None
    measure: Measure = "latency"
    target: float | str | None = None
    objective: _Percent | None = None

    def value(self) -> float | None:
        """Return the target: microseconds for a latency, else percent or score."""
        if self.target is None or self.measure != LATENCY:
            return None if self.target is None else float(self.target)
        return float(parse_duration(self.target, "target"))


class SloSettings(Record):
    """The parsed and checked setting `slos`."""

    window: _Text = "28d"
    """Window of error budgets."""
    targets: list[TargetSpec] = field(default_factory=list)

    @property
    def window_us(self) -> Micros:
        """Return the window of error budgets."""
        return parse_duration(self.window, "window")


def parse_slos(table: object) -> SloSettings:
    """Return the setting `slos`; raise SettingsError that names the field."""
    try:
        made: SloSettings = convert_input(_plain(table), SloSettings, "slos")
        if not WINDOW_MIN <= made.window_us <= WINDOW_MAX:
            raise InvalidInput("window", "1d to 90d", made.window)
        for number, spec in enumerate(made.targets):
            path = f"targets[{number}]"
            if spec.target is None and spec.objective is None:
                raise InvalidInput(path, "a target, an objective, or both", "neither")
            if not MEASURES[spec.measure].has_mode and (spec.mode or spec.phase):
                raise InvalidInput(path, f"no mode or phase for {spec.measure}", "one")
            if isinstance(spec.target, str) and spec.measure != LATENCY:
                raise InvalidInput(f"{path}.target", f"a number, for {spec.measure}", spec.target)
            spec.value()
    except InvalidInput as error:
        name = error.field.removeprefix("body").removeprefix("slos").removeprefix(".")
        where = f"slos.{name}" if name else "slos"
        raise SettingsError(where, error.expected, error.got, error.fix) from None
    return made


class TargetChange(Record):
    """Settings of a target; None where they are not set."""

    target: float | None = None
    objective: float | None = None


def override_of(
    specs: Sequence[TargetSpec],
    *,
    measure: str,
    pipeline: str,
    mode: str,
    phase: str,
    customer: str | None,
) -> TargetChange:
    """Return target and objective of the most specific entries that match; later entries win ties.

    customer: None for entries that apply to every customer. An entry without a phase applies to
    whole flows.
    """
    found = TargetChange()
    ranked = sorted(specs, key=_given)
    for spec in ranked:
        if spec.measure != measure or (spec.phase or "") != phase:
            continue
        if spec.pipeline not in (None, pipeline) or spec.mode not in (None, mode):
            continue
        if spec.customer not in (None, customer):
            continue
        value = spec.value()
        found = TargetChange(
            target=found.target if value is None else value,
            objective=found.objective if spec.objective is None else spec.objective,
        )
    return found


def customers_named(specs: Sequence[TargetSpec], pipeline: str) -> list[str]:
    """Return the customers that have their own targets for a pipeline."""
    return sorted(
        {
            spec.customer
            for spec in specs
            if spec.customer is not None and spec.pipeline in (None, pipeline)
        }
    )


def _given(spec: TargetSpec) -> int:
    """Return how specific an entry is; a customer outweighs all other fields."""
    return (
        4 * (spec.customer is not None) + 2 * (spec.pipeline is not None) + (spec.mode is not None)
    )


def _plain(table: object) -> Any:
    if isinstance(table, Mapping):
        return {str(name): _plain(value) for name, value in table.items()}
    return [_plain(one) for one in table] if isinstance(table, list | tuple) else table
