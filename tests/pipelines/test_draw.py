"""Text drawings of pipelines, line by line."""

from __future__ import annotations

from penstock import Mode, Pipeline, game_day_modes, historical, optional, per, same_day
from penstock.pipelines.draw import draw


def test_the_example() -> None:
    """A chain of phases and a branch, with needs, modes and options."""
    nba = Pipeline("nba", partition="game_date", timezone="America/New_York", leniency="strict",
                   warehouse="postgresql://ann@db/season", cascade="observe",
                   modes=game_day_modes())  # fmt: skip
    raw = nba.phase("raw", stragglers="20m")
    raw.external("boxscores", retry={"max_attempts": 5}, entities=["players"])
    analytics = nba.phase("analytics", after=raw, slo="15m", on_late_data="rerun")
    analytics.external(
        "summary",
        modes={"overnight", "backfill"},
        needs=[
            same_day("raw.box", expect=per(20, "raw.schedule"), max_age="1h", not_null=["points"],
                     checks={"no twins": "SELECT 1"}, fail_if_missing=True),
            historical("analytics.summary", days=10, degraded_at=5),
            optional("raw.odds", modes=["overnight"]),
        ],
        produces="analytics.summary",
        limits=["bq:analytics.summary"],
    )  # fmt: skip
    nba.phase("grading", after=raw, on="each", fallback={"overnight": "06:30"}).external("grades")
    predict = nba.phase("predict", after=analytics, expects={"manual": []})
    predict.external("points")
    nba.check()
    lines = draw(nba.definition())
    assert lines[: lines.index("  modes") + 1] == [
        "nba · America/New_York · partition by day in game_date · warehouse postgresql://ann@db/season"
        " · strict · cascade observe",
        "  ■ raw  (stragglers 20m)",
        "  │  • boxscores  pool external  timeout 1h  external  retry max_attempts 5",
        "  │      reports changed players",
        "  ▼",
        "  ■ analytics  (slo 15m, reruns on late data)",
        "  │  • summary  pool external  timeout 1h  external  only backfill, overnight",
        "  │      needs raw.box  (20 rows per raw.schedule; not older than 1h; points not null;"
        " check: no twins; fails if missing)",
        "  │      needs analytics.summary  (10 of the last 10 days, degraded from 5)",
        "  │      needs raw.odds  (optional; only overnight)",
        "  │      produces analytics.summary",
        "  │      limit bq:analytics.summary",
        "  ▼",
        "  ■ predict",
        "  │  • points  pool external  timeout 1h  external",
        "  │    in manual: none",
        "  ├ after raw",
        "  ■ grading  (processors start individually, fallback 06:30 in overnight)",
        "  │  • grades  pool external  timeout 1h  external",
        "  modes",
    ]
    assert lines[lines.index("  modes") + 1] == (
        "    overnight  23:00–06:00, proceeds at 100 % and quality 0.95, else waits up to 6h; "
        "raw 1 → analytics 1 → grading 1 → predict 1"
    )


def test_a_pipeline_without_gates_and_modes() -> None:
    """Gates are not mentioned if there are none; modes say what a flow does."""
    plain = Pipeline("plain")
    plain.phase("a").external("x")
    plain.phase("b").external("y")
    assert draw(plain.definition()) == [
        "plain · UTC",
        "  ■ a",
        "  │  • x  pool external  timeout 1h  external",
        "  ┌ starts with the flow",
        "  ■ b",
        "  │  • y  pool external  timeout 1h  external",
        "  modes",
        "    daily     default, proceeds at 100 % and quality 0.90, else waits up to 6h; a 1 → b 1",
        "    manual    proceeds at 100 % and quality 0.80, degraded at 50 %, else fails; a 1 → b 1",
        "    backfill  proceeds at 100 % and quality 0.95, else fails; a 1 → b 1",
    ]


def test_declared_modes_come_first() -> None:
    """Declared modes precede built-in ones, as in the choice by time of day."""
    mine = Pipeline("mine", modes=[Mode("evening", window="21:00-23:00", degraded_at=40)])
    a = mine.phase("a")
    a.external("x")
    a.external("y")
    lines = draw(mine.definition())
    assert lines[5] == (
        "    evening   21:00–23:00, proceeds at 100 % and quality 0.90, degraded at 40 %, "
        "else fails; a 2"
    )
