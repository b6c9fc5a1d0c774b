"""Reads of the verification: pages of the state with the journal entries about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.core.clock import MINUTE
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, one
from penstock.monitoring.verify.accounts import (
    EndOfRun,
    Mismatch,
    compare_end,
    compare_flow,
    compare_starts,
    places,
)
from penstock.schedules.store.configs import audit_links

PAGE = 1_000
CHAINS = 50
"""Number of customers whose audit chains are compared with the journal in one statement."""


def verify_ends(tx: Tx, ends: Sequence[EndOfRun], pruned_to: int) -> list[Mismatch]:
    """Compare ends in the journal with history."""
    times = [end.at for end in ends]
    params = {"since": min(times), "until": max(times), "ids": [end.run_id for end in ends]}
    history = {(row[0], row[1]): (row[2], row[3]) for row in tx.rows("verify_ends", params)}
    found = []
    for end in ends:
        state, token = history.get((end.run_id, end.at), (None, None))
        if (state, token) != (end.final_state, end.token) and end.at >= pruned_to:
            found.append(compare_end(end.run_id, end.final_state, state, token))
    return found


def verify_history(tx: Tx, since: int, until: int, ends: int, limit: int) -> list[Mismatch]:
    """Find runs in history without an end in the journal; `ends` is the number of known ones."""
    span = {"since": since, "until": until}
    if one(tx.rows("verify_history_count", span))[0] <= ends:
        return []
    return [
        Mismatch(
            "history_without_end",
            encode("run", run_id),
            f"history has the end {state}, but the journal has none",
        )
        for run_id, state in tx.rows("verify_history_unknown", {**span, "limit": limit})
    ]


def verify_unpaired(tx: Tx, run_ids: Sequence[int], *, is_pruned: bool) -> list[Mismatch]:
    """Check runs that have a creation without an end, or an end without a creation.

    is_pruned: old entries were pruned, so that a creation may be missing.
    """
    found = []
    live = {run_id for (run_id,) in tx.rows("verify_run_live", {"ids": run_ids})}
    for run_id, created, ended in tx.rows("verify_run_entries", {"ids": run_ids}):
        subject = encode("run", run_id)
        if ended > 1:
            text = f"the journal has {ended} entries for the end of this run"
            found.append(Mismatch("run_ended_twice", subject, text))
        elif ended and created > 1:
            text = f"the journal has {created} entries for the creation of this run"
            found.append(Mismatch("run_created_twice", subject, text))
        elif not ended and run_id not in live:
            text = "it was created, but it neither waits nor runs, and it has not ended"
            found.append(Mismatch("run_lost", subject, text))
        elif ended and not created and not is_pruned:
            text = "it ended, but the journal has no entry for its creation"
            found.append(Mismatch("end_without_creation", subject, text))
    return found


def verify_live(tx: Tx, after: int, pruned_to: int) -> tuple[int | None, list[Mismatch]]:
    """Check a page of live runs; return the last of them, None after the last page."""
    rows = tx.rows("verify_live", {"after": after, "limit": PAGE})
    found = []
    for run_id, state, created_at, created, ended in rows:
        subject = encode("run", run_id)
        if created == 0 and created_at >= pruned_to:
            text = f"it is {state}, but the journal has no entry for its creation"
            found.append(Mismatch("run_without_creation", subject, text))
        if ended:
            text = f"it is {state}, but the journal has its end"
            found.append(Mismatch("run_state", subject, text))
    return (rows[-1][0] if len(rows) == PAGE else None), found


def verify_flows(tx: Tx, after: int, pruned_to: int) -> tuple[int, int | None, list[Mismatch]]:
    """Check a page of flows; return their number, the last one or None, and the problems."""
    rows = tx.rows("verify_flows", {"after": after, "limit": PAGE})
    known = [row for row in rows if row[3] >= pruned_to]
    ids = [row[0] for row in known]
    found: list[Mismatch] = []
    for flow_id, state, is_open, _, opened, ended in known:
        problem = compare_flow(flow_id, state, is_open=bool(is_open), opened=opened, ended=ended)
        found += [] if problem is None else [problem]
    found += _starts(tx, ids) if ids else []
    return len(rows), (rows[-1][0] if len(rows) == PAGE else None), found


def _starts(tx: Tx, ids: Sequence[int]) -> Iterator[Mismatch]:
    stored: dict[int, list[tuple[str, str]]] = {}
    entries: dict[int, list[tuple[str, str]]] = {}
    for flow_id, phase, processor in tx.rows("verify_triggers", {"ids": ids}):
        stored.setdefault(flow_id, []).append((phase, processor))
    for flow_id, detail in tx.rows("verify_trigger_entries", {"ids": ids}):
        entries.setdefault(flow_id, []).extend(places([detail]))
    for flow_id in sorted(stored.keys() | entries.keys()):
        yield from compare_starts(flow_id, stored.get(flow_id, []), entries.get(flow_id, []))


def verify_links(tx: Tx, links: Mapping[int, tuple[int, str]]) -> list[Mismatch]:
    """Compare the ends of audit chains in the journal with the chains: customer, number, hash."""
    found = []
    wanted = {CustomerKey(customer): number for customer, (number, _) in links.items()}
    for customer, name, stored in audit_links(tx, wanted):
        number = wanted[customer]
        if stored is None:
            text = f"audit of {name}: link {number} is missing, but the journal has it"
        elif stored != links[customer][1]:
            text = f"audit of {name}: link {number} differs from the one in the journal"
        else:
            continue
        found.append(Mismatch("audit_changed", "audit", text))
    return found


def verify_dispositions(tx: Tx, since: int, limit: int) -> list[Mismatch]:
    """Find ended runs of flows without a completion, and messages that reached no subscription."""
    span = {"since": since, "limit": limit}
    found = []
    for run_id, flow_id in tx.rows("verify_completions", span):
        text = f"it ended, but {encode('flow', flow_id)} has no completion of its processor"
        found.append(Mismatch("completion_missing", encode("run", run_id), text))
    for name, message_id in tx.rows("verify_messages", {**span, "settling_us": MINUTE}):
        text = f"message {message_id} neither waits nor was settled"
        found.append(Mismatch("delivery_missing", f"subscription {name}", text))
    return found


def verify_once(tx: Tx, dead_since: int, limit: int) -> list[Mismatch]:
    """Find occurrences that started twice, dead runs without a dead letter, repeated deliveries."""
    found = []
    for config_id, _, low, high, count in tx.rows("verify_fired_twice", {"limit": limit}):
        text = (
            f"one occurrence of {encode('cfg', config_id)} started {count} runs, such as "
            f"{encode('run', high)}"
        )
        found.append(Mismatch("fired_twice", encode("run", low), text))
    for (run_id,) in tx.rows("verify_dead_runs", {"since": dead_since, "limit": limit}):
        text = "its last attempt failed, but it has no dead letter"
        found.append(Mismatch("dead_letter_missing", encode("run", run_id), text))
    for name, message_id in tx.rows("verify_deliveries", {"limit": limit}):
        text = f"message {message_id} is settled and waits at the same time"
        found.append(Mismatch("delivery_twice", f"subscription {name}", text))
    return found
