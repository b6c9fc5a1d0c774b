"""Overrides: validation, expiry and scope."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core import stored_json
from penstock.core.clock import DAY
from penstock.core.errors import InvalidInput
from penstock.flows.gates.override import Override, check_override
from tests.kits.gates import NOW, absent, history, override


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"expires_at": NOW}, "expires_at"),
        ({"expires_at": NOW + 7 * DAY + 1}, "expires_at"),
        ({"reason": " "}, "reason"),
        ({"reason": "x" * 2_001}, "reason"),
        ({"approved_by": ""}, "approved_by"),
        ({"customer": ""}, "customer"),
        ({"partition": " "}, "partition"),
    ],
)
def test_invalid_overrides(fields: dict[str, Any], field: str) -> None:
    """An override needs names, a reason and an expiry within a week; the error names the field."""
    with pytest.raises(InvalidInput) as caught:
        check_override(override(**fields), NOW)
    assert caught.value.field == field


def test_a_week_is_the_maximum() -> None:
    """Seven days are allowed, and the override is in force until it expires."""
    given = check_override(override(expires_at=NOW + 7 * DAY), NOW)
    assert given.is_live(NOW + 7 * DAY - 1)
    assert not given.is_live(NOW + 7 * DAY)
    assert stored_json.loads(Override, stored_json.dumps(given)) == given


def test_scope() -> None:
    """Customer, pipeline and partition must match; phase and dependency only if they are set."""
    wide, narrow = override(), override("raw.box", phase="analytics")
    for given in (wide, narrow):
        assert given.applies_to_gate("default", "nba", "2025-11-15", "analytics")
        assert not given.applies_to_gate("other", "nba", "2025-11-15", "analytics")
        assert not given.applies_to_gate("default", "nba", "2025-11-16", "analytics")
    assert wide.applies_to_gate("default", "nba", "2025-11-15", "predict")
    assert not narrow.applies_to_gate("default", "nba", "2025-11-15", "predict")
    assert narrow.applies_to(absent())
    assert not narrow.applies_to(history(3))
    assert override("historical:analytics.summary").applies_to(history(3))
