"""The OpenAPI document of declared routes: operations from use cases, schemas from records."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from penstock.core.records.record import Page, Record, to_json_value
from penstock.server.openapi.field_texts import texts_below_fields
from penstock.server.routing.binding import Parameter, record_of
from penstock.server.routing.declare import ApiRoute, Idempotency

REF: Final = "#/components/schemas/{name}"
IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes the request safe to repeat for 24 hours. The same key and body get the "
    "same response; a different body is rejected.",
    "schema": {"type": "string", "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
}
DRY_RUN: Final = {
    "name": "Dry-Run",
    "in": "header",
    "required": False,
    "description": "With `true` the request is checked and executed, then rolled back: the "
    "response is that of a real request, but nothing changes. Ids in it are never used.",
    "schema": {"type": "string", "enum": ["true", "false"]},
}
IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETags that the client has; the response is 304 if one is current.",
    "schema": {"type": "string"},
}
NDJSON: Final = "application/x-ndjson"
NO_CONTENT: Final = 204
DONE: Final = {
    "type": "object",
    "description": "Confirmation of an operation that returns no resource.",
    "properties": {"status": {"const": "done", "description": "Always `done`."}},
    "required": ["status"],
    "additionalProperties": False,
}


def operations(
    routes: Iterable[ApiRoute], problems: Mapping[int, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return (operations by path and method, schemas by name)."""
    routes = list(routes)
    streams = [route.ndjson for route in routes if route.ndjson is not None]
    documents = [route for route in routes if route.media == "application/json"]
    requests = _unique(
        _structs([*(route.binding.body_type for route in routes), *(one.item for one in streams)])
    )
    results = _unique(
        _structs(
            [*(route.binding.result for route in documents), *(one.outcome for one in streams)]
        )
    )
    schemas = _schemas([*requests, *results])
    sparse = {
        _name(one)
        for one in _all_structs([*requests, *results])
        if (get_origin(one) or one).__struct_config__.omit_defaults
    }
    only_sent = {_name(one) for one in results} - _reachable(schemas, map(_name, requests))
    for name in _reachable(schemas, only_sent) - _reachable(schemas, map(_name, requests)):
        schema = schemas[name]
        # A response has every field, even those with a default, unless its record omits them.
        if "properties" in schema and name not in sparse:
            schema["required"] = list(schema["properties"])
    if any(_has_no_result(route) for route in routes):
        schemas["Done"] = DONE
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for wire in route.binding.path_fields:
            schemas[_name(record_of(route.binding.body_type))]["properties"].pop(wire, None)
        operation = _operation(route, schemas, problems)
        if route.ndjson is not None:
            schemas[_name(route.ndjson.item)]["examples"] = [dict(route.ndjson.example)]
        if route.example is not None:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for name in _refs(schema):
                schemas[name]["examples"] = [dict(route.example)]
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return paths, {name: schema for name, schema in schemas.items() if "enum" not in schema}


