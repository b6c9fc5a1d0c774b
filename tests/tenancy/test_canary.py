"""A secret never reaches the database, whatever path it takes (I34)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.access.api_keys import Role, parse
from penstock.access.secrets import Secrets
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode
from penstock.core.redact import KNOWN_SECRETS, MASK
from penstock.core.retry import ErrorType
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.external.client.holder import (
    CompletionResult,
    ExternalWorker,
    FailureReport,
    ProgressReport,
)
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, change_of
from tests.kits.dump import columns_holding

CANARY = "cnry-8f3a-Zq"
REFERENCE = {"password": {"$secret": "db"}}
W = ExternalWorker("w", "k")


@pytest.fixture
def harness(store: Store, clock: VirtualClock) -> Iterator[Harness]:
    """A harness; secrets resolved by a test are cleared after it."""
    yield Harness(store, clock)
    KNOWN_SECRETS.clear()


def execute(harness: Harness, body: Callable[[Any], Any], *, secrets: Secrets) -> int:
    """Run a processor with a reference in its parameters to its stored end. Return the run's id."""
    pipeline = Pipeline("p")
    pipeline.processor("work")(body)
    options = WorkerOptions(name="w", secrets=secrets)
    steps = WorkerCore(harness.store, [pipeline], options, clock=harness.clock, jitter=lambda: 0.0)
    steps.open()
    run = harness.client.runs.submit(Submission(pipeline="p", parameters=REFERENCE))
    (held,) = steps.claim_once(1, start=True)
    finish = steps.execute(held)
    assert finish is not None
    steps.heartbeat_once()
    steps.ends.add([finish])
    steps.flush_once()
    steps.close()
    return decode("run", run.run_id)


def details(harness: Harness, run_id: int) -> str:
    """Return what is stored of a run's end."""
    run = harness.run(run_id)
    found = [run.error_type, run.error_details, run.result]
    return json.dumps(found, separators=(",", ":"))


def test_a_processor_leaks_a_resolved_secret(harness: Harness) -> None:
    """Errors, results and progress of a run that resolved a secret are masked before storage."""

    def raises(run: Any) -> None:
        assert run.parameters["password"] == CANARY
        raise RuntimeError(f"login as {CANARY} failed")

    def returns(run: Any) -> dict[str, Any]:
        run.progress(10, stage=f"with {run.secret('db')}")
        return {"echo": [CANARY], "rows": 3}

    secrets = Secrets({"db": CANARY})
    assert f"login as {MASK} failed" in details(harness, execute(harness, raises, secrets=secrets))
    assert f'{{"echo":["{MASK}"],"rows":3}}' in details(
        harness, execute(harness, returns, secrets=secrets)
    )
    assert columns_holding(harness.store, CANARY) == []


def test_unresolvable_reference(harness: Harness) -> None:
    """A reference without a value fails the run permanently, and the error says what is missing."""
    stored = details(harness, execute(harness, lambda run: dict(run.parameters), secrets=Secrets()))
    assert ErrorType.INVALID_CONFIGURATION in stored
    assert "PENSTOCK_SECRET_DB" in stored
    assert len(harness.client.dead_letters.list().items) == 1


def test_reports_of_external_workers(harness: Harness) -> None:
    """Reports of external workers are masked by name and by pattern."""
    client = harness.client
    for n in range(2):
        run_id = harness.submit("outside", parameters=REFERENCE)
        (claimed,) = client.work.claim(W)
        assert claimed.run.parameters == '{"password": {"$secret": "db"}}'
        client.work.start(run_id, W)
        progress = ProgressReport(stage=f"postgresql://u:{CANARY}@h/d")
        client.work.heartbeat(run_id, W, progress=progress)
        assert columns_holding(harness.store, CANARY) == []
        if n == 0:
            failed = {"message": f"postgresql://u:{CANARY}@h/d", "api_key": CANARY,
                      "log": f"Authorization: Bearer {CANARY}"}  # fmt: skip
            report = FailureReport(error_type="VALIDATION_ERROR", error_details=failed)
            client.work.fail(run_id, W, report)
        else:
            done = {"token": CANARY, "credentials": {"user": CANARY}, "rows": 5}
            client.work.complete(run_id, W, completion=CompletionResult(result_summary=done))
            assert '"rows":5' in details(harness, run_id)
    assert columns_holding(harness.store, CANARY) == []


def test_literal_secrets(harness: Harness) -> None:
    """Configs and submissions with a literal secret are refused and leave no trace."""
    config = harness.config(parameters={"password": {"$secret": "db"}})
    before = harness.counts()
    for parameters in (
        {"password": CANARY}, {"db": [{"apiKey": CANARY}]}, {"url": f"ftp://u:{CANARY}@h/"},
    ):  # fmt: skip
        calls: list[Callable[[], Any]] = [
            lambda p=parameters: harness.submit(parameters=p),  # type: ignore[misc]
            lambda p=parameters: harness.client.runs.submit(  # type: ignore[misc]
                Submission(pipeline="nightly", parameters=p), key="k"
            ),
            lambda p=parameters: harness.config(parameters=p),  # type: ignore[misc]
            lambda p=parameters: harness.client.configs.update(  # type: ignore[misc]
                cfg(config), change_of({"parameters": p})
            ),
        ]
        for call in calls:
            with pytest.raises(InvalidInput) as caught:
                call()
            assert CANARY not in str(caught.value)
    assert harness.counts() == before
    assert columns_holding(harness.store, CANARY) == []


def test_keys(harness: Harness) -> None:
    """No column holds a key, its secret, or a significant part of it."""
    made = harness.client.keys.create("k", Role.ADMIN, customer="acme")
    again = harness.client.keys.rotate(made.info.key_id)
    harness.client.keys.authenticate(again.key)
    for key in (made, again):
        parsed = parse(key.key)
        assert parsed is not None
        for part in (str(key.key), parsed.secret, parsed.secret[:12]):
            assert columns_holding(harness.store, part) == []
