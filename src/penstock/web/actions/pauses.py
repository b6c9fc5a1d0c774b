"""Actions that pause and resume; their previews count what a pause holds back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from penstock.client import UseCaseGroups
from penstock.core.clock import to_datetime
from penstock.web.actions.action import Action, DeedOutcome, Values, command_line
from penstock.web.actions.work import WHY
from penstock.web.parts import address
from penstock.web.words import plural

CONFIGS_PAGE: Final = 500
CONFIGS_MAX: Final = 2_000
"""Largest number of configs that is counted; there may be more."""
STARTS: Final = 3
RUNS_MAX: Final = 100
AHEAD: Final = timedelta(days=1)


def _preview_pause(client: UseCaseGroups, values: Values) -> DeedOutcome:
    done = client.pauses.pause(_scope(values), values.get("subject") or None, reason="preview")
    configs = _configs(client, values)
    return DeedOutcome(
        text="Nothing new starts; active runs continue. Occurrences during the pause are recorded."
        if done.is_changed
        else "It was paused before.",
        rows=[
            ("for", _whom(values)),
            ("until", "it is resumed"),
            *_runs(client, values),
            ("configs held", _many(configs, CONFIGS_MAX)),
            *_next_starts(client, values),
        ],
        count=configs,
        is_nothing=not done.is_changed,
    )


def _pause(client: UseCaseGroups, values: Values) -> DeedOutcome:
    scope = _scope(values)
    done = client.pauses.pause(scope, values.get("subject") or None, reason=values["reason"])
    return DeedOutcome(
        text="Nothing new starts; active runs continue. Occurrences during the pause are recorded."
        if done.is_changed
        else "It was paused before.",
        rows=[("for", _whom(values)), ("until", "it is resumed"), *_runs(client, values)],
        is_nothing=not done.is_changed,
        links=[(address("do", "resume", scope=scope, subject=values.get("subject")), "Resume…")],
    )


def _resume(client: UseCaseGroups, values: Values) -> DeedOutcome:
    subject = values.get("subject") or None
    held = _runs(client, values)
    done = client.pauses.resume(_scope(values), subject, reason=values["reason"])
    return DeedOutcome(
        text="Runs start again." if done.is_changed else "It was not paused.",
        rows=[("for", _whom(values)), *held, *_next_starts(client, values)],
        is_nothing=not done.is_changed,
    )


def _scope(values: Values) -> Any:
    return values.get("scope")


def _whom(values: Values) -> str:
    if values.get("scope") == "all":
        return "all customers"
    if values.get("scope") == "pipeline":
        return f"all customers of {values.get('subject')}"
    return " ".join(_scope_words(values))


def _of(values: Values) -> dict[str, Any]:
    """Return the filter of runs and configs that a pause concerns; empty for all."""
    scope, subject = values.get("scope"), values.get("subject")
    return {str(scope): subject} if scope in ("customer", "pipeline") and subject else {}


def _runs(client: UseCaseGroups, values: Values) -> list[tuple[str, str]]:
    """Return how many runs wait and how many continue."""
    if values.get("scope") == "config":
        config = values.get("subject")
        pending = client.runs.list(config_id=config, state="PENDING", limit=RUNS_MAX).items
        running = client.runs.list(config_id=config, state="RUNNING", limit=RUNS_MAX).items
        return [
            ("pending runs held", _many(len(pending), RUNS_MAX)),
            ("running runs that continue", _many(len(running), RUNS_MAX)),
        ]
    counts = client.runs.counts(**_of(values))
    pending_text = f"{counts.pending:,}{' or more' if counts.has_more_pending else ''}"
    return [
        ("pending runs held", pending_text),
        ("running runs that continue", f"{counts.running + counts.claimed:,}"),
    ]


def _configs(client: UseCaseGroups, values: Values) -> int:
    """Return the number of active configs, up to CONFIGS_MAX."""
    if values.get("scope") == "config":
        return 1
    found, cursor = 0, None
    while found < CONFIGS_MAX:
        page = client.configs.list(**_of(values), is_active=True, limit=CONFIGS_PAGE, cursor=cursor)
        found, cursor = found + len(page.items), page.next_cursor
        if cursor is None:
            break
    return found


def _next_starts(client: UseCaseGroups, values: Values) -> list[tuple[str, str]]:
    """Return the configs that would start next, within a day."""
    if values.get("scope") == "config":
        config = client.configs.get(values.get("subject", ""))
        at = config.next_run_time
        return [] if at is None else [("its next start", f"{at:%Y-%m-%d %H:%M} UTC")]
    until = to_datetime(client.now()) + AHEAD
    page = client.configs.list(**_of(values), is_active=True, due_before=until, limit=CONFIGS_PAGE)
    rows = [("starts within 24 h", _configs_text(len(page.items), page.next_cursor is not None))]
    for one in page.items[:STARTS]:
        at = one.next_run_time
        when = "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"
        rows.append(("next start", f"{when}, {one.pipeline} of {one.customer} ({one.config_id})"))
    return rows


def _configs_text(count: int, has_more: bool) -> str:
    return f"{count:,} configs or more" if has_more else plural(count, "config")


def _many(count: int, most: int) -> str:
    return f"{count:,} or more" if count >= most else f"{count:,}"


def _scope_words(values: Values) -> list[str]:
    return [part for part in (values.get("scope", ""), values.get("subject", "")) if part]


def _subject_page(values: Values) -> str:
    pages = {"customer": "customers", "config": "configs"}
    page, subject = pages.get(values.get("scope", "")), values.get("subject")
    return address(page, subject) if page and subject else "/"


PAUSE_ACTIONS: Final = (
    Action(
        name="pause",
        question=lambda values: f"Pause {' '.join(_scope_words(values))}?",
        label=lambda _: "Pause",
        deed=_pause,
        preview=_preview_pause,
        count=_configs,
        is_for_all=lambda values: values.get("scope") == "all",
        command=lambda values: command_line(
            "pause", *_scope_words(values), reason=values.get("reason")
        ),
        back=_subject_page,
        fixed=("scope", "subject"),
        fields=(WHY,),
    ),
    Action(
        name="resume",
        question=lambda values: f"Resume {' '.join(_scope_words(values))}?",
        label=lambda _: "Resume",
        deed=_resume,
        is_for_all=lambda values: values.get("scope") == "all",
        command=lambda values: command_line(
            "resume", *_scope_words(values), reason=values.get("reason")
        ),
        back=_subject_page,
        fixed=("scope", "subject"),
        fields=(WHY,),
    ),
)
