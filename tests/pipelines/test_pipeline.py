"""Declarations of pipelines, and the errors for invalid ones."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.core.errors import DeclarationError
from penstock.pipelines.declare.pipeline import Pipeline


def work(run: Any) -> None:
    """A processor."""


def nba() -> Pipeline:
    pipeline = Pipeline("nba", timezone="America/New_York", rate_second=0.5)
    raw = pipeline.phase("raw")
    analytics = pipeline.phase("analytics", after=raw)
    publish = pipeline.phase("publish", after=[raw, "analytics"])

    @raw.processor
    def boxscores(run: Any) -> None: ...

    @analytics.processor("summary", pool="heavy", timeout="20m", retry={"max_attempts": 5})
    async def summarise(run: Any) -> None: ...

    publish.external("push", timeout=90)
    return pipeline


class TestDeclaration:
    """Valid declarations."""

    def test_the_decorator_returns_the_function(self) -> None:
        pipeline = Pipeline("p")
        assert pipeline.processor(work) is work
        assert pipeline.processor("again")(work) is work
        assert [p.body for p in pipeline.processors] == [work, work]

    def test_a_pipeline_without_phases_has_a_main_phase(self) -> None:
        pipeline = Pipeline("p")
        pipeline.processor(work)
        assert [(p.phase, p.name, p.runs, p.pool) for p in pipeline.processors] == [
            ("main", "work", "thread", "default")
        ]
        assert not pipeline.has_flow

    def test_phases_processors_and_executors(self) -> None:
        pipeline = nba()
        pipeline.check()
        found = {p.path: (p.runs, p.pool, p.timeout_us) for p in pipeline.processors}
        assert found == {
            "nba/raw/boxscores": ("thread", "default", None),
            "nba/analytics/summary": ("async", "heavy", 1_200_000_000),
            "nba/publish/push": ("external", "external", 90_000_000),
        }
        assert [p.name for p in pipeline.entry_processors()] == ["boxscores"]
        assert pipeline.has_flow
        assert pipeline.phases[2].after == ("raw", "analytics")

    def test_digests_are_equal_for_equal_declarations_only(self) -> None:
        assert nba().digest == nba().digest
        changed = nba()
        changed.phases[0].processor("more")(work)
        assert changed.digest != nba().digest
        assert json.loads(json.dumps(nba().definition())) == nba().definition()


class TestMistakes:
    """Invalid declarations."""

    @pytest.mark.parametrize("name", ["", "Nba", "1st", "a b", "é", "a" * 64, None, "a\n"])
    def test_bad_names(self, name: Any) -> None:
        with pytest.raises(DeclarationError, match="is not a valid pipeline name"):
            Pipeline(name)
        with pytest.raises(DeclarationError, match="is not a valid phase name"):
            Pipeline("p").phase(name)
        with pytest.raises(DeclarationError, match="is not a valid processor name"):
            Pipeline("p").phase("x").external(name)

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda: Pipeline("p", timezone="Mars/Base"), "timezone"),
            (lambda: Pipeline("p", rate_gb=-1), "rate_gb must be 0 or more"),
            (lambda: Pipeline("p", parameters={"type": "nope"}), "'nope' is not a type"),
            (lambda: Pipeline("p").check(), "has no phases"),
        ],
    )
    def test_the_pipeline_itself(self, make: Callable[[], Any], text: str) -> None:
        with pytest.raises(DeclarationError, match=text):
            make()

    def test_the_same_phase_or_processor_twice(self) -> None:
        pipeline = Pipeline("p")
        phase = pipeline.phase("a")
        phase.processor(work)
        with pytest.raises(DeclarationError, match="phase p/a is declared twice"):
            pipeline.phase("a")
        with pytest.raises(DeclarationError, match="processor p/a/work is declared twice"):
            phase.processor(work)

    def test_after_is_not_a_phase_of_the_pipeline(self) -> None:
        pipeline, other = Pipeline("p"), Pipeline("other")
        with pytest.raises(DeclarationError, match="of another pipeline"):
            pipeline.phase("a", after=other.phase("b"))
        with pytest.raises(DeclarationError, match="takes phases or their names"):
            pipeline.phase("a", after=[3])  # type: ignore[list-item]
        pipeline.phase("a", after="nowhere").processor(work)
        with pytest.raises(DeclarationError, match="after names 'nowhere'"):
            pipeline.check()

    def test_phases_that_wait_for_each_other(self) -> None:
        pipeline = Pipeline("p")
        for name, after in (("a", "c"), ("b", "a"), ("c", "b")):
            pipeline.phase(name, after=after).processor(work)
        with pytest.raises(DeclarationError, match=r"wait for each other: .*→"):
            pipeline.check()

    def test_a_phase_without_processors(self) -> None:
        pipeline = Pipeline("p")
        pipeline.phase("a").processor(work)
        pipeline.phase("b", after="a")
        with pytest.raises(DeclarationError, match="phase p/b has no processors"):
            pipeline.check()

    def test_the_shorthand_with_explicit_phases(self) -> None:
        pipeline = Pipeline("p")
        pipeline.phase("a")
        with pytest.raises(DeclarationError, match=r"@phase\.processor"):
            pipeline.processor(work)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"timeout": "-5m"}, "timeout"),
            ({"timeout": -5}, "timeout"),
            ({"timeout": 0}, "longer than zero"),
            ({"retry": {"max_attempt": 1}}, "max_attempt"),
            ({"retry": {"max_attempts": 0}}, "max_attempts"),
            ({"pool": "Big Pool"}, "is not a valid pool name"),
            ({"runs": "gpu"}, "runs='gpu' is not known"),
            ({"runs": "external"}, "has no body"),
            ({"runs": "async"}, "needs an `async def`"),
        ],
    )
    def test_options_of_a_processor(self, options: dict[str, Any], text: str) -> None:
        with pytest.raises(DeclarationError, match=text):
            Pipeline("p").processor(**options)(work)

    def test_functions_that_cannot_be_processors(self) -> None:
        async def later(run: Any) -> None: ...

        def many(run: Any) -> Iterator[int]:
            yield run

        def nothing() -> None: ...

        def two(run: Any, other: Any) -> None: ...

        with pytest.raises(DeclarationError, match="cannot run as 'process'"):
            Pipeline("p").processor(runs="process")(later)
        with pytest.raises(DeclarationError, match="is a generator"):
            Pipeline("p").processor(many)
        for body in (nothing, two):
            with pytest.raises(DeclarationError, match="exactly one argument"):
                Pipeline("p").processor(body)
        with pytest.raises(DeclarationError, match="expected a function"):
            Pipeline("p").phase("a").processor("x")(3)  # type: ignore[type-var]

    def test_a_callable_without_a_name_needs_one(self) -> None:
        body = functools.partial(work)
        with pytest.raises(DeclarationError, match="is not a valid processor name"):
            Pipeline("p").processor(body)
        Pipeline("p").processor("named")(body)
