"""The emulator, a front end that adds what it lacks, and an empty dataset for each test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from penstock.probes.bigquery.connection import EMULATOR
from penstock.probes.runner import ProbeRunner
from penstock.testing.clock import VirtualClock
from tests.gcp.emulator import Emulator
from tests.gcp.front import Front
from tests.probes.kit import fill

PROJECT = "acme"
NUMBERS = iter(range(1, 10_000))


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """One emulator for all tests."""
    made = Emulator(tmp_path_factory.mktemp("bigquery"))
    yield made
    made.stop()


@pytest.fixture
def front(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A front end of the emulator that injects faults and keeps job ids; clients use it."""
    with Front(emulator.port) as made:
        monkeypatch.setenv(EMULATOR, made.address)
        yield made


@pytest.fixture
def client(front: Front) -> Iterator[Any]:
    """Google's client, as users make it."""
    del front
    anonymous: Any = AnonymousCredentials
    made: Any = bigquery.Client(project=PROJECT, credentials=anonymous())
    yield made
    made.close()


@pytest.fixture
def dataset(client: Any) -> str:
    """A dataset of the test's own."""
    name = f"season_{next(NUMBERS)}"
    client.create_dataset(name)
    return name


@dataclass
class BigQuerySite:
    """One dataset."""

    client: Any
    dataset: str
    engine: str = "bigquery"
    slow: str = ""
    suffix: str = ""
    types: dict[str, str] = field(
        default_factory=lambda: {"date": "DATE", "text": "STRING", "time": "TIMESTAMP"}
    )

    @property
    def address(self) -> str:
        return f"bigquery:{PROJECT}.{self.dataset}{self.suffix}"

    def run(self, *statements: str) -> None:
        config = bigquery.QueryJobConfig(default_dataset=f"{PROJECT}.{self.dataset}")
        for statement in statements:
            self.client.query(statement, job_config=config).result()

    def count(self, table: str) -> int:
        found = self.client.query(f"SELECT count(*) FROM {self.dataset}.{table}").result()
        return int(next(iter(found))[0])

    def named(self, table: str) -> str:
        return table


@pytest.fixture
def site(client: Any, dataset: str) -> BigQuerySite:
    """A dataset with the tables that every warehouse is probed with."""
    made = BigQuerySite(client, dataset)
    fill(made)
    return made


@pytest.fixture
def probes(clock: VirtualClock) -> Iterator[ProbeRunner]:
    """Probes that use the test's clock."""
    made = ProbeRunner(clock)
    yield made
    made.close()
