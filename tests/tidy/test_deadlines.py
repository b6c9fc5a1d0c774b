"""Deadlines in tests: a busy machine is slower, and a deadline that is met costs nothing."""

import ast
from pathlib import Path

import pytest

from tests.tidy.files import nodes_of, sources_read

ROOT = Path(__file__).parents[2]
LEAST_SECONDS = 60
LONGEST_POLL = 1
CALLS = {"wait", "join", "acquire", "communicate", "urlopen", "create_connection", "HTTPConnection"}


def short_deadlines(path: str, text: str) -> list[str]:
    """Return waits that end after less than a minute, unless they are the pause of a poll.

    Waits in processors and services are not meant: only a number in the call itself is read.
    """
    if not any(name in text for name in CALLS):
        return []
    faults = []
    for node in nodes_of(text):
        if not isinstance(node, ast.Call) or _called(node) not in CALLS:
            continue
        given = [one.value for one in node.keywords if one.arg == "timeout"] or node.args[:1]
        for one in given:
            seconds = one.value if isinstance(one, ast.Constant) else None
            if isinstance(seconds, int | float) and LONGEST_POLL < seconds < LEAST_SECONDS:
                faults.append(f"{path}:{node.lineno} waits {seconds} s; wait {LEAST_SECONDS}")
    return faults


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def test_deadlines() -> None:
    """No test gives up on another thread or process after a few seconds."""
    sources = [one for one in sources_read(ROOT) if one.path.startswith("tests/")]
    tests = [one for one in sources if one.path.endswith(".py") and one.path not in EXEMPT]
    assert len(tests) > 200
    faults = [short_deadlines(one.path, one.text) for one in tests]
    assert [fault for found in faults for fault in found] == []


EXEMPT = {
    "tests/services/test_supervisor.py",  # its `wait` counts steps
    "tests/harness/crash_bus_roles.py",  # programs that are killed while they wait
}


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
