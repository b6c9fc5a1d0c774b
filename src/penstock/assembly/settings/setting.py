"""One declared setting: its name, its allowed values and its parser."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.clock import parse_duration
from penstock.core.errors import InvalidInput, SettingsError

PREFIX = "PENSTOCK_"

Kind = Literal["text", "int", "float", "duration", "list", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, with the data for its sources, its flag and its documentation."""

    name: str
    kind: Kind
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    flag: str | None = None
    metavar: str | None = None

    @property
    def variable(self) -> str:
        """Name of its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def one_of(self) -> str:
        """The allowed values as text, such as "never or allowed"."""
        *others, last = self.choices
        return f"{', '.join(others)} or {last}"


def read_value(setting: Setting, value: Any) -> Any:
    """Read a value from a file, the environment or a flag; raise SettingsError if it is not
    allowed.
    """
    if setting.kind == "list":
        return _list(setting, value)
    if setting.kind == "table":
        return _table(setting, value)
    if setting.kind == "text":
        if not isinstance(value, str) or not value.isprintable():
            raise _refused(setting, "a string of printable characters", value)
        if setting.choices and value not in setting.choices:
            raise SettingsError(setting.name, setting.one_of, value)
        return value
    if setting.kind == "duration":
        try:
            micros = parse_duration(value, setting.name)
        except InvalidInput as error:
            raise SettingsError(setting.name, error.expected, value, error.fix) from None
        _bounds(setting, micros / 1_000_000, value)
        return micros
    number = _number(setting, value)
    _bounds(setting, number, value)
    return number


def _number(setting: Setting, value: Any) -> int | float:
    """Parse an integer or a number; reject booleans, infinity and, for an integer, fractions."""
    read: type[int] | type[float] = int if setting.kind == "int" else float
    allowed = (str, int) if setting.kind == "int" else (str, int, float)
    expected = "a whole number" if setting.kind == "int" else "a number"
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise _refused(setting, expected, value)
    try:
        number = read(value)
    except (ValueError, OverflowError):
        raise _refused(setting, expected, value) from None
    if isinstance(number, float) and not math.isfinite(number):
        raise _refused(setting, expected, value)
    return number


def _list(setting: Setting, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise _refused(setting, "a list of strings", value)
    return tuple(part.strip() for part in parts if part.strip())


def _table(setting: Setting, value: Any) -> Mapping[str, Any]:
    """Read a table from a TOML file, or a JSON object from the environment."""
    if isinstance(value, str):
        from penstock.core import json_profile  # on use: commands import this module

        try:
            value = json_profile.parse_json(value.encode(), setting.name)
        except InvalidInput as error:
            raise SettingsError(setting.name, error.expected, error.got) from None
    if not isinstance(value, Mapping):
        raise _refused(setting, "a table (in the environment: a JSON object)", value)
    return value


def _refused(setting: Setting, expected: str, value: Any) -> SettingsError:
    return SettingsError(setting.name, expected, value, f"Set {setting.variable}.")


def _bounds(setting: Setting, number: float, value: Any) -> None:
    unit = " seconds" if setting.kind == "duration" else ""
    if setting.low is not None and number < setting.low:
        raise SettingsError(setting.name, f"at least {setting.low:g}{unit}", value)
    if setting.high is not None and number > setting.high:
        raise SettingsError(setting.name, f"at most {setting.high:g}{unit}", value)
