"""Inputs of claimed runs of incremental processors, read in one transaction for a whole claim.

Runs of other processors have no overhead. A run that was not read with its claim (its response was
lost, or the store was busy) is read when it begins; if that fails as well it processes everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.db.store import StoreView
from penstock.entities.changed import UNREAD, ChangedEntities
from penstock.entities.store import changed_of
from penstock.runs.rows import HeldRun
from penstock.worker.run_info import LoadedProcessor


class ClaimedInputs:
    """Inputs of claimed runs, by fencing token."""

    def __init__(self, store: StoreView, known: Mapping[int, LoadedProcessor]) -> None:
        self._store = store
        self._known = known
        self._found: dict[int, ChangedEntities] = {}

    def load(self, runs: Iterable[HeldRun]) -> None:
        """Read the inputs of incremental processors among claimed runs."""
        wanted = [run for run in runs if self._is_incremental(run)]
        if not wanted:
            return
        keys = {run.token: (run.flow_id or 0, int(run.processor_key)) for run in wanted}
        try:
            found = self._store.read(lambda tx: changed_of(tx, keys.values()))
        except (StoreBusy, StoreUnavailable):
            return
        self._found.update((token, found[key]) for token, key in keys.items())

    def take(self, run: HeldRun) -> ChangedEntities | None:
        """Return the input of a run; None if its processor is not incremental."""
        if not self._is_incremental(run):
            return None
        if run.token not in self._found:
            self.load([run])
        return self._found.pop(run.token, None) or ChangedEntities(reason=UNREAD)

    def forget(self, token: int) -> None:
        """Drop the input of a run that does not begin here."""
        self._found.pop(token, None)

    def _is_incremental(self, run: HeldRun) -> bool:
        known = self._known.get(run.processor_key)
        return known is not None and known.processor.terms.incremental is not None
