"""The page about a consumer on Cloud Run: its files, its refusal to start, its connections."""

import re
import runpy
import threading
from pathlib import Path

import psycopg
import pytest

from penstock.consumer import Consumer, Message, SinkTx
from penstock.testing.postgres.server import DatabaseServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "cloud-run-consumer.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "cloud_run"
PATIENCE = 60
CONCURRENCY = 8
"""Messages that an instance handles at a time by default."""


def test_files() -> None:
    """The page shows the two files of the example, byte for byte."""
    for language, name in (("python", "main.py"), ("text", "Dockerfile")):
        block = re.search(rf"^`{name}`.*?:\n\n```{language}\n(.*?)^```$", PAGE, re.M | re.S)
        assert block is not None
        assert block[1] == (EXAMPLE / name).read_text("utf-8")


def test_no_file_on_cloud_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With K_SERVICE, which Cloud Run sets, the service starts only with a SINK_URL."""
    monkeypatch.setenv("K_SERVICE", "billing")
    monkeypatch.delenv("SINK_URL", raising=False)
    with pytest.raises(KeyError, match="SINK_URL"):
        runpy.run_path(str(EXAMPLE / "main.py"))


@pytest.mark.parametrize(
    "page", ["consume-messages.md", "google-pubsub.md", "cloud-run-consumer.md"]
)
def test_sink_from_the_environment(page: str) -> None:
    """No page that serves pushes names a file as the only sink, and each says why."""
    text = (ROOT / "docs" / "how-to" / page).read_text("utf-8")
    served = text[: text.index("app.asgi()")]
    assert "SINK_URL" in served
    assert not re.search(r'sink="sqlite:', served)
    assert re.search(
        r"lost with its instance|do not outlive the process|outlive the instance", text
    )


@pytest.mark.postgres
def test_connections(pg_server: DatabaseServer) -> None:
    """An instance under more pushes than it handles at a time has nine connections."""
    shown = re.search(
        r"messages at a time \((\d+)\).*?: (\d+) connections, (\d+) with ten", PAGE, re.S
    )
    assert shown is not None
    assert [int(one) for one in shown.groups()] == [CONCURRENCY, CONCURRENCY + 1, 90]
    url = pg_server.create_database("billing")
    app = Consumer("billing", sink=url, topic="orders", dead_letters=True)
    inside, may_end = threading.Semaphore(0), threading.Event()

    @app.on("order.placed")
    def bill(message: Message, tx: SinkTx) -> None:
        tx.get(f"bills/{message.id}")
        inside.release()
        assert may_end.wait(PATIENCE)

    data = b'{"event_type": "order.placed"}'
    ends = [
        app.submit(Message(id=str(n), data=data, subscription="billing"))
        for n in range(4 * CONCURRENCY)
    ]
    try:
        for _ in range(CONCURRENCY):
            assert inside.acquire(timeout=PATIENCE)
        app.sink.check()
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'penstock-sink'"
            ).fetchone()
        assert row == (CONCURRENCY + 1,)
    finally:
        may_end.set()
        found = {end.result(PATIENCE).outcome.value for end in ends}
        app.close()
        pg_server.drop_database("billing")
    assert found == {"applied"}
