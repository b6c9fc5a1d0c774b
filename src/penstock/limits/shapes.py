"""JSON representations of limits."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import SECOND, iso
from penstock.core.formatting import id_or_none, iso_or_none
from penstock.core.ids import encode
from penstock.limits.client import LimitDetail
from penstock.limits.store.reads import LimitEvent, LimitView
from penstock.limits.store.rows import Lease, Ticket


def limit_shape(view: LimitView) -> dict[str, Any]:
    """Return the JSON form of a limit in a list."""
    limit = view.limit
    return {
        "name": limit.name,
        "capacity": limit.capacity,
        "effective_capacity": limit.effective,
        "learned_capacity": limit.learned,
        "adaptive": bool(limit.is_adaptive),
        "floor": limit.floor,
        "rate": limit.rate,
        "burst": limit.burst,
        "lease_seconds": limit.lease_us / SECOND,
        "grace_seconds": limit.grace_us / SECOND,
        "queue_max": limit.queue_max,
        "held": view.held,
        "holders": view.holders,
        "waiting": view.waiting,
        "waiting_runs": view.waiting_runs,
        "quota_errors": limit.quota_errors,
        "last_quota_error_at": iso_or_none(limit.last_quota_at),
        "updated_at": iso(limit.updated_at),
        "updated_by": limit.updated_by,
    }


def limit_detail_shape(detail: LimitDetail) -> dict[str, Any]:
    """Return the JSON form of a limit with its holders, queue and history."""
    waits = detail.waits
    return {
        "limit": limit_shape(detail.view),
        "waits": {
            "measured": waits.measured,
            "p50_seconds": waits.p50 / SECOND,
            "p95_seconds": waits.p95 / SECOND,
            "p99_seconds": waits.p99 / SECOND,
            "contention": waits.contention,
        },
        "holders": [lease_shape(lease) for lease in detail.holders],
        "queue": [_ticket_shape(position, one) for position, one in enumerate(detail.queue, 1)],
        "history": [_note_shape(note) for note in detail.history],
    }


def lease_shape(lease: Lease) -> dict[str, Any]:
    """Return the JSON form of a lease on a slot."""
    return {
        "lease_id": encode("lease", lease.lease_id),
        "holder": lease.holder,
        "run_id": id_or_none("run", lease.run_id),
        "weight": lease.weight,
        "fencing_token": lease.token,
        "asked_at": iso(lease.requested_at),
        "since": iso(lease.since_at),
        "until": iso_or_none(lease.until_at),
    }


def _ticket_shape(position: int, ticket: Ticket) -> dict[str, Any]:
    return {
        "place": position,
        "holder": ticket.holder,
        "run_id": id_or_none("run", ticket.run_id),
        "weight": ticket.weight,
        "asked_at": iso(ticket.asked_at),
    }


def _note_shape(note: LimitEvent) -> dict[str, Any]:
    return {
        "holder": note.holder,
        "run_id": id_or_none("run", note.run_id),
        "weight": note.weight,
        "outcome": note.outcome,
        "asked_at": iso_or_none(note.asked_at),
        "since": iso_or_none(note.since_at),
        "at": iso(note.at),
    }
