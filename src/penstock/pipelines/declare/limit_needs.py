"""The limits that a processor's runs must hold before they may be claimed.

    @processor(limits=["bq:{table}"], concurrency=20, per_customer=2, per_key="{team}")

Each option becomes a list of needs. A need has the name of a limit, with optional placeholders that
are filled in per run from its customer, partition, mode and parameters; a weight; and the capacity,
if the declaration sets it. This module validates declarations; the store turns needs into rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import DeclarationError, short_repr
from penstock.core.naming import LIMIT_CAPACITY_MAX, LIMIT_NAME_MAX
from penstock.pipelines.declare.terms import ProcessorSettings

RUN_FIELDS: Final = ("customer", "partition", "mode", "pipeline", "phase", "processor")
"""Placeholders that every run can fill in; any other placeholder is the name of a parameter."""
NO_VALUE: Final = "none"
"""Replaces a placeholder for which a run has no value; such runs share one limit."""
PROCESSOR_LIMIT: Final = "processor:{pipeline}/{phase}/{processor}"
CUSTOMER_LIMIT: Final = "customer:{customer}"
"""The limit of all runs of a customer, if its settings have a maximum."""

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@#$*+=,-]*", re.ASCII)
_UNFIT = re.compile(r"[^A-Za-z0-9_.:/@#$*+=,-]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitNeed:
    """A limit that a run must hold. If capacity is None, the limit's own configuration applies."""

    name: str
    weight: int = 1
    capacity: int | None = None
    is_per_customer: bool = False
    """Whether the limit belongs to the run's customer instead of the system."""


def limit_needs_of(terms: ProcessorSettings) -> tuple[LimitNeed, ...]:
    """Return the limits that each run of a processor must hold."""
    weights = terms.weights or {}
    found = [LimitNeed(name=name, weight=weights.get(name, 1)) for name in terms.limits]
    if terms.concurrency is not None:
        found.append(LimitNeed(name=PROCESSOR_LIMIT, capacity=terms.concurrency))
    if terms.per_customer is not None:
        name = f"{PROCESSOR_LIMIT}:customer:{{customer}}"
        found.append(LimitNeed(name=name, capacity=terms.per_customer, is_per_customer=True))
    for key, capacity in (terms.per_key or {}).items():
        found.append(LimitNeed(name=f"{PROCESSOR_LIMIT}:key:{key}", capacity=capacity))
    return tuple(found)


def customer_limit(concurrency: int) -> LimitNeed:
    """Return the limit that every run of a customer with a maximum number of runs must hold."""
    return LimitNeed(name=CUSTOMER_LIMIT, capacity=concurrency, is_per_customer=True)


def customer_of_limit(name: str) -> str | None:
    """Return the customer whose number of runs a limit restricts; None for any other limit."""
    prefix = CUSTOMER_LIMIT.partition("{")[0]
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def describe_need(need: LimitNeed) -> str:
    """Describe a need for users: "3 at a time per customer"."""
    if need.capacity is None:
        return need.name if need.weight == 1 else f"{need.name} (weight {need.weight})"
    if need.is_per_customer:
        return f"{need.capacity} at a time per customer"
    key = need.name.removeprefix(f"{PROCESSOR_LIMIT}:key:")
    per = "" if key == need.name else f" per {key}"
    return f"{need.capacity} at a time{per}"


def limit_name_for_run(name: str, values: Mapping[str, Any]) -> str:
    """Return the name of the limit for one run, with its placeholders filled in.

    Characters that are not valid in a name become `_`; a name that is too long is truncated and
    ends in a digest.
    """
    if "{" not in name:
        return name
    made = _PLACEHOLDER.sub(lambda match: _filled(values.get(match[1])), name)
    if len(made) <= LIMIT_NAME_MAX:
        return made
    digest = hashlib.sha256(made.encode()).hexdigest()[:16]
    return f"{made[: LIMIT_NAME_MAX - 17]}-{digest}"


def check_placeholders(name: str, parameters: Iterable[str], where: str) -> None:
    """Raise DeclarationError unless runs can fill in every placeholder of a name."""
    known = sorted(parameters)
    for word in _PLACEHOLDER.findall(name):
        if word not in RUN_FIELDS and word not in known:
            listed = ", ".join((*RUN_FIELDS, *known))
            raise DeclarationError(
                f"{where}: {{{word}}} in {name!r} is neither a field of the run nor a declared "
                f"parameter; known: {listed}. Declare parameters with Pipeline(parameters=...)."
            )


def parse_limits(value: Any, word: str, where: str) -> tuple[str, ...]:
    """Return the names in a `limits` option, which is a list of names or a mapping to weights."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DeclarationError(f"{where}: {word} takes a list, got {short_repr(value)}.")
    return tuple(dict.fromkeys(_name(item, word, where) for item in value))


def parse_weights(value: Any, word: str, where: str) -> dict[str, int] | None:
    """Return the weights in a `limits` option that differ from 1; None if there are none."""
    if not isinstance(value, Mapping):
        return None
    found = {name: _count(weight, f"{word}[{name!r}]", where) for name, weight in value.items()}
    return {name: weight for name, weight in found.items() if weight != 1} or None


def parse_max_runs(value: Any, word: str, where: str) -> int:
    """Parse a maximum number of runs at a time."""
    return _count(value, word, where)


def parse_max_runs_by_key(value: Any, word: str, where: str) -> dict[str, int]:
    """Parse maximum numbers of runs at a time by key; a bare key means one."""
    given = {value: 1} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or not given:
        raise DeclarationError(
            f'{where}: {word} takes a key such as "{{team}}" or counts by key, got '
            f"{short_repr(value)}."
        )
    for key in given:
        if not _PLACEHOLDER.search(_name(key, word, where)):
            raise DeclarationError(
                f"{where}: {word}: {short_repr(key)} has no placeholder such as "
                f'"{{team}}", so all runs '
                "would share one key; use concurrency=... for that."
            )
    return {key: _count(count, f"{word}[{key!r}]", where) for key, count in given.items()}


def _filled(value: object) -> str:
    if value is None or value == "":
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    return _UNFIT.sub("_", str(value))


def _name(value: object, word: str, where: str) -> str:
    plain = _PLACEHOLDER.sub("x", value) if isinstance(value, str) else ""
    if not isinstance(value, str) or not _NAME.fullmatch(plain) or len(value) > LIMIT_NAME_MAX:
        raise DeclarationError(
            f"{where}: {word}: {short_repr(value)} is not the name of a limit such as "
            "'bq:data.table' "
            "or 'bq:{table}'."
        )
    for placeholder in _PLACEHOLDER.findall(value):
        if not _WORD.fullmatch(placeholder):
            raise DeclarationError(
                f"{where}: {word}: {{{placeholder}}} in {value!r} is not a name; "
                'write "{table}" for the parameter `table`.'
            )
    return value


def _count(value: object, word: str, where: str) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 1 <= value <= LIMIT_CAPACITY_MAX
    ):
        raise DeclarationError(
            f"{where}: {word} must be a whole number from 1 to {LIMIT_CAPACITY_MAX:,}, "
            f"got {short_repr(value)}."
        )
    return value
