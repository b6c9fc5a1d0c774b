"""Actions that change settings: the capacity and rate of a limit, the schedule of a config.

Fields start empty, and an empty one keeps its setting, so that the command names exactly what is
changed. The first form shows the current settings, the second the preview.
"""

from __future__ import annotations

import math
from typing import Any, Final

from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput
from penstock.core.records.validation import convert_input
from penstock.limits.records import Limit
from penstock.schedules.records import ConfigChange, StoredConfig
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.actions.work import WHY
from penstock.web.parts import address
from penstock.web.words import duration, number, plural

DIGITS_MAX: Final = 20
KEPT: Final = "as it is"
ENTER: Final = "Enter what to change; an empty field keeps its setting."


def _set_limit(client: UseCaseGroups, values: Values) -> DeedOutcome:
    before = client.limits.get(values["name"]).limit
    given: dict[str, Any] = {}
    if values.get("capacity"):
        given["capacity"] = _number("capacity", values["capacity"], int)
    if values.get("rate"):
        given["rate"] = _number("rate", values["rate"], float)
    if not given:
        rows = [("capacity", _capacity(before)), ("rate", _rate(before)), *_use(before)]
        return DeedOutcome(text=ENTER, rows=rows, is_asked=True)
    after = client.limits.declare(before.name, **given).limit
    rows = (
        [("capacity", _change(_capacity(before), _capacity(after)))] if "capacity" in given else []
    )
    rows += [("rate", _change(_rate(before), _rate(after)))] if "rate" in given else []
    return DeedOutcome(text=_limit_text(before, after), rows=[*rows, *_use(after)])


def _limit_text(before: Limit, after: Limit) -> str:
    """Return what a change of a limit means for those who hold it or wait for it."""
    phrase = "The change takes effect immediately, in all processes."
    served = before.waiting - after.waiting
    if served > 0:
        phrase += (
            f" {plural(served, 'request that waits gets', 'requests that wait get')} slots now."
        )
    if after.effective_capacity == 0:
        return (
            f"{phrase} Nothing is granted until the capacity is raised; holders keep their slots."
        )
    if after.effective_capacity is not None and after.held > after.effective_capacity:
        return f"{phrase} Holders keep their slots; nothing is granted until enough are free."
    return phrase


def _use(one: Limit) -> list[tuple[str, str]]:
    return [("held", number(one.held)), ("waiting", number(one.waiting + one.waiting_runs))]


def _capacity(one: Limit) -> str:
    return "no bound" if one.capacity is None else number(one.capacity)


def _rate(one: Limit) -> str:
    return "no rate" if one.rate is None else f"{one.rate:g} a second"


_SCHEDULE: Final = ("cron", "every", "timezone")
_EDITED: Final = {
    "cron": "schedule_cron",
    "every": "schedule_interval_minutes",
    "timezone": "timezone",
    "priority": "priority",
    "sla_breach_threshold_minutes": "sla_breach_threshold_minutes",
    "max_execution_duration_minutes": "max_execution_duration_minutes",
}
"""Fields of the form, named like the options of the command, and the config fields they set."""


def _edit_config(client: UseCaseGroups, values: Values) -> DeedOutcome:
    before = client.configs.get(values["config_id"])
    version = int(_number("version", values.get("version", ""), int))
    given = {name: _given(name, values[name]) for name in _EDITED if values.get(name)}
    if not given and version == before.version:
        rows = list(zip(_LABELS.values(), _settings(before).values(), strict=True))
        return DeedOutcome(text=ENTER, rows=rows, is_asked=True)
    change = convert_input({_EDITED[name]: value for name, value in given.items()}, ConfigChange)
    after = client.configs.update(
        before.config_id, change, version=version, reason=values.get("reason") or None
    )
    old, new = _settings(before), _settings(after)
    shown = [name for name in old if name in given or old[name] != new[name]]
    rows = [(_LABELS[name], _change(old[name], new[name])) for name in shown]
    is_moved = any(name in given for name in _SCHEDULE)
    return DeedOutcome(
        text=_config_text(after),
        rows=[*rows, *(_starts(client, after) if is_moved else [])],
    )


