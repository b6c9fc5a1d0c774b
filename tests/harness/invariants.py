"""The invariants of runs, leases and fairness that must hold after every commit.

Each check compares the hot state before and after one commit, together with what the commit wrote
to journal and history, and raises `Violation`. docs/testing.md lists the numbers (I1, I24 ...).
Schedules are in `invariants_clock`, and checks that are possible only at the end in
`invariants_end`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.core.clock import MINUTE, SECOND
from penstock.runs.states import TRANSITIONS, RunState
from penstock.testing.simulate.snapshots import (
    EndedRunRow,
    FlowStateRow,
    JournalChange,
    LedgerRow,
    LiveRunRow,
    Snapshot,
)
from penstock.testing.simulate.violation import Violation
from tests.kits.run_states import path_is_legal

OVERDUE_GRACE_US = 15 * SECOND
RETURN_GRACE_US = 15 * SECOND
LAPSES_MAX = 5
FAILURES_DISABLE = 5
# Independent of schedules.common_cause on purpose.
COMMON_CONFIGS = 5
COMMON_SHARE = 0.10
COMMON_WINDOW_US = 60 * MINUTE
# Independent of core.retry on purpose: copied from the retry table of the specification.
ATTEMPTS = {
    "RATE_LIMIT_EXCEEDED": (5, 15),
    "QUOTA_EXCEEDED": (5, 15),
    "SERVICE_UNAVAILABLE": (3, 10),
    "AUTHENTICATION_FAILED": (1, 5),
    "AUTHORIZATION_FAILED": (1, 5),
    "INVALID_CONFIGURATION": (1, 5),
    "RESOURCE_NOT_FOUND": (1, 5),
    "VALIDATION_ERROR": (1, 5),
    "PERMANENT_ERROR": (1, 5),
    "CLAIM_LAPSED": (1, 5),
}
ATTEMPTS_DEFAULT = (3, 5)


class Committer(Protocol):
    """The simulated process that committed."""

    @property
    def name(self) -> str:
        """Its name; an external worker claims under it."""
        ...

    @property
    def kind(self) -> str:
        """Kind of process: worker, external, operator, scheduler, sweeper ..."""
        ...

    @property
    def sessions(self) -> set[int]:
        """The sessions that it opened and considers its own."""
        ...


@dataclass(slots=True)
class Commit:
    """One commit: process, state before and after, and written journal and history rows."""

    committer: Committer
    before: Snapshot
    after: Snapshot
    created: list[JournalChange]
    ended: list[JournalChange]
    ends: dict[int, EndedRunRow]
    ledger: list[LedgerRow]
    retries: Mapping[int, str | None] = field(default_factory=dict)
    """Retry settings by processor, for configs that have none."""
    deaths: Sequence[EndedRunRow] = ()
    """Dead runs of configs that ended recently, those of this commit included."""

    @property
    def now(self) -> int:
        """Time of the commit."""
        return self.after.now


def _need(truth: bool, invariant: str, detail: Callable[[], str]) -> None:
    if not truth:
        raise Violation(invariant, detail())


def check_conservation(c: Commit) -> None:
    """I1, I2: a run is created once and ends once; none disappears or reappears."""
    before, after = c.before.runs.keys(), c.after.runs.keys()
    created = {entry.run_id for entry in c.created}
    ended = {entry.run_id for entry in c.ended}
    _need(len(created) == len(c.created), "I1", lambda: f"created twice: {c.created}")
    _need(len(ended) == len(c.ended), "I1", lambda: f"ended twice: {c.ended}")
    expected = (before | created) - ended
    _need(
        after == expected,
        "I1",
        lambda: f"lost {sorted(expected - after)}, unexpected {sorted(after - expected)}",
    )
    _need(ended <= before | created, "I1", lambda: f"ended but not live: {sorted(ended - before)}")
    _need(c.ends.keys() == ended, "I1", lambda: f"history misses {sorted(ended - c.ends.keys())}")


def check_edges(c: Commit) -> None:
    """I23: only declared transitions, and a run keeps the fields it was created with."""
    for run_id in c.before.runs.keys() & c.after.runs.keys():
        old, new = c.before.runs[run_id], c.after.runs[run_id]
        if old is new or old == new:
            continue
        _need(_edge(old.state, new.state), "I23", lambda o=old, n=new: f"{o} -> {n}")  # type: ignore[misc]
        same = (
            old.customer == new.customer
            and old.config_id == new.config_id
            and old.processor == new.processor
            and old.slot == new.slot
            and old.attempt == new.attempt
            and old.parent_run_id == new.parent_run_id
            and old.ordering_key == new.ordering_key
        )
        _need(same, "I23", lambda o=old, n=new: f"{o} changed its identity to {n}")  # type: ignore[misc]
        _check_token(c, old, new)
    for entry in c.ended:
        end, last = c.ends[entry.run_id], c.before.runs.get(entry.run_id)
        if last is not None:
            path = [RunState(last.state), RunState(end.final_state)]
            legal = path_is_legal(path) or path_is_legal([path[0], RunState.RUNNING, path[1]])
            _need(legal, "I23", lambda e=end, r=last: f"{r.state} -> {e.final_state}: {e}")  # type: ignore[misc]


def _edge(old: str, new: str) -> bool:
    if old == new or RunState(new) in TRANSITIONS[RunState(old)]:
        return True
    return path_is_legal([RunState(old), RunState.CLAIMED, RunState(new)])


def _check_token(c: Commit, old: LiveRunRow, new: LiveRunRow) -> None:
    """I3, I4: a claim assigns a token above all others; one token never changes holders."""
    was_held, is_held = old.admission == 9, new.admission == 9
    if not was_held and is_held:
        highest = max(c.before.counters["token"], old.token)
        _need(new.token > highest, "I4", lambda: f"token {new.token} <= {highest}: {new}")
        return
    _need(new.token == old.token, "I4", lambda: f"token changed without a claim: {old} -> {new}")
    if was_held and is_held:
        held_by = (old.session_id, old.claimed_by)
        _need(held_by == (new.session_id, new.claimed_by), "I3", lambda: f"holder changed: {new}")


def check_claims(c: Commit) -> None:
    """I5, I28: only ready, due runs are claimed, by permitted workers, by level and fair rank.

    A worker whose commit ended runs may claim what this admitted: runs behind a limit, and the runs
    of the next phases, which are as they were admitted except for the claim.
    """
    taken = [
        new
        for run_id, new in c.after.runs.items()
        if new.admission == 9 and not _has_admission(c.before.runs.get(run_id), 9)
    ] if c.committer.kind in ("worker", "external") else []  # fmt: skip
    can_admit = c.committer.kind == "worker" and bool(c.before.runs.keys() - c.after.runs.keys())
    for new in taken:
        old = c.before.runs.get(new.run_id, new)
        is_admitted = can_admit and (old is new or old.admission in (3, 4))
        _need(
            old.admission == 0 or is_admitted,
            "I5",
            lambda o=old: f"claimed although not ready: {o}",  # type: ignore[misc]
        )
        _need(
            old.scheduled_time <= c.now,
            "I19",
            lambda o=old: f"claimed before its time: {o}",  # type: ignore[misc]
        )
        _need(not _is_expired(old, c.now), "I19", lambda o=old: f"claimed too late: {o}")  # type: ignore[misc]
        if c.committer.kind == "worker":
            mine = new.session_id in c.committer.sessions
            _need(mine, "I3", lambda n=new: f"{c.committer.name} claimed for another session: {n}")  # type: ignore[misc]
        else:
            leased = c.after.leases.get(new.run_id)
            good = leased is not None and leased[0] == new.token and leased[1] > c.now
            _need(good, "I3", lambda n=new: f"claimed by an external worker without a lease: {n}")  # type: ignore[misc]
    for pool in {run.pool for run in taken}:
        last = max(_rank(run) for run in taken if run.pool == pool)
        left = [
            run
            for run in c.after.runs.values()
            if run.admission == 0
            and run.pool == pool
            and _rank(run) < last
            and not _is_expired(run, c.now)
        ]
        _need(not left, "I28", lambda p=left, k=last: f"claimed ahead of {p[0]} at rank {k}")  # type: ignore[misc]


def _has_admission(run: LiveRunRow | None, *wanted: int) -> bool:
    return run is not None and run.admission in wanted


def _is_expired(run: LiveRunRow, now: int) -> bool:
    return run.expires_us is not None and run.scheduled_time + run.expires_us <= now


def check_maxima(c: Commit) -> None:
    """I29: no run is admitted beyond its customer's maximum, once that applies to all live runs."""
    counts: dict[int, int] = {}
    for run in c.after.runs.values():
        if run.admission in (0, 9):
            counts[run.customer] = counts.get(run.customer, 0) + 1
    for run_id, new in c.after.runs.items():
        old, share = c.before.runs.get(run_id), c.before.shares.get(new.customer)
        if not _is_newly_ready(old, new) or share is None:
            continue
        if share.concurrency is not None and share.is_capped:
            _need(
                counts[new.customer] <= share.concurrency,
                "I29",
                lambda n=new, s=share: f"admitted beyond the maximum {s}: {n}",  # type: ignore[misc]
            )


