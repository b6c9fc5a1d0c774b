"""Facts of `flows.explain.why_config`, read in one transaction."""

from __future__ import annotations

from penstock.access.store.names import NameResolver
from penstock.core.ids import encode
from penstock.db.store import Tx, first
from penstock.flows.explain.store.load import FactLoader
from penstock.flows.explain.why_config import ConfigFact, EventTopicFact, MissedFact
from penstock.flows.store.flows import flow_open_for_config
from penstock.runs.store.lists.pages import RunFilter, run_list_live
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.schedule import ledger_list


def config_fact(tx: Tx, names: NameResolver, config: ConfigRow) -> ConfigFact:
    """Load a config with its pauses, live runs, topic and the cause of its failures."""
    loader = FactLoader(tx, names)
    live = run_list_live(
        tx, RunFilter(customer=config.customer_key, config_id=config.config_id, limit=1)
    )
    flow = flow_open_for_config(tx, config.config_id)
    missed = ledger_list(tx, config.config_id, 1)
    failing = None
    if config.consecutive_failures:
        params = {"pipeline": config.pipeline_key, "customer": names.customer_key(tx, None)}
        failing = first(tx.rows("common_cause_open", params))
    return ConfigFact(
        config_id=encode("cfg", config.config_id),
        pipeline=config.pipeline,
        customer=config.customer_id,
        created_at=config.created_at,
        is_active=bool(config.is_active),
        inactive_reason=config.inactive_reason,
        overlap=config.overlap,
        next_run_time=config.next_run_time,
        consecutive_failures=config.consecutive_failures,
        topic=_topic(tx, config),
        pauses=loader.pauses_of(config.customer_id, config.pipeline, config.config_id),
        live=tuple(loader.runs(live)),
        lacks_scheduler=loader.schedulers.is_missing_for(config.next_run_time),
        open_flow_id=None if flow is None else encode("flow", flow),
        missed=MissedFact(at=missed[0].slot_to, outcome=missed[0].outcome) if missed else None,
        common_cause=None if failing is None else (failing[0], failing[1]),
    )


def _topic(tx: Tx, config: ConfigRow) -> EventTopicFact | None:
    if config.event_topic is None:
        return None
    params = {"topic": config.event_topic, "customer": config.customer_key}
    rows = tx.rows("topic_of_config", params)
    return EventTopicFact(
        name=config.event_topic,
        exists=bool(rows),
        is_paused=bool(rows) and all(bool(row[0]) for row in rows),
        filter=config.event_filter,
    )
