"""How the parameters of a use case correspond to path, query, headers and body of a request.

- A parameter named in the path is in the path.
- A parameter whose type is a record is the body; the others are then in the query.
- Without one, the parameters of a POST or PATCH are the fields of the body, those of other methods
  are in the query.
- `Wire("name")` gives the name in the request, `InHeader("Name")` puts a parameter in a header,
  `InBody("name")` makes it a field of the body beside those of the record.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

from penstock.core.clock import parse_iso, to_datetime
from penstock.core.errors import InvalidInput
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
"""Name of the parameter that use cases have for the audit trail; the API's client sets it."""
EMPTY: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a route."""

    name: str
    """Name in Python."""
    wire: str
    """Name in the request."""
    place: str
    """path, query, header, field (of the body) or body."""
    kind: Any
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether a request without it is refused."""
        return self.default is EMPTY

    @property
    def is_time(self) -> bool:
        """Whether it is a time, which may be given as a date."""
        return any(_bare(one) is datetime for one in (self.kind, *get_args(_bare(self.kind))))


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteBinding:
    """The parameters of a route, and the type of its result."""

    parameters: tuple[Parameter, ...]
    result: Any
    query_type: Any
    header_type: Any
    fields_type: Any
    """Type of the body if its fields, or some beside those of a record, are parameters."""
    fixed: Mapping[str, Any]

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
        """Whether a request without a body is refused."""
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
        for one in self.at("path"):
            found[one.name] = convert_input(path[one.wire], one.kind, one.wire, is_text=True)
        found |= self._texts(self._checked(list(query)), "query", self.query_type)
        given = {
            one.wire: headers[one.wire.lower()]
            for one in self.at("header")
            if one.wire.lower() in headers
        }
        return found | self._texts(given, "header", self.header_type)

    def body_arguments(self, given: Any, *, is_absent: bool) -> dict[str, Any]:
        """Return the arguments in the parsed body; raise InvalidInput."""
        if is_absent or given is None:
            if self.needs_body:
                raise InvalidInput("body", "a JSON object", None, "Send the request with a body.")
            return {}
        body = self.body
        if self.fields_type is None:
            return {} if body is None else {body.name: convert_input(given, body.kind)}
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

    def target(self, path: str, arguments: Mapping[str, Any]) -> str:
        """Return the path of a request for these arguments."""
        for one in self.at("path"):
            path = path.replace(f"{{{one.wire}}}", quote(str(arguments[one.name]), safe=""))
        return path

    def sent(self, place: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a request sends in one place: every argument that is not the default."""
        return {
            one.wire: with_unit(arguments[one.name], one.kind)
            for one in self.at(place)
            if one.name in arguments and arguments[one.name] is not one.default
        }

    def _checked(self, given: list[tuple[str, str]]) -> dict[str, str]:
        """Check that each parameter is known, occurs once, and is text that engines can store."""
        known = sorted(one.wire for one in self.at("query"))
        for name, value in given:
            if name not in known:
                expected = f"one of {', '.join(known)}" if known else "no parameters"
                raise InvalidInput("query", expected, name)
            if "\x00" in value or "\ufffd" in value:
                raise InvalidInput(name, "UTF-8 text without NUL characters", "other bytes")
        if len(dict(given)) < len(given):
            raise InvalidInput("query", f"each of these at most once: {', '.join(known)}", "more")
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
) -> RouteBinding:
    """Return the binding of a use case, or of a function that takes a `Call`."""
    hints = get_type_hints(use_case, include_extras=True)
    result = hints.pop("return", None)
    in_path = set(re.findall(r"\{(\w+)\}", path))
    has_body = method in ("POST", "PATCH", "PUT")
    signature = inspect.signature(use_case)
    wanted = [
        one
        for one in signature.parameters.values()
        if one.name not in ("self", CALL, ACTOR) and one.name not in fixed
    ]
    has_record = has_body and any(_is_record(hints[one.name]) for one in wanted)
    found = []
    for one in wanted:
        kind = hints[one.name]
        marks = getattr(kind, "__metadata__", ())
        wire = next((mark.name for mark in marks if isinstance(mark, Wire)), one.name)
        if wire in in_path:
            place = "path"
        elif any(isinstance(mark, InHeader) for mark in marks):
            place = "header"
        elif has_record and _is_record(kind):
            place = "body"
        elif any(isinstance(mark, InBody) for mark in marks) or (
            has_body and not has_record and one.name not in query
        ):
            place = "field"
        else:
            place = "query"
        found.append(
            Parameter(name=one.name, wire=wire, place=place, kind=kind, default=one.default)
        )
    body = next((_bare(one.kind) for one in found if one.place == "body"), Record)
    name = "".join(part.capitalize() for part in use_case.__qualname__.rstrip("_").split("."))
    return RouteBinding(
        parameters=tuple(found),
        result=result,
        query_type=_struct(f"{name}Query", [one for one in found if one.place == "query"]),
        header_type=_struct(f"{name}Headers", [one for one in found if one.place == "header"]),
        fields_type=_struct(
            f"{_title(name)}Request",
            [one for one in found if one.place == "field"],
            inspect.cleandoc(use_case.__doc__ or "").partition("\n")[0],
            body,
        ),
        fixed=fixed,
    )


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


def _optional(kind: Any) -> Any:
    return kind if type(None) in get_args(_bare(kind)) else kind | None


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_record(kind: Any) -> bool:
    """Whether a type is a record, or a record or None, or a list of records."""
    bare = _bare(kind)
    if get_origin(bare) in (Union, type(int | None)):
        return any(_is_record(one) for one in get_args(bare) if one is not type(None))
    bare = get_origin(bare) or bare
    return isinstance(bare, type) and issubclass(bare, Record)


def _time(text: str, field: str) -> datetime:
    """Parse a time parameter; a plain date means midnight UTC of that day."""
    return to_datetime(parse_iso(f"{text}T00:00:00Z" if len(text) == 10 else text, field))
