"""The rule on deadlines, proved on calls that it must and must not report."""

import pytest

from tests.tidy.deadlines import short_deadlines


@pytest.mark.parametrize(
    ("text", "is_fault"),
    [
        ("event.wait(5)", True),
        ("thread.join(timeout=20.0)", True),
        ("socket.create_connection(address, timeout=5)", True),
        ("event.wait(60)", False),
        ("event.wait(0.01)", False),
        ("event.wait(1)", False),
        ("event.wait()", False),
        ("event.wait(SECONDS)", False),
        ("', '.join(names)", False),
    ],
)
def test_rule(text: str, is_fault: bool) -> None:
    """The rule reports a deadline, and neither a poll nor another call of that name."""
    assert bool(short_deadlines("tests/a.py", text)) is is_fault
