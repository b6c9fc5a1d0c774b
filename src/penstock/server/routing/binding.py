"""Mapping of the parameters of a use case to path, query, headers and body of a request.

- A parameter named in the path is in the path.
- A parameter whose type is a record is the body; the others are then in the query.
- Without one, the parameters of a POST or PATCH are the fields of the body, those of other methods
  are in the query.
- A name in the path that is not a parameter is a field of the body's record, and not in the body.
- `Wire("name")` gives the name in the request, `InHeader("Name")` puts a parameter in a header,
  `InBody("name")` makes it a field of the body in addition to those of the record.
- The parameter of `Idempotency-Key` is sent by the remote client; the server's routes handle it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as field_of
from datetime import datetime
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec

from penstock.core.clock import parse_iso, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.fields import check_customer
from penstock.core.naming import DEFAULT_CUSTOMER
from penstock.core.records.parameters import IDEMPOTENCY_KEY
from penstock.core.records.record import (
    InBody,
    InHeader,
    Record,
    RecordMeta,
    Wire,
    field,
    with_unit,
)
from penstock.core.records.validation import convert_input

CALL: Final = "call"
ACTOR: Final = "actor"
"""Name of the parameter for the actor in the audit trail; the API's client sets it."""
CUSTOMER: Final = "customer_id"
EMPTY: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a route."""

    name: str
    """Name in Python."""
    wire: str
    """Name in the request."""
    place: str
    """path, query, header, field (of the body), body or key (the idempotency key)."""
    kind: Any
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether a request without it is rejected."""
        return self.default is EMPTY

    @property
    def is_time(self) -> bool:
        """Whether it is a time, which may be given as a date."""
        return _is_time(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteBinding:
    """The parameters of a route, and the type of its result."""

    parameters: tuple[Parameter, ...]
    result: Any
    query_type: Any
    header_type: Any
    fields_type: Any
    """Type of the body if its fields, or some in addition to those of a record, are parameters."""
    fixed: Mapping[str, Any]
    path_fields: Mapping[str, str] = field_of(default_factory=dict)
    """Fields of the body's record that are in the path: name in the request to name in Python."""

    @property
    def wire_names(self) -> dict[str, str]:
        """Names in the request of parameters and fields that have another name in Python.

        Errors about customers always use the name in the request.
        """
        found = {one.name: one.wire for one in self.parameters if one.place != "header"}
        if self.body is not None:
            for one in msgspec.structs.fields(record_of(self.body.kind)):
                found.setdefault(one.name, one.encode_name)
        return {name: wire for name, wire in found.items() if wire not in (name, CUSTOMER)}

    result_field: str = ""
    """Field of the response that has the result; empty if the result is the whole response."""

    def response(self, value: Any) -> Any:
        """Return the response for the result of the use case."""
        return self.result(**{self.result_field: value}) if self.result_field else value

    @property
    def body(self) -> Parameter | None:
        """The parameter that is the whole body; None if there is none."""
        return next((one for one in self.parameters if one.place == "body"), None)

    @property
    def body_type(self) -> Any:
        """Type of the request body; None if the route has none."""
        body = self.body
        return self.fields_type if body is None or self.fields_type is not None else body.kind

    @property
    def needs_body(self) -> bool:
        """Whether a request without a body is rejected."""
        return any(one.is_required for one in self.parameters if one.place in ("body", "field"))

    def at(self, place: str) -> list[Parameter]:
        """Return the parameters in one part of the request."""
        return [one for one in self.parameters if one.place == place]

    def arguments(
        self,
        path: Mapping[str, str],
        query: Iterable[tuple[str, str]],
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        """Return the arguments in path, query and headers; raise InvalidInput."""
        found: dict[str, Any] = dict(self.fixed)
        query = list(query)
        for name, value in query:
            if "\0" in value:
                raise InvalidInput(name, "text without NUL characters", value)
        for one in self.at("path"):
            found[one.name] = convert_input(path[one.wire], one.kind, one.wire, is_text=True)
        found |= self._texts(self._checked(query), "query", self.query_type)
        given = {
            one.wire: headers[one.wire.lower()]
            for one in self.at("header")
            if one.wire.lower() in headers
        }
        return found | self._texts(given, "header", self.header_type)

    def body_arguments(
        self, given: Any, path: Mapping[str, str], *, is_absent: bool
    ) -> dict[str, Any]:
        """Return the arguments in the parsed body; raise InvalidInput."""
        if is_absent or given is None:
            if self.needs_body:
                raise InvalidInput("body", "a JSON object", None, "Send the request with a body.")
            return {}
        body = self.body
        kind = self.fields_type if body is None or self.fields_type is not None else body.kind
        if kind is None:
            return {}
        if isinstance(given, dict):
            given = self._with_path(_with_times(given, record_of(kind)), path)
        if self.fields_type is None:
            assert body is not None
            return {body.name: convert_input(given, kind)}
        values = convert_input(given, self.fields_type)
        # Fields that were omitted keep the use case's own defaults.
        found = {
            one.name: getattr(values, one.name) for one in self.at("field") if one.wire in given
        }
        if body is not None:
            record = _bare(body.kind)
            names = record.__struct_fields__
            found[body.name] = record(**{name: getattr(values, name) for name in names})
        return found

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments have a value for each parameter in the path."""
        return all(arguments.get(one.name) is not None for one in self.at("path"))

    def target(self, path: str, arguments: Mapping[str, Any]) -> str:
        """Return the path of a request for these arguments."""
        values = {one.wire: arguments[one.name] for one in self.at("path")}
        for wire, name in self.path_fields.items():
            assert self.body is not None
            value = getattr(arguments[self.body.name], name)
            values[wire] = DEFAULT_CUSTOMER if value is None and wire == CUSTOMER else value
        for wire, value in values.items():
            if wire == CUSTOMER:
                check_customer(value)  # a slash would change the path
            path = path.replace(f"{{{wire}}}", quote(str(value), safe=""))
        return path

    def sent(self, place: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that a request sends in one location; defaults are omitted."""
        return {
            one.wire: with_unit(arguments[one.name], one.kind)
            for one in self.at(place)
            if one.name in arguments and arguments[one.name] is not one.default
        }

    def _with_path(self, given: dict[str, Any], path: Mapping[str, str]) -> dict[str, Any]:
        """Return the body's fields with those in the path."""
        for wire in self.path_fields:
            if wire in given:
                raise InvalidInput(wire, "this field only in the path", "a body field")
        return given | {wire: path[wire] for wire in self.path_fields}

    def _checked(self, given: list[tuple[str, str]]) -> dict[str, str]:
        """Check that each parameter is known, occurs once, and is text that databases can store."""
        known = sorted(one.wire for one in self.at("query"))
        for name, value in given:
            if name not in known:
                expected = f"one of {', '.join(known)}" if known else "no parameters"
                raise InvalidInput("query", expected, name)
            if "\x00" in value or "\ufffd" in value:
                raise InvalidInput(name, "UTF-8 text without NUL characters", "other bytes")
        if len(dict(given)) < len(given):
            raise InvalidInput(
                "query", f"each of these at most once: {', '.join(known)}", "a repeated one"
            )
        return dict(given)

    def _texts(self, given: dict[str, str], place: str, kind: Any) -> dict[str, Any]:
        if kind is None:
            return {}
        values: dict[str, Any] = dict(given)
        for one in self.at(place):
            if one.wire in values and one.is_time:
                values[one.wire] = _time(values[one.wire], one.wire)
        found = convert_input(values, kind, is_text=True)
        return {one.name: getattr(found, one.name) for one in self.at(place) if one.wire in given}


def bind(
    use_case: Callable[..., Any],
    method: str,
    path: str,
    query: tuple[str, ...],
    fixed: Mapping[str, Any],
    result_field: str = "",
) -> RouteBinding:
    """Return the binding of a use case, or of a function that takes a `Call`."""
    hints = get_type_hints(use_case, include_extras=True)
    result = hints.pop("return", None)
    in_path = set(re.findall(r"\{(\w+)\}", path))
    has_body = method in ("POST", "PATCH", "PUT")
    signature = inspect.signature(use_case)
    wanted = []
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.VAR_KEYWORD:  # **filters: Unpack[a TypedDict]
            (named,) = get_args(hints.pop(one.name))
            for name, kind in get_type_hints(named, include_extras=True).items():
                hints[name] = kind
                wanted.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None))
        elif one.name not in ("self", CALL, ACTOR) and one.name not in fixed:
            wanted.append(one)
    has_record = has_body and any(_is_record(hints[one.name]) for one in wanted)
    found = []
    for one in wanted:
        kind = hints[one.name]
        marks = getattr(kind, "__metadata__", ())
        wire = next((mark.name for mark in marks if isinstance(mark, Wire)), one.name)
        default = one.default
        if wire in in_path:
            place, default = "path", EMPTY
        elif any(isinstance(mark, InHeader) for mark in marks):
            place = "key" if wire == IDEMPOTENCY_KEY else "header"
        elif has_record and _is_record(kind):
            place = "body"
        elif any(isinstance(mark, InBody) for mark in marks) or (
            has_body and not has_record and one.name not in query
        ):
            place = "field"
        else:
            place = "query"
        found.append(Parameter(name=one.name, wire=wire, place=place, kind=kind, default=default))
    missing = in_path - {one.wire for one in found if one.place == "path"}
    body = next((_bare(one.kind) for one in found if one.place == "body"), Record)
    parts = use_case.__qualname__.rstrip("_").split(".")
    name = "".join(part[:1].upper() + part[1:] for part in parts)
    text = inspect.cleandoc(use_case.__doc__ or "").partition("\n")[0]
    if result_field:
        result = _response_type(f"{_title(name)}Response", result_field, result)
    return RouteBinding(
        parameters=tuple(found),
        result=result,
        query_type=_struct(f"{name}Query", [one for one in found if one.place == "query"]),
        header_type=_struct(f"{name}Headers", [one for one in found if one.place == "header"]),
        fields_type=_struct(
            f"{_title(name)}Request",
            [one for one in found if one.place == "field"],
            text,
            body,
        ),
        fixed=fixed,
        path_fields=_path_fields(missing, [one for one in found if one.place == "body"]),
        result_field=result_field,
    )


