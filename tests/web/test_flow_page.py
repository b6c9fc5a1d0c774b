"""The first sentence of a flow's page: what holds the flow up."""

from __future__ import annotations

import pytest

from penstock.flows.explain.records import ExplainedPhase
from penstock.web.pages.flows.flow import standing


def phase(state: str, word: str, headline: str) -> ExplainedPhase:
    """Return a phase with this headline."""
    return ExplainedPhase(
        phase="manifest", state=state, word=word, count="", at=None, headline=headline,
        sentences=["The first sentence."], until=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (phase("FAILED", "failed", "22:02 without write_manifest"),
         "manifest failed at 22:02 without write_manifest. "),
        (phase("FAILED", "failed", "without write_manifest"),
         "manifest failed without write_manifest. "),
        (phase("WAITING", "waiting", "since 22:02 for raw.box, until 23:02"),
         "manifest has been waiting since 22:02 for raw.box, until 23:02. "),
        (phase("BLOCKED", "blocked", "since 22:02: its gate failed"),
         "manifest has been blocked since 22:02: its gate failed. "),
        (phase("IN_PROGRESS", "observed", "would have started at 22:02; nothing was started"),
         "manifest is observed: would have started at 22:02; nothing was started. "),
        (phase("BLOCKED", "blocked", ""), "manifest is blocked: The first sentence. "),
        (phase("COMPLETE", "complete", "22:02"), ""),
    ],
)  # fmt: skip
def test_a_phase_in_trouble(given: ExplainedPhase, text: str) -> None:
    assert standing([given]) == text


def test_the_worst_phase_is_named() -> None:
    waits = phase("WAITING", "waiting", "since 22:02")
    fails = phase("FAILED", "failed", "22:05 without a")
    assert standing([waits, fails]) == "manifest failed at 22:05 without a. "
