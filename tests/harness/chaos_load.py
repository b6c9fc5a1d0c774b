"""The load beside which `chaos` injects faults: a pipeline, a submitter, the account at the end.

The submitter keeps a backlog, so that workers are always busy. Each batch of runs is one
transaction and has its own correlation id. The submitter writes to its history which batch it is
about to submit, then whether it was accepted; a batch without a response may exist or not. The
account compares that history with the database: every run of an accepted batch completed, once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from penstock import Pipeline, RunContext, Submission, connect
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.core.errors import PenstockError
from tests.kits.dump import raw

PIPELINE: Final = "chaos"
ASKED, ACCEPTED, UNKNOWN = "ask", "ok", "unknown"
REST_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.5
"""How long the submitter waits after an error."""

ENDED: Final = "SELECT coalesce(sum(runs), 0) FROM run_sums"
OPEN: Final = "SELECT count(*) FROM runs"
BATCHES: Final = (
    "SELECT correlation_id, count(*), sum(CASE WHEN completed = 1 THEN 1 ELSE 0 END), "
    "sum(CASE WHEN completed > 1 OR ends > runs THEN 1 ELSE 0 END), sum(ends - 1) FROM ("
    "SELECT correlation_id, coalesce(root_run_id, run_id) AS root, count(*) AS ends, "
    "count(DISTINCT run_id) AS runs, "
    "sum(CASE WHEN final_state = 'COMPLETED' THEN 1 ELSE 0 END) AS completed "
    "FROM history GROUP BY correlation_id, coalesce(root_run_id, run_id)) AS roots "
    "GROUP BY correlation_id"
)
"""Of each batch: submitted runs, those that completed once, those that ended twice, retries."""

chaos = Pipeline(PIPELINE)


@chaos.processor(retry={"max_attempts": 10, "base_delay_minutes": 0.02})
def nothing(_: RunContext) -> None:
    """Return immediately; a run whose worker was killed is repeated a second later."""


class Submitter:
    """Submits batches until asked to stop, and records what it knows of each."""

    def __init__(self, client: Client, history: Path, batch: int, backlog: int) -> None:
        self._client = client
        self._batch, self._backlog = batch, backlog
        self._written = os.open(history, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self.stopping = threading.Event()

    def run(self) -> None:
        """Submit for as long as the backlog is short."""
        clock = SystemClock()
        number = submitted = 0
        while not self.stopping.is_set():
            try:
                if submitted - self._ended() > self._backlog:
                    clock.sleep(REST_SECONDS)
                    continue
                number += 1
                self._record(ASKED, number)
                self._client.runs.submit_many(
                    [Submission(pipeline=PIPELINE, correlation_id=f"b{number}")] * self._batch
                )
            except PenstockError as error:
                self._record(UNKNOWN, number, f"{type(error).__name__}")
                clock.sleep(PAUSE_SECONDS)
            else:
                self._record(ACCEPTED, number)
                submitted += self._batch

    def _ended(self) -> int:
        return int(raw(self._client.store, ENDED)[0][0])

    def _record(self, word: str, number: int, more: str = "") -> None:
        os.write(self._written, f"{word} {number} {more}\n".encode())


def account(
    history: str, found: Iterable[tuple[str, int, int, int, int]], batch: int
) -> dict[str, Any]:
    """Compare a submitter's history with the rows of `BATCHES`.

    `lost` counts submitted runs of accepted batches that did not complete, `doubled` those that
    completed or ended twice, `partial` batches of which a part exists, `unasked` those that were
    never submitted; `retried` attempts were ended by a kill or a lost connection.
    """
    asked: set[str] = set()
    accepted: set[str] = set()
    errors: Counter[str] = Counter()
    for line in history.splitlines():
        word, _, rest = line.partition(" ")
        number, _, more = rest.partition(" ")
        if word == ASKED:
            asked.add(f"b{number}")
        elif word == ACCEPTED:
            accepted.add(f"b{number}")
        elif word == UNKNOWN:
            errors[more.strip()] += 1
    rows = {name: [int(n) for n in numbers] for name, *numbers in found}
    return {
        "accepted": len(accepted) * batch,
        "lost": sum(batch - min(batch, rows.get(name, [0, 0])[1]) for name in accepted),
        "doubled": sum(twice + max(0, runs - batch) for runs, _, twice, _ in rows.values()),
        "partial": sum(runs < batch for runs, *_ in rows.values()),
        "unasked": len(rows.keys() - asked),
        "retried": sum(retries for *_, retries in rows.values()),
        "unanswered_batches": len(asked - accepted),
        "errors": dict(errors),
    }


def main(arguments: list[str]) -> None:
    """Run a submitter until SIGTERM."""
    given = json.loads(arguments[0])
    with connect(given["url"]) as client:
        client.register([chaos])
        submitter = Submitter(client, Path(given["history"]), given["batch"], given["backlog"])
        signal.signal(signal.SIGTERM, lambda *_: submitter.stopping.set())
        submitter.run()


if __name__ == "__main__":
    main(sys.argv[1:])
