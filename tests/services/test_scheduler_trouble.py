"""The scheduler among configs that are paused or cannot be planned: the others do not notice."""

from itertools import pairwise

from penstock.core.clock import HOUR, SECOND
from tests.desk import Desk


class TestCatchUpRate:
    """Only runs that start use up the shared start rate."""

    def test_paused_slots_give_their_start_rate_back(self, desk: Desk) -> None:
        """Late slots under a pause push nobody back; what starts keeps its distance."""
        for i in range(20):
            desk.config(f"p{i}", pipeline_template="pair")
            desk.client.pauses.pause("customer", f"p{i}")
        for i in range(3):
            desk.config(f"r{i}")
        desk.clock.advance(5 * HOUR + HOUR // 2)
        now = desk.clock.now()
        tick = desk.tick(catch_up_rate=1.0, batch=7)
        assert (tick.paused, tick.runs) == (20, 3)
        times = sorted(desk.column("SELECT scheduled_time FROM runs"))
        assert [t - now for t in times] == [SECOND, 2 * SECOND, 3 * SECOND]
        cursor = "SELECT value FROM counters WHERE name = 'catch_up_cursor'"
        assert desk.column(cursor) == [now + 3 * SECOND]
        for i in range(2):
            desk.config(f"s{i}", schedule_interval_minutes=0.05)
        desk.clock.advance(3 * SECOND)
        desk.tick(catch_up_rate=1.0, late_us=-1)
        times = sorted(desk.column("SELECT scheduled_time FROM runs"))
        assert len(times) == 5
        assert min(b - a for a, b in pairwise(times)) >= SECOND
