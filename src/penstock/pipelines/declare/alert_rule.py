"""Declaration of an alert rule in Python: a function that measures, and a threshold.

@nba.alert("odds_missing", high=1, hold="10m", message="{value} games have no odds")
def odds_missing(client):
return count_games_without_odds()
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from penstock.core.clock import SECOND, Micros, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput

EVERY_MIN: Final = 15 * SECOND
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
SEVERITIES: Final = ("info", "medium", "high", "critical")

AlertFunction: TypeAlias = Callable[[Any], float | bool | None]
"""A rule's function: takes a client and returns a number, a boolean (True is 1), or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredAlertRule:
    """A rule that a pipeline declares."""

    name: str
    function: AlertFunction
    thresholds: tuple[tuple[str, float], ...]
    """Severity and threshold, in order of severity."""
    hold_us: Micros
    every_us: Micros
    message: str
    command: str


def alert_rule(
    pipeline: str, name: str, function: AlertFunction, options: dict[str, Any]
) -> DeclaredAlertRule:
    """Return a validated rule; raise DeclarationError that names the option."""
    where = f"pipeline {pipeline}: alert {name!r}"
    if not NAME.fullmatch(name):
        raise DeclarationError(f"{where}: expected a name of lowercase letters, digits and _.")
    known = {*SEVERITIES, "hold", "every", "message", "command"}
    for word in options:
        if word not in known:
            raise DeclarationError(
                f"{where}: {word} is not an option; known: {', '.join(sorted(known))}."
            )
    thresholds = []
    for severity in SEVERITIES:
        value = options.get(severity)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DeclarationError(f"{where}: {severity}: expected a number, got {value!r}.")
        thresholds.append((severity.upper(), float(value)))
    if not thresholds:
        raise DeclarationError(f"{where}: expected a threshold: info, medium, high or critical.")
    every = _duration(options.get("every", "1m"), where, "every")
    if every < EVERY_MIN:
        raise DeclarationError(f"{where}: every: expected 15 s or more, got {options['every']!r}.")
    return DeclaredAlertRule(
        name=name,
        function=function,
        thresholds=tuple(thresholds),
        hold_us=_duration(options.get("hold", 0), where, "hold"),
        every_us=every,
        message=options.get("message") or f"{name}: {{value}}",
        command=options.get("command") or f"penstock explain {pipeline}",
    )


def _duration(value: str | float | timedelta, where: str, word: str) -> Micros:
    if value == 0:
        return 0
    try:
        return parse_duration(value, word)
    except InvalidInput as error:
        raise DeclarationError(f"{where}: {word}: {error.message}") from None
