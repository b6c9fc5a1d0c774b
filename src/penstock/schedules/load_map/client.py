"""Use cases of the load map: show it, and spread starts by jitter within agreed tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from penstock.access.store.names import NameResolver
from penstock.core.clock import DAY, MINUTE, SECOND, Micros
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.core.records.parameters import CustomerFilter
from penstock.core.records.record import (
    Meta,
    Minutes,
    Wire,
    minutes,
    seconds,
    time,
    time_or_none,
)
from penstock.db.store import Transactions, Tx
from penstock.schedules.load_map.plan import (
    LoadWindow,
    Move,
    after_moves,
    crowded,
    peak,
    plan_moves,
    running,
    starts_by_series,
    total,
)
from penstock.schedules.load_map.records import (
    JitterPlan,
    LoadBucket,
    LoadMap,
    LoadSeries,
    MovedConfig,
)
from penstock.schedules.load_map.store import (
    load_configs,
    load_durations,
    load_groups,
    load_spread,
)

__all__ = ["Schedules"]

HOURS = 24
BUCKET = 15
ABOVE = 100
CONFIGS_MAX = 100_000
"""Maximum number of configs that one call examines and changes in one transaction."""
EXAMPLES = 20

_HOURS = Meta(description="Length of the window in hours, from 1 to 168.", ge=1, le=168)
_BUCKET = Meta(description="Length of a bucket in minutes, from 1 to 1,440.", ge=1, le=1440)
_POOL = Meta(description="Count only runs of this pool.")
_PIPELINE = Meta(description="Count only configs of this pipeline.")
_ABOVE = Meta(description="Spread configs that start in minutes with more starts than this.", ge=0)
_TOLERANCE = Meta(
    description="Minutes that starts may be delayed for customers who have no tolerance set; "
    "configs of these customers are not moved when it is omitted."
)
_REASON = Meta(description="Reason, recorded in the audit trail.")
PipelineFilter = Annotated[str | None, Wire("pipeline_template"), _PIPELINE]


class Schedules:
    """Use cases over the schedules of all configs."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def load(
        self,
        *,
        hours: Annotated[int, _HOURS] = HOURS,
        bucket: Annotated[int, Wire("bucket_minutes"), _BUCKET] = BUCKET,
        pool: Annotated[str | None, _POOL] = None,
        pipeline: PipelineFilter = None,
        customer: CustomerFilter = None,
    ) -> LoadMap:
        """Return the scheduled starts of the coming hours, by pool and pipeline.

        Pauses and late starts are not taken into account.
        """

        def body(tx: Tx) -> LoadMap:
            keys = self._keys(tx, customer, pipeline)
            now = tx.now() // MINUTE * MINUTE
            window = LoadWindow(now, now + hours * 60 * MINUTE)
            groups = load_groups(tx, *keys)
            if pool is not None:
                groups = [group for group in groups if group.pool == pool]
            series = starts_by_series(window, groups)
            means = load_durations(tx, keys[0])
            summed = total(series.values())
            most, at = peak(summed)
            return LoadMap(
                since=time(window.since),
                until=time(window.until),
                bucket=minutes(bucket * MINUTE),
                starts=summed.total(),
                peak=most,
                peak_at=time_or_none(at),
                series=_series(series, means),
                buckets=_buckets(window, summed, running(series, means, window), bucket),
            )

        return self._store.read(body)

    def jitter(
        self,
        *,
        above: Annotated[int, _ABOVE] = ABOVE,
        tolerance: Annotated[Minutes | None, Wire("tolerance_minutes"), _TOLERANCE] = None,
        pipeline: Annotated[str | None, Wire("pipeline_template"), _PIPELINE] = None,
        reason: Annotated[str, _REASON] = "",
    ) -> JitterPlan:
        """Spread the starts of configs in busy minutes, within the tolerance of their customers.

        A config's delay is a fixed fraction of its jitter, so repeating the call changes nothing.
        Existing occurrences, partitions and runs keep their times. Audited per config.
        """
        self._names.require_unscoped("schedules of all customers")
        default_us = _tolerance_us(tolerance)

        def body(tx: Tx) -> JitterPlan:
            keys = self._keys(tx, None, pipeline)
            now = tx.now()
            window = LoadWindow(now, now + DAY)
            before = total(starts_by_series(window, load_groups(tx, None, None)).values())
            busy = crowded(before, above)
            configs = load_configs(tx, *keys, after=0, limit=CONFIGS_MAX + 1) if busy else []
            if len(configs) > CONFIGS_MAX:
                fix = "Spread one pipeline at a time: give its name."
                raise InvalidInput("pipeline", f"at most {CONFIGS_MAX:,} configs", pipeline, fix)
            moves, stay = plan_moves(window, configs, busy, default_us)
            if moves:
                load_spread(tx, moves, self._actor, reason or "spread starts")
            after = after_moves(window, before, moves)
            return _plan(moves, stay, peak(before), peak(after))

        return self._store.write(body)

    def _keys(
        self, tx: Tx, customer: str | None, pipeline: str | None
    ) -> tuple[CustomerKey | None, PipelineKey | None]:
        found = None if pipeline is None else self._names.pipeline(pipeline, tx=tx).pipeline_key
        return self._names.customer_key(tx, customer), found


