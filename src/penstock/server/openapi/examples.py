"""One example per request body, for the OpenAPI document and the reference page.

A test validates each example against its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_CONFIG: Final = {
    "pipeline_template": "cost_billing",
    "provider": "GCP",
    "domain": "COST",
    "schedule_cron": "0 2 * * *",
    "timezone": "America/New_York",
    "parameters": {"billing_account_id": "012345-ABCDEF-678900"},
    "retry_config": {"max_attempts": 3, "backoff_multiplier": 2},
    "priority": 7,
}
_WORKER: Final = "worker-pod-abc123"
_HELD: Final = {"worker_id": _WORKER, "fencing_token": 4711}
_DONE: Final = {
    "status": "SUCCESS",
    "result_summary": {"records_loaded": 1999500},
    "records_processed": 1999500,
}
_PROGRESS: Final = {"current_stage": "transforming", "progress_percentage": 40}

EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "BacktestIn": {"pipeline_template": "nba", "changes": {"proceed_at": 95}, "days": 90},
    "HeartbeatBatchIn": {
        "worker_id": _WORKER,
        "heartbeats": [{"run_id": "run_7h2kq0v3", "fencing_token": 4711, **_PROGRESS}],
    },
    "BulkItem": {"customer_id": "acme", **_CONFIG},
    "CancelIn": {"reason": "the source is being repaired"},
    "GateCheckIn": {"pipeline_template": "nba", "phase": "analytics", "partition": "2025-12-31"},
    "ClaimByIdIn": {"worker_id": _WORKER, "claim_duration_seconds": 300},
    "ClaimIn": {
        "worker_id": _WORKER,
        "max_claims": 10,
        "wait_seconds": 20,
        "processors": ["cost_billing"],
    },
    "CompleteIn": {**_HELD, **_DONE},
    "CompletionReportIn": {
        "pipeline_template": "nba",
        "processor_name": "nbac_player_boxscore",
        "phase": "raw",
        "partition": "2025-12-31",
        "status": "success",
        "execution_id": "exec-7f3a",
        "processing_mode": "overnight",
        "completeness": {"total_expected": 200, "total_processed": 195, "quality_score": 0.98},
        "dependency_checks": [
            {"table": "nba_raw.player_boxscores", "required_rows": 200, "found_rows": 195}
        ],
        "entities_changed": {"players": [1630567]},
    },
    "ConfigIn": {**_CONFIG, "reason": "new contract"},
    "ConfigPatch": {"schedule_cron": "30 2 * * *", "version": 3, "reason": "source is late"},
    "FailIn": {
        **_HELD,
        "error_type": "AUTHENTICATION_FAILED",
        "error_details": {"message": "Invalid service account credentials"},
        "should_retry": False,
    },
    "FlowIn": {"pipeline_template": "nba", "partition": "2025-12-31", "phases": ["predict"]},
    "HeartbeatIn": {**_HELD, **_PROGRESS, "records_extracted": 800000},
    "ClaimHolderIn": _HELD,
    "KeyIn": {"name": "nightly-worker", "role": "worker", "expires": "90d"},
    "OverrideIn": {
        "pipeline_template": "nba",
        "partition": "2025-12-31",
        "phase": "analytics",
        "dependency": "nba_raw.odds_props",
        "reason": "the provider is down until tomorrow",
        "expires": "4h",
    },
    "OverrideRevokeIn": {"reason": "the data has come"},
    "PauseIn": {"scope": "customer", "subject": "acme", "reason": "migration"},
    "PreviewIn": {"schedule_cron": "0 2 * * *", "timezone": "Europe/Berlin", "n": 3},
    "PushEnvelopeIn": {
        "message": {
            "messageId": "136969346945",
            "data": "aGVsbG8=",
            "attributes": {"kind": "order"},
            "publishTime": "2026-11-15T16:00:00.123Z",
        },
        "subscription": "projects/my-project/subscriptions/orders",
    },
    "CompletionBatchIn": {
        "worker_id": _WORKER,
        "completions": [{"run_id": "run_7h2kq0v3", "fencing_token": 4711, **_DONE}],
    },
    "InterventionResolveIn": {"resolution": "the missing days were loaded by hand"},
    "RevokeIn": {"reason": "it was in a log"},
    "RotateIn": {"overlap": "24h"},
    "ConfigStartIn": {"trigger_source": "manual"},
    "StartRunIn": {**_HELD, "execution_context": {"pod_name": _WORKER, "region": "eu-west-1"}},
    "SubmitIn": {
        "pipeline_template": "cost_billing",
        "partition": "2025-12-31",
        "parameters": {"billing_account_id": "012345-ABCDEF-678900"},
    },
    "WhatIfIn": {"pipeline_template": "nba", "changes": {"min_quality": 0.9}, "limit": 20},
    "SchedulerTickIn": {"batch_size": 1000, "max_processing_time_seconds": 60},
}
"""Example request bodies by model name."""
