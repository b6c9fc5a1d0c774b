"""Deadlines in tests: a busy machine is slower, and a deadline that is met costs nothing."""

import ast

from tests.tidy.files import nodes_of

LEAST_SECONDS = 60
LONGEST_POLL = 1
CALLS = {"wait", "join", "acquire", "communicate", "urlopen", "create_connection", "HTTPConnection"}
EXEMPT = {
    "tests/services/test_supervisor.py",  # its `wait` counts steps
    "tests/harness/crash_bus_roles.py",  # programs that are killed while they wait
}


def short_deadlines(path: str, text: str) -> list[str]:
    """Return waits that end after less than a minute, unless they are the pause of a poll.

    Waits in processors and services are not meant: only a number in the call itself is read.
    """
    if path in EXEMPT or not any(name in text for name in CALLS):
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