def schemas_of(*kinds: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (reference to the first, schemas by name) of records."""
    return _schema(kinds[0]), _schemas(list(kinds))


def _operation(
    route: ApiRoute, schemas: Mapping[str, Any], problems: Mapping[int, Any]
) -> dict[str, Any]:
    binding = route.binding
    parameters = [_path_field(binding.body_type, wire) for wire in binding.path_fields]
    parameters += [
        _parameter(one) for one in binding.parameters if one.place in ("path", "query", "header")
    ]
    responses: dict[str, Any] = {str(route.status): _success(route, schemas)}
    if route.etag is not None and route.method == "GET":
        parameters.append(dict(IF_NONE_MATCH))
        responses["304"] = {"description": "The resource still has an ETag of If-None-Match."}
    responses |= {str(status): text for status, text in problems.items()}
    if route.idempotency is Idempotency.NONE:
        responses.pop("422", None)
    else:
        parameters.append(dict(IDEMPOTENCY_KEY))
    if route.has_dry_run:
        parameters.append(dict(DRY_RUN))
    made: dict[str, Any] = {
        "tags": [route.tag],
        "operationId": route.operation_id,
        "summary": route.description.partition("\n")[0].partition(". ")[0].rstrip("."),
        "description": route.description,
        "parameters": parameters,
        "responses": responses,
        "security": [{"key": []}],
        "x-power": route.permission.value,
    }
    if route.accepts_token:
        made["security"].append({"scheduler": []})
    if binding.body_type is not None:
        made["requestBody"] = {
            "required": binding.needs_body,
            "content": {"application/json": {"schema": _schema(binding.body_type)}},
        }
    if route.ndjson is not None:
        item = _schema(route.ndjson.item)
        most = route.ndjson.items_max
        array = {"type": "array", "minItems": 1, "maxItems": most, "items": item}
        made["requestBody"] = {
            "required": True,
            "description": f"At most {most:,} records, as a JSON array or one per line.",
            "content": {"application/json": {"schema": array}, NDJSON: {"schema": item}},
        }
    return made


def _success(route: ApiRoute, schemas: Mapping[str, Any]) -> dict[str, Any]:
    result = route.binding.result
    if route.status == NO_CONTENT:
        return {"description": "The response has no body."}
    if route.ndjson is not None:
        lines = {NDJSON: {"schema": _schema(route.ndjson.outcome)}}
        return {"description": "One outcome per line, in the order of the items.", "content": lines}
    if route.media != "application/json":
        text = route.description.replace("Return metrics", "Metrics")
        return {"description": text, "content": {route.media: {"schema": {"type": "string"}}}}
    if _has_no_result(route):
        schema: Any = {"$ref": REF.format(name="Done")}
        text = "The operation is done."
    else:
        schema = _schema(result)
        name = (schema.get("items") or schema).get("$ref", "").rpartition("/")[2]
        text = schemas[name]["description"] if name in schemas else "The result."
        if "items" in schema:
            text = f"A list of {name} records."
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _has_no_result(route: ApiRoute) -> bool:
    return route.binding.result in (None, type(None)) and route.status != NO_CONTENT


def _parameter(one: Parameter) -> dict[str, Any]:
    schema = _schema(one.kind)
    description = schema.pop("description", None)
    made = {
        "name": one.wire,
        "in": one.place,
        "required": one.is_required,
        "schema": _not_null(schema),
    }
    if description is not None:
        made["description"] = description
    if not one.is_required and one.default is not None:
        schema["default"] = to_json_value(one.default)
    return made


def _path_field(body: Any, wire: str) -> dict[str, Any]:
    """Return the parameter for a field of the body's record that is in the path."""
    record = record_of(body)
    (field,) = (one for one in msgspec.structs.fields(record) if one.encode_name == wire)
    return {
        "name": wire,
        "in": "path",
        "required": True,
        "schema": _not_null(_schema(field.type)),
        "description": field_docs(record)[field.name],
    }


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null, which a query cannot contain, from the choices of a parameter."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        return {**{key: value for key, value in schema.items() if key != "anyOf"}, **choices[0]}
    return schema


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), found = msgspec.json.schema_components(
        [kind], schema_hook=_custom_schema, ref_template=REF
    )
    made: dict[str, Any] = _renamed(_with_enums(schema, found))
    return made


def _schemas(kinds: list[Any]) -> dict[str, Any]:
    _, found = msgspec.json.schema_components(kinds, schema_hook=_custom_schema, ref_template=REF)
    named = {
        _page_name(name): _renamed(_with_enums(schema, found))
        for name, schema in found.items()
        if "enum" not in schema
    }
    for kind in _all_structs(kinds):
        schema = named.get(_name(kind))
        if schema is not None:
            _describe(schema, get_origin(kind) or kind, kind)
    return named


