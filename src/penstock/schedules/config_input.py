"""Config drafts: the validation of a config's fields as a caller submits them.

Pure. Input fields have the API's names (`schedule_cron`, `max_execution_duration_minutes` …); the
resulting draft is in the store's units. Every error names the field, the expected and the given
value and, where it helps, a fix. The client, not this module, checks whether the pipeline exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.core.fields import TEXT_MAX, parameters_json
from penstock.core.filters import attributes as filters
from penstock.core.records.record import UNSET, to_json_value
from penstock.core.retry import RetryConfig
from penstock.core.utc_offsets import check_timezone
from penstock.schedules.cadence import Cadence, CatchUp, Overlap, ScheduleType, cron, every
from penstock.schedules.event_mapping import parse_event_mapping
from penstock.schedules.records import Config, ConfigChange

E = TypeVar("E", CatchUp, Overlap, ScheduleType)
_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigInput:
    """A validated config, in the store's units."""

    pipeline: str
    provider: str = ""
    domain: str = ""
    schedule_type: ScheduleType = ScheduleType.CRON
    cadence: Cadence | None = None
    timezone: str = "UTC"
    event_topic: str | None = None
    event_filter: str | None = None
    event_mapping: str | None = None
    parameters: str = "{}"
    retry: str | None = None
    priority: int = 5
    max_execution_us: int = 0
    """Time limit of its runs; 0 if only the processors' timeouts apply."""
    sla_us: int = 30 * MINUTE
    expires_us: int | None = None
    """How long its runs may wait to be started; None for the processors' own limits."""
    catch_up: CatchUp = CatchUp.ONE
    catch_up_window_us: int = DAY
    overlap: Overlap = Overlap.SKIP
    jitter_us: int = 0
    is_active: bool = True

    @property
    def start_key(self) -> tuple[object, ...]:
        """What decides when a config starts and with which input; equal for duplicates."""
        return (
            self.pipeline,
            self.provider,
            self.domain,
            self.cadence,
            self.timezone,
            self.event_topic,
            self.event_filter,
            self.event_mapping,
            self.parameters,
        )


FIELDS = (
    "pipeline_template", "provider", "domain", "schedule_type", "schedule_cron",
    "schedule_interval_minutes", "timezone", "event_topic", "event_filter", "event_mapping",
    "parameters", "retry_config", "priority", "max_execution_duration_minutes",
    "sla_breach_threshold_minutes", "expires_after_minutes",
    "catch_up", "catch_up_window_minutes", "overlap", "jitter_seconds", "is_active",
)  # fmt: skip


_NAMES = {
    kind: [(one.name, one.encode_name) for one in msgspec.structs.fields(kind)]
    for kind in (Config, ConfigChange)
}


def given_fields(record: Config | ConfigChange) -> dict[str, Any]:
    """Return the fields of a record under the API's names, without those that were omitted."""
    kinds = (Config, ConfigChange)
    kind = next((one for one in kinds if isinstance(record, one)), None)
    if kind is None:
        raise InvalidInput("config", "a Config or a ConfigChange", record)
    found = {wire: getattr(record, name) for name, wire in _NAMES[kind]}
    return {
        name: to_json_value(value) if isinstance(value, timedelta) else value
        for name, value in found.items()
        if value is not UNSET
    }


def parse_config_input(given: Mapping[str, Any], base: ConfigInput | None = None) -> ConfigInput:
    """Validate submitted fields; with `base` (an update), absent fields keep their values."""
    if not isinstance(given, Mapping):
        raise InvalidInput("config", "an object of fields", given)
    for name in given:
        if name not in FIELDS:
            raise InvalidInput(str(name)[:100], f"one of: {', '.join(FIELDS)}", name)
    draft = base or ConfigInput(pipeline=_text(given, "pipeline_template", required=True))
    if base is not None and given.get("pipeline_template", base.pipeline) != base.pipeline:
        raise InvalidInput(
            "pipeline_template",
            f"{base.pipeline!r} (the pipeline of a config cannot change)",
            given["pipeline_template"],
            "Create a new config for another pipeline.",
        )
    draft = replace(
        draft,
        provider=_text(given, "provider", draft.provider),
        domain=_text(given, "domain", draft.domain),
        parameters=_parameters(given, draft.parameters),
        retry=_retry(given, draft.retry),
        priority=_whole(given, "priority", draft.priority, 1, 10),
        max_execution_us=_span(
            given, "max_execution_duration_minutes", draft.max_execution_us, MINUTE, 0.01, 10_080
        ),
        sla_us=_span(given, "sla_breach_threshold_minutes", draft.sla_us, MINUTE, 0, 100_000),
        expires_us=_expiry(given, draft.expires_us),
        catch_up=_choice(given, "catch_up", draft.catch_up, CatchUp),
        catch_up_window_us=_span(
            given, "catch_up_window_minutes", draft.catch_up_window_us, MINUTE, 1, 525_600
        ),
        overlap=_choice(given, "overlap", draft.overlap, Overlap),
        jitter_us=_span(given, "jitter_seconds", draft.jitter_us, SECOND, 0, 86_400),
        is_active=_flag(given, "is_active", draft.is_active),
    )
    return _with_schedule(given, draft)


