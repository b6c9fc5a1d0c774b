"""The bus crash test detects lost, duplicated, invented and miscounted messages."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.sinks.opening import open_sink
from penstock.sinks.protocol import Fate, SinkTx, Upsert
from tests.harness.crash_bus import (
    DATABASES,
    PUBLISHERS,
    CrashTestDatabases,
    Wrong,
    history_of,
    judge,
)
from tests.harness.crash_bus_roles import KEYS, PUSHED, PUSHED_EVERY, SUBSCRIPTION, history_read

N = 240
Leg = tuple[str, str]
PULLED: Leg = ("sink_url", SUBSCRIPTION)
PUSHES: Leg = ("push_sink_url", PUSHED)
"""(Field of Place with the sink's URL, subscription)."""


@pytest.fixture
def place(tmp_path: Path) -> CrashTestDatabases:
    """Build a successful crash run: every accepted message was applied once."""
    bus, sink, pushed = (f"sqlite:{tmp_path}/{one}.db" for one in DATABASES)
    place = CrashTestDatabases("sqlite", tmp_path, bus, sink, pushed)
    for number in range(PUBLISHERS):
        mine = range(number, N, PUBLISHERS)
        asked, accepted = (
            " ".join(words) for words in (map(str, mine), (f"{n}={n}" for n in mine))
        )
        history_of(place, number).write_text(f"ask {asked} .\n\nok {accepted} .\nask 9999 .\nok 99")
    for leg, every in ((PULLED, 1), (PUSHES, PUSHED_EVERY)):
        change_of(
            place, leg,
            "CREATE TABLE effects (n bigint NOT NULL, message_id text NOT NULL)",
            numbers=range(0, N, every),
        )  # fmt: skip
    return place


def apply(tx: SinkTx, subscription: str, n: int) -> None:
    tx.execute("INSERT INTO effects (n, message_id) VALUES (:n, :id)", {"n": n, "id": str(n)})
    tx.mark(subscription, str(n), Fate.APPLIED)
    tx.upsert(Upsert(path=f"keys/{n % KEYS}", add={"count": 1}))
    tx.count(subscription, str(n), "applied")


def change_of(
    place: CrashTestDatabases, leg: Leg, statement: str = "", numbers: Iterable[int] = ()
) -> None:
    """Run a statement in a leg's sink, and apply numbers there."""
    url, subscription = leg

    def body(tx: SinkTx) -> None:
        if statement:
            tx.execute(statement)
        for n in numbers:
            apply(tx, subscription, n)

    sink = open_sink(getattr(place, url))
    sink.transact(body)
    sink.close()


def test_duplicate_message_ids_are_detected(place: CrashTestDatabases) -> None:
    """Two numbers with one message id are detected: one would count as a duplicate."""
    history = history_of(place, 0)
    history.write_text(history.read_text().replace("2=2 ", "2=4 "))
    with pytest.raises(Wrong, match='"ids_twice": 1'):
        judge(place)


def test_successful_run(place: CrashTestDatabases) -> None:
    """Truncated history lines are ignored; unconfirmed messages may or may not be present."""
    report = judge(place)
    assert (report["accepted"], report["asked"]) == (N, N + 1)
    assert (report["pulled"]["applied"], report["pushed"]["applied"]) == (N, N // PUSHED_EVERY)
    change_of(place, PULLED, numbers=[9999])
    assert judge(place)["pulled"]["applied"] == N + 1
    assert history_read(history_of(place, 0))[1].keys() == set(range(0, N, PUBLISHERS))


@pytest.mark.parametrize("leg", [PULLED, PUSHES], ids=["pulled", "pushed"])
@pytest.mark.parametrize(
    ("statement", "sign"),
    [
        ("DELETE FROM effects WHERE n = 4", '"lost": 1'),
        ("INSERT INTO effects VALUES (4, 'x')", '"doubled": 1'),
        ("INSERT INTO effects VALUES (12345, 'x')", '"unasked": 1'),
        ("UPDATE penstock_counters SET value = value + 1", '"counted"'),
        ("UPDATE penstock_documents SET fields = '{\"count\": 1}' WHERE path = 'keys/4'", "summed"),
    ],
)
def test_faults_are_detected(
    place: CrashTestDatabases, leg: Leg, statement: str, sign: str
) -> None:
    """Each kind of fault is detected on its own, in either sink."""
    change_of(place, leg, statement)
    with pytest.raises(Wrong, match=sign):
        judge(place)
