"""Validation of input against a type: one error that names the field, the expectation and the fix.

`convert_input` converts parsed JSON, or the texts of a query, to a record. msgspec converts; this
module translates its errors to InvalidInput and rejects unknown fields. msgspec's own check would
also reject new fields in responses of newer servers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from penstock.core.errors import InvalidInput
from penstock.core.records.record import decode_custom

_ERROR: Final = re.compile(r"(?P<text>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_WORDS: Final = {
    "`int`": "an integer",
    "`float`": "a number",
    "`str`": "a string",
    "`bool`": "true or false",
    "`object`": "an object",
    "`array`": "a list",
    "`null`": "null",
    "`bytes`": "base64 text",
}
_PHRASES: Final = {
    "Invalid base64 encoded string": "base64 text",
    "Invalid RFC3339 encoded datetime": "an ISO 8601 time with offset, such as "
    '"2025-11-17T02:00:00Z"',
}
_NOWHERE: Final = object()


def convert_input(
    value: Any,
    kind: Any,
    field: str = "body",
    *,
    is_text: bool = False,
    ignores_unknown: bool = False,
) -> Any:
    """Convert a value to `kind`; raise InvalidInput that names the field.

    is_text: numbers and booleans may be given as text, as in a query string. Unknown fields are
    rejected, unless `ignores_unknown` drops them: senders may add their own fields.
    """
    if isinstance(value, dict):
        value = _without_nulls(value, kind)
    unknown = () if ignores_unknown else _unknown_fields(value, _type_info(kind), ())
    for path, known in unknown:
        name = path[-1]
        near = difflib.get_close_matches(name, known, n=1)
        fix = f"Did you mean {near[0]}?" if near else "Check its spelling."
        raise InvalidInput(".".join(path)[:200], "a known field", name, fix)
    try:
        return msgspec.convert(value, kind, strict=not is_text, dec_hook=decode_custom)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), value, kind, field) from None


def _without_nulls(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    names: frozenset[str] = getattr(kind, "null_is_absent", frozenset())
    if not names:
        return value
    return {name: one for name, one in value.items() if one is not None or name not in names}


@lru_cache(maxsize=1024)
def _type_info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _unknown_fields(
    value: Any, kind: inspect.Type, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield (path, known names) of fields that the structs of `kind` do not have."""
    kind = _unwrapped(kind)
    if isinstance(kind, inspect.UnionType):
        for choice in kind.types:
            inner = _unwrapped(choice)
            if isinstance(inner, inspect.StructType | inspect.ListType):
                kind = inner
                break
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for name, inner_value in value.items():
            if name not in fields:
                yield (*path, str(name)), list(fields)
            elif isinstance(inner_value, dict | list):
                yield from _unknown_fields(inner_value, fields[name], (*path, name))
    elif isinstance(kind, inspect.ListType) and isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _unknown_fields(item, kind.item_type, (*path, str(index)))


def _unwrapped(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _invalid(message: str, value: Any, kind: Any, field: str) -> InvalidInput:
    found = _ERROR.fullmatch(message)
    assert found is not None
    text, path = found["text"], list(_steps(found["path"] or ""))
    missing = _MISSING.fullmatch(text)
    if missing is not None:
        name = ".".join([*path, missing[1]])
        return InvalidInput(name, "a value", None, "This field is required.")
    # A value given instead of a secret reference may be the secret itself.
    got = "another value" if any("secret" in step for step in path) else _at(value, path)
    if text.startswith(("Invalid enum value", "Invalid literal")):
        expected = f"one of {', '.join(map(str, _choices(_type_info(kind), path)))}"
    else:
        expected = _plain(text)
    return InvalidInput(".".join(path)[:200] or field, expected, got)


def _plain(text: str) -> str:
    """Return an expectation of msgspec in Penstock's wording."""
    text = text.partition(", got ")[0]
    if text in _PHRASES:
        return _PHRASES[text]
    length = re.fullmatch(r"Expected `(str|array|object|bytes)` of length ([<>]=) (\d+)", text)
    if length is not None:
        noun = {"str": "characters", "bytes": "bytes"}.get(length[1], "items")
        words = "at most" if length[2] == "<=" else "at least"
        return f"{words} {int(length[3]):,} {noun}"
    bound = re.fullmatch(r"Expected `(int|float)` ([<>]=?) (-?[\d.e+]+)", text)
    if bound is not None:
        signs = {"<=": "at most", ">=": "at least", "<": "less than", ">": "greater than"}
        return f"{_WORDS[f'`{bound[1]}`']} {signs[bound[2]]} {bound[3]}"
    pattern = re.fullmatch(r"Expected `str` matching regex (.*)", text, re.DOTALL)
    if pattern is not None:
        return f"text that matches {pattern[1]}"
    text = text.removeprefix("Expected ")
    if "timezone" in text:
        return _PHRASES["Invalid RFC3339 encoded datetime"]
    kinds = [_WORDS.get(f"`{one.strip()}`", one.strip()) for one in text.strip("`").split("|")]
    return " or ".join(kinds) if kinds else text


def _steps(path: str) -> Iterator[str]:
    """Yield the names and indexes of a path; msgspec does not report keys of mappings."""
    for step in _STEP.finditer(path):
        yield step[1] if step[1] is not None else step[2].replace("...", "*")


def _at(value: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return "something else"
    return value


def _choices(kind: inspect.Type, path: list[str]) -> list[Any]:
    """Return the values of the enumeration at a path."""
    for candidate in _flat(kind):
        if not path:
            if isinstance(candidate, inspect.EnumType):
                return [one.value for one in candidate.cls]
            if isinstance(candidate, inspect.LiteralType):
                return list(candidate.values)
        elif isinstance(candidate, inspect.StructType):
            for one in candidate.fields:
                if one.encode_name == path[0]:
                    return _choices(one.type, path[1:])
        elif isinstance(candidate, inspect.ListType):
            return _choices(candidate.item_type, path[1:])
        elif isinstance(candidate, inspect.DictType):
            return _choices(candidate.value_type, path[1:])
    return ["the documented values"]


def _flat(kind: inspect.Type) -> Iterator[inspect.Type]:
    kind = _unwrapped(kind)
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _flat(one)
    else:
        yield kind
