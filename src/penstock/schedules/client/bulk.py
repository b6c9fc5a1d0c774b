"""Outcomes of creating many configs: each item is created or rejected independently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import structs

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.redact import redact_text
from penstock.schedules.config_input import ConfigInput
from penstock.schedules.records import BulkOutcome, NewConfig

ITEMS_MAX: Final = 10_000

BulkItems: TypeAlias = Sequence[NewConfig | PenstockError]
"""Configs to create; the error in place of an item that could not be read."""
WantedConfig: TypeAlias = tuple[int, str, ConfigInput, str]
"""Index, customer, checked config and reason of a valid item."""


_WIRE_NAMES: Final = {one.name: one.encode_name for one in structs.fields(NewConfig)}


def create_outcomes(
    items: BulkItems, start: int, check: Callable[[NewConfig], tuple[str, ConfigInput, str]]
) -> tuple[list[WantedConfig], list[BulkOutcome]]:
    """Check items; return the valid ones, and one outcome per item: checked or rejected."""
    wanted: list[WantedConfig] = []
    outcomes = []
    for index, item in enumerate(items):
        try:
            if isinstance(item, PenstockError):
                raise item
            wanted.append((index, *check(item)))
            outcomes.append(BulkOutcome(index=start + index, status="checked"))
        except PenstockError as error:
            outcomes.append(_refused(start + index, error))
    return wanted, outcomes


def _refused(index: int, error: PenstockError) -> BulkOutcome:
    invalid = error if isinstance(error, InvalidInput) else None
    if invalid is not None:
        invalid.rename(_WIRE_NAMES)  # an outcome is read by the sender of the JSON
    return BulkOutcome(
        index=index,
        status="refused",
        code=error.code,
        detail=redact_text(error.message),
        field=None if invalid is None else invalid.field,
        expected=None if invalid is None else invalid.expected,
        got=None if invalid is None else redact_text(invalid.got),
        fix=None if invalid is None else invalid.fix,
    )
