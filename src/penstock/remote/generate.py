"""Writes `penstock/remote/api/` and `shapes/`: the API's operations and shapes as typed Python.

    python -m penstock.remote.generate docs/reference/openapi.json

Two modules per tag: a class with a method for each operation, and a TypedDict for each shape that
the tag is the first to use. A development tool: ruff formats what it writes, a test compares it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
NOTE: Final = (
    "Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit."
)
LEFT_OUT: Final = frozenset({"If-None-Match", "X-Worker-Id"})
"""Headers: this client keeps no answers to compare, and bodies say who the worker is."""

NDJSON: Final = "application/x-ndjson"
FLAT_MAX: Final = 3
"""More query parameters than these are gathered in a TypedDict."""

_PLAIN: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict[str, Any]",
}
Document = Mapping[str, Any]


def modules(document: Document) -> dict[str, str]:
    """File name → text, formatted."""
    tags = {tag["name"]: _Tag(tag["name"], tag["description"]) for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags[operation["tags"][0]].operations.append((method, path, operation))
    homes: dict[str, str] = {}
    for tag in tags.values():
        for name in tag.shapes(document):
            homes.setdefault(name, tag.name)
    made = {
        "api/__init__.py": _index(list(tags.values())),
        "shapes/__init__.py": f'"""The API\'s shapes, by subject.\n\n{NOTE}\n"""\n',
    }
    for tag in tags.values():
        made[f"api/{tag.name}.py"] = tag.operations_text(document, homes)
        shapes = tag.shapes_text(document, homes)
        if shapes is not None:
            made[f"shapes/{tag.name}.py"] = shapes
    return _formatted(made)


def main(document: str) -> None:
    """Write the modules."""
    for name, text in modules(json.loads(Path(document).read_text("utf-8"))).items():
        Path(FOLDER, name).parent.mkdir(exist_ok=True)
        Path(FOLDER, name).write_text(text, "utf-8")