def _with_schedule(given: Mapping[str, Any], draft: ConfigInput) -> ConfigInput:
    """Validate type, cadence, time zone and topic together, because they depend on each other."""
    timezone = check_timezone(given.get("timezone", draft.timezone))
    old = draft.cadence or Cadence()
    expression = given.get("schedule_cron", old.cron)
    minutes = given.get(
        "schedule_interval_minutes", old.interval_us / MINUTE if old.interval_us else None
    )
    topic = given.get("event_topic", draft.event_topic)
    kind = _schedule_type(given, draft)
    sources = {
        ScheduleType.CRON: ("schedule_cron", expression),
        ScheduleType.INTERVAL: ("schedule_interval_minutes", minutes),
        ScheduleType.EVENT_DRIVEN: ("event_topic", topic),
    }
    field, value = sources[kind]
    if value is None:
        raise InvalidInput(field, f"a value, because schedule_type is {kind}", None)
    for other, (name, _) in sources.items():
        if other is not kind and given.get(name) is not None:
            raise InvalidInput(name, f"no value, because schedule_type is {kind}", given[name])
    is_event = kind is ScheduleType.EVENT_DRIVEN
    for name in ("event_filter", "event_mapping"):
        if given.get(name) is not None and not is_event:
            expected = f"no value, because schedule_type is {kind}"
            raise InvalidInput(name, expected, given[name])
    cadence: Cadence | None = None
    if kind is ScheduleType.CRON:
        cadence = cron(expression, timezone)
    elif kind is ScheduleType.INTERVAL:
        cadence = every(_minutes_us(minutes))
    event_filter = _optional_text(given, "event_filter", draft.event_filter)
    if given.get("event_filter"):
        filters.parse(given["event_filter"], "event_filter")
    event_mapping = draft.event_mapping
    if "event_mapping" in given:
        event_mapping = parse_event_mapping(given["event_mapping"])
    return replace(
        draft,
        schedule_type=kind,
        cadence=cadence,
        timezone=timezone,
        event_topic=_topic(topic) if is_event else None,
        event_filter=event_filter if is_event else None,
        event_mapping=event_mapping if is_event else None,
    )


def _schedule_type(given: Mapping[str, Any], draft: ConfigInput) -> ScheduleType:
    if given.get("schedule_type") is not None:
        return _choice(given, "schedule_type", draft.schedule_type, ScheduleType)
    for name, kind in (
        ("schedule_cron", ScheduleType.CRON),
        ("schedule_interval_minutes", ScheduleType.INTERVAL),
        ("event_topic", ScheduleType.EVENT_DRIVEN),
    ):
        if given.get(name) is not None:
            return kind
    if draft.cadence is None and draft.event_topic is None:
        raise InvalidInput(
            "schedule_cron",
            "one of schedule_cron, schedule_interval_minutes or event_topic",
            None,
            'For example schedule_cron = "0 2 * * *".',
        )
    return draft.schedule_type


def _minutes_us(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InvalidInput("schedule_interval_minutes", "a number of minutes", value)
    if not 0 < value < 10_000_000:
        raise InvalidInput("schedule_interval_minutes", "more than 0 and below 10,000,000", value)
    return round(value * MINUTE)


def _topic(value: Any) -> str:
    # 243 characters leave space for the suffixes of <topic>.configs and its dead-letter topic.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9._~%+-]{2,242}", value):
        raise InvalidInput("event_topic", "a topic name of 3 to 243 characters", value)
    if value.lower().startswith("goog"):  # no topic may have such a name
        raise InvalidInput("event_topic", 'a name that does not begin with "goog"', value)
    return value


def _text(
    given: Mapping[str, Any], field: str, default: str | None = None, *, required: bool = False
) -> str:
    value = given.get(field, default)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise InvalidInput(field, "a string", value)
    if len(value) > TEXT_MAX or not value.isprintable():
        raise InvalidInput(field, f"at most {TEXT_MAX} printable characters", value)
    return value


def _optional_text(given: Mapping[str, Any], field: str, default: str | None) -> str | None:
    return _text(given, field, default) or None


def _whole(given: Mapping[str, Any], field: str, default: int, low: int, high: int) -> int:
    value = given.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(field, f"a whole number from {low} to {high}", value)
    return value


def _span(
    given: Mapping[str, Any], field: str, default: int, unit: int, low: float, high: float
) -> int:
    value = given.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidInput(field, f"a number from {low:g} to {high:g}", value)
    return round(value * unit)


def _expiry(given: Mapping[str, Any], default: int | None) -> int | None:
    field = "expires_after_minutes"
    if field in given and given[field] is None:
        return None
    return _span(given, field, default or 0, MINUTE, 0.01, 525_600) or None


def _flag(given: Mapping[str, Any], field: str, default: bool) -> bool:
    value = given.get(field, default)
    if not isinstance(value, bool):
        raise InvalidInput(field, "true or false", value)
    return value


def _choice(given: Mapping[str, Any], field: str, default: E, kind: type[E]) -> E:
    value = given.get(field)
    if value is None:
        return default
    try:
        return kind(value)
    except ValueError:
        options = ", ".join(member.value for member in kind)
        raise InvalidInput(field, f"one of {options}", value) from None


def _retry(given: Mapping[str, Any], default: str | None) -> str | None:
    if "retry_config" not in given:
        return default
    value = given["retry_config"]
    if value is None:
        return None
    RetryConfig.parse(value)
    return json.dumps(dict(value), sort_keys=True)


def _parameters(given: Mapping[str, Any], default: str) -> str:
    value = given.get("parameters", _MISSING)
    return default if value is _MISSING or value is None else parameters_json(value)