def _config_text(after: StoredConfig) -> str:
    phrase = f"It runs {after.schedule_text}."
    if not after.is_active:
        return f"{phrase} The config is off: it starts nothing until it is enabled."
    if after.next_run_time is None:
        return phrase
    return f"{phrase} Its next start is {after.next_run_time:%Y-%m-%d %H:%M} UTC."


def _starts(client: UseCaseGroups, after: StoredConfig) -> list[tuple[str, str]]:
    """Return the next starts of a cron expression in its time zone, with changes of the clock."""
    if after.cron is None or not after.is_active:
        return []
    found = client.configs.preview_of(cron=after.cron, timezone=after.timezone, n=5)
    return [
        (
            "next start" if place == 0 else "then",
            " · ".join(
                filter(None, (f"{one.local[:16].replace('T', ' ')} {one.utc_offset}", one.note))
            ),
        )
        for place, one in enumerate(found.occurrences)
    ]


def _settings(one: StoredConfig) -> dict[str, str]:
    """Return the settings that the form can change, as text."""
    return {
        "cron": one.cron or "none",
        "every": "none" if one.interval is None else duration(one.interval),
        "timezone": one.timezone,
        "priority": number(one.priority),
        "sla_breach_threshold_minutes": duration(one.sla),
        "max_execution_duration_minutes": "as its processors say"
        if not one.max_duration
        else duration(one.max_duration),
    }


def _given(name: str, value: str) -> str | float:
    if name in ("cron", "timezone"):
        return value.strip()
    return _number(_LABELS[name], value, int if name == "priority" else float)


def _change(before: str, after: str) -> str:
    return f"{after}, as before" if before == after else f"{before} → {after}"


def _number(name: str, given: str, kind: type[int] | type[float]) -> float:
    expected = "a whole number" if kind is int else "a number"
    try:
        found = kind(given[:DIGITS_MAX].strip())
    except ValueError:
        raise InvalidInput(name, expected, given) from None
    if len(given) > DIGITS_MAX or not math.isfinite(found):
        raise InvalidInput(name, expected, given)
    return found


_LABELS: Final = {
    "cron": "cron",
    "every": "every",
    "timezone": "time zone",
    "priority": "priority",
    "sla_breach_threshold_minutes": "start within",
    "max_execution_duration_minutes": "longest run",
}
_HINTS: Final = {
    "every": "minutes",
    "priority": "1 to 10, 10 first",
    "sla_breach_threshold_minutes": "minutes",
    "max_execution_duration_minutes": "minutes",
}

SETTING_ACTIONS: Final = (
    Action(
        name="edit-config",
        question=lambda values: f"Change {values.get('config_id')}?",
        label=lambda _: "Change the config",
        deed=_edit_config,
        command=lambda values: command_line(
            "configs", "update", values["config_id"],
            **{name: values.get(name) for name in (*_EDITED, "version", "reason")},
        ),
        back=lambda values: address("configs", values["config_id"]),
        fixed=("config_id", "version"),
        is_form=True,
        fields=(
            *(
                ActionField(
                    name=name, label=label,
                    hint=f"{KEPT}; {_HINTS[name]}" if name in _HINTS else KEPT,
                )
                for name, label in _LABELS.items()
            ),
            WHY,
        ),
        nav="configs",
    ),
    Action(
        name="set-limit",
        question=lambda values: f"Change the limit {values.get('name')}?",
        label=lambda _: "Change the limit",
        deed=_set_limit,
        command=lambda values: command_line(
            "limits", "set", values["name"], capacity=values.get("capacity"),
            rate=values.get("rate"),
        ),
        back=lambda values: address("limits", values["name"]),
        fixed=("name",),
        is_form=True,
        fields=(
            ActionField(name="capacity", label="capacity", hint=KEPT),
            ActionField(name="rate", label="rate a second", hint=KEPT),
        ),
        nav="limits",
    ),
)  # fmt: skip
