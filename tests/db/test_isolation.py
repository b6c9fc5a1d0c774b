"""Batches in one transaction: a bad item is alone in its failure, and the order is kept."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import StoreError
from penstock.db.isolation import write_isolated


class Transactions:
    """Transactions that remember what was committed."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.transactions = 0

    def write(self, body: Any) -> Any:
        """Commit what `body` adds to its list, or nothing if it fails."""
        self.transactions += 1
        written: list[int] = []
        value = body(written)
        self.committed += written
        return value


@given(items=st.lists(st.booleans(), max_size=30))
def test_every_good_item_is_committed_once_in_order(items: list[bool]) -> None:
    """Whatever fails, the others are committed in order, and each bad one is reported once."""
    store, bad = Transactions(), list[int]()

    def act(tx: Any, number: int) -> int:
        tx.append(number)
        if not items[number]:
            raise ValueError(number)
        return 1

    def on_bad(number: int, error: Exception) -> None:
        assert error.args == (number,)
        bad.append(number)

    done = write_isolated(store, range(len(items)), act, on_bad)  # type: ignore[arg-type]
    assert store.committed == [n for n, is_good in enumerate(items) if is_good]
    assert bad == [n for n, is_good in enumerate(items) if not is_good]
    assert done == len(store.committed)
    assert store.transactions <= 1 + 3 * len(bad)


def test_an_error_of_the_commit_is_no_items_fault() -> None:
    """If only the commit fails, smaller transactions are tried."""

    class Small(Transactions):
        def write(self, body: Any) -> Any:
            before = len(self.committed)
            value = super().write(body)
            if len(self.committed) > before + 1:
                del self.committed[before:]
                raise StoreError("too much")
            return value

    def act(tx: Any, number: int) -> int:
        tx.append(number)
        return 1

    store, bad = Small(), list[int]()
    assert write_isolated(store, [1, 2, 3], act, lambda n, _: bad.append(n)) == 3  # type: ignore[arg-type]
    assert (store.committed, bad) == ([1, 2, 3], [])
