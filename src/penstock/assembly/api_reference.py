"""The API's reference, written from the code: the OpenAPI document and a page for people.

    python -m penstock.http.reference docs/reference

writes both; a test compares them with what this module would write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.access.api_keys import Power, Role
from penstock.assembly.routes import ROUTES
from penstock.core.errors import (
    ApiError,
    PenstockError,
    ProcessorError,
    RunInterrupted,
    SettingsError,
)
from penstock.server.app import outline
from penstock.server.openapi.document import TAGS, describe
from penstock.server.problems import CODES

NOTE = "Written by `python -m penstock.assembly.api_reference docs/reference`; do not edit."
MEANINGS: Mapping[str, str] = {
    "auth.required": "No key, an unknown one, an expired or a revoked one.",
    "auth.forbidden": "The key's role does not allow this.",
    "input.invalid": "A value cannot be used; `errors` names the field.",
    "internal": "Something went wrong inside; it was logged under `request_id`.",
    "draining": "The process is stopping; another replica answers.",
    "method.not_allowed": "This path does not know this method.",
    "not_found": "There is no such thing, or not for this key.",
    "overloaded": "Too many requests are being served; see Retry-After.",
    "rate.exceeded": "This key makes too many requests; see Retry-After.",
    "request.media_type": "The body is not plain JSON.",
    "request.timeout": "The body took too long to arrive.",
    "request.too_large": "The body is larger than this server takes.",
}
"""What codes mean that the edge itself gives; the others say it in their error's docstring."""

_INSIDE = (SettingsError, ProcessorError, RunInterrupted, ApiError)
_STATUSES = {"internal": 500, "draining": 503, "store.schema_mismatch": 503}


def pages() -> dict[str, str]:
    """File name → text."""
    document = describe(outline(ROUTES), ROUTES.models)
    return {
        "openapi.json": json.dumps(document, indent=1, ensure_ascii=False) + "\n",
        "api.md": "\n".join(_page(document)) + "\n",
    }


def main(folder: str) -> None:
    """Write both files."""
    for name, text in pages().items():
        Path(folder, name).write_text(text, "utf-8")


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    yield from ("# The HTTP API", "", NOTE, "", document["info"]["description"], "")
    yield "[The document](openapi.json) is for programs; [use the API](../how-to/use-the-api.md)"
    yield "shows how it goes together. Bodies and answers are JSON in UTF-8, times ISO 8601 in UTC;"
    yield "long lists come in pages."
    for tag, meaning in TAGS.items():
        yield from ("", f"## {tag.capitalize()}", "", meaning)
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if operation["tags"] == [tag]:
                    yield from _operation(method, path, operation)
    yield from ("", "## Problems", "", "Errors are problem documents (RFC 9457,")
    yield "`application/problem+json`). `code` is stable, `detail` is for people."
    yield from ("", "| code | status | meaning |", "| --- | --- | --- |")
    for code, (status, meaning) in sorted(_codes().items()):
        yield f"| `{code}` | {status} | {meaning} |"
    yield from ("", "## Shapes")
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from ("", f"### {name}", "", schema["description"], "")
        yield from _fields(schema)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"### {operation['operationId']}", "", f"`{method.upper()} {path}`", "")
    yield operation["description"]
    yield from ("", f"Role: {_roles(operation)}.", *_exchange(operation))
    parameters = operation.get("parameters", ())
    if parameters:
        yield from ("", "| parameter | in | what it says |", "| --- | --- | --- |")
    for one in parameters:
        schema = one["schema"]
        default = schema.get("default")
        more = "" if default is None else f" Default `{json.dumps(default)}`."
        words = _cell(f"{one['description']}{_choice(schema)}{more}")
        yield f"| `{one['name']}` | {one['in']} | {words} |"


def _exchange(operation: Mapping[str, Any]) -> Iterator[str]:
    """What goes in and what comes out."""
    content = operation.get("requestBody", {}).get("content", {})
    for kind, body in content.items():
        extra = "" if kind == "application/json" else f" as `{kind}`"
        yield f"Body{extra}: {_kind(body['schema'])}."
    for status, answered in operation["responses"].items():
        if status.startswith("2"):
            shapes = [_kind(c["schema"]) for c in answered.get("content", {}).values()]
            yield f"Answer: {status}{', ' + shapes[0] if shapes else ''}."


def _roles(operation: Mapping[str, Any]) -> str:
    if "x-power" not in operation:
        return "none, it is public"
    power = Power(operation["x-power"])
    return ", ".join(role.value for role in Role if role.may(power))


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| field | type | what it says |", "| --- | --- | --- |")
    needed = schema.get("required", ())
    for name, part in schema["properties"].items():
        optional = "" if name in needed else " (optional)"
        words = _cell(f"{part['description']}{_choice(part)}")
        yield f"| `{name}` | {_cell(_kind(part))}{optional} | {words} |"


def _kind(schema: Mapping[str, Any]) -> str:
    """A type in a few words, with links to shapes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = dict.fromkeys(_kind(part) for part in schema["anyOf"])
        return " or ".join(kinds)
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return "time" if schema.get("format") == "date-time" else str(kind)


def _choice(schema: Mapping[str, Any]) -> str:
    parts: Sequence[Mapping[str, Any]] = [schema, *schema.get("anyOf", ())]
    found = [value for part in parts for value in part.get("enum", ())]
    return f" One of {', '.join(f'`{value}`' for value in found)}." if found else ""


def _codes() -> dict[str, tuple[int, str]]:
    """Code → (status, meaning), of everything a caller may see."""
    found = {code: (status, MEANINGS[code]) for status, code in CODES.items()}
    waiting: list[type[PenstockError]] = [PenstockError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ != PenstockError.__module__ or issubclass(kind, _INSIDE):
            continue
        waiting += kind.__subclasses__()
        words = " ".join((kind.__doc__ or "").split())
        found.setdefault(kind.code, (kind.http_status, words))
    for code, status in _STATUSES.items():
        found[code] = (status, MEANINGS.get(code) or found[code][1])
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main(sys.argv[1])
