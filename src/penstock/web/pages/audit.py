"""The audit page: the journal as sentences, with actors and subjects."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.audit.records import ListedJournalEntry
from penstock.web.links import page_of
from penstock.web.parts import (
    Button,
    Choice,
    Choices,
    FeedPanel,
    Filter,
    Happening,
    NotePanel,
    WebPage,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import appearance

KINDS: Final = ("", "flow", "run", "dead_letter", "backfill", "customer", "key")
ICONS: Final = {
    "opened": "n-flows", "created": "cal", "triggered": "gate", "decided": "gate",
    "replayed": "retry", "expanded": "n-grid", "gate_decided": "gate",
}  # fmt: skip
HEAD_MAX: Final = 90
"""Maximum number of characters before the colon of an entry that are shown as its heading."""
BY_KIND: Final = {"key": "n-keys", "customer": "n-people", "dead_letter": "dead",
                  "backfill": "retry", "delivery": "dead"}  # fmt: skip


def happening(entry: ListedJournalEntry, most: int = 400) -> Happening:
    """Return a journal entry as a line with at most `most` characters."""
    icon = ICONS.get(entry.action) or BY_KIND.get(entry.kind)
    if icon is None:
        icon = appearance(entry.to_state) if entry.to_state else "info"
    shown = entry.text if len(entry.text) <= most else f"{entry.text[:most].rstrip()}…"
    what, colon, reason = shown.partition(": ")
    if not colon or len(what) > HEAD_MAX:
        what, reason = shown, ""
    return Happening(
        at=entry.at,
        icon=icon,
        text=what,
        href=page_of(entry.subject),
        small="" if reason else f"by {entry.actor}",
        detail=f"{reason.rstrip('.')} · by {entry.actor}" if reason else "",
    )


def happenings(entries: Sequence[ListedJournalEntry], most: int = 400) -> list[Happening]:
    """Return entries as lines; consecutive equal entries are merged, with a count."""
    made: list[Happening] = []
    for _, same in itertools.groupby(entries, key=lambda one: (one.text, one.actor)):
        group = list(same)
        line = happening(group[0], most)
        if len(group) > 1:
            line = replace(line, text=f"{line.text} ({len(group)} times)")
        made.append(line)
    return made


def audit(visit: Visit) -> WebPage:
    """List the journal by filter, newest first."""
    kind = visit.choice("kind", KINDS, "")
    is_all = visit.get("all") == "yes"
    page = visit.client.views.journal(
        kind=kind or None,
        action=visit.get("action"),
        actor=visit.get("actor"),
        customer=visit.customer,
        notable=not is_all,
        limit=PAGE_ROWS,
        cursor=visit.get("cursor"),
    )
    names = ["actor", "action", *([] if visit.is_bound else ["customer"])]
    return WebPage(
        title="Audit",
        nav="audit",
        sentence="Every state change and every action, by whom, in the order in which they were "
        "committed. The journal is sealed in blocks; penstock verify proves that nothing changed.",
        filters=[Filter(name=name, label=name, value=visit.get(name) or "") for name in names],
        kept={
            name: value
            for name, value in (("kind", kind), ("all", "yes" if is_all else ""))
            if value
        },
        tools=[
            Choices(
                label="About",
                choices=[
                    Choice(
                        label=one.replace("_", " ") or "everything",
                        href=visit.here(kind=one or None, cursor=None),
                        is_current=one == kind,
                    )
                    for one in KINDS
                ],
            ),
            Choices(
                label="Runs",
                choices=[
                    Choice(
                        label="notable",
                        href=visit.here(all=None, cursor=None),
                        is_current=not is_all,
                    ),
                    Choice(
                        label="every run",
                        href=visit.here(all="yes", cursor=None),
                        is_current=is_all,
                    ),
                ],
            ),
        ],
        main=[
            *_note(len(page.items), page.next_cursor),
            FeedPanel(
                title="Journal",
                note="newest first",
                rows=happenings(page.items),
                more=visit.next_page(page.next_cursor),
                empty="Nothing that fits was found among the entries of this page."
                if page.next_cursor
                else "Nothing fits. What people and services do appears here.",
                actions=[]
                if visit.is_bound
                else [Button(label="Seals", href="/system", css="bare sm")],
            ),
        ],
    )


def _note(found: int, cursor: str | None) -> list[NotePanel]:
    if cursor is None or found >= PAGE_ROWS:
        return []
    return [
        NotePanel(
            text="A page looks through 5,000 entries. Older ones may match as well: continue with "
            "Older.",
        )
    ]