def _is_newly_ready(old: LiveRunRow | None, new: LiveRunRow) -> bool:
    """Whether a commit admitted a run; it may also have claimed it."""
    if new.admission == 9:
        return not _has_admission(old, 0, 9)
    return new.admission == 0 and not _has_admission(old, 0)


def _rank(run: LiveRunRow) -> tuple[int, int, int]:
    return (-run.level, run.fair_rank, run.run_id)


def check_fair_ranks(c: Commit) -> None:
    """I28: a customer's fair ranks have no gaps, from its last one or the fair clock on.

    They follow from each other by its stride, which is inverse to its weight. Ranks of a customer
    whose weight was changed start again from the clock. Only a run that the same commit ended, such
    as one of two flows that are cancelled together, may leave a gap: it was admitted in between.
    """
    given: dict[tuple[int, int, int], list[int]] = {}
    for run_id, new in c.after.runs.items():
        if _is_newly_ready(c.before.runs.get(run_id), new):
            given.setdefault((new.pool, new.priority, new.customer), []).append(new.fair_rank)
    gone = Counter(
        (old.pool, old.priority, old.customer)
        for run_id, old in c.before.runs.items()
        if run_id not in c.after.runs and not _has_admission(old, 0, 9)
    )
    for key, ranks in given.items():
        clock = c.before.fair_ranks.get((key[0], key[1], 0), 0)
        base = max(c.before.fair_ranks.get(key, 0), clock)
        share = c.before.shares.get(key[2])
        stride = 1_000_000 if share is None else share.stride
        wanted = [base + stride * place for place in range(1, len(ranks) + gone[key] + 1)]
        _need(
            len(set(ranks)) == len(ranks) and set(ranks) <= set(wanted),
            "I28",
            lambda p=ranks, w=wanted: f"fair ranks {sorted(p)}, expected {w}",  # type: ignore[misc]
        )
    for key, rank in c.before.fair_ranks.items():
        share = c.before.shares.get(key[2])
        if share is not None and not share.is_reranked:
            continue
        _need(
            c.after.fair_ranks.get(key, 0) >= rank,
            "I28",
            lambda k=key: f"fair rank of {k} decreased",  # type: ignore[misc]
        )


