"""Reports of changed entities: their form, their bounds, and their removal from results.

A processor reports ids by kind, or that everything may have changed. A report of more than 10,000
ids counts as everything. Pure rules; `entities.store` stores reports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from penstock.core.errors import InvalidInput

EntityId: TypeAlias = str | int
IDS_MAX: Final = 10_000
"""Maximum number of ids in one report, and of ids that one run receives."""
LISTED_MAX: Final = 1_000
"""Maximum number of ids that a message or a completion lists; larger reports show only the count.
"""
KINDS_MAX: Final = 50
ID_CHARS_MAX: Final = 200
REASON_MAX: Final = 500
CHANGED: Final = "entities_changed"
EVERYTHING: Final = "everything_changed"
TOO_MANY: Final = f"changed more than {IDS_MAX:,} entities"
NOT_REPORTED: Final = "did not report which entities it changed"
KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True)
class EntityReport:
    """The changes that one execution reported.

    unknown: why the changes are not known, as a phrase that follows the processor's name.
    """

    ids: Mapping[str, tuple[EntityId, ...]] = field(default_factory=dict)
    unknown: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Number of ids by kind."""
        return {kind: len(ids) for kind, ids in self.ids.items()}


class EntityCollector:
    """The entities that a processor reports while it runs, each once."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._ids: dict[str, dict[str, EntityId]] = {}
        self._count = 0

    def add(self, kind: str, ids: Iterable[EntityId]) -> None:
        """Add ids of a kind; further ids are dropped once the total exceeds 10,000."""
        known = self._ids.setdefault(check_kind(kind), {})
        if isinstance(ids, str | bytes):
            raise InvalidInput("ids", "a list of ids", ids)
        for one in ids:
            text = str(check_id(one))
            if text not in known and self._count <= IDS_MAX:
                known[text] = one
                self._count += 1

    def fields(self) -> dict[str, Any]:
        """Return the report as fields of a result."""
        if self.reason is not None:
            return {EVERYTHING: self.reason}
        return {CHANGED: {kind: list(ids.values()) for kind, ids in self._ids.items()}}


def everything_report(reason: str) -> EntityReport:
    """Return the report of an execution that may have changed everything."""
    return EntityReport(unknown=f"changed everything: {reason[:REASON_MAX]}")


def check_kind(kind: object, name: str = "kind") -> str:
    """Validate a kind of entity and return it."""
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise InvalidInput(name, "a kind of entity such as 'players'", kind)
    return kind


def check_id(given: object, name: str = "ids") -> EntityId:
    """Validate the id of an entity and return it."""
    if isinstance(given, int) and not isinstance(given, bool) and -(2**63) <= given < 2**63:
        return given
    if isinstance(given, str) and 0 < len(given) <= ID_CHARS_MAX and "\0" not in given:
        try:
            given.encode()
        except UnicodeEncodeError:
            pass
        else:
            return given
    expected = f"whole numbers, or texts of 1 to {ID_CHARS_MAX} characters"
    raise InvalidInput(name, expected, given)


def report_from(given: Mapping[str, Iterable[object]], name: str = CHANGED) -> EntityReport:
    """Return the report of ids by kind; raise InvalidInput if they are malformed."""
    if not isinstance(given, Mapping):
        raise InvalidInput(name, "an object of id lists by kind", given)
    if len(given) > KINDS_MAX:
        raise InvalidInput(name, f"at most {KINDS_MAX} kinds", len(given))
    found: dict[str, tuple[EntityId, ...]] = {}
    total = 0
    for kind, listed in given.items():
        check_kind(kind, name)
        if not isinstance(listed, list | tuple):
            raise InvalidInput(f"{name}.{kind}", "a list of ids", listed)
        distinct = {str(one): one for one in (check_id(i, f"{name}.{kind}") for i in listed)}
        total += len(distinct)
        found[kind] = tuple(distinct.values())
    return EntityReport(found) if total <= IDS_MAX else EntityReport(unknown=TOO_MANY)


def without_entities(
    summary: Mapping[str, Any] | None,
) -> tuple[Mapping[str, Any] | None, dict[str, Any]]:
    """Return a summary without its report of changed entities, and the fields of that report.

    The size of a summary is bounded; its report is bounded separately.
    """
    if summary is None or not (CHANGED in summary or EVERYTHING in summary):
        return summary, {}
    fields = {name: summary[name] for name in (CHANGED, EVERYTHING) if name in summary}
    rest = {name: value for name, value in summary.items() if name not in fields}
    return rest or None, fields


def split_result(text: str | None) -> tuple[str | None, EntityReport | None]:
    """Return a result with counts in place of its ids, and the report it contained, if any."""
    if text is None or (CHANGED not in text and EVERYTHING not in text):
        return text, None
    try:
        given: Any = msgspec.json.decode(text)
    except RecursionError:
        return text, EntityReport(unknown="reported a result that is nested too deeply to read")
    except msgspec.DecodeError:
        return text, None
    if not isinstance(given, dict) or (
        given.get(CHANGED) is None and given.get(EVERYTHING) is None
    ):
        return text, None
    report = _report_of(given.get(CHANGED), given.get(EVERYTHING))
    given[CHANGED] = report.counts
    try:
        return json.dumps(given, ensure_ascii=False), report
    except RecursionError:  # encoding nests less deeply than decoding
        return text, report


def _report_of(listed: Any, everything: Any) -> EntityReport:
    """Return the report in a result; an unreadable one counts as everything changed."""
    if everything is not None:
        return everything_report(str(everything))
    try:
        return report_from(listed)
    except InvalidInput as error:
        return EntityReport(unknown=f"reported invalid changes: {error.message[:REASON_MAX]}")


def merged(reports: Iterable[Mapping[str, Iterable[EntityId]]]) -> dict[str, list[EntityId]]:
    """Return the ids of several reports by kind, each once."""
    found: dict[str, dict[str, EntityId]] = {}
    for given in reports:
        for kind, ids in given.items():
            known = found.setdefault(kind, {})
            for one in ids:
                known.setdefault(str(one), one)
    return {kind: list(ids.values()) for kind, ids in found.items()}