class _Tag:
    """One module: a tag's operations and the shapes it is the first to use."""

    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.meaning = meaning
        self.operations: list[tuple[str, str, Mapping[str, Any]]] = []
        self._queries: dict[str, str] = {}

    @property
    def kind(self) -> str:
        """The class's name."""
        return f"{self.name.capitalize()}Api"

    def shapes(self, document: Document) -> list[str]:
        """Shapes its operations speak of, those they consist of first."""
        found: dict[str, None] = {}

        def visit(value: Any) -> None:
            for name in _references(value):
                if name not in found and name != "Problem":
                    visit(document["components"]["schemas"][name])
                    found[name] = None

        for _, _, operation in self.operations:
            visit([operation.get("requestBody"), _success(operation)[1]])
        return list(found)

    def operations_text(self, document: Document, homes: Mapping[str, str]) -> str:
        """The module of its class."""
        lines = [f"class {self.kind}:", f'    """{self.meaning}"""', ""]
        lines += ["    def __init__(self, transport: Transport) -> None:",
                  "        self._transport = transport", ""]  # fmt: skip
        lines += [line for one in self.operations for line in self._method(*one)]
        body = "\n".join(lines)
        used = {name: homes[name] for name in self.shapes(document)}
        used |= dict.fromkeys(self._query_shapes, self.name)
        quoted = ", quoted" if "quoted(" in body else ""
        return self._module(body, used, f"from penstock.remote.transport import Transport{quoted}")

    def shapes_text(self, document: Document, homes: Mapping[str, str]) -> str | None:
        """The module of the shapes that are its own, if it has any; after the operations'."""
        schemas = document["components"]["schemas"]
        own = [name for name in self.shapes(document) if homes[name] == self.name]
        lines = [line for name in own for line in _shape(name, schemas[name])]
        for name, fields in self._query_shapes.items():
            lines += [f"class {name}(TypedDict, total=False):", *fields, "", ""]
        used = {name: homes[name] for name in self.shapes(document) if homes[name] != self.name}
        return self._module("\n".join(lines), used) if lines else None

    def _module(self, body: str, used: Mapping[str, str], *imports: str) -> str:
        """A module around its body, importing what the body names."""
        head = [f'"""{self.meaning}', "", NOTE, '"""', "", "from __future__ import annotations", ""]
        known = ("Any", "Literal", "NotRequired", "TypedDict", "Unpack", "cast")
        names = [name for name in known if _is_named(name, body)]
        head += [f"from typing import {', '.join(names)}", ""] if names else []
        for home in sorted(set(used.values())):
            wanted = [n for n in sorted(used) if used[n] == home and _is_named(n, body)]
            if wanted:
                head.append(f"from penstock.remote.shapes.{home} import {', '.join(wanted)}")
        return "\n".join([*head, *imports, "", "", body]) + "\n"

    @property
    def _query_shapes(self) -> dict[str, list[str]]:
        return {name: json.loads(lines) for lines, name in self._queries.items()}

    def _method(self, method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
        """The lines of one operation."""
        given = [p for p in operation.get("parameters", ()) if p["name"] not in LEFT_OUT]
        queries = [p for p in given if p["in"] == "query"]
        headers = [p for p in given if p["in"] == "header"]
        is_gathered = len(queries) > FLAT_MAX
        arguments = ["self", *(f"{p['name']}: str" for p in given if p["in"] == "path")]
        body = operation.get("requestBody")
        if body is not None:
            kind = _kind(body["content"]["application/json"]["schema"])
            arguments.append(f"body: {kind}" + (" = None" if "None" in kind else ""))
        flat = ([] if is_gathered else queries) + headers
        if flat:
            arguments.append("*")
            arguments += [f"{_name(p)}: {_optional(p)} = None" for p in flat]
        if is_gathered:
            arguments.append(f"**query: Unpack[{self._query(operation, queries)}]")
        sent = [f'"{method.upper()}"', _target(path)]
        if is_gathered:
            sent.append("query=query")
        elif queries:
            sent.append(f"query={{{', '.join(_pair(p) for p in queries)}}}")
        if body is not None:
            sent.append("body=body")
        if headers:
            sent.append(f"headers={{{', '.join(_pair(p) for p in headers)}}}")
        call, kind = _success(operation)[0], _answer_kind(operation)
        yield f"    def {operation['operationId']}({', '.join(arguments)}) -> {kind}:"
        yield from _docstring(operation["description"], f"`{method.upper()} {path}`", flat)
        line = f"self._transport.{call}({', '.join(sent)})"
        if kind == "None":
            yield f"        {line}"
        elif call == "text":
            yield f"        return {line}"
        else:
            yield f"        told = {line}"
            yield f'        return cast("{kind}", told)'
        yield ""

    def _query(self, operation: Mapping[str, Any], queries: list[Any]) -> str:
        """The name of the TypedDict of a set of parameters; the same set has one name."""
        words = f"Which part of the list, and how it is narrowed ({operation['operationId']})."
        lines = [line for p in queries for line in _field(_name(p), _optional(p), p["description"])]
        key = json.dumps([f'    """{words}"""', "", *lines])
        for known, name in self._queries.items():
            if json.loads(known)[2:] == lines:
                return name
        name = "".join(part.capitalize() for part in operation["operationId"].split("_"))
        return self._queries.setdefault(key, f"{name}Query")


def _index(tags: list[_Tag]) -> str:
    lines = [
        '"""The API by subject.',
        "",
        NOTE,
        '"""',
        "",
        "from __future__ import annotations",
        "",
    ]
    lines += [f"from penstock.remote.api.{tag.name} import {tag.kind}" for tag in tags]
    lines += ["from penstock.remote.transport import Transport", "", '__all__ = ["Api"]', "", ""]
    lines += ["class Api:", '    """Every operation, by subject."""', ""]
    lines += ["    def __init__(self, transport: Transport) -> None:"]
    lines += ["        self.transport = transport"]
    lines += [f"        self.{tag.name} = {tag.kind}(transport)" for tag in tags]
    return "\n".join(lines) + "\n"


def _shape(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """A shape as a TypedDict."""
    yield from (f"class {name}(TypedDict):", f'    """{schema["description"]}"""', "")
    needed = schema.get("required", ())
    for field, part in schema["properties"].items():
        kind = _kind(part)
        yield from _field(
            field, kind if field in needed else f"NotRequired[{kind}]", part["description"]
        )
    yield from ("", "")


def _field(name: str, kind: str, meaning: str) -> Iterator[str]:
    """A field with its meaning beside it, or above when that would be too long."""
    line, words = f"    {name}: {kind}", " ".join(meaning.split())
    if len(line) + len(words) + 4 > 100:
        yield from (f"    # {words}"[:100].rstrip(), line)
    else:
        yield f"{line}  # {words}"


def _docstring(text: str, where: str, flat: list[Any]) -> Iterator[str]:
    first, *rest = text.strip().split("\n")
    yield f'        """{first}'
    yield from (f"        {line}".rstrip() for line in rest)
    yield from ("", f"        {where}")
    if flat:
        yield ""
    for one in flat:
        words = " ".join(one["description"].split()).partition(": ")[0].rstrip(".")
        yield f"        {_name(one)}: {words}."
    yield '        """'


def _success(operation: Mapping[str, Any]) -> tuple[str, Any]:
    """(how the transport reads the good answer, its schema)."""
    for status, answered in operation["responses"].items():
        if status.startswith("2"):
            for kind, content in answered.get("content", {}).items():
                ways = {NDJSON: "lines", "text/plain": "text"}
                return ways.get(kind, "call"), content["schema"]
            return "call", None
    raise AssertionError(operation["operationId"])


def _answer_kind(operation: Mapping[str, Any]) -> str:
    call, schema = _success(operation)
    if schema is None:
        return "None"
    return f"list[{_kind(schema)}]" if call == "lines" else _kind(schema)


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema as a Python type."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    if "anyOf" in schema:
        kinds = list(dict.fromkeys(_kind(part) for part in schema["anyOf"]))
        return "Any" if "Any" in kinds else " | ".join(kinds)
    if schema.get("type") == "array":
        return f"list[{_kind(schema['items'])}]"
    inner = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(inner, dict):
        return f"dict[str, {_kind(inner)}]"
    return _PLAIN[schema["type"]] if "type" in schema else "Any"


def _optional(parameter: Mapping[str, Any]) -> str:
    kind = _kind(parameter["schema"])
    return kind if kind.endswith("None") else f"{kind} | None"


def _name(parameter: Mapping[str, Any]) -> str:
    return str(parameter["name"].lower().replace("-", "_"))


def _pair(parameter: Mapping[str, Any]) -> str:
    return f'"{parameter["name"]}": {_name(parameter)}'


def _target(path: str) -> str:
    return f'f"{path.replace("{", "{quoted(").replace("}", ")}")}"' if "{" in path else f'"{path}"'


def _is_named(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", re.sub(r"#.*|\"{3}.*?\"{3}", "", text)) is not None


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


def _formatted(texts: Mapping[str, str]) -> dict[str, str]:
    """The modules as ruff would write them."""
    ruff = [sys.executable, "-m", "ruff"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).parent.mkdir(exist_ok=True)
            Path(folder, name).write_text(text, "utf-8")
        for command in (["check", "--select", "I", "--fix-only"], ["format"]):
            options = ["--quiet", "--isolated", "--line-length", "100", folder]
            subprocess.run([*ruff, *command, *options], check=True)
        return {name: Path(folder, name).read_text("utf-8") for name in texts}


if __name__ == "__main__":
    main(sys.argv[1])
