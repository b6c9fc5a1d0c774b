"""Parsers of what a person types: the command line, files, addresses, expressions."""

from __future__ import annotations

from typing import Any, Final

import click

from penstock.access import secrets
from penstock.assembly import settings
from penstock.bus.cli.topics import parse_attribute
from penstock.bus.push import webhook
from penstock.bus.schemas import avro, definitions
from penstock.bus.transports.nats.options import parse_nats_url
from penstock.bus.transports.pubsub.options import parse_pubsub_url
from penstock.cli.app import App
from penstock.cli.arguments import (
    JsonObject,
    parse_pairs,
    parse_time_of_day,
    parse_when,
    read_records,
    read_text,
)
from penstock.cli.root import cli
from penstock.core.clock import parse_duration, parse_iso
from penstock.core.errors import PermanentError
from penstock.core.filters import attributes as filters
from penstock.core.utc_offsets import check_timezone
from penstock.db.postgres_url import parse_postgres_url
from penstock.dead_letters.group_name import parse_group
from penstock.egress.addresses import parse_named_addresses
from penstock.egress.policy import parse_target
from penstock.flows.explain.entity import parse_entity
from penstock.flows.gates.override import parse_override_duration
from penstock.monitoring.cli import verify
from penstock.pipelines.loading import load_module, load_pipelines
from penstock.pipelines.partition import DAY_RULE, check_partition
from penstock.probes.bigquery.address import parse_bigquery, parse_bytes
from penstock.schedules import cadence
from penstock.sinks.audit_query import SinkQueryBounds, query_parquet
from penstock.sinks.firestore.naming import parse_firestore
from tests.prove.parsers.parser import NOW, REFUSES, Parser, as_file, texts
from tests.prove.parsers.wire import AVRO

BOUNDS: Final = SinkQueryBounds(rows_max=10, seconds=0.5, memory_mb=64)


def _cron(text: str) -> object:
    return cadence.next_after(cadence.cron(text, "Europe/Berlin"), NOW)


def _timed(text: str) -> object:
    return parse_time_of_day(text, "Europe/Berlin", NOW)


def _matched(text: str) -> object:
    return filters.parse(text)({"league": "nba", "size": "3"})


def _queried(text: str) -> object:
    """Query a sink without files."""
    return query_parquet(as_file("", ".sink").parent / "sink", text, BOUNDS)


def _command(*names: str) -> Any:
    """Return a function that parses the arguments of a command, separated by blanks."""
    command: Any = cli
    for name in names:
        command = command.get_command(click.Context(command), name)

    def call(text: str) -> object:
        with click.Context(cli, info_name="penstock") as root:
            root.ensure_object(App)
            return command.make_context(names[-1], text.split(" "), root)

    return call


