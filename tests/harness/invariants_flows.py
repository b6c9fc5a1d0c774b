"""Invariants of flows after every commit and at the end (I13 to I18), independent of the rules.

Reads the tables directly. `FlowChecks.check` checks what one commit added: triggers with their
runs, not too early, and completions that only improve. `finish` checks the whole history: as many
journal entries as triggers, nothing left open, every decision replays, every override is audited.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.core.stored_json import loads
from penstock.flows.gates.gate import decide
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.testing.simulate.snapshots import DirectReader
from penstock.testing.simulate.violation import Violation

RANKS = {"failed": 0, "partial": 1, "success": 2}
_ONCE = """SELECT flow_id, processor, item_key, count(*) FROM (
    SELECT flow_id, processor, item_key FROM runs WHERE parent_run_id IS NULL
    UNION ALL SELECT flow_id, processor, item_key FROM history WHERE parent_run_id IS NULL)
WHERE flow_id IS NOT NULL GROUP BY 1, 2, 3 HAVING count(*) > 1"""
_MADE = """SELECT count(*) FROM (
    SELECT flow_id, processor FROM runs
        WHERE flow_id = :flow AND parent_run_id IS NULL AND item_key = ''
    UNION ALL SELECT flow_id, processor FROM history
        WHERE flow_id = :flow AND parent_run_id IS NULL AND item_key = '') AS made
