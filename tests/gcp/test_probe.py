"""Probes of BigQuery: the conformance tests of every warehouse, and what only BigQuery has."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidInput
from penstock.pipelines.declare.needs import historical, per, same_day
from penstock.probes.protocol import ProbeBudget
from penstock.probes.runner import ProbeRunner
from penstock.probes.warehouses import open_warehouse
from tests.gcp.conftest import PROJECT, BigQuerySite
from tests.gcp.front import Front, Refusal, no_fault
from tests.probes import test_conformance as conformance
from tests.probes.kit import probe_one

pytestmark = [pytest.mark.gcp, pytest.mark.slow]

TestOwnership = conformance.TestOwnership
TestRows = conformance.TestRows
TestQuality = conformance.TestQuality
TestDays = conformance.TestDays


class TestFailures(conformance.TestFailures):
    """As everywhere, but for a query that does not end, which the front end plays."""

    def test_a_slow_query_is_ended(self, probes: ProbeRunner, site: BigQuerySite) -> None:  # type: ignore[override]
        """See TestBudget.test_a_job_that_does_not_end."""


class TestBudget:
    """What a probe may cost."""

    def test_dry_run_first(self, probes: ProbeRunner, site: BigQuerySite, front: Front) -> None:
        """Each statement is estimated, then started with the budget as its limit."""
        front.estimate = 5_000_000
        found = probe_one(probes, site, same_day("boxscores", expect="SELECT 40"))
        assert (found.rows, found.expected, found.error) == (40, 40, None)
        mine = [one for one in front.queries() if one.get("labels") == {"service": "penstock"}]
        assert [bool(one.get("dryRun")) for one in mine] == [True, False, True, False]
        assert {one["query"].get("maximumBytesBilled") for one in mine} == {None, "10000000000"}
        assert all(one["query"]["parameterMode"] == "NAMED" for one in mine[:2])
        assert "2025-12-31" not in mine[1]["query"]["query"]

    @pytest.mark.parametrize("given", ["address", "request"])
    def test_over_budget(
        self, probes: ProbeRunner, site: BigQuerySite, front: Front, given: str
    ) -> None:
        """A statement that would cost more is not started; the lower of two budgets counts."""
        front.estimate = 20_000_001
        site.suffix = "?maximum_bytes_billed=20MB" if given == "address" else ""
        budget = ProbeBudget(bytes_max=20_000_000 if given == "request" else 10**12)
        found = probe_one(probes, site, same_day("boxscores"), budget=budget)
        assert "would scan 20,000,001 bytes, more than the budget of 20,000,000" in str(found.error)
        mine = [one for one in front.queries() if one.get("labels")]
        assert [bool(one.get("dryRun")) for one in mine] == [True]

    def test_scanned_bytes(self, probes: ProbeRunner, site: BigQuerySite) -> None:
        """The bytes that BigQuery reports are in the observation; the emulator reports 0."""
        assert probe_one(probes, site, same_day("boxscores")).scanned_bytes == 0
        past = probe_one(probes, site, historical("boxscores", days=2))
        assert (past.days_present, past.scanned_bytes) == (1, 0)

    def test_a_job_that_does_not_end(
        self, probes: ProbeRunner, site: BigQuerySite, front: Front
    ) -> None:
        """The probe ends at its time limit, and its job is cancelled."""
        front.hangs = True
        found = probe_one(probes, site, same_day("boxscores"), dependency_timeout_s=0.7)
        assert found.error == "no response within 0.7 s"
        assert len(front.cancelled) == 1
        front.hangs = False
        assert probe_one(probes, site, same_day("boxscores")).rows == 40


ERRORS = (
    (403, "accessDenied", "Access Denied: Table acme:season.boxscores", "BigQuery denied access"),
    (403, "quotaExceeded", "Quota exceeded: Your project exceeded", "quota or rate limit"),
    (403, "rateLimitExceeded", "Exceeded rate limits", "quota or rate limit"),
    (404, "notFound", "Not found: Dataset acme:season", "BigQuery did not find the resource"),
    (400, "invalidQuery", "Syntax error", "BigQuery refused the request"),
    (503, "backendError", "Service Unavailable", "BigQuery is not available"),
)


@pytest.mark.parametrize(("status", "reason", "message", "expected"), ERRORS)
def test_errors(
    probes: ProbeRunner,
    site: BigQuerySite,
    front: Front,
    status: int,
    reason: str,
    message: str,
    expected: str,
) -> None:
    """Errors say of which kind they are, and what BigQuery responded; they are no results."""

    def refuse(method: str, path: str) -> None:
        if method == "POST" and path.partition("?")[0].endswith("/jobs"):
            raise Refusal(status, reason, message)

    front.before = refuse
    found = probe_one(probes, site, same_day("boxscores"), dependency_timeout_s=1.5)
    assert found.rows is None
    assert expected in str(found.error)
    assert message in str(found.error)
    assert "http" not in str(found.error)
    front.before = no_fault
    assert probe_one(probes, site, same_day("boxscores")).rows == 40


def test_tables_of_other_datasets(probes: ProbeRunner, site: BigQuerySite) -> None:
    """Tables may name a dataset, and its project; without a dataset in the address they must."""
    site.run("CREATE TABLE raw_games AS SELECT * FROM schedule")
    for table in (f"{site.dataset}.raw_games", f"{PROJECT}.{site.dataset}.raw_games"):
        need = same_day(table, expect=per(1, f"{site.dataset}.schedule"))
        found = probe_one(probes, site, need)
        assert (found.rows, found.units, found.error) == (2, 2, None)
    short = same_day("raw_games").with_defaults("game_date", f"bigquery:{PROJECT}")
    (found,) = (probe_one(probes, site, short),)
    assert "raw_games has no dataset" in str(found.error)


def test_not_reachable(probes: ProbeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server the dependency counts as missing, within its time."""
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", "http://127.0.0.1:9")
    site = BigQuerySite(None, "season")
    found = probe_one(probes, site, same_day("boxscores"), dependency_timeout_s=0.5)
    assert "BigQuery is not reachable" in str(found.error)


@pytest.mark.parametrize(
    "address",
    ["bigquery:", "bigquery:Acme", "bigquery:acme.season?locatoin=EU", "bigquery:acme.a.b",
     "bigquery:acme?maximum_bytes_billed=1MB", "bigquery:acme?location=E%20U"],
)  # fmt: skip
def test_bad_addresses(address: str) -> None:
    """A wrong address is refused, and the error names the field."""
    with pytest.raises(InvalidInput) as caught:
        open_warehouse(address)
    assert caught.value.field.startswith("warehouse")
