"""Other transactions can interleave even with statements that are sent together."""

import pytest

from penstock.db.store import Store, Tx
from tests.harness.interleaving import Outcome, exhaust
from tests.interleaving.stage import Stage

pytestmark = pytest.mark.postgres


def test_every_statement_is_seen(stage: Stage) -> None:
    """Two queued statements and one that is waited for are three separate steps."""
    counts: set[tuple[int, int]] = set()

    def put(store: Store) -> None:
        def body(tx: Tx) -> None:
            note = {"topic": "t", "ordering_key": None, "payload": "x"}
            tx.later("outbox_put", note)
            tx.later("outbox_put", note)

        store.write(body)

    def count(store: Store) -> tuple[int, int]:
        def body(tx: Tx) -> tuple[int, int]:
            first, second = tx.later("outbox_count"), tx.later("outbox_count")
            return first.rows()[0][0], second.rows()[0][0]

        return store.write(body)

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()

        def check(outcomes: list[Outcome]) -> None:
            counts.add(outcomes[1].value)

        return [put, count], check

    assert exhaust(stage.arena, scene, 100) == 20  # three steps each: six over three
    assert counts == {(0, 0), (0, 2), (2, 2)}
    assert sorted(stage.arena.trace).count("A: outbox_put") == 2