def _describe(schema: dict[str, Any], struct: Any, kind: Any) -> None:
    """Add the descriptions and the defaults that msgspec does not emit."""
    schema.pop("title", None)
    schema["additionalProperties"] = False
    docs = field_docs(struct)
    if get_origin(kind) is Page:
        schema["description"] = f"One page of {_name(get_args(kind)[0])} records."
    elif struct.__doc__:
        schema["description"] = inspect.cleandoc(struct.__doc__)
    for field in msgspec.structs.fields(struct):
        entry = schema["properties"].get(field.encode_name)
        if entry is None:
            continue
        if field.name in docs:
            entry["description"] = docs[field.name]
        factory = field.default_factory
        if factory is not msgspec.NODEFAULT and isinstance(default := factory(), timedelta):
            entry["default"] = to_json_value(default)


@lru_cache(maxsize=512)
def field_docs(struct: type[Any]) -> Mapping[str, str]:
    """Return the string below each field of a record, by the name of the field."""
    found: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        if not issubclass(kind, msgspec.Struct) or kind in (msgspec.Struct, Record):
            continue
        found.update(texts_below_fields(kind))
    return found


def _custom_schema(kind: Any) -> dict[str, Any]:
    unit = getattr(kind, "unit", None)
    if unit is None:
        raise NotImplementedError(kind)
    return {"type": "number"}


def _renamed(schema: Any) -> Any:
    """Rename generic pages: a page of Limit is LimitPage; msgspec would name it Page_Limit_."""
    if isinstance(schema, dict):
        return {
            key: _page_ref(value) if key == "$ref" else _renamed(value)
            for key, value in schema.items()
        }
    return [_renamed(one) for one in schema] if isinstance(schema, list) else schema


def _with_enums(schema: Any, found: Mapping[str, Any]) -> Any:
    """Inline the values of an enumeration where it is used, as for a `Literal`."""
    if isinstance(schema, list):
        return [_with_enums(one, found) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _with_enums(value, found) for key, value in schema.items()}
    values = found.get(str(made.get("$ref", "")).rpartition("/")[2], {}).get("enum")
    if values is not None:
        del made["$ref"]
        made["enum"] = values
    return made


def _page_ref(ref: str) -> str:
    head, _, name = ref.rpartition("/")
    return f"{head}/{_page_name(name)}"


def _page_name(name: str) -> str:
    return re.sub(r"^Page[\[_](\w+?)[\]_]$", r"\1Page", name)


def _name(kind: Any) -> str:
    if get_origin(kind) is Page:
        return f"{get_args(kind)[0].__name__}Page"
    return str(kind.__name__)


def _structs(kinds: Iterable[Any]) -> Iterator[Any]:
    """Yield the records in types such as `Limit | None` or `list[Limit]`."""
    for kind in kinds:
        origin = get_origin(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield kind
        elif origin is Page:
            yield kind
            yield from _structs(get_args(kind))
        elif origin is Annotated:
            yield from _structs(get_args(kind)[:1])
        elif origin is not None:
            yield from _structs(get_args(kind))


def _all_structs(kinds: Iterable[Any]) -> list[Any]:
    """Return the records, and those that their fields refer to."""
    found: list[Any] = []
    queue = list(kinds)
    while queue:
        kind = queue.pop()
        if kind in found:
            continue
        found.append(kind)
        struct = get_origin(kind) or kind
        hints = msgspec.structs.fields(struct)
        queue += list(_structs(field.type for field in hints if get_origin(kind) is not Page))
    return found


def _unique(kinds: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(kinds))


def _reachable(schemas: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """Return the names of schemas that these refer to, themselves included."""
    found: set[str] = set()
    queue = [name for name in names if name in schemas]
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += [one for one in _refs(schemas[name]) if one in schemas]
    return found


def _refs(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from _refs(value)
    elif isinstance(schema, list):
        for one in schema:
            yield from _refs(one)
