"""Partitions: the value of an occurrence in every form and zone, and which values are valid."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Mode, Pipeline, day, game_day_modes, historical, hour, month, text, week
from penstock.core.clock import parse_iso
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.stored_json import dumps, loads
from penstock.pipelines.modes import partition_of
from penstock.pipelines.partition import (
    DAY_RULE,
    DeclaredPartition,
    PartitionRule,
    check_partition,
    partition_at,
    partition_rule_of,
)
from penstock.pipelines.plan import mode_and_partition
from tests.kits.modes import GAME_DAY

NEW_YORK, TOKYO = "America/New_York", "Asia/Tokyo"


class TestValue:
    """The partition of a scheduled time."""

    @pytest.mark.parametrize(
        ("declared", "at", "zone", "expected"),
        [
            (day(), "2026-01-01T03:00:00Z", "UTC", "2026-01-01"),
            (day(), "2026-01-01T03:00:00Z", NEW_YORK, "2025-12-31"),
            (day(), "2025-12-31T18:00:00Z", TOKYO, "2026-01-01"),
            (day(offset=-1), "2026-03-01T12:00:00Z", "UTC", "2026-02-28"),
            (day(offset=1), "2025-12-31T23:47:00Z", "UTC", "2026-01-01"),
            (hour(), "2026-01-01T03:59:59Z", "UTC", "2026-01-01T03"),
            (hour(offset=-1), "2026-01-01T00:10:00Z", "UTC", "2025-12-31T23"),
            (hour(), "2025-11-02T05:30:00Z", NEW_YORK, "2025-11-02T01"),
            (hour(), "2025-11-02T06:30:00Z", NEW_YORK, "2025-11-02T01"),
            (hour(offset=-1), "2025-03-09T07:30:00Z", NEW_YORK, "2025-03-09T01"),
            (week(), "2025-12-29T00:00:00Z", "UTC", "2026-W01"),
            (week(offset=-1), "2026-01-05T00:00:00Z", "UTC", "2026-W01"),
            (month(), "2026-01-01T03:00:00Z", NEW_YORK, "2025-12"),
            (month(offset=-1), "2026-01-15T00:00:00Z", "UTC", "2025-12"),
            (month(offset=-13), "2026-01-15T00:00:00Z", "UTC", "2024-12"),
            (text(), "2026-01-01T03:00:00Z", NEW_YORK, "2026-01-01T03:00:00Z"),
        ],
    )
    def test_forms(self, declared: DeclaredPartition, at: str, zone: str, expected: str) -> None:
        value = partition_at(declared.rule, parse_iso(at), zone)
        assert value == expected
        assert check_partition(declared.rule, value) == value

    def test_without_a_rule_an_occurrence_is_its_own_partition(self) -> None:
        assert (
            partition_at(None, parse_iso("2026-01-01T03:00:00Z"), TOKYO) == "2026-01-01T03:00:00Z"
        )

    def test_the_config_decides_the_day_and_the_pipeline_the_window(self) -> None:
        """At 23:30 in New York it is tomorrow in Tokyo; the mode is chosen in New York."""
        made = Pipeline("p", partition="d", timezone=NEW_YORK, modes=game_day_modes())
        now = parse_iso("2025-12-31T04:30:00Z")
        assert mode_and_partition(made.definition(), now) == ("overnight", "2025-12-30")
        assert mode_and_partition(made.definition(), now, zone=TOKYO) == ("overnight", "2025-12-30")
        noon = parse_iso("2025-12-31T17:00:00Z")
        assert mode_and_partition(made.definition(), noon, zone=TOKYO) == ("same_day", "2026-01-01")

    def test_a_window_across_midnight_moves_no_partition_by_itself(self) -> None:
        evening = Mode("evening", window="22:00-06:00")
        now = parse_iso("2025-12-31T23:30:00Z")
        assert partition_of(evening, now=now, timezone="UTC") == "2025-12-31"

    def test_the_offsets_of_pipeline_and_mode_add_up(self) -> None:
        now = parse_iso("2025-12-31T18:00:00Z")
        rule = PartitionRule(offset=-7)
        found = partition_of(GAME_DAY["tomorrow"], now=now, timezone="UTC", rule=rule)
        assert found == "2025-12-25"

    @pytest.mark.parametrize("hours", range(24))
    def test_without_modes_the_time_of_day_changes_nothing(self, hours: int) -> None:
        """A schedule at 18:47 processes the day it fires on, not the next one."""
        made = Pipeline("p", partition=day("d"))
        now = parse_iso(f"2025-12-31T{hours:02}:47:00Z")
        assert mode_and_partition(made.definition(), now) == ("daily", "2025-12-31")


class TestValidity:
    """Which texts are partitions."""

    @pytest.mark.parametrize(
        ("declared", "value"),
        [
            (day(), "2026-13-40"),
            (day(), "2026-02-29"),
            (day(), "2026-1-1"),
            (day(), "20260101"),
            (day(), "2026-09-20..2026-10-19"),
            (day(), "2026-01-01T00"),
            (day(), " 2026-01-01"),
            (hour(), "2026-01-01"),
            (hour(), "2026-01-01T24"),
            (week(), "2026-W54"),
            (week(), "2025-W53"),
            (week(), "2026-01"),
            (month(), "2026-13"),
            (month(), "2026-01-01"),
        ],
    )
    def test_others_are_refused(self, declared: DeclaredPartition, value: str) -> None:
        with pytest.raises(InvalidInput, match=r"partition: expected an? .*such as 20"):
            check_partition(declared.rule, value)

    @pytest.mark.parametrize(
        ("value", "fix"),
        [
            ("2026-5-4", "Did you mean 2026-05-04?"),
            ("2026/05/04", "Did you mean 2026-05-04?"),
            ("20260504", "Did you mean 2026-05-04?"),
            ("04/05/2026", "Write year, month and day, in this order."),
            ("2026-02-30", "The calendar has no such day."),
            ("2026-2-30", None),
            ("today", None),
        ],
    )
    def test_another_way_to_write_a_date_gets_its_fix(self, value: str, fix: str | None) -> None:
        with pytest.raises(InvalidInput) as caught:
            check_partition(PartitionRule(), value)
        assert caught.value.fix == fix

    def test_a_range_gets_its_fix(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            check_partition(PartitionRule(), "2026-09-20..2026-10-19")
        assert caught.value.fix is not None
        assert "repeat it for each day of the range" in caught.value.fix

    @pytest.mark.parametrize("rule", [None, text().rule])
    def test_any_text_is_one_without_a_rule_and_by_text(self, rule: PartitionRule | None) -> None:
        assert check_partition(rule, "batch 7 .. 9") == "batch 7 .. 9"
        with pytest.raises(InvalidInput, match="printable characters"):
            check_partition(rule, "")


class TestDeclaration:
    """What a pipeline accepts, stores and refuses."""

    @pytest.mark.parametrize(
        ("declared", "column", "rule"),
        [
            ("game_date", "game_date", PartitionRule()),
            (day("game_date"), "game_date", PartitionRule()),
            (day, None, PartitionRule()),
            (day(offset=-1), None, PartitionRule(offset=-1)),
            (hour("h", repeats=True), "h", hour(repeats=True).rule),
            (text, None, text().rule),
        ],
    )
    def test_forms(self, declared: Any, column: str | None, rule: PartitionRule) -> None:
        made = Pipeline("p", partition=declared)
        assert (made.terms.partition, made.terms.rule) == (column, rule)
        assert partition_rule_of(made.definition()) == rule
        assert loads(PartitionRule, dumps(rule)) == rule

    def test_none_is_declared_by_default(self) -> None:
        made = Pipeline("p")
        assert made.terms.rule is None
        assert partition_rule_of(made.definition()) is None

    def test_equal_declarations_have_equal_digests(self) -> None:
        assert Pipeline("p", partition="d").digest == Pipeline("p", partition=day("d")).digest
        assert Pipeline("p", partition="d").digest != Pipeline("p", partition=hour("d")).digest

    @pytest.mark.parametrize(
        ("declare", "message"),
        [
            (lambda: Pipeline("p", partition=7), r"partition must be day\(...\), hour"),  # type: ignore[arg-type]
            (lambda: Pipeline("p", partition=day("a b")), "'a b' is not a column name"),
            (lambda: day(offset=5_000), r"day\(offset=...\) must be a whole number"),
            (lambda: month(repeats=1), r"month\(repeats=...\) must be True or False"),  # type: ignore[arg-type]
        ],
    )
    def test_errors(self, declare: Any, message: str) -> None:
        with pytest.raises(DeclarationError, match=message):
            declare()

    @pytest.mark.parametrize(
        ("name", "form"),
        [("hour", "hour"), ("week", "week"), ("month", "month"), ("Hourly", "hour"),
         ("weekly", "week"), ("MONTHLY", "month")],
    )  # fmt: skip
    def test_the_name_of_another_form_is_not_a_column(self, name: str, form: str) -> None:
        """`partition="month"` would be days in a column `month`, which the explicit form says."""
        with pytest.raises(DeclarationError) as caught:
            Pipeline("p", partition=name)
        message = caught.value.message
        assert (
            f"got '{name}'. For partitions by {form} write partition={form}(\"column\")" in message
        )
        explicit = Pipeline("p", partition=day(name))
        assert (explicit.terms.partition, explicit.terms.rule) == (name, DAY_RULE)

    @pytest.mark.parametrize("name", ["day", "Day", "month_start", "hours"])
    def test_other_names_are_columns(self, name: str) -> None:
        assert Pipeline("p", partition=name).terms.partition == name

    def test_modes_shift_only_days(self) -> None:
        made = Pipeline("p", partition=month("m"), modes=game_day_modes())
        made.phase("a").external("x")
        with pytest.raises(DeclarationError, match=r"partition_days=-1, but .* by month"):
            made.check()

    def test_only_days_have_days_before_them(self) -> None:
        made = Pipeline("p", partition=hour("h"))
        made.phase("a").external("x", needs=[historical("t", days=3)])
        with pytest.raises(DeclarationError, match=r"partitions are by hour; historical"):
            made.check()
