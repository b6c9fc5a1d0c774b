"""What people see of HTTP processors: runs show, why, pipelines, doctor's findings."""

from __future__ import annotations

from penstock import Pipeline
from penstock.assembly.endpoints import endpoint_problems
from penstock.assembly.settings import load
from penstock.cli.logging import describe_event
from penstock.pipelines.draw import draw
from penstock.runs.cli.details import print_detail
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import unknown_name
from tests.kits.client_harness import Harness
from tests.telemetry.stream import emitting
from tests.worker.endpoints.kit import endpoint, replying


def test_why_names_the_endpoint(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        run_id = world.submit()
        waiting = str(harness.client.diagnostics.why_run(run_id))
        assert f"no dispatcher has sent it to {world.url} yet" in waiting
        assert "no live worker" not in waiting
        world.send_all()
        assert f"it is executing at {world.url}" in str(harness.client.diagnostics.why_run(run_id))


def test_runs_show_prints_url_and_last_status(harness: Harness, capsys: object) -> None:
    with endpoint(harness, lambda _: replying(503)) as world:
        run_id = world.submit()
        world.send_all()
        detail = world.detail(run_id)
        print_detail(detail, [], [], harness.clock.now())
        printed = capsys.readouterr().out  # type: ignore[attr-defined]
        assert f"endpoint  {world.url}  (last status 503)" in printed


def test_a_pipeline_shows_its_endpoint_without_the_query(harness: Harness) -> None:
    made = Pipeline("scores")
    made.phase("main").http("https://a.example.com/x?key=hunter2", name="score")
    drawn = "\n".join(draw(made.definition()))
    assert "sent to https://a.example.com/x?… (not signed), reply within 30s" in drawn
    harness.client.register([made])
    (problem, *_) = endpoint_problems(harness.store, load({}))
    assert problem == "scores/main/score: its callbacks require the setting public_url"
    assert "hunter2" not in str(endpoint_problems(harness.store, load({})))


def test_requests_are_counted_and_logged(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(503)) as world:
        run_id = world.submit()
        world.send_all()
        metrics = ProcessMetrics(unknown_name)
        emitting(metrics, world.sent[0])
        labels = '{processor="scores/main/score",response="503"}'
        counted = f"penstock_endpoint_requests_total{labels} 1.0"
        assert counted in metrics.text().decode()
        level, text = describe_event(world.sent[0], str)
        assert (level, text) == ("warning", f"{run_id} sent: scores/main/score failed (503)")
