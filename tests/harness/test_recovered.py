"""The decision whether a system has recovered, and the CPU that other programs use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import chaos
from tests.harness.machine_load import CpuTicks, Process, cpu_ticks, others_share, own_ticks
from tests.harness.recovered import REPEATS_MAX, WINDOWS_MAX, Window, is_decided

REACHED, MISSED = 0.96, 0.8
QUIET, BUSY = 0.0, 0.5


@pytest.mark.parametrize(
    ("others", "after", "expected"),
    [
        (QUIET, [], False),
        (QUIET, [Window(REACHED, QUIET)], True),
        (QUIET, [Window(MISSED, QUIET)], False),
        (QUIET, [Window(MISSED, QUIET)] * WINDOWS_MAX, True),
        (QUIET, [Window(MISSED, BUSY)] * WINDOWS_MAX, False),  # others explain it
        (QUIET, [Window(REACHED, BUSY)], True),  # in spite of others
        (BUSY, [Window(REACHED, QUIET)], False),  # the baseline was too low
        (BUSY, [Window(MISSED, QUIET)] * WINDOWS_MAX, True),
        (QUIET, [Window(MISSED, BUSY)] * REPEATS_MAX, True),
    ],
)
def test_only_similar_times_decide(others: float, after: list[Window], expected: bool) -> None:
    """A time counts unless other programs explain its throughput."""
    assert is_decided(after, others) is expected


def test_times_that_cannot_be_compared_are_faults() -> None:
    """A baseline of a busy machine proves nothing, even if the throughput is higher later."""
    found = {"scenario": "restart", "lost": 0, "doubled": 0, "partial": 0, "unasked": 0,
             "recovery": 1.4, "others_cpu_before": BUSY, "others_cpu_after": QUIET}  # fmt: skip
    (fault,) = chaos.faults_of(found)
    assert "cannot be compared" in fault
    assert chaos.faults_of({**found, "others_cpu_after": BUSY}) == []


def test_own_time_includes_descendants() -> None:
    """A server's processes and their children are own, also below another session."""
    known = {1: Process(0, 500), 7: Process(1, 10), 8: Process(7, 20), 9: Process(8, 30)}
    assert own_ticks(known, 7) == 60


def test_shares(tmp_path: Path) -> None:
    """Others used what neither this process nor its descendants did; ended children are own."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text("7 (a) b) S 1 7 7 0 0 0 0 0 0 0 10 5 3 2 20 0")
    (tmp_path / "stat").write_text("cpu 100 0 50 800 40 0 0 10 0 0\ncpu0 1\n")
    found = cpu_ticks(tmp_path, 7)
    assert found == CpuTicks(total=1_000, busy=160, own=20)
    assert others_share(CpuTicks(0, 0, 0), found) == pytest.approx(0.14)
    assert cpu_ticks(tmp_path / "none") == CpuTicks()
    assert others_share(found, found) == 0
