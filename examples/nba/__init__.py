"""A season of basketball: six phases and grading, with gates that check a DuckDB file.

The declarations are in the package, so that an installed Penstock has them too (`penstock demo`
runs a day of them): start with `penstock.demo.nba.pipeline`; `season` generates the data, and
`work.sql` contains the work of the processors. This package offers the same names:

    penstock demo
    penstock pipelines register examples.nba
    penstock pipelines show nba
    penstock simulate examples.nba
"""

from penstock.demo.nba import PIPELINES, SEASON, Season, nba, publish, season_write

__all__ = ["PIPELINES", "SEASON", "Season", "nba", "publish", "season_write"]
