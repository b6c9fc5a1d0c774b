"""How pages say numbers, times and texts."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.web import words
from penstock.web.links import linked, page_of
from penstock.web.parts import address
from penstock.web.security import form_token, is_form_token, preview_token, previewed

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.34, "340 ms"), (38, "38 s"), (167, "2 min 47 s"), (120, "2 min"),
     (9780, "2 h 43 min"), (97200, "1 d 3 h"), (-5, "-5 s")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert words.duration(timedelta(seconds=seconds)) == text


def test_nothing_is_a_dash_and_zero_is_zero() -> None:
    assert (words.duration(None), words.number(None), words.number(0)) == ("–", "–", "0")
    assert words.percent(1, 0) == "–"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(63, 21967, "0.29 %"), (9996, 10000, "99.96 %"), (999_999, 1_000_000, "99.99 %"),
     (5, 5, "100 %"), (0, 5, "0 %"), (971, 1000, "97.1 %")],
)  # fmt: skip
def test_less_than_all_is_never_100_percent(part: int, whole: int, text: str) -> None:
    assert words.percent(part, whole) == text


def test_times_name_their_zone() -> None:
    assert words.clock(NOW.replace(hour=2), NOW) == "02:00:00Z"
    assert words.clock(NOW - timedelta(days=60), NOW) == "31 Dec 12:00Z"
    assert words.clock(NOW - timedelta(days=400), NOW) == "2025-01-25 12:00Z"


def test_control_characters_are_made_visible() -> None:
    assert words.visible("a\x1b[0m\x00\x7f\u202eb\u0085") == "a␛[0m␀␡\\u202eb\\u0085"
    assert len(words.visible("x" * 5000)) == 2001


def test_ids_in_a_text_become_links_and_the_rest_stays_text() -> None:
    made = linked("<b>run_7h2kq0v3</b> of flow_7h2kq0v3, not xrun_7h2kq0v3")
    assert '<a class="link mono" href="/runs/run_7h2kq0v3">run_7h2kq0v3</a>' in made
    assert made.startswith("&lt;b&gt;")
    assert made.count("<a ") == 2
    assert page_of("run_7h2kq0v3/../keys") is None


def test_an_address_is_always_one_of_this_server() -> None:
    assert address("runs", "../x?y#z", q="a&b=c", no=None) == "/runs/..%2Fx%3Fy%23z?q=a%26b%3Dc"


def test_tokens_are_bound_to_session_action_and_subject() -> None:
    token = form_token(b"s", "one")
    assert is_form_token(b"s", "one", token)
    assert not is_form_token(b"s", "two", token)
    assert not is_form_token(b"t", "one", token)
    shown = preview_token(b"s", "one", "replay", {"a": "1"}, 5, 100)
    assert previewed(b"s", "one", "replay", {"a": "1"}, shown) == (100, 5)
    for session, action, fixed in (
        ("two", "replay", {"a": "1"}), ("one", "discard", {"a": "1"}),
        ("one", "replay", {"a": "2"}), ("one", "replay", {"a1": ""}),
    ):  # fmt: skip
        assert previewed(b"s", session, action, fixed, shown) is None
    assert previewed(b"s", "one", "replay", {"a": "1"}, shown.replace(".5.", ".6.")) is None
    assert previewed(b"s", "one", "replay", {"a": "1"}, "x") is None


@pytest.mark.parametrize(
    ("shown", "meant"),
    [
        ("07:15:09Z", "2026-01-03T07:15:09Z"),
        ("07:15Z", "2026-01-03T07:15:00Z"),
        ("30 Dec 23:59Z", "2025-12-30T23:59:00Z"),
        ("2 Feb 00:10Z", "2026-02-02T00:10:00Z"),
        ("2024-02-29 12:00Z", "2024-02-29T12:00:00Z"),
    ],
)
def test_a_time_in_a_sentence_can_follow_the_pages_zone(shown: str, meant: str) -> None:
    now = datetime(2026, 1, 3, 9, tzinfo=UTC)
    made = linked(f"<i> ended at {shown}.", now)
    assert made == f'&lt;i&gt; ended at <time datetime="{meant}">{shown}</time>.'
    assert "<time" not in linked(f"ended at {shown}")
    assert "<time" not in linked("at 99:99Z or 07:15", now)


def test_what_clock_writes_is_found_again() -> None:
    now = datetime(2026, 1, 3, 9, tzinfo=UTC)
    for at in (now, now - timedelta(days=40), now - timedelta(days=800)):
        assert f'datetime="{at:%Y-%m-%dT%H:%M:%SZ}"' in linked(words.clock(at, now), now)
