"""Whether the active configs of a pipeline fit a changed declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.clock import format_duration
from penstock.core.errors import Conflict
from penstock.core.ids import encode
from penstock.core.naming import PipelineKey
from penstock.db.store import Tx
from penstock.pipelines.partition import partition_rule_of
from penstock.schedules.cadence import Cadence
from penstock.schedules.preview import repeated_partition

SHOWN: Final = 3


def check_partition_rule(
    tx: Tx, pipeline_key: PipelineKey, old: Mapping[str, Any], new: Mapping[str, Any]
) -> None:
    """Raise Conflict if active configs would fire twice in one partition of a new declaration.

    A new config with such a schedule is refused as well. Those that the old declaration would
    refuse are no reason: nothing changes for them.
    """
    rule, before = partition_rule_of(new), partition_rule_of(old)
    if rule is None or rule.repeats or rule == before:
        return
    count, shown = 0, []
    for cron, interval_us, configs, first in tx.rows(
        "config_cadences_of_pipeline", {"pipeline": pipeline_key}
    ):
        cadence = Cadence(cron=cron or None, interval_us=interval_us or None)
        was_free = before is None or before.repeats or not repeated_partition(cadence, before)
        if was_free and repeated_partition(cadence, rule) is not None:
            count += configs
            text = cron or f"every {format_duration(interval_us)}"
            shown.append(f"{encode('cfg', first)} ({text})")
    if not count:
        return
    names = ", ".join(shown[:SHOWN])
    more = f" and {count - min(len(shown), SHOWN)} more" if count > min(len(shown), SHOWN) else ""
    raise Conflict(
        f"Pipeline {new['name']} would have partitions by {rule.kind}, and the schedules of active "
        f"configs have several occurrences per {rule.kind}: {names}{more}. To process a partition "
        f"several times, declare {rule.kind}(..., repeats=True); for smaller partitions, declare "
        "hour(...) or text(...); or change the schedules first: penstock configs update "
        f"{shown[0].partition(' ')[0]} --cron ..."
    )
