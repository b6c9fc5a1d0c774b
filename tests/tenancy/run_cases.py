"""Use cases of runs with another customer's objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.client import Client
from penstock.core.ids import encode
from penstock.runs.records import Submission
from tests.tenancy.tenants import Things


def run_name(number: int) -> str:
    """Return the public id of a run."""
    return encode("run", number)


RUN_FOREIGN: dict[str, list[Callable[[Client, Things], Any]]] = {
    "runs.submit": [
        lambda c, t: c.runs.submit(Submission(pipeline="nightly", customer=t.customer_id)),
        lambda c, t: c.runs.submit(
            Submission(pipeline="outside", customer=t.customer_id), key="key-0"
        ),
    ],
    "runs.submit_many": [
        lambda c, t: c.runs.submit_many(
            [Submission(pipeline="nightly"), Submission(pipeline="nightly", customer=t.customer_id)]
        )
    ],
    "runs.get": [
        lambda c, t: c.runs.get(run_name(t.waiting)),
        lambda c, t: c.runs.get(run_name(t.ended)),
    ],
    "runs.detail": [
        lambda c, t: c.runs.detail(run_name(t.ended)),
        lambda c, t: c.runs.detail(run_name(t.waiting)),
    ],
    "runs.upstream": [lambda c, t: c.runs.upstream(run_name(t.ended))],
    "runs.logs": [
        lambda c, t: c.runs.logs(run_name(t.ended)),
        lambda c, t: c.runs.logs(run_name(t.waiting)),
    ],
    "runs.list": [
        lambda c, t: c.runs.list(customer=t.customer_id),
        lambda c, t: c.runs.list(before=run_name(t.waiting)),
    ],
    "runs.counts": [lambda c, t: c.runs.counts(customer=t.customer_id)],
    "runs.cancel": [
        lambda c, t: c.runs.cancel(run_name(t.waiting)),
        lambda c, t: c.runs.cancel(run_name(t.ended)),
    ],
    "runs.retry": [
        lambda c, t: c.runs.retry(run_name(t.dead)),
        lambda c, t: c.runs.retry(run_name(t.waiting)),
    ],
}
