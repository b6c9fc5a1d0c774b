"""Schemas through Google's client: revisions, validation, and topics that require them."""

from __future__ import annotations

import json

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import types

from tests.pubsub_wire.kit import PROJECT, Wire, subscription, topic

PARENT = f"projects/{PROJECT}"
NAME = f"{PARENT}/schemas/order"
AVRO, PROTO = types.Schema.Type.AVRO, types.Schema.Type.PROTOCOL_BUFFER
FIRST = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
)
SECOND = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
    }
)


def schema(definition: str = FIRST, kind: int = AVRO) -> types.Schema:
    """Return a schema."""
    return types.Schema(name=NAME, type_=kind, definition=definition)


def test_revisions(wire: Wire) -> None:
    """A schema is created, committed to, rolled back and deleted by revision."""
    client = wire.schemas()
    first = client.create_schema(parent=PARENT, schema=schema(), schema_id="order")
    assert (first.name, first.definition, first.type_) == (NAME, FIRST, AVRO)
    with pytest.raises(exceptions.AlreadyExists):
        client.create_schema(parent=PARENT, schema=schema(), schema_id="order")
    second = client.commit_schema(name=NAME, schema=schema(SECOND))
    assert client.get_schema(name=NAME).revision_id == second.revision_id
    assert client.get_schema(name=f"{NAME}@{first.revision_id}").definition == FIRST
    third = client.rollback_schema(name=NAME, revision_id=first.revision_id)
    assert third.definition == FIRST
    found = list(client.list_schema_revisions(request={"name": NAME, "page_size": 2}))
    assert [one.revision_id for one in found] == [
        third.revision_id, second.revision_id, first.revision_id,
    ]  # fmt: skip
    client.delete_schema_revision(request={"name": f"{NAME}@{second.revision_id}"})
    assert len(list(client.list_schema_revisions(name=NAME))) == 2
    assert [one.name for one in client.list_schemas(parent=PARENT)] == [NAME]
    client.delete_schema(name=NAME)
    with pytest.raises(exceptions.NotFound):
        client.get_schema(name=NAME)


def test_validation(wire: Wire) -> None:
    """Definitions and messages are checked; Protobuf messages cannot be."""
    client = wire.schemas()
    client.validate_schema(parent=PARENT, schema=schema())
    with pytest.raises(exceptions.InvalidArgument):
        client.validate_schema(parent=PARENT, schema=schema('{"type": "record"}'))
    message = {"parent": PARENT, "schema": schema(), "encoding": types.Encoding.JSON}
    client.validate_message({**message, "message": b'{"id": "a"}'})
    with pytest.raises(exceptions.InvalidArgument, match="id"):
        client.validate_message({**message, "message": b'{"id": 1}'})
    text = 'syntax = "proto3"; message Order { string id = 1; }'
    client.validate_schema(parent=PARENT, schema=schema("\n" + text.replace("; m", ";\nm"), PROTO))
    proto = schema("message Order { string id = 1; }", PROTO)
    with pytest.raises(exceptions.MethodNotImplemented):
        client.validate_message({**message, "schema": proto, "message": b"x"})


def test_a_topic_with_a_schema_refuses_other_messages(wire: Wire) -> None:
    """Accepted messages name the schema and its revision; any allowed revision will do."""
    client, publisher, subscriber = wire.schemas(), wire.publisher(), wire.subscriber()
    with pytest.raises(exceptions.NotFound):
        publisher.create_topic(types.Topic(name=topic(), schema_settings={"schema": NAME}))
    made = client.create_schema(parent=PARENT, schema=schema(), schema_id="order")
    settings = {"schema": NAME, "encoding": types.Encoding.JSON}
    publisher.create_topic(types.Topic(name=topic(), schema_settings=settings))
    assert publisher.get_topic(topic=topic()).schema_settings.schema == NAME
    subscriber.create_subscription(name=subscription(), topic=topic())
    with pytest.raises(exceptions.InvalidArgument):
        publisher.publish(topic(), b"no json").result(10)
    publisher.publish(topic(), b'{"id": "a"}').result(10)
    (got,) = subscriber.pull(subscription=subscription(), max_messages=5).received_messages
    assert dict(got.message.attributes) == {
        "googclient_schemaencoding": "JSON",
        "googclient_schemaname": "order",
        "googclient_schemarevisionid": made.revision_id,
    }
    client.commit_schema(name=NAME, schema=schema(SECOND))
    publisher.publish(topic(), b'{"id": "a", "n": {"int": 1}}').result(10)
    publisher.publish(topic(), b'{"id": "a"}').result(10)
    client.delete_schema(name=NAME)
    with pytest.raises(exceptions.FailedPrecondition):
        publisher.publish(topic(), b'{"id": "a"}').result(10)
