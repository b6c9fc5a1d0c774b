"""User code: consumers with their handlers and sinks, and slots of limits."""

# ruff: noqa: ARG001 - only the signatures matter

from concurrent.futures import Future
from typing import Any, assert_type

from penstock import limits
from penstock.consumer import (
    Batch,
    Consumer,
    ConsumerOptions,
    Disposition,
    Message,
    Outcome,
    Reject,
    TryAgain,
    signed_by,
)
from penstock.limits import QuotaRetry, Slot, SlotRequest
from penstock.limits.bigquery import DmlOptions, QueryClient, dml, run_dml, table_slot
from penstock.sinks import Document, Sink, SinkTx, Upsert, doc_path, open_sink

app = Consumer(
    "orders",
    sink="sqlite::memory:",
    dead_letters=True,
    verify=signed_by(audience="https://example.com", email="push@example.com"),
    options=ConsumerOptions(concurrency=4, drain="10s", payload="json"),
)
assert_type(app.sink, Sink)


@app.on("order", schema=1)
def order(message: Message) -> Upsert:
    """Return one write."""
    assert_type(message.id, str)
    assert_type(message.data, bytes)
    assert_type(message.attempt, int | None)
    assert_type(message.event_type, str | None)
    if message.attempt == 9:
        raise Reject("too often")
    return Upsert(path=doc_path("orders", message.json["id"]), fields={"a": 1}, add={"n": 1})


@app.on("several")
def several(message: Message) -> list[Upsert]:
    """Return several writes."""
    raise TryAgain("later", after="30s")


@app.on("payment")
def payment(message: Message, tx: SinkTx) -> None:
    """Write in the transaction."""
    assert_type(tx.execute("SELECT 1"), list[tuple[Any, ...]])
    assert_type(tx.get("a/b"), Document | None)


@app.on(when=lambda message: "service" in message.json)
async def service(message: Message) -> Upsert | None:
    """Handle asynchronously."""
    return None


@app.collect("row", max=30, wait="50ms")
def rows(batch: Batch) -> list[Upsert | Exception]:
    """Handle a batch."""
    for message in batch:
        assert_type(message, Message)
        with batch.item(message):
            pass
    return [Reject("no id")]


def handlers(message: Message) -> None:
    """Decorators keep signatures; results are typed."""
    assert_type(order(message), Upsert)
    assert_type(app.handle(message), Disposition)
    assert_type(app.handle(message).outcome, Outcome)
    assert_type(app.submit(message), Future[Disposition])
    assert_type(app.counters(), dict[str, int])
    assert_type(app.sink.transact(lambda tx: tx.get("a/b")), Document | None)
    assert_type(open_sink("sqlite:state.db"), Sink)


def wrong_handlers() -> None:
    """Type checkers reject what the consumer cannot call or understand."""

    @app.on("a")  # type: ignore[type-var]
    def not_a_message(text: str) -> None: ...

    @app.on("b")  # type: ignore[type-var]
    def not_a_write(message: Message) -> dict[str, str]:
        return {}

    @app.on("c")  # type: ignore[type-var]
    async def async_with_tx(message: Message, tx: SinkTx) -> None: ...

    @app.collect("d")  # type: ignore[type-var]
    def not_a_batch(message: Message) -> None: ...

    app.on("e", scheme=1)  # type: ignore[call-arg]
    ConsumerOptions(payload="text")  # type: ignore[arg-type]
    Upsert(fields={})  # type: ignore[call-arg]


def slot() -> None:
    """Hold a slot as a context manager."""
    request = limits.slot("crm", capacity=3, timeout="1m", lease=30, adaptive=True)
    assert_type(request, SlotRequest)
    with request as held:
        assert_type(held, Slot)
        assert_type(held.token, int)
        held.check()
    with limits.rate("maps", 50, burst=10):
        pass
    limits.declare("crm", capacity=5, lease="5m")
    limits.slot("crm", capacity="3")  # type: ignore[arg-type]
    limits.slot("crm", capcity=3)  # type: ignore[call-arg]
    limits.slot("crm", timeout=b"1m")  # type: ignore[arg-type]


async def async_slot() -> None:
    """Hold a slot in a coroutine."""
    async with limits.slot("crm") as held:
        assert_type(held, Slot)


@limits.slot("crm", capacity=3)
def call_crm(customer: str, *, full: bool = False) -> int:
    """Decorate a function."""
    return len(customer)


@limits.slot("crm")
async def call_crm_async(customer: str) -> int:
    """Decorate a coroutine function."""
    return len(customer)


@limits.retry(slot=limits.slot("crm"), policy=QuotaRetry())
def retried(customer: str) -> int:
    """Retry quota errors."""
    return len(customer)


async def decorated(client: QueryClient) -> None:
    """Decorated functions keep their signatures."""
    assert_type(call_crm("acme", full=True), int)
    assert_type(await call_crm_async("acme"), int)
    assert_type(retried("acme"), int)
    assert_type(await QuotaRetry().call_async(lambda _: call_crm_async("acme")), int)
    assert_type(QuotaRetry().call(lambda _: call_crm("acme")), int)
    call_crm(7)  # type: ignore[arg-type]
    call_crm("acme", ful=True)  # type: ignore[call-arg]
    assert_type(table_slot("sales.orders"), SlotRequest)
    assert_type(run_dml(lambda held: held.token, table="sales.orders"), int)
    dml(client, "DELETE FROM sales.orders WHERE TRUE", table="sales.orders", options=DmlOptions())
    table_slot("sales.orders", "select")  # type: ignore[arg-type]