def check_holders(c: Commit) -> None:
    """I3, I24: a run leaves its holder only through it, or once the lease has expired."""
    for run_id, old in c.before.runs.items():
        if old.admission != 9:
            continue
        new = c.after.runs.get(run_id)
        if new is not None and new.admission == 9:
            continue
        if _is_holder(c, old):
            continue
        end = c.ends.get(run_id)
        overdue = (
            old.state == "RUNNING"
            and old.started_at is not None
            and old.started_at + old.max_execution_us + OVERDUE_GRACE_US < c.now
            and end is not None
            and end.final_state == ("CANCELLED" if old.cancel_requested_at else "TIMEOUT")
        )
        swept = c.committer.kind == "sweeper" and (_lease_is_dead(c.before, old, c.now) or overdue)
        _need(
            swept,
            "I24",
            lambda o=old, n=new: f"{c.committer.name} removed {o} from its holder: {n}",  # type: ignore[misc]
        )
        if new is not None:
            counted = new.lapses == old.lapses + 1 < LAPSES_MAX and old.state == "CLAIMED"
            _need(counted, "I6", lambda o=old, n=new: f"lapse not counted: {o} -> {n}")  # type: ignore[misc]


def _is_holder(c: Commit, run: LiveRunRow) -> bool:
    if c.committer.kind == "worker":
        return run.session_id is not None and run.session_id in c.committer.sessions
    return (
        c.committer.kind == "external"
        and run.session_id is None
        and run.claimed_by == c.committer.name
    )


def _lease_is_dead(before: Snapshot, run: LiveRunRow, now: int) -> bool:
    if run.session_id is not None:
        return run.session_id not in before.sessions
    if run.run_id not in before.leases:
        return True
    lease = before.leases.get(run.run_id)
    return lease is not None and lease[0] == run.token and lease[1] < now


