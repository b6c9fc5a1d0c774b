"""Commands that fix the cause of a measurement, with the names of its subject. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.ids import encode
from penstock.detection.finding import command

FLOOD_SHARE: Final = 0.8
"""Share of a pool's waiting runs at which one customer counts as the cause."""
FLOOD_CONCURRENCY: Final = 10


def replay_deliveries(subscription: str) -> str:
    """Return the command that delivers the dead letters of a subscription again."""
    return command("dlq", "replay", "--subscription", subscription)


def resume_deliveries(subscription: str, customer: str | None) -> str:
    """Return the command that immediately delivers messages that wait after failures."""
    owner = () if customer is None else ("--customer", customer)
    return command("subscriptions", "resume", subscription, *owner)


def replay_runs(pipeline: str, processor: str) -> str:
    """Return the command that runs the dead letters of a processor again."""
    return command("dlq", "replay", "--pipeline", pipeline, "--processor", processor)


def replay_origin(subscription: str | None, pipeline: str | None, processor: str) -> str | None:
    """Return the command that replays the dead letters of a subscription or a processor."""
    if subscription is not None:
        return replay_deliveries(subscription)
    return None if pipeline is None else replay_runs(pipeline, processor)


def restart_run(run_id: int | None) -> str | None:
    """Return the command that ends a run whose code does not return, and runs it again."""
    if run_id is None:
        return None
    return command("runs", "cancel", "--force", "--retry", encode("run", run_id))


def lower_limit(
    name: str, capacity: int | None, learned: float | None, rate: float | None
) -> str | None:
    """Return the command that lowers a limit to its learned capacity, or to half of it."""
    if capacity is not None and capacity > 1:
        lower = capacity // 2 if learned is None else min(capacity, max(1, int(learned)))
        return command("limits", "set", name, "--capacity", str(lower))
    if rate is not None:
        return command("limits", "set", name, "--rate", f"{rate / 2:g}")
    return None


def bound_customer(customer: str, runs: int, ready: int, slots: int) -> str | None:
    """Return the command that limits the runs of a customer who floods a pool; None if none does.

    runs: how many of the `ready` runs are the customer's; slots: total concurrency of the live
    workers.
    """
    if ready <= 0 or runs < FLOOD_SHARE * ready:
        return None
    most = max(1, slots // 2) if slots else FLOOD_CONCURRENCY
    return command("customers", "set", customer, "--concurrency", str(most))


def replay_phase(pipeline: str, partition: str, phase: str, customer: str) -> str:
    """Return the command that writes the results of a phase again."""
    return command("replay", pipeline, partition, "--from", phase, "--customer", customer,
                   "--force")  # fmt: skip


def fill_history(
    pipeline: str, customer: str, days: Sequence[str], producer: tuple[str, str] | None
) -> str:
    """Return the command that backfills missing days or evaluates the gates again.

    producer: the pipeline and phase whose processors produce the table, if any does.
    """
    if producer is None or not days:
        return command("gate", "recheck", pipeline, "--customer", customer)
    found, phase = producer
    return command("backfill", found, "--from", min(days), "--to", max(days), "--customer",
                   customer, "--phases", phase, "--no-downstream", "--existing",
                   "all")  # fmt: skip
