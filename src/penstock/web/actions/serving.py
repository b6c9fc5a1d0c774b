"""Serving of actions: preview, confirmation, result.

The confirmation contains the session's form token, a token that binds it to the preview, and a
random key under which the action is executed at most once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from penstock.access.api_keys import Permission
from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput, NotFound, PenstockError, StoreError
from penstock.core.ids import new_correlation_id
from penstock.core.redact import redact_text
from penstock.server.idempotency import AlreadyExecuted, IdempotentStore, RequestKey
from penstock.server.overload.admission import RequestAdmission
from penstock.server.problems import Refused
from penstock.web.actions.action import Action, ActionField, DeedOutcome
from penstock.web.login.sessions import Visitor
from penstock.web.login.sign_in import is_same_origin, read_form
from penstock.web.parts import WebPage, address
from penstock.web.security import PREVIEW_SECONDS, is_form_token, preview_token, previewed
from penstock.web.site import Site
from penstock.web.visit import Visit

CHANGE_MAX: Final = 0.1
"""Share by which the number of items may change between preview and execution."""
FIELD_MAX: Final = 1_000_000
TYPED_ABOVE: Final = 1_000
"""Number of items above which the person types the number to confirm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownField:
    """A field of the form with its value."""

    name: str
    label: str
    hint: str
    value: str
    is_required: bool
    is_long: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """The data of an action's page."""

    action: str
    text: str
    command: str
    back: str
    label: str = ""
    rows: Sequence[tuple[str, str]] = ()
    links: Sequence[tuple[str, str]] = ()
    fields: Sequence[ShownField] = ()
    fixed: Mapping[str, str]
    token: str = ""
    once: str = ""
    problem: str = ""
    changed: str = ""
    is_done: bool = False
    is_refused: bool = False
    is_final: bool = False
    is_asked: bool = False
    """Whether a field must be filled in first, so that there is no preview yet."""
    typed: str = ""
    """Number or word that the person types to confirm; empty if none."""
    following: Mapping[str, str] = field(default_factory=dict)
    """Values of the form that continues the action; empty if nothing is left."""
    following_label: str = ""


