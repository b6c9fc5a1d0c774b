"""Values from a message for the run that it starts: parameters, partition and correlation id.

Without a mapping, fields of the message's data that the pipeline declares as parameters replace
those of the config, and the attribute `partition` names the partition. A mapping names sources:

    {"parameters": {"league": "attributes.league", "days": "data.window.days"},
     "partition": "{attributes.day}"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.core.errors import InvalidInput
from penstock.core.fields import check_text, parameters_json
from penstock.core.json_profile import parse_json
from penstock.pipelines.parameters import validate

FIELD: Final = "event_mapping"
_SOURCE: Final = re.compile(r"attributes\.[^{}]+|data(\.[^.{}]+)+")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_BEFORE_OBJECT: Final = b"\xef\xbb\xbf \t\r\n"
_MISSING: Final = object()


class EventStart(NamedTuple):
    """Values from a message for the run or flow that it starts; None keeps the config's value."""

    parameters: str | None = None
    """Merged parameters as JSON text."""
    partition: str | None = None
    correlation_id: str | None = None


NO_EVENT: Final = EventStart()


def parse_event_mapping(value: object) -> str | None:
    """Validate a mapping and return it as JSON text; None stays None."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) - {"parameters", "partition"}:
        raise InvalidInput(FIELD, "an object with parameters and partition", value)
    sources = value.get("parameters") or {}
    if not isinstance(sources, Mapping):
        raise InvalidInput(f"{FIELD}.parameters", "sources by parameter", sources)
    for name, source in sources.items():
        if not isinstance(source, str) or not _SOURCE.fullmatch(source):
            expected = "a source such as attributes.league or data.days"
            raise InvalidInput(f"{FIELD}.parameters.{name}", expected, source)
    template = value.get("partition")
    if template is not None:
        check_text(f"{FIELD}.partition", template)
        for source in _PLACE.findall(template):
            if not _SOURCE.fullmatch(source):
                expected = "a template such as {attributes.day}"
                raise InvalidInput(f"{FIELD}.partition", expected, template)
    return json.dumps(dict(value), sort_keys=True)


def event_start(
    mapping: str | None,
    message: tuple[bytes, Mapping[str, str]],
    own: str,
    schema: Mapping[str, Any] | None,
) -> EventStart:
    """Return the values that a run takes from a message; raise InvalidInput if they are invalid.

    own: the config's parameters as JSON text. schema: the schema of the pipeline's parameters.
    """
    raw, attributes = message
    wanted: dict[str, Any] = {} if mapping is None else json.loads(mapping)
    sources: Mapping[str, str] = wanted.get("parameters") or {}
    template = wanted.get("partition")
    names = (schema or {}).get("properties") or {}
    if mapping is None:
        # An unreadable object may have contained parameters, so the config's own may be wrong.
        is_required = bool(names) and raw.lstrip(_BEFORE_OBJECT).startswith(b"{")
    else:
        used = [*sources.values(), *_PLACE.findall(template or "")]
        is_required = any(source.startswith("data.") for source in used)
    data = _data(raw, is_required=is_required)
    if mapping is None:
        found = {name: data[name] for name in names if name in data}
    else:
        values = {name: _value(source, data, attributes) for name, source in sources.items()}
        found = {name: value for name, value in values.items() if value is not _MISSING}
    text = None
    if found:
        merged = {**json.loads(own), **found}
        text = parameters_json(merged)
        validate(schema, merged)
    partition = attributes.get("partition") if template is None else _filled(
        template, data, attributes
    )  # fmt: skip
    correlation_id = attributes.get("correlation_id")
    for name, value in (("partition", partition), ("correlation_id", correlation_id)):
        if value is not None:
            check_text(name, value)
    return EventStart(text, partition, correlation_id)


def _data(raw: bytes, *, is_required: bool) -> dict[str, Any]:
    try:
        found = parse_json(raw, "data") if raw.strip() else {}
    except InvalidInput:
        if is_required:
            raise
        return {}
    if isinstance(found, dict):
        return found
    if is_required:
        raise InvalidInput("data", "a JSON object", type(found).__name__)
    return {}


def _value(source: str, data: Mapping[str, Any], attributes: Mapping[str, str]) -> Any:
    kind, _, path = source.partition(".")
    if kind == "attributes":
        return attributes.get(path, _MISSING)
    value: Any = data
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _filled(template: str, data: Mapping[str, Any], attributes: Mapping[str, str]) -> str:
    def filled(found: re.Match[str]) -> str:
        value = _value(found[1], data, attributes)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InvalidInput(found[1], f"a string or number for the partition {template}", None)
        return str(value)

    return _PLACE.sub(filled, template)
