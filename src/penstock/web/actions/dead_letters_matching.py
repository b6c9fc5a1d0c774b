"""Actions on all dead letters that match a filter, in bounded steps that a button continues."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput
from penstock.dead_letters.records import (
    DiscardRequest,
    RefusedReplay,
    ReplayRequest,
    ReplayStep,
)
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.actions.dead_letters import REASON
from penstock.web.pages.dead_letters import FILTERS, TIMES, where
from penstock.web.parts import address
from penstock.web.words import plural

STEP: Final = 500
"""Number of dead letters of one transaction; the preview checks as many."""
STEPS: Final = 4
"""Number of transactions after one confirmation or one press of the button that continues."""
COUNT_MAX: Final = 10_000
"""Largest count; there may be more."""
ORIGINS: Final = 6
REASONS: Final = 5
GROUPS: Final = 100
_CARRIED: Final = ("before", "start_at", "earlier")
"""Values with which a replay continues."""


def _chosen(values: Values) -> dict[str, str]:
    return {name: values[name] for name in (*FILTERS, *TIMES, "customer") if values.get(name)}


def _filters(values: Values) -> dict[str, Any]:
    """Return the filters of the use cases."""
    return {
        name: _time(name, value) if name in TIMES else value
        for name, value in _chosen(values).items()
    }


def _time(name: str, value: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidInput(name, "an ISO 8601 time", value) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _request(values: Values, **changed: Any) -> ReplayRequest:
    start_at = values.get("start_at")
    given: dict[str, Any] = {
        "rate": _rate(values.get("rate", "")),
        "before": values.get("before") or None,
        "start_at": _time("start_at", start_at) if start_at else None,
        "limit": STEP,
    }
    return ReplayRequest(**{**_filters(values), **given, **changed})


def _rate(given: str) -> float | None:
    if not given:
        return None
    try:
        return float(given)
    except ValueError:
        raise InvalidInput("rate", "a number of dead letters a second", given) from None


def _count(client: UseCaseGroups, values: Values) -> int:
    """Return how many dead letters the replay reaches."""
    step = client.dead_letters.replay_matching(_request(values, limit=1, is_dry_run=True))
    return min(COUNT_MAX, step.left + len(step.replayed) + len(step.refused))


def _preview(client: UseCaseGroups, values: Values) -> DeedOutcome:
    """Return the expected outcome: the first step is executed and rolled back."""
    step = client.dead_letters.replay_matching(_request(values))
    checked = len(step.replayed) + len(step.refused)
    count = min(COUNT_MAX, checked + step.left)
    acted = min(len(step.replayed) + step.left, STEP * STEPS)
    rows = [("match", _many(count)), *_origins(client, values)]
    if step.left:
        rows.append(("checked", f"the newest {checked:,}"))
        rows.append(("of these replayed", f"{len(step.replayed):,}"))
    else:
        rows.append(("replayed", f"{acted:,}"))
    rows += [*_refusals(step.refused), *_end(values, step)]
    phrase = f"{plural(acted, 'dead letter is', 'dead letters are')} replayed"
    if count > STEP * STEPS:
        phrase = f"the newest {acted:,} are replayed, then a button continues with the next"
    return DeedOutcome(
        text=f"{phrase}; their attempts are counted from 1. What dies again is kept again.",
        rows=rows,
        count=count,
        acted=acted,
        is_nothing=not acted,
    )


def _replay(client: UseCaseGroups, values: Values) -> DeedOutcome:
    """Replay up to STEPS steps, past those that are refused."""
    request = _request(values)
    steps: list[ReplayStep] = []
    while not steps or (steps[-1].left and len(steps) < STEPS):
        if steps:
            last = steps[-1]
            request = _request(values, before=last.next_before, start_at=last.next_at)
        steps.append(client.dead_letters.replay_matching(request))
    last = steps[-1]
    replayed = sum(len(step.replayed) for step in steps)
    refused = [one for step in steps for one in step.refused]
    total = replayed + int(values.get("earlier") or 0)
    rows = [("replayed", _so_far(replayed, total)), *_refusals(refused)]
    if last.left:
        rows.append(("left", _many(last.left)))
    following = {}
    if last.left and last.next_before is not None:
        following = {"before": last.next_before, "earlier": str(total)}
        if request.rate is not None and last.next_at is not None:
            following["start_at"] = last.next_at.isoformat()
    shown = address("dead-letters", **{**_chosen(values), "status": "replayed"})
    return DeedOutcome(
        text=f"{plural(replayed, 'dead letter is', 'dead letters are')} replayed; "
        "their attempts are counted from 1. What dies again is kept again.",
        rows=[*rows, *_end(values, last)],
        acted=replayed,
        links=[(shown, "See them")],
        following=following,
        following_label=f"Replay the next {min(last.left, STEP * STEPS):,}" if following else "",
    )


def _discard_request(values: Values, **changed: Any) -> DiscardRequest:
    given = {"before": values.get("before") or None, "limit": STEP, "reason": values["reason"]}
    return DiscardRequest(**{**_filters(values), **given, **changed})


def _discard_count(client: UseCaseGroups, values: Values) -> int:
    """Return how many dead letters are reached."""
    request = _discard_request(values, limit=1, is_dry_run=True, reason="preview")
    step = client.dead_letters.discard_matching(request)
    return min(COUNT_MAX, step.left + len(step.discarded))


def _discard_preview(client: UseCaseGroups, values: Values) -> DeedOutcome:
    count = _discard_count(client, values)
    acted = min(count, STEP * STEPS)
    phrase = f"{plural(acted, 'dead letter is', 'dead letters are')} closed"
    if count > acted:
        phrase = f"the newest {acted:,} are closed, then a button continues with the next"
    return DeedOutcome(
        text=f"{phrase}, without a replay. They stay readable until their retention ends.",
        rows=[("match", _many(count)), *_origins(client, values)],
        count=count,
        acted=acted,
        is_nothing=not acted,
    )


def _discard(client: UseCaseGroups, values: Values) -> DeedOutcome:
    """Discard up to STEPS steps."""
    steps = [client.dead_letters.discard_matching(_discard_request(values))]
    while steps[-1].left and len(steps) < STEPS:
        request = _discard_request(values, before=steps[-1].next_before)
        steps.append(client.dead_letters.discard_matching(request))
    left, before = steps[-1].left, steps[-1].next_before
    done = sum(len(step.discarded) for step in steps)
    total = done + int(values.get("earlier") or 0)
    following = {} if before is None else {"before": before, "earlier": str(total)}
    shown = address("dead-letters", **{**_chosen(values), "status": "discarded"})
    return DeedOutcome(
        text=f"{plural(done, 'dead letter is', 'dead letters are')} closed without a replay. "
        "They stay readable until their retention ends.",
        rows=[
            ("discarded", _so_far(done, total)),
            *([("left", _many(left))] if left else []),
            ("reason", values["reason"]),
        ],
        acted=done,
        links=[(shown, "See them")],
        following=following,
        following_label=f"Discard the next {min(left, STEP * STEPS):,}" if following else "",
    )


def _so_far(done: int, total: int) -> str:
    return f"{done:,}" if total == done else f"{done:,}, {total:,} so far"


def _many(count: int) -> str:
    return f"{count:,} or more" if count >= COUNT_MAX else f"{count:,}"


def _origins(client: UseCaseGroups, values: Values) -> list[tuple[str, str]]:
    """Return how many dead letters each subscription or processor has, among the newest."""
    found: Counter[str] = Counter()
    for group in client.dead_letters.groups(check=False, limit=GROUPS, **_filters(values)):
        found[where(group)] += group.count
    rows = [(name, f"{count:,}") for name, count in found.most_common(ORIGINS)]
    others = found.total() - sum(count for _, count in found.most_common(ORIGINS))
    return [*rows, ("others", f"{others:,}")] if others else rows


def _refusals(refused: Sequence[RefusedReplay]) -> list[tuple[str, str]]:
    """Return the number of refused dead letters for each reason."""
    reasons = _reasons(one.why for one in refused)
    rows = [("refused", f"{count:,}: {why}") for why, count in reasons[:REASONS]]
    others = sum(count for _, count in reasons[REASONS:])
    return [*rows, ("refused", f"{others:,} for other reasons")] if others else rows


def _reasons(whys: Iterable[str]) -> list[tuple[str, int]]:
    """Count reasons, the most frequent first; those that differ only in ids are the same."""
    texts: dict[str, str] = {}
    found: Counter[str] = Counter()
    for why in whys:
        name = re.sub(r"\b[a-z]+_[0-9a-z]{6,}\b|\d{4,}", "…", why)
        texts.setdefault(name, why)
        found[name] += 1
    return [(texts[name] if count == 1 else name, count) for name, count in found.most_common()]


def _end(values: Values, step: ReplayStep) -> list[tuple[str, str]]:
    """Return the rate, and the time at which it has sent all."""
    rate = _rate(values.get("rate", ""))
    if rate is None or step.next_at is None:
        return [("rate", "all at once")]
    end = step.next_at + timedelta(seconds=step.left / rate)
    end_text = f"{end:%Y-%m-%d %H:%M:%S} UTC{' or later' if step.left >= COUNT_MAX else ''}"
    return [("rate", f"{rate:g} a second"), ("all are sent by", end_text)]


def _options(values: Values) -> dict[str, str]:
    renamed = {"error_type": "error", "correlation_id": "correlation"}
    return {renamed.get(name, name): value for name, value in _chosen(values).items()}


def _command(values: Values, verb: str, **others: str | None) -> str:
    options = _options(values)
    words = ["dlq", verb] if options else ["dlq", verb, "--all"]
    return command_line(*words, **options, **others)


def _is_for_all(values: Values) -> bool:
    return not _chosen(values) and not values.get("before")


def _newest(verb: str, outcome: DeedOutcome) -> str:
    has_more = (outcome.count or 0) > STEP * STEPS
    return f"{verb} the newest {outcome.acted:,}" if has_more else f"{verb} {outcome.acted:,}"


MATCHING_ACTIONS: Final = (
    Action(
        name="replay-letters",
        question=lambda _: "Replay all dead letters that match?",
        label=lambda outcome: _newest("Replay", outcome),
        deed=_replay,
        preview=_preview,
        count=_count,
        is_for_all=_is_for_all,
        command=lambda values: _command(values, "replay", rate=values.get("rate")),
        back=lambda values: address("dead-letters", **_chosen(values)),
        fixed=(*FILTERS, *TIMES, "customer", *_CARRIED),
        fields=(ActionField(name="rate", label="rate a second", hint="all at once"),),
        nav="letters",
    ),
    Action(
        name="discard-letters",
        question=lambda _: "Discard all dead letters that match?",
        label=lambda outcome: _newest("Discard", outcome),
        deed=_discard,
        preview=_discard_preview,
        count=_discard_count,
        is_for_all=_is_for_all,
        command=lambda values: _command(values, "discard", reason=values.get("reason") or "…"),
        back=lambda values: address("dead-letters", **_chosen(values)),
        fixed=(*FILTERS, *TIMES, "customer", "before", "earlier"),
        fields=(REASON,),
        is_final=True,
        nav="letters",
    ),
)
