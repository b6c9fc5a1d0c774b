"""Names of groups of dead letters: the same origin and error type, as one text. Pure.

`run/nightly/main/sync/TIMEOUT` are runs of a pipeline, phase and processor,
`delivery/rosters/SCHEMA` deliveries of a subscription, whose name follows that of a pipeline if the
messages name one. Characters other than letters, digits and `_.-~` are percent-encoded.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.core.errors import InvalidInput

_OTHER: Final = re.compile(rb"[^A-Za-z0-9_.~-]")
_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_EXPECTED: Final = "the name of a group, such as run/nightly/main/sync/TIMEOUT"


class GroupKey(NamedTuple):
    """What the dead letters of a group have in common."""

    kind: str
    pipeline: str | None
    phase: str | None
    processor: str | None
    subscription: str | None
    error_type: str


def group_name(key: GroupKey) -> str:
    """Return the text that identifies a group in filters and links."""
    origin = [key.pipeline, key.phase, key.processor]
    if key.kind != "run":
        origin = [*([key.pipeline] if key.pipeline else []), key.subscription]
    parts = [key.kind, *(part or "" for part in origin), key.error_type]
    return "/".join(_encoded(part) for part in parts)


def parse_group(name: str) -> GroupKey:
    """Return the key of a group by its name. Raise InvalidInput if the name is invalid."""
    kind, *parts = [_decoded(part) or None for part in name.split("/")]
    error_type = parts.pop() if parts else None
    if error_type is None:
        raise InvalidInput("group", _EXPECTED, name, "See penstock dlq groups --json.")
    if kind == "run" and len(parts) == 3:
        pipeline, phase, processor = parts
        return GroupKey("run", pipeline, phase, processor, None, error_type)
    if kind == "delivery" and len(parts) in (1, 2):
        pipeline = parts[0] if len(parts) == 2 else None
        return GroupKey("delivery", pipeline, None, None, parts[-1], error_type)
    raise InvalidInput("group", _EXPECTED, name, "See penstock dlq groups --json.")


def _encoded(part: str) -> str:
    return _OTHER.sub(lambda found: b"%%%02X" % ord(found[0]), part.encode()).decode()


def _decoded(part: str) -> str:
    raw = _ENCODED.sub(lambda found: bytes([int(found[1], 16)]), part.encode(errors="replace"))
    return raw.decode(errors="replace")