JOIN processors p ON p.processor = made.processor
WHERE p.phase = :phase AND (:processor = '' OR p.name = :processor)"""
_OFFENDERS = {
    "I13: runs of a flow created twice": _ONCE,
    "I17: triggers and journal differ": """
        SELECT w.flow_id FROM flows w
        WHERE (SELECT count(*) FROM triggers t WHERE t.flow_id = w.flow_id) <>
            (SELECT count(*) FROM journal j WHERE j.kind = 'flow' AND j.subject = w.flow_id
                AND j.action = 'triggered')""",
    "I17: a flow ended other than once": """
        SELECT w.flow_id FROM flows w WHERE w.ended_at IS NOT NULL AND (
            SELECT count(*) FROM journal j WHERE j.kind = 'flow' AND j.subject = w.flow_id
                AND j.action = 'ended') <> 1""",
    "I15: a complete flow has an unfinished phase": """
        SELECT w.flow_id, p.phase, p.state FROM flows w JOIN flow_phases p ON p.flow_id = w.flow_id
        WHERE w.state IN ('COMPLETE', 'DEGRADED') AND p.processor = ''
            AND p.state NOT IN ('COMPLETE', 'DEGRADED', 'SKIPPED')""",
    "I15: something of an ended flow is still awaited": """
        SELECT w.flow_id, p.phase FROM flows w JOIN flow_phases p ON p.flow_id = w.flow_id
        WHERE w.ended_at IS NOT NULL AND p.look_at IS NOT NULL""",
    "I40: a run that acts did so other than once, or without completing": """
        SELECT h.run_id, h.final_state FROM history h JOIN processors p ON p.processor = h.processor
            JOIN pipelines l ON l.pipeline = p.pipeline
        WHERE l.name = 'cascade' AND p.name = 'right' AND (
            SELECT count(*) FROM run_actions a WHERE a.run_id = h.run_id) <>
                CASE WHEN h.final_state = 'COMPLETED' THEN 1 ELSE 0 END""",
    "I40: runs and the actions that made them differ": """
        SELECT made.run_id FROM (
            SELECT run_id, parent_run_id FROM runs WHERE trigger_source = 'run'
            UNION ALL SELECT run_id, parent_run_id FROM history WHERE trigger_source = 'run'
            ) AS made
        WHERE (SELECT count(*) FROM run_actions a
            WHERE a.kind = 'submit' AND a.subject = made.run_id) <> 1""",
    "I40: an action whose run does not exist": """
        SELECT a.run_id, a.subject FROM run_actions a
        WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = a.subject)
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.run_id = a.subject)""",
    "I19: items and their runs differ": """
        SELECT e.flow_id, e.total, e.created FROM expansions e WHERE e.created <> (
            SELECT count(*) FROM (
                SELECT run_id FROM runs WHERE flow_id = e.flow_id AND processor = e.processor
                    AND parent_run_id IS NULL
                UNION ALL SELECT run_id FROM history WHERE flow_id = e.flow_id
                    AND processor = e.processor AND parent_run_id IS NULL) AS made)
            OR (e.state = 'SEALED' AND e.created <> e.total)""",
    "I19: counts and ended items differ": """
        SELECT e.flow_id, e.succeeded, e.partial, e.failed FROM expansions e
        WHERE e.succeeded + (SELECT coalesce(sum(n.succeeded), 0) FROM item_counts n
                WHERE n.flow_id = e.flow_id AND n.processor = e.processor) <>
                (SELECT count(*) FROM item_completions i WHERE i.flow_id = e.flow_id
                    AND i.processor = e.processor AND i.status = 'success')
            OR e.failed + (SELECT coalesce(sum(n.failed), 0) FROM item_counts n
                WHERE n.flow_id = e.flow_id AND n.processor = e.processor) <>
                (SELECT count(*) FROM item_completions i WHERE i.flow_id = e.flow_id
                    AND i.processor = e.processor AND i.status = 'failed')""",
    "I19: an item ended without a completion": """
        SELECT h.flow_id, h.item_key FROM history h WHERE h.item_key <> '' AND NOT h.was_retried
            AND NOT EXISTS (SELECT 1 FROM item_completions i WHERE i.flow_id = h.flow_id
                AND i.processor = h.processor AND i.item_key = h.item_key)""",
    "execution log: one row per ended run of a flow": """
        SELECT h.run_id FROM history h WHERE h.flow_id IS NOT NULL
            AND NOT (h.item_key <> '' AND h.final_state = 'COMPLETED')
            AND EXISTS (SELECT 1 FROM flows w WHERE w.flow_id = h.flow_id) AND (
            SELECT count(*) FROM execution_log e WHERE e.execution_id = h.run_id) <> 1""",
    "I18: an override without a person, a reason or an end": """
        SELECT override_id FROM overrides WHERE approved_by = '' OR reason = ''
            OR expires_at > approved_at + 604800000000""",
    "I18: overrides and audit differ": """
        SELECT 1 WHERE (SELECT count(*) FROM overrides) <>
            (SELECT count(*) FROM audit WHERE action = 'OVERRIDE_GRANTED')""",
    "generations of a key repeat": """
        SELECT w.flow_id FROM flows w JOIN generations g ON g.customer = w.customer
            AND g.pipeline = w.pipeline AND g.config_id = w.config_id
            AND g.partition = w.partition AND g.mode = w.mode
        WHERE w.generation > g.generation OR g.reruns > 3""",
}


class FlowChecks:
    """Follows the flows of one history."""

    def __init__(self, peek: DirectReader) -> None:
        self._peek = peek
        self._trigger = 0
        self._seen: dict[tuple[int, int], int] = {}
        self._definitions: dict[str, Any] = {}

    def check(self, now: int) -> None:
        """Check what a commit added."""
        self._completions()
        rows = self._peek.rows(
            "SELECT rowid, flow_id, phase, processor, source, runs FROM triggers WHERE rowid > ?"
            " ORDER BY rowid",
            self._trigger,
        )
        for rowid, flow_id, phase, processor, source, runs in rows:
            self._trigger = rowid
            place = {"flow": flow_id, "phase": phase, "processor": processor}
            ((made,),) = self._peek._connection.execute(_MADE, place).fetchall()
            if made != runs:
                raise Violation("I13", f"{place}: {runs} runs triggered, {made} created")
            if source == "orchestrator":
                self._not_early(now, flow_id, phase, processor)

    def unrest(self) -> list[Any]:
        """Return the remaining work."""
        left = self._peek.rows("SELECT 'flow', flow_id, state FROM flows WHERE ended_at IS NULL")
        left += self._peek.rows(
            "SELECT 'expansion', e.flow_id, e.state FROM expansions e JOIN flows w"
            " ON w.flow_id = e.flow_id WHERE e.due_at IS NOT NULL AND w.ended_at IS NULL"
        )
        return left + self._peek.rows("SELECT 'flow event', flow_id FROM nudges")

    def next_due(self) -> int | None:
        """Return when a gate, a straggler deadline or a flow deadline is due."""
        (row,) = self._peek.rows(
            "SELECT (SELECT min(look_at) FROM flow_phases), (SELECT min(deadline_at) FROM flows"
            " WHERE ended_at IS NULL), (SELECT min(e.due_at) FROM expansions e JOIN flows w"
            " ON w.flow_id = e.flow_id WHERE w.ended_at IS NULL)"
        )
        return min((at for at in row if at is not None), default=None)

    def finish(self) -> int:
        """Check the history as a whole; return the number of checks."""
        for name, sql in _OFFENDERS.items():
            found = self._peek.rows(sql)
            if found:
                raise Violation(name, f"{found[:3]}")
        for text, decided in self._peek.rows("SELECT input, decision FROM decisions LIMIT 40"):
            if decide(loads(GateInput, text)) != loads(Decision, decided):
                raise Violation("replay", f"another decision for {text[:200]}")
        return len(_OFFENDERS) + 1

    def _completions(self) -> None:
        """I16: completions are a set that only grows and whose members only improve."""
        now = {
            (flow, processor): RANKS[status]
            for flow, processor, status in self._peek.rows(
                "SELECT flow_id, processor, status FROM completions"
            )
        }
        for place, rank in self._seen.items():
            if now.get(place, 3) < rank:
                raise Violation("I16", f"the completion of {place} got worse")
        self._seen = now

    def _not_early(self, now: int, flow_id: int, phase: str, processor: str) -> None:
        """I14: all earlier processors completed, or the phase's context lists the missing ones."""
        ((digest, gate),) = self._peek.rows(
            "SELECT w.digest, p.gate FROM flows w JOIN flow_phases p ON p.flow_id = w.flow_id"
            " WHERE w.flow_id = ? AND p.phase = ? AND p.processor = ?",
            flow_id, phase, processor,
        )  # fmt: skip
        context = json.loads(gate) if gate else {}
        declared = {p["name"]: p for p in self._definition(digest)["phases"]}
        done = {
            (row[0], row[1])
            for row in self._peek.rows(
                "SELECT p.phase, p.name FROM completions s JOIN processors p"
                " ON p.processor = s.processor WHERE s.flow_id = ? AND s.status <> 'failed'",
                flow_id,
            )
        }
        skipped = {
            row[0]
            for row in self._peek.rows(
                "SELECT phase FROM flow_phases WHERE flow_id = ? AND state = 'SKIPPED'", flow_id
            )
        }
        for before in declared[phase]["after"]:
            for one in declared[before]["processors"]:
                known = (before, one["name"]) in done or before in skipped
                if not known and one["name"] not in context.get("missing", ()):
                    raise Violation(
                        "I14", f"{phase} of flow {flow_id} started at {now} before {one['name']}"
                    )

    def _definition(self, digest: str) -> Any:
        if digest not in self._definitions:
            ((text,),) = self._peek.rows(
                "SELECT definition FROM definitions WHERE digest = ?", digest
            )
            self._definitions[digest] = json.loads(text)
        return self._definitions[digest]
