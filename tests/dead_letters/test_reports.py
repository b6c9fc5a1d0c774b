"""Reports of unknown processors: replayed once the processor is registered."""

from __future__ import annotations

import pytest

from penstock.core.errors import Conflict
from penstock.dead_letters.records import ReplayRequest
from penstock.flows.records import CompletionReport
from penstock.pipelines.declare.pipeline import Pipeline
from tests.kits.client_harness import Harness


def shop(*processors: str) -> Pipeline:
    """Return a pipeline with external processors."""
    made = Pipeline("shop", partition="day")
    raw = made.phase("raw")
    for name in processors:
        raw.external(name)
    return made


def test_a_report_is_replayed_after_registration(harness: Harness) -> None:
    """Refused with the fix before, recorded after; the dead letter is closed with the flow."""
    harness.client.register([shop("orders", "prices")])
    report = CompletionReport(
        pipeline="shop", processor="stock", partition="2025-11-17", execution_id="e1", records=7,
        entities={"shops": [1]}, customer="acme",
    )  # fmt: skip
    receipt = harness.client.flows.complete(report)
    assert receipt.outcome == "dead"
    assert receipt.dead_letter_id is not None
    with pytest.raises(Conflict, match="has no processor stock: register it"):
        harness.client.dead_letters.replay(receipt.dead_letter_id)
    dry = harness.client.dead_letters.replay_matching(ReplayRequest(is_dry_run=True))
    assert (len(dry.replayed), len(dry.refused)) == (0, 1)
    harness.client.register([shop("orders", "prices", "stock")])
    harness.clock.advance(seconds=5)
    done = harness.client.dead_letters.replay(receipt.dead_letter_id)
    (flow,) = harness.client.flows.list().items
    assert (done.replayed_as, flow.customer) == (flow.flow_id, "acme")
    (completion,) = harness.client.flows.get(flow.flow_id).completions
    assert (completion.processor, completion.execution_id, completion.records) == (
        "stock", "e1", 7,
    )  # fmt: skip
    assert harness.client.dead_letters.list().items == []
