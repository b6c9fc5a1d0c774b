"""Templates: all data is escaped, and a template cannot disable that."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from penstock.web import cells, words
from penstock.web.assets import asset_url
from penstock.web.links import linked


@functools.cache
def environment() -> Environment:
    """Return the templates; they are compiled on first use."""
    made = Environment(
        loader=PackageLoader("penstock.web", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["visible"] = words.visible
    made.filters["linked"] = linked
    made.globals["asset_url"] = asset_url
    made.globals |= {
        "icon": cells.icon,
        "time": cells.time_tag,
        "state": cells.state_tag,
        "severity": cells.severity_tag,
        "outcomes": cells.outcomes_tag,
        "slots": cells.slots_tag,
        "cell_html": cells.cell_html,
        "table_rows": cells.table_rows,
    }
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """Render a page with its template."""
    return environment().get_template(template).render(values)