def check_sessions(c: Commit) -> None:
    """I3, I25: only its owner ends a live session; one missed heartbeat does not end it."""
    for session_id, until_at in c.before.sessions.items():
        if session_id in c.after.sessions or session_id in c.committer.sessions:
            continue
        _need(
            until_at < c.now,
            "I24",
            lambda s=session_id, u=until_at: (
                f"session {s} ended by {c.committer.name}, leased to {u}"
            ),  # type: ignore[misc]
        )


def check_ends(c: Commit) -> None:
    """I6, I24, I26: how runs ended: token, attempts, retry or dead letter, backoff."""
    children = {c.after.runs[entry.run_id].parent_run_id: c.after.runs[entry.run_id]
                for entry in c.created
                if c.after.runs[entry.run_id].trigger_source == "retry"}  # fmt: skip
    for run_id, end in c.ends.items():
        last = c.before.runs.get(run_id)
        if last is not None:
            unclaimed = end.final_state in ("CANCELLED", "EXPIRED") and last.admission != 9
            fits = end.token > last.token if unclaimed else end.token == last.token
            if end.final_state == "EXPIRED":
                due = unclaimed and _is_expired(last, c.now)
                _need(due, "I25", lambda r=last: f"expired too early, or although claimed: {r}")  # type: ignore[misc]
            _need(fits, "I24", lambda e=end, r=last: f"{e} ended {r}")  # type: ignore[misc]
            _need(end.attempt == last.attempt, "I6", lambda e=end: f"attempt changed: {e}")  # type: ignore[misc]
            gone = end.error_type != "STALE_EXECUTION" or _lease_is_dead(c.before, last, c.now)
            _need(gone, "I24", lambda r=last: f"{c.committer.name} failed {r} under a live lease")  # type: ignore[misc]
        retry = children.pop(run_id, None)
        _need(bool(end.was_retried) == (retry is not None), "I26", lambda e=end: f"no retry: {e}")  # type: ignore[misc]
        failed = end.final_state in ("FAILED", "TIMEOUT")
        outcomes = int(end.was_retried) + int(end.is_dead)
        _need(outcomes == int(failed), "I26", lambda e=end: f"neither retried nor dead: {e}")  # type: ignore[misc]
        if failed and last is not None:
            _check_retry(c, last, end, retry)
    _need(not children, "I26", lambda: f"retries without a parent: {children}")


def _check_retry(c: Commit, last: LiveRunRow, end: EndedRunRow, retry: LiveRunRow | None) -> None:
    limit, minutes, multiplier = retry_rule(c, last, end.error_type or "UNKNOWN")
    if retry is None:
        return
    _need(retry.attempt == last.attempt + 1, "I6", lambda: f"attempt {retry.attempt}: {retry}")
    _need(retry.attempt <= limit, "I26", lambda: f"attempt {retry.attempt} of {limit}: {retry}")
    _need(
        retry.root_run_id == (last.root_run_id or last.run_id) and retry.slot == last.slot,
        "I26",
        lambda: f"the retry lost its chain: {retry}",
    )
    delay = retry.scheduled_time - end.finished_at
    least = minutes * MINUTE * multiplier ** (last.attempt - 1)
    if end.error_type == "STALE_EXECUTION" and last.stales == 0:
        least = 0
    _need(delay >= least, "I26", lambda: f"retried after {delay} us, not {least}: {retry}")


def retry_rule(c: Commit, run: LiveRunRow, error_type: str) -> tuple[int, float, float]:
    """Return (attempts, base delay in minutes, multiplier) that apply to a failed run."""
    config = None if run.config_id is None else c.before.configs.get(run.config_id)
    declared = c.retries.get(run.processor)
    given = json.loads(declared) if declared else {}
    if config is not None and config.retry is not None:
        given |= json.loads(config.retry)
    attempts, minutes = ATTEMPTS.get(error_type, ATTEMPTS_DEFAULT)
    if declared and attempts == 1 and error_type != "CLAIM_LAPSED":
        attempts = ATTEMPTS_DEFAULT[0]  # a processor's own retry= wins over the error type
    if attempts > 1 or error_type not in ATTEMPTS:
        attempts = int(given.get("max_attempts") or attempts)
    base = given.get("base_delay_minutes")
    return (
        attempts,
        float(minutes if base is None else base),
        float(given.get("backoff_multiplier") or 2.0),
    )


