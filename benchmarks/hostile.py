"""Hostile callers: what other callers and customers notice of them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.hostile_bus import HOSTILE, bus_figures
from benchmarks.hostile_http import http_figures
from benchmarks.result import Result
from benchmarks.site import Site


def hostile(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure 200 hostile connections, and 1,000 hostile messages to every consumer of the bus."""
    figures = {**http_figures(site, quick=quick), **bus_figures(site, quick=quick)}
    yield Result(
        bench="hostile",
        engine=site.engine,
        value=figures["http_ratio"],
        unit="times normal",
        n=HOSTILE,
        extra=figures,
    )
