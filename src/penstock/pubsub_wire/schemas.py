"""The service `google.pubsub.v1.SchemaService`: schemas, their revisions, and validation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from google.protobuf import empty_pb2
from google.pubsub_v1 import types

from penstock.access.api_keys import Permission
from penstock.bus.records import Schema
from penstock.bus.schemas.definitions import check_definition, mismatch
from penstock.core.errors import InvalidInput
from penstock.pubsub_wire.calls import WireCaller
from penstock.pubsub_wire.errors import unsupported
from penstock.pubsub_wire.handlers import Method, Unary
from penstock.pubsub_wire.messages import SchemaPb, schema_pb
from penstock.pubsub_wire.names import ResourceName, parse_name, parse_project, split_revision
from penstock.pubsub_wire.pages import Listing

SERVICE: Final = "google.pubsub.v1.SchemaService"
FULL: Final = 2
_KINDS: Final[Mapping[int, Any]] = {1: "protobuf", 2: "avro"}
ListResponse: Any = types.ListSchemasResponse.pb()
RevisionsResponse: Any = types.ListSchemaRevisionsResponse.pb()
ValidateSchemaResponse: Any = types.ValidateSchemaResponse.pb()
ValidateMessageResponse: Any = types.ValidateMessageResponse.pb()


def _name(text: str, field: str = "name") -> tuple[ResourceName, str | None]:
    project, name = parse_name(text, "schemas", field)
    plain, revision_id = split_revision(name)
    return ResourceName(project, plain), revision_id


def _schema(pb: Any, name: str, field: str = "schema") -> Schema:
    kind = _KINDS.get(pb.type_)
    if kind is None:
        raise InvalidInput(f"{field}.type", "PROTOCOL_BUFFER or AVRO", pb.type_)
    return Schema(name=name, definition=pb.definition, kind=kind)


def create_schema(caller: WireCaller, pb: Any) -> Any:
    """Create a schema."""
    project = parse_project(pb.parent, "parent")
    if not pb.schema_id:
        raise InvalidInput("schema_id", "the name of the schema", pb.schema_id)
    wanted = _schema(pb.schema, pb.schema_id)
    made = caller.client.schemas.create(wanted, customer=caller.customer(project))
    return schema_pb(made, project)


def commit_schema(caller: WireCaller, pb: Any) -> Any:
    """Add a revision to a schema."""
    (project, name), _ = _name(pb.name)
    wanted = _schema(pb.schema, name)
    made = caller.client.schemas.commit(wanted, customer=caller.customer(project))
    return schema_pb(made, project)


def rollback_schema(caller: WireCaller, pb: Any) -> Any:
    """Add a revision that repeats an earlier one."""
    (project, name), _ = _name(pb.name)
    customer = caller.customer(project)
    made = caller.client.schemas.rollback(name, pb.revision_id, customer=customer)
    return schema_pb(made, project)


def get_schema(caller: WireCaller, pb: Any) -> Any:
    """Return a revision of a schema."""
    (project, name), revision_id = _name(pb.name)
    found = caller.client.schemas.get(
        name, revision_id=revision_id, customer=caller.customer(project)
    )
    return schema_pb(found, project, is_full=pb.view in {0, FULL})


def list_schemas(caller: WireCaller, pb: Any) -> Any:
    """List the schemas of a project."""
    project = parse_project(pb.parent, "parent")
    return _listing(ListResponse, pb, project).of_project(
        caller, project, pb, caller.client.schemas.list
    )


def _listing(response: Any, pb: Any, project: str) -> Listing:
    return Listing(
        response, "schemas", lambda one: schema_pb(one, project, is_full=pb.view == FULL)
    )


def list_schema_revisions(caller: WireCaller, pb: Any) -> Any:
    """List the revisions of a schema, newest first."""
    (project, name), _ = _name(pb.name)
    customer = caller.customer(project)
    revisions = partial(caller.client.schemas.revisions, name)
    return _listing(RevisionsResponse, pb, project).page(pb, revisions, customer=customer)


def delete_schema_revision(caller: WireCaller, pb: Any) -> Any:
    """Delete a revision of a schema; return the schema."""
    (project, name), revision_id = _name(pb.name)
    revision_id = revision_id or pb.revision_id or None
    if revision_id is None:
        raise InvalidInput("name", "projects/PROJECT/schemas/NAME@REVISION", pb.name)
    customer = caller.customer(project)
    caller.client.schemas.delete(name, revision_id=revision_id, customer=customer)
    return schema_pb(caller.client.schemas.get(name, customer=customer), project)


def delete_schema(caller: WireCaller, pb: Any) -> Any:
    """Delete a schema."""
    (project, name), _ = _name(pb.name)
    caller.client.schemas.delete(name, customer=caller.customer(project))
    return empty_pb2.Empty()


def validate_schema(caller: WireCaller, pb: Any) -> Any:
    """Raise InvalidInput unless a definition is valid."""
    caller.customer(parse_project(pb.parent, "parent"))
    wanted = _schema(pb.schema, "schema")
    check_definition(wanted.kind, wanted.definition, "schema.definition")
    return ValidateSchemaResponse()


def validate_message(caller: WireCaller, pb: Any) -> Any:
    """Raise InvalidInput unless a message matches a schema."""
    project = parse_project(pb.parent, "parent")
    if pb.encoding not in {1, 2}:
        raise InvalidInput("encoding", "JSON or BINARY", pb.encoding)
    if pb.name:
        (owner, name), revision_id = _name(pb.name)
        found: Schema = caller.client.schemas.get(
            name, revision_id=revision_id, customer=caller.customer(owner)
        )
    else:
        caller.customer(project)
        found = _schema(pb.schema, "schema")
        check_definition(found.kind, found.definition, "schema.definition")
    if found.kind != "avro":
        raise unsupported("schema.type", "Messages can be validated against Avro only.")
    encoding = "binary" if pb.encoding == 2 else "json"
    wrong = mismatch(found.kind, found.definition, pb.message, encoding)
    if wrong is not None:
        raise InvalidInput("message", f"data that matches the schema: {wrong}", pb.message)
    return ValidateMessageResponse()


METHODS: Final[Mapping[str, Method]] = {
    "CreateSchema": Unary(
        types.CreateSchemaRequest.pb(), SchemaPb, Permission.OPERATE, create_schema
    ),
    "CommitSchema": Unary(
        types.CommitSchemaRequest.pb(), SchemaPb, Permission.OPERATE, commit_schema
    ),
    "RollbackSchema": Unary(
        types.RollbackSchemaRequest.pb(), SchemaPb, Permission.OPERATE, rollback_schema
    ),
    "GetSchema": Unary(types.GetSchemaRequest.pb(), SchemaPb, Permission.READ, get_schema),
    "ListSchemas": Unary(
        types.ListSchemasRequest.pb(), ListResponse, Permission.READ, list_schemas
    ),
    "ListSchemaRevisions": Unary(
        types.ListSchemaRevisionsRequest.pb(),
        RevisionsResponse,
        Permission.READ,
        list_schema_revisions,
    ),
    "DeleteSchemaRevision": Unary(
        types.DeleteSchemaRevisionRequest.pb(),
        SchemaPb,
        Permission.OPERATE,
        delete_schema_revision,
    ),
    "DeleteSchema": Unary(
        types.DeleteSchemaRequest.pb(), empty_pb2.Empty, Permission.OPERATE, delete_schema
    ),
    "ValidateSchema": Unary(
        types.ValidateSchemaRequest.pb(), ValidateSchemaResponse, Permission.READ, validate_schema
    ),
    "ValidateMessage": Unary(
        types.ValidateMessageRequest.pb(),
        ValidateMessageResponse,
        Permission.READ,
        validate_message,
    ),
}
