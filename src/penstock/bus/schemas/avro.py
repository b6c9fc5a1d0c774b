"""Avro: validates schemas, and messages against them, in JSON or binary encoding.

A strict reader of the Avro 1.11 specification without logical types: their values are checked as
the underlying types. `parse` compiles a schema into one checker per type; a checker raises
`AvroMismatch` with the path of the first value that does not fit.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from penstock.core import json_profile
from penstock.core.errors import InvalidInput

DEFINITION_MAX: Final = 300_000
DEPTH_MAX: Final = 64
BLOCK_ITEMS_MAX: Final = 1_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)


class AvroMismatch(Exception):
    """A message does not match its schema."""


class AvroType(NamedTuple):
    """A compiled type: its name in unions, and its checks."""

    name: str
    check_json: Callable[[Any, str], None]
    read: Callable[[_Reader], None]


class _Reader:
    """Reads the binary encoding."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.depth = 0

    def take(self, n: int) -> bytes:
        if n < 0 or n > len(self._data) - self._at:
            raise AvroMismatch(f"the data ends at byte {len(self._data)}, inside a value")
        self._at += n
        return self._data[self._at - n : self._at]

    def long(self, bounds: tuple[int, int] = _LONG) -> int:
        shift, found = 0, 0
        while True:
            (byte,) = self.take(1)
            found |= (byte & 0x7F) << shift
            if not byte & 0x80:
                break
            shift += 7
            if shift > 63:
                raise AvroMismatch(f"a number at byte {self._at} is too long")
        number = (found >> 1) ^ -(found & 1)
        if not bounds[0] <= number <= bounds[1]:
            raise AvroMismatch(f"the number at byte {self._at} is out of range")
        return number

    def text(self) -> None:
        try:
            self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise AvroMismatch(f"the text at byte {self._at} is not UTF-8") from None

    def blocks(self, item: Callable[[], None]) -> None:
        """Read the blocks of an array or map."""
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            if count > BLOCK_ITEMS_MAX:
                raise AvroMismatch(f"a block at byte {self._at} has too many items")
            for _ in range(count):
                before = self._at
                item()
                if self._at == before and count > len(self._data):
                    raise AvroMismatch("a block has more items than the message has bytes")

    def end(self) -> None:
        if self._at != len(self._data):
            raise AvroMismatch(f"{len(self._data) - self._at} bytes follow the value")


@lru_cache(maxsize=256)
def parse(definition: str, field: str = "definition") -> AvroType:
    """Compile a schema. Raises InvalidInput if it is not a valid Avro record."""
    if len(definition.encode("utf-8", "replace")) > DEFINITION_MAX:
        raise InvalidInput(field, f"at most {DEFINITION_MAX} bytes", "a longer definition")
    try:
        given = json.loads(definition)
    except (ValueError, RecursionError):
        raise InvalidInput(field, "an Avro schema in JSON", definition) from None
    if not isinstance(given, dict) or given.get("type") != "record":
        raise InvalidInput(field, "an Avro schema whose type is record", definition)
    return _Compiler(field).compile(given, "", 0)


def check_message(kind: AvroType, data: bytes, encoding: str) -> None:
    """Raise AvroMismatch unless the data is one value of the type in the encoding."""
    if encoding == "binary":
        reader = _Reader(data)
        kind.read(reader)
        reader.end()
        return
    try:
        value = json_profile.parse_json(data)
    except InvalidInput as error:
        raise AvroMismatch(f"not JSON: {error.message}") from None
    kind.check_json(value, "")


def _is(value: object, path: str, expected: str, ok: bool) -> None:
    if not ok:
        shown = repr(value)[:60]
        raise AvroMismatch(f"{path or 'message'}: expected {expected}, got {shown}")


def _whole(value: object, bounds: tuple[int, int]) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and bounds[0] <= value <= bounds[1]
    )


def _is_bytes(value: object) -> bool:
    return isinstance(value, str) and all(ord(char) < 256 for char in value)


def _read_boolean(reader: _Reader) -> None:
    if reader.take(1) not in (b"\0", b"\1"):
        raise AvroMismatch("a boolean is neither 0 nor 1")


def _primitive(name: str, ok: Callable[[Any], bool], read: Callable[[_Reader], object]) -> AvroType:
    def check(value: Any, path: str) -> None:
        _is(value, path, name, ok(value))

    def read_one(reader: _Reader) -> None:
        read(reader)

    return AvroType(name, check, read_one)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_PRIMITIVES: Final[Mapping[str, AvroType]] = {
    one.name: one
    for one in (
        _primitive("null", lambda v: v is None, lambda _: None),
        _primitive("boolean", lambda v: isinstance(v, bool), _read_boolean),
        _primitive("int", lambda v: _whole(v, _INT), lambda r: r.long(_INT)),
        _primitive("long", lambda v: _whole(v, _LONG), lambda r: r.long()),
        _primitive("float", _is_number, lambda r: struct.unpack("<f", r.take(4))),
        _primitive("double", _is_number, lambda r: struct.unpack("<d", r.take(8))),
        _primitive("bytes", _is_bytes, lambda r: r.take(r.long())),
        _primitive("string", lambda v: isinstance(v, str), _Reader.text),
    )
}


