"""The command palette: suggestions for a text. Objects come from the search, pages and commands
from this module.

`GET /palette?q=` returns JSON for the script; `/find` is the same search as a page. A command opens
the preview of its action and never executes it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from penstock.core.errors import InvalidInput, PenstockError
from penstock.tracking.records import FoundObject
from penstock.web.links import page_of, page_of_found
from penstock.web.login.sessions import Visitor
from penstock.web.navigation import places_of
from penstock.web.parts import address
from penstock.web.security import HEADERS
from penstock.web.site import Site
from penstock.web.visit import Visit

GROUP_MAX: Final = 4
QUERY_MAX: Final = 300
_ICONS: Final = {
    "run": "n-runs", "flow": "n-flows", "config": "cal", "dead_letter": "n-letters",
    "alert": "n-alerts", "message": "n-topics", "correlation": "n-entity", "entity": "n-entity",
    "customer": "n-people", "pipeline": "n-flows", "processor": "n-runs", "topic": "n-topics",
    "subscription": "n-topics", "limit": "n-limits",
}  # fmt: skip
_WORDS: Final = {"dead_letter": "dead letter", "correlation": "trace"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaletteLine:
    """A suggestion of the palette, with the address it opens."""

    label: str
    href: str
    small: str = ""
    icon: str = "search"


class Palette:
    """The route of the palette."""

    def __init__(self, site: Site) -> None:
        self._site = site
        site.add("/palette", self.serve, ["GET"])

    async def serve(self, request: Request) -> Response:
        """Return suggestions for a text, in groups."""
        visitor = await self._site.enter(request, "/palette")
        if isinstance(visitor, Response):
            return visitor
        return await run_in_threadpool(partial(self._serve, request, visitor))

    def _serve(self, request: Request, visitor: Visitor) -> Response:
        visit = self._site.visit(request, visitor)
        q = request.query_params.get("q", "")[:QUERY_MAX].replace("\0", "").strip()
        groups = suggestions(visit, q)
        body = {
            "groups": [
                {"title": title, "items": [asdict(one) for one in items]} for title, items in groups
            ]
        }
        headers = {**HEADERS, "Cache-Control": "no-store"}
        return Response(json.dumps(body), 200, headers, "application/json")


def suggestions(visit: Visit, q: str) -> list[tuple[str, list[PaletteLine]]]:
    """Return groups of suggestions for a text: found, do, go to."""
    found: list[PaletteLine] = []
    try:
        result = visit.client.tracking.find(q, customer=visit.customer)
        found = [one for one in map(suggestion_of, result.items) if one is not None]
    except InvalidInput:
        pass  # too short to search for
    except PenstockError as error:
        found = [PaletteLine(label=error.message, href=address("find", q=q), icon="tri")]
    places = [
        PaletteLine(label=place.label, href=place.href, icon=place.icon)
        for place in places_of(visit)
        if q.lower() in place.label.lower()
    ]
    return [
        ("Found", found[: 2 * GROUP_MAX]),
        ("Do", command_suggestions(q)[:GROUP_MAX]),
        ("Go to", places[:GROUP_MAX]),
    ]


def suggestion_of(found: FoundObject) -> PaletteLine | None:
    """Return the line of a search result; None if it has no page."""
    href = page_of_found(found.kind, found.id)
    if href is None:
        return None
    word = _WORDS.get(found.kind, found.kind)
    parts = [word, found.customer or "", (found.state or "").lower()]
    label = found.name if found.kind not in ("run", "flow") else f"{found.id} {found.name}"
    return PaletteLine(
        label=label if found.kind != "correlation" else found.id,
        href=href,
        small=" · ".join(part for part in parts if part),
        icon=_ICONS.get(found.kind, "search"),
    )


def command_suggestions(q: str) -> list[PaletteLine]:
    """Parse a text as a command, typed in a few words or pasted from a terminal."""
    try:
        words = shlex.split(q)
    except ValueError:
        return []
    is_pasted = words[:1] == ["penstock"]
    words = [word for word in words[is_pasted:] if not word.startswith("-")]
    if not words:
        return []
    made = _pasted(words) or _typed(words)
    return [] if made is None else [made]


def _pasted(words: Sequence[str]) -> PaletteLine | None:
    """Return the page or preview of a command of the command line."""
    match words:
        case ["explain" | "why" | "trace", id] if page_of(id):
            return PaletteLine(label=f"Open {id}", href=page_of(id) or "/", icon="n-flows")
        case ["trace" | "entities", what]:
            return PaletteLine(
                label=f"Trace {what}", href=address("trace", q=what), icon="n-entity"
            )
        case ["explain" | "why" | "gate", pipeline, partition, *_]:
            href = address("flows", pipeline=pipeline, partition=partition)
            return PaletteLine(label=f"Flows of {pipeline} {partition}", href=href, icon="n-flows")
        case ["runs" | "flows" | "dlq" | "configs" | "alerts" | "interventions", "show", id]:
            page = page_of(id)
            return None if page is None else PaletteLine(label=f"Open {id}", href=page)
        case ["runs" | "flows" | "dlq" | "configs" | "alerts", verb, id]:
            return _typed([verb, id])
        case ["find", what]:
            return PaletteLine(label=f"Search for {what}", href=address("find", q=what))
    return None


_VERBS: Final = {
    ("retry", "run"): ("retry-run", "run_id"),
    ("cancel", "run"): ("cancel-run", "run_id"),
    ("cancel", "flow"): ("cancel-flow", "flow_id"),
    ("replay", "dl"): ("replay-letter", "dead_letter_id"),
    ("edit", "dl"): ("edit-letter", "dead_letter_id"),
    ("discard", "dl"): ("discard-letter", "dead_letter_id"),
    ("ack", "alert"): ("acknowledge", "alert_id"),
    ("acknowledge", "alert"): ("acknowledge", "alert_id"),
    ("resolve", "alert"): ("resolve-alert", "alert_id"),
    ("resolve", "int"): ("resolve", "intervention_id"),
    ("start", "cfg"): ("start-config", "config_id"),
    ("enable", "cfg"): ("enable-config", "config_id"),
    ("disable", "cfg"): ("disable-config", "config_id"),
    ("pause", "cfg"): ("pause", "config"),
    ("resume", "cfg"): ("resume", "config"),
}


def _typed(words: Sequence[str]) -> PaletteLine | None:
    """Return the preview of a verb and its object."""
    verb, rest = words[0].lower(), words[1:]
    if len(rest) == 1:
        kind = rest[0].partition("_")[0] if page_of(rest[0]) else ""
        if (verb, kind) in _VERBS:
            action, name = _VERBS[verb, kind]
            about = {"scope": name, "subject": rest[0]} if name == "config" else {name: rest[0]}
            return _do(action, f"{verb.capitalize()} {rest[0]}…", **about)
        if verb in ("why", "open") and kind:
            return PaletteLine(label=f"Open {rest[0]}", href=page_of(rest[0]) or "/")
        if verb == "replay":
            label = f"Replay the dead letters of {rest[0]}…"
            return _do("replay-letters", label, subscription=rest[0])
    if verb in ("pause", "resume") and rest:
        scope = rest[0] if len(rest) > 1 else "customer"
        label = f"{verb.capitalize()} {scope} {rest[-1]}…"
        return _do(verb, label, scope=scope, subject=rest[-1])
    if verb == "trigger" and rest:
        names = dict(zip(("pipeline", "partition", "phase"), rest, strict=False))
        return _do("trigger", f"Trigger {' '.join(rest)}…", **names)
    if verb == "override" and len(rest) > 1:
        rest = rest[1:] if rest[0] == "grant" else rest
        names = dict(zip(("pipeline", "partition", "phase"), rest, strict=False))
        return _do("override", f"Override a gate of {' '.join(rest)}…", **names)
    return None


def _do(action: str, label: str, **values: str) -> PaletteLine:
    return PaletteLine(label=label, href=address("do", action, **values), small="opens a preview",
                      icon="bolt")  # fmt: skip
