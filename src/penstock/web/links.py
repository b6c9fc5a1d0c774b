"""Addresses of pages by id; ids in a text become links."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup, escape

from penstock.web.parts import address
from penstock.web.words import visible

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


def linked(value: Any) -> Markup:
    """Return untrusted text as safe HTML in which ids are links."""
    text = visible(value)
    made, end = Markup(), 0
    for found in _ID.finditer(text):
        href = address(PAGES[found.group(1)], found.group())
        link = Markup('<a class="link mono" href="{}">{}</a>').format(href, found.group())
        made += escape(text[end : found.start()]) + link
        end = found.end()
    return made + escape(text[end:])
