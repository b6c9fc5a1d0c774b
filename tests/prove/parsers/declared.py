"""Parsers of structured values: settings, declarations of pipelines, bodies of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.alerts.declared import parse_alerts
from penstock.assembly import settings
from penstock.assembly.settings import setting
from penstock.bus.binding import parse_binding
from penstock.bus.incoming.inbound_push import parse_incoming
from penstock.bus.message import NewMessage
from penstock.bus.push.push_config import parse_push
from penstock.bus.records import Subscription, Topic
from penstock.bus.replay_policy import parse_auto_replay
from penstock.bus.rules import check_outgoing
from penstock.bus.transports.bridges import parse_bridges
from penstock.core.errors import DeclarationError
from penstock.core.records.validation import convert_input
from penstock.core.redact import reject_literal_secrets
from penstock.core.retry import RetryConfig
from penstock.limits.rules import parse_limit_settings
from penstock.pipelines import parameters
from penstock.pipelines.declare.declaration_options import (
    parse_phase_options,
    parse_pipeline_options,
    parse_processor_options,
)
from penstock.pipelines.declare.each import parse_each, parse_item_key, parse_min_items, upstream
from penstock.pipelines.declare.endpoint import parse_endpoint
from penstock.pipelines.declare.limit_needs import (
    parse_limits,
    parse_max_runs,
    parse_max_runs_by_key,
    parse_weights,
)
from penstock.pipelines.declare.needs import parse_warehouse
from penstock.runs.records import Submission
from penstock.schedules.config_input import parse_config_input
from penstock.schedules.event_mapping import parse_event_mapping
from penstock.slos.declared import parse_slos
from penstock.telemetry.declared import parse_telemetry
from penstock.web.login.identity import parse_identity
from tests.prove.parsers.parser import Parser, mapping

SCHEMA: Final = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "minimum": 1, "default": 7},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 5}},
    },
    "required": ["days"],
}
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
ITEMS: Final = {
    "each": "SELECT game_id FROM games WHERE day = :partition", "item_key": "game_id",
    "min_items": 0.95, "limits": {"bq:{table}": 2}, "per_key": {"{team}": 3}, "per_customer": 2,
}  # fmt: skip
REPEATED: Final = {"max_attempts": 3, "base_delay_minutes": 1.5, "backoff_multiplier": 2}


def _valid(schema: Any) -> Callable[[Any], object]:
    return lambda value: parameters.validate(schema, value)


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


def _option(parse: Callable[[Any, str, str], object], *examples: Any) -> Parser:
    """Return the parser of one option of a declaration."""
    return Parser(lambda v: parse(v, "option", "p"), "value", examples, (DeclarationError,))


def _setting(given: Mapping[str, Any]) -> object:
    """Read each value as the setting of that name."""
    known = {one.name: one for one in settings.SETTINGS}
    return [setting.read_value(known[name], v) for name, v in given.items() if name in known]


DECLARED: Final[dict[str, Parser]] = {
    "setting alerts": Parser(parse_alerts, "value", (ALERTS,)),
    "setting slos": Parser(
        parse_slos,
        "value",
        ({"window": "28d", "targets": [{"pipeline": "nba", "target": "6h", "objective": 99}]},),
    ),
    "setting telemetry": Parser(
        mapping(parse_telemetry),
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
        mapping(parse_identity),
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
        mapping(parse_limit_settings),
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
        (PROCESSOR, ITEMS),
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
        mapping(lambda v: parse_endpoint(v.get("url"), v, "p")),
        "value",
        ({"url": "https://e.example/x", "reply_within": "30s", "oidc": "a@b.example"},),
        (DeclarationError,),
    ),
    "option each": _option(parse_each, ITEMS["each"], upstream("list_games")),
    "option item_key": _option(parse_item_key, "game_id"),
    "option min_items": _option(parse_min_items, 0.95, 1),
    "option limits": _option(parse_limits, ["bq:{table}", "api"], {"api": 2}),
    "weights in the option limits": _option(parse_weights, {"bq:{table}": 3, "api": 1}, ["api"]),
    "option concurrency": _option(parse_max_runs, 5),
    "option per_key": _option(parse_max_runs_by_key, "{team}", {"{team}": 2}),
    "option warehouse": _option(
        parse_warehouse, "sales", "duckdb:/data/season.duckdb", "bigquery:my-project.sales"
    ),
    "retry settings": Parser(RetryConfig.parse, "value", (REPEATED, None)),
    "values of settings": Parser(
        mapping(_setting),
        "value",
        ({"worker_slots": "5", "drain": "1m", "api_host": "0.0.0.0", "warehouses": "a=sqlite:x"},),
    ),
}
