"""Declarations of needs, modes and cascades: a complete example, and one test per error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Mode, Pipeline, game_day_modes, historical, optional, per, same_day
from penstock.core.clock import HOUR, MINUTE
from penstock.core.errors import DeclarationError
from penstock.pipelines.declare.needs import WAREHOUSE_KINDS
from penstock.pipelines.plan import gate_mode, modes_of, needs_from_definition, plan_of
from penstock.probes.warehouses import ADAPTERS
from tests.kits.modes import GAME_DAY


def season() -> Pipeline:
    """Return the example pipeline of the design, with all phases filled in."""
    nba = Pipeline(
        "nba",
        partition="game_date",
        timezone="America/New_York",
        warehouse="duckdb:season.duckdb",
        modes=game_day_modes(overnight_until="precompute"),
    )

    raw = nba.phase("raw")
    analytics = nba.phase("analytics", after=raw)
    precompute = nba.phase("precompute", after=analytics, slo="30m", stragglers="20m")

    @analytics.processor(
        modes={"overnight", "backfill"},
        needs=[
            same_day(
                "nba_raw.player_boxscores",
                expect=per(20, "nba_raw.schedule"),
                not_null=["points"],
            ),
            historical("nba_analytics.player_game_summary", days=10, degraded_at=5),
            optional("nba_raw.odds_props"),
        ],
        produces="nba_analytics.player_game_summary",
        limits=["bq:nba_analytics.player_game_summary"],
    )
    def player_game_summary(run: Any) -> None: ...

    raw.external("boxscores", produces=["nba_raw.player_boxscores"], entities=["players"])
    precompute.external("ml_feature_store")
    nba.phase("predict", after=precompute).external("points")
    return nba


class TestExample:
    """The example pipeline."""

    def test_the_definition_is_valid_and_stable(self) -> None:
        nba = season()
        nba.check()
        assert json.loads(json.dumps(nba.definition())) == nba.definition()
        assert nba.digest == season().digest

    def test_needs_carry_column_and_warehouse(self) -> None:
        found = season().needs("overnight", "analytics")
        assert [n.dependency.table for n in found] == [
            "nba_raw.player_boxscores",
            "nba_analytics.player_game_summary",
            "nba_raw.odds_props",
        ]
        assert {n.dependency.partition for n in found} == {"game_date"}
        assert {n.dependency.warehouse for n in found} == {"duckdb:season.duckdb"}
        assert found[0].dependency.expect.partition == "game_date"
        assert {n.needed_by for n in found} == {("player_game_summary",)}
        assert season().needs("same_day", "analytics") == ()
        assert season().needs("overnight", "raw") == ()

    def test_a_process_without_the_code_plans_the_same(self) -> None:
        nba, text = season(), json.loads(json.dumps(season().definition()))
        modes = modes_of(text)
        for name in GAME_DAY:
            assert plan_of(text, modes[name]) == nba.plan(name)
        mode = modes["backfill"]
        assert needs_from_definition(text, mode, "analytics") == nba.needs("backfill", "analytics")

    def test_modes_run_their_phases(self) -> None:
        nba = season()
        overnight, same = nba.plan("overnight"), nba.plan("same_day")
        assert [p.name for p in overnight.phases] == ["raw", "analytics", "precompute"]
        assert overnight.skipped == ("predict",)
        assert overnight.last == ("precompute",)
        # No processor runs in analytics, so precompute follows raw.
        assert [(p.name, p.after) for p in same.phases] == [
            ("raw", ()),
            ("precompute", ("raw",)),
            ("predict", ("precompute",)),
        ]
        assert same.skipped == ("analytics",)
        assert same.downstream("raw") == ("precompute", "predict")

    def test_a_single_processor_with_a_gate_has_a_flow(self) -> None:
        plain, gated = Pipeline("p"), Pipeline("p", partition="day")
        plain.phase("a").external("x")
        gated.phase("a").external("x", needs=[same_day("t")])
        assert (plain.has_flow, gated.has_flow) == (False, True)

    def test_a_pipeline_without_needs_and_modes_keeps_its_digest(self) -> None:
        """A plain declaration has this digest since definitions list their modes (version 2)."""
        nba = Pipeline("nba", timezone="America/New_York", rate_second=0.5)
        raw = nba.phase("raw")
        raw.processor("boxscores")(lambda _run: None)
        nba.phase("publish", after=raw).external("push", timeout=90)
        assert nba.digest == DIGEST

    def test_all_options(self) -> None:
        nba = Pipeline(
            "nba",
            modes=[
                Mode("evening", window="21:00-23:00", otherwise="WAIT", max_wait="90m"),
                *game_day_modes(),
            ],
            leniency="strict",
            cascade="observe",
            slos={"evening": "1h", "overnight": "5h"},
            fallback={"overnight": "06:30"},
        )
        a = nba.phase("a", on="each", on_late_data="rerun", fallback="07:00")
        a.external("x")
        a.external("y")
        b = nba.phase("b", after=a, expects={"evening": ["z"], "same_day": []})
        b.external("z")
        b.external("w")
        nba.check()
        assert (nba.terms.cascade, nba.modes["overnight"].slo_us) == ("observe", 5 * HOUR)
        assert next(iter(nba.modes)) == "evening"
        strict = gate_mode(nba.definition(), nba.modes["same_day"])
        assert (strict.name, strict.waits) == ("same_day", True)
        plan = nba.plan("evening")
        assert [(p.name, p.expected, p.fallback) for p in plan.phases] == [
            ("a", ("x", "y"), 7 * 60),
            ("b", ("z",), None),
        ]
        assert nba.plan("overnight").phase("b").fallback == 6 * 60 + 30
        assert nba.plan("overnight").phase("b").expected == ("z", "w")
        assert nba.plan("same_day").skipped == ("b",)
        assert plan.mode.slo_us == HOUR

    def test_needs_of_several_processors_are_probed_once(self) -> None:
        nba = Pipeline("nba", partition="day", modes=game_day_modes())
        a = nba.phase("a")
        a.external("x", needs=[same_day("t"), optional("u", modes=["manual"])])
        a.external("y", needs=[same_day("t"), same_day("t2", expect=5)])
        found = nba.needs("overnight", "a")
        assert [(n.dependency.table, n.needed_by) for n in found] == [
            ("t", ("x", "y")),
            ("t2", ("y",)),
        ]
        assert [n.dependency.table for n in nba.needs("manual", "a", "x")] == ["t", "u"]


DIGEST = "99f26fbb3568c9f583c52d970d52aecdb55d2597ff26e578a0fdca28124cef18"


class TestPipelineErrors:
    """Errors that only the whole pipeline shows; each message names the declaration."""

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (
                {"modes": ["nightly"]},
                "processor p/b/x: modes: 'nightly' is not a mode of this pipeline; modes:",
            ),
            (
                {"needs": [same_day("t", modes=["nope"])]},
                "needs t: modes: 'nope' is not a mode of this pipeline",
            ),
            ({"needs": [same_day("t"), same_day("t")]}, r"needs t \(same_day\) twice"),
            ({"needs": [same_day("made_c")]}, "which only the later phase 'c' produces"),
            ({"needs": [same_day("made_b")]}, "which only p/b/y of the same phase produces"),
            (
                {"needs": [same_day("own")], "produces": "own"},
                r"which it produces itself; declare it with historical\(",
            ),
            (
                {"needs": [same_day("t", customer_column="shop", checks={"c": "SELECT 1"})]},
                r"check 'c' reads the rows of all customers; add shop = :customer",
            ),
            (
                {"needs": [same_day("t", customer_column="shop", expect="SELECT ':customer'")]},
                "the query of expect reads the rows of all customers",
            ),
        ],
    )
    def test_processors(self, options: dict[str, Any], text: str) -> None:
        pipeline = Pipeline("p", partition="day")
        pipeline.phase("a").external("w", produces="made_a")
        b = pipeline.phase("b", after="a")
        b.external("x", **options)
        b.external("y", produces="made_b")
        pipeline.phase("c", after="b").external("z", produces="made_c")
        with pytest.raises(DeclarationError, match=text):
            pipeline.check()

    def test_valid_needs(self) -> None:
        """Raw data, earlier products, own history, and tables of the same phase with on="each"."""
        pipeline = Pipeline("p", partition="day")
        pipeline.phase("a").external("w", produces=["made_a", "twice"])
        b = pipeline.phase("b", after="a", on="each")
        b.external("x", needs=[same_day("raw"), same_day("made_a"), same_day("made_b")],
                   produces=["own", "twice"])  # fmt: skip
        b.external("y", needs=[historical("own", days=3), optional("made_c")], produces="made_b")
        pipeline.phase("c", after="b").external("z", needs=[same_day("twice")], produces="made_c")
        pipeline.check()

    def test_processors_that_wait_for_each_other(self) -> None:
        pipeline = Pipeline("p", partition="day")
        a = pipeline.phase("a", on="each")
        a.external("x", needs=[same_day("t2")], produces="t1")
        a.external("y", needs=[same_day("t1")], produces="t2")
        with pytest.raises(DeclarationError, match=r"each other's tables: p/a/x → p/a/y → p/a/x"):
            pipeline.check()

    def test_needs_without_a_partition_column(self) -> None:
        pipeline = Pipeline("p")
        pipeline.phase("a").external("x", needs=[same_day("t", partition="day")])
        pipeline.check()
        pipeline.phase("b").external("y", needs=[same_day("t")])
        with pytest.raises(DeclarationError, match="no partition column is set"):
            pipeline.check()

    @pytest.mark.parametrize(
        ("phase", "text"),
        [
            (
                {"expects": {"nope": ["x"]}},
                "phase p/a: expects: 'nope' is not a mode of this pipeline",
            ),
            ({"expects": {"manual": ["q"]}}, "mode 'manual' expects 'q', which is not a processor"),
            ({"expects": {"manual": ["y"]}}, "expects 'y', which runs only in overnight"),
            ({"fallback": {"nope": "06:00"}}, "phase p/a: fallback: 'nope' is not a mode"),
        ],
    )
    def test_phases(self, phase: dict[str, Any], text: str) -> None:
        pipeline = Pipeline("p", modes=game_day_modes())
        a = pipeline.phase("a", **phase)
        a.external("x")
        a.external("y", modes=["overnight"])
        with pytest.raises(DeclarationError, match=text):
            pipeline.check()

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"slos": {"nope": "1h"}}, "slos: 'nope' is not a mode of this pipeline"),
            ({"fallback": {"nope": "06:00"}}, "fallback: 'nope' is not a mode of this pipeline"),
            ({"modes": [Mode("m"), Mode("m")]}, "mode 'm' is declared twice"),
            ({"modes": [Mode("m", until="zz")]}, "mode 'm' names 'zz', which is not a phase"),
            ({"modes": [Mode("m", phases=["zz"])]}, "mode 'm' names 'zz', which is not a phase"),
            (
                {"modes": [Mode("m", window="01:00-05:00"), Mode("n", window="22:00-02:00")]},
                "windows of modes 'm' and 'n' overlap",
            ),
        ],
    )
    def test_pipelines(self, options: dict[str, Any], text: str) -> None:
        pipeline = Pipeline("p", **options)
        pipeline.phase("a").external("x")
        with pytest.raises(DeclarationError, match=text):
            pipeline.check()

    def test_a_modified_mode_of_the_preset_is_valid(self) -> None:
        night, *others = game_day_modes()
        pipeline = Pipeline("p", modes=[night.with_options(max_wait="3h"), *others])
        pipeline.phase("a").external("x")
        pipeline.check()
        assert pipeline.modes["overnight"].max_wait_us == 3 * HOUR

    def test_no_mode_of_the_preset_names_a_phase(self) -> None:
        """A phase of the basketball demo is not part of any default."""
        assert {mode.until for mode in game_day_modes()} == {None}
        pipeline = Pipeline("p", modes=game_day_modes(overnight_until="precompute"))
        pipeline.phase("a").external("x")
        with pytest.raises(DeclarationError, match="mode 'overnight' names 'precompute'"):
            pipeline.check()


def external(**options: Any) -> Callable[[], Any]:
    return lambda: Pipeline("p").phase("a").external("x", **options)


class TestValueErrors:
    """Errors raised by the declaration itself."""

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda: Pipeline("p", partition="a b"), "partition: 'a b' is not a column name"),
            (lambda: Pipeline("p", warehouse=" "), "warehouse takes a name or address"),
            (lambda: Pipeline("p", modes=["x"]), r"modes takes Mode\(...\) records"),  # type: ignore[list-item]
            (lambda: Pipeline("p", leniency="soft"), "leniency must be 'auto' or 'strict'"),
            (lambda: Pipeline("p", cascade="off"), "cascade must be 'active' or 'observe'"),
            (lambda: Pipeline("p", slos={"manual": 0}), "longer than zero"),
            (lambda: Pipeline("p", fallback="25:00"), "fallback must be a time of day"),
            (lambda: Pipeline("p").phase("a", on="any"), "on must be 'set' or 'each'"),
            (lambda: Pipeline("p").phase("a", on_late_data="x"), "'rerun' or 'ignore'"),
            (lambda: Pipeline("p").phase("a", slo="-5m"), "slo"),
            (lambda: Pipeline("p").phase("a", stragglers=0), "stragglers must be longer"),
            (lambda: Pipeline("p").phase("a", expects=["x"]), "expects takes processors by mode"),  # type: ignore[arg-type]
            (lambda: Pipeline("p").phase("a", expects={"manual": "x"}), "takes a list"),
            (external(needs=["t"]), r"needs takes same_day\(...\), historical"),
            (external(needs=same_day("t")), "needs takes a list"),
            (external(modes="overnight"), "modes takes a list"),
            (external(modes=[]), "modes takes mode names"),
            (external(produces="a b"), "'a b' is not a table name"),
            (external(limits=["a;b"]), "not the name of a limit"),
            (external(limits="bq:t"), "limits takes a list"),
            (external(limits=["bq:{a b}"]), "is not a name; write"),
            (external(limits={"disk": 0}), r"limits\['disk'\] must be a whole number from 1"),
            (external(concurrency=0), "concurrency must be a whole number from 1"),
            (external(per_customer=True), "per_customer must be a whole number"),
            (external(per_key="team"), "has no placeholder such as"),
            (external(per_key={"{team}": "2"}), "must be a whole number"),
            (external(entities=["Players!"]), "not a kind of entity"),
        ],
    )
    def test_options(self, make: Callable[[], Any], text: str) -> None:
        with pytest.raises(DeclarationError, match=text):
            make()

    def test_an_unknown_option(self) -> None:
        with pytest.raises(TypeError, match="'need' is not an option; known: collect, concurrency"):
            external(need=[])()

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda: Mode("Night"), "is not a valid mode name"),
            (
                lambda: Mode("m", otherwise="WAIT"),
                r"waits \(otherwise is WAIT\) but has no max_wait",
            ),
            (lambda: Mode("m", otherwise="maybe"), "otherwise must be WAIT or FAIL"),
            (lambda: Mode("m", proceed_at=120), "proceed_at must be a number from 0 to 100"),
            (lambda: Mode("m", min_quality=95), "min_quality must be a number from 0 to 1"),
            (lambda: Mode("m", proceed_at=50, degraded_at=60), "is greater than proceed_at"),
            (lambda: Mode("m", window="6-7"), "window must be two times of day"),
            (lambda: Mode("m", window="06:00-06:00"), "is empty or extends past 24:00"),
            (lambda: Mode("m", max_wait=0), "max_wait must be longer than zero"),
            (lambda: Mode("m", until="a", phases=["a"]), "until or phases, not both"),
            (lambda: Mode("m", partition_days=1.5), "whole number of days"),  # type: ignore[arg-type]
            (lambda: Mode("m", nope=1), "nope is not an option"),  # type: ignore[call-arg]
            (lambda: GAME_DAY["manual"].with_options(otherwise="WAIT"), "has no max_wait"),
        ],
    )
    def test_modes(self, make: Callable[[], Any], text: str) -> None:
        with pytest.raises(DeclarationError, match=text):
            make()

    def test_a_waiting_mode_rechecks_every_five_minutes(self) -> None:
        assert Mode("m", otherwise="wait", max_wait="1h").recheck_us == 5 * MINUTE


class TestCustomers:
    """Needs that tell customers apart."""

    def test_the_pipelines_column_applies_to_needs_and_references(self) -> None:
        pipeline = Pipeline("p", partition="day", customer_column="shop")
        needs = [
            same_day("own", expect=per(2, "stores")),
            same_day("other", customer_column="owner", expect=per(2, "stores", shared=True)),
            same_day("common", shared=True, expect=per(2, "stores", customer_column="whose")),
            historical("past", days=3),
        ]
        pipeline.phase("a").external("x", needs=needs)
        (mode, *_) = pipeline.modes
        found = [need.dependency for need in pipeline.needs(mode, "a")]
        assert [(d.customer, d.expect.customer) for d in found] == [
            ("shop", "shop"), ("owner", None), (None, "whose"), ("shop", None),
        ]  # fmt: skip

    def test_needs_of_one_table_have_keys_of_their_own(self) -> None:
        """Otherwise the observation of one would be taken for the other."""
        pipeline = Pipeline("p", partition="day")
        needs = [same_day("t", where="kind = 'a'"), same_day("t", where="kind = 'b'")]
        phase = pipeline.phase("a")
        phase.external("x", needs=needs)
        phase.external("y", needs=[same_day("t", where="kind = 'b'")])
        (mode, *_) = pipeline.modes
        found = pipeline.needs(mode, "a")
        assert [need.dependency.key for need in found] == ["same_day:t", "same_day:t#2"]
        assert found[1].needed_by == ("x", "y")

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda: same_day("t", shared=True, customer_column="c"), "shared=True contradicts"),
            (lambda: per(1, "t", shared=True, customer_column="c"), "shared=True contradicts"),
            (lambda: per(1, "t", zero="fine"), "zero must be 'missing' or 'off_day'"),
            (lambda: same_day("t", floor=101), "floor must be a percentage from 0 to 100"),
            (lambda: same_day("t", floor=1, critical=False), "floor applies to critical data"),
            (lambda: Pipeline("p", customer_column="a b"), "is not a column name"),
            (lambda: Pipeline("p", warehouse="snowflake:x"), "no probe for 'snowflake'.*duckdb:"),
            (lambda: same_day("t", warehouse="snowflake:x"), "no probe for 'snowflake'"),
        ],
    )
    def test_mistakes(self, make: Callable[[], object], text: str) -> None:
        with pytest.raises(DeclarationError, match=text):
            make()

    def test_every_declared_kind_of_warehouse_has_an_adapter(self) -> None:
        assert tuple(sorted(ADAPTERS)) == WAREHOUSE_KINDS
