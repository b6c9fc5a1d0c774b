"""Field masks of updates: which fields are replaced."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.core.errors import InvalidInput


def apply_mask(now: Any, wanted: Any, mask: Any, immutable: Collection[str]) -> None:
    """Replace the fields of `now` that the mask names with those of `wanted`."""
    if not mask.paths:
        raise InvalidInput("update_mask", "at least one field", "none")
    fields = now.DESCRIPTOR.fields_by_name
    for path in mask.paths:
        head = path.partition(".")[0]
        if head not in fields or head in immutable:
            expected = f"fields of a {now.DESCRIPTOR.name} that can change"
            raise InvalidInput("update_mask", expected, path)
    if not mask.IsValidForDescriptor(now.DESCRIPTOR):
        raise InvalidInput("update_mask", f"fields of a {now.DESCRIPTOR.name}", list(mask.paths))
    mask.MergeMessage(wanted, now, replace_message_field=True, replace_repeated_field=True)
