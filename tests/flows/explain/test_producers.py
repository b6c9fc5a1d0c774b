"""The producers of a table that a gate lacks: the one that delivered least is named first."""

from __future__ import annotations

from penstock.flows.explain.explain import explain
from penstock.flows.explain.facts import (
    EvidenceFact,
    FlowFact,
    GateFact,
    ProcessorFact,
    ProducerFact,
)
from tests.flows.explain.test_explain import NOW, ago, decision, flow, phase


def made(name: str, records: int | None, status: str | None = "success") -> ProcessorFact:
    """Return a processor that reported; None as status if it has not."""
    at = None if status is None else ago(9)
    return ProcessorFact(name=name, status=status, at=at, records=records)


def waiting(*producers: ProcessorFact, foreign: tuple[str, ...] = ()) -> FlowFact:
    """Return a flow whose second phase waits for the table that these processors produce."""
    evidence = EvidenceFact(table="collected", kind="same_day", status="MISSING", rows=6,
                            expected=8, issues=("6/8 rows (75 %)",))  # fmt: skip
    gate = GateFact(processor="", state="WAITING", since=ago(9), decision=decision(
        "WAIT", status="waiting", missing=("collected",), evidence=(evidence,)))  # fmt: skip
    by_pipeline = [*(("other", name) for name in foreign), *(("nba", p.name) for p in producers)]
    return flow(
        phase("collect", "COMPLETE", ended_at=ago(9), processors=producers),
        phase("report", "WAITING", after=("collect",), gate=gate),
        producers=tuple(
            ProducerFact(table="collected", pipeline=pipeline, phase="collect", processor=name)
            for pipeline, name in by_pipeline
        ),
    )


class TestProducers:
    """The producers of a table that a gate lacks."""

    def test_the_one_with_the_fewest_records_comes_first(self) -> None:
        given = waiting(made("basel", 2), made("lyon", 3), made("turin", 1), made("wien", 0))
        explanation = explain(given, NOW)
        assert list(explanation.phases[1].sentences[-4:]) == [
            "collected is produced by collect/wien, which completed with 0 records at 11:02.",
            "collected is produced by collect/turin, which completed with 1 record at 11:02.",
            "collected is produced by collect/basel, which completed with 2 records at 11:02.",
            "collected has 1 more producer.",
        ]
        first = explanation.offers[0]
        assert first.does == "run wien, which produces collected, again in a new generation"
        assert any("6/8 rows (75 %)" in one for one in explanation.phases[1].sentences)

    def test_order(self) -> None:
        """Failed, without records, not reported, few records, unknown; other pipelines last."""
        given = waiting(
            made("unknown", None),
            made("two", 2),
            made("silent", None, None),
            made("part", 1, "partial"),
            made("zero", 0),
            made("failed", None, "failed"),
            foreign=("foreign",),
        )
        assert [one.processor for one in given.producers_of("collected")] == [
            "failed", "zero", "silent", "part", "two", "unknown", "foreign",
        ]  # fmt: skip

    def test_all_are_named_if_they_fit(self) -> None:
        sentences = explain(waiting(made("a", 2), made("b", 1)), NOW).phases[1].sentences
        assert not [one for one in sentences if "more producer" in one]
