"""Source design 001 over HTTP, from creating a config to disabling it after five failures."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, iso, parse_iso
from penstock.pipelines.declare.pipeline import Pipeline
from tests.server.kit import SCHEDULER_TOKEN, Client, ServedApi

EXAMPLE = Path(__file__).parents[2] / "examples" / "api_walk.py"
CUSTOMER = "customer-123"
WORKER = "worker-pod-abc123"
ENABLE = {
    "provider": "GCP",
    "domain": "COST",
    "pipeline_template": "cost_billing",
    "schedule_cron": "0 2 * * *",
    "timezone": "America/New_York",
    "parameters": {"billing_account_id": "012345-ABCDEF-678900", "include_labels": True},
    "retry_config": {"max_attempts": 3, "backoff_multiplier": 2},
}
FIRST = parse_iso("2025-11-17T07:00:00Z")
"""Two in the morning in New York."""


class Walker:
    """A customer program, an external scheduler and a worker, each with its own key."""

    def __init__(self, served: ServedApi) -> None:
        self.served = served
        self.harness = served.harness
        self.by: Client = served.by("operator")
        self.worker: Client = served.by("worker")
        pipeline = Pipeline("cost_billing")
        pipeline.phase("main").external("bill")
        self.harness.client.register([pipeline])
        self.config: dict[str, Any] = {}

    @property
    def path(self) -> str:
        """Return the path of the config."""
        return f"/pipeline-configs/{self.config['config_id']}"

    def to(self, us: int) -> None:
        """Advance to a time and admit due runs."""
        self.harness.clock.advance_to(us)
        self.harness.admitter.run_once()

    def trigger(self) -> dict[str, Any]:
        """Call the scheduler trigger."""
        reply = self.served.by(None).post(
            "/scheduler/trigger",
            {"batch_size": 1000, "max_processing_time_seconds": 600},
            X_Scheduler_Token=SCHEDULER_TOKEN,
        )
        assert reply.status == 200, reply.body
        return dict(reply.json)

    def claim(self) -> dict[str, Any]:
        """Claim the only ready run."""
        asked = {"worker_id": WORKER, "max_claims": 10, "claim_duration_seconds": 300}
        (run,) = self.worker.ok("POST", "/scheduler/claim-runs", asked)["claimed_runs"]
        return dict(run)

    def begin(self, run_id: str) -> dict[str, Any]:
        """Start a claimed run as in the design."""
        where = {"pod_name": "pipeline-worker-abc123", "region": "us-central1"}
        body = {"worker_id": WORKER, "execution_context": where}
        return dict(self.worker.ok("POST", f"/pipeline-runs/{run_id}/start", body))

    def fail(self, error_type: str, **more: Any) -> dict[str, Any]:
        """Claim, start and fail the ready run."""
        run = self.claim()
        self.begin(run["run_id"])
        body = {
            "error_type": error_type,
            "error_details": {"message": "Invalid credentials", "provider_error_code": "401"},
            **more,
        }
        end = self.worker.ok("POST", f"/pipeline-runs/{run['run_id']}/fail", body)
        assert (end["run_id"], end["state"], end["status"]) == (run["run_id"], "FAILED", "FAILURE")
        return dict(end)

    def run(self, run_id: str) -> dict[str, Any]:
        """Return a run from the API."""
        return dict(self.by.ok("GET", f"/pipeline-runs/{run_id}")["run"])


@pytest.fixture
def walker(served: ServedApi) -> Walker:
    """Return a Walker at midnight UTC, without configs."""
    return Walker(served)


def enable(walker: Walker) -> None:
    """Create a config; check its fields, its schedule and its audit entry."""
    reply = walker.by.post(f"/customers/{CUSTOMER}/pipeline-configs", ENABLE)
    assert reply.status == 201
    walker.config = reply.json
    assert reply.json.items() >= ENABLE.items()
    assert reply.json.items() >= {
        "customer_id": CUSTOMER, "is_active": True, "next_run_time": "2025-11-17T07:00:00Z",
        "created_at": "2025-11-17T00:00:00Z", "schedule_type": "CRON", "version": 1,
        "schedule_interval_minutes": None, "last_run_time": None, "last_run_status": None,
        "consecutive_failures": 0, "max_execution_duration_minutes": None,
        "sla_breach_threshold_minutes": 30.0, "updated_at": "2025-11-17T00:00:00Z",
        "created_by": "key:operator",
    }.items()  # fmt: skip
    (listed,) = walker.by.ok("GET", f"/customers/{CUSTOMER}/pipeline-configs")["items"]
    assert listed == walker.by.ok("GET", walker.path) == reply.json
    (link,) = walker.by.ok("GET", f"{walker.path}/audit")["items"]
    assert (link["action"], link["changed_by"], link["config_id"], link["old_values"]) == (
        "CREATED", "key:operator", reply.json["config_id"], None,
    )  # fmt: skip
    assert link["new_values"]["schedule_cron"] == "0 2 * * *"


class TestWalk:
    """The sections of the design."""

    def test_successful_run(self, walker: Walker) -> None:
        """Enable, trigger, claim, start, heartbeat, complete; lists, metrics and dashboard."""
        enable(walker)
        assert walker.trigger()["total_runs_created"] == 0, "nothing is due yet"
        walker.to(FIRST)
        ticked = walker.trigger()
        assert (ticked["status"], ticked["total_configs_processed"]) == ("completed", 1)
        assert ticked["total_runs_created"] == 1
        assert ticked["processing_time_seconds"] >= 0
        assert walker.trigger()["total_runs_created"] == 0, "an occurrence starts once"
        assert walker.by.ok("GET", walker.path)["next_run_time"] == "2025-11-18T07:00:00Z"

        run = walker.claim()
        assert run.items() >= {
            "config_id": walker.config["config_id"], "customer_id": CUSTOMER,
            "scheduled_time": "2025-11-17T07:00:00Z", "claim_expiry_time": "2025-11-17T07:05:00Z",
            "attempt_number": 1, "execution_priority": 5, "parameters": ENABLE["parameters"],
        }.items()  # fmt: skip
        assert walker.run(run["run_id"])["state"] == "CLAIMED"
        status = walker.begin(run["run_id"])
        assert (status["state"], status["execution_start_time"]) == ("RUNNING", iso(FIRST))
        assert status["timeout_at"] == iso(FIRST + HOUR)
        for minute in range(1, 31):
            walker.to(FIRST + minute * MINUTE)
            heartbeat = walker.worker.ok(
                "POST",
                f"/pipeline-runs/{run['run_id']}/heartbeat",
                {
                    "current_stage": "transforming",
                    "progress_percentage": 45.5,
                    "records_processed": 1250000,
                    "estimated_completion_time": "2025-11-17T07:35:00Z",
                },
            )
            assert not heartbeat["cancel_requested"]
        self.check_running(walker, run["run_id"])
        summary = {
            "records_extracted": 2000000,
            "records_transformed": 1999500,
            "records_loaded": 1999500,
            "execution_duration_seconds": 1800,
        }
        end = walker.worker.ok(
            "POST",
            f"/pipeline-runs/{run['run_id']}/complete",
            {"status": "SUCCESS", "result_summary": summary},
        )
        assert (end["state"], end["status"], end["is_dead"]) == ("COMPLETED", "SUCCESS", False)
        self.check_completed(walker, run["run_id"], summary)

    def check_running(self, walker: Walker, run_id: str) -> None:
        """A running run shows its progress and counts as running."""
        detail = walker.by.ok("GET", f"/pipeline-runs/{run_id}")
        assert detail["progress"].items() >= {
            "current_state": "RUNNING", "current_stage": "transforming",
            "progress_percentage": 45.5, "worker_id": WORKER,
            "execution_pod": "pipeline-worker-abc123", "execution_region": "us-central1",
            "records_loaded": 1250000, "estimated_completion_time": "2025-11-17T07:35:00Z",
            "last_heartbeat_at": iso(FIRST + 30 * MINUTE),
        }.items()  # fmt: skip
        assert (detail["run"]["state"], detail["run"]["claimed_by"]) == ("RUNNING", WORKER)
        status = walker.by.ok("GET", "/dashboard/pipeline-status")
        assert (status["pending_runs"], status["running_runs"]) == (0, 1)

    def check_completed(self, walker: Walker, run_id: str, summary: dict[str, Any]) -> None:
        """A completed run, its config, the lists, the metrics and the dashboard agree."""
        run = walker.run(run_id)
        assert run.items() >= {
            "state": "COMPLETED", "status": "SUCCESS", "result_summary": summary,
            "execution_start_time": iso(FIRST), "execution_end_time": iso(FIRST + 30 * MINUTE),
            "execution_duration_seconds": 1800.0, "sla_met": True, "attempt_number": 1,
            "max_attempts": 3, "parent_run_id": None, "error_details": None, "error_type": None,
            "state_updated_at": iso(FIRST + 30 * MINUTE), "claimed_by": WORKER,
        }.items()  # fmt: skip
        assert run["idempotency_key"].startswith(f"{walker.config['config_id']}:{iso(FIRST)}")
        config = walker.by.ok("GET", walker.path)
        assert config["last_run_time"] == iso(FIRST + 30 * MINUTE)
        assert (config["last_run_status"], config["consecutive_failures"]) == ("COMPLETED", 0)
        path = f"/customers/{CUSTOMER}/pipeline-runs"
        for query, n in (
            ("", 1), ("?state=COMPLETED", 1), ("?state=FAILED", 0), ("?limit=1&offset=1", 0),
            ("?start_date=2025-11-17&end_date=2025-11-18", 1), ("?start_date=2025-11-18", 0),
        ):  # fmt: skip
            assert len(walker.by.ok("GET", path + query)["items"]) == n, query
        metrics = walker.by.ok("GET", f"/customers/{CUSTOMER}/metrics")
        sums = {
            "total_runs": 1, "successful_runs": 1, "failed_runs": 0,
            "average_duration_seconds": 1800.0, "sla_compliance_percentage": 100.0,
            "sla_runs": 1, "sla_breaches": 0,
        }  # fmt: skip
        assert metrics.items() >= {"customer_id": CUSTOMER, **sums}.items()
        assert metrics["by_provider"] == [{"provider": "GCP", **sums}]
        status = walker.by.ok("GET", "/dashboard/pipeline-status")
        assert status.items() >= {
            "pending_runs": 0, "running_runs": 0, "completed_today": 1, "failed_today": 0,
            "sla_breaches_today": 0, "average_execution_duration_seconds": 1800.0,
        }.items()  # fmt: skip

    def test_retry_on_failure(self, walker: Walker) -> None:
        """A failed run is retried after 5, 10 and 20 minutes; then it becomes a dead letter."""
        enable(walker)
        changed = walker.by.patch(walker.path, {"retry_config": {"max_attempts": 4}})
        assert (changed.status, changed.json["version"]) == (200, 2)
        walker.to(FIRST)
        walker.trigger()
        parent = None
        for attempt, minutes in ((1, 5), (2, 10), (3, 20)):
            now = walker.harness.clock.now()
            end = walker.fail("TRANSIENT_NETWORK")
            due = parse_iso(end["retry_after"])
            assert minutes * MINUTE <= due - now <= minutes * MINUTE * 5 // 4 + SECOND
            failed = walker.run(end["run_id"])
            assert (failed["attempt_number"], failed["parent_run_id"]) == (attempt, parent)
            assert failed["error_type"] == "TRANSIENT_NETWORK"
            assert failed["error_details"]["provider_error_code"] == "401"
            retry = walker.run(end["retry_run_id"])
            assert (retry["state"], retry["attempt_number"]) == ("PENDING", attempt + 1)
            assert retry["scheduled_time"] == end["retry_after"]
            assert (retry["slot"], retry["parent_run_id"]) == (iso(FIRST), end["run_id"])
            assert not end["is_dead"]
            walker.to(due)
            parent = end["run_id"]
        end = walker.fail("TRANSIENT_NETWORK")
        assert (end["is_dead"], end["retry_run_id"], end["consecutive_failures"]) == (True, None, 1)
        (dead_letter,) = walker.by.ok("GET", f"/dead-letters?customer_id={CUSTOMER}")["items"]
        assert (dead_letter["run_id"], dead_letter["attempts"]) == (end["run_id"], 4)
        assert dead_letter["error_type"] == "TRANSIENT_NETWORK"
        status = walker.by.ok("GET", "/dashboard/pipeline-status")
        assert status["failed_today"] == 4

    def test_errors_that_are_not_retried(self, walker: Walker) -> None:
        """Wrong credentials are not retried unless the worker forces a retry."""
        enable(walker)
        walker.to(FIRST)
        walker.trigger()
        end = walker.fail("AUTHENTICATION_FAILED", should_retry=True)
        assert end["retry_run_id"] is not None
        walker.to(parse_iso(end["retry_after"]))
        end = walker.fail("AUTHENTICATION_FAILED")
        assert (end["is_dead"], end["retry_run_id"]) == (True, None)

    def test_disabled_after_five(self, walker: Walker) -> None:
        """Three failures in a row raise an alert, five disable the config; enabling is audited."""
        enable(walker)
        for day in range(1, 6):
            walker.to(FIRST + (day - 1) * DAY)
            assert walker.trigger()["total_runs_created"] == 1
            end = walker.fail("INVALID_CONFIGURATION")
            assert (end["is_dead"], end["consecutive_failures"]) == (True, day)
            config = walker.by.ok("GET", walker.path)
            assert (config["consecutive_failures"], config["is_active"]) == (day, day < 5)
            assert config["last_run_status"] == "FAILED"
            alerts = walker.by.ok("GET", f"/alerts?customer_id={CUSTOMER}&state=open")["items"]
            severities = sorted(alert["severity"] for alert in alerts)
            expected = {1: [], 2: [], 3: ["MEDIUM"], 4: ["MEDIUM"]}.get(day)
            assert severities == expected if expected is not None else "HIGH" in severities
            for alert in alerts:
                assert alert["customer_id"] == CUSTOMER
                assert alert["subject"] == walker.config["config_id"]
                assert alert["message"]
        assert config["inactive_reason"]
        assert config["next_run_time"] is None
        walker.to(FIRST + 5 * DAY)
        assert walker.trigger()["total_runs_created"] == 0
        again = walker.by.patch(walker.path, {"is_active": True, "reason": "credentials renewed"})
        assert again.json.items() >= {
            "is_active": True, "consecutive_failures": 0, "inactive_reason": None,
            "next_run_time": iso(FIRST + 6 * DAY),
        }.items()  # fmt: skip
        links = walker.by.ok("GET", f"{walker.path}/audit")["items"]
        assert [link["action"] for link in links] == ["CREATED", "DEACTIVATED", "ACTIVATED"]
        assert (links[-1]["changed_by"], links[-1]["change_reason"]) == (
            "key:operator", "credentials renewed",
        )  # fmt: skip
        assert links[-1]["new_values"]["is_active"] is True
        walker.to(FIRST + 6 * DAY)
        assert walker.trigger()["total_runs_created"] == 1
        assert walker.by.delete(walker.path).status == 204
        assert walker.by.get(walker.path).status == 404


def test_example(served: ServedApi) -> None:
    """Run the example script against a server."""
    done = subprocess.run(
        [sys.executable, "-I", EXAMPLE, served.server.url, served.keys["admin"], "outside"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"
    assert "is COMPLETED (SUCCESS)" in done.stdout
