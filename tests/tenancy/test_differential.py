"""Every declared route, with and without each parameter, asked about another customer.

A key of customer A names resources of customer B, in every combination of the parameters that name
one. The response must be that of a database in which B does not exist, must contain nothing of B
that was not in the request, and must leave B's rows as they are. Calls are generated from the
declared routes, so a new route or parameter is covered without a line here.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec
import pytest

from penstock.access.api_keys import Permission, Role
from penstock.assembly.routes import ROUTES as DECLARED
from penstock.server.routing.binding import record_of
from penstock.server.routing.declare import ApiRoute
from tests.conftest import BRIEF_ENGINES
from tests.kits.served import Serve
from tests.server.flow_scene import TODAY
from tests.server.kit import Reply
from tests.server.scene import CALLS, Scene
from tests.tenancy.test_api import A, B, Databases, known_ids, plain, rows_of

ALL_SUBSETS_MAX: Final = 3
"""Names up to which every combination is tried; beyond, all, none, each alone, all but each."""
NAMED: Final = re.compile(rf'customer_id"?[=:] ?"?{B}\b|/customers/{B}\b')
"""A request that names the other customer itself."""


@pytest.fixture(scope="module", params=BRIEF_ENGINES)
def databases(request: pytest.FixtureRequest, serve: Serve) -> Iterator[Databases]:
    """Return both databases on one engine."""
    with serve(request.param) as alone, serve(request.param) as beside:
        yield Databases(alone, beside)


def named_by(s: Scene) -> dict[str, Any]:
    """Return a resource of a customer for each parameter that can name one."""
    return {
        "customer_id": s.customer, "config_id": s.config, "run_id": s.runs["ended"],
        "flow_id": s.flows.flow, "correlation_id": s.flows.correlation, "partition": TODAY,
        "subscription": s.bus.subscription, "topic": s.bus.topic, "message_id": s.bus.message,
        "source_message_id": s.bus.message, "parent_run_id": s.runs["ended"],
        "dead_letter_id": s.runs["dead"], "intervention_id": s.flows.intervention,
        "override_id": s.flows.override, "subject": s.config, "worker_id": f"w-{s.customer}",
        "dead_letter_topic": s.bus.spare_topic, "event_topic": s.bus.topic, "id": s.runs["ended"],
        "q": s.runs["ended"][:9], "prefix": s.runs["ended"][:9], "text": s.customer,
    }  # fmt: skip


def names_of(route: ApiRoute) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return the parameters in the query and in the body: name to whether it is required."""
    binding = route.binding
    query = {one.wire: one.is_required for one in binding.at("query")}
    body = {one.wire: one.is_required for one in binding.at("field")}
    if binding.body is not None:
        for one in msgspec.structs.fields(record_of(binding.body.kind)):
            body[one.encode_name] = one.required
    return query, body


def subsets(names: list[str]) -> Iterator[frozenset[str]]:
    """Return combinations of names."""
    if len(names) <= ALL_SUBSETS_MAX:
        for size in range(len(names) + 1):
            yield from map(frozenset, itertools.combinations(names, size))
        return
    every = frozenset(names)
    yield from {frozenset(), every, *(frozenset({n}) for n in names), *(every - {n} for n in names)}


def calls_of(route: ApiRoute, theirs: Scene) -> Iterator[tuple[str, Any]]:
    """Return path and body of every combination of a route's parameters."""
    whole, given = CALLS[route.name](theirs)
    path, _, text = whole.partition("?")
    values = named_by(theirs)
    in_query, in_body = names_of(route)
    asked: dict[str, Any] = dict(parse_qsl(text))
    body: Mapping[str, Any] = given if isinstance(given, dict) else {}
    query_names = [n for n, needed in in_query.items() if not needed and n in {**values, **asked}]
    body_names = [n for n, needed in in_body.items() if not needed and n in {**values, **body}]
    names = [f"?{name}" for name in query_names] + body_names
    identifying = [n for n in names if n.lstrip("?") in values]
    for chosen in subsets(identifying):
        query = {n: v for n, v in asked.items() if f"?{n}" not in identifying}
        query |= {n: asked.get(n, values.get(n)) for n in query_names if f"?{n}" in chosen}
        sent = given
        if isinstance(given, dict) or (in_body and given is None):
            sent = {n: v for n, v in body.items() if n not in identifying}
            sent |= {n: body.get(n, values.get(n)) for n in body_names if n in chosen}
            sent = sent or given
        yield path + (f"?{urlencode(query)}" if query else ""), sent


def comparable(reply: Reply, known: str) -> tuple[int, bytes]:
    """Return a response without the ids of what the test itself has created."""
    status, body = plain(reply, known)
    return status, re.sub(rb'"(ack_id|message_id|messageId)":"[^"]*"', rb'"\1":""', body)


def difference(one: tuple[int, bytes], other: tuple[int, bytes]) -> tuple[str, str]:
    """Return what surrounds the first difference of two responses."""
    first, second = (f"{status} {body.decode()}" for status, body in (one, other))
    pairs = enumerate(itertools.zip_longest(first, second))
    same = next((at for at, pair in pairs if pair[0] != pair[1]), len(first))
    return first[max(0, same - 60) : same + 60], second[max(0, same - 60) : same + 60]


def test_every_route_is_covered() -> None:
    """Every declared route has a call, and those with identifying parameters have several."""
    assert {route.name for route in DECLARED.all} == set(CALLS)


@pytest.mark.parametrize("role", list(Role))
def test_another_customer_is_like_none(databases: Databases, role: Role) -> None:
    """As any role, each combination is answered as if the other customer did not exist."""
    theirs, known = databases.b, known_ids(databases.a)
    secret = {B, f"cause-of-{B}", f"w-{B}", *known_ids(databases.b).split()}
    secret -= set(known_ids(databases.a).split())
    foreign = {B, *known_ids(theirs).split(), *theirs.bus.ack_ids}
    before = rows_of(databases.beside, B)
    faults: list[tuple[Any, ...]] = []
    count = 0
    for route in DECLARED.all:
        if not role.has_permission(route.permission):
            continue  # refused before anything is read, which the access table tests
        for path, body in calls_of(route, theirs):
            sent = f"{route.method} {path} {json.dumps(body)}"
            is_read = route.permission in (Permission.READ, Permission.READ_RUNS)
            if not is_read and not any(one in sent for one in foreign):
                continue  # it changes A's own resources
            count += 1
            alone, beside = databases.ask(f"{A}-{role}", route.method, path, body)
            one, other = comparable(alone, known), comparable(beside, known)
            if one != other:
                faults.append((sent, *difference(one, other)))
            leaked = {one for one in secret if one not in sent and one.encode() in beside.body}
            is_refused = beside.status in (400, 403, 404) or b"not_found" in beside.body
            if leaked or beside.status >= 500 or (NAMED.search(sent) and not is_refused):
                faults.append((sent, beside.status, sorted(leaked)))
    assert not faults, "\n".join(map(str, faults))
    assert rows_of(databases.beside, B) == before
    assert count > 100 or role is Role.WORKER