def _tolerance_us(tolerance: timedelta | None) -> Micros | None:
    if tolerance is None:
        return None
    given = tolerance // timedelta(microseconds=1)
    if not 0 <= given <= DAY:
        raise InvalidInput("tolerance", "0 minutes to 24 hours", f"{given / MINUTE:g} minutes")
    return given


def _series(
    series: Mapping[tuple[str, str], Mapping[int, int]], means: Mapping[str, int]
) -> list[LoadSeries]:
    found = []
    for (pool, pipeline), starts in series.items():
        most, at = peak(starts)
        mean = means.get(pipeline)
        found.append(
            LoadSeries(
                pool=pool,
                pipeline=pipeline,
                starts=sum(starts.values()),
                peak=most,
                peak_at=time_or_none(at),
                mean_duration=None if mean is None else seconds(mean),
            )
        )
    return sorted(found, key=lambda one: (-one.peak, one.pool, one.pipeline))


def _buckets(
    window: LoadWindow, starts: Mapping[int, int], busy: Mapping[int, float], bucket: int
) -> list[LoadBucket]:
    length = bucket * MINUTE
    sums: dict[int, list[float]] = {}
    for at in starts.keys() | busy.keys():
        one = sums.setdefault((at - window.since) // length, [0, 0, 0.0])
        count = starts.get(at, 0)
        one[0] += count
        one[1] = max(one[1], count)
        one[2] = max(one[2], busy.get(at, 0.0))
    return [
        LoadBucket(
            at=time(window.since + n * length),
            starts=int(one[0]),
            peak=int(one[1]),
            running=round(one[2], 1),
        )
        for n, one in sorted(sums.items())
    ]


def _plan(
    moves: list[Move],
    stay: Mapping[str, int],
    before: tuple[int, Micros | None],
    after: tuple[int, Micros | None],
) -> JitterPlan:
    return JitterPlan(
        moved=len(moves),
        customers=len({move.config.customer_id for move in moves}),
        without_tolerance=stay.get("no_tolerance", 0),
        spread_already=stay.get("spread_already", 0),
        peak_before=before[0],
        peak_at_before=time_or_none(before[1]),
        peak_after=after[0],
        peak_at_after=time_or_none(after[1]),
        delay_max=seconds(max((move.offset_us for move in moves), default=0)),
        examples=[
            MovedConfig(
                config_id=encode("cfg", move.config.config_id),
                customer=move.config.customer_id,
                jitter=seconds(move.jitter_us),
                delay=seconds(move.offset_us - move.offset_us % SECOND),
            )
            for move in moves[:EXAMPLES]
        ],
    )
