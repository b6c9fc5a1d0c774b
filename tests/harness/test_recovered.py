"""The decision whether a system has recovered, and the CPU that other programs use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import chaos
from tests.harness.machine_load import CpuTicks, Process, cpu_ticks, others_share, own_ticks
from tests.harness.recovered import REPEATS_MAX, WINDOWS, Window, is_measured, recovery_of

QUIET, BUSY = 0.0, 0.5


@pytest.mark.parametrize(
    ("after", "is_enough", "expected"),
    [
        ([], False, None),
        ([Window(1.2, QUIET)] * (WINDOWS - 1), False, None),  # one good window ends nothing
        ([Window(2.0, QUIET), *[Window(0.8, QUIET)] * (WINDOWS - 1)], True, 0.9),
        ([Window(0.5, BUSY), *[Window(1.0, QUIET)] * WINDOWS], True, 1.0),  # others explain it
        ([Window(1.5, BUSY), *[Window(1.0, QUIET)] * WINDOWS], True, 1.0),
        ([*[Window(1.0, QUIET)] * WINDOWS, Window(3.0, QUIET)], True, 1.0),  # not measured
        ([Window(1.0, BUSY)] * (REPEATS_MAX - 1), False, None),
        ([Window(1.0, BUSY)] * REPEATS_MAX, True, None),
    ],
)
def test_windows_that_count(after: list[Window], is_enough: bool, expected: float | None) -> None:
    """Recovery is the mean of a fixed number of windows on a similar machine, whatever they say."""
    assert is_measured(after, QUIET) is is_enough
    assert recovery_of(after, QUIET) == expected


def test_times_that_cannot_be_compared_are_faults() -> None:
    """A baseline of a busy machine proves nothing, even if the throughput is higher later."""
    found = {"scenario": "restart", "lost": 0, "doubled": 0, "partial": 0, "unasked": 0,
             "recovery": None, "others_cpu_before": BUSY, "others_cpu_after": [QUIET]}  # fmt: skip
    (fault,) = chaos.faults_of(found)
    assert "cannot be compared" in fault
    assert chaos.faults_of({**found, "recovery": 0.95}) == []
    assert chaos.faults_of({**found, "recovery": 0.94}) == [
        "recovery is 94% of the baseline, expected 95%"
    ]


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