def _path_fields(names: set[str], bodies: list[Parameter]) -> dict[str, str]:
    """Return the names in Python of the fields of the body that are in the path."""
    fields = {
        one.encode_name: one.name
        for body in bodies
        for one in msgspec.structs.fields(record_of(body.kind))
    }
    return {name: fields[name] for name in sorted(names)}


def _title(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _struct(name: str, parameters: list[Parameter], text: str = "", base: Any = Record) -> Any:
    """Return a record of parameters, and of the fields of `base`; None if there are none."""
    if not parameters:
        return None
    kinds: dict[str, Any] = {}
    namespace: dict[str, Any] = {
        "__annotations__": kinds,
        "__module__": __name__,
        "__doc__": text,
    }
    for one in parameters:
        if one.is_required:
            kinds[one.name] = one.kind
            namespace[one.name] = field(name=one.wire)
        else:
            kinds[one.name] = one.kind if one.default is not None else _optional(one.kind)
            namespace[one.name] = field(name=one.wire, default=one.default)
    return RecordMeta(name, (base,), namespace)


def _response_type(name: str, field: str, kind: Any) -> Any:
    """Return a record with the result as its only field."""
    result = Parameter(name=field, wire=field, place="field", kind=kind, default=EMPTY)
    return _struct(name, [result], f"The result of the operation, in `{field}`.")


def _is_time(kind: Any) -> bool:
    """Whether a type is a time, or a time or None."""
    return any(_bare(one) is datetime for one in (kind, *get_args(_bare(kind))))


def _optional(kind: Any) -> Any:
    return kind if type(None) in get_args(_bare(kind)) else kind | None


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_record(kind: Any) -> bool:
    """Whether a type is a record, or a record or None, or a list of records."""
    return record_of(kind) is not None


def record_of(kind: Any) -> Any:
    """Return the record in a type such as `Limit | None`; None if there is none."""
    bare = _bare(kind)
    if get_origin(bare) in (Union, type(int | None)):
        return next(filter(None, map(record_of, get_args(bare))), None)
    bare = get_origin(bare) or bare
    return bare if isinstance(bare, type) and issubclass(bare, Record) else None


def _with_times(given: dict[str, Any], record: Any) -> dict[str, Any]:
    """Return the fields of a body with parsed times; a plain date is a time too."""
    times = _time_fields(record)
    parsed = {name: _time(given[name], name) for name in times if given.get(name) is not None}
    return given | parsed if parsed else given


@functools.cache
def _time_fields(record: Any) -> tuple[str, ...]:
    fields = msgspec.structs.fields(record)
    return tuple(one.encode_name for one in fields if _is_time(one.type))


def _time(text: object, field: str) -> datetime:
    """Parse a time parameter; a plain date means midnight UTC of that day."""
    is_date = isinstance(text, str) and len(text) == 10
    return to_datetime(parse_iso(f"{text}T00:00:00Z" if is_date else text, field))
