"""Read-only SQL over the tables of an audit sink in BigQuery, bounded in bytes, rows and time."""

from __future__ import annotations

from penstock.core.errors import InvalidInput
from penstock.probes.bigquery.bounded_query import QueryBounds, QueryRefused, QueryTimeout
from penstock.probes.bigquery.connection import failure_text, google_errors
from penstock.shipping.batches import SinkUnavailable
from penstock.shipping.tables import TABLES
from penstock.sinks.audit_bigquery import BigQuerySink
from penstock.sinks.audit_query import QueryResult, SinkQueryBounds


def query_bigquery(sink: BigQuerySink, text: str, bounds: SinkQueryBounds) -> QueryResult:
    """Execute one SELECT over the tables of a sink. Raise InvalidInput if it cannot be executed."""
    place = f"{sink.address.project}.{sink.address.dataset}"
    given = sink.address.bytes_max if bounds.bytes_max is None else bounds.bytes_max
    expected = "one SELECT over the tables of the sink"
    try:
        found = sink.select(
            text,
            QueryBounds(
                bytes_max=given,
                rows_max=bounds.rows_max + 1,
                seconds=bounds.seconds,
                tables={f"{place}.{table.name}" for table in TABLES},
            ),
        )
    except QueryRefused as error:
        raise InvalidInput("query", expected, text[:80], str(error)) from None
    except QueryTimeout:
        within = f"a query of at most {bounds.seconds:g} s"
        raise InvalidInput("query", within, "a longer query", "Raise --timeout.") from None
    except SinkUnavailable as error:
        raise InvalidInput("query", "a sink that is available", sink.name, str(error)) from None
    except google_errors() as error:
        raise InvalidInput("query", expected, text[:80], failure_text(error)) from None
    return QueryResult(
        columns=list(found.columns),
        rows=found.rows[: bounds.rows_max],
        is_truncated=len(found.rows) > bounds.rows_max,
    )
