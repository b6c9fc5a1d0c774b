"""Hooks through which the run queue calls higher packages; connected in `penstock.wiring`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.access.store.names import NameResolver
from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, ProcessorKey
from penstock.db.hooks import Hook, Provider
from penstock.db.store import Transactions, Tx
from penstock.runs.action_records import RunMessage, RunTrigger, SubFlow, UpstreamResult
from penstock.runs.rows import ActionOwner, CompletionEvent, FinishedRun, HeldRun, NewRun, RunRow


class RetryTerms(NamedTuple):
    """The retry terms of an ended run's config.

    ordering_key: queues the attempt behind other retries of the config, because occurrences of the
    config may not overlap; None if they may.
    """

    max_execution_us: Micros
    sla_us: Micros
    parameters: str | None
    ordering_key: str | None


on_finished: Hook[[Tx, Sequence[FinishedRun]]] = Hook("runs.on_finished")
"""Called in the transaction that ends runs: updates config health and the flows they opened."""

complete_flows: Provider[[Tx, Sequence[FinishedRun], list[CompletionEvent] | None], None] = (
    Provider("runs.complete_flows")
)
"""Record the completions of ended runs in their flows. The flow events for the orchestrator are
stored, or appended to the list for a caller that evaluates the flows itself.
"""

on_retried: Hook[[Tx, int, int, str]] = Hook("runs.on_retried")
"""Called when an ended run is retried: (tx, ended run, new run, actor)."""

lock_config: Provider[[Tx, int], None] = Provider("runs.lock_config")
"""Lock the config of a run before its runs are read."""

retry_terms: Provider[[Tx, RunRow, ProcessorKey, list[RunRow]], RetryTerms | None] = Provider(
    "runs.retry_terms"
)
"""Terms of the retry of a run under its config and the config's live runs; raises Conflict if the
overlap policy forbids it.
"""

gate_runs: Provider[[Tx, Sequence[NewRun]], list[NewRun]] = Provider("runs.gate_runs")
"""Runs that wait for their gates, with the mode and the partition of the gates."""

on_gated: Hook[[Tx, Sequence[tuple[int, NewRun]]]] = Hook("runs.on_gated")
"""Called when runs that wait for their gates were inserted: (run id, run)."""

on_gate_forced: Hook[[Tx, Sequence[tuple[int, NewRun]], str, str]] = Hook("runs.on_gate_forced")
"""Called when runs bypass their gates: (run id, run), actor, reason."""

config_failures: Provider[[Tx, int], int] = Provider("runs.config_failures")
"""Consecutive failures of a config."""

check_messages: Provider[[Tx, CustomerKey, Sequence[RunMessage]], None] = Provider(
    "runs.check_messages"
)
"""Raise unless a run of the customer could publish the messages now."""

publish_messages: Provider[[Tx, Sequence[tuple[CustomerKey, RunMessage]]], list[int]] = Provider(
    "runs.publish_messages"
)
"""Publish messages of runs; returns their ids in order."""

check_trigger: Provider[[Tx, NameResolver, ActionOwner, RunTrigger], None] = Provider(
    "runs.check_trigger"
)
"""Raise unless a run could open the flow now."""

open_flow: Provider[[Tx, Transactions, NameResolver, ActionOwner, RunTrigger], int] = Provider(
    "runs.open_flow"
)
"""Open a flow for a run, or find the existing one; returns the id of the flow."""

find_sub_flow: Provider[[Tx, NameResolver, HeldRun, str, RunTrigger], SubFlow | None] = Provider(
    "runs.find_sub_flow"
)
"""Outcome of the flow that a run waits for under a key; None if the run must be suspended."""

suspend_for_flow: Provider[
    [Tx, Transactions, NameResolver, HeldRun, tuple[str, RunTrigger]], bool
] = Provider("runs.suspend_for_flow")
"""Suspend a run until a flow ends; opens the flow if necessary. False if the token is stale."""

sub_flows_of: Provider[[Tx, int], list[SubFlow]] = Provider("runs.sub_flows_of")
"""The flows that a run waited for."""

upstream_of: Provider[[Tx, int, str], list[UpstreamResult]] = Provider("runs.upstream_of")
"""Return the reports of the processors before a phase of a flow: (tx, flow, phase)."""
