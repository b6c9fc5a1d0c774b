"""Assembly of HTTP processors: the dispatcher, and checks of their requests."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from penstock.access.secrets import Secrets
from penstock.assembly.push import build_bearer, build_egress
from penstock.assembly.settings import Settings, egress_rules, secrets_from_environment
from penstock.audit.telemetry import Events
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.stored_json import loads
from penstock.db.store import Transactions
from penstock.egress.http_client import HttpResponse, Request
from penstock.egress.policy import parse_target
from penstock.pipelines.declare.endpoint import HttpEndpoint
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.telemetry.declared import parse_telemetry
from penstock.worker.endpoints.claims import endpoint_list
from penstock.worker.endpoints.dispatcher import Dispatcher, DispatcherOptions
from penstock.worker.endpoints.exchange import Exchanger, FakeReply, fake_response

CHECKED_MAX: Final = 10_000


def build_dispatcher(
    store: Transactions,
    settings: Settings,
    events: Events,
    *,
    clock: Clock | None = None,
    reply: FakeReply | None = None,
    callback_url: str | None = None,
    is_inline: bool = False,
) -> Dispatcher:
    """Build the dispatcher of this process; with `is_inline` it sends in the calling thread.

    reply: a fake endpoint that replaces all others. callback_url: where endpoints report if the
    setting `public_url` is not set.
    """
    used = clock or SystemClock()
    send = build_egress(settings).send
    if reply is not None:
        send = partial(_fake_send, reply)
    exchanger = Exchanger(
        send,
        bearer=build_bearer(store, settings, used),
        secrets=Secrets(secrets_from_environment(os.environ), settings.secrets_dir or None),
        clock=used,
        signs=reply is None,
        trace_share=parse_telemetry(settings.telemetry).sample,
    )
    return Dispatcher(
        store,
        exchanger,
        clock=used,
        events=events,
        options=DispatcherOptions(
            threads=0 if is_inline else settings.http_threads,
            holder=f"dispatcher:{socket.gethostname()}:{os.getpid()}",
            callback_url=settings.public_url or callback_url or "",
        ),
    )


def _fake_send(reply: FakeReply, request: Request) -> HttpResponse:
    return fake_response(reply, request.body)


def check_endpoints(pipelines: Sequence[Pipeline], settings: Settings) -> None:
    """Raise DeclarationError for a URL that the settings do not allow requests to."""
    for pipeline in pipelines:
        for processor in pipeline.processors:
            endpoint = processor.terms.endpoint
            if endpoint is not None:
                try:
                    parse_target(endpoint.url, egress_rules(settings), "url")
                except InvalidInput as error:
                    raise DeclarationError(f"processor {processor.path}: {error.message}") from None


def endpoint_problems(store: Transactions, settings: Settings) -> list[str]:
    """List problems of HTTP processors, one sentence each: egress rules, callbacks, signatures."""
    rows = store.read(lambda tx: endpoint_list(tx, CHECKED_MAX))
    return [
        f"{row.path}: {problem}"
        for row in rows
        for problem in _problems(loads(HttpEndpoint, row.endpoint), settings)
    ]


def _problems(endpoint: HttpEndpoint, settings: Settings) -> Iterator[str]:
    try:
        parse_target(endpoint.url, egress_rules(settings), "url")
    except InvalidInput as error:
        yield error.message
    if not settings.public_url:
        needs = "its tokens and its callbacks" if endpoint.oidc_email else "its callbacks"
        yield f"{needs} require the setting public_url"
    if not endpoint.is_signed:
        yield "its requests are not signed: declare signing_secrets or oidc"
