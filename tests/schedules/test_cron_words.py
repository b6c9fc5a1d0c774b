"""Cron expressions in words: what they say is when they fire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from penstock.schedules.cron.words import cron_text


@pytest.mark.parametrize(
    ("expression", "phrase"),
    [
        ("0 2 * * *", "every day at 02:00"),
        ("5 14,2 * * *", "every day at 02:05 and 14:05"),
        ("30 6 * * 1-5", "Monday to Friday at 06:30"),
        ("0 9 * * MON,7", "every Sunday and Monday at 09:00"),
        ("0 3 1 * *", "on day 1 of every month at 03:00"),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("7 * * * *", "every hour at minute 7"),
        ("0 */6 * * *", "every 6 hours at minute 0"),
        ("*/7 * * * *", 'by cron "*/7 * * * *"'),
        ("0 2 1 * 1", 'by cron "0 2 1 * 1"'),
        ("0 2 1 6 *", 'by cron "0 2 1 6 *"'),
        ("0 2 * * 5-1", 'by cron "0 2 * * 5-1"'),
        ("0 1,1 * * *", 'by cron "0 1,1 * * *"'),
        ("@daily", 'by cron "@daily"'),
    ],
)
def test_words(expression: str, phrase: str) -> None:
    assert cron_text(expression) == phrase


@given(
    minute=st.integers(0, 59),
    hours=st.sets(st.integers(0, 23), min_size=1, max_size=4),
    days=st.sets(st.integers(0, 6), min_size=1, max_size=6),
)
def test_it_fires_when_it_says(minute: int, hours: set[int], days: set[int]) -> None:
    """Every occurrence of two weeks is on a day and at a time of the text, and none is left out."""
    expression = f"{minute} {','.join(map(str, hours))} * * {','.join(map(str, days))}"
    phrase = cron_text(expression)
    start = datetime(2026, 3, 1, tzinfo=UTC) - timedelta(minutes=1)
    fired = CronSim(expression, start)
    found = [next(fired) for _ in range(len(hours) * len(days))]
    assert {f"{one:%H:%M}" for one in found} == {
        w for w in phrase.replace(",", "").split() if ":" in w
    }
    assert all(f"{one:%A}" in phrase for one in found)
    assert sum(day in phrase for day in {f"{one:%A}" for one in found}) == len(days)
