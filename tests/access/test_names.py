"""Names as a long-lived client sees them: other processes register, and it notices."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.access.store.names import FRESH_SECONDS, Names
from penstock.client import Client
from penstock.core.errors import InvalidInput
from penstock.db.store import Store, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.client.submission import Submission, check_many
from penstock.testing.clock import VirtualClock


def declared(processor: str) -> Pipeline:
    """The pipeline `moving`, with one processor of this name."""
    pipeline = Pipeline("moving")

    @pipeline.processor(processor)
    def work(run: Any) -> None:
        """Never called here."""

    return pipeline


class Counting:
    """A store that counts the reads it is asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reads = 0

    def read(self, body: Callable[[Tx], Any]) -> Any:
        """Count and pass on."""
        self.reads += 1
        return self.store.read(body)


def picked(names: Names) -> str:
    """The processor a submission to `moving` goes to."""
    (checked,) = check_many(names, [Submission(pipeline="moving")])
    return checked.row.name


def test_a_declaration_of_another_process_is_noticed(store: Store, clock: VirtualClock) -> None:
    """A warm client submits to the processors of the new declaration, not to retired ones."""
    names = Names(store, clock)
    other = Client(store)
    other.register([declared("old")])
    assert picked(names) == "old"
    other.register([declared("new")])
    clock.advance(seconds=FRESH_SECONDS)
    assert picked(names) == "new"
    with pytest.raises(InvalidInput):
        check_many(names, [Submission(pipeline="moving", processor="old")])


def test_a_transaction_looks_again_through_itself(store: Store, clock: VirtualClock) -> None:
    """Inside a transaction an old declaration is read again there: no other one is opened."""
    counting = Counting(store)
    names = Names(counting, clock)  # type: ignore[arg-type]
    Client(store).register([declared("old")])
    names.pipeline("moving")
    Client(store).register([declared("new")])
    clock.advance(seconds=FRESH_SECONDS)
    info = store.write(lambda tx: names.pipeline("moving", tx=tx))
    assert [row.name for row in info.entries] == ["new"]
    assert counting.reads == 1


def test_many_look_ups_cost_one_read(store: Store, clock: VirtualClock) -> None:
    """While it is fresh a declaration costs no read, and a bulk submit looks at it once."""
    counting = Counting(store)
    names = Names(counting, clock)  # type: ignore[arg-type]
    Client(store).register([declared("work")])
    many = [Submission(pipeline="moving", parameters={"n": i}) for i in range(500)]
    check_many(names, many)
    clock.advance(seconds=FRESH_SECONDS / 2)
    check_many(names, many)
    assert counting.reads == 1
    clock.advance(seconds=FRESH_SECONDS)
    check_many(names, many)
    assert counting.reads == 2
