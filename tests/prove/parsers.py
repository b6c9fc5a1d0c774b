"""Every parser of foreign input: what it takes, examples to start from, and how it may refuse.

A parser either returns or raises one of its declared errors, within `SECONDS_MAX`; any other
exception would be a 500, a crashed process or a poisoned loop. Examples are valid input: mutations
of them reach further into a parser than random text does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from penstock.access import api_keys, run_credentials
from penstock.alerts.declared import parse_alerts
from penstock.assembly import settings
from penstock.bus import ack_id, envelope, filters
from penstock.bus.binding import parse_binding, parse_message_object
from penstock.bus.incoming.inbound_push import parse_incoming
from penstock.bus.message import NewMessage
from penstock.bus.push import webhook
from penstock.bus.push.push_config import parse_push, retry_after
from penstock.bus.records import Subscription, Topic
from penstock.bus.replay_policy import parse_auto_replay
from penstock.bus.rules import check_outgoing
from penstock.bus.schemas import avro, definitions
from penstock.bus.transports.bridges import parse_bridges
from penstock.bus.transports.nats import naming
from penstock.bus.transports.nats.headers import read_headers
from penstock.bus.transports.nats.options import parse_nats_url
from penstock.bus.transports.pubsub import tickets
from penstock.bus.transports.pubsub.options import parse_pubsub_url
from penstock.cli.arguments import parse_pairs, parse_time_of_day, parse_when, read_records
from penstock.core import cursor, ids
from penstock.core.clock import SECOND, parse_duration, parse_iso
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.json_profile import parse_json
from penstock.core.naming import SubscriptionKey
from penstock.core.records.validation import convert_input
from penstock.core.redact import reject_literal_secrets
from penstock.core.tracing.trace_context import parse_traceparent
from penstock.core.utc_offsets import check_timezone
from penstock.db.postgres_url import parse_postgres_url
from penstock.egress import keyset, oidc
from penstock.egress.addresses import parse_named_addresses
from penstock.egress.policy import check_address, parse_target
from penstock.entities.report import split_result
from penstock.flows.explain.entity import parse_entity
from penstock.flows.gates.override import parse_override_duration
from penstock.limits.rules import parse_limit_settings
from penstock.pipelines import parameters
from penstock.pipelines.declare.declaration_options import (
    parse_phase_options,
    parse_pipeline_options,
    parse_processor_options,
)
from penstock.pipelines.declare.endpoint import parse_endpoint
from penstock.pipelines.partition import DAY_RULE, check_partition
from penstock.probes.protocol import ProbeFailed
from penstock.probes.timestamps import parse_timestamp
from penstock.pubsub_wire.names import parse_name, parse_project
from penstock.runs.records import Submission
from penstock.schedules import cadence
from penstock.schedules.config_input import parse_config_input
from penstock.schedules.event_mapping import parse_event_mapping
from penstock.slos.declared import parse_slos
from penstock.telemetry.declared import parse_telemetry
from penstock.web.live.stream import parse_position
from penstock.web.live.topics import parse_topics
from penstock.web.login.identity import parse_identity
from penstock.web.security import previewed

SECONDS_MAX: Final = 2.0
NOW: Final = 1_763_337_600 * SECOND
KEY: Final = b"k" * 32
QUESTION: Final = {"list": "runs", "customer": "acme"}
GRANT: Final = run_credentials.RunGrant(
    run_id=1, token=2, customer_id="acme", expires_at=NOW + SECOND
)
REFUSES: Final = (InvalidInput,)

Kind = Literal["text", "bytes", "value"]


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser, the kind of its input, valid examples and the errors that it declares."""

    call: Callable[[Any], object]
    kind: Kind
    examples: tuple[Any, ...]
    errors: tuple[type[Exception], ...] = REFUSES


def _cron(text: str) -> object:
    return cadence.next_after(cadence.cron(text, "Europe/Berlin"), NOW)


def _timed(text: str) -> object:
    return parse_time_of_day(text, "Europe/Berlin", NOW)