class Actions:
    """The routes of the actions."""

    def __init__(self, site: Site, actions: Sequence[Action]) -> None:
        self._site = site
        self._actions = {action.name: action for action in actions}
        site.add("/do/{action}", self.serve, ["GET", "POST"])

    async def serve(self, request: Request) -> Response:
        """Show the preview of an action, or execute it."""
        visitor = await self._site.enter(request, "/do/{action}")
        if isinstance(visitor, Response):
            return visitor
        form = await read_form(request) if request.method == "POST" else {}
        work = partial(self._serve, request, visitor, form)
        action = self._actions.get(request.path_params["action"])
        if action is None or not action.is_slow or request.method == "GET":
            return await run_in_threadpool(work)
        admission: RequestAdmission = request.scope["penstock.admission"]
        admission.leave()
        return await admission.run_slowly(visitor.caller.key, work)

    def _serve(self, request: Request, visitor: Visitor, form: Mapping[str, str]) -> Response:
        visit = self._site.visit(request, visitor)
        action = self._actions.get(request.path_params["action"])
        if action is None:

            def absent(_: Visit) -> WebPage:
                raise NotFound("action", request.path_params["action"])

            return self._site.respond(request, visit, self._site.guarded(visit, absent))
        if request.method == "GET":
            return self._page(request, visit, action, self._preview(visit, visitor, action, {}))
        problem = self._refusal(request, visit, visitor, action, form)
        if problem is not None:
            raise Refused(403, problem)
        return self._page(request, visit, action, self._do(visit, visitor, action, form))

    def _refusal(
        self,
        request: Request,
        visit: Visit,
        visitor: Visitor,
        action: Action,
        form: Mapping[str, str],
    ) -> str | None:
        """Return why a confirmation is rejected before anything is changed; None if it is not."""
        secret = self._site.secret()
        if not is_same_origin(request):
            return "The form came from another site."
        if not is_form_token(secret, visitor.token, form.get("form_token", "")):
            return "The form is not from this session: open the page again."
        if not visit.caller.principal.role.has_permission(Permission.OPERATE):
            return f"A key of role {visit.caller.principal.role} may look but not act."
        fixed = _fixed(action, form)
        seen = previewed(secret, visitor.token, action.name, fixed, form.get("preview", ""))
        if seen is None:
            return "The confirmation does not belong to this preview: open it again."
        return None

    def _preview(
        self,
        visit: Visit,
        visitor: Visitor,
        action: Action,
        form: Mapping[str, str],
        changed: str = "",
    ) -> Deed:
        """Execute the action as a dry run and show its effect."""
        given = {**visit.query, **form}
        fixed = _fixed(action, given)
        dry = visit.client.dry_run()
        problem, outcome, is_asked = "", DeedOutcome(text=""), False
        values = {name: given.get(name, "") for name in (*action.fixed, *_names(action))}
        try:
            if not form:
                values = dict(action.filled(dry, values))
            stand_ins = {one.name: one.stand_in for one in action.fields if one.stand_in}
            show = action.preview or action.deed
            outcome = show(dry, {**values, **_empty(stand_ins, values)})
            is_asked = outcome.is_asked
        except PenstockError as error:
            missing = [one.label for one in action.fields if _is_missing(one, values)]
            if missing and not form:
                outcome = DeedOutcome(text=f"Enter {' and '.join(missing)}.")
                is_asked = True
            else:
                problem = redact_text(error.message)
                is_asked = action.is_form and isinstance(error, InvalidInput)
        until = int(visit.now.timestamp()) + PREVIEW_SECONDS
        secret = self._site.secret()
        token = preview_token(secret, visitor.token, action.name, fixed, outcome.count, until)
        # A form that only lacks a field can be filled in; anything else cannot be confirmed.
        is_fillable = any(one.is_required and not values[one.name] for one in action.fields)
        return Deed(
            action=address("do", action.name, **fixed),
            text=outcome.text,
            command="" if is_asked else action.command(values),
            back=action.back(values),
            label=action.label(outcome),
            rows=outcome.rows,
            fields=_shown(action, values),
            fixed=fixed,
            token=token,
            once=form.get("once") or new_correlation_id(),
            problem=problem,
            changed=changed,
            is_refused=outcome.is_nothing or bool(problem and not is_fillable),
            is_final=action.is_final,
            is_asked=is_asked,
            typed=_typed(visit, action, values, outcome.count),
        )

    def _do(self, visit: Visit, visitor: Visitor, action: Action, form: Mapping[str, str]) -> Deed:
        """Execute the action at most once; show the preview again if the data has changed."""
        secret, fixed = self._site.secret(), _fixed(action, form)
        seen = previewed(secret, visitor.token, action.name, fixed, form.get("preview", ""))
        assert seen is not None
        until, count = seen
        values = {name: form.get(name, "")[:FIELD_MAX] for name in (*fixed, *_names(action))}
        for name in action.fixed:
            values.setdefault(name, "")
        if until < visit.now.timestamp():
            again = "The preview is older than ten minutes; this is how it looks now."
            return self._preview(visit, visitor, action, {**values, "once": ""}, again)
        if count is not None:
            now = _count(visit, action, values)
            if abs(now - count) > CHANGE_MAX * max(count, 1):
                again = f"It was {count:,} when you looked and is {now:,} now."
                return self._preview(visit, visitor, action, values, again)
        wanted, typed = _typed(visit, action, values, count), form.get("typed", "")
        if _plain(typed) != _plain(wanted) and wanted:
            shown = self._preview(visit, visitor, action, {**values, "once": ""})
            return replace(shown, problem=_mistyped(wanted, typed))
        done = Deed(
            action=address("do", action.name, **fixed),
            text="This was done already, once.",
            command=action.command(values),
            back=action.back(values),
            fixed=fixed,
            is_done=True,
        )
        try:
            outcome = action.deed(_once(visit, action, values, form.get("once", "")), values)
        except AlreadyExecuted:
            return done
        except PenstockError as error:
            # A lost connection does not tell whether the action was committed: keep its key.
            once = form.get("once", "") if isinstance(error, StoreError) else ""
            shown = self._preview(visit, visitor, action, {**values, "once": once})
            return replace(shown, problem=redact_text(error.message))
        if outcome.is_asked:
            return self._preview(visit, visitor, action, {**values, "once": ""})
        done = replace(done, text=outcome.text, rows=outcome.rows, links=outcome.links)
        return self._continued(
            visit, visitor, action, done, {**values, **outcome.following}, outcome
        )

    def _continued(
        self,
        visit: Visit,
        visitor: Visitor,
        action: Action,
        done: Deed,
        values: Mapping[str, str],
        outcome: DeedOutcome,
    ) -> Deed:
        """Return the result with a form that continues; its preview was that of the whole."""
        if not outcome.following:
            return done
        until = int(visit.now.timestamp()) + PREVIEW_SECONDS
        fixed = _fixed(action, values)
        token = preview_token(self._site.secret(), visitor.token, action.name, fixed, None, until)
        return replace(
            done,
            action=address("do", action.name, **fixed),
            token=token,
            once=new_correlation_id(),
            following={name: value for name, value in values.items() if value},
            following_label=outcome.following_label,
        )

    def _page(self, request: Request, visit: Visit, action: Action, deed: Deed) -> Response:
        question = action.question({**visit.query, **deed.fixed})
        page = WebPage(
            title=question, nav=action.nav, heading=question, is_live=False,
        )  # fmt: skip
        return self._site.respond(request, visit, page, "deed.html", deed=deed)


