"""How far ahead a worker claims, and in which order claimed runs are taken."""

import threading

from penstock.worker.buffer import RunBuffer
from penstock.worker.claim_size import ClaimSizer
from tests.worker.kit import held_run


class TestPace:
    """Claim sizes."""

    def test_long_runs_are_claimed_when_they_can_start(self) -> None:
        pace = ClaimSizer(concurrency=5, batch_max=500)
        assert (pace.is_long, pace.chunk_size()) == (True, 1)
        assert [pace.claim_size(load) for load in (0, 3, 5, 9)] == [5, 2, 0, 0]

    def test_tiny_runs_are_claimed_ahead_in_batches(self) -> None:
        pace = ClaimSizer(concurrency=5, batch_max=500)
        pace.observe(500, 0.005)
        assert not pace.is_long
        assert pace.claim_size(0) == 500
        assert pace.claim_size(500) == 500
        assert pace.claim_size(900) == 0  # a small claim is not worth a transaction
        assert pace.chunk_size() == 500

    def test_medium_runs_are_claimed_partly_ahead(self) -> None:
        pace = ClaimSizer(concurrency=5, batch_max=500)
        pace.observe(1000, 5.0)
        assert 100 <= pace.claim_size(0) <= 200
        assert pace.chunk_size() == 2

    def test_one_long_run_changes_little_and_many_change_the_mode(self) -> None:
        pace = ClaimSizer(concurrency=5, batch_max=500)
        pace.observe(500, 0.005)
        pace.observe(0, 99.0)
        pace.observe(1, 0.1)
        assert not pace.is_long
        pace.observe(20, 2.0)
        assert pace.is_long


class TestBuffer:
    """Chunks, suspects, age."""

    def test_batches_keep_their_order_and_are_cut_to_chunks(self) -> None:
        buffer = RunBuffer(lambda: None)
        buffer.put([held_run(run_id=n, token=n) for n in range(5)], 1.0)
        buffer.put([held_run(run_id=9, token=9)], 0.5, first=True)
        taken = [buffer.take(lambda: 3) for _ in range(3)]
        assert [[run.run_id for run in part or ()] for part in taken] == [[9], [0, 1, 2], [3, 4]]
        assert buffer.count == 0

    def test_suspects_come_last_and_alone(self) -> None:
        buffer = RunBuffer(lambda: None)
        runs = [held_run(run_id=1, lapses=1), held_run(run_id=2, stales=1), held_run(run_id=3)]
        buffer.put(runs, 1.0)
        assert buffer.has_suspects
        taken = [buffer.take(lambda: 500) for _ in range(3)]
        assert [[run.run_id for run in part or ()] for part in taken] == [[3], [1], [2]]

    def test_a_run_that_is_already_marked_is_not_a_suspect(self) -> None:
        buffer = RunBuffer(lambda: None)
        buffer.put([held_run(lapses=1, started_at=5)], 1.0)
        assert not buffer.has_suspects

    def test_runs_that_waited_too_long_are_removed(self) -> None:
        buffer = RunBuffer(lambda: None)
        buffer.put([held_run(run_id=1)], 1.0)
        buffer.put([held_run(run_id=2, lapses=1)], 1.5)
        buffer.put([held_run(run_id=3)], 3.0)
        assert [run.run_id for run in buffer.expire(2.0)] == [1, 2]
        assert [run.run_id for run in buffer.clear()] == [3]
        assert buffer.count == 0

    def test_takers_are_requested_only_while_runs_wait(self) -> None:
        requested: list[int] = []
        buffer = RunBuffer(lambda: requested.append(buffer.count))
        buffer.put([held_run(run_id=n) for n in range(3)], 1.0)
        for _ in range(3):
            buffer.take(lambda: 1)
        assert requested == [3, 2, 1]

    def test_closing_releases_takers(self) -> None:
        buffer = RunBuffer(lambda: None)
        taken: list[object] = []
        taker = threading.Thread(target=lambda: taken.append(buffer.take(lambda: 1)))
        taker.start()
        buffer.close()
        taker.join(60)
        assert taken == [None]
