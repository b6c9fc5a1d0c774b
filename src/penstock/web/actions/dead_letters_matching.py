"""Actions on all dead letters that match a filter, in bounded steps that a button continues."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput
from penstock.dead_letters.records import RefusedReplay, ReplayRequest, ReplayStep
from penstock.web.actions.action import Action, ActionField, DeedOutcome, Values, command_line
from penstock.web.pages.dead_letters import FILTERS, where
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


def _chosen(values: Values) -> dict[str, Any]:
    return {name: values[name] for name in (*FILTERS, "customer") if values.get(name)}


def _request(values: Values, **changed: Any) -> ReplayRequest:
    start_at = values.get("start_at")
    given = {
        "rate": _rate(values.get("rate", "")),
        "before": values.get("before") or None,
        "start_at": datetime.fromisoformat(start_at) if start_at else None,
        "limit": STEP,
    }
    return ReplayRequest(**{**_chosen(values), **given, **changed})


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
    rows = [
        ("replayed", f"{replayed:,}" if total == replayed else f"{replayed:,}, {total:,} so far")
    ]
    rows += _refusals(refused)
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


def _many(count: int) -> str:
    return f"{count:,} or more" if count >= COUNT_MAX else f"{count:,}"


def _origins(client: UseCaseGroups, values: Values) -> list[tuple[str, str]]:
    """Return how many dead letters each subscription or processor has, among the newest."""
    found: Counter[str] = Counter()
    for group in client.dead_letters.groups(check=False, limit=GROUPS, **_chosen(values)):
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


def _command(values: Values) -> str:
    chosen = _chosen(values)
    renamed = {"error_type": "error", "correlation_id": "correlation"}
    options = {renamed.get(name, name): value for name, value in chosen.items()}
    words = ["dlq", "replay"] if options else ["dlq", "replay", "--all"]
    return command_line(*words, **options, rate=values.get("rate"))


MATCHING_ACTIONS: Final = (
    Action(
        name="replay-letters",
        question=lambda _: "Replay all dead letters that match?",
        label=lambda outcome: (
            f"Replay the newest {outcome.acted:,}"
            if (outcome.count or 0) > STEP * STEPS
            else f"Replay {outcome.acted:,}"
        ),
        deed=_replay,
        preview=_preview,
        count=_count,
        is_for_all=lambda values: not _chosen(values) and not values.get("before"),
        command=_command,
        back=lambda values: address("dead-letters", **_chosen(values)),
        fixed=(*FILTERS, "customer", *_CARRIED),
        fields=(ActionField(name="rate", label="rate a second", hint="all at once"),),
        nav="letters",
    ),
)
