"""Walk through the HTTP API: create a config, execute its run as an external worker, inspect it.

Plain Python. Run it against a `penstock up` with a pipeline that has an external processor:

    python examples/api_walk.py http://127.0.0.1:8080 "$PENSTOCK_API_KEY" outside
"""

import json
import sys
import urllib.request
from typing import Any


class Api:
    """The API at a URL, called with a key."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Make one call and return its response."""
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._url}/api/v1{path}"
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            text = response.read()
        return json.loads(text) if text else None


def walk(api: Api, pipeline: str, customer: str = "acme") -> None:
    """Make every call once and print the results."""
    config = api(
        "POST",
        f"/customers/{customer}/pipeline-configs",
        {
            "provider": "GCP",
            "domain": "COST",
            "pipeline_template": pipeline,
            "schedule_cron": "0 2 * * *",
            "timezone": "America/New_York",
            "retry_config": {"max_attempts": 3, "backoff_multiplier": 2},
        },
    )
    print(f"created {config['config_id']}, next at {config['next_run_time']}")

    # Start it now instead of waiting for two in the morning.
    api("POST", f"/pipeline-configs/{config['config_id']}/start", {})
    claim = {"worker_id": "walker", "max_claims": 1, "wait_seconds": 10}
    (run,) = api("POST", "/scheduler/claim-runs", claim)["claimed_runs"]
    held = {"worker_id": "walker", "fencing_token": run["fencing_token"]}
    path = f"/pipeline-runs/{run['run_id']}"
    print(f"claimed {run['run_id']} until {run['claim_expiry_time']}")

    api("POST", f"{path}/start", {**held, "execution_context": {"region": "us-central1"}})
    progress = {"current_stage": "transforming", "progress_percentage": 45.5}
    response = api("POST", f"{path}/heartbeat", {**held, **progress, "records_processed": 1250000})
    print(f"heartbeat sent; cancellation requested: {response['cancel_requested']}")
    summary = {"records_loaded": 1999500}
    end = api("POST", f"{path}/complete", {**held, "status": "SUCCESS", "result_summary": summary})
    print(f"{end['run_id']} is {end['state']} ({end['status']})")

    runs = api("GET", f"/customers/{customer}/pipeline-runs?state=COMPLETED&limit=5")
    print(f"{len(runs['items'])} completed, the last by {runs['items'][0]['claimed_by']}")
    status = api("GET", "/dashboard/pipeline-status")
    print(f"today: {status['completed_today']} completed, {status['failed_today']} failed")
    api("DELETE", f"/pipeline-configs/{config['config_id']}?reason=the+walk+is+over")
    print("done")


if __name__ == "__main__":
    walk(Api(sys.argv[1], sys.argv[2]), sys.argv[3])
