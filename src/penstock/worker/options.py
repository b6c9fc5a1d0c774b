"""What can be set about a worker; `assembly` fills it from Settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.access.secrets import Secrets
from penstock.core.clock import MILLISECOND, SECOND, Micros
from penstock.core.naming import DEFAULT_POOL


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker claims, executes and stops; durations are microseconds.

    slots: runs executed at the same time. batch_max: most runs claimed or ended in one transaction.
    lease_us, beat_us: the session's lease and how often it is renewed; the worker stops itself
    `margin_us` before the lease ends. progress_us: how soon changed progress is written.
    poll_us: how often an idle worker looks without being woken. mark_us: what runs longer is marked
    RUNNING. hold_us: a claimed run that has not begun by then is given back. drain_us: how long
    `stop` waits for runs; grace_us: how long a signalled run may take to react.
    zombies_max: timed-out threads that do not end, before the worker stops claiming (0: as slots).
    secrets: where references in parameters are looked up.
    """

    pool: str = DEFAULT_POOL
    name: str = "worker"
    host: str = "localhost"
    pid: int = 0
    slots: int = 5
    batch_max: int = 500
    lease_us: Micros = 30 * SECOND
    beat_us: Micros = 10 * SECOND
    margin_us: Micros = 5 * SECOND
    progress_us: Micros = 2 * SECOND
    poll_us: Micros = SECOND
    mark_us: Micros = 200 * MILLISECOND
    hold_us: Micros = 2 * SECOND
    drain_us: Micros = 30 * SECOND
    grace_us: Micros = 5 * SECOND
    zombies_max: int = 0
    secrets: Secrets = field(default_factory=Secrets)

    def __post_init__(self) -> None:
        assert self.slots >= 1, self.slots
        assert self.batch_max >= 1, self.batch_max
        assert 0 < self.beat_us < self.lease_us, (self.beat_us, self.lease_us)
        assert 0 <= self.margin_us < self.lease_us, (self.margin_us, self.lease_us)
