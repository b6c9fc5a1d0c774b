"""Config drafts: rejected fields and their errors, updates, and round trips."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.core.fields import canonical_json_object, check_customer
from penstock.schedules.cadence import CatchUp, Overlap, ScheduleType
from penstock.schedules.config_input import FIELDS, ConfigInput, parse_config_input
from penstock.schedules.description import describe_draft

VALID: dict[str, Any] = {"pipeline_template": "nightly", "schedule_cron": "0 2 * * *"}
NAN = float("nan")
INF = float("inf")


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def rejection(fields: Any, base: ConfigInput | None = None) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse_config_input(fields, base)
    return caught.value


INVALID: list[tuple[str, Any, str]] = [
    # field, value, part of the expected value in the error
    ("pipeline_template", None, "a string"),
    ("pipeline_template", "", "a string"),
    ("pipeline_template", 5, "a string"),
    ("pipeline_template", "x" * 201, "at most 200"),
    ("pipeline_template", "a\x00b", "printable"),
    ("provider", 5, "a string"),
    ("provider", ["GCP"], "a string"),
    ("provider", "a\nb", "printable"),
    ("provider", "\ud800", "printable"),
    ("domain", True, "a string"),
    ("domain", "x" * 201, "at most 200"),
    ("schedule_type", "cron", "one of CRON, INTERVAL, EVENT_DRIVEN"),
    ("schedule_type", 1, "one of CRON"),
    ("schedule_type", [], "one of CRON"),
    ("schedule_cron", None, "one of schedule_cron, schedule_interval_minutes or event_topic"),
    ("schedule_cron", "", "five fields"),
    ("schedule_cron", 5, "five fields"),
    ("schedule_cron", True, "five fields"),
    ("schedule_cron", "* * * *", "five fields"),
    ("schedule_cron", "0 0 2 * * *", "five fields"),
    ("schedule_cron", "60 * * * *", "minutes 0-59"),
    ("schedule_cron", "* 24 * * *", "hours 0-23"),
    ("schedule_cron", "*/90 * * * *", "a step"),
    ("schedule_cron", "0 0 31 2 *", "a date that exists"),
    ("schedule_cron", "0 0 30 FEB *", "a date that exists"),
    ("schedule_cron", "* * * * * ; rm", "five fields"),
    ("schedule_cron", "@reboot", "alias"),
    ("schedule_cron", "0 2 * * \ud800", "five fields"),
    ("schedule_cron", "0" * 300 + " 2 * * *", "five fields"),
    ("timezone", "Mars/Base", "IANA"),
    ("timezone", "europe/paris", "IANA"),
    ("timezone", "", "IANA"),
    ("timezone", None, "IANA"),
    ("timezone", 5, "IANA"),
    ("timezone", "../../etc/passwd", "IANA"),
    ("timezone", "Factory", "IANA"),
    ("parameters", [], "an object"),
    ("parameters", "{}", "an object"),
    ("parameters", {"a": NAN}, "plain JSON"),
    ("parameters", {"a": INF}, "plain JSON"),
    ("parameters", {"a": {1, 2}}, "plain JSON"),
    ("parameters", {"a": "\ud800"}, "plain JSON"),
    ("parameters", {"\ud800": 1}, "plain JSON"),
    ("parameters", {"a": b"x"}, "plain JSON"),
    ("parameters", {1: "a"}, "string keys"),
    ("parameters", {"a": "x\x00"}, "NUL"),
    ("parameters", {"a\x00": 1}, "NUL"),
    ("parameters", {"a": 2**63}, "64 bits"),
    ("parameters", {"a": -(10**30)}, "64 bits"),
    ("parameters", {"a": 10**5000}, "64 bits"),
    ("parameters", nested(40), "32 levels"),
    ("parameters", nested(100_000), "32 levels"),
    ("parameters", {"a": "x" * 70_000}, "64 KiB"),
    ("parameters", {"a": "é" * 40_000}, "64 KiB"),
    ("retry_config", 5, "an object"),
    ("retry_config", {"tries": 5}, "a known key"),
    ("retry_config", {"max_attempts": 0}, "from 1 to 100"),
    ("retry_config", {"max_attempts": 101}, "from 1 to 100"),
    ("retry_config", {"max_attempts": 2.5}, "a whole number"),
    ("retry_config", {"max_attempts": True}, "from 1 to 100"),
    ("retry_config", {"base_delay_minutes": NAN}, "a number"),
    ("retry_config", {"base_delay_minutes": -1}, "a number"),
    ("retry_config", {"backoff_multiplier": 0.5}, "from 1 to 10"),
    ("retry_config", {"timeout_multiplier": INF}, "from 1 to 10"),
    ("priority", 0, "a whole number from 1 to 10"),
    ("priority", 11, "a whole number from 1 to 10"),
    ("priority", 5.0, "a whole number from 1 to 10"),
    ("priority", True, "a whole number from 1 to 10"),
    ("priority", "5", "a whole number from 1 to 10"),
    ("max_execution_duration_minutes", 0, "a number from 0.01 to 10080"),
    ("max_execution_duration_minutes", -1, "a number"),
    ("max_execution_duration_minutes", 10_081, "a number"),
    ("max_execution_duration_minutes", NAN, "a number"),
    ("max_execution_duration_minutes", INF, "a number"),
    ("max_execution_duration_minutes", True, "a number"),
    ("max_execution_duration_minutes", "60", "a number"),
    ("max_execution_duration_minutes", 10**400, "a number"),
    ("sla_breach_threshold_minutes", -0.1, "a number from 0 to 100000"),
    ("sla_breach_threshold_minutes", NAN, "a number"),
    ("sla_breach_threshold_minutes", [30], "a number"),
    ("catch_up", "some", "one of one, all, none"),
    ("catch_up", True, "one of one, all, none"),
    ("catch_up_window_minutes", 0, "a number from 1 to 525600"),
    ("catch_up_window_minutes", INF, "a number"),
    ("overlap", "never", "one of allow, skip, queue"),
    ("overlap", {}, "one of allow, skip, queue"),
    ("jitter_seconds", -1, "a number from 0 to 86400"),
    ("jitter_seconds", 86_401, "a number"),
    ("jitter_seconds", NAN, "a number"),
    ("is_active", 1, "true or false"),
    ("is_active", "yes", "true or false"),
    ("is_active", None, "true or false"),
    ("event_filter", "a = 1", "no value, because schedule_type is CRON"),
    ("schedule_interval_minutes", 5, "no value, because schedule_type is CRON"),
    ("event_topic", "orders", "no value, because schedule_type is CRON"),
    ("priorty", 5, "one of: pipeline_template"),
]


@pytest.mark.parametrize("case", INVALID, ids=[f"{i}-{c[0]}" for i, c in enumerate(INVALID)])
def test_an_invalid_field_is_rejected_by_name(case: tuple[str, Any, str]) -> None:
    """Every invalid field is rejected with its name, the expected and the shortened value."""
    field, value, expected = case
    error = rejection({**VALID, field: value})
    assert error.field.startswith(field)
    assert expected in error.message
    assert len(error.message) < 1000
    error.message.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "more than 0"), (-5, "more than 0"), (NAN, "a number"), (INF, "below"),
        (True, "a number"), ("5", "a number"), (0.001, "1 second"), (9_999_999, "3,650 days"),
        (10**400, "below"),
    ],
)  # fmt: skip
def test_an_invalid_interval(value: Any, expected: str) -> None:
    """An interval outside one second to ten years is rejected."""
    error = rejection({"pipeline_template": "p", "schedule_interval_minutes": value})
    assert error.field == "schedule_interval_minutes"
    assert expected in error.message


@pytest.mark.parametrize(
    "value", ["", "ab", "1abc", "google.ads", "a b c", "x" * 256, 5, "abc\n", "a\x00bc"]
)
def test_an_invalid_topic(value: Any) -> None:
    """A topic is a name of 3 to 243 plain characters."""
    error = rejection(
        {"pipeline_template": "p", "schedule_type": "EVENT_DRIVEN", "event_topic": value}
    )
    assert error.field == "event_topic"


@pytest.mark.parametrize(
    ("value", "position"),
    [('attributes.region == "eu"', 20), ('region = "eu"', 1), ("attributes:a AND", 17)],
)
def test_event_filters_are_parsed(value: str, position: int) -> None:
    """A filter that cannot be parsed is refused, with the position of the error."""
    event = {"pipeline_template": "p", "event_topic": "orders"}
    for error in (
        rejection({**event, "event_filter": value}),
        rejection({"event_filter": value}, parse_config_input(event)),
    ):
        assert error.field == "event_filter"
        assert f"position {position} " in str(error)


def test_a_stored_filter_does_not_block_other_changes() -> None:
    """One that was stored before filters were parsed is checked only when it is given."""
    event = parse_config_input({"pipeline_template": "p", "event_topic": "orders"})
    old = replace(event, event_filter="region")
    assert parse_config_input({"priority": 7}, old).event_filter == "region"
    assert parse_config_input({"event_filter": None}, old).event_filter is None


@pytest.mark.parametrize("given", [None, [], "x", 5, [("pipeline_template", "p")]])
def test_a_config_must_be_an_object(given: Any) -> None:
    """A config that is not an object is rejected."""
    assert rejection(given).field == "config"


class TestSchedule:
    """Fields that depend on each other, and defaults."""

    def test_a_schedule_is_required(self) -> None:
        """One of cron, interval and topic is required; the error shows an example."""
        error = rejection({"pipeline_template": "p"})
        assert error.field == "schedule_cron"
        assert "0 2 * * *" in error.message

    @pytest.mark.parametrize(
        ("kind", "field"),
        [
            ("CRON", "schedule_cron"),
            ("INTERVAL", "schedule_interval_minutes"),
            ("EVENT_DRIVEN", "event_topic"),
        ],
    )
    def test_a_type_requires_its_field(self, kind: str, field: str) -> None:
        """Each schedule type requires its own field, which the error names."""
        error = rejection({"pipeline_template": "p", "schedule_type": kind})
        assert error.field == field
        assert kind in error.message

    def test_defaults(self) -> None:
        """Omitted fields have the defaults of the specification."""
        draft = parse_config_input(VALID)
        assert draft.schedule_type is ScheduleType.CRON
        assert (draft.timezone, draft.priority) == ("UTC", 5)
        assert (draft.max_execution_us, draft.sla_us) == (0, 30 * MINUTE)
        assert (draft.catch_up, draft.overlap) == (CatchUp.ONE, Overlap.SKIP)
        assert draft.catch_up_window_us == DAY
        assert (draft.parameters, draft.retry, draft.is_active) == ("{}", None, True)

    def test_the_type_follows_from_the_fields(self) -> None:
        """An interval or a topic implies the schedule type."""
        interval = parse_config_input({"pipeline_template": "p", "schedule_interval_minutes": 0.5})
        assert interval.schedule_type is ScheduleType.INTERVAL
        assert interval.cadence is not None
        assert interval.cadence.interval_us == 30 * SECOND
        event = parse_config_input({"pipeline_template": "p", "event_topic": "orders"})
        assert (event.schedule_type, event.cadence) == (ScheduleType.EVENT_DRIVEN, None)

    def test_read_only_mappings_are_accepted(self) -> None:
        """Any mapping is accepted, also for retry settings; cron is normalised."""
        retry = MappingProxyType({"max_attempts": 2})
        given = MappingProxyType({**VALID, "schedule_cron": " @daily ", "retry_config": retry})
        draft = parse_config_input(given)
        assert draft.cadence is not None
        assert draft.cadence.cron == "0 0 * * *"
        assert draft.retry == '{"max_attempts": 2}'

    def test_an_escaped_nul_is_plain_text(self) -> None:
        """A backslash, a u and four zeros are six characters, not a NUL."""
        assert canonical_json_object({"a": "\\u0000"}) == '{"a": "\\\\u0000"}'


class TestCustomer:
    """Customer ids."""

    @pytest.mark.parametrize("value", ["acme", "A", "a.b_c:d@e-f", "1", "x" * 128])
    def test_valid(self, value: str) -> None:
        """A customer id consists of letters, digits and some punctuation."""
        assert check_customer(value) == value

    @pytest.mark.parametrize(
        "value", ["", "x" * 129, "-a", "a b", "a/b", "acme\n", "ä", "a\x00", None, 5, ["a"], True]
    )
    def test_invalid(self, value: Any) -> None:
        """Anything else is rejected, including a trailing newline."""
        with pytest.raises(InvalidInput) as caught:
            check_customer(value)
        assert caught.value.field == "customer_id"


class TestUpdate:
    """A change to an existing config."""

    def test_absent_fields_keep_their_value(self) -> None:
        """An update changes only the fields it names."""
        base = parse_config_input(
            {**VALID, "timezone": "Europe/Paris", "parameters": {"a": 1}, "priority": 8,
             "retry_config": {"max_attempts": 2}, "jitter_seconds": 9, "overlap": "queue"}
        )  # fmt: skip
        assert parse_config_input({}, base) == base
        changed = parse_config_input({"priority": 3}, base)
        assert changed.priority == 3
        assert parse_config_input({"priority": 8}, changed) == base
        assert parse_config_input({"retry_config": None}, base).retry is None

    def test_a_config_keeps_its_pipeline(self) -> None:
        """The pipeline cannot be changed; naming the same one is accepted."""
        base = parse_config_input(VALID)
        assert parse_config_input({"pipeline_template": "nightly"}, base) == base
        assert rejection({"pipeline_template": "other"}, base).field == "pipeline_template"

    def test_switching_the_schedule_type(self) -> None:
        """Switching cron to interval to event and back keeps only the fields of the new type."""
        base = parse_config_input({**VALID, "timezone": "Asia/Tokyo"})
        interval = parse_config_input({"schedule_interval_minutes": 15}, base)
        assert interval.schedule_type is ScheduleType.INTERVAL
        assert interval.cadence is not None
        assert (interval.cadence.cron, interval.cadence.interval_us) == (None, 15 * MINUTE)
        event = parse_config_input(
            {"event_topic": "orders", "event_filter": 'attributes.a = "1"'}, interval
        )
        assert event.schedule_type is ScheduleType.EVENT_DRIVEN
        assert (event.cadence, event.event_filter) == (None, 'attributes.a = "1"')
        back = parse_config_input({"schedule_cron": "0 2 * * *"}, event)
        assert back == base

    def test_a_type_alone_is_not_enough(self) -> None:
        """Switching the type without its field is rejected, and so is clearing the field."""
        base = parse_config_input(VALID)
        assert rejection({"schedule_type": "INTERVAL"}, base).field == "schedule_interval_minutes"
        assert rejection({"schedule_cron": None}, base).field == "schedule_cron"
        assert rejection({"timezone": "Mars"}, base).field == "timezone"

    def test_a_new_zone_is_a_new_cadence(self) -> None:
        """The zone of a cron schedule is part of its cadence."""
        changed = parse_config_input({"timezone": "Asia/Tokyo"}, parse_config_input(VALID))
        assert changed.cadence is not None
        assert changed.cadence.timezone == "Asia/Tokyo"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(categories=["L"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
schedules = st.one_of(
    st.fixed_dictionaries(
        {
            "schedule_cron": st.sampled_from(["0 2 * * *", "*/5 * * * *", "@weekly", "0 0 L * *"]),
            "timezone": st.sampled_from(["UTC", "Europe/Paris", "Australia/Lord_Howe"]),
        }
    ),
    st.fixed_dictionaries(
        {"schedule_interval_minutes": st.integers(1, 1_000_000) | st.floats(0.02, 5_000_000)}
    ),
    st.fixed_dictionaries(
        {
            "event_topic": st.just("orders"),
            "event_filter": st.none() | st.just('attributes.kind = "1"'),
        }
    ),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "provider": st.sampled_from(["GCP", "AWS", "eigene"]),
        "domain": st.sampled_from(["COST", ""]),
        "parameters": st.dictionaries(st.text(st.characters(categories=["L"])), json_values),
        "retry_config": st.none() | st.fixed_dictionaries({"max_attempts": st.integers(1, 100)}),
        "priority": st.integers(1, 10),
        "max_execution_duration_minutes": st.floats(0.01, 10_080),
        "sla_breach_threshold_minutes": st.floats(0, 100_000),
        "catch_up": st.sampled_from(list(CatchUp)),
        "catch_up_window_minutes": st.floats(1, 525_600),
        "overlap": st.sampled_from(list(Overlap)),
        "jitter_seconds": st.floats(0, 86_400),
        "is_active": st.booleans(),
    },
)


@given(schedule=schedules, more=options)
def test_a_described_draft_is_the_same_draft(
    schedule: dict[str, Any], more: dict[str, Any]
) -> None:
    """The description of a draft parses to the same draft, as a new config and as an update."""
    draft = parse_config_input({"pipeline_template": "p", **schedule, **more})
    described = describe_draft(draft)
    assert set(described) == set(FIELDS)
    assert parse_config_input(described) == draft
    assert parse_config_input(described, draft) == draft
    assert parse_config_input({}, draft) == draft


@given(st.dictionaries(st.sampled_from(FIELDS), json_values | st.binary(max_size=3)))
def test_any_fields_yield_a_draft_or_an_error(given_fields: dict[str, Any]) -> None:
    """Any input yields a draft or an InvalidInput that names a known field."""
    field = "priority"
    try:
        parse_config_input(given_fields)
    except InvalidInput as error:
        field = error.field.split(".")[0].split("[")[0]
    assert field in FIELDS
