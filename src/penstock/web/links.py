"""Addresses of pages by id; ids in a text become links."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup, escape

from penstock.web.parts import address
from penstock.web.words import MONTHS, visible

PAGES: Final = {
    "run": "runs",
    "flow": "flows",
    "dl": "dead-letters",
    "cfg": "configs",
    "int": "interventions",
    "alert": "alerts",
}
NAMED: Final = {
    "customer": "customers",
    "limit": "limits",
    "message": "messages",
    "subscription": "subscriptions",
    "topic": "topics",
}
_ID: Final = re.compile(r"\b(run|flow|dl|cfg|int|alert)_(?:[0-9a-z]{13}|[0-9a-z]{8})\b")
_ID_OR_TIME: Final = re.compile(
    rf"{_ID.pattern}|\b(?:(?:\d{{4}}-\d\d-\d\d|\d{{1,2}} (?:{'|'.join(MONTHS)})) )?"
    r"\d\d:\d\d(?::\d\d)?Z\b"
)


def page_of(public_id: str | None) -> str | None:
    """Return the address of the page of an id; None if it has none."""
    found = None if public_id is None else _ID.fullmatch(public_id)
    return None if found is None else address(PAGES[found.group(1)], found.group())


def page_of_found(kind: str, name: str) -> str | None:
    """Return the page of a search result; None if it has none."""
    if kind in ("correlation", "entity"):
        return address("trace", q=name)
    if kind in NAMED:
        return f"/{NAMED[kind]}/{quote(name, safe='/')}"
    if kind == "pipeline":
        return address("flows", pipeline=name)
    if kind == "processor":
        pipeline, _, rest = name.partition("/")
        return address("runs", pipeline=pipeline, processor=rest.rpartition("/")[2])
    return page_of(name)


def linked(value: Any, now: datetime | None = None) -> Markup:
    """Return untrusted text as safe HTML in which ids are links.

    now: time of the page; times that `words.clock` wrote then follow the page's time zone.
    """
    text = visible(value)
    made, end = Markup(), 0
    for found in (_ID if now is None else _ID_OR_TIME).finditer(text):
        made += escape(text[end : found.start()])
        if found.group(1):
            href = address(PAGES[found.group(1)], found.group())
            made += Markup('<a class="link mono" href="{}">{}</a>').format(href, found.group())
        else:
            made += _time(found.group(), now)
        end = found.end()
    return made + escape(text[end:])


def _time(text: str, now: datetime | None) -> Markup:
    """Return a time of `words.clock` as an element whose text the browser can change."""
    assert now is not None
    day, _, clock = text.removesuffix("Z").rpartition(" ")
    try:
        if not day:
            at = datetime.fromisoformat(f"{now:%Y-%m-%d} {clock}+00:00")
        elif "-" in day:
            at = datetime.fromisoformat(f"{day} {clock}+00:00")
        else:
            number, month = day.split(" ")
            shown = f"{MONTHS.index(month) + 1:02}-{int(number):02} {clock}+00:00"
            years = (now.year - 1, now.year, now.year + 1)
            found = [datetime.fromisoformat(f"{year}-{shown}") for year in years]
            at = min(found, key=lambda one: abs(one - now))
    except ValueError:
        return escape(text)  # no such time, or 29 February in one of the years
    return Markup('<time datetime="{}">{}</time>').format(at.strftime("%Y-%m-%dT%H:%M:%SZ"), text)
