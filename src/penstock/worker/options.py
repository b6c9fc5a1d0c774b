"""Options of a worker; `assembly` fills them from Settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.access.secrets import Secrets
from penstock.core.clock import MILLISECOND, SECOND, Micros
from penstock.core.naming import DEFAULT_POOL


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options for claiming, executing and stopping; durations are in microseconds.

    concurrency: number of runs executed at the same time. batch_max: maximum number of runs claimed
    or ended in one transaction. lease_us, heartbeat_us: the session's lease and how often it is
    renewed; the worker stops itself `margin_us` before the lease ends. progress_us: how soon
    changed progress is written. poll_us: how often an idle worker polls without a hint.
    mark_running_after_us: runs that take longer are marked RUNNING. hold_us: a claimed run that has
    not started by then is released. drain_us: how long `stop` waits for runs; grace_us: how long a
    signalled run may take to react, when the worker stops the last part of `drain_us`.
    zombies_max: number of timed-out threads still running at which the worker stops claiming (0:
    the concurrency). secrets: source of the secrets that parameters
    refer to. advances: advance flows that no other transaction holds in the transactions that end
    their runs, instead of leaving this to the orchestrator. service, revision: the deployment
    recorded in the execution log.
    """

    pool: str = DEFAULT_POOL
    name: str = "worker"
    host: str = "localhost"
    pid: int = 0
    service: str = ""
    revision: str = ""
    concurrency: int = 5
    batch_max: int = 500
    lease_us: Micros = 30 * SECOND
    heartbeat_us: Micros = 10 * SECOND
    margin_us: Micros = 5 * SECOND
    progress_us: Micros = 2 * SECOND
    poll_us: Micros = SECOND
    mark_running_after_us: Micros = 200 * MILLISECOND
    hold_us: Micros = 2 * SECOND
    drain_us: Micros = 30 * SECOND
    grace_us: Micros = 5 * SECOND
    zombies_max: int = 0
    advances: bool = False
    secrets: Secrets = field(default_factory=Secrets)

    def __post_init__(self) -> None:
        assert self.concurrency >= 1, self.concurrency
        assert self.batch_max >= 1, self.batch_max
        assert 0 < self.heartbeat_us < self.lease_us, (self.heartbeat_us, self.lease_us)
        assert 0 <= self.margin_us < self.lease_us, (self.margin_us, self.lease_us)