def _signed(headers: Mapping[str, Any]) -> object:
    texts = {str(name): str(value) for name, value in headers.items()}
    return webhook.verify([KEY], texts, b"{}", NOW)


def _unwrapped(headers: Mapping[str, Any]) -> object:
    texts = {str(name): str(value) for name, value in headers.items()}
    return envelope.decode_unwrapped(b"{}", texts)


def _nats_headers(headers: Mapping[str, Any]) -> object:
    return read_headers({str(name): str(value) for name, value in headers.items()})


def _toml(text: str) -> object:
    return settings.load({}, _file(text, ".toml"))


def _variables(values: Mapping[str, Any]) -> object:
    return settings.load({str(name): str(value) for name, value in values.items()})


def _records(suffix: str) -> Callable[[str], object]:
    return lambda text: read_records(_file(text, suffix))


def _file(text: str, suffix: str) -> Path:
    """Write a text to the one file of this process, and return its path."""
    path = Path(_folder().name, f"given{suffix}")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="penstock-parsers-")


def _valid(schema: Any) -> Callable[[Any], object]:
    return lambda value: parameters.validate(schema, value)


def _matched(text: str) -> object:
    return filters.parse(text)({"league": "nba", "size": "3"})


def _options(parse: Callable[[Mapping[str, Any], str], object]) -> Callable[[Any], object]:
    """Refuse an unknown option as Python does for an unknown argument: with a TypeError."""

    def call(value: Any) -> object:
        try:
            return parse(value, "p") if isinstance(value, Mapping) else None
        except TypeError as error:
            if "is not an option" not in str(error):
                raise
            return None

    return call


def _mapping(parse: Callable[[Mapping[str, Any]], object]) -> Callable[[Any], object]:
    """Give only tables to a parser that is declared for tables."""
    return lambda value: parse(value) if isinstance(value, Mapping) else None


SCHEMA: Final = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "minimum": 1, "default": 7},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 5}},
    },
    "required": ["days"],
}
AVRO: Final = json.dumps(
    {"type": "record", "name": "Game", "fields": [
        {"name": "id", "type": "string"}, {"name": "points", "type": ["null", "int"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}}]}
)  # fmt: skip
ENVELOPE: Final = (
    b'{"message":{"data":"e30=","messageId":"17","attributes":{"a":"b"},'
    b'"publishTime":"2025-11-17T02:00:00Z","orderingKey":"k"},"subscription":"projects/p/'
    b'subscriptions/s","deliveryAttempt":3}'
)
JWT: Final = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJhIiwiYXVkIjoiYiJ9.c2ln"
JWKS: Final = b'{"keys":[{"kid":"a","kty":"RSA","alg":"RS256","use":"sig","n":"AQAB","e":"AQAB"}]}'
PUSH: Final = {
    "push_endpoint": "https://hooks.example.com/in", "signing_secrets": [{"$secret": "hook"}],
    "oidc_token": {"service_account_email": "a@b.example", "audience": "x"},
    "no_wrapper": {"write_metadata": True},
}  # fmt: skip
ALERTS: Final = {
    "channels": {
        "ops": {"kind": "webhook", "url": "https://example.com/hook", "signing_secret": "hook"}
    },
    "routes": [{"channels": ["ops"], "severity": ["CRITICAL"]}],
    "rules": {"late": {"metric": "run_failure_rate", "high": 0.1, "for": "5m"}},
    "windows": {"night": {"cron": "0 2 * * *", "timezone": "UTC", "duration": "2h"}},
}
CONFIG: Final = {
    "pipeline_template": "nba", "schedule_cron": "0 2 * * *", "timezone": "Europe/Berlin",
    "parameters": {"days": 3}, "provider": "aws", "schedule_type": "CRON",
}  # fmt: skip
PROCESSOR: Final = {
    "expires_after": "5m", "retry": {"max_attempts": 3, "base_delay_minutes": 1}, "pool": "slow",
    "limits": ["api"], "produces": "raw.orders", "concurrency": 2,
}  # fmt: skip

