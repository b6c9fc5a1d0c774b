"""A pytest plugin that prints the outcome of a suite as one JSON line, for `make prove`.

Numbers that tests record with `record_property`, and what harnesses count, are added up by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from tests.harness.figures import FIGURES


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Attach the counts of harnesses to the test."""
    FIGURES.clear()
    try:
        return (yield)
    finally:
        item.user_properties += FIGURES.items()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the line, in the process that collects the results of all workers."""
    stats = terminalreporter.stats
    counts = {name: len(stats.get(name, ())) for name in ("passed", "failed", "error", "skipped")}
    totals: Counter[str] = Counter()
    for report in stats.get("passed", ()):
        for name, value in report.user_properties:
            if isinstance(value, int):
                totals[name] += value
    terminalreporter.ensure_newline()
    terminalreporter.write_line(json.dumps({**counts, **totals}))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail if no test was selected: a proof of nothing is none."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
