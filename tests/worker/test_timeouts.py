"""The watch releases runs; those queued while others are being released are not lost."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.errors import StoreUnavailable
from penstock.runs.rows import HeldRun
from penstock.worker.options import WorkerOptions
from penstock.worker.timeouts import RunWatch
from tests.worker.kit import held_run


class Steps:
    """Fake worker steps that hold no runs and queue more of them during each release."""

    def __init__(self) -> None:
        self.options = WorkerOptions()
        self.clock = SimpleNamespace(monotonic=lambda: 100.0)
        self.session = SimpleNamespace(safe_until=200.0)
        self.running: dict[int, Any] = {}
        self.released: list[int] = []
        self.late: list[HeldRun] = []
        self.is_away = False
        executor = SimpleNamespace(
            steal=lambda _: None,
            expire=lambda _: [],
            waiting=0,
            buffer=SimpleNamespace(expire=lambda _: [], count=0),
        )
        gathering = SimpleNamespace(expire=lambda *_: [], tick=lambda _: None)
        made: Any = (self, executor, executor, gathering)
        self.watch = RunWatch(*made, on_ends=lambda: None)

    def release_many(self, runs: list[HeldRun]) -> int:
        late, self.late = self.late, []
        tokens = [run.token for run in runs]
        self.watch.release_later(late)
        if self.is_away:
            raise StoreUnavailable("away")
        self.released += tokens
        return len(tokens)


@pytest.mark.parametrize("is_away", [False, True])
def test_runs_queued_during_a_release_are_released_next(is_away: bool) -> None:
    steps = Steps()
    steps.is_away = is_away
    steps.watch.release_later([held_run(token=1), held_run(token=2)])
    steps.late = [held_run(token=3)]
    if is_away:
        with pytest.raises(StoreUnavailable):
            steps.watch.tick()
        steps.is_away = False
    else:
        steps.watch.tick()
    steps.watch.tick()
    steps.watch.tick()
    assert steps.released == [1, 2, 3]
