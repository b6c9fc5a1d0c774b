"""Many configs that fail in the same way: one alert, and none of them is disabled. Both engines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.alerts.records import StoredAlert
from penstock.core.clock import HOUR
from penstock.schedules.common_cause import (
    CONFIGS_MIN,
    FailingGroup,
    cause_key,
    cause_message,
    is_common_cause,
)
from tests.kits.client_harness import Harness


def group(failing: int, active: int, **fields: str | None) -> FailingGroup:
    values = {"pipeline": "bill", "processor": "load", "error_type": "SERVICE_UNAVAILABLE",
              "warehouse": None, **fields}  # fmt: skip
    return FailingGroup(**values, failing=failing, active=active)  # type: ignore[arg-type]


class TestRule:
    """When a cause is common, and what the alert is about."""

    @pytest.mark.parametrize(
        ("failing", "active", "is_common"),
        [(4, 4, False), (5, 5, True), (5, 50, True), (5, 51, False), (200, 200, True),
         (999, 10_000, False), (1_000, 10_000, True)],
    )  # fmt: skip
    def test_threshold(self, failing: int, active: int, is_common: bool) -> None:
        """Five configs at least, and a tenth of the active ones."""
        assert is_common_cause(group(failing, active)) is is_common

    @given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
    def test_more_failures_never_hide_a_cause(self, failing: int, more: int, active: int) -> None:
        """The rule is monotone in the number of failing configs."""
        if is_common_cause(group(failing, active)):
            assert is_common_cause(group(failing + more, active))
        if failing < CONFIGS_MIN:
            assert not is_common_cause(group(failing, active))

    def test_pipelines_of_one_warehouse_share_an_alert(self) -> None:
        """Errors of the warehouse are one cause for all its pipelines; other errors are not."""
        one, two = group(9, 9, warehouse="w"), group(9, 9, warehouse="w", pipeline="other")
        assert cause_key(one) == cause_key(two)
        assert "warehouse w" in cause_message(one)
        bugs = [each._replace(error_type="UNKNOWN") for each in (one, two)]
        assert cause_key(bugs[0]) != cause_key(bugs[1])
        assert "warehouse" not in cause_message(bugs[0])


def fail_all(harness: Harness, times: int, *, only: int | None = None) -> None:
    """Let the hourly occurrences of all configs fail permanently, some hours in a row."""
    for _ in range(times):
        harness.clock.advance(HOUR)
        harness.tick()
        harness.admitter.run_once()
        held = harness.claim()
        bad = held if only is None else [run for run in held if run.config_id == only]
        harness.fail(*bad)
        harness.complete(*[run for run in held if run not in bad])


def alerts(harness: Harness, state: str = "open") -> list[StoredAlert]:
    return harness.client.alerts.list(state=state).items  # type: ignore[arg-type]


class TestConfigs:
    """What happens to the configs."""

    def test_an_outage_disables_nothing(self, harness: Harness) -> None:
        """Twenty configs fail six times: one alert with the number, all stay active."""
        for n in range(20):
            harness.config(f"c{n}")
        fail_all(harness, 6)
        (alert,) = alerts(harness)
        assert (alert.rule, alert.severity, alert.customer) == ("common_cause", "HIGH", None)
        assert "20 configs of nightly fail with VALIDATION_ERROR" in alert.message
        assert alert.detail["fix"].startswith("penstock dlq replay --pipeline nightly")
        assert all(config.is_active for config in harness.client.configs.list().items)

    def test_it_ends_by_itself(self, harness: Harness) -> None:
        """After an hour without failures the alert is resolved; single configs are judged again."""
        configs = [harness.config(f"c{n}") for n in range(6)]
        fail_all(harness, 4)
        assert len(alerts(harness)) == 1
        fail_all(harness, 1, only=configs[0].config_id)
        harness.clock.advance(HOUR)
        harness.sweeper.run_once()
        assert [one.rule for one in alerts(harness, "resolved")] == ["common_cause"]
        fail_all(harness, 1, only=configs[0].config_id)
        assert [one.rule for one in alerts(harness)] == ["config_disabled"]
        active = [config.is_active for config in harness.client.configs.list().items]
        assert sorted(active) == [False, True, True, True, True, True]

    def test_a_few_configs_are_disabled_as_before(self, harness: Harness) -> None:
        """Four failing configs have no common cause."""
        for n in range(4):
            harness.config(f"c{n}")
        fail_all(harness, 5)
        assert [one.rule for one in alerts(harness)] == ["config_disabled"] * 4

    def test_the_alert_is_not_updated_for_every_run(self, harness: Harness) -> None:
        """Within a minute further failures leave the row alone, so that workers do not queue."""
        for n in range(6):
            harness.config(f"c{n}")
        fail_all(harness, 2)
        harness.clock.advance(HOUR)
        harness.tick()
        for held in harness.claim():
            harness.fail(held)
        (alert,) = alerts(harness)
        assert alert.times == 1
