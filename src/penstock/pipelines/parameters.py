"""Schemas of pipeline parameters: a small subset of JSON Schema, validated without a library.

Supported keywords: type, title, description, enum, default; for objects properties, required and
additionalProperties; for arrays items, minItems, maxItems; for numbers minimum, maximum; for
strings minLength, maxLength. Any other keyword is rejected when the pipeline is declared, because a
rule that is silently ignored would give a false sense of security. Pure; the client validates what
callers send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.redact import check_reference, is_reference, reject_literal_secrets

Schema: TypeAlias = Mapping[str, Any]

DEPTH_MAX: Final = 16
DIGITS_SHOWN: Final = 30
_ANYWHERE = frozenset({"type", "title", "description", "enum", "default"})
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
_ARTICLES = {"object": "an object", "array": "a list", "integer": "a whole number", "null": "null"}


def check_schema(schema: object, field: str = "parameters") -> None:
    """Raise DeclarationError, naming the location, unless the schema is valid."""
    _check(schema, field, 0)


def validate(schema: Schema | None, value: object, field: str = "parameters") -> Any:
    """Return a copy of the value with defaults filled in. The given value is not modified.

    Raise InvalidInput, naming the first invalid location. Without a schema, any object is valid.
    """
    if schema is None:
        schema = {"type": "object"}
    return _validate(schema, value, field, 0)


def defaults(schema: Schema | None) -> dict[str, Any]:
    """Return the defaults of the top-level properties, as a worker fills them in."""
    properties = (schema or {}).get("properties", {})
    return {name: part["default"] for name, part in properties.items() if "default" in part}


def run_parameters(fills: Mapping[str, Any], given: str | None) -> dict[str, Any]:
    """Return the parameters that a run receives: the given ones (JSON) over the schema's defaults.

    given: the run's or its flow's, else those of its config.
    """
    return {**fills, **(msgspec.json.decode(given) if given else {})}


def _check(schema: object, field: str, depth: int) -> None:
    if not isinstance(schema, Mapping):
        raise DeclarationError(f"{field}: expected a schema (an object), got {schema!r:.80}.")
    if depth > DEPTH_MAX:
        raise DeclarationError(f"{field}: schemas can be nested at most {DEPTH_MAX} levels deep.")
    kinds = _kinds(schema, field)
    allowed = _ANYWHERE.union(*(_WORDS[kind] for kind in kinds))
    for word in schema:
        if word not in allowed:
            raise DeclarationError(
                f"{field}: {word!r} is not supported for type {' or '.join(kinds)}; "
                f"supported: {', '.join(sorted(allowed))}."
            )
    _check_bounds(schema, field)
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise DeclarationError(f"{field}.properties: expected an object of schemas.")
    for name, part in properties.items():
        _check(part, f"{field}.{name}", depth + 1)
        _check_no_secret(name, part, field)
    for name in _names(schema.get("required", ()), f"{field}.required"):
        if name not in properties:
            raise DeclarationError(f"{field}.required: {name!r} is not among the properties.")
    if "items" in schema:
        _check(schema["items"], f"{field}[]", depth + 1)
    if "default" in schema:
        try:
            _validate({k: v for k, v in schema.items() if k != "default"}, schema["default"], field)
        except InvalidInput as error:
            raise DeclarationError(f"the default of {error.message}") from None


def _check_no_secret(name: str, part: Schema, field: str) -> None:
    """Raise DeclarationError for a literal secret as a default: definitions are shown."""
    try:
        reject_literal_secrets({name: part.get("default")}, field)
    except InvalidInput as error:
        raise DeclarationError(f"the default of {error.message}") from None


def _check_bounds(schema: Schema, field: str) -> None:
    if "enum" in schema and (
        isinstance(schema["enum"], str) or not isinstance(schema["enum"], Sequence)
    ):
        raise DeclarationError(f"{field}.enum: expected a list of allowed values.")
    if not isinstance(schema.get("additionalProperties", True), bool):
        raise DeclarationError(f"{field}.additionalProperties: expected true or false.")
    for low, high in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
        for word in (low, high):
            bound = schema.get(word, 0)
            if isinstance(bound, bool) or not isinstance(bound, int | float) or bound != bound:
                raise DeclarationError(f"{field}.{word}: expected a number, got {bound!r:.80}.")
        if low in schema and high in schema and schema[low] > schema[high]:
            raise DeclarationError(f"{field}: {low} is greater than {high}.")


def _names(value: object, field: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise DeclarationError(f"{field}: expected a list of names, got {value!r:.80}.")
    return [str(name) for name in value]


def _kinds(schema: Schema, field: str) -> list[str]:
    given = schema.get("type", "object" if "properties" in schema else None)
    if given is None:
        return list(_WORDS)
    kinds = list(given) if isinstance(given, list | tuple) else [given]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _WORDS:
            raise DeclarationError(
                f"{field}.type: {kind!r:.80} is not a type; known: {', '.join(_WORDS)}."
            )
    return kinds


def _validate(schema: Schema, value: Any, field: str, depth: int = 0) -> Any:
    if depth > DEPTH_MAX:
        raise InvalidInput(field, f"at most {DEPTH_MAX} levels", "more")
    kinds = _kinds(schema, field)
    if is_reference(value) and "string" in kinds:
        # Only the worker knows the value of the secret, so no rule can be checked here.
        check_reference(value, field)
        return value
    if not any(_is(kind, value) for kind in kinds):
        expected = " or ".join(_ARTICLES.get(kind, f"a {kind}") for kind in kinds)
        raise InvalidInput(field, expected, value)
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        shown = ", ".join(json.dumps(choice) for choice in schema["enum"])
        raise InvalidInput(field, f"one of {shown}", value)
    if isinstance(value, str):
        _within(field, "characters", len(value), schema.get("minLength"), schema.get("maxLength"))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _within(field, "", value, schema.get("minimum"), schema.get("maximum"))
    elif isinstance(value, Mapping):
        return _object(schema, value, field, depth)
    elif isinstance(value, list | tuple):
        _within(field, "items", len(value), schema.get("minItems"), schema.get("maxItems"))
        items = schema.get("items", {})
        return [_validate(items, v, f"{field}[{i}]", depth + 1) for i, v in enumerate(value)]
    return value


def _object(schema: Schema, value: Mapping[Any, Any], field: str, depth: int) -> dict[str, Any]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise InvalidInput(f"{field}.{name}", "a value (it is required)", None)
    out: dict[str, Any] = {}
    for name, part in properties.items():
        if name in value:
            out[name] = _validate(part, value[name], f"{field}.{name}", depth + 1)
        elif "default" in part:
            out[name] = part["default"]
    for name, part in value.items():
        if not isinstance(name, str):
            raise InvalidInput(field, "string names", name)
        if name in properties:
            continue
        if schema.get("additionalProperties", True) is False:
            known = ", ".join(sorted(properties)) or "none"
            raise InvalidInput(f"{field}.{name}", "a known parameter", name, f"Known: {known}.")
        out[name] = part
    return out


def _is(kind: str, value: object) -> bool:
    if kind == "object":
        return isinstance(value, Mapping)
    if kind == "array":
        return isinstance(value, list | tuple)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # As in JSON Schema, 1.0 is an integer. Infinity and NaN are not valid JSON.
    return value - value == 0 and (kind == "number" or value == int(value))


def _same(value: object, choice: object) -> bool:
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _within(field: str, unit: str, size: float, low: float | None, high: float | None) -> None:
    if low is not None and size < low:
        raise InvalidInput(field, f"at least {_shown(low)} {unit}".rstrip(), size)
    if high is not None and size > high:
        raise InvalidInput(field, f"at most {_shown(high)} {unit}".rstrip(), size)


def _shown(bound: float) -> str:
    """Return a bound as it was written, unless it has too many digits to be read."""
    if not isinstance(bound, int):
        return f"{bound:g}"
    if abs(bound) < 10**DIGITS_SHOWN:
        return str(bound)
    return f"a number of more than {DIGITS_SHOWN} digits"
