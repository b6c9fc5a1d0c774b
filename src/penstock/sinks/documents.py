"""Pure rules for writes to a document (merge, add, reject), shared by all sinks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.core.json_profile import DEPTH_MAX
from penstock.sinks.protocol import Document, StaleFence, Upsert, version_number


def is_stale(version: int | None, there: int | None) -> bool:
    """Return whether a write is older than the stored version; False if either has no version."""
    return version is not None and there is not None and version < there


def check_fence(write: Upsert, there: Document | None) -> None:
    """Raise StaleFence if the document was written under a newer token."""
    newest = None if there is None else there.token
    if newest is not None and write.token is not None and write.token < newest:
        raise StaleFence(write.path, write.token, newest)


def written_fields(write: Upsert, there: Document | None) -> dict[str, Any]:
    """Return the fields of the document after the write."""
    before: Mapping[str, Any] = {} if there is None or write.replace else there.fields
    fields = merged(before, write.fields)
    counted = there.fields if there is not None else {}
    for name, by in write.add.items():
        # Added fields keep their sums even if the rest of the document is replaced.
        fields[name] = _sum(name, counted.get(name, 0), by)
    return fields


def json_text(fields: Mapping[str, Any], default: Callable[[Any], Any] | None = None) -> str:
    """Return fields as JSON; `default` converts values of types that only the sink supports."""
    try:
        return json.dumps(fields, allow_nan=False, separators=(",", ":"), default=default)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            "fields", "values that JSON can represent", type(error).__name__
        ) from None


def newest_version_and_token(
    write: Upsert, there: Document | None
) -> tuple[int | None, int | None]:
    """Return the version and the token of the document after the write."""
    version, token = version_number(write.version), write.token
    if there is None:
        return version, token
    tokens = [one for one in (token, there.token) if one is not None]
    return (there.version if version is None else version), max(tokens, default=None)


def merged(old: Mapping[str, Any], new: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return the old fields updated with the new ones; objects are merged recursively."""
    if depth > DEPTH_MAX:
        raise InvalidInput("fields", f"at most {DEPTH_MAX} levels", "more")
    made = dict(old)
    for name, value in new.items():
        if not isinstance(name, str):
            raise InvalidInput("fields", "names that are strings", name)
        there = made.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            made[name] = merged(there, value, depth + 1)
        else:
            made[name] = value
    return made


def _sum(name: str, there: object, by: object) -> int | float:
    for value in (there, by):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(f"add.{name}", "a number to add to a number", value)
        if not math.isfinite(value):
            raise InvalidInput(f"add.{name}", "a finite number", value)
    assert isinstance(there, int | float)
    assert isinstance(by, int | float)
    return there + by
