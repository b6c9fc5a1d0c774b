"""The judge of the bus's crash test sees what is lost, doubled, invented or miscounted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.sinks.api import Fate, SinkTx, Upsert
from penstock.sinks.opening import open_sink
from penstock.testing.crash_bus import PUBLISHERS, Place, Wrong, history_of, judge
from penstock.testing.crash_bus_roles import KEYS, SUBSCRIPTION, history_read

N = 240


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A play that went well: everything accepted was applied once."""
    place = Place("sqlite", tmp_path, f"sqlite:{tmp_path}/bus.db", f"sqlite:{tmp_path}/sink.db")
    for number in range(PUBLISHERS):
        mine = range(number, N, PUBLISHERS)
        asked, accepted = (
            " ".join(words) for words in (map(str, mine), (f"{n}={n}" for n in mine))
        )
        history_of(place, number).write_text(f"ask {asked} .\n\nok {accepted} .\nask 9999 .\nok 99")
    sink = open_sink(place.sink_url)

    def body(tx: SinkTx) -> None:
        tx.execute("CREATE TABLE effects (n bigint NOT NULL, message_id text NOT NULL)")
        for n in range(N):
            apply(tx, n)

    sink.transact(body)
    sink.close()
    return place


def apply(tx: SinkTx, n: int) -> None:
    tx.execute("INSERT INTO effects (n, message_id) VALUES (:n, :id)", {"n": n, "id": str(n)})
    tx.mark(SUBSCRIPTION, str(n), Fate.APPLIED)
    tx.upsert(Upsert(path=f"keys/{n % KEYS}", add={"count": 1}))
    tx.count(SUBSCRIPTION, str(n), "applied")


def change(place: Place, body: Callable[[SinkTx], object]) -> None:
    sink = open_sink(place.sink_url)
    sink.transact(body)
    sink.close()


def test_ids_are_never_given_twice(place: Place) -> None:
    """Two numbers under one message id: one of them would be taken for a duplicate."""
    history = history_of(place, 0)
    history.write_text(history.read_text().replace("2=2 ", "2=4 "))
    with pytest.raises(Wrong, match='"ids_twice": 1'):
        judge(place)


def test_all_is_well(place: Place) -> None:
    """Lines that a kill cut short say nothing; what has no answer may be there or not."""
    told = judge(place)
    assert (told["accepted"], told["applied"], told["asked"]) == (N, N, N + 1)
    change(place, lambda tx: apply(tx, 9999))
    assert judge(place)["applied"] == N + 1
    assert history_read(history_of(place, 0))[1].keys() == set(range(0, N, PUBLISHERS))


@pytest.mark.parametrize(
    ("statement", "sign"),
    [
        ("DELETE FROM effects WHERE n = 3", '"lost": 1'),
        ("INSERT INTO effects VALUES (3, 'x')", '"doubled": 1'),
        ("INSERT INTO effects VALUES (12345, 'x')", '"unasked": 1'),
        ("UPDATE penstock_counters SET value = value + 1", '"counted"'),
        ("UPDATE penstock_documents SET fields = '{\"count\": 1}' WHERE path = 'keys/1'", "summed"),
    ],
)
def test_what_is_wrong_is_seen(place: Place, statement: str, sign: str) -> None:
    """Each kind of fault, alone, is enough."""
    change(place, lambda tx: tx.execute(statement))
    with pytest.raises(Wrong, match=sign):
        judge(place)
