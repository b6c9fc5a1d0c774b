"""A season of basketball: six phases and grading, with gates that look into a DuckDB file.

The declarations live where an installed Penstock finds them too (`penstock demo` plays a day of
them): `penstock.cli.demo.nba.pipeline` is the one to read, `season` makes the data up, `work.sql`
is what the processors do. This package offers the same names:

    penstock demo
    penstock pipelines register examples.nba
    penstock pipelines show nba
    penstock simulate examples.nba
"""

from penstock.demo.nba.pipeline import PIPELINES, nba
from penstock.demo.nba.season import publish, season_write
from penstock.demo.nba.warehouse import SEASON, Season

__all__ = ["PIPELINES", "SEASON", "Season", "nba", "publish", "season_write"]