def check_ordering(c: Commit) -> None:
    """Ordering keys: at most one run per key is not blocked, and it is the oldest."""
    free: dict[str, int] = {}
    for run in c.after.runs.values():
        if run.ordering_key is None or run.admission == 3:
            continue
        other = free.setdefault(run.ordering_key, run.run_id)
        _need(
            other == run.run_id,
            "ordering",
            lambda r=run, o=other: f"runs {o} and {r.run_id} of {r.ordering_key} are both free",  # type: ignore[misc]
        )


def check_health(c: Commit) -> None:
    """Failed starts follow the ends, each start once; the fifth disables the config, unless the
    cause of its death is common. A common cause disables nothing.
    """
    ended_well = {flow.config_id for flow in _flows_ended_well(c)}
    by_config: dict[int, list[EndedRunRow]] = {}
    for end in c.ends.values():
        if end.config_id is not None:
            by_config.setdefault(end.config_id, []).append(end)
    for config_id, ends in by_config.items():
        before, after = c.before.failures.get(config_id, 0), c.after.failures.get(config_id, 0)
        dead = [end for end in ends if end.is_dead and not end.item_key and _is_start(end)]
        alone = sum(end.flow_id is None for end in dead)
        newest = max((end.flow_id or 0 for end in dead), default=0)
        is_new = newest > max(c.before.failed_flows.get(config_id, 0), 0)
        wanted = before + alone + is_new
        if config_id in ended_well or any(_is_good_start(end) for end in ends):
            wanted = 0
        _need(
            after == wanted,
            "failures",
            lambda i=config_id, a=after, w=wanted: f"config {i}: {a} failures, expected {w}",  # type: ignore[misc]
        )
        if not dead or after < FAILURES_DISABLE:
            continue
        was_active, config = c.before.configs[config_id].is_active, c.after.configs[config_id]
        if all(has_common_cause(c, end) for end in dead):
            kept = bool(config.is_active or not was_active)
            _need(kept, "failures", lambda i=config_id: f"config {i}: disabled by a common cause")  # type: ignore[misc]
        else:
            off = not config.is_active and config_id not in c.after.schedules
            _need(off, "failures", lambda i=config_id: f"config {i} still fires")  # type: ignore[misc]
    for config_id in c.after.failures.keys() - by_config.keys() - ended_well:
        if c.committer.kind != "operator":
            same = c.after.failures[config_id] == c.before.failures.get(config_id, 0)
            _need(same, "failures", lambda i=config_id: f"config {i}: failures changed")  # type: ignore[misc]


def _is_start(end: EndedRunRow) -> bool:
    return end.first_source in ("scheduler", "event")


def _is_good_start(end: EndedRunRow) -> bool:
    is_attempt = end.trigger_source in ("scheduler", "event") or end.parent_run_id is not None
    return end.final_state == "COMPLETED" and end.flow_id is None and is_attempt


def _flows_ended_well(c: Commit) -> list[FlowStateRow]:
    """Return the flows of schedules and messages that ended well in a commit."""
    return [
        flow
        for flow_id, flow in c.after.flows.items()
        if flow.state in ("COMPLETE", "DEGRADED")
        and flow.trigger_source in ("scheduler", "event")
        and (flow_id not in c.before.flows or c.before.flows[flow_id].ended_at is None)
        and flow.ended_at is not None
    ]


def has_common_cause(c: Commit, end: EndedRunRow) -> bool:
    """Return whether enough configs of the pipeline failed recently like a dead run."""
    assert end.config_id is not None
    pipeline = c.before.configs[end.config_id].pipeline
    alike = {
        other.config_id
        for other in c.deaths
        if other.processor == end.processor
        and other.error_type == end.error_type
        and other.finished_at >= c.now - COMMON_WINDOW_US
    }
    configs = c.before.configs.values()
    active = sum(1 for one in configs if one.is_active and one.pipeline == pipeline)
    return len(alike) >= COMMON_CONFIGS and len(alike) >= COMMON_SHARE * active


CHECKS: tuple[Callable[[Commit], None], ...] = (
    check_conservation,
    check_edges,
    check_claims,
    check_maxima,
    check_fair_ranks,
    check_holders,
    check_sessions,
    check_ends,
    check_ordering,
    check_health,
)