PARSERS: Final[dict[str, Parser]] = {
    "cron expression": Parser(
        _cron, "text", ("0 2 * * *", "*/15 8-18 * * MON-FRI", "0 0 L * *", "@daily")
    ),
    "duration": Parser(parse_duration, "value", ("5m", "1h30m", 90, 1.5)),
    "duration of an override": Parser(parse_override_duration, "text", ("2h", "1d")),
    "time": Parser(parse_iso, "value", ("2025-11-17T02:00:00Z", "2025-11-17 02:00:00.5+02:00")),
    "time of the command line": Parser(
        lambda t: parse_when(t, "since", NOW), "text", ("2h", "2025-11-17T02:00:00Z")
    ),
    "time of day": Parser(_timed, "text", ("23:59", "7:05")),
    "time of a warehouse": Parser(
        lambda t: parse_timestamp(t, "loaded_at"),
        "text",
        ("2025-11-17", "1763337600", "1763337600.5"),
        (ProbeFailed,),
    ),
    "time zone": Parser(check_timezone, "value", ("Europe/Berlin", "UTC")),
    "partition": Parser(lambda t: check_partition(DAY_RULE, t), "text", ("2025-11-17",)),
    "entity": Parser(parse_entity, "text", ("players:1630567",)),
    "public id": Parser(
        lambda v: ids.decode("run", v), "value", (ids.encode("run", 7), ids.encode("run", 1 << 50))
    ),
    "page cursor": Parser(
        lambda v: cursor.verify_cursor(KEY, QUESTION, v),
        "value",
        (cursor.sign_cursor(KEY, QUESTION, [1, "a"]),),
    ),
    "ack id": Parser(ack_id.decode, "value", (ack_id.encode(SubscriptionKey(1), 2, 3),)),
    "ack id of NATS": Parser(
        lambda v: naming.decode_ack_id(v, "ack_id"),
        "value",
        (naming.encode_ack_id(naming.Ticket("s", "r.1")),),
    ),
    "ack id of Pub/Sub": Parser(
        lambda v: tickets.decode(v, "ack_id"),
        "value",
        (tickets.encode(tickets.PubsubTicket("s", "17", "raw")),),
    ),
    "API key": Parser(
        api_keys.parse, "value", (api_keys.format_key(5, "s" * api_keys.SECRET_CHARS),), ()
    ),
    "credential of a run": Parser(
        lambda t: run_credentials.verify(KEY, t, NOW),
        "text",
        (run_credentials.issue(KEY, GRANT),),
        (),
    ),
    "JSON": Parser(parse_json, "bytes", (b'{"a":[1,2.5,null,"x"]}', b"[]", b'"\\ud83d\\ude00"')),
    "message body": Parser(parse_message_object, "bytes", (b'{"a":1}', b"")),
    "push envelope": Parser(envelope.decode, "bytes", (ENVELOPE,), ()),
    "unwrapped push": Parser(
        _mapping(_unwrapped),
        "value",
        ({"x-goog-pubsub-message-id": "1", "x-goog-pubsub-delivery-attempt": "3", "a": "b"},),
        (),
    ),
    "webhook signature": Parser(
        _mapping(_signed),
        "value",
        ({"webhook-id": "1", "webhook-timestamp": "1763337600", "webhook-signature": "v1,abc"},),
        (),
    ),
    "Retry-After": Parser(
        lambda t: retry_after(t, NOW), "text", ("120", "Mon, 17 Nov 2025 02:00:00 GMT"), ()
    ),
    "Cache-Control": Parser(keyset.fresh_seconds, "text", ("public, max-age=3600",), ()),
    "webhook secret": Parser(webhook.parse_secret, "value", ("whsec_" + "a" * 32,)),
    "NATS headers": Parser(
        _mapping(_nats_headers),
        "value",
        ({"Penstock-Ordering-Key": "ImEi", "a": "b"},),
        (ValueError, InvalidInput),
    ),
    "trace context": Parser(
        parse_traceparent, "text", ("00-" + "a" * 32 + "-" + "b" * 16 + "-01",), ()
    ),
    "token header": Parser(oidc.read_header, "value", (JWT,), (oidc.InvalidToken,)),
    "token claims": Parser(
        oidc.read_claims,
        "bytes",
        (b'{"iss":"a","aud":"b","exp":1763337600}',),
        (oidc.InvalidToken,),
    ),
    "key set": Parser(keyset.read_keys, "bytes", (JWKS,)),
    "filter": Parser(
        _matched,
        "text",
        (
            'attributes.league = "nba"',
            'NOT (hasPrefix(attributes.size, "3") OR attributes:league)',
            'attributes.a != "x" AND attributes:b',
        ),
    ),
    "Avro schema": Parser(avro.parse, "text", (AVRO,)),
    "Avro message": Parser(
        lambda b: avro.check_message(avro.parse(AVRO), b, "binary"),
        "bytes",
        (b"\x02a\x02\x06\x02\x02x\x00\x00",),
        (avro.AvroMismatch,),
    ),
    "Avro message in JSON": Parser(
        lambda b: avro.check_message(avro.parse(AVRO), b, "json"),
        "bytes",
        (b'{"id":"a","points":{"int":3},"tags":["x"],"kind":"A"}',),
        (avro.AvroMismatch,),
    ),
    "Protobuf schema": Parser(
        lambda t: definitions.check_definition("protobuf", t),
        "text",
        ('syntax = "proto3";\nmessage A {\n  string b = 1;\n}\n',),
    ),
    "Pub/Sub name": Parser(
        lambda t: parse_name(t, "topics", "topic"), "text", ("projects/p/topics/t",)
    ),
    "Pub/Sub project": Parser(parse_project, "text", ("projects/p",)),
    "URL of a request": Parser(
        parse_target,
        "value",
        (
            "https://example.com:443/a?b=c",
            "https://[2606:2800:220:1::1]/",
            "https://93.184.216.34/",
        ),
    ),
    "IP address": Parser(
        check_address, "text", ("93.184.216.34", "2606:2800:220:1::1", "::ffff:1.2.3.4")
    ),
    "PostgreSQL URL": Parser(
        parse_postgres_url, "text", ("postgresql://u:p@h:5432/d?sslmode=require",)
    ),
    "NATS URL": Parser(
        parse_nats_url, "text", ("nats://u:p@127.0.0.1:4222?replicas=3", "nats://a:1,b:2")
    ),
    "Pub/Sub URL": Parser(
        parse_pubsub_url, "text", ("pubsub://my-project?prefetch=5&endpoint=localhost:8085",)
    ),
    "named addresses": Parser(
        lambda t: parse_named_addresses(t.split(","), "warehouses"),
        "text",
        ("season=duckdb:season.duckdb,b=sqlite:x",),
    ),
    "settings file": Parser(
        _toml,
        "text",
        (
            'worker_slots = 5\ndrain = "30s"\n',
            '[alerts.channels.ops]\nkind = "webhook"\nurl = "https://e.example/x"\n'
            'signing_secret = "hook"\n',
        ),
    ),
    "settings of the environment": Parser(
        _mapping(_variables),
        "value",
        ({"PENSTOCK_WORKER_SLOTS": "5", "PENSTOCK_DRAIN": "1m", "PENSTOCK_API_PORT": "0"},),
    ),
    "file of records, JSON": Parser(
        _records(".json"), "text", ('[{"a":1},{"b":2}]', '{"a":1}\n{"b":2}\n')
    ),
    "file of records, TOML": Parser(
        _records(".toml"), "text", ('[[configs]]\npipeline_template = "a"\n',)
    ),
    "pairs of the command line": Parser(
        lambda t: parse_pairs(t.split(","), "param"), "text", ("a=1,b=[1],c=x",)
    ),
    "setting alerts": Parser(parse_alerts, "value", (ALERTS,)),
    "setting slos": Parser(
        parse_slos,
        "value",
        ({"window": "28d", "targets": [{"pipeline": "nba", "target": "6h", "objective": 99}]},),
    ),
    "setting telemetry": Parser(
        _mapping(parse_telemetry),
        "value",
        ({"otlp_endpoint": "http://127.0.0.1:4318", "sample": 0.5},),
    ),
    "setting bridges": Parser(
        parse_bridges,
        "value",
        ({"east": {"url": "nats://127.0.0.1:4222", "send": ["games-*"], "receive": ["news"]}},),
    ),
    "setting incoming_push": Parser(
        parse_incoming,
        "value",
        ({"sub": {"audience": "x", "email": "a@b.example", "topic": "games"}},),
    ),
    "setting login": Parser(
        _mapping(parse_identity),
        "value",
        (
            {
                "oidc": {
                    "issuer": "https://i.example",
                    "client_id": "a",
                    "roles": {"a@i.example": "admin"},
                }
            },
        ),
    ),
    "config": Parser(parse_config_input, "value", (CONFIG,)),
    "event mapping": Parser(
        parse_event_mapping,
        "value",
        ({"parameters": {"league": "attributes.league"}, "partition": "{data.day}"},),
    ),
    "limit": Parser(
        _mapping(parse_limit_settings),
        "value",
        ({"capacity": 5, "lease": "5m", "adaptive": True, "rate": 2.0},),
    ),
    "binding": Parser(
        parse_binding, "value", ({"to": "runs", "pipeline": "nba", "processor": "raw.box"},)
    ),
    "push settings": Parser(parse_push, "value", (PUSH,)),
    "auto-replay": Parser(
        parse_auto_replay,
        "value",
        ({"health_url": "https://e.example/up", "after": "1m", "rate": 5},),
    ),
    "submission": Parser(
        lambda v: convert_input(v, Submission),
        "value",
        ({"pipeline_template": "nba", "parameters": {"a": [1]}, "delay": "5m"},),
    ),
    "subscription": Parser(
        lambda v: convert_input(v, Subscription),
        "value",
        ({"name": "s", "topic": "t", "filter": "attributes:a", "ack_deadline_seconds": 10},),
    ),
    "topic": Parser(
        lambda v: convert_input(v, Topic), "value", ({"name": "t", "retention_seconds": 600},)
    ),
    "message": Parser(
        lambda v: check_outgoing(convert_input(v, NewMessage)),
        "value",
        ({"data": "e30=", "attributes": {"a": "b"}, "ordering_key": "k"},),
    ),
    "schema of parameters": Parser(
        parameters.check_schema, "value", (SCHEMA,), (DeclarationError,)
    ),
    "parameters": Parser(_valid(SCHEMA), "value", ({"days": 3, "names": ["a"]},)),
    "parameters with secrets": Parser(
        reject_literal_secrets, "value", ({"password": {"$secret": "db"}, "deep": [{"a": 1}]},)
    ),
    "options of a processor": Parser(
        _options(parse_processor_options),
        "value",
        (PROCESSOR,),
        (DeclarationError,),
    ),
    "options of a phase": Parser(
        _options(parse_phase_options),
        "value",
        ({"stragglers": "20m", "fallback": "06:30", "on": "each"},),
        (DeclarationError,),
    ),
    "options of a pipeline": Parser(
        _options(parse_pipeline_options),
        "value",
        ({"partition": "day", "warehouse": "sales", "freshness": {"raw.orders": "1d"}},),
        (DeclarationError,),
    ),
    "HTTP processor": Parser(
        _mapping(lambda v: parse_endpoint(v.get("url"), v, "p")),
        "value",
        ({"url": "https://e.example/x", "reply_within": "30s", "oidc": "a@b.example"},),
        (DeclarationError,),
    ),
    "result with entities": Parser(
        split_result,
        "text",
        ('{"entities_changed":{"players":[1,2]}}', '{"everything_changed":true}'),
    ),
    "token of a preview": Parser(
        lambda t: previewed(KEY, "session", "cancel", {}, t), "text", ("1763337600.3.abc",), ()
    ),
    "position of a live page": Parser(parse_position, "text", ("1.5.7", "0.0.-1"), ()),
    "topics of a live page": Parser(parse_topics, "text", ("runs,flows", "run:run_7h2kq0v3")),
}