def _once(visit: Visit, action: Action, values: Mapping[str, str], once: str) -> UseCaseGroups:
    """Return use cases whose first write also records that the action was executed."""
    if not once or len(once) > 64 or not once.isalnum():
        raise Refused(400, "The form is incomplete: open the page again.")
    caller = visit.caller
    body = repr((action.name, sorted(values.items()))).encode()
    mark = RequestKey(
        scope=caller.client.request_scope(caller.principal.request_scope),
        key=f"web:{once}",
        body=hashlib.sha256(body).digest(),
    )
    store = IdempotentStore(caller.client.store, mark, lambda _: {"status": "done"})
    return caller.client.with_store(store)


def _count(visit: Visit, action: Action, values: Mapping[str, str]) -> int:
    """Return the number of items that match now."""
    if action.count is not None:
        return action.count(visit.client, values)
    show = action.preview or action.deed
    return show(visit.client.dry_run(), values).count or 0


def _typed(visit: Visit, action: Action, values: Mapping[str, str], count: int | None) -> str:
    """Return what the person types to confirm: the number of items, `all`, or nothing."""
    is_all = not visit.is_bound and action.is_for_all(values)
    if count and (is_all or count > TYPED_ABOVE):
        return f"{count:,}"
    return "all" if is_all else ""


def _plain(typed: str) -> str:
    return typed.replace(",", "").replace(" ", "").casefold()


def _mistyped(wanted: str, typed: str) -> str:
    got = f"you typed {typed[:40]}" if typed.strip() else "you typed nothing"
    return f"Type {wanted} to confirm; {got}. Nothing was changed."


def _is_missing(one: ActionField, values: Mapping[str, str]) -> bool:
    return one.is_required and not one.stand_in and not values[one.name]


def _names(action: Action) -> list[str]:
    return [one.name for one in action.fields]


def _fixed(action: Action, given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name] for name in action.fixed if given.get(name)}


def _empty(stand_ins: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in stand_ins.items() if not values.get(name)}


def _shown(action: Action, values: Mapping[str, str]) -> list[ShownField]:
    return [
        ShownField(
            name=one.name,
            label=one.label,
            hint=one.hint,
            value=values.get(one.name, ""),
            is_required=one.is_required,
            is_long=one.is_long,
        )
        for one in action.fields
    ]
