"""Assessments of probe observations, and errors in declared needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.core import stored_json
from penstock.core.clock import HOUR
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.formatting import format_percent
from penstock.flows.gates.evidence import Assessment, DependencyStatus, Observation, assess
from penstock.pipelines.declare.needs import historical, optional, per, same_day
from penstock.pipelines.dependency import Dependency, ExpectKind
from tests.kits.gates import NOW


def assessed(
    need: Dependency, rows: int | None = 200, expected: int = 200, **fields: Any
) -> Assessment:
    """Return the assessment of a need with `rows` rows; `aged` shifts judged_at."""
    aged, counts = fields.pop("aged", 0), fields.pop("age_counts", True)
    observation = Observation(key=need.key, looked_at=NOW, rows=rows, expected=expected, **fields)
    return assess(need, observation, judged_at=NOW + aged, age_counts=counts)


class TestCompleteness:
    """The share of expected rows that were found."""

    def test_values_and_issues(self) -> None:
        found = assessed(same_day("t"), 195)
        assert (found.completeness, found.quality, found.status) == (
            97.5,
            1.0,
            DependencyStatus.DEGRADED,
        )
        assert found.issues == ("195/200 rows (97.5 %)",)

    def test_an_off_day_is_complete(self) -> None:
        found = assessed(same_day("t", max_age="1h", not_null=["x"]), 0, 0)
        assert (found.completeness, found.quality, found.absent) == (100.0, 1.0, False)

    def test_no_rows_where_some_are_expected(self) -> None:
        found = assessed(same_day("t"), 0)
        assert (found.completeness, found.quality, found.absent) == (0.0, 0.0, True)
        assert found.issues == ("0/200 rows (0 %)",)

    def test_more_rows_than_expected_is_complete(self) -> None:
        assert assessed(same_day("t"), 900).completeness == 100.0

    def test_without_an_expectation_one_row_is_enough(self) -> None:
        need = same_day("t")
        assert need.expect.words == "at least one row"
        one = Observation(key=need.key, looked_at=NOW, rows=1)
        assert assess(need, one, judged_at=NOW).status is DependencyStatus.COMPLETE

    @pytest.mark.parametrize("observation", [None, Observation(key="k", looked_at=NOW)])
    def test_data_without_an_observation_is_missing(self, observation: Observation | None) -> None:
        for need in (same_day("t"), historical("t", days=3), optional("t")):
            found = assess(need, observation, judged_at=NOW)
            assert (found.absent, found.status) == (True, DependencyStatus.MISSING)
            assert found.issues[0].startswith("probe failed: ")

    def test_a_probe_error_means_missing_data(self) -> None:
        found = assessed(same_day("t"), 200, error="no such table: t")
        assert (found.absent, found.completeness) == (True, 0.0)
        assert found.issues == ("probe failed: no such table: t",)
        assert found.error == "no such table: t"

    def test_percentages_are_never_rounded_up(self) -> None:
        assert [format_percent(v) for v in (100.0, 99.99, 97.5, 0.0, 72.7272)] == [
            "100 %",
            "99.9 %",
            "97.5 %",
            "0 %",
            "72.7 %",
        ]


class TestQuality:
    """Freshness, validity and consistency, over the components that apply."""

    @pytest.mark.parametrize(
        ("hours", "freshness"), [(0, 1.0), (1, 1.0), (1.1, 0.8), (6, 0.8), (12, 0.5), (12.1, 0.3)]
    )
    def test_freshness_is_relative_to_max_age(self, hours: float, freshness: float) -> None:
        need = same_day("t", max_age="1h")
        found = assessed(need, newest_us=NOW, aged=round(hours * HOUR))
        assert found.freshness == found.quality == freshness

    def test_the_age_is_an_issue(self) -> None:
        found = assessed(same_day("t", max_age="1h"), newest_us=NOW, aged=round(7.2 * HOUR))
        assert found.issues == ("data 7.2 hours old",)

    def test_age_does_not_count_in_backfill_or_undeclared(self) -> None:
        old = {"newest_us": NOW, "aged": 9_000 * HOUR}
        assert assessed(same_day("t", max_age="1h"), age_counts=False, **old).quality == 1.0
        assert assessed(same_day("t"), **old).quality == 1.0

    def test_rows_without_a_time_are_not_fresh(self) -> None:
        found = assessed(same_day("t", max_age="1h"))
        assert (found.freshness, found.issues) == (0.3, ("age of data unknown",))

    def test_all_components(self) -> None:
        need = same_day("t", max_age="1h", not_null=["x"], checks=["one", "two"])
        found = assessed(
            need,
            newest_us=NOW,
            aged=2 * HOUR,
            not_null_share=0.9,
            checks_total=2,
            checks_failed=("check 2",),
        )
        assert found.quality == pytest.approx(0.4 * 0.8 + 0.4 * 0.9 + 0.2 * 0.5)
        assert found.issues == (
            "data 2.0 hours old",
            "10 % of required cells empty",
            "check failed: check 2",
        )

    def test_custom_weights(self) -> None:
        need = same_day("t", not_null=["x"], checks=["q"], quality={"consistency": 1})
        assert assessed(need, not_null_share=0.1, checks_total=1).quality == 1.0

    def test_displayed_status(self) -> None:
        need = same_day("t", not_null=["x"])
        rows = [(200, 0.95), (200, 0.94), (160, 0.90), (159, 0.90), (200, 0.89)]
        found = [assessed(need, n, not_null_share=share).status.value for n, share in rows]
        assert found == ["COMPLETE", "DEGRADED", "DEGRADED", "MISSING", "MISSING"]


class TestNeeds:
    """Declarations of needs."""

    def test_all_options_round_trip(self) -> None:
        needs = [
            same_day(
                "my-project.data_set.t", expect=per(20, "s", of="game_id"), max_age="1h",
                not_null=["a", "a", "b"], checks={"no twins": "SELECT 1"}, weight=2,
                fail_if_missing=True, partition="day", warehouse="pg", modes={"manual"},
            ),
            same_day("t", expect="SELECT 5", critical=False),
            optional("t", expect=len, age_column="loaded_at"),
            historical("t", days=10, min_days=8, degraded_at=3),
        ]  # fmt: skip
        for need in needs:
            assert stored_json.loads(Dependency, stored_json.dumps(need)) == need
        assert [n.expect.kind for n in needs[:3]] == [
            ExpectKind.PER,
            ExpectKind.QUERY,
            ExpectKind.CALLABLE,
        ]
        assert needs[2].expect.body is len
        assert needs[0].not_null == ("a", "b")
        assert needs[0].expect.rows(11) == 220
        assert per(12.5, "s").rows(3) == 38

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "a b",
            "a;drop",
            'a"b',
            "a.b.c.d",
            "a-b",
            "a-b.c",
            "1a",
            "a\n",
            "a..b",
            "é",
            None,
            "a'",
        ],
    )
    def test_invalid_names(self, name: Any) -> None:
        for make in (same_day, optional, lambda n: historical(n, days=1), lambda n: per(1, n)):
            with pytest.raises(DeclarationError, match="is not a table name"):
                make(name)
        for option in ("partition", "age_column"):
            with pytest.raises(DeclarationError, match="is not a column name"):
                same_day("t", **{option: name})
        with pytest.raises(DeclarationError, match="is not a column name"):
            same_day("t", not_null=[name])

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda: same_day("t", expect=-1), "expect takes a number of rows"),
            (lambda: same_day("t", expect=True), "expect takes a number of rows"),
            (lambda: same_day("t", expect=" "), "takes the text of a query"),
            (lambda: same_day("t", max_age=0), "max_age must be longer than zero"),
            (lambda: same_day("t", max_age="soon"), "max_age"),
            (lambda: same_day("t", not_null="points"), "not_null takes a list"),
            (lambda: same_day("t", checks="SELECT 1"), "checks takes a list"),
            (
                lambda: same_day("t", checks={"a;": "x"}),
                "is not a check name: use up to 80",
            ),
            (lambda: same_day("t", checks={"a": ""}), "check 'a' takes the text of a query"),
            (lambda: same_day("t", weight=-1), "weight must be a number of at least 0"),
            (lambda: same_day("t", weight=float("nan")), "weight must be a number of at least 0"),
            (lambda: same_day("t", critical="yes"), "critical must be True or False"),  # type: ignore[arg-type]
            (lambda: same_day("t", critical=False, fail_if_missing=True), "contradicts"),
            (lambda: same_day("t", quality={"speed": 1}), "quality takes weights of"),
            (lambda: same_day("t", modes=[]), "modes takes mode names"),
            (lambda: same_day("t", exepct=1), "exepct is not an option"),  # type: ignore[call-arg]
            (lambda: optional("t", weight=1), "weight does not apply to optional"),  # type: ignore[call-arg]
            (lambda: historical("t", days=0), "1 ≤ degraded_at"),
            (lambda: historical("t", days=5, min_days=6), "1 ≤ degraded_at"),
            (lambda: historical("t", days=5, min_days=3, degraded_at=4), "1 ≤ degraded_at"),
            (lambda: historical("t", days="5"), "whole number of days"),  # type: ignore[arg-type]
            (lambda: historical("t", days=5, expect=1), "does not apply to historical"),  # type: ignore[call-arg]
            (lambda: per(0, "t"), "rows per unit above 0"),
            (lambda: per(True, "t"), "rows per unit above 0"),
        ],
    )
    def test_invalid_options(self, make: Callable[[], Any], text: str) -> None:
        with pytest.raises(DeclarationError, match=text):
            make()


class TestRecord:
    """Records written by this or another version."""

    def test_a_record_of_another_version(self) -> None:
        data = {"key": "k", "looked_at": 5, "later": "unknown"}
        assert stored_json.from_json(Observation, data) == Observation(key="k", looked_at=5)

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            ({"key": "k"}, "Observation: .* missing required field `looked_at`"),
            ({"key": 3, "looked_at": 1}, r"Expected `str`, got `int` - at `\$.key`"),
            ({"key": "k", "looked_at": True}, "Expected `int`, got `bool`"),
            ({"key": "k", "looked_at": 1, "days_missing": "x"}, "Expected `array`, got `str`"),
            (["no"], "Expected `object`, got `array`"),
        ],
    )
    def test_invalid_records(self, data: Any, text: str) -> None:
        with pytest.raises(InvalidInput, match=text):
            stored_json.from_json(Observation, data)
