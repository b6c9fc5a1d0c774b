"""Secrets in definitions that were stored before declarations refused them."""

import json

from penstock import Pipeline, same_day
from penstock.core.redact import MASK
from penstock.pipelines.draw import draw
from tests.server.kit import ServedApi

CANARY = "cnry-4d1b-Kx"
ADDRESS = f"postgresql://ann:{CANARY}@db/season"


def test_a_viewer_of_one_customer(served: ServedApi) -> None:
    """The routes of pipelines show no password to any caller."""
    season = Pipeline("season", partition="day", customer_column="c", warehouse="sales")
    season.phase("load").external("box", needs=[same_day("t", expect=1)])
    harness = served.harness
    harness.client.register([season])
    (text,) = harness.column("SELECT definition FROM pipelines WHERE name = 'season'")
    changed = text.replace('"sales"', json.dumps(ADDRESS))
    assert changed != text
    harness.sql(f"UPDATE pipelines SET definition = '{changed}' WHERE name = 'season'")
    for key in ("acme-viewer", "viewer", "admin"):
        shown = served.by(key).ok("GET", "/pipelines/season")
        assert shown["definition"]["warehouse"] == f"postgresql://ann:{MASK}@db/season"
        assert draw(shown["definition"])[0].endswith(f"ann:{MASK}@db/season")
        assert CANARY.encode() not in served.by(key).get("/pipelines").body