class _Compiler:
    """Compiles one schema; named types can refer to themselves."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._named: dict[str, AvroType] = {}

    def compile(self, given: Any, space: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise self._error(f"at most {DEPTH_MAX} nested types", given)
        if isinstance(given, str):
            return self._by_name(given, space)
        if isinstance(given, list):
            return self._union(given, space, depth)
        if not isinstance(given, dict):
            raise self._error("a type", given)
        kind = given.get("type")
        if isinstance(kind, dict | list):
            return self.compile(kind, space, depth + 1)
        if kind in {"record", "error", "enum", "fixed"}:
            return self._named_type(kind, given, space, depth)
        if kind == "array":
            return self._array(self.compile(given.get("items"), space, depth + 1))
        if kind == "map":
            return self._map(self.compile(given.get("values"), space, depth + 1))
        return self._by_name(kind, space)

    def _by_name(self, name: Any, space: str) -> AvroType:
        if not isinstance(name, str):
            raise self._error("the name of a type", name)
        full = name if "." in name or not space else f"{space}.{name}"
        found = _PRIMITIVES.get(name) or self._named.get(full) or self._named.get(name)
        if found is None:
            raise self._error("a type that is defined before it is used", name)
        return found

    def _named_type(self, kind: str, given: dict[str, Any], space: str, depth: int) -> AvroType:
        full = self._full_name(given, space)
        if full in self._named or full in _PRIMITIVES:
            raise self._error("a name that is not used yet", full)
        inner = full.rpartition(".")[0]
        if kind == "enum":
            made = self._enum(full, given)
        elif kind == "fixed":
            made = self._fixed(full, given)
        else:
            return self._record(full, given, inner, depth)
        self._named[full] = made
        return made

    def _full_name(self, given: dict[str, Any], space: str) -> str:
        name, own = given.get("name"), given.get("namespace", space)
        if not isinstance(name, str) or not isinstance(own, str):
            raise self._error("a name and a namespace that are strings", given)
        full = name if "." in name or not own else f"{own}.{name}"
        if not all(_NAME.fullmatch(part) for part in full.split(".")):
            raise self._error("a name of letters, digits and _", full)
        return full

    def _record(self, full: str, given: dict[str, Any], space: str, depth: int) -> AvroType:
        fields: dict[str, AvroType] = {}

        def check(value: Any, path: str) -> None:
            _is(value, path, f"an object of {full}", isinstance(value, dict))
            for name, kind in fields.items():
                at = f"{path}.{name}" if path else name
                if name not in value:
                    raise AvroMismatch(f"{at}: expected a value, got none")
                kind.check_json(value[name], at)
            unknown = sorted(set(value) - set(fields))
            if unknown:
                raise AvroMismatch(f"{path or 'message'}: {full} has no field {unknown[0]!r}")

        def read(reader: _Reader) -> None:
            reader.depth += 1
            if reader.depth > DEPTH_MAX:
                raise AvroMismatch(f"more than {DEPTH_MAX} nested records")
            for kind in fields.values():
                kind.read(reader)
            reader.depth -= 1

        made = self._named[full] = AvroType(full, check, read)
        listed = given.get("fields")
        if not isinstance(listed, list):
            raise self._error("a list of fields", listed)
        for one in listed:
            name = one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name in fields:
                raise self._error("fields with distinct names", one)
            fields[name] = self.compile(one.get("type"), space, depth + 1)
        return made

    def _enum(self, full: str, given: dict[str, Any]) -> AvroType:
        symbols = given.get("symbols")
        valid = isinstance(symbols, list) and all(
            isinstance(one, str) and _NAME.fullmatch(one) for one in symbols
        )
        if not valid or not symbols or len(set(symbols)) < len(symbols):
            raise self._error("a list of distinct symbols", symbols)
        known = frozenset(symbols)
        bounds = (0, len(symbols) - 1)
        ok: Callable[[Any], bool] = lambda v: isinstance(v, str) and v in known  # noqa: E731
        return _primitive(full, ok, lambda r: r.long(bounds))

    def _fixed(self, full: str, given: dict[str, Any]) -> AvroType:
        size = given.get("size")
        if not _whole(size, (0, DEFINITION_MAX)):
            raise self._error("a size", size)
        assert isinstance(size, int)
        return _primitive(full, lambda v: _is_bytes(v) and len(v) == size, lambda r: r.take(size))

    def _array(self, item: AvroType) -> AvroType:
        def check(value: Any, path: str) -> None:
            _is(value, path, "a list", isinstance(value, list))
            for index, one in enumerate(value):
                item.check_json(one, f"{path}[{index}]")

        return AvroType("array", check, lambda r: r.blocks(lambda: item.read(r)))

    def _map(self, item: AvroType) -> AvroType:
        def check(value: Any, path: str) -> None:
            _is(value, path, "an object", isinstance(value, dict))
            for name, one in value.items():
                item.check_json(one, f"{path}.{name}" if path else name)

        def read(reader: _Reader) -> None:
            def pair() -> None:
                reader.text()
                item.read(reader)

            reader.blocks(pair)

        return AvroType("map", check, read)

    def _union(self, given: list[Any], space: str, depth: int) -> AvroType:
        kinds = [self.compile(one, space, depth + 1) for one in given]
        names = [kind.name for kind in kinds]
        if not kinds or len(set(names)) < len(names) or "union" in names:
            raise self._error("a union of distinct types", given)
        by_name = dict(zip(names, kinds, strict=True))

        def check(value: Any, path: str) -> None:
            if value is None:
                _is(value, path, " or ".join(names), "null" in by_name)
                return
            one = isinstance(value, dict) and len(value) == 1
            _is(value, path, f"an object with one of {', '.join(names)}", one)
            ((name, content),) = value.items()
            _is(value, path, f"one of {', '.join(names)}", name in by_name and name != "null")
            by_name[name].check_json(content, path)

        def read(reader: _Reader) -> None:
            kinds[reader.long((0, len(kinds) - 1))].read(reader)

        return AvroType("union", check, read)

    def _error(self, expected: str, got: object) -> InvalidInput:
        return InvalidInput(self._field, expected, got)
