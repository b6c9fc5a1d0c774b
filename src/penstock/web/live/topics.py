"""Topics of hints: the subscriptions of open pages, and the topics of changes. Pure.

`runs` is any run, `run:run_7h2kq0v3` that one. A hint reports that something has changed, never
what: the page loads again, and permissions are checked then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.audit.store.changes import ChangedSubject, ChangeFigures
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey

TOPICS_MAX: Final = 16
LISTS: Final = frozenset(
    {"counts", "alerts", "letters", "interventions", "flows", "runs", "configs", "customers",
     "limits", "topics", "backfills", "keys", "system"}
)  # fmt: skip
"""Topics about many items; their hints are sent less often than those about one."""
ONES: Final = ("run", "flow", "dl")
_ONE: Final = re.compile(rf"({'|'.join(ONES)}):\1_[0-9a-z]{{8,13}}")
_FAILED: Final = frozenset({"FAILED", "TIMEOUT"})
_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "run": ("runs",),
    "flow": ("flows", "interventions"),
    "dead_letter": ("letters", "counts"),
    "audit": ("configs", "customers"),
    "config": ("configs",),
    "customer": ("customers",),
    "pipeline": ("configs",),
    "limit": ("limits",),
    "topic": ("topics",),
    "subscription": ("topics",),
    "backfill": ("backfills",),
    "key": ("keys",),
}
_OF_PAGE: Final[Mapping[str, tuple[str, ...]]] = {
    "/": ("alerts", "letters", "interventions", "flows", "runs"),
    "/alerts": ("alerts",),
    "/backfills": ("backfills",),
    "/breakers": ("flows",),
    "/configs": ("configs",),
    "/customers": ("customers", "configs"),
    "/dead-letters": ("letters",),
    "/flows": ("flows",),
    "/grid": ("flows",),
    "/interventions": ("interventions",),
    "/keys": ("keys",),
    "/limits": ("limits",),
    "/runs": ("runs",),
    "/subscriptions": ("topics", "letters"),
    "/system": ("system",),
    "/topics": ("topics",),
    # A detail page does not refresh when other items change.
    "/dead-letters/{dead_letter_id}": ("dl:{dead_letter_id}",),
    "/flows/{flow_id}": ("flow:{flow_id}",),
    "/runs/{run_id}": ("run:{run_id}",),
}
"""Topics by path of a page, or by its first part."""
_PUBLIC: Final = {"run": "run", "flow": "flow", "dead_letter": "dl"}


def parse_topics(given: str) -> frozenset[str]:
    """Return the topics of a request; raise InvalidInput for one that does not exist."""
    wanted = [topic for topic in given.split(",") if topic]
    if not 1 <= len(wanted) <= TOPICS_MAX:
        raise InvalidInput("on", f"1 to {TOPICS_MAX} topics, separated by commas", len(wanted))
    for topic in wanted:
        if topic not in LISTS and not _ONE.fullmatch(topic):
            raise InvalidInput("on", f"{', '.join(sorted(LISTS))}, or KIND:ID", topic)
    return frozenset(wanted)


def topics_of_page(path: str, values: Mapping[str, str]) -> str:
    """Return the topics that an open page subscribes to, as in the query of the stream."""
    first = f"/{path.split('/')[1]}"
    found = ("counts", *(_OF_PAGE.get(path) or _OF_PAGE.get(first, ())))
    made = [topic.format(**values) for topic in found]
    return ",".join(topic for topic in made if topic in LISTS or _ONE.fullmatch(topic))


def topics_of(changed: ChangedSubject) -> tuple[str, ...]:
    """Return the topics of a new journal entry."""
    made = _OF_KIND.get(changed.kind, ("system",))
    public = _PUBLIC.get(changed.kind)
    if public is not None and changed.subject > 0:
        made = (*made, f"{public}:{encode(public, changed.subject)}")
    if changed.kind == "run" and changed.state in _FAILED:
        made = (*made, "letters", "counts")
    return made


def topics_of_figures(
    before: ChangeFigures, after: ChangeFigures
) -> Iterable[tuple[CustomerKey | None, tuple[str, ...]]]:
    """Yield customers and topics whose figures differ; customer None is for viewers of all
    customers.
    """
    for customer in {*before.alerts, *after.alerts}:
        if before.alerts.get(customer) != after.alerts.get(customer):
            yield customer, ("alerts", "counts")
    if before.claims != after.claims:
        yield None, ("runs", "limits", "system")
    if before.messages != after.messages:
        yield None, ("topics",)
