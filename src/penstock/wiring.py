"""Connects hooks: calls from one subject to a higher one.

`penstock.client` and `penstock.assembly` call `connect_hooks`, so that every process has all
connections.
"""

from __future__ import annotations

from penstock.bus.store.from_runs import run_messages_check, run_messages_publish
from penstock.dead_letters.store import dead_letter_close_retried
from penstock.flows.client.from_runs import (
    run_flow_open,
    run_trigger_check,
    upstream_results,
)
from penstock.flows.client.start_config import start
from penstock.flows.client.sub_flows import (
    sub_flow_result,
    sub_flow_suspend,
    sub_flows_cancel,
    sub_flows_of,
)
from penstock.flows.gates.store.run_gates import (
    gate_alert_close,
    gates_forced,
    gates_open,
    gates_resolve,
)
from penstock.flows.store.adopt import declaration_adopt, declaration_check
from penstock.flows.store.completions import completion_from_finished
from penstock.flows.store.from_schedule import occurrences_open
from penstock.pipelines import hooks as pipelines
from penstock.runs import hooks as runs
from penstock.schedules import hooks as schedules
from penstock.schedules.store.config_health import config_failures, config_health_update
from penstock.schedules.store.overlap import config_lock_for_retry, retry_terms
from penstock.usage.store import budgets_resumed


def connect_hooks() -> None:
    """Connect every hook; calling it again changes nothing."""
    pipelines.check_change.connect(declaration_check)
    pipelines.on_changed.connect(declaration_adopt)
    runs.complete_flows.connect(completion_from_finished)
    runs.on_finished.connect(config_health_update)
    runs.on_retried.connect(dead_letter_close_retried)
    runs.on_retried.connect(gate_alert_close)
    runs.gate_runs.connect(gates_resolve)
    runs.on_gated.connect(gates_open)
    runs.on_gate_forced.connect(gates_forced)
    runs.lock_config.connect(config_lock_for_retry)
    runs.retry_terms.connect(retry_terms)
    runs.config_failures.connect(config_failures)
    runs.check_messages.connect(run_messages_check)
    runs.publish_messages.connect(run_messages_publish)
    runs.check_trigger.connect(run_trigger_check)
    runs.open_flow.connect(run_flow_open)
    runs.upstream_of.connect(upstream_results)
    runs.find_sub_flow.connect(sub_flow_result)
    runs.suspend_for_flow.connect(sub_flow_suspend)
    runs.sub_flows_of.connect(sub_flows_of)
    runs.on_finished.connect(sub_flows_cancel)
    schedules.start_config.connect(start)
    schedules.open_flows.connect(occurrences_open)
    schedules.on_resumed.connect(budgets_resumed)