TYPED: Final[dict[str, Parser]] = {
    "cron expression": Parser(
        _cron, "text", ("0 2 * * *", "*/15 8-18 * * MON-FRI", "0 0 L * *", "@daily")
    ),
    "duration": Parser(parse_duration, "value", ("5m", "1h30m", 90, 1.5)),
    "duration of an override": Parser(parse_override_duration, "argument", ("2h", "1d")),
    "time": Parser(parse_iso, "value", ("2025-11-17T02:00:00Z", "2025-11-17 02:00:00.5+02:00")),
    "time of the command line": Parser(
        lambda t: parse_when(t, "since", NOW), "argument", ("2h", "2025-11-17T02:00:00Z")
    ),
    "time of day": Parser(_timed, "text", ("23:59", "7:05")),
    "time zone": Parser(check_timezone, "value", ("Europe/Berlin", "UTC")),
    "partition": Parser(lambda t: check_partition(DAY_RULE, t), "argument", ("2025-11-17",)),
    "entity": Parser(parse_entity, "argument", ("players:1630567",)),
    "webhook secret": Parser(webhook.parse_secret, "value", ("whsec_" + "a" * 32,)),
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
    "Protobuf schema": Parser(
        lambda t: definitions.check_definition("protobuf", t),
        "text",
        ('syntax = "proto3";\nmessage A {\n  string b = 1;\n}\n',),
    ),
    "URL of a request": Parser(
        parse_target,
        "value",
        (
            "https://example.com:443/a?b=c",
            "https://[2606:2800:220:1::1]/",
            "https://93.184.216.34/",
        ),
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
        "argument",
        ("season=duckdb:season.duckdb,b=sqlite:x",),
    ),
    "settings file": Parser(
        lambda t: settings.load({}, as_file(t, ".toml")),
        "text",
        (
            'worker_slots = 5\ndrain = "30s"\n',
            '[alerts.channels.ops]\nkind = "webhook"\nurl = "https://e.example/x"\n'
            'signing_secret = "hook"\n',
        ),
    ),
    "settings of the environment": Parser(
        texts(settings.load),
        "value",
        ({"PENSTOCK_WORKER_SLOTS": "5", "PENSTOCK_DRAIN": "1m", "PENSTOCK_API_PORT": "0"},),
    ),
    "file of records, JSON": Parser(
        lambda t: read_records(as_file(t, ".json")),
        "text",
        ('[{"a":1},{"b":2}]', '{"a":1}\n{"b":2}\n'),
    ),
    "file of records, TOML": Parser(
        lambda t: read_records(as_file(t, ".toml")),
        "text",
        ('[[configs]]\npipeline_template = "a"\n',),
    ),
    "pairs of the command line": Parser(
        lambda t: parse_pairs(t.split(","), "param"), "argument", ("a=1,b=[1],c=x",)
    ),
    "JSON of the command line": Parser(
        lambda t: JsonObject().convert(t, None, None), "argument", ('{"region":"eu","a":[1]}',)
    ),
    "attribute of the command line": Parser(
        lambda t: parse_attribute(t, "attribute"), "argument", ("league=nba",)
    ),
    "arguments of a command": Parser(
        _command("runs", "submit"),
        "argument",
        ("nba --customer acme --param a=1 --in 5m --priority 7", 'nba --parameters {"a":1}'),
        (*REFUSES, click.UsageError, click.exceptions.Exit),
    ),
    "text file": Parser(
        lambda b: read_text(as_file(b, ".txt"), "file"), "bytes", ("Köln\n".encode(),)
    ),
    "file of heads": Parser(
        lambda b: verify._read_heads(as_file(b, ".heads")),
        "bytes",
        (
            b'{"items":[{"block":1,"head":"aa"},{"block":2,"head":"bb"}]}',
            b'{"block":1,"head":"aa"}\n{"message":{"data":"eyJibG9jayI6MiwiaGVhZCI6ImJiIn0="}}\n',
        ),
    ),
    "file of a secret": Parser(
        lambda b: secrets._read(as_file(b, ".secret"), "hook"),
        "bytes",
        (b"s3cret\n",),
        (PermanentError,),
    ),
    "group of dead letters": Parser(
        parse_group,
        "argument",
        ("run/nightly/main/sync/TIMEOUT", "delivery/rosters/SCHEMA", "delivery/nba/a%2Fb/SCHEMA"),
    ),
    "statement of penstock query": Parser(
        _queried,
        "argument",
        (
            "SELECT customer_id, count(*) AS n FROM journal WHERE seq > 5 GROUP BY 1",
            "WITH a AS (SELECT 1 AS b) SELECT * FROM a -- comment",
        ),
    ),
    "pipelines to load": Parser(
        lambda t: load_pipelines(t.split(",")), "argument", ("penstock.demo.nba.pipeline:nba",)
    ),
    "module to load": Parser(load_module, "argument", ("penstock.demo.nba.pipeline",)),
    "address of BigQuery": Parser(
        lambda t: parse_bigquery(t, "warehouse"),
        "text",
        (
            "bigquery:my-project.sales?location=EU&maximum_bytes_billed=10GB",
            "bigquery:example.com:my-project",
        ),
    ),
    "bytes billed": Parser(lambda t: parse_bytes(t, "max_bytes"), "text", ("500MB", "10737418240")),
    "address of Firestore": Parser(
        parse_firestore, "text", ("firestore:my-project", "firestore:my-project/orders")
    ),
}
