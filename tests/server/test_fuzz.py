"""Fuzzing of the whole document against a server: no 5xx, valid responses, correct refusals."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)

from penstock.server import auth
from tests.conftest import ENGINES
from tests.kits.effort import effort
from tests.kits.served import Serve
from tests.server.kit import ServedApi
from tests.server.scene import scene

NDJSON = "application/x-ndjson"
BULK = "/api/v1/pipeline-configs/bulk"
OURS = ("authorization", "x-scheduler-token", "connection")
"""Headers that the caller sets: without them a bad call may be a good one."""
QUICK = effort(1, 2)
BUSY_TRIES = 10
TOO_LARGE = 413
LONG = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "150"))
"""Generated calls for each operation and kind of data in a long run."""
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)

load_all_checks()


@schemathesis.serializer(NDJSON)
def _lines(_: Any, value: Any) -> bytes:
    """Encode one item as one line."""
    return json.dumps(value).encode()


@schemathesis.deserializer(NDJSON)
def _first_line(_: Any, response: Any) -> Any:
    """Return the first line, which stands for all."""
    return json.loads(response.content.splitlines()[0])


@pytest.fixture(scope="module", autouse=True)
def _wrong_tokens() -> Iterator[None]:
    """Accept any number of wrong tokens a second: the check of authentication sends many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "WRONG_TOKENS_RATE", 1e6)
        yield


@pytest.fixture(scope="module", params=ENGINES)
def fuzzed(request: pytest.FixtureRequest, serve: Serve) -> Iterator[ServedApi]:
    """Return a server with a customer that random calls may hit."""
    with serve(request.param) as served:
        scene(served.harness, "acme")
        yield served


@pytest.fixture(scope="module")
def both(serve: Serve) -> Iterator[list[ServedApi]]:
    """Return a server of each engine; generating a call takes longer than sending it twice."""
    with serve("sqlite") as one, serve("postgres") as other:
        for served in (one, other):
            scene(served.harness, "acme")
        yield [one, other]


def fuzz(servers: list[ServedApi], examples: int) -> int:
    """Call every operation with valid and invalid data; return the number of generated calls."""
    document = servers[0].by(None).ok("GET", "/openapi.json")
    schema = schemathesis.openapi.from_dict(document)
    calls = 0
    wrong: list[Exception] = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        for mode in MODES:
            try:
                calls += fuzz_one(servers, operation, mode, examples)
            except Exception as error:  # continue with the other servers
                error.add_note(f"{operation.method.upper()} {operation.path}, {mode.value}")
                wrong.append(error)
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} operations do not hold what they say", wrong)
    return calls


def fuzz_one(servers: list[ServedApi], operation: Any, mode: GenerationMode, examples: int) -> int:
    """Call one operation with the same generated data on every server."""
    # A valid document may still be refused for its meaning, such as an unknown pipeline.
    excluded = [positive_data_acceptance]
    if operation.path == BULK:
        excluded.append(negative_data_rejection)  # each item has its own outcome
    calls = 0

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def one(case: Any) -> None:
        nonlocal calls
        calls += 1
        ours = {n for n in case.headers or {} if n.lower() in OURS}
        for name in ours:
            del case.headers[name]
        skipped = [*excluded, negative_data_rejection] if ours else excluded
        for served in servers:
            call(served, case, skipped, is_bad=mode is GenerationMode.NEGATIVE)

    try:
        one()
    except hypothesis.errors.Unsatisfiable:  # the operation accepts no invalid data
        return calls
    return calls


def call(served: ServedApi, case: Any, skipped: list[Any], *, is_bad: bool) -> None:
    """Send one call and check its response; a refused call changes nothing."""
    headers = {"Authorization": f"Bearer {served.keys['admin']}"}
    before = served.harness.counts() if is_bad else {}
    for _ in range(BUSY_TRIES):  # as every client does: a busy server asks to come again
        reply = case.call(base_url=served.server.url, headers=headers, timeout=60)
        if reply.status_code != 503 or "Retry-After" not in reply.headers:
            break
    if reply.status_code == TOO_LARGE:  # refused before it was read
        skipped = [*skipped, negative_data_rejection]
    case.validate_response(reply, headers=headers, excluded_checks=skipped)
    assert reply.status_code < 500
    if before and reply.status_code >= 400:
        assert served.harness.counts() == before, "a refusal changed something"


@pytest.mark.postgres
def test_document(both: list[ServedApi]) -> None:
    """Every operation conforms to the document, for valid and invalid data."""
    assert fuzz(both, QUICK) > 150


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_document_at_length(fuzzed: ServedApi, record_property: Callable[[str, int], None]) -> None:
    """Fuzz with many more examples, for nightly runs."""
    calls = fuzz([fuzzed], LONG)
    record_property("calls", calls)
    assert calls > 150


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_links(fuzzed: ServedApi) -> None:
    """Chains of calls that use earlier responses cause no 5xx."""
    document = fuzzed.by(None).ok("GET", "/openapi.json")
    schema = schemathesis.openapi.from_dict(document)
    key = fuzzed.keys["admin"]
    url = fuzzed.server.url

    class Chain(schema.as_state_machine()):  # type: ignore[misc]
        """Calls with the admin key."""

        def get_call_kwargs(self, _: Any) -> dict[str, Any]:
            """Return the address and headers of a call."""
            return {"headers": {"Authorization": f"Bearer {key}"}, "base_url": url, "timeout": 60}

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            """Check that the status is not a 5xx."""
            assert response.status_code < 500, (case, response.content)

    Chain.run(
        settings=settings(
            max_examples=30,
            stateful_step_count=8,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
    )
