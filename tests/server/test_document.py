"""The OpenAPI document is correct and complete: names, descriptions, types and examples."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.access.api_keys import Permission
from penstock.assembly import api_reference
from penstock.assembly.routes import ROUTES as API
from penstock.core.records.validation import convert_input
from penstock.server.openapi.document import describe
from penstock.server.openapi.problems import MEDIA_TYPE
from penstock.server.routing.declare import ApiRoute
from tests.server.access_table import PUBLIC, ROUTES, TOKEN_AUTHENTICATED

DOCS = Path(__file__).parents[2] / "docs" / "reference"
HOW = "run: python -m penstock.assembly.api_reference docs/reference"
DOCUMENT: dict[str, Any] = describe(API)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}


def bodies(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the models of a request body by media type."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        for part in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
            if "$ref" in part:
                yield kind, SCHEMAS[part["$ref"].rpartition("/")[2]]


def references(value: Any) -> Iterator[str]:
    """Yield every reference in the document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def test_it_lists_exactly_the_routes() -> None:
    """The document lists exactly the routes that are served."""
    undocumented = ("/openapi.json", "/.well-known/")  # documents that describe themselves
    public = {f"GET {path}" for path in PUBLIC if not path.startswith(undocumented)}
    assert set(OPERATIONS) == set(ROUTES) | public | TOKEN_AUTHENTICATED


def test_operation_ids_are_unique_names() -> None:
    """Operation ids are unique names that do not contain the path."""
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", name) for name in ids)
    assert not [name for name in ids if "api_v1" in name or name.endswith(("_get", "_post"))]


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    """Each operation has descriptions of itself and its parameters, and a response type."""
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert operation["description"].endswith((".", ")")), operation["description"]
    assert operation["tags"]
    for parameter in operation.get("parameters", ()):
        assert parameter.get("description"), parameter["name"]
    good = [status for status in operation["responses"] if status.startswith("2")]
    assert len(good) == 1, good
    if good != ["204"]:
        (content,) = operation["responses"][good[0]]["content"].values()
        assert content["schema"], name
    method, _, path = name.partition(" ")
    if path in PUBLIC:
        assert operation["security"] == []
        return
    if name in TOKEN_AUTHENTICATED:
        assert operation["security"] == [{"oidc": []}]
        assert {"400", "401", "403", "413", "503"} <= set(operation["responses"])
        return
    assert {"key": []} in operation["security"]
    assert operation["x-power"] == ROUTES[name].value
    wanted = {"400", "401", "403", "404", "429", "503"}
    wanted |= {"409", "413", "415", "422"} if method == "POST" else set()
    assert wanted <= set(operation["responses"])
    for status, response in operation["responses"].items():
        assert response["description"]
        if int(status) >= 400:
            assert response["content"][MEDIA_TYPE]["schema"] == {
                "$ref": "#/components/schemas/Problem"
            }


@pytest.mark.parametrize("name", [n for n in OPERATIONS if "requestBody" in OPERATIONS[n]])
def test_bodies_have_examples(name: str) -> None:
    """Each request body has an example."""
    found = dict(bodies(OPERATIONS[name]))
    assert found
    for schema in found.values():
        assert schema["examples"], schema["title"]


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n.startswith("POST")])
def test_posts_take_an_idempotency_key(name: str) -> None:
    """Each POST accepts an Idempotency-Key."""
    headers = [p["name"] for p in OPERATIONS[name]["parameters"] if p["in"] == "header"]
    # A push has the message's own id, which serves the same purpose.
    is_read = ROUTES.get(name) in (Permission.READ, Permission.READ_RUNS)
    assert is_read or ("Idempotency-Key" in headers) is (name not in TOKEN_AUTHENTICATED)


@pytest.mark.parametrize("route", [route for route in API.all if route.example is not None])
def test_examples_are_records(route: ApiRoute) -> None:
    """Each example is valid as the record of its route."""
    in_path = dict.fromkeys(route.binding.path_fields, "x")
    convert_input({**in_path, **(route.example or {})}, route.binding.body_type)


@pytest.mark.parametrize("name", SCHEMAS)
def test_fields(name: str) -> None:
    """Every model and field has a description, and unknown fields are forbidden."""
    schema = SCHEMAS[name]
    assert schema.get("description"), name
    bare = [field for field, part in schema["properties"].items() if not part.get("description")]
    assert bare == []
    assert name == "Problem" or schema["additionalProperties"] is False


def test_references_resolve() -> None:
    """All references resolve, and every model is used."""
    used = set(references(DOCUMENT))
    assert used == {f"#/components/schemas/{name}" for name in SCHEMAS}


@pytest.mark.parametrize("name", ["openapi.json", "api.md"])
def test_up_to_date(name: str) -> None:
    """The committed document and page are up to date."""
    assert (DOCS / name).read_text("utf-8") == api_reference.pages()[name], HOW


def test_writing(tmp_path: Path) -> None:
    """The module writes both files, and the document is JSON."""
    api_reference.main(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"openapi.json", "api.md"}
    assert json.loads((tmp_path / "openapi.json").read_text("utf-8")) == DOCUMENT
