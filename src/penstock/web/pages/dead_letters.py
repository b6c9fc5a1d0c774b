"""Dead letters: causes, the list of one cause, and one dead letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from penstock.core.records.record import Page
from penstock.dead_letters.records import DeadLetter, DeadLetterDetail, DeadLetterGroup
from penstock.web.charts import spark
from penstock.web.detail_parts import DeadLetterPanel
from penstock.web.links import page_of
from penstock.web.pages.data import as_text, bytes_text, error_panel
from penstock.web.pages.lists import ListColumn, list_panel
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Choices,
    Empty,
    FactsPanel,
    Filter,
    NotePanel,
    TableColumn,
    TablePanel,
    TextPanel,
    Way,
    WaysPanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Once, Visit
from penstock.web.words import NOTHING, number, plural

STATUSES: Final = ("open", "replayed", "discarded")
FILTERS: Final = (
    "kind", "subscription", "topic", "pipeline", "processor", "partition", "correlation_id",
    "error_type", "group",
)  # fmt: skip

TIMES: Final = ("since", "until")
AGES: Final = (("any time", None), ("last hour", "1h"), ("24 h", "24h"), ("7 days", "7d"))
"""Choices of `since`."""


def chosen_filters(visit: Visit) -> dict[str, Any]:
    """Return the filters of the address; ages are relative to the time of the request."""
    made: dict[str, Any] = {name: visit.get(name) for name in FILTERS if visit.get(name)}
    if made.get("kind") not in (None, "run", "delivery"):
        del made["kind"]
    if visit.customer is not None:
        made["customer"] = visit.customer
    made |= {name: at for name in TIMES if (at := visit.time(name)) is not None}
    return made


def action_filters(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return filters as text for the address of an action; a time remains the same in it."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in chosen.items()
    }


def dead_letters(visit: Visit) -> WebPage:
    """Show the causes and the matching dead letters."""
    status: Any = visit.choice("status", STATUSES, "open")
    chosen = chosen_filters(visit)
    count = visit.client.dead_letters.count(status=status, **chosen)
    actions = []
    if visit.may_operate and status == "open" and count:
        about = action_filters(chosen)
        href = address("do", "replay-letters", **about)
        actions = [
            Button(
                label=f"Discard {number(count)}…", href=address("do", "discard-letters", **about)
            ),
            Button(label=f"Replay {number(count)}…", href=href, css="go", icon="retry"),
        ]
    usual = ["subscription", "pipeline", "processor", "error_type"]
    usual += [] if visit.is_bound else ["customer"]
    names = usual + [name for name in FILTERS[1:] if visit.get(name) and name not in usual]
    names += TIMES
    groups: list[DeadLetterGroup] = []

    listed = Once(
        lambda: visit.client.dead_letters.list(
            status=status, limit=PAGE_ROWS, cursor=visit.get("cursor"), **chosen
        )
    )
    causes, one = visit.panels(
        {
            "Causes": lambda: _groups(visit, status, chosen, groups),
            "One of them": lambda: _inspected(visit, status, chosen, listed),
        }
    )
    own = {"customer"} if visit.is_bound else set()
    group = next((one for one in groups if one.group == chosen.get("group")), None)
    meant = [one for one in groups if chosen.get("group") in (None, one.group)]
    return WebPage(
        title="Dead letters",
        nav="letters",
        sentence=f"Nothing is lost. {plural(count, 'dead letter is', 'dead letters are')} {status}"
        f"{' with these filters' if chosen.keys() - own else ''}{_kept(status, meant)}",
        choices=[
            Choice(
                label=one,
                href=visit.here(status=one, cursor=None, letter=None),
                is_current=one == status,
            )
            for one in STATUSES
        ],
        actions=actions,
        filters=[
            Filter(
                name=name,
                label=name.replace("_", " "),
                value=visit.get(name) or "",
                hint="2h, 3d or 2026-01-31" if name in TIMES else "",
            )
            for name in names
        ],
        tools=[_ages(visit)],
        kept={"status": status, **({"kind": chosen["kind"]} if "kind" in chosen else {})},
        top=[causes],
        columns="wide2",
        main=[
            *([] if group is None else _refusals(group)),
            visit.panel("Letters", lambda: _list(visit, listed(), group, is_filtered=bool(chosen))),
        ]
        if count
        else [one],
        side=[one] if count else [],
    )


def _ages(visit: Visit) -> Choices:
    links = [visit.here(since=age, until=None, cursor=None, letter=None) for _, age in AGES]
    is_since = visit.get("until") is None
    return Choices(
        label="died",
        choices=[
            Choice(label=label, href=link, is_current=is_since and visit.get("since") == age)
            for (label, age), link in zip(AGES, links, strict=True)
        ],
    )


def _kept(status: str, groups: Sequence[DeadLetterGroup]) -> str:
    """Return their retention, and how many of the checked ones a replay would refuse."""
    ends = [one.keeps_until for one in groups if one.keeps_until is not None]
    kept = f", kept until {min(ends):%Y-%m-%d} or longer" if ends else ", each kept whole"
    refused = sum((one.checked or 0) - (one.replayable or 0) for one in groups)
    if status != "open" or not groups:
        return f"{kept}."
    if not refused:
        if sum(one.count for one in groups) == 1:
            return f"{kept}; it can be replayed as it is."
        return f"{kept}; they can be replayed as they are."
    return f"{kept}; {number(refused)} of them cannot be replayed as they are."


def _refusals(group: DeadLetterGroup) -> list[Any]:
    """Return a note for each reason why dead letters of a group would be refused."""
    return [
        NotePanel(
            text=f"{plural(one.count, 'dead letter', 'dead letters')} would be refused: {one.why}.",
            state="degraded",
        )
        for one in group.refused_reasons
    ]


def _inspected(
    visit: Visit, status: Any, chosen: dict[str, Any], listed: Callable[[], Page[DeadLetter]]
) -> Any:
    """Return the dead letter in the address, else the newest match; `listed` has the rows of the
    page.
    """
    wanted = visit.get("letter")
    if wanted is None:
        newest = listed().items
        if visit.get("cursor"):
            newest = visit.client.dead_letters.list(status=status, limit=1, **chosen).items
        if not newest:
            return WaysPanel(
                title="What you can do",
                ways=[
                    Way(
                        text="See how work that fails permanently is kept.",
                        command="penstock demo saas",
                    )
                ],
            )
        wanted = newest[0].dead_letter_id
    detail = visit.client.dead_letters.get(wanted)
    one = detail.dead_letter
    about = {"dead_letter_id": one.dead_letter_id}
    buttons = [Button(label="Open", href=address("dead-letters", one.dead_letter_id))]
    if visit.may_operate and one.status == "open":
        buttons += [
            Button(label="Edit and replay…", href=address("do", "edit-letter", **about)),
            Button(label="Replay…", href=address("do", "replay-letter", **about), css="go"),
        ]
    content = ""
    if detail.message is not None:
        content = bytes_text(detail.message.data)
    elif detail.run is not None:
        content = as_text(detail.run.parameters)
    return DeadLetterPanel(
        title=one.dead_letter_id,
        state="dead" if one.status == "open" else "complete",
        word=one.error_type,
        text=_error_text(one),
        facts=_short_facts(visit, one),
        body_title="Message" if detail.message is not None else "Parameters",
        body=content,
        buttons=buttons,
        command=f"penstock dlq replay {one.dead_letter_id}",
        note=detail.not_retried or "",
    )


def _short_facts(visit: Visit, one: DeadLetter) -> list[tuple[str, Cell]]:
    facts = [("died", time_cell(one.died_at, css="", small=f"{visit.age(one.died_at)} ago"))]
    if one.message_id:
        on = f"on {one.topic}" if one.topic else ""
        href = address("messages", one.message_id)
        facts.append(("message", Cell(text=one.message_id, href=href, small=on)))
    if one.run_id:
        facts.append(("run", Cell(text=one.run_id, href=page_of(one.run_id), is_mono=True)))
    facts.append(("attempts", text(number(one.attempts))))
    facts.append(("replayed", text(plural(one.replays, "time") if one.replays else "never")))
    if one.correlation_id:
        href = address("trace", q=one.correlation_id)
        facts.append(("correlation", Cell(text=one.correlation_id, href=href, is_mono=True)))
    return facts


def _groups(
    visit: Visit, status: Any, chosen: dict[str, Any], found: list[DeadLetterGroup]
) -> TablePanel:
    """Return all causes, whether or not one is selected; `found` receives them."""
    others = {name: value for name, value in chosen.items() if name != "group"}
    found += visit.client.dead_letters.groups(status=status, limit=PAGE_ROWS, **others)
    names = [one.group for one in found]
    is_open = visit.may_operate and status == "open"
    return TablePanel(
        title="Why they died",
        note=plural(len(found), "cause") if found else "",
        columns=[
            TableColumn(title="count", css="r"),
            TableColumn(title="where and what"),
            TableColumn(title="kind", css="lo"),
            TableColumn(title="24 h", css="lo"),
            TableColumn(title="first", css="r lo"),
            TableColumn(title="last", css="r lo"),
            TableColumn(title="can be replayed", css="r"),
            TableColumn(title="", css="r"),
        ],
        rows=[
            [
                text(number(one.count), css="big"),
                Cell(
                    text=f"{where(one)} · {one.error_type}",
                    small=_cause(one),
                    href=visit.here(group=one.group, cursor=None, letter=None),
                ),
                Cell(tag=one.error_kind or one.kind),
                Cell(spark=spark(one.buckets), fill="dead", text="died by hour, the last 24 hours")
                if any(one.buckets)
                else text(""),
                time_cell(one.first_at),
                time_cell(one.last_at),
                _replayable(one),
                Cell(
                    text="Replay…",
                    href=address(
                        "do", "replay-letters", **{**action_filters(others), "group": one.group}
                    ),
                )
                if is_open
                else text(""),
            ]
            for one in found
        ],
        chosen=names.index(chosen["group"]) if chosen.get("group") in names else None,
        actions=[Button(label="All causes", href=visit.here(group=None, cursor=None, letter=None))]
        if chosen.get("group")
        else [],
        empty=Empty(
            title="No dead letters" if status == "open" else f"None {status}",
            text="What exhausts its attempts, or cannot be read at all, is kept here whole: read "
            "it, edit it, send it again.",
            icon="n-letters",
        ),
    )


def _replayable(one: DeadLetterGroup) -> Cell:
    """Return how many can be replayed, of those that were checked."""
    if not one.checked or one.replayable is None:
        return text(NOTHING)
    share = f"{number(one.replayable)} of {number(one.checked)}"
    small = "" if one.checked == one.count else "the newest"
    return text(share, small=small, css="" if one.replayable == one.checked else "warn")


def _cause(one: DeadLetterGroup) -> str:
    """Return the error text of the newest, and how many other texts there are."""
    others = one.fingerprints - 1
    phrase = one.example[:120]
    return f"{phrase} · and {plural(others, 'other text')}" if others else phrase


def where(one: Any) -> str:
    """Return the origin of a dead letter or group: its subscription, or pipeline and processor."""
    if one.subscription:
        return str(one.subscription)
    return " / ".join(part for part in (one.pipeline, one.processor) if part) or "–"


def _list(
    visit: Visit, page: Page[DeadLetter], group: DeadLetterGroup | None, *, is_filtered: bool
) -> TablePanel:
    columns = (
        ListColumn(
            "dead letter",
            "",
            lambda one: Cell(
                text=one.dead_letter_id,
                href=visit.here(letter=one.dead_letter_id),
                is_mono=True,
                small=one.customer or "",
            ),
        ),
        ListColumn(
            "where",
            "",
            lambda one: text(where(one), small=one.partition or one.message_id or "", css="nw"),
        )
        if group is None
        else ListColumn(
            "message" if group.kind == "delivery" else "partition",
            "",
            lambda one: text(one.message_id or one.partition or NOTHING),
        ),
        ListColumn("error", "lo", lambda one: Cell(text=_error_text(one), css="msg cut")),
        ListColumn("died", "r lo", lambda one: time_cell(one.died_at)),
    )
    empty = Empty(
        title="Nothing fits",
        text="Nothing fits these filters." if is_filtered else "There is none.",
        icon="n-letters",
    )
    shown = [one.dead_letter_id for one in page.items]
    at = visit.get("letter") or (shown[0] if shown and not visit.get("cursor") else None)
    place = shown.index(at) if at in shown else None
    title = "Newest first" if group is None else f"{where(group)} · {group.error_type}"
    return list_panel(visit, title, page, columns, empty, place)


def _error_text(one: DeadLetter) -> str:
    found = one.error_details
    if isinstance(found, dict):
        for name in ("message", "error", "reason", "text"):
            if isinstance(found.get(name), str):
                return str(found[name])[:160]
    return as_text(found)[:160]


def dead_letter(visit: Visit) -> WebPage:
    """Show one dead letter: its cause, its content and its replay actions."""
    detail = visit.client.dead_letters.get(visit.path_values["dead_letter_id"])
    one = detail.dead_letter
    is_open = one.status == "open"
    actions = []
    if is_open and visit.may_operate:
        about = {"dead_letter_id": one.dead_letter_id}
        actions = [
            Button(label="Discard…", href=address("do", "discard-letter", **about)),
            Button(label="Edit and replay…", href=address("do", "edit-letter", **about)),
            Button(
                label="Replay…", href=address("do", "replay-letter", **about), css="go",
                icon="retry",
            ),
        ]  # fmt: skip
    return WebPage(
        title=one.dead_letter_id,
        nav="letters",
        heading=f"{where(one)}: {one.error_type}",
        crumbs=[("/dead-letters", "Dead letters")],
        state="dead" if is_open else "complete",
        word=one.status,
        sentence=_sentence(visit, detail),
        actions=actions,
        top=[NotePanel(text=detail.not_retried, state="degraded")] if detail.not_retried else [],
        main=_content(detail),
        side=[
            _facts(visit, one),
            WaysPanel(
                title="The same as commands",
                ways=[
                    Way(text="See it.", command=f"penstock dlq show {one.dead_letter_id}"),
                    Way(
                        text="Send it again.",
                        command=f"penstock dlq replay {one.dead_letter_id}",
                    ),
                ],
            ),
        ],
        is_live=False,
    )


def _sentence(visit: Visit, detail: DeadLetterDetail) -> str:
    one = detail.dead_letter
    what = "The message" if one.kind == "delivery" else "The run"
    phrase = f"{what} died at {visit.clock(one.died_at)} after {plural(one.attempts, 'attempt')}"
    phrase += f" and was replayed {plural(one.replays, 'time')}." if one.replays else "."
    if one.status == "open":
        until = detail.still_kept_until
        kept = "" if until is None else f" It is kept until {until:%Y-%m-%d}."
        return f"{phrase} It is still here, whole, and can be sent again.{kept}"
    return f"{phrase} It was {one.status} at {visit.clock(one.resolved_at)} by {one.resolved_by}."


def _content(detail: DeadLetterDetail) -> list[Any]:
    one = detail.dead_letter
    made: list[Any] = [
        error_panel(one, title="Why", state="dead" if one.status == "open" else "complete"),
        *_attempts(detail),
    ]
    if detail.message is not None:
        phrase = detail.message
        made.append(TextPanel(title="Message", text=bytes_text(phrase.data)))
        if phrase.attributes:
            made.append(TextPanel(title="Attributes", text=as_text(phrase.attributes)))
    if detail.run is not None:
        made.append(TextPanel(title="Parameters", text=as_text(detail.run.parameters)))
    return made


def _attempts(detail: DeadLetterDetail) -> list[TablePanel]:
    """Return a table of the failed attempts; empty if none are stored."""
    if not detail.attempts:
        return []
    is_run = detail.dead_letter.kind == "run"
    by = "run" if is_run else "revision"
    return [
        TablePanel(
            title="Attempts",
            columns=[
                TableColumn(title="attempt", css="r"),
                TableColumn(title="ended", css="r"),
                TableColumn(title=by),
                TableColumn(title="error"),
            ],
            rows=[
                [
                    text(number(one.attempt)),
                    time_cell(one.at),
                    Cell(text=one.run_id, href=page_of(one.run_id), is_mono=True)
                    if one.run_id
                    else text(" ".join(filter(None, (one.service, one.revision))) or NOTHING),
                    Cell(text=one.error_type, small=one.error[:160]),
                ]
                for one in detail.attempts
            ],
            empty=Empty(title="No attempts", text="Retention has removed them.", icon="n-letters"),
        )
    ]


def _facts(visit: Visit, one: DeadLetter) -> FactsPanel:
    facts = [
        ("letter", Cell(text=one.dead_letter_id, is_mono=True)),
        ("died", time_cell(one.died_at, css="", small=f"{visit.age(one.died_at)} ago")),
        ("attempts", text(number(one.attempts))),
    ]
    for label, value, href in (
        ("customer", one.customer, None),
        ("topic", one.topic, one.topic and address("topics", one.topic)),
        ("subscription", one.subscription,
         one.subscription and address("subscriptions", one.subscription)),
        ("message", one.message_id, one.message_id and address("messages", one.message_id)),
        ("run", one.run_id, page_of(one.run_id)),
        ("config", one.config_id, page_of(one.config_id)),
        ("partition", one.partition, None),
        ("correlation", one.correlation_id,
         one.correlation_id and address("trace", q=one.correlation_id)),
        ("resolution", one.resolution, None),
    ):  # fmt: skip
        if value:
            facts.append((label, Cell(text=value, href=href or None)))
    return FactsPanel(title="Facts", facts=facts)
