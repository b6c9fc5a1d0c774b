"""Name lookup in a long-lived client while other processes register pipelines."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.access.store.names import CACHE_TTL_S, NameResolver
from penstock.client import Client
from penstock.core.errors import InvalidInput
from penstock.db.store import Store, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.client.submission import check_many
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock


def declared(processor: str) -> Pipeline:
    """Return the pipeline `moving` with one processor of this name."""
    pipeline = Pipeline("moving")

    @pipeline.processor(processor)
    def work(run: Any) -> None:
        """Do nothing: the tests never run it."""

    return pipeline


class CountingStore:
    """A store that counts its reads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reads = 0

    def read(self, body: Callable[[Tx], Any]) -> Any:
        """Count the read and forward it."""
        self.reads += 1
        return self.store.read(body)


def picked(names: NameResolver) -> str:
    """Return the processor that a submission to `moving` selects."""
    (checked,) = check_many(names, [Submission(pipeline="moving")])
    return checked.row.name


def test_declarations_of_other_processes_are_seen(store: Store, clock: VirtualClock) -> None:
    """A client with a cache submits to processors of the new declaration, not to retired ones."""
    names = NameResolver(store, clock)
    other = Client(store)
    other.register([declared("old")])
    assert picked(names) == "old"
    other.register([declared("new")])
    clock.advance(seconds=CACHE_TTL_S)
    assert picked(names) == "new"
    with pytest.raises(InvalidInput):
        check_many(names, [Submission(pipeline="moving", processor="old")])


def test_a_transaction_refreshes_through_itself(store: Store, clock: VirtualClock) -> None:
    """Inside a transaction, an expired declaration is read in it; no second one is opened."""
    counting = CountingStore(store)
    names = NameResolver(counting, clock)  # type: ignore[arg-type]
    Client(store).register([declared("old")])
    names.pipeline("moving")
    Client(store).register([declared("new")])
    clock.advance(seconds=CACHE_TTL_S)
    info = store.write(lambda tx: names.pipeline("moving", tx=tx))
    assert [row.name for row in info.entries] == ["new"]
    assert counting.reads == 1


def test_many_lookups_cost_one_read(store: Store, clock: VirtualClock) -> None:
    """A fresh declaration costs no read, and a bulk submit reads an expired one once."""
    counting = CountingStore(store)
    names = NameResolver(counting, clock)  # type: ignore[arg-type]
    Client(store).register([declared("work")])
    many = [Submission(pipeline="moving", parameters={"n": i}) for i in range(500)]
    check_many(names, many)
    clock.advance(seconds=CACHE_TTL_S / 2)
    check_many(names, many)
    assert counting.reads == 1
    clock.advance(seconds=CACHE_TTL_S)
    check_many(names, many)
    assert counting.reads == 2
