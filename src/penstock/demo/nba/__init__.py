"""The nba demo: a pipeline of six phases and grading over a generated DuckDB file.

Register it with `penstock pipelines register penstock.demo.nba`.
"""

from penstock.demo.nba.pipeline import PIPELINES, nba
from penstock.demo.nba.season import publish, season_write
from penstock.demo.nba.warehouse import SEASON, Season

__all__ = ["PIPELINES", "SEASON", "Season", "nba", "publish", "season_write"]
